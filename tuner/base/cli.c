#include "tuner/base/cli.h"
#include "tuner/base/text.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 96, WIDTH = 96, INDENT = 31 };

static int unknown_option(const struct nt_command *cmd, const char *word, struct nt_err *err)
{
    const char *names[MAX_NAMES] = {NULL};
    size_t n = 0;
    for (const struct nt_opt *o = cmd->opts; o != NULL && o->name != NULL && n + 2 < MAX_NAMES;
         o++) {
        names[n++] = o->name;
    }
    names[n] = "help";
    return nt_fail_name(err, "option", word, names);
}

static int check_choice(const struct nt_opt *o, const char *value, struct nt_err *err)
{
    for (const char *const *c = o->choices; *c != NULL; c++) {
        if (strcmp(*c, value) == 0) {
            return 0;
        }
    }
    return nt_fail_name(err, "value", value, o->choices);
}

static int set_number(const struct nt_opt *o, const char *value, void *field, struct nt_err *err)
{
    uint64_t u = 0;
    int rc;

    switch (o->type) {
    case NT_O_U32:
        rc = nt_parse_u64(value, &u, err);
        if (rc == 0 && u > UINT32_MAX) {
            rc = nt_fail(err, NT_E_INVAL, 0, "'%.100s' is too large", value);
        }
        if (rc == 0) {
            *(uint32_t *)field = (uint32_t)u;
        }
        return rc;
    case NT_O_U64:
        return nt_parse_u64(value, field, err);
    case NT_O_I64:
        return nt_parse_i64(value, field, err);
    case NT_O_DOUBLE:
        return nt_parse_double(value, field, err);
    case NT_O_BYTES:
        return nt_parse_bytes(value, field, err);
    case NT_O_DURATION:
        return nt_parse_duration(value, field, err);
    default:
        return nt_fail(err, NT_E_BUG, 0, "option type %d", (int)o->type);
    }
}

static bool is_zero(const struct nt_opt *o, const void *field)
{
    return o->type == NT_O_U32 ? *(const uint32_t *)field == 0 : *(const uint64_t *)field == 0;
}

static int set_value(const struct nt_opt *o, const char *value, void *opts, struct nt_err *err)
{
    void *field = (char *)opts + o->offset;
    int rc = 0;

    if (o->type == NT_O_FLAG) {
        *(bool *)field = true;
    } else if (o->type == NT_O_STR) {
        rc = o->choices != NULL ? check_choice(o, value, err) : 0;
        if (rc == 0) {
            *(const char **)field = value;
        }
    } else if (o->type == NT_O_STRS) {
        struct nt_strs *list = field;
        rc = o->choices != NULL ? check_choice(o, value, err) : 0;
        if (rc == 0 && list->n == sizeof(list->v) / sizeof(list->v[0])) {
            rc = nt_fail(err, NT_E_INVAL, 0, "given more than %zu times", list->n);
        } else if (rc == 0) {
            list->v[list->n++] = value;
        }
    } else {
        rc = set_number(o, value, field, err);
        if (rc == 0 && o->some && is_zero(o, field)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "at least 1; left out, it is as the help says");
        }
    }
    return nt_wrap(err, rc, "--%s", o->name);
}

static const struct nt_opt *find_long(const struct nt_command *cmd, const char *name, size_t len)
{
    for (const struct nt_opt *o = cmd->opts; o != NULL && o->name != NULL; o++) {
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0) {
            return o;
        }
    }
    return NULL;
}

static const struct nt_opt *find_letter(const struct nt_command *cmd, char letter)
{
    for (const struct nt_opt *o = cmd->opts; o != NULL && o->name != NULL; o++) {
        if (o->letter != 0 && o->letter == letter) {
            return o;
        }
    }
    return NULL;
}

/* One option at argv[i]; returns how many words it took, or -code. */
static int take_option(const struct nt_command *cmd, int argc, char **argv, int i, void *opts,
                       struct nt_err *err)
{
    const char *word = argv[i], *value = NULL;
    const struct nt_opt *o;
    int rc, used = 1;

    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        o = find_long(cmd, word + 2, len);
        value = word[2 + len] == '=' ? word + 3 + len : NULL;
        if (o == NULL) {
            char name[64];
            (void)snprintf(name, sizeof(name), "%.*s", (int)(len < 63 ? len : 63), word + 2);
            return unknown_option(cmd, name, err);
        }
        if (o->type == NT_O_FLAG && value != NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "--%s takes no value", o->name);
        }
    } else {
        o = find_letter(cmd, word[1]);
        value = o != NULL && word[2] != '\0' ? word + 2 : NULL;
        if (o == NULL || (o->type == NT_O_FLAG && value != NULL)) {
            return unknown_option(cmd, word + 1, err);
        }
    }
    if (o->type != NT_O_FLAG && value == NULL) {
        if (i + 1 >= argc) {
            return nt_fail(err, NT_E_INVAL, 0, "--%s needs %s", o->name, o->arg);
        }
        value = argv[i + 1];
        used = 2;
    }
    rc = set_value(o, value, opts, err);
    return rc == 0 ? used : rc;
}

