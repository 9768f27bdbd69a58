/*
 * log - one line to stderr per event: lower case, values after their names with units.
 * Foreign text is escaped. The level is the only mutable global of the project; set it once at
 * start.
 */
#pragma once
#include "tuner/base/err.h"

enum nt_level { NT_ERROR, NT_WARN, NT_INFO, NT_DEBUG };

void nt_log_level(enum nt_level level);
void nt_log(enum nt_level level, const char *fmt, ...) NT_PRINTF(2, 3);
