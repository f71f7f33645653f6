#!/bin/sh
# Mistakes of a first day (test_first_day.sh) with models, tokenizers, data, run folders and disks.
. "$(dirname "$0")/first_day.sh"

# The model of a run of two steps: a Hugging Face folder.
case_of "train the model of the other cases"
"$NDP_PROGRAM" train job.yaml --set train.steps=2 --set train.output_dir=trained >out 2>err || fail "exit code $?"
cp -r trained/model model
sed '1s|.*|model: {path: model}|' job.yaml >folder.yaml
job=folder.yaml
works

# ---- models ----

mistake 2 'model.path: model/config.json is a file' --set model.path=model/config.json
take 'set model.path: ([^ ,]+)'
works --set model.path="$fix"

mistake 2 'model.config: model is a folder, not a config.json' --set model.path=null --set model.config=model
take 'set model.path: ([^ ,]+)'
works --set model.path="$fix" --set model.config=null

# A name on the Hub with a typo; the right one is in the cache, the other is downloaded by a command.
export HF_HUB_CACHE="$work/hub"
mkdir -p hub/models--tiny-org--Tiny-1M/refs hub/models--tiny-org--Tiny-1M/snapshots
printf 0123abc >hub/models--tiny-org--Tiny-1M/refs/main
cp -r model hub/models--tiny-org--Tiny-1M/snapshots/0123abc
mistake 2 "'tiny-orq/Tiny-1M' is neither a path here nor a model in the Hub cache" --set model.path=tiny-orq/Tiny-1M
says err 'download it: hf download tiny-orq/Tiny-1M$'
take "did you mean '([^']+)', which is there"
works --set model.path="$fix"

mkdir pickled
cp model/config.json pickled
: >pickled/pytorch_model.bin
mistake 1 "'pickled' holds neither model.safetensors nor" --set model.path=pickled
take 'pytorch_model.bin is not read: .*(save_pretrained)\(FOLDER\)'
cp model/model.safetensors pickled # as it does
works --set model.path=pickled

mkdir shards
cp model/config.json shards
cp model/model.safetensors shards/part.safetensors
tensors=$(head -c 100000 model/model.safetensors | tr -d '\0' | grep -aoE '"[a-z_.0-9]+":\{"dtype"' | sed 's/:{.*//')
first=$(echo "$tensors" | head -n 1)
{
    printf '{"weight_map": {%s: "model-00002-of-00002.safetensors"' "$first"
    echo "$tensors" | sed 1d | sed 's/.*/, &: "part.safetensors"/'
    echo '}}'
} >shards/model.safetensors.index.json
mistake 1 'which is missing; download or copy it too' --set model.path=shards
take 'is in "([^"]+)"'
cp model/model.safetensors "shards/$fix"
sed "s/\"part.safetensors\"/\"$fix\"/g" shards/model.safetensors.index.json >index
mv index shards/model.safetensors.index.json
works --set model.path=shards

mkdir adapter
echo '{"peft_type": "LORA", "base_model_name_or_path": "model"}' >adapter/adapter_config.json
: >adapter/adapter_model.safetensors
mistake 2 "'adapter' is a LoRA adapter" --set model.path=adapter
take 'adapter_config.json\) of ([^ ,]+),'
works --set model.path="$fix"

mkdir gguf
printf GGUF >gguf/tiny.Q4_K_M.gguf
for path in gguf gguf/tiny.Q4_K_M.gguf; do
    mistake 2 'GGUF is not supported' --set model.path=$path
done
take '(safetensors) from the Hub'
works --set model.path=model

echo '{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}' >mamba.json
mistake 1 "model_type 'mamba' is not" --set model.path=null --set model.config=mamba.json
take 'ed: (llama)'
works --set model.path=null --set model.config=config.json # whose model_type that is

# ---- tokenizers and data ----

cp -r model untokenized
rm untokenized/tokenizer*
mistake 2 "untokenized/tokenizer.json' is (not there|missing)" --set model.path=untokenized --set data.tokenizer=null
take 'a tokenizer is "([a-z]+)"'
works --set model.path=untokenized --set data.tokenizer="$fix"

mistake 2 "cannot read 'texts.txt'" --set data.files=texts.txt
take "did you mean '([^']+)'"
works --set data.files="$fix"

