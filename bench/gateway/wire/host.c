/* A host whose chunks leave at exact times, so that each one wakes the proxy up.
 *
 * It listens on a free port of 127.0.0.1 and prints the port. A request says what it wants somewhere in its body, as
 * text that every proxy passes on: `bench:KIND,CHUNKS,GAP,SLOTS;`.
 *
 *   KIND    `text`, or `markers`: a tool call as raw markers
 *   CHUNKS  of a stream; the first two (the role and the first token) are sent at once, and the last one ends it
 *   GAP     microseconds between two chunks; 0 sends all of them at once
 *   SLOTS   how many streams share the gap: they send one after another, GAP / SLOTS apart, whenever they started
 *
 * `GET /stats` returns what was sent since the last one, how late, and the CPU time that it took. */
#include "common.h"

#define HEAD "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
#define CHUNK "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000," \
              "\"model\":\"kimi-k2.5\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]%s}"
#define USAGE "\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":80,\"total_tokens\":100}"
#define TEXT "The quick brown fox jumps over the lazy dog, and then it does so again. "
#define STAMP_TEXT "#000000@000000000000000"

static const char *const BEFORE[] = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.read:0",
                                     "<|tool_call_argument_begin|>", "{\\\"path\\\": \\\""};
static const char *const AFTER[] = {"\\\"}", "<|tool_call_end|>", "<|tool_calls_section_end|>"};
enum { BEFORES = 5, AFTERS = 3 };

typedef struct {
    int fd, gone;
    Buffer in, out;
    size_t head, length; /* of the request; head is 0 until it is complete */
    int chunked, markers, chunks, sent;
    int64_t gap, due; /* due is 0 while no stream is open */
} Connection;

static int poller, timer;
static Connection **queue; /* a heap, by the time of the next chunk */
static size_t queued, queue_room;
static Samples lateness;
static long chunks_sent, shared_wakeups, streams, requests;
static double cpu_before;
static char stamped[512];
static size_t stamped_size, stamp_offset;

/* --- the heap */

static void push(Connection *c) {
    if (queued == queue_room) {
        queue_room = queue_room ? queue_room * 2 : 64;
        queue = realloc(queue, queue_room * sizeof *queue);
        if (!queue) die("realloc");
    }
    size_t at = queued++;
    while (at && queue[(at - 1) / 2]->due > c->due) {
        queue[at] = queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue[at] = c;
}

static Connection *pop(void) {
    Connection *first = queue[0], *last = queue[--queued];
    size_t at = 0, next;
    while ((next = 2 * at + 1) < queued) {
        if (next + 1 < queued && queue[next + 1]->due < queue[next]->due) next++;
        if (last->due <= queue[next]->due) break;
        queue[at] = queue[next];
        at = next;
    }
    queue[at] = last;
    return first;
}

/* --- sending */

static void discard(Connection *c) {
    close(c->fd);
    free(c->in.at);
    free(c->out.at);
    free(c);
}

static void watch(Connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) die("epoll_ctl");
}

static void flush(Connection *c) {
    while (c->out.used) {
        ssize_t done = send(c->fd, c->out.at, c->out.used, 0);
        if (done < 0) {
            if (errno == EAGAIN) watch(c, EPOLLIN | EPOLLOUT);
            else c->out.used = 0; /* the peer is gone, and the next read reports it */
            return;
        }
        drop(&c->out, done);
    }
}

static void send_now(Connection *c, const void *data, size_t size) {
    append(&c->out, data, size);
    flush(c);
}

static void append_frame(Buffer *b, const char *json) {
    char size[32];
    append(b, size, sprintf(size, "%zx\r\n", strlen(json) + 8));
    append(b, "data: ", 6);
    append(b, json, strlen(json));
    append(b, "\n\n\r\n", 4);
}

static void append_delta(Buffer *b, const char *delta, const char *finish, const char *usage) {
    char json[512];
    snprintf(json, sizeof json, CHUNK, delta, finish, usage);
    append_frame(b, json);
}

static void append_content(Buffer *b, const char *text) {
    char delta[128];
    snprintf(delta, sizeof delta, "{\"content\":\"%s\"}", text);
    append_delta(b, delta, "null", "");
}

