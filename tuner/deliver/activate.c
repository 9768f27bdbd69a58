#include "tuner/deliver/activate.h"

#include <stdio.h>
#include <string.h>
#include "tuner/deliver/active.h"

static void add(struct nt_activate *a, const char *path, const struct nt_buf *data, unsigned mode,
                const char *part)
{
    nt_assert(a->n < NT_ACTIVATE_FILES);
    a->file[a->n++] = (struct nt_install_file){
        .path = path, .data = data->data, .len = data->len, .mode = mode, .part = part};
}

static int write_active(struct nt_activate *a, const struct nt_activate_opts *o, struct nt_err *err)
{
    struct nt_assign vars[NT_APPLY_VARS];
    for (size_t i = 0; i < a->apply.n; i++) {
        vars[i] = (struct nt_assign){a->apply.v[i].name, a->apply.v[i].value};
    }
    return nt_active_write(vars, a->apply.n, o->boot_id, &a->active, err);
}

static void write_unit(struct nt_activate *a, const char *command)
{
    nt_buf_printf(&a->unit,
                  "[Unit]\n"
                  "Description=nccltune: activates the profile of this machine if it still fits\n"
                  "After=nvidia-persistenced.service systemd-modules-load.service\n\n"
                  "[Service]\n"
                  "Type=oneshot\n"
                  "RemainAfterExit=yes\n"
                  "ExecStart=%s\n\n"
                  "[Install]\n"
                  "WantedBy=multi-user.target\n",
                  command);
}

int nt_activate(const struct nt_profile *p, const struct nt_activate_opts *o,
                struct nt_activate *ret, struct nt_buf *notes, struct nt_err *err)
{
    struct nt_apply_opts apply = {.product = o->product,
                                  .hash = ret->hash,
                                  .table = ret->path,
                                  .tuner = o->tuner,
                                  .env_plugin = o->env_plugin,
                                  .profiler = o->profiler,
                                  .more = o->more,
                                  .nmore = o->nmore};
    int rc;

    memset(ret, 0, sizeof(*ret));
    nt_buf_init(&ret->table, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&ret->profile, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&ret->active, NT_ACTIVE_MAX);
    nt_buf_init(&ret->unit, 1 << 16);
    if (!p->product[o->product].present) {
        return nt_fail(err, NT_E_INVAL, 0, "the profile has no %s product",
                       nt_product_names[o->product]);
    }
    rc = nt_profile_delivery(p, o->product, &ret->table, ret->hash, err);
    rc = rc == 0 ? nt_profile_dump(p, &ret->profile, err) : rc;
    (void)snprintf(ret->path, sizeof(ret->path), NT_ACTIVATE_FOLDER "/%s.nctable", ret->hash);
    rc = rc == 0 ? nt_apply(p, &apply, NULL, &ret->apply, notes, err) : rc;
    if (rc != 0 || ret->apply.n == 0) {
        return rc;
    }
    rc = write_active(ret, o, err);
    add(ret, ret->path, &ret->table, 0444, "profile");
    if (o->backends != NULL) {
        add(ret, o->backends_path, o->backends, 0444, "profile");
    }
    add(ret, NT_ACTIVATE_PROFILE, &ret->profile, 0644, "profile");
    if (o->boot_command != NULL) {
        write_unit(ret, o->boot_command);
        add(ret, NT_ACTIVATE_UNIT, &ret->unit, 0644, "boot");
    }
    add(ret, NT_ACTIVE_FOLDER "/" NT_ACTIVE_NAME, &ret->active, 0644, "active");
    return rc;
}

void nt_activate_done(struct nt_activate *a)
{
    nt_buf_done(&a->table);
    nt_buf_done(&a->profile);
    nt_buf_done(&a->active);
    nt_buf_done(&a->unit);
}
