#!/usr/bin/env bash
# Make the tuned tables that come with han (configs/tuned), on this machine, for the MPI library of
# the mpiexec in PATH: docs/tuning.md. Other programs should not run meanwhile.
#
#   tests/tuning/make_tables.sh node FOLDER NAME            # one node, 2 and 4 ranks
#   tests/tuning/make_tables.sh cluster FOLDER NAME RATE    # 4 emulated nodes of 2 ranks, as root
#
# FOLDER keeps what was measured: runs that are there are not repeated. NAME.json in configs/tuned
# is written in the end, if a choice was confirmed.
set -euo pipefail
kind=$1 folder=$2 name=$3 rate=${4:-}
here=$(cd "$(dirname "$0")/../.." && pwd)
runs=${RUNS:-3} times=${BENCHES:-3}
mkdir -p "$folder"
export HAN_TUNED=off

in_cluster() {
    python "$here/tests/cluster/emulate.py" run --nodes 4 --ppn 2 --rate "$rate" --timeout 290 \
        --env "HAN_TUNED=$HAN_TUNED" -- python -m han "$@"
}

case $kind in
node)
    collectives=(bcast reduce allreduce allgather) sizes=8:8MiB:4 budget=100s
    rounds=(--rounds 15)
    places=(2 4)
    start() { local ranks=$1; shift; mpiexec -n "$ranks" python -m han "$@"; } ;;
cluster)
    # Larger messages are as fast as the links with the built-in choices.
    collectives=(bcast reduce allreduce) sizes=8,64,512,4KiB,16KiB budget=${BUDGET:-150s}
    rounds=(--rounds 21 --time ${TIME:-1.5}) # calls of ranks that share processors vary by a half
    places=(4x2)
    start() { shift; in_cluster "$@"; } ;;
esac

tables=() benches=()
for run in $(seq "$runs"); do
    for place in "${places[@]}"; do
        table=$folder/$name-$place-$run.json
        [ -e "$table" ] || start "$place" tune "$(IFS=,; echo "${collectives[*]}")" $sizes \
            --budget $budget --out "$table"
        tables+=(--table "$table")
    done
done
python -m han tune merge "$folder/$name.json" "${tables[@]}"
export HAN_TUNED=$folder/$name.json
for run in $(seq "$times"); do
    for place in "${places[@]}"; do
        bench=$folder/$name-$place-$run.bench
        [ -e "$bench" ] || start "$place" bench "$(IFS=,; echo "${collectives[*]}")" $sizes --tuned \
            "${rounds[@]}" --json "$bench"
        benches+=(--bench "$bench")
    done
done
out=$here/configs/tuned/$name.json
python -m han tune export "$out" --table "$folder/$name.json" "${benches[@]}"
grep -q '"measured"' "$out" || { rm "$out"; echo "no choice was confirmed, so there is no $out"; }
