/* process - the texts that stand for a process setting and for what a recording was taken under. */
#include <stdlib.h>
#include <string.h>

#include "probes/recording/recording.h"
#include "schema/tunables.h"

/* Whether an assignment can be what was tried. A name that no release knows counts too: to take it
 * for nothing would be an invention. */
static bool counts(const char *name)
{
    const struct nt_tunable *t = nt_tunable_any(name);

    if (strncmp(name, "NCCL_", 5) != 0) {
        return false;
    }
    return t == NULL ||
           (t->flags & (NT_F_SITE | NT_F_NO_PROFILE | NT_F_DEBUG | NT_F_NOT_NCCL)) == 0;
}

static bool is_fixed(const struct nt_var *v, const char *fixed)
{
    size_t name = strlen(v->name), value = strlen(v->value);

    for (const char *at = fixed; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (n == name + 1 + value && memcmp(at, v->name, name) == 0 && at[name] == '=' &&
            memcmp(at + name + 1, v->value, value) == 0) {
            return true;
        }
        at += n + (at[n] == ' ');
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct nt_var *const *)a)->name,
                  (*(const struct nt_var *const *)b)->name);
}

void nt_recording_process(const struct nt_var *vars, size_t nvars, const char *fixed,
                          struct nt_buf *out)
{
    const struct nt_var *kept[NT_MAX_VARS];
    size_t n = 0;

    nt_assert(nvars <= NT_MAX_VARS);
    for (size_t i = 0; i < nvars; i++) {
        if (counts(vars[i].name) && !is_fixed(&vars[i], fixed)) {
            kept[n++] = &vars[i];
        }
    }
    qsort((void *)kept, n, sizeof(const struct nt_var *),
          by_name); /* NOLINT(bugprone-sizeof-expression): pointers are sorted */
    for (size_t i = 0; i < n; i++) {
        nt_buf_printf(out, "%s%s=%s", i > 0 ? " " : "", kept[i]->name, kept[i]->value);
    }
}

/* Variables that forbid NVLink multicast and do nothing else. */
static bool forbids_multicast(const char *word, size_t n)
{
    static const char *const words[] = {"NCCL_NVLS_ENABLE=0", "NVSHMEM_DISABLE_NVLS=1",
                                        "TORCH_SYMM_MEM_DISABLE_MULTICAST=1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0) {
            return true;
        }
    }
    return false;
}

void nt_recording_setup(const struct nt_recording *r, struct nt_buf *out)
{
    static const enum nt_fact facts[] = {NT_FACT_RIG, NT_FACT_RANKS, NT_FACT_GPU, NT_FACT_NCCL};
    bool one_gpu = strncmp(nt_recording_fact(r, NT_FACT_RIG), "mps-", 4) == 0;
    const char *at = nt_recording_fact(r, NT_FACT_FIXED), *between = "";

    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        nt_buf_printf(out, "%s; ", nt_recording_fact(r, facts[i]));
    }
    while (*at != '\0') {
        size_t n = strcspn(at, " ");
        if (!one_gpu || !forbids_multicast(at, n)) {
            nt_buf_printf(out, "%s%.*s", between, (int)n, at);
            between = " ";
        }
        at += n + (at[n] == ' ');
    }
}
