/*
 * canon - a name for a small complete graph with coloured nodes and edges that is equal exactly for
 * graphs equal up to the order of the nodes. Pure.
 *
 * The graph is taken apart where one edge colour joins all parts (sockets, switches, hosts,
 * NVSwitch: how machines are built); what cannot be taken apart (cube meshes) is searched with
 * colour refinement. A graph too regular and too large to be searched within a fixed effort gets a
 * name from refinement alone: still equal for equal graphs, but two different ones could share it.
 */
#pragma once
#include <stdint.h>
#include "tuner/base/err.h"
#include "tuner/base/hash.h"

enum { NT_CANON_MAX = 512 };

/* node: n colours; edge: n × n colours, symmetric, the diagonal ignored. n <= NT_CANON_MAX. */
NT_MUST_CHECK int nt_canon(int n, const uint32_t *node, const uint32_t *edge,
                           char hex[NT_HEX_LEN + 1], struct nt_err *err);
