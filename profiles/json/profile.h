/*
 * profile - the outcome of a job for one topology, placement class, rank count and stack, with its
 * evidence: one JSON document, format "nccltune-profile" version 1 (schema/profile.schema.json).
 *
 * Units      *_ns nanoseconds, *_bytes and `bytes` bytes as NCCL's tuner sees them, `gain` a
 *            fraction (0.11 = 11 % less time than the faster baseline), ratios plain.
 * Absent     NAN for numbers, NULL or "" for texts, n = 0 for lists: not written.
 * Ownership  everything inside a profile is freed by nt_profile_free(); texts assigned to its
 *            members must come from nt_profile_text() or live as long (constants do). Arrays grow
 *            through NT_PROFILE_ADD.
 * Errors     0 or -enum nt_code; running out of memory while building is remembered in `failed`
 *            and reported by nt_profile_check() and nt_profile_dump().
 * Safety     reading and writing validate against the tunables table: a profile never carries a
 *            command, a free path or a name outside the allow-list.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "schema/tunables.h"
#include "schema/vocab.h"
#include "tuner/base/buf.h"

#define NT_PROFILE_FORMAT "nccltune-profile"
enum { NT_PROFILE_VERSION = 1, NT_PROFILE_MAX_BYTES = 16 << 20, NT_PROFILE_MAX_ROWS = 4096 };

enum nt_product { NT_STATIC, NT_TABLE, NT_PRODUCT_COUNT };
extern const char *const nt_product_names[]; /* "static", "table" */

/* What became of a class. */
enum nt_class_verdict {
    NT_VD_TUNED,       /* published: faster, and within the guard */
    NT_VD_KEPT,        /* published: a row keeps it as it is without the product's variables; no
                          gain is claimed */
    NT_VD_DEFAULT,     /* NCCL's default is the best found */
    NT_VD_UNDECIDED,   /* a gain could not be proved: back to the default */
    NT_VD_NOISY,       /* too noisy for a verdict: back to the default */
    NT_VD_GUARD,       /* faster inside, slower somewhere: back to the default */
    NT_VD_NOT_CHECKED, /* chosen by search, not confirmed: never in a product */
    NT_VD_COUNT
};
extern const char *const nt_class_verdict_names[];

struct nt_texts {
    const char **v;
    size_t n;
};
struct nt_assigns {
    struct nt_assign *v;
    size_t n;
};

struct nt_profile_row {
    uint64_t min_bytes, max_bytes; /* inclusive */
    int coll, algo, proto;         /* enums */
    unsigned channels;             /* upper bound; 0: NCCL's choice; never above executed */
    uint64_t chunk_bytes;          /* 0: NCCL's choice */
    int reg_buff;                  /* -1: any; 0, 1: only unregistered, registered buffers */
    unsigned executed_channels, executed_warps; /* least seen over ranks and pairs; 0: not read */
};
struct nt_profile_rows {
    struct nt_profile_row *v;
    size_t n;
};

struct nt_runner_up {
    const char *setting; /* "ring/ll/4" */
    double ns;           /* search estimate */
};
struct nt_noted { /* something with its reason */
    const char *setting, *why;
    double memory_bytes; /* inert settings: what they take; NAN elsewhere */
};
struct nt_runners_up {
    struct nt_runner_up *v;
    size_t n;
};
struct nt_noteds {
    struct nt_noted *v;
    size_t n;
};

/* Evidence of one class of one product. */
struct nt_profile_class {
    uint64_t bytes; /* the ladder size that stands for the class */
    int coll, mode, verdict;
    double default_ns, tuned_ns; /* medians over pairs */
    double as_found_ns;          /* NAN: as-found is pristine */
    double gain, interval[2];    /* over the faster baseline, two-sided 95 % */
    double p_adjusted;           /* step-down max-T */
    unsigned pairs;
    double
        guard_upper;  /* one-sided 95 % upper bound of tuned / faster baseline, worst check point */
    double p95_ratio; /* NAN: not enough iterations */
    double
        detectable; /* smallest gain that the pairs prove in four of five cases; NAN: not known */
    const char *setting; /* "ring/ll/4", "default" */
    struct nt_runners_up runners_up;
    struct nt_noteds rejected;
    struct nt_texts reproduce; /* two commands: without, with; filled by nt_profile_finish() */
};
struct nt_profile_classes {
    struct nt_profile_class *v;
    size_t n;
};

