#!/usr/bin/env python3
"""A rank of either probe that measures nothing: times by backend and size, faults by STUB ("kind backend algo": lost, wrong, gone, absent)."""
import json
import os
import socket
import sys

START = {"nccl": 20, "nccl-registered": 20, "nccl-symmetric": 15, "ipc": 6, "host-memory": 40, "torch-symm-mem": 6, "torch-distributed": 22}
FRAMEWORK = os.path.basename(sys.argv[0]) == "nccltune-probe-framework"


def result(m, fault):
    case, call = m["case"], m["call"]
    mine = fault[1:2] == [call["backend"]] and (len(fault) < 3 or fault[2] == call["algo"])
    if mine and fault[0] == "gone":
        os._exit(1)
    status = {"lost": "timeout", "wrong": "wrong", "absent": "unavailable"}.get(fault[0], "ok") if mine else "ok"
    us = START[call["backend"]] + case["bytes"] / 1e5 + (5 if case["mode"] == "eager" else 0)
    us *= 0.9 if call["proto"] == "direct" else 1
    us += 10 if FRAMEWORK and case["mode"] == "eager" else 0
    us *= 1 if call["backend"] != "ipc" else float(os.environ.get("STUB_OURS", "1"))
    ns = [int(us * 1000)] * m["samples"] if status == "ok" else []
    return {"type": "result", "id": m["id"], "status": status, "ns": ns, "base_ns": 0, "wrong": int(status == "wrong"), "bits": "same",
            "executed": {"algo": call["algo"], "proto": call["proto"], "channels": 0, "warps": 0}, "elapsed_ns": 1, "connect_ns": 0,
            "memory_bytes": 0, "error": "made up" if status != "ok" else ""}


def main():
    if sys.argv[1:] == ["peers"]:
        print(json.dumps({"multicast": "not asked", "devices": [{"name": "made up", "copy_bytes_per_s": 1e12}] * 2, "pairs": []}))
        return
    fault = os.environ.get("STUB", "").split()
    if FRAMEWORK and fault[:1] == ["import"]:
        sys.exit("No module named torch")
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ["NCCLTUNE_DRIVER"].removeprefix("unix:"))
    stream = link.makefile("rwb")

    def say(**m):
        stream.write(json.dumps(m).encode() + b"\n")
        stream.flush()

    say(type="hello", rank=int(os.environ["NCCLTUNE_RANK"]), nccl=22809)
    for line in stream:
        m = json.loads(line)
        if m["type"] == "quit":
            return
        if m["type"] == "uid":
            say(type="uid", hex="00")
        elif m["type"] == "init":
            say(type="ready")
        else:
            say(**result(m, fault))


main()
