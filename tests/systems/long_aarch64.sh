#!/bin/sh
# aarch64 under qemu, cross-compiled against a root of Debian 12 arm64: the short tests of ops, text and checkpoint on SVE; the
# quickstart's job for 5 steps on 4 ranks, threads since no program starts another one there; its losses beside this
# processor's; checkpoints of each processor, resumed on the other. NDP_AARCH64_TESTS: a pattern of other tests;
# NDP_AARCH64_JOB: options that make the job shorter.
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64 mmdebstrap; do
    command -v $tool >/dev/null || { echo "skipped: no $tool; tools/install-deps aarch64"; exit 77; }
done
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this is no x86-64"; exit 77; }
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: qemu knows no sanitizer"; exit 77; }
. "$(dirname "$0")/../cli/cases.sh"
. "$NDP_SOURCE_DIR/tests/systems/losses.sh"
build=$NDP_BUILD_DIR/aarch64
root=$NDP_BUILD_DIR/aarch64-root

# ---- the build and its tests ----

case_of the build
{ "$NDP_SOURCE_DIR/tools/aarch64-root" "$root" &&
    cmake -S "$NDP_SOURCE_DIR" -B "$build" -G Ninja --toolchain "$NDP_SOURCE_DIR/tools/aarch64.cmake" -DNDP_AARCH64_ROOT="$root" &&
    cmake --build "$build" --target ndparallel tests_ops tests_text tests_checkpoint tests_base tests_device; } >out 2>err ||
    { fail "it does not end"; end_of_cases; }
# Tests on the device sim would take hours.
case_of the tests
ctest --test-dir "$build" -j "$(nproc)" --no-tests=error --output-on-failure -L short -E _sim \
    -R "${NDP_AARCH64_TESTS:-^(ops|text|checkpoint|base/test_cpu|device/test_peak)}" >out 2>err </dev/null || fail "tests fail"
sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: //p; /tests passed/p' out
grep -c '^\[       OK' "$build/Testing/Temporary/LastTest.log" | sed 's/$/ cases have passed/'

# ---- training ----

# The kind of processor that qemu plays, and a run of the job.
on_aarch64() {
    qemu=$1
    shift
    timeout 18000 qemu-aarch64 -cpu "$qemu" -L "$root" "$build/ndparallel" "$@" >out 2>err </dev/null
}
take_job
shorter=${NDP_AARCH64_JOB-}
sve=max,sve-max-vq=1
neon=cortex-a72
case_of kernels
on_aarch64 $sve env && says out '^processor ' 'kernels: sve,' '^levels  *generic, sve$' || fail "env"
on_aarch64 $neon env && says out '^processor  *Arm, part 0xd08' 'kernels: generic,' '^levels  *generic; not here: sve$' || fail "env"
case_of the quickstart here and there
train here --set checkpoint.every=3 || fail "no run here"
on_aarch64 $sve $(job there --set checkpoint.every=3) || fail "no run on aarch64"
same_losses here there 1 2 3 4 5
cp -r here from-here && cp -r there from-there
case_of a checkpoint of x86-64 resumes on aarch64
on_aarch64 $neon $(job from-here --set checkpoint.every=3 --resume-from 3) || fail "it does not resume"
says out '^resume: from step 3'
same_losses here from-here 4 5
case_of a checkpoint of aarch64 resumes on x86-64
train from-there --set checkpoint.every=3 --resume-from 3 || fail "it does not resume"
says out '^resume: from step 3'
same_losses there from-there 4 5

end_of_cases
