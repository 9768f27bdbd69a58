#!/usr/bin/env python3
"""check_profile.py NCCLTUNE SAMPLE_PROGRAM STORE_PROGRAM: show, export and decide as a user meets them: words and exit codes."""
import json
import pathlib
import subprocess
import sys
import tempfile

NCCLTUNE, SAMPLE, STORE = sys.argv[1:4]


def run(*args, cwd):
    return subprocess.run([NCCLTUNE, *args], capture_output=True, text=True, cwd=cwd)


# arguments (PROFILE, RIG and EMPTY stand for files), exit code, what stdout and stderr say
CASES = [
    (["show", "PROFILE"], 0, ["ring/ll/2", "+25.0 % [23.0, 27.0]", "13.7 µs", "NCCL_NVLS_ENABLE=0", "product static"], ""),
    (["show", "PROFILE", "--reproduce"], 0, ["without  mpirun -np 8", "-x NCCL_ALGO=AllReduce:Ring"], ""),
    (["show", "RIG"], 0, ["mps-sockets (functional: not a real node)"], ""),
    (["show", "EMPTY"], 0, ["product table: the defaults win here"], ""),
    (["show", "nowhere.json"], 2, [], "nowhere.json"),
    (["show", "PROFILE", "--format", "yaml"], 2, [], "unknown value 'yaml'"),
    (["show", "1", "--db", "jobs.db"], 0, ["ring/ll/2", "product static"], ""),
    (["show", "2", "--db", "jobs.db"], 2, [], "job 2"),
    (["show", "1", "--db", "none.db"], 3, [], "none.db"),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "14K"], 0,
     ["all_reduce 14K: ring/ll/2", "the row for 8K to 32K bytes", "NCCL_MIN_NCHANNELS=16", "12 pairs"], ""),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "14K", "--mode", "graph"], 0,
     ["gain 25.0 %", "runner-up ring/ll/4", "rejected  tree/ll: slower in eager mode"], ""),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "1M"], 0, ["all_reduce 1M: default", "no row covers it: NCCL chooses, under the variables; nearest class 1M: default"], ""),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "1G"], 0, ["no row covers it, and no size near it was measured: NCCL chooses"], ""),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "64M", "--mode", "stream"], 0, ["evidence  none of mode stream"], ""),
    (["decide", "EMPTY", "-c", "all_reduce", "-b", "1M", "--static"], 0, ["the product sets nothing"], ""),
    (["decide", "PROFILE", "-c", "all_gather", "-b", "1M"], 0, ["all_gather 1M: default", "was not measured: NCCL chooses, under the variables"], ""),
    (["decide", "PROFILE", "-c", "alltoall", "-b", "1M"], 0, ["NCCL asks no tuner about this collective"], ""),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "64M", "--static"], 0, ["NCCL_ALGO=allreduce:tree,ring"], ""),
    (["decide", "PROFILE", "-c", "allreduce", "-b", "1M"], 2, [], "did you mean 'all_reduce'"),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "4X"], 2, [], "--bytes"),
    (["decide", "PROFILE"], 2, [], "--collective and --bytes"),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "0"], 2, [], "--bytes: at least 1"),
    (["decide", "PROFILE", "-c", "all_reduce", "-b", "1M", "--mode", "graf"], 2, [], "did you mean 'graph'"),
    (["export", "PROFILE", "--format", "kubernetes"], 2, [], "unknown value 'kubernetes'"),
    (["export", "PROFILE", "--format", "dokcer"], 2, [], "did you mean 'docker'"),
    (["export", "PROFILE", "--nccl", "new"], 2, [], "--nccl: 'new' is not an NCCL version"),
    (["export", "PROFILE", "--dir", "nowhere"], 2, [], "nowhere: no such folder"),
    (["export", "PROFILE", "--static", "--format", "tuner-csv"], 2, [], "carries only the rows"),
    (["export", "PROFILE", "-o", "/dev/full"], 1, [], "/dev/full"),
    (["export", "PROFILE", "-d", ".", "-o", "/dev/full"], 1, [], "/dev/full"),
    (["export", "PROFILE", "-d", ".", "-o", "nodir/x"], 2, [], "nodir/x"),
    (["export", "PROFILE", "-d", ".", "-f", "k8s", "-o", "."], 2, [], "is a folder"),
    (["export", "RIG"], 1, [], "--allow-rig mps-sockets"),
    (["export", "RIG", "--allow-rig", "mps-sockets", "--static"], 0, ["functional rig"], ""),
    (["export", "EMPTY"], 0, ["defaults are the best found here"], ""),
    (["export", "PROFILE", "--static"], 0, ["NCCL_BUFFSIZE=8388608"], ""),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, args in (("PROFILE", []), ("EMPTY", ["empty"]), ("RIG", ["rig", "mps-sockets"])):
            (folder / file).write_text(subprocess.run([SAMPLE, *args], check=True, capture_output=True, text=True).stdout)
        with open(folder / "PROFILE", encoding="utf-8") as document:
            subprocess.run([STORE, str(folder / "jobs.db")], check=True, stdin=document)
        for args, code, says, warns in CASES:
            got = run(*args, cwd=folder)
            missing = [s for s in says if s not in got.stdout]
            if got.returncode != code or missing or warns not in got.stderr or (code and got.stdout):
                sys.exit(f"{' '.join(args)}: exit {got.returncode}, lacks {missing}\n{got.stdout}\n{got.stderr}")
        with open("/dev/full", "w", encoding="utf-8") as full:
            assert subprocess.run([NCCLTUNE, "export", "PROFILE"], cwd=folder, stdout=full, stderr=subprocess.DEVNULL).returncode == 1
        assert not list(pathlib.Path("/dev").glob("*.nctable"))
        assert not list(folder.glob("*.nctable")), "a refused or static export leaves no delivery file"
        check_files(folder)
        check_words(folder)
        check_hints(folder)
        check_backends(folder)
        check_kept(folder)
    print(f"{len(CASES)} command lines")


