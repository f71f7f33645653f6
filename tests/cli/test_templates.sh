#!/bin/sh
# Chat templates that Jinja renders, from a job: equal tokens on any number of ranks, and what happens without Python, with a
# renderer that dies, and with conversations that a template refuses.
. "$(dirname "$0")/cases.sh"
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -I -c 'import jinja2' 2>/dev/null || { echo "SKIPPED: $python has no Jinja (apt install python3-jinja2)"; exit 77; }
make_job
cat >own.jinja <<'EOF'
{{ strftime_now('%Y') }}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }};{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}
EOF
awk 'BEGIN { for (i = 0; i < 400; i++) printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%d + %d\"}, {\"role\": \"assistant\", \"content\": \"%d\"}]}\n", i, i, 2 * i }' >sums.jsonl
chat="--set data.files=[sums.jsonl] --set data.chat_template=own.jinja --set train.steps=2 --set checkpoint.every=0"

data_line() { sed -n 's/^data: //p' out; }

run train job.yaml $chat --set parallelism.dp_shard_size=1 --set data.cache_dir=one --set train.output_dir=one_rank
code_is 0
says out '^data: 400 documents, [0-9]+ tokens, '
one=$(data_line)
run train job.yaml $chat --set parallelism.dp_shard_size=4 --set batch.micro_batch_size=1 --transport local --set data.cache_dir=four --set train.output_dir=four_ranks
code_is 0
[ "$(data_line)" = "$one" ] || fail "$(data_line), on one rank $one"
for file in one/*; do cmp -s "$file" "four/$(basename "$file")" || fail "another cache on four ranks"; done

run train job.yaml $chat --set data.template_date=2026-11-02 --set data.cache_dir=one --set train.output_dir=later
code_is 0
[ "$(find one -type f | wc -l)" = 2 ] || fail "the date is not in the key of the cache: $(ls one)"

run train job.yaml $chat --dry-run
code_is 0

# Without Python; a built-in template needs none.
NDP_PYTHON=/nowhere/python3
export NDP_PYTHON
run train job.yaml $chat --set train.output_dir=none
refused 'the chat template own.jinja is not built in: .* needs Python, and .* has no /nowhere/python3: install it .apt install python3-jinja2., or set NDP_PYTHON'
[ ! -e none ] || fail "a run folder"
run train job.yaml $chat --set data.chat_template=chatml --set train.output_dir=chatml
code_is 0

# A renderer that is killed in the middle, or lacks Jinja.
printf '#!/bin/sh\ndd bs=1 count=4000 2>/dev/null | %s "$@"\nkill -9 $$\n' "$python" >dies
printf '#!/bin/sh\necho "No module named jinja2" >&2\nexit 77\n' >lacks
chmod +x dies lacks
NDP_PYTHON=$work/dies
run train job.yaml $chat --set data.cache_dir=third --set train.output_dir=none --set parallelism.dp_shard_size=4 --set batch.micro_batch_size=1 --transport local
code_is 1
says err 'sums.jsonl:[0-9]+: the chat template own.jinja: the program that renders chat templates was killed by signal 9'
lines err 1 '^ndparallel'
[ -z "$(find third -type f)" ] || fail "left: $(find third -type f)"
NDP_PYTHON=$work/lacks
run train job.yaml $chat --set data.cache_dir=third --set train.output_dir=none
refused 'needs Jinja, and .*lacks on .* has No module named jinja2: apt install python3-jinja2, or set NDP_PYTHON'
NDP_PYTHON=$python

# The template's own refusal, with the place of the record; what the assistant wrote is not certain.
echo "{% if messages[0].role == 'user' %}{{ raise_exception('A system prompt is needed') }}{% endif %}" >refuses.jinja
run train job.yaml $chat --set data.chat_template=refuses.jinja --set train.output_dir=none
refused 'sums.jsonl:[0-9]+: the chat template refuses.jinja: A system prompt is needed'
echo "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}" >counts.jinja
run train job.yaml $chat --set data.chat_template=counts.jinja --set train.output_dir=none
refused 'sums.jsonl:[0-9]+: it is not certain what the assistant wrote .*message 2.*generation.*data.train_on: all'
run train job.yaml $chat --set data.chat_template=counts.jinja --set data.train_on=all --set train.output_dir=all
code_is 0
run train job.yaml $chat --set data.chat_template=missing.jinja --set train.output_dir=none
code_is 1
says err "cannot read 'missing.jinja'"
run train job.yaml $chat --set data.template_date=yesterday --set train.output_dir=none
refused "data.template_date is 'yesterday', expected a day as 2024-07-26"
end_of_cases
