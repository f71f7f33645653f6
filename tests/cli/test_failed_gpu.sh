#!/bin/sh
# A GPU that fails at a submission, as after an Xid, on sim: the run ends with that error's line and code 1, never with a
# signal and never later than its time limit, on threads and processes, for each way of collectives, on each axis, in a
# step, an evaluation, a save. The step that was saved before it loads. NDP_TEST_ALL=1 fails every 11th submission; else
# some, which NDP_TEST_SEED chooses.
. "$(dirname "$0")/cases.sh"
nccl=$NDP_BUILD_DIR/fake_nccl
[ -e "$nccl/libnccl.so.2" ] && [ -e "$NDP_PLUGIN_DIR/ndp_sim.so" ] || { echo "SKIPPED: no ndp_sim.so or fake libnccl"; exit 77; }
export NDP_CUDA_PATH="$nccl" NDP_COMM_TIMEOUT=60
patience=100
make_job
head -c 200 text.txt >short.txt # an evaluation is many submissions
seed=${NDP_TEST_SEED:-$(date +%s)}
all=${NDP_TEST_ALL:-}
first=$seed
failed=0

# Sets $chance to a number below $1, the next one of the seed.
draw() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    chance=$((seed / 65536 % $1))
}

# tiny SETTING...
tiny() {
    run train job.yaml --device sim --set train.share_gpu=true --set data.sequence_length=8 --set schedule.name=constant \
        --set train.steps=2 --set checkpoint.every=1 --set checkpoint.async=false --set train.eval_every=1 \
        --set data.validation_files=[short.txt] --set train.output_dir=run "$@"
}

# fails_at N SETTING...: the Nth submission. Code 0: there are fewer.
fails_at() {
    n=$1
    shift
    rm -rf run
    draw 3
    export NDP_SIM_FAIL_AT="$n" NDP_SIM_FAIL_RANK=$chance # of 2 ranks: one of them, or both
    [ $chance != 2 ] || unset NDP_SIM_FAIL_RANK
    tiny "$@"
    unset NDP_SIM_FAIL_AT NDP_SIM_FAIL_RANK
    ends=$code
    [ "$code" != 0 ] || return 0
    failed=$((failed + 1))
    what="$what (NDP_SIM_FAIL_AT=$n)"
    code_is 1
    says err '^ndparallel: .*this GPU has failed'
    draw 8
    if ls -d run/checkpoints/step-* >/dev/null 2>&1 && { [ -z "$all" ] || [ $chance = 0 ]; }; then resumes "$@"; fi
}

resumes() {
    tiny --resume "$@"
    code_is 0
}

# way SETTING...: all of its submissions, or one of every third way.
way() {
    at=1
    while [ -n "$all" ]; do
        fails_at $at "$@"
        [ "$ends" != 0 ] || return 0
        at=$((at + 11))
    done
    draw 3
    [ $chance = 0 ] || return 0
    draw 1500
    fails_at $((1 + chance)) "$@"
}

for moves in 'local device' 'local staged' 'shm device' 'shm staged'; do
    for axes in dp_shard dp_replicate tp cp pp lora; do
        more="--set parallelism.dp_shard_size=1 --set parallelism.${axes}_size=2"
        [ $axes != lora ] || more='--set adapter.type=lora --set adapter.r=2'
        [ $axes != pp ] || more="$more --set batch.micro_batch_size=1"
        # shellcheck disable=SC2086
        way --transport ${moves% *} --set train.collectives=${moves#* } $more
    done
done
fails_at 700 --transport local --set parallelism.dp_shard_size=1
[ $failed -gt 0 ] || fail "only $failed of the runs failed"
echo "$failed runs with a failed GPU (NDP_TEST_SEED=$first)"
end_of_cases
