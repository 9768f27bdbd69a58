/* A receipt of an engine's plugin that is taken can be judged, summed and printed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/deliver/doctor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_engine *e = malloc(sizeof(*e));
    struct nt_doctor_backends *b = calloc(1, sizeof(*b));
    struct nt_doctor_verdict *v = calloc(1, sizeof(*v));
    struct nt_proc p = {.pid = 40, .environ_known = true};
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = "", .engine = e};
    struct nt_doctor_world w = {.active_env = false};
    struct nt_buf out;
    json_t *json[2];

    nt_buf_init(&out, 1 << 20);
    if (e != NULL && b != NULL && v != NULL &&
        nt_engine_read((const char *)data, size, e, NULL) == 0) {
        nt_assert(e->nrows <= NT_ENGINE_ROWS && e->ngroups <= NT_ENGINE_GROUPS);
        nt_doctor_judge(&f, &w, v);
        nt_doctor_backends_add(b, &f, v);
        p.pid = 41;
        nt_doctor_backends_add(b, &f, v);
        nt_doctor_backends_judge(b);
        nt_doctor_engine_text(e, &out);
        nt_doctor_backends_text(b, &out);
        for (size_t i = 0; i < out.len; i++) {
            nt_assert(out.data[i] == '\n' || (out.data[i] >= ' ' && out.data[i] <= '~'));
        }
        json[0] = nt_doctor_engine_json(e);
        json[1] = nt_doctor_backends_json(b);
        nt_assert(json[0] != NULL && json[1] != NULL);
        json_decref(json[0]);
        json_decref(json[1]);
    }
    nt_buf_done(&out);
    free(e);
    free(b);
    free(v);
    return 0;
}
