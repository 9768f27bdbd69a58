#include "tests/probe/fake/wire.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct wire_page {
    atomic_uint arrived, round;
    struct wire_call calls[WIRE_RANKS];
    unsigned char windows[WIRE_RANKS][WIRE_WINDOW];
};

int wire_make_id(struct nt_nccl_id *ret)
{
    int fd = memfd_create("fakenccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct wire_page)) != 0) {
        return -1;
    }
    memset(ret, 0, sizeof(*ret));
    (void)snprintf(ret->bytes, sizeof(ret->bytes), "/proc/%ld/fd/%d", (long)getpid(), fd);
    return 0;
}

int wire_open(struct wire *w, const struct nt_nccl_id *id, unsigned rank, unsigned world)
{
    void *page;
    int fd =
        memchr(id->bytes, 0, sizeof(id->bytes)) != NULL ? open(id->bytes, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || world > WIRE_RANKS || rank >= world) {
        return -1;
    }
    page = mmap(NULL, sizeof(struct wire_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (page == MAP_FAILED) {
        return -1;
    }
    w->page = page;
    w->rank = rank;
    w->world = world;
    w->round = 0;
    atomic_store(&w->aborted, false);
    return 0;
}

void wire_close(struct wire *w)
{
    if (w->page != NULL) {
        (void)munmap(w->page, sizeof(struct wire_page));
        w->page = NULL;
    }
}

int wire_meet(struct wire *w)
{
    struct wire_page *p = w->page;
    uint32_t next = w->round + 1;
    if (atomic_fetch_add(&p->arrived, 1) + 1 == w->world) {
        atomic_store(&p->arrived, 0);
        atomic_store(&p->round, next);
    }
    for (unsigned n = 0; atomic_load(&p->round) != next; n++) {
        if (atomic_load(&w->aborted)) {
            return -1;
        }
        if (n > 200) {
            (void)sched_yield();
        }
    }
    w->round = next;
    return 0;
}

int wire_hang(struct wire *w)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load(&w->aborted)) {
        (void)nanosleep(&pause, NULL);
    }
    return -1;
}

struct wire_call *wire_call_of(struct wire *w, unsigned rank)
{
    return &w->page->calls[rank];
}

unsigned char *wire_window_of(struct wire *w, unsigned rank)
{
    return w->page->windows[rank];
}
