#!/usr/bin/env python3
"""check_shell.py NCCLTUNE MAKE_RECORDING: the queue of a service by the command line: nccltune jobs --server."""
import json
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
sys.argv.insert(1, "")  # no part of the other's
from check_service import NCCLTUNE, RIG, TOKENS, make

SLOW = "[rig slow]\nrig = recording:@/r.csv.gz\ngpus = none\npace = real\neffort = quick\n"


class Shell:
    """The command as a user types it."""

    def __init__(self, d, server=None, **env):
        self.d, self.server, self.env = d, server or f"unix:{d.sock}", {**d.environment(), **env}

    def start(self, *words):
        return subprocess.Popen([NCCLTUNE, "jobs", "--server", self.server, *map(str, words)], cwd=self.d.dir, env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, rc=0, says=""):
        p = self.start(*words)
        out, err = p.communicate(timeout=100)
        assert p.returncode == rc and says in out + err, (words, p.returncode, out, err)
        assert "\x1b" not in out + err, (words, out, err)
        return out


def words(d, sh):
    """Submitted by names, followed to its end, listed; what is wrong is said in the service's words."""
    assert sh.run("--format", "json").strip() == "[]"
    asked = ["submit", "--rig", "replay", "--collectives", "all_reduce", "--modes", "eager,graph", "--sizes", "4K", "--effort", "quick",
             "--seed", 7, "--priority", 3, "--budget", "90s"]
    said = sh.run(*asked, "--follow").splitlines()
    assert said[0].startswith("job 1: ") and "job 1: running" in said and said[-1] == "job 1: done, profile 1", said
    assert any(line.startswith("job 1 race ") and "trials" in line for line in said), said
    job = d.get("/v1/jobs/1")
    assert job["priority"] == 3 and job["ask"] == {"collectives": ["all_reduce"], "modes": ["eager", "graph"], "sizes": "4K", "effort": "quick",
                                                   "seed": 7, "budget_s": 90}, job
    (row,) = json.loads(sh.run("--format", "json"))
    assert (row["job"], row["state"], row["rig"], row["profile"], row["priority"]) == (1, "done", "replay", 1, 3), row
    sh.run(says="replay")
    assert sh.run("follow", 1) == "job 1: done, profile 1\n"  # how it ended, at once
    events = [json.loads(line) for line in sh.run("submit", "--rig", "replay", "--seed", 8, "--follow", "--format", "json").splitlines()]
    assert events[0]["id"] == 2 and events[-1]["state"] == "done" and any("stage" in e for e in events), events
    for ask, rc, says in ((["submit"], 2, "name a rig"), (["submit", "--rig", "none"], 2, "there is no rig 'none'"),
                          (["submit", "--rig", "replay", "--collectives", "allreduce"], 2, "did you mean 'all_reduce'"),
                          (["submit", "--rig", "replay", "--modes", "fast"], 2, "fast"), (["submit", "--rig", "replay", "--seed", "x"], 2, "--seed"),
                          (["submit", "2", "--rig", "replay"], 2, "options only"), (["follow"], 2, "the job's number"), (["follow", "x"], 2, "'x'"),
                          (["follow", 99], 2, "404"), (["cancel", 0], 2, "no job 0"), (["cancel", 1], 1, "409"), (["cancle", 1], 2, "did you mean 'cancel'"),
                          (["submit", "--rig", "replay", "--sizes", "64M", "--follow"], 1, "job 3 failed")):
        sh.run(*ask, rc=rc, says=says)


def of_submit(d, sh):
    """What only submit takes is refused elsewhere."""
    for ask in (["follow", 1], ["cancel", 1], ["resume", 1], []):
        for option in (["--rig", "replay"], ["--seed", 0], ["--budget", "5m"], ["--priority", 1]):
            sh.run(*ask, *option, rc=2, says=f"{option[0]} is an option of submit only")
    r = subprocess.run([NCCLTUNE, "jobs", "--db", d.db, "--effort", "quick"], env=sh.env, capture_output=True, text=True, check=False)
    assert r.returncode == 2 and "--effort is an option of submit only" in r.stderr, r
    sh.run("sumbit", "--rig", "replay", rc=2, says="did you mean 'submit'")


def cancelled(d, sh):
    """Who follows a job sees it cancelled, and is told how it goes on; a service that was away is found again."""
    job = json.loads(sh.run("submit", "--rig", "slow", "--format", "json"))["id"]
    d.wait(job, "running")
    one = sh.start("follow", job)
    assert one.stdout.readline().startswith(f"job {job}: ")
    assert d.stop() == 0
    assert "asked again in 3 s" in one.stderr.readline()
    d.start()
    d.wait(job, "running")
    sh.run("cancel", job, says=f"job {job}: ")
    out, err = one.communicate(timeout=60)
    assert one.returncode == 5 and f"job {job}: cancelled" in out and f"'nccltune jobs resume {job}' goes on with it" in err, (out, err)
    sh.run("resume", job, says=f"job {job}: ")
    d.wait(job, "running")
    sh.run("cancel", job)
    d.wait(job)


def tokens(d):
    (d.dir / "tok").write_text("submit-token-0000000\n")
    http = "http://" + d.places[1]
    Shell(d, http).run(rc=1, says="401")
    reader = Shell(d, http, NCCLTUNE_TOKEN="read-token-0000000")
    reader.run(says="replay")
    reader.run("submit", "--rig", "replay", rc=1, says="403")
    said = Shell(d, http).run("--token-file", "tok", "submit", "--rig", "replay", "--seed", 9, "--follow")
    assert ": done, profile" in said, said
    for server, says in (("unix:/none", "No such file"), ("http://127.0.0.1:1", "refused")):  # not the answer of a job that failed
        for ask in (["follow", 1], ["submit", "--rig", "replay", "--follow"], []):
            Shell(d, server).run(*ask, rc=3, says=says)
            Shell(d, server).run(*ask, rc=3, says="start it with `nccltune serve`, or name another with --server")
    Shell(d, "https://x:1").run(rc=2, says="curl")


def impostor(d):
    """What answers may be no service of ours: no escapes, and an end."""
    def answer(o):
        body = json.dumps(o).encode()
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    events = b'HTTP/1.1 200 OK\r\n\r\nevent: progress\ndata: {"job": 1, "stage": "\\u001b[2J", "done": 9}\n\n: \nnonsense\n\ndata: {\n\n'
    answers = [answer({"id": 1, "state": "running"}), events + b'event: job\ndata: {"job": 1, "state": "done"}\n\n',
               answer({"id": 1, "state": "done", "reason": "\u001b[2Jred"})]
    place = d.dir / "impostor"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen(1)

    def serve():
        for a in answers:
            c = listener.accept()[0]
            c.recv(65536)
            c.sendall(a)
            c.close()
    threading.Thread(target=serve, daemon=True).start()
    Shell(d, f"unix:{place}").run("follow", 1, says="job 1: done, ?[2Jred")


def main():
    with make(f"[server]\nlisten = unix:@/s, 127.0.0.1:0\ntokens = @/tokens\n{RIG}{SLOW}") as d:
        text = (d.dir / "c.conf").read_text().split("\n", 3)
        (d.dir / "c.conf").write_text("\n".join([text[0], text[2], text[3].replace("[server]\n", "")]))
        (d.dir / "tokens").write_text(TOKENS)
        (d.dir / "tokens").chmod(0o600)
        d.start()
        sh = Shell(d)
        words(d, sh)
        of_submit(d, sh)
        cancelled(d, sh)
        tokens(d)
        impostor(d)
        assert d.stop() == 0
    print("ok")


if __name__ == "__main__":
    main()
