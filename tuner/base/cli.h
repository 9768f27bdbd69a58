/*
 * cli - commands and options as tables: one parser, and help, man pages and completion printed from
 * the rows.
 *
 * A command's options fill a plain struct, given by offset. Values are checked whole; an unknown
 * option or command is an error (exit code 2) that names the nearest right one. Strings are
 * borrowed from argv.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "tuner/base/err.h"

enum nt_opt_type {
    NT_O_FLAG,     /* bool */
    NT_O_STR,      /* const char * */
    NT_O_U32,      /* uint32_t */
    NT_O_U64,      /* uint64_t */
    NT_O_I64,      /* int64_t */
    NT_O_DOUBLE,   /* double */
    NT_O_BYTES,    /* uint64_t, "14K" */
    NT_O_DURATION, /* uint64_t nanoseconds, "5m" */
    NT_O_STRS,     /* struct nt_strs: the option may be repeated */
};

struct nt_strs {
    const char *v[64];
    size_t n;
};

struct nt_opt {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* 0: none */
    enum nt_opt_type type;
    size_t offset;
    const char *arg;            /* placeholder in help, NULL for a flag */
    const char *help;           /* one line; says the default */
    const char *const *choices; /* NULL-terminated, NT_O_STR only; NULL: any text */
    bool some;                  /* a number of which 0, which is "not given", is refused */
};

struct nt_command {
    const char *name;
    const char *summary;         /* one line */
    const char *args;            /* "PROFILE", "[FILE...]", "" */
    unsigned min_args, max_args; /* positional arguments */
    const struct nt_opt *opts;
    const void *defaults; /* initial content of the struct; NULL: zeros */
    size_t size;          /* of the struct */
    /* 0 or -code with *err filled; the exit code follows from it. opts is the filled struct. */
    int (*run)(const void *opts, unsigned nargs, char **args, struct nt_err *err);
    bool hands_on;       /* starts commands of the caller's: they find signals as we found them */
    const char *details; /* paragraphs for --help and the man page, or NULL */
};

#define NT_OPT(type_, s, field, name_, letter_, arg_, help_)                                       \
    {                                                                                              \
        .name = (name_), .letter = (letter_), .type = (type_),                                     \
        .offset = offsetof(struct s, field), .arg = (arg_), .help = (help_)                        \
    }
/* A number, at least 1. */
#define NT_OPT_SOME(type_, s, field, name_, letter_, arg_, help_)                                  \
    {                                                                                              \
        .name = (name_), .letter = (letter_), .type = (type_),                                     \
        .offset = offsetof(struct s, field), .arg = (arg_), .help = (help_), .some = true          \
    }

/* commands: pointers to rows, ended by NULL. Parses and runs one command line; argv[0] is the
 * program. Returns the exit code; errors go to stderr. */
int nt_cli_main(const char *program, const char *version, const struct nt_command *const *commands,
                int argc, char **argv);
/* Fills *opts from argv (which starts after the command's name); positional arguments are moved to
 * the front of argv and counted in *ret_nargs. *ret_help is set when -h or --help was seen. "--"
 * ends the options. */
NT_MUST_CHECK int nt_cli_parse(const struct nt_command *cmd, int argc, char **argv, void *opts,
                               unsigned *ret_nargs, bool *ret_help, struct nt_err *err);
/* "NAME ARGS [options]", or with the options where ARGS has them; returns out. */
const char *nt_cli_usage(const struct nt_command *cmd, char *out, size_t size);
/* In lines of at most 96 characters. */
void nt_cli_help(const char *program, const struct nt_command *cmd, FILE *out);
/* A man page in roff: NAME, SYNOPSIS, DESCRIPTION, OPTIONS, EXIT STATUS. */
void nt_cli_man(const char *program, const char *version, const struct nt_command *cmd, FILE *out);
/* Writes DIR/program-NAME.1 for every command, and DIR/program.1, which lists them. */
NT_MUST_CHECK int nt_cli_man_pages(const char *program, const char *version, const char *summary,
                                   const struct nt_command *const *commands, const char *dir,
                                   struct nt_err *err);
