#!/bin/sh
# batch.micro_batch_size: auto under a limit of a control group: twelve jobs (families, types, adapters, optimizers, recompute) on 1
# and 2 ranks. What auto takes is what the plan says, it runs within the limit, and twice as much is refused before the start.
. "$(dirname "$0")/../cli/cases.sh"
group=/sys/fs/cgroup/memory/ndp-auto-$$
[ -d /sys/fs/cgroup/memory ] || { group=/sys/fs/cgroup/ndp-auto-$$; v2=yes; }
if ! mkdir "$group" 2>/dev/null; then
    echo "no control group can be made at ${group%/*}: limits of memory are skipped"
    exit 77
fi
trap 'rmdir "$group"; rm -rf "$work"' EXIT
limit_file=$group/${v2:+memory.max}
[ -n "${v2-}" ] || limit_file=$group/memory.limit_in_bytes
# limited BYTES ARGUMENT...: the program in the group, with that limit.
limited() {
    echo "$1" >"$limit_file"
    shift
    case_of ndparallel "$@"
    timeout $patience sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$NDP_PROGRAM" "$@" >out 2>err
    code=$?
}

make_job
llama='"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 6,
  "vocab_size": 4096, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false'
echo "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", $llama}" >llama.json
echo "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_act\": \"silu\", \"num_experts\": 8,
  \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, \"norm_topk_prob\": true, \"head_dim\": 32, $llama}" >mixture.json
cat >job.yaml <<'END'
model: {config: llama.json, init: random}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 256}
batch: {global_batch_size: 16, micro_batch_size: 1}
optimizer: {lr: 1.0e-3}
train: {steps: 1, threads: 1}
END

# needs M: bytes of the node with that micro-batch, as the plan says.
needs() {
    # shellcheck disable=SC2086 # sets is a list of arguments
    "$NDP_PROGRAM" plan job.yaml $sets --set batch.micro_batch_size="$1" --force-memory --json 2>err |
        sed -nE 's/.*"node": \{[^}]*"bytes": ([0-9]+).*/\1/p'
}

while read -r m sets; do
    for ranks in 1 2; do
        [ $ranks = 1 ] || sets="$sets --set parallelism.dp_shard_size=2"
        least=$(needs "$m") more=$(needs $((2 * m)))
        # Between the two. What a process has before it plans is counted as in use: 6 MiB each.
        limit=$(((least + more) / 2 + ranks * 6 * 1048576))
        [ $((more - least)) -gt 8388608 ] || fail "$sets: $least and $more bytes are too near"
        rm -rf run refused
        # shellcheck disable=SC2086 # sets is a list of arguments
        limited $limit train job.yaml $sets --set train.output_dir=run --set batch.micro_batch_size=auto
        code_is 0
        says out "^micro-batch $m \(auto: $((2 * m)) would need "
        peak=$(cat "$group"/memory.max_usage_in_bytes "$group"/memory.peak 2>/dev/null)
        echo "$ranks ranks, micro-batch $m: plan $((least >> 20)), limit $((limit >> 20)), used $((peak >> 20)) MiB, $((2 * m)) needs $((more >> 20)): $sets"
        # shellcheck disable=SC2086
        limited $limit train job.yaml $sets --set train.output_dir=refused --set batch.micro_batch_size=$((2 * m))
        [ "$code" != 0 ] && [ ! -d refused/checkpoints ] || fail "micro-batch $((2 * m)) is not refused"
        says err "^ndparallel: .*needs .* available"
        echo 0 >"$group/memory.max_usage_in_bytes" 2>/dev/null
    done
done <<'END'
2 --set precision.compute=fp32
4 --set precision.compute=bf16
8 --set precision.compute=bf16 --set train.recompute=block --set batch.global_batch_size=32
2 --set optimizer.name=adamw8bit
4 --set optimizer.name=muon --set precision.compute=bf16
1 --set adapter.type=lora
2 --set adapter.type=qlora --set precision.compute=bf16
4 --set model.config=mixture.json
8 --set model.config=mixture.json --set precision.compute=bf16 --set train.recompute=block --set batch.global_batch_size=32
2 --set model.config=mixture.json --set adapter.type=qlora --set adapter.base=int8
4 --set precision.states=bf16 --set precision.weights=bf16 --set precision.compute=bf16
1 --set optimizer.name=lion --set data.packing=false
END
end_of_cases