/* One chunk of a stream; the first two go together, as a host has the first token when it starts. */
static void append_chunk(Buffer *b, Connection *c) {
    int number = c->sent++, content = number - 1, contents = c->chunks - 2;
    if (number == 0) {
        append(b, HEAD, strlen(HEAD));
        append_delta(b, "{\"role\":\"assistant\",\"content\":\"\"}", "null", "");
        append_chunk(b, c);
    } else if (content == contents) {
        append_delta(b, "{}", "\"stop\"", "," USAGE);
        append_frame(b, "[DONE]");
        append(b, "0\r\n\r\n", 5);
    } else if (c->markers && content < BEFORES) {
        append_content(b, BEFORE[content]);
    } else if (c->markers && content >= contents - AFTERS) {
        append_content(b, AFTER[content - (contents - AFTERS)]);
    } else {
        append(b, stamped, stamped_size);
        write_stamp(b->at + b->used - stamped_size + stamp_offset, content - (c->markers ? BEFORES : 0), now_ns());
    }
    chunks_sent++;
}

static void schedule(Connection *c) {
    if (c->sent < c->chunks) push(c);
    else c->due = 0;
}

static void send_due(void) {
    int64_t now = now_ns();
    int woken = 0;
    while (queued && queue[0]->due <= now) {
        Connection *c = pop();
        if (c->gone) {
            discard(c);
            continue;
        }
        add_sample(&lateness, (now_ns() - c->due) / 1e6);
        append_chunk(&c->out, c);
        flush(c);
        shared_wakeups += woken++ > 0;
        c->due += c->gap;
        schedule(c);
    }
    if (queued) wake_at(timer, queue[0]->due);
}

/* --- requests */

static void send_stats(Connection *c) {
    char *body, head[128];
    size_t size;
    FILE *out = open_memstream(&body, &size);
    fprintf(out, "{\"streams\": %ld, \"requests\": %ld, \"chunks\": %ld, \"shared_wakeups\": %ld, \"cpu_s\": %.6f, ",
            streams, requests, chunks_sent, shared_wakeups, cpu_seconds() - cpu_before);
    print_percentiles(out, "late_ms", &lateness);
    fputs("}", out);
    fclose(out);
    append(&c->out, head, sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
                                  size));
    send_now(c, body, size);
    free(body);
    streams = requests = chunks_sent = shared_wakeups = 0;
    lateness.used = 0;
    cpu_before = cpu_seconds();
}

static void send_whole(Connection *c) {
    char body[1024], head[128];
    int size = snprintf(body, sizeof body,
                        "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,"
                        "\"model\":\"kimi-k2.5\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                        "\"content\":\"" STAMP_TEXT " " TEXT TEXT TEXT TEXT "\"},\"finish_reason\":\"stop\"}]," USAGE "}");
    write_stamp(strstr(body, STAMP_TEXT), 0, now_ns());
    append(&c->out, head, sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n",
                                  size));
    requests++;
    send_now(c, body, size);
}

/* The next time that belongs to this stream: streams take the slots of the gap in turn. */
static int64_t next_slot(int64_t gap, int slots) {
    static int64_t turn;
    int64_t phase = gap / slots * (turn++ % slots), now = now_ns();
    int64_t due = now - now % gap + phase;
    return due > now ? due : due + gap;
}

static void send_stream(Connection *c, const char *kind, int chunks, int64_t gap, int slots) {
    c->markers = !strcmp(kind, "markers");
    c->chunks = chunks;
    c->sent = 0;
    c->gap = gap;
    streams++;
    append_chunk(&c->out, c);
    if (!gap)
        while (c->sent < c->chunks) append_chunk(&c->out, c);
    flush(c);
    if (!gap) return;
    c->due = next_slot(gap, slots);
    schedule(c);
    if (queued) wake_at(timer, queue[0]->due);
}

static int asks_for_stream(const char *body) {
    const char *found = body;
    while ((found = strstr(found, "\"stream\""))) {
        found += 8;
        found += strspn(found, " \t\r\n:");
        if (!strncmp(found, "true", 4)) return 1;
    }
    return 0;
}

