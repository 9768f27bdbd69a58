/* What the service keeps: its queue, snapshots, states of profiles, thinned samples, backups. */
#include "tests/store/fixture.h"
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include "tuner/store/service.h"

struct seen {
    struct nt_store_entry e[8];
    size_t n;
};

static int see(void *data, const struct nt_store_entry *e, struct nt_err *err)
{
    struct seen *s = data;
    (void)err;
    s->e[s->n++] = *e;
    return 0;
}

static struct nt_store_entry entry(const char *cause, enum nt_queue_state state)
{
    return (struct nt_store_entry){.rig = "replay",
                                   .ask = "{}",
                                   .state = (uint8_t)state,
                                   .priority = 3,
                                   .cause = cause,
                                   .by = "me",
                                   .reason = ""};
}

static void test_queue(void **state)
{
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct seen got = {.n = 0};
    struct nt_store_entry a = entry("", NT_Q_QUEUED), b = entry("machine x", NT_Q_PROPOSED);
    int64_t one = 0, two = 0, three = 0;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    OK(nt_store_queue_add(s, &a, &one, &e));
    OK(nt_store_queue_add(s, &a, &two, &e)); /* people may ask twice */
    assert_true(one == 1 && two == 2);
    OK(nt_store_queue_add(s, &b, &three, &e));
    assert_int_equal(three, 3);
    OK(nt_store_queue_add(s, &b, &three, &e)); /* a cause is in the queue once */
    assert_int_equal(three, 0);
    OK(nt_store_queue_living(s, see, &got, &e));
    assert_int_equal(got.n, 3);
    assert_int_equal(strlen(got.e[0].key), 32);
    assert_string_not_equal(got.e[0].key, got.e[1].key);
    got.e[2].state = NT_Q_DONE;
    got.e[2].reason = "";
    got.e[2].owner = (struct nt_store_owner){.pid = 1, .start = 2, .boot = "b"};
    OK(nt_store_queue_save(s, &got.e[2], &e));
    OK(nt_store_queue_add(s, &b, &three, &e)); /* and again when it is over */
    assert_true(three > 3);
    got.n = 0;
    OK(nt_store_queue_list(s, NT_Q_DONE, 0, 8, see, &got, &e));
    assert_true(got.n == 1 && got.e[0].id == 3 && got.e[0].owner.pid == 1);
    got.n = 0;
    OK(nt_store_queue_list(s, -1, 4, 2, see, &got, &e));
    assert_true(got.n == 2 && got.e[0].id == 3 && got.e[1].id == 2);
    FAILS(nt_store_queue_load(s, 99, see, &got, &e), NT_E_MISSING, "no job 99");
    nt_store_close(s);
}

static void test_owner(void **state)
{
    struct nt_store_owner o = {0}, other;
    (void)state;
    assert_true(nt_store_owner_of(getpid(), &o));
    assert_true(nt_store_owner_alive(&o));
    other = o;
    other.start++;
    assert_false(nt_store_owner_alive(&other));
    assert_false(nt_store_owner_of(0x7ffffff0, &other));
}

static void test_key(void **state)
{
    static const char key[] = "0123456789abcdef0123456789abcdef";
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_owner owner;
    struct nt_store_job j = {.key = key, .spec = "{}", .ranks = 1, .nodes = 1};
    int64_t job = -1, found = -1;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    OK(nt_store_job_of_key(s, key, &found, &owner, &e));
    assert_int_equal(found, 0);
    OK(nt_store_job_create(s, &j, &job, &e));
    OK(nt_store_job_of_key(s, key, &found, &owner, &e));
    assert_true(found == job && owner.pid == getpid());
    FAILS(nt_store_job_create(s, &j, &job, &e), NT_E_INVAL, "does not take this row"); /* once */
    nt_store_close(s);
}

static void test_snapshot(void **state)
{
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_buf b;
    uint64_t at = 0;
    bool found = true;
    nt_buf_init(&b, 100);
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    OK(nt_store_snapshot_get(s, "machine", &b, &at, &found, &e));
    assert_false(found);
    OK(nt_store_snapshot_put(s, "machine", "{\"a\":1}", &e));
    OK(nt_store_snapshot_put(s, "machine", "{\"a\":2}", &e));
    OK(nt_store_snapshot_get(s, "machine", &b, &at, &found, &e));
    assert_true(found && at > 0);
    assert_string_equal(nt_buf_str(&b), "{\"a\":2}");
    nt_buf_done(&b);
    nt_store_close(s);
}

static int see_state(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    (void)err;
    *(int *)data = p->state;
    return 0;
}

static int see_rig(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    (void)err;
    (void)snprintf(data, 32, "%s", p->rig);
    return 0;
}

/* A replay's job has the rig that was recorded; its profile is no real node's. */
static void test_rig_of_a_replay(void **state)
{
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting, job, id = 0;
    char rig[32] = "";
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    OK(nt_store_save_profile(s, job, "{\"rig\": {\"kind\": \"recording\"}}", NULL, 0, &id, &e));
    OK(nt_store_profile_load(s, id, see_rig, rig, &e));
    assert_string_equal(rig, "recording");
    nt_store_close(s);
}

