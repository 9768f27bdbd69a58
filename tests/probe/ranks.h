/*
 * ranks - the driver's side for tests: starts the fake probe's processes, talks to each over its
 * own connection, and never waits longer than a test may.
 */
#pragma once
#include <sys/types.h>
#include "probes/protocol/protocol.h"

enum { RANKS_MAX = 8 };

struct ranks {
    unsigned n;
    pid_t pid[RANKS_MAX];
    int fd[RANKS_MAX];
    struct nt_buf in[RANKS_MAX];
    struct nt_hello hello[RANKS_MAX];
    char dir[64], shm[128];
};

/* Starts n ranks with these variables besides the usual ones ("NAME=VALUE", NULL-terminated, or
 * NULL), and takes their hello. Any failure fails the test. */
void ranks_start(struct ranks *r, unsigned n, const char *const *env);
/* uid and init; max_bytes of the buffers. by_page: with the shared page, else as on several hosts.
 */
void ranks_init(struct ranks *r, uint64_t max_bytes, bool by_page);
void ranks_say(struct ranks *r, unsigned rank, const struct nt_msg *m);
void ranks_say_text(struct ranks *r, unsigned rank, const char *line);
/* The next message of a rank, of this type or the test fails; free with nt_msg_done(). */
void ranks_hear(struct ranks *r, unsigned rank, enum nt_msg_type type, struct nt_msg *ret);
/* Asks all and takes all results; `ret`: one for each rank, free with ranks_results_done(). */
void ranks_measure(struct ranks *r, const struct nt_measure *m, struct nt_msg *ret);
void ranks_results_done(struct ranks *r, struct nt_msg *results);
/* Waits for the end of a process; its wait status. Fails the test after `ms`. */
int ranks_end(struct ranks *r, unsigned rank, unsigned ms);
/* quit; all must end with 0. */
void ranks_quit(struct ranks *r);
/* Whatever state they are in. */
void ranks_kill(struct ranks *r);

uint64_t ranks_now_ms(void);
