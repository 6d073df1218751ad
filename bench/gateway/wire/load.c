/* Many clients at once: send a request again and again, check every response, and report what arrived and when.
 *
 *   load PORT TOTAL CONCURRENT SPREAD STAMPS END TIMEOUT < request
 *
 *   TOTAL, CONCURRENT  requests, and the connections that send them; each sends its next one when the last has ended
 *   SPREAD             microseconds over which the connections start
 *   STAMPS             chunks with a stamp that every response must have, in order (see common.h)
 *   END                the last event of a stream (`[DONE]`, `message_stop`); empty: a response without a stream
 *   TIMEOUT            seconds after which the run ends, with everything that is still open as a failure
 *
 * The request is a complete HTTP/1.1 request. The result is a JSON object on standard output. */
#include "common.h"

enum { CLOSED, IDLE, SENDING, HEAD, BODY };
enum { WRONG_STATUS, CUT_OFF, WRONG_CHUNKS, NO_END, AFTER_END, NO_FINISH, TIMED_OUT, BAD_HTTP, FAILURES };
static const char *const FAILURE[FAILURES] = {
    "status other than 200", "connection closed early", "chunks missing, doubled or out of order", "no last event",
    "data after the last event", "no finish reason", "timeout", "invalid HTTP",
};

typedef struct {
    int fd, state;
    size_t written;
    Buffer in;   /* as received, not yet decoded */
    Buffer line; /* the line of the body that is not complete yet */
    int64_t started, left; /* left: bytes of the body or chunk; -1 until the connection closes */
    int chunked, keeps, in_data, stamps, wrong, ended, after_end, finished, status, is_open;
    char seen[200]; /* the start of the body, for the report of a failure */
    size_t seen_size;
} Client;

static int poller, timer, concurrent, expected, port;
static long total, begun, done, complete, failed[FAILURES], reads, stamps, leaked, open_now, peak_open;
static const char *end_event;
static Buffer request;
static Client *clients;
static Samples first_ms, took_ms, delay_ms;
static char sample[600];

static void start(Client *c);

/* --- a response */

static void note_failure(Client *c, int why) {
    failed[why]++;
    if (sample[0]) return;
    size_t used = sprintf(sample, "%s (status %d): ", FAILURE[why], c->status);
    for (size_t i = 0; i < c->seen_size; i++) {
        unsigned char one = c->seen[i];
        if (one == '"' || one == '\\') sample[used++] = '\\';
        sample[used++] = one < ' ' || one > '~' ? ' ' : one;
    }
    sample[used] = 0;
}

/* The response is over; the next request follows on the same connection if that stays open. */
static void finish(Client *c, int why) {
    if (why < 0) {
        if (c->status != 200) why = WRONG_STATUS;
        else if (c->stamps != expected || c->wrong) why = WRONG_CHUNKS;
        else if (*end_event && !c->ended) why = NO_END;
        else if (c->after_end) why = AFTER_END;
        else if (!c->finished) why = NO_FINISH;
    }
    if (why < 0) {
        complete++;
        add_sample(&took_ms, (now_ns() - c->started) / 1e6);
    } else {
        note_failure(c, why);
    }
    done++;
    open_now -= c->is_open;
    c->is_open = 0;
    c->state = IDLE;
    if (why >= 0 || !c->keeps) {
        close(c->fd);
        c->state = CLOSED;
    }
    if (begun < total && why != TIMED_OUT) start(c);
}

static void read_line(Client *c, char *line, size_t size, int64_t now) {
    line[size] = 0;
    if (*end_event) {
        if (strncmp(line, "data:", 5)) return;
        if (c->ended) c->after_end = 1;
    }
    for (char *at = line; (at = memchr(at, '#', line + size - at)); at++) {
        int64_t number, sent;
        if (line + size - at < STAMP_SIZE || at[7] != '@') continue;
        if ((number = read_digits(at + 1, 6)) < 0 || (sent = read_digits(at + STAMP_AT, 15)) < 0) continue;
        c->wrong |= number != c->stamps;
        if (!c->stamps++) {
            add_sample(&first_ms, (now - c->started) / 1e6);
            c->is_open = 1;
            if (++open_now > peak_open) peak_open = open_now;
        }
        stamps++;
        add_sample(&delay_ms, now / 1e6 - sent / 1e3);
    }
    for (char *at = line; (at = strstr(at, "_reason\"")); at++) {
        at += 8;
        at += strspn(at, " :");
        if (*at == '"') c->finished = 1;
    }
    if (strstr(line, "<|tool_call")) leaked++;
    if (*end_event && strstr(line, end_event)) c->ended = 1;
}

