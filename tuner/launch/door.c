#include "tuner/launch/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/text.h"
#include "tuner/launch/wire.h"

enum { BACKLOG = 128, ADDRESSES = 8, ADDRESS = 128, READ = 4096, GREETING_MS = 2 * NT_GREET_MS };

/* One that has not proved anything yet. */
struct guest {
    uv_tcp_t tcp;
    uv_timer_t timer;
    struct nt_door *door;
    struct guest *next;
    struct nt_greet greet;
    char line[READ];
    size_t len;
    unsigned open;
};

struct nt_door {
    uv_loop_t *loop;
    uv_tcp_t listener;
    struct nt_door_events events;
    struct guest *guests;
    unsigned strangers, open;
    bool closing;
    char version[24], secret[NT_SECRET_LEN + 1], contact[NT_CONTACT_MAX + NT_SECRET_LEN + 16],
        address[NT_CONTACT_MAX];
};

/* ---- closing ---- */

static void closed_one(struct nt_door *d)
{
    if (--d->open == 0) {
        d->events.on_closed(d->events.data);
        explicit_bzero(d, sizeof(*d));
        free(d);
    }
}

static void on_guest_closed(uv_handle_t *h)
{
    struct guest *g = h->data, **at = &g->door->guests;
    struct nt_door *d = g->door;

    if (--g->open > 0) {
        return;
    }
    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    free(g);
    closed_one(d);
}

static void send_away(struct guest *g)
{
    if (!uv_is_closing((uv_handle_t *)&g->tcp)) {
        uv_close((uv_handle_t *)&g->tcp, on_guest_closed);
        uv_close((uv_handle_t *)&g->timer, on_guest_closed);
    }
}

static void on_listener_closed(uv_handle_t *h)
{
    closed_one(h->data);
}

void nt_door_close(struct nt_door *d)
{
    if (d->closing) {
        return;
    }
    d->closing = true;
    for (struct guest *g = d->guests; g != NULL; g = g->next) {
        send_away(g);
    }
    uv_close((uv_handle_t *)&d->listener, on_listener_closed);
}

/* ---- greeting ---- */

static void stranger(struct guest *g)
{
    g->door->strangers++;
    send_away(g);
}

static void on_late(uv_timer_t *t)
{
    stranger(t->data);
}

/* An own descriptor: a libuv handle stays where it was made. */
static void hand_over(struct guest *g, const char *rest, size_t len)
{
    struct nt_door *d = g->door;
    uv_os_fd_t fd;
    char node[NT_NODE_LEN], copy[READ];
    int own = uv_fileno((uv_handle_t *)&g->tcp, &fd) == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

    (void)snprintf(node, sizeof(node), "%s", g->greet.node);
    memcpy(copy, rest, len);
    send_away(g);
    if (own >= 0) {
        d->events.on_in(d->events.data, own, node, copy, len);
    }
}

static void heard_line(struct guest *g, const char *line)
{
    struct nt_door *d = g->door;
    char answer[NT_GREET_LINE + 1], words[NT_GREET_LINE + NT_NODE_LEN + 16];
    int rc = nt_greet_hear(&g->greet, d->secret, d->version, line, answer);
    size_t n = strlen(answer);

    if (rc == 0 && n > 0) {
        answer[n] = '\n';
        nt_wire_put((uv_stream_t *)&g->tcp, answer, n + 1);
        answer[n] = '\0';
    }
    if (rc == -NT_E_MISSING) {
        (void)snprintf(words, sizeof(words), "node %s: %s", g->greet.node, answer);
        send_away(g);
        d->events.on_refused(d->events.data, words);
    } else if (rc != 0) {
        stranger(g);
    }
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct guest *g = h->data;
    (void)suggested;
    *buf = uv_buf_init(g->line + g->len, (unsigned)(sizeof(g->line) - g->len));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct guest *g = s->data;
    char *eol;
    (void)buf;

    if (n < 0) {
        send_away(g);
        return;
    }
    g->len += (size_t)n;
    while (!uv_is_closing((uv_handle_t *)s) && (eol = memchr(g->line, '\n', g->len)) != NULL) {
        size_t used = (size_t)(eol - g->line) + 1;
        *eol = '\0';
        if (used > NT_GREET_LINE) {
            stranger(g);
            return;
        }
        heard_line(g, g->line);
        g->len -= used;
        memmove(g->line, g->line + used, g->len);
        if (g->greet.proved) {
            hand_over(g, g->line, g->len);
            return;
        }
    }
    if (g->len >= NT_GREET_LINE && !uv_is_closing((uv_handle_t *)s)) {
        stranger(g);
    }
}