static void test_profiles(void **state)
{
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting, job, id = 0, before = 0, after = 0;
    int is = -1;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    OK(nt_store_save_profile(s, job, "{}", NULL, 0, &id, &e));
    OK(nt_store_version(s, &before, &e));
    OK(nt_store_profile_load(s, id, see_state, &is, &e));
    assert_int_equal(is, NT_PS_CURRENT);
    OK(nt_store_profile_set_state(s, id, NT_PS_RETIRED, "old", &e));
    OK(nt_store_version(s, &after, &e));
    assert_true(before != after);
    OK(nt_store_profile_list(s, 0, 10, see_state, &is, &e));
    assert_int_equal(is, NT_PS_RETIRED);
    OK(nt_store_profile_set_state(s, id, NT_PS_CURRENT, "", &e));
    OK(nt_store_profile_load(s, id, see_state, &is, &e));
    assert_int_equal(is, NT_PS_CURRENT);
    FAILS(nt_store_profile_load(s, 77, see_state, &is, &e), NT_E_MISSING, "no profile 77");
    nt_store_close(s);
}

/* Samples of old jobs become a few; the summary stays what it was. */
static void test_thin(void **state)
{
    enum { MANY = 500 };
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    uint32_t ns[MANY];
    uint64_t n = 0;
    int64_t setting, job;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    for (uint32_t i = 0; i < MANY; i++) {
        ns[i] = 1000 + (i * 7919) % MANY;
    }
    for (uint64_t seq = 2; seq < 5; seq++) {
        struct nt_store_trial t = {.seq = seq,
                                   .gang = 1,
                                   .cs = {.bytes = 1024},
                                   .setting = setting,
                                   .ns = ns,
                                   .count = seq == 4 ? 10 : MANY};
        OK(nt_store_add_trial(s, job, &t, &e));
    }
    OK(nt_store_thin(s, UINT64_C(1) << 50, 10, &n, &e));
    assert_int_equal(n, 0); /* the job is not over */
    OK(nt_store_job_set_state(s, job, NT_JOB_DONE, &e));
    OK(nt_store_thin(s, 1000, 10, &n, &e));
    assert_int_equal(n, 0); /* nor old */
    OK(nt_store_thin(s, UINT64_C(1) << 50, 1, &n, &e));
    assert_int_equal(n, 1);
    OK(nt_store_thin(s, UINT64_C(1) << 50, 10, &n, &e));
    assert_int_equal(n, 1);
    OK(nt_store_thin(s, UINT64_C(1) << 50, 10, &n, &e));
    assert_int_equal(n, 0);
    assert_int_equal(count_of(p->db, "SELECT sum(n) FROM trial"), 16 + 16 + 10);
    assert_int_equal(count_of(p->db, "SELECT sum(thinned) FROM trial"), 2 * MANY);
    assert_int_equal(count_of(p->db, "SELECT min(median_ns) FROM trial WHERE thinned > 0"), 1249);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial WHERE length(samples) <> 4 * n"),
                     0);
    nt_store_close(s);
}

static int entries_of(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d) != NULL) {
        n++;
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

/* Stopped, or without room: no copy, whole or half, under any name. */
static void backup_breaks_off(struct nt_store *s, const char *folder)
{
    struct nt_err e = {0};
    char path[160];
    volatile sig_atomic_t stop = 1;
    struct rlimit was, little;
    int n = entries_of(folder);

    (void)snprintf(path, sizeof(path), "%s/c.db", folder);
    for (int i = 0; i < 200; i++) {
        OK(nt_store_add_event(s, 0, "k", "some words that make it longer", &e));
    }
    FAILS(nt_store_backup(s, path, &stop, &e), NT_E_INTERRUPTED, "there is no backup");
    FAILS(nt_store_backup(s, "/nowhere/c.db", NULL, &e), NT_E_IO, "create /nowhere/c.db");
    assert_int_equal(entries_of(folder), n);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little = (struct rlimit){.rlim_cur = 8192, .rlim_max = was.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    FAILS(nt_store_backup(s, path, NULL, &e), NT_E_STORE, "backup to");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(entries_of(folder), n);
}

static void test_backup(void **state)
{
    const struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL, *copy = NULL;
    char path[160];
    static const char *const names[] = {"file:x.db?mode=memory", ":memory:", "x?#%.db"};
    int64_t setting;
    (void)snprintf(path, sizeof(path), "%s/b.db", p->folder);
    assert_int_equal(chdir(p->folder), 0); /* the names of no file are relative */
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    (void)start_job(s, &setting);
    OK(nt_store_begin(s, &e)); /* somebody writes meanwhile */
    OK(nt_store_end(s, 0, &e));
    OK(nt_store_backup(s, path, NULL, &e));
    FAILS(nt_store_backup(s, path, NULL, &e), NT_E_INVAL, "overwrites nothing");
    OK(nt_store_open(path, NT_STORE_READ, &copy, &e));
    assert_int_equal(count_of(path, "SELECT count(*) FROM job"), 1);
    nt_store_close(copy);
    for (size_t i = 0; i < NT_COUNT(names); i++) {
        OK(nt_store_backup(s, names[i], NULL, &e));
        if (access(names[i], F_OK) != 0 || unlink(names[i]) != 0) {
            fail_msg("no file '%s'", names[i]);
        }
    }
    FAILS(nt_store_backup(s, "", NULL, &e), NT_E_INVAL, "empty");
    backup_breaks_off(s, p->folder);
    nt_store_close(s);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, place_make, place_remove)
    const struct CMUnitTest tests[] = {T(test_queue),    T(test_owner),    T(test_key),
                                       T(test_snapshot), T(test_profiles), T(test_rig_of_a_replay),
                                       T(test_thin),     T(test_backup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
