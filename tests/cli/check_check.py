#!/usr/bin/env python3
"""check_check.py NCCLTUNE MAKE_RECORDING BUILD: `check` on a recording and on the made-up machine: exit codes, words, history."""
import gzip
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

NCCLTUNE, MAKE, BUILD = map(os.path.abspath, sys.argv[1:4])
REC = ["--rig", "recording:r.csv.gz"]


class Place:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.env = {"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "NCCLTUNE_DB": folder + "/a.db"}

    def call(self, *words, code=0, says="", **more):
        r = subprocess.run([NCCLTUNE, *map(str, words)], cwd=self.folder, env={**self.env, **more}, capture_output=True, text=True,
                           timeout=100)
        assert r.returncode in (code if isinstance(code, tuple) else (code,)) and says in r.stdout + r.stderr, (words, r.returncode, r.stdout, r.stderr)
        return r.stdout

    def change(self, name, fun):
        """Another profile: the first one with a change."""
        doc = json.loads((self.folder / "p.json").read_text())
        fun(doc)
        (self.folder / name).write_text(json.dumps(doc))
        return name

    def sql(self, text, *args):
        with sqlite3.connect(self.env["NCCLTUNE_DB"]) as db:
            rows = db.execute(text, args).fetchall()
        db.close()
        return rows


def more_gain(doc):
    for c in doc["products"]["table"]["classes"]:
        if c.get("gain") and c["verdict"] == "tuned":
            c["gain"], c["interval"] = 0.97, [0.96, 0.98]


def check_recording(p):
    subprocess.run([MAKE, "r.csv.gz", "1", "1K,64K,1M"], cwd=p.folder, check=True)
    p.call("tune", "-q", *REC, "--pairs", "8", "--effort", "quick", "--out", "p.json")
    out = p.call("check", "p.json", *REC, says="it holds")
    p.call("check", "p.json", "--db", "u.db", says="it holds")  # it tells what it was played from
    assert "control: not measured on this rig" in out, out
    d = json.loads(p.call("check", "1", *REC, "--format", "json", "--seed", "2"))  # a job's profile, by its number
    assert d["verdict"] == "holds" and d["last_check"] == 1 and d["check"] == 2 and 3 <= d["pairs"] <= 24, d
    assert d["pairs"] == max(r["pairs"] for r in d["rows"]), d
    assert all(r["verdict"] == "holds" and r["lo"] > 0 for r in d["rows"]) and len(d["rows"]) >= 2, d
    p.call("check", p.change("more.json", more_gain), *REC, code=1, says="it has drifted")
    p.call("check", p.change("nccl.json", lambda x: x["stack"].update(nccl="2.27.3")), *REC, code=3, says="--despite nccl")
    p.call("check", "nccl.json", *REC, "--despite", "nccl", says="differs: NCCL: made with 2.27.3")
    p.call("check", "p.json", "--rig", "nccl", code=3, says="the profile is of the rig")
    p.call("check", "p.json", *REC, "--pairs", "1", code=2, says="must be 2 to 256")
    for bad in ("4:3", "3:", "x", "3:999"):
        p.call("check", "p.json", *REC, "--pairs", bad, code=2, says="--pairs")
    p.call("check", "p.json", *REC, "--devices", "0,1", code=2, says="--devices: ")
    p.call("check", "p.json", *REC, "--despite", "drivr", code=2, says="driver")
    p.call("check", "p.json", "--rig", "recordin:x", code=2, says="unknown rig")
    p.call("check", "none.json", code=2)
    for bad, code, says in ((["check", "p.json", *REC, "--pairs", "1"], 2, "--pairs"), (["check", "p.json", "--rig", "recordin:x"], 2, "unknown rig"),
                            (["check", "p.json", *REC, "--devices", "0,1"], 2, "--devices: "), (["merge", "none.db"], 3, "none.db"),
                            (["merge", "a.db", "p.json"], 2, "p.json")):
        p.call(*bad, "--db", "new.db", code=code, says=says)
        assert not (p.folder / "new.db").exists(), bad  # what cannot begin makes no database
    p.call("merge", "a.db", "--db", "new.db", says="a.db: 1 jobs")
    p.call("check", "p.json", *REC, "--fix", "NCCL_P2P_DISABLE=1", code=2, says="--fix: ")
    # Of another type than was proved it is looked at whether it is faster, and nothing is less than what was proved.
    def other_type(doc):
        more_gain(doc)
        doc["dtypes"] = ["fp32", "bf16"]