def check_kept(folder):
    """A class that a row only keeps is published: its commands are told, too."""
    document = json.loads((folder / "PROFILE").read_text())
    kept = next(c for c in document["products"]["table"]["classes"] if c["bytes"] == 14336 and c["mode"] == "eager")
    kept["verdict"] = "kept"
    (folder / "KEPT").write_text(json.dumps(document))
    one, other = (run("show", f, "--reproduce", cwd=folder).stdout.count("without  mpirun") for f in ("PROFILE", "KEPT"))
    assert one == other > 1, (one, other)


def check_hints(folder):
    """What fell by a check that this user's programs may not need says how to leave it out."""
    document = json.loads((folder / "PROFILE").read_text())
    assert "hint" not in run("show", "PROFILE", cwd=folder).stdout
    for check, option in (("group of 8 at all_reduce 42K", "--no-groups"), ("beside compute", "--no-overlap")):
        document["tried"] = [{"setting": "NCCL_MIN_NCHANNELS=32", "why": f"confirmed and withdrawn: not within the guard: {check}"}]
        (folder / "HINTS").write_text(json.dumps(document))
        shown = run("show", "HINTS", cwd=folder).stdout
        assert shown.count("hint: ") == 1 and option in shown, shown
        document["tried"] = []  # a row falls by them, too
        fell = next(c for c in document["products"]["table"]["classes"] if c["verdict"] in ("default", "guard"))
        fell.update(verdict="guard", rejected=[{"setting": "tree/ll", "why": f"not within the guard: {check}"}])
        (folder / "HINTS").write_text(json.dumps(document))
        shown = run("show", "HINTS", cwd=folder).stdout
        assert shown.count("hint: ") == 1 and option in shown, shown
        fell.update(rejected=[])


