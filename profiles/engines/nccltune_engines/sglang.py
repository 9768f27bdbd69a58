"""SGLang's door: hooks around GroupCoordinator.all_reduce, and around the place where a traced call is resolved.

What a group lends is a call a place: "in" leaves the result in the input, "out" in another tensor. Each returns None
when the engine's own class declines the tensor, by rules that are the same on every rank.
"""
import importlib

from .plugin import changed

TARGET = "sglang.srt.distributed.parallel_state.GroupCoordinator"
# Of the classes that lend a backend, by the group's attribute: methods that are called here, as they are known.
LENDERS = {
    "ca_comm": ("custom-allreduce", {"should_custom_ar": "self inp", "custom_all_reduce": "self input"}),
    "torch_symm_mem_comm": ("torch-symm-mem", {"should_torch_symm_mem_allreduce": "self inp", "all_reduce": "self inp * out"}),
    "pynccl_comm": ("pynccl", {"all_reduce": "self tensor op", "outplace_all_reduce": "self in_tensor out_tensor op",
                               "change_state": "self enable"}),
    "pymscclpp_comm": ("mscclpp", {"should_mscclpp_allreduce": "self inp op", "all_reduce": "self tensor op"}),
}
FLASHINFER = {"_can_use_flashinfer_allreduce": "self input_", "_flashinfer_allreduce": "self input_"}


class Door:
    engine, known = "sglang", ("0.5.12", "0.5.23")
    signatures = {"all_reduce": "self input_", "_all_reduce_out_place": "self input_ outplace_all_reduce_method"}

    def target(self):
        module, _, name = TARGET.rpartition(".")
        return getattr(importlib.import_module(module), name)

    def hook(self, owner, around, traced):
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        def out_place(original, group, input_, outplace_all_reduce_method):
            if outplace_all_reduce_method != "auto":  # "auto" is what torch.compile leaves to the run
                return original(group, input_, outplace_all_reduce_method)
            return traced(lambda g, x: original(g, x, "auto"), group, input_)

        HookRegistry.register(f"{TARGET}.all_reduce", around, HookType.AROUND)
        HookRegistry.register(f"{TARGET}._all_reduce_out_place", out_place, HookType.AROUND)

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
        for attribute, (label, signatures) in LENDERS.items():
            comm = getattr(group, attribute, None)
            reason = "the group has none" if comm is None else changed(type(comm), signatures)
            if reason is None and (getattr(comm, "disabled", False) if label not in ("pynccl", "mscclpp")
                                   else not getattr(comm, "available", True)):
                reason = "the engine's class is disabled"
            if reason is None:
                found[label] = globals()[label.replace("-", "_")](comm)
            else:
                missing[label] = reason
        reason = changed(type(group), FLASHINFER)
        if reason is None:
            found["flashinfer"] = flashinfer(group)
        else:
            missing["flashinfer"] = reason
        found["nccl"] = found.get("pynccl") or found["torch-distributed"]
        return found, missing


def torch_distributed(group):
    import torch

    def inside(x):
        torch.distributed.all_reduce(x, group=group.device_group)
        return x

    return {"in": inside, "out": lambda x: inside(x.clone())}


def custom_allreduce(comm):
    def out(x):
        return comm.custom_all_reduce(x) if not comm.disabled and comm.should_custom_ar(x) else None

    return {"out": out}


def torch_symm_mem(comm):
    def out(x):
        return comm.all_reduce(x) if comm.should_torch_symm_mem_allreduce(x) else None

    return {"out": out}


def pynccl(comm):
    def inside(x):
        with comm.change_state(enable=True):
            comm.all_reduce(x)
        return x

    def out(x):
        with comm.change_state(enable=True):
            return comm.outplace_all_reduce(x)

    return {"in": inside, "out": out}


def mscclpp(comm):
    def inside(x):  # enabled by the engine while it captures
        return comm.all_reduce(x) if not comm.disabled and comm.should_mscclpp_allreduce(x) else None

    return {"in": inside, "out": lambda x: inside(x.clone())}


def flashinfer(group):
    def out(x):
        return group._flashinfer_allreduce(x) if group._can_use_flashinfer_allreduce(x) else None

    return {"out": out}
