#!/usr/bin/env python3
"""The checks of scripts/ can fail: each is run on a small tree of its own, with and without what it is there to find.

A row: the check, a file and what is in it, and what the check says of it (None: nothing wrong).
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(sys.argv[1]).resolve() / "scripts"
GOOD = {"tuner/base/a.h": "#pragma once\nint nt_a(void);\n",
        ".clang-format": (SCRIPTS.parent / ".clang-format").read_text(encoding="utf-8")}
ROWS = [
    ("check_layers", "tuner/base/a.c", '#include "tuner/base/a.h"\n', None),
    ("check_layers", "tuner/base/a.c", '#include "schema/vocab.h"\n', "tuner/base may not include schema/vocab.h"),
    ("check_layers", "tuner/search/a.c", "#include <sqlite3.h>\n", "sqlite3.h is for tuner/store only"),
    ("check_layers", "tuner/search/a.c", "#include <uv.h>\n", "uv.h is for "),
    ("check_layers", "tuner/base/a.c", '#include "base/a.h"\n', "no file of the project"),
    ("check_layers", "profiles/plugin/a.c", '#include "tuner/base/a.h"\n', "profiles/plugin may not include"),
    ("check_format", "tuner/base/a.c", "int nt_a(void)\n{\n    return 1;\n}\n", None),
    ("check_format", "tuner/base/a.c", "int nt_a(void) { return 1; }\n", "tuner/base/a.c: not as clang-format"),
    ("check_calls", "tuner/base/a.c", "int nt_a(void)\n{\n    return mine.system(a->system(nt_system(1)));\n}\n", None),
    ("check_calls", "tuner/base/a.c", '/* strcpy(a, b) */ // system(c)\nchar *s = "\\"atoi(x)";\n', None),
    ("check_calls", "tuner/base/a.c", "\n/* a\n */ int a = atoi(b);\n", "tuner/base/a.c:3: atoi()"),
    ("check_calls", "tests/base/a.c", "(void)sprintf(a, b);\n", "sprintf()"),
    ("check_calls", "schema/a.h", "assert (a);\n", "assert()"),
    ("check_calls", "tuner/gang/a.c", "usleep(1);\n", "usleep()"),
    ("check_calls", "tests/gang/a.c", "usleep(1);\n", None),
    ("check_text", "docs/a.md", "see /usr/lib and https://example.com/home/x and build/work/x\n", None),
    ("check_text", "docs/a.md", "one\nlies in /home/me/x\n", "docs/a.md:2: a path of somebody's machine"),
    ("check_text", "tuner/base/a.py", "a = 1  # TODO: two\n", "tuner/base/a.py:1: unfinished"),
    ("check_text", "tuner/base/a.c", "int a; \n", "space at the end"),
    ("check_text", "tuner/base/a.c", "\n" * 801, "801 lines, 800 is the most"),
    ("check_text", "tests/base/data/a.txt", "in /home/me/x, TODO \n", None),
]


def run(check, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        done = subprocess.run([str(SCRIPTS / check), folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def main():
    bad = skipped = 0
    for check, name, text, says in ROWS:
        rc, out = run(check, {**GOOD, name: text})
        if rc == 77:
            skipped += 1
            continue
        files = re.search(r"^check_\w+: (\d+) files", out, re.M)
        if rc != (1 if says else 0) or (says or "") not in out or not files or int(files.group(1)) not in (1, 2, 3):
            bad += 1
            print(f"{check}, {name}, {text!r}: exit status {rc}, said\n{out}")
    for check in sorted({row[0] for row in ROWS}):
        rc, out = run(check, {})
        if rc not in (1, 77):
            bad += 1
            print(f"{check} found no file and ends with {rc}:\n{out}")
    print(f"{len(ROWS)} rows, {bad} wrong, {skipped} skipped (no clang-format of version 14)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
