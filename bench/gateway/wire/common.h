/* What host.c and load.c share: the clock, growing buffers, percentiles, and the stamp in every chunk.
 *
 * A stamp is `#NNNNNN@TTTTTTTTTTTTTTT`: the number of the chunk in its stream and the microsecond at which it was sent,
 * on the clock that all processes of a machine share. It is plain text, so it survives every translation. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define STAMP_SIZE 23
#define STAMP_AT 8 /* offset of the time in a stamp */
#define MICROSECOND 1000ll
#define SECOND 1000000000ll

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static inline double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Stand-ins for other machines: they must run on time, and they use little CPU. Without the right they run as usual. */
static inline int prefer(void) {
    struct sched_param priority = {.sched_priority = 1};
    struct rlimit files;
    prctl(PR_SET_TIMERSLACK, 1ul);
    signal(SIGPIPE, SIG_IGN);
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return sched_setscheduler(0, SCHED_RR, &priority) == 0;
}

typedef struct {
    char *at;
    size_t used, room;
} Buffer;

static inline void reserve(Buffer *b, size_t more) {
    if (b->used + more <= b->room) return;
    b->room = (b->used + more) * 2;
    b->at = realloc(b->at, b->room);
    if (!b->at) die("realloc");
}

static inline void append(Buffer *b, const void *data, size_t size) {
    reserve(b, size);
    memcpy(b->at + b->used, data, size);
    b->used += size;
}

static inline void drop(Buffer *b, size_t size) {
    memmove(b->at, b->at + size, b->used - size);
    b->used -= size;
}

typedef struct {
    double *at;
    size_t used, room;
} Samples;

static inline void add_sample(Samples *s, double value) {
    if (s->used == s->room) {
        s->room = s->room ? s->room * 2 : 1024;
        s->at = realloc(s->at, s->room * sizeof(double));
        if (!s->at) die("realloc");
    }
    s->at[s->used++] = value;
}

static inline int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `"name": {"p50": …, "p99": …, "max": …}`, or null without samples. */
static inline void print_percentiles(FILE *out, const char *name, Samples *s) {
    if (!s->used) {
        fprintf(out, "\"%s\": null", name);
        return;
    }
    qsort(s->at, s->used, sizeof(double), compare_doubles);
    fprintf(out, "\"%s\": {\"p50\": %.4f, \"p99\": %.4f, \"max\": %.4f}", name, s->at[s->used / 2],
            s->at[(size_t)(s->used * 0.99)], s->at[s->used - 1]);
}

static inline void write_digits(char *at, int width, int64_t value) {
    while (width) {
        at[--width] = '0' + value % 10;
        value /= 10;
    }
}

/* The digits at `at`, or -1. */
static inline int64_t read_digits(const char *at, int width) {
    int64_t value = 0;
    for (int i = 0; i < width; i++) {
        if (at[i] < '0' || at[i] > '9') return -1;
        value = value * 10 + at[i] - '0';
    }
    return value;
}

static inline void write_stamp(char *at, int number, int64_t now) {
    at[0] = '#';
    write_digits(at + 1, 6, number);
    at[7] = '@';
    write_digits(at + STAMP_AT, 15, now / MICROSECOND);
}

/* The value of a header in a complete head, or NULL. The name is in lower case, with its colon. */
static inline const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    while (found && found[-1] != '\n') found = strcasestr(found + 1, name);
    if (!found) return NULL;
    found += strlen(name);
    return found + strspn(found, " \t");
}

static inline void wake_at(int timer, int64_t due) {
    struct itimerspec at = {.it_value = {due / SECOND, due % SECOND}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL)) die("timerfd_settime");
}

static inline void set_up(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

#endif
