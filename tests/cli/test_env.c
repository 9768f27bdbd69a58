/* What of the caller's settings becomes a constraint, what is as found, and what is worth a gang.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/cli/env.h"
#include "tuner/deliver/active.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define HASH     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char folder[] = "/tmp/nt-env-XXXXXX";

static void write_file(const char *name, const char *text, char *path, size_t size)
{
    FILE *f;
    (void)snprintf(path, size, "%s/%s", folder, name);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* NULL: the variable is not in the list at all. */
static const char *in_list(struct nt_env *e, const char *name)
{
    size_t n = strlen(name);
    const char *value = NULL;
    for (const char *const *v = nt_env_list(e); *v != NULL; v++) {
        if (strncmp(*v, name, n) == 0 && (*v)[n] == '=') {
            value = *v + n + 1;
        }
    }
    return value;
}

static void clean(void)
{
    static const char *const names[] = {"NCCL_BUFFSIZE",    "NCCL_CONF_FILE", "NCCLTUNE_ACTIVE",
                                        "NCCLTUNE_PROFILE", "NCCLTUNE_TABLE", "NCCLTUNE_DISABLE",
                                        "NCCL_NVLS_ENABLE"};
    for (size_t i = 0; i < COUNT(names); i++) {
        (void)unsetenv(names[i]);
    }
}

