"""vLLM's door: its general plugins are called in every process before a model is made; CudaCommunicator.all_reduce, which
runs inside an operation that torch.compile does not look into, is taken round. All of vLLM's all-reduces are out of place.
"""
import functools
import importlib

from .plugin import changed

MODULE = "vllm.distributed.device_communicators.cuda_communicator"
# Attribute of the communicator → (backend, its test or None, methods as they are known).
LENDERS = {
    "ca_comm": ("custom-allreduce", "should_custom_ar", "custom_all_reduce",
                {"should_custom_ar": "self inp", "custom_all_reduce": "self input"}),
    "symm_mem_comm": ("torch-symm-mem", "should_use_symm_mem", "all_reduce",
                      {"should_use_symm_mem": "self inp", "all_reduce": "self inp * out"}),
    "fi_ar_comm": ("flashinfer", "should_use_fi_ar", "all_reduce",
                   {"should_use_fi_ar": "self input_tensor", "all_reduce": "self input_tensor"}),
    "pynccl_comm": ("pynccl", None, "all_reduce", {"all_reduce": "self in_tensor out_tensor op stream"}),
}


class Door:
    engine, known = "vllm", ("0.28.0", "0.33.0")
    signatures = {"all_reduce": "self input_"}

    def target(self):
        return importlib.import_module(MODULE).CudaCommunicator

    def hook(self, owner, around, traced):
        original = owner.all_reduce

        @functools.wraps(original)
        def all_reduce(self, input_):
            return around(original, self, input_)

        owner.all_reduce = all_reduce

    def name(self, group):
        return group.unique_name

    def world(self, group):
        return group.world_size

    def rank(self, group):
        return group.rank_in_group

    def ranks(self, group):
        return group.ranks

    def libraries(self, group):
        library = getattr(getattr(group.pynccl_comm, "nccl", None), "lib", None)
        return {"pynccl": library._name} if library is not None else {}

    def runners(self, group):
        """({backend: {place: call}}, {backend: why it is not there})"""
        found, missing = {"torch-distributed": torch_distributed(group)}, {}
        for attribute, (label, test, call, signatures) in LENDERS.items():
            comm = getattr(group, attribute, None)
            reason = "the group has none" if comm is None else changed(type(comm), signatures)
            if reason is None and comm.disabled:
                reason = "the engine's class is disabled"
            if reason is None:
                found[label] = lent(comm, test and getattr(comm, test), getattr(comm, call))
            else:
                missing[label] = reason
        symmetric = getattr(importlib.import_module(MODULE), "is_symmetric_memory_enabled", None)
        if "pynccl" in found and symmetric is not None and symmetric():
            found["nccl-symmetric"] = nccl_symmetric()
        else:
            missing["nccl-symmetric"] = "VLLM_USE_NCCL_SYMM_MEM is off"
        found["nccl"] = found.get("pynccl") or found["torch-distributed"]
        return found, missing


def lent(comm, test, call):
    if test is None:
        return {"out": lambda x: None if comm.disabled else call(x)}
    return {"out": lambda x: call(x) if not comm.disabled and test(x) else None}


def torch_distributed(group):
    import torch

    def out(x):
        result = x.clone()
        torch.distributed.all_reduce(result, group=group.device_group)
        return result

    return {"out": out}


def nccl_symmetric():
    import torch
    return {"out": torch.ops.vllm.all_reduce_symmetric_with_copy}
