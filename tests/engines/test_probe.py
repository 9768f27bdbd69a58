"""The framework probe: its tables against the C code's, its data against pattern.h's rules, and whole gangs over gloo."""
import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import driver

sys.path.insert(0, str(driver.PROBE))
from nccltune_probe import backends, barrier, device, main, protocol  # noqa: E402

PYTHON = driver.torch_python()
FAULTY = pathlib.Path(__file__).resolve().parent / "faulty.py"
needs_torch = unittest.skipUnless(PYTHON, "no PyTorch here")


def names_of(table):
    text = (driver.SOURCE / "schema/vocab.c").read_text()
    body = re.search(r"%s\[[^]]*\] = \{(.*?)\};" % table, text, re.S).group(1)
    return tuple(re.findall(r'"([^"]+)"', body))


class Versions(unittest.TestCase):
    def test_what_a_rank_says_of_its_framework(self):
        """The stack's key is made of these lines: tuner/job/facts.c."""
        rank = object.__new__(main.Rank)
        rank.torch = types.SimpleNamespace(__version__="2.8.0+cu129")
        there = {"sglang": "0.5.12", "flashinfer-python": "0.6.1"}

        def version(name):
            if name not in there:
                raise importlib.metadata.PackageNotFoundError(name)
            return there[name]
        with mock.patch("importlib.metadata.version", version):
            lines = rank.describe().splitlines()
        self.assertEqual(lines[0], "torch=2.8.0+cu129")
        self.assertEqual([x for x in lines if x.startswith("engine.")], ["engine.sglang=0.5.12", "engine.flashinfer-python=0.6.1"])


class Busy(unittest.TestCase):
    def test_the_thread_multiplies_on_its_ranks_device(self):
        """A thread of PyTorch begins with device 0: on another rank its products would wait for nobody, go on after it and
        write into memory that others were given."""
        chosen, running = threading.local(), threading.Event()

        def product(*_, **__):
            self.assertEqual(getattr(chosen, "device", "device 0"), "device 1")
            running.set()

        torch = types.SimpleNamespace(
            bfloat16=None, randn=mock.Mock(), empty_like=mock.Mock(), mm=mock.Mock(side_effect=product),
            cuda=types.SimpleNamespace(set_device=lambda d: setattr(chosen, "device", d), Stream=mock.Mock(), Event=mock.Mock(),
                                       stream=lambda _: contextlib.nullcontext()))
        cuda = object.__new__(device.Cuda)
        cuda.torch, cuda.device = torch, "device 1"
        with cuda.busy():
            self.assertTrue(running.wait(20))


class Tables(unittest.TestCase):
    def test_names_are_those_of_the_vocabulary(self):
        for table, ours in (("nt_coll_names", protocol.COLLS), ("nt_algo_names", protocol.ALGOS),
                            ("nt_proto_names", protocol.PROTOS), ("nt_dtype_names", protocol.DTYPES),
                            ("nt_place_names", protocol.PLACES), ("nt_mode_names", protocol.MODES),
                            ("nt_backend_names", protocol.BACKENDS), ("nt_status_names", protocol.STATUSES),
                            ("nt_bits_names", protocol.BITS)):
            self.assertEqual(names_of(table), ours, table)

    def test_backends_are_those_of_the_framework_and_nccl(self):
        text = (driver.SOURCE / "schema/vocab.c").read_text()
        rows = re.findall(r"\[(NT_BE_\w+)\] =\s*\{(.*?)\}[,;]\s*(?=\[NT_BE|\};)", text, re.S)
        theirs = {dict(zip(re.findall(r"(NT_BE_\w+)", (driver.SOURCE / "schema/vocab.h").read_text()), names_of("nt_backend_names")))[k]
                  for k, body in rows if '.probe = "framework"' in body}
        code = (driver.PROBE / "nccltune_probe/backends.py").read_text()
        ours = set(re.findall(r'^    "([\w-]+)": \w+,$', code, re.M))
        self.assertEqual(ours, theirs | {"nccl"})

    def test_only_whole_messages_are_read(self):
        good = {"type": "measure", "id": 1, "case": {"bytes": 8, "coll": "all_reduce", "dtype": "bf16", "place": "out", "mode": "eager"},
                "call": driver.CALL, "warmup": 0, "samples": 1, "inner": 0, "verify": 1, "flags": 0, "deadline_ms": 5}
        self.assertEqual(protocol.decode(json.dumps(good).encode())[0], "measure")
        for change in ({"id": -1}, {"id": True}, {"flags": 128}, {"extra": 1}, {"case": []}, {"verify": 3}, {"samples": 5000},
                       {"call": {**driver.CALL, "algo": "ring"}}, {"call": {**driver.CALL, "backend": "nccls"}},
                       {"type": "hello"}, {"type": None}, {"type": []}):
            with self.assertRaises(protocol.ProtocolError, msg=change):
                protocol.decode(json.dumps({**good, **change}).encode())
        for line in (b"", b"[]", b"{", b"\xff", b"[" * 100000, b" " * (protocol.LINE_MAX + 1)):
            with self.assertRaises(protocol.ProtocolError):
                protocol.decode(line)

    def test_an_answer_that_is_no_message_is_not_sent(self):
        with self.assertRaises(protocol.ProtocolError):
            protocol.encode("result", id=1)


