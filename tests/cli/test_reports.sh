#!/bin/sh
# What users of such programs reported, rebuilt with small inputs: how many tokens are trained on, and what is said. The
# tokenizer has a token for each byte, so a letter is a token; with NDP_TEST_DATA also that of a real model.
. "$(dirname "$0")/cases.sh"

# ---- inputs ----

# tokenizer FOLDER BOS EOS [NORMALIZED]: <|im_start|>, <|im_end|> and the bytes; its template, if chat.jinja is there. With
# NORMALIZED, texts get a "_" in front, and special tokens are looked for after that.
tokenizer() {
    mkdir -p "$1"
    awk -v normalized="${4:-false}" 'BEGIN {
        printf "{%s\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"merges\": [], \"vocab\": {\"<s>\": 0, \"</s>\": 1, \"<|im_start|>\": 2, \"<|im_end|>\": 3", (normalized == "true" ? "\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"_\"}, " : "")
        for (i = 0; i < 256; i++) printf ", \"<0x%02X>\": %d", i, i + 4
        printf "}}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, \"added_tokens\": ["
        n = split("<s> </s> <|im_start|> <|im_end|>", name, " ")
        for (i = 1; i <= n; i++) printf "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": %s}", (i > 1 ? ", " : ""), i - 1, name[i], normalized
        print "]}" }' >"$1/tokenizer.json"
    printf '{"bos_token": "%s", "eos_token": "%s"}\n' "$2" "$3" >"$1/tokenizer_config.json"
    [ ! -f chat.jinja ] || mv chat.jinja "$1/chat_template.jinja"
}

message() { printf '{"role": "%s", "content": "%s"%s}' "$1" "$2" "${3-}"; }
# two_turns FIRST LAST MORE: 8 and 10 letters; members of the first answer, of the last, and of the record.
two_turns() {
    printf '{"messages": [%s, %s, %s, %s]%s}\n' "$(message user 'Name a lake.' "${1-}")" "$(message assistant Chiemsee "${1-}")" \
        "$(message user 'Another?' "${1-}")" "$(message assistant Walchensee "${2-}")" "${3-}"
}

cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 2048}
END
tokenizer plain '<s>' '</s>'
cat >job.yaml <<'END'
model: {config: config.json}
data: {tokenizer: plain, sequence_length: 512, chat_template: chatml}
train: {steps: 1}
END

# predicts N FILE [ARGUMENT]...
predicts() {
    n=$1
    file=$2
    shift 2
    run data job.yaml --show 0 --set "data.files=[$file]" "$@"
    code_is 0
    says out "^data: .* tokens, $n to predict"
}
no_note() { lines out 0 '^note: .*(end token|trained on)'; }

# ---- marks ----

two_turns >two_turns.jsonl
predicts 20 two_turns.jsonl # with two end tokens
two_turns ', "loss_weight": 0.0' ', "loss_weight": 1.0' >loss_weight.jsonl
two_turns ', "weight": 0.0' '' >weight.jsonl
two_turns '' '' ', "loss_mask": [0, 0, 0, 1]' >loss_mask_root.jsonl
for file in weight.jsonl loss_weight.jsonl loss_mask_root.jsonl; do
    predicts 11 $file
done
two_turns '' '' ', "label": false' >label.jsonl
run data job.yaml --set data.files=label.jsonl
refused "label.jsonl:1: the record has 'label': false"

# ---- a warm-up that never ends ----

run train job.yaml --dry-run --set data.files=two_turns.jsonl --set schedule.warmup_steps=500
code_is 0
says out '^note: schedule.warmup_steps is 500 and the run has 1 step, so lr never reaches optimizer.lr'
run train job.yaml --dry-run --set data.files=two_turns.jsonl --set schedule.warmup_steps=1
lines out 0 '^note: schedule'

# ---- tools ----

for empty in '[]' '{}' '""' '"[]"' null; do
    two_turns '' '' ", \"tools\": $empty" >tools_empty.jsonl
    predicts 20 tools_empty.jsonl
done

# ---- forms of records ----

