#!/bin/sh
# Installs into a prefix of its own, builds examples/nd_parallel.c against what is there, and runs it on ranks.
[ -z "$NDP_SANITIZE" ] || { echo "skipped: a library with a sanitizer in it is not for installing"; exit 77; }
for tool in make cmake ninja pkg-config cc; do
    command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
. "$(dirname "$0")/cases.sh"
example=$NDP_SOURCE_DIR/examples
ways=$(transports)
prefix=$work/prefix
unset NDP_PLUGIN_DIR # the plugin is to be found where it was installed
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"

# of COMMAND...: any program; leaves $code and the files out and err.
of() {
    case_of "$@"
    timeout $patience "$@" >out 2>err </dev/null
    code=$?
}
# -o: what is built already is not built once more, while other tests run it.
make_() { of make --no-print-directory -C "$NDP_SOURCE_DIR" -o build BUILD="$NDP_BUILD_DIR" "$@"; }

# A job, and a Llama of bytes that every layout below divides.
make_job
cat >config.json <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
 "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 258,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
EOF

loss() { sed -n 's/^step 20  loss \([0-9.]*\) .*/\1/p' "$1"; }

# trains RANKS COMMAND...: so many ranks, the losses of one rank, the trained model.
trains() {
    ranks=$1
    shift
    rm -rf nd_parallel_model
    of "$@"
    code_is 0
    [ ! -s err ] || fail "something on stderr"
    says out "^training on $ranks ranks\$"
    lines out 20 '^step '
    [ "$ranks" != 1 ] || cp out one
    awk -v a="$(loss one)" -v b="$(loss out)" 'BEGIN { exit !(a > 1 && a < 5.4 && (a - b) ^ 2 < 1e-7) }' ||
        fail "loss $(loss out) at step 20, on one rank $(loss one)"
    for file in config.json tokenizer.json model.safetensors; do
        [ -s "nd_parallel_model/$file" ] || fail "no $file in the trained model"
    done
}

