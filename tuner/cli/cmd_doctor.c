/* doctor: what each live process really got of a profile. */
#include "tuner/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/receipt_tidy.h"
#include "schema/tunables.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/nodes.h"
#include "tuner/cli/where.h"
#include "tuner/deliver/doctor_hosts.h"
#include "tuner/deliver/machine.h"
#include "tuner/deliver/scan.h"

enum { MAX_PIDS = 4096, MAX_OUTPUT = 16 << 20, HOSTS_MS = 120000 };

struct doctor_args {
    const char *format, *proc, *active;
    bool watch, clean, dry_run;
    uint64_t interval_ns, older_ns;
    struct nt_nodes_args on;
};
static const char *const formats[] = {"text", "json", NULL};
static const struct doctor_args doctor_defaults = {
    .format = "text", .interval_ns = 2000000000, .older_ns = UINT64_C(604800) * 1000000000};
static const struct nt_opt doctor_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct doctor_args, format),
     .arg = "FORM",
     .help = "text or json (default text)",
     .choices = formats},
    NT_OPT(NT_O_FLAG, doctor_args, watch, "watch", 'w', NULL,
           "look again and again, and print what changed"),
    NT_OPT(NT_O_DURATION, doctor_args, interval_ns, "interval", 0, "TIME",
           "time between two looks (default 2s)"),
    NT_OPT(NT_O_FLAG, doctor_args, clean, "clean", 0, NULL,
           "remove this user's receipts of processes that are gone"),
    NT_OPT(NT_O_DURATION, doctor_args, older_ns, "older", 0, "TIME",
           "--clean: those last written to longer ago, and all from before the last boot (default "
           "7d)"),
    NT_OPT(NT_O_FLAG, doctor_args, dry_run, "dry-run", 'n', NULL,
           "--clean: say what would be removed"),
    NT_NODES_OPTS(doctor_args),
    NT_NODES_COUNT(doctor_args, "--launch: nodes (default: as many as --hosts, or the "
                                "allocation's)"),
    NT_OPT(NT_O_STR, doctor_args, proc, "proc", 0, "DIR", "folder of processes (default /proc)"),
    NT_OPT(NT_O_STR, doctor_args, active, "active", 0, "FILE",
           "the active file (default /run/nccltune/active)"),
    {0}};

/* What all processes have in common. */
struct group {
    struct nt_doctor_job job;
    struct nt_doctor_calls calls;
    struct nt_doctor_backends backends;
};

static int gather(const struct nt_scan *s, struct group *g, struct nt_err *err)
{
    struct nt_doctor_verdict *v = calloc(s->n + 1, sizeof(*v));

    if (v == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "doctor");
    }
    for (size_t i = 0; i < s->n; i++) {
        v[i] = s->v[i]->verdict;
        nt_doctor_calls_add(&g->calls, &s->v[i]->facts);
        nt_doctor_backends_add(&g->backends, &s->v[i]->facts, &s->v[i]->verdict);
    }
    nt_doctor_backends_judge(&g->backends);
    nt_doctor_job(v, s->n, g->backends.nsplit > 0, &g->job);
    free(v);
    return 0;
}

static void print_process(const struct nt_scanned *p, struct nt_buf *out)
{
    const struct nt_doctor_verdict *v = &p->verdict;
    char version[24];

    nt_buf_printf(out, "  %7u  %-15s %-10s", p->proc.pid, p->proc.name,
                  nt_doctor_names[v->verdict]);
    if (v->hash[0] != '\0') {
        nt_buf_printf(out, "  profile %.12s", v->hash);
    }
    if (v->comms > 0) {
        nt_buf_printf(out, "  %u communicator%s of up to %u ranks", v->comms,
                      v->comms == 1 ? "" : "s", v->max_ranks);
    }
    if (p->facts.receipt != NULL && p->facts.head.nccl_version > 0) {
        nt_buf_printf(out, "  NCCL %s",
                      nt_nccl_version_text(p->facts.head.nccl_version, version, sizeof(version)));
    }
    nt_buf_puts(out, v->counts ? "\n" : "  (not counted)\n");
    for (unsigned i = 0; i < v->n; i++) {
        nt_buf_printf(out, "             %s\n", v->reason[i]);
    }
    if (p->facts.engine != NULL) {
        nt_buf_printf(out, "             backends: %s\n", v->backends);
    }
    nt_doctor_engine_text(p->facts.engine, out);
}

static void print_text(const struct nt_scan *s, const struct group *g, struct nt_buf *out)
{
    nt_buf_printf(out, "%s\n", g->job.text);
    if (s->world.active[0] != '\0') {
        nt_buf_printf(out, "active on this host: profile %.12s\n", s->world.active);
    }
    for (size_t i = 0; i < s->n; i++) {
        print_process(s->v[i], out);
    }
    nt_doctor_calls_text(&g->calls, out);
    nt_doctor_backends_text(&g->backends, out);
    if (s->unreadable > 0) {
        nt_buf_printf(out, "%zu process%s could not be looked into%s\n", s->unreadable,
                      s->unreadable == 1 ? "" : "es", geteuid() != 0 ? "; root can" : "");
    }
}

