/*
 * belief - how far an estimate of the fit is believed (internal to search).
 *
 * Gangs differ in ways that no few of them show: what they do to an arm is believed as far as
 * Student's t of so many degrees goes, plus two for what its kind does. The noise of its blocks has
 * the degrees that the fit has. An error made of both has Satterthwaite's.
 */
#pragma once
#include "tuner/search/fit.h"

enum { BELIEF_KIND = 2, BELIEF_MOST = 40 }; /* degrees of freedom */

struct belief {
    struct {
        double drop, stop, density; /* quantiles; the density's factor */
    } by[BELIEF_MOST + 1];          /* degrees of freedom, from BELIEF_KIND on */
    double z_stop;
};

/* z: normal quantiles, whose levels those of t have too. */
void belief_init(struct belief *b, double z_drop, double z_stop);
uint32_t belief_gangs(const struct fit *f, uint32_t a, uint32_t b); /* behind their difference */
/* Degrees of freedom of the difference of two arms that were seen, which has that standard error.
 */
uint32_t belief_degrees(const struct fit *f, uint32_t a, uint32_t b, double se);
/* … no fewer than this, for less work … */
uint32_t belief_least_degrees(const struct fit *f, uint32_t a, uint32_t b);
/* … and of an arm's effect. */
uint32_t belief_arm_degrees(const struct fit *f, uint32_t arm);
/* An arm's effect by half of what may be amiss, and what it may yet turn out to be; infinite of one
 * that was not seen. */
double belief_cautious(const struct belief *b, const struct fit *f, uint32_t arm);
double belief_promise(const struct belief *b, const struct fit *f, uint32_t arm);
/* Mean of max(0, x), x = mean + sd t: what is lost on average by believing that x is below 0. */
double belief_loss(const struct belief *b, double mean, double sd, uint32_t df);
