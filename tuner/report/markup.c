#include "tuner/report/markup.h"

#include <stdint.h>
#include <string.h>

/* Length of the UTF-8 sequence at s and its code point; 0: none. */
static size_t decode(const unsigned char *s, uint32_t *ret)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        uint32_t c = s[0] & (unsigned char)~forms[i].mask;
        size_t k = 1;
        if ((s[0] & forms[i].mask) != forms[i].lead) {
            continue;
        }
        for (; k <= i && (s[k] & 0xc0) == 0x80; k++) {
            c = c << 6 | (s[k] & 0x3fU);
        }
        *ret = c;
        return k == i + 1 && c >= forms[i].least && c <= 0x10ffff && (c & 0xfffff800U) != 0xd800
                   ? k
                   : 0;
    }
    return 0;
}

static bool hides(uint32_t c)
{
    return (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7f && c < 0xa0) ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0x061c || (c & 0xfffe) == 0xfffe;
}

static void add_char(struct nt_buf *out, const unsigned char *s, size_t len)
{
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
        if (s[0] == (unsigned char)entities[i].c) {
            nt_buf_puts(out, entities[i].entity);
            return;
        }
    }
    nt_buf_add(out, s, len);
}

void nt_markup_cut(struct nt_buf *out, const char *text, size_t most)
{
    const unsigned char *s = (const unsigned char *)text;

    for (size_t n = 0; s != NULL && *s != '\0'; n++) {
        uint32_t c = 0;
        size_t len = decode(s, &c);
        if (n == most) {
            nt_buf_puts(out, "…");
            return;
        }
        if (len == 0 || hides(c)) {
            nt_buf_puts(out, "\xef\xbf\xbd");
        } else {
            add_char(out, s, len);
        }
        s += len == 0 ? 1 : len;
    }
}

void nt_markup_text(struct nt_buf *out, const char *text)
{
    nt_markup_cut(out, text, SIZE_MAX);
}
