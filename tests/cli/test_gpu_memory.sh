#!/bin/sh
# What a GPU cannot hold is refused by a dry run and by the run, before anything is allocated; a plan warns.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NDP_SIM_GPUS=1
cd "$NDP_SOURCE_DIR"
job="$NDP_SOURCE_DIR/examples/quickstart.yaml"
sets="--device sim --set data.files=[$NDP_SOURCE_DIR/README.md] --set data.tokenizer=bytes --set train.output_dir=$work/run --set train.steps=1 --set parallelism.dp_replicate_size=1 --set parallelism.dp_shard_size=1"
fail() { echo "$1"; cat "$work/out"; exit 1; }
# expect CODE PATTERN COMMAND...
expect() {
    code=$1 pattern=$2
    shift 2
    got=0
    "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "exit code $got, expected $code: $*"
    tr '\n' ' ' <"$work/out" | grep -qE "$pattern" || fail "no '$pattern': $*"
}
# shellcheck disable=SC2086
{
    expect 0 'a GPU of 1 rank needs .*; it has 64.* \(free on this machine.s GPU\)' "$NDP_PROGRAM" plan "$job" $sets
    expect 0 'a GPU of 1 rank needs .*; it has 10[0-9].* \(train.gpu_memory\) .*warning: it would be refused' \
        "$NDP_PROGRAM" plan "$job" $sets --set train.gpu_memory=0.1
    expect 0 '"gpu": *\{"ranks": *1, "bytes": *[0-9]+, "available": *[0-9]+, "lacks": *null' "$NDP_PROGRAM" plan "$job" $sets --json
    expect 2 'of a GPU with CUDA.s own, which has 10[0-9]' "$NDP_PROGRAM" train "$job" $sets --dry-run --set train.gpu_memory=0.1
    expect 2 'of a GPU with CUDA.s own, which has 10[0-9]' "$NDP_PROGRAM" train "$job" $sets --set train.gpu_memory=0.1
    [ ! -e "$work/run/model" ] || fail "the run was not refused"
    expect 0 'micro-batch 4 \(auto: 8 would need 80[0-9.]+ MiB of 757.8 MiB\)' \
        "$NDP_PROGRAM" plan "$job" $sets --set train.gpu_memory=0.74 --set batch.micro_batch_size=auto
    expect 2 'needs 80[0-9.]+ MiB of a GPU with CUDA.s own, which has 757.8 MiB' \
        "$NDP_PROGRAM" train "$job" $sets --set train.gpu_memory=0.74 --set batch.micro_batch_size=8
    expect 0 'micro-batch 4 \(auto: 8 would need 80[0-9.]+ MiB of 757.8 MiB\)' \
        "$NDP_PROGRAM" train "$job" $sets --set train.gpu_memory=0.74 --set batch.micro_batch_size=auto
    rm -r "$work/run"
    expect 0 'a GPU of 2 ranks needs' "$NDP_PROGRAM" plan "$job" $sets --set parallelism.dp_shard_size=2 --set train.share_gpu=true
    # NCCL moves the tensors of processes, and takes memory for that.
    nccl=' and +[0-9.]+ [MG]iB +[0-9]+ bytes, about what NCCL takes of a GPU'
    expect 0 "$nccl.* a GPU of 1 rank needs [0-9.]+ (MiB|GiB); it has 64" "$NDP_PROGRAM" plan "$job" $sets --set parallelism.dp_shard_size=2 --set train.collectives=device
    most=$(sed -n 's/^a GPU of 1 rank needs \([0-9.]*\) .*/\1/p' "$work/out")
    expect 0 '"nccl": *[1-9][0-9]{7,}' "$NDP_PROGRAM" plan "$job" $sets --set parallelism.dp_shard_size=2 --set train.collectives=device --json
    for way in '--set train.collectives=staged' '--set train.collectives=device --set train.transport=local --set train.share_gpu=true'; do
        expect 0 ' a GPU of [12] ranks? needs ' "$NDP_PROGRAM" plan "$job" $sets --set parallelism.dp_shard_size=2 $way
        ! grep -q NCCL "$work/out" || fail "NCCL takes memory: $way"
    done
    expect 2 "1 rank of $most MiB needs 1.2 GiB of a GPU" "$NDP_PROGRAM" train "$job" $sets --dry-run --set parallelism.dp_shard_size=2 --set train.collectives=device --set train.gpu_memory=0.75
    if "$NDP_PROGRAM" plan "$job" --set data.tokenizer=bytes 2>&1 | grep -q 'a GPU'; then fail "a CPU has no GPU"; fi
}
