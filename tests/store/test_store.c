/* What goes in comes out again: contents, jobs, steps, conclusions, imports, merging. */
#include "tests/store/fixture.h"

static void test_content_is_kept_once(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    const struct nt_store_setting rows[] = {
        {.call = NT_CALL_DEFAULT},
        {.vars = "NCCL_MIN_NCHANNELS=16", .call = NT_CALL_DEFAULT},
        {.call = {.algo = NT_RING, .proto = NT_LL, .channels = 4}},
        {.call = {.algo = NT_RING, .proto = NT_LL, .channels = 8}},
        {.vars = "A='; DROP TABLE job; --\nB=AWS Libfabric",
         .call = {.algo = NT_TREE, .proto = NT_SIMPLE}},
        {.call = {.algo = -1, .proto = -1, .chunk_bytes = 65536}},
    };
    int64_t ids[NT_COUNT(rows)], again = 0;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        OK(nt_store_put_setting(s, &rows[i], &ids[i], &e));
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(ids[i], ids[k]);
        }
    }
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        struct nt_buf vars;
        struct nt_call call;
        nt_buf_init(&vars, 1000);
        OK(nt_store_put_setting(s, &rows[i], &again, &e));
        assert_int_equal(again, ids[i]);
        OK(nt_store_get_setting(s, ids[i], &vars, &call, &e));
        assert_string_equal(nt_buf_str(&vars), rows[i].vars != NULL ? rows[i].vars : "");
        assert_memory_equal(&call, &rows[i].call, sizeof(call));
        nt_buf_done(&vars);
    }
    FAILS(nt_store_get_setting(s, 99, NULL, &(struct nt_call){0}, &e), NT_E_INVAL, "no setting 99");
    FAILS(nt_store_put_setting(
              s, &(struct nt_store_setting){.call = {.algo = NT_RING, .proto = -1}}, &again, &e),
          NT_E_INVAL, "algorithm");
    /* Texts with shifted borders are different content. */
    OK(nt_store_put_host(s, &(struct nt_store_host){"a", "b"}, &ids[0], &e));
    OK(nt_store_put_host(s, &(struct nt_store_host){"ab", ""}, &ids[1], &e));
    OK(nt_store_put_host(s, &(struct nt_store_host){"a", "b"}, &again, &e));
    assert_int_not_equal(ids[0], ids[1]);
    assert_int_equal(ids[0], again);
    OK(nt_store_put_topology(s, &(struct nt_store_topology){.identity = "0123456789ab"}, &ids[0],
                             &e));
    OK(nt_store_put_stack(s, &(struct nt_store_stack){.nccl = "2.28.9"}, &ids[1], &e));
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM setting"), NT_COUNT(rows));
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM setting WHERE label IN ('default',"
                                     " 'NCCL_MIN_NCHANNELS=16', 'ring/ll/4')"),
                     3);
}

static int keep_job(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    (void)err;
    *(struct nt_store_job *)data = *j;
    assert_true(j->host == 0 || strcmp(j->placement, "c1a55") == 0);
    assert_string_equal(j->spec, "{\"ranks\":4}");
    assert_int_equal(strlen(j->key), 32);
    return 0;
}

