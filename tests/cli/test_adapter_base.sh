#!/bin/sh
# An adapter that a run has trained, whose base has changed since then, or is another one: all who use it say so, with
# both hashes, and a merge is refused unless that is accepted.
. "$(dirname "$0")/cases.sh"
make_job
head -c 700 text.txt >part.txt
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"prompt\": \"$i? \", \"chosen\": \"$i!\", \"rejected\": \"no: $i\"}"
done >pairs.jsonl
train() { run train "$@" --transport local --set train.threads=1 --set train.steps=1; }

train job.yaml
code_is 0
sed -e 's/^model: .*/model: {path: base}/' -e 's/^data: {/data: {validation_files: [part.txt], /' job.yaml >on_base.yaml
sed -e 's/^model: .*/model: {path: base}/' -e 's/text.txt/pairs.jsonl/' -e 's/^data: {/data: {format: preference, /' job.yaml >pairs.yaml
echo 'loss: {name: dpo}' >>pairs.yaml
mv run/model base
cp -r base moved
for kind in lora qlora; do
    train on_base.yaml --set train.output_dir=$kind --set adapter.type=$kind
    code_is 0
done
train pairs.yaml --set train.output_dir=pairs --set adapter.type=lora --set adapter.dora=true
code_is 0
train pairs.yaml --set train.output_dir=whole
code_is 0
cp -r lora/adapter copied # without the manifests of its run

# every_use BASE: what uses the adapters of the runs that have trained beside `base`. A run by its folder has its own base.
every_use() {
    for kind in lora qlora pairs; do
        of_base=$kind
        use generate --model $kind --prompt Text --max-tokens 1 --threads 1
        use evaluate --model $kind --data part.txt --threads 1
        of_base=$kind/adapter
        use generate --model "$1" --adapter $kind --prompt Text --max-tokens 1 --threads 1
        use evaluate --model "$1" --adapter $kind/adapter --data part.txt --threads 1
    done
    of_base=lora
    use evaluate on_base.yaml --model lora --transport local --set train.threads=1
    of_base=lora/adapter
    use evaluate on_base.yaml --set model.path="$1" --adapter lora --transport local --set train.threads=1
    rm -rf more
    use train on_base.yaml --set model.path="$1" --set adapter.type=lora --set adapter.path=lora/adapter --set train.output_dir=more \
        --transport local --set train.threads=1 --set train.steps=1
}

silent() {
    run "$@"
    code_is 0
    grep -q 'trained beside' err && fail 'the base is the same one'
}

# As training says a difference: the key, and both hashes.
warned() {
    run "$@"
    code_is 0
    lines err 1 "^warning \(rank 0\): the adapter of '$of_base' was trained beside other weights than those in '$changed': model.path was $was, now it is $now\$"
}

use() { silent "$@"; }
every_use moved
run merge -m moved -a lora -o merged
code_is 0
run merge -m moved -a lora -o accepted --accept model.path
refused '--accept model.path: it is not known to differ .*; leave it out'
run generate --model whole --prompt Text --max-tokens 1 --threads 1 # its weights are in its checkpoint
code_is 0

# One number of the base.
was=$(grep -ho '"model.path": "[0-9a-f]*"' lora/checkpoints/*/manifest.json | grep -o '[0-9a-f]\{32\}')
printf X | dd of=base/model.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
now='[0-9a-f]{32}'
changed=base
use() { warned "$@"; }
every_use base
silent generate --model whole --prompt Text --max-tokens 1 --threads 1
silent generate --model base --adapter copied --prompt Text --max-tokens 1 --threads 1 # its base is not known
for adapter in lora lora/adapter qlora pairs; do
    rm -rf merged
    run merge -m base -a $adapter -o merged
    refused "trained beside other weights than those in 'base': model.path was $was, now it is $now. Give that model, or merge with --accept model.path\$"
    [ ! -e merged ] || fail 'it has written'
    run merge -m base -a $adapter -o merged --accept model.path
    code_is 0
    run merge -m moved -a $adapter -o "merged-$adapter"
    code_is 0
done
run merge -m base -a lora -o other --accept optimizer.lr
refused '--accept optimizer.lr: a merge compares model.path alone'
run merge -m base -a copied -o unknown
code_is 0
run merge -m base -a copied -o unknown-too --accept model.path
refused 'it is not known to differ'

end_of_cases
