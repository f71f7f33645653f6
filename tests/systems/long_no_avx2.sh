#!/bin/sh
# x86-64 without AVX2, and without any AVX, under qemu: the program says that its kernels are generic, and trains as at that level
# of this processor, on short rows since oneDNN has little for them.
command -v qemu-x86_64 >/dev/null || { echo "skipped: no qemu-x86_64; tools/install-deps aarch64"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this is no x86-64"; exit 77; }
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: qemu knows no sanitizer"; exit 77; }
. "$(dirname "$0")/../cli/cases.sh"
. "$NDP_SOURCE_DIR/tests/systems/losses.sh"
take_job
shorter="--set train.steps=2 --set data.sequence_length=32"
case_of here
NDP_ISA=generic train here || fail "no run here"
for processor in Nehalem qemu64; do
    case_of "$processor"
    qemu-x86_64 -cpu $processor "$NDP_PROGRAM" env >out 2>err || fail "env"
    says out 'kernels: generic, bf16 in fp32 by oneDNN' '^levels  *generic; not here: avx512,'
    timeout 18000 qemu-x86_64 -cpu $processor "$NDP_PROGRAM" $(job $processor) >out 2>err </dev/null || fail "it does not train"
    same_losses here $processor 1 2
done
end_of_cases
