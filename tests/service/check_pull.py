#!/usr/bin/env python3
"""check_pull.py NCCLTUNE MAKE_RECORDING: what a fleet and a timer take from the service: pull, backup, tune --if-changed."""
import json
import os
import socket
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
sys.argv.insert(1, "")  # no part of the other's
from check_service import BOX, NCCLTUNE, TOKENS, make, topology
from daemon import SOURCE


def impostor(d, answers):
    """A place where each of these raw answers is given once, in turn."""
    import threading
    place = d.dir / "impostor"
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen(1)

    def serve():
        for answer in answers:
            c = listener.accept()[0]
            c.recv(65536)
            c.sendall(answer)
            c.close()
        listener.close()
    threading.Thread(target=serve, daemon=True).start()
    return f"unix:{place}"


def pull_from_impostor(d, run):
    """What answers may be no service of ours: no success without a file, no escapes, no end never reached."""
    def answer(o, status="200 OK"):
        body = json.dumps(o).encode()
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    found = answer({"found": True, "exact": True, "profile": {"id": 1}, "notes": [1, None, "\u001b[2Jred"]})
    none = answer({"found": False, "considered": [{"profile": 7, "why": [1, "\u001b[2Jred"]}]})
    for answers, want, says in (([found, b"HTTP/1.1 304 Not Modified\r\n\r\n"], 1, "note: ?[2Jred"), ([none], 1, "profile 7: ?[2Jred"),
                                ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"], 1, "broke off")):
        code, out = run("pull", "--from", impostor(d, answers), "--topology", "topo.xml", "--out", "none.json")
        assert code == want and says in out and "(null)" not in out and "\x1b" not in out, (code, out)
        assert not (d.dir / "none.json").exists()
    os.mkfifo(d.dir / "pipe")  # what is there already is looked at only where that ends
    code, out = run("pull", "--from", impostor(d, [found, answer({}, "500 X")]), "--topology", "topo.xml", "--out", "pipe")
    assert code == 1 and "says 500" in out, out


def part_pull():
    """The profile for a machine over both kinds of place, with token, ETag, reasons; backup; tune --if-changed."""
    config = "[server]\nlisten = unix:@/s, 127.0.0.1:0\ntokens = @/tokens\n" + BOX.format(interval="0", settle="0", change="queue", stale="withhold")
    d = make(config, recording=False)
    with d:
        text = (d.dir / "c.conf").read_text().split("\n", 3)
        (d.dir / "c.conf").write_text("\n".join([text[0], text[2], text[3]]))
        (d.dir / "tokens").write_text(TOKENS)
        (d.dir / "tokens").chmod(0o600)
        topology(d, "pairs4")
        d.start()
        d.until(lambda: d.get("/v1/profiles")["profiles"])

        def run(*words, env=None):
            r = subprocess.run([NCCLTUNE, *words], cwd=d.dir, env=dict(d.environment(), **(env or {})), capture_output=True, text=True, timeout=60)
            return r.returncode, r.stdout + r.stderr
        here = ["--topology", "topo.xml", "--allow-rig", "model", "--out", "p.json"]
        for place, env in ((f"unix:{d.sock}", {}), ("http://" + d.places[1], {"NCCLTUNE_TOKEN": "read-token-0000000"})):
            (d.dir / "p.json").unlink(missing_ok=True)
            for says in ("profile 1\n", "as it was"):
                code, out = run("pull", "--from", place, *here, env=env)
                assert code == 0 and says in out, (place, code, out)
            assert json.loads((d.dir / "p.json").read_text()) == d.get("/v1/profiles/1")
        (d.dir / "tok").write_text("read-token-0000000\n")
        assert run("pull", "--from", "http://" + d.places[1], "--token-file", "tok", *here)[0] == 0
        for words, want, says in ((["--from", "http://" + d.places[1]], 1, "401"), (["--from", f"unix:{d.sock}", "--nccl", "2.18.1"], 0, "note: nccl"),
                                  (["--from", f"unix:{d.sock}", "--nccl", "2.18.1", "--exact"], 1, "and this stack"),
                                  (["--from", f"unix:{d.sock}", "--ranks", "2"], 1, "ranks: made for 4, asked for 2"),
                                  (["--from", "unix:/none"], 1, "No such file"), (["--from", "https://x:1"], 2, "curl"), (["--from", "http://x"], 2, "no port")):
            code, out = run("pull", *words, *here)
            assert code == want and says in out, (words, code, out)
        pull_from_impostor(d, run)
        other = SOURCE / "tests/topology/data/mesh8.xml"
        code, out = run("pull", "--from", f"unix:{d.sock}", "--topology", str(other), "--allow-rig", "model", "--out", "q.json")
        assert code == 1 and "other gpus" in out and not (d.dir / "q.json").exists(), out
        code, out = run("backup", "--db", str(d.db), "copy.db")
        assert code == 0, out
        assert sqlite3.connect(d.dir / "copy.db").execute("SELECT count(*) FROM profile").fetchone()[0] == 1
        assert run("backup", "--db", str(d.db), "copy.db")[0] == 2
        job = ["tune", "--rig", "model:topo.xml", "--effort", "quick", "-s", "64K", "-m", "eager", "-q", "--db", "i.db", "--if-changed"]
        for n, says in enumerate(("never tuned like this before", "nothing done", "machine was", "nothing done")):
            if n == 2:
                topology(d, "pcie4")
            code, out = run(*job)
            assert code == 0 and says in out, (n, code, out)
        for more, says in ((["-s", "64K,1M"], "never tuned like this"), (["-s", "64K,1M"], "nothing done"), ([], "nothing done"),
                           (["-m", "graph"], "never tuned like this"), (["--budget", "1h"], "nothing done")):
            code, out = run(*job, *more)
            assert code == 0 and says in out, (more, code, out)
        for n, spoil in enumerate((lambda p: p.unlink(), lambda p: p.write_text("{"))):
            spoil(d.dir / "nccltune-profile.json")
            for says in ("no profile can be read", "nothing done"):
                code, out = run(*job)
                assert code == 0 and says in out, (n, code, out)
            assert json.loads((d.dir / "nccltune-profile.json").read_text())["format"] == "nccltune-profile"
        assert d.stop() == 0


part_pull()
