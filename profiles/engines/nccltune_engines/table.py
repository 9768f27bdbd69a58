"""The backend table that `nccltune export --format sglang|vllm` wrote, and the choice in it."""
import bisect
import hashlib
import json
import os
import stat

FORMAT, VERSION, MAX_BYTES = "nccltune-backends", 1, 1 << 20
DTYPES = ("bf16", "fp32", "fp16", "int32", "fp8")
MODES = ("eager", "graph")
PLACES = ("out", "in")


class TableError(Exception):
    """The table cannot be honoured, with the reason."""


class Row:
    """all_reduce,graph,1024,92681,custom-allreduce,bf16/out bf16/in: from and to in bytes, inclusive."""

    __slots__ = ("coll", "mode", "first", "last", "backend", "serves")

    def __init__(self, text):
        try:
            self.coll, self.mode, first, last, self.backend, serves = text.split(",")
            self.first, self.last = int(first), int(last)
            self.serves = frozenset(tuple(s.split("/")) for s in serves.split())
        except (ValueError, AttributeError):
            raise TableError(f"row {text!r} is not understood") from None
        if (self.mode not in MODES or not 0 < self.first <= self.last or not self.backend or not self.serves or
                any(len(s) != 2 or s[0] not in DTYPES or s[1] not in PLACES for s in self.serves)):
            raise TableError(f"row {text!r} is not understood")


class Table:
    def __init__(self, engine, ranks, rows, digest):
        self.engine, self.ranks, self.rows, self.hash = engine, ranks, rows, digest

    def choices(self, coll, mode, dtype):
        """[(first, last, row)] in order of size; rows that name no place of this type are left out."""
        found = sorted(((r.first, r.last, r) for r in self.rows
                        if r.coll == coll and r.mode == mode and any(t == dtype for t, _ in r.serves)), key=lambda c: c[:2])
        for before, after in zip(found, found[1:]):
            if after[0] <= before[1]:
                raise TableError(f"rows for {coll} {mode} {dtype} overlap at {after[0]} bytes")
        return found


def digest_of(engine, ranks, rows):
    return hashlib.sha256("".join(f"{line}\n" for line in (f"{engine},{ranks}", *rows)).encode()).hexdigest()


def parse(text, engine, wanted):
    """The table, when its hash is the one that the job was told, computed anew."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
            raise TableError(f"not a file of {FORMAT} version {VERSION}")
        table = found["table"]
        rows, ranks, whose = table["rows"], table["ranks"], table["engine"]
        if not isinstance(rows, list) or not all(isinstance(r, str) and "\n" not in r for r in rows) or type(ranks) is not int:
            raise TableError("rows or ranks are not understood")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TableError("not JSON with a table") from None
    if whose != engine:
        raise TableError(f"written for {whose}, not for {engine}")
    computed = digest_of(whose, ranks, rows)
    if computed != wanted:
        raise TableError(f"has the hash {computed}, told was {wanted}")
    made = Table(engine, ranks, [Row(r) for r in rows], computed)
    for mode in MODES:
        for dtype in DTYPES:
            made.choices("all_reduce", mode, dtype)
    return made


def load(path, engine, wanted):
    """Reads a regular file of root or of this user that nobody else can write to; no link."""
    try:
        if not os.path.isabs(path):
            raise TableError("not an absolute path")
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as f:
            st = os.fstat(fd)
            if not stat.S_ISREG(st.st_mode) or st.st_mode & 0o022 or st.st_uid not in (0, os.geteuid()):
                raise TableError("not a regular file of root or of this user, or others can write to it")
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise TableError(e.strerror or str(e)) from None
    if len(data) > MAX_BYTES:
        raise TableError("too large")
    return parse(data.decode("utf-8", "replace"), engine, wanted)


class Choice:
    """What serves one type in one mode: look-up by bisect, and how often each row served, was declined, or none was for it."""

    __slots__ = ("firsts", "lasts", "rows", "runners", "served", "declined", "left")

    def __init__(self, choices, runners):
        self.firsts = [c[0] for c in choices]
        self.lasts = [c[1] for c in choices]
        self.rows = [c[2] for c in choices]
        self.runners = runners
        self.served, self.declined, self.left = [0] * len(choices), [0] * len(choices), 0

    def find(self, size):
        """Index of the row, or -1."""
        i = bisect.bisect_right(self.firsts, size) - 1
        return i if i >= 0 and size <= self.lasts[i] else -1
