"""A communicator with vLLM's names."""


def is_symmetric_memory_enabled():
    return False


class Comm:
    disabled, limit = False, 1 << 20

    def __init__(self, name):
        self.name = name

    def _out(self, tensor):
        result = tensor.clone()
        result.value = self.name
        return result

    def _fits(self, tensor):
        return tensor.nbytes <= self.limit


class CustomAllreduce(Comm):
    def should_custom_ar(self, inp):
        return self._fits(inp)

    def custom_all_reduce(self, input):
        return self._out(input)


class PyNcclCommunicator(Comm):
    def all_reduce(self, in_tensor, out_tensor=None, op=None, stream=None):
        return self._out(in_tensor)


class CudaCommunicator:
    def __init__(self, unique_name="tp:0", rank=0, world=2, **comms):
        self.unique_name, self.rank_in_group, self.world_size, self.ranks = unique_name, rank, world, list(range(world))
        self.device_group = None
        self.ca_comm = self.symm_mem_comm = self.fi_ar_comm = self.pynccl_comm = None
        self.__dict__.update(comms)

    def all_reduce(self, input_):
        result = input_.clone()
        result.value = "engine"
        return result
