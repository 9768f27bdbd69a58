#include "profiles/plugin/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const colls[] = {"broadcast",     "reduce",    "allgather",
                                    "reducescatter", "allreduce", NULL};
static const char *const algos[] = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat", NULL};
static const char *const protos[] = {"ll", "ll128", "simple", NULL};

enum { FIELDS = 10, NEEDED = 8, WORD = 32 };

/* Trims blanks; -1 when the word does not fit (no valid one is that long). */
static int word(const char *from, size_t n, char to[WORD])
{
    while (n > 0 && (*from == ' ' || *from == '\t')) {
        from++;
        n--;
    }
    while (n > 0 && (from[n - 1] == ' ' || from[n - 1] == '\t')) {
        n--;
    }
    if (n >= WORD || memchr(from, '\0', n) != NULL) {
        return -1;
    }
    memcpy(to, from, n);
    to[n] = '\0';
    return 0;
}

/* Fields of a line, all of them, empty ones too; -1 when there are too many or one is too long. */
static int split(const char *line, size_t n, char fields[FIELDS][WORD])
{
    int count = 0;
    size_t at = 0;
    for (;;) {
        const char *comma = memchr(line + at, ',', n - at);
        size_t len = comma != NULL ? (size_t)(comma - line) - at : n - at;
        if (count == FIELDS || word(line + at, len, fields[count]) != 0) {
            return -1;
        }
        count++;
        if (comma == NULL) {
            return count;
        }
        at += len + 1;
    }
}

