#include "tuner/base/foreign.h"

#include <string.h>
#include <zlib.h>

#include "tuner/base/json.h"
#include "tuner/base/text.h"

/* The bytes of `from` take the place of those of b. */
static int replace(struct nt_buf *b, struct nt_buf *from, const char *name, struct nt_err *err)
{
    if (from->failed) {
        nt_buf_done(from);
        return nt_fail(err, NT_E_INVAL, 0, "%s: more than %zu bytes", name, b->max);
    }
    nt_buf_done(b);
    *b = *from;
    return 0;
}

static int gunzip(struct nt_buf *b, const char *name, struct nt_err *err)
{
    z_stream z = {0};
    struct nt_buf out;
    char chunk[16384];
    int state = inflateInit2(&z, 16 + MAX_WBITS);

    if (state != Z_OK) {
        return nt_fail(err, NT_E_NOMEM, 0, "%s", name);
    }
    nt_buf_init(&out, b->max);
    z.next_in = (unsigned char *)b->data;
    z.avail_in = (unsigned)b->len;
    do {
        z.next_out = (unsigned char *)chunk;
        z.avail_out = sizeof(chunk);
        state = inflate(&z, Z_NO_FLUSH);
        nt_buf_add(&out, chunk, sizeof(chunk) - z.avail_out);
        if (state == Z_STREAM_END && z.avail_in > 0) { /* members one behind the other */
            state = inflateReset(&z);
        }
    } while (state == Z_OK && !out.failed);
    (void)inflateEnd(&z);
    if (state != Z_STREAM_END && !out.failed) {
        nt_buf_done(&out);
        return nt_fail(err, NT_E_INVAL, 0, "%s: gzip data that is cut off or damaged", name);
    }
    return replace(b, &out, name, err);
}

static void put_utf8(struct nt_buf *out, unsigned code)
{
    char c[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        c[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    c[0] = (char)(lead[n] | code);
    nt_buf_add(out, c, n);
}

static int from_utf16(struct nt_buf *b, const char *name, struct nt_err *err)
{
    const unsigned char *p = (const unsigned char *)b->data;
    bool mark = (p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff);
    bool big = mark ? p[0] == 0xfe : p[0] == 0;
    struct nt_buf out;
    unsigned high = 0;

    nt_buf_init(&out, b->max);
    for (size_t i = mark ? 2 : 0; i + 1 < b->len && !out.failed; i += 2) {
        unsigned unit = (unsigned)p[i + big] | (unsigned)p[i + !big] << 8;
        bool low = unit >= 0xdc00 && unit < 0xe000;
        if (high != 0 || low) { /* the halves of a pair; one alone is no character */
            put_utf8(&out, high != 0 && low ? 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00)
                                            : (unsigned)'?');
        }
        high = unit >= 0xd800 && unit < 0xdc00 ? unit : 0;
        if (high == 0 && !low) {
            put_utf8(&out, unit);
        }
    }
    return replace(b, &out, name, err);
}

/* Whether every line is a record of a container's log: Docker's json-file driver, or a shipper. */
static bool is_json_log(const struct nt_buf *b)
{
    static const char key[] = "\"log\":";
    const char *p = b->data, *end = b->data + b->len;
    size_t lines = 0;
    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((eol != NULL ? eol : end) - p);
        if (n > 0 && (*p != '{' || memmem(p, n, key, sizeof(key) - 1) == NULL)) {
            return false;
        }
        lines += n > 0;
        p += n + 1;
    }
    return lines > 0;
}

static int unwrap_json_log(struct nt_buf *b, const char *name, struct nt_err *err)
{
    const char *p = b->data, *end = b->data + b->len;
    struct nt_buf out;
    nt_buf_init(&out, b->max);
    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((eol != NULL ? eol : end) - p);
        json_t *record = NULL;
        if (n > 0 &&
            nt_json_parse(p, n, name, &record, NULL) == 0) { /* a record cut off: dropped */
            const json_t *log = json_object_get(record, "log");
            size_t len = json_string_length(log);
            nt_buf_add(&out, json_string_value(log), len);
            if (len > 0 && json_string_value(log)[len - 1] != '\n') {
                nt_buf_puts(&out, "\n");
            }
            json_decref(record);
        }
        p += n + 1;
    }
    return replace(b, &out, name, err);
}

int nt_foreign_text(struct nt_buf *b, const char *name, struct nt_err *err)
{
    int rc = 0;
    if (b->len > 3 && memcmp(b->data, "\x1f\x8b\x08", 3) == 0) {
        rc = gunzip(b, name, err);
    }
    if (rc == 0 && b->len > 1 && nt_is_utf16(b->data, b->len)) {
        rc = from_utf16(b, name, err);
    }
    if (rc == 0 && b->len > 0 && memchr(b->data, '\n', b->len) == NULL) {
        for (size_t i = 0; i < b->len; i++) {
            b->data[i] = b->data[i] == '\r' ? '\n' : b->data[i];
        }
    }
    if (rc == 0 && b->len > 0 && is_json_log(b)) {
        rc = unwrap_json_log(b, name, err);
    }
    return rc;
}

int nt_foreign_read(struct nt_buf *b, const char *path, struct nt_err *err)
{
    int rc = nt_buf_read_file(b, path, err);
    return rc == 0 ? nt_foreign_text(b, strcmp(path, "-") == 0 ? "stdin" : path, err) : rc;
}
