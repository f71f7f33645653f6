# Sourced by scripts that change a copy of the CUDA sources: makes the copy in $work/tree, configured in $work/build. The plugin
# alone is built anew: the tests are those of the build.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
mkdir "$work/tree"
(cd "$NDP_SOURCE_DIR" && tar cf - CMakeLists.txt CMakePresets.json include src tools tests examples) |
    (cd "$work/tree" && tar xf -)
cmake -S "$work/tree" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache)" \
    --log-level=WARNING >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

# build TARGET
build() { cmake --build "$work/build" --target "$1" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }; }
