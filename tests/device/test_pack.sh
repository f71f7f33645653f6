#!/bin/sh
# The archive of tools/gpu/pack is made by xz with its largest dictionary, and refused above 30 MiB. One program stands for all
# that are packed. What is too large is what an xz that compresses nothing leaves of the golden models and a large plugin.
for tool in patchelf xz objcopy; do
    command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; exit 77; }
done
. "$(dirname "$0")/../cli/cases.sh"
mkdir build
cp "$(command -v xz)" program
for name in ndparallel test_op_kernels test_step_ops test_update test_xent test_product test_attention test_delta_rule test_golden bench_gpu; do
    cp program "build/$name"
done

# pack MIB: with so much more in the plugin.
pack() {
    case_of pack with "$1 MiB" in the plugin
    head -c $(($1 << 20)) /dev/zero >bytes
    objcopy --add-section .bytes=bytes program build/ndp_cuda.so
    "$NDP_SOURCE_DIR/tools/gpu/pack" "$work/build" "$work/packed" >out 2>err
    code=$?
}

pack 1
code_is 0
says out '/packed/ndparallel-gpu.tar.xz: [1-9] MiB$'
xz --robot -lvv packed/ndparallel-gpu.tar.xz >how
says how 'dict=64MiB'
xz -dc packed/ndparallel-gpu.tar.xz | tar -tf - >names
for name in first-contact bin/ndp_cuda.so lib/liblzma.so.5 bin/bench_gpu source/tests/golden/gpt2/config.json examples/quickstart.yaml; do
    says names "^ndparallel-gpu/$name\$"
done

mkdir stubs
printf '#!/bin/sh\nexec cat\n' >stubs/xz
chmod +x stubs/xz
PATH=$work/stubs:$PATH
pack 15
code_is 0
pack 30
code_is 1
says err '^pack: [34][0-9]{7} bytes, and 30 MiB at most are carried$'

case_of what is not built is named
rm build/test_xent
"$NDP_SOURCE_DIR/tools/gpu/pack" "$work/build" "$work/packed" >out 2>err
code=$?
code_is 1
says err '^pack: .*/build/test_xent is missing: build the targets tests and benches$'
end_of_cases
