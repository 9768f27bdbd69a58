#include "tuner/service/listen.h"
#include "tuner/base/text.h"
#include "tuner/service/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

// More than a crowd of clients brings at once: one that connects without waiting is turned away by
// a full queue. The kernel takes less where its own limit is lower.
enum { BACKLOG = 4096 };

int nt_http_parse_address(const char *text, char *addr, size_t size, unsigned *ret_port,
                          bool *ret_loopback, struct nt_err *err)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    uint64_t port = 0;
    struct in6_addr six;
    struct in_addr four;

    if (colon == NULL || nt_parse_u64(colon + 1, &port, NULL) != 0 || port > 65535) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "'%.100s' is no place to listen at: unix:PATH, or ADDRESS:PORT", text);
    }
    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    (void)snprintf(addr, size, "%.*s", (int)n, text);
    if (strcmp(addr, "localhost") == 0) {
        (void)snprintf(addr, size, "127.0.0.1");
    }
    if (inet_pton(AF_INET, addr, &four) == 1) {
        *ret_loopback = (ntohl(four.s_addr) >> 24) == 127;
    } else if (inet_pton(AF_INET6, addr, &six) == 1) {
        *ret_loopback = IN6_IS_ADDR_LOOPBACK(&six);
    } else {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is no address in numbers, as 127.0.0.1", addr);
    }
    *ret_port = (unsigned)port;
    return 0;
}

static bool somebody_listens(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return yes;
}

/* The number of an open socket's file is nobody else's: this comparison is enough. */
bool nt_listen_there(const struct nt_listen_name *name)
{
    struct stat st;
    return name->path[0] == '\0' ||
           (lstat(name->path, &st) == 0 && st.st_dev == name->dev && st.st_ino == name->ino);
}

void nt_listen_unlink(const struct nt_listen_name *name)
{
    if (name->path[0] != '\0' && nt_listen_there(name)) {
        (void)unlink(name->path);
    }
}

static int open_unix(const char *path, unsigned mode, int *ret_fd, struct nt_listen_name *ret_name,
                     struct nt_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    mode_t mask;
    int fd, bad;

    if (path[0] == '\0' ||
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= (int)sizeof(a.sun_path)) {
        return nt_fail(err, NT_E_INVAL, 0, "the path of the socket is empty or longer than %zu",
                       sizeof(a.sun_path) - 1);
    }
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode)) {
            return nt_fail(err, NT_E_INVAL, 0, "%s is there and no socket", path);
        }
        if (somebody_listens(&a)) {
            return nt_fail(err, NT_E_NO, 0, "another service listens at %s", path);
        }
        (void)unlink(path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "socket");
    }
    mask = umask(0777 & ~mode); /* never wider than asked for, not even for a moment */
    bad = bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ? errno : 0;
    (void)umask(mask);
    bad = bad == 0 && (listen(fd, BACKLOG) != 0 || lstat(path, &st) != 0) ? errno : bad;
    if (bad != 0) {
        (void)close(fd);
        return nt_fail(err, NT_E_INVAL, bad, "listen at %s", path);
    }
    (void)snprintf(ret_name->path, sizeof(ret_name->path), "%s", path);
    ret_name->dev = st.st_dev;
    ret_name->ino = st.st_ino;
    *ret_fd = fd;
    return 0;
}

static int open_tcp(const char *where, int *ret_fd, unsigned *ret_port, struct nt_err *err)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&a;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
    socklen_t len = sizeof(*four);
    char addr[64];
    bool loopback;
    unsigned port;
    int fd, one = 1, rc = nt_http_parse_address(where, addr, sizeof(addr), &port, &loopback, err);

    if (rc != 0) {
        return rc;
    }
    if (inet_pton(AF_INET, addr, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
    } else {
        (void)inet_pton(AF_INET6, addr, &six->sin6_addr);
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        len = sizeof(*six);
    }
    fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
        rc = nt_fail(err, NT_E_INVAL, errno, "listen at %s", where);
        if (fd >= 0) {
            (void)close(fd);
        }
        return rc;
    }
    *ret_port = ntohs(a.ss_family == AF_INET ? four->sin_port : six->sin6_port);
    *ret_fd = fd;
    return 0;
}

int nt_listen_open(const char *where, unsigned mode, int *ret_fd, struct nt_listen_name *ret_name,
                   unsigned *ret_port, struct nt_err *err)
{
    *ret_port = 0;
    ret_name->path[0] = '\0';
    return strncmp(where, "unix:", 5) == 0 ? open_unix(where + 5, mode, ret_fd, ret_name, err)
                                           : open_tcp(where, ret_fd, ret_port, err);
}

bool nt_listen_peer(int fd, uid_t *ret_uid)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int family = 0;
    socklen_t flen = sizeof(family);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &flen) != 0 || family != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
        return false;
    }
    *ret_uid = peer.uid;
    return true;
}
