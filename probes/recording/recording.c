#include "probes/recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "probes/recording/recording_priv.h"
#include "tuner/base/text.h"

enum { FIELDS_MAX = 24, LINE_MAX_BYTES = 4 << 20 };

const char *const nt_fact_names[NT_FACT_COUNT + 1] = {
    [NT_FACT_RIG] = "rig",
    [NT_FACT_RANKS] = "ranks",
    [NT_FACT_HOST] = "host",
    [NT_FACT_GPU] = "gpu",
    [NT_FACT_GPU_MEMORY] = "gpu_memory_bytes",
    [NT_FACT_NCCL] = "nccl",
    [NT_FACT_CUDA] = "cuda",
    [NT_FACT_DRIVER] = "driver",
    [NT_FACT_NCCL_FILE] = "nccl_file",
    [NT_FACT_DATE] = "date",
    [NT_FACT_LEASE] = "lease",
    [NT_FACT_FIXED] = "fixed",
    [NT_FACT_CONDITIONS] = "conditions",
    [NT_FACT_TEXT] = "text",
    [NT_FACT_TOPOLOGY] = "topology",
    [NT_FACT_NOTE] = "note",
};
const char nt_recording_columns[] = "case,flags,process,call,executed,gang,status,verify,warmup,"
                                    "inner,base_ns,wrong,elapsed_ns,connect_ns,memory_bytes,error,"
                                    "ns";
enum column {
    C_CASE,
    C_FLAGS,
    C_PROCESS,
    C_CALL,
    C_EXECUTED,
    C_GANG,
    C_STATUS,
    C_VERIFY,
    C_WARMUP,
    C_INNER,
    C_BASE,
    C_WRONG,
    C_ELAPSED,
    C_CONNECT,
    C_MEMORY,
    C_ERROR,
    C_NS,
    C_COUNT
};

/* One line, cut into fields in place. */
struct fields {
    char *v[FIELDS_MAX];
    unsigned n;
};

/* Where the reader is; growing arrays know their room. */
struct reader {
    struct nt_recording *r;
    const char *what;
    unsigned long line;
    bool columns_seen, version_seen;
    size_t room_blocks, room_ns, room_gangs, room_cells, room_texts, room_processes;
    struct nt_err *err;
};

static int bad(struct reader *p, const char *field, const char *words)
{
    return nt_fail(p->err, NT_E_INVAL, 0, "%s: line %lu: %s%s%s", p->what, p->line, field,
                   field[0] != '\0' ? ": " : "", words);
}

static int no_memory(struct reader *p)
{
    return nt_fail(p->err, NT_E_NOMEM, 0, "%s", p->what);
}

/* Room for `more` elements behind `count`. */
static void *grow(void *array, size_t *room, size_t count, size_t more, size_t size)
{
    size_t want = *room;
    void *bigger;

    if (count + more <= *room) {
        return array;
    }
    while (want < count + more) {
        want = want == 0 ? 64 : 2 * want;
    }
    bigger = realloc(array, want * size);
    if (bigger != NULL) {
        *room = want;
    }
    return bigger;
}

#define GROW(p, array, room, count, more)                                                          \
    grow((void *)(p)->r->array, &(p)->room, (p)->r->count, (more), sizeof((p)->r->array[0]))

/* RFC 4180 without line ends inside; quotes are doubled. */
static int split(struct reader *p, char *line, struct fields *f)
{
    char *in = line, end = ',';

    for (f->n = 0; end == ','; in++) {
        char *out = in;
        if (f->n == FIELDS_MAX) {
            return bad(p, "", "too many fields");
        }
        f->v[f->n++] = out;
        if (*in == '"') {
            for (in++; *in != '"' || in[1] == '"'; in++) {
                if (*in == '\0') {
                    return bad(p, "", "a quote that is not closed");
                }
                in += *in == '"'; /* the first of two */
                *out++ = *in;
            }
            in++;
        } else {
            in += strcspn(in, ",");
            out = in;
        }
        end = *in;
        if (end != ',' && end != '\0') {
            return bad(p, "", "text behind a closing quote");
        }
        *out = '\0'; /* not behind `in` */
    }
    return 0;
}

