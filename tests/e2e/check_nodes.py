"""Jobs over several nodes, all of them on this host: launchers that stand in for the real ones (tests/launch/launcher.py),
made-up nodes and a made-up machine.

usage: check_nodes.py BUILD_FOLDER PART…    parts: launchers faults lost ends check
"""
import json
import os
import pathlib
import signal
import socket
import sys
import time

from job import Checks, Place

LAUNCHER = pathlib.Path(__file__).resolve().parent.parent / "launch/launcher.py"
NAMES = ["srun", "mpirun", "mpiexec.hydra", "ssh", "kubectl"]
FULL = "2 classes faster by the table"


class Nodes(Place):
    """A place whose PATH has the stand-ins."""

    def __init__(self, build):
        super().__init__(build)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in NAMES:
            (self.bin / name).symlink_to(LAUNCHER)
        self.log = self.root / "launcher.log"

    def environment(self, extra=None):
        env = super().environment(extra)
        env["PATH"] = f"{self.bin}:{os.path.dirname(sys.executable)}:{env['PATH']}"
        env.setdefault("FAKE_LOG", str(self.log))
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        return env

    def job(self, *words, launch="srun", nodes=2, ranks=4):
        over = ["--launch", launch] + (["--nodes", nodes] if nodes else [])
        return ["--rig", "nccl", "--probe", self.probe, "--ranks", ranks, "--sizes", "1K,128K", "--pairs", "8", "--effort", "quick",
                "--try", "NCCL_MIN_NCHANNELS=16", "-q", "--launch-wait", "100s", *over, *words]

    def commands(self):
        return self.log.read_text(encoding="utf-8").splitlines()


def secrets_of(place):
    """64 hex digits on a command line, or in a file that others may read."""
    found = [c for c in place.commands() if any(len(w.strip("0123456789abcdef")) == 0 and len(w) == 64
                                                for w in c.replace("/", " ").split())]
    return found


# ------------------------------------------------------------------ every launcher

def part_launchers(build, check):
    agent = str(build / "tuner/launch/nccltune-agent")
    number = "--number-from"
    rows = [
        ("srun --partition gpu", ["--nodes", "2"],
         f"srun --overlap --cpu-bind=none --partition gpu --nodes=2 --ntasks=2 --ntasks-per-node=1 --export=ALL {agent} {number} "
         "SLURM_PROCID"),
        ("slurm", ["--hosts", "n1,n2"],
         f"srun --overlap --cpu-bind=none --nodes=2 --ntasks=2 --ntasks-per-node=1 --export=ALL --nodelist=n1,n2 {agent} {number} "
         "SLURM_PROCID"),
        ("mpirun", ["--nodes", "2"],
         f"mpirun --bind-to none -np 2 --map-by ppr:1:node -x NCCLTUNE_LAUNCH {agent} {number} OMPI_COMM_WORLD_RANK"),
        ("mpirun -q", ["--hosts", "n1,n2"],
         f"mpirun --bind-to none -q -np 2 --map-by ppr:1:node -x NCCLTUNE_LAUNCH --host n1,n2 {agent} {number} "
         "OMPI_COMM_WORLD_RANK"),
        ("hydra", ["--hosts", "n1,n2"], f"mpiexec.hydra -n 2 -ppn 1 -genvlist NCCLTUNE_LAUNCH -hosts n1,n2 {agent} {number} PMI_RANK"),
        ("ssh -l me", ["--hosts", "n1,n2"], f"ssh -T -o BatchMode=yes -l me n2 exec '{agent}' --stdin --node 1"),
        ("kubectl -n ml", ["--hosts", "p0,p1"], f"kubectl exec -i -n ml p1 -- {agent} --stdin --node 1"),
    ]
    with Nodes(build) as p:
        for launch, more, command in rows:
            p.log.unlink(missing_ok=True)
            check.ends(launch, p.tune(*p.job(*more, launch=launch, nodes=None)), 0, FULL)
            check.that(command in p.commands(), f"{launch}: no command was\n{command}\nbut\n{p.commands()[:2]}")
            check.that(not secrets_of(p), f"{launch}: a secret on a command line")
            check.clean(launch, p)
            doc = json.loads(p.out.read_text(encoding="utf-8"))
            check.that((doc["ranks"], doc["nodes"]) == (4, 2), f"{launch}: {doc['ranks']} ranks on {doc['nodes']} nodes")
            check.that(p.sql("SELECT ranks, nodes, state FROM job ORDER BY id DESC LIMIT 1") == [(4, 2, "done")], "the job's row")
        check.ends("loopback, ports", p.tune(*p.job("--listen", "127.0.0.1:20000-39999")), 0, FULL)
        check.clean("loopback, ports", p)
        check.ends("three nodes", p.tune(*p.job(nodes=3, ranks=6)), 0, FULL)
        check.clean("three nodes", p)


