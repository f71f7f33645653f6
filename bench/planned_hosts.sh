#!/bin/sh
# The first choice of `plan --search` on four hosts of two ranks, which are namespaces of this one with links of a given rate,
# against other layouts: seconds of a step, planned with the cluster.yaml that `topology` measures there, and of runs. Takes root.
#     bench/planned_hosts.sh         at 200 Mbit/s, 1 and 4 Gbit/s; NDP_RATES="1gbit" for some, NDP_REPEATS=5
here=$(realpath "$(dirname "$0")")
export NDP_SOURCE_DIR="${NDP_SOURCE_DIR:-${here%/*}}" NDP_PROGRAM="${NDP_PROGRAM:-${here%/*}/build/ndparallel}"
. "$NDP_SOURCE_DIR/tests/launch/hosts.sh"
. "$NDP_SOURCE_DIR/tests/cli/cases.sh"
repeats=${NDP_REPEATS:-3}
make_job
cat >config.json <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 192,
 "intermediate_size": 576, "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 8, "vocab_size": 320,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
EOF
cat >job.yaml <<'EOF'
model: {config: config.json, init: random}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 256}
parallelism: {dp_shard_size: 8}
batch: {global_batch_size: 16, micro_batch_size: 1}
schedule: {name: constant, warmup_steps: 0}
train: {steps: 8, output_dir: run, threads: 1, force_memory: true, check_links: off}
EOF
printf 'node-%d slots=2\n' 1 2 3 4 >four
make_hosts 4

program=$NDP_PROGRAM
. "$here/planned.sh"

# measured NAME JOB OPTION...
measured() {
    name=$1 job=$2
    shift 2
    planned_and_measured "$name" four.yaml "$job" four "$@" && sed 's/^/  /' row | tee -a rows
}

for rate in ${NDP_RATES:-200mbit 1gbit 4gbit}; do
    shape "$rate"
    : >rows
    "$NDP_PROGRAM" topology --hostfile four -o four.yaml >topology 2>&1 || { cat topology; exit 1; }
    "$NDP_PROGRAM" plan job.yaml --cluster four.yaml --search --apply first.yaml >search 2>&1 || { cat search; exit 1; }
    echo "$rate: search"
    sed -n '1,14p' search
    printf '  %-44s %8s  %8s  %-20s  %6s\n' layout planned measured 'least .. greatest' error
    measured "the first of the search" first.yaml
    for sizes in "dp_shard 8" "dp_replicate 8" "dp_replicate 4 dp_shard 2" "dp_replicate 2 dp_shard 4" "dp_shard 4 tp 2" "dp_replicate 4 tp 2" "pp 2 dp_shard 4" \
        "pp 2 dp_replicate 4" "pp 4 dp_replicate 2" "pp 4 tp 2" "pp 8" "pp 2 dp_replicate 2 tp 2" "dp_replicate 4 sp 2" "dp_shard 4 cp 2"; do
        # shellcheck disable=SC2046
        measured "$sizes" job.yaml $(layout_words "$sizes")
    done
    # The name may have blanks; the fields after it are planned, measured, least, "..", greatest, error.
    awk '{ taken = $(NF - 4) } NR == 1 { first = best = taken } taken < best { best = taken }
        END { printf "  the first of the search takes %.1f%% more than the best of %d\n", 100 * (first / best - 1), NR }' rows
done
