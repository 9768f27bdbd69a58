/*
 * made - the folders that something is about to make, so that they can be taken away again when it
 * fails: only those that were not there, and only while nothing lies in them.
 *
 * Ownership  the caller's memory, zeroed; nt_made_done() frees what is in it.
 */
#pragma once
#include <stddef.h>

struct nt_made {
    char **path;
    size_t n;
};

/* The folder below root (NULL: /) and those on the way to it, as far as they are not there. */
void nt_made_note(struct nt_made *m, const char *root, const char *folder);
void nt_made_take_away(const struct nt_made *m);
void nt_made_done(struct nt_made *m);
