#!/bin/sh
# What a job says of its data: a dry run, the run, and `evaluate` of what it holds out agree.
. "$(dirname "$0")/cases.sh"
make_job
for n in $(seq 1 40); do echo "{\"text\": \"story number $n of a few that are read as bytes\", \"other\": $n}"; done >texts.jsonl
sed -i 's/files: .text.txt./files: [texts.jsonl], validation_fraction: 0.2/' job.yaml

# ---- end tokens ----

run train job.yaml --transport local
code_is 0
says out '^data: .* texts end with <eos> \(257\)$' '^held out: .* texts end with <eos> \(257\)$'
grep '^data\|^held' out >run.lines
labels() { sed -n 's/^data: .* tokens, \([0-9]*\) to predict.*/\1/p' out; }
documents() { sed -n 's/^data: \([0-9]*\) documents.*/\1/p' out; }
with=$(labels)
run train job.yaml --transport local --set data.end_token=none --set train.output_dir=none
code_is 0
says out '^data: .* texts have no end token$'
[ "$with" = $(($(labels) + $(documents))) ] || fail "$with to predict with an end token, $(labels) without, $(documents) documents"
run train job.yaml --transport local --set data.end_token='<bos>' --set train.output_dir=bos
code_is 0
says out 'texts end with <bos> \(256\)$'
run train job.yaml --transport local --set data.end_token='</nothing>' --set train.output_dir=bad
refused "data.end_token: '</nothing>' is not a token of bytes"

# A tokenizer that does not name an end token: none is added, and the run says so.
mkdir plain
cat >plain/tokenizer.json <<'END'
{"model": {"type": "BPE", "merges": [], "byte_fallback": true, "unk_token": "<|endoftext|>", "vocab": {"<|endoftext|>": 0, "s": 1}},
 "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}]}
END
run train job.yaml --dry-run --set data.tokenizer=plain
code_is 0
says out '^data: .* texts have no end token$' '^note: the tokenizer plain does not name an end token, .* such as its <\|endoftext\|>$'
run train job.yaml --dry-run --set data.tokenizer=plain --set 'data.end_token=<|endoftext|>'
code_is 0
says out 'texts end with <\|endoftext\|> \(0\)$'
lines out 0 '^note: the tokenizer'

# ---- dry runs ----

# Small data are read to their end: the lines are those of the run. Nothing is written.
rm -rf cache run2
run train job.yaml --dry-run --set train.output_dir=run2
code_is 0
grep '^data\|^held' out | cmp -s - run.lines || fail "the dry run says other things of the data than the run"
[ ! -e cache ] && [ ! -e run2 ] || fail "it made a folder"
lines out 0 '^note: only the head'

# Large data: the head, and that it was only that.
for n in $(seq 1 3000); do echo "{\"text\": \"story number $n\"}"; done >many.jsonl
echo '{"wrong": 1}' >>many.jsonl
run train job.yaml --dry-run --set 'data.files=[many.jsonl]'
code_is 0
says out '^note: only the head of the data was read, 100 records or 1 MiB of each source'

cannot_start() {
    words=$1
    shift
    run train job.yaml --dry-run "$@"
    [ "$code" -ne 0 ] || fail "exit code 0"
    says err "$words"
    run train job.yaml --dry-run --no-data "$@"
    code_is 0
    run plan job.yaml "$@"
    code_is 0
}
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >chat.jsonl
: >empty.txt
echo '{"text": ""}' >nothing.jsonl
cannot_start "cannot read 'missing.txt'" --set 'data.files=[missing.txt]'
cannot_start "cannot read 'missing.txt'" --set 'data.validation_fraction=0' --set 'data.validation_files=[missing.txt]'
cannot_start "texts.jsonl:1: the record has no 'story'" --set data.text_field=story --set data.format=text
cannot_start "chat.jsonl:1: .* no chat template" --set 'data.files=[chat.jsonl]'
cannot_start "the corpus is empty" --set 'data.files=[empty.txt]'
cannot_start "the corpus is empty" --set 'data.files=[nothing.jsonl]'
cannot_start "a row has 32" --set data.overlong=error
cannot_start "'nowhere/tokenizer.json'|'nowhere'" --set data.tokenizer=nowhere
cannot_start "data.end_token: 'x' is not a token" --set data.end_token=x

# ---- evaluate ----

last() { sed -n 's/.*"eval_loss": \([0-9.]*\).*/\1/p' "$1" | tail -n 1; }
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-12 * a * a) }' || fail "$1 and $2"
}
nll() { sed -n 's/^{"mean_nll": \([0-9.]*\),.*/\1/p' out; }

