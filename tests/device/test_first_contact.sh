#!/bin/sh
# The bundle for a GPU machine, unpacked in an empty folder: first-contact runs and passes all its checks there on `sim` with
# one GPU, in an almost empty environment and at the smallest sizes. The sanitizer and the peer are stubs that write down how
# they were called. Then with stubs for all programs: what the checks get, and that nothing outlasts the budget.
[ -z "${NDP_SANITIZE-}" ] || { echo "SKIPPED: bundles are made of builds without a sanitizer"; exit 77; }
for built in ndp_sim.so bench_gpu test_golden; do
    [ -e "$NDP_BUILD_DIR/$built" ] || { echo "SKIPPED: $built is not built; 'make test' builds it"; exit 77; }
done
for tool in patchelf xz readelf python3; do
    command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; exit 77; }
done
. "$(dirname "$0")/../cli/cases.sh"
: >out
: >err
python=$(python3 -c 'import sys; print(sys.executable)')

# ---- stubs ----

mkdir -p stubs fake empty
# What a stub writes in the folder of first-contact: its name and arguments, and of the environment what that sets.
note='echo "$(basename "$0") $* LD_LIBRARY_PATH=${LD_LIBRARY_PATH-} NDP_GPU_GUARD=${NDP_GPU_GUARD-} NDP_TEST_SMALL=${NDP_TEST_SMALL-}"'
stub() { printf '#!/bin/sh\n%s >>called\n%s\n' "$note" "$2" >"$1" && chmod +x "$1"; }
stub stubs/compute-sanitizer 'echo "ERROR SUMMARY: 0 errors"'
stub stubs/python3 "PYTHONPATH=$work/fake exec $python \"\$@\""
echo '__version__ = "0"' >fake/torch.py
cat >fake/peer.py <<'EOF'
import argparse, json, torch
parser = argparse.ArgumentParser()
for name in ("shape", "batch", "seq", "accumulate", "states"):
    parser.add_argument("--" + name)
print(json.dumps(vars(parser.parse_args()) | {"torch": torch.__version__}))
EOF

# ---- the bundle ----

case_of pack --sim
if ! "$NDP_SOURCE_DIR/tools/gpu/pack" --sim "$NDP_BUILD_DIR" "$work/packed" >out 2>err; then
    fail "exit code $?"
    end_of_cases
fi
tar -C empty -xJf packed/ndparallel-gpu.tar.xz
rm -r packed
bundle=$work/empty/ndparallel-gpu