static void read_body(Client *c, const char *data, size_t size) {
    int64_t now = now_ns();
    size_t more = sizeof c->seen - c->seen_size;
    memcpy(c->seen + c->seen_size, data, more = size < more ? size : more);
    c->seen_size += more;
    append(&c->line, data, size);
    char *line = c->line.at, *end = line + c->line.used, *stop;
    while ((stop = memchr(line, '\n', end - line))) {
        read_line(c, line, stop - line, now);
        line = stop + 1;
    }
    drop(&c->line, line - c->line.at);
}

static void end_body(Client *c, int why) {
    reserve(&c->line, 1);
    if (c->line.used) read_line(c, c->line.at, c->line.used, now_ns());
    finish(c, why);
}

/* Decode what is complete. */
static void decode(Client *c) {
    if (c->state == HEAD) {
        reserve(&c->in, 1);
        c->in.at[c->in.used] = 0;
        char *end = strstr(c->in.at, "\r\n\r\n");
        if (!end) return;
        end[2] = 0;
        const char *length = header(c->in.at, "content-length:"), *coding = header(c->in.at, "transfer-encoding:");
        const char *connection = header(c->in.at, "connection:");
        if (sscanf(c->in.at, "HTTP/1.1 %d", &c->status) != 1) return finish(c, BAD_HTTP);
        c->chunked = coding && !strncasecmp(coding, "chunked", 7);
        c->left = c->chunked ? 0 : length ? strtoll(length, NULL, 10) : -1;
        c->keeps = c->left >= 0 && !(connection && !strncasecmp(connection, "close", 5));
        c->in_data = !c->chunked;
        c->state = BODY;
        drop(&c->in, end + 4 - c->in.at);
        if (!c->chunked && !c->left) return end_body(c, -1);
    }
    size_t at = 0;
    while (c->state == BODY && at < c->in.used) {
        size_t rest = c->in.used - at;
        if (c->in_data) {
            size_t size = c->left >= 0 && (size_t)c->left < rest ? (size_t)c->left : rest;
            read_body(c, c->in.at + at, size);
            at += size;
            if (c->left < 0 || (c->left -= size)) continue;
            if (!c->chunked) {
                drop(&c->in, at);
                return end_body(c, -1);
            }
            c->in_data = 0;
            c->left = 2; /* CR and LF after the data */
        } else if (c->left) {
            size_t size = rest < (size_t)c->left ? rest : (size_t)c->left;
            at += size;
            c->left -= size;
        } else {
            char *stop = memchr(c->in.at + at, '\n', rest), *after;
            if (!stop) break;
            c->left = strtoll(c->in.at + at, &after, 16);
            if (after == c->in.at + at) return finish(c, BAD_HTTP);
            if (c->left) {
                at = stop + 1 - c->in.at;
                c->in_data = 1;
            } else if (c->in.used - (stop + 1 - c->in.at) >= 2) { /* the empty line after the last chunk */
                drop(&c->in, stop + 3 - c->in.at);
                return end_body(c, -1);
            } else {
                break;
            }
        }
    }
    drop(&c->in, at);
}

/* --- sockets */

static void watch(Client *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event)) die("epoll_ctl");
}

static void send_request(Client *c) {
    while (c->written < request.used) {
        ssize_t size = send(c->fd, request.at + c->written, request.used - c->written, 0);
        if (size < 0) {
            if (errno == EAGAIN) {
                watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
                return;
            }
            break; /* the response may already be there, and reading says more */
        }
        c->written += size;
    }
    c->state = HEAD;
}

