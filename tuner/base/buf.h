/*
 * buf - bytes that grow up to a maximum given at init; reaching it is an error that sticks, so a
 * caller may append many times and check once.
 */
#pragma once
#include <stddef.h>
#include "tuner/base/err.h"

struct nt_buf {
    char *data; /* NUL-terminated when not NULL; owned */
    size_t len, cap, max;
    bool failed; /* an append did not fit or memory ran out */
};

void nt_buf_init(struct nt_buf *b, size_t max);
void nt_buf_done(struct nt_buf *b);
void nt_buf_clear(struct nt_buf *b); /* keeps the memory, clears `failed` */
void nt_buf_add(struct nt_buf *b, const void *data, size_t len);
void nt_buf_puts(struct nt_buf *b, const char *text);
void nt_buf_printf(struct nt_buf *b, const char *fmt, ...) NT_PRINTF(2, 3);
void nt_buf_consume(struct nt_buf *b, size_t len); /* drops the first len bytes */

/* The text, or "" when nothing was added. Valid until the next change. */
const char *nt_buf_str(const struct nt_buf *b);

/* Whole file into *b (appended). max of the buffer limits the size; path "-" is stdin. A path that
 * cannot be opened, or is too large, is NT_E_INVAL: another should have been named. */
NT_MUST_CHECK int nt_buf_read_file(struct nt_buf *b, const char *path, struct nt_err *err);

/* Writes a file so that a reader sees the old or the new content, never half: a temporary beside
 * it, fsync, rename. mode as for open(2). What is no regular file (/dev/null, a pipe), or is
 * stdout, is written to and stays what it is; of a link the file that it names is replaced. A
 * folder is refused, and so are databases and recordings, NT_E_INVAL: a name given by mistake must
 * not cost what was measured. */
NT_MUST_CHECK int nt_write_file(const char *path, const void *data, size_t len, unsigned mode,
                                struct nt_err *err);
/* NT_E_INVAL: the file to write is the one that is read. path NULL, or either not there: they are
 * two. */
NT_MUST_CHECK int nt_write_apart(const char *path, const char *input, struct nt_err *err);
/* Whether nt_write_file() could write there, tried before the work whose result goes there: what
 * lies there stays as it is, and nothing is left. Whoever reads a pipe meets its end when the last
 * writer closes it: *ret_hold keeps it open and is for the caller to close; -1: there is none. */
NT_MUST_CHECK int nt_write_try(const char *path, int *ret_hold, struct nt_err *err);
