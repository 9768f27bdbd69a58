/*
 * writes - a line into a stream: at once where it is taken, which it is but by a reader that does
 * not read; what is left follows when there is room.
 *
 * Errors     none: a stream that takes no more ends, and that is an event of its reading side.
 */
#pragma once
#include <uv.h>
#include "tuner/base/buf.h"

/* line is copied as far as it has to wait; a failed one is not sent. */
void nt_write_line(uv_stream_t *stream, const struct nt_buf *line);
