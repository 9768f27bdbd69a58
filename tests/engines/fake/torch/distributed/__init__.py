from . import distributed_c10d  # noqa: F401


def all_reduce(tensor, group=None):
    tensor.value = "torch-distributed"
