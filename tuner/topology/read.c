/* Finds out what a text is. */
#include "tuner/topology/topology.h"

#include <string.h>

#include "tuner/base/foreign.h"
#include "tuner/base/text.h"

/* XML copied out of a web page: its entities stand for the marks again. */
static int read_escaped(const char *text, size_t len, struct nt_topology **ret, struct nt_err *err)
{
    static const struct {
        const char *entity;
        char c;
    } rows[] = {{"&lt;", '<'},  {"&gt;", '>'},   {"&quot;", '"'},
                {"&#34;", '"'}, {"&#39;", '\''}, {"&nbsp;", ' '}};
    struct nt_buf b;
    int rc;
    nt_buf_init(&b, len + 1);
    for (size_t at = 0; at < len;) {
        char c = text[at];
        size_t n = 1;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && c == '&'; i++) {
            size_t m = strlen(rows[i].entity);
            if (len - at >= m && memcmp(text + at, rows[i].entity, m) == 0) {
                c = rows[i].c;
                n = m;
            }
        }
        nt_buf_add(&b, &c, 1);
        at += n;
    }
    rc = b.failed ? nt_fail(err, NT_E_NOMEM, 0, "topology")
                  : nt_topology_read_xml(nt_buf_str(&b), b.len, ret, err);
    nt_buf_done(&b);
    return rc;
}

int nt_topology_read_text(const char *text, size_t len, struct nt_topology **ret,
                          struct nt_err *err)
{
    size_t at = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (nt_is_utf16(text, len)) {
        return nt_fail(err, NT_E_INVAL, 0, "UTF-16 text; save it as UTF-8");
    }
    while (at < len && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0') {
        at++;
    }
    if ((at < len && text[at] == '<') || (len > 0 && memmem(text, len, "<system", 7) != NULL)) {
        return nt_topology_read_xml(text, len, ret, err);
    }
    if (len > 0 && memmem(text, len, "&lt;system", 10) != NULL) {
        return read_escaped(text, len, ret, err);
    }
    return nt_topology_read_smi(text, len, ret, err);
}

int nt_topology_read_file(const char *path, struct nt_topology **ret, struct nt_err *err)
{
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, 16U << 20);
    rc = nt_foreign_read(&b, path, err);
    if (rc == 0) {
        rc = nt_wrap(err, nt_topology_read_text(nt_buf_str(&b), b.len, ret, err), "%s",
                     strcmp(path, "-") == 0 ? "stdin" : path);
    }
    nt_buf_done(&b);
    return rc;
}
