#!/usr/bin/env python3
"""ab as a user meets it, with commands that print what is asked of them and without a GPU.

check_ab.py NCCLTUNE SAMPLE_PROFILE PLUGINS LIVE SOURCE
"""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from check_run import DESPITE, LIVE, NCCLTUNE, PLUGINS, SAMPLE, TOPO, Case

COMM = f"{LIVE} NCCL_BUFFSIZE ranks:8; "  # a communicator with the plugins, and a receipt
FIGURE = ("--figure", "tok/s=speed: ([0-9.,]+)")
FASTER = COMM + 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >n; ' \
    'if [ -n "$NCCL_BUFFSIZE" ]; then echo "speed: 11$((n % 3)).5"; else echo "speed: 10$((n % 2)).2"; fi'


class Ab(Case):
    def setUp(self):
        super().setUp()
        self.made_here()
        self.cwd = os.getcwd()
        os.chdir(self.dir)
        self.addCleanup(os.chdir, self.cwd)

    def words(self, *args, script):
        return ("ab", "--topo", TOPO, "--profile", self.profile, "--plugins", PLUGINS, "--local-ranks", "1", *DESPITE, *args, "--", "sh",
                "-c", script)

    def ab(self, *args, script, rc=0, **env):
        return self.call(*self.words(*args, script=script), rc=rc, **env)

    def json(self, *args, script, rc=0):
        return json.loads(self.ab(*args, "--format", "json", script=script, rc=rc).stdout)

    def alive(self, mark):
        found = []
        for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = p.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == b"sleep" and mark.encode() in words:
                found.append(p)
        return found

    def test_faster(self):
        r = self.ab("--pairs", "4", *FIGURE, script=FASTER)
        self.assertRegex(r.stdout, r"\nfaster by 1\d\.\d % \[\d")
        self.assertIn("applied in 1 of 1, in every run that counts", r.stdout)
        self.assertNotIn("speed:", r.stderr)
        self.assertEqual(len(self.manifests()), 8)
        notes = [json.loads(m.read_text())["notes"] for m in self.manifests()]
        self.assertEqual([("with the profile" in n["ab"]) for n in notes].count(True), 4)
        self.assertTrue(all(n["tok/s"] > 99 for n in notes))
        self.assertEqual([n["ab-answer"].split(" by ")[0] for n in notes if "ab-answer" in n], ["faster"])
        for m in self.manifests():
            m = json.loads(m.read_text())
            self.assertEqual(m["profile"] is None, "without the profile" in m["notes"]["ab"])
            self.assertEqual("NCCL_BUFFSIZE" in m["variables"], m["profile"] is not None)
            self.assertEqual("NCCLTUNE_DISABLE" in m["variables"], m["profile"] is None)
            self.assertIn("speed:", (self.dir / "state/nccltune/runs" / (m["id"] + ".log")).read_text())
        self.assertIn("tok/s: ", self.call("diff", "last~1", "last").stdout)

    def test_order_and_json(self):
        a = self.json("--pairs", "4", *FIGURE, script=FASTER)
        self.assertEqual(a["verdict"], "faster")
        firsts = [p["first"] for p in a["pairs"]]
        self.assertEqual(firsts, ["with", "without", "without", "with"])
        self.assertTrue(0.05 < a["lo"] < a["gain"] < a["hi"] < 0.2)
        self.assertEqual(a["pairs"][0]["with"]["applied"], "applied in 1 of 1")
        ids = [p[p["first"]]["run"] for p in a["pairs"]]
        self.assertEqual([i.rsplit(".", 1)[1] for i in ids], ["1", "3", "5", "7"])

    def test_slower_and_less_is_better(self):
        script = COMM + 'if [ -n "$NCCL_BUFFSIZE" ]; then echo "lat: 1.2 ms"; else echo "lat: 1000 us"; fi'
        figure = ("--figure", "lat=lat: (.*)", "--better", "lower", "--pairs", "3")
        self.assertRegex(self.ab(*figure, script=script, rc=1).stdout, r"slower by 20\.0 %")
        self.ab(*figure, "--no-slower", "30", script=script)
        self.assertIn("which lat is better", self.ab("--figure", "lat=lat: (.*)", script=script, rc=2).stderr)

    def test_equal(self):
        script = COMM + "echo speed: 100"
        self.assertIn("all figures are the same", self.ab("--pairs", "2", *FIGURE, script=script, rc=4).stdout)
        self.assertIn("no slower than 1.0 %", self.ab("--pairs", "2", "--no-slower", "1", *FIGURE, script=script).stdout)

    def test_noisy(self):
        script = COMM + 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >n; set -- 100 70 130 90 111 85 140 77; shift $n; echo "speed: $1"'
        r = self.ab("--pairs", "4", *FIGURE, script=script, rc=4)
        self.assertRegex(r.stdout, r"cannot tell: .* more pairs would tell .* %")

    def test_seconds(self):
        """What it says of them depends on what else this machine does just now."""
        script = COMM + 'if [ -z "$NCCL_BUFFSIZE" ]; then sleep 0.4; fi'
        r = subprocess.run([NCCLTUNE, *map(str, self.words("--seconds", "--pairs", "2", "--format", "json", script=script))], env=self.env,
                           capture_output=True, text=True, timeout=60, check=False)
        a = json.loads(r.stdout)
        self.assertIn((r.returncode, a["verdict"]), ((0, "faster"), (1, "slower"), (4, "cannot tell")))
        self.assertFalse(a["higher_is_better"])
        self.assertGreater(a["without"], 0.39)
        for p in a["pairs"]:
            self.assertEqual(p["with"]["value"], p["with"]["seconds"])

    def test_seconds_of_a_short_command(self):
        """From when the command took over, not from when we come to hear of it: then a shell that does nothing is over already."""
        r = subprocess.run([NCCLTUNE, *map(str, self.words("--seconds", "--unproven", "--pairs", "8", "--format", "json", script=":"))],
                           env=self.env, capture_output=True, text=True, timeout=120, check=False)
        took = [p[arm]["seconds"] for p in json.loads(r.stdout)["pairs"] for arm in ("with", "without")]
        self.assertGreater(min(took), 5e-5)  # no machine starts one sooner

    def test_fails(self):
        """Who is to blame, and what it says; it does not go on for ever."""
        r = self.ab(*FIGURE, script="echo speed: 5; exit 3", rc=2)
        self.assertIn("does not work here without the profile: exit code 3", r.stderr)
        self.assertEqual(len(self.manifests()), 2)
        r = self.ab(*FIGURE, script=COMM + 'echo speed: 5; test -z "$NCCL_BUFFSIZE"', rc=1)
        self.assertIn("does not work with it: exit code 1", r.stderr)
        r = self.ab(*FIGURE, script="kill -9 $$", rc=2)
        self.assertIn("signal 9", r.stderr)

    def test_one_failure_loses_a_pair(self):
        script = COMM + 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >n; echo speed: 10$n; test $n != 3'
        a = self.json("--pairs", "3", *FIGURE, script=script, rc=4)
        self.assertEqual([p["counts"] for p in a["pairs"]], [True, False, True])
        self.assertEqual(a["pairs_lost"], 1)

    def test_no_figure(self):
        self.assertIn("matches --figure", self.ab(*FIGURE, script=COMM + "echo hello", rc=2).stderr)
        r = self.ab("--figure", "tok/s=speed: (.*)", script=COMM + "echo speed: 5; echo speed: n/a", rc=2)
        self.assertIn("'n/a'", r.stderr)
        self.assertIn("above 0", self.ab(*FIGURE, script=COMM + "echo speed: 0", rc=2).stderr)

    def test_another_unit(self):
        script = COMM + 'if [ -n "$NCCL_BUFFSIZE" ]; then echo "speed: 5 tok/s"; else echo "speed: 5 it/s"; fi'
        self.assertIn("of the first run in", self.ab("--figure", "x/s=speed: (.*)", script=script, rc=2).stderr)

    def test_figure_in_a_file(self):
        script = COMM + 'if [ -n "$NCCL_BUFFSIZE" ]; then v=120; else v=100; fi; echo "{\\"speed\\": $v}" >out.json'
        figure = ("--figure", 'x/s="speed": ([0-9]+)', "--in", "out.json", "--pairs", "2", "--no-slower", "1")
        self.ab(*figure, script=script)
        os.utime("out.json", (1, 1))
        self.assertIn("was not written by this run", self.ab(*figure, script=COMM, rc=2).stderr)

    def test_figure_of_another_run(self):
        """A run that writes nothing has no figure, however new the one before's is; a clock that is elsewhere (NFS) hides none."""
        figure = ("--figure", 'x/s="speed": ([0-9]+)', "--in", "out.json", "--pairs", "2", "--no-slower", "1")
        write = 'echo "{\\"speed\\": 100}" >out.json'
        a = self.json(*figure, script=COMM + f'if [ -n "$NCCL_BUFFSIZE" ]; then {write}; fi', rc=2)
        self.assertIn("was not written by this run", "".join(p["without"]["why"] for p in a["pairs"]) + a["answer"])
        self.ab(*figure, script=COMM + write + "; touch -d @1 out.json")

    def test_profile_ignored(self):
        """A run in which nothing proves the profile does not count, unless asked for."""
        r = self.ab(*FIGURE, script="echo speed: 5", rc=1)
        self.assertIn("no process made a communicator with the profile", r.stderr)
        r = self.ab(*FIGURE, script="unset NCCL_TUNER_PLUGIN NCCL_ENV_PLUGIN; " + COMM + "echo speed: 5", rc=1)
        self.assertIn("not proved", r.stderr)
        self.ab(*FIGURE, "--pairs", "2", "--unproven", script="echo speed: 5", rc=4)
        r = self.ab(*FIGURE, script=f"{LIVE} NCCL_BUFFSIZE NCCL_BUFFSIZE=1 ranks:8; echo speed: 5", rc=1)
        self.assertIn("applied in 0 of 1", r.stderr)

    def test_no_receipts(self):
        r = self.ab(*FIGURE, script="touch ran", rc=3, NCCLTUNE_RECEIPTS=str(self.dir / "none"))
        self.assertIn("NCCLTUNE_RECEIPTS", r.stderr)
        self.assertFalse((self.dir / "ran").exists())

    def test_hangs(self):
        """The group is ended, and what left it; what a run leaves behind too."""
        mark = f"1000.{os.getpid()}1"
        script = f"setsid sleep {mark} & sleep {mark}"
        r = self.ab("--seconds", "--timeout", "300ms", script=script, rc=2)
        self.assertIn("not done after 300 ms", r.stderr)
        self.assertEqual(self.alive(mark), [])
        self.ab(*FIGURE, "--unproven", "--pairs", "2", "--no-slower", "1", script=f"echo speed: 5.0000; setsid sleep {mark} & sleep 0.1")
        self.assertEqual(self.alive(mark), [])

    def test_nohup(self):
        """What it was started to ignore does not end it."""
        mark = f"1000.{os.getpid()}4"
        p = self.start(mark, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        p.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(p.poll())
        p.terminate()
        p.communicate(timeout=30)
        self.assertEqual(p.returncode, 5)

    def test_ranks_without(self):
        """Receipts tell of how many ranks of this host there should be some."""
        half = f"{LIVE} NCCL_BUFFSIZE ranks:4"
        r = self.ab(*FIGURE, "--local-ranks", "2", "--pairs", "2", "--no-slower", "1", script=f"{half} & {half}; wait; echo speed: 5.0000")
        self.assertIn("applied in 2 of 2", r.stdout)
        r = self.ab(*FIGURE, script=f"{half} & env -u NCCL_TUNER_PLUGIN {half}; wait; echo speed: 5", rc=1)
        self.assertIn("4 of 8 ranks of a communicator on this host left no receipt", r.stderr)

    def start(self, mark, **how):
        p = subprocess.Popen([NCCLTUNE, *map(str, self.words("--seconds", "--unproven", script=f"trap '' INT; setsid sleep {mark} & sleep {mark}"))],
                             env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
        end = time.time() + 20
        while len(self.alive(mark)) < 2 and time.time() < end:
            time.sleep(0.02)
        return p

    def test_interrupted(self):
        mark = f"1000.{os.getpid()}2"
        for how in (signal.SIGINT, signal.SIGTERM):
            p = self.start(mark)
            p.send_signal(how)
            err = p.communicate(timeout=30)[1]
            self.assertEqual(p.returncode, 5, err)
            self.assertIn("interrupted", err)
            self.assertEqual(self.alive(mark), [])
            self.assertEqual(list((self.dir / "state/nccltune/runs").iterdir()), [])

    def test_killed(self):
        mark = f"1000.{os.getpid()}3"
        p = self.start(mark)
        p.kill()
        p.communicate()
        end = time.time() + 20
        while self.alive(mark) and time.time() < end:
            time.sleep(0.05)
        self.assertEqual(self.alive(mark), [])

    def test_before_anything_runs(self):
        script = "touch ran"
        self.assertIn("--figure", self.ab(script=script, rc=2).stderr)
        self.ab("--seconds", *FIGURE, script=script, rc=2)
        self.ab("--seconds", "--pairs", "1", script=script, rc=2)
        self.assertIn("no group", self.ab("--figure", "tok/s=speed", script=script, rc=2).stderr)
        self.assertIn("NCCLTUNE_PROFILE", self.ab("--seconds", script=script, rc=2, NCCLTUNE_PROFILE="a" * 64).stderr)
        self.assertIn("NCCLTUNE_DISABLE", self.ab("--seconds", script=script, rc=2, NCCLTUNE_DISABLE="1").stderr)
        self.assertIn("--profile", self.call("ab", "--seconds", "--", "true", rc=2).stderr)
        self.call("ab", "--profile", self.profile, "--plugins", PLUGINS, "--seconds", "--", "touch", "ran", rc=3)  # may not fit
        self.assertFalse((self.dir / "ran").exists())
        self.assertEqual(self.manifests(), [])
        r = self.call(*self.words("--seconds", script="")[:-3], "no-such-command-here", rc=2)
        self.assertIn("no-such-command-here: No such file", r.stderr)
        self.assertEqual(self.manifests(), [])

    def test_empty_profile(self):
        self.profile.write_bytes(subprocess.run([SAMPLE, "empty"], check=True, capture_output=True).stdout)
        self.assertIn("sets nothing", self.ab("--seconds", script="true", rc=2).stderr)

    def test_between_and_verbose(self):
        r = self.ab("--pairs", "2", "--no-slower", "1", *FIGURE, "-v", "--between", "env >>between; echo . >>count", script=COMM + "echo speed: 5.0000")
        self.assertIn("speed: 5.0000\n", r.stderr)
        self.assertEqual((self.dir / "count").read_text(), ".\n" * 3)
        self.assertNotIn("NCCL_BUFFSIZE", (self.dir / "between").read_text())
        self.assertIn("--between", self.ab(*FIGURE, "--between", "exit 7", script=COMM + "echo speed: 5", rc=2).stderr)

    def test_budget(self):
        r = self.ab("--pairs", "50", "--budget", "100ms", *FIGURE, "--unproven", script="sleep 0.1; echo speed: 5", rc=4)
        self.assertIn("would not be done in the --budget: 1 of 50", r.stderr)
        self.assertEqual(len(self.manifests()), 2)

    def test_set_by_the_user(self):
        r = self.ab(*FIGURE, "--pairs", "2", "--unproven", "--no-slower", "1", script=COMM + "echo speed: 5.0000", NCCL_BUFFSIZE="4194304")
        self.assertIn("set by you, so the same in both: NCCL_BUFFSIZE=4194304", r.stdout)


if __name__ == "__main__":
    unittest.main(argv=["check_ab.py"])