class SymmetricMemory(unittest.TestCase):
    """Who chooses one-shot or two-shot: the engine where there is one, else the job by name."""

    def open(self, algo, proto, multicast=0, world=2, engine=None, operations=None, **environment):
        group = types.SimpleNamespace(
            device=types.SimpleNamespace(name="cuda", device="cuda:0"), world=world, cpu_group=None,
            torch=types.SimpleNamespace(uint8=None, ops=types.SimpleNamespace(symm_mem=operations or mock.Mock())), device_group=types.SimpleNamespace(group_name="0"))
        module = types.SimpleNamespace(empty=lambda *a, **k: "buffer",
                                       rendezvous=lambda *a: types.SimpleNamespace(multicast_ptr=multicast))

        def engine_class(*_):
            if engine is None:
                raise backends.Unavailable("none here")
            return engine, lambda **_: types.SimpleNamespace(disabled=False)

        with mock.patch.object(backends, "engine_class", engine_class), mock.patch.dict(os.environ, environment), \
                mock.patch.object(backends.importlib, "import_module", lambda _: module):
            return backends.TorchSymmMem(group, {"algo": algo, "proto": proto})

    def test_by_name(self):
        with mock.patch.object(backends.TorchSymmMem, "pool", None):
            for way, (place, _) in backends.TorchSymmMem.WAYS.items():
                made = self.open(*way, multicast=1, world=4)
                self.assertEqual(made.executed, way)
                self.assertEqual(made.memory is not None, way[1] == "direct")
                for asked in ("out", "in"):
                    case = {"place": asked, "dtype": "fp32", "bytes": 8}
                    if asked == place:
                        made.check(case, None)
                        for change in ({"dtype": "fp16"}, {"bytes": 6}):
                            self.assertRaisesRegex(backends.Unavailable, "4 bytes", made.check, {**case, **change}, None)
                    else:
                        self.assertRaisesRegex(backends.Unavailable, "the result is always", made.check, case, None)
        with self.assertRaisesRegex(backends.Unavailable, "this PyTorch has no one_shot_all_reduce_copy_out"):
            self.open("one_shot", "pull", operations=types.SimpleNamespace(two_shot_all_reduce_=None))
        for way in (("one_shot", "push"), ("ring", "ll")):
            self.assertRaisesRegex(backends.Unavailable, "PyTorch has no", self.open, *way)

    def test_by_itself(self):
        self.assertEqual(self.open(None, None).executed, ("two_shot", "pull"))
        self.assertEqual(self.open(None, None, multicast=1, world=4).executed, (None, None))
        self.assertEqual(self.open(None, None, multicast=1, world=4, TORCH_SYMM_MEM_DISABLE_MULTICAST="1").executed, ("two_shot", "pull"))

    def test_calls_are_the_operations(self):
        """Which operation runs, and that a copy stands before and behind where PyTorch makes none."""
        calls, log = {}, []

        class Tensor:
            dtype = "bf16"

            def numel(self):
                return 4

            def view(self, _):
                return self

            def __getitem__(self, _):
                return self

            def copy_(self, _):
                log.append("copy")
                return self

        class Operations:
            def __getattr__(self, name):
                return lambda *a: log.append(name)

        for way in backends.TorchSymmMem.WAYS:
            with mock.patch.object(backends.TorchSymmMem, "pool", None):
                made = self.open(*way, multicast=1, world=4, operations=Operations())
            made.buffer, log[:] = made.buffer and Tensor(), []
            made.run({}, Tensor(), Tensor())
            calls[way] = list(log)
        self.assertEqual(calls, {
            ("one_shot", "pull"): ["one_shot_all_reduce_copy_out"], ("two_shot", "pull"): ["copy", "two_shot_all_reduce_", "copy"],
            ("one_shot", "direct"): ["one_shot_all_reduce_out"], ("two_shot", "direct"): ["two_shot_all_reduce_"],
            (None, None): ["copy", "multimem_all_reduce_", "copy"]})

    def test_buffers_of_one_shape_share_the_pool(self):
        taken = []

        class Buffer:
            def __getitem__(self, part):
                taken.append((part.start, part.stop))
                return self

            def view(self, _):
                return self

            def zero_(self):
                return self

        with mock.patch.object(backends.TorchSymmMem, "pool", None):
            pool = self.open("one_shot", "direct").memory
        pool.buffer, dtype = Buffer(), types.SimpleNamespace(itemsize=2)
        for count in (4, 700):
            pool.take(count, dtype)
        self.assertEqual(taken, [(0, 8), (512, 512 + 1400)])
        self.assertRaisesRegex(backends.Unavailable, "do not fit", pool.take, 128 << 20, dtype)
        pool.start()
        pool.take(128 << 20, dtype)
        self.assertEqual(taken[-1], (0, 256 << 20))

    def test_an_engine_chooses_by_itself(self):
        self.assertEqual(self.open(None, None, engine="vllm").executed, (None, None))
        with self.assertRaisesRegex(backends.Unavailable, "vllm's class chooses"):
            self.open("one_shot", "pull", engine="vllm")


