#!/bin/sh
# examples/own_loop.c and examples/policy_gradient.c: the first gives the losses and the model of `train`, bit for bit, by
# threads, processes and MPI; the second finds the same texts on two layouts, and its reward rises.
[ -z "$NDP_SANITIZE" ] || { echo "skipped: a library with a sanitizer in it needs a program with one"; exit 77; }
command -v cc >/dev/null || { echo "skipped: no cc"; exit 77; }
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' config.json # for four stages
for example in own_loop policy_gradient; do
    cc -std=c17 -Wall -Wextra -Werror -I"$NDP_SOURCE_DIR/include" -o $example "$NDP_SOURCE_DIR/examples/$example.c" \
        -L"$NDP_BUILD_DIR" -lndparallel -lm -Wl,-rpath,"$NDP_BUILD_DIR" || exit 1
done

numbers() { sed 's/.*"loss": \([^,]*\), "grad_norm": \([^,]*\), "lr": \([^,]*\), "tokens": \([^,]*\),.*/\1 \2 \3 \4/' "$1"; }

# same TRANSPORT RANKS KEYS...: the loop by such ranks, and a run.
same() {
    transport=$1 ranks=$2
    shift 2
    sets="--set train.steps=4 --set checkpoint.every=0 --set batch.global_batch_size=8 --set batch.micro_batch_size=1"
    for key in "$@"; do sets="$sets --set $key"; done
    keys=$(echo "$sets" | sed 's/--set //g')
    run train job.yaml $sets --transport local --set train.output_dir=plain
    code_is 0
    start=
    [ "$transport" = local ] || start="$NDP_PROGRAM launch --transport $transport -n $ranks --"
    case_of own_loop "$transport" "$@"
    timeout $patience $start ./own_loop job.yaml 1 $keys train.transport=$([ "$transport" = local ] && echo local || echo auto) \
        train.output_dir=own >out 2>err </dev/null
    code=$?
    code_is 0
    numbers plain/metrics.jsonl >plain.txt
    numbers own/metrics.jsonl >own.txt
    cmp plain.txt own.txt >>err || fail "other losses: $(diff plain.txt own.txt | head -4)"
    cmp plain/model/model.safetensors own/model/model.safetensors >>err || fail "another model"
    rm -rf plain own
}

# Every axis, every pipeline, products.
while read -r ranks layout <&3; do
    keys=parallelism.$(echo "$layout" | sed 's/ / parallelism./g; s/parallelism.pipeline/pipeline/')
    for transport in local $(transports 2>/dev/null | sed 's/local//'); do
        # shellcheck disable=SC2086
        same "$transport" "$ranks" parallelism.dp_shard_size=1 $keys
    done
done 3<<'EOF'
1 tp_size=1
2 dp_shard_size=2
2 dp_replicate_size=2
2 cp_size=2
2 sp_size=2
2 tp_size=2
2 pp_size=2 pipeline.schedule=1f1b
2 pp_size=2 pipeline.schedule=gpipe
2 pp_size=2 pipeline.schedule=interleaved
2 pp_size=2 pipeline.schedule=zero_bubble
2 pp_size=2 pipeline.schedule=zbv
2 pp_size=2 pipeline.schedule=dualpipev
8 dp_shard_size=2 dp_replicate_size=2 tp_size=2
16 dp_shard_size=2 dp_replicate_size=2 cp_size=2 tp_size=2
16 dp_shard_size=2 dp_replicate_size=2 tp_size=2 pp_size=2
EOF

# Four calls of a quarter: gradients are added in another order of the losses' sums.
run train job.yaml --set train.steps=3 --set checkpoint.every=0 --set batch.global_batch_size=8 --set batch.micro_batch_size=1 \
    --transport local --set train.output_dir=plain
code_is 0
case_of own_loop 4 calls
timeout $patience ./own_loop job.yaml 4 train.steps=3 checkpoint.every=0 batch.global_batch_size=2 batch.micro_batch_size=1 \
    train.transport=local train.output_dir=own >out 2>err </dev/null
code=$?
code_is 0
cmp plain/model/model.safetensors own/model/model.safetensors >>err || fail "another model"

model=${NDP_TEST_DATA:-}/models/stories260K
if [ -d "$model" ]; then
    for layout in "parallelism.dp_shard_size=2 parallelism.tp_size=2" "parallelism.dp_shard_size=1 parallelism.pp_size=2"; do
        case_of policy_gradient "$layout"
        timeout $patience ./policy_gradient "$model" the 4 1 $layout train.threads=1 train.output_dir=policy >out 2>err </dev/null
        code=$?
        code_is 0
        lines out 4 '^update'
        awk '{ print $1, $2, $3, $4 }' out >now.txt
        [ ! -e first.txt ] || cmp first.txt now.txt >>err || fail "other rewards: $(cat first.txt now.txt)"
        mv now.txt first.txt
    done
else
    echo "skipped: policy gradients need stories260K (NDP_TEST_DATA)"
fi
end_of_cases