static void print_json(const struct nt_scan *s, const struct group *g, struct nt_buf *out)
{
    json_t *list = json_array(), *o;
    char host[80] = "", driver[64] = "";

    (void)gethostname(host, sizeof(host) - 1);
    nt_machine_driver(driver, sizeof(driver));

    for (size_t i = 0; i < s->n; i++) {
        (void)json_array_append_new(list,
                                    nt_doctor_verdict_json(&s->v[i]->facts, &s->v[i]->verdict));
    }
    o = json_pack("{s:s, s:s, s:b, s:s, s:b, s:i, s:i, s:s, s:o, s:o, s:o, s:i}", "host", host,
                  "driver", driver, "applied", g->job.applied, "verdict", g->job.text,
                  "ranks_disagree", g->job.disagree, "counted", (int)g->job.counted, "applied_in",
                  (int)g->job.by_verdict[NT_DR_APPLIED], "active", s->world.active, "processes",
                  list, "calls", nt_doctor_calls_json(&g->calls), "backends",
                  nt_doctor_backends_json(&g->backends), "unreadable", (int)s->unreadable);
    nt_json_dump(o, true, out);
    nt_buf_puts(out, "\n");
    json_decref(o);
}

/* One look. 0: applied everywhere; -NT_E_NO: not. */
static int look(const struct doctor_args *a, const struct nt_scan_opts *so, struct nt_buf *out,
                struct nt_err *err)
{
    struct nt_scan s = {.n = 0};
    struct group *g = calloc(1, sizeof(*g));
    int rc;

    if (g == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "doctor");
    }
    rc = nt_scan(so, &s, err);
    if (rc == 0) {
        rc = gather(&s, g, err);
    }
    if (rc == 0) {
        if (strcmp(a->format, "json") == 0) {
            print_json(&s, g, out);
        } else {
            print_text(&s, g, out);
        }
        rc = g->job.applied ? 0 : -NT_E_NO; /* the text has said it */
        rc = out->failed ? nt_fail(err, NT_E_NOMEM, 0, "doctor") : rc;
    }
    free(g);
    nt_scan_done(&s);
    return rc;
}

/* Ends when it is interrupted, or when nothing can be looked at any more. */
static int watch(const struct doctor_args *a, const struct nt_scan_opts *so, struct nt_err *err)
{
    struct nt_buf now, before;
    struct timespec t = {(time_t)(a->interval_ns / 1000000000),
                         (long)(a->interval_ns % 1000000000)};
    int rc = 0;

    nt_buf_init(&now, MAX_OUTPUT);
    nt_buf_init(&before, MAX_OUTPUT);
    while (rc == 0 || rc == -NT_E_NO) {
        nt_buf_clear(&now);
        rc = look(a, so, &now, err);
        if ((rc == 0 || rc == -NT_E_NO) && strcmp(nt_buf_str(&now), nt_buf_str(&before)) != 0) {
            (void)fputs(nt_buf_str(&now), stdout);
            (void)puts("");
            if (fflush(stdout) != 0) {
                break; /* nobody reads any more */
            }
            nt_buf_clear(&before);
            nt_buf_add(&before, now.data, now.len);
        }
        if (rc == 0 || rc == -NT_E_NO) {
            (void)nanosleep(&t, NULL);
        }
    }
    nt_buf_done(&now);
    nt_buf_done(&before);
    return rc;
}

static int print_tidied(const char *folder, const struct nt_tidied *t, struct nt_err *err)
{
    json_t *o =
        json_pack("{s:s, s:i, s:I, s:i, s:i, s:i, s:i}", "folder", folder, "removed",
                  (int)t->removed, "bytes", (json_int_t)t->bytes, "alive", (int)t->alive, "younger",
                  (int)t->young, "foreign", (int)t->foreign, "failed", (int)t->failed);
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, MAX_OUTPUT);
    if (o != NULL) {
        nt_json_dump(o, true, &b);
    }
    rc = o == NULL || b.failed ? nt_fail(err, NT_E_NOMEM, 0, "doctor") : 0;
    if (rc == 0) {
        (void)printf("%s\n", nt_buf_str(&b));
    }
    nt_buf_done(&b);
    json_decref(o);
    return rc;
}

