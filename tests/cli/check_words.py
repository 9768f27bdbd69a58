#!/usr/bin/env python3
"""check_words.py NCCLTUNE RECORDINGS: tune and query as a user without a GPU meets them: words, exit codes, and that the
command line which an interrupted job names goes on with it."""
import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

NCCLTUNE = sys.argv[1]
RECORDING = sorted(pathlib.Path(sys.argv[2]).glob("*.csv.gz"))[-1]
RIG = f"recording:{RECORDING}"
NAME = RECORDING.name.removesuffix(".csv.gz")
# arguments, exit code, what stdout says, what stderr says
CASES = [
    (["tune", "--rig", "recording"], 2, [], NAME),
    (["tune", "--rig", "recording"], 2, [], "recording:nccl-r2-h200-20261129-b\n"),
    (["tune", "--rig", RIG, "--backends", "auto"], 2, [], "a recording or model has only NCCL"),
    (["backup", "copy.db", "--db", "a b.db"], 0, ["copy.db: a copy of "], ""),
    (["report", "mine.json"], 0, ["nccltune-report.html: the page"], ""),
    (["tune", "--rig", RIG, "-c", "all_gather"], 2, [], "all_gather was not recorded"),
    (["tune", "--rig", RIG, "--dry-run"], 0, ["as found   as NCCL alone", "settings   NCCL's own"], ""),
    (["run", "--dry-run"], 2, [], "usage: run [options] -- COMMAND"),
    (["query", "--db", "a b.db", "SELECT gap_pct FROM noise"], 2, [], "no such column: gap_pct; `nccltune query` lists"),
    (["query", "--db", "a b.db", "SELECT * FROM nois"], 2, [], "--rows 1` the columns of one"),
]


def interrupted_job(folder):
    """A database with a blank in its name stays one word; the job is ended as soon as it says its number."""
    args = ["tune", "--rig", RIG, "--sizes", "32K", "--effort", "quick", "--db", "a b.db", "--out", "mine.json"]
    with subprocess.Popen([NCCLTUNE, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        line = job.stderr.readline()
        while job.poll() is None:  # impatience does not change what it ends with
            job.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        _, said = job.communicate(timeout=60)
    assert line.startswith("job 1 preflight") and "left" not in line, line
    assert job.returncode == 5, (job.returncode, said)
    words = shlex.split(re.search(r"`nccltune (.*)` goes on", said).group(1))
    assert words[:3] == ["tune", "--resume", "1"], words
    done = subprocess.run([NCCLTUNE, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "job 1:" in done.stdout, done
    assert json.loads((folder / "mine.json").read_text())["job"] == "1"
    shown = subprocess.run([NCCLTUNE, "show", "mine.json"], cwd=folder, capture_output=True, text=True).stdout.splitlines()
    head = next(i for i, line in enumerate(shown) if line.startswith("  collective"))
    assert "as found" not in shown[head], shown  # a column without a figure is none
    # Right-aligned figures end where their head ends.
    assert shown[head + 1][: shown[head].index("default") + 7].endswith("µs"), shown[head : head + 2]


def one_gang(folder):
    """How gangs differ is not known of recordings that have one of a tuple each: not that they do not differ."""
    args = [f"mps-sockets-r2-h200-20261130-{lease}" for lease in "de"]
    subprocess.run([NCCLTUNE, "import", "recording", *args, "--db", "g.db"], cwd=folder, check=True, capture_output=True)
    counts = "SELECT sum(gangs = 2 AND between_gangs_pct IS NULL) > 0, sum(gangs = 2 AND between_gangs_pct IS NOT NULL), " \
             "sum(gangs > 4 AND between_gangs_pct > 0) > 0 FROM noise"
    got = subprocess.run([NCCLTUNE, "query", "--db", "g.db", "--format", "csv", counts], cwd=folder, check=True, capture_output=True, text=True)
    assert got.stdout.splitlines()[-1].strip() == "1,0,1", got.stdout


def left_out(folder):
    """A check that nobody wanted is not one that the recording lacks; it is said of an empty profile, too."""
    args = ["--sizes", "2M", "--no-groups", "--no-overlap", "--db", "l.db", "--out", "l.json"]
    for null in [], ["--null"]:
        subprocess.run([NCCLTUNE, "tune", "-q", "--rig", "recording:nccl-r2-h200-20261129-a", *args, *null], cwd=folder, check=True, capture_output=True)
        profile = json.loads((folder / "l.json").read_text())
        assert bool(profile["products"]["table"]["rows"]) == (not null)
        said = {n["setting"]: n["why"] for n in profile["not_checked"]}
        assert "(--no-groups)" in said["confirm: group of 8"] and "(--no-overlap)" in said["confirm: beside compute"], said


def verdicts_agree(folder):
    """What `show` says of a class, and the view of the database: one verdict."""
    for seed in "1", "2":
        args = ["tune", "--rig", "recording:nccl-r2-h200-20261129-a", "--sizes", "8K", "--effort", "quick", "--seed", seed,
                "--db", seed + ".db", "--out", "v.json"]
        subprocess.run([NCCLTUNE, *args], cwd=folder, capture_output=True, check=True)
        classes = json.loads((folder / "v.json").read_text())["products"]["table"]["classes"]
        said = subprocess.run([NCCLTUNE, "query", "--db", seed + ".db", "--format", "json", "SELECT bytes, mode, verdict FROM speedups"],
                              cwd=folder, capture_output=True, text=True, check=True).stdout
        stored = {(r["bytes"], r["mode"]): r["verdict"] for r in json.loads(said)}
        shown = {(c["bytes"], c["mode"]): c["verdict"] for c in classes if c["verdict"] != "default"}
        assert shown == stored, (seed, shown, stored)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        interrupted_job(folder)
        left_out(folder)
        one_gang(folder)
        verdicts_agree(folder)
        for args, code, says, complains in CASES:
            r = subprocess.run([NCCLTUNE, *args], capture_output=True, text=True, cwd=folder)
            missing = [s for s in says if s not in r.stdout]
            if r.returncode != code or missing or complains not in r.stderr:
                sys.exit(f"{args}: exit {r.returncode} (want {code}), lacks {missing}, stderr {r.stderr!r}\n{r.stdout}")
    print(f"{len(CASES)} command lines and a resumed job")


main()
