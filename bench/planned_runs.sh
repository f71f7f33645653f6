#!/bin/sh
# Planned against measured: the seconds of a step, by `plan --cluster` of this machine as `topology` has measured it with as
# many ranks at once, and by runs, the median of their steps after the second. A row is a case: seconds planned, the median of
# the repeats, their least and greatest, the error; memory planned for the node, and for one rank also what the process took.
# Then the median and the 90th percentile of the errors.
#     bench/planned_runs.sh [REPEATS [PATTERN]]      5 repeats of the cases whose names match; beside nothing else
program=${NDP_PROGRAM:-$(dirname "$0")/../build/ndparallel}
program=$(realpath "$program")
repeats=${1:-5}
pattern=${2:-.}
. "$(dirname "$0")/planned.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$(dirname "$0")/../README.md" "$work/text.txt"
cd "$work" || exit 1

shape='"num_attention_heads": 8, "vocab_size": 4096, "bos_token_id": 1, "eos_token_id": 2'
llama='"hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "num_key_value_heads": 4'
cat >llama.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", $llama, $shape,
 "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "tie_word_embeddings": false}
END
cat >mixtral.json <<END
{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", $llama, $shape,
 "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "tie_word_embeddings": false,
 "num_local_experts": 4, "num_experts_per_tok": 2, "rope_theta": 10000.0}
END
cat >gpt2.json <<END
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 192, "n_layer": 6, "n_head": 6, "n_positions": 512,
 "vocab_size": 4096, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
END
awk '{ gsub(/["\\\t]/, " "); if (length($0) > 60) printf "{\"prompt\": \"%s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", substr($0, 1, 20), substr($0, 21, 60), substr($0, 41, 60) }' \
    text.txt >pairs.jsonl
cat >job.yaml <<'END'
model: {config: llama.json, init: random}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 256}
batch: {global_batch_size: 8, micro_batch_size: 2}
schedule: {name: constant, warmup_steps: 0}
train: {steps: 8, output_dir: run, force_memory: true, check_links: off}
END

# case NAME RANKS KEY=VALUE...
case_of() {
    name=$1
    ranks=$2
    shift 2
    echo "$name" | grep -Eq "$pattern" || return 0
    set -- $(printf -- '--set %s ' "$@")
    planned_and_measured "$name" "of$ranks.yaml" job.yaml "" "$@" || return 0
    needs=$(sed -n 's/.*"node": *{[^}]*"bytes": *\([0-9]*\).*/\1/p' plan.json | head -n 1)
    awk -v needs="${needs:-0}" -v peak="$(tail -n 1 run/metrics.jsonl | sed 's/.*"peak_memory_bytes": *\([0-9]*\).*/\1/')" -v ranks="$ranks" '{
        printf "%s  %7.1f MiB%s\n", $0, needs / 1048576, ranks == 1 ? sprintf(" %7.1f", peak / 1048576) : "" }' row | tee -a rows
}

"$program" env | sed -n '/^processor\|^kernels/p'
for ranks in 1 2; do
    "$program" topology --ranks $ranks -o of$ranks.yaml >topology.$ranks 2>&1 || { cat topology.$ranks; exit 1; }
done
printf '%-44s %8s  %8s  %-20s  %6s  %s\n' case planned measured 'least .. greatest' error 'node needs (one rank: took)'
for precision in fp32 bf16; do
    for rows in 1 2 4; do
        for again in none block; do
            case_of "llama $precision, micro-batch $rows, recompute $again" 1 precision.compute=$precision batch.micro_batch_size=$rows train.recompute=$again
        done
    done
    case_of "llama $precision, LoRA" 1 precision.compute=$precision adapter.type=lora adapter.r=8
    case_of "llama $precision, DPO" 1 precision.compute=$precision loss.name=dpo data.format=preference data.files=[pairs.jsonl] data.sequence_length=128
    for rows in 1 4; do
        case_of "mixtral $precision, micro-batch $rows" 1 precision.compute=$precision batch.micro_batch_size=$rows model.config=mixtral.json
    done
    case_of "gpt2 $precision" 1 precision.compute=$precision model.config=gpt2.json
done
for axis in dp_replicate dp_shard cp sp tp pp; do
    for rows in 1 2; do
        case_of "llama, $axis 2, micro-batch $rows" 2 parallelism.${axis}_size=2 batch.micro_batch_size=$rows
    done
    case_of "llama bf16, $axis 2" 2 parallelism.${axis}_size=2 precision.compute=bf16
done
for axis in dp_shard tp; do
    case_of "llama, LoRA, $axis 2" 2 parallelism.${axis}_size=2 adapter.type=lora adapter.r=8
    case_of "llama, DPO, $axis 2" 2 parallelism.${axis}_size=2 loss.name=dpo data.format=preference data.files=[pairs.jsonl] data.sequence_length=128
    case_of "mixtral, $axis 2" 2 parallelism.${axis}_size=2 model.config=mixtral.json
    case_of "gpt2, $axis 2" 2 parallelism.${axis}_size=2 model.config=gpt2.json
done
sed 's/.* \([+-][0-9.]*\)%.*/\1/; s/[+-]//' rows | sort -g |
    awk '{ v[NR] = $1 } END { printf "%d cases: error median %.1f%%, 90th percentile %.1f%%, greatest %.1f%%\n", NR, v[int((NR + 1) / 2)], v[int(0.9 * NR + 0.5)], v[NR] }'