static void test_life_of_a_job(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_job j = {0};
    int64_t setting = 0, host = 0, job;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    FAILS(nt_store_job_load(s, 1, keep_job, &j, &e), NT_E_INVAL, "no job 1; it has none");
    job = start_job(s, &setting);
    OK(nt_store_job_load(s, job, keep_job, &j, &e));
    assert_int_equal(j.state, NT_JOB_NEW);
    assert_true(j.owned);
    assert_int_equal(j.host, 0);
    assert_int_equal(j.finished_ms, 0);
    OK(nt_store_put_host(s, &(struct nt_store_host){"a", ""}, &host, &e));
    OK(nt_store_job_claim(s, job, &e)); /* ours already: fine */
    OK(nt_store_job_set_place(s, job, 0, host, 0, "c1a55", &e));
    OK(nt_store_job_set_place(s, job, 0, 0, 0, NULL, &e)); /* keeps */
    OK(nt_store_checkpoint_stage(s, job, "race", 123, &e));
    OK(nt_store_job_list(s, keep_job, &j, &e));
    assert_int_equal(j.state, NT_JOB_RUNNING);
    assert_int_equal(j.host, host);
    assert_int_equal(j.device_ns, 123);
    assert_int_equal(j.steps, 1);
    assert_int_equal(j.trials, 0);
    assert_int_equal(j.seed, 7);
    OK(nt_store_job_set_state(s, job, NT_JOB_DONE, &e));
    OK(nt_store_job_release(s, job, &e));
    OK(nt_store_job_load(s, job, keep_job, &j, &e));
    assert_int_equal(j.state, NT_JOB_DONE);
    assert_false(j.owned);
    assert_true(j.finished_ms >= j.created_ms && j.created_ms > 1600000000000);
    FAILS(nt_store_job_claim(s, 12, &e), NT_E_INVAL, "no job 12; it has 1");
    FAILS(nt_store_job_release(s, 12, &e), NT_E_INVAL, "no job 12");
    FAILS(nt_store_job_set_state(s, 12, NT_JOB_DONE, &e), NT_E_INVAL, "no job 12");
    FAILS(nt_store_checkpoint_stage(s, 12, "x", 0, &e), NT_E_INVAL, "no job 12");
    nt_store_close(s);
}

static void test_steps_come_back_in_order(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_cursor *c = NULL;
    const struct nt_store_step *st = NULL;
    int64_t setting = 0, job, other;
    struct nt_store_cells cells = {.seq = 3, .gang = 1, .cs = CASE_14K, .asked = true};
    struct nt_store_trial empty, trial;

    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    other = start_job(s, &setting);
    cells.cost[NT_RING][NT_LL] = 6.25F;
    cells.cost[NT_PAT][NT_SIMPLE] = -1;
    trial = some_trial(4, setting);
    empty = (struct nt_store_trial){.seq = 2,
                                    .gang = 1,
                                    .cs = CASE_14K,
                                    .setting = setting,
                                    .executed = NT_EXECUTED_NONE,
                                    .status = NT_ST_TIMEOUT};
    OK(nt_store_add_trial(s, job, &trial, &e)); /* in any order */
    OK(nt_store_add_cells(s, job, &cells, &e));
    OK(nt_store_add_trial(s, job, &empty, &e));
    OK(nt_store_add_trial(s, other, &trial, &e));

    OK(nt_store_steps_open(s, job, 1, &c, &e));
    OK(nt_store_steps_next(c, &st, &e));
    assert_int_equal(st->kind, NT_STEP_GANG);
    assert_int_equal(st->gang.seq, 1);
    assert_int_equal(st->gang.init_ns, 6);
    assert_string_equal(st->gang.arm, "search");
    OK(nt_store_steps_next(c, &st, &e));
    assert_int_equal(st->kind, NT_STEP_TRIAL);
    assert_int_equal(st->trial.count, 0);
    assert_int_equal(st->trial.status, NT_ST_TIMEOUT);
    assert_true(nt_executed_equal(&st->trial.executed, &NT_EXECUTED_NONE));
    OK(nt_store_steps_next(c, &st, &e));
    assert_int_equal(st->kind, NT_STEP_CELLS);
    assert_memory_equal(st->cells.cost, cells.cost, sizeof(cells.cost));
    assert_true(nt_case_equal(&st->cells.cs, &cells.cs));
    assert_true(st->cells.asked);
    OK(nt_store_steps_next(c, &st, &e));
    assert_int_equal(st->kind, NT_STEP_TRIAL);
    assert_int_equal(st->trial.count, trial.count);
    assert_memory_equal(st->trial.ns, trial.ns, 4 * trial.count);
    assert_true(nt_executed_equal(&st->trial.executed, &trial.executed));
    assert_int_equal(st->trial.own_chunk_bytes, trial.own_chunk_bytes);
    assert_true(nt_case_equal(&st->trial.cs, &trial.cs));
    assert_string_equal(st->trial.error, trial.error);
    assert_int_equal(st->trial.wrong, 5);
    assert_int_equal(st->trial.flags, 6);
    OK(nt_store_steps_next(c, &st, &e));
    assert_null(st);
    nt_store_steps_close(c);

    OK(nt_store_steps_open(s, job, 4, &c, &e));
    OK(nt_store_steps_next(c, &st, &e));
    assert_int_equal(st->trial.seq, 4);
    nt_store_steps_close(c);
    nt_store_close(s);
}

