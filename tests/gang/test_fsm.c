#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "tuner/gang/gang_fsm.h"

enum { WORLD = 2, DEPTH = 5, ASK_MS = 50 };

static const struct nt_gang_times times = {1, 2, 3, 4, 5, 6};

/* Event and rank in one symbol: the first ten have a rank. */
enum { RANKED = NT_GF_EV_NO_START + 1, SYMBOLS = RANKED * WORLD + NT_GF_EVENT_COUNT - RANKED };

static enum nt_gf_event event_of(unsigned symbol, unsigned *rank)
{
    *rank = symbol < RANKED * WORLD ? symbol % WORLD : 0;
    return (enum nt_gf_event)(symbol < RANKED * WORLD ? symbol / WORLD
                                                      : symbol - RANKED * WORLD + RANKED);
}

/* What the shell would have seen. */
struct world {
    struct nt_gang_fsm f;
    bool armed;
    unsigned closes, readys, answers, asks, kills, terms;
};

static const char *path_text(const unsigned *path, unsigned n)
{
    static char out[200];
    size_t used = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned rank;
        enum nt_gf_event ev = event_of(path[i], &rank);
        used += (size_t)snprintf(out + used, sizeof(out) - used, " %d:%u", (int)ev, rank);
    }
    return out;
}

static const char *check(const struct world *before, const struct world *w, unsigned acts)
{
    const struct nt_gang_fsm *f = &w->f;
    unsigned ended = 0;

    for (unsigned r = 0; r < WORLD; r++) {
        ended += f->ended[r];
    }
    if (f->alive + ended != WORLD) {
        return "miscounts the living";
    }
    if (before->f.state == NT_GF_CLOSED && acts != 0) {
        return "acts after its end";
    }
    if (f->state < before->f.state && !(before->f.state == NT_GF_BUSY && f->state == NT_GF_IDLE)) {
        return "goes back";
    }
    if ((f->state == NT_GF_CLOSED) != (w->closes == 1) || w->closes > 1) {
        return "closes not exactly once";
    }
    if (f->state >= NT_GF_TERM && !f->blamed) {
        return "ends without a cause";
    }
    if (w->armed == (f->state == NT_GF_IDLE || f->state == NT_GF_CLOSED)) {
        return "waits without a timer, or has one for nothing";
    }
    if (f->alive == 0 && f->state != NT_GF_CLOSED) {
        return "waits for nobody";
    }
    if (w->readys > 1 || w->answers > w->asks || (f->state == NT_GF_IDLE && f->asked)) {
        return "reports what nobody waits for";
    }
    if (before->f.cancelled && (acts & NT_GF_DO_ANSWER)) {
        return "answers a caller who has stopped it";
    }
    if (before->f.blamed && f->how != before->f.how && f->how != NT_GANG_STUCK) {
        return "changes its mind";
    }
    return NULL;
}

static unsigned step(struct world *w, enum nt_gf_event ev, unsigned rank)
{
    unsigned acts;
    if (ev == NT_GF_EV_ASK && !w->f.asked && w->f.state >= NT_GF_IDLE) {
        w->asks++;
    }
    acts = nt_gf_step(&w->f, ev, rank, ASK_MS);
    w->armed = (acts & NT_GF_DO_ARM) || (w->armed && !(acts & NT_GF_DO_DISARM));
    w->closes += (acts & NT_GF_DO_CLOSE) != 0;
    w->readys += (acts & NT_GF_DO_READY) != 0;
    w->answers += (acts & NT_GF_DO_ANSWER) != 0;
    w->terms += (acts & NT_GF_DO_TERM) != 0;
    w->kills += (acts & NT_GF_DO_KILL) != 0;
    return acts;
}

/* However it got there: stopped and then only waited for, it ends within four timers. */
static bool always_ends(struct world w)
{
    (void)step(&w, NT_GF_EV_STOP, 0);
    for (unsigned i = 0; i < 4 && w.f.state != NT_GF_CLOSED; i++) {
        (void)step(&w, NT_GF_EV_TIMER, 0);
    }
    return w.f.state == NT_GF_CLOSED && w.closes == 1;
}

