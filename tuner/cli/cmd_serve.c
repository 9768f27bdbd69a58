/* nccltune serve: the daemon. */
#include "tuner/cli/commands.h"
#include "tuner/cli/where.h"
#include "tuner/service/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/log.h"
#ifdef NT_SERVICE
#include "tuner/base/json.h"
#include "tuner/service/look.h"
#include "tuner/service/service.h"
#endif

struct serve_args {
    const char *config, *listen, *tokens, *db;
    bool behind_proxy, print_config, openapi, look, verbose;
};

static const struct nt_opt serve_opts[] = {
    NT_OPT(NT_O_STR, serve_args, config, "config", 'c', "FILE",
           "the configuration (default: defaults, and no rig)"),
    NT_OPT(NT_O_STR, serve_args, listen, "listen", 'l', "WHERE",
           "unix:PATH or ADDRESS:PORT, comma-separated (default as configured)"),
    NT_OPT(NT_O_STR, serve_args, tokens, "tokens", 0, "FILE",
           "who may what over TCP: 'ROLE TOKEN [NAME]' lines, mode 0600"),
    NT_OPT(NT_O_FLAG, serve_args, behind_proxy, "behind-proxy", 0, NULL,
           "a proxy with TLS stands in front: addresses beyond loopback are allowed"),
    NT_OPT(NT_O_STR, serve_args, db, "db", 0, "FILE",
           "database (default as configured, else NCCLTUNE_DB, else in the state folder)"),
    NT_OPT(NT_O_FLAG, serve_args, print_config, "print-config", 0, NULL,
           "print the documented configuration with its defaults, and end"),
    NT_OPT(NT_O_FLAG, serve_args, openapi, "openapi", 0, NULL,
           "print the API's OpenAPI document, and end"),
    NT_OPT(NT_O_FLAG, serve_args, look, "look", 0, NULL,
           "print what watching sees of this machine, as JSON, and end"),
    NT_OPT(NT_O_FLAG, serve_args, verbose, "verbose", 'v', NULL, "log what happens, too"),
    {0}};

#ifdef NT_SERVICE
static void say_where(void *data, const char *where)
{
    (void)data;
    (void)printf("listening at %s\n", where);
    (void)fflush(stdout);
}

static int serve(const struct nt_config *c, const char *config_path, struct nt_err *err)
{
    char program[PATH_MAX];
    struct nt_service_options o = {.config = c,
                                   .config_path = config_path,
                                   .program = program,
                                   .version = NT_VERSION,
                                   .on_ready = say_where};
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n <= 0) {
        return nt_fail(err, NT_E_MISSING, 0, "/proc is needed to find the own program");
    }
    program[n] = '\0';
    return nt_service_run(&o, err);
}

static int look(const struct nt_config *c, struct nt_err *err)
{
    struct nt_sight *s = calloc(1, sizeof(*s));
    struct nt_buf b;
    json_t *o = NULL;

    if (s == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "look");
    }
    nt_look(c, getppid(), s);
    o = nt_sight_json(s);
    nt_buf_init(&b, 1 << 20);
    nt_json_dump(o, true, &b);
    (void)printf("%s\n", nt_buf_str(&b));
    nt_buf_done(&b);
    json_decref(o);
    free(s);
    return 0;
}

static int print_openapi(struct nt_err *err)
{
    struct nt_buf b;
    (void)err;
    nt_buf_init(&b, 4 << 20);
    nt_service_openapi(NT_VERSION, &b);
    (void)printf("%s\n", nt_buf_str(&b));
    nt_buf_done(&b);
    return 0;
}
#else
static int serve(const struct nt_config *c, const char *config_path, struct nt_err *err)
{
    (void)c;
    (void)config_path;
    return nt_fail(err, NT_E_MISSING, 0,
                   "this nccltune was built without the service: it needs libmicrohttpd, and is no "
                   "part of the build with static libraries");
}

static int print_openapi(struct nt_err *err)
{
    return serve(NULL, NULL, err);
}

static int look(const struct nt_config *c, struct nt_err *err)
{
    return serve(c, NULL, err);
}
#endif

static int override(char *field, size_t size, const char *name, const char *value,
                    struct nt_err *err)
{
    return value == NULL || snprintf(field, size, "%s", value) < (int)size
               ? 0
               : nt_fail(err, NT_E_INVAL, 0, "--%s is longer than %zu", name, size - 1);
}

/* Recordings are looked up here, where it is known where they are. */
static int check_recordings(const struct nt_config *c, const char *file, struct nt_err *err)
{
    char path[PATH_MAX];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->nrigs; i++) {
        if (strncmp(c->rigs[i].rig, "recording:", 10) == 0) {
            rc = nt_wrap(err, nt_where_recording(c->rigs[i].rig + 10, path, sizeof(path), err),
                         "%s:%u: rig", file, c->rigs[i].line);
        }
    }
    return rc;
}

static int run_serve(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    static struct nt_config c; /* large, and there is one */
    const struct serve_args *a = opts;
    int rc = 0;
    (void)nargs;
    (void)args;

    if (a->print_config) {
        nt_config_print(stdout);
        return 0;
    }
    if (a->openapi) {
        return print_openapi(err);
    }
    nt_log_level(a->verbose ? NT_INFO : NT_WARN);
    nt_config_init(&c);
    rc = a->config != NULL ? nt_config_read(&c, a->config, err) : 0;
    rc = rc == 0 && !a->look ? check_recordings(&c, a->config, err) : rc;
    rc = rc == 0 ? override(c.listen, sizeof(c.listen), "listen", a->listen, err) : rc;
    rc = rc == 0 ? override(c.tokens, sizeof(c.tokens), "tokens", a->tokens, err) : rc;
    rc = rc == 0 ? override(c.database, sizeof(c.database), "db", a->db, err) : rc;
    c.behind_proxy = c.behind_proxy || a->behind_proxy;
    rc = rc == 0 ? nt_config_finish(&c, err) : rc;
    return rc != 0 ? rc : a->look ? look(&c, err) : serve(&c, a->config, err);
}

const struct nt_command nt_cmd_serve = {
    .name = "serve",
    .summary = "the service: queue, watching, profiles and measurements over HTTP",
    .args = "",
    .opts = serve_opts,
    .size = sizeof(struct serve_args),
    .run = run_serve,
    .details =
        "Runs until SIGTERM; jobs that run then are interrupted, and go on at the next start. "
        "SIGHUP reads the tokens again. Local users are known by their socket: root and the "
        "service's own user are admin, others what the configuration says. TCP needs a token file "
        "and stays on loopback unless a proxy with TLS stands in front.\n\n"
        "docs/serve.md describes configuration, API and operation."};
