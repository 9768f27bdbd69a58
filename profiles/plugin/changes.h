/*
 * changes - what the program did to NCCL's variables (NCCL_…) in its own environment: before its
 * first communicator, held against the environment that it was started with, and after it, held
 * against what they were then. Most of NCCL's variables are read once, so the latter come too late.
 *
 * Left out are values that are the profile's own and the names of plugins: loaders and conf files
 * set those.
 */
#pragma once
#include "profiles/plugin/process.h"

/* Called at every communicator before nt_receipt_add_comm(): writes flags and changes into the
 * process's receipt. Thread-safe. */
void nt_changes_note(const struct nt_process *p);
