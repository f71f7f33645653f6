#!/bin/sh
# Configurations of all kinds, tests/import/files/all: each is imported, and trained as it is on a tiny model and tiny
# data that stand in a Hub cache and beside it under the names in the file. Prints a table of what happened. At least
# seven of Axolotl's and of Accelerate's train, and all of LLaMA-Factory's and DeepSpeed's; others name what is missing.
. "$(dirname "$0")/cases.sh"
unset HF_HUB_CACHE
export HF_HOME="$work/hf"
all=$NDP_SOURCE_DIR/tests/import/files/all
commit=0123456789abcdef0123456789abcdef01234567

# put REPO NAME: standard input becomes a file of its snapshot.
put() {
    mkdir -p "$HF_HOME/hub/$1/refs" "$HF_HOME/hub/$1/snapshots/$commit"
    cat >"$HF_HOME/hub/$1/snapshots/$commit/$2"
    printf %s "$commit" >"$HF_HOME/hub/$1/refs/main"
}

# ---- the model: a letter is a token; trained for a step, so that it has weights ----
make_job
awk 'BEGIN { n = split("<s> </s> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|im_start|> <|im_end|>", t, " ")
  printf "{\"added_tokens\": ["
  for (i = 1; i <= n; i++) printf "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", (i > 1 ? ", " : ""), 99 + i, t[i]
  printf "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"\\n\": 1"
  for (c = 32; c < 127; c++) printf ", \"%s%c\": %d", (c == 34 || c == 92 ? "\\" : ""), c, c - 30
  for (i = 1; i <= n; i++) printf ", \"%s\": %d", t[i], 99 + i; print "}}}" }' >tokenizer.json
mkdir data model
awk 'BEGIN { for (i = 0; i < 24; i++) printf "{\"body\": \"text %d of a few that are read as letters, and a little more of it\"}\n", i }' >data/books.jsonl
cp tokenizer.json model/
cat >model/tokenizer_config.json <<'EOF2'
{"bos_token": "<|begin_of_text|>", "eos_token": "</s>", "chat_template": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
EOF2
sed 's/"max_position_embeddings": 64/"max_position_embeddings": 1024/; s/"num_attention_heads": 2, "num_key_value_heads": 1/"num_attention_heads": 4, "num_key_value_heads": 2/' config.json >model/config.json
cat >first.yaml <<'EOF2'
model: {path: model, init: random}
data: {files: [data/books.jsonl], text_field: body, sequence_length: 128}
batch: {global_batch_size: 1, micro_batch_size: 1}
train: {steps: 1, output_dir: first, threads: 1}
EOF2
run train first.yaml
code_is 0
cp model/tokenizer* first/model/
for name in meta-llama--Llama-3.1-8B NousResearch--Meta-Llama-3-8B org--instruct-model org--base-model; do
    for file in first/model/*; do put "models--$name" "$(basename "$file")" <"$file"; done
done

# ---- the data ----
records() { awk -v f="$1" 'BEGIN { for (i = 0; i < 20; i++) { s = f; gsub(/%d/, i, s); print s } }'; }
records '{"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is %d?"}, {"role": "assistant", "content": "The number %d"}]}' |
    put datasets--org--chats train.jsonl
records '{"instruction": "Say %d", "input": "", "output": "It is %d"}' | put datasets--org--alpaca train.jsonl
records '{"body": "a text of the stream, number %d, which is long enough to fill a part of a row"}' | put datasets--org--texts train.jsonl
records '{"conversations": [{"speaker": "person", "says": "And %d?"}, {"speaker": "bot", "says": "A number"}]}' >data/talks.jsonl
head -n 4 data/talks.jsonl >data/talks_test.jsonl
records '{"segments": [{"label": false, "text": "Say %d: "}, {"label": true, "text": "it is %d</s>"}]}' >data/segments.jsonl
{ echo question,answer; records 'What is %d?,A number'; } >data/questions.csv
records '{"system": "", "question": "What is %d?", "chosen": "The number %d", "rejected": "It is not known"}' |
    put datasets--org--preferences train.jsonl
cp -r "$all/deepspeed" .
cp "$NDP_SOURCE_DIR/tests/golden/tables/chat.parquet" data/texts.parquet
has_pyarrow() { "${NDP_PYTHON:-/usr/bin/python3}" -I -c 'import pyarrow' 2>/dev/null; }

# ---- the table ----
line() { printf '%-40s %-9s %-8s %s\n' "$1" "$2" "$3" "$4"; }
missing() { grep -m 1 -o "'[a-z_.0-9]*: [^:]*': [^;]*" err || tail -n 1 err; }

# try NAME FILE OPTION...: imports with these options, trains; counts in $trained.
try() {
    name=$1 file=$2
    shift 2
    run config import "$file" --output job.yaml "$@"
    if [ "$code" != 0 ]; then
        [ "$code" = 2 ] || fail "exit code $code, expected 0 or 2"
        line "$name" no no "$(missing | cut -c 1-120)"
        return
    fi
    rm -rf outputs run
    run train job.yaml --transport local --set train.threads=1
    if [ "$code" = 0 ]; then
        trained=$((trained + 1))
        line "$name" yes yes "$(cat run/metrics.jsonl outputs/*/metrics.jsonl 2>/dev/null | tail -n 1 | sed 's/[^:]*: *\([0-9]*\).*/\1/') steps"
    else
        line "$name" yes no "$(tail -n 1 err | cut -c 1-160)"
    fi
}