/* The folder is the one that this user's processes write to. */
static int clean(const struct doctor_args *a, struct nt_err *err)
{
    const struct nt_tidy_rule rule = {
        .older_ns = a->older_ns, .most = NT_RECEIPTS_MOST, .dry_run = a->dry_run};
    struct nt_tidied t;
    struct nt_why why = {""};
    char path[PATH_MAX], bytes[24];
    int rc, fd = nt_receipt_folder(path, sizeof(path), &why);

    if (fd < 0) {
        return nt_fail(err, NT_E_MISSING, 0, "no folder of receipts: %s", why.text);
    }
    rc = nt_receipts_tidy(fd, &rule, &t) != 0 ? nt_fail(err, NT_E_IO, errno, "%.200s", path) : 0;
    (void)close(fd);
    if (rc != 0) {
        return rc;
    }
    if (strcmp(a->format, "json") == 0) {
        rc = print_tidied(path, &t, err);
    } else {
        (void)printf("%s: %s %u receipts of processes that are gone (%s); kept: %u of living or "
                     "other hosts' processes, %u younger",
                     path, a->dry_run ? "would remove" : "removed", t.removed,
                     nt_format_bytes(t.bytes, bytes, sizeof(bytes)), t.alive, t.young);
        (void)printf(t.foreign > 0 ? ", %u that are no receipt of yours\n" : "\n", t.foreign);
    }
    return rc == 0 && t.failed > 0 ? nt_fail(err, NT_E_IO, 0, "%u could not be removed", t.failed)
                                   : rc;
}

/* ---- several hosts ---- */

static int judge_hosts(const struct doctor_args *a, const struct nt_doctor_host *hosts, size_t n,
                       struct nt_err *err)
{
    struct nt_doctor_hosts h;
    struct nt_buf out;
    json_t *o = NULL;
    int rc = nt_doctor_hosts(hosts, n, &h, err);

    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&out, MAX_OUTPUT);
    if (strcmp(a->format, "json") == 0) {
        o = nt_doctor_hosts_json(&h);
        nt_json_dump(o, true, &out);
        nt_buf_puts(&out, "\n");
    } else {
        nt_doctor_hosts_text(&h, &out);
    }
    (void)fputs(nt_buf_str(&out), stdout);
    rc = out.failed  ? nt_fail(err, NT_E_NOMEM, 0, "doctor")
         : h.applied ? 0
                     : -NT_E_NO; /* the text has said it */
    json_decref(o);
    nt_buf_done(&out);
    nt_doctor_hosts_done(&h);
    return rc;
}

/* What `doctor --format json` said on each host, in files. */
static int compare_files(const struct doctor_args *a, unsigned n, char **files, struct nt_err *err)
{
    struct nt_doctor_host *hosts = calloc(n, sizeof(*hosts));
    json_t **docs = (json_t **)calloc(n, sizeof(docs[0]));
    int rc = hosts == NULL || docs == NULL || n > NT_DOCTOR_HOSTS
                 ? nt_fail(err, NT_E_INVAL, 0, "more than %d hosts", NT_DOCTOR_HOSTS)
                 : 0;

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = nt_json_load(files[i], MAX_OUTPUT, &docs[i], err);
        if (rc == 0) {
            hosts[i] = (struct nt_doctor_host){.name = files[i], .doc = docs[i]};
        }
    }
    rc = rc == 0 ? judge_hosts(a, hosts, n, err) : rc;
    for (unsigned i = 0; docs != NULL && i < n; i++) {
        json_decref(docs[i]);
    }
    free((void *)docs);
    free(hosts);
    return rc;
}

/* Exit code 1 of a doctor is an answer. A host is called what the launcher calls it. */
static int hosts_of(const struct nt_nodes *nodes, struct nt_doctor_host *hosts, json_t **docs,
                    struct nt_err *err)
{
    for (size_t i = 0; i < nodes->n; i++) {
        const struct nt_node_said *s = &nodes->v[i];
        int rc = s->status == 0 || s->status == 1
                     ? nt_json_parse(nt_buf_str(&s->text), s->text.len, "doctor", &docs[i], err)
                     : nt_fail(err, NT_E_MISSING, 0, "doctor ended with %lld: %.200s",
                               (long long)s->status, nt_buf_str(&s->text));
        if (rc != 0) {
            return nt_wrap(err, rc, "%s", s->host);
        }
        (void)json_object_set_new(docs[i], "host", json_string(s->host));
        hosts[i] = (struct nt_doctor_host){.name = s->host, .doc = docs[i]};
    }
    return 0;
}