static void test_bad_steps_leave_nothing(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    struct nt_store_trial t;
    struct nt_store_gang g = {.seq = 9, .number = 1, .arm = "x"};

    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    g.setting = setting;
    t = some_trial(1, setting);
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "step"); /* seq taken by the gang */
    t.seq = 0;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "CHECK");
    t.seq = 2;
    t.gang = 3;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "FOREIGN KEY");
    t.gang = 1;
    t.setting = 77;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "FOREIGN KEY");
    t.setting = setting;
    t.elapsed_ns = UINT64_MAX;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "large");
    t.elapsed_ns = 0;
    t.status = NT_STATUS_COUNT;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "status");
    t.status = NT_ST_OK;
    t.cs.coll = 200;
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "case");
    t.cs.coll = NT_ALL_REDUCE;
    FAILS(nt_store_add_trial(s, job + 1, &t, &e), NT_E_INVAL, "FOREIGN KEY");
    FAILS(nt_store_add_gang(s, job, &g, &e), NT_E_INVAL, "gang"); /* its number is taken */
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM step"), 1);
    OK(nt_store_add_trial(s, job, &t, &e));

    /* Inside a transaction one failure undoes all of it, even if the caller forgot. */
    OK(nt_store_begin(s, &e));
    FAILS(nt_store_begin(s, &e), NT_E_BUG, "inside");
    t.seq = 3;
    OK(nt_store_add_trial(s, job, &t, &e));
    FAILS(nt_store_add_trial(s, job, &t, &e), NT_E_INVAL, "UNIQUE");
    FAILS(nt_store_end(s, 0, &e), NT_E_STORE, "undone");
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM step"), 2);
    OK(nt_store_begin(s, &e));
    OK(nt_store_add_trial(s, job, &t, &e));
    OK(nt_store_end(s, 0, &e));
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM step"), 3);
    nt_store_close(s);
}

static void test_summary_of_samples(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    uint32_t ns[100];
    struct nt_store_trial t;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    for (uint32_t i = 0; i < 100; i++) {
        ns[i] = 1000 * ((i * 37) % 100 + 1); /* 1000 … 100000, shuffled */
    }
    t = some_trial(2, setting);
    t.ns = ns;
    for (size_t n = 1; n <= 100; n += 99) {
        t.count = n;
        OK(nt_store_add_trial(s, job, &t, &e));
        t.seq++;
    }
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial WHERE seq = 3 AND n = 100 AND"
                                     " median_ns = 50500 AND mean_ns = 50500 AND min_ns = 1000 AND"
                                     " p95_ns = 95000 AND abs(sd_ns - 29011.49) < 0.01"),
                     1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial WHERE seq = 2 AND n = 1 AND"
                                     " median_ns = 1000 AND p95_ns = 1000 AND sd_ns = 0 AND"
                                     " samples = x'e8030000'"),
                     1);
}

static int keep_verdict(void *data, const struct nt_store_verdict *v, struct nt_err *err)
{
    struct nt_store_verdict *out = data;
    (void)err;
    *out = *v;
    out->reason = NULL;
    assert_string_equal(v->reason, "second words");
    return 0;
}

