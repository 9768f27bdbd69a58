/* Any text: read, and all that is done with a topology afterwards. One source for both readers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/topology/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct nt_topology *t)
{
    struct nt_buf b;
    struct nt_identity back;
    json_t *o = nt_topology_json(t);

    if (o == NULL || nt_identity_parse(json_object_get(o, "identity"), &back, NULL) != 0 ||
        (t->known != 0 && !nt_identity_match(&back, &t->identity))) {
        abort();
    }
    json_decref(o);
    nt_buf_init(&b, 64U << 20);
    nt_topology_draw(t, 80, &b);
    if (nt_topology_diff(t, "a", t, "b", &b) != (t->known != 0)) {
        abort();
    }
    nt_buf_done(&b);
    for (int n = 1; n <= t->ngpus && n <= 4; n++) {
        struct nt_placements p = {0};
        if (nt_placements_cost(t, n) <= 500 && nt_placements_find(t, n, &p, NULL) == 0) {
            if (p.n == 0) {
                abort();
            }
            nt_placements_done(&p);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_topology *t = NULL;
    char *text = malloc(size > 0 ? size : 1); /* exactly as long as read: overruns are seen */
    struct nt_err e = {0};
    int rc;

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    rc = NT_FUZZ_READER(text, size, &t, &e);
    free(text);
    if (rc == 0) {
        use(t);
    } else if (e.msg[0] == '\0') {
        abort(); /* refused without a reason */
    }
    nt_topology_free(t);
    return 0;
}
