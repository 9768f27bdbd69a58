/* look - the machine as it is now, for watching: identity, health, stack and load. Slow (NVML), so
 * the service does it in a child: `nccltune serve --look`. */
#pragma once
#include "tuner/service/config.h"
#include "tuner/service/watch.h"

/* A machine that cannot be read is a sight that says why. parent: whose descendants are not others.
 */
void nt_look(const struct nt_config *c, int parent, struct nt_sight *ret);
