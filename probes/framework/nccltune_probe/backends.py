"""Who moves the bytes: one class a backend, each over the class that an engine would use, so that what is measured is
what would run.

A backend is opened by all ranks together when first asked for. What it cannot do it says by Unavailable, with the
reason; the measuring side sees to it that then no rank uses it. place "out": the result is another tensor than the
input, which keeps its value; "in": the result is in the input.
"""
import contextlib
import ctypes
import importlib
import os

ENGINES = ("sglang", "vllm")  # which of them lends its class; NCCLTUNE_ENGINE names one
SGLANG, VLLM = "sglang.srt.distributed.device_communicators", "vllm.distributed.device_communicators"
NCCL_TYPES = {"int32": 2, "fp16": 6, "fp32": 7, "bf16": 9}
SUM = 0


class Unavailable(Exception):
    """The backend, or this call of it, is not to be had, with the reason."""


class Group:
    """What all backends of a rank share."""

    def __init__(self, torch, device, rank, world, lib, store):
        self.torch, self.device, self.rank, self.world, self.lib, self.store = torch, device, rank, world, lib, store
        dist = torch.distributed
        dist.init_process_group(device.store_backend, store=store, rank=rank, world_size=world)
        self.dist, self.device_group = dist, dist.group.WORLD
        self.cpu_group = dist.new_group(backend="gloo") if device.name == "cuda" else self.device_group


def engine_class(*places):
    """The first class that can be imported of (engine, module, name); the engine chosen by NCCLTUNE_ENGINE counts alone."""
    wanted, reasons = os.environ.get("NCCLTUNE_ENGINE"), []
    if wanted and wanted not in ENGINES:
        raise Unavailable(f"NCCLTUNE_ENGINE is {wanted}, not one of {', '.join(ENGINES)}")
    for engine, module, name in places:
        if wanted and engine != wanted:
            continue
        try:
            return engine, getattr(importlib.import_module(module), name)
        except Exception as e:  # an engine's import can fail in any way: another CUDA, a missing kernel package
            reasons.append(f"{engine}: {type(e).__name__}: {e}")
    raise Unavailable("; ".join(reasons) or f"{wanted} has no such class")


def refuse_if_disabled(comm):
    if comm.disabled:
        raise Unavailable(f"{type(comm).__module__}.{type(comm).__name__} declines here; its warning is in this rank's log")


class Backend:
    colls = ("all_reduce",)
    places = ("out",)
    lenders = ()  # (engine, module, name) of the class that is measured, in order of preference
    executed = None, None  # algorithm and protocol by name, where they are known
    memory = None  # where the inputs must lie: start(), take(count, dtype)

    def __init__(self, group, call):
        self.group = group

    def check(self, case, example):
        """Raises Unavailable for a call that the backend does not do."""

    def run(self, case, tensor, out):
        """The call on the current stream; returns the tensor that holds the result. `out` may be used for it."""
        raise NotImplementedError

    def capture(self):
        """What must stand round the capture of a graph."""
        return contextlib.nullcontext()


