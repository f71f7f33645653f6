#!/bin/sh
# The wheel: made from the build, installed into an empty environment, where the program, the example and its ranks run.
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: the wheel is of a build without sanitizers"; exit 77; }
. "$(dirname "$0")/cases.sh"
[ -e "$NDP_BUILD_DIR/libndparallel.so" ] || { echo "SKIPPED: no $NDP_BUILD_DIR/libndparallel.so"; exit 77; }
for tool in patchelf strip dpkg; do
    command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; exit 77; }
done
/usr/bin/python3 -m venv environment 2>/dev/null || { echo "SKIPPED: no python3-venv"; exit 77; }
unset NDP_PLUGIN_DIR PYTHONPATH

# runs COMMAND...: succeeds.
runs() {
    case_of "$@"
    timeout $patience "$@" >out 2>err
    code=$?
    code_is 0
}
runs "$NDP_SOURCE_DIR/tools/wheel" "$NDP_BUILD_DIR" .
says out 'manylinux_2_[0-9]+_x86_64.whl: [0-9.]+ MiB, [0-9]+ libraries of the system$'
runs environment/bin/pip install --no-index ./ndparallel-*.whl
runs environment/bin/ndparallel --help
runs environment/bin/python -m ndparallel env
runs environment/bin/ndparallel launch -n 4 --threads 1 "$NDP_SOURCE_DIR/examples/accelerate_script.py" --dp-shard 2 --tp 2 --epochs 1
lines out 12 '^step +[0-9]+  loss'
[ -e accelerate_run/model/model.safetensors ] || fail "no model"
runs ldd environment/lib/python3*/site-packages/ndparallel/native/libndparallel.so
if grep '/lib/' out | grep -v native | grep -vE 'lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so|ld-linux'; then
    fail "libraries that are not in the wheel"
fi
for licence in environment/lib/python3*/site-packages/ndparallel-*.dist-info/licenses/*; do
    [ -s "$licence" ] || fail "$licence is empty"
done
end_of_cases
