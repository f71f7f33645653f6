#!/bin/sh
# Faults in the code that calls NCCL, one at a time: each is found by test_nccl on two or three ranks.
set -u
[ -z "${NDP_SANITIZE:-}" ] && [ -e "$NDP_BUILD_DIR/fake_nccl/libnccl.so.2" ] && [ -e "$NDP_BUILD_DIR/test_nccl" ] &&
    [ -e "$NDP_PLUGIN_DIR/ndp_sim.so" ] || { echo "SKIPPED: no sim, or a sanitizer"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NDP_CUDA_PATH="$NDP_BUILD_DIR/fake_nccl" NDP_COMM_TIMEOUT=10
cp "$NDP_BUILD_DIR/ndp_sim.so" "$work/"
export NDP_PLUGIN_DIR="$work"
cd "$NDP_SOURCE_DIR" || exit 1
flags="-std=gnu17 -D_GNU_SOURCE -O1 -w -fPIC -fvisibility=hidden -Isrc -Iinclude"
sources="nccl/plugin/nccl.c nccl/nccl_transport.c nccl/nccl_comm.c"
count=0
failures=0

# build: the plugin, and a test program in which the sources in $work replace those of the library.
build() {
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -Isrc/comm/nccl/plugin -shared "$work/nccl.c" src/comm/nccl/plugin/library.c -o "$work/ndp_nccl.so" -ldl &&
        ${CC:-cc} $flags -Itests tests/comm/test_nccl.c "$work/nccl_transport.c" "$work/nccl_comm.c" -o "$work/test_nccl" \
            -L"$NDP_BUILD_DIR" -lndp_comm -lndp_device -lndp_tensor -lndp_mesh -lndp_base -lcmocka -lhwloc -lxxhash -lfyaml \
            -ljson-c -lpcre2-8 -lutf8proc -larchive -fopenmp -lpthread -lm -ldl
}

passes() {
    for ranks in 2 3; do
        timeout -k 1 30 "$NDP_PROGRAM" launch -n $ranks -- "$work/test_nccl" >"$work/out" 2>&1 || return 1
    done
}

# fault FILE SED-COMMAND
fault() {
    count=$((count + 1))
    for source in $sources; do cp "src/comm/$source" "$work/"; done
    sed -i "$2" "$work/$1"
    cmp -s "$work/$1" src/comm/nccl/"$1" || cmp -s "$work/$1" src/comm/nccl/plugin/"$1" && { echo "no such text in $1: $2"; failures=$((failures + 1)); return; }
    build || { echo "does not compile: $2"; failures=$((failures + 1)); return; }
    if passes; then
        echo "NOT FOUND in $1: $2"
        failures=$((failures + 1))
    else
        echo "found: $2: $(grep -m 1 'says:' "$work/out" | cut -c1-160)"
    fi
}

# Without a fault it passes.
for source in $sources; do cp "src/comm/$source" "$work/"; done
build && passes || { echo "without a fault:"; cat "$work/out"; exit 1; }

# The calls of NCCL.
fault nccl.c 's/nccl.AllGather(in, out, count_of(count, type)/nccl.AllGather(in, out, count_of(count, type) + 1/'
fault nccl.c 's/return ncclBfloat16/return ncclFloat16/'
fault nccl.c 's/return ncclInt64/return ncclFloat64/'
fault nccl.c 's/max ? ncclMax : ncclSum/ncclSum/'
fault nccl.c 's/ncclUint8, root, c, stream/ncclUint8, 0, c, stream/'
fault nccl.c 's/nccl.ReduceScatter(in, out/nccl.ReduceScatter(out, (void *)in/'
fault nccl.c 's/nccl.Recv(m->recv, (size_t)m->bytes/nccl.Recv(m->recv, (size_t)m->bytes \/ 2/'
fault nccl.c 's/for (int i = 0; i < n \&\& !error; i++)/for (int i = 0; i < n - (n > 2) \&\& !error; i++)/'
fault nccl.c 's/NCCL_SPLIT_NOCOLOR, rank/0, rank/; s/member ? 0 : 0/0/'
fault nccl.c 's/\*ready = state == ncclSuccess;/*ready = true;/'
fault nccl.c 's/NCCL_SPLIT_NOCOLOR, rank/NCCL_SPLIT_NOCOLOR, -rank/'
# What is asked of the plugin, and the waits of the queues.
fault nccl_transport.c 's/NDP_TRY(d->after(queue, &ready));//'
fault nccl_transport.c 's/NDP_WORK_BARRIER ? NDP_OK : .*;/NDP_WORK_BARRIER ? NDP_OK : NDP_OK;/'
fault nccl_transport.c 's/NDP_TRY(add_scratch(c, w));//'
fault nccl_transport.c 's/scratch ? c->scratch : w->out/w->out/'
fault nccl_transport.c 's/in_at += all ? in : 0;//'
fault nccl_transport.c 's/p == (rank + 1) % size/p == (rank + size - 1) % size/'
fault nccl_transport.c 's/.accumulate = true,/.accumulate = false,/'
fault nccl_comm.c 's/return nccl_settle(t, comm, c->base.name);/return NDP_OK;/'
fault nccl_comm.c 's/me == from ? &c->to\[to\] : &c->from\[from\]/me == from ? \&c->from[to] : \&c->to[from]/'
[ "$failures" = 0 ] || { echo "[  FAILED  ] $failures test(s)"; exit 1; }
echo "[  PASSED  ] $count test(s)"
