/*
 * peers - what the probe says of peer access between the devices, asked once before a job that
 * races backends: one verdict for all of them.
 *
 * Blocks     for at most the given time, on a loop of its own; called before the job's loop runs.
 */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum { NT_PEERS_MS = 30000 };

/* Runs `program peers`. *ret: the probe's document, the caller owns it; NULL where it has none to
 * give (another kind of probe, no device, no answer in time). */
void nt_peers_ask(const char *program, const char *const *env, uint32_t most_ms, json_t **ret);
/* A list of texts: "0 to 1: access, copy ok, write ok, read ok, 391 GB/s", and those that tell of
 * what is broken. New references; NULL without memory. */
json_t *nt_peers_words(const json_t *doc);
json_t *nt_peers_broken(const json_t *doc);
