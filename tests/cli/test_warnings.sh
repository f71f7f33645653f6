#!/bin/sh
# A warning of a compiler stops a build for tests, also where `make` has compiled the file before, and no other build.
. "$(dirname "$0")/cases.sh"
cc=$(command -v "${CC:-cc}") || { echo "SKIPPED: no compiler"; exit 77; }
mkdir -p build/CMakeFiles/x.dir
object=build/CMakeFiles/x.dir/a.c.o

# compiles WERROR TEXT: a file with this text.
compiles() {
    case_of compile "NDP_WERROR=$1" "$2"
    echo "$2" >a.c
    rm -f $object
    NDP_WERROR=$1 "$NDP_SOURCE_DIR/tools/compile" "$cc" -Wall -c a.c -o $object >out 2>err
    code=$?
    [ ! -s out ] || fail "something on stdout"
}
# again: what a build for tests compiles once more.
again() {
    case_of compile --again
    "$NDP_SOURCE_DIR/tools/compile" --again build >out 2>err
    code=$?
    code_is 0
    [ ! -s out ] && [ ! -s err ] || fail "it said something"
    [ -z "$(find build -name '*.warned')" ] || fail "marks are left"
}

compiles "" 'int f(void) { return 0; }'
code_is 0
again
[ -e $object ] || fail "an object without a warning is gone"
compiles "" 'int f(void) { int unused; return 0; }'
code_is 0
says err 'warning: unused variable'
[ -e $object ] || fail "no object"
again
[ ! -e $object ] || fail "an object with a warning is left"
compiles 1 'int f(void) { int unused; return 0; }'
code_is 1
says err 'error: unused variable .*-Werror=unused-variable'
compiles 1 'int f(void) { return 0; }'
code_is 0
[ ! -s err ] || fail "something on stderr"
compiles "" 'int f(void) { return }'
code_is 1
says err 'a.c:1:[0-9]+: error: '
again

# Every compiler of this build is run in this way, without the option.
if command -v ninja >/dev/null && [ -e "$NDP_BUILD_DIR/build.ninja" ]; then
    case_of ninja -t commands
    ninja -C "$NDP_BUILD_DIR" -t commands ndparallel | grep -e ' -c ' >commands
    [ "$(wc -l <commands)" -ge 100 ] || fail "only $(wc -l <commands) commands"
    grep -v "^$NDP_SOURCE_DIR/tools/compile " commands >out && fail "compiled without tools/compile"
    grep -e -Werror commands >out && fail "-Werror"
fi

end_of_cases
