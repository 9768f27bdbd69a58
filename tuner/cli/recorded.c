#include "tuner/cli/recorded.h"
#include "tuner/base/text.h"

#include <stdio.h>
#include <string.h>

/* NCCL's costs were recorded for the ladder only; between, there are just the default and leaders.
 * Of a collective about which it asks no tuner, that there are none was. */
static bool is_ladder(const struct nt_recording *rec, const struct nt_case *cs)
{
    struct nt_replay replay;
    struct nt_cells cells;

    return nt_replay_init(&replay, rec, 0, false, NT_ALL_GANGS, 1, NULL, 0, NULL) == 0 &&
           nt_replay_cells(&replay, cs, &cells) && (cells.asked || cs->coll >= NT_TUNER_COLLS);
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

/* What --try asked for must have been recorded; asked for nothing, all that was is tried. */
static int check_settings(const struct nt_recording *rec, const struct nt_spec *s,
                          struct nt_err *err)
{
    for (size_t k = 1; k < s->nsettings; k++) {
        size_t i = 0, n = nt_recording_gangs(rec);
        while (i < n && strcmp(nt_recording_gang(rec, i)->process, s->settings[k]) != 0) {
            i++;
        }
        if (i == n) {
            return nt_fail(err, NT_E_INVAL, 0, "%.200s was not recorded", s->settings[k]);
        }
    }
    return 0;
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The recorded size nearest to `want` among the type's cases out of place; 0: none. */
static uint64_t nearest(const struct nt_recording *rec, enum nt_dtype dtype, size_t coll, int mode,
                        uint64_t want)
{
    uint64_t near = 0;

    for (size_t i = 0; i < nt_recording_blocks(rec) && (near == 0 || near != want); i++) {
        const struct nt_case *cs = &nt_recording_block(rec, i)->cs;
        if (cs->coll == coll && (mode < 0 || cs->mode == mode) && cs->dtype == dtype &&
            cs->place == NT_OUT_OF_PLACE &&
            (near == 0 || apart(cs->bytes, want) < apart(near, want))) {
            near = cs->bytes;
        }
    }
    return near;
}

bool nt_recorded_dtype(const struct nt_recording *rec, enum nt_dtype dtype)
{
    for (size_t coll = 0; coll < NT_COLL_COUNT; coll++) {
        if (nearest(rec, dtype, coll, -1, 0) != 0) {
            return true;
        }
    }
    return false;
}

/* The type to race if it was recorded, else another of the job's. None guards: a recording holds
 * one. */
static int take_dtype(const struct nt_recording *rec, struct nt_spec *s, struct nt_err *err)
{
    const char *held = "none that is known";
    bool found = s->dtypes[s->raced_dtype] && nt_recorded_dtype(rec, s->raced_dtype);

    for (int d = 0; d < NT_DTYPE_COUNT && !found; d++) {
        if (nt_recorded_dtype(rec, (enum nt_dtype)d)) {
            held = nt_dtype_names[d];
            found = s->dtypes[d];
            s->raced_dtype = (enum nt_dtype)d;
        }
    }
    if (!found) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "this recording holds %s, and not the data type asked for", held);
    }
    memset(s->dtypes, 0, sizeof(s->dtypes));
    s->dtypes[s->raced_dtype] = true;
    return 0;
}

/* Is every case of the job there at that size? A recording that ran out of time may hold a size for
 * some of its collectives only. */
static bool whole(const struct nt_recording *rec, const struct nt_spec *s, struct nt_case cs)
{
    for (cs.coll = 0; cs.coll < NT_COLL_COUNT; cs.coll++) {
        if (s->colls[cs.coll] && !is_ladder(rec, &cs)) {
            return false;
        }
        for (int mode = 0; s->colls[cs.coll] && mode < NT_MODE_COUNT; mode++) {
            if (s->modes[mode] &&
                nearest(rec, s->raced_dtype, cs.coll, mode, cs.bytes) != cs.bytes) {
                return false;
            }
        }
    }
    return true;
}

