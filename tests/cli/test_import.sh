#!/bin/sh
# Job files of other programs: what is written can be read, planned for and trained on.
. "$(dirname "$0")/cases.sh"

make_job
mkdir -p model data
cp config.json model/
for n in 1 2 3 4 5 6 7 8; do
    echo "{\"body\": \"text number $n of a few that are read as bytes\"}"
done >data/rows.jsonl
cat >axolotl.yaml <<'EOF'
base_model: model
datasets: [{path: data/rows.jsonl, type: completion, field: body}]
dp_shard_size: 2
dp_replicate_size: 2
fsdp_config: {reshard_after_forward: true, auto_wrap_policy: TRANSFORMER_BASED_WRAP}
sequence_len: 32
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 2
max_steps: 3
optimizer: adamw_torch
learning_rate: 1.0e-3
bf16: false
output_dir: run
EOF

run config import axolotl.yaml --output imported.yaml
code_is 0
says err 'global batch 8 samples = micro batch 1 x accumulation 2 x 4 data ranks' \
    'fsdp_config.auto_wrap_policy \(line 5\): the units of sharding' 'written to imported.yaml'
[ ! -s out ] || fail "something on stdout"
says imported.yaml '^  dp_shard_size: 2$' '^# global batch 8 samples' '^#   fsdp_config.auto_wrap_policy \(line 5\)'
cp err notes

# The same on stdout.
run config import axolotl.yaml
code_is 0
cmp -s out imported.yaml || fail "stdout is not what --output writes"
sed '$d' notes | cmp -s - err || fail "the notes differ"

# What has its default, and is not in the file, is left out; a line says so.
says imported.yaml '^# All other keys have their defaults; `ndparallel config` lists them.$' '^  name: cosine$'
lines imported.yaml 0 'shuffle|cp_method|momentum|allow_longer|document_mask'

# Read by our own parser; accepted by a dry run; trained on. The model here has random weights and bytes.
run train imported.yaml --dry-run --set model.init=random --set data.tokenizer=bytes
code_is 0
says out 'layout: dp_replicate 2 x dp_shard 2 on 4 ranks' 'global batch 8 samples = micro batch 1 x 4 data ranks x accumulation 2'
run train imported.yaml --transport local --set model.init=random --set data.tokenizer=bytes --set train.threads=1
code_is 0
lines run/metrics.jsonl 3 '"loss"'

# ---- conversations, and questions with answers ----

# A tokenizer of ASCII characters, with an end token: a token is a letter.
make_tokenizer() {
    awk 'BEGIN {
        printf "{\"version\": \"1.0\", \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null,\n"
        printf " \"decoder\": null, \"added_tokens\": [{\"id\": 0, \"content\": \"</s>\", \"single_word\": false,\n"
        printf " \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],\n"
        printf " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"merges\": [],\n"
        printf " \"vocab\": {\"</s>\": 0, \"\\n\": 1"
        for (c = 32; c < 127; c++)
            printf ", \"%s%c\": %d", c == 34 || c == 92 ? "\\" : "", c, c - 30
        printf "}}}\n"
    }' >model/tokenizer.json
    echo '{"eos_token": "</s>"}' >model/tokenizer_config.json
    sed 's/"max_position_embeddings": 64/"max_position_embeddings": 256/' config.json >model/config.json
}
make_tokenizer
chat() { echo "{\"turns\": [{\"from\": \"human\", \"value\": \"$1\"}, {\"from\": \"gpt\", \"value\": \"$2\"}]}"; }
for n in 10 11 12 13 14 15 16 17 18 19 20 21; do chat "What is $n?" "A number"; done >data/chats.jsonl
gzip -f data/chats.jsonl
{
    echo '['
    for n in 22 23 24 25 26 27 28; do echo "$(chat "And $n?" "A number"),"; done
    chat 'And 29?' 'A number'
    echo ']'
} >data/more.json

run config import "$NDP_SOURCE_DIR/tests/import/files/axolotl_chat.yaml" --output chat.yaml
code_is 0
says chat.yaml '^  files: \["data/chats.jsonl.gz", "data/more.json"\]$' '^  format: messages$' \
    '^  messages_field: "turns"$' '^  chat_template: "qwen2.5"$' '^  train_on: assistant$' '^  packing: true$' \
    '^  overlong: error$' '^  validation_fraction: 0.25$' '^  eval_every: 1$' '^  every: 1$'