# What cannot be written is said before anything is copied. Root may write everywhere: it becomes another user.
touch a-file
make_ install PREFIX="$work/a-file/prefix"
code_is 2
says err "^install: cannot install below $work/a-file/prefix: $work/a-file is not a folder; nothing was installed.*PREFIX="
mkdir -p locked/lib
chmod 555 locked locked/lib
case_of make install without permission
user=""
[ "$(id -u)" != 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
chmod 755 "$work"
$user "$NDP_SOURCE_DIR/tools/package/install" "$NDP_BUILD_DIR" "$work/locked" >out 2>err
code=$?
code_is 1
says err "^install: cannot install below $work/locked: no permission to write in $work/locked; .*PREFIX=.*sudo make install"
lines err 1 .
[ -z "$(find locked -type f)" ] || fail "installed: $(find locked -type f)"

make_ install PREFIX="$prefix"
code_is 0
for file in bin/ndparallel lib/libndparallel.a lib/libndparallel.so $(cd "$NDP_SOURCE_DIR" && echo include/ndparallel/*.h); do
    [ -s "$prefix/$file" ] || fail "no $file below the prefix"
done
for file in man/man1/ndparallel.1 man/man1/ndparallel-train.1 man/man5/ndparallel-job.5 \
    bash-completion/completions/ndparallel zsh/site-functions/_ndparallel fish/vendor_completions.d/ndparallel.fish; do
    [ -s "$prefix/share/$file" ] || fail "no share/$file below the prefix"
done
NDP_PROGRAM=$prefix/bin/ndparallel

# pkg-config, the shared library.
of sh -ec "cc -std=c17 -Wall -Wextra -Werror -o nd_parallel '$example/nd_parallel.c' \$(pkg-config --cflags --libs ndparallel) -Wl,-rpath,$prefix/lib"
code_is 0
of ldd nd_parallel
says out "libndparallel\\.so\\.[0-9]+\\.[0-9]+ => $prefix/lib/"
of pkg-config --modversion ndparallel
says out "^$("$NDP_PROGRAM" --version | sed 's/ndparallel //; s/\./\\./g')\$"
# ... and the static one.
of sh -ec "cc -o nd_parallel_static '$example/nd_parallel.c' \$(pkg-config --cflags --static --libs ndparallel | sed 's/-lndparallel/-l:libndparallel.a/')"
code_is 0
of ldd nd_parallel_static
grep -q libndparallel out && fail "the static program wants the shared library"

# Another version in the same process, of a library that the program also needs: each gets its own calls.
echo 'const char *ndp_build(void); const char *ndp_build(void) { return "9.9.9"; }' >other.c
echo 'const char *ndp_build(void), *build_of_other(void); const char *build_of_other(void) { return ndp_build(); }' >needs_other.c
cat >both.c <<'EOF'
#include <ndparallel/ndparallel.h>
#include <stdio.h>
const char *build_of_other(void);
int main(void) { return printf("%s and %s\n", ndp_build(), build_of_other()) < 0; }
EOF
of sh -ec "cc -shared -fPIC -o libndparallel.so.9.9 other.c -Wl,-soname,libndparallel.so.9.9 -Wl,--default-symver
cc -shared -fPIC -o libneeds.so needs_other.c ./libndparallel.so.9.9
cc -o both both.c \$(pkg-config --cflags --libs ndparallel) -L. -lneeds -Wl,-rpath,$prefix/lib:$work
cc -o both_turned both.c \$(pkg-config --cflags ndparallel) -L. -lneeds \$(pkg-config --libs ndparallel) -Wl,-rpath,$work:$prefix/lib"
code_is 0
for program in both both_turned; do
    of env LD_LIBRARY_PATH="$work" ./$program
    code_is 0
    says out "^0\.[0-9.]+.* and 9\.9\.9\$"
done

# CMake, both.
mkdir project
sed "s|\([a-z_]*\.c)\)|$example/\1|" "$example/CMakeLists.txt" >project/CMakeLists.txt
cat >>project/CMakeLists.txt <<EOF
add_executable(nd_parallel_static $example/nd_parallel.c)
target_link_libraries(nd_parallel_static PRIVATE ndparallel::ndparallel_static)
EOF
of sh -ec "cmake -G Ninja -S project -B made -DCMAKE_PREFIX_PATH='$prefix' -DCMAKE_C_COMPILER=cc; cmake --build made"
code_is 0
sed 's/ndparallel 0\.1 /ndparallel 9.0 /' project/CMakeLists.txt >CMakeLists.txt
of cmake -G Ninja -S . -B too-new -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER=cc
code_is 1
says err 'requested version "9.0"'

# A model of one's own: layouts agree, or are refused by name; the run goes on on another one; the program refuses it.
of sh -ec "cc -std=c17 -Wall -Wextra -Werror -o own_model '$example/own_model.c' \$(pkg-config --cflags --libs ndparallel) -Wl,-rpath,$prefix/lib"
code_is 0
for own in ./own_model made/own_model; do
    rm -rf own
    of $own text.txt own
    code_is 0
    [ ! -s err ] || fail "something on stderr"
    lines out 4 '^[a-z_=0-9,]+ +agrees$'
    says out '^cp=2 +refused: .*op causal_conv mixes rows, and cp_size 2 cuts the rows'
    says out '^resumed after step 10$'
    awk '/^step/ { if (n++ && $4 >= last) exit 1; last = $4 } END { exit n != 4 }' out || fail "the losses do not fall"
    [ -s own/run/model/model.safetensors ] || fail "no trained model"
done
of "$NDP_PROGRAM" plan job.yaml --set model.path=null --set model.config=own/config.json
code_is 1
says err "model_type 'mixer' is not supported; .*An architecture that a program has added .* is known to that program alone"

# Ranks as threads.
trains 1 ./nd_parallel config.json text.txt
trains 4 ./nd_parallel config.json text.txt 2 2 1 1
trains 4 made/nd_parallel config.json text.txt 2 2 1 1
trains 4 ./nd_parallel_static config.json text.txt 2 2 1 1
trains 4 made/nd_parallel_static config.json text.txt 1 4 1 1
trains 8 ./nd_parallel config.json text.txt 2 2 1 2
trains 16 ./nd_parallel config.json text.txt 2 2 2 2

# Ranks as processes of this host.
trains 4 "$NDP_PROGRAM" launch -n 4 -- ./nd_parallel config.json text.txt 2 2 1 1
trains 4 "$NDP_PROGRAM" launch -n 4 -- ./nd_parallel config.json text.txt
trains 8 "$NDP_PROGRAM" launch -n 8 -- ./nd_parallel config.json text.txt 2 2 1 2
of "$NDP_PROGRAM" launch -n 2 -- sh -c 'test "$#.$0.$1.$2.$3" = 3.a.:.-n.1 || exit 8' a : -n 1
code_is 0

# By mpirun: the library finds the plugin beside itself, and the program below ../lib.
case $ways in *mpi*)
    export ASAN_OPTIONS=detect_leaks=0
    trains 4 "$NDP_PROGRAM" launch --transport mpi -n 4 -- ./nd_parallel config.json text.txt 2 2 1 1
    run train job.yaml --transport mpi
    code_is 0
    says out '^model: run/model'
    of "$NDP_PROGRAM" launch -n 3 -- ./nd_parallel config.json text.txt 2 2 1 1
    code_is 1
    says err '^nd_parallel: .* has 4 ranks, but the run has 3'
    of "$NDP_PROGRAM" launch -n 2 -- ./nd_parallel config.json nowhere.txt
    code_is 1
    lines err 1 "^nd_parallel: .*'nowhere.txt'"
    of "$NDP_PROGRAM" launch -n 2 -- sh -c 'exit 7' -n --ranks
    code_is 7
    ;;
esac

# A moved tree still builds programs and finds itself.
cp -r "$prefix" moved
PKG_CONFIG_PATH=moved/lib/pkgconfig
of sh -ec "cc -o again '$example/nd_parallel.c' \$(pkg-config --cflags --libs ndparallel) -Wl,-rpath,$work/moved/lib; ldd again"
code_is 0
says out "$work/moved/lib/libndparallel"
rm -rf moved

# A file of another program stays, ours go.
touch "$prefix/lib/ndparallel/other"
make_ uninstall PREFIX="$prefix"
code_is 0
[ "$(find "$prefix" -type f -o -type l)" = "$prefix/lib/ndparallel/other" ] || fail "left: $(find "$prefix" -type f)"
make_ uninstall PREFIX="$prefix"
code_is 2
says err "nothing to remove below $prefix"

make_ install DESTDIR="$work/stage" PREFIX=/opt/nd
code_is 0
[ -x stage/opt/nd/bin/ndparallel ] || fail "no program below DESTDIR"
make_ uninstall DESTDIR="$work/stage" PREFIX=/opt/nd
code_is 0
[ -z "$(find stage -type f)" ] || fail "left: $(find stage -type f)"

end_of_cases
