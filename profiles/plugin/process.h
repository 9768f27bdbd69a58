/*
 * process - what this process was told, decided once at the first communicator (or, in the env
 * plugin, at the first NCCL call) and then fixed: a rank that changed its mind would hang the job.
 *
 *   NCCLTUNE_DISABLE       set to anything but "" and "0": nothing is done
 *   NCCLTUNE_PROFILE       lower-case hex SHA-256 of the delivery file; unset or "": nothing is
 * done NCCLTUNE_TABLE         its absolute path NCCLTUNE_JOB           name of the job, for the
 * receipt and for the ranks' meeting NCCLTUNE_LOCAL_RANKS   ranks of the job on this host
 *   NCCLTUNE_RECEIPTS      folder of the receipts
 *
 * A profile that was told and cannot be honoured is an error for every communicator.
 */
#pragma once
#include <sys/types.h>
#include "profiles/format/receipt.h"
#include "profiles/format/table.h"
#include "profiles/plugin/abi.h"

enum nt_told { NT_TOLD_NOTHING, NT_TOLD_A_PROFILE, NT_TOLD_BROKEN };

struct nt_process {
    enum nt_told told;
    struct nt_table table;      /* NT_TOLD_A_PROFILE */
    char hash[NT_HASH_HEX + 1]; /* what was told, as far as it is a hash */
    char job[128];              /* "" if none */
    uint32_t local_ranks;       /* 0 if not told */
    uint8_t *receipt;           /* never NULL with a profile: counts go nowhere without a file */
    bool has_receipt;
    pid_t pid;  /* whose receipt it is */
    int result; /* NT_TOLD_BROKEN: what NCCL is answered */
};

/* *ret is set to this process's decision. Returns what NCCL is to be answered:
 * NT_NCCL_SUCCESS, or an error after file and hash were logged (through log, if not NULL, and to
 * stderr). Thread-safe. */
int nt_process_get(enum nt_receipt_part part, nt_logger log, const struct nt_process **ret);
/* The kill switch. */
bool nt_process_disabled(void);

void nt_say_error(nt_logger log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void nt_say_info(nt_logger log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
