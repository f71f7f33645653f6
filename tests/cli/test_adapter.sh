#!/bin/sh
# An adapter that a run has trained: scored and continued beside its model as in the run, merged into it, and trained
# further; and what is refused.
. "$(dirname "$0")/cases.sh"
make_job
head -c 700 text.txt >part.txt
train() { run train "$@" --transport local --set train.threads=1; }

train job.yaml --set train.steps=3
code_is 0
sed -e 's/^model: .*/model: {path: run\/model}/' -e 's/output_dir: run/output_dir: plain/' \
    -e 's/^data: {/data: {validation_files: [part.txt], /' job.yaml >plain.yaml
cp plain.yaml lora.yaml
echo 'adapter: {type: lora, r: 3, alpha: 6, init: random, dora: true, modules_to_save: [embed_tokens]}' >>lora.yaml
train lora.yaml --set train.output_dir=lora --set optimizer.lr=1e-2
code_is 0
says out '^adapter: lora/adapter, of step 6$'

# Files: the checkpoint, the exported adapter, and the merged model give one loss.
nll() { sed 's/^{"mean_nll": \([0-9.]*\), .*/\1/' out; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; exit !(d < 1e-6 && d > -1e-6) }' || fail "$1 and $2 differ"; }
run evaluate --model lora --data part.txt --json --threads 1
code_is 0
cp out expected
of_run=$(nll)
for adapter in lora lora/adapter; do
    run evaluate --model run/model --adapter $adapter --data part.txt --json --threads 1
    code_is 0
    cmp -s out expected || fail 'another result than that of the run'
done
run merge -m run/model -a lora -o merged
code_is 0
run evaluate --model merged --data part.txt --json --threads 1
near "$(nll)" "$of_run"
run evaluate --model run/model --data part.txt --json --threads 1
[ "$(nll)" != "$of_run" ] || fail 'the adapter does nothing'

# Text, one and many, and a conversation.
run generate --model lora --prompt 'Text ' --max-tokens 20 --ids --threads 1
code_is 0
cp out expected
run generate --model run/model --adapter lora --prompt 'Text ' --max-tokens 20 --ids --threads 1
code_is 0
cmp -s out expected || fail 'another text than that of the run'
echo '{"prompt": "Text "}' >prompts.jsonl
run generate --model lora --file prompts.jsonl --max-tokens 20 --threads 1
cp out expected
run generate --model run/model --adapter lora --file prompts.jsonl --max-tokens 20 --threads 1
code_is 0
cmp -s out expected || fail 'another text than that of the run'
echo Hello >message
input=message
run generate --model run/model --adapter lora --chat --chat-template plain --max-tokens 5 --threads 1
code_is 0
input=/dev/null

# The held-out rows of a job, on layouts: that of the run, the same for a job that has no adapter, and any other model.
held_out() { run evaluate "$@" --transport local --json --set train.threads=1; }
held_out lora.yaml --set train.output_dir=lora --model lora
code_is 0
of_run=$(nll)
for layout in dp_shard_size=2 dp_shard_size=1,tp_size=2 dp_shard_size=1,pp_size=2 dp_shard_size=1,cp_size=2; do
    sizes=$(echo "$layout" | sed 's/\([a-z_]*=[0-9]*\),*/ --set parallelism.\1/g')
    held_out plain.yaml --model lora $sizes
    code_is 0
    near "$(nll)" "$of_run"
    held_out plain.yaml --adapter lora $sizes
    code_is 0
    near "$(nll)" "$of_run"
    held_out lora.yaml --model run/model --adapter lora/adapter $sizes
    code_is 0
    near "$(nll)" "$of_run"
    held_out lora.yaml --model merged $sizes
    code_is 0
    near "$(nll)" "$of_run"
done
held_out plain.yaml
code_is 0
plain=$(nll)
held_out lora.yaml --model run/model
code_is 0
near "$(nll)" "$plain"
[ "$plain" != "$of_run" ] || fail 'the adapter does nothing'
last=$(sed -n 's/.*"eval_loss" *: *\([0-9.]*\).*/\1/p' lora/metrics.jsonl | tail -n 1)
near "$last" "$of_run"

