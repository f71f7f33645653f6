#!/bin/sh
# The job files of examples/: each passes a dry run and trains as it stands, on the tiny model. Beside some, in
# accelerate/ and axolotl/, is the other program's file; the command in its comment makes the same job of it: all keys of
# the run folder's job.yaml, and the same losses.
. "$(dirname "$0")/cases.sh"
unset HF_HUB_CACHE
export HF_HOME="$work/hf"
ln -s "$NDP_SOURCE_DIR/examples" examples

# chat-finetune.yaml, chat-lora.yaml and dpo.yaml name a model of the Hub. In the Hub cache here it is the tiny one, after
# a step; a letter is a token.
fake_model() {
    repo=$HF_HOME/hub/models--HuggingFaceTB--SmolLM2-135M-Instruct commit=0123456789abcdef0123456789abcdef01234567
    mkdir -p "$repo/refs" "$repo/snapshots"
    printf %s "$commit" >"$repo/refs/main"
    run train examples/pretrain-text.yaml --transport local --set train.steps=1 --set train.output_dir=fake
    code_is 0
    cp -r fake/model "$repo/snapshots/$commit"
    awk 'BEGIN { n = split("<|endoftext|> <|im_start|> <|im_end|>", t, " ")
      printf "{\"added_tokens\": ["
      for (i = 1; i <= n; i++) printf "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", (i > 1 ? ", " : ""), 199 + i, t[i]
      printf "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"\\n\": 1"
      for (c = 32; c < 127; c++) printf ", \"%s%c\": %d", (c == 34 || c == 92 ? "\\" : ""), c, c - 30
      for (i = 1; i <= n; i++) printf ", \"%s\": %d", t[i], 199 + i; print "}}}" }' >"$repo/snapshots/$commit/tokenizer.json"
    echo '{"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}' >"$repo/snapshots/$commit/tokenizer_config.json"
}
fake_model

losses() { sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }

# example NAME: trains examples/NAME.yaml into runs/NAME, and keeps that as ours/NAME.
example() {
    run train "examples/$1.yaml" --dry-run
    code_is 0
    [ ! -s err ] || fail "a dry run warns"
    says out '^checked: the programs of all [0-9]+ ranks meet'
    run train "examples/$1.yaml"
    code_is 0
    losses "runs/$1" >losses
    [ "$(wc -l <losses)" -ge 10 ] || fail "$(wc -l <losses) steps, expected 10 or more"
    awk 'NR == 1 { first = $1 } END { exit !($1 < first) }' losses || fail "the loss did not fall"
    mkdir -p ours
    mv "runs/$1" "ours/$1"
}

# same_job NAME FILE: the command in the comment of FILE gives the job of examples/NAME.yaml.
same_job() {
    command=$(sed -n 's/^#   \(.*\)/\1/p' "$2" | sed 's/\\$//' | tr '\n' ' ')
    case $command in
    "build/ndparallel config import $2 "*) ;;
    *) fail "$2 has no command for it" ;;
    esac
    # shellcheck disable=SC2086 # words without quotes or patterns
    run ${command#build/ndparallel }
    code_is 0
    cp out job.yaml
    rm -rf "runs/$1"
    run train job.yaml --set schedule.like=own # the example's rates are ours, one update ahead of Axolotl's
    code_is 0
    # But for the rows that are printed: an import keeps the other program's default.
    for run in ours runs; do grep -v '^  log_every: ' "$run/$1/job.yaml" >"$run.job"; done
    cmp ours.job runs.job >/dev/null || fail "another job: $(diff ours.job runs.job | tr '\n' ' ')"
    losses "runs/$1" >theirs
    losses "ours/$1" | cmp -s - theirs || fail "other losses"
}

for file in examples/*.yaml; do
    name=$(basename "$file" .yaml)
    [ "$name" != quickstart ] || continue # tests/cli/test_readme.sh runs it on its book
    example "$name"
done
[ "$(ls ours | wc -l)" = 11 ] || fail "$(ls ours | wc -l) examples, expected 11"
for file in examples/accelerate/*.yaml examples/axolotl/*.yaml; do
    same_job "$(basename "$file" .yaml)" "$file"
done

# text.bin has the bytes of text.txt as ids, a 256 before each document, behind llm.c's header.
case_of examples/data/text.bin
{
    echo 256
    od -An -v -tu1 -w1 examples/data/text.txt
} | awk '{ b[NR] = $1 + 0 } END {
    split("10 60 124 101 110 100 111 102 116 101 120 116 124 62 10", mark, " ")
    for (i = 1; i < NR; i++) { # the last line break is not part of a text
        for (k = 1; k <= 15 && b[i + k - 1] == mark[k]; k++);
        if (k > 15) { print 256; i += 14 } else print b[i]
    } }' >ids
od -An -v -tu2 -w2 -j1024 examples/data/text.bin | awk '{ print $1 }' | cmp -s - ids || fail "text.bin is not text.txt"
[ "$(od -An -tu4 -N12 examples/data/text.bin | tr -s ' ')" = " 20240520 1 $(wc -l <ids)" ] || fail "another header"

end_of_cases
