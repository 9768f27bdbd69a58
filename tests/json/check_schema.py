#!/usr/bin/env python3
"""check_schema.py SCHEMA SAMPLE_PROGRAM: what is written is valid, and what must not be is not. Exit 77: no jsonschema."""
import copy
import json
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: the Python module jsonschema is not installed")
    sys.exit(77)

schema = json.load(open(sys.argv[1], encoding="utf-8"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)


def sample(*args):
    return json.loads(subprocess.run([sys.argv[2], *args], check=True, capture_output=True, text=True).stdout)


def changed(doc, path, value):
    doc = copy.deepcopy(doc)
    at = doc
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return doc


good = [sample(), sample("empty"), sample("rig", "mps-sockets"), sample("rig", "recording")]
for doc in good:
    validator.validate(doc)
bad = [
    (["version"], 2),
    (["surprise"], 1),
    (["created"], "yesterday"),
    (["rig", "functional"], True),
    (["ranks"], 0),
    (["stack", "nccl"], None),
    (["identity", "id"], "XYZ"),
    (["products", "table", "rows", 0, "algo"], "fast"),
    (["products", "table", "rows", 0, "proto"], None),
    (["products", "table", "rows", 0, "coll"], "alltoall"),
    (["products", "table", "rows", 0, "command"], "rm"),
    (["products", "table", "vars"], {"NCCL_ALGO": "allreduce:ring"}),
    (["products", "table", "vars"], {"NCCL_TUNER_PLUGIN": "/x.so"}),
    (["products", "static", "vars"], {"NCCL_TOPO_FILE": "/x.xml"}),
    (["products", "static", "vars"], {"LD_PRELOAD": "/x.so"}),
    (["products", "static", "vars"], {"NCCL_BUFFSIZE": "$(id)"}),
    (["products", "table", "classes", 0, "verdict"], "great"),
    (["backends", "rows", 0, "backend"], "nccl"),
    (["backends", "rows", 0, "serves"], []),
    (["backends", "rows", 0, "serves"], ["bf16"]),
    (["backends", "rows", 0, "bits"], None),
    (["backends", "classes"], None),
    (["backends", "asked"], ["rccl"]),
    (["health"], ["two\nlines"]),
    (["warnings"], ["two\nlines"]),
    (["delivery", "hash"], "0"),
]
for path, value in bad:
    if validator.is_valid(changed(good[0], path, value)):
        print(f"accepted: {path} = {value!r}")
        sys.exit(1)
print(f"{len(good)} documents valid, {len(bad)} changes refused")
