#!/bin/sh
# The first choice of `plan --search` on four hosts of two ranks, which are namespaces of this one with links of a given rate,
# against other layouts: seconds of a step, planned with the cluster.yaml that `topology` measures there, and of runs. Takes root.
#     bench/planned_hosts.sh         at 200 Mbit/s, 1 and 4 Gbit/s; NDP_RATES="1gbit" for some, NDP_REPEATS=5
here=$(realpath "$(dirname "$0")")
export NDP_SOURCE_DIR="${NDP_SOURCE_DIR:-${here%/*}}" NDP_PROGRAM="${NDP_PROGRAM:-${here%/*}/build/ndparallel}"
. "$NDP_SOURCE_DIR/tests/launch/hosts.sh"
. "$NDP_SOURCE_DIR/tests/cli/cases.sh"
repeats=${NDP_REPEATS:-3}
patience=300
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

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
number() { sed -n 's/.*"'"$1"'": *\([0-9.e-]*\).*/\1/p' "$2" | head -n 1; }

# measured NAME JOB OPTION...: a row.
measured() {
    name=$1
    job=$2
    shift 2
    "$NDP_PROGRAM" plan "$job" "$@" --cluster four.yaml --json >plan.json 2>err || { echo "$name: $(head -n 1 err)"; return 0; }
    for i in $(seq "$repeats"); do
        rm -rf run
        timeout $patience "$NDP_PROGRAM" train "$job" "$@" --hostfile four >out 2>err </dev/null || { echo "$name: $(tail -n 1 err)"; return 0; }
        sed -n 's/.*"step_seconds": *\([0-9.e-]*\).*/\1/p' run/metrics.jsonl | tail -n +3 | median
    done >medians
    awk -v name="$name" -v planned="$(number step_seconds plan.json)" -v taken="$(median <medians)" -v least="$(sort -g medians | head -n 1)" \
        -v most="$(sort -g medians | tail -n 1)" 'BEGIN {
        printf "  %-34s %8.4f  %8.4f  %8.4f .. %8.4f  %+6.1f%%\n", name, planned, taken, least, most, 100 * (planned / taken - 1) }' | tee -a rows
}

for rate in ${NDP_RATES:-200mbit 1gbit 4gbit}; do
    shape "$rate"
    : >rows
    "$NDP_PROGRAM" topology --hostfile four -o four.yaml >topology 2>&1 || { cat topology; exit 1; }
    "$NDP_PROGRAM" plan job.yaml --cluster four.yaml --search --apply first.yaml >search 2>&1 || { cat search; exit 1; }
    echo "$rate: search"
    sed -n '1,14p' search
    printf '  %-34s %8s  %8s  %-20s  %6s\n' layout planned measured 'least .. greatest' error
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