class Meetings(unittest.TestCase):
    def test_all_learn_the_largest_vote_and_a_rank_that_leaves_ends_them(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes(4096))
            f.flush()
            seen, far = [], time.monotonic_ns() + 20_000_000_000
            votes = [[(r * 7 + i) % 5 for i in range(200)] for r in range(3)]

            def rank(r):
                b = barrier.Barrier(f.name, r, 3)
                got = [b.meet(v, far) for v in votes[r]]
                if r == 2:
                    b.leave()
                    return
                try:
                    b.meet(0, far)
                except barrier.BarrierBroken:
                    seen.append(got)

            threads = [threading.Thread(target=rank, args=(r,)) for r in range(3)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            self.assertEqual(seen, [[max(v) for v in zip(*votes)]] * 2)

    def test_a_deadline_ends_the_wait(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes(4096))
            f.flush()
            with self.assertRaises(barrier.BarrierBroken):
                barrier.Barrier(f.name, 0, 2).meet(0, time.monotonic_ns() + 20_000_000)


@needs_torch
class Data(unittest.TestCase):
    def test_values_are_those_of_pattern_h(self):
        code = f"""
import sys; sys.path.insert(0, {str(driver.PROBE)!r})
import torch
from nccltune_probe.pattern import Pattern, LIMITS
M = 0xFFFFFFFF
def h(salt, rank, i):
    x = (i * 0x9E3779B1 ^ (rank * 0x85EBCA77 + salt * 0xC2B2AE3D)) & M
    x ^= x >> 16; x = x * 0x7FEB352D & M; x ^= x >> 15; x = x * 0x846CA68B & M
    return x ^ x >> 16
types = dict(bf16=torch.bfloat16, fp16=torch.float16, fp32=torch.float32, int32=torch.int32)
for world in (1, 2, 3, 8, 300):
    for name, limit in LIMITS.items():
        p = Pattern(torch, name, types[name], world, 'cpu')
        adders = min(world, limit); span = min(limit // adders, 65536)
        add = lambda r, i: 0 if (r + i) % world >= adders else 1 + ((h(77, r, i) >> 16) * span >> 16)
        n = 40
        for r in {{0, world - 1}}:
            assert p.own(r, n, 77, 5).tolist() == [float(add(r, i)) for i in range(5, n + 5)], (world, name)
        total = [sum(add(r, i) for r in range(world)) for i in range(n)]
        assert max(total) <= limit and p.total(n, 77).tolist() == [float(t) for t in total], (world, name)
        f = p.floats(1, 1000, 3)
        assert name == 'int32' or (bool((f.abs() >= 0.5).all()) and bool((f.abs() <= 8).all()) and bool((f < 0).any()))
print('ok')
"""
        got = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
        self.assertEqual(got.stdout, "ok\n", got.stderr)


@needs_torch
class Gangs(unittest.TestCase):
    def test_every_call_that_it_does_is_right_and_timed(self):
        with driver.Gang(python=PYTHON, env={"NCCLTUNE_ENGINE": "vllm"}) as g:
            self.assertEqual([h["rank"] for h in g.hellos], [0, 1])
            ready = g.start()
            self.assertEqual({m["type"] for m in ready}, {"ready"}, ready)
            self.assertIn("torch=", ready[0]["text"])
            for coll in ("all_reduce", "all_gather", "reduce_scatter"):
                for dtype in ("bf16", "fp32", "fp16", "int32"):
                    for place in ("out", "in"):
                        mode = "stream" if dtype == "fp32" else "eager"
                        for r in g.measure(coll, 4096, dtype, place, mode, flags=16):
                            self.assertEqual((r["status"], len(r["ns"]), r["wrong"]), ("ok", 5, 0), (coll, dtype, place, r))
                            self.assertEqual(r["bits"], "same", r)
            for kind, said in (({"mode": "graph"}, "CUDA"), ({"backend": "ipc"}, "nccltune-probe-nccl"), ({"dtype": "fp8"}, "fp8"),
                               ({"coll": "broadcast"}, "broadcast"),
                               ({"backend": "custom-allreduce"}, r"vllm(: |\..* declines here)"),  # not installed; a real one
                               ({"backend": "mscclpp"}, "vllm has no such class"), ({"backend": "torch-symm-mem"}, r"CUDA|vllm\..* declines here"),
                               ({"size": 6, "coll": "all_gather"}, "6 bytes"), ({"algo": "ring", "proto": "ll"}, "asked of it"),
                               ({"backend": "custom-allreduce", "place": "in"}, "another tensor")):
                for r in g.measure(**kind):
                    self.assertEqual((r["status"], r["ns"]), ("unavailable", []), r)
                    self.assertRegex(r["error"], said)
            for flags in (1, 2, 4, 32, 64):  # read-back, beside compute, eight in a row, copy, launch
                for r in g.measure(flags=flags):
                    self.assertEqual((r["status"], len(r["ns"])), ("ok", 5), (flags, r))
            g.tell("cells", case={"bytes": 8, "coll": "all_reduce", "dtype": "bf16", "place": "out", "mode": "eager"},
                   cost=[[0.0] * 3] * 7, asked=False)
            self.assertEqual({m["asked"] for m in g.hear()}, {False})
            g.tell("quit")
            self.assertEqual(g.ended(10), [0, 0])

    def faulty(self, fault, **kind):
        with driver.Gang(program=FAULTY, python=PYTHON, env={"FAULT": fault}) as g:
            g.start()
            before = g.measure()
            got = g.measure(backend="custom-allreduce", **kind)
            after = [] if g.ended(0.1) != [None, None] else g.measure()
            return [r["status"] for r in before], got, [r.get("status") for r in after]

    def test_wrong_data_is_seen_on_all_ranks(self):
        for fault, kind in (("wrong", {}), ("late", {}), ("input", {}), ("stale", {"mode": "stream"})):
            before, got, after = self.faulty(fault, **kind)
            self.assertEqual([r["status"] for r in got], ["wrong", "wrong"], fault)
            self.assertGreater(got[1]["wrong"], 0)
            self.assertEqual(after, ["ok", "ok"])

    def test_what_one_rank_cannot_open_none_has(self):
        _, got, after = self.faulty("refuse")
        self.assertEqual([r["status"] for r in got], ["unavailable", "unavailable"])
        self.assertIn("another rank", got[0]["error"])
        self.assertIn("no kernel image", got[1]["error"])
        self.assertEqual(after, ["ok", "ok"])

    def test_a_failed_call_breaks_the_gang_and_says_so(self):
        _, got, after = self.faulty("raise")
        self.assertEqual([r["status"] for r in got], ["error", "error"])
        self.assertIn("kernel failed", got[0]["error"])
        self.assertEqual(after, ["error", "error"])

    def test_a_hang_is_ended_by_the_watchdog_which_says_where(self):
        with driver.Gang(program=FAULTY, python=PYTHON, env={"FAULT": "hang"}) as g:
            g.start()
            begin = time.monotonic()
            got = g.measure(backend="custom-allreduce", deadline_ms=1000)
            self.assertEqual([r.get("status") for r in got], ["timeout", None])
            self.assertLess(time.monotonic() - begin, 60)
            self.assertNotEqual(g.ranks[1].wait(5), 0)
            self.assertIn("faulty.py", g.said())

    @unittest.skipUnless(os.environ.get("NT_BUILD_DIR"), "no built program")
    def test_a_job_by_the_real_supervisor(self):
        """As far as the noise of this machine lets it go: exit 4 is the job's own verdict on that."""
        sys.path.insert(0, str(driver.SOURCE / "tests/e2e"))
        import job
        with job.Place(os.environ["NT_BUILD_DIR"]) as p:
            rc, out, err = p.tune(
                "--rig", "nccl", "--probe", driver.PROBE / "nccltune-probe-framework", "--ranks", "2", "--sizes", "64K,256K", "--modes",
                "eager,stream", "--collectives", "all_reduce", "--effort", "quick", "--pairs", "8", "--backends", "auto", "--env", "NCCLTUNE_PROBE_ON_HOST=1", "--env", "NCCLTUNE_PYTHON=" + PYTHON,
                "--env", "NCCLTUNE_ENGINE=vllm", timeout=250)
            self.assertIn(rc, (0, 4), out + err)
            self.assertEqual({s for s, in p.sql("SELECT DISTINCT status FROM trial")} - {"unavailable"}, {"ok"}, out + err)
            if rc == 0:
                notes = {n["setting"]: n["why"] for n in json.loads(p.out.read_text())["backends"]["notes"]}
                for name, why in (("custom-allreduce", "vllm: "), ("pynccl", "vllm: "), ("flashinfer", "vllm: "), ("torch-symm-mem", "CUDA"),
                                  ("mscclpp", "not in the modes")):
                    self.assertIn(why, notes.get(name, "no note"), name)
            self.assertEqual(p.left_behind(), [])

    def test_ranks_end_with_their_driver(self):
        with driver.Gang(python=PYTHON) as g:
            g.start()
            for s in g.sockets:
                s.shutdown(socket.SHUT_RDWR)
            self.assertEqual([c is not None for c in g.ended(3)], [True, True])

    def test_a_broken_line_ends_the_rank_with_a_reason(self):
        with driver.Gang(world=1, python=PYTHON) as g:
            g.tell("measure", id=1)
            self.assertEqual(g.hear()[0]["type"], "error")
            self.assertEqual(g.ended(5), [1])


if __name__ == "__main__":
    unittest.main()
