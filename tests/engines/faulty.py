"""The framework probe with a backend that breaks as FAULT says: wrong, raise, hang, refuse (all but `raise` on rank 1)."""
import os
import sys
import time

from nccltune_probe import backends, main

fault, rank = os.environ["FAULT"], int(os.environ["NCCLTUNE_RANK"])


class Faulty(backends.TorchDistributed):
    def __init__(self, group, call):
        super().__init__(group, call)
        self.calls = 0
        if fault == "refuse" and rank == 1:
            raise RuntimeError("no kernel image")

    def run(self, case, tensor, out):
        result = super().run(case, tensor, out)
        self.calls += 1
        if fault == "wrong" and rank == 1:
            result.view(-1)[-1] += 1
        if fault == "late" and rank == 1 and self.calls > 3:  # right at first
            result.view(-1)[0] += 1
        if fault == "input" and rank == 1:
            tensor.view(-1)[7] = 0
        if fault == "stale" and self.calls > 2:  # what an iteration before was right
            result.copy_(self.kept)
        self.kept = result.clone()
        if fault == "raise":
            raise RuntimeError("kernel failed")
        if fault == "hang" and rank == 1:
            time.sleep(1000)
        return result


backends.BACKENDS["custom-allreduce"] = Faulty
sys.exit(main.main([]))
