#!/usr/bin/env python3
"""The command `nccltune topo`: exit codes, both formats, both ways of comparing.  check_topo.py NCCLTUNE STUB_NVML"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
SMI = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def main():
    program, stub = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as work:
        def topo(*args, text="", env=None):
            p = subprocess.run([program, "topo", *map(str, args)], input=text, capture_output=True, text=True,
                               env={**os.environ, "COLUMNS": "80", **(env or {})}, timeout=60)
            return p.returncode, p.stdout, p.stderr

        subprocess.run([sys.executable, HERE / "make_live.py", DATA / "pcie4.xml", f"{work}/m"], check=True)
        live = ["--root", f"{work}/m", "--nvml", stub]
        env = {"NT_STUB_NVML": f"{work}/m/nvml.txt"}
        pathlib.Path(f"{work}/graph.xml").write_text('<graphs version="1"/>')
        checks = [  # arguments, input, exit code, words on stdout, words on stderr
            ([DATA / "mesh8.xml"], "", 0, "identity ", ""),
            (["-"], SMI, 0, "GPU1   NV4   X", ""),
            (live, "", 0, "from live", ""),
            (["--ranks", 3, DATA / "mesh8.xml"], "", 0, "3 of 8 GPUs: ", ""),
            (["--ranks", 9, DATA / "mesh8.xml"], "", 2, "", "the machine has 8 GPUs"),
            ([f"{work}/graph.xml"], "", 2, "", "an NCCL graph file"),
            (["-"], "nvidia-smi: command not found\n", 2, "", "an error message"),
            ([f"{work}/none.xml"], "", 2, "", "No such file"),
            (["--root", f"{work}/none", "--nvml", "/nonexistent.so"], "", 3, "", "no NVIDIA GPU"),
            (["--format", "yaml", DATA / "mesh8.xml"], "", 2, "", "yaml"),
            ([DATA / "mesh8.xml", DATA / "mesh8.xml"], "", 2, "", "--diff"),
            (["--diff", DATA / "mesh8.xml"], "", 2, "", "two files"),
            (["--diff", DATA / "mesh8.xml", DATA / "mesh8.xml"], "", 0, "the same machine", ""),
            (["--diff", DATA / "mesh8.xml", DATA / "pcie4.xml"], "", 1, "different machines", ""),
            (["--diff", DATA / "pcie4.xml", "live", *live], "", 0, "the same machine", ""),
        ]
        for args, text, code, out, err in checks:
            got = topo(*args, text=text, env=env)
            assert got[0] == code and out in got[1] and err in got[2], (args, got)
            assert all(len(line) <= 100 for line in got[1].splitlines() if line[:1] in "│├└GN"), args
        whole = json.loads(topo("--format", "json", DATA / "pcie4.xml")[1])
        assert whole["healthy"] and len(whole["placements"]["2"]) == 2, whole["placements"]
        differ = json.loads(topo("--diff", "--format", "json", DATA / "mesh8.xml", DATA / "pcie4.xml")[1])
        assert not differ["match"] and "gpus" in differ["differ"], differ
    print(f"{len(checks) + 2} checks")


if __name__ == "__main__":
    main()
