#!/bin/sh
# `init` without a terminal: options and defaults are the answers, the first that is not possible ends it, and nothing is
# written before all of them are. Conversations on a terminal are in test_init.c.
. "$(dirname "$0")/cases.sh"
make_job
rm job.yaml
given="init --model config.json --data text.txt"

# shellcheck disable=SC2086
run $given --devices 2
code_is 0
says out '^  llama, 2 layers' '^  text$' '^  data: 1 document' '^  1  dp_' '^checked: .* the programs of 2 ranks$' '^  ndparallel train job.yaml$'
says job.yaml '^model:$' '^  config: config.json$' '^  tokenizer: bytes$' '^  sequence_length: 64 ' '^  epochs: 1 '
run train job.yaml --set train.steps=2 --set train.epochs=0 --force-memory
code_is 0
says out '^layout: .* on 2 ranks'

# What exists stays, unless it is to be replaced; the run folder that exists is not proposed again.
cp job.yaml before
# shellcheck disable=SC2086
run $given
code_is 2
says err "^ndparallel: --output: 'job.yaml' exists; "
cmp -s job.yaml before || fail "the file has changed"
# shellcheck disable=SC2086
run $given --force
code_is 0
says job.yaml 'output_dir: runs/new-2 '
rm job.yaml

# not_written PATTERN ARGUMENT...: an error that names the option, and no file.
not_written() {
    pattern=$1
    shift
    run "$@"
    code_is 2
    says err "^ndparallel: $pattern"
    lines err 1 '^ndparallel'
    [ ! -e job.yaml ] || fail "it wrote a job"
}
not_written '--model is needed without a terminal: ' init --data text.txt
not_written '--data is needed without a terminal: ' init --model config.json
not_written "--model: .*'nowhere'|--model: model.path: nowhere" init --model nowhere --data text.txt
not_written "--data: .*nowhere.txt" init --model config.json --data nowhere.txt
# shellcheck disable=SC2086
{
    not_written '--sequence-length: .*fewer positions' $given --sequence-length 65
    not_written '--precision: .*precision.compute' $given --precision fp7
    not_written '--hosts: .*nowhere' $given --hosts nowhere
    not_written '--devices: ' $given --devices 0
    not_written '--memory: ' $given --memory none
    not_written '--batch: .*global_batch_size' $given --batch -3
    not_written '--layout: .*multiply to 4 ranks' $given --devices 4 --layout tp=2
    not_written '--layout: .*2 attention heads' $given --devices 4 --layout tp=4,dp_shard=1
    not_written '--layout: .*dp_fast_size' $given --layout dp_fast=1
    not_written '--layout: .*smallest global batch' $given --devices 4 --batch 2 --layout dp_shard=4
    not_written '--output: .*nowhere/job.yaml' $given -o nowhere/job.yaml
    not_written '--device: .*train.device' $given --device abacus
}
echo '{"text": "a"' >bad.jsonl
not_written '--data: bad.jsonl:1: ' init --model config.json --data bad.jsonl

# Hosts: those of a hostfile, with its slots.
printf '# two\nnode-1 slots=2\n\nnode-2 slots=2\n' >hosts.txt
# shellcheck disable=SC2086
run $given --hosts hosts.txt --layout dp_replicate=2,dp_shard=2 -o hosts.yaml
code_is 0
says out '^  ndparallel train hosts.yaml --hostfile hosts.txt$'
says hosts.yaml '^  dp_replicate_size: 2$' '^  dp_shard_size: 2$'

# A memory that only some layouts fit: those come first, then the rest.
# shellcheck disable=SC2086
run $given --devices 2 --memory 0.0001 -o small.yaml
code_is 0
says out 'bound by$' ' memory, recomputes blocks$'

# Preference data take a loss of pairs; a text in a field of another name is found.
echo '{"prompt": "a", "chosen": "b", "rejected": "c"}' >pairs.jsonl
run init --model config.json --data pairs.jsonl --chat-template chatml -o pairs.yaml
code_is 0
says pairs.yaml '^  format: preference$' '^  name: dpo ' '^  micro_batch_size: 2 '
echo '{"id": "7", "story": "Once upon a time"}' >stories.jsonl
run init --model config.json --data stories.jsonl -o 'a b.yaml'
code_is 0
says out 'the text in story'
says 'a b.yaml' '^  text_field: story$'

end_of_cases