class Nccl(Backend):
    """NCCL by ctypes, as a PyNccl does it: the baseline of the others in this program."""

    colls = ("all_reduce", "all_gather", "reduce_scatter")
    places = ("out", "in")

    def __init__(self, group, call):
        super().__init__(group, call)
        lib = group.lib
        if lib is None:
            raise Unavailable("no libnccl here")

        class UniqueId(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_ubyte * 128)]

        lib.ncclGetErrorString.restype = ctypes.c_char_p
        p, n, i = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        lib.ncclCommInitRank.argtypes = [ctypes.POINTER(p), i, UniqueId, i]
        lib.ncclAllReduce.argtypes = [p, p, n, i, i, p, p]
        lib.ncclAllGather.argtypes = [p, p, n, i, p, p]
        lib.ncclReduceScatter.argtypes = [p, p, n, i, i, p, p]
        self.lib, self.comm, uid = lib, p(), UniqueId()
        if group.rank == 0:
            self._check(lib.ncclGetUniqueId(ctypes.byref(uid)))
            group.store.set("nccltune/uid", bytes(uid.bytes).hex())
        else:
            ctypes.memmove(ctypes.byref(uid), bytes.fromhex(group.store.get("nccltune/uid").decode()), 128)
        self._check(lib.ncclCommInitRank(ctypes.byref(self.comm), group.world, uid, group.rank))

    def _check(self, code):
        if code != 0:
            raise RuntimeError(f"NCCL: {self.lib.ncclGetErrorString(code).decode()}")

    def run(self, case, tensor, out):
        out = tensor if case["place"] == "in" and case["coll"] == "all_reduce" else out
        src, dst, kind = tensor.data_ptr(), out.data_ptr(), NCCL_TYPES[case["dtype"]]
        stream = self.group.device.stream.cuda_stream
        if case["coll"] == "all_reduce":
            code = self.lib.ncclAllReduce(src, dst, tensor.numel(), kind, SUM, self.comm, stream)
        elif case["coll"] == "all_gather":
            code = self.lib.ncclAllGather(src, dst, tensor.numel(), kind, self.comm, stream)
        else:
            code = self.lib.ncclReduceScatter(src, dst, out.numel(), kind, SUM, self.comm, stream)
        self._check(code)
        return out


class TorchDistributed(Backend):
    """ProcessGroupNCCL; out of place as the engines fall back to it: on a copy."""

    colls = Nccl.colls
    places = Nccl.places

    def run(self, case, tensor, out):
        dist = self.group.dist
        if case["coll"] == "all_reduce":
            if case["place"] == "out":
                out.copy_(tensor)
                tensor = out
            dist.all_reduce(tensor, group=self.group.device_group)
            return tensor
        if case["coll"] == "all_gather":
            dist.all_gather_into_tensor(out, tensor, group=self.group.device_group)
        else:
            dist.reduce_scatter_tensor(out, tensor, group=self.group.device_group)
        return out


class PyNccl(Backend):
    """The engine's second communicator, over whatever libnccl the engine opens."""

    places = ("out", "in")
    lenders = (("sglang", f"{SGLANG}.pynccl", "PyNcclCommunicator"), ("vllm", f"{VLLM}.pynccl", "PyNcclCommunicator"))

    def __init__(self, group, call):
        super().__init__(group, call)
        self.engine, cls = engine_class(*self.lenders)
        self.comm = cls(group=group.cpu_group, device=group.device.device)
        if not getattr(self.comm, "available", True):
            raise Unavailable("the engine found no libnccl")
        self.comm.disabled = False  # SGLang keeps it off outside of captures; here it is what is measured

    def check(self, case, example):
        if self.engine == "vllm" and case["place"] == "in":
            raise Unavailable("vLLM's PyNccl is only called out of place")

    def run(self, case, tensor, out):
        if case["place"] == "in":
            self.comm.all_reduce(tensor)
            return tensor
        return self.comm.outplace_all_reduce(tensor) if self.engine == "sglang" else self.comm.all_reduce(tensor)