static int ask_hosts(const struct doctor_args *a, struct nt_err *err)
{
    static const char *const no_more[] = {NULL};
    const char *args[] = {"doctor", "--format", "json", NULL};
    struct nt_over *over = calloc(1, sizeof(*over));
    struct nt_nodes *nodes = calloc(1, sizeof(*nodes));
    struct nt_doctor_host hosts[NT_REMOTE_HOSTS];
    json_t *docs[NT_REMOTE_HOSTS] = {NULL};
    char self[PATH_MAX];
    int rc = over == NULL || nodes == NULL ? nt_fail(err, NT_E_NOMEM, 0, "doctor")
                                           : nt_over_open(&a->on, over, err);

    rc = rc == 0 ? nt_where_self(self, sizeof(self), err) : rc;
    rc = rc == 0 ? nt_nodes_ask(&over->remote, self, args, no_more, getenv("TMPDIR"), HOSTS_MS,
                                nodes, err)
                 : rc;
    rc = rc == 0 ? hosts_of(nodes, hosts, docs, err) : rc;
    rc = rc == 0 ? judge_hosts(a, hosts, nodes->n, err) : rc;
    for (size_t i = 0; i < NT_REMOTE_HOSTS; i++) {
        json_decref(docs[i]);
    }
    if (nodes != NULL) {
        nt_nodes_done(nodes);
    }
    free(nodes);
    free(over);
    return rc;
}

/* One that is no number and is there: all of them are files, of several hosts. */
static bool are_files(unsigned nargs, char **args)
{
    unsigned files = 0;
    for (unsigned i = 0; i < nargs; i++) {
        files += strspn(args[i], "0123456789-") != strlen(args[i]) && access(args[i], F_OK) == 0;
    }
    return files > 0;
}

static int run_doctor(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct doctor_args *a = opts;
    struct nt_scan_opts so = {.proc = a->proc, .active = a->active, .npids = nargs};
    uint32_t *pids = calloc(nargs + 1U, sizeof(*pids));
    struct nt_buf out;
    bool over = a->on.launch != NULL || a->on.hosts != NULL || a->on.listen != NULL ||
                a->on.wait_ns != 0 || a->on.nodes != 0;
    int rc = 0;

    if (over && (a->clean || a->on.launch == NULL)) {
        free(pids);
        return nt_fail(err, NT_E_INVAL, 0,
                       a->clean
                           ? "--clean: on this host only, not with --launch"
                           : "--hosts, --nodes, --listen, --launch-wait: say with --launch how "
                             "nodes are reached");
    }
    if (a->clean) {
        free(pids);
        return nargs > 0 ? nt_fail(err, NT_E_INVAL, 0, "--clean: takes no PID") : clean(a, err);
    }
    if (pids == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "doctor");
    }
    if (over || are_files(nargs, args)) {
        free(pids);
        if (a->watch || (a->on.launch != NULL && nargs > 0)) {
            return nt_fail(err, NT_E_INVAL, 0, "several hosts: neither --watch nor PIDs");
        }
        return nargs > 0 ? compare_files(a, nargs, args, err) : ask_hosts(a, err);
    }
    for (unsigned i = 0; rc == 0 && i < nargs; i++) {
        uint64_t v = 0;
        if (nt_parse_u64(args[i], &v, NULL) != 0) {
            rc = nt_fail(err, NT_E_INVAL, 0, "'%.200s' is neither a process's number nor a file",
                         args[i]);
        }
        if (rc == 0 && (v == 0 || v > INT32_MAX)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s is no number of a process", args[i]);
        }
        if (rc == 0) {
            pids[i] = (uint32_t)v;
        }
    }
    so.pids = pids;
    if (rc == 0 && a->watch) {
        rc = watch(a, &so, err);
    } else if (rc == 0) {
        nt_buf_init(&out, MAX_OUTPUT);
        rc = look(a, &so, &out, err);
        (void)fputs(nt_buf_str(&out), stdout);
        nt_buf_done(&out);
    }
    free(pids);
    return rc;
}

const struct nt_command nt_cmd_doctor = {
    .name = "doctor",
    .summary = "what each live process really got of a profile",
    .args = "[PID... | FILE...]",
    .max_args = MAX_PIDS,
    .opts = doctor_opts,
    .defaults = &doctor_defaults,
    .size = sizeof(struct doctor_args),
    .run = run_doctor,
    .details =
        "Without PID every process that has NCCL or a profile; with it those and what descends "
        "from them. Read are /proc and the receipts that the plugins wrote: 'applied' means that "
        "the plugin is in the process, its receipt says so, and the rows were in force. Counted "
        "are "
        "the processes that have NCCL and a GPU, or have made a communicator; not those that only "
        "started such ranks.\n\nExit code 0 when the same profile is "
        "applied in all that count, 1 when not."
        "\n\nA job over several hosts: FILEs hold what `doctor --format json` printed on each of "
        "them; or --launch runs it there. Profile, NCCL, driver and NCCL's variables are held "
        "against each other, and there is one verdict for the whole job."
        "\n\nA receipt stays when its process ends, so that it can still be read. --clean removes "
        "those that are old; beyond 512 the oldest dead ones go, which the plugins see to by "
        "themselves."};
