#include "tuner/launch/log_tail.h"

#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

void nt_log_tail(const char *path, char *out, size_t size)
{
    char text[1024];
    ssize_t n = 0;
    size_t from = 0, used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    out[0] = '\0';
    if (fd >= 0) {
        off_t end = lseek(fd, 0, SEEK_END),
              at = end > (off_t)sizeof(text) ? end - (off_t)sizeof(text) : 0;
        n = end > 0 ? pread(fd, text, sizeof(text), at) : 0;
        (void)close(fd);
    }
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    if (n > 0 && (size_t)n > size / 2) { /* whole lines where there are any */
        const char *nl;
        from = (size_t)n - size / 2;
        nl = memchr(text + from, '\n', (size_t)n - from);
        from = nl != NULL ? (size_t)(nl - text) + 1 : from;
    }
    for (size_t i = from; i < (size_t)n && used + 4 < size; i++) {
        if (text[i] == '\n') {
            memcpy(out + used, " | ", 3);
            used += 3;
        } else {
            out[used++] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
        }
    }
    out[used] = '\0';
}
