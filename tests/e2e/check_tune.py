"""Whole jobs by the program itself.

usage: check_tune.py BUILD_FOLDER PART…    parts: input machine database faults signals kill fake backends chunks kept
NT_E2E_KILLS: random steps at which the driver is killed (default 6)
"""
import json
import os
import pathlib
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time

from job import Checks, Place

FULL = "6 classes faster by the table"
FULL_BUT_ONE_SIZE = "4 classes faster by the table"


def record(place, sizes="1K,64K,1M"):
    """A recording of the made-up machine."""
    path = place.root / "made-up.csv.gz"
    subprocess.run([place.build / "tests/job/make_recording", path, "1", sizes], check=True, timeout=60)
    return path


def profile(place):
    """The profile but for what differs from job to job."""
    text = place.out.read_text(encoding="utf-8")
    doc = json.loads(text)
    for name in ("created", "job"):
        doc.pop(name, None)
        doc.get("evidence", {}).pop(name, None)
        doc.get("provenance", {}).pop(name, None)
    return doc


# ------------------------------------------------------------------ what is asked wrongly, what is missing

def part_input(build, check):
    with Place(build) as p:
        rec = record(p)
        other = p.root / "other.csv.gz"
        other.write_bytes(rec.read_bytes()[:20000])
        text = p.root / "text.csv.gz"
        text.write_text("hello\n", encoding="utf-8")
        replay = ["--rig", f"recording:{rec}"]
        rows = [
            (["--collectives", "allreduce", *replay], 2, "did you mean 'all_reduce'"),
            (["--collectives", "", *replay], 2, "empty word"),
            (["--modes", "eagre", *replay], 2, "did you mean 'eager'"),
            (["--dtypes", "bf61", *replay], 2, "did you mean 'bf16'"),
            (["--effort", "standart", *replay], 2, "did you mean 'standard'"),
            (["--format", "jason", *replay], 2, "did you mean 'json'"),
            (["--rank", "4", *replay], 2, "did you mean 'ranks'"),
            (["--sizes", "16x", *replay], 2, "16x"),
            (["--sizes", "4M:1K", *replay], 2, "empty range"),
            ([*p.world(), "--sizes", "3"], 2, "multiple of 4"),
            (["--sizes", "32G", *replay], 2, "above 16G"),
            (["--pairs", "7", *replay], 2, "8 to 16"),
            (["--ranks", "3", *replay], 2, "has 4 ranks"),
            (["--budget", "5x", *replay], 2, "budget"),
            (["--budget", "3s", *replay], 2, "the least that works is"),
            (["--rig", "mps-socket"], 2, "did you mean 'mps-sockets'"),
            (["--rig", "recording:nowhere"], 2, "no recording 'nowhere'" if not recordings(p) else "nowhere"),
            (["--rig", f"recording:{p.root}/none.csv.gz"], 2, "cannot be read"),
            (["--rig", f"recording:{text}"], 2, "text.csv.gz"),
            (["--fix", "NCCL_ALGOO=ring", *p.world()], 2, "NCCL_ALGO"),
            (["--fix", "NCCL_ALGO", *p.world()], 2, "NAME=VALUE"),
            (["--try", "NCCL_MIN_NCHANELS=4", *p.world()[:-2]], 2, "NCCL_MIN_NCHANNELS"),
            (["--env", "NCCL_ALGO=ring", *p.world()], 2, "--fix"),
            (["--probe", "/bin/no-such-probe", "--ranks", "2"], 2, "is no program"),
            (["--resume", "77", *replay], 2, "holds no job 77"),
            (["--resume", "0", *replay], 2, "numbered from 1"),
            (["--resume", "-1", *replay], 2, "numbered from 1"),
            (["--nccl", "/none/libnccl.so", *p.world()], 2, "cannot be read"),
            (["more", *replay], 2, "too many arguments"),
        ]
        for words, code, says in rows:
            check.ends(" ".join(map(str, words)), p.tune(*words), code, says)
        check.that(not p.db.exists() or not p.sql("SELECT 1 FROM job WHERE state = 'running'"), "a job is left running")
        check.ends("a recording cut short", p.tune("--rig", f"recording:{other}"), 2, "other.csv.gz")
        check.ends("out to nowhere", p.tune("--pairs", "8", *replay, "--out", p.root / "none/p.json"), 2, "none/p.json")
        check.ends("dry run", p.tune(*replay, "--dry-run"), 0, "settings   NCCL's own")
        check.clean("input", p)


def recordings(place):
    return list((place.build / "../../probes/recordings").glob("*.csv.gz"))