# ------------------------------------------------------------------ what is asked wrongly, what a launcher does wrong

def part_faults(build, check):
    short = ["--launch-wait", "6s"]
    rows = [
        # words, fault, exit code, says
        (["--launch", "mpirum"], "", 2, "did you mean 'mpirun'"),
        (["--launch", ""], "", 2, "launcher"),
        (["--launch", "ssh"], "", 2, "--hosts"),
        (["--launch", "srun"], "", 2, "--nodes"),
        (["--hosts", "a,b"], "", 2, "--launch"),
        (["--launch", "ssh", "--hosts", "a,a"], "", 2, "twice"),
        (["--launch", "ssh", "--hosts", "a,-oProxyCommand=x"], "", 2, "no name of a host"),
        (["--launch", "srun", "--hosts", "a,b", "--nodes", "3"], "", 2, "2 for 3 nodes"),
        (["--launch", "srun", "--nodes", "3"], "", 2, "--ranks 4"),
        (["--launch", "srun", "--nodes", "2", "--rig", "mps-sockets"], "", 2, "real nodes"),
        (["--launch", "srun", "--nodes", "2", "--devices", "0,1,2"], "", 2, "--devices"),
        (["--launch", "srun", "--nodes", "2", "--listen", "127.0.0.1:0"], "", 2, "ports"),
        (["--launch", "srun", "--nodes", "2", "--listen", "no.such.host.invalid"], "", 2, "no.such.host.invalid"),
        (["--launch", "/none/srun", "--nodes", "2"], "", 3, "/none/srun cannot be started"),
        (["--launch", "srun", "--nodes", "2"], "fails", 3, "srun ended with exit code 7 before node number 0, number 1 connected; "
                                                           "it said: error: the partition is down"),
        (["--launch", "ssh", "--hosts", "a,b"], "fails", 3, "it said: error: the partition is down"),
        (["--launch", "srun", "--nodes", "2", *short], "short:1", 3, "1 of 2 nodes did not connect back in time (number 1)"),
        (["--launch", "ssh", "--hosts", "a,b", *short], "short:1", 3, "ssh ended with exit code 0 before node b connected"),
        (["--launch", "srun", "--nodes", "2"], "swallows", 3, "NCCLTUNE_LAUNCH is not set"),
        (["--launch", "mpirun", "--nodes", "2"], "swallows", 3, "NCCLTUNE_LAUNCH is not set"),
        (["--launch", "srun", "--nodes", "2", *short], "other:1", 3, "does not know the job's secret"),
        (["--launch", "srun", "--nodes", "2"], "same", 3, "both on node-a"),
        (["--launch", "srun", "--nodes", "2"], "repeats", 3, "gave number 0 to"),
        (["--launch", "srun", "--nodes", "2", "--probe", str(LAUNCHER.parent / "none")], "", 2, "is no program"),
    ]
    with Nodes(build) as p:
        base = ["--rig", "nccl", "--probe", p.probe, "--ranks", "4", "--sizes", "1K,128K", "--pairs", "8", "--effort", "quick",
                "--try", "NCCL_MIN_NCHANNELS=16", "-q"]
        for words, fault, code, says in rows:
            name = " ".join(map(str, words)) + (f" ({fault})" if fault else "")
            check.ends(name, p.tune(*base, *words, env={"FAKE_FAULT": fault}), code, says)
            check.clean(name, p)
        if os.geteuid() == 0:
            check.ends("no folder", p.tune(*p.job(), env={"FAKE_FAULT": "nofolder:1"}), 3, "create a folder in /proc")
            check.clean("no folder", p)
        version = p.run("--version")[1].split()[-1]
        check.ends("one agent more", p.tune(*p.job(), env={"FAKE_FAULT": "lurks", "FAKE_VERSION": version}), 0, FULL)
        check.clean("one agent more", p)
        for fault, says in (("other-nccl:2", "node-b has NCCL 23003"), ("other-driver:3", "node-b has a driver for CUDA")):
            check.ends(fault, p.tune(*p.job("--env", f"WORLD_FAULT={fault}")), 3, says)
            check.clean(fault, p)


