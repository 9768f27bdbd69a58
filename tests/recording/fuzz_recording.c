/* Whatever reads as a recording must be possible to draw from: each of its blocks' calls, and one
 * that it may not hold. */
#include <stdint.h>
#include <stdlib.h>

#include "probes/recording/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void draw(const struct nt_recording *r, const struct nt_measure *m, bool null)
{
    struct nt_replay p;
    struct nt_result result;
    struct nt_cells cells;

    if (nt_replay_init(&p, r, 1, null, NT_ALL_GANGS, m->id, NULL, 0, NULL) == 0) {
        nt_replay_measure(&p, m, &result);
        nt_assert(result.status != NT_ST_OK || result.count == m->samples);
        free(result.ns);
        nt_replay_cells(&p, &m->cs, &cells);
        (void)nt_replay_start(&p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_recording *r = NULL;
    struct nt_err err;
    size_t in_cells = 0;

    if (nt_recording_parse((const char *)data, size, "fuzz", &r, &err) != 0) {
        return 0;
    }
    for (size_t i = 0; i < nt_recording_blocks(r) && i < 50; i++) {
        const struct nt_block *b = nt_recording_block(r, i);
        struct nt_measure m = {
            .id = i, .cs = b->cs, .call = b->call, .samples = 3, .flags = b->flags};
        nt_assert(nt_recording_find(r, &b->cs, b->flags, b->process, &b->call) >= 0);
        draw(r, &m, i % 2 == 0);
        m.cs.bytes++;
        draw(r, &m, false);
    }
    for (size_t i = 0; i < nt_recording_cells(r); i++) {
        in_cells += nt_recording_cell(r, i).count;
    }
    nt_assert(in_cells == nt_recording_blocks(r));
    nt_recording_free(r);
    return 0;
}
