# Sourced by scripts/node and scripts/rigs with OUT SECONDS PREFIX STEP...: what the two have in common. They set `limit` and `steps`
# before; here are out, limit, prefix, program, plugin, lease and the helpers, of which run_steps comes last.
out=${1:?usage: $0 OUT [SECONDS [PREFIX [STEP...]]]} limit=${2:-$limit} prefix=${3:-}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
if [ -n "$prefix" ]; then
    program=$prefix/bin/nccltune plugin=$(cd "$prefix" && pwd)/lib/nccltune/libnccl-tuner-nccltune.so
else
    program=build/release/tuner/cli/nccltune plugin=$PWD/build/release/profiles/plugin/libnccl-tuner-nccltune.so
fi
export NCCLTUNE_DB=$out/nccltune.db
lease=${NCCLTUNE_LEASE:-a}
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
gpu_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr 'A-Z' 'a-z' | sed 's/nvidia //; s/[^a-z0-9]//g')
shift $(($# < 3 ? $# : 3))
wanted_steps=("$@")

# step LEAST MOST WORDS...: runs them with at most MOST seconds, if at least LEAST are left.
step()
{
    local least=$1 most=$2 left=$((limit - SECONDS)) start=$SECONDS rc
    shift 2
    if [ $left -lt "$least" ]; then
        echo "left out, $left s left: $*" | tee -a "$out/left-out.txt"
        return 9
    fi
    [ $left -ge "$most" ] || most=$left
    echo "== $* (at most $most s)"
    timeout -s INT -k 10 "$most" "$@"
    rc=$?
    echo "-- $((SECONDS - start)) s, exit code $rc"
    return $rc
}

topo()
{
    nvidia-smi >"$out/nvidia-smi.txt"
    "$program" topo | tee "$out/topo.txt"
    "$program" topo --format json >"$out/topo.json"
}

# within SECONDS MARGIN: that much, or what is left without MARGIN.
within()
{
    local left=$((limit - SECONDS - $2))
    echo $((left < $1 ? left : $1))
}

# job NAME SECONDS SIZES OPTIONS...: a whole job and its profile as text.
job()
{
    local name=$1 budget sizes=$3
    budget=$(within "$2" 15)
    shift 3
    step 60 $((budget + 20)) "$program" tune --sizes "$sizes" --budget "${budget}s" --out "$out/$name.json" "$@" 2>&1 |
        tee "$out/$name.log"
    [ ! -e "$out/$name.json" ] || "$program" show "$out/$name.json" | tee "$out/$name.txt"
}

# recording NAME SECONDS SIZES OPTIONS...
recording()
{
    local name=$1 budget sizes=$3
    budget=$(within "$2" 10)
    shift 3
    step 60 $((budget + 40)) "$program" record "$out/$name-$lease.csv.gz" --lease "$lease" --sizes "$sizes" --gangs 12 \
        --budget "${budget}s" "$@" 2>&1 | tee "$out/$name.log"
}

# Those that were named, all unless told, and what came of them.
run_steps()
{
    local wanted
    [ ${#wanted_steps[@]} -gt 0 ] || wanted_steps=("${steps[@]}")
    for wanted in "${wanted_steps[@]}"; do
        case " ${steps[*]} " in
        *" $wanted "*) "$wanted" ;;
        *) echo "$0: no step '$wanted'; there are: ${steps[*]}"; exit 2 ;;
        esac
    done
    ls -l "$out"
}
