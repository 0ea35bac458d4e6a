#!/usr/bin/env bash
# Build and run the tests of the C core: plain, under the address and undefined-behaviour
# sanitizers, and under the thread sanitizer. CC and PYTHON choose the compiler and the
# interpreter (which must find han and mpi4py, but starts no MPI).
set -euo pipefail
cd "$(dirname "$0")/../.."

for cc in ${CC:-gcc clang cc}; do
    command -v "$cc" >/dev/null && break
done
command -v "$cc" >/dev/null || { echo "native: no C compiler (gcc or clang) found"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# these tests use small pieces: code for large pieces starts at smaller sizes
flags=(-DHAN_STRING_LEAST=64 -DHAN_WAYS_LEAST=1024 -DOUT_STEP=512 -DSLEEP_YIELDS=1 -DOWN_LEAST=128
    -DHAN_WALK_PAGE=256 -DHAN_WALK_STEP=64 -DHAN_WALK_LEAST=1024 -DHAN_RING_LEAST=1024
    -std=c11 -g -Wall -Wextra -Werror -pthread -I"$PWD/han/native" -I"$PWD/tests/native")
sources=("$PWD"/tests/native/{mailbox,programs,group}.c)
for file in "$PWD"/han/native/{,*/}*.c; do # all that does not need Python
    [[ $file == */py_*.c ]] || sources+=("$file")
done

# at_once COMMAND...: run a command for each line of the input, one on each core at a time
at_once() {
    xargs -P "$(nproc)" -I{} "$@"
}

# try TEST ROUNDS FLAGS...: build a test and run it
try() {
    local test=$1 rounds=$2
    shift 2
    "$cc" "$@" "tests/native/test_$test.c" "$work"/*.o -o "$work/$test" -ldl -lm || exit 255
    "$work/$test" "$work/programs" "$rounds" >"$work/$test.log" 2>&1 && return
    cat "$work/$test.log"
    echo "native: test_$test FAILED"
    exit 255 # xargs starts no other
}
export -f try
export cc work

# stage NAME ROUNDS TESTS FLAGS...: build these tests with these flags and run them
stage() {
    local name=$1 rounds=$2 tests=$3 begun=$SECONDS
    shift 3
    rm -f "$work"/*.o
    (cd "$work" && printf '%s\n' "${sources[@]}" | at_once "$cc" "${flags[@]}" "$@" -c {})
    if ! tr ' ' '\n' <<<"$tests" | at_once bash -c 'try "$@"' _ {} "$rounds" "${flags[@]}" "$@"; then
        echo "native: $name: FAILED"
        return 1
    fi
    echo "native: $name: ${tests// /, } ($rounds calls a machine): passed ($cc, $((SECONDS - begun)) s)"
}

# works FLAGS...: succeed if a program with these sanitizers can be built and started
works() {
    echo 'int main(void) { return 0; }' >"$work/probe.c"
    "$cc" "$@" "$work/probe.c" -o "$work/probe" >"$work/reason" 2>&1 &&
        "$work/probe" >"$work/reason" 2>&1
}

# sanitized NAME ROUNDS TESTS FLAGS...: run a stage, or print why it cannot run. String instructions
# are replaced by memcpy, because sanitizers do not see the accesses of assembly.
sanitized() {
    local name=$1 rounds=$2 tests=$3
    shift 3
    if works "$@"; then
        stage "$name" "$rounds" "$tests" -O1 -DHAN_STRINGS_BY_MEMCPY "$@"
    else
        echo "native: $name: skipped: $cc: $(head -1 "$work/reason")"
    fi
}

"${PYTHON:-python3}" tests/native/dump_programs.py "$work/programs"
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
for file in tests/native/bench_*.c; do # which are run by hand
    "$cc" "${flags[@]}" -O2 -c "$file" -o /dev/null
done
# both kinds of processor on any machine: with and without a mesh
stage plain 1000 "kernels arena agreement errors patience choice trials announced stores executor" -O2 -DHAN_MESH=false
sanitized "address and undefined behaviour" 200 "kernels arena agreement errors choice trials announced stores executor" \
    -fsanitize=address,undefined -fno-sanitize-recover=all -DHAN_MESH=true
stage "as without quick strings" 200 "kernels stores executor" -O2 -DHAN_NO_STRINGS -DHAN_MESH=false
stage "as on a mesh without them" 100 "kernels executor" -O2 -DHAN_NO_STRINGS -DHAN_MESH=true
sanitized threads 60 "arena agreement errors choice trials announced stores executor" -fsanitize=thread -DHAN_MESH=true
