#!/bin/sh
# Every object that is built for AVX-512 has a zmm register in it, and for SVE a predicate. The flags come with a file's name or folder
# (CMakeLists.txt): a file that moves out of their reach still compiles and still computes the same, slowly.
set -u
cd "$NDP_SOURCE_DIR" || exit 1
skip() { echo "skipped: $1" && exit 77; }
command -v objdump >/dev/null || skip "no objdump"
[ -z "${NDP_SANITIZE-}" ] || skip "a build with the sanitizer $NDP_SANITIZE is not optimised"
grep -q '^CMAKE_BUILD_TYPE:.*=Release' "$NDP_BUILD_DIR/CMakeCache.txt" || skip "this build is not optimised: loops are not vectors"

wide=avx512
register='%zmm'
if [ "$(uname -m)" = aarch64 ]; then
    wide=sve
    register='p[0-9]*/[mz]'
fi
status=0
fail() { echo "$1" >&2 && status=1; }
# check SOURCE TARGET: its object, in the static library's own folder.
check() {
    object=$NDP_BUILD_DIR/CMakeFiles/$2.dir/$1.o
    [ -f "$object" ] || { fail "$1: no object $object" && return; }
    objdump -d "$object" | grep -q "$register" || fail "$1: no register $register in $object"
    checked=$((checked + 1))
}

checked=0
[ $wide = avx512 ] && kernels=$(find src -name '*_avx512.c' -o -name '*_avx512bf16.c' -o -name '*_amx.c') || kernels=
for source in $kernels; do
    room=${source#src/}
    check "$source" "ndp_${room%%/*}"
done
for source in $(find src -path '*/cpu/rows/*.c'); do
    case $wide/$source in sve/*/cpu_gelu.c) continue ;; esac # of which gcc 12 makes NEON
    room=${source#src/}
    check "$source" "ndp_${room%%/*}_rows_$wide"
done
[ $checked -ge 20 ] || fail "only $checked objects were found"
echo "$checked objects for $wide"
exit $status
