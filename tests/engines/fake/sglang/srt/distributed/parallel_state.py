"""A group with SGLang's names; each backend writes its name into the result."""
import contextlib


class Comm:
    disabled, available, limit = False, True, 1 << 20

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


class TorchSymmMemCommunicator(Comm):
    def should_torch_symm_mem_allreduce(self, inp):
        return self._fits(inp)

    def all_reduce(self, inp, *, out=None):
        return self._out(inp)


class PyNcclCommunicator(Comm):
    disabled = True

    def all_reduce(self, tensor, op=None):
        assert not self.disabled
        tensor.value = self.name

    def outplace_all_reduce(self, in_tensor, out_tensor=None, op=None):
        assert not self.disabled
        return self._out(in_tensor)

    @contextlib.contextmanager
    def change_state(self, enable=None):
        before, self.disabled = self.disabled, not enable
        try:
            yield
        finally:
            self.disabled = before


class GroupCoordinator:
    def __init__(self, name="tp:0", rank=0, world=2, **comms):
        self.unique_name, self.rank_in_group, self.world_size, self.ranks = name, rank, world, list(range(world))
        self.device_group = self.cpu_group = None
        self.ca_comm = self.torch_symm_mem_comm = self.pynccl_comm = self.pymscclpp_comm = None
        self.__dict__.update(comms)

    def all_reduce(self, input_):
        result = input_.clone()
        result.value = "engine"
        return result

    def _all_reduce_out_place(self, input_, outplace_all_reduce_method):
        result = input_.clone()
        result.value = "engine " + outplace_all_reduce_method
        return result

    def _can_use_flashinfer_allreduce(self, input_):
        return True

    def _flashinfer_allreduce(self, input_):
        result = input_.clone()
        result.value = "flashinfer"
        return result
