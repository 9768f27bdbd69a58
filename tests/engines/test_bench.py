"""scripts/bench/backends with ranks that measure nothing: what it prints, what it leaves out, and that it ends."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("NT_SOURCE_DIR") or HERE.parents[1])


def load():
    loader = importlib.machinery.SourceFileLoader("bench_backends", str(SOURCE / "scripts/bench/backends"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_backends", loader))
    loader.exec_module(module)
    return module


class Bench(unittest.TestCase):
    def run_it(self, seconds=120, torch=True, **environment):
        bench = load()
        with tempfile.TemporaryDirectory(prefix="nt-") as folder:
            for name in ("nccl", "framework") if torch else ("nccl",):
                path = pathlib.Path(folder, f"nccltune-probe-{name}")
                shutil.copy(HERE / "stub_rank.py", path)
                path.chmod(0o755)
            out = os.path.join(folder, "o")
            with mock.patch.dict(os.environ, environment), mock.patch.object(sys, "argv", ["backends", f"{folder}/nccltune-probe-nccl", out, str(seconds)]), \
                    mock.patch.object(bench, "gpus_here", lambda: 2), mock.patch.object(bench, "ROOT", folder), \
                    mock.patch.object(bench.Torch, "python", staticmethod(lambda: sys.executable)), contextlib.redirect_stdout(io.StringIO()):
                bench.main()
            return pathlib.Path(out, "backends.txt").read_text(encoding="utf-8"), pathlib.Path(out, "backends.csv").read_text(encoding="utf-8")

    def row(self, text, mode, words):
        part = text[text.index(f"{mode}, ours / PyTorch's"):]
        return re.search(rf"^  {words} .*$", part, re.M).group(0)

    def test_ratios_of_like_with_like(self):
        text, rows = self.run_it()
        self.assertIn("multicast not asked", text)
        for words in ("staged", "direct", "whichever"):
            line = self.row(text, "graph", words)
            self.assertEqual(line.split()[1:11], ["1.00"] * 10, line)
            self.assertIn("within 10 % or better at 10 of 10, worst round 1.00", line)
        self.assertIn("NCCL's at 8 KiB 35.1 µs there, 25.1 µs from C", text)
        self.assertNotIn("left out", text)
        self.assertNotIn("no time", text)
        for name in ("torch-symm-mem one_shot/pull", "torch-symm-mem two_shot/direct in place", "nccl from Python", "ipc two_shot/direct in place"):
            self.assertEqual(sum(f",{name}," in line for line in rows.splitlines()), 3 * 2 * 10, name)

    def test_slower_than_torch_is_said(self):
        text, _ = self.run_it(STUB_OURS="1.25")
        self.assertIn("within 10 % or better at 0 of 10, worst round 1.25", self.row(text, "graph", "staged"))

    def test_without_torch(self):
        for torch, environment, why in ((False, {}, "no probe of the framework"), (True, {"STUB": "import"}, "ranks do not start")):
            with mock.patch.object(load().socket.socket, "settimeout", lambda s, t, f=load().socket.socket.settimeout: f(s, min(t, 3))):
                text, _ = self.run_it(torch=torch, **environment)
            self.assertRegex(text, f"PyTorch is left out: .*{why}")
            self.assertNotIn("ours / PyTorch's", text)
            self.assertRegex(text, r"\n  ipc one_shot/push +11\.0")

    def test_a_lost_call_is_named_and_the_rest_goes_on(self):
        for fault, gone in (("lost torch-symm-mem one_shot", "torch-symm-mem one_shot/pull"), ("gone torch-symm-mem two_shot", "torch-symm-mem two_shot/pull"),
                            ("lost ipc one_shot", "ipc one_shot/push")):
            text, _ = self.run_it(STUB=fault)
            self.assertRegex(text, rf"  {gone} 8 B graph out bf16: lost, and left out from here on: ")
            self.assertNotRegex(text, rf"\n  {gone} +\d+\.")
            self.assertIn("ours / PyTorch's", text)
        text, rows = self.run_it(STUB="wrong torch-symm-mem two_shot")
        self.assertIn("torch-symm-mem two_shot/pull 8 B graph out bf16: WRONG", text)
        self.assertNotRegex(text, r"\n  torch-symm-mem two_shot/pull +\d+\.")

    def test_what_is_refused_has_its_reason(self):
        text, _ = self.run_it(STUB="absent torch-symm-mem")
        self.assertIn("torch-symm-mem one_shot/pull: made up", text)
        self.assertNotIn("ours / PyTorch's", text)

    def test_it_ends_in_time(self):
        text, _ = self.run_it(seconds=25)
        self.assertIn("no time left for the rest", text)


if __name__ == "__main__":
    unittest.main()
