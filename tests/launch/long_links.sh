#!/bin/sh
# What a step sends over the links of four hosts of two ranks, as planned and as the kernel counts it, and how long it takes:
# at 100, 200 and 500 Mbit/s, and on two bridges with a trunk. Bytes are those of a step: of a run of 5
# steps less those of one of 2. NDP_LINK_PARTS="off 200" makes parts of the table (off: no limit).
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
parts=${NDP_LINK_PARTS:-100 200 500 trunk}
make_job
# 1.9 million parameters: the data are most of what is sent.
cat >config.json <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 192,
 "intermediate_size": 576, "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 320,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
EOF
printf 'node-%d slots=2\n' 1 2 3 4 >four

common="--set data.sequence_length=256 --set batch.global_batch_size=8 --set batch.micro_batch_size=1 --set train.check_links=off --set schedule.name=constant"

# counts: bytes sent by each host so far, and over the trunk.
counts() {
    for i in 1 2 3 4; do sent node-$i; done
    [ -z "${trunked:-}" ] || { trunk_up; trunk_down; }
}

# train RUN STEPS "SIZES" block|cyclic
train() {
    if [ "$4" = cyclic ]; then export OMPI_MCA_rmaps_base_mapping_policy=node; else unset OMPI_MCA_rmaps_base_mapping_policy; fi
    counts >before
    # shellcheck disable=SC2046,SC2086
    run train job.yaml $common $(layout_words "$3") --set train.output_dir="$1" --set train.steps="$2" --hostfile four
    code_is 0
    counts >after
    paste before after | awk '{ print $2 - $1 }' >"$1.bytes"
}

# The median of the seconds of steps 2 on.
seconds() { sed -n 's/.*"step_seconds": *\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n +2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# planned "SIZES" block|cyclic: bytes that each host sends, then each rack.
planned() {
    # shellcheck disable=SC2046,SC2086
    "$NDP_PROGRAM" plan job.yaml $common $(layout_words "$1") --cluster four.yaml --distribution "$2" --json >plan.json || fail "no plan of $1"
    # A list for each level; the first is of devices.
    grep -o '"bytes_of_each": \[[^]]*\]' plan.json | tail -n +2 | sed 's/.*\[//; s/\]//' | tr ', ' '\n\n' | sed '/^$/d'
}

# row "SIZES" block|cyclic: measures, prints, and compares with the plan.
row() {
    rm -rf few many
    train few 2 "$1" "$2"
    train many 5 "$1" "$2"
    planned "$1" "$2" >planned.bytes
    paste few.bytes many.bytes planned.bytes | awk '{ print ($2 - $1) / 3, $3 }' >both
    taken=$(seconds many)
    # A link carries what is planned and headers: packets of 9000 bytes have 66 of their own, and messages of MPI.
    # The metrics of a step are a few hundred bytes that no plan has.
    awk -v name="$1 $2" -v rate="$part" -v seconds="$taken" '
        { off = $2 > 0 ? $1 / $2 - 1 : 0; if (off > worst || off < -worst) { worst = off < 0 ? -off : off }
          counted = counted sprintf(" %8.3f", $1 / 1e6); plan = plan sprintf(" %8.3f", $2 / 1e6) }
        END { printf "%-6s %-32s planned%s  counted%s  off %4.1f%%  %.3f s\n", rate, name, plan, counted, 100 * worst, seconds
              exit worst > 0.03 }' both >>table || fail "more than 3% off: $(tail -n 1 table)"
    tail -n 1 table
    echo "$part $taken $1 $2" >>times
}

rows() {
    row "dp_shard 8" block
    row "dp_replicate 4 dp_shard 2" block
    row "dp_replicate 4 dp_shard 2" cyclic
    row "dp_replicate 2 dp_shard 4" block
    row "pp 4 dp_shard 2" block
    row "pp 4 dp_shard 2" cyclic
    row "tp 2 dp_shard 4" block
    row "tp 2 dp_shard 4" cyclic
    row "cp 2 dp_shard 4" block
    row "sp 2 dp_replicate 4" block
}

cluster() {
    cat >four.yaml <<EOF
name: four
hosts: [node-1, node-2, node-3, node-4]
nodes: 4
node: {device: cpu, devices: 2, links: {bandwidth: 5.0e9}, nics: {count: 1, bandwidth: $1}}
EOF
}

for part in $parts; do
    if [ "$part" = trunk ]; then
        make_hosts 4 2
        trunked=yes
        shape 200mbit
        shape_trunk 200mbit
        cluster 25.0e6
        printf 'network: [{level: rack, nodes: 2}, {level: core, racks: 2, oversubscription: 2}]\n' >>four.yaml
    else
        make_hosts 4
        [ "$part" = off ] || shape "${part}mbit"
        cluster "$(if [ "$part" = off ]; then echo 125.0e6; else echo $((part * 125000)); fi)"
    fi
    rows
    unmake_hosts
done

# At 200 Mbit/s the best layout that follows the links is at least 15% faster than the flat one.
case " $parts " in
*" 200 "*)
    case_of flat and aware of links, at 200 Mbit/s
    awk '$1 == 200 && /dp_shard 8/ { flat = $2 } $1 == 200 && !/dp_shard 8/ && (!best || $2 < best) { best = $2; of = $0 }
        END { printf "at 200 Mbit/s: flat %.3f s; best %s: %.0f%% faster\n", flat, of, 100 * (flat / best - 1); exit !(flat / best >= 1.15) }' times || fail "not 15% faster"
    ;;
esac
end_of_cases
