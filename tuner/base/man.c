#include "tuner/base/cli.h"

#include <errno.h>
#include <string.h>

static void roff(const char *text, FILE *out)
{
    bool start = true;
    for (; *text != '\0'; text++) {
        if (start && (*text == '.' || *text == '\'')) {
            (void)fputs("\\&", out);
        }
        if (*text == '\\') {
            (void)fputs("\\e", out);
        } else if (*text == '-') {
            (void)fputs("\\-", out);
        } else if (*text == '\n' && text[1] == '\n') {
            (void)fputs("\n.PP", out);
        } else {
            (void)fputc(*text, out);
        }
        start = *text == '\n';
    }
}

static void exit_status(FILE *out)
{
    static const struct {
        int code;
        const char *text;
    } rows[] = {{0, "done; a profile without a row is done, too"},
                {1, "the answer is no"},
                {2, "bad usage or bad input"},
                {3, "something is missing on this machine; the message says what to do"},
                {4, "too noisy to tune"},
                {5, "interrupted; can be resumed"},
                {70, "a bug of this program"}};
    (void)fprintf(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)fprintf(out, ".TP\n.B %d\n%s\n", rows[i].code, rows[i].text);
    }
}

void nt_cli_man(const char *program, const char *version, const struct nt_command *cmd, FILE *out)
{
    char usage[256];
    (void)fprintf(out, ".TH %s-%s 1 \"\" \"%s %s\"\n.SH NAME\n%s\\-%s \\- ", program, cmd->name,
                  program, version, program, cmd->name);
    roff(cmd->summary, out);
    (void)fprintf(out, "\n.SH SYNOPSIS\n.B %s\n", program);
    roff(nt_cli_usage(cmd, usage, sizeof(usage)), out);
    (void)fprintf(out, "\n.SH DESCRIPTION\n");
    roff(cmd->details != NULL ? cmd->details : cmd->summary, out);
    (void)fprintf(out, "\n.SH OPTIONS\n");
    for (const struct nt_opt *o = cmd->opts; o != NULL && o->name != NULL; o++) {
        (void)fprintf(out, ".TP\n.B ");
        if (o->letter != 0) {
            (void)fprintf(out, "\\-%c, ", o->letter);
        }
        roff("--", out);
        roff(o->name, out);
        if (o->arg != NULL) {
            (void)fprintf(out, " ");
            roff(o->arg, out);
        }
        (void)fprintf(out, "\n");
        roff(o->help, out);
        for (const char *const *c = o->choices; c != NULL && *c != NULL; c++) {
            (void)fprintf(out, "%s%s", c == o->choices ? "; one of: " : ", ", *c);
        }
        (void)fprintf(out, "\n");
    }
    exit_status(out);
    (void)fprintf(out, ".SH SEE ALSO\n.BR %s (1)\n", program);
}

static void man_of_program(const char *program, const char *version, const char *summary,
                           const struct nt_command *const *commands, FILE *out)
{
    (void)fprintf(out, ".TH %s 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- ", program, program, version,
                  program);
    roff(summary, out);
    (void)fprintf(out, "\n.SH SYNOPSIS\n.B %s\n.I COMMAND\n[options]\n.SH COMMANDS\n", program);
    for (; *commands != NULL; commands++) {
        (void)fprintf(out, ".TP\n.BR %s\\-%s (1)\n", program, (*commands)->name);
        roff((*commands)->summary, out);
        (void)fprintf(out, "\n");
    }
    exit_status(out);
}

int nt_cli_man_pages(const char *program, const char *version, const char *summary,
                     const struct nt_command *const *commands, const char *dir, struct nt_err *err)
{
    for (const struct nt_command *const *c = commands;; c++) {
        char path[512];
        FILE *out;
        bool bad;

        (void)snprintf(path, sizeof(path), "%s/%s%s%s.1", dir, program, *c != NULL ? "-" : "",
                       *c != NULL ? (*c)->name : "");
        out = fopen(path, "w");
        if (out == NULL) {
            return nt_fail(err, NT_E_IO, errno, "%s", path);
        }
        if (*c != NULL) {
            nt_cli_man(program, version, *c, out);
        } else {
            man_of_program(program, version, summary, commands, out);
        }
        bad = ferror(out) != 0;
        if (fclose(out) != 0 || bad) {
            return nt_fail(err, NT_E_IO, errno, "%s", path);
        }
        if (*c == NULL) {
            return 0;
        }
    }
}