class Pool:
    """Symmetric memory for the input buffers of calls that work on the callers' own; taken anew for each shape."""

    BYTES, GRAIN = 256 << 20, 512

    def __init__(self, symm_mem, group):
        torch = group.torch
        self.buffer = symm_mem.empty(self.BYTES, dtype=torch.uint8, device=group.device.device)
        symm_mem.rendezvous(self.buffer, group.device_group.group_name)
        self.used = 0

    def start(self):
        self.used = 0

    def take(self, count, dtype):
        size = count * dtype.itemsize
        first, self.used = self.used, self.used + -(-size // self.GRAIN) * self.GRAIN
        if self.used > self.BYTES:
            raise Unavailable(f"the buffers do not fit into {self.BYTES >> 20} MiB of symmetric memory")
        return self.buffer[first:first + size].view(dtype).zero_()


class TorchSymmMem(Backend):
    """PyTorch's symmetric memory: the engine's class where there is one, which cannot be told an algorithm; without an
    engine PyTorch's own operations by name. As with this program's kernels, pull goes through a buffer of its own, and
    direct works on the caller's, which must lie in symmetric memory; its two-shot leaves the result there."""

    lenders = (("sglang", f"{SGLANG}.torch_symm_mem", "TorchSymmMemCommunicator"),
               ("vllm", f"{VLLM}.symm_mem", "SymmMemCommunicator"))
    MULTIMEM_RANKS = (4, 6, 8)
    BUFFER_BYTES = 64 << 20
    WAYS = {("one_shot", "pull"): ("out", "one_shot_all_reduce_copy_out"), ("two_shot", "pull"): ("out", "two_shot_all_reduce_"),
            ("one_shot", "direct"): ("out", "one_shot_all_reduce_out"), ("two_shot", "direct"): ("in", "two_shot_all_reduce_"),
            (None, None): ("out", "multimem_all_reduce_")}  # place of the result, and operation
    places = ("out", "in")
    pool = None  # of a process: one symmetric piece of memory for all shapes

    def __init__(self, group, call):
        super().__init__(group, call)
        self.comm = self.buffer = None
        try:
            engine, cls = engine_class(*self.lenders)
        except Unavailable:
            engine = cls = None
        if cls is None:
            self._open_own(call)
        elif call["algo"] is not None:
            raise Unavailable(f"{engine}'s class chooses its algorithm by itself")
        else:
            self.comm = cls(group=group.cpu_group, device=group.device.device)
            refuse_if_disabled(self.comm)

    def _open_own(self, call):
        group, torch, way = self.group, self.group.torch, (call["algo"], call["proto"])
        if group.device.name != "cuda":
            raise Unavailable("symmetric memory needs CUDA")
        if way not in self.WAYS:
            raise Unavailable(f"PyTorch has no {'/'.join(way)}")
        symm_mem = importlib.import_module("torch.distributed._symmetric_memory")
        self.name = group.device_group.group_name
        if way[1] == "direct":
            if TorchSymmMem.pool is None:
                TorchSymmMem.pool = False  # if it fails here no rank meets the others a second time
                TorchSymmMem.pool = Pool(symm_mem, group)
            if not TorchSymmMem.pool:
                raise Unavailable("there was no symmetric memory to be had for its buffers")
            self.memory = TorchSymmMem.pool
            self._take(way)
            return
        self.buffer = symm_mem.empty(self.BUFFER_BYTES, dtype=torch.uint8, device=group.device.device)
        handle = symm_mem.rendezvous(self.buffer, self.name)
        multicast = handle.multicast_ptr != 0 and os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST", "0") in ("", "0")
        if way == (None, None) and not (multicast and group.world in self.MULTIMEM_RANKS):
            way = "two_shot", "pull"
        self._take(way)

    def _take(self, way):
        self.executed, name = way, self.WAYS[way][1]  # multimem has no name among the algorithms
        self.operation = getattr(self.group.torch.ops.symm_mem, name, None)
        if self.operation is None:
            raise Unavailable(f"this PyTorch has no {name}")

    def check(self, case, example):
        place = self.WAYS[self.executed][0]
        if case["place"] != place:
            raise Unavailable("the result is always another tensor" if place == "out" else "the result is always in the input")
        if self.comm is not None:
            if case["dtype"] != "bf16":
                raise Unavailable("the engines use it for bf16 only")
            test = getattr(self.comm, "should_torch_symm_mem_allreduce", None) or self.comm.should_use_symm_mem
            if not test(example):
                raise Unavailable("the engine's class declines this size or type")
        elif case["dtype"] not in ("bf16", "fp32") or case["bytes"] % 4 != 0:
            raise Unavailable("PyTorch's operations take bf16 and fp32, in whole 4 bytes")
        elif self.buffer is not None and case["bytes"] > self.BUFFER_BYTES:
            raise Unavailable(f"above {self.BUFFER_BYTES >> 20} MiB")

    def run(self, case, tensor, out):
        if self.comm is not None:
            return self.comm.all_reduce(tensor, out=out)
        if self.executed == ("one_shot", "direct"):
            return self.operation(tensor, "sum", self.name, out)
        if self.executed == ("two_shot", "direct"):
            return self.operation(tensor, "sum", self.name)
        part = self.buffer.view(tensor.dtype)[:tensor.numel()]
        if self.executed == ("one_shot", "pull"):  # copies within its kernel
            return self.operation(part, tensor, "sum", self.name, out)
        part.copy_(tensor)
        self.operation(part, "sum", self.name)
        return out.copy_(part)


class CustomAllReduce(Backend):
    """SGLang's (the class that it would pick) or vLLM's own kernels."""

    lenders = (("sglang", f"{SGLANG}.custom_all_reduce", "dispatch_custom_allreduce"),
               ("vllm", f"{VLLM}.custom_all_reduce", "CustomAllreduce"))

    def __init__(self, group, call):
        super().__init__(group, call)
        engine, cls = engine_class(*self.lenders)
        if engine == "sglang":
            cls = cls(group=group.cpu_group, device=group.device.device)
        self.comm = cls(group=group.cpu_group, device=group.device.device)
        refuse_if_disabled(self.comm)

    def check(self, case, example):
        if not self.comm.should_custom_ar(example):
            raise Unavailable("the engine's class declines this size, type or alignment")

    def run(self, case, tensor, out):
        return self.comm.custom_all_reduce(tensor)

    def capture(self):
        return self.comm.capture()


class FlashInfer(Backend):
    """FlashInfer's all-reduce without a fused norm, through vLLM's class; SGLang's needs its server around it."""

    lenders = (("vllm", f"{VLLM}.flashinfer_all_reduce", "FlashInferAllReduce"),)
    HIDDEN = 4096  # elements of a token: the class wants rows

    def __init__(self, group, call):
        super().__init__(group, call)
        _, cls = engine_class(*self.lenders)
        self.comm = cls(group=group.cpu_group, device=group.device.device)
        refuse_if_disabled(self.comm)

    def _rows(self, tensor):
        return tensor.view(-1, self.HIDDEN) if tensor.numel() % self.HIDDEN == 0 else tensor.view(1, -1)

    def check(self, case, example):
        if not self.comm.should_use_fi_ar(self._rows(example)):
            raise Unavailable("the engine's class declines this size or type")

    def run(self, case, tensor, out):
        return self.comm.all_reduce(self._rows(tensor))


class Mscclpp(Backend):
    """MSCCL++ through SGLang's class, which tunes itself when it is made."""

    lenders = (("sglang", f"{SGLANG}.pymscclpp", "PyMscclppCommunicator"),)

    def __init__(self, group, call):
        super().__init__(group, call)
        _, cls = engine_class(*self.lenders)
        self.comm = cls(group=group.cpu_group, device=group.device.device, group_name="tp")
        self.comm.disabled = False if getattr(self.comm, "available", False) else self.comm.disabled
        refuse_if_disabled(self.comm)

    def check(self, case, example):
        if not self.comm.should_mscclpp_allreduce(example):
            raise Unavailable("the engine's class declines this size or type")

    def run(self, case, tensor, out):  # it reduces in place: a copy keeps the input, as SGLang does where it must
        return self.comm.all_reduce(out.copy_(tensor))


class Gloo(TorchDistributed):
    """Stands for NCCL where the probe itself is tested."""


# Name in the protocol → class. What is missing here belongs to another probe.
BACKENDS = {
    "nccl": Nccl,
    "torch-distributed": TorchDistributed,
    "pynccl": PyNccl,
    "torch-symm-mem": TorchSymmMem,
    "custom-allreduce": CustomAllReduce,
    "flashinfer": FlashInfer,
    "mscclpp": Mscclpp,
}


def find(name, on_host):
    if on_host and name == "nccl":
        return Gloo
    if name not in BACKENDS:
        raise Unavailable(f"{name} is measured by another program, nccltune-probe-nccl")
    return BACKENDS[name]
