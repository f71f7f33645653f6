#!/bin/sh
# Bounds hold for a GPU's arithmetic: the tests of all ops, and of models against other programs, pass on a sim whose
# products and sums are fused and whose functions are off by as much as CUDA documents (src/device/sim/sim_ulps.hpp).
set -u
[ -z "${NDP_SANITIZE:-}" ] && [ -e "$NDP_BUILD_DIR/ndp_sim.so" ] && [ -e "$NDP_BUILD_DIR/test_op_kernels" ] ||
    { echo "SKIPPED: no ndp_sim.so, or a sanitizer"; exit 77; }
cmake --build "$NDP_BUILD_DIR" --target ndp_sim_ulps >/dev/null || exit 1
export NDP_TEST_DEVICE=sim NDP_PLUGIN_DIR="$NDP_BUILD_DIR/ulps" NDP_TEST_ALL=1
failed=0
for test in test_op_kernels test_product test_attention test_delta_rule test_linear_stack test_golden; do
    "$NDP_BUILD_DIR/$test" || { echo "$test fails"; failed=1; }
done
exit $failed
