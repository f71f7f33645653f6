#!/bin/sh
# Eight bugs, each seeded into a copy of the CUDA sources, fail a test on `sim`. The copy without a bug passes them all.
[ -e "$NDP_BUILD_DIR/ndp_sim.so" ] || { echo "SKIPPED: no ndp_sim.so"; exit 77; }
. "$(dirname "$0")/copied_sources.sh"

# passes TEST: on the plugin of the copy.
passes() { NDP_TEST_DEVICE=sim NDP_PLUGIN_DIR="$work/build" timeout 3000 "$NDP_BUILD_DIR/$1" >"$work/out" 2>&1; }

# seed NAME FILE SED TEST
seed() {
    file=$work/tree/src/ops/cuda/$2
    cp "$file" "$work/kept"
    sed -E "$3" "$work/kept" >"$file"
    if cmp -s "$file" "$work/kept"; then
        echo "$1: $2 has no such line any more"
        failed=1
        return
    fi
    build ndp_sim
    if passes "$4"; then
        echo "$1: NOT found by $4"
        failed=1
    else
        echo "$1: found by $4: $(grep -m 1 -E 'off by|other bits|ERROR|rror:|fail' "$work/out" | cut -c 1-150)"
    fi
    cp "$work/kept" "$file"
}

build ndp_sim
for test in test_op_kernels test_product test_attention; do
    passes "$test" || { echo "without a bug, $test fails"; tail -n 5 "$work/out"; exit 1; }
done

seed 'missing barrier' cuda_rows.cuh '/room\[threadIdx.x \/ NDP_WARP\] = s;/,/__syncthreads/s/__syncthreads\(\);//' test_op_kernels
seed 'shuffle width' cuda_rows.cuh 's/int with = lanes \/ 2;/int with = lanes \/ 4;/' test_op_kernels
seed 'index' cuda_heads.cu 's/r - part \* x\.rows, c\)/r - part * x.rows, c ^ 8)/' test_op_kernels
seed 'leading dimension' cuda_product.cu 's/m\.ldd = p\.to\.ld;/m.ldd = p.to.cols;/' test_product
seed 'missing accumulate' cuda_product.cu 's/m\.beta = p\.beta;/m.beta = 0;/' test_product
seed 'mask edge' cuda_attention.cuh 's/key\.pos <= query\.pos;/key.pos < query.pos;/' test_attention
seed 'order of the sums of dw' cuda_embedding.cu 's/last_first = ndp_split_place\(c->exec\) > 0/last_first = ndp_split_place(c->exec) == 0/' test_op_kernels
seed 'missing wait' cuda_attention_bf16_bwd.cu 's/ndp_copies_wait<0>\(\);//' test_attention
exit $failed
