#!/bin/sh
# Layouts that the numbers forbid, by every command that reads a job: refused in one message with the rule, the numbers
# and the nearest legal layouts, before data, weights or run folder are touched (the data are not even there).
. "$(dirname "$0")/cases.sh"
make_job
rm text.txt
sed -i 's/"num_attention_heads": 2, "num_key_value_heads": 1/"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 8/' config.json
sed -i 's/dp_shard_size: 2/dp_shard_size: 1/; s/, micro_batch_size: 2//' job.yaml

# forbids "PATTERN" ARGUMENT...: with AXIS=SIZE for parallelism.AXIS_size.
forbids() {
    words=$1 arguments=
    shift
    for argument in "$@"; do
        case $argument in
        *=*) arguments="$arguments --set parallelism.${argument%%=*}_size=${argument#*=}" ;;
        *) arguments="$arguments $argument" ;;
        esac
    done
    for command in plan 'plan --program' 'train --dry-run' 'train --transport local' 'train --transport mpi'; do
        run $command job.yaml $arguments
        refused "$words"
        [ ! -e run ] && [ ! -e cache ] || fail "it made a folder"
    done
}

forbids '12 attention heads are not divisible by tp 5 x sp 1 = 5\. The nearest legal layouts on 5 ranks: dp_shard 5; dp_replicate 5; cp 5\. On other numbers of ranks: tp 4 \(4 ranks\)$' tp=5
forbids '12 attention heads are not divisible by tp 1 x sp 5 = 5\. .* on 5 ranks: cp 5; dp_shard 5; .* ranks: sp 4 \(4 ranks\)$' sp=5
forbids '12 attention heads are not divisible by tp 4 x sp 4 = 16\. .* on 16 ranks: cp 4 x tp 4; dp_shard 4 x tp 4; .* ranks: sp 4 x tp 3 \(12 ranks\); sp 3 x tp 4 \(12 ranks\)$' tp=4 sp=4
forbids '4 kv heads and tp 6 x sp 1 = 6: neither divides the other\. .* on 6 ranks: dp_shard 3 x tp 2; .* tp 4 \(4 ranks\); tp 12 \(12 ranks\)' tp=6
forbids '4 kv heads and tp 2 x sp 3 = 6: neither divides the other\. .* on 6 ranks: cp 3 x tp 2; ' tp=2 sp=3
forbids '4 kv heads and tp 3 x sp 1 = 3: neither divides the other\. .* on 12 ranks: dp_shard 3 x cp 2 x tp 2; ' tp=3 cp=2 dp_shard=2
forbids 'pp 3 is more than the 2 layers\. The nearest legal layouts on 3 ranks: dp_shard 3; .* pp 2 \(2 ranks\)$' pp=3
forbids 'ep 3 does not divide dp_shard 2 x cp 2 x sp 1 x tp 1 = 4\. .* on 4 ranks: dp_shard 2 x cp 2' dp_shard=2 cp=2 ep=3
forbids 'dp_shard 2 x tp 2 has 4 ranks, but the run has 3; set .*\. The nearest legal layouts on 3 ranks: dp_shard 3' dp_shard=2 tp=2 --ranks 3
forbids 'dp_shard auto x tp 4: 6 ranks are not a multiple of 4\. .* 6 ranks: dp_shard 3 x tp 2; .* tp 4 \(4 ranks\); dp_shard 2 x tp 4 \(8 ranks\)$' dp_shard=auto tp=4 --ranks 6
forbids '12 attention heads are not divisible by tp 8 x sp 1 = 8\. .* on 8 ranks: dp_shard 2 x tp 4; ' dp_shard=1 tp=auto --ranks 8
forbids 'parallelism.dp_shard_size and parallelism.tp_size are both auto; set one of them to a number' dp_shard=auto tp=auto
forbids 'the sizes multiply to more than 1048576 ranks' dp_shard=1048576 cp=1048576 tp=1048576
forbids 'cp_size' cp=0
forbids 'global batch 4 is not a multiple of micro batch 1 x dp_replicate 1 x dp_shard 3 = 3; the nearest global batches are 3 and 6' dp_shard=3 cp=2

forbids 'ep 2: the model has no mixtures of experts' dp_shard=2 ep=2

# What a refusal names works: a dry run of it.
run plan job.yaml --set parallelism.cp_size=3 --set parallelism.tp_size=2
code_is 0
says out '^layout: cp 3 x tp 2 on 6 ranks' '^rows: 32 of a micro-batch, padded to 36; a rank has 12, attention 12 queries over 36 keys, the residual stream 6$'

end_of_cases
