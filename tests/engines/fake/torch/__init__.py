"""As much of PyTorch as the engines' plugin asks for; the test turns the knobs."""
from . import distributed  # noqa: F401


class _Type:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __repr__(self):
        return f"torch.{self.name}"


bfloat16, float32, float16, int32 = _Type("bfloat16", 2), _Type("float32", 4), _Type("float16", 2), _Type("int32", 4)


class Tensor:
    is_cpu, whole = False, True

    def __init__(self, size_bytes, dtype=bfloat16, value=1):
        self.dtype, self.count, self.value = dtype, size_bytes // dtype.size, value

    @property
    def nbytes(self):
        return self.count * self.dtype.size

    def is_contiguous(self):
        return self.whole

    def clone(self):
        return Tensor(self.nbytes, self.dtype, self.value)


class compiler:
    compiling = False

    @staticmethod
    def is_compiling():
        return compiler.compiling


class cuda:
    capturing = False

    @staticmethod
    def is_current_stream_capturing():
        return cuda.capturing
