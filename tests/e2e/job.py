"""One tuning job by the program itself, in a folder of its own; what it leaves behind."""
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time


class Place:
    """A private TMPDIR, database and profile; programs are given by the build folder."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.program = self.build / "tuner/cli/nccltune"
        self.probe = self.build / "tests/e2e/world_probe"
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="nt-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.began = time.time()
        self.tmp = self.root / "t"
        self.tmp.mkdir(mode=0o700)
        self.db = self.root / "a.db"
        self.out = self.root / "p.json"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root)

    def environment(self, extra=None):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root), "TMPDIR": str(self.tmp), "LC_ALL": "C.UTF-8"}
        env.update(extra or {})
        return env

    def start(self, *words, env=None, **more):
        return subprocess.Popen([self.program, *map(str, words)], env=self.environment(env), cwd=self.root, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def run(self, *words, env=None, timeout=100, **more):
        """(exit code, output, errors)"""
        p = self.start(*words, env=env, **more)
        out, err = p.communicate(timeout=timeout)
        return p.returncode, out, err

    def tune(self, *words, **more):
        return self.run("tune", "--db", self.db, "--out", self.out, *words, **more)

    def world(self, *words, fault=None, sizes="1K,128K,512K,1M", probe=None):
        """Words of a job on the made-up machine."""
        words = ["--rig", "nccl", "--probe", probe or self.probe, "--ranks", "2", "--sizes", sizes, "--pairs", "8",
                 "--effort", "quick", "--try", "NCCL_MIN_NCHANNELS=16", *words]
        return words + (["--env", "WORLD_FAULT=" + fault] if fault else [])

    def processes(self):
        """Process ids that carry this place's TMPDIR."""
        mark, found = b"TMPDIR=" + bytes(self.tmp), []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def left_behind(self, patience_s=8):
        """What a job that has ended left: processes (after some patience), files below TMPDIR, receipts of its gangs."""
        end = time.monotonic() + patience_s
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)
        return [f"process {pid}" for pid in self.processes()] + [str(f) for f in self.tmp.rglob("*")] + [
            str(f) for f in pathlib.Path(f"/run/nccltune/{os.getuid()}").glob("*.receipt") if f.stat().st_mtime >= self.began and bytes(self.build) in f.read_bytes()]

    def sql(self, text, *args):
        with sqlite3.connect(self.db, timeout=10) as db:
            rows = db.execute(text, args).fetchall()
        db.close()
        return rows


class Checks:
    """Counts what was looked at; a program that looked at nothing has failed."""

    def __init__(self):
        self.seen, self.bad = 0, 0

    def that(self, good, *words):
        self.seen += 1
        if not good:
            self.bad += 1
            print("FAILED:", *words, flush=True)
        return good

    def ends(self, name, got, code, says=""):
        rc, out, err = got
        self.that(rc == code and says in out + err, f"{name}: exit {rc}, expected {code} saying '{says}':\n{out}{err}")

    def clean(self, name, place):
        left = place.left_behind()
        self.that(not left, f"{name}: left behind:", *left)

    def done(self):
        print(f"{self.seen} checks, {self.bad} failed")
        return 1 if self.bad or not self.seen else 0