static unsigned long visit(const struct world *from, unsigned *path, unsigned depth)
{
    unsigned long n = 1;

    if (!always_ends(*from)) {
        fail_msg("after%s: does not end when stopped", path_text(path, depth));
    }
    for (unsigned s = 0; depth < DEPTH && s < SYMBOLS; s++) {
        struct world w = *from;
        unsigned rank;
        enum nt_gf_event ev = event_of(s, &rank);
        const char *wrong;

        path[depth] = s;
        if (ev == NT_GF_EV_TIMER && !w.armed) {
            continue; /* cannot happen */
        }
        wrong = check(from, &w, 0);
        if (wrong == NULL) {
            unsigned acts = step(&w, ev, rank);
            wrong = check(from, &w, acts);
        }
        if (wrong != NULL) {
            fail_msg("after%s: %s", path_text(path, depth + 1), wrong);
        }
        n += visit(&w, path, depth + 1);
    }
    return n;
}

static struct world fresh(void)
{
    struct world w = {.armed = true};
    nt_gf_init(&w.f, WORLD, &times);
    return w;
}

static struct world idle(void)
{
    struct world w = fresh();
    (void)step(&w, NT_GF_EV_HELLO, 1);
    (void)step(&w, NT_GF_EV_HELLO, 0);
    (void)step(&w, NT_GF_EV_UID, 0);
    (void)step(&w, NT_GF_EV_READY, 0);
    (void)step(&w, NT_GF_EV_READY, 1);
    return w;
}

static void test_all_sequences(void **state)
{
    unsigned path[DEPTH] = {0};
    struct world start[3] = {fresh(), idle(), idle()};
    unsigned long n = 0;

    (void)state;
    (void)step(&start[2], NT_GF_EV_ASK, 0);
    assert_int_equal(start[1].f.state, NT_GF_IDLE);
    assert_int_equal(start[2].f.state, NT_GF_BUSY);
    for (unsigned i = 0; i < 3; i++) {
        n += visit(&start[i], path, i == 1 ? 0 : 1); /* all of five from IDLE, of four elsewhere */
    }
    assert_true(n > 100000); /* it did look */
}

#define END NT_GF_EVENT_COUNT