static void test_conclusions(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job, id = 0, again = 0;
    struct nt_buf json;
    struct nt_store_verdict got = {0}, v = {.stage = "confirm",
                                            .product = "table",
                                            .cs = CASE_14K,
                                            .kind = NT_STORE_NO_WINNER,
                                            .speedup = 1.25,
                                            .lo = 1.2,
                                            .hi = 1.3,
                                            .p = NAN,
                                            .default_ns = 100,
                                            .tuned_ns = 80,
                                            .pairs = 12,
                                            .reason = "first words"};
    struct nt_store_profile_row row = {.product = "table",
                                       .min_bytes = 8192,
                                       .max_bytes = 16384,
                                       .cs = CASE_14K,
                                       .kind = NT_STORE_WINNER,
                                       .default_ns = 100,
                                       .as_found_ns = NAN,
                                       .tuned_ns = 80,
                                       .speedup = 1.25,
                                       .lo = 1.2,
                                       .hi = 1.3,
                                       .p = 0.001,
                                       .pairs = 12};
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    v.setting = row.setting = setting;
    OK(nt_store_save_verdict(s, job, &v, &e));
    v.reason = "second words";
    v.kind = NT_STORE_WINNER;
    OK(nt_store_save_verdict(s, job, &v, &e)); /* replaces */
    OK(nt_store_verdicts(s, job, keep_verdict, &got, &e));
    assert_int_equal(got.kind, NT_STORE_WINNER);
    assert_true(got.speedup == 1.25 && isnan(got.p) && got.pairs == 12);
    v.lo = 2;
    FAILS(nt_store_save_verdict(s, job, &v, &e), NT_E_INVAL, "CHECK");

    nt_buf_init(&json, 64);
    FAILS(nt_store_load_profile(s, job, &json, &e), NT_E_MISSING, "no profile yet");
    FAILS(nt_store_load_profile(s, job + 9, &json, &e), NT_E_INVAL, "holds no job");
    OK(nt_store_save_profile(s, job, "{\"format\":1}", &row, 1, &id, &e));
    OK(nt_store_save_profile(s, job, "{\"format\":1}", &row, 1, &again, &e));
    assert_int_equal(id, again);
    FAILS(
        nt_store_save_profile(s, job, "{}", (struct nt_store_profile_row[]){row, row}, 2, &id, &e),
        NT_E_INVAL, "UNIQUE");
    row.speedup = 1.5;
    OK(nt_store_save_profile(s, job, "{\"format\":2}", &row, 1, &again, &e));
    OK(nt_store_load_profile(s, job, &json, &e));
    assert_string_equal(nt_buf_str(&json), "{\"format\":2}");
    nt_buf_done(&json);
    OK(nt_store_add_event(s, job, "start", "words", &e));
    OK(nt_store_add_event(s, 0, "start", NULL, &e));
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM profile"), 2);
    /* The newest profile only. */
    assert_int_equal(
        count_of(
            p->db,
            "SELECT count(*) FROM speedups WHERE gain_pct = 33.33 AND"
            " lo_pct = 16.67 AND verdict = 'tuned' AND tuned_us = 0.08 AND setting = 'default'"),
        1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM speedups"), 1);
}

static const struct nt_store_import file_a = {
    .source = "a.txt",
    .sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    .kind = "table",
    .provenance = "{}",
    .setup = "8 x H100"};
#define ROW(backend_, bytes_, ns_, sd_, rep_)                                                      \
    {                                                                                              \
        .collective = "all_reduce", .dtype = "bf16", .mode = "eager", .backend = (backend_),       \
        .bytes = (bytes_), .ranks = 4, .ns = (ns_), .sd_ns = (sd_), .repeat = (rep_),              \
        .algbw_gbps = NAN, .busbw_gbps = NAN, .wrong = -1                                          \
    }

static void test_imports_and_best(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t id = 0, again = 0;
    bool known = true;
    struct nt_store_measurement rows[] = {
        ROW("one", 1024, 10000, NAN, 0),  ROW("two", 1024, 16000, NAN, 0), /* winner */
        ROW("one", 2048, 10000, NAN, 0),  ROW("two", 2048, 10100, NAN, 0), /* tie */
        ROW("one", 4096, 10000, 3000, 0), ROW("two", 4096, 12000, 0, 0),   /* sd */
        ROW("one", 8192, 10000, NAN, 0),  ROW("two", 8192, 11000, NAN, 0), /* repeats overlap */
        ROW("one", 8192, 14000, NAN, 1),  ROW("two", 8192, 13500, NAN, 1),
        ROW("one", 16384, 100, NAN, 0),   ROW("two", 16384, 12000, NAN, 0), /* not credible */
        ROW("one", 32768, 9000, NAN, 0),  ROW("bad", 32768, 5000, NAN, 0),  /* wrong data */
        ROW("one", 65536, NAN, NAN, 0),   ROW("two", 65536, NAN, NAN, 0),   /* bandwidth only */
    };
    static const struct {
        unsigned bytes;
        const char *best, *verdict;
    } want[] = {{1024, "one", "winner"},
                {2048, "one", "tie"},
                {4096, "one", "no winner: too noisy"},
                {8192, "one", "no winner: too noisy"},
                {16384, "one", "gain not credible: outlier"},
                {32768, "one", "only one"},
                {65536, "two", "winner"}};
    rows[13].wrong = 3;
    rows[14].algbw_gbps = 5;
    rows[15].algbw_gbps = 8;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    OK(nt_store_add_import(s, &file_a, rows, NT_COUNT(rows), &id, &known, &e));
    assert_false(known);
    OK(nt_store_add_import(s, &file_a, rows, NT_COUNT(rows), &again, &known, &e));
    assert_true(known);
    assert_int_equal(id, again);
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM measurement"), NT_COUNT(rows));
    for (size_t i = 0; i < NT_COUNT(want); i++) {
        char sql[256];
        (void)snprintf(sql, sizeof(sql),
                       "SELECT count(*) FROM best WHERE bytes = %u AND best = '%s' AND verdict = "
                       "'%s'",
                       want[i].bytes, want[i].best, want[i].verdict);
        if (count_of(p->db, sql) != 1) {
            fail_msg("%s", sql);
        }
    }
}

static void test_best_compares_one_setup_only(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_import im = file_a;
    struct nt_store_measurement fast = ROW("fast", 1024, 5000, NAN, 0),
                                slow = ROW("slow", 1024, 9000, NAN, 0);
    static const char *const hashes[] = {
        "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "2123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "3123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "4123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    static const char *const setups[] = {"x", "x", "", ""};
    int64_t id = 0;
    bool known = false;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    for (size_t i = 0; i < NT_COUNT(hashes); i++) {
        im.sha256 = hashes[i];
        im.setup = setups[i];
        OK(nt_store_add_import(s, &im, i % 2 == 0 ? &fast : &slow, 1, &id, &known, &e));
    }
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM best WHERE second = 'slow'"), 1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM best WHERE verdict = 'only one'"), 2);
}

