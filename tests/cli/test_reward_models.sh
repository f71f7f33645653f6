#!/bin/sh
# A reward model from a causal one, tied or not: what its folder says, that it is trained on and resumed on another layout, an
# adapter beside its base, and who refuses it.
. "$(dirname "$0")/cases.sh"
make_job
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"prompt\": \"$i? \", \"chosen\": \"$i!\", \"rejected\": \"no: $i\"}"
done >pairs.jsonl
train() { run train "$@" --transport local --set train.threads=1; }
# losses FILE: of the steps.
losses() { sed -n 's/.*"loss": \([0-9.e-]*\),.*/\1/p' "$1"; }
# same FILE FILE: losses, as different layouts have them.
same() {
    losses "$1" >one
    losses "$2" >other
    paste one other | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 { bad = 1 } END { exit bad || !NR }' || fail "other losses in $1 than in $2"
}

train job.yaml --set train.steps=1
code_is 0
mv run/model base
sed -e 's/^model: .*/model: {path: base}/' -e 's/text.txt/pairs.jsonl/' -e 's/^data: {/data: {format: preference, /' job.yaml >pairs.yaml
echo 'loss: {name: reward, center: 0.1}' >>pairs.yaml
common="--set train.steps=4 --set checkpoint.every=2 --set batch.global_batch_size=4 --set batch.micro_batch_size=2"
# shellcheck disable=SC2086
train pairs.yaml $common --set train.output_dir=first
code_is 0
says out "note: loss.name reward: the head of the model is left out; in its place comes score.weight \[1, [0-9]+\]"
for words in '"LlamaForSequenceClassification"' '"num_labels": *1' '"LABEL_0": *0'; do
    grep -q "$words" first/model/config.json || fail "config.json lacks $words"
done
! grep -aq lm_head first/model/model.safetensors || fail "the head is exported"

# The same run on other layouts, and one that goes on there.
# shellcheck disable=SC2086
train pairs.yaml $common --set train.output_dir=tp --set parallelism.tp_size=2 --set parallelism.cp_size=2
code_is 0
same first/metrics.jsonl tp/metrics.jsonl
# shellcheck disable=SC2086
train pairs.yaml $common --set train.output_dir=tp --resume-from 2 --set parallelism.pp_size=2
code_is 0
same first/metrics.jsonl tp/metrics.jsonl

# The folder is trained on as it is; its type is one of a reward model alone.
train pairs.yaml --set train.steps=1 --set model.path=first/model --set train.output_dir=on
code_is 0
lines out 0 "is left out"
train pairs.yaml --set train.steps=1 --set model.path=first/model --set loss.name=dpo --set loss.center=0 --set train.output_dir=dpo
code_is 1
says err "the model is a reward model: its head, score.weight, gives a text one number"
for model in first/model first; do
    run generate --model $model --prompt Text --threads 1
    [ "$code" != 0 ] || fail "generates with $model"
    says err "reward model"
    run export $model --format gguf -o model.gguf
    [ "$code" != 0 ] || fail "exports $model"
    says err "reward model"
done
sed 's/"num_labels": *1/"num_labels": 3/' first/model/config.json >three.json
train pairs.yaml --set model.path=null --set model.config=three.json --set train.output_dir=three
[ "$code" != 0 ] || fail "trains a classifier"
says err "classifies texts by 3 labels"

# Beside an adapter score is trained whole, as PEFT has it for its task_type.
train pairs.yaml --set train.steps=2 --set adapter.type=lora --set train.output_dir=lora
code_is 0
for words in '"task_type": *"SEQ_CLS"' '"score"'; do
    grep -q "$words" lora/adapter/adapter_config.json || fail "adapter_config.json lacks $words"
done
grep -aq 'base_model.model.score.weight' lora/adapter/adapter_model.safetensors || fail "the adapter lacks score.weight"
train pairs.yaml --set train.steps=1 --set adapter.type=lora --set adapter.path=lora/adapter --set train.output_dir=again
code_is 0

# A family whose class transformers lacks.
sed -e 's/"llama"/"granite"/' -e 's/LlamaFor/GraniteFor/' base/config.json >granite.json
train pairs.yaml --set model.path=null --set model.config=granite.json --set train.output_dir=granite
[ "$code" != 0 ] || fail "trains granite"
says err "transformers has no ...ForSequenceClassification for model_type 'granite'"
end_of_cases
