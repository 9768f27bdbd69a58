/*
 * peers - one verdict on peer access for all backends: what the driver says, and what really
 * arrives when data is copied, written and read between every pair of devices, within a time limit.
 */
#pragma once
#include "tuner/base/buf.h"

/* A child process asks for multicast, where the environment does not forbid it: to ask is to use
 * it, and machines are known that do not survive that. Before anything of CUDA in this process. */
void nt_peers_multicast(struct nt_buf *out);
/* One JSON object: devices with their copy bandwidth, pairs, multicast. -NT_E_MISSING without a
 * usable device. What does not end within the limit is named; the process is then to be ended with
 * _exit(). */
NT_MUST_CHECK int nt_peers_run(struct nt_buf *out, struct nt_err *err);