static void take_sizes(const struct nt_recording *rec, struct nt_spec *s)
{
    for (size_t i = 0; i < nt_recording_blocks(rec); i++) {
        const struct nt_block *b = nt_recording_block(rec, i);
        size_t k = 0;
        while (k < s->nsizes && s->sizes[k] != b->cs.bytes) {
            k++;
        }
        if (k == s->nsizes && k < NT_MAX_SIZES && s->colls[b->cs.coll] && is_ladder(rec, &b->cs) &&
            whole(rec, s, b->cs)) {
            s->sizes[s->nsizes++] = b->cs.bytes;
        }
    }
}

void nt_recorded_colls(const struct nt_recording *rec, bool colls[NT_COLL_COUNT])
{
    for (size_t i = 0; i < nt_recording_blocks(rec); i++) {
        const struct nt_case *cs = &nt_recording_block(rec, i)->cs;
        colls[cs->coll] = colls[cs->coll] || is_ladder(rec, cs);
    }
}

/* What the job will race must have been recorded: said now, with what is there instead. */
static int check_cases(const struct nt_recording *rec, const struct nt_spec *s, struct nt_err *err)
{
    char want[24], near[24];

    for (size_t coll = 0; coll < NT_COLL_COUNT; coll++) {
        if (s->colls[coll] && nearest(rec, s->raced_dtype, coll, -1, 0) == 0) {
            return nt_fail(err, NT_E_INVAL, 0, "%s was not recorded", nt_coll_names[coll]);
        }
        for (int mode = 0; s->colls[coll] && mode < NT_MODE_COUNT; mode++) {
            if (s->modes[mode] && nearest(rec, s->raced_dtype, coll, mode, 0) == 0) {
                return nt_fail(err, NT_E_INVAL, 0, "%s in mode %s was not recorded",
                               nt_coll_names[coll], nt_mode_names[mode]);
            }
            for (size_t k = 0; s->modes[mode] && k < s->nsizes; k++) {
                uint64_t size = nearest(rec, s->raced_dtype, coll, mode, s->sizes[k]);
                if (size != s->sizes[k]) {
                    return nt_fail(err, NT_E_INVAL, 0,
                                   "%s of %s in mode %s was not recorded; did you mean %s?",
                                   nt_coll_names[coll],
                                   nt_format_bytes(s->sizes[k], want, sizeof(want)),
                                   nt_mode_names[mode], nt_format_bytes(size, near, sizeof(near)));
                }
            }
        }
    }
    return 0;
}

int nt_recorded_spec(const struct nt_recording *rec, struct nt_spec *s, struct nt_err *err)
{
    uint64_t ranks = 0;
    const char *fixed;
    int rig = nt_vocab_find(nt_rig_names, "rig", nt_recording_fact(rec, NT_FACT_RIG), err);
    int rc = rig < 0 ? rig : nt_parse_u64(nt_recording_fact(rec, NT_FACT_RANKS), &ranks, err);

    if (rc != 0) {
        return rc;
    }
    if (rig > NT_RIG_MPS_P2P) {
        return nt_fail(err, NT_E_INVAL, 0, "a recording of the rig '%s' is no measurement",
                       nt_rig_names[rig]);
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
    fixed = nt_recording_fact(rec, NT_FACT_FIXED); /* under which all that it holds was measured */
    (void)snprintf(s->fixed, sizeof(s->fixed), "%s", fixed != NULL ? fixed : "");
    rc = take_dtype(rec, s, err);
    rc = rc == 0 ? check_settings(rec, s, err) : rc;
    if (rc == 0 && s->nsettings <= 1) {
        take_settings(rec, s);
    }
    if (s->nsizes == 0) {
        take_sizes(rec, s);
    }
    rc = rc == 0 ? check_cases(rec, s, err) : rc;
    if (rc == 0 && s->nsizes == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "no size was recorded for all collectives and modes asked for; name those "
                     "that are to be looked at with --sizes");
    }
    return rc;
}

void nt_recorded_note_dropped(const struct nt_spec *asked, const struct nt_spec *s)
{
    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        if (asked->dtypes[d] && !s->dtypes[d]) {
            (void)fprintf(stderr, "note: this recording holds %s: %s is not %s\n",
                          nt_dtype_names[s->raced_dtype], nt_dtype_names[d],
                          d == (int)asked->raced_dtype ? "raced" : "looked at");
        }
    }
}