want=$(last run/metrics.jsonl)
run evaluate job.yaml --model run/model --json --transport local
code_is 0
[ ! -s err ] || fail "something on stderr"
near "$(nll)" "$want"
for layout in dp_shard=1 dp_shard=1,dp_replicate=2 dp_shard=1,cp=2 dp_shard=1,sp=2 dp_shard=1,tp=2 dp_shard=2,tp=2 dp_shard=2,cp=2; do
    sets=$(echo "$layout" | sed 's/\([a-z_]*\)=/--set parallelism.\1_size=/g; s/,/ /g')
    run evaluate job.yaml --set model.config=null --set model.path=run/model --json --transport local $sets
    code_is 0
    near "$(nll)" "$want"
done
for transport in $(transports); do
    run evaluate job.yaml --model run/model --transport $transport
    code_is 0
    says out '^mean nll [0-9.]+ \(perplexity [0-9.]+, [0-9.]+ bits per byte\) over [0-9]+ predictions in [0-9]+ documents$'
    lines out 1 .
done
# The exported tokenizer of bytes names its end token.
run evaluate job.yaml --model run/model --json --transport local --set data.tokenizer=run/model
near "$(nll)" "$want"
run evaluate job.yaml --transport local
refused 'the job starts from random weights'
run evaluate job.yaml --model run/model --transport local --set data.validation_fraction=0
refused 'there is no held-out data; set data.validation_fraction or data.validation_files'
# Conversations, held out in a file of their own.
run evaluate job.yaml --model run/model --transport local --set data.validation_fraction=0 --set 'data.validation_files=[chat.jsonl]' --set data.chat_template=chatml \
    --set data.overlong=cut
code_is 0
says out 'over [0-9]+ predictions in 1 document'

# Several files: a line each, the same on every layout.
two="--set data.validation_fraction=0 --set data.validation_files=[chat.jsonl,texts.jsonl] --set data.chat_template=chatml --set batch.global_batch_size=8"
run evaluate job.yaml --model run/model --transport local $two --set parallelism.dp_shard_size=1
code_is 0
says out '^chat.jsonl +[0-9]+ ' '^texts.jsonl +[0-9]+ ' '^total +[0-9]+ '
lines out 4 .
cut -c1-31 out >first
for layout in dp_shard=2 dp_shard=1,dp_replicate=4 dp_shard=1,tp=2 dp_shard=1,cp=2; do
    sets=$(echo "$layout" | sed 's/\([a-z_]*\)=/--set parallelism.\1_size=/g; s/,/ /g')
    run evaluate job.yaml --model run/model --transport local $two $sets
    code_is 0
    cut -c1-31 out | cmp -s - first || fail "tokens and losses differ from those of one rank"
done

# A file: its own option names the field.
run evaluate --model run/model --data texts.jsonl --text-field story --threads 1
refused "texts.jsonl:1: the record has no 'story'; it has: text, other. --text-field names the field of a text"
run evaluate --model run/model --data texts.jsonl --text-field text --json --threads 1
code_is 0
cp out first
run evaluate --model run/model --data texts.jsonl --json --threads 1
cmp -s out first || fail "--text-field text is not the default"

# ---- a mix by names ----

# Names in any order select the rows and losses of the list of numbers, on one rank and on four.
losses() { sed 's/.*"loss": \([0-9.]*\).*/\1/' "$1/metrics.jsonl"; }
head -n 10 texts.jsonl >few.jsonl
mixed() {
    dir=$1
    shift
    run train job.yaml --transport local --set data.validation_fraction=0 --set train.output_dir="$dir" \
        --set 'data.files=[texts.jsonl, few.jsonl]' "$@"
    code_is 0
    grep '^mix: ' out >"$dir.mix"
    losses "$dir" >"$dir.losses"
}
mixed numbers --set 'data.mix=[0.5, 3]'
mixed names --set 'data.mix=[few.jsonl: 3, texts.jsonl: 0.5]'
[ "$(wc -l <names.mix)" = 2 ] || fail "$(wc -l <names.mix) lines of the mix"
[ -s names.losses ] || fail "no losses"
cmp -s numbers.mix names.mix || fail "names select other rows than numbers"
cmp -s numbers.losses names.losses || fail "names give other losses than numbers"
mixed names4 --set 'data.mix=[few.jsonl: 3, texts.jsonl: 0.5]' --set parallelism.dp_shard_size=4 --set batch.micro_batch_size=1
cmp -s names.mix names4.mix || fail "four ranks select other rows"
paste names.losses names4.losses >both.losses
while read -r one four; do near "$one" "$four"; done <both.losses
run train job.yaml --dry-run --set 'data.mix=[other.jsonl: 1]'
refused "data.mix names 'other.jsonl', which data.files does not have; it has 'texts.jsonl'"

end_of_cases
