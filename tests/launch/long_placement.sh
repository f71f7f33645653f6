#!/bin/sh
# --placement best on two bridges with a trunk: from a hostfile that alternates between the bridges, and from one of 3, 1, 2
# and 2 slots, it sends no more over the trunk than the best of all 24 orders of the hosts, each run and counted by the kernel;
# its step takes within 10% of that order's; and losses keep their bits, however the ranks are placed. NDP_NO_ORDERS=1 leaves out
# the 24 orders.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
make_job
cat >config.json <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 128,
 "intermediate_size": 384, "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 320,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
EOF
common="--set data.sequence_length=128 --set batch.global_batch_size=8 --set batch.micro_batch_size=1 --set schedule.name=constant --set train.check_links=off"

# Hosts 1 and 2 on one bridge, 3 and 4 on the other.
make_hosts 4 2
shape 200mbit
shape_trunk 200mbit
printf 'node-%d slots=2\n' 1 2 3 4 >hosts.txt
run topology --quick --hostfile hosts.txt -o cluster.yaml
code_is 0
says out '^racks: node-1, node-2 \| node-3, node-4;'

# hosts "SLOTS OF NODES 1 .. 4" "ORDER": a hostfile.
hosts() {
    for i in $2; do echo "node-$i slots=$(echo "$1" | cut -d ' ' -f "$i")"; done
}

# train RUN STEPS "SIZES" ARGUMENT...; $taken: bytes over the trunk, both ways.
train() {
    folder=$1
    steps=$2
    layout=$3
    shift 3
    rm -rf "$folder"
    from=$(($(trunk_up) + $(trunk_down)))
    # shellcheck disable=SC2046,SC2086
    run train job.yaml $common $(layout_words "$layout") --set train.output_dir="$folder" --set train.steps="$steps" "$@"
    code_is 0
    taken=$(($(trunk_up) + $(trunk_down) - from))
}
losses() { sed 's/.*"loss": *\([0-9.e-]*\).*/\1/' "$1/metrics.jsonl"; }

# a_step "SIZES" ARGUMENT...: bytes of a step over the trunk: those of 6 steps less those of 2.
a_step() {
    train few 2 "$@"
    few=$taken
    train many 6 "$@"
    bytes=$(((taken - few) / 4))
    losses many | cmp -s - straight || fail "other losses than on one host: $*"
}

seconds() { sed -n 's/.*"step_seconds": *\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n +2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
middle() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

orders() {
    for a in 1 2 3 4; do for b in 1 2 3 4; do for c in 1 2 3 4; do for d in 1 2 3 4; do
        [ "$(printf '%s\n' $a $b $c $d | sort -u | wc -l)" != 4 ] || echo "$a $b $c $d"
    done; done; done; done
}

# compare "SIZES" "SLOTS" "BAD ORDER"
compare() {
    train one 6 "$1" --transport local
    losses one >straight
    least=
    for order in $(orders | tr ' ' .); do
        order=$(echo "$order" | tr . ' ')
        hosts "$2" "$order" >listed
        a_step "$1" --hostfile listed
        [ -n "$least" ] && [ "$bytes" -ge "$least" ] || { least=$bytes; of=$order; }
    done
    hosts "$2" "$3" >bad
    a_step "$1" --hostfile bad
    given=$bytes
    a_step "$1" --hostfile bad --placement best --cluster cluster.yaml
    best=$bytes
    sed -n 's/^placement: node/  node/p' out
    # The counter has a few kilobytes of other things: metrics, and MPI's own messages.
    [ "$best" -le $((least + least / 50 + 20000)) ] || fail "$1 on slots $2: best sends $best over the trunk, the order $of $least"
    hosts "$2" "$of" >good
    : >best.times
    : >good.times
    for turn in 1 2 3 4 5 6 7; do
        train timed 6 "$1" --hostfile bad --placement best --cluster cluster.yaml
        seconds timed >>best.times
        train timed 6 "$1" --hostfile good
        seconds timed >>good.times
    done
    echo "$1, slots $2, listed $3: over the trunk in a step $given bytes as listed, $best by best, $least by the best order ($of); seconds $(middle best.times) by best, $(middle good.times) by that order"
    awk -v a="$(middle best.times)" -v b="$(middle good.times)" 'BEGIN { exit !(a <= 1.1 * b) }' || fail "$1: best takes $(middle best.times) s, the order $of $(middle good.times)"
}

if [ -z "${NDP_NO_ORDERS:-}" ]; then
    compare "dp_replicate 2 dp_shard 4" "2 2 2 2" "1 3 2 4"
    compare "dp_replicate 2 dp_shard 4" "3 1 2 2" "1 3 2 4"
    compare "pp 2 dp_replicate 2 tp 2" "3 1 2 2" "3 1 4 2"
fi

# Without a cluster.yaml the links are measured first; the run folder keeps them, and the map. A resumed run may be placed anew.
hosts "2 2 2 2" "1 3 2 4" >bad
# shellcheck disable=SC2046,SC2086
run train job.yaml $common $(layout_words "dp_replicate 2 dp_shard 4") --set train.output_dir=kept --set train.steps=3 --hostfile bad --placement best
code_is 0
says out '^racks: ' '^placement: node-1 0,1; ' '^placement: rack uplink carry .* in the hosts. own order '
[ -s kept/cluster.yaml ] && grep -q '"host_of_rank": \[0, 0, 1, 1, 2, 2, 3, 3\]' kept/links.json || fail "no map in the run folder"
# shellcheck disable=SC2046,SC2086
run train job.yaml $common $(layout_words "dp_replicate 2 dp_shard 4") --set train.output_dir=kept --set train.steps=6 --hostfile bad --resume
code_is 0
train one 6 "dp_replicate 2 dp_shard 4" --transport local
losses one >straight
losses kept | cmp -s - straight || fail "other losses after a resume on another map"

# The folder of another run keeps its cluster.yaml.
echo mine >kept/cluster.yaml
# shellcheck disable=SC2046,SC2086
run train job.yaml $common $(layout_words "dp_replicate 2 dp_shard 4") --set train.output_dir=kept --hostfile bad --placement best
code_is 2
lines err 1 '^ndparallel'
[ "$(cat kept/cluster.yaml)" = mine ] || fail "the cluster.yaml of another run was overwritten"

# ---- what cannot be placed ----

run train job.yaml --placement best
refused '^ndparallel: --placement best chooses among several hosts: give --hostfile'
printf 'node-1\nnode-2\n' >unknown
run train job.yaml --placement best --hostfile unknown --cluster cluster.yaml
refused "^ndparallel: --placement best has to know how many ranks 'node-1' takes: write slots=N"
printf 'node-1 slots=1\nelsewhere slots=1\n' >unknown
run train job.yaml --placement best --hostfile unknown --cluster cluster.yaml
refused "^ndparallel: cluster.yaml: the host 'elsewhere' is not in it"
printf 'node-1 slots=1\n' >short
run train job.yaml --placement best --hostfile short --cluster cluster.yaml
refused '^ndparallel: 2 ranks, but the 1 hosts have 1 slots'
end_of_cases
