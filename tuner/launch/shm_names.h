/*
 * shm_names - the shared memory files of NCCL that the ranks of one gang have mapped: what a gang
 * that was killed may leave in /dev/shm, and the only names that are removed there.
 */
#pragma once
#include <stddef.h>
#include <sys/types.h>

enum { NT_SHM_NAMES = 1024, NT_SHM_NAME_MAX = 64 };

struct nt_shm_names {
    char (*name)[NT_SHM_NAME_MAX]; /* without "/dev/shm/"; owned */
    size_t count;
};

/* Adds the names in one line of /proc/PID/maps, and in the whole file of a process. Deleted files
 * and more than NT_SHM_NAMES are passed over; a process that is gone adds nothing. */
void nt_shm_names_line(struct nt_shm_names *s, const char *line);
void nt_shm_names_read(struct nt_shm_names *s, pid_t pid);
/* Removes those that still exist; returns how many. Frees the list. */
size_t nt_shm_names_unlink(struct nt_shm_names *s);