int nt_cli_parse(const struct nt_command *cmd, int argc, char **argv, void *opts,
                 unsigned *ret_nargs, bool *ret_help, struct nt_err *err)
{
    unsigned nargs = 0;
    bool help = false, more = true;

    if (cmd->defaults != NULL) {
        memcpy(opts, cmd->defaults, cmd->size);
    } else {
        memset(opts, 0, cmd->size);
    }
    for (int i = 0; i < argc;) {
        char *word = argv[i];
        if (more && strcmp(word, "--") == 0) {
            more = false;
            i++;
        } else if (more && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            help = true;
            i++;
        } else if (more && word[0] == '-' && word[1] != '\0') {
            int used = take_option(cmd, argc, argv, i, opts, err);
            if (used < 0) {
                return used;
            }
            i += used;
        } else {
            argv[nargs++] = word;
            i++;
        }
    }
    if (!help && (nargs < cmd->min_args || nargs > cmd->max_args)) {
        char usage[256];
        return nt_fail(err, NT_E_INVAL, 0, "%s: %s: usage: %s", cmd->name,
                       nargs < cmd->min_args ? "an argument is missing" : "too many arguments",
                       nt_cli_usage(cmd, usage, sizeof(usage)));
    }
    *ret_nargs = nargs;
    *ret_help = help;
    return 0;
}

/* "-n, --ranks=COUNT" */
static void option_head(const struct nt_opt *o, char *out, size_t size)
{
    (void)snprintf(out, size, "%s%c%s--%s%s%s", o->letter != 0 ? "-" : "  ",
                   o->letter != 0 ? o->letter : ' ', o->letter != 0 ? ", " : " ", o->name,
                   o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
}

const char *nt_cli_usage(const struct nt_command *cmd, char *out, size_t size)
{
    bool said = strstr(cmd->args, "[options]") != NULL;

    (void)snprintf(out, size, "%s%s%s%s", cmd->name, cmd->args[0] != '\0' ? " " : "", cmd->args,
                   said ? "" : " [options]");
    return out;
}

/* Text in lines of at most WIDTH characters; what follows the first is indented. A word that does
 * not fit stands alone; line ends of the text stay. */
static void wrapped(const char *text, size_t at, size_t indent, FILE *out)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, " \n"), shown = 0;
        for (size_t i = 0; i < bytes; i++) {
            shown += ((unsigned char)text[i] & 0xc0) != 0x80;
        }
        if (at > indent && at + 1 + shown > WIDTH) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        (void)fprintf(out, "%s%.*s", at > indent ? " " : "", (int)bytes, text);
        at += shown + (at > indent);
        text += bytes;
        for (; *text == ' ' || *text == '\n'; text++) {
            if (*text == '\n') {
                (void)fprintf(out, "\n%*s", text[1] == '\n' ? 0 : (int)indent, "");
                at = indent;
            }
        }
    }
    (void)fputc('\n', out);
}

static void option_help(const struct nt_opt *o, FILE *out)
{
    char head[96], text[1024];
    size_t n, width;

    option_head(o, head, sizeof(head));
    n = (size_t)snprintf(text, sizeof(text), "%s", o->help);
    for (const char *const *c = o->choices; c != NULL && *c != NULL && n < sizeof(text); c++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%s",
                              c == o->choices ? " (one of: " : ", ", *c, c[1] == NULL ? ")" : "");
    }
    width = strlen(head) + 2;
    (void)fprintf(out, width < INDENT ? "  %s%*s" : "  %s\n%*s", head,
                  (int)(width < INDENT ? INDENT - width : INDENT), "");
    wrapped(text, INDENT, INDENT, out);
}

void nt_cli_help(const char *program, const struct nt_command *cmd, FILE *out)
{
    char usage[256];
    (void)fprintf(out, "usage: %s %s\n\n%s\n", program, nt_cli_usage(cmd, usage, sizeof(usage)),
                  cmd->summary);
    if (cmd->details != NULL) {
        (void)fputc('\n', out);
        wrapped(cmd->details, 0, 0, out);
    }
    if (cmd->opts != NULL && cmd->opts[0].name != NULL) {
        (void)fprintf(out, "\nOptions:\n");
    }
    for (const struct nt_opt *o = cmd->opts; o != NULL && o->name != NULL; o++) {
        option_help(o, out);
    }
}