/* Files beat one another in NCCL's order, and the environment beats them. */
static void test_files(void **state)
{
    static const struct {
        const char *name;
        const char *env, *user, *system; /* contents */
        const char *as_found, *fixed;
        const char *variable, *value; /* of every arm */
        const char *said;
    } rows[] = {
        {"nothing", NULL, "", "", "", "", "NCCL_BUFFSIZE", NULL, NULL},
        {"the user's", NULL, "NCCL_BUFFSIZE=1048576\n", "", "NCCL_BUFFSIZE=1048576", "",
         "NCCL_BUFFSIZE", NULL, NULL},
        {"the environment wins", "NCCL_BUFFSIZE=2097152", "NCCL_BUFFSIZE=1048576\n", "",
         "NCCL_BUFFSIZE=2097152", "", "NCCL_BUFFSIZE", NULL, NULL},
        {"the first line wins", NULL, "NCCL_BUFFSIZE=1048576\nNCCL_BUFFSIZE=8388608\n", "",
         "NCCL_BUFFSIZE=1048576", "", "NCCL_BUFFSIZE", NULL, NULL},
        {"the user's beats the system's", NULL, "NCCL_BUFFSIZE=1048576\n",
         "NCCL_BUFFSIZE=8388608\n", "NCCL_BUFFSIZE=1048576", "", "NCCL_BUFFSIZE", NULL, NULL},
        /* NCCL reads the system's in any case */
        {"the system's, taken out of the default", NULL, "", "NCCL_BUFFSIZE=8388608\n",
         "NCCL_BUFFSIZE=8388608", "", "NCCL_BUFFSIZE", "", "take the line out"},
        {"the system's, which stays", NULL, "", "NCCL_ALGO=Ring\n", "", "NCCL_ALGO=Ring",
         "NCCL_ALGO", "Ring", "NCCL_ALGO=Ring in every process"},
        {"a constraint of the user's", NULL, "NCCL_SOCKET_IFNAME=eth1\nNCCL_NVLS_ENABLE=0\n", "",
         "", "NCCL_SOCKET_IFNAME=eth1 NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE", "0", NULL},
        {"a constraint of the system's", NULL, "", "NCCL_NVLS_ENABLE=0\n", "", "NCCL_NVLS_ENABLE=0",
         "NCCL_NVLS_ENABLE", "0", NULL},
        {"not NCCL's", NULL, "HOME=/x\nNCCL_DEBUG=INFO\n# NCCL_ALGO=Tree\n", "", "", "",
         "NCCL_DEBUG", "WARN", NULL},
        {"a blank", NULL, "NCCL_ALGO=Ring \n", "", "", "", "NCCL_ALGO", NULL, "has a blank"},
        {"a plugin of the system's", NULL, "", "NCCL_TUNER_PLUGIN=/x/libtuner.so\n",
         "NCCL_TUNER_PLUGIN=/x/libtuner.so", "", "NCCL_TUNER_PLUGIN", NULL, NULL},
        {"a profile whose table is gone", NULL, "",
         "NCCL_TUNER_PLUGIN=/x/t.so\nNCCLTUNE_PROFILE=" HASH
         "\nNCCLTUNE_TABLE=/nowhere/t.nctable\n",
         "NCCL_TUNER_PLUGIN=/x/t.so", "", "NCCLTUNE_PROFILE", NULL, "cannot be read"},
        {"a profile", NULL, "", "NCCLTUNE_PROFILE=" HASH "\nNCCLTUNE_TABLE=/dev/null\n",
         "NCCLTUNE_PROFILE=" HASH " NCCLTUNE_TABLE=/dev/null", "", "NCCLTUNE_PROFILE", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_env e;
        struct nt_spec s;
        struct nt_strs none = {.n = 0};
        struct nt_err err = {0};
        const char *value;
        char copy[64];

        clean();
        if (rows[i].env != NULL) {
            (void)snprintf(copy, sizeof(copy), "%s", rows[i].env);
            *strchr(copy, '=') = '\0';
            assert_int_equal(setenv(copy, strchr(rows[i].env, '=') + 1, 1), 0);
        }
        nt_env_init(&e);
        nt_spec_init(&s);
        e.places.active[0] = '\0';
        write_file("user", rows[i].user, e.places.user, sizeof(e.places.user));
        write_file("system", rows[i].system, e.places.system, sizeof(e.places.system));
        if (nt_env_take(&e, &s, NULL, &none, &none, &err) != 0) {
            fail_msg("%s: %s", rows[i].name, err.msg);
        }
        value = in_list(&e, rows[i].variable);
        if (strcmp(s.as_found, rows[i].as_found) != 0 || strcmp(s.fixed, rows[i].fixed) != 0 ||
            (value == NULL) != (rows[i].value == NULL) ||
            (value != NULL && strcmp(value, rows[i].value) != 0) ||
            (rows[i].said == NULL) != (e.said.len == 0) ||
            (rows[i].said != NULL && strstr(nt_buf_str(&e.said), rows[i].said) == NULL)) {
            fail_msg("%s: found '%s', fixed '%s', %s=%s, said '%s'", rows[i].name, s.as_found,
                     s.fixed, rows[i].variable, value != NULL ? value : "(none)",
                     nt_buf_str(&e.said));
        }
        nt_env_done(&e);
    }
    clean();
}

/* A machine that is tuned anew has the profile of last time: that is what the new one must beat. */
static void test_active(void **state)
{
    static const struct {
        const char *boot, *off; /* boot NULL: this one */
        const char *as_found;
    } rows[] = {
        {NULL, NULL, "NCCL_BUFFSIZE=8388608 NCCLTUNE_PROFILE=" HASH " NCCLTUNE_TABLE=/dev/null"},
        {"another", NULL, ""},
        {NULL, "1", ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct nt_assign vars[] = {{"NCCL_BUFFSIZE", "8388608"},
                                         {"NCCLTUNE_PROFILE", HASH},
                                         {"NCCLTUNE_TABLE", "/dev/null"}};
        struct nt_strs none = {.n = 0};
        struct nt_env e;
        struct nt_spec s;
        struct nt_buf text;
        char boot[40], path[256];

        clean();
        nt_boot_id(boot);
        nt_buf_init(&text, NT_ACTIVE_MAX);
        assert_int_equal(nt_active_write(vars, COUNT(vars),
                                         rows[i].boot != NULL ? rows[i].boot : boot, &text, NULL),
                         0);
        write_file("active", nt_buf_str(&text), path, sizeof(path));
        assert_int_equal(setenv("NCCLTUNE_ACTIVE", path, 1), 0);
        if (rows[i].off != NULL) {
            assert_int_equal(setenv("NCCLTUNE_DISABLE", rows[i].off, 1), 0);
        }
        nt_env_init(&e);
        nt_spec_init(&s);
        e.places.user[0] = e.places.system[0] = '\0';
        assert_int_equal(nt_env_take(&e, &s, NULL, &none, &none, NULL), 0);
        assert_string_equal(s.as_found, rows[i].as_found);
        nt_env_done(&e);
        nt_buf_done(&text);
    }
    clean();
}

static void test_visible(void **state)
{
    static const struct {
        const char *text;
        int of, left;
    } rows[] = {{NULL, 8, 8},  {"", 8, 0},         {"0", 8, 1},  {"0,1", 8, 2},
                {"0,1", 1, 1}, {"4,-1,5", 8, 1},   {"-1", 8, 0}, {"GPU-a,GPU-b,", 8, 2},
                {",", 8, 0},   {"MIG-a/1/0", 2, 1}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(nt_env_visible(rows[i].text, rows[i].of), rows[i].left);
    }
}

static void test_devices(void **state)
{
    static const struct {
        const char *list;
        unsigned ranks, rc, n;
        unsigned v[3];
    } rows[] = {{NULL, 2, 0, 2, {0}},          {"", 0, 0, 0, {0}},     {"4,5", 0, 0, 2, {4, 5}},
                {"7,0,3", 3, 0, 3, {7, 0, 3}}, {"4,5", 3, 1, 0, {0}},  {"4,", 0, 1, 0, {0}},
                {"4 5", 0, 1, 0, {0}},         {"0,300", 0, 1, 0, {0}}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_env e;
        struct nt_spec s;
        bool named = rows[i].list != NULL && rows[i].list[0] != '\0';

        nt_env_init(&e);
        nt_spec_init(&s);
        s.ranks = rows[i].ranks;
        assert_int_equal(nt_env_devices(&e, &s, rows[i].list, NULL) != 0, rows[i].rc);
        if (rows[i].rc == 0) {
            assert_int_equal(s.ranks, rows[i].n);
            assert_int_equal(e.have_devices, named);
            assert_string_equal(s.devices, named ? rows[i].list : "");
            assert_memory_equal(e.devices, rows[i].v, (named ? s.ranks : 0) * sizeof(unsigned));
        }
        nt_env_done(&e);
    }
}

/* A resumed job that has lost --fix would measure another machine, and say that it is the same. */
static void test_go_on(void **state)
{
    static const struct {
        const char *now, *job, *added, *value, *refused;
    } rows[] = {
        {"", "", "NCCL_P2P_DISABLE", NULL, NULL},
        {"", "NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE", "1", NULL},
        {"NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE", NULL, NULL},
        {"NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0 NCCL_SOCKET_IFNAME==eth0", "NCCL_SOCKET_IFNAME",
         "=eth0", NULL},
        {"NCCL_NVLS_ENABLE=0", "", NULL, NULL, "NCCL_NVLS_ENABLE=0 is in force now"},
        {"NCCL_SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME=eth10", NULL, NULL, "eth1 is in force"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_env e;
        struct nt_spec now, job;
        struct nt_err err = {0};
        const char *value;
        int rc;

        nt_env_init(&e);
        nt_spec_init(&now);
        nt_spec_init(&job);
        (void)snprintf(now.fixed, sizeof(now.fixed), "%s", rows[i].now);
        (void)snprintf(job.fixed, sizeof(job.fixed), "%s", rows[i].job);
        rc = nt_env_go_on(&e, &now, &job, &err);
        if (rows[i].refused != NULL) {
            assert_int_equal(rc, -NT_E_INVAL);
            assert_non_null(strstr(err.msg, rows[i].refused));
        } else {
            assert_int_equal(rc, 0);
            value = in_list(&e, rows[i].added);
            assert_true((value == NULL) == (rows[i].value == NULL));
            assert_true(value == NULL || strcmp(value, rows[i].value) == 0);
        }
        nt_env_done(&e);
    }
}

static size_t count_with(const struct nt_spec *s, const char *what)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nsettings; i++) {
        n += strstr(s->settings[i], what) != NULL;
    }
    return n;
}

/* A gang for each value of what a constraint has switched off is time for nothing. */
static void test_settings(void **state)
{
    static const struct {
        const char *fixed, *without, *with;
        bool nvlink, no_peers;
    } rows[] = {
        {"", "NCCL_IB_", "NCCL_NVLS_NCHANNELS", true, false},
        {"NCCL_NVLS_ENABLE=0", "NCCL_NVLS_", "NCCL_MIN_NCHANNELS", true, false},
        {"NCCL_SOCKET_IFNAME=eth0 NCCL_NVLS_ENABLE=0", "NCCL_NVLS_", "NCCL_BUFFSIZE", true, false},
        {"NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL", "NCCL_BUFFSIZE", false, false},
        {"", "NCCL_NVLS_", "NCCL_P2P_LEVEL", false, false},
        {"", "NCCL_NVLS_", "NCCL_P2P_DISABLE", false, false},
        {"", "NCCL_P2P_LEVEL", "NCCL_BUFFSIZE", false, true},
        {"", "NCCL_P2P_DISABLE", "NCCL_SHM_LOCALITY", false, true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_strs none = {.n = 0};
        struct nt_env e;
        struct nt_spec s;

        nt_env_init(&e);
        nt_spec_init(&s);
        e.modelled = true;
        e.nvlink = rows[i].nvlink;
        e.no_peers = rows[i].no_peers;
        (void)snprintf(s.fixed, sizeof(s.fixed), "%s", rows[i].fixed);
        assert_int_equal(nt_env_settings(&e, &s, &none, NULL), 0);
        assert_int_equal(count_with(&s, rows[i].without), 0);
        assert_true(count_with(&s, rows[i].with) > 0);
        nt_env_done(&e);
    }
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
    static const char *const files[] = {"user", "system", "active"};
    char path[256];
    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),   cmocka_unit_test(test_active),
        cmocka_unit_test(test_visible), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_go_on),   cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
