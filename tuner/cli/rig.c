#include "tuner/cli/rig.h"
#include "tuner/cli/recorded.h"
#include "probes/recording/recording.h"
#include "tuner/base/text.h"
#include "tuner/cli/where.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that stands in for the machine. */
static int stand_in(const struct nt_rig_opts *o, const char *kind, struct nt_rig_open *r,
                    struct nt_err *err)
{
    size_t n = 0;

    r->virtual_time = true;
    r->args[n++] = r->file;
    r->args[n++] = "--seed";
    (void)snprintf(r->seed, sizeof(r->seed), "%llu", (unsigned long long)o->seed);
    r->args[n++] = r->seed;
    r->args[n++] = "--pace";
    r->args[n++] = o->pace != NULL ? o->pace : "none";
    if (r->spec.rig == NT_RIG_MODEL) {
        r->args[n++] = "--nodes";
        (void)snprintf(r->nodes, sizeof(r->nodes), "%u", r->spec.nodes);
        r->args[n++] = r->nodes;
    }
    return nt_where_probe(kind, r->probe, sizeof(r->probe), err);
}

/* A replay of a real node says `recording` in its profile. */
static bool same_rig(const struct nt_profile *p, const char *recorded)
{
    return recorded != NULL &&
           (strcmp(recorded, nt_rig_names[p->rig]) == 0 ||
            (p->rig == NT_RIG_RECORDING && strcmp(recorded, nt_rig_names[NT_RIG_NCCL]) == 0));
}

/* Without peer access, say, the same machine is another one. fixed: "NAME=VALUE NAME=VALUE". */
static bool same_site(const struct nt_profile *p, const char *fixed)
{
    size_t words = 0, known = 0;

    for (const char *w = fixed != NULL ? fixed : ""; *w != '\0'; w += strcspn(w, " ")) {
        size_t n;
        w += strspn(w, " ");
        n = strcspn(w, " ");
        words += n > 0;
        for (size_t i = 0; i < p->site.n; i++) {
            size_t name = strlen(p->site.v[i].name);
            known += n > name && strncmp(w, p->site.v[i].name, name) == 0 && w[name] == '=' &&
                     strlen(p->site.v[i].value) == n - name - 1 &&
                     strncmp(w + name + 1, p->site.v[i].value, n - name - 1) == 0;
        }
    }
    return words == known && known == p->site.n;
}

/* The first of the profile's types that was recorded: its rows hold in all of them. */
static int take_dtype(const struct nt_profile *p, struct nt_rig_open *r, struct nt_err *err)
{
    for (size_t i = 0; i < p->dtypes.n; i++) {
        int d = nt_vocab_find(nt_dtype_names, "data type", p->dtypes.v[i], err);
        if (d < 0) {
            return d;
        }
        if (nt_recorded_dtype(r->rec, (enum nt_dtype)d)) {
            r->dtype = (uint8_t)d;
            return 0;
        }
    }
    return nt_fail(
        err, NT_E_MISSING, 0, "%.200s holds %s, the profile is of %s%s", r->file,
        nt_recording_blocks(r->rec) > 0 ? nt_dtype_names[nt_recording_block(r->rec, 0)->cs.dtype]
                                        : "nothing",
        p->dtypes.n > 0 ? p->dtypes.v[0] : "no type", p->dtypes.n > 1 ? " and others" : "");
}

static int use_recording(const struct nt_rig_opts *o, const char *name, const struct nt_profile *p,
                         struct nt_rig_open *r, struct nt_err *err)
{
    const char *rig, *ranks;
    int rc = nt_where_recording(name + strlen("recording:"), r->file, sizeof(r->file), err);

    rc = rc == 0 ? nt_recording_load(r->file, &r->rec, err) : rc;
    if (rc == 0) {
        rig = nt_recording_fact(r->rec, NT_FACT_RIG);
        ranks = nt_recording_fact(r->rec, NT_FACT_RANKS);
        if (!same_rig(p, rig) || ranks == NULL || strtoul(ranks, NULL, 10) != p->ranks) {
            rc = nt_fail(err, NT_E_MISSING, 0,
                         "%.200s holds %s ranks of the rig %s, the profile is of %u of the rig %s",
                         r->file, ranks != NULL ? ranks : "no", rig != NULL ? rig : "unknown",
                         p->ranks, nt_rig_names[p->rig]);
        } else if (!same_site(p, nt_recording_fact(r->rec, NT_FACT_FIXED))) {
            rc = nt_fail(err, NT_E_MISSING, 0,
                         "%.200s was taken under other site constraints than the profile: '%s'",
                         r->file, nt_recording_fact(r->rec, NT_FACT_FIXED));
        }
    }
    if (rc == 0 && nt_recording_fact(r->rec, NT_FACT_FIXED) != NULL) { /* was in force there */
        (void)snprintf(r->spec.fixed, sizeof(r->spec.fixed), "%s",
                       nt_recording_fact(r->rec, NT_FACT_FIXED));
    }
    rc = rc == 0 ? take_dtype(p, r, err) : rc;
    r->spec.rig = NT_RIG_RECORDING;
    return rc == 0 ? stand_in(o, "recording", r, err) : rc;
}

static int use_model(const struct nt_rig_opts *o, const char *name, struct nt_rig_open *r,
                     struct nt_err *err)
{
    if (realpath(name + strlen("model:"), r->file) == NULL) {
        return nt_fail(err, NT_E_INVAL, errno, "--rig %.200s", name);
    }
    r->spec.rig = NT_RIG_MODEL;
    return stand_in(o, "model", r, err);
}

