/* make - processes and receipts for tests, from a few words. */
#pragma once
#include "tuner/deliver/doctor.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
/* Three hashes. */
#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* texts: words separated by '|', as environ and cmdline hold them with NULs. Freed by
 * nt_proc_done(). maps: lines, or NULL for maps that may not be read. */
struct nt_proc make_proc(uint32_t pid, const char *name, const char *environment,
                         const char *cmdline, const char *maps);

/* A receipt in memory for 8 ranks with one communicator; parts: bits. munmap by make_done(). */
uint8_t *make_receipt(const struct nt_proc *p, const char *hash, uint32_t parts, uint32_t nrows,
                      uint32_t nccl);
void make_done(uint8_t *receipt);
