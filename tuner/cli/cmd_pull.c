/* nccltune pull: the profile for this machine from a service. */
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/fetch.h"
#include "tuner/cli/remote.h"
#include "tuner/deliver/machine.h"
#include "profiles/json/profile.h"
#include "schema/vocab.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct pull_args {
    const char *from, *token_file, *out, *topology, *nccl, *driver, *placement, *allow_rig;
    uint32_t ranks, nodes;
    bool exact;
};

static const struct pull_args pull_defaults = {.from = NT_REMOTE_DEFAULT,
                                               .out = "nccltune-profile.json"};
static const struct nt_opt pull_opts[] = {
    NT_OPT(NT_O_STR, pull_args, from, "from", 0, "WHERE",
           "the service: unix:PATH or http://HOST:PORT (default "
           "unix:/run/nccltune/nccltune.sock)"),
    NT_OPT(NT_O_STR, pull_args, token_file, "token-file", 0, "FILE",
           "file that holds the token (default the variable NCCLTUNE_TOKEN, else none)"),
    NT_OPT(NT_O_STR, pull_args, out, "out", 'o', "FILE",
           "profile to write (default ./nccltune-profile.json)"),
    NT_OPT_SOME(NT_O_U32, pull_args, ranks, "ranks", 'n', "COUNT",
                "ranks of the communicator (default: the GPUs of this machine)"),
    NT_OPT_SOME(NT_O_U32, pull_args, nodes, "nodes", 0, "COUNT", "nodes of it (default 1)"),
    NT_OPT(NT_O_STR, pull_args, placement, "placement", 0, "CLASS", "placement class of the GPUs"),
    NT_OPT(NT_O_STR, pull_args, nccl, "nccl", 0, "VERSION", "NCCL that will be used, as 2.28.9"),
    NT_OPT(NT_O_STR, pull_args, topology, "topology", 0, "FILE",
           "the machine as a file instead of the live one"),
    {.name = "allow-rig",
     .type = NT_O_STR,
     .offset = offsetof(struct pull_args, allow_rig),
     .arg = "KIND",
     .help = "also profiles of this functional rig",
     .choices = nt_rig_names},
    NT_OPT(NT_O_FLAG, pull_args, exact, "exact", 0, NULL,
           "only a profile for this very stack, not a near one"),
    {0}};

/* This machine, as the service compares it. */
static int describe(const struct pull_args *a, struct nt_buf *out, struct nt_err *err)
{
    struct nt_machine m;
    json_t *o;
    int rc = 0;

    nt_machine_read(&(struct nt_machine_opts){.topology = a->topology}, NULL, &m);
    if (m.topology == NULL) {
        *err = m.why;
        nt_machine_done(&m);
        return nt_wrap(err, -(int)err->code, "this machine");
    }
    o = json_pack("{s:o, s:I, s:I}", "identity", nt_identity_json(&m.topology->identity), "ranks",
                  (json_int_t)(a->ranks != 0 ? (int)a->ranks : m.topology->ngpus), "nodes",
                  (json_int_t)(a->nodes != 0 ? a->nodes : 1));
    if (a->nccl != NULL) {
        (void)json_object_set_new(o, "nccl", json_string(a->nccl));
    }
    if (a->placement != NULL) {
        (void)json_object_set_new(o, "placement", json_string(a->placement));
    }
    if (a->allow_rig != NULL) {
        (void)json_object_set_new(o, "allow_rig", json_string(a->allow_rig));
    }
    nt_json_dump(o, false, out);
    rc = o == NULL || out->failed ? nt_fail(err, NT_E_NOMEM, 0, "pull") : 0;
    json_decref(o);
    nt_machine_done(&m);
    return rc;
}

static void print_reasons(const json_t *answer)
{
    const json_t *considered = json_object_get(answer, "considered"), *c, *why;
    char what[32];
    size_t i, k;
    json_array_foreach(considered, i, c)
    {
        json_array_foreach(json_object_get(c, "why"), k, why)
        {
            (void)snprintf(what, sizeof(what), "profile %lld",
                           (long long)nt_json_opt_i64(c, "profile", 0));
            nt_remote_print(stderr, what, why);
        }
    }
}