printf '%s\n' '{"prompt": "The deepest lake is", "completion": " the Walchensee."}' >prompt_completion.jsonl
predicts 17 prompt_completion.jsonl --set data.chat_template=null # and the end token
printf '%s\n' '{"conversations": [{"from": "human", "value": "Name a lake."}, {"from": "gpt", "value": "Chiemsee"}]}' >conversations.jsonl
predicts 9 conversations.jsonl
predicts 9 conversations.jsonl --set data.format=sharegpt
printf '%s\n' '{"conversations": [{"from": "human", "value": "Name a lake."}], "chosen": {"from": "gpt", "value": "Chiemsee"}, "rejected": {"from": "gpt", "value": "Inn"}}' >pair_conversations.jsonl
run data job.yaml --set data.files=pair_conversations.jsonl
refused 'data.format: preference, with a loss of pairs such as loss.name: dpo, reads'
run data job.yaml --set data.files=pair_conversations.jsonl --set data.format=preference --set loss.name=orpo --show 1
code_is 0
says out '^pair 1 of pair_conversations.jsonl, chosen: [0-9]+ tokens, 9 to predict' '^\[Chiemsee<\|im_end\|>\]' \
    '^pair 1 of pair_conversations.jsonl, rejected: [0-9]+ tokens, 4 to predict' '^\[Inn<\|im_end\|>\]'

# ---- documents that are too long ----

long=$(yes 'A lake near the town where the river makes a wide bend.' | head -n 4 | tr '\n' ' ')
{
    printf '{"messages": [%s, %s]}\n' "$(message user "$long")" "$(message assistant Chiemsee)"
    cat two_turns.jsonl
} >long_chat.jsonl
predicts 20 long_chat.jsonl --set data.sequence_length=128
says out '; 1 answer left out or cut, too long for a row of 128 with their question \(9 to predict\)$'
predicts 29 long_chat.jsonl --set data.sequence_length=128 --set data.overlong=cut
head -n 1 long_chat.jsonl >one.jsonl
run data job.yaml --set data.files=one.jsonl --set data.sequence_length=128
refused 'nothing is left to predict: 1 answer has no place in a row of 128 tokens with the question; raise data.sequence_length'
printf '{"prompt": "%s", "chosen": "Chiemsee", "rejected": "Inn"}\n' "$long" "$long" >long_pairs.jsonl
pairs="--set data.files=long_pairs.jsonl --set data.format=preference --set loss.name=orpo --set data.sequence_length=64"
# shellcheck disable=SC2086 # arguments
run data job.yaml $pairs --set data.overlong=drop
refused 'nothing is left to predict: .* raise data.sequence_length, or set data.overlong: truncate$'
# shellcheck disable=SC2086
run data job.yaml $pairs --set data.overlong=truncate
refused 'its answer begins after the 64 that a row has; raise data.sequence_length'

# ---- templates ----

python=${NDP_PYTHON:-/usr/bin/python3}
if "$python" -c 'import jinja2' 2>/dev/null; then
    each='{% for m in messages %}' done='{% endfor %}'
    # The begin token opens every message (SmolLM2-Instruct, MiniMind).
    printf '%s' "$each{% if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}" \
        "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}$done" \
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}" >chat.jinja
    tokenizer opener '<|im_start|>' '<|im_end|>'
    predicts 20 two_turns.jsonl --set data.tokenizer=opener --set data.chat_template=null
    no_note
    # No token opens a turn, and all end alike (OpenChat, Starling).
    printf '%s' "$each{{ m.role + ': ' + m.content + eos_token + '\n' }}$done{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}" >chat.jinja
    cp chat.jinja alike.jinja
    tokenizer alike '<s>' '</s>'
    predicts 20 two_turns.jsonl --set data.tokenizer=alike --set data.chat_template=null
    no_note
    # The same, in a tokenizer that finds "_</s>" in normalized text (stories260K).
    tokenizer normalized '<s>' '</s>' true
    predicts 20 two_turns.jsonl --set data.tokenizer=normalized --set data.chat_template=alike.jinja
    no_note
    # The last block holds the end token alone.
    printf '%s' "$each{{ '<|' + m.role + '|>\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|end|>\n' }}{% endgeneration %}" \
        "{% else %}{{ m.content + '<|end|>\n' }}{% endif %}$done{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}" \
        "{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}" >blocks.jinja
    predicts '[0-9]+' two_turns.jsonl --set data.chat_template=blocks.jinja
    lines out 0 '^note: the chat template'
    # Tools as a text of JSON and as a list.
    printf '%s' "{{ tools | tojson }}$each{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{{ eos_token }}$done" >tools.jinja
    schema='[{"type": "function", "function": {"name": "depth_of", "parameters": {"type": "object"}}}]'
    quoted=$(printf '%s' "$schema" | sed 's/"/\\"/g')
    two_turns '' '' ", \"tools\": $schema" >tools_list.jsonl
    two_turns '' '' ", \"tools\": \"$quoted\"" >tools_text.jsonl
    predicts 20 tools_list.jsonl --set data.chat_template=tools.jinja
    list=$(grep '^data:' out)
    predicts 20 tools_text.jsonl --set data.chat_template=tools.jinja
    [ "$(grep '^data:' out)" = "$list" ] || fail "tools as a list give: $list"
