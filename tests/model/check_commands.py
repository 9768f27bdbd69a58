#!/usr/bin/env python3
"""usage: check_commands.py NCCLTUNE: predict and tune over a machine that is only described."""
import json
import pathlib
import subprocess
import sys
import tempfile

GPU = """<pci busid="0000:{0:02x}:00.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="{1}" sm="90" rank="{1}" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>"""
XML = ('<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">'
       + "".join(GPU.format(16 * (i + 1), i) for i in range(2)) + "</cpu></system>\n")


def main():
    nccltune = sys.argv[1]
    with tempfile.TemporaryDirectory() as d:
        xml = pathlib.Path(d, "two.xml")
        xml.write_text(XML)

        def run(*args, code=0):
            r = subprocess.run([nccltune, *args], cwd=d, capture_output=True, text=True, check=False)
            assert r.returncode == code, (args, r.returncode, r.stderr)
            return r.stdout if code == 0 else r.stderr

        # predict: marked, NCCL's own estimate is the golden formula (6.6 + 2 x 0.6 µs), and it names what is better.
        text = run("predict", str(xml), "--sizes", "8,14K,64M")
        assert text.startswith("simulated  NCCL 2.30.7"), text
        assert "12 x 30.0 GB/s, NVL" in text and "as chosen" in text, text
        o = json.loads(run("predict", str(xml), "--sizes", "8,14K", "--format", "json"))
        assert o["simulated"] is True and o["ranks"] == 2
        assert abs(o["rows"][0]["nccl_cells_us"]["ring/ll"] - 7.8) < 1e-3, o["rows"][0]
        assert o["rows"][1]["best"]["us"] < 0.98 * o["rows"][1]["choice"]["us"], o["rows"][1]
        template = pathlib.Path(d, "template.xml")  # as clouds ship them: GPUs by their class alone
        template.write_text('<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">' + "".join(
            f'<pci busid="000{i}:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>' for i in (1, 2)) + "</cpu></system>")
        text = run("predict", str(template), "--sizes", "1M")
        assert "capability not told" in text and "taken as without NVLink" in text, text
        assert "at most 2 a node" in run("predict", str(xml), "--ranks", "3", code=2)
        assert "sendrecv" not in run("predict", str(xml), "--collectives", "sendrecv", code=2)
        run("predict", str(pathlib.Path(d, "none.xml")), code=2)

        # tune: a whole job; the same seed gives the same products.
        job = ["tune", "--rig", f"model:{xml}", "--sizes", "14K,1M", "--effort", "quick", "--try", "NCCL_BUFFSIZE=8388608", "-q"]
        products = []
        for k in range(2):
            run(*job, "--db", f"{k}.db", "--out", f"{k}.json")
            o = json.loads(pathlib.Path(d, f"{k}.json").read_text())
            assert o["rig"]["kind"] == "model" and o["rig"]["functional"], o["rig"]
            assert '"simulated ' in json.dumps(o["stack"]), o["stack"]
            products.append(o["products"])
        assert products[0] == products[1]
        assert "cannot be read" in run("tune", "--rig", "model:none.xml", "--db", "x.db", code=2)
    print("predict and tune over a described machine: 2 jobs, all as they should be")


main()