mkdir empty
mistake 2 "the folder 'empty' has no file" --set data.files=empty
take 'whose name ends in (\.[a-z]+)'
cp text.txt "empty/text$fix"
works --set data.files=empty

: >nothing.txt
mistake 2 'the corpus is empty: 1 file \(nothing.txt\)' --set data.files=nothing.txt
cp text.txt nothing.txt
works --set data.files=nothing.txt

i=0
while [ $i -lt 200 ]; do
    echo '{"body": "a record that is long enough to fill a row of the batch"}'
    i=$((i + 1))
done >body.jsonl
mistake 2 "body.jsonl:1: the record has no 'text'.* it has: body" --set data.files=body.jsonl
take 'data.text_field: ([a-z]+) reads'
works --set data.files=body.jsonl --set data.text_field="$fix"

sed 's/body/text/; 3s/}//' body.jsonl >bad.jsonl
mistake 2 'bad.jsonl:3: ' --set data.files=bad.jsonl
take 'leave such records out with data.bad_records: ([a-z]+)'
works --set data.files=bad.jsonl --set data.bad_records="$fix"

sed 's/.*/{"messages": [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Well, thank you."}]}/' \
    body.jsonl >chat.jsonl
mistake 1 'has no chat template' --set data.files=chat.jsonl
take 'data.chat_template chooses a built-in one: ([a-z]+)'
works --set data.files=chat.jsonl --set data.overlong=cut --set data.chat_template="$fix"

# ---- devices, hosts ----

mkdir plugins
NDP_PLUGIN_DIR="$work/plugins"
export NDP_PLUGIN_DIR
mistake 2 'no CUDA: ' --device cuda
take '`(--device cpu)`'
works $fix
unset NDP_PLUGIN_DIR

if [ -x /usr/bin/env ] && command -v mpirun >/dev/null; then
    mkdir bin # everything but mpirun
    for tool in timeout env sh; do ln -s "$(command -v $tool)" bin; done
    path=$PATH
    PATH=$work/bin
    case_of "train --transport mpi without mpirun"
    timeout $patience "$NDP_PROGRAM" train $job --transport mpi --set train.output_dir=never >out 2>err
    code=$?
    PATH=$path
else
    case_of "train --transport mpi without mpirun"
    "$NDP_PROGRAM" train $job --transport mpi --set train.output_dir=never >out 2>err
    code=$?
fi
mistakes=$((mistakes + 1))
code_is 1
says err 'mpirun is not installed'
take 'train.transport: ([a-z]+)'
works --set train.transport="$fix"

# ---- run folders ----

mistake 2 'train.output_dir trained holds another run' --set train.output_dir=trained --set train.steps=4
take 'continue the run with (--resume)'
job=job.yaml
case_of "train --resume"
"$NDP_PROGRAM" train job.yaml --set train.output_dir=trained --set train.steps=2 $fix >out 2>err || fail "exit code $?"

mistake 2 'optimizer.lr was 0.0003, now it is 0.001' --set train.output_dir=trained --set train.steps=2 --resume \
    --set optimizer.lr=1e-3
take 'resume with (--accept [a-z.]+)'
case_of "train --resume $fix"
"$NDP_PROGRAM" train job.yaml --set train.output_dir=trained --set train.steps=2 --resume --set optimizer.lr=1e-3 \
    $fix >out 2>err || fail "exit code $?"

: >file
mistake 1 "cannot create the folder 'file': " --set train.output_dir=file/run
take '; set (train\.output_dir) to a folder'
works --set "$fix=fixed"

# ---- a full disk ----

# The disk has room for a checkpoint, and not for the model of the end.
if mkdir small && mount -t tmpfs -o size=400k tmpfs small 2>/dev/null; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    run train job.yaml --set train.output_dir=small/run
    mistakes=$((mistakes + 1))
    code_is 1
    says err 'No space left on device; the file needs [0-9]+ bytes .* its disk has .* free'
    take 'is on disk; continue with (--resume)'
    mount -o remount,size=4m small
    run train job.yaml --set train.output_dir=small/run "$fix"
    code_is 0
    [ -f small/run/model/model.safetensors ] || fail "no model"
else
    echo "no right to mount a small disk: the full disk is skipped" >&2
fi

[ "$mistakes" -ge 20 ] || fail "$mistakes mistakes"
end_of_cases