static int choose(const struct pull_args *a, const struct nt_buf *body, int64_t *ret_id,
                  struct nt_err *err)
{
    const json_t *note;
    json_t *o = NULL;
    size_t i;
    int rc = nt_json_parse(nt_buf_str(body), body->len, "the answer", &o, err);

    if (rc == 0 && (!nt_json_opt_bool(o, "found", false) ||
                    (a->exact && !nt_json_opt_bool(o, "exact", false)))) {
        print_reasons(o);
        rc = nt_fail(err, NT_E_NO, 0, "the service has no profile for this machine%s",
                     a->exact ? " and this stack" : "");
    }
    if (rc == 0) {
        *ret_id = nt_json_opt_i64(json_object_get(o, "profile"), "id", 0);
        json_array_foreach(json_object_get(o, "notes"), i, note)
        {
            nt_remote_print(stderr, "note", note);
        }
    }
    json_decref(o);
    return rc;
}

/* What is there already need not travel again. */
static bool hash_of(const char *path, char hex[NT_HEX_LEN + 1])
{
    return access(path, R_OK) == 0 && nt_sha256_file_hex(path, hex);
}

static int keep(const struct pull_args *a, int64_t id, const struct nt_buf *body,
                struct nt_err *err)
{
    struct nt_profile *p = NULL;
    int rc = nt_profile_parse(nt_buf_str(body), body->len, "the profile", &p, err);
    rc = rc == 0 ? nt_write_file(a->out, body->data, body->len, 0644, err) : rc;
    nt_profile_free(p);
    if (rc == 0) {
        (void)printf("%s: profile %lld\n", a->out, (long long)id);
    }
    return rc;
}

static int run_pull(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct pull_args *a = opts;
    struct nt_buf token, ask, body;
    char hash[NT_HEX_LEN + 1], path[64];
    unsigned status = 0;
    int64_t id = 0;
    int rc;
    (void)nargs;
    (void)args;

    nt_buf_init(&token, 4096);
    nt_buf_init(&ask, 1 << 20);
    nt_buf_init(&body, NT_FETCH_MAX_BYTES);
    rc = nt_wrap(err, nt_fetch_check(a->from, err), "--from");
    rc = rc == 0 ? nt_remote_token(a->token_file, &token, err) : rc;
    rc = rc == 0 ? describe(a, &ask, err) : rc;
    struct nt_fetch f = {.from = a->from,
                         .token = token.len > 0 ? nt_buf_str(&token) : NULL,
                         .method = "POST",
                         .path = "/v1/profiles/match",
                         .body = nt_buf_str(&ask)};
    rc = rc == 0 ? nt_fetch(&f, &status, &body, err) : rc;
    rc = rc == 0 && status != 200 ? nt_remote_refused(status, &body, err) : rc;
    rc = rc == 0 ? choose(a, &body, &id, err) : rc;
    if (rc == 0) {
        (void)snprintf(path, sizeof(path), "/v1/profiles/%lld", (long long)id);
        f.method = "GET";
        f.path = path;
        f.body = NULL;
        f.etag = hash_of(a->out, hash) ? hash : NULL;
        nt_buf_clear(&body);
        rc = nt_fetch(&f, &status, &body, err);
    }
    if (rc == 0 && status == 304 && f.etag != NULL) {
        (void)printf("%s: profile %lld, as it was\n", a->out, (long long)id);
    } else if (rc == 0) {
        rc = status == 200 ? keep(a, id, &body, err) : nt_remote_refused(status, &body, err);
    }
    nt_buf_done(&token);
    nt_buf_done(&ask);
    nt_buf_done(&body);
    return rc;
}

const struct nt_command nt_cmd_pull = {
    .name = "pull",
    .summary = "the profile for this machine from a service",
    .args = "",
    .opts = pull_opts,
    .defaults = &pull_defaults,
    .size = sizeof(struct pull_args),
    .run = run_pull,
    .details =
        "Tells the service what this machine is, and writes the profile that was made for its "
        "like. Machines are compared over the facts that both sides know. A profile that was made "
        "with another NCCL, driver or GPU model is taken with a note, unless --exact. Without a "
        "fitting one the reasons are printed, and the exit status is 1. What is there already is "
        "not fetched again.\n\n"
        "docs/serve.md has an example for an init container."};