static void start(Client *c) {
    begun++;
    if (c->state == CLOSED) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0) die("socket");
        set_up(c->fd);
        if (connect(c->fd, (void *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
        c->in.used = 0;
    }
    c->state = SENDING;
    c->written = c->line.used = c->seen_size = 0;
    c->stamps = c->wrong = c->ended = c->after_end = c->finished = c->status = 0;
    c->started = now_ns();
    send_request(c);
}

static void receive(Client *c) {
    reserve(&c->in, 65536);
    ssize_t got = recv(c->fd, c->in.at + c->in.used, c->in.room - c->in.used - 1, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (c->state == IDLE) { /* all is sent, and the server closes what it kept open */
        close(c->fd);
        c->state = CLOSED;
        return;
    }
    reads++;
    if (got <= 0) {
        int whole = c->state == BODY && c->in_data && c->left < 0;
        end_body(c, whole ? -1 : CUT_OFF);
        return;
    }
    c->in.used += got;
    if (c->state == SENDING) c->state = HEAD;
    decode(c);
}

static void report(double wall, double cpu) {
    printf("{\"requests\": %ld, \"complete\": %ld, \"stamps\": %ld, \"reads\": %ld, \"leaked\": %ld, \"peak_open\": %ld, "
           "\"wall_s\": %.4f, \"cpu_s\": %.4f, ",
           total, complete, stamps, reads, leaked, peak_open, wall, cpu);
    print_percentiles(stdout, "first_ms", &first_ms);
    fputs(", ", stdout);
    print_percentiles(stdout, "took_ms", &took_ms);
    fputs(", ", stdout);
    print_percentiles(stdout, "delay_ms", &delay_ms);
    fputs(", \"failures\": {", stdout);
    for (int i = 0, some = 0; i < FAILURES; i++)
        if (failed[i]) printf("%s\"%s\": %ld", some++ ? ", " : "", FAILURE[i], failed[i]);
    printf("}, \"sample\": \"%s\"}\n", sample);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fputs("usage: load PORT TOTAL CONCURRENT SPREAD STAMPS END TIMEOUT < request\n", stderr);
        return 2;
    }
    port = atoi(argv[1]);
    total = atol(argv[2]);
    concurrent = atoi(argv[3]);
    int64_t spread = atoll(argv[4]) * MICROSECOND;
    expected = atoi(argv[5]);
    end_event = argv[6];
    int64_t timeout = atoll(argv[7]) * SECOND;
    for (ssize_t got = 1; got > 0; request.used += got) {
        reserve(&request, 65536);
        if ((got = read(0, request.at + request.used, 65536)) < 0) die("read");
    }
    clients = calloc(concurrent, sizeof *clients);
    if (!clients) die("calloc");
    prefer();
    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event of_timer = {.events = EPOLLIN, .data.ptr = &timer};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, timer, &of_timer)) die("epoll_ctl");

    int64_t from = now_ns(), give_up = from + timeout;
    double cpu = cpu_seconds();
    int started = 0;
    wake_at(timer, from);
    while (done < total && now_ns() < give_up) {
        struct epoll_event events[64];
        int count = epoll_wait(poller, events, 64, 1000);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &timer) {
                uint64_t expired;
                if (read(timer, &expired, sizeof expired) < 0) continue;
                while (started < concurrent && from + spread / concurrent * started <= now_ns()) {
                    if (begun < total) start(&clients[started]);
                    started++;
                }
                if (started < concurrent) wake_at(timer, from + spread / concurrent * started);
                continue;
            }
            Client *c = events[i].data.ptr;
            if (c->state == SENDING && events[i].events & EPOLLOUT) {
                watch(c, EPOLL_CTL_MOD, EPOLLIN);
                send_request(c);
            }
            if (events[i].events & ~EPOLLOUT) receive(c);
        }
    }
    double wall = (now_ns() - from) / 1e9;
    cpu = cpu_seconds() - cpu;
    for (int i = 0; i < concurrent; i++)
        if (clients[i].state > IDLE) finish(&clients[i], TIMED_OUT);
    failed[TIMED_OUT] += total - done; /* never sent */
    report(wall, cpu);
    return 0;
}
