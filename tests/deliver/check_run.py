#!/usr/bin/env python3
"""run, note, diff, install, status, uninstall and doctor as a user meets them, without a GPU.

check_run.py NCCLTUNE SAMPLE_PROFILE PLUGINS LIVE SOURCE
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NCCLTUNE, SAMPLE, PLUGINS, LIVE, SOURCE = sys.argv[1:6]
TOPO = SOURCE + "/tests/topology/data/pcie4.xml"
DESPITE = ["--despite", "unknown", "--despite", "stack"]
LIBRARIES = []
UNSET = ("NCCL", "XDG_", "LD_PRELOAD", "LD_LIBRARY_PATH")


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="nt-run-"))
        self.addCleanup(shutil.rmtree, self.dir)  # the last of the clean-ups
        (self.dir / "receipts").mkdir(mode=0o700)
        self.profile = self.dir / "profile.json"
        self.profile.write_bytes(subprocess.run([SAMPLE], check=True, capture_output=True).stdout)
        (self.dir / "state/nccltune/cache").mkdir(mode=0o700, parents=True)
        if LIBRARIES:  # hashing libnccl takes a second
            (self.dir / "state/nccltune/cache/libraries.json").write_bytes(LIBRARIES[0])
        self.addCleanup(self.keep_libraries)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(UNSET)}
        self.env.update(XDG_STATE_HOME=str(self.dir / "state"), NCCLTUNE_RECEIPTS=str(self.dir / "receipts"))

    def keep_libraries(self):
        cache = self.dir / "state/nccltune/cache/libraries.json"
        if cache.exists():
            LIBRARIES[:] = [cache.read_bytes()]

    def made_here(self):
        """Makes the profile one of the machine in TOPO."""
        topo = json.loads(self.call("topo", TOPO, "--format", "json").stdout)
        p = json.loads(self.profile.read_text())
        p["identity"]["groups"] = topo["identity"]["groups"]
        p["identity"]["id"] = topo["identity"]["name"]
        self.profile.write_text(json.dumps(p))

    def with_backends(self):
        p = json.loads(self.profile.read_text())
        row = p["backends"]["rows"][0]
        row["backend"] = "torch-symm-mem"
        row.pop("algo"), row.pop("proto")
        p["backends"]["asked"].append("torch-symm-mem")
        self.profile.write_text(json.dumps(p))

    def only_backends(self):
        p = json.loads(self.profile.read_text())
        p.pop("delivery")
        for product in p["products"].values():
            product.update(rows=[], classes=[], vars={}) if "rows" in product else product.update(classes=[], vars={})
        self.profile.write_text(json.dumps(p))

    def call(self, *args, rc=0, **env):
        r = subprocess.run([NCCLTUNE, *map(str, args)], env={**self.env, **env}, capture_output=True, text=True,
                           timeout=60, check=False)
        self.assertEqual(r.returncode, rc, r.stdout + r.stderr)
        return r

    def run_cmd(self, *args, rc=0, **env):
        return self.call("run", "--topo", TOPO, "--profile", self.profile, "--plugins", PLUGINS, *args, rc=rc, **env)

    def manifests(self):
        return sorted((self.dir / "state/nccltune/runs").glob("*.json"))

    def variables(self, out):
        return dict(line.split("=", 1) for line in out.splitlines() if line.startswith("NCCL"))


class Run(Case):
    def setUp(self):
        super().setUp()
        self.made_here()

    def test_sets_and_remembers(self):
        r = self.run_cmd(*DESPITE, "--", "env")
        v = self.variables(r.stdout)
        self.assertEqual(v["NCCL_BUFFSIZE"], "8388608")
        self.assertEqual(v["NCCLTUNE_LOCAL_RANKS"], "8")
        self.assertEqual(v["NCCL_TUNER_PLUGIN"], PLUGINS + "/libnccl-tuner-nccltune.so")
        table = pathlib.Path(v["NCCLTUNE_TABLE"])
        self.assertEqual(table.name, v["NCCLTUNE_PROFILE"] + ".nctable")
        self.assertEqual(table.stat().st_mode & 0o777, 0o444)
        (manifest,) = self.manifests()
        m = json.loads(manifest.read_text())
        self.assertEqual(m["id"], v["NCCLTUNE_JOB"])
        self.assertEqual(m["profile"]["hash"], v["NCCLTUNE_PROFILE"])
        self.assertEqual(m["command"], ["env"])
        self.assertEqual(m["variables"]["NCCL_BUFFSIZE"], "8388608")
        self.assertTrue(m["machine"]["identity"]["groups"])
        self.assertEqual(manifest.stat().st_mode & 0o777, 0o600)

    def test_keeps_the_users_value(self):
        r = self.run_cmd(*DESPITE, "--", "env", NCCL_BUFFSIZE="4194304")
        self.assertEqual(self.variables(r.stdout)["NCCL_BUFFSIZE"], "4194304")
        self.assertIn("NCCL_BUFFSIZE=4194304 is yours and stays", r.stderr)
        m = json.loads(self.manifests()[0].read_text())
        kept = [a for a in m["applied"] if a["how"] == "kept"]
        self.assertEqual([(a["name"], a["before"]) for a in kept], [("NCCL_BUFFSIZE", "4194304")])

    def test_before_it_is_installed(self):
        """A program in its build folder finds its plugins there, and the loader in the sources."""
        r = self.call("run", "--topo", TOPO, "--profile", self.profile, *DESPITE, "--", "env")
        self.assertEqual(self.variables(r.stdout)["NCCL_TUNER_PLUGIN"], PLUGINS + "/libnccl-tuner-nccltune.so")
        r = self.call("install", "--python", sys.executable, "--root", self.dir, "--dry-run")
        self.assertIn("nccltune_loader.py", r.stdout)

    def test_says_what_would_apply_it(self):
        p = json.loads(self.profile.read_text())
        p["rig"] = {"kind": "recording", "functional": True}
        self.profile.write_text(json.dumps(p))
        r = self.call("run", "--topo", self.dir / "none.xml", "--profile", self.profile, "--", "true", rc=1)
        self.assertIn("with --allow-rig recording --despite unknown it is all the same", r.stderr)
        r = self.call("install", "--topo", self.dir / "none.xml", "--active", self.profile, "--dry-run", rc=1)
        self.assertIn("; --allow-rig recording --despite unknown installs it all the same", r.stderr)

    def test_refuses_what_does_not_fit(self):
        self.profile.write_bytes(subprocess.run([SAMPLE], check=True, capture_output=True).stdout)
        r = self.run_cmd("--", "env", rc=1)
        self.assertIn("does not fit: made for another machine", r.stderr)
        self.assertEqual(r.stdout, "")
        self.call("run", "--profile", self.profile, "--plugins", PLUGINS, "--", "env", rc=3)
        self.assertFalse((self.dir / "state/nccltune/tables").exists())

    def test_refuses_another_rig(self):
        self.profile.write_bytes(subprocess.run([SAMPLE, "rig", "mps-sockets"], check=True, capture_output=True).stdout)
        r = self.call("run", "--profile", self.profile, "--plugins", PLUGINS, *DESPITE, "--", "env", rc=1)
        self.assertIn("measured on rig mps-sockets", r.stderr)
        self.call("run", "--profile", self.profile, "--plugins", PLUGINS, *DESPITE, "--allow-rig", "mps-sockets", "--",
                  "true")

    def test_ranks_of_this_host(self):
        """Ranks on one GPU are on one host, although each tells NCCL that it is a host of its own."""
        for rig, ranks in (("mps-sockets", "8"), ("nccl", "1")):
            p = json.loads(self.profile.read_text())
            p["nodes"] = p["ranks"]
            p["delivery"] = {}
            p["rig"] = {"kind": rig, "functional": rig != "nccl"}
            self.profile.write_text(json.dumps(p))
            v = self.variables(self.run_cmd(*DESPITE, "--allow-rig", "mps-sockets", "--", "env").stdout)
            self.assertEqual(v["NCCLTUNE_LOCAL_RANKS"], ranks, rig)

    def test_static(self):
        v = self.variables(self.run_cmd(*DESPITE, "--static", "--", "env").stdout)
        self.assertIn("NCCL_ALGO", v)
        self.assertNotIn("NCCL_TUNER_PLUGIN", v)

    def test_backends_for_an_engine(self):
        """The table beside the profile's, the engine's variables, the plugin in PYTHONPATH; what is set stays or stops it."""
        self.with_backends()
        prefix = self.dir / "prefix"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "share/nccltune").mkdir(parents=True)
        os.link(NCCLTUNE, prefix / "bin/nccltune") if os.stat(NCCLTUNE).st_dev == os.stat(prefix).st_dev else shutil.copy2(NCCLTUNE, prefix / "bin/nccltune")
        shutil.copytree(SOURCE + "/profiles/engines", prefix / "share/nccltune/engines")

        def run(*words, rc=0, **env):
            r = subprocess.run([prefix / "bin/nccltune", "run", "--topo", TOPO, "--profile", self.profile, "--plugins", PLUGINS, *DESPITE, *words,
                                "--", "env"], env={**self.env, **env}, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(r.returncode, rc, r.stdout + r.stderr)
            return r

        r = run("--engine", "vllm", PYTHONPATH="/mine")
        v = dict(line.split("=", 1) for line in r.stdout.splitlines() if "=" in line)
        table = pathlib.Path(v["NCCLTUNE_BACKENDS_TABLE"])
        form = json.loads(table.read_text())
        self.assertEqual(form["table"]["hash"], v["NCCLTUNE_BACKENDS"])
        self.assertEqual(form["table"]["rows"], ["all_reduce,graph,1024,16384,torch-symm-mem,bf16/out"])
        self.assertEqual(table.stat().st_mode & 0o777, 0o444)
        self.assertEqual(v["VLLM_ALLREDUCE_USE_SYMM_MEM"], "1")
        self.assertEqual(v["PYTHONPATH"], f"{prefix}/share/nccltune/engines:/mine")
        self.assertIn("NCCLTUNE_PROFILE", v)
        m = json.loads(self.manifests()[-1].read_text())
        self.assertIn("NCCLTUNE_BACKENDS", {a["name"] for a in m["applied"]})
        found = subprocess.run([sys.executable, "-c", "from importlib.metadata import entry_points as e; print([p.name for p in "
                                "e(group='vllm.general_plugins')])"], env={"PYTHONPATH": v["PYTHONPATH"]}, capture_output=True, text=True)
        self.assertIn("nccltune", found.stdout, found.stderr)

        r = run("--engine", "vllm", VLLM_ALLREDUCE_USE_SYMM_MEM="0")
        self.assertIn("VLLM_ALLREDUCE_USE_SYMM_MEM=0", r.stdout.splitlines())
        r = run("--engine", "vllm", NCCLTUNE_BACKENDS="c" * 64, rc=1)
        self.assertIn("already names other backends", r.stderr)
        self.assertIn("--enable-torch-symm-mem", run("--engine", "sglang").stderr)
        self.assertNotIn("NCCLTUNE_BACKENDS", run().stdout)
        self.assertIn("who moves the bytes (1 row of backends) is left to the program; --engine", run().stderr)
        self.assertNotIn("left to the program", run("--engine", "vllm").stderr)
        self.only_backends()
        r = run()
        self.assertIn("nothing is set: what the profile has is about backends", r.stderr)
        self.assertNotIn("defaults are the best found", r.stderr)
        self.call("run", "--engine", "vllm", "--", "true", rc=2)
        self.call("run", "--engine", "vlm", "--profile", self.profile, "--", "true", rc=2)

    def test_exit_codes_of_a_shell(self):
        self.call("run", "--", "sh", "-c", "exit 7", rc=7)
        self.assertEqual(len(self.manifests()), 1)
        self.call("run", "--", "no-such-command-here", rc=127)
        self.call("run", "--", str(self.dir), rc=126)
        self.assertEqual(len(self.manifests()), 1)  # what did not start left none
        self.call("run", rc=2)
        self.call("run", "--profile", self.dir / "none", "--", "true", rc=2)

    def test_bookkeeping_stops_no_job(self):
        """Without a manifest the command starts and a warning says so; without the delivery file it does not."""
        state, none = self.dir / "state/nccltune", self.dir / "none"
        (state / "runs").write_text("in the way")
        none.write_text("no folder")
        warning = "warning: no manifest of this run is kept"
        r = self.call("run", "--", "sh", "-c", "echo started; exit 7", rc=7)
        self.assertEqual(r.stdout, "started\n")
        self.assertIn(warning, r.stderr)
        self.assertIn(str(state / "runs"), r.stderr)
        self.assertIn("XDG_STATE_HOME", r.stderr)
        v = self.variables(self.run_cmd(*DESPITE, "--", "env").stdout)
        self.assertTrue(pathlib.Path(v["NCCLTUNE_TABLE"]).exists())
        self.assertIn(warning, self.call("run", "--", "true", XDG_STATE_HOME=str(none)).stderr)
        self.assertIn(warning, self.call("run", "--", "true", XDG_STATE_HOME="", HOME="").stderr)
        r = self.run_cmd(*DESPITE, "--", "echo", "started", rc=1, XDG_STATE_HOME=str(none))
        self.assertEqual(r.stdout, "")
        self.assertIn("cannot be delivered, and nothing is started", r.stderr)

    @unittest.skipIf(b"__tsan_init" in pathlib.Path(NCCLTUNE).read_bytes(), "ThreadSanitizer's runtime writes a file before main()")
    def test_quota(self):
        """A quota on files is no death, and the command finds the signal as it was."""
        (self.dir / "state/nccltune/cache/libraries.json").unlink(missing_ok=True)
        r = subprocess.run(["bash", "-c", 'ulimit -f 0; exec "$@"', "-", NCCLTUNE, "run", "--", "grep", "SigIgn", "/proc/self/status"],
                           env=self.env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("warning: no manifest", r.stderr)
        self.assertFalse(int(r.stdout.split()[1], 16) & 1 << 24)
        self.assertEqual(self.manifests(), [])

    def test_names_that_are_no_text(self):
        """A folder's name may be any bytes."""
        odd = os.fsencode(self.dir) + b"/\xff"
        os.mkdir(odd)
        subprocess.run([NCCLTUNE, "run", "--", "true"], env=self.env, cwd=odd, check=True, stderr=subprocess.DEVNULL, timeout=60)
        self.assertEqual(json.loads(self.manifests()[0].read_text())["cwd"], f"{self.dir}/?")

    def test_home_that_is_no_text(self):
        """The delivery file lies below it, so that its name is in what is kept of the run."""
        odd = os.fsencode(self.dir) + b"/\xff"
        os.mkdir(odd)
        env = {os.fsencode(k): os.fsencode(v) for k, v in self.env.items() if k != "XDG_STATE_HOME"}
        r = subprocess.run([NCCLTUNE, "run", "--topo", TOPO, "--profile", self.profile, "--plugins", PLUGINS, *DESPITE, "--", "env"],
                           env={**env, b"HOME": odd}, capture_output=True, timeout=60, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn(b"warning", r.stderr)
        self.assertIn(b"NCCLTUNE_TABLE=" + odd + b"/.local/state/nccltune/tables/", r.stdout)
        folder = odd + b"/.local/state/nccltune/runs"
        (name,) = os.listdir(folder)
        with open(folder + b"/" + name, encoding="utf-8") as f:
            m = json.load(f)
        self.assertTrue(m["profile"]["table"].startswith(f"{self.dir}/?/.local/state/nccltune/tables/"), m["profile"])
        self.assertIn(m["profile"]["table"], [a["value"] for a in m["applied"] if a["name"] == "NCCLTUNE_TABLE"])

    def test_kill_switch_and_another_profile(self):
        r = self.run_cmd("--", "env", NCCLTUNE_DISABLE="1")
        self.assertNotIn("NCCLTUNE_PROFILE", self.variables(r.stdout))
        r = self.run_cmd(*DESPITE, "--", "env", NCCLTUNE_PROFILE="a" * 64, rc=1)
        self.assertIn("another profile", r.stderr)

    def test_dry_run_leaves_nothing(self):
        r = self.run_cmd(*DESPITE, "--dry-run", "--", "env")
        self.assertIn("set   NCCL_BUFFSIZE=8388608", r.stdout)
        self.assertEqual(self.manifests(), [])
        self.assertEqual(list((self.dir / "state/nccltune").glob("tables/*")), [])

    def test_empty_profile(self):
        self.profile.write_bytes(subprocess.run([SAMPLE, "empty"], check=True, capture_output=True).stdout)
        r = self.call("run", "--profile", self.profile, *DESPITE, "--", "env")
        self.assertEqual(set(self.variables(r.stdout)), {"NCCLTUNE_RECEIPTS"})
        self.assertIn("defaults are the best found", r.stderr)

    def test_note_and_diff(self):
        self.call("run", "--", "true", NCCL_PROTO="LL")
        self.call("run", "--", "true", NCCL_PROTO="Simple", NCCL_DEBUG="WARN")
        self.call("note", "last~1", "tok/s=88.8")
        self.assertIn(": tok/s=82.2\n", self.call("note", "last", "tok/s=82.2").stdout)
        out = self.call("diff", "last~1", "last").stdout
        self.assertIn("tok/s: 88.8, then 82.2 (-7.4 %)", out)
        self.assertLess(out.index("NCCL_PROTO was LL, is Simple"), out.index("NCCL_DEBUG"))
        d = json.loads(self.call("diff", "last~1", "last", "--format", "json").stdout)
        self.assertEqual(d["differences"][0]["name"], "NCCL_PROTO")
        self.assertEqual(d["differences"][0]["likelihood"], "likely")
        self.call("diff", "last", "nothing", rc=2)
        self.call("diff", "last~2", "last", rc=2)
        self.call("note", "last", "novalue", rc=2)
        for bad in ("a\nb=1", "a\x1b[31m=1", "a=1\n2", "\u202ea=1"):
            self.assertIn("one line of text", self.call("note", "last", bad, rc=2).stderr)

    def test_reading_makes_nothing(self):
        """Who only looks needs no folder that can be written."""
        state = os.path.join(self.dir, "none")
        for args in (("diff", "last", "last"), ("note", "last", "a=1")):
            self.assertIn("no run", self.call(*args, rc=2, XDG_STATE_HOME=state).stderr)
        if os.geteuid() != 0:  # root's lies in the system's folder
            self.assertIn("no profile", self.call("status", XDG_STATE_HOME=state).stdout)
            self.assertIn("nothing is installed", self.call("uninstall", XDG_STATE_HOME=state).stderr)
        self.assertFalse(os.path.exists(state))

    def test_what_lies_at_the_tables_name_is_replaced(self):
        command = ["run", "--profile", self.profile, "--plugins", PLUGINS, *DESPITE, "--", "true"]
        self.call(*command)
        (table,) = (self.dir / "state/nccltune/tables").iterdir()
        good, other = table.read_bytes(), self.dir / "other"
        other.write_text("mine")
        for make in (lambda: table.symlink_to(other), lambda: os.mkfifo(table), lambda: table.write_text("x")):
            table.unlink()
            make()
            self.call(*command)
            self.assertFalse(table.is_symlink())
            self.assertEqual((table.read_bytes(), other.read_text()), (good, "mine"))
        self.assertEqual(list(table.parent.iterdir()), [table])


class Doctor(Case):
    def live(self, *args, **env):
        p = subprocess.Popen([NCCLTUNE, "run", "--profile", self.profile, "--plugins", PLUGINS, *DESPITE,
                              "--local-ranks", "1", *args, "--", LIVE, "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS"],
                             env={**self.env, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.stdin.close)
        self.assertEqual(p.stdout.readline(), "ready\n")
        return p

    def test_applied(self):
        a, b = self.live(), self.live()
        r = self.call("doctor", a.pid, b.pid, "--format", "json", "--active", "/nonexistent")
        d = json.loads(r.stdout)
        self.assertTrue(d["applied"])
        self.assertEqual((d["counted"], d["applied_in"]), (2, 2))
        self.assertEqual({p["verdict"] for p in d["processes"]}, {"applied"})
        served = [c for c in d["calls"] if c["by_table"]]
        self.assertEqual([(c["collective"], c["by_table"]) for c in served], [("all_reduce", 6)])
        text = self.call("doctor", a.pid, "--active", "/nonexistent").stdout
        self.assertTrue(text.startswith("applied in 1 of 1\n"), text)
        self.assertIn("another backend has it", text)

    def test_partly(self):
        a = self.live(NCCL_BUFFSIZE="4194304")
        r = self.call("doctor", a.pid, "--active", "/nonexistent", rc=1)
        self.assertIn("applied in 0 of 1, partly in 1", r.stdout)
        self.assertIn("NCCL_BUFFSIZE: not the profile's value: 4194304", r.stdout)

    def test_ranks_disagree(self):
        a, b = self.live(), self.live("--static")
        r = self.call("doctor", a.pid, b.pid, "--active", "/nonexistent", rc=1)
        self.assertIn("2", r.stdout.splitlines()[0])
        self.assertIn("the ranks disagree", r.stdout)

    def test_bad_pids(self):
        self.call("doctor", "x", rc=2)
        self.call("doctor", "0", rc=2)
        self.call("doctor", "4194305", rc=2)


def sysconfig_tag(python):
    return subprocess.run([python, "-c", "import sys; print(sys.implementation.cache_tag)"], check=True, capture_output=True,
                          text=True).stdout.strip()


class Install(Case):
    def setUp(self):
        super().setUp()
        self.root = self.dir / "root"
        self.root.mkdir(mode=0o755)
        os.chmod(self.dir, 0o755)

    def install(self, *args, rc=0):
        return self.call("install", "--root", self.root, "--plugins", PLUGINS, "--loader", SOURCE + "/profiles/loader",
                         *args, rc=rc)

    def files(self):
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if not p.is_dir())

    def test_there_and_back(self):
        active = self.root / "run/nccltune/active"
        self.install("--active", self.profile, *DESPITE, "--dry-run")
        self.assertEqual(self.files(), [])
        self.install("--active", self.profile, *DESPITE, "--at-boot")
        lines = active.read_text().splitlines()
        self.assertEqual(lines[0], "nccltune-active 1")
        self.assertIn("NCCL_BUFFSIZE=8388608", lines)
        unit = (self.root / "etc/systemd/system/nccltune.service").read_text()
        self.assertIn("install --active /etc/nccltune/profile.json", unit)
        r = self.call("status", "--root", self.root, *DESPITE)
        self.assertNotIn("it fits this machine", r.stdout)
        self.assertIn("it is taken here despite what was let through:\n  despite: the machine cannot be looked at", r.stdout)
        self.made_here()
        (self.root / "etc/nccltune/profile.json").write_bytes(self.profile.read_bytes())
        r = self.call("status", "--root", self.root, "--topo", TOPO, "--despite", "stack", "--format", "json", rc=1)
        d = json.loads(r.stdout)  # wrong, because the file was changed
        self.assertEqual((d["fits"], [x for x in d["despite"] if "looked at" in x]), (True, []))
        self.profile.write_bytes(subprocess.run([SAMPLE], check=True, capture_output=True).stdout)
        (self.root / "etc/nccltune/profile.json").write_bytes(self.profile.read_bytes())
        self.assertIn("no longer fits", self.call("status", "--root", self.root, rc=1).stdout)
        self.install("--active", self.profile, "--topo", TOPO, rc=1)
        self.assertFalse(active.exists())  # what does not fit is not left active
        self.call("uninstall", "--root", self.root)
        self.assertEqual(self.files(), [])

    def test_backends_for_an_engine(self):
        self.with_backends()
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        self.install("--active", self.profile, *DESPITE, "--engine", "vllm", "--python", python, "--at-boot")
        active = dict(line.lstrip("!").split("=", 1) for line in (self.root / "run/nccltune/active").read_text().splitlines()[1:])
        (table,) = (self.root / "etc/nccltune").glob("*.backends.json")
        self.assertEqual(active["NCCLTUNE_BACKENDS_TABLE"], "/etc/nccltune/" + table.name)
        self.assertEqual(active["NCCLTUNE_BACKENDS"], json.loads(table.read_text())["table"]["hash"])
        self.assertEqual(active["VLLM_ALLREDUCE_USE_SYMM_MEM"], "1")
        self.assertIn(" --engine vllm", (self.root / "etc/systemd/system/nccltune.service").read_text())
        put = {f.rsplit("-packages/", 1)[1] for f in self.files() if "/nccltune_engines" in f}
        here = pathlib.Path(SOURCE, "profiles/engines")
        self.assertEqual(put, {str(f.relative_to(here)) for f in here.glob("nccltune_engines*/*") if f.suffix != ".pyc" and f.is_file()})
        (metadata,) = self.root.rglob("nccltune_engines-*")
        (metadata / "RECORD").write_text("somebody else's\n")
        self.call("uninstall", "--root", self.root)
        self.assertEqual(self.files(), [str((metadata / "RECORD").relative_to(self.root))])
        self.assertEqual(list(self.root.rglob("nccltune_engines*")), [metadata])  # empty it would be a package still
        (metadata / "RECORD").unlink()
        self.only_backends()
        r = self.install("--active", self.profile, *DESPITE)
        self.assertIn("nothing is set: what the profile has is about backends", r.stdout)
        self.assertIn("--engine sglang or vllm tells it", r.stderr)

    def test_changed_table_is_noticed(self):
        self.install("--active", self.profile, *DESPITE)
        (table,) = (self.root / "etc/nccltune").glob("*.nctable")
        os.chmod(table, 0o644)
        table.write_bytes(b"x")
        r = self.call("status", "--root", self.root, *DESPITE, rc=1)
        self.assertIn("was changed since", r.stdout)
        self.assertIn("another hash", r.stdout)
        os.remove(table)
        r = self.call("status", "--root", self.root, *DESPITE, rc=1)
        self.assertIn("1 of these files are missing", r.stdout)
        self.assertEqual(r.stdout.count(table.name), 2, r.stdout)  # beside its state, and as the active one

    def test_loader_in_a_venv(self):
        """As a plain user: root's manifest would be the machine's own."""
        system = "/usr/bin/python3"
        user = {"user": 54321, "group": 54321, "extra_groups": []} if os.geteuid() == 0 else {}
        if not os.path.exists(system):
            self.skipTest("no " + system)
        self.install("--active", self.profile, *DESPITE)
        venv, home = self.dir / "venv", self.dir / "home"
        home.mkdir(mode=0o700)
        venv.mkdir(mode=0o755)
        if user:
            os.chown(home, user["user"], user["group"])
            os.chown(venv, user["user"], user["group"])
        env = {"NCCLTUNE_ACTIVE": str(self.root / "run/nccltune/active"), "PATH": "/usr/bin:/bin",
               "XDG_STATE_HOME": str(home)}

        def do(*args, stderr=False, **more):
            r = subprocess.run([str(a) for a in args], env={**env, **more}, capture_output=True, text=True,
                               check=True, cwd="/", **user)
            return r.stderr if stderr else r.stdout

        def ask(**more):
            return do(venv / "bin/python3", "-c", "import os; print(os.environ.get('NCCL_BUFFSIZE'))", **more)
        # Copies: the sources may lie where only their owner can look.
        nccltune = shutil.copy(NCCLTUNE, self.dir / "nccltune")
        loader = shutil.copytree(SOURCE + "/profiles/loader", self.dir / "loader")
        do(system, "-m", "venv", "--without-pip", venv)
        self.assertEqual(ask(), "None\n")
        do(nccltune, "install", "--python", venv / "bin/python3", "--loader", loader)
        self.assertEqual(ask(), "8388608\n")
        self.assertEqual(ask(NCCL_BUFFSIZE="4"), "4\n")
        self.assertEqual(ask(NCCLTUNE_DISABLE="1"), "None\n")
        self.assertEqual(len(json.loads(do(nccltune, "status", "--format", "json"))["files"]), 4)
        # The compiled file is used as it is, and a second installation finds it unchanged.
        said = do(venv / "bin/python3", "-v", "-c", "import nccltune_loader", stderr=True)
        self.assertIn("nccltune_loader.cpython", said)
        self.assertNotIn("wrote '" + str(venv), said)
        do(nccltune, "install", "--python", venv / "bin/python3", "--loader", loader)
        do(nccltune, "uninstall", "--python", venv / "bin/python3")
        self.assertEqual(ask(), "None\n")
        self.assertEqual([str(x) for x in venv.rglob("*nccltune*")], [])
        # One that the interpreter made itself stays its own.
        (cache,) = venv.glob("lib/python3*/site-packages/__pycache__")
        foreign = cache / f"nccltune_loader.{sysconfig_tag(system)}.pyc"
        foreign.write_bytes(b"not ours")
        if user:
            os.chown(foreign, user["user"], user["group"])
        do(nccltune, "install", "--python", venv / "bin/python3", "--loader", loader)
        self.assertEqual(len(json.loads(do(nccltune, "status", "--format", "json"))["files"]), 3)
        self.assertEqual(foreign.read_bytes(), b"not ours")

    def test_environment_that_is_gone(self):
        """Named by status with what forgets it, and forgotten alone; the other one keeps its loader."""
        venvs = [self.dir / "gone", self.dir / "stays"]
        for v in venvs:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", v], check=True)
            self.install("--python", v / "bin/python3")
        (packages,) = venvs[0].glob("lib/python3*/site-packages")
        shutil.rmtree(venvs[0])
        shutil.rmtree(f"{self.root}{venvs[0]}")
        said = self.call("status", "--root", self.root, rc=1).stdout
        command = f"nccltune uninstall --root {self.root} --python {packages}"
        self.assertIn(f"{packages} is gone, and the loader that was installed there: `{command}` forgets it", said)
        self.assertNotIn("of these files are missing", said)
        before = self.files()
        for named in (venvs[0] / "bin/python3", packages, venvs[0]):  # all of them mean it
            self.assertIn(f"would forget {packages}/nccltune_loader.py",
                          self.call("uninstall", "--root", self.root, "--python", named, "--dry-run").stdout)
        self.call(*command.split()[1:])
        self.assertEqual(self.files(), before)
        self.call("status", "--root", self.root)
        r = self.call(*command.split()[1:], rc=2)
        self.assertIn("is not there, and nothing that lay there is installed", r.stderr)
        (venvs[1] / "bin/python3").unlink()  # the environment is there, what it was made from is not
        self.call("uninstall", "--root", self.root, "--python", venvs[1] / "bin/python3")
        self.assertEqual(self.files(), [])

    def test_roots_that_are_none(self):
        for root, says in (("", "leave it out for this machine's own /"), (self.dir / "none", "mkdir -p"),
                           (self.profile, "Not a directory")):
            for more in ([], ["--dry-run"]):
                r = self.call("install", "--active", self.profile, *DESPITE, "--root", root, *more, rc=2)
                self.assertIn(says, r.stderr)
            for command in ("uninstall", "status"):
                self.assertIn(says, self.call(command, "--root", root, rc=2).stderr)
        self.assertFalse((self.dir / "none").exists())

    def test_at_once(self):
        """One after the other, and none forgets what another one wrote down."""
        command = [NCCLTUNE, "install", "--root", self.root, "--plugins", PLUGINS, "--active", self.profile, *DESPITE]
        several = [subprocess.Popen([str(a) for a in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for _ in range(4)]
        for p in several:
            self.assertEqual((p.communicate()[1].count("File exists"), p.returncode), (0, 0))
        self.assertIn("var/lib/nccltune/installed.json", self.files())
        self.call("uninstall", "--root", self.root)
        self.assertEqual(self.files(), [])

    def test_no_python(self):
        self.install("--python", "/bin/true", rc=2)
        self.install("--python", "/nonexistent", rc=2)
        self.install(rc=2)
        stays = self.dir / "stays"  # closes its output, and does not end
        stays.write_text("#!/bin/sh\nexec >&-\nexec sleep 600\n")
        stays.chmod(0o755)
        start = time.monotonic()
        self.install("--python", stays, rc=2)
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(self.files(), [])

    def test_nothing_of_the_packages_is_run(self):
        venv, ran = self.dir / "venv", self.dir / "ran"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (packages,) = venv.glob("lib/python3*/site-packages")
        (packages / "x.pth").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n")
        self.install("--python", venv / "bin/python3", "--dry-run")
        self.assertFalse(ran.exists())
        venv.chmod(0o777)  # who can write here says by pyvenv.cfg whose modules are run
        self.install("--python", venv / "bin/python3", "--dry-run", rc=1)


if __name__ == "__main__":
    os.umask(0o022)
    unittest.main(argv=sys.argv[:1], verbosity=1)
