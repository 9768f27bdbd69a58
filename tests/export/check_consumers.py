#!/usr/bin/env python3
"""check_consumers.py NCCLTUNE SAMPLE_PROGRAM: every export form, read by what really consumes it.

A consumer that is not installed is skipped and named; a form without any reader fails.
"""
import base64
import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NCCLTUNE, SAMPLE = sys.argv[1], sys.argv[2]
LIBNCCL = os.environ.get("NT_LIBNCCL", "libnccl.so.2")
STATIC = {"NCCL_ALGO": "allreduce:tree,ring;allgather:ring", "NCCL_BUFFSIZE": "8388608"}
checked, skipped = [], []


def export(profile, form, *options):
    return subprocess.run([NCCLTUNE, "export", profile, "--format", form, *options], check=True, capture_output=True,
                          text=True).stdout


def expect(form, consumer, got, want):
    if got != want:
        sys.exit(f"{form} read by {consumer}:\n  got  {got}\n  want {want}")
    checked.append(f"{form} by {consumer}")


def ours(env, extra=()):
    return {k: v for k, v in env.items() if k.startswith("NCCL") or k in extra}


def by_shell(shell, path, automatic):
    script = f"{'set -a; ' if automatic else ''}. {path}; env -0"
    out = subprocess.run([shell, "-euc", script], check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    return dict(v.split("=", 1) for v in out.stdout.decode().split("\0") if "=" in v)


def by_nccl_rules(path):
    """setEnvFile of NCCL's src/misc/param.cc before 2.26: any line with '=' is an assignment."""
    env = {}
    for line in path.read_text().split("\n"):
        name, eq, value = line.partition("=")
        if eq:
            env.setdefault(name[:1023], value[:1023])
    return env


def by_libnccl(path):
    """The library itself: it reads the file at the first call and puts it into the environment."""
    code = ("import ctypes,os,sys\n"
            "lib=ctypes.CDLL(sys.argv[1]); lib.ncclGetUniqueId(ctypes.create_string_buffer(128))\n"
            "libc=ctypes.CDLL(None); libc.getenv.restype=ctypes.c_char_p\n"
            "for n in sys.argv[2:]:\n"
            "  v=libc.getenv(n.encode()); print(n+'='+(v or b'').decode())\n")
    out = subprocess.run([sys.executable, "-c", code, LIBNCCL, *STATIC], capture_output=True, text=True, timeout=60,
                         env={"NCCL_CONF_FILE": str(path), "PATH": os.environ["PATH"], "NCCL_RAS_ENABLE": "0",
                              "NCCL_SOCKET_IFNAME": "lo"})
    return dict(line.split("=", 1) for line in out.stdout.splitlines()) if out.returncode == 0 else None


def by_docker_rules(path):
    """docker/cli opts/envfile: blanks at the start of a line go, '#' starts a comment, the value is taken as it is."""
    env = {}
    for line in path.read_text().split("\n"):
        line = line.lstrip()
        if line and not line.startswith("#"):
            name, eq, value = line.partition("=")
            if not eq or any(c.isspace() for c in name):
                sys.exit(f"docker would refuse: {line}")
            env[name] = value
    return env


def by_systemd(dropin, folder):
    """A unit with the drop-in, verified by systemd-analyze, then read by systemd's rules of quoting."""
    unit = folder / "nccltune-test.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    (folder / "nccltune-test.service.d").mkdir()
    shutil.copy(dropin, folder / "nccltune-test.service.d" / "nccltune.conf")
    if shutil.which("systemd-analyze"):
        out = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
        words = [line for line in out.stderr.splitlines() if "nccltune" in line]
        if words:
            sys.exit("systemd-analyze: " + "\n".join(words))
        checked.append("systemd by systemd-analyze verify")
    else:
        skipped.append("systemd-analyze")
    env = {}
    for line in dropin.read_text().splitlines():
        if line.startswith("Environment="):
            word = line.removeprefix("Environment=")
            if not (word.startswith('"') and word.endswith('"')) or "\\" in word:
                sys.exit(f"systemd: {line}")
            name, _, value = word[1:-1].replace("%%", "%").partition("=")
            env[name] = value
    return env


def table_env(folder, table_dir=None):
    files = list(folder.glob("*.nctable"))
    assert len(files) == 1, files
    digest = hashlib.sha256(files[0].read_bytes()).hexdigest()
    assert files[0].name == digest + ".nctable", "the file's name is its hash"
    assert files[0].stat().st_mode & 0o022 == 0, "others may not write it"
    return {"NCCL_BUFFSIZE": "8388608", "NCCL_MIN_NCHANNELS": "16",
            "NCCL_TUNER_PLUGIN": "/usr/local/lib/nccltune/libnccl-tuner-nccltune.so", "NCCLTUNE_PROFILE": digest,
            "NCCLTUNE_TABLE": f"{table_dir or folder}/{digest}.nctable"}


def check_lines(folder, profile):
    """Forms of a line a variable, both products."""
    def file_of(form, *options):
        path = folder / f"{form}{''.join(options[:1])}"
        path.write_text(export(profile, form, "--dir", str(folder), *options))
        return path
    for product, want in ((("--static",), STATIC), ((), None)):
        for form in ("env", "sh", "slurm", "nccl-conf", "docker", "systemd"):
            path = file_of(form, *product)
            if product:
                contained = want
            else:
                contained = table_env(folder, "/etc/nccltune" if form == "docker" else None)
            if form in ("env", "sh", "slurm"):
                extra = ("SLURM_EXPORT_ENV",) if form == "slurm" else ()
                value = {**contained, **({"SLURM_EXPORT_ENV": "ALL"} if extra else {})}
                for shell in ("bash", "dash"):
                    if shutil.which(shell):
                        expect(form, shell, ours(by_shell(shell, path, form == "env"), extra), value)
                    else:
                        skipped.append(shell)
            elif form == "nccl-conf":
                expect(form, "NCCL's rules", by_nccl_rules(path), contained)
                if product:
                    got = by_libnccl(path)
                    if got is None:
                        skipped.append("libnccl")
                    else:
                        expect(form, "libnccl", got, contained)
            elif form == "docker":
                expect(form, "Docker's rules", by_docker_rules(path), contained)
            else:
                with tempfile.TemporaryDirectory() as unit:
                    expect(form, "systemd's rules", by_systemd(path, pathlib.Path(unit)), contained)


def check_documents(folder, profile):
    table = table_env(folder)
    expect("json", "json", json.loads(export(profile, "json", "--dir", str(folder)))["env"], table)
    expect("json static", "json", json.loads(export(profile, "json", "--static"))["env"], STATIC)
    ray = json.loads(export(profile, "ray", "--dir", str(folder)))
    expect("ray", "json", ray, {"env_vars": table})
    rows = [line for line in export(profile, "tuner-csv").splitlines() if not line.startswith("#")]
    expect("tuner-csv", "NVIDIA's columns", [len(r.split(",")) for r in rows], [10, 10])
    check_yaml(profile, table)


def check_yaml(profile, table):
    try:
        import yaml
    except ImportError:
        skipped.append("yaml")
        return
    text = export(profile, "k8s")
    config = yaml.safe_load(text)
    want = {**table, "NCCLTUNE_TABLE": f"/etc/nccltune/{table['NCCLTUNE_PROFILE']}.nctable"}
    expect("k8s", "YAML data", config["data"], want)
    assert all(isinstance(v, str) for v in config["data"].values())
    (name, content), = config["binaryData"].items()
    digest = hashlib.sha256(base64.b64decode(content, validate=True)).hexdigest()
    expect("k8s", "base64", (name, digest), (table["NCCLTUNE_PROFILE"] + ".nctable", table["NCCLTUNE_PROFILE"]))
    pod = yaml.safe_load("\n".join(line[2:] for line in text[text.index("# spec:"):].splitlines()))
    container, = pod["spec"]["containers"]
    mount, = container["volumeMounts"]
    expect("k8s pod", "YAML", (mount["mountPath"], mount["subPath"], container["envFrom"][0]["configMapRef"]["name"]),
           (want["NCCLTUNE_TABLE"], name, config["metadata"]["name"]))
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    static = yaml.safe_load(export(profile, "k8s", "--static"))
    expect("k8s static", "YAML", static["data"], STATIC)
    assert "binaryData" not in static


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        profile = str(folder / "profile.json")
        pathlib.Path(profile).write_text(subprocess.run([SAMPLE], check=True, capture_output=True, text=True).stdout)
        check_lines(folder, profile)
        check_documents(folder, profile)
    print(f"{len(checked)} readings equal; not installed here: {', '.join(sorted(set(skipped))) or 'nothing'}")


main()
