#include "tuner/service/uevent.h"
#include "tuner/base/log.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUIET_MS = 3000, MESSAGE_BYTES = 8192, KERNEL_GROUP = 1 };

bool nt_uevent_matters(const char *message, size_t len)
{
    static const char *const subsystems[] = {"pci",        "drm", "net",    "infiniband", "nvidia",
                                             "nvidia-uvm", "cpu", "memory", "pci_express"};
    bool matters = false, module = false, nvidia = false;

    for (const char *at = message, *end = message + len; at < end;) {
        size_t n = strnlen(at, (size_t)(end - at));
        if (at + n == end) {
            return false; /* cut off */
        }
        if (strncmp(at, "SUBSYSTEM=", 10) == 0) {
            for (size_t i = 0; i < sizeof(subsystems) / sizeof(subsystems[0]); i++) {
                matters = matters || strcmp(at + 10, subsystems[i]) == 0;
            }
            module = strcmp(at + 10, "module") == 0;
        }
        nvidia = nvidia || strncmp(at, "DEVPATH=/module/nvidia", 22) == 0;
        at += n + 1;
    }
    return matters || (module && nvidia);
}

static void on_quiet(uv_timer_t *t)
{
    struct nt_uevents *u = t->data;
    u->on_change(u->data);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct nt_uevents *u = p->data;
    bool changed = false;

    (void)events;
    for (int i = 0; status == 0 && i < 64; i++) { /* a storm has the next turn of the loop */
        char message[MESSAGE_BYTES];
        struct sockaddr_nl from = {0};
        socklen_t size = sizeof(from);
        ssize_t n = recvfrom(u->fd, message, sizeof(message), 0, (struct sockaddr *)&from, &size);
        if (n < 0 && errno != EINTR && errno != ENOBUFS) {
            break;
        }
        /* Some were lost: who knows which. From anybody but the kernel they mean nothing. */
        changed = changed || (n < 0 && errno == ENOBUFS) ||
                  (n > 0 && from.nl_pid == 0 && nt_uevent_matters(message, (size_t)n));
    }
    if (changed) {
        (void)uv_timer_start(&u->timer, on_quiet, QUIET_MS, 0);
    }
}

void nt_uevents_open(struct nt_uevents *u, uv_loop_t *loop, void (*on_change)(void *data),
                     void *data)
{
    struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};

    u->on_change = on_change;
    u->data = data;
    u->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    if (u->fd < 0 || bind(u->fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        uv_poll_init(loop, &u->poll, u->fd) != 0) {
        nt_log(NT_INFO, "watch: no events of the kernel to be had here (%s): looking by the clock",
               strerror(errno));
        if (u->fd >= 0) {
            (void)close(u->fd);
        }
        return;
    }
    u->open = true;
    u->poll.data = u->timer.data = u;
    (void)uv_timer_init(loop, &u->timer);
    (void)uv_poll_start(&u->poll, UV_READABLE, on_readable);
}

static void on_closed(uv_handle_t *h)
{
    (void)close(((struct nt_uevents *)h->data)->fd);
}

void nt_uevents_close(struct nt_uevents *u)
{
    if (u->open) {
        u->open = false;
        uv_close((uv_handle_t *)&u->timer, NULL);
        uv_close((uv_handle_t *)&u->poll, on_closed);
    }
}