run train chat.yaml --transport local --set model.init=random --set train.threads=1
code_is 0
lines run_chat/metrics.jsonl 2 '"eval_loss"'
# Of 20 conversations; the 18 letters of "A number<|im_end|>" are trained on in each.
grep -oE '(data|held out): [0-9]+ documents, [0-9]+ tokens, [0-9]+ to predict' out | awk '{
    sub(/.*: /, ""); documents += $1; trained += $5; sets++
} END { exit !(sets == 2 && documents == 20 && trained == 20 * 18) }' || fail "not 20 conversations of 18 tokens to train on"

# One that is too long is named, as excess_length_strategy: raise does.
{ gzip -dc data/chats.jsonl.gz; chat 'Say it all' "$(seq -s ' ' 1 60)"; } >data/longer.jsonl
run train chat.yaml --transport local --set model.init=random --set 'data.files=[data/longer.jsonl]' \
    --set train.output_dir=run_longer
code_is 2
says err 'data/longer.jsonl: document 13 has [0-9]+ tokens, a row has 192'

for n in 1 2 3 4 5 6; do
    echo "{\"question\": \"What is $n?\", \"answer\": \"A digit\"}"
    echo "{\"question\": \"What is it?\", \"context\": \"It is $n\", \"answer\": \"A digit\"}"
done >data/questions.jsonl
head -n 2 data/questions.jsonl >data/held.jsonl
run config import "$NDP_SOURCE_DIR/tests/import/files/axolotl_instruct.yaml" --output instruct.yaml
code_is 0
says instruct.yaml '^  format: instruction$' '^  prompt_field: "question"$' '^  input_field: "context"$' \
    '^  response_field: "answer"$' '^  chat_template: "plain"$' '^  train_on: all$' '^  packing: false$' \
    '^  validation_files: \["data/held.jsonl"\]$' '^  eval_every: 1$'
run train instruct.yaml --transport local --set model.init=random --set train.threads=1
code_is 0
lines run_instruct/metrics.jsonl 2 '"eval_loss"'
# "What is 1?\nA digit</s>" is 19 tokens, "What is it?\n\nIt is 1\nA digit</s>" 29; the first of each is not predicted.
says out 'data: 12 documents, 288 tokens, 276 to predict, 12 rows an epoch' 'held out: 2 documents, 48 tokens, 46 to predict'

run config import "$NDP_SOURCE_DIR/tests/import/files/accelerate_nd.yaml"
code_is 0
says out '^  tp_size: 2$' '^# imported from .*, an Accelerate configuration$'

# Refusals leave nothing behind.
echo 'adapter: ia3' >>axolotl.yaml
run config import axolotl.yaml --output other.yaml
refused "axolotl.yaml:15: 'adapter: ia3': adapter.type is lora or qlora" '--force imports without it'
[ ! -e other.yaml ] || fail "other.yaml was written"
run config import axolotl.yaml --force --ranks 8 --set train.steps=5
code_is 2
says err 'but there are 8 ranks'
run config import axolotl.yaml --force --set train.steps=5 --set optimizer.lr=0.5
code_is 0
says out '^  steps: 5$' '^  lr: 0.5$' '^# NOT CARRIED OVER, BY --force' '^#   adapter: ia3 \(line 15\)'

run config import
refused 'no file'
run config import a b
refused "two files: 'a' and 'b'"
run config import none.yaml
code_is 2
says err 'none.yaml'
run config import axolotl.yaml --force --output none/job.yaml
code_is 1
says err "cannot write 'none/job.yaml'"
run config improt a.yaml
refused "unknown command 'config improt'; did you mean 'import'"

# What becomes of each key: tables for a page.
run config import --keys accelerate
code_is 0
says out '^### Imported$' '^\| `parallelism_config.sp_size` \| `parallelism.sp_size` \|  \|$'
run config import --keys axolotl unsupported
code_is 0
says out '^\| axolotl \| reason \| `--set` of this key continues \|$' '^\| `relora`, `relora_\*`'
run config import --keys torchtitan
refused "--keys 'torchtitan': expected axolotl, llamafactory, trl, accelerate, deepspeed or transformers"

end_of_cases