/* Where too many wait, who has waited longest goes: silence must not keep our own out. */
static void make_room(struct nt_door *d)
{
    struct guest *oldest = NULL;
    unsigned waiting = 0;

    for (struct guest *g = d->guests; g != NULL; g = g->next) {
        if (!uv_is_closing((uv_handle_t *)&g->tcp)) {
            waiting++;
            oldest = g;
        }
    }
    if (waiting > NT_DOOR_GREETING) {
        stranger(oldest);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct nt_door *d = listener->data;
    struct guest *g = status == 0 ? calloc(1, sizeof(*g)) : NULL;

    if (g == NULL) {
        return;
    }
    (void)uv_tcp_init(d->loop, &g->tcp);
    (void)uv_timer_init(d->loop, &g->timer);
    g->tcp.data = g->timer.data = g;
    g->door = d;
    g->open = 2;
    g->next = d->guests;
    d->guests = g;
    d->open++;
    (void)uv_timer_start(&g->timer, on_late, GREETING_MS, 0);
    if (uv_accept(listener, (uv_stream_t *)&g->tcp) != 0 || d->closing ||
        uv_read_start((uv_stream_t *)&g->tcp, on_alloc, on_read) != 0) {
        send_away(g);
    }
    make_room(d);
}

/* ---- the port ---- */

struct place {
    char address[ADDRESS];
    unsigned from, to;
};

/* "ADDRESS:FROM-TO"; an address with several colons and no brackets has no port. */
static int read_place(const char *text, struct place *p, struct nt_err *err)
{
    const char *end = strrchr(text, ']');
    const char *colon = strrchr(end != NULL ? end : text, ':');
    bool many = end == NULL && colon != NULL && strchr(text, ':') != colon;
    size_t len = many || colon == NULL ? strlen(text) : (size_t)(colon - text);
    char ports[32], *dash;
    uint64_t from = 0, to = 0;
    int rc = 0;

    if (end != NULL && text[0] == '[') {
        text++;
        len = (size_t)(end - text);
    }
    *p = (struct place){.from = 0};
    if (len == 0 || len >= sizeof(p->address)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "--listen %.100s: write ADDRESS, ADDRESS:PORT or "
                       "ADDRESS:FROM-TO",
                       text);
    }
    memcpy(p->address, text, len);
    if (colon == NULL || many) {
        return 0;
    }
    (void)snprintf(ports, sizeof(ports), "%s", colon + 1);
    dash = strchr(ports, '-');
    if (dash != NULL) {
        *dash = '\0';
    }
    rc = nt_parse_u64(ports, &from, err);
    rc = rc == 0 ? nt_parse_u64(dash != NULL ? dash + 1 : ports, &to, err) : rc;
    if (rc == 0 && (from < 1 || to < from || to > 65535)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "ports are 1 to 65535, the smaller one first");
    }
    p->from = (unsigned)from;
    p->to = (unsigned)to;
    return nt_wrap(err, rc, "--listen %.100s", colon + 1);
}

static int resolve(const char *address, struct sockaddr_storage *out, struct nt_err *err)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int why = getaddrinfo(address, "0", &hints, &found);

    if (why != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--listen %.100s: %s", address, gai_strerror(why));
    }
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

static void set_port(struct sockaddr_storage *a, unsigned port)
{
    if (a->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
    }
}

static unsigned port_of(const uv_tcp_t *t)
{
    struct sockaddr_storage a = {0};
    int len = sizeof(a);

    if (uv_tcp_getsockname(t, (struct sockaddr *)&a, &len) != 0) {
        return 0;
    }
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

/* Addresses by which others may reach this host: IPv4 first; loopback where there is no other. */
static void own_addresses(char *out, size_t size)
{
    struct ifaddrs *all = NULL;
    unsigned found = 0;
    size_t n = 0;

    out[0] = '\0';
    if (getifaddrs(&all) == 0) {
        for (int family = 0; family < 2; family++) {
            for (struct ifaddrs *i = all; i != NULL && found < ADDRESSES; i = i->ifa_next) {
                char host[INET6_ADDRSTRLEN];
                bool v6 = family == 1;
                const void *raw;
                if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 ||
                    (i->ifa_flags & IFF_LOOPBACK) != 0 ||
                    i->ifa_addr->sa_family != (v6 ? AF_INET6 : AF_INET)) {
                    continue;
                }
                raw = v6 ? (const void *)&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr
                         : (const void *)&((struct sockaddr_in *)i->ifa_addr)->sin_addr;
                if (v6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)raw)) {
                    continue; /* means something on this host only */
                }
                if (inet_ntop(i->ifa_addr->sa_family, raw, host, sizeof(host)) != NULL) {
                    n += (size_t)snprintf(out + n, size - n, "%s%s", found++ > 0 ? "," : "", host);
                }
            }
        }
        freeifaddrs(all);
    }
    if (found == 0) {
        (void)snprintf(out, size, "127.0.0.1");
    }
}

