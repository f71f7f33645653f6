#!/bin/sh
# Entries of data.files with options of their own: formats, fields, splits and slices, by job file and by --set, in the
# job.yaml that a run writes, on resume, in a mix, and in a dry run.
. "$(dirname "$0")/cases.sh"
make_job
unset HF_HUB_CACHE
export HF_HOME="$work/hf"
short='--set data.sequence_length=64 --set data.chat_template=chatml --set train.steps=2 --set parallelism.dp_shard_size=1 --transport local'

for n in 1 2 3 4; do echo "{\"body\": \"text $n\", \"text\": \"another\"}"; done >texts.jsonl
echo '{"instruction": "Sing.", "output": "La"}' >alpaca.jsonl
echo '{"talk": [{"speaker": "client", "says": "Hi"}, {"speaker": "bot", "says": "Hello"}]}' >named.jsonl
for n in 1 2 3 4 5 6 7 8 9 10; do echo "{\"text\": \"$n\"}"; done >ten.jsonl

cat >entries.yaml <<'EOF2'
model: {config: config.json, init: random, allow_longer: true}
data:
  files:
    - ten.jsonl
    - {path: texts.jsonl, text_field: body, split: "train[:50%]"}
    - path: alpaca.jsonl
      format: alpaca
    - {path: named.jsonl, messages_field: talk, role_field: speaker, content_field: says, roles: {client: user, bot: assistant}}
  mix: {ten.jsonl: 1, texts.jsonl: 2, alpaca.jsonl: 1, named.jsonl: 3}
  validation_files: [{path: ten.jsonl, split: "train[-2:]"}]
  tokenizer: bytes
batch: {global_batch_size: 2, micro_batch_size: 1}
train: {steps: 2, output_dir: entries, threads: 1}
EOF2

# shellcheck disable=SC2086
run train entries.yaml $short --dry-run --set data.sequence_length=256
code_is 0
says out '^data: 14 documents' '^held out: 2 documents' '^mix: texts.jsonl, ' '^mix: named.jsonl, '
# shellcheck disable=SC2086
run train entries.yaml $short --set data.sequence_length=256
code_is 0
# With end tokens: 21 of the texts 1 to 10, 14 of "text 1" and "text 2", 3 of "La", and the 15 letters of "Hello<|im_end|>".
says out '^data: 14 documents, [0-9]+ tokens, 53 to predict' '^held out: 2 documents, 7 tokens, 5 to predict'
says entries/job.yaml 'files: \["ten.jsonl", \{path: "texts.jsonl", text_field: "body", split: "train\[:50%\]"\}, \{path: "alpaca.jsonl", format: alpaca\}, '
cp entries/metrics.jsonl first

# The run's own job.yaml gives the same run; a resume with it goes on, and one with another option of an entry does not.
run train entries/job.yaml --transport local --set train.output_dir=again
code_is 0
[ "$(grep -o '"loss":[^,]*' first)" = "$(grep -o '"loss":[^,]*' again/metrics.jsonl)" ] || fail "another loss from job.yaml"
run train entries/job.yaml --transport local --resume --set schedule.name=cosine --set train.steps=3 --accept train.steps
code_is 0
sed 's/text_field: body/text_field: text/' entries.yaml >other.yaml
# shellcheck disable=SC2086
run train other.yaml $short --set data.sequence_length=256 --resume
refused 'data.files was [0-9a-f]+ 1 \{text_field: "body"'
sed 's/train\[:50%\]/train[50%:]/' entries.yaml >other.yaml
# shellcheck disable=SC2086
run train other.yaml $short --set data.sequence_length=256 --resume
refused 'data.files was '

# --set takes the same; records in the middle.
# shellcheck disable=SC2086
run train job.yaml $short --dry-run --set 'data.files=[{path: ten.jsonl, split: "train[2:5]"}]'
code_is 0
says out '^data: 3 documents, 9 tokens, 6 to predict'
# shellcheck disable=SC2086
run train job.yaml $short --dry-run --set 'data.files={path: ten.jsonl, split: train}'
code_is 0
says out '^data: 10 documents'

# ---- a data set in the Hub cache ----

folder=$HF_HOME/hub/datasets--org--set commit=0123456789abcdef0123456789abcdef01234567
mkdir -p "$folder/refs" "$folder/snapshots/$commit"
printf %s $commit >"$folder/refs/main"
cp ten.jsonl "$folder/snapshots/$commit/train.jsonl"
gzip -c ten.jsonl >"$folder/snapshots/$commit/test.jsonl.gz"
for name in 'org/set:train[:30%]' 'org/set@main:train[-3:]' 'org/set:test[2:5]' 'org/set:test[70%:]'; do
    # shellcheck disable=SC2086
    run train job.yaml $short --set "data.files=['$name']" --set "train.output_dir=hub" --set "data.cache_dir=cache-hub"
    code_is 0
    says out '^data: 3 documents'
    rm -rf hub
done
# shellcheck disable=SC2086
run train job.yaml $short --set 'data.files=[{path: org/set, split: "train[:30%]"}]' --set "train.output_dir=hub" --dry-run
code_is 0
says out '^data: 3 documents'

# ---- errors ----

cannot() {
    words=$1
    shift
    # shellcheck disable=SC2086
    run train job.yaml --dry-run $short "$@"
    refused "$words"
}
printf 'data:\n  files:\n    - {path: a.jsonl, fromat: alpaca}\n' >wrong.yaml
run train wrong.yaml --dry-run
refused "wrong.yaml:3: unknown key 'fromat' in an entry of data.files; did you mean 'format'\?"
cannot "unknown key 'seed' in an entry of data.files; known are path, split, format, text_field" \
    --set 'data.files=[{path: a.jsonl, seed: 3}]'
cannot "--set: 'data.format' is 'alpacca', expected auto, .*; did you mean 'alpaca'" --set 'data.files=[{path: a, format: alpacca}]'
cannot "an entry of data.files has no path; expected a name, or \{path: NAME" --set 'data.files=[{format: alpaca}]'
cannot "'data.split' is empty, expected a string" --set 'data.files=[{path: a.jsonl, split: }]'
cannot "the split 'train\[:x\]' is not of the form train\[FROM:TO\]" --set 'data.files=[{path: ten.jsonl, split: "train[:x]"}]'
cannot "'org/set:train' names a split, and so does its split: test" --set 'data.files=[{path: "org/set:train", split: test}]'
cannot "no split 'valid'" --set 'data.files=["org/set:valid[:3]"]'
cannot 'the slice of .* takes no record: records 10 to 10 of 10' --set 'data.files=["org/set:train[10:]"]'
cannot 'text.txt: a slice takes records' --set 'data.files=[{path: text.txt, split: "train[:3]"}]'
end_of_cases
