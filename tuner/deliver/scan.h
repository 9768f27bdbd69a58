/*
 * scan - reads what doctor judges: processes, their receipts, the tables that they were told. Other
 * users' files are hostile: no link is followed, owners are checked on open descriptors, reads are
 * bounded, and what could hang is read by a child that is killed after two seconds.
 */
#pragma once
#include "tuner/deliver/doctor.h"

struct nt_scan_opts {
    const char *proc;   /* NULL: /proc */
    const char *active; /* NULL: /run/nccltune/active */
    const uint32_t
        *pids; /* these and their descendants; none: every process with NCCL or a profile */
    size_t npids;
};

struct nt_scanned {
    struct nt_proc proc;
    struct nt_proc ancestors[NT_PROC_ANCESTORS];
    struct nt_buf receipt, table; /* bytes */
    struct nt_table parsed;
    char why[256], engine_why[256];
    struct nt_engine *engine;     /* owned; NULL: none */
    struct nt_doctor_facts facts; /* points into the rest */
    struct nt_doctor_verdict verdict;
};
struct nt_scan {
    struct nt_doctor_world world;
    struct nt_scanned **v;
    size_t n;
    size_t unreadable; /* processes of others that could not be looked into */
};

/* Whether the Python loader is in a folder that the process's interpreter runs .pth files of, or on
 * its PYTHONPATH. root: the file system as the process sees it; exe, cwd: the process's, or "".
 * Unknown for other users' processes, whose files could hang a reader, where no such folder is
 * found, and where the interpreter cannot be told. */
enum nt_doctor_loader nt_scan_loader(const char *root, const struct nt_proc *p, const char *exe,
                                     const char *cwd);

NT_MUST_CHECK int nt_scan(const struct nt_scan_opts *opts, struct nt_scan *ret, struct nt_err *err);
void nt_scan_done(struct nt_scan *s);
/* Receipt of a process: its bytes to *out, true; else *why says what is wrong, "" if there is just
 * none. proc: as in the options. */
bool nt_scan_receipt(const char *proc, const struct nt_proc *p, const char *boot_id,
                     struct nt_buf *out, char why[256]);