static void test_noise_and_drift(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    struct nt_store_trial t;
    const uint32_t alone = 120000;
    struct nt_store_gang g = {.seq = 100, .number = 2, .arm = "search"};
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    g.setting = setting;
    OK(nt_store_add_gang(s, job, &g, &e));
    for (uint64_t i = 0; i < 8; i++) { /* gang 1: 100, 100, …; gang 2: 120, 120, … and later */
        uint32_t ns = i < 4 ? 100000 : 120000;
        t = some_trial((i < 4 ? 2 : 200) + i, setting);
        t.flags = 1;
        t.gang = i < 4 ? 1 : 2;
        t.ns = &ns;
        t.count = 1;
        OK(nt_store_add_trial(s, job, &t, &e));
    }
    t.seq = 250;
    t.ns = &alone;
    t.cs.bytes *= 2;
    OK(nt_store_add_trial(s, job, &t, &e));
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM noise WHERE gangs = 2 AND blocks = 8 AND"
                                     " mean_us = 110.0 AND between_gangs_pct = 9.09 AND"
                                     " within_gang_pct = 0.0"),
                     1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM noise WHERE gangs = 1 AND"
                                     " between_gangs_pct IS NULL"),
                     1); /* one gang does not differ from itself: that says nothing */
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM drift WHERE blocks = 8 AND"
                                     " first_us = 100.0 AND last_us = 120.0 AND drift_pct = 20.0"),
                     1);
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    /* A table's gang, which is asked for the default and runs its rows, and a call beside compute.
     */
    g = (struct nt_store_gang){.seq = 300, .number = 3, .arm = "table", .setting = setting};
    OK(nt_store_add_gang(s, job, &g, &e));
    for (uint64_t i = 0; i < 2; i++) {
        uint32_t ns = 5000;
        t = some_trial(301 + i, setting);
        t.gang = i == 0 ? 3 : 1;
        t.flags = i == 0 ? 0 : 2; /* beside compute */
        t.ns = &ns;
        t.count = 1;
        OK(nt_store_add_trial(s, job, &t, &e));
    }
    nt_store_close(s);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM noise WHERE gangs = 2 AND blocks = 8"),
                     1);
}