# ------------------------------------------------------------------ ranks and nodes that break in the middle

def part_lost(build, check):
    with Nodes(build) as p:
        for fault in ("hang:2:150", "crash:3:150", "garbage:2:150", "error:3:150"):
            check.ends(fault, p.tune(*p.job("--env", f"WORLD_FAULT={fault}")), 0, "faster by the table")
            check.clean(fault, p)
        check.ends("fails once", p.tune(*p.job(), env={"FAKE_FAULT": "once"}), 0, "faster by the table")
        check.clean("fails once", p)
        check.ends("one at a time", p.tune(*p.job(), env={"FAKE_FAULT": "alone"}), 0, "faster by the table")
        check.that("clash" not in p.commands(), "two launchers were starting at once")
        # The node of a rank that hangs dies meanwhile: no setting's fault, and the job goes on where it was.
        words = p.job("--env", "WORLD_FAULT=hang:2:150")
        job = p.start("tune", "--db", p.db, "--out", p.out, *words, env={"FAKE_FAULT": ""})
        dead = kill_node(p, check)
        out, err = job.communicate(timeout=100)
        check.ends("a node dies", (job.returncode, out, err), 3, "node node-b was lost")
        check.that("--resume" in err and "--launch srun" in err, f"how to go on is not said: {err}")
        check.that(dead, "no agent was found to kill")
        left = [x for x in p.left_behind() if "/nccltune-agent-" not in x]  # a killed agent's folder: the next one's to clear
        check.that(not left, "a node dies: left behind:", *left)
        last = p.sql("SELECT max(id) FROM job")[0][0]
        check.that(p.sql("SELECT state FROM job WHERE id = ?", last) == [("interrupted",)], "the job's state")
        check.ends("resumed without", p.tune(*words[:-6], "--resume", last), 2, "--launch")
        other = p.tmp / "nccltune-agent-99999999-99999-AAAAAA"  # another host's, on a folder that hosts share
        other.mkdir()
        check.ends("resumed", p.tune("--probe", p.probe, "-q", "--launch", "srun", "--resume", last), 0, "faster by the table")
        check.that(other.is_dir(), "another host's folder was cleared")
        other.rmdir()
        check.clean("resumed", p)


def kill_node(place, check, patience_s=60):
    """Kills the second node once it has stood still for a moment: its agent, and what that started."""
    end = time.monotonic() + patience_s
    seen, since = None, 0.0
    while time.monotonic() < end:
        agents = [pid for pid in place.processes() if environ_of(pid).get(b"NCCLTUNE_NODE") == b"node-b"
                  and b"nccltune-agent" in words_of(pid) and name_of(pid) != b"nt-guard\n"]
        now = tuple(agents)
        if agents and now == seen and time.monotonic() - since > 1.5:
            for pid in agents:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            return True
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)
    check.that(False, "nothing hung")
    return False


def environ_of(pid):
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(v.split(b"=", 1) for v in raw.split(b"\0") if b"=" in v)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_bytes()
    except OSError:
        return b""


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------ the driver's own end; strangers

