#!/usr/bin/env python3
"""check_report.py NCCLTUNE SAMPLE_PROGRAM STORE_PROGRAM: the page as a browser would take it: well-formed, complete
without a script, nothing loaded from elsewhere; and the command's words and exit codes."""
import html.parser
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

NCCLTUNE, SAMPLE, STORE = sys.argv[1:4]
VOID = {"meta", "br"}
LOADS = {"script", "img", "link", "iframe", "object", "embed", "use", "image", "base", "form", "video", "audio"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.anchors, self.words, self.tags = [], [], [], [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert len(a) == len(attrs), f"<{tag}> names an attribute twice"
        assert tag not in LOADS, tag
        assert not any(k.startswith("on") or k == "src" for k in a), attrs
        assert a.get("href", "#").startswith("#"), a
        self.ids += [a["id"]] if "id" in a else []
        self.anchors += [a["href"][1:]] if "href" in a else []
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.words.append(data)


def page(file):
    text = file.read_text(encoding="utf-8")
    p = Page(text)
    assert len(set(p.ids)) == len(p.ids) and set(p.anchors) <= set(p.ids), (p.ids, p.anchors)
    for tag in ("main", "nav", "h1", "table"):
        assert tag in p.tags, tag
    return " ".join(p.words), p.tags


# arguments, exit code, what stderr says
REFUSED = [
    (["report"], 2, "PROFILE|JOB"),
    (["report", "nowhere.json"], 2, "nowhere.json"),
    (["report", "2", "--db", "jobs.db"], 2, "job 2"),
    (["report", "PROFILE", "--png"], 2, "--svg DIR"),
    (["report", "PROFILE", "--topology", "PROFILE"], 2, "--topology PROFILE"),
    (["report", "PROFILE", "-o", "no/such/folder.html"], 2, "no/such/folder.html"),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def run(*args):
            return subprocess.run([NCCLTUNE, *args], capture_output=True, text=True, cwd=folder)

        for file, args in (("PROFILE", []), ("EMPTY", ["empty"]), ("RIG", ["rig", "mps-sockets"])):
            (folder / file).write_text(subprocess.run([SAMPLE, *args], check=True, capture_output=True, text=True).stdout)
        with open(folder / "PROFILE", encoding="utf-8") as document:
            subprocess.run([STORE, str(folder / "jobs.db")], check=True, stdin=document)
        for args, code, warns in REFUSED:
            got = run(*args)
            assert got.returncode == code and warns in got.stderr and not got.stdout, (args, got)
        for args, says in ((["PROFILE"], "ring/ll/4"), (["EMPTY"], "The defaults win here"), (["RIG"], "Functional rig"),
                           (["1", "--db", "jobs.db"], "Seed")):
            got = run("report", *args, "-o", "page.html", "--svg", "plots")
            assert got.returncode == 0 and got.stdout == "page.html: the page, for a browser\n", got
            words, tags = page(folder / "page.html")
            assert says in words and "svg" in tags, (args, says)
        plots = sorted((folder / "plots").iterdir())
        assert [p.name for p in plots] == ["all_reduce-eager.svg", "all_reduce-graph.svg"], plots
        for plot in plots:
            root = xml.etree.ElementTree.parse(plot).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
        assert run("report", "PROFILE", "-o", "-").stdout.endswith("</html>\n")
    print(f"{len(REFUSED)} refused, 4 pages, {len(plots)} plots")


main()
