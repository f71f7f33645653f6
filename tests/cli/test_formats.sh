#!/bin/sh
# Prompt formats and chat templates of a job: what is read and trained on, on a dry run and in training.
. "$(dirname "$0")/cases.sh"
make_job
long="--set data.sequence_length=512 --set model.allow_longer=true"

# trains_on N ARGUMENT...: a dry run has one document and N tokens to predict.
trains_on() {
    want=$1
    shift
    # shellcheck disable=SC2086
    run train job.yaml --dry-run $long "$@"
    code_is 0
    says out "^data: 1 document, [0-9]+ tokens, $want to predict"
}

# ---- prompt formats ----

echo '{"instruction": "Sing.", "output": "La la"}' >alpaca.jsonl
echo '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}' >sharegpt.jsonl
echo '{"talk": [{"speaker": "client", "says": "Hi"}, {"speaker": "bot", "says": "Hello"}]}' >named.jsonl
echo '{"body": "abc"}' >completion.jsonl
echo '{"segments": [{"label": false, "text": "abc"}, {"label": true, "text": "defg"}]}' >pieces.jsonl

trains_on 6 --set 'data.files=[alpaca.jsonl]' --set data.format=alpaca
says out 'texts end with <eos> \(257\)$'
trains_on 5 --set 'data.files=[alpaca.jsonl]' --set data.format=alpaca --set data.end_token=none
trains_on 15 --set 'data.files=[sharegpt.jsonl]' --set data.format=sharegpt --set data.chat_template=chatml
trains_on 15 --set 'data.files=[named.jsonl]' --set data.format=messages --set data.chat_template=chatml \
    --set data.messages_field=talk --set data.role_field=speaker --set data.content_field=says \
    --set 'data.roles={client: user, bot: assistant}'
trains_on 15 --set 'data.files=[named.jsonl]' --set data.format=sharegpt --set data.chat_template=chatml \
    --set data.messages_field=talk --set data.role_field=speaker --set data.content_field=says \
    --set 'data.roles=["client: user", bot: assistant]'
trains_on 4 --set 'data.files=[completion.jsonl]' --set data.format=completion --set data.text_field=body
trains_on 4 --set 'data.files=[pieces.jsonl]' --set data.format=input_output
trains_on 6 --set 'data.files=[pieces.jsonl]' --set data.format=input_output --set data.train_on=all

# A message of weight 0 is context alone: of two answers the 13 letters of "Yes" and its end are left.
echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "weight": 0}, {"role": "user", "content": "More"}, {"role": "assistant", "content": "Yes"}]}' >weight.jsonl
sed 's/"weight": 0/"training": false/' weight.jsonl >training.jsonl
trains_on 13 --set 'data.files=[weight.jsonl]' --set data.chat_template=chatml
trains_on 13 --set 'data.files=[training.jsonl]' --set data.chat_template=chatml
trains_on 13 --set 'data.files=[training.jsonl]' --set data.chat_template=chatml --set data.train_field=training

# Dolly's context is read: the question is longer by it and an empty line.
echo '{"instruction": "When?", "context": "It began in 1984.", "response": "In 1984."}' >dolly.jsonl
trains_on 18 --set 'data.files=[dolly.jsonl]' --set data.chat_template=chatml
says out '^data: 1 document, 93 tokens'

# shellcheck disable=SC2086
run train job.yaml $long --transport local --set 'data.files=[alpaca.jsonl]' --set data.format=alpaca
code_is 0
says out '^data: 1 document, [0-9]+ tokens, 6 to predict'
# shellcheck disable=SC2086
run train job.yaml $long --transport local --resume --set 'data.files=[alpaca.jsonl]' --set data.format=instruction \
    --set data.chat_template=chatml
refused 'data.format was alpaca, now it is instruction'

# ---- templates ----

for template in chatml llama3 llama3.1 llama3.2 gemma2 gemma3 phi3 phi3.5 phi4; do
    trains_on '[0-9]+' --set 'data.files=[sharegpt.jsonl]' --set data.format=sharegpt --set data.chat_template=$template
done

# The date that a template writes makes other tokens, so it cannot change in a run.
dated() {
    # shellcheck disable=SC2086
    run train job.yaml $long --transport local --set train.output_dir=dated --set 'data.files=[sharegpt.jsonl]' \
        --set data.format=sharegpt --set data.chat_template=llama3.2 "$@"
}
dated
code_is 0
dated --resume --set data.template_date=2026-11-22
refused 'data.template_date was null, now it is "2026-11-22"'

# ---- errors ----

# shellcheck disable=SC2086
cannot() {
    words=$1
    shift
    run train job.yaml --dry-run $long "$@"
    refused "$words"
}
cannot "alpaca.jsonl:1: the record has no 'conversations'; it has: instruction, output\. data.messages_field" \
    --set 'data.files=[alpaca.jsonl]' --set data.format=sharegpt
cannot "named.jsonl:1: message 1 has the role 'client'; .* data.roles: \{NAME: ROLE\}" \
    --set 'data.files=[named.jsonl]' --set data.messages_field=talk --set data.role_field=speaker
cannot "data.roles has 'bot: robot', expected NAME: ROLE, where the role is system, user, assistant or tool" \
    --set 'data.roles={bot: robot}'
cannot "data.roles has 'bot', expected NAME: ROLE" --set 'data.roles=[bot]'
cannot "'data.roles' is a mapping, expected NAME: VALUE, or a list or mapping" --set 'data.roles={bot: [assistant]}'
echo '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}' >system.jsonl
cannot 'system.jsonl:1: message 1: the chat template gemma2 refuses it: System role not supported' \
    --set 'data.files=[system.jsonl]' --set data.chat_template=gemma2
echo '{"messages": [{"role": "user", "content": "u"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}' >twice.jsonl
cannot 'twice.jsonl:1: message 2: the chat template gemma3 refuses it: Conversation roles must alternate' \
    --set 'data.files=[twice.jsonl]' --set data.chat_template=gemma3
end_of_cases
