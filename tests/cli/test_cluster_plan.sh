#!/bin/sh
# plan --cluster with generated layouts: on a cluster of one device a node, every byte that a rank sends leaves a node once, so the
# links carry what all ranks send together; on one node nothing leaves it; and on any nodes an uplink carries no more
# than the nodes of its rack send. Every axis and their products, schedules, types, devices, losses, adapters and a mixture.
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/; s/"num_attention_heads": 2, "num_key_value_heads": 1/"num_attention_heads": 8, "num_key_value_heads": 4/' config.json
mixture='{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 64,
 "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 258, "num_local_experts": 4, "num_experts_per_tok": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}'
echo "$mixture" >mixture.json

# cluster FILE NODES DEVICES [NETWORK]
cluster() {
    printf 'nodes: %s\nnode: {device: h100-sxm, devices: %s}\n%s\n' "$2" "$3" "${4:-}" >"$1"
}
cluster single.yaml 1 8
cluster apart.yaml 8 1 'network: [{level: rack, nodes: 2}, {level: pod, racks: 2, oversubscription: 3}, {level: hall, pods: 2, oversubscription: 2}]'
cluster pairs.yaml 4 2 'network: [{level: rack, nodes: 2}, {level: pod, racks: 2, oversubscription: 3}]'

# sums LEVEL: of a plan's links; 0 are those of devices.
sums() { grep -o '"bytes_of_each": \[[^]]*\]' out | sed -n "$(($1 + 1))s/.*\[//p" | sed 's/\]//' | tr ',' '\n' | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
# What rank $1 sends, of its own plan.
sends() { grep -o '"group": "[a-z_0-9]*", "ranks": [0-9]*, "bytes": [0-9.e+]*' out | awk '{ sum += $NF } END { printf "%.3f\n", sum }'; }

# plan CLUSTER ARGUMENT...
plan() {
    file=$1
    shift
    run plan job.yaml --json --cluster "$file" --set batch.global_batch_size=16 --set batch.micro_batch_size=1 "$@"
    code_is 0
}

# check "AXIS SIZE ..." ARGUMENT...
check() {
    layout=$1
    shift
    for axis in pp dp_replicate dp_shard cp sp tp; do
        set -- "$@" --set parallelism.${axis}_size="$(echo "$layout 1" | sed -n "s/.*\b$axis \([0-9]*\).*/\1/p;t;s/.*/1/p")"
    done
    stages=$(echo "$layout 1" | sed -n "s/.*\bpp \([0-9]*\).*/\1/p;t;s/.*/1/p")
    all=0
    for stage in $(seq 0 $((stages - 1))); do
        plan apart.yaml "$@" --rank $((stage * 8 / stages))
        all=$(echo "$all $(sends) $((8 / stages))" | awk '{ printf "%.3f", $1 + $2 * $3 }')
    done
    nics=$(sums 1)
    echo "$all $nics" | awk '{ d = $1 - $2; if (d < 0) d = -d; exit !($1 > 0 && d <= 8) }' || fail "$layout: ranks send $all bytes, links carry $nics"
    awk -v a="$nics" -v b="$(sums 2)" -v c="$(sums 3)" 'BEGIN { exit !(b <= a && c <= b) }' || fail "$layout: uplinks carry more than the nodes send"
    plan single.yaml "$@"
    [ "$(sums 1)" = 0 ] || fail "$layout on one node: $(sums 1) bytes leave it"
    for how in block cyclic; do
        plan pairs.yaml "$@" --distribution $how
        awk -v a="$(sums 1)" -v b="$(sums 2)" -v all="$all" 'BEGIN { exit !(b <= a && a <= all + 8) }' || fail "$layout, $how: more leaves nodes than is sent"
    done
}

for layout in "dp_shard 8" "dp_replicate 8" "cp 8" "sp 2 dp_shard 4" "tp 4 dp_shard 2" "pp 4 dp_shard 2" "pp 2 tp 2 cp 2" \
    "dp_replicate 2 dp_shard 2 cp 2" "sp 2 tp 2 dp_shard 2" "pp 2 dp_replicate 2 dp_shard 2" "cp 2 sp 2 tp 2"; do
    check "$layout"
done
for schedule in gpipe interleaved_1f1b zero_bubble zbv; do
    "$NDP_PROGRAM" config pipeline.schedule | grep -qw $schedule || continue
    check "pp 2 dp_shard 4" --set pipeline.schedule=$schedule
done
check "dp_shard 4 tp 2" --set precision.compute=bf16
check "cp 4 dp_shard 2" --set parallelism.cp_method=all_gather
check "dp_shard 2 tp 2 cp 2" --set train.recompute=block
check "dp_replicate 2 dp_shard 4" --set optimizer.name=muon
check "dp_shard 4 tp 2" --set adapter.type=lora --set adapter.targets=linear
check "dp_shard 4 cp 2" --set adapter.type=qlora --set precision.compute=bf16
check "pp 2 dp_shard 2 tp 2" --set model.config=mixture.json
check "dp_shard 4 cp 2" --set model.config=mixture.json --set moe.balance=sequence
check "dp_shard 4 tp 2" --device ref --set precision.compute=fp64
# GPUs: collectives run around rings.
if [ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_sim.so" ]; then
    check "dp_shard 8" --device sim
    check "pp 2 dp_shard 2 tp 2" --device sim --set train.collectives=staged
fi

# Without a file, for the cluster's device, in two layouts: an entry of results for each; wrong ones are one line and exit code 2.
plan 2x4:h100-sxm --layout tp=2 --layout pp=2,dp_replicate=2
[ "$(grep -o '"place": [0-9]' out | tr -d '\n')" = '"place": 1"place": 2' ] || fail "two layouts: $(cat out)"
grep -q '"cluster": {"name": "2x4-h100-sxm", "nodes": 2, "devices": 8, "numbers": "built in"}' out || fail "the cluster: $(cat out)"
for wrong in "--cluster 2x4:h100" "--cluster 2x4:h100-sxm --layout tp=3" "--cluster 2x4:h100-sxm --layout qp=2" "--cluster 2x0:h100-sxm"; do
    run plan job.yaml $wrong
    code_is 2
    lines err 1 "^ndparallel: "
done
# Heads that kernels of GPUs do not have, before anything is planned; and with fp32.
sed 's/"hidden_size": 32/"hidden_size": 32, "head_dim": 512/' config.json >wide.json
run plan job.yaml --cluster 1x2:h100-sxm --set model.config=wide.json --set precision.compute=bf16
refused 'heads of 512 columns; attention in bf16 on train.device cuda has 256 at most'
run plan job.yaml --cluster 1x2:h100-sxm --set model.config=wide.json
code_is 0
end_of_cases
