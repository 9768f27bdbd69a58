#include "tuner/cli/recorded.h"
#include "tuner/base/text.h"

#include <stdio.h>
#include <string.h>

/* NCCL's costs were recorded for the ladder only; between, there are just the default and leaders.
 */
static bool is_ladder(const struct nt_recording *rec, const struct nt_case *cs)
{
    struct nt_replay replay;
    struct nt_cells cells = {0};

    if (nt_replay_init(&replay, rec, 0, false, NT_ALL_GANGS, 1, NULL, 0, NULL) == 0) {
        nt_replay_cells(&replay, cs, &cells);
    }
    return cells.asked;
}

static void take_settings(const struct nt_recording *rec, struct nt_spec *s)
{
    for (size_t i = 0; i < nt_recording_gangs(rec); i++) {
        const char *process = nt_recording_gang(rec, i)->process;
        size_t k = 0;
        while (k < s->nsettings && strcmp(s->settings[k], process) != 0) {
            k++;
        }
        if (k == s->nsettings && k < NT_MAX_SETTINGS) {
            (void)snprintf(s->settings[s->nsettings++], NT_SETTING_LEN, "%s", process);
        }
    }
}

static void take_sizes(const struct nt_recording *rec, struct nt_spec *s)
{
    for (size_t i = 0; i < nt_recording_blocks(rec); i++) {
        const struct nt_block *b = nt_recording_block(rec, i);
        size_t k = 0;
        while (k < s->nsizes && s->sizes[k] != b->cs.bytes) {
            k++;
        }
        if (k == s->nsizes && k < NT_MAX_SIZES && s->colls[b->cs.coll] && is_ladder(rec, &b->cs)) {
            s->sizes[s->nsizes++] = b->cs.bytes;
        }
    }
}

int nt_recorded_spec(const struct nt_recording *rec, struct nt_spec *s, struct nt_err *err)
{
    uint64_t ranks = 0;
    int rig = nt_vocab_find(nt_rig_names, "rig", nt_recording_fact(rec, NT_FACT_RIG), err);
    int rc = rig < 0 ? rig : nt_parse_u64(nt_recording_fact(rec, NT_FACT_RANKS), &ranks, err);

    if (rc != 0) {
        return rc;
    }
    if (s->ranks != 0 && s->ranks != ranks) {
        return nt_fail(err, NT_E_INVAL, 0, "this recording has %llu ranks, not %u",
                       (unsigned long long)ranks, s->ranks);
    }
    s->ranks = (unsigned)ranks;
    s->rig = NT_RIG_RECORDING;
    s->shown_rig = (enum nt_rig)rig;
    s->nodes = rig == NT_RIG_MPS_SOCKETS ? s->ranks : 1;
    s->as_found[0] = '\0';
    s->fixed[0] = '\0';
    take_settings(rec, s);
    if (s->nsizes == 0) {
        take_sizes(rec, s);
    }
    memset(s->dtypes, 0, sizeof(s->dtypes));
    s->dtypes[NT_BF16] = true;
    return 0;
}
