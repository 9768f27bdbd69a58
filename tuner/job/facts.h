/* facts - what the ranks said of the machine and its libraries: for the store's keys and the
 * profile. */
#pragma once
#include <jansson.h>
#include "probes/protocol/protocol.h"
#include "tuner/job/spec.h"
#include "tuner/topology/topology.h"

struct nt_facts {
    bool known;
    char host[64], gpu[64], nccl[24], nccl_sha256[65], nccl_file[256], cuda[24], driver[24],
        rig[24];
    char framework[160]; /* "torch 2.8.0, sglang 0.5.12" of the framework's probe; "": another */
    char identity[16], mask[512];
    char placement[16]; /* class of the GPUs among the machine's; "": all of them, or not known */
    json_t *groups;     /* object name → hash, or NULL; owned */
    json_t *health;     /* list of texts, or NULL: not checked; owned */
    json_t *peers;      /* of a job with backends: the probe's document (peers.h); owned */
    json_t *machines;   /* of a job over several nodes: nt_nodes_machines(), in order; owned */
    char *topology_xml;
    char text[1024];
};

void nt_facts_done(struct nt_facts *f);
/* machines: what the nodes said of themselves (nodes.h), the first is that of rank 0; NULL: the
 * ranks are on this host, which is looked at. NT_E_MISSING: ranks that are not alike. */
NT_MUST_CHECK int nt_facts_take(struct nt_facts *f, const struct nt_hello *hello,
                                const struct nt_ready *ready, unsigned world,
                                const json_t *machines, struct nt_err *err);
/* Of a communicator on part of a machine NCCL's dump shows only that part. A profile is held
 * against the whole: identity becomes that of `machine`, and which GPUs of it these are, up to its
 * symmetry, is the placement class. Nothing is changed where the ranks have all GPUs, share one, or
 * are not found there. */
void nt_facts_place(struct nt_facts *f, const struct nt_topology *machine,
                    const struct nt_hello *hello, unsigned world);
/* NT_E_MISSING names what differs between two machines; what one of them does not know is no
 * difference. */
NT_MUST_CHECK int nt_facts_same(const struct nt_facts *was, const struct nt_facts *is,
                                struct nt_err *err);
json_t *nt_facts_json(const struct nt_facts *f);
NT_MUST_CHECK int nt_facts_from_json(const json_t *o, struct nt_facts *ret, struct nt_err *err);
