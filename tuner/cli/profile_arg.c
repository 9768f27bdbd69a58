#include "tuner/cli/profile_arg.h"

#include <unistd.h>
#include "tuner/base/text.h"

bool nt_arg_is_job(const char *arg, int64_t *ret_job)
{
    uint64_t job = 0;

    if (access(arg, F_OK) == 0 || nt_parse_u64(arg, &job, NULL) != 0 || job > INT64_MAX) {
        return false;
    }
    *ret_job = (int64_t)job;
    return true;
}

int nt_open_to_read(const char *db, struct nt_store **ret, struct nt_err *err)
{
    char path[4096];
    int rc = nt_store_default_path(db, false, path, sizeof(path), err);
    return rc == 0 ? nt_store_open(path, NT_STORE_READ, ret, err) : rc;
}

int nt_load_job_profile(struct nt_store *s, int64_t job, struct nt_profile **ret,
                        struct nt_err *err)
{
    struct nt_buf json;
    int rc;

    nt_buf_init(&json, NT_PROFILE_MAX_BYTES);
    rc = nt_store_load_profile(s, job, &json, err);
    if (rc == 0) {
        rc = nt_profile_parse(nt_buf_str(&json), json.len, "the job's profile", ret, err);
    }
    if (rc == 0) { /* its number here: of a job that was merged it says the other database's */
        (*ret)->job = nt_profile_textf(*ret, "%lld", (long long)job);
    }
    nt_buf_done(&json);
    return rc;
}

int nt_load_profile_arg(const char *arg, const char *db, struct nt_profile **ret,
                        struct nt_err *err)
{
    struct nt_store *s = NULL;
    int64_t job = 0;
    int rc;

    if (!nt_arg_is_job(arg, &job)) {
        return nt_profile_load(arg, ret, err);
    }
    rc = nt_open_to_read(db, &s, err);
    rc = rc == 0 ? nt_load_job_profile(s, job, ret, err) : rc;
    nt_store_close(s);
    return rc;
}