else
    echo "skipped without Jinja: templates"
fi

# ---- a real model's tokenizer ----

stories=${NDP_TEST_DATA-}/models/stories260K
if [ -d "$stories" ]; then
    printf '%s\n' "model: {path: $stories}" 'data: {sequence_length: 96, chat_template: chatml}' 'train: {steps: 1}' >job.yaml
    sed -i 's/Chiemsee/Chiemsee./; s/Walchensee/Walchensee./' two_turns.jsonl loss_weight.jsonl loss_mask_root.jsonl
    predicts 31 two_turns.jsonl
    predicts 16 loss_weight.jsonl
    predicts 16 loss_mask_root.jsonl
    if [ -s alike.jinja ]; then
        predicts 19 two_turns.jsonl --set data.chat_template=alike.jinja
        no_note
    fi
else
    echo "skipped without NDP_TEST_DATA: the tokenizer of stories260K"
fi

# It learns to stop: after 40 steps on conversations of which the begin token opens every message, 10 of 10 answers end.
if [ -d "$stories" ] && [ -f opener/chat_template.jinja ]; then
    cp -r "$stories" model
    cp opener/chat_template.jinja opener/tokenizer_config.json model/
    "$python" - model/tokenizer.json <<'END'
import json, sys
t = json.load(open(sys.argv[1]))
for id, token, old in ((1, "<|im_start|>", "<s>"), (2, "<|im_end|>", "</s>")):
    t["model"]["vocab"].pop(old, None)
    t["model"]["vocab"][token] = id
    rest = [a for a in t["added_tokens"] if a["id"] != id]
    form = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    t["added_tokens"] = [*rest, {"id": id, "content": token, "special": True, **form}]
t["post_processor"] = None
json.dump(t, open(sys.argv[1], "w"))
END
    lakes='Chiemsee Walchensee Tegernsee Ammersee Eibsee Kochelsee Schliersee Riegsee'
    for one in $lakes; do
        for other in $lakes; do
            two_turns | sed "s/Chiemsee/$one./; s/Walchensee/$other./"
        done
    done >talks.jsonl
    for question in 'Name a lake.' 'Another?' 'One more.' 'Name one.' 'Which lake?' 'A lake?' 'And now?' 'A name.' 'Lake?' 'Go on.'; do
        printf '{"messages": [%s]}\n' "$(message user "$question")"
    done >questions.jsonl
    cat >stop.yaml <<'END'
model: {path: model}
data: {files: [talks.jsonl], sequence_length: 128, packing: false}
batch: {global_batch_size: 16, micro_batch_size: 4}
optimizer: {lr: 3.0e-3}
schedule: {warmup_steps: 4}
train: {steps: 40, output_dir: run}
END
    run train stop.yaml --force-memory
    code_is 0
    run generate --model run/model --file questions.jsonl --max-tokens 40 --force-memory
    code_is 0
    lines out 10 '"finish": "stop"'
else
    echo "skipped without NDP_TEST_DATA or Jinja: a model that learns to stop"
fi
end_of_cases
