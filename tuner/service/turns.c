#include "tuner/service/turns.h"
#include "tuner/base/log.h"

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NICE = 10,
    /* The shortest turn that Linux grants (from 6.12 on; before, it does not look at it). Who asks
     * for a shorter one than the others has it sooner after waking. */
    TURN_NS = 100000,
    RESET_ON_FORK = 1,
};

/* The kernel's struct sched_attr, first version; not every libc has it, nor its header. */
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void nt_turns_short(void)
{
    struct attr a = {.size = sizeof(a),
                     .policy = SCHED_OTHER,
                     .flags = RESET_ON_FORK,
                     .nice = getpriority(PRIO_PROCESS, 0),
                     .runtime = TURN_NS};
    if (sched_getscheduler(0) != SCHED_OTHER) {
        return; /* whoever started it knows better */
    }
    if (syscall(SYS_sched_setattr, 0, &a, 0) != 0) {
        nt_log(NT_DEBUG, "no short turns to be had here");
    }
}

/* Where the kernel groups processes by session (autogroup), a niceness counts among those of one
 * session only, and the session has one of its own. */
static void step_back(pid_t child)
{
    char path[64], text[16];
    int fd, n = snprintf(text, sizeof(text), "%d", NICE);

    (void)snprintf(path, sizeof(path), "/proc/%d/autogroup", (int)child);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)n) != n) {
        nt_log(NT_DEBUG, "the session of %d stays as it is", (int)child);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void nt_turns_give_way(pid_t child, enum nt_turns how)
{
    static const struct sched_param none = {.sched_priority = 0};

    if (how != NT_TURNS_EQUAL) {
        step_back(child);
    }
    if (how == NT_TURNS_LAST) {
        (void)setpriority(PRIO_PROCESS, (id_t)child, getpriority(PRIO_PROCESS, 0) + NICE);
        (void)sched_setscheduler(child, SCHED_BATCH, &none);
    }
}
