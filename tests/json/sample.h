/* sample - a small, valid profile for tests: an 8-GPU PCIe box, NCCL 2.28.9, both products. Not
 * finished: nt_profile_finish() is the test's. */
#pragma once
#include "profiles/json/profile.h"

struct nt_profile *nt_sample_profile(void);
/* The same without rows and variables: the defaults win. */
struct nt_profile *nt_sample_empty(void);
