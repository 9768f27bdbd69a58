/*
 * workload - which collectives a model's step makes: sizes, counts, modes. Written by hand, or
 * worked out from a model's config.json; weights tuning and lets `explain` do its sums.
 *
 * Document   JSON, {"format": "nccltune-workload", "version": 1, "name", "ranks", "phases":
 * [{"name", "mode", "tokens", "steps", "calls": [{"collective", "bytes", "dtype", "count",
 * "what"}]}]}. Units      bytes as NCCL's tuner sees them: all_gather and reduce_scatter the total
 * over all ranks. Ownership  plain data in the caller's struct; no allocation. Errors     0 or
 * -NT_E_INVAL with words that name the place.
 */
#pragma once
#include "schema/vocab.h"
#include "tuner/base/json.h"

enum { NT_WL_PHASES = 48, NT_WL_CALLS = 12, NT_WL_NAME = 48, NT_WL_BATCHES = 16 };
#define NT_WL_FORMAT "nccltune-workload"

struct nt_wl_call {
    uint8_t coll, dtype; /* enum nt_coll, nt_dtype */
    uint64_t bytes;
    uint32_t count; /* in one step */
    char what[64];  /* which part of the model, for people */
};
struct nt_wl_phase { /* one kind of step: decode, verify, prefill, … */
    char name[NT_WL_NAME];
    uint8_t mode;    /* enum nt_mode */
    uint32_t tokens; /* in one step; 0: not said */
    double steps;    /* how many of these, relative to the other phases; 1 when not said */
    struct nt_wl_call calls[NT_WL_CALLS];
    size_t ncalls;
};
struct nt_workload {
    char name[NT_WL_NAME];
    uint32_t ranks;
    struct nt_wl_phase phases[NT_WL_PHASES];
    size_t nphases;
};

NT_MUST_CHECK int nt_workload_parse(const char *text, size_t len, const char *what,
                                    struct nt_workload *ret, struct nt_err *err);
json_t *nt_workload_json(const struct nt_workload *w); /* new reference */
/* The phase of that name; an unknown one is an error that suggests. */
NT_MUST_CHECK int nt_workload_phase(const struct nt_workload *w, const char *name,
                                    const struct nt_wl_phase **ret, struct nt_err *err);

/* Time-weighted classes: one for each distinct case of all phases. */
struct nt_wl_class {
    struct nt_case cs; /* out of place */
    double calls;      /* steps x count, over all phases */
};
/* Writes at most max, returns how many there are. Largest number of calls first. */
size_t nt_workload_classes(const struct nt_workload *w, struct nt_wl_class *out, size_t max);

/* What a serving engine adds to the model. */
struct nt_wl_serving {
    uint32_t tp;
    uint32_t batches[NT_WL_BATCHES]; /* requests in a step */
    size_t nbatches;
    uint32_t draft_tokens;  /* verified together per request; 0: no speculation */
    uint32_t prefill_chunk; /* tokens; 0: no prefill phase */
    bool moe_all_to_all;    /* experts exchange tokens instead of reducing over all ranks */
    bool logits;            /* gather the logits */
    uint8_t mode;           /* enum nt_mode of all but prefill, which is eager */
};
/* From a model's config.json (Hugging Face names and their cousins; nested text configs found).
 * notes: what was assumed, one line each. */
NT_MUST_CHECK int nt_workload_from_config(const json_t *config, const char *name,
                                          const struct nt_wl_serving *s, struct nt_workload *ret,
                                          struct nt_buf *notes, struct nt_err *err);
