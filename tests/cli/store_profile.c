/* store_profile DATABASE < PROFILE: a database with one job that published this profile. */
#include <stdio.h>
#include "tuner/store/store.h"

int main(int argc, char **argv)
{
    struct nt_store_job job = {
        .key = "00112233445566778899aabbccddeeff", .spec = "{}", .ranks = 8, .nodes = 1};
    struct nt_store *s = NULL;
    struct nt_err err = {0};
    struct nt_buf text;
    int64_t id = 0, profile = 0;
    int rc = argc == 2 ? 0 : -NT_E_INVAL;

    nt_buf_init(&text, 16 << 20);
    if (rc == 0) {
        rc = nt_buf_read_file(&text, "-", &err);
    }
    if (rc == 0) {
        rc = nt_store_open(argv[1], NT_STORE_WRITE, &s, &err);
    }
    if (rc == 0) {
        rc = nt_store_job_create(s, &job, &id, &err);
    }
    if (rc == 0) {
        rc = nt_store_save_profile(s, id, nt_buf_str(&text), NULL, 0, &profile, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
    }
    nt_store_close(s);
    nt_buf_done(&text);
    return nt_exit_code(rc);
}
