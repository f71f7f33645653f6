#!/bin/sh
# train.sample_every: the same texts on every layout, transport and loss, equal to what `generate` writes; resumed; prompts that
# are too long; a full disk is test_appended's.
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/^train: {/train: {sample_every: 3, sample_prompts: ["The runs", "a"], sample_tokens: 9, /' job.yaml
echo 'optimizer: {lr: 3e-3}' >>job.yaml
one="--transport local --set parallelism.dp_shard_size=1"
run train job.yaml $one
code_is 0
lines out 4 '^sample: (The runs|a) ->'
lines run/samples.jsonl 4 '^\{"step": [36], "prompt": "[^"]+", "text": ".*", "tokens": [0-9]+, "finish": "(stop|length)"\}$'
says out 'evaluation [0-9.]*[1-9]'
cp run/samples.jsonl plain
run generate --model run/model --prompt "The runs" --max-tokens 9 --json
code_is 0
grep '"step": 6, "prompt": "The runs"' plain | sed 's/.*"text": \(".*"\), "tokens.*/"text": \1/' >last
grep -qF -f last out || fail "not what generate writes: $(cat last)"

# same WHAT ARGUMENT...: a run with these has the same samples.
same() {
    rm -rf run
    run train job.yaml "$@"
    code_is 0
    cmp run/samples.jsonl plain >>err || fail "other samples"
}
for transport in $(transports); do same --transport "$transport"; done
same $one --set parallelism.tp_size=2 --set parallelism.pp_size=2
same $one --set parallelism.cp_size=2 --set data.validation_files=[text.txt] --set train.eval_every=2
same $one --set parallelism.sp_size=2 --set train.recompute=block
same $one --set parallelism.dp_replicate_size=2 --set train.spike=1e-3
run train job.yaml $one --resume-from 3 --set checkpoint.every=3
refused 'has no checkpoint|there is no checkpoint|step 3'
rm -rf run
run train job.yaml $one --set checkpoint.every=2
code_is 0
run train job.yaml --transport local --set checkpoint.every=2 --resume-from 2
code_is 0
cmp run/samples.jsonl plain >>err || fail "other samples after a resume from step 2"
run train job.yaml --transport local --set checkpoint.every=2 --resume-from 4
code_is 0
cmp run/samples.jsonl plain >>err || fail "other samples after a resume from step 4"
run report run
says run/report.html 'step 6, prompt: The runs'

# Losses of pairs and of single answers, and conversations: a prompt is a question there.
for i in 1 2 3 4 5 6 7 8; do
    echo '{"prompt": "Is '$i' even?", "chosen": "Yes, '$i'.", "rejected": "No."}' >>pairs.jsonl
    echo '{"prompt": "Is '$i' even?", "completion": "Yes, '$i'.", "label": '$([ $((i % 2)) = 0 ] && echo true || echo false)'}' >>single.jsonl
    echo '{"messages": [{"role": "user", "content": "Is '$i' even?"}, {"role": "assistant", "content": "Yes."}]}' >>chat.jsonl
done
of_loss() {
    rm -rf run
    run train job.yaml $one --set data.sequence_length=64 "$@" --set parallelism.pp_size=1
    code_is 0
    lines run/samples.jsonl 4 '^\{"step": [36], "prompt": '
    cp run/samples.jsonl plain
    same --transport local "$@" --set data.sequence_length=64
    same $one --set parallelism.tp_size=2 --set data.sequence_length=64 "$@"
}
of_loss --set data.files=[pairs.jsonl] --set loss.name=dpo --set data.format=preference
of_loss --set data.files=[pairs.jsonl] --set loss.name=orpo --set data.format=preference
of_loss --set data.files=[single.jsonl] --set loss.name=kto --set data.format=preference
says_nothing=$(grep -c '^conversations:' out)
[ "$says_nothing" = 0 ] || fail "prompts without a template are called conversations"
of_loss --set data.files=[chat.jsonl] --set data.chat_template=chatml
rm -rf run

run train job.yaml --set data.sequence_length=8
refused 'train.sample_prompts: prompt 1 has [89] tokens, and data.sequence_length is 8: shorten it'
run train job.yaml --set train.sample_prompts=[]
refused 'train.sample_every is set without train.sample_prompts'
run train job.yaml --dry-run
code_is 0

end_of_cases
