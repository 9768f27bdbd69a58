"""The core on which a rank stays while it is timed, as in probes/nccl/cpu.h: gangs that are compared must not differ by it."""
import os
import time

TRIES, AS_GOOD = 4, 1.05


def time_of(torch):
    """Seconds until the end of some small kernels is seen; the least of a few runs."""
    word, least = torch.zeros(1, device="cuda"), float("inf")
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(40):
            word.add_(1)
        torch.cuda.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least


def stay(torch, rank, world):
    """Binds the calling thread, and threads that it starts from now on, to a good core; returns it. None: too few cores, nothing done."""
    free = os.sched_getaffinity(0)
    cores = sorted(free)[1 + 2 * rank::2 * world][:TRIES] if len(free) >= 2 * world else []
    times = {}
    for core in cores:
        os.sched_setaffinity(0, {core})
        times[core] = time_of(torch)
    chosen = next((core for core in cores if times[core] <= AS_GOOD * min(times.values())), None)
    os.sched_setaffinity(0, free if chosen is None else {chosen})
    return chosen