static bool name(const char *text, const char *const *names, int8_t *ret)
{
    for (int8_t i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

/* A whole number from -1 to max. */
static bool number(const char *text, uint64_t max, int64_t *ret)
{
    char *end;
    unsigned long long v;
    if (strcmp(text, "-1") == 0) {
        *ret = NT_CSV_ANY;
        return true;
    }
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    v = strtoull(text, &end, 10);
    *ret = (int64_t)v;
    return errno == 0 && *end == '\0' && v <= max;
}

/* NULL, or the name of the column that cannot be read. */
static const char *fill(char f[FIELDS][WORD], int count, struct nt_csv_row *r)
{
    int64_t min = 0, max = 0, channels = 0, reg = NT_CSV_ANY;

    r->pipe_ops = NT_CSV_ANY;
    if (!name(f[0], colls, &r->coll)) {
        return "collective";
    }
    if (!number(f[1], INT64_MAX, &min) || min < 0) {
        return "minBytes";
    }
    if (!number(f[2], INT64_MAX, &max) || (max >= 0 && max < min)) {
        return "maxBytes";
    }
    if (!name(f[3], algos, &r->algo)) {
        return "algorithm";
    }
    if (!name(f[4], protos, &r->proto)) {
        return "protocol";
    }
    if (!number(f[5], NT_TABLE_MAX_CHANNELS, &channels) || channels == 0) {
        return "channels";
    }
    if (!number(f[6], NT_TABLE_MAX_RANKS, &r->nnodes) || r->nnodes == 0) {
        return "nNodes";
    }
    if (!number(f[7], NT_TABLE_MAX_RANKS, &r->nranks) || r->nranks == 0) {
        return "nRanks";
    }
    if (count > 8 && !number(f[8], INT32_MAX, &r->pipe_ops)) {
        return "numPipeOps";
    }
    if (count > 9 && !number(f[9], 1, &reg)) {
        return "regBuff";
    }
    r->min_bytes = (uint64_t)min;
    r->max_bytes = max < 0 ? UINT64_MAX : (uint64_t)max;
    r->channels = channels > 0 ? (uint8_t)channels : 0;
    r->reg_buff = (int8_t)reg;
    return NULL;
}

static int parse_line(const char *line, size_t n, int line_number, struct nt_csv_row *r,
                      struct nt_why *why)
{
    char f[FIELDS][WORD];
    const char *bad;
    int count = split(line, n, f);

    if (count < NEEDED) {
        return nt_why_fail(why, "line %d: needs %d to %d short fields with commas between",
                           line_number, NEEDED, FIELDS);
    }
    bad = fill(f, count, r);
    if (bad != NULL) {
        return nt_why_fail(why, "line %d: %s cannot be read", line_number, bad);
    }
    r->line = line_number;
    return 0;
}

int nt_csv_parse(const char *text, size_t size, struct nt_csv_row **ret, size_t *ret_n,
                 struct nt_why *why)
{
    struct nt_csv_row *rows = NULL;
    size_t n = 0, at = 0;
    int line = 0, rc = 0;

    while (at < size && rc == 0) {
        const char *start = text + at, *nl = memchr(start, '\n', size - at);
        size_t len = nl != NULL ? (size_t)(nl - start) : size - at;
        at += len + 1;
        line++;
        while (len > 0 &&
               (start[len - 1] == '\r' || start[len - 1] == ' ' || start[len - 1] == '\t')) {
            len--;
        }
        if (len == 0 || *start == '#') {
            continue;
        }
        if (n == NT_TABLE_MAX_ROWS) {
            rc = nt_why_fail(why, "line %d: more than %d rows", line, NT_TABLE_MAX_ROWS);
            break;
        }
        if (rows == NULL) {
            rows = calloc(NT_TABLE_MAX_ROWS, sizeof(*rows));
        }
        rc = rows != NULL ? parse_line(start, len, line, &rows[n], why)
                          : nt_why_fail(why, "out of memory");
        n++;
    }
    if (rc != 0) {
        free(rows);
        return rc;
    }
    *ret = rows;
    *ret_n = n;
    return 0;
}

int nt_csv_load(const char *path, struct nt_csv_row **ret, size_t *ret_n, struct nt_why *why)
{
    struct stat st;
    char *text = NULL;
    size_t n = 0;
    int rc = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        return nt_why_fail(why, "%.150s: %s", path, strerror(errno));
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > NT_CSV_MAX_BYTES) {
        rc = nt_why_fail(why, "%.150s: not a regular file of at most %d bytes", path,
                         NT_CSV_MAX_BYTES);
        goto out;
    }
    text = malloc(NT_CSV_MAX_BYTES + 1);
    while (text != NULL && n <= NT_CSV_MAX_BYTES) {
        ssize_t got = read(fd, text + n, NT_CSV_MAX_BYTES + 1 - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            rc = got == 0 ? 0 : nt_why_fail(why, "%.150s: %s", path, strerror(errno));
            break;
        }
        n += (size_t)got;
    }
    if (rc != 0) {
        rc = nt_why_fail(why, "%.150s: cannot be read whole", path);
        goto out;
    }
    rc = nt_csv_parse(text, n, ret, ret_n, why);
out:
    free(text);
    (void)close(fd);
    return rc;
}

static bool any_or(int64_t wide, int64_t narrow)
{
    return wide == NT_CSV_ANY || wide == narrow;
}

/* Every call that b matches is matched by a. */
static bool covers(const struct nt_csv_row *a, const struct nt_csv_row *b)
{
    return a->coll == b->coll && a->min_bytes <= b->min_bytes && a->max_bytes >= b->max_bytes &&
           any_or(a->nnodes, b->nnodes) && any_or(a->nranks, b->nranks) &&
           any_or(a->pipe_ops, b->pipe_ops) && any_or(a->reg_buff, b->reg_buff);
}

__attribute__((format(printf, 3, 4))) static void part(char *out, size_t size, const char *fmt, ...)
{
    size_t at = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(out + at, size - at, fmt, ap);
    va_end(ap);
}

void nt_csv_describe(const struct nt_csv_row *rows, size_t i, char *out, size_t size)
{
    const struct nt_csv_row *r = &rows[i];
    const struct {
        const char *text;
        int64_t value;
    } when[] = {{"nodes", r->nnodes},
                {"ranks", r->nranks},
                {"pipelined operations", r->pipe_ops},
                {"registered", r->reg_buff}};

    out[0] = '\0';
    part(out, size, "line %d: %s of %llu to ", r->line, colls[r->coll],
         (unsigned long long)r->min_bytes);
    if (r->max_bytes == UINT64_MAX) {
        part(out, size, "any bytes");
    } else {
        part(out, size, "%llu bytes", (unsigned long long)r->max_bytes);
    }
    for (size_t k = 0; k < sizeof(when) / sizeof(when[0]); k++) {
        if (when[k].value != NT_CSV_ANY) {
            part(out, size, ", %s %lld", when[k].text, (long long)when[k].value);
        }
    }
    if (!nt_kernel_exists(r->coll, r->algo, r->proto)) {
        part(out, size, ": never applies, NCCL has no %s/%s for it", algos[r->algo],
             protos[r->proto]);
        return;
    }
    part(out, size, ": %s/%s where NCCL offers it", algos[r->algo], protos[r->proto]);
    if (r->channels == 0) {
        part(out, size, ", NCCL's own channels");
    } else if (nt_channels_safe(r->algo, 1)) {
        part(out, size, ", at most %u channels%s", r->channels,
             nt_channels_safe(r->algo, 2) ? "" : " on one node, NCCL's own across nodes");
    } else {
        part(out, size, ", NCCL's own channels (it does not check others here)");
    }
    for (size_t k = 0; k < i; k++) {
        if (covers(&rows[k], r)) {
            part(out, size, "; only where line %d cannot", rows[k].line);
            return;
        }
    }
}
