#!/bin/sh
# The package ndparallel for Python: its declarations are the compiler's, the loop of Accelerate has the bits of the library's own on
# every layout, what cannot be is refused, runs stop and resume. It needs neither numpy nor torch; with them their arrays are read.
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: a sanitizer is loaded before all else"; exit 77; }
. "$(dirname "$0")/cases.sh"
[ -e "$NDP_BUILD_DIR/libndparallel.so" ] || { echo "SKIPPED: no $NDP_BUILD_DIR/libndparallel.so"; exit 77; }
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -c 'import ctypes' 2>/dev/null || { echo "SKIPPED: no Python with ctypes ($python)"; exit 77; }
[ -e "$NDP_BUILD_DIR/python/ndparallel/_declarations.py" ] || { echo "SKIPPED: the build found no python3 for its package"; exit 77; }
export PYTHONPATH="$NDP_BUILD_DIR/python" PYTHONDONTWRITEBYTECODE=1
script=$NDP_SOURCE_DIR/tests/cli/python_package.py

# asks CASE ARGUMENT...: of the package, in one process.
asks() {
    case_of python_package.py "$@"
    timeout $patience "$python" "$script" "$@" >out 2>err
    code=$?
}
# launches N ARGUMENT...: the same on N ranks.
launches() {
    case_of launch -n "$@"
    ranks=$1
    shift
    timeout $patience "$python" -m ndparallel launch -n "$ranks" --threads 1 "$script" "$@" >out 2>err
    code=$?
}

if command -v cc >/dev/null; then
    asks sizes "$NDP_SOURCE_DIR/include/ndparallel"
    code_is 0
    mv out sizes.c
    { cc -I "$NDP_SOURCE_DIR/include" -o sizes sizes.c && ./sizes; } >out 2>&1 || fail "the C program does not run"
    [ ! -s out ] || fail "declarations are not those of the headers; build the target python"
fi
case_of docs/functions.md
"$python" "$NDP_SOURCE_DIR/tools/python-declarations" --markdown "$NDP_SOURCE_DIR/include/ndparallel" >out
sed '1,/^<!-- page/d; /^<!-- end/,$d' "$NDP_SOURCE_DIR/docs/functions.md" | cmp -s - out ||
    fail "docs/functions.md is not that of the headers: tools/check-readme --update docs/functions.md"
for one in thin losses groups functions misuse tensors "resumes project"; do
    # shellcheck disable=SC2086
    asks $one
    code_is 0
done
torch=${NDP_DUMP_PYTHON-}
if [ -n "$torch" ] && "$torch" -c 'import torch' 2>/dev/null; then
    python=$torch asks tensors
    code_is 0
else
    echo "SKIPPED: tensors of torch (NDP_DUMP_PYTHON)"
fi

# bits N LAYOUT CALLS: the loop has the library's.
bits() {
    launches "$1" own "$2" "$3"
    code_is 0
    mv out expected
    launches "$1" loop "$2" "$3"
    code_is 0
    cmp -s out expected || fail "other bits than $(cat expected)"
    lines out 1 '^0x'
}
bits 1 '{}' 1
bits 2 '{"dp_shard_size": 2}' 1
bits 2 '{"dp_shard_size": 2}' 2
bits 2 '{"tp_size": 2}' 2
bits 2 '{"pp_size": 2}' 1
bits 4 '{"sp_size": 2, "dp_replicate_size": 2}' 2
bits 16 '{"dp_replicate_size": 2, "dp_shard_size": 2, "cp_size": 2, "tp_size": 2}' 1

# The example, alone and on a layout.
script=$NDP_SOURCE_DIR/examples/accelerate_script.py
asks --epochs 1
code_is 0
grep '^step' out >losses
lines losses 12 '^step +[0-9]+  loss [0-9.]+'
[ -e accelerate_run/model/model.safetensors ] || fail "no model"
for layout in "4 --dp-shard 2 --tp 2 --accumulate 2" "2 --cp 2" "16 --dp-replicate 2 --dp-shard 2 --cp 2 --tp 2"; do
    # shellcheck disable=SC2086
    launches $layout --epochs 1
    code_is 0
    grep '^step' out | cmp -s - losses || fail "other losses than on one rank: $(cat losses)"
done

script=$NDP_SOURCE_DIR/tests/cli/python_package.py
launches 4 numbers
code_is 0
lines out 1 '^numbers$'

# A program that is no script of Python, and the words after it, are left as they are.
case_of launch -- "$python"
"$python" -m ndparallel launch -n 1 -- "$python" "$script" thin >out 2>err
code=$?
code_is 0

# Ctrl-C on one rank ends and saves the update of all. An error on one is printed by one.
launches 2 stops stopped
code_is 130
lines out 1 '^stopped after step 3, which is saved$'
[ -d stopped/checkpoints/step-00000003 ] || fail "no checkpoint"
launches 2 fails
code_is 1
lines err 1 '^ndparallel.*Error: '

end_of_cases