    out = p.call("check", p.change("type.json", other_type), *REC, "--db", "t.db", says="it holds")
    assert "what was proved is of fp32" in out and "97.0 %" not in out and " bf16\n" in out.splitlines()[0] + "\n", out
    p.call("check", p.change("type.json", lambda x: x.update(dtypes=["fp32"])), *REC, code=3, says="holds bf16, the profile is of fp32")
    check_unmeasured(p)
    check_site(p)
    view = p.call("query", "--view", "checks", "--format", "json")
    assert json.loads(view) and "was_gain_pct" in view, view


def check_unmeasured(p):
    """What a check does not measure does not hold: rows of backends, and what a recording does not have."""
    def backends(doc, only):
        doc["backends"] = {"asked": ["nccl", "ipc"], "peers": [], "notes": [], "same_bits": False, "classes": [
            {"bytes": 1024, "coll": "all_reduce", "default_ns": 9000, "gain": 0.4, "guard_upper": 0.6, "interval": [0.3, 0.5], "mode": "graph",
             "ns": 5000, "p_adjusted": 0.0005, "pairs": 12, "rival": "default", "rival_ns": 9000, "setting": "ipc one_shot/push", "verdict": "tuned"}],
            "rows": [{"algo": "one_shot", "backend": "ipc", "bits": "same", "coll": "all_reduce", "max_bytes": 2048, "min_bytes": 1024,
                      "mode": "graph", "numerics": "rank-order-fp32", "proto": "push", "serves": ["bf16/out"]}]}
        if only:
            doc.pop("delivery")
            doc["products"]["table"].update(rows=[], classes=[], vars={})
            doc["products"]["static"].update(classes=[], vars={})

    out = p.call("check", p.change("both.json", lambda d: backends(d, False)), *REC, "--db", "u.db", says="it holds")
    assert "not checked: 1 row of backends" in out, out
    out = p.call("check", p.change("only.json", lambda d: backends(d, True)), *REC, "--db", "u.db", code=4, says="cannot tell: no row but")
    assert "sets nothing" not in out, out
    assert json.loads(p.call("check", "only.json", *REC, "--db", "u.db", "--format", "json", code=4))["verdict"] == "cannot tell"

    def gather(doc):
        table = doc["products"]["table"]
        doc.pop("delivery")
        table["rows"].append({**table["rows"][0], "coll": "all_gather", "algo": "ring", "proto": "simple"})
        table["classes"] += [{**c, "coll": "all_gather"} for c in table["classes"]]