def check_backends(folder):
    """A form that cannot carry the rows of backends says so, and nothing calls a profile of such rows alone empty."""
    document = json.loads((folder / "PROFILE").read_text())
    for form in ("env", "tuner-csv", "k8s", "ray", "json"):
        got = run("export", "PROFILE", "--format", form, "--dir", ".", cwd=folder)
        assert got.returncode == 0 and "backends: who moves the bytes (1 row) is not in this form" in got.stderr, got
    assert "is not in this form" not in run("export", "PROFILE", "--format", "vllm", "--dir", ".", cwd=folder).stderr
    for file in (*folder.glob("*.nctable"), *folder.glob("*.backends.json")):
        file.unlink()
    document.pop("delivery")
    for product in document["products"].values():
        product.update(classes=[], vars={})
    document["products"]["table"]["rows"] = []
    document["not_checked"] = [{"setting": "confirm: odd size", "why": "the recording does not hold it"}]
    (folder / "ALONE").write_text(json.dumps(document))
    got = run("export", "ALONE", cwd=folder)
    assert "of what it can be told; backends are not in this form" in got.stdout, got
    assert "# not checked: confirm: odd size: the recording does not hold it\n" in got.stdout, got
    document["products"]["table"]["classes"] = [{"bytes": 1024, "coll": "all_reduce", "mode": "graph", "default_ns": 9000, "pairs": 0, "rejected": [],
                                                 "runners_up": [], "setting": "default", "verdict": "default"}]
    (folder / "ALONE").write_text(json.dumps(document))
    page = run("report", "ALONE", "--out", "-", cwd=folder)
    assert page.returncode == 0 and "who else moves the bytes faster is below" in page.stdout, page.stderr
    assert "the profile is empty" not in page.stdout


def check_words(folder):
    """Classes are shown by size, each once; what its own test does not prove is said; the choice is no runner-up."""
    document = json.loads((folder / "PROFILE").read_text())
    classes = document["products"]["table"]["classes"]
    classes[1]["p_adjusted"] = 0.023
    classes[2]["runners_up"] = [{"setting": "default", "ns": 62000}, {"setting": "ring/ll", "ns": 61000}]
    classes.reverse()
    (folder / "WORDS").write_text(json.dumps(document))
    shown = run("show", "WORDS", cwd=folder).stdout
    rows = [line.split() for line in shown.split("product static")[0].splitlines() if line.startswith("  all_reduce")]
    assert [(r[1], r[2]) for r in rows] == [("14K", "eager"), ("14K", "graph"), ("1M", "graph"), ("64M", "graph")], shown
    assert shown.count("alone p = 0.023") == 1 and "  tuned: in the profile" in shown and "  guard:" not in shown, shown
    assert "first call   default 1.2 s" in shown, shown
    assert "(from " not in shown, shown  # where a gain is known, that is what counts
    classes = document["products"]["table"]["classes"]
    default = next(c for c in classes if c["bytes"] == 1048576)
    for name in ("gain", "interval", "tuned_ns"):
        default.pop(name, None)
    default["detectable"] = 0.034
    (folder / "WORDS").write_text(json.dumps(document))
    shown = run("show", "WORDS", cwd=folder).stdout
    assert shown.count("(from 3.4 %)") == 1 and "would have proved there" in shown, shown
    classes = [dict(c, setting="NCCL_MIN_NCHANNELS=32", p_adjusted=0.97) for c in classes if c["verdict"] == "tuned"]
    document["products"]["static"]["classes"] = classes
    (folder / "WORDS").write_text(json.dumps(document))
    shown = run("show", "WORDS", cwd=folder).stdout.split("product static")[1]
    assert shown.count("NCCL_MIN_NCHANNELS=32 tuned, alone p = 0.97\n") == len(classes) > 0, shown
    assert "another size or mode proves it" in shown and "in one mode at least" not in shown, shown
    said = run("decide", "WORDS", "-c", "all_reduce", "-b", "1M", cwd=folder).stdout
    assert "runner-up ring/ll" in said and "runner-up default" not in said, said


def check_files(folder):
    document = json.loads((folder / "PROFILE").read_text())
    assert json.loads(run("show", "PROFILE", "--format", "json", cwd=folder).stdout) == document
    answer = json.loads(run("decide", "PROFILE", "-c", "all_reduce", "-b", "14K", "--format", "json", cwd=folder).stdout)
    evidence = next(c for c in document["products"]["table"]["classes"] if c["bytes"] == 14336 and c["mode"] == "eager")
    assert answer["setting"] == "ring/ll/2" and answer["evidence"] == evidence, answer
    (folder / "out").mkdir()
    got = run("export", "PROFILE", "--out", "out/nccl.env", cwd=folder)
    assert got.returncode == 0 and got.stdout == "", got
    table, = (folder / "out").glob("*.nctable")
    assert f"NCCLTUNE_TABLE={table.resolve()}" in (folder / "out" / "nccl.env").read_text()
    assert table.name == document["delivery"]["file"]


main()
