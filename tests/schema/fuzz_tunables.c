/* NAME=VALUE lines, as any file may hold them: reading, checking and pricing them never fails in
 * another way than its header says. The first byte chooses the release. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "schema/tunables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct nt_assign *vars, size_t n, unsigned version)
{
    const struct nt_memory_shape shape = {.channels = 16, .peers = 2};
    struct nt_conflict conflicts[4];
    for (size_t i = 0; i < n; i++) {
        const struct nt_tunable *t = nt_tunable_find(vars[i].name, version);
        struct nt_taken taken;
        bool allowed;
        if (t == NULL) { /* its suggestion is slow, and refused in the tests */
            continue;
        }
        allowed = nt_tunable_for_profile(vars[i].name, vars[i].value, version, false, NULL) == 0;
        nt_tunable_take(t, vars[i].value, version, &taken);
        nt_assert((taken.how == NT_TAKE_AS_MEANT) == (taken.why[0] == '\0'));
        nt_assert(!allowed || (taken.how == NT_TAKE_AS_MEANT && !taken.forces_ll128));
        nt_assert(!allowed || strpbrk(vars[i].value, "'\"\\$`\n=<>&()") == NULL);
    }
    for (size_t i = 0; i < nt_tunable_conflicts(vars, n, version, conflicts, 4) && i < 4; i++) {
        nt_assert(conflicts[i].why != NULL);
    }
    (void)nt_tunable_memory_bytes(vars, n, version, &shape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned versions[] = {21806, 22304, 22403, 22809, 23007};
    struct nt_assign vars[16];
    size_t n = 0;
    char *text, *line, *rest;

    if (size == 0 || size > 65536 || (text = malloc(size)) == NULL) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    rest = text;
    while (n < 16 && (line = strsep(&rest, "\n")) != NULL) {
        char *eq = strchr(line, '=');
        if (eq != NULL) {
            *eq = '\0';
            vars[n++] = (struct nt_assign){line, eq + 1};
        }
    }
    check(vars, n, versions[data[0] % 5]);
    free(text);
    return 0;
}