# What PEFT needs to load it: names that mean no other module, and a tied table for both of its modules; the same bytes
# from the checkpoint and, less the rounding of sums, from every layout.
names() { tr -d ' \n' <"$1/adapter_config.json" | grep -oE '"(target_modules|modules_to_save)":\[[^]]*\]' | tr '\n' ' '; }
case_of names of modules
[ "$(names lora/adapter)" = '"modules_to_save":["embed_tokens","lm_head"] "target_modules":["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"] ' ] ||
    fail "names: $(names lora/adapter)"
grep -q '"ensure_weight_tying":true' lora/adapter/adapter_config.json || fail 'the pair is not tied'
grep -aq 'base_model.model.lm_head.weight' lora/adapter/adapter_model.safetensors || fail 'no table for the head'
run checkpoint export lora -o exported
code_is 0
diff -r lora/adapter exported >out 2>err || fail 'another adapter from the checkpoint'
train plain.yaml --set train.output_dir=norms --set train.steps=1 --set adapter.type=lora \
    --set 'adapter.targets=["*.mlp.*"]' --set 'adapter.modules_to_save=[norm, input_layernorm]'
code_is 0
[ "$(names norms/adapter)" = '"modules_to_save":["input_layernorm","model.norm"] "target_modules":["gate_proj","up_proj","down_proj"] ' ] ||
    fail "names: $(names norms/adapter)"
grep -q '"ensure_weight_tying"' norms/adapter/adapter_config.json && fail 'a pair is tied that is not saved'
for sizes in dp_shard_size=1,pp_size=2 dp_shard_size=1,tp_size=2; do
    train lora.yaml --set train.output_dir="on-$sizes" --set optimizer.lr=1e-2 \
        $(echo "$sizes" | sed 's/\([a-z_]*=[0-9]*\),*/ --set parallelism.\1/g')
    code_is 0
    held_out plain.yaml --adapter "on-$sizes"
    code_is 0
    near "$(nll)" "$of_run"
done

# Trained further: the first loss is that of the adapter. Another option than the folder's is refused, before memory is
# taken, and in a dry run.
more='adapter: {type: lora, r: 3, alpha: 6, dora: true, modules_to_save: [embed_tokens], path: lora/adapter}'
(cat plain.yaml && echo "$more") >more.yaml
train more.yaml --set train.output_dir=more --set train.steps=2
code_is 0
(cat plain.yaml && echo "$more" | sed 's/alpha: 6/alpha: 12/') >other.yaml
for option in --dry-run --ranks=2; do
    run train other.yaml $option --transport local --set train.output_dir=other
    refused "the adapter in 'lora/adapter' has other options .*; set adapter.r: 3, adapter.alpha: 6, adapter.rslora: false, adapter.dora: true"
done
(cat plain.yaml && echo "$more" | sed 's/path:/targets: [q_proj], path:/') >other.yaml
run train other.yaml --dry-run
refused "has factors of model.layers.0.self_attn.k_proj, which adapter.targets leaves out"
(cat plain.yaml && echo "$more" | sed 's/lora.adapter/nowhere/') >other.yaml
run train other.yaml --dry-run
refused "'nowhere' is not a folder"

run generate --model lora --adapter lora --prompt x
refused "'lora' is the folder of a run, whose checkpoint has its adapter"
run evaluate plain.yaml --model lora --adapter lora
refused '--adapter belongs to a model folder; the checkpoint of a run has its own'
run evaluate --adapter lora --data part.txt
refused 'give a job file, or --model DIR and --data FILE'
run evaluate --model run/model --adapter run/model --data part.txt
refused 'it is a model, not an adapter'
run generate --model run/model --adapter "$NDP_SOURCE_DIR/tests/golden/peft/phi3-lora" --prompt x
refused "is \[4, 44\], but r 4 and this model need \[4, 64\]: it is an adapter of another base model, phi3"

end_of_cases
