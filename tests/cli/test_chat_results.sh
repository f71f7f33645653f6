#!/bin/sh
# The result of a run knows the chat template that it was trained with: the run, its checkpoints, its model folder, an
# adapter and the model it is merged into continue conversations as with --chat-template and the trained one's name.
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/"rms_norm_eps"/"initializer_range": 0.5, "rms_norm_eps"/; s/"max_position_embeddings": 64/"max_position_embeddings": 512/' config.json
cat >chats.jsonl <<'EOF'
{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}
EOF
cat >prompts.jsonl <<'EOF'
{"messages": [{"role": "user", "content": "Hi"}]}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "?"}]}
EOF
printf 'Hi\nAnd?\n' >messages
cat >chat.yaml <<'EOF'
model: {config: config.json, init: random}
data: {files: [chats.jsonl], tokenizer: bytes, chat_template: chatml, sequence_length: 128}
batch: {global_batch_size: 2}
train: {steps: 2, output_dir: first, threads: 1, transport: local, force_memory: true}
EOF
sed -e 's/^model: .*/model: {path: first\/model}/; s/tokenizer: bytes, //' chat.yaml >more.yaml

# prompts ARGUMENT...: what the model answers to records and in a conversation, in the file answers.
prompts() {
    run generate --file prompts.jsonl --max-tokens 8 --threads 1 "$@"
    code_is 0
    cp out records
    input=messages
    run generate --chat --max-tokens 8 --ids --threads 1 "$@"
    input=/dev/null
    code_is 0
    cat records out >answers
}
# same_as_named TEMPLATE ARGUMENT...: by itself as with the template's name, and not as with another one.
same_as_named() {
    name=$1
    shift
    prompts "$@" --chat-template "$name"
    mv answers expected
    prompts "$@"
    cmp -s answers expected || fail "other answers than with $name"
    prompts "$@" --chat-template phi4
    cmp -s answers expected && fail 'the template makes no difference'
}

run train chat.yaml
code_is 0
same_as_named chatml --model first
same_as_named chatml --model first/model
run checkpoint export first -o exported
code_is 0
diff -r first/model exported >out 2>err || fail 'another folder from the checkpoint'

# Another template than that of the model: it takes its place, also in a run that was resumed.
run train more.yaml --set data.chat_template=llama3 --set train.output_dir=second
code_is 0
same_as_named llama3 --model second/model
run train more.yaml --set data.chat_template=llama3 --set train.output_dir=second --set train.steps=3 --resume --accept train.steps
code_is 0
same_as_named llama3 --model second/model
same_as_named llama3 --model second --step 2
run train more.yaml --set data.chat_template=null --set train.output_dir=third # the model's own
code_is 0
says out '^conversations: the built-in chat template chatml$'
same_as_named chatml --model third/model
cmp -s first/model/chat_template.jinja third/model/chat_template.jinja || fail 'another template'

# Adapters: of a template of its own, and of the model's.
run train more.yaml --set data.chat_template=gemma3 --set adapter.type=lora --set train.output_dir=lora
code_is 0
same_as_named gemma3 --model lora
same_as_named gemma3 --model first/model --adapter lora
run merge -m first/model -a lora -o merged
code_is 0
same_as_named gemma3 --model merged
run checkpoint export lora -o exported-lora
code_is 0
diff -r lora/adapter exported-lora >out 2>err || fail 'another adapter from the checkpoint'
run train more.yaml --set data.chat_template=chatml --set adapter.type=lora --set train.output_dir=own
code_is 0
[ "$(ls own/adapter | tr '\n' ' ')" = 'adapter_config.json adapter_model.safetensors ' ] || fail "$(ls own/adapter)"
same_as_named chatml --model first/model --adapter own
run merge -m first/model -a own -o merged-own
code_is 0
cmp -s first/model/chat_template.jinja merged-own/chat_template.jinja || fail 'another template'

# A file of a template, which may change after the run.
if /usr/bin/python3 -c 'import jinja2' 2>/dev/null; then
    printf '%s' "{% for m in messages %}{{ m.role }}> {{ m.content }}{{ ';' }}{% endfor %}{% if add_generation_prompt %}" \
        "{{ 'assistant> ' }}{% endif %}" >mine.jinja
    run train more.yaml --set data.chat_template=mine.jinja --set train.output_dir=mine
    code_is 0
    cmp -s mine.jinja mine/model/chat_template.jinja || fail 'another template'
    cp mine.jinja same.jinja
    same_as_named same.jinja --model mine/model
    same_as_named same.jinja --model mine
    echo ' ' >>mine.jinja
    run generate --model mine --file prompts.jsonl
    refused "data.chat_template: 'mine.jinja' is now another template \(jinja [0-9a-f]+\) than the one that the checkpoint of step 2 was trained with \(jinja [0-9a-f]+\)"
    run checkpoint export mine -o exported-mine
    refused "data.chat_template: 'mine.jinja' is now another template"
    rm mine.jinja
    run checkpoint export mine -o exported-mine
    code_is 2
    says err "cannot read .mine.jinja.: .*; the run.s data.chat_template is mine.jinja"
    [ ! -e exported-mine ] || fail 'a folder was left'
    run generate --model mine --prompt x --max-tokens 2 --threads 1 # has no conversation
    code_is 0
    same_as_named same.jinja --model mine/model
else
    echo 'no python3-jinja2: a template of its own is skipped' >&2
fi

end_of_cases