def part_ends(build, check):
    with Nodes(build) as p:
        for launch, hosts in (("srun", []), ("ssh", ["--hosts", "a,b"])):
            for signum, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 5)):
                words = p.job(*hosts, "--env", "WORLD_FAULT=hang:3:150", launch=launch, nodes=None if hosts else 2)
                job = p.start("tune", "--db", p.db, "--out", p.out, *words)
                wait_for(lambda: len([x for x in p.processes() if b"world_probe" in words_of(x)]) >= 4)
                time.sleep(0.3)
                os.kill(job.pid, signum)
                out, err = job.communicate(timeout=60)
                name = f"{launch}, signal {signum}"
                check.that(job.returncode == code, f"{name}: exit {job.returncode}:\n{out}{err}")
                left = [x for x in p.left_behind(patience_s=30) if x.startswith("process") or "agent" in x]
                check.that(not left, f"{name}: left behind:", *left)
        check.ends("the next one", p.tune(*p.job()), 0, FULL)
        check.clean("the next one", p)
        strangers(p, check)


def wait_for(what, patience_s=60):
    end = time.monotonic() + patience_s
    while not what() and time.monotonic() < end:
        time.sleep(0.02)


def strangers(p, check):
    """Who comes to the port without the secret: garbage, silence, a wrong proof, too much."""
    port = 20000 + os.getpid() % 20000
    said = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", b"nccltune-agent 0.1.0 node-b " + b"a" * 64 + b"\n" + b"b" * 64 + b"\n",
            b"x" * 100000, b"\0" * 4000]
    job = p.start("tune", "--db", p.db, "--out", p.out,
                  *p.job("--listen", f"127.0.0.1:{port}-{port + 200}"), env={"FAKE_FAULT": ""})
    held, answers = [], 0
    while job.poll() is None:
        for text in said:
            for at in (port, port + 1):
                try:
                    s = socket.create_connection(("127.0.0.1", at), timeout=1)
                    s.sendall(text)
                    held.append(s)
                    answers += 1
                except OSError:
                    pass
        while len(held) > 100:
            held.pop(0).close()
        time.sleep(0.01)
    out, err = job.communicate(timeout=60)
    for s in held:
        s.close()
    check.ends("strangers", (job.returncode, out, err), 0, FULL)
    check.that(answers > 0, "no stranger came in")
    check.clean("strangers", p)


# ------------------------------------------------------------------ check, status, topo

def part_check(build, check):
    with Nodes(build) as p:
        check.ends("tune", p.tune(*p.job()), 0, FULL)
        words = ["check", p.out, "--db", p.db, "--probe", p.probe]
        check.ends("check without", p.run(*words), 2, "is of 2 nodes: say with --launch")
        check.ends("check on three", p.run(*words, "--launch", "srun", "--hosts", "a,b,c"), 2, "names 3 for 2 nodes")
        check.ends("check", p.run(*words, "--launch", "srun"), 0, "it holds")
        check.clean("check", p)
        check.ends("show", p.run("show", p.out), 0, "4 ranks on 2 nodes")
        check.ends("doctor", p.run("doctor", "--launch", "srun", "--nodes", 2), 1, "on 0 of 2 hosts")
        check.ends("doctor, a node short", p.run("doctor", "--launch", "srun", "--nodes", 2, "--launch-wait", "6s",
                                                 env={"FAKE_FAULT": "short:1"}), 3, "number 1")
        check.clean("doctor", p)
        for words, says in ((["--nodes", 2], "--launch"), (["--listen", "127.0.0.1"], "--launch"), ([p.out, "--hosts", "a"], "--launch"),
                            (["--clean", "--launch", "srun", "--nodes", 2], "--clean"), ([p.out, "/none.json"], "none.json"),
                            ([p.out], "is not what")):
            check.ends(f"doctor {words}", p.run("doctor", *words), 2, says)
        rc, out, err = p.run("topo", "--machine")
        check.that(rc == 0 and "kernel" in json.loads(out), f"topo --machine: {rc}\n{out}{err}")
        check.ends("topo --machine FILE", p.run("topo", "--machine", p.out), 2, "takes no file")


def main():
    build, check = pathlib.Path(sys.argv[1]).resolve(), Checks()
    for part in sys.argv[2:]:
        globals()["part_" + part](build, check)
    return check.done()


if __name__ == "__main__":
    sys.exit(main())
