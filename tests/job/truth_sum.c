/* Figures of several cases put together. */
#include "tests/job/truth.h"

#include <math.h>

void truth_add_gaps(struct truth_gaps *to, const struct truth_gaps *g)
{
    to->family = g->family;
    to->cases += g->cases;
    to->unknown += g->unknown;
    to->gaps += g->gaps;
    to->thin += g->thin;
    to->thin_gaps += g->thin_gaps;
    to->thin_worst = fmax(to->thin_worst, g->thin_worst);
    to->worst = fmax(to->worst, g->worst);
    to->worst_difference = fmax(to->worst_difference, g->worst_difference);
    to->worst_seen = fmax(to->worst_seen, g->worst_seen);
    to->sum_difference += g->sum_difference;
    to->sum_width += g->sum_width;
}

void truth_add_claims(struct truth_claims *to, const struct truth_claims *c)
{
    to->claims += c->claims;
    to->told_claims += c->told_claims;
    to->false_claims += c->false_claims;
    to->pair_claims += c->pair_claims;
    to->thin_claims += c->thin_claims;
    to->published += c->published;
    to->told_published += c->told_published;
    to->slower += c->slower;
}