static void test_merge(void **state)
{
    static const struct {
        const char *sql, *back, *says;
    } spoils[] = {{"UPDATE setting SET id = id + 100", "UPDATE setting SET id = id - 100",
                   "setting); nothing of it was merged"},
                  {"UPDATE trial SET seq = 99 WHERE seq = 3",
                   "UPDATE trial SET seq = 3 WHERE seq = 99", "trial"},
                  {"INSERT INTO step VALUES (1, 50, 3)", "DELETE FROM step WHERE seq = 50",
                   "step 50 of job 1"}};
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *a = NULL, *b = NULL;
    char other[128];
    int64_t setting = 0, job_a, job_b, id = 0;
    bool known = false;
    struct nt_store_merged m = {0};
    struct nt_store_trial t;
    struct nt_store_setting extra = {.vars = "X=1", .call = NT_CALL_DEFAULT};
    struct nt_store_measurement row = ROW("fast", 1024, 5000, NAN, 0);
    struct nt_store_profile_row prow = {.product = "table",
                                        .cs = CASE_14K,
                                        .default_ns = 1,
                                        .as_found_ns = NAN,
                                        .tuned_ns = 1,
                                        .speedup = 1,
                                        .lo = 1,
                                        .hi = 1,
                                        .p = NAN};
    struct nt_store_check_row check_row = {.cs = CASE_14K,
                                           .setting = 1,
                                           .min_bytes = 1,
                                           .max_bytes = 2,
                                           .was_ratio = 2,
                                           .ratio = 1.25,
                                           .lo = 1.2,
                                           .hi = 1.3,
                                           .default_ns = NAN,
                                           .tuned_ns = NAN,
                                           .verdict = "drifted"};
    const struct nt_store_check checked = {
        .profile = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        .product = "table",
        .ranks = 2,
        .nodes = 1,
        .pairs = 3,
        .verdict = "drifted",
        .copy_bytes = 4000,
        .copy_ns = 1000,
        .launch_ns = NAN};

    (void)snprintf(other, sizeof(other), "%s/b.db", p->folder);
    OK(nt_store_open(p->db, NT_STORE_WRITE, &a, &e));
    OK(nt_store_open(other, NT_STORE_WRITE, &b, &e));
    job_a = start_job(a, &setting);
    t = some_trial(2, setting);
    OK(nt_store_add_trial(a, job_a, &t, &e));
    OK(nt_store_put_setting(b, &extra, &id, &e)); /* ids differ there */
    job_b = start_job(b, &setting);
    t.setting = prow.setting = setting;
    OK(nt_store_add_trial(b, job_b, &t, &e));
    OK(nt_store_save_profile(b, job_b, "{}", &prow, 1, &id, &e));
    OK(nt_store_add_event(b, job_b, "kind", "text", &e));
    OK(nt_store_add_event(b, 0, "kind", "text", &e));
    OK(nt_store_add_import(b, &file_a, &row, 1, &id, &known, &e));
    OK(nt_store_add_check(a, &checked, &check_row, 1, &id, &e));
    check_row.setting = setting;
    OK(nt_store_add_check(b, &checked, &check_row, 1, &id, &e));

    OK(nt_store_merge(a, other, &m, &e));
    assert_int_equal(m.jobs, 1);
    assert_int_equal(m.trials, 1);
    assert_int_equal(m.measurements, 1);
    assert_int_equal(m.profiles, 1);
    assert_int_equal(m.conflicts, 0);
    OK(nt_store_merge(a, other, &m, &e)); /* again: nothing */
    assert_true(m.jobs + m.trials + m.measurements + m.profiles + m.conflicts == 0);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM event"), 2);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM checks WHERE setting = 'default' AND"
                                     " was_gain_pct = 50 AND gain_pct = 20 AND copy_gbps = 4"),
                     2);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trials WHERE setting = 'default'"), 2);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM job WHERE owner_pid IS NULL"), 1);

    /* The job goes on there: its further steps follow. */
    t.seq = 3;
    OK(nt_store_add_trial(b, job_b, &t, &e));
    OK(nt_store_checkpoint_stage(b, job_b, "confirm", 9, &e));
    OK(nt_store_merge(a, other, &m, &e));
    assert_int_equal(m.trials, 1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM job WHERE stage = 'confirm'"), 1);
    /* The same, while a process drives it here: its steps are that one's. */
    run_sql(p->db, "UPDATE job SET (state, owner_pid, owner_boot, owner_start) = (SELECT 'running',"
                   " owner_pid, owner_boot, owner_start FROM job WHERE id = 1) WHERE id = 2");
    t.seq = 4;
    OK(nt_store_add_trial(b, job_b, &t, &e));
    OK(nt_store_merge(a, other, &m, &e));
    assert_true(m.driven == 1 && m.trials + m.conflicts == 0);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM job WHERE state = 'running'"), 1);
    OK(nt_store_merge(b, p->db, &m, &e)); /* nor does what is behind there change it */
    assert_true(m.driven == 0 && m.trials == 1);
    run_sql(p->db, "UPDATE job SET state = 'interrupted', owner_pid = NULL WHERE id = 2");
    OK(nt_store_merge(a, other, &m, &e));
    assert_true(m.driven == 0 && m.trials == 1);
    /* It goes on differently in both: left alone, and said. */
    t.seq = 5;
    OK(nt_store_add_trial(b, job_b, &t, &e));
    t.elapsed_ns = 77;
    t.setting = 1;
    OK(nt_store_add_trial(a, 2, &t, &e));
    OK(nt_store_merge(a, other, &m, &e));
    assert_int_equal(m.conflicts, 1);
    assert_int_equal(m.trials, 0);
    FAILS(nt_store_merge(a, "/nonexistent/x.db", &m, &e), NT_E_MISSING, "no database at");
    OK(nt_store_merge(a, p->db, &m, &e)); /* with itself */
    assert_true(m.jobs + m.trials + m.conflicts == 0);
    nt_store_close(b);
    /* Rows are missing there: joins would leave out what needs them. */
    for (size_t i = 0; i < NT_COUNT(spoils); i++) {
        run_sql(other, spoils[i].sql);
        FAILS(nt_store_merge(a, other, &m, &e), NT_E_DAMAGED, spoils[i].says);
        run_sql(other, spoils[i].back);
    }
    OK(nt_store_merge(a, other, &m, &e));
    nt_store_close(a);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        T(test_content_is_kept_once),     T(test_life_of_a_job),
        T(test_steps_come_back_in_order), T(test_bad_steps_leave_nothing),
        T(test_summary_of_samples),       T(test_conclusions),
        T(test_imports_and_best),         T(test_best_compares_one_setup_only),
        T(test_noise_and_drift),          T(test_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
