#!/bin/sh
# All kernels compile for sm_80 without a warning (long_plugin: and none spills registers). Skipped where there is no nvcc.
exec "$NDP_SOURCE_DIR/tools/gpu/registers" --ptx sm_80
