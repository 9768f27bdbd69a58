/* nccltune-probe-nccl: one rank. Started by a launcher with three variables; see probe.h. */
#include "probes/nccl/probe.h"

int main(void)
{
    struct nt_probe probe = {0};
    return nt_probe_run(&probe);
}
