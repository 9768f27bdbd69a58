#include "tuner/cli/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/cli/where.h"

enum { LOOK_MS = 120000 };

int nt_over_open(const struct nt_nodes_args *a, struct nt_over *ret, struct nt_err *err)
{
    int rc;

    memset(ret, 0, sizeof(*ret));
    if (a->launch == NULL) {
        return a->hosts == NULL && a->listen == NULL && a->wait_ns == 0
                   ? 0
                   : nt_fail(err, NT_E_INVAL, 0,
                             "--hosts, --listen, --launch-wait: say with --launch how nodes are "
                             "reached");
    }
    ret->on = true;
    rc = nt_remote_read(a->launch, a->hosts, a->nodes, &ret->remote, err);
    rc = rc == 0 ? nt_where_agent(ret->agent, sizeof(ret->agent), err) : rc;
    ret->remote.agent = ret->agent;
    ret->remote.listen = a->listen;
    ret->remote.turns = &ret->turns;
    ret->remote.wait_ms =
        (uint32_t)(a->wait_ns / 1000000 < UINT32_MAX / 2 ? a->wait_ns / 1000000 : UINT32_MAX / 2);
    return rc;
}

void nt_over_close(struct nt_over *o)
{
    json_decref(o->machines);
    o->machines = NULL;
}

const struct nt_remote *nt_over_remote(const struct nt_over *o)
{
    return o->on ? &o->remote : NULL;
}

int nt_over_each(const struct nt_over *o, struct nt_spec *s, struct nt_err *err)
{
    if (o->on && s->ranks % o->remote.nodes != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--ranks %u: not equally many on each of %u nodes",
                       s->ranks, o->remote.nodes);
    }
    s->ranks /= o->on ? o->remote.nodes : 1;
    return 0;
}

static void say(const struct nt_buf *said)
{
    char *save = NULL, *text = said->len > 0 ? strdup(nt_buf_str(said)) : NULL;

    for (char *l = text != NULL ? strtok_r(text, "\n", &save) : NULL; l != NULL;
         l = strtok_r(NULL, "\n", &save)) {
        nt_log(NT_WARN, "%s", l);
    }
    free(text);
}

/* `topo --machine` on all of them. */
static int look(struct nt_over *o, struct nt_env *e, const struct nt_spec *s, struct nt_err *err)
{
    char self[4096], ranks[16];
    const char *args[6] = {"topo", "--machine"};
    struct nt_nodes *nodes = calloc(1, sizeof(*nodes));
    struct nt_buf said;
    int rc = nodes == NULL ? nt_fail(err, NT_E_NOMEM, 0, "nodes")
                           : nt_where_self(self, sizeof(self), err);

    if (s->ranks > 0) {
        (void)snprintf(ranks, sizeof(ranks), "%u", s->ranks);
        args[2] = "--ranks";
        args[3] = ranks;
    }
    nt_buf_init(&said, 1 << 20);
    rc = rc == 0 ? nt_nodes_ask(&o->remote, self, args, nt_env_list(e), getenv("TMPDIR"), LOOK_MS,
                                nodes, err)
                 : rc;
    if (rc == 0) {
        o->machines = nt_nodes_machines(nodes);
        rc = nt_nodes_judge(o->machines, &said, err);
        say(&said);
        nt_nodes_done(nodes);
    }
    nt_buf_done(&said);
    free(nodes);
    return rc;
}

/* Of the node that has fewest; 0: none says. */
static unsigned gpus_each(const json_t *machines)
{
    json_t *m;
    size_t i;
    int64_t least = 0;

    json_array_foreach(machines, i, m)
    {
        int64_t n = nt_json_opt_i64(m, "gpus", 0);
        least = n > 0 && (least == 0 || n < least) ? n : least;
    }
    return (unsigned)least;
}

int nt_over_ranks(struct nt_over *o, struct nt_env *e, struct nt_spec *s, struct nt_err *err)
{
    unsigned nodes = o->remote.nodes, gpus;
    int rc;

    nt_env_look(e);
    rc = look(o, e, s, err);
    if (rc != 0) {
        return rc;
    }
    gpus = gpus_each(o->machines);
    s->ranks = s->ranks != 0 ? s->ranks : gpus;
    if (s->ranks == 0) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no node says how many GPUs it has: say so with --ranks, of all nodes");
    }
    if (gpus > 0 && gpus < s->ranks) {
        return nt_fail(err, NT_E_MISSING, 0, "a node has %u GPUs, %u ranks on each are asked for",
                       gpus, s->ranks);
    }
    if (gpus > s->ranks &&
        nt_json_opt_str(json_array_get(o->machines, 0), "placement", "")[0] == '\0') {
        nt_log(NT_WARN,
               "%u of %u GPUs of a node, which are not all alike: the profile will not say which",
               s->ranks, gpus);
    }
    if (s->ranks * nodes > NT_GANG_MAX || s->ranks * nodes < 2) {
        return nt_fail(err, NT_E_INVAL, 0, "%u ranks on %u nodes: 2 to %d are possible",
                       s->ranks * nodes, nodes, NT_GANG_MAX);
    }
    for (unsigned r = 0; r < s->ranks * nodes; r++) {
        e->devices[r] = e->have_devices ? e->devices[r % s->ranks] : r % s->ranks;
    }
    s->ranks *= nodes;
    s->nodes = nodes;
    return 0;
}
