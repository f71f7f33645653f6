#!/bin/sh
# All kernels compile for sm_80 and sm_90 without a warning, and none spills registers. Skipped where there is no nvcc.
"$NDP_SOURCE_DIR/tools/gpu/registers" sm_80 && exec "$NDP_SOURCE_DIR/tools/gpu/registers" sm_90