    out = p.call("check", p.change("gather.json", gather), *REC, "--db", "u.db", code=4, says="not all rows were measured")
    assert "too noisy" not in out, out


def check_site(p):
    """What a recording was taken under is in force in it: nothing differs there."""
    lines = gzip.decompress((p.folder / "r.csv.gz").read_bytes()).decode().split("\n")
    lines = [line for line in lines if not line.startswith("#fixed=")]
    (p.folder / "s.csv").write_text("\n".join([lines[0], "#fixed=NCCL_NVLS_ENABLE=0", *lines[1:]]))
    site = ("--rig", "recording:s.csv", "--db", "s.db")
    p.call("tune", "-q", *site, "--pairs", "8", "--effort", "quick", "--out", "s.json")
    out = p.call("check", "s.json", *site, says="it holds")
    assert "differs" not in out, out
    view = json.loads(p.call("query", "--db", "s.db", "--format", "json", "SELECT DISTINCT site, differs FROM checks"))
    assert view == [{"site": "NCCL_NVLS_ENABLE=0", "differs": ""}], view


def check_history(p):
    """Seven good checks and seven after a new driver: the change is found between them."""
    p.call("check", "p.json", "--history", says="no change that 4 checks can tell from chance")
    p.call("check", "p.json", "--history", "--db", "none.db", code=3, says="none.db")
    for seed in range(3, 15):
        p.call("check", "p.json", *REC, "--seed", seed)
    ids = [i for i, in p.sql("SELECT id FROM checkrun WHERE profile = (SELECT profile FROM checkrun WHERE id = 1) ORDER BY id")]
    assert len(ids) >= 14, ids
    with sqlite3.connect(p.env["NCCLTUNE_DB"]) as db:
        old = db.execute("SELECT stack_id FROM checkrun WHERE id = ?", (ids[0],)).fetchone()[0]
        db.execute("INSERT INTO stack (hash, nccl, nccl_sha256, cuda, driver, framework, gpu, site) SELECT replace(hash, substr(hash, 1, 8),"
                   " '01234567'), nccl, nccl_sha256, cuda, '999.1', framework, gpu, site FROM stack WHERE id = ?", (old,))
        new = db.execute("SELECT id FROM stack WHERE driver = '999.1'").fetchone()[0]
        for i in ids[7:]:
            db.execute("UPDATE checkrun SET stack_id = ? WHERE id = ?", (new, i))
            db.execute("UPDATE checkrow SET ratio = ratio * 0.8, lo = lo * 0.8, hi = hi * 0.8 WHERE check_id = ?", (i,))
    db.close()
    d = json.loads(p.call("check", "p.json", "--history", "--format", "json"))
    assert len(d["changes"]) == 1, d["changes"]
    c = d["changes"][0]
    assert (c["last_good"], c["first_bad"], c["kind"]) == (ids[6], ids[7], "step"), c
    assert "999.1" in c["differs"] and c["differs"].startswith("driver was"), c
    assert c["gain_before"] > c["gain_after"], c
    p.call("check", "p.json", "--history", says="is 999.1")
    with sqlite3.connect(p.env["NCCLTUNE_DB"]) as db:  # the newest three are of another type: no step, they are told of alone
        for case, in db.execute("SELECT DISTINCT case_id FROM checkrow").fetchall():
            db.execute("INSERT INTO cases (collective, bytes, dtype, place, mode) SELECT collective, bytes, 'fp16', place, mode FROM cases"
                       " WHERE id = ?", (case,))
            db.execute("UPDATE checkrow SET case_id = last_insert_rowid() WHERE case_id = ? AND check_id >= ?", (case, ids[-3]))
    db.close()
    p.call("check", "p.json", "--history", says=f"{len(ids) - 3} more of another type than fp16 are left out")
    d = json.loads(p.call("check", "p.json", "--history", "--format", "json"))
    assert [c["dtype"] for c in d["checks"]] == ["fp16"] * 3 and d["changes"] == [] and d["other_types"] == len(ids) - 3, d


def check_machine(p):
    """Real gangs and the delivered table: by the made-up machine, and the probe on a fake device, where times are noise."""
    world = ["--rig", "nccl", "--probe", BUILD + "/tests/e2e/world_probe"]
    p.call("tune", "-q", *world, "--ranks", "2", "--sizes", "1K,128K,512K,1M", "--pairs", "8", "--effort", "quick", "--try",
           "NCCL_MIN_NCHANNELS=16", "--out", "p.json")
    d = json.loads(p.call("check", "p.json", "--probe", world[3], "--format", "json"))
    assert d["verdict"] == "holds" and d["control"]["copy"]["ns"] > 0 and d["control"]["launch"]["ns"] > 0, d
    p.call("check", "p.json", "--probe", world[3], says="copies within the device at")
    # Wrong above 600 KiB. A row is looked at at its middle size, 512K, but where noise gave 1M a row of its own.
    d = json.loads(p.call("check", "p.json", "--probe", world[3], "--env", "WORLD_FAULT=wrong-above:0", "--format", "json", code=(0, 1)))
    looked = {r["bytes"]: r["verdict"] for r in d["rows"]}
    assert looked and all((v == "holds") == (b < 600 << 10) for b, v in looked.items()), looked
    assert d["verdict"] == ("drifted" if 1 << 20 in looked else "holds"), d["verdict"]
    p.call("check", "p.json", "--probe", world[3], "--env", "WORLD_FAULT=crash:0:30")  # another pair in its place
    p.call("check", "p.json", "--probe", world[3], "--env", "WORLD_FAULT=init-error:0", code=3, says="ncclCommInitRank")
    fake, lib = BUILD + "/tests/probe/nccltune-probe-fake", {"NCCLTUNE_NCCL_LIB": BUILD + "/tests/probe/libfakenccl.so"}
    p.call("check", "p.json", "--probe", fake, code=3, says="GPU: made with", **lib)
    p.call("tune", "-q", *world, "--ranks", "2", "--sizes", "1K,128K", "--modes", "eager", "--pairs", "8", "--effort", "quick", "--try",
           "NCCL_MIN_NCHANNELS=16", "--out", "q.json")
    out = p.call("check", "q.json", "--probe", fake, "--despite", "driver", "--despite", "gpu", "--env", "FAKE_NCCL_SPEED=0.1",
                 "--pairs", "2", code=(0, 1, 4), says="differs: GPU: made with made up", **lib)
    assert "copies within the device at" in out and "2 pairs" in out, out
    left = [x.name for x in p.folder.iterdir() if x.name.startswith("nccltune-") and x.is_dir()]
    assert not left, left


def main():
    for part in (check_recording, check_machine):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
            place = Place(folder)
            part(place)
            if part is check_recording:
                check_history(place)
    print("3 parts")


main()
