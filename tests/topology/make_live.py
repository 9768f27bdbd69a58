#!/usr/bin/env python3
"""Writes what a live machine shows for an NCCL topology XML: sysfs and proc below a root, and the data of the stub NVML.

  make_live.py --jobs FILE        one line for each machine: the arguments below
  make_live.py XML ROOT [--width BUSID=N] [--slot BUSID=N] [--acs BUSID] [--iommu TYPE] [--p2p A-B=STATUS] [--down NIC] [--drop-link GPU]
               [--memory MIB] [--name NAME] [--mig GPU]

A switch of the XML is an upstream port with a downstream port for each child, as NCCL sees only every second bridge.
"""
import argparse
import os
import pathlib
import re
import struct
import sys
import xml.etree.ElementTree as ET


def numbers(text, otherwise=0):
    return int(text, 0) if text else otherwise


class Machine:
    def __init__(self, args):
        self.args = args
        self.root = pathlib.Path(args.root)
        self.ports = 0
        self.gpus = []
        self.slot = dict(w.split("=") for w in args.slot)
        self.width = dict(w.split("=") for w in args.width)
        for folder in ("sys/bus/pci/devices", "sys/class/infiniband", "sys/class/net", "sys/devices/system/node", "proc"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def link(self, path, target):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))

    def config(self, folder, redirect):
        """A configuration space whose second extended capability is ACS."""
        space = bytearray(4096)
        struct.pack_into("<HH", space, 0x100, 0x0001, (0x140 << 4) | 1)
        struct.pack_into("<HHHH", space, 0x140, 0x000d, 1, 0x5f, 0x1d if redirect else 0x01)
        (folder / "config").write_bytes(space)

    def device(self, folder, busid, attrs, numa):
        folder.mkdir(parents=True, exist_ok=True)
        for name, attr in (("class", "class"), ("vendor", "vendor"), ("device", "device"),
                           ("subsystem_vendor", "subsystem_vendor"), ("subsystem_device", "subsystem_device")):
            if attrs.get(attr):
                self.write(folder / name, attrs[attr])
        width = attrs.get("link_width", "")
        if width not in ("", "0"):
            self.write(folder / "max_link_width", self.slot.get(busid, width))
            self.write(folder / "current_link_width", self.width.get(busid, self.slot.get(busid, width)))
        if attrs.get("link_speed"):
            self.write(folder / "max_link_speed", attrs["link_speed"])
            self.write(folder / "current_link_speed", attrs["link_speed"])
        self.write(folder / "numa_node", numa)
        if self.args.iommu:
            group = self.root / "sys/kernel/iommu_groups" / str(len(list((self.root / "sys/bus/pci/devices").iterdir())))
            self.write(group / "type", self.args.iommu)
            self.link(folder / "iommu_group", group)
        self.link(self.root / "sys/bus/pci/devices" / busid, folder)

    def port(self, folder, numa, attrs):
        """A bridge that NCCL steps over: the downstream or root port above a device."""
        self.ports += 1
        busid = f"e000:{self.ports >> 5:02x}:{self.ports & 31:02x}.0"
        path = folder / busid
        self.device(path, busid, {"class": "0x060400", "link_width": attrs.get("link_width", "")}, numa)
        self.config(path, attrs["busid"].lower() in self.args.acs)
        return path

    def pci(self, node, above, numa):
        busid = node.attrib["busid"].lower()
        folder = self.port(above, numa, node.attrib) / busid
        self.device(folder, busid, node.attrib, numa)
        for kid in node:
            if kid.tag == "pci":
                self.pci(kid, folder, numa)
            elif kid.tag == "gpu":
                self.gpus.append((busid, kid))
            elif kid.tag == "nic":
                for i, net in enumerate(kid.findall("net")):
                    device = folder
                    if i > 0:
                        device = folder.parent / f"{busid[:-1]}{i}"
                        self.device(device, f"{busid[:-1]}{i}", node.attrib, numa)
                    self.rdma(net.attrib, device)
        if not list(node) and node.attrib.get("class", "").startswith("0x02"):
            name = f"ib{busid.replace(':', '')[:6]}"
            self.rdma({"name": name, "port": "1", "speed": "100000"}, folder)
        if not list(node) and node.attrib.get("class", "").startswith("0x03"):
            self.gpus.append((busid, ET.Element("gpu")))

    def rdma(self, net, device):
        folder = self.root / "sys/class/infiniband" / net["name"]
        port = folder / "ports" / net.get("port", "1")
        down = net["name"] in self.args.down
        self.write(port / "state", "1: DOWN" if down else "4: ACTIVE")
        self.write(port / "rate", f"{int(net['speed']) / 1000:g} Gb/sec (4X)")
        self.link(folder / "device", device)

    def nvml(self):
        lines = []
        for i, (busid, gpu) in enumerate(sorted(self.gpus, key=lambda g: int(g[1].attrib.get("dev", 0)))):
            lines.append(f"gpu {busid} {gpu.attrib.get('sm', '0')} {self.args.memory} {int(str(i) in self.args.mig)} "
                         f"{sum(int(c.attrib.get('count', 1)) for c in gpu.findall('c2c'))} {self.args.name}")
            for end in gpu.findall("nvlink"):
                count = int(end.attrib["count"])
                if str(i) in self.args.drop_link:
                    count, self.args.drop_link = count - 1, []
                kind = {"0x068000": 2, "0x068001": 1}.get(end.attrib.get("tclass"), 0)
                lines += [f"link {i} {end.attrib['target']} {kind}"] * count
        lines += [f"p2p {p.replace('-', ' ').replace('=', ' ')}" for p in self.args.p2p]
        (self.root / "nvml.txt").write_text("\n".join(lines) + "\n")

    def cpuinfo(self, cpu):
        if cpu.attrib.get("arch") == "arm64":
            return "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
        family = numbers(cpu.attrib.get("familyid"), 6)
        if cpu.attrib.get("vendor") == "AuthenticAMD" and family > 15 and (family - 15) % 16 == 0:
            family = 15 + (family - 15) // 16
        return (f"processor\t: 0\nvendor_id\t: {cpu.attrib.get('vendor', 'GenuineIntel')}\ncpu family\t: {family}\n"
                f"model\t\t: {cpu.attrib.get('modelid', '85')}\nmodel name\t: invented\n")

    def build(self, system):
        k_net = 3
        for i, cpu in enumerate(system.findall("cpu")):
            numa = cpu.attrib["numaid"]
            if int(numa) >= 0:
                self.write(self.root / f"sys/devices/system/node/node{numa}/cpumap", cpu.attrib.get("affinity", "ff"))
            for k, node in enumerate(cpu.findall("pci")):
                self.pci(node, self.root / f"sys/devices/pci{i:04x}:{k:02x}", numa)
            for net in cpu.findall("nic/net"):
                folder = self.root / "sys/class/net" / net.attrib["name"]
                self.write(folder / "operstate", "up")
                self.write(folder / "speed", net.attrib["speed"])
                # As virtual machines have it: the device is virtio's, and only what that is on is a PCI device.
                card = self.root / f"sys/devices/pci00ff:00/00ff:00:{k_net:02x}.0"
                (card / "virtio0").mkdir(parents=True)
                self.write(card / "class", "0x020000")
                self.write(card / "vendor", "0x1af4")
                self.write(card / "device", "0x1041")
                (folder / "device").symlink_to(card / "virtio0")
                k_net += 1
        self.write(self.root / "sys/class/net/lo/operstate", "unknown")
        (self.root / "proc/cpuinfo").write_text(self.cpuinfo(system.find("cpu")))
        self.nvml()


def make(argv):
    p = argparse.ArgumentParser()
    p.add_argument("xml")
    p.add_argument("root")
    for name in ("width", "slot", "acs", "p2p", "down", "drop-link", "mig"):
        p.add_argument(f"--{name}", action="append", default=[])
    p.add_argument("--iommu")
    p.add_argument("--memory", default="81559")
    p.add_argument("--name", default="NVIDIA Invented 80GB")
    args = p.parse_args(argv)
    text = pathlib.Path(args.xml).read_text()
    text = re.sub("<!--.*?-->", "", text, flags=re.S)  # dashes inside them are no XML
    start, end = text.find("<system"), text.find("</system>") + len("</system>")
    Machine(args).build(ET.fromstring(text[start:end]))


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--jobs":
        for line in pathlib.Path(sys.argv[2]).read_text().splitlines():
            make(line.split())
    else:
        make(sys.argv[1:])


if __name__ == "__main__":
    main()
