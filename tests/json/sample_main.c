/* Prints the sample profile; with "empty" the empty one; with "rig NAME" as of another rig. */
#include <stdio.h>
#include <string.h>
#include "tests/json/sample.h"

int main(int argc, char **argv)
{
    bool empty = argc > 1 && strcmp(argv[1], "empty") == 0;
    struct nt_profile *p = empty ? nt_sample_empty() : nt_sample_profile();
    struct nt_err err = {0};
    struct nt_buf out;
    int rc = 1;

    nt_buf_init(&out, NT_PROFILE_MAX_BYTES);
    if (p != NULL && argc > 2 && strcmp(argv[1], "rig") == 0) {
        int rig = nt_vocab_find(nt_rig_names, "rig", argv[2], &err);
        p->rig = rig >= 0 ? rig : NT_RIG_NCCL;
    }
    if (p != NULL && nt_profile_finish(p, &err) == 0 && nt_profile_dump(p, &out, &err) == 0) {
        (void)fputs(nt_buf_str(&out), stdout);
        rc = 0;
    } else {
        (void)fprintf(stderr, "%s\n", err.msg);
    }
    nt_buf_done(&out);
    nt_profile_free(p);
    return rc;
}
