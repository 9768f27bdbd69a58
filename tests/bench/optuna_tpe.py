#!/usr/bin/env python3
"""Optuna's TPE sampler behind a pipe: lines `study N SEED algo/proto:channels…`, `ask N` (answered by the number of an
arm) and `tell N VALUE`. Says `ready` when the package is there."""
import sys

import optuna


class Study:
    def __init__(self, seed, arms):
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed % 2**32))
        self.families = {}  # algorithm/protocol → [(channels, arm)]
        for i, arm in enumerate(arms):
            family, channels = arm.rsplit(":", 1)
            self.families.setdefault(family, []).append((int(channels), i))
        self.most = max(int(a.rsplit(":", 1)[1]) for a in arms)
        self.trial = None

    def ask(self):
        self.trial = self.study.ask()
        family = self.trial.suggest_categorical("family", sorted(self.families))
        channels = self.trial.suggest_int("channels", 1, self.most, log=True)
        # A request for more channels than there are gets what there is: the nearest below, else the least.
        rungs = sorted(self.families[family])
        return max((r for r in rungs if r[0] <= channels), default=rungs[0])[1]

    def tell(self, value):
        self.study.tell(self.trial, value)


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    studies = {}
    print("ready", optuna.__version__, flush=True)
    for line in sys.stdin:
        word, number, *rest = line.split()
        if word == "study":
            studies[number] = Study(int(rest[0]), rest[1:])
        elif word == "ask":
            print(studies[number].ask(), flush=True)
        else:
            studies[number].tell(float(rest[0]))


main()