static void unescape(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        if (in[0] == '\\' && in[1] != '\0') {
            in++;
            *out++ = *in == 'n' ? '\n' : *in == 'r' ? '\r' : *in;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
}

static int number(struct reader *p, const char *name, const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (nt_parse_u64(text, &v, NULL) != 0 || v > max) {
        return bad(p, name, "must be a whole number of its range");
    }
    *ret = v;
    return 0;
}

/* Cuts the next word off *text; "" at the end. */
static char *word(char **text, char separator)
{
    char *start = *text, *end = strchr(start, separator);
    if (end != NULL) {
        *end = '\0';
        *text = end + 1;
    } else {
        *text = start + strlen(start);
    }
    return start;
}

static int named(struct reader *p, const char *name, const char *const *names, const char *text,
                 uint8_t *ret)
{
    int i = nt_vocab_find(names, name, text, p->err);
    if (i < 0) {
        return nt_wrap(p->err, i, "%s: line %lu", p->what, p->line);
    }
    *ret = (uint8_t)i;
    return 0;
}

static int parse_case(struct reader *p, char *text, struct nt_case *c)
{
    char *coll = word(&text, ' '), *bytes = word(&text, ' '), *dtype = word(&text, ' '),
         *place = word(&text, ' ');
    int rc = named(p, "collective", nt_coll_names, coll, &c->coll);
    rc = rc != 0 ? rc : number(p, "bytes", bytes, INT64_MAX, &c->bytes);
    rc = rc != 0 ? rc : named(p, "dtype", nt_dtype_names, dtype, &c->dtype);
    rc = rc != 0 ? rc : named(p, "place", nt_place_names, place, &c->place);
    return rc != 0 ? rc : named(p, "mode", nt_mode_names, text, &c->mode);
}

static const struct {
    const char *name;
    uint32_t flag;
} flag_names[] = {{"busy", NT_M_BUSY},
                  {"group8", NT_M_GROUP8},
                  {"barrier", NT_M_BARRIER},
                  {"readback", NT_M_READBACK}};
enum { FLAGS = sizeof(flag_names) / sizeof(flag_names[0]) };

static int parse_flags(struct reader *p, char *text, uint32_t *ret)
{
    *ret = 0;
    while (*text != '\0') {
        const char *w = word(&text, '+');
        size_t i = 0;
        while (i < FLAGS && strcmp(flag_names[i].name, w) != 0) {
            i++;
        }
        if (i == FLAGS || (*ret & flag_names[i].flag)) {
            return bad(p, "flags", "unknown or twice");
        }
        *ret |= flag_names[i].flag;
    }
    return 0;
}

void nt_flags_write(uint32_t flags, struct nt_buf *out)
{
    const char *between = "";
    for (size_t i = 0; i < FLAGS; i++) {
        if (flags & flag_names[i].flag) {
            nt_buf_printf(out, "%s%s", between, flag_names[i].name);
            between = "+";
        }
    }
}

void nt_case_write(const struct nt_case *c, struct nt_buf *out)
{
    nt_buf_printf(out, "%s %llu %s %s %s", nt_coll_names[c->coll], (unsigned long long)c->bytes,
                  nt_dtype_names[c->dtype], nt_place_names[c->place], nt_mode_names[c->mode]);
}

/* "ring/ll/A/B", or `none` for no tuple. */
static int parse_tuple(struct reader *p, const char *name, char *text, const char *none,
                       uint64_t max_b, int8_t *algo, int8_t *proto, uint64_t ab[2])
{
    uint8_t a = 0, pr = 0;
    int rc;
    char *w;

    ab[0] = ab[1] = 0;
    *algo = *proto = -1;
    if (strcmp(text, none) == 0) {
        return 0;
    }
    w = word(&text, '/');
    rc = named(p, name, nt_algo_names, w, &a);
    w = word(&text, '/');
    rc = rc != 0 ? rc : named(p, name, nt_proto_names, w, &pr);
    w = word(&text, '/');
    rc = rc != 0 ? rc : number(p, name, w, UINT16_MAX, &ab[0]);
    rc = rc != 0 ? rc : number(p, name, text, max_b, &ab[1]);
    if (rc == 0 && (a >= NT_ALGO_COUNT || pr >= NT_PROTO_COUNT)) {
        rc = bad(p, name, "is of another backend than NCCL");
    }
    *algo = (int8_t)a;
    *proto = (int8_t)pr;
    return rc;
}

static int parse_call(struct reader *p, char *text, struct nt_call *c)
{
    uint64_t ab[2];
    int rc = parse_tuple(p, "call", text, "default", UINT32_MAX, &c->algo, &c->proto, ab);
    c->channels = (uint16_t)ab[0];
    c->chunk_bytes = (uint32_t)ab[1];
    return rc;
}

static int parse_executed(struct reader *p, char *text, struct nt_executed *x)
{
    uint64_t ab[2];
    int rc = parse_tuple(p, "executed", text, "", UINT16_MAX, &x->algo, &x->proto, ab);
    x->channels = (uint16_t)ab[0];
    x->warps = (uint16_t)ab[1];
    return rc;
}

int nt_recording_process_find(const struct nt_recording *r, const char *text)
{
    for (size_t i = r->nprocesses; i-- > 0;) { /* the last one is the likeliest */
        if (strcmp(r->process[i].text, text) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int intern_process(struct reader *p, const char *text, int *ret)
{
    struct nt_recording *r = p->r;
    struct nt_rec_process *bigger;
    int i = nt_recording_process_find(r, text);

    if (i < 0) {
        if (r->nprocesses == NT_PROCESSES) {
            return bad(p, "process", "too many settings");
        }
        bigger = GROW(p, process, room_processes, nprocesses, 1);
        if (bigger == NULL) {
            return no_memory(p);
        }
        r->process = bigger;
        i = (int)r->nprocesses;
        r->process[i] = (struct nt_rec_process){.text = strdup(text)};
        if (r->process[i].text == NULL) {
            return no_memory(p);
        }
        r->nprocesses++;
    }
    *ret = i;
    return 0;
}

static int keep_text(struct reader *p, const char *text, const char **ret)
{
    char **bigger;

    if (*text == '\0') {
        *ret = "";
        return 0;
    }
    bigger = GROW(p, text, room_texts, ntexts, 1);
    if (bigger == NULL) {
        return no_memory(p);
    }
    p->r->text = bigger;
    bigger[p->r->ntexts] = strdup(text);
    if (bigger[p->r->ntexts] == NULL) {
        return no_memory(p);
    }
    *ret = bigger[p->r->ntexts++];
    return 0;
}

/* Blank-separated samples: by hand, since a recording has millions. */
static int parse_ns(struct reader *p, const char *text, struct nt_rec_block *x)
{
    struct nt_recording *r = p->r;

    x->at = r->nns;
    while (*text != '\0') {
        uint64_t v = 0;
        const char *start = text;
        uint32_t *bigger = GROW(p, ns, room_ns, nns, 1);
        if (bigger == NULL) {
            return no_memory(p);
        }
        r->ns = bigger;
        for (; *text >= '0' && *text <= '9' && v <= UINT32_MAX; text++) {
            v = 10 * v + (uint64_t)(*text - '0');
        }
        if (text == start || v > UINT32_MAX || (*text != '\0' && *text != ' ') ||
            x->b.count == NT_MAX_SAMPLES) {
            return bad(p, "ns", "must be few enough nanoseconds below 4.29 s");
        }
        r->ns[r->nns++] = (uint32_t)v;
        x->b.count++;
        text += *text == ' ';
    }
    return 0;
}

static int parse_block(struct reader *p, char *line)
{
    static const struct {
        enum column column;
        const char *name;
        uint64_t max;
    } numbers[] = {
        {C_GANG, "gang", INT64_MAX},           {C_VERIFY, "verify", NT_VERIFY_BOTH},
        {C_WARMUP, "warmup", UINT32_MAX},      {C_INNER, "inner", UINT32_MAX},
        {C_BASE, "base_ns", UINT32_MAX},       {C_WRONG, "wrong", INT64_MAX},
        {C_ELAPSED, "elapsed_ns", INT64_MAX},  {C_CONNECT, "connect_ns", INT64_MAX},
        {C_MEMORY, "memory_bytes", INT64_MAX},
    };
    struct nt_rec_block x = {0}, *bigger;
    uint64_t v[C_COUNT] = {0};
    struct fields f = {0};
    int rc = split(p, line, &f);

    if (rc == 0 && f.n != C_COUNT) {
        rc = bad(p, "", "not as many fields as columns");
    }
    for (size_t i = 0; rc == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        enum column c = numbers[i].column;
        rc = number(p, numbers[i].name, f.v[c], numbers[i].max, &v[c]);
    }
    rc = rc != 0 ? rc : parse_case(p, f.v[C_CASE], &x.b.cs);
    rc = rc != 0 ? rc : parse_flags(p, f.v[C_FLAGS], &x.b.flags);
    rc = rc != 0 ? rc : parse_call(p, f.v[C_CALL], &x.b.call);
    rc = rc != 0 ? rc : parse_executed(p, f.v[C_EXECUTED], &x.b.executed);
    rc = rc != 0 ? rc : named(p, "status", nt_status_names, f.v[C_STATUS], &x.b.status);
    rc = rc != 0 ? rc : intern_process(p, f.v[C_PROCESS], &x.process);
    if (rc == 0) {
        unescape(f.v[C_ERROR]);
        rc = keep_text(p, f.v[C_ERROR], &x.b.error);
    }
    rc = rc != 0 ? rc : parse_ns(p, f.v[C_NS], &x);
    if (rc != 0) {
        return rc;
    }
    x.b.gang = v[C_GANG];
    x.b.verify = (uint8_t)v[C_VERIFY];
    x.b.warmup = (uint32_t)v[C_WARMUP];
    x.b.inner = (uint32_t)v[C_INNER];
    x.b.base_ns = (uint32_t)v[C_BASE];
    x.b.wrong = v[C_WRONG];
    x.b.elapsed_ns = v[C_ELAPSED];
    x.b.connect_ns = v[C_CONNECT];
    x.b.memory_bytes = v[C_MEMORY];
    bigger = GROW(p, block, room_blocks, nblocks, 1);
    if (bigger == NULL) {
        return no_memory(p);
    }
    p->r->block = bigger;
    p->r->block[p->r->nblocks++] = x;
    return 0;
}

/* #gang=NUMBER,PROCESS,START_NS,INIT_NS,MEMORY */
static int parse_gang(struct reader *p, char *value)
{
    struct nt_recorded_gang g = {0}, *bigger;
    struct fields f = {0};
    int process = 0, rc = split(p, value, &f);

    if (rc == 0 && f.n != 5) {
        rc = bad(p, "gang", "needs five fields");
    }
    rc = rc != 0 ? rc : number(p, "gang", f.v[0], INT64_MAX, &g.gang);
    rc = rc != 0 ? rc : intern_process(p, f.v[1], &process);
    rc = rc != 0 ? rc : number(p, "start_ns", f.v[2], INT64_MAX, &g.start_ns);
    rc = rc != 0 ? rc : number(p, "init_ns", f.v[3], INT64_MAX, &g.init_ns);
    rc = rc != 0 ? rc : number(p, "memory_bytes", f.v[4], INT64_MAX, &g.memory_bytes);
    if (rc != 0) {
        return rc;
    }
    bigger = GROW(p, gang, room_gangs, ngangs, 1);
    if (bigger == NULL) {
        return no_memory(p);
    }
    g.process = p->r->process[process].text;
    p->r->gang = bigger;
    p->r->gang[p->r->ngangs++] = g;
    return 0;
}

static int parse_costs(struct reader *p, char *text, struct nt_cells *c)
{
    for (unsigned i = 0; i < NT_ALGO_COUNT * NT_PROTO_COUNT; i++) {
        double v = 0;
        if (nt_parse_double(word(&text, ' '), &v, NULL) != 0 || !(v > -1e30 && v < 1e30)) {
            return bad(p, "cells", "needs a cost for every algorithm and protocol");
        }
        c->cost[i / NT_PROTO_COUNT][i % NT_PROTO_COUNT] = (float)v;
    }
    return *text == '\0' ? 0 : bad(p, "cells", "too many costs");
}

/* #cells=PROCESS,CASE,ASKED,COST COST … */
static int parse_cells(struct reader *p, char *value)
{
    struct nt_rec_cells c = {0}, *bigger;
    uint64_t asked = 0;
    struct fields f = {0};
    int rc = split(p, value, &f);

    if (rc == 0 && f.n != 4) {
        rc = bad(p, "cells", "needs four fields");
    }
    rc = rc != 0 ? rc : intern_process(p, f.v[0], &c.process);
    rc = rc != 0 ? rc : parse_case(p, f.v[1], &c.cells.cs);
    rc = rc != 0 ? rc : number(p, "asked", f.v[2], 1, &asked);
    rc = rc != 0 ? rc : parse_costs(p, f.v[3], &c.cells);
    if (rc != 0) {
        return rc;
    }
    c.cells.asked = asked != 0;
    bigger = GROW(p, cells, room_cells, ncells, 1);
    if (bigger == NULL) {
        return no_memory(p);
    }
    p->r->cells = bigger;
    p->r->cells[p->r->ncells++] = c;
    return 0;
}

static int parse_fact(struct reader *p, char *text)
{
    char *value = strchr(text, '=');
    size_t i = 0;

    if (value == NULL) {
        return bad(p, "", "must be #key=value");
    }
    *value++ = '\0';
    if (!p->version_seen) {
        if (strcmp(text, NT_FACT_VERSION) != 0 || strcmp(value, NT_RECORDING_VERSION) != 0) {
            return bad(p, "", "must begin with #" NT_FACT_VERSION "=" NT_RECORDING_VERSION);
        }
        p->version_seen = true;
        return 0;
    }
    if (strcmp(text, "gang") == 0) {
        return parse_gang(p, value);
    }
    if (strcmp(text, "cells") == 0) {
        return parse_cells(p, value);
    }
    while (i < NT_FACT_COUNT && strcmp(nt_fact_names[i], text) != 0) {
        i++;
    }
    if (i == NT_FACT_COUNT || p->r->fact[i] != NULL) {
        return bad(p, "", i == NT_FACT_COUNT ? "an unknown key" : "a key for the second time");
    }
    unescape(value);
    p->r->fact[i] = strdup(value);
    return p->r->fact[i] != NULL ? 0 : no_memory(p);
}

static int parse_line(struct reader *p, char *line)
{
    if (line[0] == '#') {
        return parse_fact(p, line + 1);
    }
    if (!p->version_seen) {
        return bad(p, "", "must begin with #" NT_FACT_VERSION "=" NT_RECORDING_VERSION);
    }
    if (!p->columns_seen) {
        p->columns_seen = true;
        return strcmp(line, nt_recording_columns) == 0 ? 0 : bad(p, "", "other columns");
    }
    return parse_block(p, line);
}

static int parse_lines(struct reader *p, const char *text, size_t len)
{
    struct nt_buf line;
    int rc = 0;

    nt_buf_init(&line, LINE_MAX_BYTES);
    while (rc == 0 && len > 0) {
        const char *nl = memchr(text, '\n', len);
        size_t n = nl != NULL ? (size_t)(nl - text) : len;

        p->line++;
        nt_buf_clear(&line);
        nt_buf_add(&line, text, n);
        if (line.failed || nl == NULL || memchr(text, '\0', n) != NULL) {
            rc = bad(p, "", nl == NULL ? "is cut" : "too long, or not text");
        } else {
            rc = parse_line(p, line.data);
        }
        text += nl != NULL ? n + 1 : n;
        len -= nl != NULL ? n + 1 : n;
    }
    nt_buf_done(&line);
    if (rc == 0 && !p->columns_seen) {
        rc = bad(p, "", "no line of columns");
    }
    return rc;
}

int nt_recording_parse(const char *text, size_t len, const char *what, struct nt_recording **ret,
                       struct nt_err *err)
{
    struct reader p = {.what = what, .err = err, .r = calloc(1, sizeof(*p.r))};
    int rc;

    if (p.r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%s", what);
    }
    rc = parse_lines(&p, text, len);
    if (rc == 0) { /* nothing grows any more: pointers may be taken */
        for (size_t i = 0; i < p.r->nblocks; i++) {
            struct nt_rec_block *x = &p.r->block[i];
            x->b.ns = p.r->ns != NULL ? p.r->ns + x->at : NULL;
            x->b.process = p.r->process[x->process].text;
        }
        rc = nt_recording_index(p.r, err);
    }
    if (rc != 0) {
        nt_recording_free(p.r);
        return rc;
    }
    *ret = p.r;
    return 0;
}

/* A pipe is refused, not waited for: a recording is opened more than once. */
static int open_file(const char *path, gzFile *ret, struct nt_err *err)
{
    struct stat st;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        return nt_fail(err, errno == ENOENT ? NT_E_INVAL : NT_E_IO, errno, "open %s", path);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s is no regular file", path);
    } else if ((*ret = gzdopen(fd, "rb")) == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "open %s", path);
    }
    if (rc != 0) {
        (void)close(fd);
    }
    return rc;
}

int nt_recording_unpack(const char *path, struct nt_buf *out, bool *ret_cut, struct nt_err *err)
{
    gzFile in = NULL;
    char *chunk = malloc(1 << 16);
    int n = 0, code = Z_OK, rc = open_file(path, &in, err);

    if (rc == 0 && chunk == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "open %s", path);
    }
    while (rc == 0 && (n = gzread(in, chunk, 1 << 16)) > 0) {
        nt_buf_add(out, chunk, (size_t)n);
        if (out->failed) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: more than %zu bytes unpacked", path, out->max);
        }
    }
    if (rc == 0) {
        (void)gzerror(in, &code);
        *ret_cut = n < 0 || code == Z_BUF_ERROR;
    }
    if (in != NULL) {
        (void)gzclose(in);
    }
    free(chunk);
    return rc;
}

