#!/bin/sh
# The shared library in a program that does not link it: Python, by ctypes; alone, and after torch, which has an OpenMP of its
# own.
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: a sanitizer is loaded before all else"; exit 77; }
. "$(dirname "$0")/cases.sh"
library=$NDP_BUILD_DIR/libndparallel.so
[ -e "$library" ] || { echo "SKIPPED: no $library"; exit 77; }
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -c 'import ctypes' 2>/dev/null || { echo "SKIPPED: no Python with ctypes ($python)"; exit 77; }
make_job
sed -i 's/steps: 6/steps: 3/' job.yaml

# The same losses as those of the program.
run train job.yaml --transport local
code_is 0
sed -n 's,^ *[0-9]*/[0-9]* *\([0-9.]*\) .*,\1,p' out | paste -sd ' ' >losses
lines losses 1 '^[0-9.]+ [0-9.]+ [0-9.]+$'
rm -rf run

# loads PYTHON [CODE]: the library, after the code has run.
loads() {
    case_of "$@"
    interpreter=$1
    shift
    timeout $patience "$interpreter" "$NDP_SOURCE_DIR/tests/cli/library.py" "$library" job.yaml "$@" >out 2>err
    code=$?
    code_is 0
    cmp -s out losses || fail "other losses than the program's: $(cat losses)"
    rm -rf run
}
loads "$python"
torch=${NDP_DUMP_PYTHON:-$python}
if "$torch" -c 'import torch' 2>/dev/null; then
    loads "$torch" "import torch; torch.ones(500, 500) @ torch.ones(500, 500)"
else
    echo "SKIPPED: after torch, which $torch does not have (NDP_DUMP_PYTHON)"
fi

# Processes that join: each transport, alone, where one fails, and where ranks would be threads.
for transport in $(transports); do
    [ "$transport" != local ] || continue
    run launch -n 2 --transport "$transport" -- "$python" "$NDP_SOURCE_DIR/tests/cli/joined.py" "$library" job.yaml
    code_is 0
    cmp -s out losses || fail "other losses than the program's: $(cat losses)"
    run launch -n 2 --transport "$transport" -- "$python" "$NDP_SOURCE_DIR/tests/cli/joined.py" "$library" job.yaml fail
    [ "$code" = 1 ] || [ "$code" = 2 ] || fail "exit code $code" # that of either rank
    says err "^rank 1: .*unknown key 'rate' in 'optimizer'"
    lines err 1 '^rank [01]:'
done
joins() {
    case_of "$@"
    timeout $patience "$python" "$NDP_SOURCE_DIR/tests/cli/joined.py" "$library" "$@" >out 2>err
    code=$?
}
joins job.yaml
code_is 2
says err 'the layout needs 2 ranks, and a process that joins is one: start it 2 times, by `ndparallel launch -n 2'
sed 's/dp_shard_size: 2/dp_shard_size: 1/' job.yaml >alone.yaml
joins alone.yaml
code_is 0
lines out 1 '^[0-9.]+ [0-9.]+ [0-9.]+$'
rm -rf run

# glibc keeps some 2 KB for all libraries of a process that dlopen loads and whose thread-local memory is static.
case_of "thread-local memory"
size=$(($(readelf -lW "$library" | awk '$1 == "TLS" { print $6 }')))
[ "$size" -le 256 ] || fail "$size bytes are thread-local; most of it should be memory of its own (base/status.c)"

end_of_cases