/* Who moves the bytes of one collective in one mode between two sizes; the rest stays NCCL's. */
struct nt_profile_backend {
    uint64_t min_bytes, max_bytes; /* inclusive */
    int coll, mode, backend;       /* enums */
    int algo, proto;               /* of our own kernels and of NCCL under it; -1: its own choice */
    unsigned blocks;               /* 0: its own choice */
    int numerics, bits;            /* enum nt_numerics; enum nt_bits against NCCL left alone */
    struct nt_texts serves;        /* "bf16/out": what it was right in; nothing else is for it */
};
struct nt_profile_backends {
    struct nt_profile_backend *v;
    size_t n;
};
/* Evidence of one class, against the fastest of NCCL's default, the table and as found. */
struct nt_profile_backend_class {
    uint64_t bytes;
    int coll, mode, verdict; /* enum nt_class_verdict */
    const char *setting;     /* "ipc two_shot/direct" */
    const char *rival;       /* "default", "table", "as-found" */
    double default_ns, rival_ns, ns, gain, interval[2], p_adjusted, guard_upper, p95_ratio;
    unsigned pairs;
    const char *why; /* "" when tuned */
};
struct nt_profile_backend_classes {
    struct nt_profile_backend_class *v;
    size_t n;
};

struct nt_profile_product {
    bool present; /* the job confirmed this product (it may be empty: the defaults win) */
    struct nt_assigns vars;
    struct nt_profile_rows rows; /* table only */
    struct nt_profile_classes classes;
};

struct nt_profile {
    const char *created;  /* "2026-11-29T12:00:00Z" */
    const char *tool;     /* version of nccltune */
    int rig;              /* enum nt_rig; anything but nccl is marked functional */
    const char *stand_in; /* "recording:NAME": what was played instead of a machine; NULL: none */
    struct {
        const char *id, *mask;    /* 12 hex; hex of the known groups */
        struct nt_assigns groups; /* name → SHA-256 */
    } identity;
    struct nt_texts health;   /* findings; none: healthy */
    struct nt_texts warnings; /* what was odd while it was measured */
    struct {
        const char *nccl, *nccl_sha256, *cuda, *driver, *gpu;
        const char *framework; /* "torch 2.8.0, sglang 0.5.12"; NULL: its probe did not measure */
    } stack;
    unsigned ranks, nodes;
    const char *placement;  /* placement class, "" when there is one */
    struct nt_assigns site; /* constraints taken from the caller, in force in every arm */
    struct {
        struct nt_assigns pristine, as_found; /* variables of the two baselines beside `site` */
        bool same;                            /* as-found is pristine */
    } baselines;
    struct nt_texts modes, dtypes, places; /* names of the vocabulary that rows were confirmed in;
                                               dtypes: what was raced first */
    struct nt_profile_product product[NT_PRODUCT_COUNT];
    struct {
        bool present; /* others than NCCL as it is were raced */
        bool same_bits;
        struct nt_texts asked;
        struct nt_texts peers; /* "0 to 1: access, copy ok, …": what real copies said */
        struct nt_profile_backends rows;
        struct nt_profile_backend_classes classes;
        struct nt_noteds notes; /* not to be had, ruled out, ties */
    } backends;
    struct nt_noteds not_checked, not_allowed_here, inert;
    struct nt_noteds tried; /* process settings, and what became of each */
    struct {
        double default_bytes, static_bytes, table_bytes; /* per rank */
    } memory;
    struct {
        double default_ns, static_ns, table_ns;
    } first_call;
    const char *job; /* id of the job in its database, "" if none */
    struct {
        const char *hash, *file; /* of the table product; filled by nt_profile_finish() */
    } delivery;
    void *arena; /* private */
    bool failed;
};

struct nt_profile *
nt_profile_new(void); /* NULL: out of memory. Numbers NAN, rig nccl, as_found same */
void nt_profile_free(struct nt_profile *p);
/* A copy that lives with the profile; "" for NULL. Never NULL. */
const char *nt_profile_text(struct nt_profile *p, const char *text);
const char *nt_profile_textf(struct nt_profile *p, const char *fmt, ...) NT_PRINTF(2, 3);
/* Grows a list of the profile by one zeroed element and returns it; never NULL (on failure a
 * scratch element, and p->failed). `struct nt_profile_row *r = NT_PROFILE_ADD(p, &prod->rows);` */
#define NT_PROFILE_ADD(p, list)                                                                    \
    ((__typeof__((list)->v))nt_profile_grow((p), (void *)&(list)->v, &(list)->n,                   \
                                            sizeof((list)->v[0])))
