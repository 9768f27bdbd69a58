/*
 * rundiff - what differs between two runs, and how likely it is what made one slower. Pure.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"

enum { NT_RUNDIFF_MAX = 256 };

/* How likely, most first; the words are nt_weight_names[]. */
enum nt_weight { NT_W_LIKELY, NT_W_POSSIBLE, NT_W_UNLIKELY, NT_W_NONE, NT_W_COUNT };
extern const char *const nt_weight_names[];

struct nt_difference {
    enum nt_weight weight;
    int order;        /* within the weight: smaller first */
    const char *what; /* "command", "machine", "health", "profile", "library", "driver", "clock",
                         "variable", "host" */
    char name[128];
    char text[512]; /* one sentence */
};
struct nt_rundiff {
    struct nt_difference v[NT_RUNDIFF_MAX];
    size_t n;
    size_t more; /* that found no room */
};

/* a before, b after: manifests. */
void nt_rundiff(const json_t *a, const json_t *b, struct nt_rundiff *ret);
/* What the user measured in both: one line each, appended. */
void nt_rundiff_notes(const json_t *a, const json_t *b, struct nt_buf *out);
json_t *nt_rundiff_json(const json_t *a, const json_t *b, const struct nt_rundiff *d);
