"""A service in a folder of its own, and a client of it."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

try:
    import jsonschema
except ImportError:
    jsonschema = None
SOURCE = pathlib.Path(os.environ["NT_SOURCE_DIR"])


class Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        # Blocking: a connect with a time limit fails at once where the queue of a busy daemon is full.
        self.sock.connect(self.path)
        self.sock.settimeout(self.timeout)


class Daemon:
    """config: text of the configuration, with @ for the folder."""

    def __init__(self, program, config="", folder=None):
        self.program = program
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = pathlib.Path(folder or tempfile.mkdtemp(prefix="nt-serve-", dir=base))
        (self.dir / "t").mkdir(exist_ok=True)
        self.sock, self.db = self.dir / "s", self.dir / "a.db"
        (self.dir / "c.conf").write_text(f"[server]\nlisten = unix:{self.sock}\ndatabase = {self.db}\n" + config.replace("@", str(self.dir)))
        self.process, self.doc, self.errors = None, None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        for pid in self.others():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir)

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.dir), "TMPDIR": str(self.dir / "t"), "LC_ALL": "C.UTF-8",
                "XDG_RUNTIME_DIR": str(self.dir)}

    def start(self, *words, ready=True, prefix=()):
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen([*prefix, self.program, "serve", "-v", "--config", self.dir / "c.conf", *words],
                                        env=self.environment(), cwd=self.dir, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.places = []
        while ready:
            line = self.process.stdout.readline()
            assert line.startswith("listening at "), (line, self.said())
            self.places.append(line.split()[-1])
            if len(self.places) == self.dir.joinpath("c.conf").read_text().split("listen = ")[1].split("\n")[0].count(",") + 1:
                break
        return self

    def said(self):
        return (self.dir / "log").read_text()

    def stop(self):
        """SIGTERM, again and again until it ends, as impatient people do; its exit code."""
        if self.process is None:
            return None
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.005)
        code = self.process.wait(timeout=1)
        self.process.stdout.close()
        self.process, log = None, self.log
        log.close()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.process = None

    def others(self):
        """Processes that carry this folder as their TMPDIR, but the service and its looks at the machine."""
        mark, found = b"TMPDIR=" + bytes(self.dir / "t"), []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and (self.process is None or int(entry.name) != self.process.pid):
                try:
                    if mark in entry.joinpath("environ").read_bytes().split(b"\0") and b"--look" not in entry.joinpath("cmdline").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def ask(self, method, path, body=None, headers=None, raw=False, connection=None):
        """(status, answer) — JSON as it is in the document, unless raw."""
        c = connection or Unix(self.sock)
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        c.request(method, path, body=body, headers=headers)
        r = c.getresponse()
        data = r.read()
        self.headers = dict(r.getheaders())
        if connection is None:
            c.close()
        if raw:
            return r.status, data
        answer = json.loads(data) if data else None
        self.check(method, path, r.status, answer)
        return r.status, answer

    def get(self, path, **more):
        status, answer = self.ask("GET", path, **more)
        assert status == 200, (path, status, answer)
        return answer

    def post(self, path, body=None, want=None, **more):
        status, answer = self.ask("POST", path, body, **more)
        assert status == want if want else status < 300, (path, status, answer)
        return answer

    def check(self, method, path, status, answer):
        """The answer is what the document says."""
        if jsonschema is None or status == 304:
            return
        if self.doc is None:
            c = Unix(self.sock)
            c.request("GET", "/v1/openapi.json")
            self.doc = json.loads(c.getresponse().read())
            c.close()
        parts = path.split("?")[0].split("/")
        for known, methods in self.doc["paths"].items():
            names = known.split("/")
            if len(names) == len(parts) and all(n == p or n[:1] == "{" for n, p in zip(names, parts)) and method.lower() in methods:
                said = methods[method.lower()]["responses"].get(str(status))
                assert said is not None, f"{method} {path}: {status} is not in the document: {answer}"
                schema = dict(said["content"]["application/json"]["schema"], components=self.doc["components"])
                jsonschema.validate(json.loads(json.dumps(answer)), schema)
                return

    def wait(self, job, *states, timeout=60):
        """The job, once it is in one of the states (over, unless told)."""
        states = states or ("done", "failed", "cancelled")
        end = time.monotonic() + timeout
        while True:
            j = self.get(f"/v1/jobs/{job}")
            if j["state"] in states:
                return j
            assert time.monotonic() < end, (j, self.said())
            time.sleep(0.02)

    def until(self, what, timeout=30):
        end = time.monotonic() + timeout
        while True:
            got = what()
            if got:
                return got
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)