/* A socket on the first port that is free; -1, and errno. */
static int bind_first(const struct place *p, struct sockaddr_storage *a)
{
    const int yes = 1, no = 0;
    int fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), why = EADDRINUSE;
    socklen_t len =
        a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (a->ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    }
    for (unsigned port = p->from; port <= p->to; port++) {
        set_port(a, port);
        if (bind(fd, (const struct sockaddr *)a, len) == 0) {
            if (listen(fd, BACKLOG) == 0) {
                return fd;
            }
            why = errno; /* bound for good: the next port needs a new one */
            break;
        }
        why = errno;
    }
    (void)close(fd);
    errno = why;
    return -1;
}

/* All addresses, IPv6 too where the kernel has it. */
static int bind_any(const struct place *p)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct sockaddr_storage a = {0};
    int fd;

    memcpy(&a, &six, sizeof(six));
    fd = bind_first(p, &a);
    if (fd < 0) {
        memcpy(&a, &four, sizeof(four));
        fd = bind_first(p, &a);
    }
    return fd;
}

static int open_port(struct nt_door *d, const char *listen, struct nt_err *err)
{
    struct place p = {.from = 0};
    struct sockaddr_storage a = {0};
    char addresses[NT_CONTACT_MAX];
    int fd, rc = listen != NULL ? read_place(listen, &p, err) : 0;

    rc = rc == 0 && listen != NULL ? resolve(p.address, &a, err) : rc;
    if (rc != 0) {
        return rc;
    }
    fd = listen != NULL ? bind_first(&p, &a) : bind_any(&p);
    if (fd < 0) {
        return nt_fail(err, NT_E_MISSING, errno, "listen on %s port %u%s",
                       listen != NULL ? p.address : "all addresses", p.from,
                       p.to > p.from ? " and those after it" : "");
    }
    rc = uv_tcp_open(&d->listener, fd);
    rc = rc == 0 ? uv_listen((uv_stream_t *)&d->listener, BACKLOG, on_connection) : rc;
    if (rc != 0) {
        return nt_fail(err, NT_E_MISSING, -rc, "listen on %s", p.address);
    }
    if (listen != NULL) {
        (void)snprintf(addresses, sizeof(addresses), "%s", p.address);
    } else {
        own_addresses(addresses, sizeof(addresses));
    }
    (void)snprintf(d->contact, sizeof(d->contact), "%s/%u/%s", addresses, port_of(&d->listener),
                   d->secret);
    (void)snprintf(d->address, sizeof(d->address), "%.900s port %u", addresses,
                   port_of(&d->listener));
    return 0;
}

static void on_failed_closed(uv_handle_t *h)
{
    free(h->data);
}

int nt_door_open(uv_loop_t *loop, const char *listen, const char *version,
                 const struct nt_door_events *events, struct nt_door **ret, struct nt_err *err)
{
    struct nt_door *d = calloc(1, sizeof(*d));
    int rc = d == NULL ? nt_fail(err, NT_E_NOMEM, 0, "door") : nt_secret_make(d->secret, err);

    if (rc != 0) {
        free(d);
        return rc;
    }
    d->loop = loop;
    d->events = *events;
    d->open = 1;
    (void)snprintf(d->version, sizeof(d->version), "%s", version);
    (void)uv_tcp_init(loop, &d->listener);
    d->listener.data = d;
    rc = open_port(d, listen, err);
    if (rc != 0) {
        uv_close((uv_handle_t *)&d->listener, on_failed_closed);
        return rc;
    }
    *ret = d;
    return 0;
}

const char *nt_door_contact(const struct nt_door *d)
{
    return d->contact;
}

const char *nt_door_address(const struct nt_door *d)
{
    return d->address;
}

unsigned nt_door_strangers(const struct nt_door *d)
{
    return d->strangers;
}
