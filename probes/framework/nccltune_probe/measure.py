"""One trial: gate, timed block, gate again. The ranks keep in step whatever one of them finds: they vote."""
import contextlib
import os
import statistics
import time

from . import protocol
from .backends import Unavailable, find
from .barrier import BarrierBroken
from .pattern import Pattern, same_bits, wrong

GO, TOO_SLOW, STOP = 0, 1, 2   # votes
SLOTS_MAX, BASE_RUNS, GROUP = 32, 9, 8
SALT = 0x5EED


class Stopped(Exception):
    """The trial ends with this status on every rank."""

    def __init__(self, status, text=""):
        super().__init__(text)
        self.status = status


class Slots:
    """Input and output buffers in turn, together more than the L2 holds; they live from trial to trial."""

    def __init__(self, torch, device, dtype, send, receive, wanted, memory=None):
        size = (send + receive) * dtype.itemsize if hasattr(dtype, "itemsize") else (send + receive) * 4
        enough = 2 * device.l2_bytes // max(size, 1) + 1
        self.count = max(2, wanted, min(SLOTS_MAX, enough))
        if memory is not None:
            memory.start()
        self.inputs = [torch.zeros(send, dtype=dtype, device=device.device) if memory is None else memory.take(send, dtype)
                       for _ in range(self.count)]
        self.outputs = [torch.zeros(receive, dtype=dtype, device=device.device) for _ in range(self.count)]


