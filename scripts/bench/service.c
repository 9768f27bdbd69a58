/*
 * service.c ADDR PORT PATH TOKEN CONNECTIONS RATE SECONDS: keep-alive GETs at a fixed rate.
 *
 * Open loop: a request's time counts from when it was due, so that a server that stalls is seen to.
 * Prints one line of JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20, BATCH = 64 };

struct conn {
    int fd;
    uint64_t due_ns;  /* of the request under way; 0: free */
    size_t got, want; /* bytes of the answer; want 0: its head is not whole yet */
    char head[4096];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int dial(const char *addr, const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, addr, &a.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        perror("connect");
        exit(3);
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* 1: the answer is whole, 0: not yet, -1: broken, or no 200. */
static int take(struct conn *c, char *block)
{
    for (;;) {
        ssize_t n = recv(c->fd, block, ANSWER_MAX, 0);
        if (n <= 0) {
            return n < 0 && errno == EAGAIN ? 0 : -1;
        }
        if (c->want == 0) {
            size_t room = sizeof(c->head) - 1 - c->got;
            size_t keep = (size_t)n < room ? (size_t)n : room;
            char *end, *length;
            memcpy(c->head + c->got, block, keep);
            c->head[c->got + keep] = '\0';
            end = strstr(c->head, "\r\n\r\n");
            length = strcasestr(c->head, "\r\nContent-Length:");
            if (end != NULL && length != NULL) {
                if (strncmp(c->head, "HTTP/1.1 200", 12) != 0) {
                    return -1;
                }
                c->want = (size_t)(end + 4 - c->head) + strtoul(length + 17, NULL, 10);
            }
        }
        c->got += (size_t)n;
        if (c->want != 0 && c->got >= c->want) {
            return c->got == c->want ? 1 : -1;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        (void)fprintf(stderr, "usage: service ADDR PORT PATH TOKEN CONNECTIONS RATE SECONDS\n");
        return 2;
    }
    size_t n = strtoul(argv[5], NULL, 10), done = 0, errors = 0, waiting = 0, late = 0;
    double rate = strtod(argv[6], NULL), seconds = strtod(argv[7], NULL);
    size_t total = (size_t)(rate * seconds);
    struct conn *conns = calloc(n, sizeof(*conns));
    uint32_t *us = calloc(total + 1, sizeof(*us));
    char *block = malloc(ANSWER_MAX), request[1024];
    int ep = epoll_create1(0);
    size_t free_at = 0, sent = 0;
    uint64_t start, gap = (uint64_t)(1e9 / rate);
    size_t len = (size_t)snprintf(request, sizeof(request),
                                  "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                                  "%s\r\n\r\n",
                                  argv[3], argv[4]);
    if (conns == NULL || us == NULL || block == NULL) {
        return 70;
    }
    for (size_t i = 0; i < n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
        conns[i].fd = dial(argv[1], argv[2]);
        (void)epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &e);
    }
    start = now_ns();
    while (done + errors < total) {
        struct epoll_event events[BATCH];
        uint64_t now = now_ns();
        int k;
        while (sent < total && waiting < n && now >= start + sent * gap) {
            struct conn *c;
            while (conns[free_at % n].due_ns != 0) {
                free_at++;
            }
            c = &conns[free_at++ % n];
            c->due_ns = start + sent * gap;
            late += now - c->due_ns > 1000000; /* the generator itself was late */
            c->got = c->want = 0;
            if (send(c->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len) {
                errors++;
            }
            sent++;
            waiting++;
        }
        k = epoll_wait(ep, events, BATCH, waiting > 0 && sent < total ? 0 : 1);
        now = now_ns();
        for (int i = 0; i < k; i++) {
            struct conn *c = &conns[events[i].data.u64];
            int is = c->due_ns != 0 ? take(c, block) : -1;
            if (is < 0) {
                errors++;
                (void)epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
                c->due_ns = UINT64_MAX;
            } else if (is > 0) {
                us[done++] = (uint32_t)((now - c->due_ns) / 1000);
                c->due_ns = 0;
                waiting--;
            }
        }
        if (now - start > (uint64_t)((seconds + 30) * 1e9)) {
            break;
        }
    }
    double took = (double)(now_ns() - start) / 1e9;
    qsort(us, done, sizeof(*us), by_value);
    (void)printf("{\"requests\": %zu, \"errors\": %zu, \"per_second\": %.0f, \"p50_ms\": %.3f, "
                 "\"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f, \"late\": %zu}\n",
                 done, errors, (double)done / took, us[done / 2] / 1e3, us[done * 99 / 100] / 1e3,
                 us[done * 999 / 1000] / 1e3, us[done > 0 ? done - 1 : 0] / 1e3, late);
    return errors == 0 && done == total ? 0 : 1;
}
