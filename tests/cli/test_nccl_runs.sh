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

# Evaluations use the communicators of the steps.
made() { grep -cE ' nccl(CommInitRankConfig|CommSplit)' "$work/$1.device.calls"; }
head -c 400 text.txt >short.txt
evaluates="--set data.validation_files=[short.txt] --set train.eval_every=1"
same_bits shard_evaluated --set parallelism.dp_shard_size=2 $evaluates
same_bits stages_evaluated --set parallelism.pp_size=2 --set parallelism.dp_shard_size=1 --set batch.micro_batch_size=1 $evaluates
for way in shard stages; do
    [ "$(made $way)" -gt 0 ] && [ "$(made ${way}_evaluated)" = "$(made $way)" ] ||
        fail "$way: $(made $way) communicators, with evaluations $(made ${way}_evaluated)"
done

# An operation that never ends: the run says which and ends, and both ranks abort their communicators.
export FAKE_NCCL_LOG="$work/lost.calls" FAKE_NCCL_STICK_AT=20 NDP_COMM_TIMEOUT=5
run train job.yaml $tiny --set train.collectives=device --set train.output_dir=lost --transport shm --set parallelism.dp_shard_size=2
code_is 1
says err '^ndparallel: .* and all other ranks have begun it, but it does not complete: ranks 0-1 wait, rank [01] waits at #[0-9]+ [a-z_]+ [^ ]+ \('
lines err 1 '^ndparallel'
[ "$(sed -n 's/ ncclCommAbort .*//p' lost.calls | sort -u | wc -l)" = 2 ] || fail "not both ranks abort NCCL's communicators"
unset FAKE_NCCL_STICK_AT

# Several communicators hang: all of a rank are aborted in one group, or the abort never returns.
four="--transport shm --set train.collectives=device --set parallelism.dp_shard_size=2 --set parallelism.pp_size=2
    --set batch.micro_batch_size=1 --set train.steps=1000000 --set checkpoint.every=0"

# ends WORDS CODE: of a run that has met its fault; `wait` and the abort together stay below the limit of a hung run.
ends() {
    code_is "$2"
    says err "$1"
    lines err 1 '^ndparallel: '
    ! grep -q 'an abort waits for' "$FAKE_NCCL_LOG" || fail "an abort waits for an operation that hangs"
    [ "$(($(date +%s) - begun))" -lt 60 ] || fail "it ended after $(($(date +%s) - begun)) s"
    [ "$(sed -n 's/ ncclCommAbort .*//p' "$FAKE_NCCL_LOG" | sort -u | wc -l)" -ge 3 ] || fail "not all ranks abort"
}

export FAKE_NCCL_LOG="$work/stuck.calls" FAKE_NCCL_STICK_AT=57
begun=$(date +%s)
run train job.yaml $tiny $four --set train.output_dir=stuck
ends '^ndparallel: rank [0-3] waited 5 s .* (it does not complete|ha(s|ve) not arrived)' 1
unset FAKE_NCCL_STICK_AT
export FAKE_NCCL_LOG="$work/failed.calls" NDP_SIM_FAIL_AT=700 NDP_SIM_FAIL_RANK=2
begun=$(date +%s)
run train job.yaml $tiny $four --set train.output_dir=failed
ends 'rank 2: .*this GPU has failed' 1
unset NDP_SIM_FAIL_AT NDP_SIM_FAIL_RANK

some_steps() { [ -e killed/metrics.jsonl ] && [ "$(wc -l <killed/metrics.jsonl)" -gt 1 ]; }
case_of ndparallel train, rank 3 killed over NCCL
export FAKE_NCCL_LOG="$work/killed.calls"
"$NDP_PROGRAM" train job.yaml $tiny $four --set train.output_dir="$work/killed" >out 2>err </dev/null &
pid=$!
within some_steps || fail "no steps"
for p in $(grep -lF "$work/killed" /proc/[0-9]*/cmdline); do
    ! grep -qzxF NDP_RANK=3 "$(dirname "$p")/environ" || kill -KILL "$(basename "$(dirname "$p")")"
done 2>/dev/null
begun=$(date +%s)
wait $pid
code=$?
ends 'rank 3 .process [0-9]+. was killed by signal 9' 137
end_of_cases
