"""A driver small enough for tests: the ranks of one gang of the framework probe, over the real protocol."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ.get("NT_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
PROBE = SOURCE / "probes/framework"
CALL = {"backend": "torch-distributed", "algo": None, "proto": None, "channels": 0, "chunk_bytes": 0}


def torch_python():
    """An interpreter that has PyTorch 2.3 or later, or None: NT_TORCH_PYTHON, this one, that of build/venv, the system's."""
    for python in (os.environ.get("NT_TORCH_PYTHON"), sys.executable, SOURCE / "build/venv/bin/python", "/usr/bin/python3"):
        if python and os.access(python, os.X_OK) and subprocess.run(
                [python, "-c", "import importlib.metadata as m, sys; sys.exit(tuple(map(int, m.version('torch').split('.')[:2])) < (2, 3))"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return str(python)
    return None


class Gang:
    def __init__(self, world=2, program=None, python=None, env=None):
        self.world = world
        self.folder = tempfile.mkdtemp(prefix="nt-")
        self.page = os.path.join(self.folder, "barrier")
        with open(self.page, "wb") as f:
            f.write(bytes(4096))
        self.listener = socket.socket(socket.AF_UNIX)
        address = os.path.join(self.folder, "driver")
        self.listener.bind(address)
        self.listener.listen(world)
        self.log = open(os.path.join(self.folder, "log"), "wb+")
        self.ranks = [subprocess.Popen(
            [python or sys.executable, str(program or PROBE / "nccltune-probe-framework")], stdout=self.log, stderr=self.log,
            env={"PATH": os.environ["PATH"], "HOME": self.folder, "NCCLTUNE_RANK": str(r), "NCCLTUNE_WORLD": str(world),
                 "NCCLTUNE_DRIVER": "unix:" + address, "NCCLTUNE_PROBE_ON_HOST": "1", "PYTHONDONTWRITEBYTECODE": "1",
                 "PYTHONPATH": str(PROBE), "OMP_NUM_THREADS": "1", **(env or {})}) for r in range(world)]
        self.streams, self.sockets = [None] * world, []
        self.hellos = [None] * world
        self.listener.settimeout(60)
        for _ in range(world):
            s, _ = self.listener.accept()
            s.settimeout(120)
            stream = s.makefile("rwb")
            self.sockets.append(s)
            hello = json.loads(stream.readline())
            self.streams[hello["rank"]], self.hellos[hello["rank"]] = stream, hello

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for p in self.ranks:
            if p.poll() is None:
                p.kill()
            p.wait()
        if kind is not None:
            print(self.said(), file=sys.stderr)
        self.log.close()
        for s in [self.listener, *filter(None, self.streams), *self.sockets]:
            try:
                s.close()
            except OSError:  # a stream whose rank is gone cannot be flushed
                pass
        shutil.rmtree(self.folder)

    def said(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def tell(self, kind, ranks=None, **members):
        line = json.dumps({"type": kind, **members}).encode() + b"\n"
        for r in range(self.world) if ranks is None else ranks:
            self.streams[r].write(line)
            self.streams[r].flush()

    def hear(self, ranks=None):
        return [json.loads(self.streams[r].readline() or b'{"type": "end"}') for r in (range(self.world) if ranks is None else ranks)]

    def start(self, max_bytes=1 << 20, **variables):
        self.tell("uid", [0], hex="")
        uid = self.hear([0])[0]["hex"]
        for r in range(self.world):
            self.tell("init", [r], uid=uid, backend="nccl", vars=variables, max_bytes=max_bytes, gang=1, shm=self.page, device=r)
        return self.hear()

    def measure(self, coll="all_reduce", size=4096, dtype="bf16", place="out", mode="eager", backend="torch-distributed",
                samples=5, verify=2, flags=0, deadline_ms=30000, algo=None, proto=None, **more):
        self.count = getattr(self, "count", 0) + 1
        self.tell("measure", id=self.count, case={"bytes": size, "coll": coll, "dtype": dtype, "place": place, "mode": mode},
                  call={**CALL, "backend": backend, "algo": algo, "proto": proto}, warmup=1, samples=samples,
                  inner=more.get("inner", 4), verify=verify, flags=flags, deadline_ms=deadline_ms)
        return self.hear()

    def ended(self, patience_s):
        end = time.monotonic() + patience_s
        while time.monotonic() < end and any(p.poll() is None for p in self.ranks):
            time.sleep(0.02)
        return [p.poll() for p in self.ranks]
