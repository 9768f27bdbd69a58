/* Workload documents, and config.json files of models. */
#include <stdint.h>
#include <stdlib.h>

#include "tuner/workload/explain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct nt_point points[] = {{.bytes = 1, .us = 1, .sd = -1},
                                             {.bytes = 1 << 30, .us = 1e6, .sd = 1}};
    static const struct nt_wl_curve curve = {
        .arm = "nccl", .coll = NT_ALL_REDUCE, .mode = -1, .points = points, .n = 2};
    static const struct nt_wl_serving s = {.tp = 8,
                                           .batches = {1, 64},
                                           .nbatches = 2,
                                           .draft_tokens = 3,
                                           .prefill_chunk = 8192,
                                           .logits = true,
                                           .moe_all_to_all = true};
    struct nt_workload w;
    struct nt_wl_class classes[16];
    struct nt_buf notes;
    json_t *doc = NULL;
    nt_buf_init(&notes, 1 << 16);
    if (nt_workload_parse((const char *)data, size, "w", &w, NULL) == 0) {
        json_decref(nt_workload_json(&w));
        (void)nt_workload_classes(&w, classes, 16);
    }
    if (nt_json_parse((const char *)data, size, "c", &doc, NULL) == 0 &&
        nt_workload_from_config(doc, "m", &s, &w, &notes, NULL) == 0) {
        struct nt_explained e;
        nt_explain(&w.phases[0], 10, w.ranks, &curve, 1, NULL, &e);
        (void)nt_workload_classes(&w, classes, 16);
    }
    json_decref(doc);
    nt_buf_done(&notes);
    return 0;
}
