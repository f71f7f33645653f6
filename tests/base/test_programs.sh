#!/bin/sh
# No test that shares a program with others (tests_ROOM) defines what the library defines: the linker would take the test's for
# all of them, without a word. Such tests are programs of their own (CMakeLists.txt).
command -v nm >/dev/null || { echo "SKIPPED: no nm"; exit 77; }
cd "$NDP_BUILD_DIR" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
defined() { nm -A --defined-only -g "$@" 2>/dev/null | awk '{ print $NF, $1 }' | LC_ALL=C sort -k 1,1; }
grep -oE 'CMakeFiles/tests_[a-z]+\.dir/tests/[a-zA-Z0-9_/]+\.c\.o' build.ninja | LC_ALL=C sort -u >"$work/objects"
[ -s "$work/objects" ] || { echo "SKIPPED: no test is built here"; exit 77; }
# shellcheck disable=SC2046 # names without blanks
defined $(cat "$work/objects") >"$work/tests"
defined libndp_*.a | awk '{ print $1 }' | uniq >"$work/library"
LC_ALL=C join "$work/tests" "$work/library" >"$work/both"
[ -s "$work/library" ] && [ ! -s "$work/both" ] || { echo "defined by a test and by the library:"; cat "$work/both"; exit 1; }
