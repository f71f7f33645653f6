#!/bin/sh
# Ranks that share experts, whose rows reach them in several rounds, write what one rank writes; evaluate runs on any number
# of them, and generate continues what they have trained. A run with states of 8 bits goes on with another ep_size. Factors
# beside experts that are stored in 4 or 8 bits are those of one rank, resume on other layouts, and merge.
. "$(dirname "$0")/cases.sh"
make_job
cat >mixture.json <<'END'
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": 32,
 "intermediate_size": 64, "moe_intermediate_size": 130, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": true,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 2, "vocab_size": 258,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
END
tail -n 40 text.txt >held.txt
cat >job.yaml <<'END'
model: {config: mixture.json, init: random}
data: {files: [text.txt], validation_files: [held.txt], tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
moe: {capacity_factor: 1}
optimizer: {lr: 5.0e-3}
schedule: {name: constant, warmup_steps: 0}
train: {steps: 8, eval_every: 4, threads: 1, force_memory: true, sample_every: 8, sample_prompts: [The], sample_tokens: 8}
END
axes() { for axis in "$@"; do printf ' --set parallelism.%s_size=%s' "${axis%=*}" "${axis#*=}"; done; }
last_eval() { sed -n 's/.*"eval_loss": \([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
sample() { sed -n 's/.*"text": \(".*\)/\1/p' "$1/samples.jsonl"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && (a - b) ^ 2 < (5e-6 * b) ^ 2) }' || fail "'$1' is not '$2'"; }
nll() { sed -n 's/.*"mean_nll": \([0-9.]*\).*/\1/p' out; }

run train job.yaml --set parallelism.dp_shard_size=1 --set train.output_dir=one
code_is 0
whole_rows='--set parallelism.tp_sequence_parallel=false'
n=0
for way in 'dp_shard=4 ep=4' "dp_shard=2 tp=2 ep=4" "pp=2 cp=2 tp=2 ep=2"; do
    n=$((n + 1))
    run train job.yaml $(axes $way) $whole_rows --transport shm --set train.output_dir=run$n
    code_is 0
    near "$(last_eval run$n)" "$(last_eval one)"
    grep -qE '"rounds": ([2-9]|1\.[0-9]*[1-9])' run$n/metrics.jsonl || fail 'rows went in one round'
    [ "$(sample run$n)" = "$(sample one)" ] || fail "its samples are $(sample run$n), those of one rank $(sample one)"
    run generate --model run$n --prompt 'The ' --max-tokens 12
    code_is 0
    cp out said$n
    cmp -s said1 said$n || fail 'it continues otherwise'
    run evaluate job.yaml --model run$n --json $(axes $way) --transport local
    code_is 0
    near "$(nll)" "$(last_eval one)"
done
run evaluate --model run1 --data held.txt --json
code_is 0

# States of 8 bits.
run train job.yaml --set optimizer.name=adamw8bit $(axes dp_shard=2 ep=2) --set train.output_dir=coded --set train.steps=4
code_is 0
run train job.yaml --set optimizer.name=adamw8bit $(axes cp=2 tp=2 ep=4) --set train.output_dir=coded --resume
code_is 0
grep -q '8-bit states are quantized anew: their blocks were those of tp_size 1 and ep_size 2, now they are those of 2 and 4' out err ||
    fail 'it does not say that states are quantized anew'

# Experts in 4 and 8 bits.
cat >qlora.yaml <<END
model: {path: one/model}
data: {files: [text.txt], validation_files: [held.txt], tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 1}
adapter: {type: qlora, r: 4, alpha: 8, targets: [experts.gate_up_proj, experts.down_proj, q_proj]}
optimizer: {lr: 5.0e-3}
schedule: {name: constant, warmup_steps: 0}
train: {steps: 6, eval_every: 3, threads: 1, force_memory: true}
END
for way in 'nf4 dp_shard=2 ep=2' 'int8 cp=2 tp=2 ep=2' 'int8 tp=2'; do
    base=${way%% *} way=${way#* }
    run train qlora.yaml --set adapter.base=$base --set parallelism.dp_shard_size=1 --set train.output_dir=q1
    code_is 0
    grep -q "qlora ($base)" out || fail 'it does not say how the base is stored'
    run train qlora.yaml --set adapter.base=$base $(axes $way) --transport shm --set train.output_dir=q2 --set train.steps=3
    code_is 0
    run train qlora.yaml --set adapter.base=$base --set parallelism.dp_shard_size=1 --set train.output_dir=q2 --resume
    code_is 0
    near "$(last_eval q2)" "$(last_eval q1)"
    run merge --model one/model --adapter q2 --output merged
    code_is 0
    run evaluate --model q2 --data held.txt --json
    code_is 0
    rm -rf q1 q2 merged
done

end_of_cases