case_of programs find their libraries in the bundle, by RUNPATH
for file in "$bundle"/bin/* "$bundle"/lib/*; do
    where='$ORIGIN/../lib'
    [ "${file#"$bundle/lib/"}" = "$file" ] || where='$ORIGIN'
    readelf -d "$file" | grep -E '\((RUNPATH|RPATH)\)' >out
    lines out 1 "\(RUNPATH\).*\[$(echo "$where" | sed 's/\$/\\$/')\]$"
done
for file in "$bundle"/bin/*; do env -i PATH="$PATH" ldd "$file"; done >out 2>err
grep -vE "linux-vdso|ld-linux|=> $bundle/bin/\.\./lib/|=> $bundle/lib/|/lib(c|m|dl|rt|pthread|resolv)\.so" out >others
[ ! -s others ] || fail "these are not in the bundle: $(cat others)"

# ---- running it ----

# start FOLDER VARIABLE=VALUE...: first-contact in that folder, with what was called in its file `called`.
start() { (cd "$1" && shift && env -i PATH="$work/stubs:/usr/bin:/bin" "$@" ./first-contact "$work/fake/peer.py") </dev/null; }
contact() {
    case_of first-contact "$@"
    rm -f "$1/called"
    start "$@" >out 2>err
    code=$?
    logs=$1/first-contact.logs
}
# Each check of the table, and what it says, without the time.
checks() { sed -E 's/ +[0-9]+ s$//; s/ {2,}/: /' "$logs/table"; }

# Copies of the script with a stub for each program of the bundle.
mkdir -p fast/bin fast/examples fast/source/tests/golden
cp "$NDP_SOURCE_DIR/tools/gpu/first-contact" fast/
cp "$NDP_SOURCE_DIR/tests/golden/README.md" fast/source/tests/golden/
for program in "$bundle"/bin/*; do stub "fast/bin/$(basename "$program")" 'exit 0'; done
stub fast/bin/ndparallel 'for a in "$@"; do case $a in train.output_dir=*) mkdir -p "${a#*=}/model" && echo w >"${a#*=}/model/model.safetensors" ;; esac; done'

# One of them hangs for longer than its limit, while the others run.
cp -r fast hangs
stub hangs/bin/test_product "trap '' TERM; echo \$\$ >$work/hung; for s in \$(seq $patience); do sleep 1; done"
start hangs FIRST_CONTACT_SECONDS=60 >hanging 2>&1 &
hanging=$!

# ---- on sim ----

# The machine may be busy: nothing is to run out of time here.
contact "$bundle" NDP_TEST_DEVICE=sim NDP_TEST_SMALL=1 FIRST_CONTACT_SECONDS=6000
code_is 0
checks >has
for check in env test_product test_attention golden "same run twice, same bits" bench.tiny test_xent test_step_ops test_update \
    test_op_kernels test_delta_rule "verify 8 ranks" peer.tiny test_op_kernels.memcheck test_attention.memcheck \
    test_delta_rule.memcheck test_op_kernels.racecheck test_attention.racecheck test_delta_rule.racecheck; do
    echo "$check: passed"
done >wanted
cmp -s has wanted || fail "the table: $(diff has wanted)"
says "$logs/env" '^ndparallel '
for program in test_product test_xent test_step_ops test_update test_op_kernels test_attention test_delta_rule; do
    lines "$logs/$program" 1 '^contexts of sim: 1$'
done
says "$logs/golden" '^llama-yarn +fp32 4 ranks'
says "$logs/verify 8 ranks" 'dp_replicate=2,dp_shard=2,tp=2 .* agrees$'

case_of the archive has logs and no weights
tar -tzf "$bundle/first-contact.tar.gz" >out
for name in table env test_attention golden "verify 8 ranks" test_op_kernels.memcheck bench.tiny peer.tiny once.run/metrics.jsonl; do
    says out "^first-contact.logs/$name\$"
done
grep -E 'safetensors|checkpoints|/model' out && fail "weights"
[ "$(wc -c <"$bundle/first-contact.tar.gz")" -lt 200000 ] || fail "it has $(wc -c <"$bundle/first-contact.tar.gz") bytes"

# What bench_gpu says of memory: the most in use is the plan, in whole pages of sim.
case_of bench_gpu measures memory and ops
says "$logs/bench.tiny" '"loss": [0-9.]+}$' '"attention": \{"ms": [0-9.]+, '
number() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$logs/bench.tiny"; }
planned=$(number planned_bytes) high=$(number high_water_bytes)
[ "$planned" -gt 1000000 ] && [ "$high" -ge "$planned" ] && [ "$high" -lt $((planned + 4096)) ] ||
    fail "$high bytes in use, $planned planned"
[ "$(number used_before_bytes)" = 0 ] || fail "the memory of the roofs was not given back"

# ---- how programs are called ----

contact fast FIRST_CONTACT_SECONDS=6000
code_is 0
checks >has
lines has "$(wc -l <has)" ': passed$'
sort fast/called >calls
for program in test_product test_xent test_step_ops test_update test_op_kernels test_attention test_delta_rule; do
    lines calls 1 "^$program  LD_LIBRARY_PATH= NDP_GPU_GUARD=1 NDP_TEST_SMALL=\$"
done
lines calls 1 '^test_golden 3 LD_LIBRARY_PATH= NDP_GPU_GUARD= '
lines calls 4 '^ndparallel '
lines calls 3 '^ndparallel (train|verify) .*--device cuda '
lines calls 6 '^compute-sanitizer '
for tool in memcheck racecheck; do
    for program in test_op_kernels test_attention test_delta_rule; do
        lines calls 1 "^compute-sanitizer --tool $tool --error-exitcode 1 --report-api-errors no --kernel-name regex=ndp_ bin/$program LD_LIBRARY_PATH= NDP_GPU_GUARD=1 NDP_TEST_SMALL=1\$"
    done
done
# The batch, the sequence and the accumulation are ours, and the peer's states are fp32, as ours.
lines calls 1 '^bench_gpu smollm2 1 1024 4 5 cuda '
lines calls 1 '^bench_gpu 1.5b 1 1024 4 5 cuda '
lines calls 1 '^python3 .*/peer.py --shape 1.5b --batch 1 --seq 1024 --accumulate 4 --states fp32 LD_LIBRARY_PATH= '
says "$logs/peer.1.5b" '"states": "fp32", "torch": "0"'

