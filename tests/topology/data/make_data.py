#!/usr/bin/env python3
"""Writes the machines of this folder: invented ones, one a kind. Run it after a change; what it writes is committed."""
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def pci(busid, kind, inner=(), width=16, speed="32.0 GT/s PCIe", ids=None):
    classes = {"switch": "0x060400", "gpu": "0x030200", "eth": "0x020000", "ib": "0x020700", "amd": "0x038000"}
    default = {"switch": ("0x1000", "0xc030"), "gpu": ("0x10de", "0x2330"), "eth": ("0x15b3", "0x1021"),
               "ib": ("0x15b3", "0x1021"), "amd": ("0x1002", "0x740c")}
    vendor, device = ids or default[kind]
    head = (f'<pci busid="{busid}" class="{classes[kind]}" vendor="{vendor}" device="{device}" '
            f'subsystem_vendor="0x15d9" subsystem_device="0x1234" link_speed="{speed}" link_width="{width}"')
    return [head + ">", *["  " + line for line in inner], "</pci>"] if inner else [head + "/>"]


def gpu(dev, links=(), sm=90, gdr=1, tag="nvlink", extra=(), attrs=""):
    head = f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="{gdr}"{attrs}'
    inner = [f'<{tag} target="{t}" count="{c}" tclass="{k}"/>' for t, c, k in links] + list(extra)
    return [head + ">", *["  " + line for line in inner], "</gpu>"] if inner else [head + "/>"]


def nic(*nets):
    return ["<nic>", *[f'  <net name="{n}" dev="{d}" speed="{s}" port="{p}" guid="0x1{d}" maxconn="131072" gdr="1"/>'
                       for n, d, s, p in nets], "</nic>"]


def cpu(numa, inner, affinity="000000ff", model=143, host="0x1", vendor="GenuineIntel", family=6, arch="x86_64"):
    hash_ = f' host_hash="{host}"' if host else ""
    more = f' vendor="{vendor}" familyid="{family}" modelid="{model}"' if arch == "x86_64" else ""
    return [f'<cpu numaid="{numa}"{hash_} affinity="{affinity}" arch="{arch}"{more}>',
            *["  " + line for line in inner], "</cpu>"]


def write(name, inner, version=1):
    (HERE / name).write_text("\n".join([f'<system version="{version}">', *["  " + line for line in inner],
                                        "</system>", ""]))


def nvswitch8():
    """Two sockets, four switches each with a GPU and a NIC, all GPUs on four NVSwitches."""
    cpus = []
    for s in range(2):
        inner = []
        for k in range(4):
            g = s * 4 + k
            links = [(f"0000:0{x + 4}:00.0", 5 if x < 2 else 4, "0x068000") for x in range(4)]
            inner += pci(f"0000:{0x20 + 16 * g:02x}:00.0", "switch",
                         pci(f"0000:{0x22 + 16 * g:02x}:00.0", "gpu", gpu(g, links)) +
                         pci(f"0000:{0x24 + 16 * g:02x}:00.0", "ib", nic((f"mlx5_{g}", g, 400000, 1))))
        cpus += cpu(s, inner, "00ff" if s == 0 else "ff00")
    write("nvswitch8.xml", cpus)


def pcie4():
    """Two sockets, a switch each with two GPUs and a two-port NIC; no NVLink."""
    cpus = []
    for s in range(2):
        inner = []
        for k in range(2):
            inner += pci(f"0000:{0x13 + 0x60 * s + k:02x}:00.0", "gpu", gpu(s * 2 + k, sm=89), ids=("0x10de", "0x26b9"))
        inner += pci(f"0000:{0x18 + 0x60 * s:02x}:00.0", "eth",
                     nic((f"mlx5_{2 * s}", 2 * s, 100000, 1), (f"mlx5_{2 * s + 1}", 2 * s + 1, 100000, 2)),
                     speed="16.0 GT/s PCIe")
        cpus += cpu(s, pci(f"0000:{0x10 + 0x60 * s:02x}:00.0", "switch", inner), model=106)
    write("pcie4.xml", cpus)


