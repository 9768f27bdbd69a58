#include "tuner/deliver/doctor_hosts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "schema/tunables.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"

enum { TEXT = 400, HOSTS_SHOWN = 12, VALUE = 48, HASH_SHOWN = 12 };

static const char *plain(const char *text, char *out, size_t size)
{
    (void)snprintf(out, size, "%.*s", (int)size - 1, text);
    nt_text_plain(out);
    return out;
}

static void NT_PRINTF(2, 3) say(struct nt_doctor_hosts *h, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    nt_text_plain(text);
    (void)json_array_append_new(h->lines, json_string(text));
}

static bool counts(const json_t *process)
{
    return nt_json_opt_bool(process, "counts", false);
}

/* Values seen, each with the hosts that have it: {value: [host, …]}. */
static void note(json_t *seen, const char *value, const char *host)
{
    json_t *hosts = json_object_get(seen, value), *have;
    size_t i;

    if (hosts == NULL) {
        hosts = json_array();
        (void)json_object_set_new(seen, value, hosts);
    }
    json_array_foreach(hosts, i, have)
    {
        if (strcmp(json_string_value(have), host) == 0) {
            return;
        }
    }
    (void)json_array_append_new(hosts, json_string(host));
}

/* "A on a, b; B on c" */
static const char *who(json_t *seen, char *out, size_t size)
{
    const char *value;
    json_t *hosts, *host;
    size_t n = 0, i;
    char text[VALUE];

    out[0] = '\0';
    json_object_foreach(seen, value, hosts)
    {
        n += n < size ? (size_t)snprintf(out + n, size - n, "%s%s on", n > 0 ? "; " : "",
                                         *value != '\0' ? plain(value, text, sizeof(text)) : "none")
                      : 0;
        json_array_foreach(hosts, i, host)
        {
            n += n < size && i < HOSTS_SHOWN
                     ? (size_t)snprintf(out + n, size - n, "%s%.40s", i > 0 ? ", " : " ",
                                        json_string_value(host))
                     : 0;
        }
    }
    return out;
}

/* One thing that all hosts' ranks should have alike; true: they do. */
static bool alike(struct nt_doctor_hosts *h, const char *what, json_t *seen)
{
    char text[300];
    bool same = json_object_size(seen) <= 1;

    if (!same) {
        say(h, "%s differs: %s", what, who(seen, text, sizeof(text)));
    }
    return same;
}

struct gathered {
    json_t *profiles, *nccl, *drivers, *variables; /* variables: {name: {value: hosts}} */
    unsigned most_ranks;
};

static void gather_variables(struct gathered *g, const json_t *process, const char *host)
{
    const char *name;
    json_t *value, *seen;

    json_object_foreach(json_object_get(process, "variables"), name, value)
    {
        seen = json_object_get(g->variables, name);
        if (seen == NULL) {
            seen = json_object();
            (void)json_object_set_new(g->variables, name, seen);
        }
        note(seen, json_is_string(value) ? json_string_value(value) : "", host);
    }
}

static json_t *keys_of(json_t *o)
{
    json_t *list = json_array(), *value;
    const char *key;

    json_object_foreach(o, key, value)
    {
        (void)json_array_append_new(list, json_string(key));
    }
    return list;
}

static void gather(struct nt_doctor_hosts *h, struct gathered *g, const char *host,
                   const json_t *doc)
{
    json_t *profiles = json_object(), *nccl = json_object(), *p;
    const char *driver = nt_json_opt_str(doc, "driver", "");
    char version[24], text[TEXT], hash[HASH_SHOWN + 1];
    unsigned counted = 0;
    size_t i;

    json_array_foreach(json_object_get(doc, "processes"), i, p)
    {
        int64_t v = nt_json_opt_i64(p, "nccl_version", 0), ranks = nt_json_opt_i64(p, "ranks", 0);
        if (!counts(p)) {
            continue;
        }
        counted++;
        g->most_ranks = ranks > g->most_ranks && ranks < 1 << 20 ? (unsigned)ranks : g->most_ranks;
        note(profiles, nt_json_opt_str(p, "profile", ""), host);
        (void)snprintf(hash, sizeof(hash), "%.*s", HASH_SHOWN, nt_json_opt_str(p, "profile", ""));
        note(g->profiles, hash, host);
        if (v > 0 && v < INT32_MAX) {
            (void)nt_nccl_version_text((unsigned)v, version, sizeof(version));
            note(nccl, version, host);
            note(g->nccl, version, host);
        }
        gather_variables(g, p, host);
    }
    if (counted > 0 && driver[0] != '\0') {
        note(g->drivers, driver, host);
    }
    h->counted += counted;
    (void)json_array_append_new(
        h->each,
        json_pack("{s:s, s:s, s:b, s:i, s:o, s:o, s:s}", "host", host, "verdict",
                  plain(nt_json_opt_str(doc, "verdict", ""), text, sizeof(text)), "applied",
                  nt_json_opt_bool(doc, "applied", false), "counted", (int)counted, "profiles",
                  keys_of(profiles), "nccl", keys_of(nccl), "driver", driver));
    json_decref(profiles);
    json_decref(nccl);
}

/* A variable that some ranks have and others have not, or with other values. What a site sets by
 * host is said, and is no fault. */