int nt_recording_load(const char *path, struct nt_recording **ret, struct nt_err *err)
{
    struct nt_buf text;
    bool cut = false;
    int rc;

    nt_buf_init(&text, NT_RECORDING_MAX_BYTES);
    rc = nt_recording_unpack(path, &text, &cut, err);
    if (rc == 0 && cut) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s is damaged or was not closed", path);
    }
    if (rc == 0) {
        rc = nt_recording_parse(nt_buf_str(&text), text.len, path, ret, err);
    }
    nt_buf_done(&text);
    return rc;
}

void nt_recording_free(struct nt_recording *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < NT_FACT_COUNT; i++) {
        free(r->fact[i]);
    }
    for (size_t i = 0; i < r->nprocesses; i++) {
        free(r->process[i].text);
    }
    for (size_t i = 0; i < r->ntexts; i++) {
        free(r->text[i]);
    }
    free(r->block);
    free(r->ns);
    free(r->process);
    free(r->gang);
    free(r->cells);
    free((void *)r->text);
    free(r->order);
    free(r->cell);
    free(r->call);
    free(r->call_cell);
    free(r);
}

const char *nt_recording_fact(const struct nt_recording *r, enum nt_fact f)
{
    return r->fact[f] != NULL ? r->fact[f] : "";
}

size_t nt_recording_blocks(const struct nt_recording *r)
{
    return r->nblocks;
}

const struct nt_block *nt_recording_block(const struct nt_recording *r, size_t i)
{
    return &r->block[i].b;
}

size_t nt_recording_gangs(const struct nt_recording *r)
{
    return r->ngangs;
}

const struct nt_recorded_gang *nt_recording_gang(const struct nt_recording *r, size_t i)
{
    return &r->gang[i];
}
