#include "profiles/plugin/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/sha256.h"

/* The page: slots only, all zero in a new file. It is shared by processes of one build on one host
 * and outlives none of them, so it is a plain structure. */
enum { SLOTS = 1024, NO_RANK = UINT32_MAX, HASH_ROOM = NT_HASH_HEX + 8 };
/* Written into a slot by whoever sees it first, because who saw it may be gone a moment later. */
enum verdict { OPEN, BUSY, MET, DIFFERS, LACKS };
struct slot {
    uint32_t version;   /* PAGE_VERSION once the slot is filled */
    uint32_t pid, rank; /* rank on this host, NO_RANK if the launcher does not say */
    uint32_t arrived;   /* communicators with everyone that this process has come to */
    uint32_t verdict, other_pid;
    char hash[HASH_ROOM], other_hash[HASH_ROOM];
    char lack[88]; /* LACKS: how many came and who did not */
};
enum { PAGE_VERSION = 2, PAGE_BYTES = SLOTS * sizeof(struct slot) };
_Static_assert(sizeof(struct slot) == 256, "slots of one size in every build");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pid_t pid; /* whose seat it is: a forked child takes its own */
    int fd;
    struct slot *page;
    unsigned mine;
    bool met;
} seat;

/* Locks on open file descriptions end with the process and mean the same in every pid namespace. */
static struct flock byte_of(unsigned slot, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
}

