/* support - what the topology tests share. */
#pragma once
#include "tests/topology/tree.h"
#include "tuner/topology/topology.h"

/* Path of a file of tests/topology/data. Returns out. */
char *data_path(const char *name, char *out, size_t size);
/* Reads a file of tests/topology/data; fails the test when it cannot. The caller frees. */
struct nt_topology *read_data(const char *name);
struct nt_topology *read_tree(const struct element *e);
struct nt_topology *read_or_fail(const char *what, const char *text, size_t len);
/* How many findings of a kind; unhealthy_only leaves notes out. */
int count_findings(const struct nt_topology *t, enum nt_finding_kind kind, bool unhealthy_only);
