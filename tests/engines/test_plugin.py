"""The engines' plugins: table, agreement of the ranks, dispatch, refusal, receipt; the engines and PyTorch are fakes with
their names. scripts/bench/engines does the same with the real packages."""
import importlib
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("NT_SOURCE_DIR") or HERE.parents[1])
sys.path[:0] = [str(HERE / "fake"), str(SOURCE / "profiles/engines")]
ROWS = ["all_reduce,graph,1024,65536,custom-allreduce,bf16/out fp32/out", "all_reduce,graph,65537,262144,torch-symm-mem,bf16/out",
        "all_reduce,graph,262145,1048576,nccl,bf16/out bf16/in", "all_reduce,eager,4096,16384,pynccl,bf16/in bf16/out",
        "all_reduce,eager,16385,32768,flashinfer,bf16/out", "all_reduce,eager,32769,4194304,custom-allreduce,bf16/out"]


class Store:
    """A process group's store, for threads."""

    def __init__(self):
        self.kept, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.kept[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        return self.kept[key]

    def wait(self, keys, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: all(k in self.kept for k in keys), timeout.total_seconds()):
                raise RuntimeError("wait timeout")

    def compare_set(self, key, expected, desired):
        with self.changed:
            if self.kept.get(key, b"") == expected.encode():
                self.kept[key] = desired.encode()
            return self.kept[key]


def fresh():
    """New modules: one process's life."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("nccltune_engines", "sglang", "vllm", "torch"):
            del sys.modules[name]
    importlib.invalidate_caches()


class Tables(unittest.TestCase):
    def setUp(self):
        fresh()
        self.table = importlib.import_module("nccltune_engines.table")

    def text(self, rows=ROWS, engine="sglang", ranks=2, **change):
        return json.dumps({"format": "nccltune-backends", "version": 1, "env": {},
                           "table": {"engine": engine, "ranks": ranks, "rows": rows, "hash": ""}, **change})

    def test_choice_is_that_of_a_plain_search(self):
        r = random.Random(5)
        for _ in range(100):
            rows, at = [], 1
            while at < 5000:
                first = at + r.randrange(0, 400)
                last = first + r.randrange(0, 900)
                rows.append(f"all_reduce,eager,{first},{last},b{len(rows)},bf16/out")
                at = last + 1
            r.shuffle(rows)
            found = self.table.parse(self.text(rows), "sglang", self.table.digest_of("sglang", 2, rows)).choices("all_reduce", "eager", "bf16")
            choice = self.table.Choice(found, [None] * len(found))
            for size in [r.randrange(1, 6000) for _ in range(100)] + [c[0] for c in found] + [c[1] for c in found]:
                plain = [i for i, c in enumerate(found) if c[0] <= size <= c[1]]
                self.assertEqual(choice.find(size), plain[0] if plain else -1)

    def test_what_is_not_whole_is_refused(self):
        good = self.table.digest_of("sglang", 2, ROWS)
        self.assertEqual(len(self.table.parse(self.text(), "sglang", good).rows), 6)
        bad_rows = (["all_reduce,graph,1,2,x"], ["all_reduce,graph,2,1,x,bf16/out"], ["all_reduce,graph,1,2,x,bf17/out"],
                    ["all_reduce,stream,1,2,x,bf16/out"], ["all_reduce,graph,a,2,x,bf16/out"], ["all_reduce,graph,0,2,x,bf16/out"],
                    ["all_reduce,graph,1,2,x,bf16"], ["all_reduce,graph,1,2,,bf16/out"], ["all_reduce,graph,1,2,x,"], [7], "x", None,
                    ["all_reduce,graph,1,9,x,bf16/out", "all_reduce,graph,9,12,y,bf16/out"], ["a\nb"])
        for rows in bad_rows:
            hashed = self.table.digest_of("sglang", 2, rows) if isinstance(rows, list) else good
            with self.assertRaises(self.table.TableError, msg=rows):
                self.table.parse(self.text(rows), "sglang", hashed)
        for text in ("", "[]", "{}", "null", "[" * 99999, self.text(version=2), self.text(format="x"), self.text(table=[]),
                     self.text(ranks="2"), self.text(engine="vllm"), self.text(ROWS[1:]), self.text(ranks=3)):
            with self.assertRaises(self.table.TableError, msg=text[:60]):
                self.table.parse(text, "sglang", good)

    def test_only_a_file_that_nobody_else_can_change(self):
        good = self.table.digest_of("sglang", 2, ROWS)
        with tempfile.TemporaryDirectory() as d:
            f = pathlib.Path(d) / "t.json"
            f.write_text(self.text())
            f.chmod(0o644)
            self.table.load(str(f), "sglang", good)
            link = pathlib.Path(d) / "l.json"
            link.symlink_to(f)
            fifo = pathlib.Path(d) / "p"
            os.mkfifo(fifo)
            for path in (link, fifo, pathlib.Path(d), pathlib.Path(d) / "none", pathlib.Path("t.json")):
                with self.assertRaises(self.table.TableError, msg=path):
                    self.table.load(str(path), "sglang", good)
            f.chmod(0o666)
            with self.assertRaises(self.table.TableError):
                self.table.load(str(f), "sglang", good)

    @unittest.skipUnless(os.environ.get("NT_BUILD_DIR"), "no built program")
    def test_what_export_writes_is_what_is_read(self):
        build = pathlib.Path(os.environ["NT_BUILD_DIR"])
        profile = json.loads(subprocess.run([build / "tests/json/sample_profile"], capture_output=True, check=True).stdout)
        row, one = profile["backends"]["rows"][0], profile["backends"]["classes"][0]

        def make(coll, mode, first, last, backend, *serves):
            found = {k: v for k, v in row.items() if k not in ("algo", "proto", "blocks")}
            return {**found, "coll": coll, "mode": mode, "min_bytes": first, "max_bytes": last, "backend": backend, "serves": list(serves)}

        profile["backends"].update(
            notes=[], asked=["nccl", "custom-allreduce", "torch-symm-mem", "flashinfer", "ipc", "nccl-symmetric"],
            rows=[make("all_reduce", "eager", 1000, 3000, "custom-allreduce", "bf16/out", "fp32/out"),
                  make("all_reduce", "graph", 1024, 16384, "ipc", "bf16/out"),
                  make("all_reduce", "graph", 20000, 40 << 20, "custom-allreduce", "bf16/out"),
                  make("all_gather", "graph", 1024, 16384, "nccl-symmetric", "bf16/out")],
            classes=[{**one, "mode": mode, "bytes": size, "verdict": verdict} for mode, size, verdict in (
                ("eager", 2048, "tuned"), ("eager", 8192, "default"), ("eager", 16384, "default"), ("eager", 32768, "undecided"),
                ("eager", 65536, "default"), ("graph", 65536, "tuned"), ("graph", 8192, "tuned"))] +
            [{**one, "coll": "all_gather", "bytes": 4096}])
        with tempfile.TemporaryDirectory() as d:
            p = pathlib.Path(d) / "p.json"
            p.write_text(json.dumps(profile))
            for engine, arguments, env in (
                    ("sglang", [], {"SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB": "40961"}),
                    ("vllm", [], {})):
                got = subprocess.run([build / "tuner/cli/nccltune", "export", p, "--format", engine, "--dir", d],
                                     capture_output=True, text=True)
                self.assertEqual(got.returncode, 0, got.stderr)
                doc = json.loads(got.stdout)
                made = self.table.load(doc["env"]["NCCLTUNE_BACKENDS_TABLE"], engine, doc["env"]["NCCLTUNE_BACKENDS"])
                self.assertEqual(made.ranks, profile["ranks"])
                self.assertEqual([(r.mode, r.first, r.last, r.backend) for r in made.rows], [
                    ("eager", 1000, 3000, "custom-allreduce"), ("graph", 20000, 40 << 20, "custom-allreduce"),
                    ("eager", 8192, 16384, "nccl"), ("eager", 65536, 65536, "nccl")])
                self.assertEqual(doc["arguments"], arguments)
                self.assertEqual({k: v for k, v in doc["env"].items() if k.startswith(("SGLANG", "VLLM"))}, env)
                said = "\n".join(doc["cannot_be_told"])
                for word in (f"{engine} has no such backend", "all_gather 1K to 16K", "fuse", "without the plugin",
                             "eager, 32K to 32K: what is fastest could not be told here",
                             "torch-symm-mem, in any case: it has no row, but nor is it known to be slower" if engine == "vllm" else ""):
                    self.assertIn(word, said)
            for notes, classes, arguments, off in (
                    ([], [{**one, "mode": mode, "verdict": "default"} for mode in ("eager", "graph")], ["--disable-custom-all-reduce"],
                     {"VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_ALLREDUCE_USE_FLASHINFER": "0", "VLLM_USE_NCCL_SYMM_MEM": "0"}),  # lost everywhere
                    ([], [], [], {}),  # nothing is known
                    ([{"setting": "custom-allreduce", "why": "no such module"}], [{**one, "verdict": "default"}], [],
                     {"VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_ALLREDUCE_USE_FLASHINFER": "0", "VLLM_USE_NCCL_SYMM_MEM": "0"})):
                profile["backends"].update(rows=[], classes=classes, notes=notes)
                p.write_text(json.dumps(profile))
                doc = json.loads(subprocess.run([build / "tuner/cli/nccltune", "export", p, "--format", "vllm", "--dir", d],
                                                capture_output=True, text=True, check=True).stdout)
                self.assertEqual(doc["arguments"], arguments)
                self.assertEqual({k: v for k, v in doc["env"].items() if k.startswith("VLLM")}, off)
            lost = [{**one, "mode": mode, "verdict": "default"} for mode in ("eager", "graph")]
            profile["backends"].update(notes=[], rows=[make("all_gather", "graph", 1024, 16384, "nccl-symmetric", "bf16/out")],
                                       classes=[*lost, {**one, "coll": "all_gather", "bytes": 4096}])
            p.write_text(json.dumps(profile))
            doc = json.loads(subprocess.run([build / "tuner/cli/nccltune", "export", p, "--format", "vllm", "--dir", d],
                                            capture_output=True, text=True, check=True).stdout)
            self.assertEqual(doc["env"].get("VLLM_ALLREDUCE_USE_SYMM_MEM"), "0")
            self.assertNotIn("VLLM_USE_NCCL_SYMM_MEM", doc["env"])  # another collective has it
            profile["backends"].update(rows=[], asked=["nccl", "ipc"], classes=[{**one, "verdict": "default"}])
            p.write_text(json.dumps(profile))
            doc = json.loads(subprocess.run([build / "tuner/cli/nccltune", "export", p, "--format", "vllm", "--dir", d],
                                            capture_output=True, text=True, check=True).stdout)
            self.assertEqual(doc["table"]["rows"], [])
            self.assertIn("where NCCL beats vllm's own kernels: its custom all-reduce was not raced", "\n".join(doc["cannot_be_told"]))


class Agreement(unittest.TestCase):
    def setUp(self):
        fresh()
        self.agree = importlib.import_module("nccltune_engines.agree").agree

    def verdicts(self, told, delays, patience_s):
        store, got = Store(), {}

        def rank(r):
            time.sleep(delays[r])
            got[r] = self.agree(store, "tp", r, len(told), told[r], patience_s)

        threads = [threading.Thread(target=rank, args=(r,)) for r in range(len(told)) if told[r] is not None]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return set(got.values())

    def test_all_or_none(self):
        self.assertEqual(self.verdicts(["a"] * 4, [0] * 4, 5), {"on"})
        self.assertEqual(self.verdicts(["a", "a", "b"], [0] * 3, 5), {"off: rank 0 has a, rank 2 has b"})
        (only,) = self.verdicts(["a", None], [0, 0], 0.1)
        self.assertIn("not all of 2", only)

    def test_a_rank_around_the_deadline_never_splits_them(self):
        r = random.Random(1)
        seen = set()
        for _ in range(40):
            got = self.verdicts(["a"] * 4, [r.choice((0, 0.04, 0.05, 0.051, 0.06)) for _ in range(4)], 0.05)
            self.assertEqual(len(got), 1, got)
            seen |= {v.split(":")[0] for v in got}
        self.assertIn("off", seen)


class Engines(unittest.TestCase):
    def setUp(self):
        fresh()
        self.folder = tempfile.TemporaryDirectory()
        self.kept = dict(os.environ)
        os.environ.update(NCCLTUNE_RECEIPTS=self.folder.name)
        self.lines = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
        self.log = logging.getLogger("nccltune")
        self.log.setLevel(logging.INFO)
        self.log.handlers, self.log.propagate = [handler], False

    def tearDown(self):
        os.environ.clear()
        os.environ.update(self.kept)
        self.folder.cleanup()

    def tell(self, engine, rows=ROWS, ranks=2, told=None):
        table = importlib.import_module("nccltune_engines.table")
        path = pathlib.Path(self.folder.name) / "t.json"
        path.write_text(json.dumps({"format": "nccltune-backends", "version": 1,
                                    "table": {"engine": engine, "ranks": ranks, "rows": rows}}))
        path.chmod(0o644)
        os.environ.update(NCCLTUNE_BACKENDS=told or table.digest_of(engine, ranks, rows), NCCLTUNE_BACKENDS_TABLE=str(path))

    def load(self, engine):
        """The plugin by its entry point, as the engine finds it; (engine's module, torch)."""
        from importlib import metadata
        group = {"sglang": "sglang.srt.plugins", "vllm": "vllm.general_plugins"}[engine]
        (entry,) = [e for e in metadata.entry_points(group=group) if e.name == "nccltune"]
        entry.load()()
        import torch
        name = {"sglang": "sglang.srt.distributed.parallel_state",
                "vllm": "vllm.distributed.device_communicators.cuda_communicator"}[engine]
        return importlib.import_module(name), torch

    def receipt(self):
        (path,) = pathlib.Path(self.folder.name).glob("*.backends")
        return path.read_text()

    def join(self, torch, key_rank=1, fingerprint=None):
        """A store in which the other rank has already said the same, or what is given."""
        store = torch.distributed.distributed_c10d.store = Store()
        said = store.set

        def both(key, value):
            said(key, value)
            if key.endswith("/0"):
                said(key[:-1] + str(key_rank), fingerprint or value)

        store.set = both
        return store

    def sglang_group(self, s, **more):
        comms = {"ca_comm": s.CustomAllreduce("custom-allreduce"), "torch_symm_mem_comm": s.TorchSymmMemCommunicator("torch-symm-mem"),
                 "pynccl_comm": s.PyNcclCommunicator("pynccl")}
        return s.GroupCoordinator(**{**comms, **more})

    def test_sglang_dispatch_by_size_type_and_mode(self):
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch)
        g = self.sglang_group(s)
        for capturing, size, dtype, expected in (
                (True, 512, "bfloat16", "engine"), (True, 1024, "bfloat16", "custom-allreduce"),
                (True, 65536, "bfloat16", "custom-allreduce"), (True, 65538, "bfloat16", "torch-symm-mem"),
                (True, 300000, "bfloat16", "pynccl"), (True, 2 << 20, "bfloat16", "engine"),
                (True, 1024, "float32", "custom-allreduce"), (True, 131072, "float32", "engine"),
                (True, 1024, "float16", "engine"), (False, 1024, "bfloat16", "engine"),
                (False, 8192, "bfloat16", "pynccl"), (False, 20000, "bfloat16", "flashinfer"),
                (False, 65536, "bfloat16", "custom-allreduce"), (False, 2 << 20, "bfloat16", "engine")):
            torch.cuda.capturing = capturing
            got = g.all_reduce(torch.Tensor(size, getattr(torch, dtype)))
            self.assertEqual(got.value, expected, (capturing, size, dtype))
        self.assertTrue(g.pynccl_comm.disabled, "PyNccl is left as it was")
        text = self.receipt()
        for line in ("engine sglang 0.5.20", "state on", "group tp:0 of 2: on"):
            self.assertIn(line + "\n", text)
        importlib.import_module("nccltune_engines.plugin").session.receipt.write()
        text = self.receipt()
        for line in ("calls tp:0 graph bf16 1024-65536 custom-allreduce served 2 declined 0",
                     "calls tp:0 eager bf16 32769-4194304 custom-allreduce served 1 declined 1", "left tp:0 graph bf16 2"):
            self.assertIn(line + "\n", text, text)

    def test_sglang_under_torch_compile(self):
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch)
        g = self.sglang_group(s)
        torch.compiler.compiling = True
        self.assertEqual(g.all_reduce(torch.Tensor(4096)).value, "engine")
        torch.compiler.compiling = False
        for size, expected in ((1024, "engine auto"), (8192, "pynccl"), (65536, "custom-allreduce")):
            x = torch.Tensor(size)
            self.assertEqual(g._all_reduce_out_place(x, "auto").value, expected)
            self.assertEqual(x.value, 1, "the input was changed")
        self.assertEqual(g._all_reduce_out_place(torch.Tensor(8192), "ca").value, "engine ca")

    def test_vllm_dispatch(self):
        self.tell("vllm")
        v, torch = self.load("vllm")
        self.join(torch)
        g = v.CudaCommunicator(ca_comm=v.CustomAllreduce("custom-allreduce"), pynccl_comm=v.PyNcclCommunicator("pynccl"))
        for capturing, size, expected in ((True, 1024, "custom-allreduce"), (True, 131072, "engine"), (True, 300000, "pynccl"),
                                          (False, 8192, "pynccl"), (False, 65536, "custom-allreduce"), (False, 100, "engine")):
            torch.cuda.capturing = capturing
            x = torch.Tensor(size)
            self.assertEqual(g.all_reduce(x).value, expected, (capturing, size))
            self.assertEqual(x.value, 1)
        self.assertTrue(any("torch-symm-mem is not to be had" in line for line in self.lines), self.lines)

    def refused(self, engine, why, before=None):
        s, torch = self.load(engine)
        group = s.GroupCoordinator() if engine == "sglang" else s.CudaCommunicator()
        self.assertEqual(group.all_reduce(torch.Tensor(8192)).value, "engine")
        self.assertTrue(any("does nothing" in line and why in line for line in self.lines), self.lines)
        self.assertIn("state off: ", self.receipt())

    def test_refuses_a_changed_signature(self):
        for engine, module, cls in (("sglang", "sglang.srt.distributed.parallel_state", "GroupCoordinator"),
                                    ("vllm", "vllm.distributed.device_communicators.cuda_communicator", "CudaCommunicator")):
            for change in ("renamed", "more", "star", "gone"):
                self.tearDown()
                self.setUp()
                self.tell(engine)
                owner = getattr(importlib.import_module(module), cls)
                original = owner.all_reduce
                owner.all_reduce = {"renamed": lambda self, tensor: original(self, tensor),
                                    "more": lambda self, input_, op, stream=None: original(self, input_),
                                    "star": lambda self, *, input_: original(self, input_), "gone": None}[change]
                if change == "gone":
                    del owner.all_reduce
                    self.load(engine)
                    self.assertTrue(any("all_reduce is gone" in line for line in self.lines), self.lines)
                    continue
                self.load(engine)
                self.assertTrue(any("does nothing" in line and "is not the known" in line for line in self.lines), self.lines)

    def test_a_further_parameter_with_a_default_does_no_harm(self):
        plugin = importlib.import_module("nccltune_engines.plugin")

        class Owner:
            def all_reduce(self, input_, op="sum"):
                pass

        self.assertIsNone(plugin.changed(Owner, {"all_reduce": "self input_"}))

    def test_refuses_another_version_table_or_hash(self):
        self.tell("sglang", told="0" * 64)
        self.refused("sglang", "told was 0000")
        for version, why in (("0.5.11", "not known"), ("0.6.0", "not known"), ("0.5.x", "not understood")):
            self.tearDown()
            self.setUp()
            self.tell("sglang")
            plugin = importlib.import_module("nccltune_engines.plugin")
            plugin.metadata = type("metadata", (), {"version": staticmethod(lambda name: version)})
            self.refused("sglang", why)
        self.tearDown()
        self.setUp()
        self.tell("vllm")
        self.refused("sglang", "written for vllm")
        self.tearDown()
        self.setUp()
        os.environ["NCCLTUNE_BACKENDS"] = "0" * 64
        self.refused("vllm", "one is missing")

    def test_untold_or_disabled_it_is_not_there(self):
        for env in ({}, {"NCCLTUNE_DISABLE": "1"}):
            self.tearDown()
            self.setUp()
            if env:
                self.tell("sglang")
            os.environ.update(env)
            s, torch = self.load("sglang")
            self.assertFalse(hasattr(s.GroupCoordinator.all_reduce, "__wrapped__"))
            self.assertEqual(list(pathlib.Path(self.folder.name).glob("*.backends")), [])
            self.assertEqual(self.lines, [])

    def test_a_group_that_differs_stays_with_the_engine(self):
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch, fingerprint="another table")
        self.assertEqual(self.sglang_group(s).all_reduce(torch.Tensor(8192)).value, "engine")
        self.join(torch)
        self.assertEqual(self.sglang_group(s, world=4, name="tp:1").all_reduce(torch.Tensor(8192)).value, "engine")
        torch.distributed.distributed_c10d.store = None
        self.assertEqual(self.sglang_group(s, name="tp:2").all_reduce(torch.Tensor(8192)).value, "engine")
        text = self.receipt()
        for why in ("group tp:0 of 2: off: rank 0 has", "group tp:1 of 4: off: the table is for 2 ranks",
                    "group tp:2 of 2: off: ValueError: Default process group"):
            self.assertIn(why, text)

    def test_what_the_engine_turned_off_or_changed_is_not_taken(self):
        self.tell("sglang")
        s, torch = self.load("sglang")

        class Changed(s.CustomAllreduce):
            def custom_all_reduce(self, tensor, stream):
                raise AssertionError

        self.join(torch)
        g = self.sglang_group(s, ca_comm=Changed("custom-allreduce"))
        self.assertEqual(g.all_reduce(torch.Tensor(65536)).value, "engine")
        self.assertTrue(any("Changed.custom_all_reduce" in line for line in self.lines), self.lines)
        self.join(torch)
        g = self.sglang_group(s, name="tp:1")
        self.assertEqual(g.all_reduce(torch.Tensor(65536)).value, "custom-allreduce")
        g.ca_comm.disabled = True  # SGLang does so around piecewise graphs
        self.assertEqual(g.all_reduce(torch.Tensor(65536)).value, "engine")

    def test_a_tensor_in_host_memory_is_the_engines(self):
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch)
        x = torch.Tensor(8192)
        x.is_cpu = True
        self.assertEqual(self.sglang_group(s).all_reduce(x).value, "engine")

    def test_a_tensor_with_gaps_is_the_engines(self):
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch)
        g, x = self.sglang_group(s), torch.Tensor(8192)
        self.assertEqual(g.all_reduce(x).value, "pynccl")
        x = torch.Tensor(8192)
        x.whole = False
        self.assertEqual(g.all_reduce(x).value, "engine")

    def test_receipts_of_dead_processes_go_when_there_are_too_many(self):
        receipt = importlib.import_module("nccltune_engines.receipt")
        place = pathlib.Path(self.folder.name)
        texts = {"dead": "process 999999999 1 b h", "dead2": "process 999999998 1 b h", "alive": f"process {os.getpid()} 1 b h",
                 "elsewhere": "process 999999999 1 b other", "last boot": f"process {os.getpid()} 1 a h", "foreign": "x", "new": "process 9 1 b h"}
        for age, (name, text) in enumerate(texts.items()):
            (place / f"{name}.backends").write_text(f"nccltune-backends 1\n{text}\n")
            os.utime(place / f"{name}.backends", (1000 + age, 1000 + age))
        receipt.tidy(str(place), "b", "h", most=6)
        self.assertEqual({p.stem for p in place.glob("*.backends")}, set(texts) - {"dead"})
        receipt.tidy(str(place), "b", "h", most=1)
        self.assertEqual({p.stem for p in place.glob("*.backends")}, {"alive", "elsewhere", "foreign", "new"})

    def test_a_full_disk_leaves_the_last_whole_receipt(self):
        receipt = importlib.import_module("nccltune_engines.receipt")
        place = pathlib.Path(self.folder.name) / "full"
        place.mkdir(mode=0o700)
        with mock.patch.dict(os.environ, {"NCCLTUNE_RECEIPTS": str(place)}):
            r = receipt.Receipt("sglang", "ab" * 32)
            r.write()
            (path,) = place.iterdir()
            before, r.state = path.read_text(), "on"
            for write in (lambda fd, data: 10, mock.Mock(side_effect=OSError(28, "no space"))):
                with mock.patch.object(receipt.os, "write", write):
                    r.write()
                self.assertEqual([(p, p.read_text()) for p in place.iterdir()], [(path, before)])
            r.write()  # there is space again
            self.assertIn("state on", path.read_text())
            r.path = None

    def test_ranks_that_tidy_at_once_all_keep_their_receipts(self):
        """The other rank removes a file between this one's listing, reading and removing."""
        receipt = importlib.import_module("nccltune_engines.receipt")
        place = pathlib.Path(self.folder.name)
        for i in range(4):
            (place / f"{i}.backends").write_text("nccltune-backends 1\nprocess 999999999 1 b h\n")
        os.mkfifo(place / "pipe.backends")
        names = os.listdir(place) + ["gone.backends"]
        with mock.patch.object(receipt.os, "listdir", return_value=names):
            receipt.tidy(str(place), "b", "h", most=0)
        self.assertEqual([p.name for p in place.iterdir()], ["pipe.backends"])

        (place / "late.backends").write_text("nccltune-backends 1\nprocess 999999999 1 b h\n")
        unlink = os.unlink

        def raced(path):
            unlink(path)
            unlink(path)

        with mock.patch.object(receipt.os, "unlink", raced):
            receipt.tidy(str(place), "b", "h", most=0)
        self.assertFalse((place / "late.backends").exists())

    @unittest.skipUnless(os.environ.get("NT_BUILD_DIR"), "no built program")
    def test_doctor_reads_what_the_plugin_wrote(self):
        """Two processes with receipts of the real writer; the second one's class declines."""
        code = ("import sys; sys.path[:0] = [%r]\n"
                "from nccltune_engines import receipt, table\n"
                "r = receipt.Receipt('sglang', 'ab' * 32)\n"
                "r.version, r.state, r.libraries = '0.5.23', 'on', {'pynccl': '/opt/own/libnccl.so.2'}\n"
                "c = table.Choice([(1024, 92681, table.Row('all_reduce,graph,1024,92681,custom-allreduce,bf16/out'))], [None])\n"
                "c.served[0], c.declined[0], c.left = (161, 0, 12) if sys.argv[1] == '0' else (0, 161, 12)\n"
                "r.groups['tp:0 of 2'] = ('on', [('bf16', 'graph', c)])\n"
                "r.groups['pp:0 of 1'] = ('off: the table is for 2 ranks', [])\n"
                "r.write(); print(r.path, flush=True); sys.stdin.read()\n") % str(SOURCE / "profiles/engines")
        env = {"PATH": os.environ["PATH"], "NCCLTUNE_RECEIPTS": self.folder.name, "NCCLTUNE_BACKENDS": "ab" * 32, "PYTHONDONTWRITEBYTECODE": "1"}
        ranks = [subprocess.Popen([sys.executable, "-c", code, str(r)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for r in range(2)]
        try:
            for r in ranks:
                self.assertTrue(r.stdout.readline().startswith(self.folder.name))
            program = os.path.join(os.environ["NT_BUILD_DIR"], "tuner/cli/nccltune")
            said = subprocess.run([program, "doctor", *(str(r.pid) for r in ranks)], capture_output=True, text=True)
            found = json.loads(subprocess.run([program, "doctor", "--format", "json", *(str(r.pid) for r in ranks)], capture_output=True,
                                              text=True).stdout)
        finally:
            for r in ranks:
                r.communicate()
        self.assertIn("sglang 0.5.23 table abababababab on", said.stdout, said.stderr)
        self.assertIn("tp:0 graph bf16: 1K to 92681 custom-allreduce 161, 12 of no row", said.stdout)
        self.assertRegex(said.stdout, r"the ranks disagree: tp:0 graph bf16 1K to 92681: process \d+ had custom-allreduce")
        self.assertTrue(found["ranks_disagree"])
        self.assertFalse(found["applied"])
        self.assertEqual(found["backends"]["receipts"], 2)
        self.assertEqual([c["calls"] for c in found["backends"]["calls"]], [161, 24])
        self.assertEqual([p["backends"]["pynccl"] for p in found["processes"]], ["/opt/own/libnccl.so.2"] * 2)

    def test_a_receipt_that_cannot_be_written_stops_nothing(self):
        os.environ["NCCLTUNE_RECEIPTS"] = "/proc/none"
        self.tell("sglang")
        s, torch = self.load("sglang")
        self.join(torch)
        self.assertEqual(self.sglang_group(s).all_reduce(torch.Tensor(8192)).value, "pynccl")


if __name__ == "__main__":
    unittest.main()