static void answer(Connection *c, const char *head, const char *body) {
    char kind[16] = "text", empty[] = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    int chunks = 200, slots = 50;
    long gap = 10000;
    const char *wanted = strstr(body, "bench:");
    if (!strncmp(head, "GET /stats ", 11)) {
        send_stats(c);
    } else if (strncmp(head, "POST ", 5)) {
        send_now(c, empty, sizeof empty - 1);
    } else if (!asks_for_stream(body)) {
        send_whole(c);
    } else {
        if (wanted) sscanf(wanted, "bench:%15[a-z],%d,%ld,%d;", kind, &chunks, &gap, &slots);
        if (chunks < 3 || slots < 1) send_now(c, empty, sizeof empty - 1);
        else send_stream(c, kind, chunks, gap * MICROSECOND, slots);
    }
}

/* Remove the chunk framing in place; the size of the body, or 0 while its end is missing. */
static size_t dechunk(Buffer *b, size_t head, size_t *consumed) {
    char *from = b->at + head, *end = b->at + b->used;
    /* First look for the end, so that nothing moves before all is there. */
    if (b->used < head + 5 || memcmp(end - 5, "0\r\n\r\n", 5)) return 0;
    char *to = from;
    while (from < end) {
        char *data;
        size_t size = strtoul(from, &data, 16);
        if (!size) break;
        data = strchr(data, '\n') + 1;
        memmove(to, data, size);
        to += size;
        from = data + size + 2;
    }
    *consumed = b->used;
    return to - (b->at + head);
}

static void take(Connection *c) {
    while (c->in.used) {
        if (!c->head) {
            append(&c->in, "", 1);
            c->in.used--;
            char *end = strstr(c->in.at, "\r\n\r\n");
            if (!end) return;
            end[2] = 0;
            const char *length = header(c->in.at, "content-length:"), *coding = header(c->in.at, "transfer-encoding:");
            end[2] = '\r';
            c->head = end + 4 - c->in.at;
            c->length = length ? strtoul(length, NULL, 10) : 0;
            c->chunked = coding && !strncasecmp(coding, "chunked", 7);
        }
        size_t size = c->length, consumed = c->head + c->length;
        if (c->chunked) {
            if (!(size = dechunk(&c->in, c->head, &consumed))) return;
        } else if (c->in.used < consumed) {
            return;
        }
        reserve(&c->in, 1);
        char *body = c->in.at + c->head, after = body[size];
        body[size] = 0;
        answer(c, c->in.at, body);
        body[size] = after;
        drop(&c->in, consumed);
        c->head = 0;
    }
}

static void receive(Connection *c) {
    reserve(&c->in, 65536);
    ssize_t got = recv(c->fd, c->in.at + c->in.used, c->in.room - c->in.used - 1, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        epoll_ctl(poller, EPOLL_CTL_DEL, c->fd, NULL);
        if (c->due) c->gone = 1; /* its place in the heap still points here */
        else discard(c);
        return;
    }
    c->in.used += got;
    take(c);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
    if (argc > 1) address.sin_port = htons(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (void *)&address, size) || listen(listener, 4096)) die("listen");
    getsockname(listener, (void *)&address, &size);

    Buffer frame = {0};
    append_content(&frame, STAMP_TEXT);
    memcpy(stamped, frame.at, stamped_size = frame.used);
    stamp_offset = (char *)memmem(stamped, stamped_size, STAMP_TEXT, STAMP_SIZE) - stamped;

    poller = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event of_listener = {.events = EPOLLIN, .data.ptr = &listener};
    struct epoll_event of_timer = {.events = EPOLLIN, .data.ptr = &timer};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &of_listener) || epoll_ctl(poller, EPOLL_CTL_ADD, timer, &of_timer))
        die("epoll_ctl");
    printf("%d %s\n", ntohs(address.sin_port), prefer() ? "realtime" : "ordinary");
    fflush(stdout);

    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &timer) {
                uint64_t expired;
                if (read(timer, &expired, sizeof expired) > 0) send_due();
            } else if (events[i].data.ptr == &listener) {
                for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
                    Connection *c = calloc(1, sizeof *c);
                    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
                    if (!c) die("calloc");
                    set_up(c->fd = fd);
                    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
                }
            } else {
                Connection *c = events[i].data.ptr;
                if (events[i].events & EPOLLOUT) {
                    watch(c, EPOLLIN);
                    flush(c);
                }
                if (events[i].events & ~EPOLLOUT) receive(c);
            }
        }
    }
}
