"""All ranks of a host meet in a shared page, and vote while they are there: everybody learns the largest vote."""
import ctypes
import mmap
import os
import time

PAGE = 4096
SLOT = 32          # bytes of a rank: a word for odd meetings, one for even ones
LEFT = 1 << 63     # set in a word: this rank will not come any more


class BarrierBroken(Exception):
    """The ranks are no longer in step."""


class Barrier:
    """The page is the driver's: zeroed, 4096 bytes, one for each gang.

    A rank writes round << 8 | vote as one aligned word, so that who sees the round sees the vote. Two words in turn:
    a rank can be at most one meeting ahead of a reader, and then writes the other word.
    """

    def __init__(self, path, rank, world):
        if world > PAGE // SLOT:
            raise BarrierBroken(f"{world} ranks, room for {PAGE // SLOT}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.map = mmap.mmap(fd, PAGE)
        finally:
            os.close(fd)
        words = (ctypes.c_uint64 * (PAGE // 8)).from_buffer(self.map)
        self.words, self.rank, self.world, self.round = words, rank, world, 0

    def _at(self, rank, odd):
        return rank * (SLOT // 8) + odd

    def meet(self, vote, deadline_ns):
        self.round += 1
        odd, words, target = self.round & 1, self.words, self.round << 8
        words[self._at(self.rank, odd)] = target | vote
        worst, spins = vote, 0
        for other in range(self.world):
            at = self._at(other, odd)
            word = words[at]
            while word < target:  # a word of LEFT is above every round
                spins += 1
                if spins & 255 == 0:
                    if time.monotonic_ns() > deadline_ns:
                        self.leave()
                        raise BarrierBroken(f"rank {other} did not come")
                    os.sched_yield()
                word = words[at]
            if word & LEFT:
                raise BarrierBroken(f"rank {other} has left")
            worst = max(worst, word & 255)
        return worst

    def leave(self):
        """From the next meeting on; who still reads the last one finds this rank's vote."""
        self.words[self._at(self.rank, self.round + 1 & 1)] = LEFT
