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
flags=(-std=c11 -g -Wall -Wextra -Werror -pthread -Ihan/native -Itests/native)
core=(han/native/engine.c han/native/executor.c han/native/mpi_table.c han/native/kernels*.c)
harness=(tests/native/mailbox.c tests/native/programs.c tests/native/group.c)

# stage NAME ROUNDS FLAGS...: build all tests with these flags and run them
stage() {
    local name=$1 rounds=$2 log="$work/log" test begun=$SECONDS
    shift 2
    for test in kernels errors executor; do
        "$cc" "${flags[@]}" "$@" "tests/native/test_$test.c" "${harness[@]}" "${core[@]}" \
            -o "$work/$test" -ldl -lm
        if ! "$work/$test" "$work/programs" "$rounds" >"$log" 2>&1; then
            cat "$log"
            echo "native: $name: test_$test FAILED"
            return 1
        fi
    done
    echo "native: $name: kernels, errors, $rounds x $(wc -l <"$log") calls: passed ($cc, $((SECONDS - begun)) s)"
}

# works FLAGS...: whether the compiler has the sanitizer's runtime, and it starts here
works() {
    echo 'int main(void) { return 0; }' >"$work/probe.c"
    "$cc" "$@" "$work/probe.c" -o "$work/probe" >"$work/reason" 2>&1 &&
        "$work/probe" >"$work/reason" 2>&1
}

# sanitized NAME ROUNDS FLAGS...: a stage, or the reason why there is none
sanitized() {
    local name=$1 rounds=$2
    shift 2
    if works "$@"; then
        stage "$name" "$rounds" -O1 "$@"
    else
        echo "native: $name: skipped: $cc: $(head -1 "$work/reason")"
    fi
}

"${PYTHON:-python3}" tests/native/dump_programs.py "$work/programs"
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
stage plain 1000 -O3
sanitized "address and undefined behaviour" 300 -fsanitize=address,undefined -fno-sanitize-recover=all
sanitized threads 100 -fsanitize=thread
