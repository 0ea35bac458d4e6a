#!/usr/bin/env bash
# Run calls in several threads of two ranks with a module that the thread sanitizer watches: the
# readers, requests and plans in Python, beside the helper. PYTHON is an interpreter that finds han's
# dependencies, beside an mpiexec. Where the sanitizer cannot be loaded, print why.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(command -v "${PYTHON:-python3}")
runtime=$(gcc -print-file-name=libtsan.so)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Memory hooks of UCX, its reads of other processes and addresses at random do not go with it.
cat >"$work/rank" <<EOF
#!/usr/bin/env bash
export UCX_MEM_EVENTS=n UCX_TLS=^cma LD_PRELOAD=$runtime PYTHONPATH=$work/tree
export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536 TSAN_OPTIONS=exitcode=66
exec setarch -R "$python" "\$@"
EOF
chmod +x "$work/rank"
if ! "$work/rank" -c "from mpi4py import MPI" >"$work/reason" 2>&1; then
    echo "native: threads in Python: skipped: $(head -1 "$work/reason")"
    exit
fi
mkdir "$work/tree"
cp -r pyproject.toml setup.py README.md han submodules tasks tuning configs "$work/tree"
rm -f "$work"/tree/han/_native*.so
(cd "$work/tree" && HAN_CFLAGS="-fsanitize=thread -g -O1" \
    "$python" setup.py -q build_ext --inplace >"$work/built" 2>&1) || { cat "$work/built"; exit 1; }
if ! timeout 300 "$(dirname "$python")/mpiexec" -n 2 "$work/rank" tests/native/threads.py \
    >"$work/out" 2>&1; then
    cat "$work/out"
    echo "native: threads in Python: FAILED"
    exit 1
fi
echo "native: threads in Python: passed"
