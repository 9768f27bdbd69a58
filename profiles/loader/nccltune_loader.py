# Sets the variables of the machine's active profile when an interpreter starts.
#
# Imported by nccltune.pth (or nccltune.start), or by the sitecustomize.py beside it for PYTHONPATH. Whether the
# profile fits this machine was decided when the file was written; here nothing is decided but whether it is
# still that file and that boot. It applies whole or not at all, it never raises, never prints, and imports
# nothing that a bare start has not imported.
#
#     nccltune-active 1
#     boot=<contents of /proc/sys/kernel/random/boot_id>
#     NAME=VALUE          set if unset
#     !NAME=VALUE         set in any case
#
# The file is /run/nccltune/active, or the one that NCCLTUNE_ACTIVE names (not under -E or -I): a regular file
# of root or of this user that nobody else can write to, in folders of which the same is true. NCCLTUNE_DISABLE=1 turns everything off. A process that
# was already told of a profile (NCCLTUNE_PROFILE is set) is left as it is: one decision per job.
#
# Every start of every interpreter pays for what is written here, and for the memory that it touches: hence no
# more code than it takes, bytes, as the environment holds them, and comments where others have docstrings.
import os
import sys

ACTIVE = b"/run/nccltune/active"
BOOT_ID = b"/proc/sys/kernel/random/boot_id"
MAX_BYTES = 65536
PLAIN = (b"\n !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
         b"[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~")
PREFIXES = (b"NCCL_", b"TORCH_NCCL_", b"TORCH_SYMM_MEM_", b"SGLANG_", b"VLLM_", b"NVSHMEM_")
NEVER = (b"_FILE", b"_SO_PATH", b"HOSTID", b"COMM_ID", b"_PLUGIN")
PLUGINS = (b"NCCL_TUNER_PLUGIN", b"NCCL_ENV_PLUGIN", b"NCCL_PROFILER_PLUGIN")  # our libraries only
# Hash and path: of the profile, and of an engine's backends, which need not be there.
OURS = (b"NCCLTUNE_PROFILE", b"NCCLTUNE_TABLE", b"NCCLTUNE_BACKENDS", b"NCCLTUNE_BACKENDS_TABLE")


# Contents of a file; with `checked` only of a regular one that nobody else can write to.
def _read(path, checked):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        st = os.fstat(fd)
        if checked and (st.st_mode & 0o170022 != 0o100000 or st.st_uid not in (0, os.geteuid()) or st.st_size > MAX_BYTES):
            raise ValueError
        return os.read(fd, st.st_size or 64)  # 0: the boot id
    finally:
        os.close(fd)


# That nobody else can exchange what a path names: every folder above it is root's or this user's, no link, and
# not for others to write to, except root's with the sticky bit, as /tmp. (/run is root's: not asked there.)
def _trusted(path):
    if path[:1] != b"/":
        raise ValueError
    at = path.rfind(b"/")
    while at > 0:
        st = os.lstat(path[:at])
        allowed = 0o022 if st.st_uid == 0 and st.st_mode & 0o1000 else 0
        if st.st_mode & 0o170022 & ~allowed != 0o040000 or st.st_uid not in (0, os.geteuid()):
            raise ValueError
        at = path.rfind(b"/", 0, at)
    return path


def _apply():
    env = os.environb
    has = getattr(env, "_data", env)  # the dictionary behind it, which says ten times faster that a name is missing
    if has.get(b"NCCLTUNE_DISABLE", b"") not in (b"", b"0") or has.get(b"NCCLTUNE_PROFILE"):
        return
    named = not sys.flags.ignore_environment and has.get(b"NCCLTUNE_ACTIVE")
    data = _read(_trusted(named) if named else ACTIVE, True)
    head = b"nccltune-active 1\nboot=" + _read(BOOT_ID, False).strip() + b"\n"
    if not data.startswith(head) or not data.endswith(b"\n") or data.lstrip(PLAIN):
        return
    told = []
    todo = {}
    marker = {b"set=": [], b"kept=": [], b"same=": [], b"overrode=": []}
    for line in data[len(head):-1].split(b"\n"):
        name, _, value = line.partition(b"=")
        override = name[:1] == b"!"
        if override:
            name = name[1:]
        if name.startswith(PREFIXES) and not name.endswith(NEVER):
            good = value
        elif name in OURS:
            told.append(name)
            good = value[:1] == b"/" if name.endswith(b"_TABLE") else len(value) == 64
        else:
            file = b"/libnccl-" + name[5:-7].lower() + b"-nccltune.so"
            good = name in PLUGINS and value[:1] == b"/" and value.endswith(file)
        if not good:  # a line that is not understood spoils the file
            return
        user = has.get(name)
        if user is None or override and user != value:
            todo.setdefault(name, value)
            what = b"set=" if user is None else b"overrode="
        elif user == value:
            what = b"same="
        elif name == b"NCCL_TUNER_PLUGIN":
            return  # another tuner is never replaced, and the rest was confirmed with ours
        else:
            what = b"kept="
        marker[what].append(name)
    if OURS[0] not in told or OURS[1] not in told or (OURS[2] in told) != (OURS[3] in told):
        return
    for name, value in todo.items():
        env[name] = value
    env[b"NCCLTUNE_LOADER"] = b" ".join([k + b",".join(v) for k, v in marker.items() if v])


# For nccltune.start too, where it does nothing more: the import has done it.
def start():
    try:
        _apply()
    except Exception:  # a start that fails because of us would be worse than one without a profile
        pass


start()