# A part alone, without the peer.
(cd fast && rm -f called && env -i PATH="$work/stubs:/usr/bin:/bin" FIRST_CONTACT_SECONDS=6000 ./first-contact quick) >out 2>err </dev/null
code=$?
code_is 0
checks >has
[ "$(tr '\n' ' ' <has)" = "env: passed test_product: passed test_attention: passed golden: passed same run twice, same bits: passed bench.smollm2: passed " ] ||
    fail "the table: $(cat has)"
(cd fast && rm -f called && env -i PATH="$work/stubs:/usr/bin:/bin" FIRST_CONTACT_SECONDS=6000 ./first-contact rest) >out 2>err </dev/null
code=$?
code_is 0
checks >has
lines has 0 'test_product|golden|peer|bench.smollm2'
lines has 1 '^bench.1.5b: passed$'

# ---- what fails, and what hangs ----

stub fast/bin/test_xent 'exit 3'
stub fast/bin/test_golden 'exit 77'
contact fast FIRST_CONTACT_SECONDS=6000
code_is 1
checks >has
says has '^test_xent: FAILED: exit code 3$' '^golden: skipped$' '^test_update: passed$'
lines has 1 FAILED

# A program that does not even end by SIGTERM is ended, and the others run.
case_of a program that hangs
wait $hanging
[ $? = 1 ] || fail "not exit code 1"
logs=$work/hangs/first-contact.logs
checks >has
says has '^test_product: FAILED: over ([1-9]|1[0-2]) s$' '^peer.1.5b: passed$'
grep -q '^State:.[^ZX]' "/proc/$(cat hung)/status" 2>err && fail "the program still runs"
[ -s hangs/first-contact.tar.gz ] || fail "no archive"

# No time at all.
contact fast FIRST_CONTACT_SECONDS=5
code_is 1
checks >has
lines has "$(wc -l <has)" ': NOT RUN: no time left$'

# A clock of our own: each check takes all it may, and does not end by SIGTERM. The whole takes five minutes.
echo 1000 >clock
printf '#!/bin/sh\ncat %s/clock\n' "$work" >stubs/date
cat >stubs/timeout <<EOF
#!/bin/sh
echo \$((\$(cat $work/clock) + \$2 + \$3)) >$work/clock
exit 137
EOF
chmod +x stubs/date stubs/timeout
contact fast
code_is 1
checks >has
lines has 0 passed
# Whatever the others take, the speed of each shape is measured.
says has '^test_product: FAILED: over 30 s$' '^bench.smollm2: FAILED: over 30 s$' '^bench.1.5b: FAILED: over [34][0-9] s$' \
    'racecheck: NOT RUN: no time left$'
[ "$(cat clock)" -le 1300 ] || fail "it takes $(($(cat clock) - 1000)) s, and has 300"
end_of_cases
