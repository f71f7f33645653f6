#!/bin/sh
# Steps of other trainers, dumped by the scripts of tools/dump: transformers in one process and on 2 ranks in every layout agrees with
# our step; each mistake made in these scripts (dump_cases.py) is found. $NDP_DUMP_PYTHON has torch (tools/test-python dump).
. "$(dirname "$0")/cases.sh"
python=${NDP_DUMP_PYTHON:-python3}
tools=$NDP_SOURCE_DIR/tools/dump
if ! "$python" -c 'import accelerate, safetensors, torch, torchtitan, transformers' 2>import.log; then
    echo "$python: $(tail -n 1 import.log): trainers in Python are skipped (tools/test-python dump installs what they need)"
    exit 77
fi
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 PYTHONDONTWRITEBYTECODE=1

# trains NAME COMMAND...: a script that writes the dump NAME.
trains() {
    case_of "$@"
    shift
    timeout $patience "$@" >out 2>err || fail "exit code $?"
}

# ranks SCRIPT ARGUMENT...: on two processes.
ranks() { trains "$1" "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$@"; }

# agrees MODEL DUMP
agrees() {
    run verify job.yaml --set model.path="$1" --against "$2"
    code_is 0
    says out "^$2 agrees with our step on its [0-9]+ rows of [0-9]+ tokens"
}

# differs MODEL DUMP
differs() {
    run verify job.yaml --set model.path="$1" --against "$2"
    code_is 1
    says out "^$2 differs from our step on its [0-9]+ rows of [0-9]+ tokens"
}

cat >job.yaml <<'EOF2'
model: {path: tied}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 32}
batch: {global_batch_size: 4, micro_batch_size: 2}
optimizer: {name: adamw, lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, max_grad_norm: 1.0}
schedule: {name: constant}
train: {steps: 1, threads: 1, force_memory: true, output_dir: run}
EOF2
cp "$NDP_SOURCE_DIR/README.md" text.txt
trains models "$python" "$NDP_SOURCE_DIR/tests/cli/dump_cases.py" "$tools" models .

# Every script as a user runs it; also on the rows of a job, which `verify --dump` writes.
models=tied
stories=${NDP_TEST_DATA:+$NDP_TEST_DATA/models/stories260K}
if [ -n "$stories" ] && [ -d "$stories" ]; then
    ln -s "$stories" stories260K
    models="$models stories260K"
else
    echo "no NDP_TEST_DATA: stories260K is skipped" >&2
fi
run verify job.yaml --dump ours
code_is 0
agrees tied ours
for model in $models; do
    trains one "$python" "$tools/one_process.py" $model one-$model
    agrees $model one-$model
    says out '^weights .* agrees, most in '
    for script in ddp fsdp2 tensor_parallel context_parallel accelerate_step; do
        ranks "$tools/$script.py" $model $script-$model
        agrees $model $script-$model
    done
done
trains mixture "$python" "$tools/one_process.py" mixture one-mixture
agrees mixture one-mixture
for experts in grouped_mm batched_mm; do
    for axis in tp fsdp; do
        ranks "$tools/expert_parallel.py" mixture $experts-$axis '' $experts $axis
        agrees mixture $experts-$axis
    done
done
trains theirs "$python" "$tools/one_process.py" tied theirs ours/batch.safetensors
agrees tied theirs

trains launched "$python" -m accelerate.commands.launch --cpu --num_processes 1 "$tools/accelerate_step.py" tied launched
agrees tied launched

trains right "$python" "$NDP_SOURCE_DIR/tests/cli/dump_cases.py" "$tools" right .
for name in accelerate_fsdp2 accelerate_tp accelerate_cp; do
    agrees tied $name
done

for dump in golden-*; do
    agrees "$NDP_SOURCE_DIR/tests/golden/${dump#golden-}" "$dump"
done
for layout in data_parallel_shard tensor_parallel; do
    ranks "$NDP_SOURCE_DIR/tests/cli/titan_on_cpu.py" "$tools" tied titan-$layout --parallelism.${layout}_degree 2
    agrees tied titan-$layout
done

trains wrong "$python" "$NDP_SOURCE_DIR/tests/cli/dump_cases.py" "$tools" wrong .
# What each mistake is like; nothing for those that only a wrong model or a broken file makes.
while IFS=: read -r name words; do
    differs tied "$name"
    says out "$words"
done <<'END'
mean_of_each_rank: like the mean over 2 parts of the rows, .* of the mean over the tokens of each
norms_not_summed:^model.layers.*.input_layernorm.weight, .*a sum over 2 ranks that cut the sequence is missing$
labels_lost_at_the_cut: labels are lost where the sequence is cut into 2
tied_head_not_summed:^model.embed_tokens.weight .*the sum with the head is missing$
no_document_mask: a mask without document borders$
gradient_doubled:^model.layers.1.mlp.up_proj.weight is 2.000 of ours: like what is counted 2 times$
accumulation_not_divided: like the sum over 2 parts of the rows, .* of the mean over the tokens of each
divided_by_ranks_twice:^all 20 gradients are 0.500 of ours: like a sum over 2 ranks that is missing$
samples_of_one_rank:^all 20 gradients are like rows 0 to 1 alone, divided by the tokens of all and multiplied by 2$
weight_decay_inside:^all 20 gradients are like ours plus 0.1 of the weights: weight decay is in the gradients$
clipped: like gradients that are clipped already, to a norm of 1$
END
for dump in packed-*; do
    differs "$NDP_SOURCE_DIR/tests/golden/${dump#packed-}" "$dump"
    says out '^all .* gradients and the loss are like (attention to other documents of a row|layers with a state that go on)'
done
differs one-kv kv_gradient_of_one_rank
says out '^model.layers.\*.self_attn.k_proj.weight, .*: a sum over ranks with copies of a kv head is missing$'
for name in noise transposed row_of_zeros other_theta other_eps; do
    differs tied $name
    says out ' different: no known cause fits$'
    lines out 0 ' like '
done

end_of_cases
