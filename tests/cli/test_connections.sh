#!/bin/sh
# Queues that share a GPU's connections (CUDA_DEVICE_MAX_CONNECTIONS=K; `sim` plays them), over the fake NCCL: a run leaves
# the bits of staged collectives, or it is refused before it starts, as by `plan`, and never with 8 or 32 connections. Without K, `sim`
# goes on while its host waits for others. NDP_TEST_ALL=1: every layout, 1, 4 and 16 micro-batches, each K; else some, which
# NDP_TEST_SEED chooses.
. "$(dirname "$0")/cases.sh"
nccl=$NDP_BUILD_DIR/fake_nccl
[ -e "$nccl/libnccl.so.2" ] && [ -e "$NDP_PLUGIN_DIR/ndp_sim.so" ] || { echo "SKIPPED: no ndp_sim.so or fake libnccl"; exit 77; }
export NDP_CUDA_PATH="$nccl" NDP_COMM_TIMEOUT=100
make_job
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' config.json
seed=${NDP_TEST_SEED:-$(date +%s)}
all=${NDP_TEST_ALL:-}
refusals=0

# chosen N: one of N, the next one of the seed.
chosen() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    [ -n "$all" ] || [ $((seed / 65536 % $1)) = 0 ]
}

# train COLLECTIVES SETTING...
train() {
    way=$1
    shift
    rm -rf "$way"
    run train job.yaml --device sim --set train.share_gpu=true --transport shm --set data.sequence_length=8 \
        --set schedule.name=constant --set train.steps=2 --set batch.micro_batch_size=1 --set parallelism.dp_shard_size=1 \
        --set train.collectives="$way" --set train.output_dir="$way" "$@"
}

refused_by_plan() {
    refusals=$((refusals + 1))
    [ "$k" -lt 8 ] && [ "$k" != 0 ] || fail "refused with $k connections"
    says err 'CUDA_DEVICE_MAX_CONNECTIONS=[0-9]+\): where two share a connection'
    run plan job.yaml --device sim --set data.sequence_length=8 --set batch.micro_batch_size=1 \
        --set parallelism.dp_shard_size=1 --set train.collectives=device "$@"
    code_is 1
    says err 'CUDA_DEVICE_MAX_CONNECTIONS=[0-9]+\): where two share a connection'
}

# with K SETTING...: `staged` has what it shall leave.
with() {
    k=$1
    shift
    unset CUDA_DEVICE_MAX_CONNECTIONS
    [ "$k" = 0 ] || export CUDA_DEVICE_MAX_CONNECTIONS="$k"
    train device "$@"
    if [ "$code" = 1 ]; then refused_by_plan "$@"; else
        code_is 0
        for model in $(cd staged && find . -name '*.safetensors' | sort); do
            cmp "staged/$model" "device/$model" || fail "K=$k: other weights"
        done
        [ -n "$model" ] || fail "no weights"
    fi
    unset CUDA_DEVICE_MAX_CONNECTIONS
}

for axes in 'pp 4' 'pp 2 tp 2' 'pp 2 dp_shard 2' 'pp 2 cp 2' 'pp 4 tp 2' 'pp 4 dp_shard 2' 'pp 4 cp 2' 'dp_shard 2 tp 2' 'dp_replicate 2 cp 2' 'dp_shard 2 cp 2' \
    'pp 2 dp_shard 2 tp 2' 'dp_shard 2 cp 2 tp 2'; do
    for micro_batches in 1 4 16; do
        chosen 12 || continue
        # shellcheck disable=SC2046,SC2086
        set -- $(printf -- '--set parallelism.%s_size=%s ' $axes)
        data=1
        case $axes in *dp_*) data=2 ;; esac
        set -- "$@" --set batch.global_batch_size=$((micro_batches * data))
        case $axes in 'dp_replicate 2 cp 2') set -- "$@" --set parallelism.dp_shard_size=1 ;; esac
        train staged "$@"
        code_is 0
        for k in 0 32 8 4 2; do
            [ $k = 0 ] || chosen 2 || continue
            with $k "$@"
        done
    done
done
# Of four stages, neighbours wait for each other where two of their queues share a connection.
set -- --set parallelism.pp_size=4 --set batch.global_batch_size=16
with 3 "$@"
[ $refusals -gt 0 ] || fail "nothing was refused"
end_of_cases
