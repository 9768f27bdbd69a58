#!/usr/bin/env python3
"""check_others.py NCCLTUNE: import, lint, workload and explain as a user meets them: words, files and exit codes."""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

NCCLTUNE = sys.argv[1]
HEAD = ("# Collective test starting: all_reduce_perf\n"
        "#  Rank  0 Group  0 Pid   11 on  alpha device  0 [0x01] G\n#  Rank  1 Group  0 Pid   12 on  alpha device  1 [0x02] G\n")
ROW = "8192 2048 float sum -1 {0:.2f} {1:.2f} {1:.2f} 0 {0:.2f} {1:.2f} {1:.2f} 0\n# Out of bounds values : 0 OK\n"
FILES = {
    "a.log": HEAD + ROW.format(10, 0.82), "b.log": HEAD + ROW.format(20, 0.41), "cut.log": HEAD,
    "t.csv": "collective,ranks,size_bytes,backend,time_us\nallreduce,8,8192,nccl,24\nallreduce,8,65536,nccl,30\n"
             "allreduce,8,8192,custom,12\nallreduce,8,65536,custom,28\n",
    "bad.csv": "a,b\n1,2\n",
    "ok.conf": "NCCL_IB_TC=41\n", "bad.conf": "NCCL_BUFFSIZE=4M\n", "order.conf": "NCCL_BUFFSIZE=4M\nexport NCCL_DEBUG=INFO\nNCCL_ALGO=Tre",
    "topo.xml": '<system version="1"/>', "wide.log": (HEAD + ROW.format(10, 0.82)).encode("utf-16"),
    "wide.conf": "NCCL_ALGO=Ring\n".encode("utf-16"), "wide.csv": "size_bytes,backend,time_us\n1K,a,10\n1K,b,12\n".encode("utf-16-le"),
    "packed.log": gzip.compress((HEAD + ROW.format(10, 0.82)).encode()),
    "csi.conf": "NCCL_FOO=\x9b31mred\n\x9b2J\n",
    "fast.csv": "collective,ranks,size_bytes,backend,time_us\nall_reduce,8,1024,a,1e-300\nall_reduce,8,1024,b,5\n",
    "two.xml": '<system version="1"><cpu numaid="0">' + "".join(
        f'<pci busid="0000:0{i}:00.0" class="0x030200" link_speed="16" link_width="16"><gpu dev="{i}" sm="90" rank="{i}"/></pci>'
        for i in (1, 2)) + "</cpu></system>",
    "config.json": json.dumps({"hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 1000, "torch_dtype": "bfloat16"}),
}
RECORDINGS = pathlib.Path(__file__).resolve().parents[2] / "probes/recordings"
TWO = [str(RECORDINGS / f"mps-sockets-r4-h200-20261129-{lease}.csv.gz") for lease in "ac"]
TYPES = [str(RECORDINGS / f"nccl-r2-h200-202611{lease}.csv.gz") for lease in ("29-a", "30-c")]
APART = "SELECT count(*) || ' of ' || count(DISTINCT mode) FROM noise WHERE recordings = 'import 1, import 2' AND tuples > 0 AND "
# arguments, exit code, what stdout says, what stderr says
CASES = [
    (["import", "nccl-tests", "a.log", "b.log", "--db", "d.db"], 0, ["100.0 %", "winner"], "a.log: stored as import 1"),
    (["import", "nccl-tests", "a.log", "--db", "d.db"], 0, [], "known already as import 1"),
    (["import", "nccl-tests", "a.log", "-n", "--db", "none.db"], 0, ["all_reduce, 2 ranks"], ""),
    (["import", "nccl-tests", "cut.log", "-n"], 1, ["[cut-off]", "[no-results]"], "no result"),
    (["import", "nccl-tests", "topo.xml", "-n"], 2, ["[no-results]"], "no output of nccl-tests"),
    (["import", "nccl-tests", "cut.log", "topo.xml", "-n"], 1, ["[no-results]"], "no result"),
    (["import", "nccl-tests", "wide.log", "-n"], 0, ["8K"], ""),
    (["import", "nccl-tests", "packed.log", "-n"], 0, ["8K"], ""),
    (["import", "table", "wide.csv", "-n"], 0, ["20.0 %"], ""),
    (["lint", "wide.conf"], 1, ["UTF-16"], "1 error"),
    (["lint", "csi.conf"], 0, ["NCCL_FOO = ?31mred"], ""),
    (["import", "table", "t.csv", "--db", "d.db", "--format", "json"], 0, ['"verdict": "winner"'], "stored as import 3"),
    (["import", "table", "bad.csv", "-n"], 2, [], "no column of sizes"),
    (["import", "tabel", "t.csv", "-n"], 2, [], "did you mean 'table'"),
    (["query", "--db", "d.db", "SELECT count(*) FROM measurements"], 0, ["8"], ""),
    (["lint", "ok.conf"], 0, ["NCCL_IB_TC = 41"], ""),
    (["lint", "bad.conf"], 1, ["bad.conf:1: error", "-> 4"], "1 error found"),
    (["lint", "order.conf"], 1, [], "3 errors"),
    (["lint", "bad.conf", "--format", "sarif"], 1, ['"ruleId": "value-misread"', '"version": "2.1.0"'], ""),
    (["lint", "ok.conf", "--nccl", "9"], 2, [], "9"),
    (["lint", "ok.conf", "--form", "ncclconf"], 2, [], "nccl-conf"),
    (["workload", "from-config", "config.json", "--tp", "8", "--draft", "3", "-o", "w.json"], 0, [], ""),
    (["workload", "show", "w.json", "-f", "text"], 0, ["122 x all_reduce          42K"], ""),
    (["workload", "from-config", "config.json", "--tp", "1"], 2, [], "one rank"),
    (["workload", "from-receipts", "w.json"], 2, [], "w.json"),
    (["explain", "-w", "w.json", "-s", "verify=29,eager", "-s", "decode=12", "-m", "t.csv"], 0,
     ["communication cannot explain this step", "longer than decode"], ""),
    (["explain", "-w", "w.json", "-s", "verify=12.001", "-s", "decode=12", "-m", "t.csv"], 0,
     ["more than the whole difference"], ""),
    (["explain", "-w", "w.json", "-s", "verify=29", "--db", "d.db", "--source", "import 3"], 0, ["custom"], ""),
    (["explain", "-w", "w.json", "-s", "verify=29", "--db", "d.db"], 2, [], "name one with --source"),
    (["explain", "-w", "w.json", "-s", "verify=29", "-m", "a.log"], 1, ["never measured"], "never measured for 8 ranks"),
    (["explain", "-w", "w.json", "-s", "verfy=29", "-m", "t.csv"], 2, [], "did you mean 'verify'"),
    (["explain", "-w", "w.json"], 2, [], "--step"),
    (["workload", "from-config", "config.json", "-o", "none/w.json"], 2, [], "create none/w.json"),
    (["import", "table", "fast.csv", "-n"], 0, [">9999 %", "not credible"], ""),
    (["import", "recording", *TWO, "-n"], 0, ["a.csv.gz: 1198 cells, 5694 rows"], ""),
    (["import", "recording", *TWO, "--db", "r.db"], 0, ["c.csv.gz: 1222 cells"], "stored as import 2"),
    (["import", "recording", TWO[0], "--db", "r.db"], 0, [], "known already as import 1"),
    (["query", "--db", "r.db", APART + "between_recordings_pct BETWEEN 0.1 AND 50 AND best_apart_pct >= 0"], 0, ["112 of 2"], ""),
    (["query", "--db", "r.db", "--view", "noise"], 0, ["between_recordings_pct"], ""),
    (["import", "recording", *TYPES, "--db", "t.db"], 0, [], "stored as import 2"),
    (["query", "--db", "t.db", "SELECT count(*) || ' of ' || dtype FROM best WHERE source = 'import 2' GROUP BY dtype"], 0, [" of fp32"], ""),
    (["query", "--db", "t.db", "SELECT 'pairs of cases: ' || count(*) FROM noise WHERE tuples > 0"], 0, ["pairs of cases: 0"], ""),  # of two types
    (["import", "recording", "a.log", "-n"], 2, [], "a.log"),
    (["predict", "two.xml", "--nodes", "4294967295"], 2, [], "--nodes"),
    (["predict", "two.xml", "--nodes", "0"], 2, [], "--nodes: at least 1"),
    (["predict", "two.xml", "-n", "0"], 2, [], "--ranks: at least 1"),
    (["query", "--db", "r.db", "--view", "noise", "-n", "0"], 2, [], "--rows: at least 1"),
    (["explain", "-w", "w.json", "-s", "verfy=29", "--db", "none.db"], 2, [], "did you mean 'verify'"),  # before it reads
    (["workload", "from-config", "config.json", "-b", "99999999999"], 2, [], "--batch: 99999999999 is too large"),
    (["workload", "from-config", "config.json", "-b", ",".join("1" * 17)], 2, [], "--batch: at most 16 sizes"),
    (["pull", "--from", "foo", "--topology", "none.xml"], 2, [], "--from: 'foo' is no service"),  # before it looks
    (["pull", "--from", "http://foo/", "--topology", "none.xml"], 2, [], "says no port"),
    (["pull", "--from", "unix:", "--topology", "none.xml"], 2, [], "is no service"),
]

# Output of more and of less than a buffer, with an answer and with "no".
FULL = [(["predict", "--help"], 1), (["jobs", "--db", "r.db"], 1), (["doctor", "--proc", "."], 1), (["serve", "--openapi"], 1)]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (pathlib.Path(folder) / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        said = subprocess.run([NCCLTUNE, "lint", "order.conf"], capture_output=True, text=True, cwd=folder).stdout
        lines = [int(line.split(":")[1]) for line in said.splitlines() if line.startswith("order.conf:") and line.split(":")[1].isdigit()]
        assert len(lines) == 4 and lines == sorted(lines), said
        for args, code, says, complains in CASES:
            r = subprocess.run([NCCLTUNE, *args], capture_output=True, text=True, cwd=folder)
            missing = [s for s in says if s not in r.stdout]
            if any(c in r.stdout + r.stderr for c in "\x1b\x9b"):
                missing.append("output that leaves the terminal alone")
            if r.returncode != code or missing or complains not in r.stderr:
                failed += 1
                print(f"{args}: exit {r.returncode} (want {code}), missing {missing}, stderr {r.stderr!r}\n{r.stdout}")
        for args, code in FULL:
            with open("/dev/full", "w", encoding="utf-8") as full:
                r = subprocess.run([NCCLTUNE, *args], stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder)
            if r.returncode != code or "output could not be written" not in r.stderr:
                failed += 1
                print(f"{args} > /dev/full: exit {r.returncode} (want {code}), stderr {r.stderr!r}")
    print(f"{len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
