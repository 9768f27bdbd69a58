#include "tuner/cli/hints.h"

#include <stdio.h>
#include <string.h>

/* Something fell by this check. */
static bool fell_by(const struct nt_profile *p, const char *check)
{
    for (size_t i = 0; i < p->tried.n; i++) {
        if (strstr(p->tried.v[i].why, check) != NULL) {
            return true;
        }
    }
    for (int k = 0; k < NT_PRODUCT_COUNT; k++) {
        for (size_t i = 0; i < p->product[k].classes.n; i++) {
            const struct nt_noteds *out = &p->product[k].classes.v[i].rejected;
            for (size_t r = 0; r < out->n; r++) {
                if (strstr(out->v[r].why, check) != NULL) {
                    return true;
                }
            }
        }
    }
    for (size_t i = 0; i < p->backends.classes.n; i++) {
        const char *why = p->backends.classes.v[i].why;
        if (why != NULL && strstr(why, check) != NULL) {
            return true;
        }
    }
    return false;
}

void nt_print_hints(const struct nt_profile *p)
{
    static const struct {
        const char *check, *says;
    } hints[] = {
        {"guard: group of 8", "`tune --no-groups`, where no program here calls several collectives "
                              "as one NCCL group, leaves that check out"},
        {"guard: beside compute", "`tune --no-overlap`, where no program here computes beside its "
                                  "calls, leaves that check out"},
    };

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (fell_by(p, hints[i].check)) {
            (void)printf("hint: not within the %s: %s\n", hints[i].check, hints[i].says);
        }
    }
}
