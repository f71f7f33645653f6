#!/bin/sh
# batch.micro_batch_size: auto with a cluster, whose cluster.yaml is measured with as many ranks as a job has: of twelve jobs (families,
# types, adapters, optimizers, recompute) on 1 and 2 ranks, the micro-batch that `plan --cluster` takes is as fast, within 5%, as the
# fastest of those measured. Each is measured in turns, so that what else the machine does falls on all: the least of 3 medians.
. "$(dirname "$0")/../cli/cases.sh"
turns=3
steps=7

make_job
llama='"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 4,
  "vocab_size": 4096, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false'
echo "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", $llama}" >llama.json
echo "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_act\": \"silu\", \"num_experts\": 8,
  \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, \"norm_topk_prob\": true, \"head_dim\": 32, $llama}" >mixture.json
cat >job.yaml <<'END'
model: {config: llama.json, init: random}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 128}
batch: {global_batch_size: 8, micro_batch_size: 1}
optimizer: {lr: 1.0e-3}
train: {threads: 1}
END
for ranks in 1 2; do
    "$NDP_PROGRAM" topology --ranks $ranks -o cluster$ranks.yaml >/dev/null 2>err || fail "topology of $ranks ranks: $(tail -n 1 err)"
done

# median M: of the seconds of the steps after the second, with that micro-batch.
median() {
    rm -rf run
    # shellcheck disable=SC2086 # sets is a list of arguments
    "$NDP_PROGRAM" train job.yaml $sets --set train.output_dir=run --set train.steps=$steps --set checkpoint.every=0 \
        --set batch.micro_batch_size="$1" >/dev/null 2>err || fail "micro-batch $1: $(tail -n 1 err)"
    sed -nE 's/.*"step": ([0-9]+),.*"step_seconds": ([0-9.e+-]+),.*/\1 \2/p' run/metrics.jsonl |
        awk '$1 > 2 { print $2 }' | sort -g | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }'
}

slower=0
measured=0
while read -r sets; do
    for ranks in 1 2; do
        [ $ranks = 1 ] || sets="$sets --set parallelism.dp_shard_size=2"
        # shellcheck disable=SC2086
        run plan job.yaml $sets --set batch.micro_batch_size=auto --cluster cluster$ranks.yaml
        code_is 0
        chosen=$(sed -nE 's/^micro-batch ([0-9]+) \(auto.*/\1/p' out)
        [ -n "$chosen" ] || fail "no micro-batch was chosen: $(head -n 3 out)"
        sizes="1 2 4"
        [ $ranks = 2 ] || sizes="$sizes 8"
        : >times
        for turn in $(seq $turns); do
            for m in $sizes; do echo "$m $(median "$m") $turn" >>times; done
        done
        awk -v chosen="$chosen" -v of="$ranks ranks: $sets" '
            !($1 in least) || $2 < least[$1] { least[$1] = $2 }
            END { for (m in least) if (!best || least[m] < least[best]) best = m
                  printf "micro-batch %d: %.4f s, the fastest %d: %.4f s, %.3f; ", chosen, least[chosen], best, least[best], least[chosen] / least[best]
                  print of; exit !(least[chosen] <= 1.05 * least[best]) }' times || slower=$((slower + 1))
        measured=$((measured + 1))
    done
done <<'END'
--set precision.compute=fp32
--set precision.compute=bf16
--set precision.compute=bf16 --set train.recompute=block
--set optimizer.name=adamw8bit
--set optimizer.name=muon --set precision.compute=bf16
--set adapter.type=lora
--set adapter.type=qlora --set precision.compute=bf16
--set model.config=mixture.json
--set model.config=mixture.json --set precision.compute=bf16 --set train.recompute=block
--set model.config=mixture.json --set adapter.type=qlora --set adapter.base=int8
--set precision.states=bf16 --set precision.weights=bf16 --set precision.compute=bf16
--set optimizer.name=lion --set data.packing=false
END
echo "$((measured - slower)) of $measured within 5% of the fastest"
[ $slower = 0 ] || fail "$slower of $measured are more than 5% slower than the fastest"
end_of_cases
