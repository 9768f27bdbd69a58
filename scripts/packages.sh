# shellcheck shell=bash
# What building and checking need, by Debian's names; sourced by scripts/test, scripts/quickstart and .ci/run.
# CUDA and NCCL are not among them: without them only the NCCL probe is not built.

# shellcheck disable=SC2034 # used by those who source this
packages_build=(cmake ninja-build pkg-config gcc libc6-dev libuv1-dev libsqlite3-dev libjansson-dev libexpat1-dev
    libmd-dev zlib1g-dev libyaml-dev libmicrohttpd-dev python3)
packages_test=(libcmocka-dev python3-jsonschema clang-format chromium) # chromium: the dashboard's test goes through it
packages_ci=(clang clang-tidy libclang-rt-dev)

# install_packages NAME...: installs those that are missing and says which; silent when none is. Returns 3 when it
# may not or cannot.
install_packages()
{
    local missing=() as_root=() log name
    if ! command -v dpkg-query >/dev/null; then
        echo "not a Debian system, nothing installed; needed, under whatever names they have here: $*"
        return 0
    fi
    for name; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing, and neither root nor sudo here: apt-get install ${missing[*]}" >&2
            return 3
        fi
        as_root=(sudo)
    fi
    echo "installing: ${missing[*]}"
    log=$(mktemp)
    # An update may fail where one of several sources cannot be reached: the installation decides.
    { "${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
          --no-install-recommends install "${missing[@]}"; } >"$log" 2>&1 && { rm -f "$log"; return 0; }
    cat "$log" >&2
    rm -f "$log"
    echo "could not install: ${missing[*]}" >&2
    return 3
}
