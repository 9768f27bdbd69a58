#!/usr/bin/env python3
"""check_tune.py NCCLTUNE MAKE_RECORDING: what tune says to input that it cannot serve, and its exit codes."""
import gzip
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

NCCLTUNE, MAKE = map(os.path.abspath, sys.argv[1:3])
REC = ["--rig", "recording:r.csv.gz"]
# arguments, exit code, what stderr says
CASES = [
    (REC + ["-s", "3K"], 2, "all_reduce of 3K in mode eager was not recorded; did you mean 4K?"),
    (REC + ["-m", "stream"], 2, "in mode stream was not recorded"),
    (REC + ["-c", "all_gather"], 2, "all_gather was not recorded"),
    (REC + ["--dtypes", "fp32"], 2, "bf16"),
    (REC + ["--dtypes", "fp32,bf16", "--dry-run"], 0, "note: this recording holds bf16: fp32 is not raced\n"),
    (REC + ["--try", "NCCL_BUFSIZE=1"], 2, "NCCL_BUFFSIZE"),
    (REC + ["--try", "NCCL_BUFFSIZE=1048576"], 2, "NCCL_BUFFSIZE=1048576 was not recorded"),
    (REC + ["--try", "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2"], 2,
     "NCCL_NSOCKS_PERTHREAD=2 NCCL_SOCKET_NTHREADS=4 was not recorded"),
    (REC + ["--try", "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD"], 2, "not 'NCCL_NSOCKS_PERTHREAD'"),
    (REC + ["--try", "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=99"], 2, "NCCL_NSOCKS_PERTHREAD"),
    (REC + ["--fix", "NCCL_P2P_DISABLE=1"], 2, "--fix: "),
    (REC + ["--probe", "/bin/true"], 2, "--probe: "),
    (REC + ["--env", "A=1"], 2, "--env: "),
    (REC + ["--nodes", "2"], 2, "--nodes: "),
    (REC + ["--resume", "-1"], 2, "--resume: "),
    (["--rig", "nccl", "--null"], 2, "--null: "),
    (["--rig", "model:"], 2, "topology cannot be read"),
    (["--rig", "recording:odd.csv"], 2, "of the rig 'model' is no measurement"),
    (["--rig", "nccl", "-n", "2", "--probe", "/bin/true", "--fix", "NCCL_MIN_NCHANNELS=16", "--try", "NCCL_MIN_NCHANNELS=32"], 2,
     "--try NCCL_MIN_NCHANNELS: it is fixed"),
    (REC + ["--out", "x.db"], 2, "--out x.db is the database"),
    (REC + ["--out", "r.csv.gz"], 2, "r.csv.gz is a packed file, which is not written over"),
    (REC + ["--out", "none/p.json"], 2, "--out none/p.json: nothing can be written there"),
    (REC + ["--out", "folder"], 2, "--out 'folder' is no name for a file"),
    (REC + ["--out", ""], 2, "is no name for a file"),
    (REC + ["--out", "/proc/x"], 2, "--out /proc/x: nothing can be written there"),
    (REC + ["--out", "pipe"], 2, "--out pipe: nothing can be written there"),
    (REC + ["--out", "/dev/full"], 1, "--out /dev/full: nothing can be written there"),
    (REC + ["--out", "/proc/x", "--dry-run"], 2, "--out /proc/x: nothing can be written there"),
    (REC + ["--db", "/proc/x.db", "--dry-run"], 2, "database /proc/x.db cannot be made"),
    (REC + ["--db", "folder", "--dry-run"], 2, "is a folder"),
    (REC + ["--db", "odd.csv", "--dry-run"], 2, "odd.csv"),
    (REC + ["-s", "256:64"], 2, "'256:64' is an empty range"),
    (REC + ["-s", "0"], 2, "a size is above 0"),
    (REC + ["-c", ""], 2, "--collectives: '' holds an empty word"),
    (REC + ["-m", ""], 2, "--modes: '' holds an empty word"),
    (REC + ["--dtypes", ""], 2, "--dtypes: '' holds an empty word"),
    (REC + ["--try", "=1"], 2, "--try =1: write NAME=VALUE"),
    (["--rig", "nccl", "--env", "=1"], 2, "--env =1: write NAME=VALUE"),
    (REC + ["--try", "NCCL_BOGUS=1"], 2, "unknown variable 'NCCL_BOGUS'\n"),
    (REC + ["-n", "0"], 2, "--ranks: at least 1"),
    (REC + ["--nodes", "0"], 2, "--nodes: at least 1"),
    (REC + ["--max-memory", "0"], 2, "--max-memory: at least 1"),
    (REC + ["--die-after", "x"], 2, "--die-after: 'x'"),
    (REC + ["--die-after", "0"], 2, "--die-after: at least 1"),
    (REC + ["--die-after", "3@rase"], 2, "--die-after: unknown stage 'rase'; did you mean 'race'?"),
    (REC + ["--out", "null"], 0, ""),
    (REC, 0, ""),
]