static const char summary[] = "finds, proves and delivers the NCCL settings for this machine";

static void overview(const char *program, const char *version,
                     const struct nt_command *const *commands, FILE *out)
{
    (void)fprintf(out, "%s %s: %s\n\nusage: %s COMMAND [options]; %s COMMAND --help tells more\n\n",
                  program, version, summary, program, program);
    for (; *commands != NULL; commands++) {
        (void)fprintf(out, "  %-12s %s\n", (*commands)->name, (*commands)->summary);
    }
}

static int run_command(const char *program, const struct nt_command *cmd, int argc, char **argv,
                       struct nt_err *err)
{
    unsigned nargs = 0;
    bool help = false;
    void *opts = calloc(1, cmd->size > 0 ? cmd->size : 1);
    int rc;

    if (opts == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "options");
    }
    rc = nt_cli_parse(cmd, argc, argv, opts, &nargs, &help, err);
    if (rc == 0 && help) {
        nt_cli_help(program, cmd, stdout);
    } else if (rc == 0) {
        rc = cmd->run(opts, nargs, argv, err);
    }
    free(opts);
    return rc;
}

static const struct nt_command *find_command(const struct nt_command *const *commands,
                                             const char *name, struct nt_err *err)
{
    const char *names[MAX_NAMES] = {NULL};
    size_t n = 0;

    for (; *commands != NULL; commands++) {
        if (strcmp((*commands)->name, name) == 0) {
            return *commands;
        }
        if (n + 1 < MAX_NAMES) {
            names[n++] = (*commands)->name;
        }
    }
    (void)nt_fail_name(err, "command", name, names);
    return NULL;
}

struct help_args {
    const char *man;
};

static const struct nt_opt help_opts[] = {NT_OPT(NT_O_STR, help_args, man, "man", 0, "DIR",
                                                 "write the man page of every command into DIR"),
                                          {0}};
/* Not a row of anybody's table: it needs the table. */
static const struct nt_command help_cmd = {.name = "help",
                                           .summary = "the commands, or the options of one",
                                           .args = "[COMMAND]",
                                           .max_args = 1,
                                           .opts = help_opts,
                                           .size = sizeof(struct help_args)};

static int run_help(const char *program, const char *version,
                    const struct nt_command *const *commands, int argc, char **argv,
                    struct nt_err *err)
{
    const struct nt_command *cmd = &help_cmd;
    struct help_args a;
    unsigned nargs = 0;
    bool help = false;
    int rc = nt_cli_parse(cmd, argc, argv, &a, &nargs, &help, err);

    if (rc == 0 && !help && a.man != NULL) {
        return nt_cli_man_pages(program, version, summary, commands, a.man, err);
    }
    if (rc == 0 && !help && nargs == 0) {
        overview(program, version, commands, stdout);
        return 0;
    }
    if (rc == 0 && !help) {
        cmd = find_command(commands, argv[0], err);
        rc = cmd != NULL ? 0 : -NT_E_INVAL;
    }
    if (rc == 0) {
        nt_cli_help(program, cmd, stdout);
    }
    return rc;
}

int nt_cli_main(const char *program, const char *version, const struct nt_command *const *commands,
                int argc, char **argv)
{
    struct nt_err err = {.code = NT_OK};
    const struct nt_command *cmd;
    bool lost;
    int rc;

    if (argc < 2) {
        overview(program, version, commands, stderr);
        return nt_exit_code(-NT_E_INVAL);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("%s %s\n", program, version);
        rc = 0;
    } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        overview(program, version, commands, stdout);
        rc = 0;
    } else if (strcmp(argv[1], "help") == 0) {
        rc = run_help(program, version, commands, argc - 2, argv + 2, &err);
    } else {
        cmd = find_command(commands, argv[1], &err);
        if (cmd != NULL && !cmd->hands_on) {
            (void)signal(SIGXFSZ, SIG_IGN); /* a full quota is an error to report, not a death */
        }
        rc = cmd != NULL ? run_command(program, cmd, argc - 2, argv + 2, &err) : -NT_E_INVAL;
    }
    /* What is longer than the buffer was lost before the flush, which then has nothing to do. */
    lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && (rc == 0 || err.msg[0] == '\0')) {
        int io = nt_fail(&err, NT_E_IO, 0, "standard output could not be written");
        rc = rc == 0 ? io : rc;
    }
    if (rc != 0 && err.msg[0] != '\0') {
        nt_text_plain(
            err.msg); /* it may hold words of a hostile file: none may steer the terminal */
        (void)fprintf(stderr, "%s: %s\n", program, err.msg);
    }
    return nt_exit_code(rc);
}
