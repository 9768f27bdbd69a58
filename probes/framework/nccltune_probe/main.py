"""The life of a rank: hello, init, then one question at a time until the driver says quit.

PyTorch is imported at init. A rank that hangs ends by itself: end of the stream, TERM, or a watchdog in C (faulthandler)
that writes where every thread stood into the rank's log and exits some seconds after the driver's own deadline.
"""
import faulthandler
import json
import os
import queue
import signal
import socket
import sys
import threading
import time

from . import machine, protocol
from .barrier import Barrier
from .measure import Trial, host_is_meant

SLACK_S, OPENING_S = 5, 180
MISSING, FAILED = 3, 1


class Missing(Exception):
    pass


class Link:
    """The stream to the driver; a thread reads it, so that its end is seen while a call hangs."""

    def __init__(self, address):
        kind, _, path = address.partition(":")
        if kind != "unix":
            raise Missing(f"{kind}: this probe speaks over unix sockets; its backends are for one host")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with self.socket.makefile("rb") as stream:
            for line in stream:
                self.lines.put(line)
        os._exit(FAILED)  # the driver is gone: whatever runs ends

    def send(self, kind, **members):
        self.socket.sendall(protocol.encode(kind, **members))

    def next(self):
        return protocol.decode(self.lines.get())


class Rank:
    def __init__(self, environ):
        try:
            self.rank, self.world = int(environ["NCCLTUNE_RANK"]), int(environ["NCCLTUNE_WORLD"])
            address = environ["NCCLTUNE_DRIVER"]
        except (KeyError, ValueError):
            raise Missing("NCCLTUNE_RANK, NCCLTUNE_WORLD or NCCLTUNE_DRIVER is not set; nccltune starts this program") from None
        self.link = Link(address)
        self.on_host = host_is_meant()
        self.group, self.opened, self.slots, self.slots_key, self.broken = None, {}, None, None, ""

    def hello(self):
        device = None if self.on_host else machine.device(self.rank)
        if device is None and not self.on_host:
            raise Missing("no CUDA device here")
        self.lib, path, version = machine.libnccl()
        device = device or {"gpu_uuid": f"host-{self.rank}", "gpu_pci": "", "gpu_name": "host memory", "gpu_memory_bytes": 0,
                            "driver": 0}
        self.link.send("hello", v=protocol.VERSION, rank=self.rank, world=self.world, pid=os.getpid(),
                       host=socket.gethostname()[:63], nccl=version, cuda=device["driver"], nccl_file=path[:255], rig="nccl",
                       **{k: v[:63] if k == "gpu_name" else v for k, v in device.items()})

    def init(self, m):
        if self.group is not None:
            raise protocol.ProtocolError("one communicator for each process")
        if m["backend"] != "nccl" or not m["shm"]:
            raise Missing(f"backend {m['backend']}, page '{m['shm']}': ranks of one host around NCCL are what this probe knows")
        begin = time.monotonic_ns()
        os.environ.update(m["vars"])  # reaches getenv, and NCCL has not been asked anything yet
        import torch
        import torch.distributed  # noqa: F401
        from . import backends, device
        self.torch, self.device = torch, device.open_device(torch, m["device"], self.on_host)
        self.barrier = Barrier(m["shm"], self.rank, self.world)
        store = torch.distributed.FileStore(m["shm"] + ".store", self.world)
        self.group = backends.Group(torch, self.device, self.rank, self.world, self.lib, store)
        self.opened["nccl", None, None] = backends.find("nccl", self.on_host)(self.group, {"algo": None})
        self.link.send("ready", init_ns=time.monotonic_ns() - begin, memory_bytes=self.device.memory_used(), topology_xml=None,
                       text=self.describe())

    def describe(self):
        """Provenance: who could lend a class, and which libraries are mapped: two libnccl are two NCCLs."""
        lines = [f"torch={self.torch.__version__}", f"python={sys.version.split()[0]}"]
        lines += [f"engine.{name}={version}" for name, version in engines().items()]
        lines += [f"libnccl={path}" for path in machine.mapped(r"^(libnccl\.so|libmscclpp)")]
        return "".join(line.replace("\n", " ") + "\n" for line in lines)

    def cells(self, m):
        """NCCL's own estimate is not asked here: nothing but its default runs."""
        self.link.send("cells", case=m["case"], asked=False, cost=[[-1.0] * protocol.NCCL_PROTOS] * protocol.NCCL_ALGOS)

    def measure(self, m):
        self.link.send("result", **Trial(self, m).run())

    def serve(self):
        self.hello()
        while True:
            kind, m = self.link.next()
            limit = m["deadline_ms"] / 1000 + SLACK_S if kind == "measure" and m["deadline_ms"] else OPENING_S
            faulthandler.dump_traceback_later(limit, exit=True)
            if kind in ("abort", "quit"):
                os._exit(0 if kind == "quit" else FAILED)  # an engine's exit handlers may wait for ranks that are gone
            if kind == "uid":
                self.link.send("uid", hex=os.urandom(128).hex())
            elif kind in ("init", "cells", "measure"):
                if kind != "init" and self.group is None:
                    raise protocol.ProtocolError(f"{kind} before init")
                getattr(self, kind)(m)
            faulthandler.cancel_dump_traceback_later()


def engines():
    """Versions of the engines that are installed, without importing one."""
    from importlib import metadata
    found = {}
    for name in ("sglang", "vllm", "flashinfer-python", "mscclpp"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def list_backends():
    """What could be had here as far as packages and devices tell; opening it together with other ranks says the rest."""
    from .backends import BACKENDS, Unavailable, engine_class
    device, found = machine.device(0), []
    try:
        import torch
        general = None if device else "no CUDA device here"
        version = torch.__version__
    except ImportError as e:
        general, version = f"PyTorch: {e}", None
    for name, cls in BACKENDS.items():
        reason = general
        if reason is None and cls.lenders and name != "torch-symm-mem":  # which PyTorch can do alone
            try:
                engine_class(*cls.lenders)
            except Unavailable as e:
                reason = str(e)
        found.append({"backend": name, "there": reason is None, "why": reason})
    print(json.dumps({"torch": version, "engines": engines(), "backends": found}, indent=2))


def main(arguments):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if arguments == ["--list"]:
        list_backends()
        return 0
    if arguments:
        print("usage: nccltune-probe-framework [--list]; without arguments nccltune starts it as a rank", file=sys.stderr)
        return 2
    rank = None
    try:
        rank = Rank(os.environ)
        rank.serve()
    except Exception as e:
        text = f"{type(e).__name__}: {e}" if not isinstance(e, Missing) else str(e)
        print(f"nccltune-probe-framework: {text}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=False) if not isinstance(e, Missing) else None
        if rank is not None:
            try:
                rank.link.send("error", text=text.encode("ascii", "replace").decode()[:500])
            except OSError:
                pass
        os._exit(MISSING if isinstance(e, (Missing, ImportError)) else FAILED)
    return 0
