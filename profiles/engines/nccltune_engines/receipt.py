"""What the plugin of one process writes down: <folder>/engine-<pid>.<start ticks>.backends, text, renewed as a whole.

    nccltune-backends 1
    process <pid> <start ticks> <boot id> <host>
    engine sglang 0.5.23
    table <hash>
    state on | off: <reason>
    library pynccl <path>
    group tp:0 of 8: on | off: <reason>
    calls tp:0 graph bf16 1024-92681 custom-allreduce served 161 declined 0
    left tp:0 eager bf16 12

Calls are counted when they are made or captured, not when a graph is replayed. The file is renewed when a group comes,
when a count reaches a power of two, and at the process's end. Above MOST of them the oldest of dead processes go.
"""
import atexit
import os
import stat

SUFFIX, MOST = ".backends", 512
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder():
    """Where the C plugins put theirs: NCCLTUNE_RECEIPTS, /run/nccltune/<uid>, XDG_RUNTIME_DIR/nccltune; None: nowhere."""
    uid, runtime = os.geteuid(), os.environ.get("XDG_RUNTIME_DIR")
    named = os.environ.get("NCCLTUNE_RECEIPTS")
    places = [named] if named else [f"/run/nccltune/{uid}"] + ([f"{runtime}/nccltune"] if runtime else [])
    for place in places:
        try:
            if not os.path.isabs(place):
                continue
            if not named and not os.path.lexists(place) and os.path.isdir(os.path.dirname(place)):
                os.mkdir(place, 0o700)
            st = os.lstat(place)
            if stat.S_ISDIR(st.st_mode) and st.st_uid == uid and not st.st_mode & 0o022:
                return place
        except OSError:
            continue
    return None


def start_ticks():
    with open("/proc/self/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[19])


def mapped_libraries():
    """Every libnccl in this process: two lines are two NCCLs with their own settings."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n")[73:].strip() if len(line) > 73 else ""
            name = os.path.basename(path)
            if name.startswith(("libnccl.so", "libmscclpp")) and path not in found:
                found.append(path)
    return found


def age(path):
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:  # another rank tidies, too, and was first
        return 0


def is_dead(path, boot, host):
    """Whether a receipt is of a process that is gone. What cannot be read is left."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=lambda p, _: os.open(p, READ)) as f:
            lines = f.read(512).split("\n")
    except OSError:
        return False
    words = lines[1].split(" ") if len(lines) > 1 else []
    return len(words) == 5 and words[0] == "process" and (words[3] != boot or (
        words[4] == host and not os.path.exists(f"/proc/{words[1]}")))


def tidy(place, boot, host, most=MOST):
    """Removes the oldest receipts of processes that are gone, down to `most`. One of another host may live unseen. The ranks of
    a job do so at the same moment: what another one has removed is no error."""
    names = [n for n in os.listdir(place) if n.endswith(SUFFIX)]
    paths = sorted((os.path.join(place, n) for n in names), key=age)
    for path in paths[:max(len(paths) - most, 0)]:
        if is_dead(path, boot, host):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


class Receipt:
    def __init__(self, engine, told):
        self.engine, self.version, self.told = engine, "unknown", told
        self.state, self.groups, self.libraries, self.path, self.pid = "off: not started", {}, {}, None, None
        atexit.register(self.write)

    def _open(self):
        """Once a process; a forked child has a receipt of its own."""
        self.pid, place = os.getpid(), folder()
        if place is None:
            self.path = None
            return
        ticks = start_ticks()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = f.read().strip()
        host = os.uname().nodename
        self.first = ["nccltune-backends 1", f"process {self.pid} {ticks} {boot} {host}"]
        tidy(place, boot, host)
        self.path = os.path.join(place, f"engine-{self.pid}.{ticks}{SUFFIX}")

    def text(self):
        lines = [*self.first, f"engine {self.engine} {self.version}", f"table {self.told or 'none'}", f"state {self.state}"]
        lines += [f"library {label} {path}" for label, path in sorted(self.libraries.items())]
        lines += [f"library mapped {path}" for path in mapped_libraries()]
        for name, (verdict, choices) in self.groups.items():
            lines.append(f"group {name}: {verdict}")
            for dtype, mode, c in choices:
                lines += [f"calls {name.split(' ')[0]} {mode} {dtype} {row.first}-{row.last} {row.backend} served {s} declined {d}"
                          for row, s, d in zip(c.rows, c.served, c.declined) if s or d]
                if c.left:
                    lines.append(f"left {name.split(' ')[0]} {mode} {dtype} {c.left}")
        return "\n".join(line.replace("\n", " ") for line in lines) + "\n"

    def write(self):
        """Never raises: a receipt that cannot be written is no reason to stop an engine."""
        try:
            if self.pid != os.getpid():
                self._open()
            if self.path is None:
                return
            data = self.text().encode()
            fresh = f"{self.path}.new"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                whole = os.write(fd, data) == len(data)  # a part of it: the disk is full
            except OSError:
                whole = False
            finally:
                os.close(fd)
            if not whole:  # the last one that was whole stays
                os.unlink(fresh)
                return
            os.rename(fresh, self.path)
        except (OSError, ValueError):
            self.path = None
