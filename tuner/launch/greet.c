#include "tuner/launch/greet.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEX "0123456789abcdef"

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, HEX) == len;
}

int nt_contact_read(const char *text, struct nt_contact *ret, struct nt_err *err)
{
    const char *port = strchr(text, '/'), *secret = port != NULL ? strchr(port + 1, '/') : NULL;

    if (secret == NULL || port == text || (size_t)(port - text) >= sizeof(ret->addresses) ||
        secret - port - 1 < 1 || (size_t)(secret - port) > sizeof(ret->port) ||
        !is_hex(secret + 1, NT_SECRET_LEN)) {
        return nt_fail(err, NT_E_INVAL, 0, "the contact is not ADDRESS/PORT/SECRET");
    }
    (void)snprintf(ret->addresses, sizeof(ret->addresses), "%.*s", (int)(port - text), text);
    (void)snprintf(ret->port, sizeof(ret->port), "%.*s", (int)(secret - port - 1), port + 1);
    (void)snprintf(ret->secret, sizeof(ret->secret), "%s", secret + 1);
    return 0;
}

/* ---- the driver's side ---- */

static int first_line(struct nt_greet *g, const char *secret, const char *line,
                      char answer[NT_GREET_LINE])
{
    char word[24], more, proof[NT_PROOF_LEN + 1];

    if (sscanf(line, "%23s %23s %63s %64s %c", word, g->version, g->node, g->theirs, &more) != 4 ||
        strcmp(word, NT_GREET_WORD) != 0 || !is_hex(g->theirs, NT_SECRET_LEN)) {
        return -NT_E_PROTO;
    }
    if (nt_secret_make(g->ours, NULL) != 0) {
        return -NT_E_IO;
    }
    nt_secret_proof(secret, "driver", g->node, g->theirs, g->ours, proof);
    (void)snprintf(answer, NT_GREET_LINE, "%s %s", g->ours, proof);
    return 0;
}

int nt_greet_hear(struct nt_greet *g, const char *secret, const char *version, const char *line,
                  char answer[NT_GREET_LINE])
{
    char proof[NT_PROOF_LEN + 1];

    answer[0] = '\0';
    if (g->ours[0] == '\0') {
        return first_line(g, secret, line, answer);
    }
    nt_secret_proof(secret, "agent", g->node, g->theirs, g->ours, proof);
    g->proved = !g->proved && nt_secret_same(proof, line);
    if (g->proved && strcmp(g->version, version) != 0) { /* a stranger's word about it is no word */
        g->proved = false;
        (void)snprintf(answer, NT_GREET_LINE,
                       "nccltune is %s where it was started, %s here: install one everywhere",
                       version, g->version);
        return -NT_E_MISSING;
    }
    return g->proved ? 0 : -NT_E_PROTO;
}

/* ---- the agent's side ---- */

static bool ready_within(int fd, short what)
{
    struct pollfd p = {.fd = fd, .events = what};
    int n;

    do {
        n = poll(&p, 1, NT_GREET_MS);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* -1, and errno. */
static int connect_one(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    int why = 0;
    socklen_t len = sizeof(why);

    if (fd < 0) {
        return -1;
    }
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        why = errno;
        if (why == EINPROGRESS) {
            why = ETIMEDOUT;
            if (ready_within(fd, POLLOUT)) {
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len);
            }
        }
    }
    if (why != 0) {
        (void)close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* Byte by byte: what follows the line is not for us. False: no line. */
static bool read_line(int fd, char *out, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && ready_within(fd, POLLIN)) {
        ssize_t got = read(fd, out + n, 1);
        if (got <= 0) {
            return false;
        }
        if (out[n] == '\n') {
            out[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

static bool write_line(int fd, const char *text)
{
    char line[NT_GREET_LINE + 2];
    int n = snprintf(line, sizeof(line), "%s\n", text);

    return n > 0 && (size_t)n < sizeof(line) && send(fd, line, (size_t)n, MSG_NOSIGNAL) == n;
}

static int greet(int fd, const struct nt_contact *c, const char *node, const char *version,
                 struct nt_err *err)
{
    char line[NT_GREET_LINE], mine[NT_SECRET_LEN + 1], theirs[NT_SECRET_LEN + 1],
        proof[NT_PROOF_LEN + 1], said[NT_PROOF_LEN + 1];
    int rc = nt_secret_make(mine, err);

    if (rc != 0) {
        return rc;
    }
    (void)snprintf(line, sizeof(line), NT_GREET_WORD " %s %s %s", version, node, mine);
    if (!write_line(fd, line) || !read_line(fd, line, sizeof(line))) {
        return nt_fail(err, NT_E_PROTO, 0, "no answer");
    }
    if (sscanf(line, "%64s %64s", theirs, said) != 2) {
        return nt_fail(err, NT_E_PROTO, 0, "who answers there is no driver of nccltune");
    }
    nt_secret_proof(c->secret, "driver", node, mine, theirs, proof);
    if (!nt_secret_same(proof, said)) {
        return nt_fail(err, NT_E_PROTO, 0, "who answers there does not know the job's secret");
    }
    nt_secret_proof(c->secret, "agent", node, mine, theirs, proof);
    return write_line(fd, proof) ? 0 : nt_fail(err, NT_E_IO, errno, "write");
}

int nt_greet_connect(const struct nt_contact *c, const char *node, const char *version, int *ret_fd,
                     struct nt_err *err)
{
    char list[NT_CONTACT_MAX], *rest = list, *address;
    int rc = nt_fail(err, NT_E_IO, 0, "no address to connect to");

    (void)snprintf(list, sizeof(list), "%s", c->addresses);
    while (rc != 0 && rc != -NT_E_MISSING && (address = strsep(&rest, ",")) != NULL) {
        struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
        int why = getaddrinfo(address, c->port, &hints, &found);
        if (why != 0) {
            rc = nt_fail(err, NT_E_IO, 0, "driver at %s: %s", address, gai_strerror(why));
        }
        for (struct addrinfo *a = found; a != NULL && rc != 0 && rc != -NT_E_MISSING;
             a = a->ai_next) {
            int fd = connect_one(a);
            rc = fd < 0 ? nt_fail(err, NT_E_IO, errno, "connect to the driver at %s port %s",
                                  address, c->port)
                        : nt_wrap(err, greet(fd, c, node, version, err), "driver at %s port %s",
                                  address, c->port);
            if (rc == 0) {
                *ret_fd = fd;
            } else if (fd >= 0) {
                (void)close(fd);
            }
        }
        if (found != NULL) {
            freeaddrinfo(found);
        }
    }
    return rc;
}
