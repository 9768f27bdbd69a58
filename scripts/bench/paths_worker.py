#!/usr/bin/env python3
"""One rank of a PyTorch job for scripts/bench/paths; with --spawn N the parent of N of them (torch.multiprocessing).

It says over a Unix socket how far it is and makes the calls that it is asked for. Of the environment it reads

  PATHS_SOCKET    where it is asked: "block BYTES CALLS MODE" -> "times NS...", "quit"
  PATHS_SIZES     bytes of the buffers, with commas
  PATHS_SHARED=1  all ranks on GPU 0, each a host of its own
  PATHS_CPU=1     gloo instead of NCCL
  PATHS_RANK_SET  lines: RANK, then NAME=VALUE...: that rank sets these before it starts NCCL
  PATHS_LATE      lines NAME=VALUE: every rank sets these after its first communicator, and makes another
  PATHS_PARENT    lines NAME=VALUE: --spawn's parent sets these before it starts ranks, as SGLang does
"""
import os
import socket
import sys
import time

import core

GRAPH_CALLS = 20


def variable(*names):
    for name in names:
        if name in os.environ:
            return os.environ[name]
    raise SystemExit("paths_worker: none of " + ", ".join(names) + " is set")


def assign(lines):
    for line in lines:
        name, _, value = line.partition("=")
        os.environ[name] = value


class Device:
    """The GPU, or the processor where there is none."""

    def __init__(self, torch, rank):
        self.torch, self.cpu = torch, bool(os.environ.get("PATHS_CPU"))
        self.name = "cpu" if self.cpu else "cuda"
        self.dtype = torch.float32 if self.cpu else torch.bfloat16
        if not self.cpu:
            torch.cuda.set_device(0 if os.environ.get("PATHS_SHARED") else rank)

    def buffer(self, size):
        return self.torch.ones(size // (4 if self.cpu else 2), dtype=self.dtype, device=self.name)

    def wait(self):
        if not self.cpu:
            self.torch.cuda.current_stream().synchronize()


class Rank:
    def __init__(self, torch, rank, world):
        import torch.distributed as dist

        self.dist, self.world, self.group = dist, world, None
        self.torch, self.device = torch, Device(torch, rank)
        dist.init_process_group("gloo" if self.device.cpu else "nccl", rank=rank, world_size=world)
        self.buffers = {int(s): self.device.buffer(int(s)) for s in os.environ["PATHS_SIZES"].split(",")}
        self.graphs = {}
        self.warm()
        if os.environ.get("PATHS_LATE"):
            assign(os.environ["PATHS_LATE"].split("\n"))
            self.group = dist.new_group(list(range(world)))
            self.warm()
        if not self.device.cpu:
            core.stay(torch, rank, world)

    def warm(self):
        for buffer in self.buffers.values():
            for _ in range(3):
                self.dist.all_reduce(buffer, group=self.group)
        self.device.wait()

    def graph(self, size):
        if size not in self.graphs:
            self.graphs[size] = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(self.graphs[size]):
                for _ in range(GRAPH_CALLS):
                    self.dist.all_reduce(self.buffers[size], group=self.group)
        return self.graphs[size]

    def block(self, size, calls, mode):
        buffer, times = self.buffers[size], []
        graph = self.graph(size) if mode == "graph" else None
        for _ in range(calls):
            buffer.fill_(0.0 if graph else 1.0)
            self.device.wait()
            self.dist.barrier()
            self.device.wait()
            start = time.perf_counter_ns()
            if graph:
                graph.replay()
            else:
                self.dist.all_reduce(buffer, group=self.group)
            self.device.wait()
            times.append((time.perf_counter_ns() - start) // (GRAPH_CALLS if graph else 1))
        if graph is None and not float(buffer[0]) == float(buffer[-1]) == self.world:
            raise RuntimeError("wrong sum")
        return times


def run(rank, world):
    import torch  # before the hello, so that what takes time after it is NCCL

    say = socket.socket(socket.AF_UNIX)
    say.connect(os.environ["PATHS_SOCKET"])
    lines = say.makefile("r")
    told = os.environ.get("PATHS_RANK_SET", "").split("\n")
    if told[0] == str(rank):
        assign(told[1:])
    if os.environ.get("PATHS_SHARED"):
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    say.sendall(f"hello {rank} {os.getpid()}\n".encode())
    try:
        me = Rank(torch, rank, world)
        say.sendall(b"ready\n")
        for line in lines:
            word, *rest = line.split()
            if word == "quit":
                break
            times = me.block(int(rest[0]), int(rest[1]), rest[2])
            say.sendall(("times " + " ".join(map(str, times)) + "\n").encode())
    except Exception as e:  # pylint: disable=broad-except  # whatever it is, the job is to know it
        say.sendall(("error " + " ".join(str(e).split())[:300] + "\n").encode())
        print(f"rank {rank}: {e}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)  # graphs are alive: a communicator does not go before them


def spawned(rank, world):
    os.environ.update(LOCAL_RANK=str(rank))
    run(rank, world)


def main():
    if sys.argv[1:2] == ["--spawn"]:
        import torch.multiprocessing as mp

        assign(filter(None, os.environ.get("PATHS_PARENT", "").split("\n")))
        mp.spawn(spawned, args=(int(sys.argv[2]),), nprocs=int(sys.argv[2]))
        return
    run(int(variable("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")),
        int(variable("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")))


if __name__ == "__main__":
    main()
