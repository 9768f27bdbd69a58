/* nccltune-probe-nccl: one rank, started by a launcher with three variables (probe.h). With the one
 * argument "peers": a verdict on peer access as JSON, and nothing else (peers.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "probes/nccl/peers.h"
#include "probes/nccl/probe.h"

static int say_peers(void)
{
    struct nt_err err = {0};
    struct nt_buf out;
    int rc;
    nt_buf_init(&out, 1 << 20);
    rc = nt_peers_run(&out, &err);
    if (rc == 0) {
        (void)fputs(nt_buf_str(&out), stdout);
    } else {
        (void)fprintf(stderr, "nccltune-probe-nccl: %s\n", err.msg);
    }
    (void)fflush(stdout);
    _exit(nt_exit_code(rc)); /* what hangs on a device would hold up an orderly end */
}

int main(int argc, char **argv)
{
    static struct nt_probe probe;
    if (argc == 2 && strcmp(argv[1], "peers") == 0) {
        return say_peers();
    }
    return nt_probe_run(&probe);
}
