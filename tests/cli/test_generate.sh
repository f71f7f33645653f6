#!/bin/sh
# ndparallel generate: conversations by a pipe, the prompts of a file, stop strings, and what is refused. With a model
# trained here for a step; conversations that make sense with stories260K where NDP_TEST_DATA has it.
. "$(dirname "$0")/cases.sh"

# Every byte is a token; three special tokens.
awk 'BEGIN { printf "{\"added_tokens\": ["; n = split("<s> </s> <|im_end|>", t, " ")
  for (i = 1; i <= n; i++) printf "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", (i > 1 ? ", " : ""), 255 + i, t[i]
  printf "], \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
  printf "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"merges\": [], \"vocab\": {"
  for (i = 0; i < 256; i++) printf "\"<0x%02X>\": %d, ", i, i
  for (i = 1; i <= n; i++) printf "%s\"%s\": %d", (i > 1 ? ", " : ""), t[i], 255 + i; print "}}}" }' >tokenizer.json
make_job
sed -i 's/"vocab_size": 258/"vocab_size": 260/; s/"max_position_embeddings": 64/"max_position_embeddings": 300/' config.json
sed -i 's/tokenizer: bytes/tokenizer: tokenizer.json/; s/dp_shard_size: 2/dp_shard_size: 1/; s/steps: 6/steps: 1/' job.yaml
run train job.yaml
code_is 0
cp tokenizer.json run/model/
model=run/model

# ---- what is refused ----
refuses() { run generate "$@"; code_is 2; }
refuses --model $model --chat --prompt x && says err 'one of --prompt, --chat and --file'
refuses --model $model --chat --file x.jsonl && says err 'one of --prompt'
refuses --model $model --prompt x --system y && says err '--system and --context are for --chat'
refuses --model $model --prompt x --batch 2 && says err '--batch is for --file'
refuses --model $model --prompt x --chat-template chatml && says err 'is for --chat and --file'
refuses --model $model --file x.jsonl --ids && says err '--ids is for'
refuses --model $model --prompt x --stop '' && says err 'a stop string is empty'
refuses --model $model --chat && says err 'no chat template' '--chat-template'
refuses --model $model --chat --chat-template nothing && says err "'nothing' is neither a template"
refuses --model $model --chat --chat-template chatml --context 301 && says err 'max_position_embeddings is 300'
run generate --model $model --file x.jsonl
code_is 2
says err "cannot read 'x.jsonl'"

# ---- a conversation by a pipe ----
printf 'Hello\n\n/reset\nHello\n/nonsense\n/exit\nnot read\n' >messages
input=messages
run generate --model $model --chat --chat-template chatml --max-tokens 12 --ids
code_is 0
lines out 2 .
[ "$(sed -n 1p out)" = "$(sed -n 2p out)" ] || fail "the answer after /reset differs"
lines err 2 'cut after 12 tokens: --max-tokens 12'
says err '/reset forgets'
awk 'BEGIN { for (i = 0; i < 40; i++) printf "too long "; print "" }' >messages
run generate --model $model --chat --chat-template chatml
refused 'tokens with this message, and the context 300: nothing was dropped' '--context'
input=/dev/null
run generate --model $model --chat --chat-template chatml --system 'Be kind.'
code_is 0
[ ! -s out ] || fail "an answer without a message"

# ---- the prompts of a file ----
cat >prompts.jsonl <<'EOF2'
{"prompt": "one", "id": "first"}
{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
{"prompt": "three, which is longer"}
EOF2
run generate --model $model --file prompts.jsonl --chat-template chatml --max-tokens 20 --batch 1 --temperature 1
code_is 0
lines out 3 '"tokens": [0-9]+, "finish": "(stop|length)"}$'
says out '^\{"index": 0, "id": "first", "text": "' '^\{"index": 2, "text": '
says err '^3 prompts, [0-9]+ tokens in .* 1 at a time'
mv out one
run generate --model $model --file prompts.jsonl --chat-template chatml --max-tokens 20 --temperature 1
cmp -s out one || fail "a batch gives other texts"
says err '3 at a time'
echo '{"text": "x"}' >>prompts.jsonl
run generate --model $model --file prompts.jsonl --chat-template chatml
refused 'prompts.jsonl:4: the record has neither'
run generate --model $model --file prompts.jsonl
refused 'prompts.jsonl:2: .*no chat template'

# ---- a real model ----
stories=${NDP_TEST_DATA:-/nowhere}/models/stories260K
if [ ! -d "$stories" ]; then
    echo "SKIPPED: a conversation with stories260K: NDP_TEST_DATA names no folder that has it" >&2
    end_of_cases
fi
run generate --model "$stories" --prompt 'Once upon a time' --max-tokens 60 --stop ' She' --stop nowhere
code_is 0
[ "$(cat out)" = ', there was a little girl named Lily.' ] || fail "the stop string is not where the text ends"

# Ctrl-C stops an answer, and the next message is answered.
mkfifo pipe
case_of "an interrupted answer"
# A model whose answer takes long enough to be interrupted.
"$NDP_PROGRAM" generate --model "$(dirname "$stories")/stories15M" --chat --chat-template plain --max-tokens 400 --threads 1 \
    <pipe >out 2>err &
pid=$!
exec 3>pipe
echo 'Tom had a dog.' >&3
within [ -s out ] || fail "no answer"
kill -INT $pid
within grep -q stopped err || fail "the answer is not stopped"
echo 'Lily had a cat.' >&3
exec 3>&-
wait $pid
code=$?
code_is 0
lines err 1 '^\(stopped after [0-9]+ tokens\)'
[ "$(wc -l <out)" -ge 2 ] || fail "the second message has no answer"
end_of_cases