def mesh8():
    """A cube mesh: two quads, one or two NVLinks a pair, each GPU with six; two switches a socket."""
    bus = [f"0000:{0x30 + 8 * g:02x}:00.0" for g in range(8)]
    count = {}
    for q in (0, 4):
        for a, b, n in ((0, 1, 2), (0, 2, 2), (0, 3, 1), (1, 2, 1), (1, 3, 2), (2, 3, 1)):
            count[q + a, q + b] = n
    for a, n in ((0, 1), (1, 1), (2, 2), (3, 2)):
        count[a, a + 4] = n
    cpus = []
    for s in range(2):
        inner = []
        for w in range(2):
            devices = []
            for k in range(2):
                g = s * 4 + w * 2 + k
                links = [(bus[b if a == g else a], n, "0x030200") for (a, b), n in sorted(count.items()) if g in (a, b)]
                devices += pci(bus[g], "gpu", gpu(g, links, sm=70), ids=("0x10de", "0x1db1"), speed="8 GT/s")
            devices += pci(f"0000:{0xa0 + 4 * (s * 2 + w):02x}:00.0", "ib",
                           nic((f"mlx5_{s * 2 + w}", s * 2 + w, 100000, 1)), speed="8 GT/s")
            inner += pci(f"0000:{0x08 + 4 * (s * 2 + w):02x}:00.0", "switch", devices, speed="8 GT/s")
        cpus += cpu(s, inner, model=79, host=None)
    write("mesh8.xml", cpus)


def pairs4():
    """Four NUMA nodes with a GPU each, bridged in pairs; a virtual NIC (a cloud's machine)."""
    bus = [f"000{g + 1}:00:00.0" for g in range(4)]
    cpus = []
    for g in range(4):
        inner = pci(bus[g], "gpu", gpu(g, [(bus[g ^ 1], 4, "0x030200")], sm=86), ids=("0x10de", "0x2235"), width=0, speed="")
        inner += nic(("ens5", 0, 50000, 0)) if g == 0 else []
        cpus += cpu(g, inner, model=85, host=None)
    write("pairs4.xml", cpus)


def trays():
    """Two trays of one NVLink domain; bus ids come again."""
    def tray(host):
        cpus = []
        for s in range(2):
            inner = []
            for k in range(2):
                fabric = [("fffffff:ff:ff.0", 18, "0x068000")]
                inner += pci(f"00{s}{8 + k}:06:00.0", "gpu",
                             gpu(s * 2 + k, fabric, sm=100, extra=['<c2c bw="44712" count="10"/>']), width=1,
                             speed="32.0 GT/s PCIe", ids=("0x10de", "0x2941"))
            inner += pci(f"00{s}0:03:00.0", "ib", nic((f"mlx5_{s}", s, 400000, 1)))
            cpus += cpu(s, inner, host=host, arch="arm64")
        return cpus
    write("tray1.xml", tray("0xa1"))
    write("tray2.xml", tray("0xa1") + tray("0xb2"))


def amd4():
    """Version 2: a ring of xGMI links below one switch."""
    bus = [f"0000:{0x21 + 4 * g:02x}:00.0" for g in range(4)]
    inner = []
    for g in range(4):
        links = [(bus[(g + d) % 4], 1 + edge % 2, "0x038000") for d, edge in ((1, g), (3, (g + 3) % 4))]
        inner += pci(bus[g], "amd", gpu(g, links, sm=104, tag="xgmi", attrs=' gcn="910" arch="38911"'))
    inner += pci("0000:3a:00.0", "eth", nic(("bnxt_re0", 0, 100000, 1)), ids=("0x14e4", "0x1750"))
    write("amd4.xml", cpu(0, pci("0000:20:00.0", "switch", inner), host=None, vendor="AuthenticAMD", family=23, model=49), 2)


def template():
    """What clouds ship: PCI devices only, known by their class."""
    inner = []
    for s in range(2):
        devices = []
        for k in range(2):
            devices.append(f'<pci busid="000{s * 2 + k + 1}:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>')
            devices.append(f'<pci busid="010{s * 2 + k + 1}:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>')
        inner += cpu(s, [f'<pci busid="ffff:ff:0{s + 1}.0" class="0x060400" link_speed="16 GT/s" link_width="16">',
                         *["  " + d for d in devices], "</pci>"], host=None)
    write("template4.xml", ["<!-- a template -- with dashes in its comment -->"] + inner)


for make in (nvswitch8, pcie4, mesh8, pairs4, trays, amd4, template):
    make()