static bool alive(unsigned slot)
{
    struct flock l = byte_of(slot, F_WRLCK);
    return slot == seat.mine || (fcntl(seat.fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK);
}

static uint32_t local_rank(void)
{
    static const char *const names[] = {"NCCLTUNE_LOCAL_RANK", "LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *v = getenv(names[i]);
        char *end;
        unsigned long n = v != NULL ? strtoul(v, &end, 10) : 0;
        if (v != NULL && v[0] >= '0' && v[0] <= '9' && *end == '\0' && n < NT_TABLE_MAX_RANKS) {
            return (uint32_t)n;
        }
    }
    return NO_RANK;
}

static int open_page(const char *job)
{
    char folder[4096], name[NT_HASH_HEX + 8];
    int fd, dir = nt_receipt_folder(folder, sizeof(folder), NULL);
    struct stat st;

    if (dir < 0) {
        return -1;
    }
    nt_format_sha256_hex(job, strlen(job), name); /* any text is a fit name of a job */
    memcpy(name + 32, ".meet", sizeof(".meet"));
    fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    (void)close(dir);
    if (fd >= 0 &&
        (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
         (st.st_mode & (S_IWGRP | S_IWOTH)) != 0 || posix_fallocate(fd, 0, PAGE_BYTES) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Takes a slot that nobody alive holds, under the file's lock. */
static bool sit_down(const struct nt_meeting *m)
{
    bool found = false;

    while (flock(seat.fd, LOCK_EX) != 0) {
        if (errno != EINTR) {
            return false;
        }
    }
    for (unsigned i = 0; i < SLOTS && !found; i++) {
        struct flock l = byte_of(i, F_WRLCK);
        if (fcntl(seat.fd, F_OFD_SETLK, &l) == 0) {
            struct slot *s = &seat.page[i];
            memset(s, 0, sizeof(*s));
            s->pid = (uint32_t)getpid();
            s->rank = local_rank();
            (void)snprintf(s->hash, sizeof(s->hash), "%s", m->hash);
            __atomic_store_n(&s->version, PAGE_VERSION, __ATOMIC_RELEASE);
            seat.mine = i;
            found = true;
        }
    }
    (void)flock(seat.fd, LOCK_UN);
    return found;
}

static bool take_seat(const struct nt_meeting *m)
{
    void *p;

    if (seat.page != NULL && seat.pid == getpid()) {
        return true;
    }
    seat.met =
        false; /* a forked child leaves the parent's seat alone: its lock is the parent's too */
    seat.page = NULL;
    seat.mine = SLOTS;
    seat.fd = open_page(m->job);
    if (seat.fd < 0) {
        return false;
    }
    p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, seat.fd, 0);
    if (p == MAP_FAILED) {
        (void)close(seat.fd);
        return false;
    }
    seat.page = p;
    seat.pid = getpid();
    if (!sit_down(m)) {
        (void)munmap(p, PAGE_BYTES);
        (void)close(seat.fd);
        seat.page = NULL;
    }
    return seat.page != NULL;
}

static bool seated(unsigned i)
{
    return __atomic_load_n(&seat.page[i].version, __ATOMIC_ACQUIRE) == PAGE_VERSION && alive(i);
}

static void judge(struct slot *s, enum verdict v, const struct slot *other)
{
    uint32_t open = OPEN;
    if (__atomic_compare_exchange_n(&s->verdict, &open, BUSY, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
        if (v == LACKS) {
            memcpy(s->lack, other->lack, sizeof(s->lack));
        } else if (other != NULL) {
            s->other_pid = other->pid;
            memcpy(s->other_hash, other->hash, sizeof(s->other_hash));
        }
        __atomic_store_n(&s->verdict, (uint32_t)v, __ATOMIC_RELEASE);
    }
}

static int differs(struct nt_why *why, uint32_t pid, const char *hash)
{
    return nt_why_fail(why, "pid %u of this job was told profile %.64s", pid, hash);
}

static int lacks(const struct nt_meeting *m, const char *lack, struct nt_why *why)
{
    return nt_why_fail(why, "after %u ms the tuner plugin is in %s", m->timeout_ms, lack);
}

/* Ranks that have come; a live process with another hash ends the search, for both. */
static int count(const struct nt_meeting *m, uint32_t *ret_arrived, struct nt_why *why)
{
    uint32_t arrived = 0;
    struct slot *mine = &seat.page[seat.mine];

    if (__atomic_load_n(&mine->verdict, __ATOMIC_ACQUIRE) == DIFFERS) {
        return differs(why, mine->other_pid, mine->other_hash);
    }
    if (__atomic_load_n(&mine->verdict, __ATOMIC_ACQUIRE) == LACKS) {
        return lacks(m, mine->lack, why);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &seat.page[i];
        if (!seated(i)) {
            continue;
        }
        if (strncmp(s->hash, m->hash, sizeof(s->hash)) != 0) {
            judge(s, DIFFERS, mine);
            return differs(why, s->pid, s->hash);
        }
        arrived += __atomic_load_n(&s->arrived, __ATOMIC_ACQUIRE);
    }
    if (__atomic_load_n(&mine->verdict, __ATOMIC_ACQUIRE) == MET) {
        arrived = m->local_ranks;
    }
    *ret_arrived = arrived;
    return 0;
}

static void append(char *list, size_t size, unsigned n)
{
    size_t at = strlen(list);
    int w = snprintf(list + at, size - at, " %u", n);
    if (w < 0 || (size_t)w >= size - at) {
        list[at] = '\0'; /* what does not fit whole is left out */
    }
}

/* Says it to the others too: this process may be gone when they look. */
static int missing(const struct nt_meeting *m, uint32_t arrived, struct nt_why *why)
{
    char lack[24] = ""; /* with the words around it no longer than a slot's */
    bool by_rank = true;
    struct slot said;

    for (uint32_t rank = 0; rank < m->local_ranks; rank++) {
        bool found = false;
        for (unsigned i = 0; i < SLOTS; i++) {
            const struct slot *s = &seat.page[i];
            if (seated(i) && s->arrived > 0) {
                by_rank = by_rank && s->rank != NO_RANK;
                found = found || s->rank == rank;
            }
        }
        if (!found) {
            append(lack, sizeof(lack), rank);
        }
    }
    (void)snprintf(said.lack, sizeof(said.lack), "%u of %u ranks of this host; missing:%s%s",
                   arrived, m->local_ranks, by_rank ? " local ranks" : " the others",
                   by_rank ? lack : "");
    for (unsigned i = 0; i < SLOTS; i++) {
        if (seated(i)) {
            judge(&seat.page[i], LACKS, &said);
        }
    }
    return lacks(m, said.lack, why);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000U + (uint64_t)t.tv_nsec / 1000000U;
}

static int wait_for_everyone(const struct nt_meeting *m, struct nt_why *why)
{
    uint64_t end = now_ms() + m->timeout_ms;

    (void)__atomic_fetch_add(&seat.page[seat.mine].arrived, 1, __ATOMIC_ACQ_REL);
    for (;;) {
        uint32_t arrived = 0;
        if (count(m, &arrived, why) != 0) {
            return -1;
        }
        if (arrived >= m->local_ranks) {
            for (unsigned i = 0; i < SLOTS; i++) {
                if (seated(i)) {
                    judge(&seat.page[i], MET, NULL);
                }
            }
            return 0;
        }
        if (now_ms() >= end) {
            return missing(m, arrived, why);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

int nt_meet(const struct nt_meeting *m, bool *ret_met, struct nt_why *why)
{
    uint32_t arrived;
    bool has_seat, met;
    int rc;

    (void)pthread_mutex_lock(&lock);
    has_seat = take_seat(m);
    met = seat.met;
    (void)pthread_mutex_unlock(&lock);
    *ret_met = has_seat;
    if (!has_seat || met) {
        return 0;
    }
    /* Threads of one process are ranks of their own, so the wait is outside of the lock. */
    rc = m->everyone ? wait_for_everyone(m, why) : count(m, &arrived, why);
    if (rc == 0 && m->everyone) {
        (void)pthread_mutex_lock(&lock);
        seat.met = true;
        (void)pthread_mutex_unlock(&lock);
    }
    return rc;
}
