#!/bin/sh
# A job whose tokenizer has a chat template that is not built in: Jinja renders the conversations while they are tokenized.
. "$(dirname "$0")/cases.sh"
/usr/bin/python3 -I -c 'import jinja2' 2>/dev/null || { echo "SKIPPED: /usr/bin/python3 has no Jinja (apt install python3-jinja2)"; exit 77; }
unset NDP_PYTHON
make_job
mkdir tokens
cat >tokens/tokenizer.json <<'END'
{"model": {"type": "BPE", "merges": [], "byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 0,
 "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "<u>": 6, "<a>": 7, "</s>": 8, "0": 9, "1": 10, "2": 11, "3": 12, " ": 13, "\n": 14}},
 "added_tokens": [{"id": 8, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}]}
END
echo '{"eos_token": "</s>"}' >tokens/tokenizer_config.json
template() { echo "$1" >tokens/chat_template.jinja; }
good='{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}'
template "$good"
for n in $(seq 1 1000); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"abc $n\"}, {\"role\": \"assistant\", \"content\": \"deed $n\"}]}"
done >chat.jsonl
sed -i 's/text.txt/chat.jsonl/; s/tokenizer: bytes/tokenizer: tokens/' job.yaml

# ---- a run, and what it says ----

run train job.yaml --dry-run
code_is 0
says out '^conversations: the chat template of tokens, rendered by jinja 3\.[0-9.]*$'
run train job.yaml --transport local
code_is 0
says out '^conversations: the chat template of tokens, rendered by jinja 3\.[0-9.]*$'
cache=$(find cache -name '*.tokens' -o -name 'tokens-*' | head -n 1)
[ -n "$cache" ] || fail "no cache"

# What would be trained on wrongly is noted once, also by a dry run and several ranks.
template '{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}'
for how in --dry-run '--transport local --set parallelism.dp_shard_size=2 --set batch.micro_batch_size=1 --set train.output_dir=notes'; do
    # shellcheck disable=SC2086
    run train job.yaml $how
    code_is 0
    lines out 1 '^note: the chat template writes no end token after an answer, so the model is not trained to stop; set data.chat_template to a file PATH.jinja, .*\{\{ eos_token \}\} \(</s>\)'
    # shellcheck disable=SC2086
    run train job.yaml $how --set data.chat_template=chatml --set train.output_dir=notes2 --set data.overlong=cut
    code_is 0
    lines out 1 '^note: the tokenizer tokens does not have the tokens <\|im_start\|>, <\|im_end\|>, .* as plain text; without data.chat_template, the tokenizer.s own'
done
rm -rf cache
template "$good"
run train job.yaml --transport local --set train.output_dir=again
code_is 0
lines out 0 '^note'
cache=$(find cache -name '*.tokens' -o -name 'tokens-*' | head -n 1)

# The same cache by more ranks and threads.
whole=$(md5sum <"$cache")
for ranks in 1 4; do
    rm -rf cache
    run train job.yaml --transport local --set parallelism.dp_shard_size=$ranks --set batch.micro_batch_size=1 --set train.threads=$((ranks / 2 + 1)) --set train.output_dir=run$ranks
    code_is 0
    [ "$(md5sum <"$cache")" = "$whole" ] || fail "another cache with $ranks ranks"
done

# The export has the tokenizer's other templates.
mkdir -p tokens/additional_chat_templates/folder.jinja
echo 'for tools' >tokens/additional_chat_templates/tool_use.jinja
run train job.yaml --transport local --set train.output_dir=exported
code_is 0
cmp tokens/additional_chat_templates/tool_use.jinja exported/model/additional_chat_templates/tool_use.jinja || fail 'the export lacks a template'
cmp tokens/chat_template.jinja exported/model/chat_template.jinja || fail 'the export has another template'
rm -r tokens/additional_chat_templates

# Texts need no Python, whatever the template is.
echo 'abc' >only.txt
NDP_PYTHON=/nowhere run train job.yaml --transport local --set 'data.files=[only.txt]' --set train.output_dir=texts
code_is 0
echo '{"text": "abcdeabcde"}' >only.jsonl
NDP_PYTHON=/nowhere run train job.yaml --transport local --set 'data.files=[only.jsonl]' --set train.output_dir=texts2
code_is 0

# ---- failures: in one message, with the record, and without a cache ----

rm -rf cache
fails() {
    run train job.yaml --transport local --set train.output_dir=bad
    code_is 2
    says err "$@"
    lines err 1 '^ndparallel'
    [ -z "$(find cache -type f 2>/dev/null)" ] || fail "it left files in the cache: $(find cache -type f)"
}
export NDP_PYTHON=/nowhere/python3
fails 'chat.jsonl:[0-9]+: the chat template of tokens is not built in: .* has no /nowhere/python3: install it \(apt install python3-jinja2\)'
unset NDP_PYTHON
template '{% if messages[0].content == "abc 333" %}{{ "a" * 10**9 }}{% endif %}'"$good"
fails 'chat.jsonl:333: the chat template of tokens: it needs too much memory: more than 512 MiB'
template '{{ messages[1].content|length }}'"$good"
fails 'chat.jsonl:[0-9]+: it is not certain what the assistant wrote .*the template depends on what is in the messages'
template '{# <|im_start|> <|im_end|> #}{{ messages[1].content|length }}'"$good"
fails 'chat.jsonl:[0-9]+: it is not certain .*; data.chat_template: chatml is built in, knows it'
run train job.yaml --transport local --set data.train_on=all --set train.output_dir=all
code_is 0
rm -rf cache

# The process dies while the cache is built: after 20,000 bytes of requests; at once, when its version is asked for.
template "$good"
dies_after() {
    cat >python <<END
#!/bin/sh
dd bs=1 count=$1 2>/dev/null | /usr/bin/python3 "\$@"
kill -9 \$\$
END
    chmod +x python
    NDP_PYTHON=$work/python
    export NDP_PYTHON
    run train job.yaml --transport local --set train.output_dir=bad
    code_is 1
    says err "$2the chat template of tokens: the program that renders chat templates was killed by signal 9"
    lines err 1 '^ndparallel'
    [ -z "$(find cache -type f 2>/dev/null)" ] || fail "it left files in the cache: $(find cache -type f)"
}
dies_after 20000 'chat.jsonl:[0-9]+: '
dies_after 10 ''
end_of_cases
