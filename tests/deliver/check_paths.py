#!/usr/bin/env python3
"""scripts/bench/paths with its C program on the fake device and the fake NCCL: what it writes down.

usage: check_paths.py SOURCE NCCLTUNE PLUGINS PROGRAM SAMPLE FAKENCCL FAKECUDART
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, NCCLTUNE, PLUGINS, PROGRAM, SAMPLE, FAKENCCL, FAKECUDART = sys.argv[1:]


class Paths(unittest.TestCase):
    def test_a_c_program(self):
        with tempfile.TemporaryDirectory(prefix="nt-check-paths-") as tmp:
            folder = pathlib.Path(tmp)
            (folder / "prefix/bin").mkdir(parents=True)
            (folder / "prefix/lib").mkdir()
            (folder / "prefix/bin/nccltune").symlink_to(NCCLTUNE)
            (folder / "prefix/lib/nccltune").symlink_to(PLUGINS)
            profile = folder / "profile.json"
            profile.write_bytes(subprocess.run([SAMPLE], check=True, capture_output=True).stdout)
            r = subprocess.run(
                [sys.executable, SOURCE + "/scripts/bench/paths", profile, folder / "out", "60", "--prefix", folder / "prefix",
                 "--program", PROGRAM, "--cpu", "--ranks", "2", "--launchers", "c", "--sizes", "65536", "--pairs", "2",
                 "--fault-seconds", "20"],
                env={**os.environ, "NCCLTUNE_NCCL_LIB": FAKENCCL, "PATHS_CUDART": FAKECUDART}, capture_output=True, text=True,
                check=False, timeout=100)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            steps = [json.loads(line) for line in (folder / "out/results.jsonl").read_text().splitlines()]
            gains = {s["path"]: s for s in steps if s["step"] == "gain"}
            self.assertEqual(set(gains), {"run", "conf", "env"})
            self.assertEqual({len(g["logs"]) for g in gains.values()}, {2})
            doctor = {s["path"]: s["verdict"] for s in steps if s["step"] == "doctor"}
            self.assertIn("2", doctor["run"])  # a verdict on both ranks
            self.assertIn("no process", doctor["nothing"])
            self.check_faults({s["fault"]: s for s in steps if s["step"] == "fault"})
            self.assertIn("cannot be honoured", (folder / "out/report.md").read_text())

    def check_faults(self, fault):
        # the fake NCCL asks no env plugin: a rank without the tuner plugin is noticed by the other one, after 10 s
        missing = "the tuner plugin is in 1 of 2 ranks of this host"
        for name, words in (("missing", "cannot be honoured"), ("different", "of this job was told profile"),
                            ("unloadable", missing), ("no-tuner", missing)):
            self.assertTrue(fault[name]["ended_by_itself"], name)
            self.assertEqual(fault[name]["exit_code"], 1)
            self.assertIn(words, " ".join(fault[name]["complaints"]))
        self.assertIn("missing: local ranks 1", " ".join(fault["unloadable"]["complaints"]))
        late, whole, masked = (fault[x]["doctor"] for x in ("late", "late-profile", "overwritten"))
        self.assertIn("too late in 2", late["verdict"])
        self.assertIn("NCCL_ALGO=allreduce:ring was set after a communicator existed", " ".join(late["reasons"]))
        self.assertIn("too late in 2", whole["verdict"])
        self.assertIn("NCCL had started before the variables were set inside the process", " ".join(whole["reasons"]))
        self.assertIn("partly in 2", masked["verdict"])
        reasons = " ".join(masked["reasons"])
        self.assertRegex(reasons, r"NCCL_ALGO: allreduce:ring was set by process \d+ \(.*\) for its children: it masks the table")
        self.assertRegex(reasons, r"NCCL_BUFFSIZE: not the profile's value: 2097152 was set by process \d+ \(.*\) for its children")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
