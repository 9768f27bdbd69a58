#include "tests/json/sample.h"

#include <math.h>

static void add_class(struct nt_profile *p, enum nt_product product, uint64_t bytes, int mode,
                      int verdict, double default_ns, double tuned_ns, const char *setting)
{
    struct nt_profile_class *c = nt_profile_add_class(p, product);
    c->coll = NT_ALL_REDUCE;
    c->bytes = bytes;
    c->mode = mode;
    c->verdict = verdict;
    c->default_ns = default_ns;
    c->tuned_ns = tuned_ns;
    c->gain = default_ns / tuned_ns - 1;
    c->interval[0] = c->gain - 0.02;
    c->interval[1] = c->gain + 0.02;
    c->p_adjusted = verdict == NT_VD_TUNED ? 0.0005 : 0.4;
    c->pairs = 12;
    c->guard_upper = tuned_ns / default_ns + 0.01;
    c->setting = setting;
}

static struct nt_profile *head(void)
{
    struct nt_profile *p = nt_profile_new();
    if (p == NULL) {
        return NULL;
    }
    p->created = "2026-01-31T12:00:00Z";
    p->tool = "0.1.0";
    p->job = "7";
    p->identity.id = "0123456789ab";
    p->identity.mask = "3f";
    nt_profile_assign(p, &p->identity.groups, "gpus",
                      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    p->stack.nccl = "2.28.9";
    p->stack.cuda = "13.0";
    p->stack.driver = "580.65";
    p->stack.gpu = "Example GPU";
    p->ranks = 8;
    p->nodes = 1;
    nt_profile_assign(p, &p->site, "NCCL_NVLS_ENABLE", "0");
    *NT_PROFILE_ADD(p, &p->modes) = "eager";
    *NT_PROFILE_ADD(p, &p->modes) = "graph";
    *NT_PROFILE_ADD(p, &p->dtypes) = "bf16";
    p->product[NT_STATIC].present = p->product[NT_TABLE].present = true;
    return p;
}

struct nt_profile *nt_sample_empty(void)
{
    struct nt_profile *p = head();
    if (p != NULL) {
        add_class(p, NT_TABLE, 14336, NT_EAGER, NT_VD_DEFAULT, 30000, 30000, "default");
    }
    return p;
}

static void add_backends(struct nt_profile *p)
{
    struct nt_profile_backend *r;

    p->backends.present = true;
    *NT_PROFILE_ADD(p, &p->backends.asked) = "nccl";
    *NT_PROFILE_ADD(p, &p->backends.asked) = "ipc";
    r = NT_PROFILE_ADD(p, &p->backends.rows);
    *r = (struct nt_profile_backend){.min_bytes = 1024,
                                     .max_bytes = 16384,
                                     .coll = NT_ALL_REDUCE,
                                     .mode = NT_GRAPH,
                                     .backend = NT_BE_IPC,
                                     .algo = NT_ONE_SHOT,
                                     .proto = NT_PUSH,
                                     .numerics = NT_NUM_RANK,
                                     .bits = NT_BITS_DIFFERENT};
    *NT_PROFILE_ADD(p, &r->serves) = "bf16/out";
    *NT_PROFILE_ADD(p, &p->backends.classes) =
        (struct nt_profile_backend_class){.bytes = 4096,
                                          .coll = NT_ALL_REDUCE,
                                          .mode = NT_GRAPH,
                                          .verdict = NT_VD_TUNED,
                                          .setting = "ipc one_shot/push",
                                          .rival = "table",
                                          .default_ns = 9000,
                                          .rival_ns = 8500,
                                          .ns = 5000,
                                          .gain = 0.41,
                                          .interval = {0.39, 0.43},
                                          .p_adjusted = 0.0005,
                                          .guard_upper = 0.62,
                                          .p95_ratio = NAN,
                                          .pairs = 12,
                                          .why = ""};
    *NT_PROFILE_ADD(p, &p->backends.notes) =
        (struct nt_noted){"nccl-symmetric", "no symmetric window here", NAN};
}

struct nt_profile *nt_sample_profile(void)
{
    struct nt_profile *p = head();
    struct nt_profile_row *r;
    struct nt_noted *noted;
    struct nt_runner_up *up;
    struct nt_profile_class *c;

    if (p == NULL) {
        return NULL;
    }
    nt_profile_assign(p, &p->product[NT_STATIC].vars, "NCCL_BUFFSIZE", "8388608");
    nt_profile_assign(p, &p->product[NT_STATIC].vars, "NCCL_ALGO",
                      "allreduce:tree,ring;allgather:ring");
    add_class(p, NT_STATIC, 67108864, NT_GRAPH, NT_VD_TUNED, 2465000, 2145000, "static");

    nt_profile_assign(p, &p->product[NT_TABLE].vars, "NCCL_MIN_NCHANNELS", "16");
    nt_profile_assign(p, &p->product[NT_TABLE].vars, "NCCL_BUFFSIZE", "8388608");
    r = NT_PROFILE_ADD(p, &p->product[NT_TABLE].rows); /* out of order: finish() sorts */
    *r = (struct nt_profile_row){.coll = NT_ALL_REDUCE,
                                 .min_bytes = 8388609,
                                 .max_bytes = 67108864,
                                 .algo = NT_TREE,
                                 .proto = NT_SIMPLE,
                                 .reg_buff = -1};
    r = NT_PROFILE_ADD(p, &p->product[NT_TABLE].rows);
    *r = (struct nt_profile_row){.coll = NT_ALL_REDUCE,
                                 .min_bytes = 8192,
                                 .max_bytes = 32768,
                                 .algo = NT_RING,
                                 .proto = NT_LL,
                                 .channels = 2,
                                 .reg_buff = -1,
                                 .executed_channels = 2,
                                 .executed_warps = 16};
    add_class(p, NT_TABLE, 14336, NT_EAGER, NT_VD_TUNED, 30000, 26000, "ring/ll/2");
    add_class(p, NT_TABLE, 14336, NT_GRAPH, NT_VD_TUNED, 13500, 10800, "ring/ll/2");
    add_class(p, NT_TABLE, 1048576, NT_GRAPH, NT_VD_DEFAULT, 62900, 62900, "default");
    add_class(p, NT_TABLE, 67108864, NT_GRAPH, NT_VD_TUNED, 2465000, 2145000, "tree/simple");
    c = &p->product[NT_TABLE].classes.v[1];
    c->as_found_ns = 13700;
    c->p95_ratio = 0.97;
    c->detectable = 0.021;
    up = NT_PROFILE_ADD(p, &c->runners_up);
    *up = (struct nt_runner_up){"ring/ll/4", 11000};
    noted = NT_PROFILE_ADD(p, &c->rejected);
    *noted = (struct nt_noted){"tree/ll", "slower in eager mode", NAN};
    noted = NT_PROFILE_ADD(p, &p->inert);
    *noted = (struct nt_noted){"NCCL_LL128_BUFFSIZE", "LL128 is not available here", 31457280};
    add_backends(p);
    p->memory.default_bytes = 500000000;
    p->memory.table_bytes = 700000000;
    p->first_call.default_ns = 1.2e9;
    return p;
}
