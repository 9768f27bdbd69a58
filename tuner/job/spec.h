/*
 * spec - what one tuning job was asked to do: everything that its plan depends on, and nothing
 * else. Stored as JSON with the job, so that a resumed job is the same job.
 *
 * Units: bytes are bytes, *_ns nanoseconds. Ownership: plain memory, strings inside; init with
 * nt_spec_init().
 */
#pragma once
#include <jansson.h>
#include "schema/vocab.h"

enum nt_effort { NT_QUICK, NT_STANDARD, NT_THOROUGH, NT_EFFORT_COUNT };
extern const char *const nt_effort_names[];

enum {
    NT_MAX_SIZES = 48,
    NT_MAX_SETTINGS = 32, /* process settings of a job, the first is "as is" */
    NT_SETTING_LEN = 512,
    NT_MAX_WEIGHTS = NT_COLL_COUNT * NT_MAX_SIZES * NT_MODE_COUNT,
};

/* What a workload does with one ladder size (weigh.h). */
struct nt_weight {
    uint64_t bytes;
    double calls;       /* > 0 */
    uint8_t coll, mode; /* enum nt_coll, nt_mode */
};

struct nt_spec {
    enum nt_rig rig;       /* of the gangs; a replay says `recording` here */
    enum nt_rig shown_rig; /* whose figures these are: equal to rig, or what was recorded */
    enum nt_effort effort;
    uint64_t seed;
    unsigned ranks, nodes;
    bool colls[NT_COLL_COUNT]; /* raced collectives */
    uint64_t sizes[NT_MAX_SIZES];
    size_t nsizes; /* ascending, distinct */
    bool modes[NT_MODE_COUNT];
    bool dtypes[NT_DTYPE_COUNT];
    enum nt_dtype raced_dtype; /* one of dtypes; the rest guard */
    bool places[NT_PLACE_COUNT];
    uint64_t budget_ns;        /* wall time for all; 0: none */
    uint64_t max_memory_bytes; /* device memory a setting may add over the default; 0: no limit */
    unsigned pairs;            /* of the confirm */
    double margin;             /* ratio below which two settings tie: 1.02 */
    double guard;              /* no point slower than this against a baseline: 1.03 */
    double alpha;              /* family-wise error of claimed gains: 0.005 */
    /* Process settings to try, "NAME=VALUE NAME=VALUE" with names sorted; [0] is "". */
    char settings[NT_MAX_SETTINGS][NT_SETTING_LEN];
    size_t nsettings;
    char fixed[2048];    /* site constraints and --fix, same form: in every arm */
    char as_found[2048]; /* the caller's own NCCL variables that are no site constraint; "": as
                            pristine */
    char devices[128];   /* CUDA devices, "4,5", one a rank; "": from 0 on */
    char source[80];     /* what stands in for a machine: its hash; "": the machine itself */
    char stand_in[512];  /* … and how to name it again, as --rig does; "": not known */
    char probe[80];      /* file name of the program that measures; "": the installed one */
    struct nt_weight weights[NT_MAX_WEIGHTS]; /* one for each case with calls */
    size_t nweights;                          /* 0: every case weighs the same */
    bool backends[NT_BACKEND_COUNT]; /* raced against NCCL as it is, which is always there */
    bool same_bits; /* only backends whose results have the bits of NCCL left alone */
    /* What no program here does and is not checked: several collectives as one NCCL group; other
     * work of the GPU beside a call. */
    bool no_groups, no_overlap;
    bool extra_guards; /* edges, busy, groups, untuned collectives; a recording may not hold them */
};

void nt_spec_init(struct nt_spec *s); /* defaults of `tune` */
/* Fills pairs from the effort, and the raced type from the types where it is none of them; checks
 * every range, sorts sizes. */
NT_MUST_CHECK int nt_spec_finish(struct nt_spec *s, struct nt_err *err);
/* What profile and database call the rig. A replay of a real node is "recording": it was confirmed
 * in draws from its recording, not on its delivery path, and is not what the node's own job would
 * have published. */
enum nt_rig nt_spec_told_rig(const struct nt_spec *s);
bool nt_spec_has_backends(const struct nt_spec *s); /* any beside NCCL as it is */
json_t *nt_spec_to_json(const struct nt_spec *s);   /* new reference; NULL without memory */
NT_MUST_CHECK int nt_spec_from_json(const json_t *o, struct nt_spec *ret, struct nt_err *err);

NT_MUST_CHECK int nt_spec_add_size(struct nt_spec *s, uint64_t bytes, struct nt_err *err);
/* "1K:256M" (doubling), "1K,14K,3.5M", or both mixed by commas; appended to s->sizes. */
NT_MUST_CHECK int nt_spec_add_sizes(struct nt_spec *s, const char *text, struct nt_err *err);
/* "eager,graph" into a bool table by its names. */
NT_MUST_CHECK int nt_spec_set(const char *text, const char *const *names, const char *what,
                              bool *table, size_t n, struct nt_err *err);
/* "fp32,bf16" into dtypes, the first named raced. */
NT_MUST_CHECK int nt_spec_set_dtypes(struct nt_spec *s, const char *text, struct nt_err *err);
