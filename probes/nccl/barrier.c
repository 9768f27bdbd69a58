#include "probes/nccl/barrier.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Waiting spins this often before it gives its core away: many ranks may share few cores, but a
 * release that a yield delays would make one rank late. */
enum { SPINS = 2000, YIELDS_A_LOOK = 64, VOTES = 4 };

struct nt_barrier_page {
    alignas(64) atomic_uint arrived;
    alignas(64) atomic_uint round; /* rounds completed; what everybody spins on */
    alignas(64) atomic_uint broken;
    atomic_uint vote[VOTES]; /* of round r in r % VOTES */
};
_Static_assert(sizeof(struct nt_barrier_page) <= NT_BARRIER_BYTES, "fits the driver's page");

uint64_t nt_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

int nt_barrier_open(struct nt_barrier *b, const char *path, unsigned world, struct nt_err *err)
{
    int rc = 0;
    void *page;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "barrier page %s", path);
    }
    if (fstat(fd, &st) != 0 || st.st_size < NT_BARRIER_BYTES) {
        rc = nt_fail(err, NT_E_IO, 0, "barrier page %s has less than %d bytes", path,
                     NT_BARRIER_BYTES);
        goto out;
    }
    page = mmap(NULL, NT_BARRIER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        rc = nt_fail(err, NT_E_IO, errno, "map barrier page %s", path);
        goto out;
    }
    *b = (struct nt_barrier){.page = page, .world = world};
out:
    (void)close(fd);
    return rc;
}

void nt_barrier_close(struct nt_barrier *b)
{
    if (b->page != NULL) {
        (void)munmap(b->page, NT_BARRIER_BYTES);
        b->page = NULL;
    }
}

void nt_barrier_leave(struct nt_barrier *b)
{
    if (b->page != NULL) {
        atomic_store(&b->page->broken, 1);
    }
}

static int gone(struct nt_err *err)
{
    return nt_fail(err, NT_E_IO, 0, "another rank left the trial");
}

static void cast(atomic_uint *slot, uint32_t vote)
{
    unsigned seen = atomic_load(slot);
    while (seen < vote && !atomic_compare_exchange_weak(slot, &seen, vote)) {
    }
}

static int spin(struct nt_barrier *b, uint32_t until, uint64_t deadline_ns, struct nt_err *err)
{
    struct nt_barrier_page *p = b->page;
    for (uint64_t n = 0; atomic_load_explicit(&p->round, memory_order_acquire) != until; n++) {
        if (n < SPINS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            continue;
        }
        (void)sched_yield();
        if (n % YIELDS_A_LOOK != 0) {
            continue;
        }
        if (atomic_load(&p->broken) != 0) {
            return gone(err);
        }
        if (nt_now_ns() > deadline_ns) {
            nt_barrier_leave(b);
            return nt_fail(err, NT_E_INTERRUPTED, 0,
                           "waited for the other ranks past the deadline");
        }
    }
    return 0;
}

int nt_barrier_wait(struct nt_barrier *b, uint32_t vote, uint64_t deadline_ns, uint32_t *ret_vote,
                    struct nt_err *err)
{
    struct nt_barrier_page *p = b->page;
    atomic_uint *slot = &p->vote[b->round % VOTES];
    uint32_t next = b->round + 1;
    int rc = 0;
    if (atomic_load(&p->broken) != 0) {
        return gone(err);
    }
    cast(slot, vote);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == b->world) {
        atomic_store(&p->arrived, 0);
        /* Nobody can vote in the round after the next before all have left this one. */
        atomic_store(&p->vote[(b->round + 2) % VOTES], 0);
        atomic_store_explicit(&p->round, next, memory_order_release);
    } else {
        rc = spin(b, next, deadline_ns, err);
    }
    if (rc == 0) {
        b->round = next;
        *ret_vote = atomic_load(slot);
    }
    return rc;
}
