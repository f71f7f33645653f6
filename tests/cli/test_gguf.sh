#!/bin/sh
# Models written as GGUF files: of a run, of its adapter merged into the model, and of a folder; what the command says and
# refuses. tests/weights/test_gguf.c looks into the files.
. "$(dirname "$0")/cases.sh"
make_job
golden=$NDP_SOURCE_DIR/tests/golden
run train job.yaml --transport local --set train.steps=2 --set checkpoint.every=1 --set checkpoint.keep=9
code_is 0

# The file of a run is that of the model folder that it exports, but for the name; its tokenizer of bytes is GPT-2's.
run export run --format gguf -o run.gguf
code_is 0
says out '^model: run.gguf, [0-9]+ tensors$'
[ ! -s err ] || fail 'something on stderr'
run checkpoint export run -o model/run
code_is 0
run export model/run --format gguf -o folder.gguf
code_is 0
cmp run.gguf folder.gguf || fail 'another file'
head -c 4 run.gguf >magic && printf GGUF | cmp -s - magic || fail 'another beginning'
grep -q tokenizer.ggml.merges run.gguf || fail 'no tokenizer'
run export run --step 1 --format gguf -o first.gguf --json
code_is 0
says out '^\{"file": "first.gguf", "model": "run", "tensors": [0-9]+\}$'
cmp -s run.gguf first.gguf && fail 'the steps are the same'
run export run --format gguf --type q8_0 -o small.gguf
code_is 0
[ "$(wc -c <small.gguf)" -lt "$(wc -c <run.gguf)" ] || fail 'q8_0 is no smaller'

# Without --format it is a Hugging Face folder.
run export run -o again
code_is 0
says out '^model: again, of step 2$'
diff -r again model/run >out 2>err || fail 'another folder'

# An adapter is merged first.
run train job.yaml --transport local --set train.steps=3 --set train.output_dir=lora --set model.config=null \
    --set model.init=pretrained --set model.path=model/run --set data.tokenizer=null --set optimizer.lr=0.1 \
    --set adapter.type=lora --set adapter.r=4 --set adapter.targets=all-linear --set checkpoint.every=3
code_is 0
run export lora --format gguf --type fp32 -o lora.gguf
code_is 0
run merge -m model/run -a lora -o merged/lora
code_is 0
run export merged/lora --format gguf --type fp32 -o merged.gguf
code_is 0
cmp lora.gguf merged.gguf || fail 'another file than that of the merged folder'

# What is refused leaves nothing.
ls -A >before
run export run --format gguf
refused 'export needs -o PATH'
run export --format gguf -o new.gguf
refused 'no model; give the folder of a run or of a model'
run export run --format onnx -o new.gguf
refused "--format 'onnx': expected one of gguf, safetensors"
run export run --type q8_0 -o new.gguf
refused '--type is that of a GGUF file; add --format gguf'
run export run --format gguf --type q4_0 -o new.gguf
refused "'q4_0' is no type of a GGUF file; it is one of fp32, bf16, f16 and q8_0"
run export run --format gguf -o run.gguf
refused "'run.gguf' exists, and nothing is overwritten"
run export lora/adapter --format gguf -o new.gguf
refused 'is a LoRA adapter'
run export missing --format gguf -o new.gguf
refused "cannot read 'missing/config.json'"
run export "$golden/qwen3-5" --format gguf -o new.gguf
code_is 1
says err 'models of qwen3_5_text are not written as GGUF; those of these families are: llama, mistral, '
run export "$golden/mistral" --format gguf -o new.gguf
code_is 0
says err 'llama.cpp has no window in llama: beyond 7 tokens its results are others' 'has no tokenizer: the file is of token ids alone'
rm new.gguf
run gguf
refused 'use `ndparallel export`. Its option is `--format gguf`'
ls -A >after
grep -v '^\(before\|out\|err\)$' before >a; grep -v '^\(before\|after\|a\|out\|err\)$' after | cmp -s a - || fail "$(diff a after)"
end_of_cases