class Trial:
    def __init__(self, rank, m):
        self.rank, self.m, self.case, self.call = rank, m, m["case"], m["call"]
        self.torch, self.device, self.group = rank.torch, rank.device, rank.group
        self.deadline = time.monotonic_ns() + 1_000_000 * (m["deadline_ms"] or 60_000)
        eager = self.case["mode"] == "eager"
        self.inner = 1 if eager else m["inner"]
        self.width = GROUP if m["flags"] & protocol.GROUP8 else 1
        self.ns, self.wrong, self.base_ns, self.connect_ns, self.bits = [], 0, 0, 0, "unknown"
        self.executed = None, None

    # ---- in step

    def meet(self, vote=GO):
        return self.rank.barrier.meet(vote, self.deadline)

    def agree(self, step, status):
        """Runs the step; when it is Unavailable on one rank, the trial ends so on all."""
        reason = found = None
        try:
            found = step()
        except Unavailable as e:
            reason = str(e)
        if self.meet(GO if reason is None else STOP) != GO:
            raise Stopped(status, reason or "not to be had on another rank; its result says why")
        return found

    # ---- buffers and calls

    def prepare(self):
        case, world = self.case, self.group.world
        types = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16, "fp32": self.torch.float32, "int32": self.torch.int32}
        if case["dtype"] not in types:
            raise Unavailable(f"no {case['dtype']} in this probe")
        self.dtype = types[case["dtype"]]
        count = case["bytes"] // (2 if case["dtype"] in ("bf16", "fp16") else 4)
        share, rest = divmod(count, world)
        if count == 0 or (case["coll"] != "all_reduce" and rest):
            raise Unavailable(f"{case['bytes']} bytes are not a whole number of {case['dtype']} for each of {world} ranks")
        self.send = share if case["coll"] == "all_gather" else count
        self.receive = share if case["coll"] == "reduce_scatter" else count
        self.pattern = Pattern(self.torch, case["dtype"], self.dtype, world, self.device.device)

    def open(self):
        """The backend, opened by all ranks together; what is not to be had is remembered."""
        name, rank = self.call["backend"], self.rank
        cls = find(name, rank.on_host)
        if self.case["coll"] not in cls.colls:
            raise Unavailable(f"{name}: {self.case['coll']} is not measured by this probe")
        if self.case["place"] not in cls.places:
            raise Unavailable(f"{name}: the result is always another tensor")
        if self.call["algo"] is not None and name != "torch-symm-mem":
            raise Unavailable(f"{name}: chooses by itself, nothing can be asked of it")
        if self.case["mode"] == "graph" and self.device.name != "cuda":
            raise Unavailable("no CUDA graphs without CUDA")
        key = name, self.call["algo"], self.call["proto"]
        if key not in rank.opened:
            begin = time.monotonic_ns()
            try:
                rank.opened[key] = cls(self.group, self.call)
            except Unavailable as e:
                rank.opened[key] = str(e)
            except Exception as e:  # an engine's constructor fails in any way
                rank.opened[key] = f"{type(e).__name__}: {e}"
            self.connect_ns = time.monotonic_ns() - begin
        if isinstance(rank.opened[key], str):
            raise Unavailable(f"{name}: {rank.opened[key]}")
        return rank.opened[key]

    def check_call(self):
        key = self.case["dtype"], self.send, self.receive, self.backend.memory
        if key != self.rank.slots_key or self.rank.slots.count < self.width:
            self.rank.slots = self.rank.slots_key = None  # frees them first
            self.rank.slots = Slots(self.torch, self.device, self.dtype, self.send, self.receive, self.width,
                                    self.backend.memory)
            self.rank.slots_key = key
        self.slots = self.rank.slots
        self.backend.check(self.case, self.slots.inputs[0])

    def one(self, slot, backend=None):
        return (backend or self.backend).run(self.case, self.slots.inputs[slot], self.slots.outputs[slot])

    def calls(self, count, collectives=True):
        """`count` iterations with a small kernel between that needs the result before; returns the results by slot."""
        results = {}
        for i in range(count):
            for w in range(self.width):
                slot = (self.next + i * self.width + w) % self.slots.count
                if collectives:
                    results[slot] = self.one(slot)
                if self.case["mode"] == "graph":
                    last = results[slot] if collectives else self.slots.outputs[slot]
                    self.torch.add(self.word, last.reshape(-1)[:1], out=self.word)
        return results

    def capture(self, count, collectives=True):
        box = {}
        graph = self.device.capture(lambda: box.update(self.calls(count, collectives)),
                                    self.backend.capture() if collectives else contextlib.nullcontext())
        return graph, box

    # ---- the gate

    def fill(self, slot, salt):
        count = self.send
        self.slots.inputs[slot].copy_(self.pattern.own(self.group.rank, count, salt))
        self.pattern.poison(self.slots.outputs[slot])

    def expected(self, salt):
        coll, rank = self.case["coll"], self.group.rank
        if coll == "all_gather":
            return self.torch.cat([self.pattern.own(r, self.send, salt) for r in range(self.group.world)])
        first = rank * self.receive if coll == "reduce_scatter" else 0
        return self.pattern.total(self.receive, salt, first)

    def verify(self, salt):
        """Data that depends on rank, index and iteration, through the mode that is timed."""
        rounds = min(self.inner if self.case["mode"] == "graph" else 2, self.slots.count // self.width)
        self.next = 0
        for slot in range(rounds * self.width):
            self.fill(slot, salt + slot)
        if self.case["mode"] == "graph":
            if self.gate is None:
                self.gate = self.capture(rounds)
                for slot in range(rounds * self.width):  # capturing registers buffers, and may write into them
                    self.fill(slot, salt + slot)
            self.device.sync()
            self.meet()
            self.gate[0].replay()
            results = self.gate[1]
        else:
            self.meet()
            results = self.calls(rounds)
        self.device.sync()
        found = 0
        for slot, result in results.items():
            found += wrong(self.torch, result, self.expected(salt + slot))
            if self.case["place"] == "out" or self.case["coll"] != "all_reduce":
                found += wrong(self.torch, self.slots.inputs[slot], self.pattern.own(self.group.rank, self.send, salt + slot))
        self.wrong += found
        if self.meet(STOP if found else GO) != GO:
            raise Stopped("wrong", f"{found} elements of rank {self.group.rank} are wrong")

    def compare_bits(self):
        """Against NCCL left alone, on numbers whose sums are rounded."""
        plain = self.rank.opened.get(("nccl", None, None))
        if self.case["coll"] == "all_gather" or not hasattr(plain, "run"):
            self.bits = "same" if self.case["coll"] == "all_gather" else "unknown"
            return
        data = self.pattern.floats(self.group.rank, self.send, SALT)
        results = []
        for backend in (self.backend, plain):
            self.slots.inputs[0].copy_(data)
            self.device.sync()
            self.meet()
            results.append(self.one(0, backend).clone())
            self.device.sync()
        self.bits = "same" if same_bits(self.torch, *results) else "different"

    # ---- time

    def eager(self):
        begin = time.monotonic_ns()
        self.calls(1)
        self.device.sync()
        return time.monotonic_ns() - begin

    def iteration(self):
        mode = self.case["mode"]
        if mode == "eager":
            return self.eager()
        if mode == "stream":
            return self.device.elapsed(lambda: self.calls(self.inner))
        return self.device.elapsed(self.graph.replay)

    def measure_base(self):
        """What belongs to a graph and not to its calls."""
        empty, _ = self.capture(self.inner, collectives=False)
        runs = []
        for _ in range(BASE_RUNS):
            self.meet()
            runs.append(self.device.elapsed(empty.replay))
        self.base = int(statistics.median(runs))
        self.base_ns = self.base // self.inner

    def time_calls(self):
        self.base, vote, self.next = 0, GO, 0
        for slot in range(self.slots.count):
            self.slots.inputs[slot].zero_()  # in place, again and again: nothing may overflow
        if self.case["mode"] == "graph":
            self.graph, self.kept = self.capture(self.inner)
            self.measure_base()
        with self.device.busy() if self.m["flags"] & protocol.BUSY else contextlib.nullcontext():
            total = self.m["warmup"] + self.m["samples"]
            for i in range(total + 1):  # the last round is only a vote
                worst = self.meet(vote)
                if worst != GO or i == total:
                    break
                ns = max(1, (self.iteration() - self.base) // self.inner)
                self.next = (self.next + self.inner * self.width) % self.slots.count
                if ns >= 1 << 32:
                    vote = TOO_SLOW
                elif i >= self.m["warmup"]:
                    self.ns.append(ns)
        if worst == TOO_SLOW:
            raise Stopped("too_slow", "one call takes more than 4.29 s")

    def control(self):
        """No collective: what tells a slower machine from a slower backend."""
        word = self.torch.zeros(1, device=self.device.device)
        copy = bool(self.m["flags"] & protocol.COPY)
        a = self.torch.zeros(max(self.case["bytes"], 1) if copy else 1, dtype=self.torch.uint8, device=self.device.device)
        b, inner = self.torch.empty_like(a), max(self.m["inner"], 1)
        for i in range(self.m["warmup"] + self.m["samples"]):
            self.meet()
            begin = time.monotonic_ns()
            for _ in range(inner):
                if copy:
                    b.copy_(a)
                else:
                    word.add_(1)
                    self.device.sync()
            self.device.sync()
            if i >= self.m["warmup"]:
                self.ns.append(min(max(1, (time.monotonic_ns() - begin) // inner), (1 << 32) - 1))

    def collective(self):
        self.gate, self.next = None, 0
        self.agree(self.prepare, "unavailable")
        self.backend = self.agree(self.open, "unavailable")
        self.executed = self.backend.executed
        self.agree(self.check_call, "unavailable")
        self.word = self.torch.zeros(1, dtype=self.dtype, device=self.device.device)
        self.fill(0, SALT)
        self.one(0)  # the first call connects
        self.device.sync()
        if self.m["verify"]:
            self.verify(self.m["id"] & 0xFFFF)
        if self.m["flags"] & protocol.COMPARE_BITS:
            self.compare_bits()
        if self.m["samples"]:
            self.time_calls()
            if self.m["verify"] == 2:
                self.verify((self.m["id"] & 0xFFFF) + 0x10000)

    def run(self):
        begin, status, text = time.monotonic_ns(), "ok", ""
        try:
            if self.rank.broken:
                raise Stopped("error", f"an earlier trial failed: {self.rank.broken}")
            if self.m["flags"] & (protocol.COPY | protocol.LAUNCH):
                self.control()
            else:
                self.collective()
        except Stopped as e:
            status, text = e.status, str(e)
        except BarrierBroken as e:
            status, text, self.rank.broken = "timeout", str(e), str(e)
        except Exception as e:  # of an engine or of CUDA: the ranks are no longer in step
            status, text = "error", f"{self.call['backend']}: {type(e).__name__}: {e}"
            self.rank.broken = text
            self.rank.barrier.leave()
        self.graph = self.kept = self.gate = None  # graphs go before the communicators
        return {"id": self.m["id"], "status": status, "ns": self.ns if status == "ok" else [], "base_ns": self.base_ns,
                "executed": dict(zip(("algo", "proto"), self.executed), channels=0, warps=0), "bits": self.bits, "wrong": self.wrong,
                "elapsed_ns": time.monotonic_ns() - begin, "connect_ns": self.connect_ns,
                "memory_bytes": self.device.memory_used(), "error": text.encode("ascii", "replace").decode()[:199]}


def host_is_meant():
    return os.environ.get("NCCLTUNE_PROBE_ON_HOST", "") == "1"
