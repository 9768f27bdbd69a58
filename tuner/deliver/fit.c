#include "tuner/deliver/fit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The findings that --despite names are those that can make a machine unhealthy. */
const char *const nt_fit_names[] = {"unknown",
                                    "stack",
                                    "placement",
                                    "narrow_link",
                                    "nvlink_missing",
                                    "nvlink_count_0",
                                    "nvlink_self",
                                    "nvlink_one_way",
                                    "c2c_missing",
                                    "gdr_lost",
                                    "p2p_off",
                                    "acs_on",
                                    "iommu_on",
                                    "port_down",
                                    "mixed_gpus",
                                    "mig",
                                    NULL};

static bool despite(const struct nt_fit_opts *opts, const char *name)
{
    for (size_t i = 0; name != NULL && opts->despite != NULL && i < opts->despite->n; i++) {
        if (strcmp(opts->despite->v[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void NT_PRINTF(6, 7)
    add(struct nt_fit *f, const struct nt_fit_opts *opts, enum nt_fit_kind kind, const char *name,
        bool stops, const char *fmt, ...)
{
    struct nt_fit_item *i;
    va_list ap;

    if (f->n == sizeof(f->v) / sizeof(f->v[0])) {
        f->fits = f->fits && (!stops || despite(opts, name));
        return;
    }
    i = &f->v[f->n++];
    i->kind = kind;
    i->name = name;
    i->passed = stops && despite(opts, name);
    i->stops = stops && !i->passed;
    va_start(ap, fmt);
    (void)vsnprintf(i->text, sizeof(i->text), fmt, ap);
    va_end(ap);
    f->fits = f->fits && !i->stops;
}

bool nt_fit_forced_by(const struct nt_profile *p, const struct nt_fit *f, char *out, size_t size)
{
    struct nt_buf b;
    bool can = !f->fits;

    nt_buf_init(&b, size);
    for (size_t i = 0; i < f->n; i++) {
        const struct nt_fit_item *x = &f->v[i];
        if (x->stops && x->kind == NT_FIT_RIG) {
            nt_buf_printf(&b, "%s--allow-rig %s", b.len > 0 ? " " : "", nt_rig_names[p->rig]);
        } else if (x->stops && x->name != NULL) {
            nt_buf_printf(&b, "%s--despite %s", b.len > 0 ? " " : "", x->name);
        } else {
            can = can && !x->stops;
        }
    }
    can = can && b.len > 0 && !b.failed && b.len < size;
    (void)snprintf(out, size, "%s", can ? nt_buf_str(&b) : "");
    nt_buf_done(&b);
    return can;
}

void nt_profile_identity(const struct nt_profile *p, struct nt_identity *ret)
{
    *ret = (struct nt_identity){.known = 0};
    (void)snprintf(ret->name, sizeof(ret->name), "%.12s",
                   p->identity.id != NULL ? p->identity.id : "unknown");
    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        for (size_t i = 0; i < p->identity.groups.n; i++) {
            const struct nt_assign *a = &p->identity.groups.v[i];
            if (strcmp(a->name, nt_group_names[g]) == 0 && strlen(a->value) == NT_HEX_LEN) {
                ret->known |= 1U << (unsigned)g;
                memcpy(ret->group[g], a->value, NT_HEX_LEN + 1);
            }
        }
    }
}

static void fit_rig(const struct nt_profile *p, const struct nt_fit_opts *o, struct nt_fit *f)
{
    if (p->rig != NT_RIG_NCCL) {
        add(f, o, NT_FIT_RIG, NULL, p->rig != o->allow_rig,
            "measured on rig %s, not on a real node (--allow-rig %s)", nt_rig_names[p->rig],
            nt_rig_names[p->rig]);
        f->v[f->n - 1].passed = !f->v[f->n - 1].stops;
    }
}

static void fit_identity(const struct nt_profile *p, const struct nt_machine *m,
                         const struct nt_fit_opts *o, struct nt_fit *f)
{
    struct nt_identity made_on;
    uint32_t compared = 0, differ;
    char text[160];

    nt_profile_identity(p, &made_on);
    if (m->topology == NULL) {
        add(f, o, NT_FIT_UNKNOWN, "unknown", true,
            "the machine cannot be looked at: %.240s (--topo FILE)", m->why.msg);
        return;
    }
    differ = nt_identity_compare(&made_on, &m->topology->identity, &compared);
    if (compared == 0) {
        add(f, o, NT_FIT_UNKNOWN, "unknown", true,
            "the profile names no facts that can be compared with this machine");
    } else if (differ != 0) {
        add(f, o, NT_FIT_IDENTITY, NULL, true,
            "made for another machine (%s, this is %s): different in %s", made_on.name,
            m->topology->identity.name, nt_group_mask_text(differ, text, sizeof(text)));
    } else {
        add(f, o, NT_FIT_NOTE, NULL, false, "the machine is the profile's, compared over %s",
            nt_group_mask_text(compared, text, sizeof(text)));
    }
}

static void fit_health(const struct nt_profile *p, const struct nt_machine *m,
                       const struct nt_fit_opts *o, struct nt_fit *f)
{
    for (int i = 0; m->topology != NULL && i < m->topology->nfindings; i++) {
        const struct nt_finding *h = &m->topology->findings[i];
        bool had = false;
        for (size_t k = 0; k < p->health.n; k++) {
            had = had || strcmp(p->health.v[k], h->text) == 0;
        }
        if (h->unhealthy && !had) {
            add(f, o, NT_FIT_HEALTH, nt_finding_names[h->kind], true, "unhealthy: %s", h->text);
        }
    }
}

/* One of two versions is written to fewer places: "580.65" and "580.65.06". */
static bool same_version(const char *a, const char *b)
{
    size_t n = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    const char *longer = strlen(a) < strlen(b) ? b : a;
    return strncmp(a, b, n) == 0 && (longer[n] == '\0' || longer[n] == '.');
}

/* The job writes what the driver offers ("13.0"), an import the driver itself ("580.65.06"). */
static void fit_driver(const struct nt_profile *p, const struct nt_machine *m,
                       const struct nt_fit_opts *o, struct nt_fit *f)
{
    const char *made = p->stack.driver != NULL ? p->stack.driver : "";
    const char *here = strtol(made, NULL, 10) < 100 ? m->cuda : m->driver;

    if (made[0] == '\0' || here[0] == '\0') {
        add(f, o, NT_FIT_NOTE, NULL, false, "driver: %s",
            made[0] == '\0' ? "the profile does not say with which it was made" : "not known here");
    } else if (!same_version(made, here)) {
        add(f, o, NT_FIT_STACK, "stack", true, "driver: the profile was made with %s, here is %s",
            made, here);
    }
}

static void fit_nccl(const struct nt_profile *p, const struct nt_machine *m,
                     const struct nt_fit_opts *o, struct nt_fit *f)
{
    const char *made = p->stack.nccl != NULL ? p->stack.nccl : "";
    const char *sha = p->stack.nccl_sha256 != NULL ? p->stack.nccl_sha256 : "";
    const struct nt_library *other = NULL, *same = NULL;

    for (size_t i = 0; i < m->nccl.n; i++) {
        const struct nt_library *l = &m->nccl.v[i];
        if (l->version[0] != '\0' && strcmp(l->version, made) == 0) {
            same = same == NULL || strcmp(l->sha256, sha) == 0 ? l : same;
        } else if (l->version[0] != '\0' && other == NULL) {
            other = l;
        }
    }
    if (same == NULL && other == NULL) {
        add(f, o, NT_FIT_NOTE, NULL, false,
            "NCCL: made with %s; which one the command loads is not known before it runs", made);
    } else if (same == NULL) {
        add(f, o, NT_FIT_STACK, "stack", true, "NCCL: the profile was made with %s, %.150s is %s",
            made, other->path, other->version);
    } else if (sha[0] != '\0' && strcmp(same->sha256, sha) != 0) {
        add(f, o, NT_FIT_NOTE, NULL, false,
            "NCCL: %.150s is %s too, but another build than the profile was made with", same->path,
            made);
    } else if (other != NULL && other < same) {
        add(f, o, NT_FIT_NOTE, NULL, false,
            "NCCL: %.120s (%s) may be loaded instead of %s; doctor tells what was", other->path,
            other->version, made);
    }
}

/* CUDA_VISIBLE_DEVICES as plain numbers. 0: not such a list. */
static int visible(const char *text, uint16_t *gpus, int max, int ngpus)
{
    int n = 0;
    while (text != NULL && *text != '\0' && n < max) {
        char *end;
        unsigned long v = strtoul(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0') || v >= (unsigned long)ngpus) {
            return 0;
        }
        gpus[n++] = (uint16_t)v;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

/* Whichever GPUs it takes: all subsets of that size are alike, and of this class. */
static bool any_will_do(const struct nt_topology *t, int n, const char *class)
{
    enum { SUBSETS_MAX = 10000 };
    struct nt_placements all = {0};
    bool same = nt_placements_cost(t, n) <= SUBSETS_MAX &&
                nt_placements_find(t, n, &all, NULL) == 0 && all.n == 1 &&
                strcmp(all.v[0].key, class) == 0;

    nt_placements_done(&all);
    return same;
}

static void fit_placement(const struct nt_profile *p, const struct nt_machine *m,
                          const struct nt_fit_opts *o, struct nt_fit *f)
{
    const char *class = p->placement != NULL ? p->placement : "";
    int want = p->nodes > 0 ? (int)(p->ranks / p->nodes) : 0, n;
    uint16_t gpus[NT_MAX_GPUS];
    struct nt_placement here;

    if (class[0] == '\0' || m->topology == NULL || want <= 0 || want > m->topology->ngpus ||
        any_will_do(m->topology, want, class)) {
        return;
    }
    n = visible(nt_env_get(o->env, "CUDA_VISIBLE_DEVICES"), gpus, NT_MAX_GPUS, m->topology->ngpus);
    if (n == 0 && nt_env_get(o->env, "CUDA_VISIBLE_DEVICES") == NULL) {
        for (n = 0; n < want; n++) {
            gpus[n] = (uint16_t)n;
        }
    }
    if (n != want || nt_placement_of(m->topology, gpus, n, &here, NULL) != 0) {
        add(f, o, NT_FIT_PLACEMENT, "placement", true,
            "the profile is for %d GPUs of placement class %s; which GPUs the command uses cannot "
            "be told from CUDA_VISIBLE_DEVICES",
            want, class);
    } else if (strcmp(here.key, class) != 0) {
        add(f, o, NT_FIT_PLACEMENT, "placement", true,
            "the profile is for placement class %s, the command's GPUs are of class %s (%s)", class,
            here.key, here.text);
    }
}

/* Rows are for exact numbers of ranks and nodes; process variables reach every communicator. */
static void fit_nodes(const struct nt_profile *p, const struct nt_fit_opts *o, struct nt_fit *f)
{
    if (p->nodes > 1 && p->rig == NT_RIG_NCCL) {
        add(f, o, NT_FIT_NOTE, NULL, false,
            "measured on %u nodes with %u ranks each: its rows serve communicators of %u ranks on "
            "%u nodes, every other one is NCCL's own choice; all nodes need the same profile",
            p->nodes, p->ranks / p->nodes, p->ranks, p->nodes);
    }
}

static void fit_site(const struct nt_profile *p, const struct nt_fit_opts *o, struct nt_fit *f)
{
    for (size_t i = 0; i < p->site.n; i++) {
        const char *here = nt_env_get(o->env, p->site.v[i].name);
        if (here == NULL || strcmp(here, p->site.v[i].value) != 0) {
            add(f, o, NT_FIT_SITE, NULL, false,
                "measured under %s=%s, which is %s%s here; that is the site's to set",
                p->site.v[i].name, p->site.v[i].value, here == NULL ? "not set" : "",
                here != NULL ? here : "");
        }
    }
}

void nt_fit(const struct nt_profile *p, const struct nt_machine *m, const struct nt_fit_opts *opts,
            struct nt_fit *ret)
{
    *ret = (struct nt_fit){.fits = true};
    fit_rig(p, opts, ret);
    fit_identity(p, m, opts, ret);
    fit_health(p, m, opts, ret);
    fit_driver(p, m, opts, ret);
    if (p->stack.framework != NULL && p->stack.framework[0] != '\0') {
        add(ret, opts, NT_FIT_NOTE, NULL, false,
            "its backends were measured under %.120s; what is loaded is not known before it runs",
            p->stack.framework);
    }
    fit_nccl(p, m, opts, ret);
    fit_placement(p, m, opts, ret);
    fit_nodes(p, opts, ret);
    fit_site(p, opts, ret);
}
