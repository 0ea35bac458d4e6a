#!/usr/bin/env bash
# Build and run the tests of the C core: plain, under the address and undefined-behaviour
# sanitizers, and under the thread sanitizer. CC and PYTHON choose the compiler and the
# interpreter (which must find han and mpi4py, but starts no MPI).
#
# Threads of a test often wait for each other, so tests of all builds run beside each other.
set -euo pipefail
cd "$(dirname "$0")/../.."

for cc in ${CC:-gcc clang cc}; do
    command -v "$cc" >/dev/null && break
done
command -v "$cc" >/dev/null || { echo "native: no C compiler (gcc or clang) found"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# these tests use small pieces: code for large pieces starts at smaller sizes
flags="-DHAN_STRING_LEAST=64 -DHAN_WAYS_LEAST=1024 -DOUT_STEP=512 -DSLEEP_YIELDS=1 -DOWN_LEAST=128
    -DHAN_WALK_PAGE=256 -DHAN_WALK_STEP=64 -DHAN_WALK_LEAST=1024 -DHAN_RING_LEAST=1024
    -std=c11 -g -Wall -Wextra -Werror -pthread -Ihan/native -Itests/native"
sources=(tests/native/{mailbox,programs,group}.c)
for file in han/native/{,*/}*.c; do # all that needs neither Python nor an MPI library
    [[ $file == */py_*.c || $file == */door/* ]] || sources+=("$file")
done
builds=() # what each says when it has passed

# build NAME ROUNDS TESTS FLAGS...: add a build, and its tests, which make so many calls a machine.
# The first tests of all builds start first, so these should be those that take longest.
build() {
    local number=${#builds[@]} name=$1 rounds=$2 tests=$3
    shift 3
    builds+=("$name: ${tests// /, } ($rounds calls a machine)")
    mkdir -p "$work/$number/tests"
    echo $flags "$@" >"$work/$number/flags"
    for file in "${sources[@]}"; do
        if [[ ${like_first:-} ]] && ! grep -qE "HAN_MESH|HAN_NO_STRINGS" "$file"; then
            ln -s "../0/${file//\//-}.o" "$work/$number"
        else
            echo "$number $file ${file//\//-}.o"
        fi
    done >>"$work/sources"
    for test in $tests; do
        echo "$number tests/native/test_$test.c tests/$test.o" >>"$work/sources"
        case $test in
        executor) printf "$number $rounds $test %s 3\n" 0 1 2 ;; # each runs a third of the machines
        *) echo "$number $rounds $test" ;;
        esac
    done | cat -n >>"$work/tests"
}

# as_first NAME ROUNDS TESTS FLAGS...: add a build that takes the first one's objects of all files that
# do not name the macros in which both differ
as_first() {
    local like_first=yes
    build "$@"
}

# works FLAGS...: succeed if a program with these sanitizers can be built and started
works() {
    echo 'int main(void) { return 0; }' >"$work/probe.c"
    "$cc" "$@" "$work/probe.c" -o "$work/probe" >"$work/reason" 2>&1 &&
        "$work/probe" >"$work/reason" 2>&1
}

# sanitized NAME ROUNDS TESTS FLAGS...: add a build, or print why it cannot run. String instructions
# are replaced by memcpy, because sanitizers do not see the accesses of assembly.
sanitized() {
    local name=$1 rounds=$2 tests=$3
    shift 3
    if works "$@"; then
        build "$name" "$rounds" "$tests" -O1 -DHAN_STRINGS_BY_MEMCPY "$@"
    else
        echo "native: $name: skipped: $cc: $(head -1 "$work/reason")"
    fi
}

# compile BUILD FILE OBJECT
compile() {
    "$cc" $(<"$work/$1/flags") -c "$2" -o "$work/$1/$3" || exit 255
}

# try BUILD ROUNDS TEST [SHARE SHARES]: link a test and run it
try() {
    local place=$work/$1 rounds=$2 test=$3 own
    own=$place/$test${4:-}
    "$cc" $(<"$place/flags") "$place/tests/$test.o" "$place"/*.o -o "$own" -ldl -lm || exit 255
    "$own" "$work/programs" "$rounds" "${@:4}" >"$own.log" 2>&1 && return
    cat "$own.log"
    echo "native: test_$test FAILED, built with $(<"$place/flags")"
    exit 255 # xargs starts no other
}

# at_once N COMMAND: run a command for each line of the input, N of them at a time
at_once() {
    xargs -P "$1" -L 1 bash -c "$2 \"\$@\"" _
}
export -f compile try
export cc work
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

"${PYTHON:-python3}" tests/native/dump_programs.py "$work/programs" &
# both kinds of processor on any machine: with and without a mesh
build plain 1000 "executor loops kernels arena agreement errors patience choice trials stores" -O2 -DHAN_MESH=false
sanitized "address and undefined behaviour" 200 "executor loops kernels arena agreement errors choice trials stores" \
    -fsanitize=address,undefined -fno-sanitize-recover=all -DHAN_MESH=true
as_first "as without quick strings" 200 "executor kernels stores" -O2 -DHAN_NO_STRINGS -DHAN_MESH=false
as_first "as on a mesh without them" 100 "executor kernels" -O2 -DHAN_NO_STRINGS -DHAN_MESH=true
sanitized threads 60 "executor arena agreement errors choice trials stores" -fsanitize=thread -DHAN_MESH=true

for file in tests/native/bench_*.c; do # which are run by hand
    "$cc" $flags -O2 -c "$file" -o /dev/null
done
at_once "$(nproc)" compile <"$work/sources"
wait $! # for the programs
begun=$SECONDS
if ! sort -n "$work/tests" | cut -f 2- | at_once $((2 * $(nproc))) try; then
    echo "native: FAILED"
    exit 1
fi
for name in "${builds[@]}"; do
    echo "native: $name: passed ($cc)"
done
echo "native: $((SECONDS - begun)) s after $begun s of compiling"