void *nt_profile_grow(struct nt_profile *p, void *v, size_t *n, size_t size);
void nt_profile_assign(struct nt_profile *p, struct nt_assigns *list, const char *name,
                       const char *value);
/* A class with all optional numbers absent. */
struct nt_profile_class *nt_profile_add_class(struct nt_profile *p, enum nt_product product);

/* Everything that reading checks: domains, allow-list, overlapping rows, executed channels. */
NT_MUST_CHECK int nt_profile_check(const struct nt_profile *p, struct nt_err *err);
/* Sorts rows and variables, fills `delivery` and each class's `reproduce`; then checks. Call once
 * before writing. */
NT_MUST_CHECK int nt_profile_finish(struct nt_profile *p, struct nt_err *err);

/* The caller owns *ret. */
NT_MUST_CHECK int nt_profile_parse(const char *text, size_t len, const char *what,
                                   struct nt_profile **ret, struct nt_err *err);
NT_MUST_CHECK int nt_profile_load(const char *path, struct nt_profile **ret, struct nt_err *err);
/* JSON text, sorted keys; checks first. */
NT_MUST_CHECK int nt_profile_dump(const struct nt_profile *p, struct nt_buf *out,
                                  struct nt_err *err);
NT_MUST_CHECK int nt_profile_save(const struct nt_profile *p, const char *path, struct nt_err *err);

/* Bytes of the delivery file of a product (profiles/format/table.h), appended to *out, and their
 * SHA-256. */
NT_MUST_CHECK int nt_profile_delivery(const struct nt_profile *p, enum nt_product product,
                                      struct nt_buf *out, char hash[65], struct nt_err *err);
/* Writes DIR/<hash>.nctable. path: its name, as given by dir. */
NT_MUST_CHECK int nt_profile_write_delivery(const struct nt_profile *p, enum nt_product product,
                                            const char *dir, char *path, size_t path_size,
                                            struct nt_err *err);

/* The two nccl-tests commands that reproduce a class: appended, one each, without a newline.
 * plugin: path of the installed tuner plugin, table: of the delivery file; NULL: the per-function
 * form (static product, or a table row for which NCCL >= 2.24 can say the same; no variable says a
 * chunk size, and the command of a row that asks for one says so). */
void nt_profile_reproduce(const struct nt_profile *p, enum nt_product product,
                          const struct nt_profile_class *c, const char *plugin, const char *table,
                          struct nt_buf *without, struct nt_buf *with);

struct nt_call nt_profile_row_call(const struct nt_profile_row *r); /* what the row asks for */
/* Is it there to keep a call as it was, and not for a gain? Known by its classes. */
bool nt_profile_row_keeps(const struct nt_profile_product *product, const struct nt_profile_row *r);
/* The row that serves a call; NULL: NCCL's default. */
const struct nt_profile_row *nt_profile_decide(const struct nt_profile *p, int coll,
                                               uint64_t bytes);
/* Evidence of the class nearest in size: NULL if the collective has none in this mode (mode < 0:
 * any). */
const struct nt_profile_class *nt_profile_evidence(const struct nt_profile *p,
                                                   enum nt_product product, int coll,
                                                   uint64_t bytes, int mode);
/* The same of backends, in this mode. */
const struct nt_profile_backend_class *
nt_profile_backend_evidence(const struct nt_profile *p, int coll, uint64_t bytes, int mode);

/* The backend of a call; NULL: NCCL as it is. */
const struct nt_profile_backend *nt_profile_backend(const struct nt_profile *p, int coll,
                                                    uint64_t bytes, int mode);

/* What would run for one call, and why. Borrows from the profile. mode < 0: any. A product that the
 * profile does not have: NT_E_INVAL. */
struct nt_profile_choice {
    enum nt_product product;
    int coll;
    uint64_t bytes;
    const struct nt_profile_row *row;        /* NULL: NCCL's choice */
    const struct nt_profile_class *evidence; /* nearest in size; NULL: none */
    char setting[64], why[160];
};
NT_MUST_CHECK int nt_profile_choose(const struct nt_profile *p, enum nt_product product, int coll,
                                    uint64_t bytes, int mode, struct nt_profile_choice *ret,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_profile_choice_json(const struct nt_profile *p,
                                         const struct nt_profile_choice *d, bool pretty,
                                         struct nt_buf *out, struct nt_err *err);
