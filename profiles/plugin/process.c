#include "profiles/plugin/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nt_process self;
static bool decided;

static void say(nt_logger log, int level, const char *text)
{
    if (log != NULL) {
        log(level, (unsigned long)NT_NCCL_ALL, "nccltune", 0, "%s", text);
    }
}

void nt_say_error(nt_logger log, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    say(log, NT_NCCL_WARN, text);
    (void)dprintf(STDERR_FILENO, "nccltune: pid %ld: %s\n", (long)getpid(), text);
}

void nt_say_info(nt_logger log, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    say(log, NT_NCCL_INFO, text);
}

bool nt_process_disabled(void)
{
    const char *off = getenv("NCCLTUNE_DISABLE");
    return off != NULL && off[0] != '\0' && strcmp(off, "0") != 0;
}

/* The library that logs is the libnccl that called: its file and version, for the receipt. */
static void note_nccl(uint8_t *receipt, nt_logger log)
{
    Dl_info info;
    void *handle;
    int version = 0;

    if (log == NULL || dladdr((void *)(uintptr_t)log, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != NULL) {
        int (*get)(int *) = (int (*)(int *))(uintptr_t)dlsym(handle, "ncclGetVersion");
        if (get != NULL && get(&version) != NT_NCCL_SUCCESS) {
            version = 0;
        }
        (void)dlclose(handle);
    }
    nt_receipt_set_nccl(receipt, version > 0 ? (uint32_t)version : 0, info.dli_fname);
}

static void open_receipt(enum nt_receipt_part part, nt_logger log)
{
    struct nt_why why = {""};
    struct nt_receipt_start start = {.hash = self.hash, .job = self.job, .nrows = self.table.nrows};
    Dl_info info;

    self.pid = getpid();
    self.receipt = nt_receipt_attach(&start, &why);
    self.has_receipt = self.receipt != NULL;
    if (!self.has_receipt) {
        nt_say_info(log, "nccltune: no receipt: %s", why.text);
        self.receipt = nt_receipt_nowhere();
        return;
    }
    if (dladdr((void *)(uintptr_t)nt_process_get, &info) != 0 && info.dli_fname != NULL) {
        nt_receipt_set_part(self.receipt, part, info.dli_fname);
    }
    note_nccl(self.receipt, log);
}

static int broken(int result)
{
    self.told = NT_TOLD_BROKEN;
    self.result = result;
    return result;
}

static int decide(enum nt_receipt_part part, nt_logger log)
{
    const char *hash = getenv("NCCLTUNE_PROFILE"), *path = getenv("NCCLTUNE_TABLE");
    const char *job = getenv("NCCLTUNE_JOB"), *ranks = getenv("NCCLTUNE_LOCAL_RANKS");
    struct nt_why why = {""};

    if (nt_process_disabled() || hash == NULL || hash[0] == '\0') {
        return NT_NCCL_SUCCESS;
    }
    if (path == NULL || path[0] == '\0') {
        nt_say_error(log, "profile %.64s: NCCLTUNE_TABLE does not say where it is", hash);
        return broken(NT_NCCL_INVALID_USAGE);
    }
    if (nt_table_map(path, hash, &self.table, &why) != 0) {
        nt_say_error(log, "profile %.64s cannot be honoured: %s", hash, why.text);
        return broken(NT_NCCL_INVALID_USAGE);
    }
    memcpy(self.hash, hash, sizeof(self.hash)); /* nt_table_map() has seen that it is one */
    (void)snprintf(self.job, sizeof(self.job), "%s", job != NULL ? job : "");
    if (ranks != NULL && ranks[0] != '\0') {
        char *end;
        unsigned long n = strtoul(ranks, &end, 10);
        if (*end != '\0' || ranks[0] < '0' || ranks[0] > '9' || n > 1024) {
            nt_say_error(log, "NCCLTUNE_LOCAL_RANKS '%.40s' is not a number of ranks", ranks);
            return broken(NT_NCCL_INVALID_USAGE);
        }
        self.local_ranks = (uint32_t)n;
    }
    self.told = NT_TOLD_A_PROFILE;
    open_receipt(part, log);
    if (self.receipt == NULL) {
        nt_say_error(log, "profile %.64s cannot be honoured: out of memory", hash);
        return broken(NT_NCCL_SYSTEM_ERROR);
    }
    return NT_NCCL_SUCCESS;
}

int nt_process_get(enum nt_receipt_part part, nt_logger log, const struct nt_process **ret)
{
    int rc;

    (void)pthread_mutex_lock(&lock);
    if (!decided) {
        rc = decide(part, log);
        decided = true;
    } else if (self.told == NT_TOLD_BROKEN) {
        nt_say_error(log, "this process was told a profile that it cannot honour (see above)");
        rc = self.result;
    } else {
        rc = NT_NCCL_SUCCESS;
        if (self.told == NT_TOLD_A_PROFILE && self.pid != getpid()) {
            /* a forked child: the parent's receipt stays the parent's */
            uint8_t *parents = self.receipt;
            open_receipt(part, log);
            self.receipt = self.receipt != NULL ? self.receipt : parents;
        }
    }
    *ret = &self;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}
