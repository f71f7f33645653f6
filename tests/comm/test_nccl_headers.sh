#!/bin/sh
# The NCCL plugin compiles with NVIDIA's headers that this machine has, or that tools/gpu/check-nccl-headers has taken from
# PyPI, and all values are equal.
set -eu
set --
for folder in /usr/include /usr/local/include /usr/local/cuda/include "$NDP_SOURCE_DIR"/build/nccl/*/nvidia/nccl/include; do
    [ ! -e "$folder/nccl.h" ] || set -- "$@" "$folder"
done
[ $# -gt 0 ] || { echo "SKIPPED: no nccl.h of NVIDIA's"; exit 77; }
exec "$NDP_SOURCE_DIR/tools/gpu/check-nccl-headers" "$@"
