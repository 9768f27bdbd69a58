/*
 * foreign - texts as other people's machines write them: compressed, in UTF-16, line ends of
 * another system, wrapped in a container's log. What comes out is plain text; what was plain is
 * untouched. Nothing is judged here: a reader to whom the wrapping matters (a configuration file
 * with a byte order mark) must not use it.
 */
#pragma once
#include "tuner/base/buf.h"

/* nt_buf_read_file(), then nt_foreign_text(). The maximum of the buffer holds for both. */
NT_MUST_CHECK int nt_foreign_read(struct nt_buf *b, const char *path, struct nt_err *err);

/* In place: gzip is unpacked, UTF-16 becomes UTF-8, lone carriage returns become line ends, and of
 * a container's log of JSON lines ({"log":"…\n"}) the text is taken. NT_E_INVAL: damaged, or larger
 * than the buffer may grow. */
NT_MUST_CHECK int nt_foreign_text(struct nt_buf *b, const char *name, struct nt_err *err);
