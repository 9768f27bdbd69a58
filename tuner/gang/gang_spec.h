/* gang_spec - what a gang is asked to be: its defaults and limits. Pure. */
#pragma once
#include "tuner/gang/gang.h"

struct nt_gang_times nt_gang_times_of(const struct nt_gang_spec *spec); /* no zeros */
NT_MUST_CHECK int nt_gang_spec_check(const struct nt_gang_spec *spec, struct nt_err *err);
