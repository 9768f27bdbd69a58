"""Sets the variables of the machine's active profile when an interpreter starts.

Imported by nccltune.pth (or nccltune.start), or by the sitecustomize.py beside it for PYTHONPATH. Whether the
profile fits this machine was decided when the file was written; here nothing is decided but whether it is
still that file and that boot. It applies whole or not at all, it never raises, never prints, and imports
nothing that a bare start has not imported.

    nccltune-active 1
    boot=<contents of /proc/sys/kernel/random/boot_id>
    NAME=VALUE          set if unset
    !NAME=VALUE         set in any case

The file is /run/nccltune/active, or the one that NCCLTUNE_ACTIVE names (not under -E or -I): a regular file
of root or of this user that nobody else can write to. NCCLTUNE_DISABLE=1 turns everything off. A process that
was already told of a profile (NCCLTUNE_PROFILE is set) is left as it is: one decision per job.
"""
import os
import sys

ACTIVE = "/run/nccltune/active"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_BYTES = 65536
PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_", "SGLANG_", "VLLM_", "NVSHMEM_")
NEVER = ("_FILE", "_SO_PATH", "HOSTID", "COMM_ID")
OURS = ("NCCLTUNE_PROFILE", "NCCLTUNE_TABLE")
BACKENDS = ("NCCLTUNE_BACKENDS", "NCCLTUNE_BACKENDS_TABLE")  # of an engine's plugin: both or neither
PLUGINS = {"NCCL_%s_PLUGIN" % k.upper(): "libnccl-%s-nccltune.so" % k for k in ("tuner", "env", "profiler")}


def _read(path, limit, checked):
    """Contents of a file; with `checked` only of a regular one that nobody else can write to."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if checked:
            st = os.fstat(fd)
            if st.st_mode & 0o170000 != 0o100000 or st.st_mode & 0o022 or st.st_uid not in (0, os.geteuid()):
                raise ValueError
        data = os.read(fd, limit + 1)
        if len(data) > limit:
            raise ValueError
        return data.decode("ascii")
    finally:
        os.close(fd)


def _allowed(name, value):
    if name in PLUGINS:  # no other library than ours
        return value[0] == "/" and value.rpartition("/")[2] == PLUGINS[name]
    if name in OURS or name in BACKENDS:
        return value[0] == "/" if name.endswith("_TABLE") else len(value) == 64
    return name.startswith(PREFIXES) and not name.endswith(NEVER) and not name.endswith("_PLUGIN")


def _parse(text, boot):
    """[(override, name, value)], or ValueError: a line that is not understood spoils the file."""
    lines = text.split("\n")
    if lines[:2] != ["nccltune-active 1", "boot=" + boot.strip()] or lines.pop() != "":
        raise ValueError
    found = []
    for line in lines[2:]:
        override = line[:1] == "!"
        name, _, value = line[override:].partition("=")
        if not value or not value.isprintable() or not _allowed(name, value):
            raise ValueError
        found.append((override, name, value))
    names = {name for _, name, _ in found}
    if not set(OURS) <= names or len(names.intersection(BACKENDS)) == 1:
        raise ValueError
    return found


def _apply():
    env = os.environ
    if env.get("NCCLTUNE_DISABLE", "") not in ("", "0") or env.get("NCCLTUNE_PROFILE"):
        return
    path = ACTIVE if sys.flags.ignore_environment else env.get("NCCLTUNE_ACTIVE") or ACTIVE
    text = _read(path, MAX_BYTES, True)
    found = _parse(text, _read(BOOT_ID, 64, False))
    for override, name, value in found:
        if name == "NCCL_TUNER_PLUGIN" and not override and env.get(name, value) != value:
            return  # another tuner is never replaced, and the rest was confirmed with ours
    marker = {"set": [], "kept": [], "same": [], "overrode": []}
    for override, name, value in found:
        user = env.get(name)
        if user is None or (override and user != value):
            env[name] = value
        marker["set" if user is None else "same" if user == value else "overrode" if override else "kept"].append(name)
    env["NCCLTUNE_LOADER"] = " ".join("%s=%s" % (k, ",".join(v)) for k, v in marker.items() if v)


def start():
    """For nccltune.start; the import has done it already."""


try:
    _apply()
except Exception:  # a start that fails because of us would be worse than one without a profile
    pass