def tune(d, env, *args, limit=None):
    r = subprocess.run((["bash", "-c", f'ulimit {limit}; exec "$@"', "-"] if limit else []) + [NCCLTUNE, "tune", "-q", *args], cwd=d,
                       env=env, capture_output=True, text=True, timeout=60)
    return r.returncode, r.stderr


def proved(path):
    p = json.loads(pathlib.Path(path).read_text())
    return {k: v for k, v in p.items() if k not in ("created", "job", "evidence")}


def check_resume(d, env):
    """A killed job goes on to the profile of the unkilled one, and only in the world that it began in."""
    subprocess.run([MAKE, "other.csv.gz", "4", "4K"], cwd=d, check=True)
    db = ["--db", "k.db", "--resume", "1"]
    assert tune(d, env, *REC, "--db", "k.db", "--die-after", "40")[0] == -9
    for args in (["--rig", "recording:other.csv.gz"], REC + ["--null"]):
        code, says = tune(d, env, *args, *db)
        assert code == 2 and "began with other content" in says, (code, says)
    for option, other in (("sizes", "8K"), ("seed", "7"), ("effort", "thorough"), ("budget", "1h"), ("pairs", "9"),
                          ("collectives", "reduce"), ("modes", "graph")):
        code, says = tune(d, env, *REC, *db, "--" + option, other)
        assert code == 2 and f"--{option}: job 1 began with another" in says, (option, code, says)
    code, says = tune(d, env, *REC, *db, "--dtypes", "fp32")  # the recording holds bf16
    assert code == 2 and "--dtypes: job 1 began with another" in says, (code, says)
    for option in ("--no-groups", "--no-overlap"):
        code, says = tune(d, env, *REC, *db, option)
        assert code == 2 and f"{option}: job 1 began with another" in says, (option, code, says)
    assert tune(d, env, *REC, *db, "--collectives", "all_reduce", "--dtypes", "fp32,bf16", "--out", "k.json") == (0, "")
    assert proved(f"{d}/k.json") == proved(f"{d}/nccltune-profile.json")
    classes = proved(f"{d}/k.json")["products"]["table"]["classes"]
    assert classes and all(0.02 < c["detectable"] < 1 for c in classes), classes
    assert tune(d, env, *REC, "--db", "m.db", "-m", "eager", "--die-after", "20")[0] == -9
    code, says = tune(d, env, *REC, "--db", "m.db", "-m", "eager,graph", "--resume", "1")  # the default, but said
    assert code == 2 and "--modes: job 1 began with another" in says, (code, says)
    r = subprocess.run([NCCLTUNE, "show", "99", "--db", "k.db"], cwd=d, env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and "holds no job 99; it has 1" in r.stderr, r.stderr
    code, says = tune(d, env, *REC, *db)
    assert code == 1 and "done already" in says, (code, says)
    assert json.loads(pathlib.Path(d, "k.json").read_text())["rig"]["stand_in"] == "recording:" + os.path.realpath(f"{d}/r.csv.gz")
    for null in ([], ["--null"]):  # what it replays is known
        assert tune(d, env, *REC, "--db", "g.db", *null, "--die-after", "40")[0] == -9
        assert tune(d, env, "--db", "g.db", "--resume", "2" if null else "1", "--out", "g.json") == (0, "")
    assert not proved(f"{d}/g.json")["products"]["table"]["rows"]
    pathlib.Path(d, "gone.csv.gz").write_bytes(pathlib.Path(d, "r.csv.gz").read_bytes())
    assert tune(d, env, "--rig", "recording:gone.csv.gz", "--db", "g.db", "--die-after", "40")[0] == -9
    pathlib.Path(d, "gone.csv.gz").unlink()
    code, says = tune(d, env, "--db", "g.db", "--resume", "3")
    assert code == 2 and "gone.csv.gz cannot be read" in says, (code, says)
    code, says = tune(d, env, *REC, "--db", "s.db", "--seed", str(2**64 - 1))
    assert code == 2 and "a seed above 9223372036854775807 cannot be kept" in says, (code, says)
    with sqlite3.connect(f"{d}/k.db") as damaged:
        damaged.execute("UPDATE job SET spec = '{}', state = 'interrupted'")
    damaged.close()
    code, says = tune(d, env, *REC, *db)
    assert code == 2 and "what job 1 of k.db was asked is damaged" in says and "rig" in says, (code, says)


def check_hostile(d, env, text):
    """A file steers no terminal; a relative TMPDIR works; too few descriptors and a full quota are errors, not deaths."""
    pathlib.Path(d, "esc.csv").write_bytes(text.replace(b"bf16 out", b"\x1b[31m out"))
    code, says = tune(d, env, "--rig", "recording:esc.csv", "--db", "h.db")
    assert code == 2 and "\x1b" not in says and "unknown dtype" in says, (code, says)
    assert tune(d, dict(env, TMPDIR="."), *REC, "--db", "h.db") == (0, "")
    code, says = tune(d, env, *REC, "--db", "q.db", limit="-f 64")
    assert code == 1 and "q.db" in says, (code, says)
    code, says = tune(d, env, *REC, "--db", "h.db", "--out", "./h.db")
    assert code == 2 and "h.db is a database, which is not written over" in says, (code, says)
    for words in (["merge", "h.db", "--db", "o.db"], ["backup", "o.db", "--db", "h.db"], ["import", "recording", "r.csv.gz", "--db", "o.db"]):
        r = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "-", NCCLTUNE, *words], cwd=d, env=env, capture_output=True,
                           text=True, timeout=60)  # a message, where SIGXFSZ would end it without one
        assert r.returncode in (1, 2) and r.stderr.startswith("nccltune: "), (words, r.returncode, r.stderr)
        for name in ("o.db", "o.db-wal", "o.db-shm", "o.db-journal"):
            pathlib.Path(d, name).unlink(missing_ok=True)
    for most in (8, 9, 11, 16, 20): # where libuv would abort, and where a gang would not start
        code, says = tune(d, env, *REC, "--db", "h.db", limit=f"-n {most}")
        assert code == 3 and "ulimit -n: Too many open files" in says, (most, code, says)
    for args, words in ((["--rig", "recording:x"], "unknown rig"), (["--rig", "mps-sockets", "--probe", "none"], "is no program")):
        r = subprocess.run([NCCLTUNE, "record", "n.csv.gz", *args], cwd=d, env=env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 2 and words in r.stderr, (args, r.returncode, r.stderr)
    held = pathlib.Path(d, "r.csv.gz").read_bytes()
    for dtype, words in (("fp32", "r.csv.gz holds bf16, not fp32"), ("fp33", "--dtype: unknown data type 'fp33'"), ("", "--dtype: ")):
        r = subprocess.run([NCCLTUNE, "record", "r.csv.gz", "-n", "4", "--probe", "/bin/true", "--dtype", dtype], cwd=d, env=env,
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 2 and words in r.stderr, (dtype, r.returncode, r.stderr)
    assert pathlib.Path(d, "r.csv.gz").read_bytes() == held
    left = [p.name for p in pathlib.Path(d).iterdir() if p.name.startswith("nccltune-") and p.is_dir()]
    assert not left, left


def check_never_asked(d, env, text):
    """A collective about which NCCL asks no tuner has its defaults alone, and they are its sizes."""
    lines = text.decode().replace("all_reduce", "alltoall").splitlines()
    lines = [re.sub("^(#cells=.*),1,[^,]*$", r"\1,0," + " ".join(["-1"] * 21), line) for line in lines]
    at = next(i for i, line in enumerate(lines) if line.startswith("case,"))
    lines = [line for i, line in enumerate(lines) if line[0] == "#" or i == at or ",default," in line]
    pathlib.Path(d, "never.csv").write_text("\n".join(lines) + "\n")
    assert tune(d, env, "--rig", "recording:never.csv", "--db", "n.db", "-c", "alltoall", "--out", "n.json") == (0, "")
    table = json.loads(pathlib.Path(d, "n.json").read_text())["products"]["table"]
    assert table["rows"] == [] and [c["bytes"] for c in table["classes"]] == [4096, 4096], table
    code, says = tune(d, env, "--rig", "recording:never.csv", "--db", "n.db", "-c", "alltoall", "-m", "eager,stream")
    assert code == 2 and "in mode stream was not recorded" in says, (code, says)


def check_failed(d, env):
    """A job that failed says why in the database, and is not offered to go on."""
    code, says = tune(d, env, *REC, "--db", "l.db", "--budget", "1ms")
    assert code == 2 and "--budget 1 ms is too short" in says, (code, says)
    code, says = tune(d, env, "--db", "l.db", "--resume", "1")
    assert code == 1 and "it failed and would again" in says, (code, says)
    r = subprocess.run([NCCLTUNE, "show", "1", "--db", "l.db"], cwd=d, env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 3 and "job 1 failed and has no profile" in r.stderr, (r.returncode, r.stderr)
    with sqlite3.connect(f"{d}/l.db") as db:
        assert "is too short" in db.execute("SELECT text FROM event WHERE job_id = 1 AND kind = 'failed'").fetchone()[0]
    db.close()


def check_tried_only(d, env):
    """What is tried before a job leaves nothing, and what was there as it was; a pipe's reader waits for the profile."""
    kept, db = pathlib.Path(d, "kept.json"), pathlib.Path(d, "x.db")
    kept.write_text("mine")
    before, was = sorted(os.listdir(d)), db.read_bytes()
    assert tune(d, env, *REC, "--db", "x.db", "--out", "kept.json", "--dry-run") == (0, "")
    assert tune(d, env, *REC, "--db", "new.db", "--out", "new.json", "--dry-run") == (0, "")
    r = subprocess.run([NCCLTUNE, "tune", *REC, "--db", "x.db", "--dry-run"], cwd=d, env=env, capture_output=True, text=True, timeout=60)
    assert "modes      eager graph\ntypes      bf16 raced\n" in r.stdout, r.stdout
    assert tune(d, env, *REC, "--dry-run") == (0, "")  # the folders of the usual place are not there yet
    assert sorted(os.listdir(d)) == before and kept.read_text() == "mine" and db.read_bytes() == was, os.listdir(d)
    code, says = tune(d, dict(env, XDG_STATE_HOME="/proc/none"), *REC, "--dry-run")
    assert code == 2 and "/proc/none cannot be made" in says, (code, says)
    with subprocess.Popen(["cat", "pipe"], cwd=d, stdout=subprocess.PIPE) as reader:
        assert tune(d, env, *REC, "--db", "x.db", "--out", "pipe") == (0, "")
        assert json.loads(reader.stdout.read())["format"] == "nccltune-profile"


def main():
    with tempfile.TemporaryDirectory() as d:
        env = {"PATH": os.environ["PATH"], "HOME": d, "TMPDIR": d}
        subprocess.run([MAKE, "r.csv.gz", "3", "4K"], cwd=d, check=True)
        text = gzip.decompress(pathlib.Path(d, "r.csv.gz").read_bytes())
        pathlib.Path(d, "odd.csv").write_bytes(text.replace(b"#rig=mps-sockets", b"#rig=model"))
        pathlib.Path(d, "folder").mkdir()
        os.mkfifo(d + "/pipe")
        pathlib.Path(d, "null").symlink_to("/dev/null")
        for args, code, says in CASES:
            r = subprocess.run([NCCLTUNE, "tune", "-q", "--db", "x.db"] + args, cwd=d, env=env, capture_output=True,
                               text=True, timeout=60)
            assert r.returncode == code and says in r.stderr, (args, r.returncode, r.stderr)
            assert code == 0 or not pathlib.Path(d, "x.db").exists(), (args, "a job was begun")
        assert pathlib.Path(d, "null").is_symlink() and pathlib.Path(d, "nccltune-profile.json").exists()
        check_tried_only(d, env)
        check_resume(d, env)
        check_hostile(d, env, text)
        check_never_asked(d, env, text)
        check_failed(d, env)
    print(f"{len(CASES)} cases")


main()
