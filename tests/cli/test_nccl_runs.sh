#!/bin/sh
# Runs of two processes on the device sim whose collectives are NCCL's (tests/comm/fake_nccl) leave the bits of the same
# runs with staged collectives, for each axis of parallelism. One that hangs ends.
. "$(dirname "$0")/cases.sh"
nccl=$NDP_BUILD_DIR/fake_nccl
[ -e "$nccl/libnccl.so.2" ] && [ -e "$NDP_PLUGIN_DIR/ndp_sim.so" ] || { echo "SKIPPED: no ndp_sim.so or fake libnccl"; exit 77; }
export NDP_CUDA_PATH="$nccl" NDP_COMM_TIMEOUT=60
make_job
tiny="--set data.sequence_length=8 --set schedule.name=constant --set train.steps=2 --device sim --set train.share_gpu=true"

# same_bits NAME SETTING...: two ranks; weights and losses are those of staged collectives.
same_bits() {
    name=$1
    shift
    for way in staged device; do
        export FAKE_NCCL_LOG="$work/$name.$way.calls"
        run train job.yaml $tiny --set train.collectives=$way --set train.output_dir="$name.$way" --transport shm "$@"
        code_is 0
    done
    [ ! -e "$work/$name.staged.calls" ] || fail "staged collectives call NCCL"
    grep -q ' nccl[A-Z]' "$work/$name.device.calls" || fail "NCCL was not called"
    for model in $(cd "$name.staged" && find . -name '*.safetensors' -o -name '*.bin' | sort); do
        cmp "$name.staged/$model" "$name.device/$model" || fail "$name: other weights"
    done
    [ -n "$model" ] || fail "$name: no weights"
    losses "$name.staged" >want && losses "$name.device" >got && cmp want got || fail "$name: other losses"
}

losses() { sed -n 's/.*\("loss": *[0-9.e-]*\).*\("grad_norm": *[0-9.e-]*\).*/\1 \2/p' "$1/metrics.jsonl"; }

same_bits shard --set parallelism.dp_shard_size=2
same_bits replicate --set parallelism.dp_replicate_size=2 --set parallelism.dp_shard_size=1
same_bits tensor --set parallelism.tp_size=2 --set parallelism.dp_shard_size=1
same_bits context --set parallelism.cp_size=2 --set parallelism.dp_shard_size=1
same_bits stages --set parallelism.pp_size=2 --set parallelism.dp_shard_size=1 --set batch.micro_batch_size=1

# An operation that never ends: the run says which and ends, and both ranks abort their communicators.
export FAKE_NCCL_LOG="$work/lost.calls" FAKE_NCCL_STICK_AT=20 NDP_COMM_TIMEOUT=5
run train job.yaml $tiny --set train.collectives=device --set train.output_dir=lost --transport shm --set parallelism.dp_shard_size=2
code_is 1
says err '^ndparallel: .* and all other ranks have begun it, but it does not complete: ranks 0-1 wait, rank [01] waits at #[0-9]+ [a-z_]+ [^ ]+ \('
lines err 1 '^ndparallel'
[ "$(sed -n 's/ ncclCommAbort .*//p' lost.calls | sort -u | wc -l)" = 2 ] || fail "not both ranks abort NCCL's communicators"
end_of_cases