static void test_rows(void **state)
{
    static const struct {
        const char *name;
        bool from_idle;
        struct {
            enum nt_gf_event ev;
            unsigned rank;
        } ev[8];
        enum nt_gf_state state;
        enum nt_gang_end how;
        unsigned whom, acts; /* of the last event */
    } rows[] = {
        {"all hellos",
         false,
         {{NT_GF_EV_HELLO, 0}, {NT_GF_EV_HELLO, 1}, {END, 0}},
         NT_GF_UID,
         NT_GANG_DONE,
         0,
         NT_GF_DO_UID | NT_GF_DO_ARM},
        {"an id of rank 1",
         false,
         {{NT_GF_EV_HELLO, 0}, {NT_GF_EV_HELLO, 1}, {NT_GF_EV_UID, 1}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_BROKE,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"no hello of rank 1",
         false,
         {{NT_GF_EV_HELLO, 0}, {NT_GF_EV_TIMER, 0}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_TIMEOUT,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"no process at all",
         false,
         {{NT_GF_EV_NO_START, 0}, {NT_GF_EV_NO_START, 1}, {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_NO_START,
         0,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE},
        {"stopped before it is ready",
         false,
         {{NT_GF_EV_HELLO, 0}, {NT_GF_EV_STOP, 0}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_CANCELLED,
         0,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"question and answer",
         true,
         {{NT_GF_EV_ASK, 0}, {NT_GF_EV_ANSWER, 1}, {NT_GF_EV_ANSWER, 0}, {END, 0}},
         NT_GF_IDLE,
         NT_GANG_DONE,
         0,
         NT_GF_DO_DISARM | NT_GF_DO_ANSWER},
        {"two answers of one rank",
         true,
         {{NT_GF_EV_ASK, 0}, {NT_GF_EV_ANSWER, 1}, {NT_GF_EV_ANSWER, 1}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_BROKE,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"an answer to nothing",
         true,
         {{NT_GF_EV_ANSWER, 1}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_BROKE,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"a deadline passes",
         true,
         {{NT_GF_EV_ASK, 0}, {NT_GF_EV_ANSWER, 0}, {NT_GF_EV_TIMER, 0}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_TIMEOUT,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"the first blame holds",
         true,
         {{NT_GF_EV_EOF, 1}, {NT_GF_EV_EXIT_BAD, 0}, {NT_GF_EV_EXIT_BAD, 1}, {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_CRASHED,
         1,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE},
        {"stopped",
         true,
         {{NT_GF_EV_STOP, 0},
          {NT_GF_EV_EOF, 0},
          {NT_GF_EV_EXIT_OK, 0},
          {NT_GF_EV_EXIT_OK, 1},
          {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_DONE,
         0,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE},
        {"fails when told to quit",
         true,
         {{NT_GF_EV_STOP, 0}, {NT_GF_EV_EXIT_BAD, 1}, {NT_GF_EV_EXIT_OK, 0}, {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_CRASHED,
         1,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE},
        {"does not quit",
         true,
         {{NT_GF_EV_STOP, 0}, {NT_GF_EV_EXIT_OK, 0}, {NT_GF_EV_TIMER, 0}, {END, 0}},
         NT_GF_TERM,
         NT_GANG_TIMEOUT,
         1,
         NT_GF_DO_TERM | NT_GF_DO_ARM},
        {"deaf",
         true,
         {{NT_GF_EV_EOF, 0}, {NT_GF_EV_TIMER, 0}, {END, 0}},
         NT_GF_KILL,
         NT_GANG_CRASHED,
         0,
         NT_GF_DO_KILL | NT_GF_DO_ARM},
        {"unkillable",
         true,
         {{NT_GF_EV_EOF, 0},
          {NT_GF_EV_EXIT_BAD, 0},
          {NT_GF_EV_TIMER, 0},
          {NT_GF_EV_TIMER, 0},
          {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_STUCK,
         1,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE | NT_GF_DO_ABANDON},
        {"killed",
         true,
         {{NT_GF_EV_KILL, 0}, {NT_GF_EV_EXIT_BAD, 0}, {NT_GF_EV_EXIT_BAD, 1}, {END, 0}},
         NT_GF_CLOSED,
         NT_GANG_CANCELLED,
         0,
         NT_GF_DO_DISARM | NT_GF_DO_CLOSE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world w = rows[i].from_idle ? idle() : fresh();
        unsigned acts = 0;
        for (unsigned k = 0; rows[i].ev[k].ev != END; k++) {
            acts = step(&w, rows[i].ev[k].ev, rows[i].ev[k].rank);
        }
        if (w.f.state != rows[i].state || acts != rows[i].acts ||
            (w.f.blamed && (w.f.how != rows[i].how || w.f.whom != rows[i].whom))) {
            fail_msg("%s: state %d, end %d of rank %u, acts %u", rows[i].name, (int)w.f.state,
                     (int)w.f.how, w.f.whom, acts);
        }
    }
}

static void test_deadlines(void **state)
{
    struct world w = fresh();
    (void)state;
    assert_int_equal(w.f.arm_ms, times.hello_ms);
    (void)step(&w, NT_GF_EV_HELLO, 0);
    (void)step(&w, NT_GF_EV_HELLO, 1);
    assert_int_equal(w.f.arm_ms, times.init_ms);
    w = idle();
    (void)step(&w, NT_GF_EV_ASK, 0);
    assert_int_equal(w.f.arm_ms, ASK_MS);
    (void)step(&w, NT_GF_EV_STOP, 0);
    assert_int_equal(w.f.arm_ms, times.quit_ms);
    (void)step(&w, NT_GF_EV_TIMER, 0);
    assert_int_equal(w.f.arm_ms, times.grace_ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_deadlines),
                                       cmocka_unit_test(test_all_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