line file imported trained 'steps, or what is missing'
trained=0
for file in "$all"/axolotl_*.yaml; do
    try "$(basename "$file")" "$file"
    case $file in
    *_parquet.yaml) [ "$code" = 0 ] || has_pyarrow || says err pyarrow ;;
    *) code_is 0 ;;
    esac
done
[ "$trained" -ge 7 ] || fail "only $trained of Axolotl's configurations train"

# These files have no model and no data; the options are what a user's script has.
trained=0
for file in "$all"/accelerate_*; do
    try "$(basename "$file")" "$file" --set model.path=org/base-model --set 'data.files=[data/books.jsonl]' \
        --set data.text_field=body --set data.sequence_length=256 \
        --set train.steps=2 --set train.output_dir=run
    code_is 0
done
[ "$trained" = 8 ] || fail "only $trained of Accelerate's configurations train"

# LLaMA-Factory's name their data by dataset_info.json.
records '{"instruction": "Say %d", "input": "", "output": "It is %d"}' >data/questions.jsonl
cat >data/dataset_info.json <<'EOF2'
{"chats": {"file_name": "talks.jsonl", "formatting": "sharegpt", "columns": {"messages": "conversations"},
           "tags": {"role_tag": "speaker", "content_tag": "says", "user_tag": "person", "assistant_tag": "bot"}},
 "questions": {"file_name": "questions.jsonl"},
 "books": {"file_name": "books.jsonl", "columns": {"prompt": "body"}}}
EOF2
trained=0
for file in "$all"/llamafactory_*; do
    try "$(basename "$file")" "$file" --ranks 2
    code_is 0
done
[ "$trained" = 2 ] || fail "only $trained of LLaMA-Factory's configurations train"

# DeepSpeed's by themselves.
trained=0
for file in "$all"/deepspeed/*.json; do
    try "deepspeed/$(basename "$file")" "$file" --ranks 2 --set model.path=org/base-model --set 'data.files=[data/books.jsonl]' \
        --set data.text_field=body --set data.sequence_length=256 --set batch.micro_batch_size=1 --set batch.global_batch_size=2 \
        --set train.steps=2 --set train.output_dir=run
    code_is 0
done
[ "$trained" -ge 1 ] || fail "no configuration of DeepSpeed's trains"
end_of_cases