static bool judge_variables(struct nt_doctor_hosts *h, const struct gathered *g)
{
    const char *name;
    json_t *seen, *one;
    bool same = true;

    json_object_foreach(g->variables, name, seen)
    {
        unsigned has = 0, with = 0;
        const char *value;
        char text[200], shown[64];
        json_t *e;
        size_t i, k;
        json_array_foreach(h->each, i, e)
        {
            bool there = false;
            with += nt_json_opt_i64(e, "counted", 0) > 0;
            json_object_foreach(seen, value, one)
            {
                json_t *host;
                json_array_foreach(one, k, host)
                {
                    there = there ||
                            strcmp(json_string_value(host), nt_json_opt_str(e, "host", "")) == 0;
                }
            }
            has += there;
        }
        if (json_object_size(seen) > 1 || has < with) {
            bool site = nt_tunable_is_site(name);
            say(h, "%s differs%s: %s%s", plain(name, shown, sizeof(shown)),
                site ? " (the site's to set)" : "", who(seen, text, sizeof(text)),
                has < with ? "; not set on the others" : "");
            same = same && site;
        }
    }
    return same;
}

static int check_one(const struct nt_doctor_host *x, struct nt_err *err)
{
    if (!json_is_object(x->doc) || !json_is_array(json_object_get(x->doc, "processes")) ||
        !json_is_boolean(json_object_get(x->doc, "applied"))) {
        return nt_fail(err, NT_E_INVAL, 0, "%.200s is not what `doctor --format json` prints",
                       x->name);
    }
    return 0;
}

static void sentence(struct nt_doctor_hosts *h, const struct gathered *g, bool same)
{
    unsigned well = 0, silent = 0;
    json_t *e;
    size_t i;

    json_array_foreach(h->each, i, e)
    {
        well += nt_json_opt_bool(e, "applied", false);
        silent += nt_json_opt_i64(e, "counted", 0) == 0;
    }
    h->ranks = g->most_ranks;
    h->applied = same && well == h->hosts && h->counted > 0;
    if (silent > 0 && h->counted > 0) {
        say(h, "%u of %u hosts %s no process that counts", silent, h->hosts,
            silent == 1 ? "has" : "have");
    }
    if (g->most_ranks > h->counted && h->counted > 0) {
        h->applied = false;
        say(h, "a communicator has %u ranks, %u processes were looked at: a host is missing",
            g->most_ranks, h->counted);
    }
    (void)snprintf(h->text, sizeof(h->text), "%s: applied on %u of %u hosts, %u processes",
                   h->applied ? "the same profile in the whole job"
                   : same     ? "not in the whole job"
                              : "the hosts disagree",
                   well, h->hosts, h->counted);
}

int nt_doctor_hosts(const struct nt_doctor_host *hosts, size_t n, struct nt_doctor_hosts *ret,
                    struct nt_err *err)
{
    struct gathered g = {json_object(), json_object(), json_object(), json_object(), 0};
    struct nt_doctor_hosts *h = ret;
    json_t *names = json_object();
    bool same = true;
    int rc = 0;

    *h =
        (struct nt_doctor_hosts){.hosts = (unsigned)n, .lines = json_array(), .each = json_array()};
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char host[80];
        rc = check_one(&hosts[i], err);
        if (rc != 0) {
            break;
        }
        (void)plain(nt_json_opt_str(hosts[i].doc, "host", hosts[i].name), host, sizeof(host));
        if (json_object_get(names, host) != NULL) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s is there twice (%.150s)", host, hosts[i].name);
            break;
        }
        (void)json_object_set_new(names, host, json_true());
        gather(h, &g, host, hosts[i].doc);
        if (nt_json_opt_bool(hosts[i].doc, "ranks_disagree", false)) {
            say(h, "the ranks of %s disagree among themselves", host);
            same = false;
        }
    }
    if (rc == 0) {
        same = alike(h, "the profile", g.profiles) && same;
        same = alike(h, "NCCL", g.nccl) && same;
        same = judge_variables(h, &g) && same;
        (void)alike(h, "the driver", g.drivers); /* said; a profile's own check stops by it */
        sentence(h, &g, same);
    } else {
        nt_doctor_hosts_done(h);
    }
    json_decref(names);
    json_decref(g.profiles);
    json_decref(g.nccl);
    json_decref(g.drivers);
    json_decref(g.variables);
    return rc;
}

void nt_doctor_hosts_done(struct nt_doctor_hosts *h)
{
    json_decref(h->lines);
    json_decref(h->each);
    h->lines = h->each = NULL;
}

void nt_doctor_hosts_text(const struct nt_doctor_hosts *h, struct nt_buf *out)
{
    json_t *e, *line;
    size_t i;

    nt_buf_printf(out, "%s\n", h->text);
    json_array_foreach(h->lines, i, line)
    {
        nt_buf_printf(out, "  %s\n", json_string_value(line));
    }
    json_array_foreach(h->each, i, e)
    {
        const json_t *profiles = json_object_get(e, "profiles");
        const char *first = json_string_value(json_array_get(profiles, 0));
        nt_buf_printf(out, "  %-24s %s", nt_json_opt_str(e, "host", ""),
                      nt_json_opt_str(e, "verdict", ""));
        if (first != NULL && first[0] != '\0') {
            nt_buf_puts(out, "  profile ");
            for (size_t k = 0; k < 12 && first[k] != '\0'; k++) {
                nt_buf_printf(out, "%c", first[k] >= ' ' && first[k] < 0x7f ? first[k] : '?');
            }
        }
        nt_buf_puts(out, "\n");
    }
}

json_t *nt_doctor_hosts_json(const struct nt_doctor_hosts *h)
{
    return json_pack("{s:b, s:s, s:i, s:i, s:i, s:O, s:O}", "applied", h->applied, "verdict",
                     h->text, "hosts", (int)h->hosts, "counted", (int)h->counted, "ranks",
                     (int)h->ranks, "differences", h->lines, "each", h->each);
}
