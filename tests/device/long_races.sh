#!/bin/sh
# Kernels on sim with the detector of races (src/device/sim/sim_race.cc): the tests of all ops find none. Then barriers are
# taken out of a copy of the sources, one at a time: each is found, also those whose results stay right in both orders of
# threads that the other tests run.
[ -z "${NDP_SANITIZE:-}" ] && [ -e "$NDP_BUILD_DIR/ndp_sim.so" ] && [ -e "$NDP_BUILD_DIR/test_op_kernels" ] ||
    { echo "SKIPPED: no ndp_sim.so, or a sanitizer"; exit 77; }
. "$(dirname "$0")/copied_sources.sh"

# passes TEST [PATTERN]
passes() {
    NDP_TEST_DEVICE=sim NDP_PLUGIN_DIR="$work/build/race" timeout 3000 "$NDP_BUILD_DIR/$1" ${2:+"$2"} >"$work/out" 2>&1
}

# without N FILE TEST PATTERN: the Nth barrier of the file.
without() {
    file=$work/tree/src/ops/cuda/$2
    cp "$file" "$work/kept"
    awk -v n="$1" '/^ *(__syncthreads\(\)|__syncwarp\(\)|ndp_copies_wait<0>\(\));/ && ++k == n { print "    ;"; next } 1' \
        "$work/kept" >"$file"
    if cmp -s "$file" "$work/kept"; then
        echo "$2 has no barrier $1 any more"
        failed=1
        return
    fi
    build ndp_sim_race
    if passes "$3" "$4"; then
        echo "$2 without barrier $1: NOT found by $3 $4"
        failed=1
    elif grep -q -m 1 'a race at' "$work/out"; then
        echo "$2 without barrier $1: $(grep -o -m 1 'a race at.*' "$work/out" | cut -c 1-150)"
    else
        echo "$2 without barrier $1: found, not as a race: $(grep -m 1 -E 'ERROR|rror:' "$work/out" | cut -c 1-150)"
    fi
    cp "$work/kept" "$file"
}

build ndp_sim_race
for test in test_op_kernels test_product test_delta_rule test_linear_stack; do
    passes $test || { echo "without a fault, $test fails"; grep -m 3 -E 'ERROR|rror:' "$work/out"; failed=1; }
done
passes test_attention "${NDP_RACE_ATTENTION:-*}" || { echo "without a fault, test_attention fails"; failed=1; }

without 1 cuda_attention_merge.cu test_op_kernels 'attention_merge*'
without 1 cuda_pairs.cu test_op_kernels 'dora*'
without 2 cuda_pairs.cu test_op_kernels 'dora*'
without 1 cuda_reduce_sum.cu test_op_kernels '*sum*'
without 2 cuda_reduce_sum.cu test_op_kernels '*sum*'
without 1 cuda_route.cu test_op_kernels '*route*'
without 1 cuda_route_order.cu test_op_kernels 'route_order*'
without 2 cuda_route_order.cu test_op_kernels 'route_order*'
without 3 cuda_route_order.cu test_op_kernels 'route_order*'
without 4 cuda_route_order.cu test_op_kernels 'route_order*'
without 5 cuda_route_order.cu test_op_kernels 'route_order*'
without 1 cuda_router_losses.cu test_op_kernels 'choice*'
without 1 cuda_xent.cu test_op_kernels 'xent*'
without 2 cuda_xent.cu test_op_kernels 'xent*'
without 3 cuda_xent.cu test_op_kernels 'xent*'
without 4 cuda_xent.cu test_op_kernels 'xent*'
without 5 cuda_xent.cu test_op_kernels 'xent*'
without 6 cuda_xent.cu test_op_kernels 'xent*'
without 7 cuda_xent.cu test_op_kernels 'xent*'
without 1 cuda_attention_f32.cu test_attention "${NDP_RACE_ATTENTION:-*}"
without 2 cuda_attention_f32.cu test_attention "${NDP_RACE_ATTENTION:-*}"
without 1 cuda_mma_tile.cuh test_linear_stack bits_of_equal_rows
without 2 cuda_mma_tile.cuh test_linear_stack bits_of_equal_rows
without 3 cuda_mma_tile.cuh test_linear_stack bits_of_equal_rows
without 2 cuda_attention_bf16.cu test_attention "${NDP_RACE_ATTENTION:-*}"
without 4 cuda_attention_bf16.cu test_attention "${NDP_RACE_ATTENTION:-*}"
exit $failed
