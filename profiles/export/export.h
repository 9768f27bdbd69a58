/*
 * export - a profile in the form that a deployment takes: one table of formats, each right for its
 * consumer's quoting and typing.
 *
 * Every form that carries the table product carries the tuner plugin's path, NCCLTUNE_PROFILE (the
 * hash of the delivery file) and NCCLTUNE_TABLE (its absolute path at the consumer). Site
 * constraints are named in the header and never set: they are the user's.
 *
 * Ownership  everything passed in is borrowed; text is appended to *out and *notes.
 * Errors     NT_E_NO: a profile of this rig is not exported unless allowed; NT_E_INVAL: an unknown
 *            format, a path that no form can quote, a product that the profile does not have.
 */
#pragma once
#include "profiles/json/profile.h"

/* Where `install` puts the plugin, and where containers mount the delivery file. */
#define NT_EXPORT_PLUGIN    "/usr/local/lib/nccltune/libnccl-tuner-nccltune.so"
#define NT_EXPORT_TABLE_DIR "/etc/nccltune"

struct nt_export_options {
    unsigned nccl;         /* release to write for; 0: that of the profile */
    bool variables_only;   /* the static product */
    int allow_rig;         /* enum nt_rig; -1: only profiles of a real node */
    const char *plugin;    /* absolute path at the consumer; NULL: NT_EXPORT_PLUGIN */
    const char *table_dir; /* absolute folder of the delivery file at the consumer; NULL:
                              NT_EXPORT_TABLE_DIR */
};

struct nt_export_format {
    const char *name;
    const char *help;    /* one line: the consumer */
    bool contained;      /* the consumer sees another file system: table_dir is not a path here */
    bool rows_only;      /* carries the table's rows and no variable */
    bool embeds_table;   /* the delivery file's bytes are in the text */
    bool read_by_plugin; /* with rows of backends it names the path where it must lie itself, as
                            NCCLTUNE_BACKENDS_TABLE in `env` */
};
extern const struct nt_export_format nt_export_formats[]; /* name NULL ends */
extern const char *const nt_export_format_names[];        /* NULL-terminated */

/* NULL with NT_E_INVAL and the near name when there is none. */
const struct nt_export_format *nt_export_find(const char *name, struct nt_err *err);

/* The form to *out; one line a loss or warning to *notes: for stderr, never part of the form. */
NT_MUST_CHECK int nt_export(const struct nt_profile *p, const struct nt_export_format *format,
                            const struct nt_export_options *options, struct nt_buf *out,
                            struct nt_buf *notes, struct nt_err *err);
