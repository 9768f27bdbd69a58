"""The Python loader in real interpreters: a virtual environment with the .pth file, and PYTHONPATH."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["NT_SOURCE_DIR"]) / "profiles/loader"
PYTHON = os.environ.get("NT_PYTHON", "/usr/bin/python3")
BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
HASH = "ab" * 32
HEAD = f"nccltune-active 1\nboot={BOOT}\n"
TOLD = f"NCCLTUNE_PROFILE={HASH}\nNCCLTUNE_TABLE=/etc/nccltune/x.nctable\n"
GOOD = HEAD + TOLD + ("NCCL_TUNER_PLUGIN=/usr/lib/nccltune/libnccl-tuner-nccltune.so\n"
                      "NCCL_NVLS_ENABLE=0\n!NCCL_BUFFSIZE=8388608\nNCCL_P2P_LEVEL=SYS\n")
SHOW = ("import os, json; print(json.dumps({k: v for k, v in os.environ.items() "
        "if k.startswith(('NCCL', 'LD_', 'TORCH_', 'FOREIGN'))}))")
LIBC = "import ctypes; f = ctypes.CDLL(None).getenv; f.restype = ctypes.c_char_p; print(f(b'NCCL_NVLS_ENABLE'))"


class Loader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory(prefix="nt-loader-")
        cls.dir = pathlib.Path(cls.tmp.name)
        cls.active = cls.dir / "active"
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", cls.dir / "venv"], check=True)
        cls.python = str(cls.dir / "venv/bin/python")
        cls.site = next((cls.dir / "venv/lib").glob("python3*/site-packages"))
        # The installed place is a constant: these copies look into the test's folder instead.
        for name, to in (("nccltune_loader.py", cls.site), ("nccltune.pth", cls.site),
                         ("nccltune_loader.py", cls.dir / "pp"), ("pythonpath/sitecustomize.py", cls.dir / "pp")):
            to.mkdir(exist_ok=True)
            text = (SOURCE / name).read_text(encoding="ascii")
            (to / pathlib.Path(name).name).write_text(text.replace("/run/nccltune/active", str(cls.active)),
                                                      encoding="ascii")
        subprocess.run([cls.python, "-m", "compileall", "-q", cls.site, cls.dir / "pp"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def setUp(self):
        self.write(GOOD)

    def write(self, text, mode=0o644):
        if self.active.is_symlink() or self.active.is_file() or self.active.is_fifo():
            self.active.unlink()
        elif self.active.is_dir():
            self.active.rmdir()
        if text is not None:
            self.active.write_bytes(text if isinstance(text, bytes) else text.encode("ascii"))
            self.active.chmod(mode)

    def run_python(self, *args, env=None, python=None, cwd=None):
        done = subprocess.run([python or self.python, *args], env=env or {}, cwd=cwd or self.dir, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)
        return done.stdout

    def seen(self, *args, **how):
        return json.loads(self.run_python(*(args or ("-c", SHOW)), **how))

    def assert_applied(self, seen):
        self.assertEqual(seen.get("NCCLTUNE_PROFILE"), HASH)
        self.assertEqual(seen.get("NCCLTUNE_TABLE"), "/etc/nccltune/x.nctable")
        self.assertEqual(seen.get("NCCL_NVLS_ENABLE"), "0")
        self.assertEqual(seen.get("NCCL_BUFFSIZE"), "8388608")
        self.assertIn("set=NCCLTUNE_PROFILE,", seen.get("NCCLTUNE_LOADER", ""))

    def assert_nothing(self, seen):
        self.assertNotIn("NCCLTUNE_LOADER", seen)
        self.assertNotIn("NCCL_NVLS_ENABLE", seen)

    # ---- where it applies ----

    def test_ways_to_start(self):
        (self.dir / "show.py").write_text(SHOW, encoding="ascii")
        for args in (("-c", SHOW), ("show.py",), ("-m", "show"), ("-E", "-c", SHOW), ("-I", "-c", SHOW), ("-s", "-c", SHOW),
                     ("-B", "-O", "-c", SHOW)):
            with self.subTest(args=args[0]):
                self.assert_applied(self.seen(*args))

    def test_not_without_site(self):
        self.assert_nothing(self.seen("-S", "-c", SHOW))

    def test_c_sees_it_too(self):
        self.assertEqual(self.run_python("-c", LIBC).strip(), "b'0'")

    def test_children(self):
        for method in ("spawn", "fork", "forkserver"):
            with self.subTest(method=method):
                (self.dir / "children.py").write_text(
                    "import multiprocessing as mp, os, sys\n"
                    "def work(q): q.put(dict(os.environ))\n"
                    "if __name__ == '__main__':\n"
                    f"    c = mp.get_context('{method}'); q = c.Queue(); p = c.Process(target=work, args=(q,)); p.start()\n"
                    "    import json; print(json.dumps(q.get())); p.join(); sys.exit(p.exitcode)\n", encoding="ascii")
                self.assert_applied(self.seen("children.py"))

    def test_subprocess_with_cleaned_environment(self):
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SHOW!r}], env={{}}, check=True)"
        self.assert_applied(self.seen("-c", code))

    def test_set_once_on_the_way_down(self):
        """A child inherits; the loader there does nothing more, and the marker is the parent's."""
        code = ("import os, subprocess, sys; os.environ['NCCL_P2P_LEVEL'] = 'LOC'; del os.environ['NCCL_BUFFSIZE'];"
                f"subprocess.run([sys.executable, '-c', {SHOW!r}], check=True)")
        seen = self.seen("-c", code)
        self.assertEqual(seen["NCCL_P2P_LEVEL"], "LOC")
        self.assertNotIn("NCCL_BUFFSIZE", seen)

    # ---- what it sets ----

    def test_backends_of_an_engine(self):
        """A hash and a path, both or neither, and never instead of the profile's."""
        pair = f"NCCLTUNE_BACKENDS={'cd' * 32}\nNCCLTUNE_BACKENDS_TABLE=/etc/nccltune/x.backends.json\n"
        self.write(GOOD + pair + "VLLM_ALLREDUCE_USE_SYMM_MEM=1\n")
        seen = self.seen()
        self.assertEqual(seen["NCCLTUNE_BACKENDS"], "cd" * 32)
        self.assertEqual(seen["NCCLTUNE_BACKENDS_TABLE"], "/etc/nccltune/x.backends.json")
        self.assertEqual(seen["NCCL_NVLS_ENABLE"], "0")
        for bad in (GOOD + pair.split("\n")[0] + "\n", GOOD + pair.split("\n")[1] + "\n", HEAD + pair, GOOD + pair.replace("cd", "c"),
                    GOOD + pair.replace("=/etc", "=etc"), GOOD + pair.replace("TABLE", "TABLES")):
            self.write(bad)
            self.assert_nothing(self.seen())

    def test_policy(self):
        seen = self.seen(env={"NCCL_NVLS_ENABLE": "1", "NCCL_BUFFSIZE": "1", "NCCL_P2P_LEVEL": "SYS"})
        self.assertEqual(seen["NCCL_NVLS_ENABLE"], "1")
        self.assertEqual(seen["NCCL_BUFFSIZE"], "8388608")
        self.assertEqual(seen["NCCLTUNE_LOADER"],
                         "set=NCCLTUNE_PROFILE,NCCLTUNE_TABLE,NCCL_TUNER_PLUGIN kept=NCCL_NVLS_ENABLE "
                         "same=NCCL_P2P_LEVEL overrode=NCCL_BUFFSIZE")

    def test_empty_is_set(self):
        self.assertEqual(self.seen(env={"NCCL_NVLS_ENABLE": ""})["NCCL_NVLS_ENABLE"], "")
        seen = self.seen(env={"NCCL_BUFFSIZE": ""})
        self.assertEqual(seen["NCCL_BUFFSIZE"], "8388608")
        self.assertIn("overrode=NCCL_BUFFSIZE", seen["NCCLTUNE_LOADER"])

    def test_first_of_two_lines(self):
        self.write(GOOD + "NCCL_NVLS_ENABLE=1\n!NCCL_BUFFSIZE=1\n")
        self.assert_applied(self.seen())

    def test_switched_off(self):
        for value in ("1", "yes"):
            for args in (("-c", SHOW), ("-I", "-c", SHOW)):
                self.assert_nothing(self.seen(*args, env={"NCCLTUNE_DISABLE": value}))
        for value in ("", "0"):
            self.assert_applied(self.seen(env={"NCCLTUNE_DISABLE": value}))

    def test_told_already(self):
        other = "cd" * 32
        seen = self.seen(env={"NCCLTUNE_PROFILE": other, "NCCLTUNE_TABLE": "/x"})
        self.assertEqual(seen, {"NCCLTUNE_PROFILE": other, "NCCLTUNE_TABLE": "/x"})

    def test_another_tuner(self):
        env = {"NCCL_TUNER_PLUGIN": "/opt/other.so"}
        self.assertEqual(self.seen(env=env), env)
        self.write(GOOD.replace("NCCL_TUNER", "!NCCL_TUNER"))
        self.assert_applied(self.seen(env=env))

    def test_named_file(self):
        other = self.dir / "other"
        other.write_text(HEAD + TOLD + "NCCL_NTHREADS=256\n", encoding="ascii")
        env = {"NCCLTUNE_ACTIVE": str(other)}
        self.assertEqual(self.seen(env=env)["NCCL_NTHREADS"], "256")
        for flag in ("-E", "-I"):
            self.assertNotIn("NCCL_NTHREADS", self.seen(flag, "-c", SHOW, env=env))
        self.write(None)
        self.assertEqual(self.seen(env=env)["NCCL_NTHREADS"], "256")
        self.assert_nothing(self.seen(env={"NCCLTUNE_ACTIVE": "/nonexistent"}))
        self.write(GOOD)
        self.assert_nothing(self.seen(env={"NCCLTUNE_ACTIVE": "/nonexistent"}))
        self.assert_applied(self.seen("-I", "-c", SHOW, env={"NCCLTUNE_ACTIVE": "/nonexistent"}))
        self.assert_applied(self.seen(env={"NCCLTUNE_ACTIVE": ""}))

    # ---- what it refuses, silently and whole ----

    def test_bad_contents(self):
        cases = {
            "empty": "", "no head": TOLD, "newer": GOOD.replace("active 1", "active 2"),
            "another boot": GOOD.replace(BOOT, "0" + BOOT[1:] if BOOT[0] != "0" else "1" + BOOT[1:]),
            "no boot": "nccltune-active 1\n" + TOLD, "empty boot": GOOD.replace(BOOT, ""),
            "longer boot": GOOD.replace(BOOT, BOOT + "0"), "shorter boot": GOOD.replace(BOOT, BOOT[:-1]),
            "head alone": HEAD, "cut head": HEAD[:-1], "two heads": HEAD + GOOD, "before the head": "\n" + GOOD,
            "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(), "delete": GOOD + "NCCL_X=a\x7f\n", "nul at the end": GOOD + "\0",
            "no profile": HEAD + "NCCL_NVLS_ENABLE=0\n", "no table": GOOD.replace("NCCLTUNE_TABLE", "NCCL_TABLE"),
            "cut": GOOD[:-1], "blank line": GOOD + "\n", "no value": GOOD + "NCCL_X=\n", "no equals": GOOD + "NCCL_X\n",
            "not ours": GOOD + "LD_PRELOAD=/tmp/x.so\n", "path": GOOD + "PATH=/tmp\n", "python": GOOD + "PYTHONPATH=/tmp\n",
            "plugin": GOOD + "NCCL_NET_PLUGIN=x\n", "other plugin": GOOD.replace("libnccl-tuner-nccltune", "libevil"),
            "relative plugin": GOOD.replace("/usr/lib/nccltune/lib", "lib"),
            "conf file": GOOD + "NCCL_CONF_FILE=/x\n", "so path": GOOD + "SGLANG_NCCL_SO_PATH=/x\n",
            "host": GOOD + "NCCL_HOSTID=x\n", "comm": GOOD + "NCCL_COMM_ID=x\n", "switch": GOOD + "NCCLTUNE_DISABLE=1\n",
            "control": GOOD + "NCCL_X=a\tb\n", "return": GOOD.replace("\n", "\r\n"),
            "latin": GOOD.encode() + b"NCCL_X=\xe9\n", "nul": GOOD.encode() + b"NCCL_X=a\0b\n",
            "huge": GOOD + "NCCL_X=1\n" * 10000, "short hash": GOOD.replace(HASH, HASH[1:]),
            "noise": bytes(range(256)) * 8, "two marks": GOOD + "!!NCCL_X=1\n",
        }
        for name, text in cases.items():
            with self.subTest(name):
                self.write(text)
                self.assert_nothing(self.seen())

    def test_bad_files(self):
        for mode in (0o664, 0o646, 0o666):
            self.write(GOOD, mode)
            self.assert_nothing(self.seen())
        self.write(None)
        self.assert_nothing(self.seen())
        self.active.mkdir()
        self.assert_nothing(self.seen())
        self.write(None)
        os.mkfifo(self.active)
        self.assert_nothing(self.seen())
        self.write(None)
        real = self.dir / "real"
        real.write_text(GOOD, encoding="ascii")
        self.active.symlink_to(real)
        self.assert_nothing(self.seen())
        if os.geteuid() == 0:
            self.write(GOOD)
            os.chown(self.active, 12345, 12345)
            self.assert_nothing(self.seen())

    def test_bad_folders(self):
        """Who can write to a folder above the named file could exchange the file."""
        above = self.dir / "above"
        named = above / "folder" / "active"
        named.parent.mkdir(parents=True)
        named.write_text(GOOD, encoding="ascii")

        def seen(path=named):
            return self.seen(env={"NCCLTUNE_ACTIVE": os.fspath(path)}, cwd=named.parent)
        self.write(None)
        self.assert_applied(seen())
        self.assert_applied(seen(above / "folder" / ".." / "folder" / "active"))
        self.assert_nothing(seen("active"))
        for folder in (named.parent, above):
            for mode in (0o775, 0o757, 0o777):
                with self.subTest(folder=folder.name, mode=oct(mode)):
                    folder.chmod(mode)
                    self.assert_nothing(seen())
            folder.chmod(0o1777)  # as /tmp: root's own only
            (self.assert_applied if os.geteuid() == 0 else self.assert_nothing)(seen())
            folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(above, 12345, 12345)
            self.assert_nothing(seen())
            os.chown(above, 0, 0)
        link = self.dir / "link"
        link.symlink_to(above)
        self.assert_nothing(seen(link / "folder" / "active"))
        self.assert_applied(seen())

    # ---- a virtual environment runs each .pth line twice ----

    def other_pth(self, name, line):
        path = self.site / name
        path.write_text(f"import os; {line}\n", encoding="ascii")
        self.addCleanup(path.unlink)

    def between_the_two(self, text, *more):
        """Another .pth file, behind ours, puts a new active file there when it is run for the first time."""
        new = self.dir / "new"
        new.write_text(text, encoding="ascii")
        self.other_pth("zz.pth", f"os.path.exists({str(new)!r}) and [{', '.join((f'os.replace({str(new)!r}, {str(self.active)!r})', *more))}]")
        seen = self.seen()
        self.assertFalse(new.exists())
        return seen

    def test_second_time_does_nothing(self):
        """Not even where all signs of the first time are gone, and another file is there."""
        seen = self.between_the_two(HEAD + TOLD + "NCCL_NTHREADS=256\n", "[os.environ.pop(k) for k in list(os.environ) if 'NCCL' in k]")
        self.assertEqual(seen, {})

    def test_second_time_finds_the_file(self):
        self.write(None)
        self.assert_applied(self.between_the_two(GOOD))

    def test_switched_off_by_another_pth(self):
        self.other_pth("aa.pth", "os.environ['NCCLTUNE_DISABLE'] = '1'")
        self.assert_nothing(self.seen())

    def test_file_named_by_another_pth(self):
        other = self.dir / "other"
        other.write_text(GOOD, encoding="ascii")
        self.write(None)
        self.other_pth("aa.pth", f"os.environ['NCCLTUNE_ACTIVE'] = {str(other)!r}")
        self.assert_applied(self.seen())

    def test_set_by_another_pth(self):
        self.other_pth("aa.pth", "os.environ.setdefault('NCCL_NVLS_ENABLE', '2')")
        self.assertEqual(self.seen()["NCCL_NVLS_ENABLE"], "2")

    # ---- what it costs others ----

    def test_nothing_is_opened_when_switched_off(self):
        """The kill switch comes first; a process that was told already opens nothing either."""
        code = ("import os, sys; opened = []; sys.addaudithook(lambda event, args: event == 'open' and opened.append(args[0])); "
                f"sys.path.insert(0, {str(self.site)!r}); import nccltune_loader; print(opened.count({os.fsencode(self.active)!r}))")
        for env, opens in (({}, 1), ({"NCCLTUNE_DISABLE": "1"}, 0), ({"NCCLTUNE_PROFILE": HASH}, 0)):
            self.assertEqual(self.run_python("-S", "-c", code, env=env), f"{opens}\n")

    def test_environment_without_its_dictionary(self):
        """What os.environ keeps its variables in is Python's own matter; without it they are asked for one by one."""
        code = (f"import os, sys; sys.path.insert(0, {str(self.site)!r}); os.environb = {{b'NCCL_P2P_LEVEL': b'LOC'}}; "
                "import nccltune_loader; print(os.environb[b'NCCL_P2P_LEVEL'], os.environb[b'NCCL_NVLS_ENABLE'])")
        self.assertEqual(self.run_python("-S", "-c", code).strip(), "b'LOC' b'0'")

    def test_foreign_bytes_in_the_environment(self):
        done = subprocess.run([self.python, "-c", SHOW], env={b"NCCL_P2P_LEVEL": b"\xff", b"X\xfe": b"\xfd"}, capture_output=True,
                              text=True, check=True)
        self.assert_applied(json.loads(done.stdout))
        self.assertIn("kept=NCCL_P2P_LEVEL", done.stdout)

    def test_imports_only_itself(self):
        """Beside what Python imports to read any .pth file: a codec from 3.13 on, the locale's before 3.10."""
        code = "import sys; print('\\n'.join(sorted(sys.modules)))"
        with_us = set(self.run_python("-c", code).split())
        self.write(None)
        idle = set(self.run_python("-c", code).split())
        line = self.site / "nccltune.pth"
        self.addCleanup(line.write_text, line.read_text(encoding="ascii"), encoding="ascii")
        line.write_text("import sys\n", encoding="ascii")
        any_file = set(self.run_python("-c", code).split())
        line.unlink()
        bare = set(self.run_python("-c", code).split())
        self.assertEqual(with_us - any_file, {"nccltune_loader"})
        self.assertEqual(idle, any_file)
        self.assertLessEqual(any_file - bare, {"encodings.utf_8_sig", "_bootlocale", "_locale"})

    # ---- PYTHONPATH ----

    def test_sitecustomize_chains(self):
        theirs = self.dir / "theirs"
        theirs.mkdir(exist_ok=True)
        (theirs / "sitecustomize.py").write_text(
            "import os; os.environ['FOREIGN'] = os.environ.get('NCCL_NVLS_ENABLE', 'first') + __spec__.origin\n",
            encoding="ascii")
        ours, code = self.dir / "pp", SHOW + "; import sitecustomize; assert 'theirs' in sitecustomize.__file__"
        for path, first in ((f"{ours}:{theirs}", "0"), (f"{ours}/:{ours}:{theirs}", "0"), (f"{theirs}:{ours}", "first")):
            with self.subTest(path):
                seen = self.seen("-c", code, env={"PYTHONPATH": path}, python=PYTHON)
                self.assertEqual(seen["FOREIGN"], first + str(theirs / "sitecustomize.py"))
                if first == "0":  # only the first on the path is run: the other one does not know of us
                    self.assert_applied(seen)
        with self.subTest("with the .pth file, whoever is first"):
            self.assert_applied(self.seen("-c", code, env={"PYTHONPATH": str(theirs)}))

    def test_sitecustomize_alone(self):
        env = {"PYTHONPATH": str(self.dir / "pp")}
        self.assert_applied(self.seen(env=env, python=PYTHON))
        self.assert_nothing(self.seen("-I", "-c", SHOW, env=env, python=PYTHON))
        self.assert_nothing(self.seen("-S", "-c", SHOW, env=env, python=PYTHON))
        self.write(None)
        self.assert_nothing(self.seen(env=env, python=PYTHON))

    def test_two_copies(self):
        copy = self.dir / "copy"
        copy.mkdir(exist_ok=True)
        for f in ("nccltune_loader.py", "sitecustomize.py"):
            (copy / f).write_text((self.dir / "pp" / f).read_text(encoding="ascii"), encoding="ascii")
        self.assert_applied(self.seen(env={"PYTHONPATH": f"{copy}:{self.dir / 'pp'}:{copy}"}, python=PYTHON))

    def test_their_error_stays_theirs(self):
        bad = self.dir / "bad"
        bad.mkdir(exist_ok=True)
        (bad / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n", encoding="ascii")
        done = subprocess.run([PYTHON, "-c", SHOW], env={"PYTHONPATH": f"{self.dir / 'pp'}:{bad}"}, capture_output=True,
                              text=True, check=False)
        self.assertIn("RuntimeError: theirs", done.stderr)
        self.assert_applied(json.loads(done.stdout))


if __name__ == "__main__":
    unittest.main()
