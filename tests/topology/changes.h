/* changes - what two equal machines may differ in: identity and health stay. */
#pragma once
#include "tests/topology/tree.h"
#include "tuner/base/rng.h"

struct change {
    const char *name;
    void (*change)(struct element *, struct nt_rng *);
};
extern const struct change same_changes[];
extern const size_t nsame_changes;
