/* markup - text into HTML and XML, whoever wrote the text. */
#pragma once
#include <stddef.h>
#include "tuner/base/buf.h"

/* Appends `text` (NULL: nothing) for element content or a quoted attribute. Bytes that are no
 * UTF-8, control characters but tab and newline, and marks that reorder text become U+FFFD. */
void nt_markup_text(struct nt_buf *out, const char *text);
/* The same, cut with an ellipsis after `most` characters. */
void nt_markup_cut(struct nt_buf *out, const char *text, size_t most);