/* The profile's nodes, by a launcher. */
static int use_nodes(const struct nt_rig_opts *o, struct nt_rig_open *r, struct nt_err *err)
{
    struct nt_nodes_args on = *o->on;
    unsigned nodes = r->spec.nodes;
    int rc;

    if (on.launch == NULL && nodes > 1) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "the profile is of %u nodes: say with --launch how they are reached", nodes);
    }
    on.nodes = on.nodes == 0 && on.launch != NULL ? nodes : on.nodes;
    rc = nt_over_open(&on, &r->over, err);
    if (rc == 0 && r->over.on && r->over.remote.nodes != nodes) {
        rc = nt_fail(err, NT_E_INVAL, 0, "the profile is of %u node%s, not of %u", nodes,
                     nodes == 1 ? "" : "s", r->over.remote.nodes);
    }
    return rc == 0 ? nt_over_each(&r->over, &r->spec, err) : rc;
}

static int use_machine(const struct nt_rig_opts *o, struct nt_rig_open *r, struct nt_err *err)
{
    int rc;

    if (o->probe != NULL && (access(o->probe, X_OK) != 0 || realpath(o->probe, r->probe) == NULL)) {
        return nt_fail(err, NT_E_INVAL, 0, "--probe %.200s is no program", o->probe);
    }
    rc = o->probe == NULL ? nt_where_probe("nccl", r->probe, sizeof(r->probe), err) : 0;
    rc = rc == 0 ? nt_where_plugin("tuner", r->plugin, sizeof(r->plugin), err) : rc;
    rc = rc == 0 && r->spec.rig == NT_RIG_NCCL && o->on != NULL ? use_nodes(o, r, err) : rc;
    rc = rc == 0 ? nt_env_devices(&r->env, &r->spec, o->devices, err) : rc;
    if (rc != 0) {
        return rc;
    }
    return r->over.on ? nt_over_ranks(&r->over, &r->env, &r->spec, err)
                      : nt_env_ranks(&r->env, &r->spec, err);
}

int nt_rig_open(const struct nt_rig_opts *o, const struct nt_profile *p, struct nt_rig_open *ret,
                struct nt_err *err)
{
    static const char *const rigs[] = {"auto",           "nccl",           "mps-sockets", "mps-p2p",
                                       "recording:NAME", "model:TOPO.xml", NULL};
    bool named = o->rig != NULL && strcmp(o->rig, "auto") != 0,
         given = named || (p->stand_in != NULL && p->stand_in[0] != '\0');
    const char *name = named ? o->rig : p->stand_in;
    int rc, rig = given ? nt_vocab_find(nt_rig_names, "rig", name, NULL) : p->rig;

    memset(ret, 0, sizeof(*ret));
    nt_env_init(&ret->env);
    nt_spec_init(&ret->spec);
    ret->spec.ranks = p->ranks;
    ret->spec.nodes = p->nodes;
    rc = nt_env_take(&ret->env, &ret->spec, o->nccl, o->fix, o->env, err);
    if (rc != 0) {
        return rc;
    }
    if (given && o->devices != NULL &&
        (strncmp(name, "recording:", 10) == 0 || strncmp(name, "model:", 6) == 0)) {
        return nt_fail(err, NT_E_INVAL, 0, "--devices: a recording or model has none");
    }
    if (given && strncmp(name, "recording:", 10) == 0) {
        if (o->fix != NULL && o->fix->n > 0) {
            return nt_fail(err, NT_E_INVAL, 0, "--fix: only a machine that is here can be fixed");
        }
        return use_recording(o, name, p, ret, err);
    }
    if (given && strncmp(name, "model:", 6) == 0) {
        return use_model(o, name, ret, err);
    }
    if (!given && rig >= NT_RIG_RECORDING) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "the profile is of the rig %s: name what it was made with, --rig %s",
                       nt_rig_names[rig], rig == NT_RIG_MODEL ? rigs[5] : rigs[4]);
    }
    if (rig < 0 || rig > NT_RIG_MPS_P2P) {
        return nt_fail_name(err, "rig", name, rigs);
    }
    if (rig != p->rig) {
        return nt_fail(err, NT_E_MISSING, 0, "the profile is of the rig %s, not of %s",
                       nt_rig_names[p->rig], nt_rig_names[rig]);
    }
    ret->spec.rig = (enum nt_rig)rig;
    return use_machine(o, ret, err);
}

void nt_rig_resolve(void *data, const char *vars, struct nt_case *cs,
                    const struct nt_executed *executed, struct nt_call *asked)
{
    const struct nt_rig_open *r = data;

    cs->dtype = r->rec != NULL ? r->dtype : cs->dtype;
    if (r->rec == NULL || executed->channels == 0 ||
        nt_recording_find(r->rec, cs, 0, vars, asked) >= 0) {
        return;
    }
    for (size_t i = 0; i < nt_recording_blocks(r->rec); i++) {
        const struct nt_block *b = nt_recording_block(r->rec, i);
        if (nt_case_equal(&b->cs, cs) && b->executed.algo == executed->algo &&
            b->executed.proto == executed->proto && b->executed.channels == executed->channels &&
            strcmp(b->process, vars) == 0) {
            *asked = b->call;
            return;
        }
    }
}

void nt_rig_close(struct nt_rig_open *r)
{
    nt_recording_free(r->rec);
    nt_over_close(&r->over);
    nt_env_done(&r->env);
}