def part_machine(build, check):
    """What is missing on this machine: exit 3, with what to do. By the real probe on a fake device."""
    with Place(build) as p:
        fake = p.build / "tests/probe/nccltune-probe-fake"
        nccl = {"NCCLTUNE_NCCL_LIB": str(p.build / "tests/probe/libfakenccl.so")}
        mps = {"PATH": "/nonexistent"}
        words = ["--sizes", "1K", "--pairs", "8", "--probe", fake]
        rows = [
            ("no GPU", ["--ranks", "2", "--env", "FAKE_DEV_COUNT=0"], nccl, "GPU"),
            ("fewer GPUs than ranks", ["--ranks", "4", "--env", "FAKE_DEV_COUNT=2"], nccl, "2"),
            ("no NCCL", ["--ranks", "2"], {"NCCLTUNE_NCCL_LIB": "/none/libnccl.so.2"}, "/none/libnccl.so.2"),
            ("no MPS", ["--ranks", "2", "--rig", "mps-sockets"], {**nccl, **mps}, "mps"),
        ]
        for name, more, env, says in rows:
            check.ends(name, p.tune(*words, *more, env=env), 3, says)
            check.clean(name, p)


# ------------------------------------------------------------------ the database

def make_foreign(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()


def part_database(build, check):
    with Place(build) as p:
        rec = record(p, "1K,1M")
        words = ["--rig", f"recording:{rec}", "--pairs", "8", "--effort", "quick", "-q"]
        check.ends("first job", p.tune(*words), 0)
        with sqlite3.connect(p.db) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
        db.close()

        paths = {name: p.root / f"{name}.db" for name in ("corrupt", "foreign", "newer", "folder")}
        paths["corrupt"].write_bytes(b"SQLite format 3\0" + b"\xa5" * 8192)
        make_foreign(paths["foreign"])
        paths["newer"].write_bytes(p.db.read_bytes())
        with sqlite3.connect(paths["newer"]) as db:
            db.execute(f"PRAGMA user_version = {version + 1}")
        db.close()
        paths["folder"].mkdir()
        for name, path in paths.items():
            check.ends(name, p.tune(*words, "--db", path), 2, path.name)

        lock = sqlite3.connect(p.db, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        check.ends("locked", p.tune(*words), 1, "a.db")
        lock.execute("ROLLBACK")
        lock.close()

        if os.geteuid() != 0:
            p.db.chmod(0o400)
            check.ends("read-only", p.tune(*words), 1, "a.db")
            p.db.chmod(0o600)

        full_disk(p, check, words)
        two_at_once(p, check, words)
        check.clean("database", p)


def full_disk(p, check, words):
    """The job is kept and goes on when there is room again."""
    db = p.root / "full.db"
    limit = 300 * 1024
    rc, out, err = p.tune(*words, "--db", db, preexec_fn=lambda: (
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
    check.ends("full disk", (rc, out, err), 1, "full.db")
    check.clean("full disk", p)
    check.ends("room again", p.tune(*words, "--db", db, "--resume", "1"), 0)
    check.ends("done is done", p.tune(*words, "--db", db, "--resume", "1"), 1, "done already")


def two_at_once(p, check, words):
    jobs = [p.start("tune", "--db", p.db, "--out", p.root / f"{i}.json", *words) for i in range(2)]
    for job in jobs:
        out, err = job.communicate(timeout=100)
        check.ends("two at once", (job.returncode, out, err), 0)
    states = p.sql("SELECT state, count(*) FROM job GROUP BY state")
    check.that(states == [("done", 3)], "two at once:", states)


# ------------------------------------------------------------------ ranks that break

def part_faults(build, check):
    """The job goes on and ends right; nothing is left; what is broken is in no profile."""
    rows = [
        # fault, tree/simple may stand in the profile
        ("hang:1:150", True), ("crash:0:150", True), ("garbage:1:150", True), ("twice:0:120", True),
        ("error:1:150", True), ("crash:1:300", True),
        ("wrong-above:0", False), ("wrong-above:1", False), ("wrong-in-place:1", None), ("wrong-some:0", None),
        ("disagree:1", None),
    ]
    with Place(build) as p:
        check.ends("no fault", p.tune(*p.world()), 0, FULL)
        check.clean("no fault", p)
        for fault, whole in rows:
            got = p.tune(*p.world(fault=fault))
            without = whole and FULL not in got[1] and lost_best(p)
            check.ends(fault, got, 0, FULL_BUT_ONE_SIZE if without else FULL if whole else "")
            check.clean(fault, p)
            if whole is not True:
                tree = [r for r in table_rows(p) if "tree" in json.dumps(r) and "simple" in json.dumps(r)]
                check.that(not tree or (whole is False and all(r["max_bytes"] <= 600 << 10 for r in tree)),
                           f"{fault}: in the profile:", tree)
        # A second round, on the table that it has and not on that of the first. How many gangs a search takes hangs on real time, so
        # not every job comes that far.
        for seed in range(1, 41):
            got = p.tune(*p.world("--effort", "standard", "--seed", seed, fault="wide-falls"))
            rounds = p.sql("SELECT DISTINCT s.vars FROM gang AS g JOIN setting AS s ON s.id = g.setting_id "
                           "WHERE g.arm = 'table' AND g.job_id = (SELECT max(id) FROM job)")
            if len(rounds) == 2:
                break
        check.that(len(rounds) == 2, "one round only:", rounds)
        check.ends("wide-falls", got, 0, "6 classes faster by the table")
        failed = p.sql("SELECT count(*) FROM trial WHERE status IN ('timeout', 'crashed', 'error')")[0][0]
        check.that(failed >= 6, "lost trials are not in the database:", failed)
        for fault in ("init-crash:1", "init-error:0"):
            check.ends(fault, p.tune(*p.world(fault=fault)), 3)
            check.clean(fault, p)
        exit_hang(p, check)


def lost_best(p):
    """Was the best tuple in hand when a rank broke? It is out then, and with it a size of two classes."""
    return p.sql("SELECT count(*) FROM trials WHERE job = (SELECT max(id) FROM job) AND setting LIKE 'tree/simple%' "
                 "AND status IN ('timeout', 'crashed', 'error')")[0][0] > 0


def exit_hang(p, check):
    """A rank that does not end costs some seconds a gang: it is enough to see the job go on to the third."""
    number = max(r[0] for r in p.sql("SELECT id FROM job")) + 1
    job = p.start("tune", "--db", p.db, "--out", p.out, *p.world(fault="exit-hang:1", sizes="512K"))
    end = time.monotonic() + 60
    while time.monotonic() < end and job.poll() is None:
        if p.sql("SELECT count(*) FROM gang WHERE job_id = ? AND status = 'ok'", number)[0][0] >= 3:
            break
        time.sleep(0.1)
    check.that(job.poll() is None and time.monotonic() < end, "exit-hang: the job did not go on")
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=30)
    check.ends("exit-hang", (job.returncode, out, err), 5)
    check.clean("exit-hang", p)


def table_rows(place):
    """Rows of the table product, whatever they lie under."""
    doc = json.loads(place.out.read_text(encoding="utf-8"))
    found = []

    def walk(x):
        if isinstance(x, dict):
            if "min_bytes" in x and "max_bytes" in x:
                found.append(x)
            for v in x.values():
                walk(v)
        elif isinstance(x, list):
            for v in x:
                walk(v)
    walk(doc)
    return found


# ------------------------------------------------------------------ signals

def part_signals(build, check):
    with Place(build) as p:
        rec = record(p)
        words = ["--rig", f"recording:{rec}", "--pairs", "8", "--effort", "quick"]
        check.ends("undisturbed", p.tune(*words), 0)
        want = profile(p)
        ends = [("INT", signal.SIGINT), ("TERM", signal.SIGTERM), ("HUP", signal.SIGHUP), ("HUP beside nohup", signal.SIGINT)]
        for job, (name, signum) in enumerate(ends, start=2):
            nohup = name.endswith("nohup")
            slow = p.start("tune", "--db", p.db, "--out", p.out, *words, "--pace", "real",
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) if nohup else None)
            for line in slow.stderr:
                if " race " in line:
                    break
            time.sleep(0.3)
            rc, _, err = p.run("tune", "--db", p.db, "--resume", job, *words)
            check.ends("resume of a job that somebody runs", (rc, "", err), 1, str(slow.pid))
            if nohup:
                slow.send_signal(signal.SIGHUP)
                time.sleep(0.3)
                check.that(slow.poll() is None, name, slow.poll())
            slow.send_signal(signum)
            out, err = slow.communicate(timeout=20)
            check.ends(name, (slow.returncode, out, err), 5, f"--resume {job}")
            check.clean(name, p)
            state = p.sql("SELECT state FROM job WHERE id = ?", job)
            check.that(state == [("interrupted",)], name, state)
            check.ends(f"resume after {name}", p.tune(*words, "--resume", job), 0)
            check.that(profile(p) == want, f"resume after {name}: another profile")
        lone = p.start("record", "w.csv.gz", "--rig", "nccl", "-n", "2", "--probe", p.probe, "-s", "1K:64M", "-g", "1000", "-q")
        end = time.monotonic() + 60
        while time.monotonic() < end and not (p.root / "w.csv.gz").exists():
            time.sleep(0.1)
        time.sleep(0.5)
        lone.send_signal(signal.SIGHUP)
        out, err = lone.communicate(timeout=20)
        check.ends("record, HUP", (lone.returncode, out, err), 5)
        check.ends("what was recorded until then", p.run("import", "recording", "w.csv.gz", "--db", p.root / "w.db"), 0)
        check.clean("signals", p)


# ------------------------------------------------------------------ kill -9

def transitions(p, job, err):
    """Stored steps before each stage, from the progress lines (trials) and the database (starts, cells)."""
    found = {}
    for line in err.splitlines():
        part = line.split()
        if line.startswith(f"job {job} ") and "trials," in part:
            found[part[2]] = int(part[part.index("trials,") - 1])
    steps = {}
    for stage, trials in found.items():
        seq = p.sql("SELECT seq FROM trial WHERE job_id = ? ORDER BY seq LIMIT 1 OFFSET ?", job, max(trials - 1, 0))
        if trials and seq:
            steps[stage] = trials + before(p, job, seq[0][0])
    return steps


def before(p, job, seq):
    """Starts and cells before a step; gangs of one start have seqs in a row and one start_ns for all would not do."""
    cells = p.sql("SELECT count(*) FROM cells WHERE job_id = ? AND seq < ?", job, seq)[0][0]
    gangs = [r[0] for r in p.sql("SELECT seq FROM gang WHERE job_id = ? AND seq < ? ORDER BY seq", job, seq)]
    return cells + sum(1 for i, s in enumerate(gangs) if i == 0 or s != gangs[i - 1] + 1)


def part_kill(build, check):
    seed = int(os.environ.get("NT_E2E_SEED", "1"))
    kills = int(os.environ.get("NT_E2E_KILLS", "6"))
    rng = random.Random(seed)
    with Place(build) as p:
        rec = record(p)
        words = ["--rig", f"recording:{rec}", "--pairs", "8", "--effort", "quick"]
        got = p.tune(*words)
        check.ends("undisturbed", got, 0)
        want, trials = profile(p), rows_of(p, 1)
        named = transitions(p, 1, got[2])
        last = trials[-1][0] if trials else 0
        total = p.sql("SELECT count(*) FROM trial WHERE job_id = 1")[0][0] + before(p, 1, last)
        check.that({"race", "confirm", "publish"} <= set(named), "stages seen:", named)
        at = {1, 2, total}
        for n in named.values():
            at |= {n, n + 1}
        at |= {rng.randrange(1, total) for _ in range(kills)}
        for job, n in enumerate(sorted(a for a in at if 1 <= a <= total), start=2):
            rc, _, err = p.tune(*words, "-q", "--die-after", n)
            if not check.that(rc == -signal.SIGKILL, f"killed after {n} of {total}: exit {rc} {err}"):
                continue
            kept = len(rows_of(p, job))
            rc, out, err = p.tune(*words, "-q", "--resume", job)
            if not check.that(rc == 0, f"resume after {n} of {total}: exit {rc} {out}{err}"):
                continue
            check.that(rows_of(p, job)[:kept] == trials[:kept] and rows_of(p, job) == trials,
                       f"killed after {n} of {total}: other trials")
            check.that(profile(p) == want, f"killed after {n} of {total}: another profile", difference(want, profile(p)))
            check.clean(f"killed after {n}", p)
        print(f"killed at {len(at)} of {total} steps, seed {seed}; stages at {named}")
        orphans(p, check)


def orphans(p, check):
    """Ranks of a program that looks at nothing, heeds no TERM and leaves its group do not outlive the driver."""
    pids, probe = p.root / "pids", p.root / "probe"
    probe.write_text(f"#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\necho $$ $! >> {pids}\nwhile :; do sleep 1000; done\n",
                     encoding="utf-8")
    probe.chmod(0o700)
    job = p.start("tune", "--db", p.db, "--out", p.out, *p.world(probe=probe))
    up = until(lambda: job.poll() is not None or pids.exists() and len(pids.read_text().split()) == 4, 60)
    job.kill()
    said = job.communicate(timeout=20)
    if not check.that(up and pids.exists(), "ranks do not start:", *said):
        return
    check.that(until(lambda: not alive(pids.read_text().split())), "ranks outlive their driver")
    check.that(until(lambda: not p.processes()), "a guard stays")


def until(condition, patience_s=15):
    end = time.monotonic() + patience_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def alive(pids):
    """Those that are there and no zombies, which an idle init may leave."""
    def state(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "Z"
    return [pid for pid in pids if state(pid) != "Z"]


def rows_of(p, job):
    return p.sql("SELECT seq, gang, case_id, setting_id, status, samples FROM trial WHERE job_id = ? ORDER BY seq", job)


def difference(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for k in sorted(set(a) | set(b)) for d in difference(a.get(k), b.get(k), f"{path}.{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in difference(x, y, f"{path}[{i}]")]
    return [] if a == b else [f"{path}: {a} != {b}"]


# ------------------------------------------------------------------ the real probe on a fake NCCL

def part_fake(build, check):
    """Timing there is noise on a loaded machine: jobs run until the database shows what is looked for."""
    wanted = [
        # fault, what may become of its trials (after an error the other rank waits for ever)
        ("hang:1:0:ring:simple", ["timeout"]), ("crash:0:0:ring:simple", ["crashed"]),
        ("wrong:1:0:ring:simple", ["wrong"]), ("lie:1:0:ring:simple", ["disagree"]),
        ("error:0:0:ring:simple", ["error", "timeout"]),
    ]
    with Place(build) as p:
        ran = fake_until(p, check, None, lambda job: of_arm(p, job, "table"))
        check.that(ran is None or ran == [("ring", "ll")], "the delivered table was not executed:", ran)
        for fault, allowed in wanted:
            seen = fake_until(p, check, fault, lambda job: after_failure(p, job))
            check.that(seen is None or all(s in allowed for s, in seen), f"{fault}: trials became {seen}, not {allowed}")


def fake_until(p, check, fault, condition):
    """What the condition gave, once it gave something; None when it is too noisy here to tune at all."""
    env = {"NCCLTUNE_NCCL_LIB": str(p.build / "tests/probe/libfakenccl.so")}
    words = ["--rig", "nccl", "--probe", p.build / "tests/probe/nccltune-probe-fake", "--ranks", "2", "--sizes", "1K",
             "--modes", "eager", "--dtypes", "bf16", "--pairs", "8", "--effort", "quick", "--try",
             "NCCL_MIN_NCHANNELS=4", "--env", "FAKE_NCCL_SPEED=100"]
    words += ["--env", f"FAKE_NCCL_FAULT={fault}"] if fault else []
    def newest():
        return p.sql("SELECT coalesce(max(id), 0) FROM job")[0][0] if p.db.exists() and p.db.stat().st_size else 0

    for _ in range(4):
        before = newest()  # jobs of the part so far: what is looked for may be in them, too
        job = p.start("tune", "--db", p.db, "--out", p.out, *words, env=env)
        seen = []
        while not seen and job.poll() is None:
            time.sleep(0.1)
            number = newest()
            seen = condition(number) if number > before else []
        if job.poll() is None:
            job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=60)
        check.that(job.returncode in (0, 4, 5), f"{fault}: exit {job.returncode}\n{out}{err}")
        check.clean(f"fake NCCL {fault}", p)
        if seen:
            return seen
    print(f"too noisy here for a job on the fake NCCL ({fault})", err)
    return None


def of_arm(p, job, arm):
    """The tuples that an arm's single calls of the tuned collective executed."""
    return p.sql("SELECT DISTINCT x.algo, x.proto FROM trial t JOIN gang g ON g.job_id = t.job_id AND g.number = t.gang "
                 "JOIN executed x ON x.id = t.executed_id JOIN cases c ON c.id = t.case_id "
                 "WHERE t.job_id = ? AND g.arm = ? AND t.flags = 1 AND c.collective = 'all_reduce'", job, arm)


def after_failure(p, job):
    """The ways in which trials failed, once the job has gone on."""
    return p.sql("SELECT DISTINCT status FROM trial t WHERE job_id = ?1 AND status NOT IN ('ok', 'unavailable') AND "
                 "EXISTS (SELECT 1 FROM trial l WHERE l.job_id = ?1 AND l.seq > t.seq + 3 AND l.status = 'ok')", job)


# ------------------------------------------------------------------ who moves the bytes

def part_backends(build, check):
    """Raced, confirmed, kept and found again; a job killed in the middle of it goes on."""
    with Place(build) as p:
        words = p.world("--backends", "nccl,nccl-symmetric,ipc,torch-symm-mem", sizes="1K,128K,1M")
        got = p.tune(*words)
        check.ends("backends", got, 0, "name another backend")
        want = profile(p)
        rows = want["backends"]["rows"]
        check.that({r["backend"] for r in rows} == {"ipc", "nccl-symmetric"}, "rows:", rows)
        check.that(all(set(r["serves"]) == {"bf16/out", "bf16/in", "fp32/out", "fp32/in"} for r in rows), "rows:", rows)
        check.that(any(n["setting"] == "torch-symm-mem" for n in want["backends"]["notes"]), "notes:", want["backends"]["notes"])
        kept = dict(p.sql("SELECT s.backend, count(*) FROM trial AS t JOIN setting AS s ON s.id = t.setting_id GROUP BY 1"))
        check.that({"nccl", "ipc", "nccl-symmetric", "torch-symm-mem"} <= set(kept), "trials:", kept)
        bits = dict(p.sql("SELECT bits, count(*) FROM trial WHERE job_id = 1 GROUP BY 1"))
        check.that({"same", "different"} <= set(bits), "bits:", bits)
        check.that("peers" not in want["backends"] or want["backends"]["peers"] == [], "a probe without a verdict:", want["backends"].get("peers"))
        check.ends("show", p.run("show", p.out), 0, "row       all_reduce")
        check.ends("decide", p.run("decide", p.out, "--collective", "all_reduce", "--bytes", "1K"), 0, "backend   ipc one_shot")
        said = p.run("decide", p.out, "--collective", "all_reduce", "--bytes", "1K", "--format", "json")
        check.that(json.loads(said[1])["backends"]["graph"]["backend"] == "ipc", "decide --format json:", said)
        check.ends("report", p.run("report", p.out, "--out", p.root / "r.html"), 0)
        check.that("ipc one_shot" in (p.root / "r.html").read_text(), "the report names no backend")
        # How long the search before is depends on what a gang costs here: the steps are counted within the stage.
        first = p.sql("SELECT min(seq) FROM gang WHERE job_id = 1 AND arm = 'backends'")[0][0]
        steps = p.sql("SELECT count(*) FROM trial WHERE job_id = 1 AND seq > ?", first)[0][0]
        for job, n in enumerate((20, steps // 2, steps * 4 // 5), start=2):
            rc, _, err = p.tune(*words, "-q", "--die-after", f"{n}@backends")
            if not check.that(rc == -signal.SIGKILL, f"killed after {n} of {steps}: exit {rc} {err}"):
                continue
            began = p.sql("SELECT min(seq) FROM gang WHERE job_id = ? AND arm = 'backends'", job)[0][0]
            kept = p.sql("SELECT count(*) FROM trial WHERE job_id = ? AND seq > ?", job, began or 1 << 40)[0][0]
            check.that(n - 60 <= kept <= n, f"killed after {n}: {kept} trials of the stage are kept")
            check.ends("resume with another probe", p.tune("-q", "--resume", job), 2, "measured by world_probe: name it again with --probe")
            rc, out, err = p.tune("-q", "--probe", p.probe, "--resume", job)
            check.that(rc == 0, f"resume after {n}: exit {rc} {out}{err}")
        check.clean("backends", p)
        check.ends("same bits", p.tune(*words, "--same-bits"), 0)
        check.that({r["backend"] for r in profile(p)["backends"]["rows"]} == {"nccl-symmetric"}, "same bits:", profile(p)["backends"])
        wrong_backends(p, check)
        check.ends("none such", p.tune(*p.world("--backends", "nccl,ipx")), 2, "did you mean 'ipc'")
        check.ends("same bits of what", p.tune(*p.world("--same-bits")), 2, "--backends")


def wrong_backends(p, check):
    """What is wrong above a size, in place, in 3 of 10 looks, or fast and wrong, on either rank: out, with the reason; the job goes on."""
    for fault in ("ipc-wrong-above:0", "ipc-wrong-above:1", "ipc-wrong-in-place:1", "ipc-wrong-some:0", "ipc-wrong:1"):
        check.ends(fault, p.tune(*p.world("--backends", "nccl,nccl-symmetric,ipc", sizes="1K,128K,1M", fault=fault)), 0)
        found, job = profile(p)["backends"], p.sql("SELECT max(id) FROM job")[0][0]
        check.that({r["backend"] for r in found["rows"]} == {"nccl-symmetric"}, f"{fault}: in the profile:", found["rows"])
        check.that(any(n["setting"] == "ipc" and n["why"].startswith("wrong") for n in found["notes"]), f"{fault}: no reason:", found["notes"])
        seen = p.sql("SELECT count(*) FROM trial AS t JOIN setting AS s ON s.id = t.setting_id WHERE t.job_id = ? AND t.status = 'wrong' "
                     "AND s.backend = 'ipc'", job)[0][0]
        check.that(seen > 0, f"{fault}: it never was wrong")
        check.clean(fault, p)
    check.ends("refused", p.tune(*p.world("--backends", "nccl,ipc", sizes="1K,128K,1M", fault="ipc-refuses")), 0)
    check.ends("refused, in show", p.run("show", p.out), 0, "out       ipc one_shot/push: at 1M: it needs a larger stage")
    rows = [r for r in profile(p)["backends"]["rows"] if r["min_bytes"] <= 1024]
    check.that(rows and all(r["backend"] == "ipc" for r in rows), "a refusal at one size is one of all:", rows)


# ------------------------------------------------------------------ chunk sizes

CHUNKED = ("SELECT s.label, count(*), min(x.label), max(x.label) FROM trial AS t JOIN setting AS s ON s.id = t.setting_id "
           "LEFT JOIN executed AS x ON x.id = t.executed_id WHERE t.job_id = ? AND s.chunk_bytes > 0 GROUP BY 1 ORDER BY 1")


def part_chunks(build, check):
    """Found, confirmed, published, named; the same after a kill; not looked for where NCCL asks for none, or in a hurry."""
    with Place(build) as p:
        asks = ["--env", "WORLD_CHUNK=1048576"]
        words = [*p.world(sizes="1K,4M,16M"), "--effort", "standard"]
        check.ends("a NCCL that asks for chunks", p.tune(*words, *asks), 0, "faster by the table")
        rows = profile(p)["products"]["table"]["rows"]
        with_chunk = [r for r in rows if r.get("chunk_bytes", 0) > 0]
        check.that(with_chunk and all(r["chunk_bytes"] == 262144 and r["algo"] == "ring" for r in with_chunk), "rows:", rows)
        check.that(max(r["max_bytes"] for r in with_chunk) == 16 << 20, "rows:", rows)
        kept = p.sql(CHUNKED, 1)
        check.that(any("asked-chunk=256K" in label for label, *_ in kept), "settings:", kept)
        check.that(all(low == high for _, _, low, high in kept), "a tuple of several executions:", kept)
        own = p.sql("SELECT DISTINCT own_chunk_bytes FROM trial WHERE job_id = 1 AND executed_id IS NOT NULL AND own_chunk_bytes > 0")
        check.that(own == [(1048576,)], "NCCL's own:", own)
        alone = p.sql("SELECT count(*) FROM setting WHERE chunk_bytes = 0 AND algo = 'ring' AND proto = 'simple'")[0][0]
        check.that(alone > 0, "the leaders without a chunk are no settings of their own")
        check.ends("show", p.run("show", p.out), 0, "asked-chunk=256K, executed on")
        check.ends("decide", p.run("decide", p.out, "--collective", "all_reduce", "--bytes", "16M"), 0, "asked-chunk=256K")
        check.ends("trials", p.run("query", "--db", p.db, "--view", "trials"), 0, "asked-chunk=256K")
        check.ends("export", p.run("export", p.out, "--format", "tuner-csv"), 0, "asks for a chunk size, for which this form has no column")
        first = p.sql("SELECT min(t.seq) FROM trial AS t JOIN setting AS s ON s.id = t.setting_id WHERE s.chunk_bytes > 0")[0][0]
        start = p.sql("SELECT min(t.seq) FROM trial AS t JOIN setting AS s ON s.id = t.setting_id WHERE s.algo <> ''")[0][0]
        rc, _, err = p.tune(*words, *asks, "-q", "--die-after", f"{first - start + 5}@race")
        check.that(rc == -signal.SIGKILL, f"killed on the way: exit {rc} {err}")
        check.ends("resumed", p.tune("-q", "--probe", p.probe, *asks, "--resume", 2), 0)
        rows = profile(p)["products"]["table"]["rows"]
        check.that({r.get("chunk_bytes") for r in rows if r["max_bytes"] > 4 << 20} == {262144}, "rows of the resumed:", rows)
        for job, more in enumerate(([], [*asks, "--effort", "quick"]), start=3):
            check.ends(f"without chunks {more}", p.tune(*words, *more), 0)
            check.that(p.sql(CHUNKED, job) == [], f"job {job} asked for chunks:", p.sql(CHUNKED, job))
        check.ends("dry run", p.tune(*words, "--dry-run"), 0, "chunks     tried at the leaders")
        check.ends("dry run in a hurry", p.tune(*words, "--effort", "quick", "--dry-run"), 0, "chunks     NCCL's own")
        check.clean("chunks", p)


# ------------------------------------------------------------------ what variables would cost other collectives

def part_kept(build, check):
    """The variables stay, with rows that give an untuned collective its tuple back; found again after a kill; else as ever."""
    vars_of = "SELECT DISTINCT s.vars FROM gang AS g JOIN setting AS s ON s.id = g.setting_id WHERE g.arm = 'table' AND g.job_id = ?"
    with Place(build) as p:
        words = [*p.world(fault="wide-taxes"), "--effort", "standard"]
        check.ends("wide-taxes", p.tune(*words), 0, "2 rows keep calls as they are")
        table = profile(p)["products"]["table"]
        check.that(table["vars"] == {"NCCL_MIN_NCHANNELS": "16"}, "variables:", table["vars"])
        check.that(not profile(p)["first_call"], "first call, of a probe that cannot tell:", profile(p)["first_call"])
        rows = [r for r in table["rows"] if r["coll"] != "all_reduce"]
        check.that([r["coll"] for r in rows] == ["broadcast", "reduce"], "rows:", rows)
        check.that(all((r["algo"], r["proto"], r["channels"]) == ("ring", "simple", 2) for r in rows), "rows:", rows)
        check.that(all(r["min_bytes"] <= 512 << 10 <= r["max_bytes"] for r in rows), "rows:", rows)
        kept = [c for c in table["classes"] if c["verdict"] == "kept"]
        check.that({(c["coll"], c["mode"]) for c in kept} >= {("broadcast", "eager"), ("reduce", "eager")}, "classes:", kept)
        check.that(all(c["bytes"] == 512 << 10 and "p_adjusted" not in c for c in kept), "classes:", kept)
        check.that(any(c["verdict"] == "tuned" and c["gain"] > 0.05 for c in table["classes"]), "no gain:", table["classes"])
        check.ends("show", p.run("show", p.out), 0, "ring/simple/2, executed on 2 channels, kept")
        check.ends("show", p.run("show", p.out), 0, "kept: a row keeps it as it is without the variables")
        check.ends("decide", p.run("decide", p.out, "--collective", "reduce", "--bytes", "512K"), 0, "keeps the call as it is without the variables")
        check.ends("export", p.run("export", p.out, "--format", "env"), 0, "kept as it is without the variables")
        check.ends("report", p.run("report", p.out, "--out", p.root / "r.html"), 0)
        check.ends("speedups", p.run("query", "--db", p.db, "--view", "speedups"), 0, "kept")
        kept_after_kills(p, check, words, rows)
        check.ends("wide-takes", p.tune(*p.world(fault="wide-takes"), "--effort", "standard"), 0, "confirmed and withdrawn: not within the guard: ")
        table, job = profile(p)["products"]["table"], p.sql("SELECT max(id) FROM job")[0][0]
        check.that(not table.get("vars") and {r["coll"] for r in table["rows"]} <= {"all_reduce"}, "nothing gives it back:", table)
        check.that(sorted(v for v, in p.sql(vars_of, job)) == ["", "NCCL_MIN_NCHANNELS=16"], "rounds:", p.sql(vars_of, job))
        check.clean("kept", p)


def kept_after_kills(p, check, words, want):
    """Killed among the looks, the blocks and the gates of these rows, the job goes on to the same end."""
    other = ("SELECT count(*) FROM trial AS t JOIN gang AS g ON g.job_id = t.job_id AND g.number = t.gang JOIN cases AS c ON c.id = t.case_id "
             "WHERE t.job_id = ? AND c.collective <> 'all_reduce' AND g.arm <> 'table' AND t.seq < (SELECT min(seq) FROM gang WHERE "
             "job_id = t.job_id AND arm = 'table')")
    trials = p.sql(other, 1)[0][0]
    check.that(trials > 100, "looks, blocks and gates:", trials)
    for job, n in enumerate((3, 40, trials // 2, trials), start=2):
        rc, _, err = p.tune(*words, "-q", "--die-after", f"{n}@gate")
        if not check.that(rc == -signal.SIGKILL, f"killed after {n} of the gate: exit {rc} {err}"):
            continue
        rc, out, err = p.tune("-q", "--probe", p.probe, "--env", "WORLD_FAULT=wide-taxes", "--resume", job)
        rows = [r for r in profile(p)["products"]["table"]["rows"] if r["coll"] != "all_reduce"]
        check.that(rc == 0 and rows == want, f"resume after {n} of the gate: exit {rc} {out}{err}", rows)


PARTS = {"input": part_input, "machine": part_machine, "database": part_database, "faults": part_faults,
         "signals": part_signals, "kill": part_kill, "fake": part_fake, "backends": part_backends,
         "chunks": part_chunks, "kept": part_kept}


def main():
    check = Checks()
    for part in sys.argv[2:]:
        began = time.monotonic()
        PARTS[part](sys.argv[1], check)
        print(f"{part}: {time.monotonic() - began:.1f} s", flush=True)
    return check.done()


if __name__ == "__main__":
    sys.exit(main())
