#!/usr/bin/env python3
"""Stands in for srun, mpirun, mpiexec.hydra, ssh and kubectl: starts processes as they do, on this host.

Each process is a session of its own with the environment that the real launcher would give it, and goes by the name
of a made-up node (NCCLTUNE_NODE). It is called by the launcher's name.
FAKE_NODES   names of the nodes (default node-a,node-b,node-c,node-d)
FAKE_FAULT   KIND[:NUMBER]
    fails       ends with exit code 7 and words, a second after it has begun, having started nothing
    short       starts all but process NUMBER
    swallows    passes no variable on, not even the contact
    other       gives process NUMBER another secret
    same        all processes on one node
    dies        kills process NUMBER, and what it started, after FAKE_AFTER_MS
    lurks       comes in itself as one agent more, says nothing, and leaves when it is told something
    nofolder    gives process NUMBER a TMPDIR in which nothing can be made (root's only)
    repeats     gives all processes the number 0
    once        fails the first time that it is called at all
    alone       notes a clash when it is called while another one has not started its processes yet
FAKE_LOG     file that takes this command's words, a line a command
"""
import hashlib
import hmac
import os
import signal
import socket
import subprocess
import sys
import threading
import time

NODES = os.environ.get("FAKE_NODES", "node-a,node-b,node-c,node-d").split(",")
KIND, _, NUMBER = os.environ.get("FAKE_FAULT", "").partition(":")
NUMBER = int(NUMBER or 0)
BARE = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
KEPT = ["TMPDIR", "WORLD_MARK", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"]


def bare():
    """What a login on another host has of its own; a test's TMPDIR, by which it finds what is left."""
    env = dict(BARE)
    env.update({k: os.environ[k] for k in KEPT if k in os.environ})
    return env


def spoil(contact, number):
    if KIND == "other" and number == NUMBER and contact:
        return contact[:-8] + "00000000"
    return contact


def is_first():
    try:
        os.close(os.open(os.environ["FAKE_LOG"] + ".once", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def note(line):
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        log.write(line + "\n")


def be_alone():
    lock = os.environ["FAKE_LOG"] + ".lock"
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        note("clash")
        return
    time.sleep(0.1)
    os.unlink(lock)


def lurk():
    """One process more than was asked for, slow to say which."""
    addresses, port, secret = os.environ["NCCLTUNE_LAUNCH"].split("/")
    s = socket.create_connection((addresses.split(",")[0], int(port)))
    mine, version = "a" * 64, os.environ["FAKE_VERSION"]
    s.sendall(f"nccltune-agent {version} lurker {mine}\n".encode())
    theirs = s.makefile().readline().split()[0]
    proof = hmac.new(secret.encode(), f"agent lurker {mine} {theirs}".encode(), hashlib.sha256).hexdigest()
    s.sendall(proof.encode() + b"\n")
    threading.Thread(target=lambda: (s.recv(1), s.close()), daemon=True).start()
    time.sleep(0.2)


def take(words, option):
    """The value of an option, as '--option=V' or '--option V', and the words without it."""
    for i, w in enumerate(words):
        if w.startswith(option + "="):
            return w[len(option) + 1:]
        if w == option:
            return words[i + 1]
    return None


def srun(words):
    at = words.index("--export=ALL")
    rest = words[at + 1:]
    rest = rest[1:] if rest[0].startswith("--nodelist") else rest
    env = dict(os.environ)
    if KIND == "swallows":
        env = bare()
    return [(rest, {**env, "SLURM_PROCID": str(i), "SLURM_NODEID": str(i)}, None) for i in range(int(take(words, "--ntasks")))]


def mpirun(words):
    at = words.index("-x")
    name, rest = words[at + 1], words[at + 2:]
    rest = rest[2:] if rest[0] == "--host" else rest
    env = bare()
    if KIND != "swallows":
        env[name] = os.environ[name]
    return [(rest, {**env, "OMPI_COMM_WORLD_RANK": str(i)}, None) for i in range(int(take(words, "-np")))]


def hydra(words):
    at = words.index("-genvlist")
    name, rest = words[at + 1], words[at + 2:]
    rest = rest[2:] if rest[0] == "-hosts" else rest
    env = bare()
    if KIND != "swallows":
        env[name] = os.environ[name]
    return [(rest, {**env, "PMI_RANK": str(i)}, None) for i in range(int(take(words, "-n")))]


def ssh(words):
    command = words[-1]
    number = int(command.rsplit(" ", 1)[1])
    return [(["/bin/sh", "-c", command], bare(), sys.stdin)] if not (KIND == "short" and number == NUMBER) else []


def kubectl(words):
    rest = words[words.index("--") + 1:]
    return [(rest, bare(), sys.stdin)]


def node_of(i, words):
    name = os.path.basename(sys.argv[0])
    if name == "ssh":
        return words[-2]
    if name == "kubectl":
        return words[words.index("--") - 1]
    hosts = take(words, "--nodelist") or take(words, "--host") or take(words, "-hosts")
    return (hosts.split(",") if hosts else NODES)[0 if KIND == "same" else i]


def main():
    words = sys.argv[1:]
    if "FAKE_LOG" in os.environ:
        note(" ".join([os.path.basename(sys.argv[0]), *words]))
    if KIND == "once" and is_first():
        print("error: the controller is busy", file=sys.stderr)
        return 1
    if KIND == "alone":
        be_alone()
    if KIND == "fails":
        time.sleep(1)
        print("error: the partition is down", file=sys.stderr)
        return 7
    table = {"srun": srun, "mpirun": mpirun, "mpiexec": mpirun, "mpiexec.hydra": hydra, "ssh": ssh, "kubectl": kubectl}
    started = []

    def end(signum, _):
        for p in started:
            try:
                os.killpg(p.pid, signum)
            except ProcessLookupError:
                pass

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if KIND == "lurks":
        lurk()
    for i, (command, env, stdin) in enumerate(table[os.path.basename(sys.argv[0])](words)):
        if KIND == "short" and i == NUMBER and stdin is None:
            started.append(subprocess.Popen(["sleep", "1000"], env=bare(), start_new_session=True))
            continue
        env["NCCLTUNE_NODE"] = node_of(i, words)
        if "NCCLTUNE_LAUNCH" in env:
            env["NCCLTUNE_LAUNCH"] = spoil(env["NCCLTUNE_LAUNCH"], i)
        if KIND == "nofolder" and i == NUMBER:
            env["TMPDIR"] = "/proc"
        if KIND == "repeats":
            env.update({k: "0" for k in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if k in env})
        env.pop("FAKE_FAULT", None)
        started.append(subprocess.Popen(command, env=env, stdin=stdin if stdin else subprocess.DEVNULL, start_new_session=True))
    if KIND == "dies":
        time.sleep(float(os.environ.get("FAKE_AFTER_MS", "1500")) / 1000)
        if NUMBER < len(started):
            os.killpg(started[NUMBER].pid, signal.SIGKILL)
    codes = [p.wait() for p in started]
    return next((c if c > 0 else 128 - c for c in codes if c != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
