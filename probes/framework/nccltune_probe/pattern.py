"""What every element of a buffer must be, as a pure function of (rank, index, salt): probes/nccl/pattern.h in tensors.

Reductions: small positive integers, so that every partial sum over the ranks is exact in the dtype whatever the order of
the additions. Copies: integers too, of another range for each rank. Floats whose sums are rounded tell whether two ways
add up in the same order.
"""
# Largest integer up to which all are exact.
LIMITS = {"bf16": 256, "fp16": 2048, "fp32": 1 << 24, "int32": 1 << 30}
MASK = 0xFFFFFFFF


def _hash(torch, salt, rank, index):
    """32 bits of a hash in an int64 tensor; products wrap, the low 32 bits are right all the same."""
    x = (index * 0x9E3779B1) & MASK
    x = x ^ ((rank * 0x85EBCA77 + salt * 0xC2B2AE3D) & MASK)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = x ^ (x >> shift)
        x = (x * factor) & MASK
    return x ^ (x >> 16)


class Pattern:
    def __init__(self, torch, dtype_name, dtype, world, device):
        self.torch, self.dtype, self.world, self.device = torch, dtype, world, device
        self.limit = LIMITS[dtype_name]
        self.adders = min(world, self.limit)
        self.span = min(self.limit // self.adders, 65536)
        self.floating = dtype_name != "int32"

    def _index(self, count, first=0):
        return self.torch.arange(first, first + count, dtype=self.torch.int64, device=self.device)

    def _addend(self, rank, index, salt):
        value = 1 + (((_hash(self.torch, salt, rank, index) >> 16) * self.span) >> 16)
        if self.adders < self.world:  # only as many ranks add at one index as fit
            value = value * ((index + rank) % self.world < self.adders)
        return value

    def own(self, rank, count, salt, first=0):
        return self._addend(rank, self._index(count, first), salt).to(self.dtype)

    def total(self, count, salt, first=0):
        index = self._index(count, first)
        value = self._addend(0, index, salt)
        for rank in range(1, self.world):
            value = value + self._addend(rank, index, salt)
        return value.to(self.dtype)

    def floats(self, rank, count, salt):
        """Either sign, between 1/2 and 8, with all of the mantissa in use."""
        bits = _hash(self.torch, salt, rank, self._index(count))
        if not self.floating:
            return (bits - (1 << 31)).to(self.dtype)
        size = 0.5 + (bits & 0xFFFFFF).to(self.torch.float64) * (7.5 / (1 << 24))
        return self.torch.where(bits >> 31 == 1, -size, size).to(self.dtype)

    def poison(self, tensor):
        tensor.fill_(float("nan") if self.floating else -1)


def wrong(torch, found, expected):
    """Elements that are not what they must be; a NaN is none."""
    return int((~(found.reshape(-1) == expected)).sum().item())


def same_bits(torch, a, b):
    width = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return bool((a.reshape(-1).view(width) == b.reshape(-1).view(width)).all().item())
