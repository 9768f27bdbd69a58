/*
 * manifest - what a run was: one JSON document per `nccltune run`, format "nccltune-run" version 1,
 * in ${XDG_STATE_HOME:-~/.local/state}/nccltune/runs/<id>.json. Never holds a secret: variables are
 * taken by a list of prefixes, and values that look like keys or tokens are left out of the command
 * line too.
 *
 * Members: id, created, command[], cwd, profile{hash, file, product, id} or null, applied[{name,
 * value, how, before}], variables{}, machine{} (nt_machine_json), notes{}.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"

#define NT_RUN_FORMAT "nccltune-run"

/* Whether a manifest remembers the variable at all. */
bool nt_manifest_keeps(const char *name);
/* {NAME: VALUE} of those, from NAME=VALUE, NULL-terminated. The caller owns it. */
json_t *nt_manifest_variables(const char *const *env);
/* The words of a command, with "…" in place of what looks like a secret. */
json_t *nt_manifest_command(const char *const *argv);

/* Writes the manifest under its own id. */
NT_MUST_CHECK int nt_manifest_save(const json_t *m, struct nt_err *err);
/* Finds a run: its id, the beginning of one, "last", "last~1" (the one before), or the path of a
 * manifest. The caller owns *ret. */
NT_MUST_CHECK int nt_manifest_load(const char *name, json_t **ret, struct nt_err *err);
/* Removes one whose command was not started. */
void nt_manifest_drop(const char *id);
/* "tok/s=82.2": a number where it is one, else text. Replaces a note of that name. */
NT_MUST_CHECK int nt_manifest_note(json_t *m, const char *assignment, struct nt_err *err);
/* Loads a run, notes all of the list and saves it, where its id says; other calls of this wait, so
 * that nobody's notes are lost. The caller owns *ret. */
NT_MUST_CHECK int nt_manifest_annotate(const char *name, char *const *assignments, unsigned n,
                                       json_t **ret, struct nt_err *err);
