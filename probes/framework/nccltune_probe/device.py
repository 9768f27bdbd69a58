"""Where tensors lie and how time is taken: CUDA, or the host for tests of the probe itself."""
import contextlib
import threading
import time

BUSY_SIZE = 2048


class Host:
    """Tensors in host memory, gloo below torch.distributed. Measures nothing that is worth a profile."""

    name, store_backend, l2_bytes = "cpu", "gloo", 1 << 20

    def __init__(self, torch, index):
        self.torch, self.device = torch, torch.device("cpu")
        torch.set_num_threads(1)  # the ranks share the cores

    def sync(self):
        pass

    def memory_used(self):
        return 0

    def elapsed(self, calls):
        """Nanoseconds of the calls, back to back."""
        begin = time.monotonic_ns()
        calls()
        return time.monotonic_ns() - begin

    def capture(self, calls, around):
        raise NotImplementedError("no CUDA graphs without CUDA")

    @contextlib.contextmanager
    def busy(self):
        yield

    def capturing(self):
        return False


class Cuda:
    name, store_backend = "cuda", "nccl"

    def __init__(self, torch, index):
        self.torch, self.device = torch, torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.l2_bytes = getattr(torch.cuda.get_device_properties(index), "L2_cache_size", 64 << 20)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.free_at_start = torch.cuda.mem_get_info()[0]

    def sync(self):
        self.stream.synchronize()

    def memory_used(self):
        return max(0, self.free_at_start - self.torch.cuda.mem_get_info()[0])

    def elapsed(self, calls):
        self.begin.record(self.stream)
        calls()
        self.end.record(self.stream)
        self.end.synchronize()
        return int(self.begin.elapsed_time(self.end) * 1e6)

    def capture(self, calls, around):
        """A graph of the calls; around: what the backend wants round a capture."""
        graph = self.torch.cuda.CUDAGraph()
        self.sync()
        with around:
            with self.torch.cuda.graph(graph, stream=self.stream):
                calls()
        return graph

    @contextlib.contextmanager
    def busy(self):
        """A matrix product always running on another stream."""
        torch, stop = self.torch, threading.Event()
        a = torch.randn(BUSY_SIZE, BUSY_SIZE, device=self.device, dtype=torch.bfloat16)
        out = torch.empty_like(a)

        def work():
            torch.cuda.set_device(self.device)  # a thread begins with device 0: products elsewhere would be waited for by nobody
            stream = torch.cuda.Stream()
            event = torch.cuda.Event()
            with torch.cuda.stream(stream):
                while not stop.is_set():
                    for _ in range(8):
                        torch.mm(a, a, out=out)
                    event.record(stream)
                    event.synchronize()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def open_device(torch, index, on_host):
    return Host(torch, index) if on_host else Cuda(torch, index)
