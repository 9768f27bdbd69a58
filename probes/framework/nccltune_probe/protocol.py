"""Version 1 of the protocol between driver and rank, the same tables as probes/protocol/protocol.c.

One JSON object a line. A member too many, one missing, a wrong kind or an unknown name is a broken protocol
(ProtocolError), never guessed around.
"""
import json

VERSION = 1
LINE_MAX = 1 << 20
MAX_SAMPLES = 4096

COLLS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce", "alltoall", "sendrecv")
ALGOS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat", "one_shot", "two_shot", "symmetric")
PROTOS = ("ll", "ll128", "simple", "push", "pull", "direct", "window")
NCCL_ALGOS, NCCL_PROTOS = 7, 3  # as many of them are NCCL's
DTYPES = ("bf16", "fp32", "fp16", "int32", "fp8")
PLACES = ("out", "in")
MODES = ("eager", "stream", "graph")
BACKENDS = ("nccl", "nccl-registered", "nccl-symmetric", "ipc", "host-memory", "torch-distributed", "torch-symm-mem",
            "custom-allreduce", "pynccl", "flashinfer", "mscclpp")
STATUSES = ("ok", "unavailable", "wrong", "disagree", "timeout", "crashed", "error", "too_slow", "not_recorded")
BITS = ("unknown", "same", "different")

# Flags of a measure.
READBACK, BUSY, GROUP8, BARRIER, COMPARE_BITS, COPY, LAUNCH = (1 << i for i in range(7))


class ProtocolError(Exception):
    pass


def _uint(v):
    return type(v) is int and 0 <= v < 1 << 63


def _int(v):
    return type(v) is int


def _text(v):
    return isinstance(v, str)


def _text_or_null(v):
    return v is None or isinstance(v, str)


def _variables(v):
    return isinstance(v, dict) and all(isinstance(value, str) and name and "=" not in name for name, value in v.items())


def _one_of(names):
    return lambda v: v in names


def _choice(names):
    return lambda v: v is None or v in names


def _samples(v):
    return isinstance(v, list) and len(v) <= MAX_SAMPLES and all(type(n) is int and 0 <= n < 1 << 32 for n in v)


def _costs(v):
    return (isinstance(v, list) and len(v) == NCCL_ALGOS and
            all(isinstance(row, list) and len(row) == NCCL_PROTOS for row in v))


CASE = {"bytes": _uint, "coll": _one_of(COLLS), "dtype": _one_of(DTYPES), "place": _one_of(PLACES), "mode": _one_of(MODES)}
CALL = {"backend": _one_of(BACKENDS), "algo": _choice(ALGOS), "proto": _choice(PROTOS), "channels": _uint, "chunk_bytes": _uint}
EXECUTED = {"algo": _choice(ALGOS), "proto": _choice(PROTOS), "channels": _uint, "warps": _uint}
TO_RANK = {
    "uid": {"hex": _text},
    "init": {"uid": _text, "backend": _text, "vars": _variables, "max_bytes": _uint, "gang": _uint, "shm": _text,
             "device": _uint},
    "cells": {"case": CASE, "cost": _costs, "asked": lambda v: isinstance(v, bool)},
    "measure": {"id": _uint, "case": CASE, "call": CALL, "warmup": _uint, "samples": _uint, "inner": _uint,
                "verify": _one_of((0, 1, 2)), "flags": lambda v: _uint(v) and v < 128, "deadline_ms": _uint},
    "abort": {},
    "quit": {},
}
TO_DRIVER = {
    "hello": {"v": _uint, "rank": _uint, "world": _uint, "pid": _int, "host": _text, "gpu_uuid": _text, "gpu_pci": _text,
              "gpu_name": _text, "gpu_memory_bytes": _uint, "nccl": _int, "cuda": _int, "driver": _int, "nccl_file": _text,
              "rig": _text},
    "uid": {"hex": _text},
    "ready": {"init_ns": _uint, "memory_bytes": _uint, "topology_xml": _text_or_null, "text": _text_or_null},
    "cells": {"case": CASE, "cost": _costs, "asked": lambda v: isinstance(v, bool)},
    "result": {"id": _uint, "status": _one_of(STATUSES), "ns": _samples, "base_ns": _uint, "executed": EXECUTED,
               "bits": _one_of(BITS), "wrong": _uint, "elapsed_ns": _uint, "connect_ns": _uint, "memory_bytes": _uint,
               "error": _text},
    "error": {"text": _text},
}


def _check(where, fields, found):
    if not isinstance(found, dict):
        raise ProtocolError(f"{where}: must be an object")
    for name in fields.keys() - found.keys():
        raise ProtocolError(f"{where}: {name} is missing")
    for name in found.keys() - fields.keys():
        raise ProtocolError(f"{where}: unknown member {name[:40]}")
    for name, kind in fields.items():
        if isinstance(kind, dict):
            _check(f"{where}.{name}", kind, found[name])
        elif not kind(found[name]):
            raise ProtocolError(f"{where}.{name}: not of its kind")


def decode(line):
    """(type, members) of a line from the driver."""
    if len(line) > LINE_MAX:
        raise ProtocolError(f"a line of {len(line)} bytes")
    try:
        found = json.loads(line)
        kind = found.pop("type")
        fields = TO_RANK[kind]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ProtocolError("neither JSON nor a message to a rank") from None
    _check(kind, fields, found)
    if kind == "measure":
        _check_call(found)
    return kind, found


def _check_call(m):
    call = m["call"]
    if (call["algo"] is None) != (call["proto"] is None):
        raise ProtocolError("measure: algo without proto")
    if m["samples"] > MAX_SAMPLES or (m["inner"] == 0 and m["case"]["mode"] != "eager"):
        raise ProtocolError("measure: too many samples, or inner 0")


def encode(kind, **members):
    """The line, with its newline, of a message to the driver."""
    _check(kind, TO_DRIVER[kind], members)
    line = json.dumps({"type": kind, **members}, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_MAX:
        raise ProtocolError(f"{kind}: a line of {len(line)} bytes")
    return line
