/* hints - what to do about a gain that a check took away which this user's programs may not need.
 */
#pragma once
#include "profiles/json/profile.h"

/* A line on standard output for each option of `tune` that leaves out a check which something in
 * the profile fell by; nothing where there is none. */
void nt_print_hints(const struct nt_profile *p);
