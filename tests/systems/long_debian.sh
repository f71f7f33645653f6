#!/bin/sh
# Debian 12 and 13 as a user meets them: in a fresh root of each, with no more in it than docs/guide/install.md asks for, a clone
# of the last commit runs `make test`, where gcc builds everything without a warning; its packages are made and tried; clang builds
# everything without a warning. At the end bench_step of the one is compared with the other's, on the same machine.
#
# NDP_SUITES: some of "bookworm trixie". NDP_SYSTEM_CASES: some of "test packages clang bench"; packages and bench use the build of
# test. NDP_ROOTS: a folder for the roots, which are kept there and used again. With CCACHE_DIR the compilers inside use that cache.
command -v mmdebstrap >/dev/null || { echo "skipped: no mmdebstrap; tools/install-deps packages"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || { echo "skipped: a root takes root"; exit 77; }
[ -z "$NDP_SANITIZE" ] || { echo "skipped: the roots have builds of their own"; exit 77; }
. "$(dirname "$0")/../cli/cases.sh"
mirror=${NDP_MIRROR:-http://deb.debian.org/debian}
timeout 20 bash -c ': </dev/tcp/deb.debian.org/80' 2>/dev/null || { echo "skipped: no $mirror"; exit 77; }
suites=${NDP_SUITES:-bookworm trixie}
wanted=${NDP_SYSTEM_CASES:-test packages clang bench}
roots=${NDP_ROOTS:-$work/roots}
mkdir -p "$roots"
pairs=4         # of runs of bench_step, one in each system
most_ratio=1.02 # of the second system's time to the first's

# ---- roots ----

# inside SUITE COMMAND: as root in a clone there, with its own processes, which end with it, and an environment that has nothing else.
inside() {
    unshare --mount --pid --fork --kill-child sh -ec '
        root=$1
        for from in /dev /sys; do mount --rbind $from "$root$from" && mount --make-rslave "$root$from"; done
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount -t proc proc "$root/proc"
        set -- "$2" LANG=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
        if [ -n "${NDP_TEST_DATA-}" ]; then
            mkdir -p "$root/data" && mount --rbind "$NDP_TEST_DATA" "$root/data"
            set -- "$@" NDP_TEST_DATA=/data
        fi
        if [ -n "${CCACHE_DIR-}" ]; then
            mkdir -p "$root/ccache" && mount --rbind "$CCACHE_DIR" "$root/ccache"
            set -- "$@" CCACHE_DIR=/ccache CCACHE_BASEDIR=/ndparallel CCACHE_NOHASHDIR=1
            set -- "$@" CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
        fi
        command=$1
        shift
        exec chroot "$root" env -i "$@" sh -c "cd /ndparallel && $command"
    ' inside "$roots/$1" "$2"
}

# A fresh root, with a clone of the last commit; one of an earlier run gets the commit.
make_root() {
    root=$roots/$1
    [ -e "$root/etc/debian_version" ] || mmdebstrap --quiet --variant=apt \
        --include="make,git,ca-certificates${CCACHE_DIR:+,ccache}" "$1" "$root" "$mirror" >out 2>err || return
    # This machine's name resolves, and PyPI is reached as from it.
    cp /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    if [ -e "$root/ndparallel" ]; then
        git -C "$root/ndparallel" pull -q --ff-only "$NDP_SOURCE_DIR" HEAD >out 2>err
    else
        git clone -q "$NDP_SOURCE_DIR" "$root/ndparallel" >out 2>err
    fi
}

# ---- a system's tests, and its compilers ----

# built_by SUITE COMPILER: what a compiler says of itself, "gcc 14.2.0".
built_by() { inside "$1" "echo $2 \$($2 -dumpfullversion 2>/dev/null || $2 -dumpversion)"; }

# One of a program, a library, a test and a benchmark: that the build has made them.
whole_build() { inside "$1" "ls $2/ndparallel $2/libndparallel.so $2/tests_cli $2/bench_step" >/dev/null; }

make_test() {
    case_of "$1: make test"
    inside "$1" "make test" >out 2>err || { grep -E '\*\*\*Failed|^FAILED|\[  FAILED' out; fail "it fails"; }
    whole_build "$1" build || { fail "it does not build everything"; return; }
    echo "$1: $(tail -n 1 out)"
    echo "$1: $(built_by "$1" gcc) builds everything without a warning"
}

# ../package/long_packages.sh with packages that are made in this system, for which they are.
try_packages() {
    case_of "$1: packages"
    version=$(sed -n 's/.*define NDP_VERSION "\(.*\)"/\1/p' "$NDP_SOURCE_DIR/include/ndparallel/ndparallel.h")
    inside "$1" "tools/install-deps packages && rm -rf build/packages &&
        for made in $version $version.1; do cpack --config build/CPackConfig.cmake -R \$made || exit; done" >out 2>err ||
        { fail "no packages"; return; }
    rm -rf "$roots/$1/ndparallel/build/packages/_CPack_Packages"
    NDP_PACKAGES=$roots/$1/ndparallel/build/packages NDP_SUITE=$1 sh "$NDP_SOURCE_DIR/tests/package/long_packages.sh" >out 2>err ||
        fail "they do not work"
    sed "s/^/$1: /" out
}

build_with_clang() {
    case_of "$1: clang"
    inside "$1" "tools/install-deps build test analysis && export NDP_WERROR=1 CC=clang CXX=clang++ &&
        cmake -S . -B build-clang -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=WARNING &&
        cmake --build build-clang -j $(nproc) --target all tests benches" >out 2>err && whole_build "$1" build-clang ||
        { fail "it does not build everything"; return; }
    echo "$1: $(built_by "$1" clang) builds everything without a warning"
}

# ---- the time of a step ----

# "fp32 B=1 T=1024, 1 rank x 2 threads|ratio": a measurement's time of cores, in times of the floor that was measured beside it. One
# row of 1,024 tokens, in fp32 and in bf16: all measurements would take an hour.
times_of() { inside "$1" "build/bench_step 2 all adamw" | sed -n 's/^\([a-z0-9]* B=.*\): .* \([0-9.]*\) in time of cores.*/\1|\2/p'; }

compare_steps() {
    case_of "bench_step of $2 beside $1"
    : >runs
    for pair in $(seq $pairs); do
        for suite in "$@"; do times_of "$suite" | sed "s/^/$suite|/" >>runs; done
    done
    # The best of each system's runs: what disturbs a run makes it slower.
    awk -F '|' -v a="$1" -v b="$2" -v most=$most_ratio '
        !(($1, $2) in best) || $3 < best[$1, $2] { best[$1, $2] = $3 }
        $3 > worst[$1, $2] { worst[$1, $2] = $3 }
        !($2 in seen) { seen[$2] = 1; rows[++n] = $2 }
        END {
            for (i = 1; i <= n; i++) {
                at = best[a, rows[i]]; bt = best[b, rows[i]]
                printf "%-45s %s %.2f to %.2f, %s %.2f to %.2f: %.3f\n", rows[i], a, at, worst[a, rows[i]], b, bt, worst[b, rows[i]], bt / at
                sum += log(bt / at)
            }
            ratio = n ? exp(sum / n) : 9
            printf "a step of %s takes %.3f of the time of cores in %s (times of the floor, best to worst of the runs)\n", b, ratio, a
            exit ratio > most
        }' runs >out || fail "slower than $most_ratio"
    cat out
}

wants() { case " $wanted " in *" $1 "*) ;; *) return 1 ;; esac; }
for suite in $suites; do
    what="a root of $suite"
    make_root "$suite" || { fail "no root"; continue; }
    ! wants test || make_test "$suite"
    ! wants packages || try_packages "$suite"
    ! wants clang || build_with_clang "$suite"
done
case $suites in *" "*) ! wants bench || compare_steps $suites ;; esac
end_of_cases
