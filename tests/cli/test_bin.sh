#!/bin/sh
# Files of ids without a tokenizer, as users of llm.c and nanoGPT have them: what divides documents, and what is refused.
. "$(dirname "$0")/cases.sh"

# gpt2 [MEMBER]: a small GPT-2 of its own vocabulary.
gpt2() {
    cat <<EOF
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": ${vocab:-50257}, "n_embd": 16, "n_layer": 1,
 "n_head": 2, "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5${1:+, $1}}
EOF
}
zeros() { head -c "$1" /dev/zero; }
repeat() { i=0; while [ $i -lt "$1" ]; do printf "$2"; i=$((i + 1)); done; }
# The headers of llm.c: magic, version, number of ids, up to 256 words. Ids of 16 bits, of 32.
narrow() { printf '\210\330\064\001\001\000\000\000'"$(printf '\\%03o' "$1")"'\000\000\000'; zeros 1012; }
wide() { printf '\241\331\064\001\007\000\000\000'"$(printf '\\%03o' "$1")"'\000\000\000'; zeros 1012; }
end16='\120\304'
end32='\120\304\000\000'

gpt2 >bare.json
gpt2 '"bos_token_id": 50256, "eos_token_id": 50256' >named.json
gpt2 '"bos_token_id": 7, "eos_token_id": [257, 7]' >list.json
repeat 100 '\005\000\001\001\006\000\007\000' >x.bin # 5 257 6 7
{ narrow 9; repeat 3 "$end16"'\005\000\001\001'; } >begin.bin
{ wide 6; repeat 2 '\005\000\000\000\001\001\000\000'"$end32"; } >end.bin
cat >job.yaml <<'EOF'
model: {config: bare.json, init: random}
data: {files: [x.bin], sequence_length: 16}
parallelism: {dp_shard_size: 2}
batch: {global_batch_size: 4, micro_batch_size: 2}
train: {steps: 2, output_dir: run, threads: 1}
EOF

# An id that is the end token of `bytes` is a word here.
run train job.yaml --dry-run
code_is 0
says out '^data: 1 document, 400 tokens, 399 to predict, .*; \.bin: ids without a tokenizer, each file one document$' \
    '^note: bare\.json names neither bos_token_id nor eos_token_id, so every \.bin file is one document; data\.end_token: ID'

# The tokens of the configuration, at the beginning of documents or at their end; three kinds of file in one job.
run train job.yaml --dry-run --set model.config=named.json --set 'data.files=[begin.bin, end.bin, x.bin]'
code_is 0
says out '^data: 6 documents, 415 tokens, .*; \.bin: ids without a tokenizer, documents begin or end with id 50256$'
lines out 0 '^note: named'
run train job.yaml --dry-run --set model.config=list.json
code_is 0
says out '^data: 101 documents, .* documents begin with id 7 or end with id 257$'
mkdir folder
gpt2 '"bos_token_id": null' >folder/config.json
echo '{"eos_token_id": [257, 7]}' >folder/generation_config.json
run train job.yaml --dry-run --set model.config=null --set model.path=folder --set model.init=random
code_is 0
says out '^data: 101 documents, .*; \.bin: ids without a tokenizer, documents end with id 257$'

# data.end_token is an id.
run train job.yaml --dry-run --set data.end_token=257
code_is 0
says out '^data: 101 documents, .*documents begin or end with id 257$'
run train job.yaml --dry-run --set data.end_token=none --set model.config=named.json
code_is 0
says out '^data: 1 document, .*each file one document$'
lines out 0 '^note: named'
for token in '"</s>"' 50257 '"1 2"'; do
    run train job.yaml --dry-run --set data.end_token="$token"
    refused "data\.end_token: '[^']*': there is no tokenizer, so give the id of a token, 0 to 50256, auto .* or none"
done

# A tokenizer that is given is used, and named.
run train job.yaml --dry-run --set data.tokenizer=bytes
code_is 0
says out '^data: 101 documents, .*; \.bin: ids of bytes, documents begin with <bos> \(256\) or end with <eos> \(257\)$'
vocab=258 gpt2 >small.json
run train job.yaml --dry-run --set model.config=small.json
code_is 0
says out '; \.bin: ids of bytes, '

# Texts need one, alone or beside ids; ids must be below the vocabulary.
echo 'once upon a time' >a.txt
for files in a.txt '[x.bin, a.txt]'; do
    run train job.yaml --dry-run --set "data.files=$files"
    refused 'a\.txt is not a file of ids: text needs the tokenizer of this vocabulary of 50257 tokens; set data\.tokenizer'
    run train job.yaml --set "data.files=$files"
    refused 'a\.txt is not a file of ids: '
done
run train job.yaml --set model.config=null --set model.path=folder --set model.init=random --set data.files=a.txt
refused "a\.txt is not a file of ids: 'folder/tokenizer\.json' is not there"
printf '\121\304\001\000' >beyond.bin
run train job.yaml --set data.files=beyond.bin
refused 'beyond\.bin: token 0, at byte 0 of the file, is the id 50257; the vocabulary ends at 50256'

# A run: its model has no tokenizer, which text needs; a resume compares what divides documents.
for transport in $(transports); do
    run train job.yaml --set model.config=named.json --set data.files='[begin.bin, x.bin]' --transport "$transport" \
        --set train.output_dir="run-$transport" --set data.validation_files=end.bin
    code_is 0
    says out '^held out: 2 documents, 6 tokens, 4 to predict, .*documents begin or end with id 50256$'
    [ -e "run-$transport/model/model.safetensors" ] || fail 'no model'
    [ ! -e "run-$transport/model/tokenizer.json" ] || fail 'a tokenizer that is not the one of the ids'
done
run train run-local/job.yaml --resume --set data.end_token=5
refused 'data\.end_token was 50256, now it is 5'
run evaluate run-local/job.yaml --model run-local/model
code_is 0
says out '^mean nll [0-9.]+ \(perplexity [0-9.]+\) over 4 predictions in 2 documents$'
run evaluate run-local/job.yaml --model run-local/model --json
says out '"bytes": 0, .*"bits_per_byte": null'
run generate --model run-local/model --prompt x
code_is 2
says err 'the model run-local/model has no tokenizer, .*copy the tokenizer.json'
run generate --model run-local/model --ids --prompt x
says err 'the model run-local/model has no tokenizer, .*copy the tokenizer.json'
run generate --model run-local/model --ids --max-tokens 3 --force-memory
code_is 0
says out '^([0-9]+ )+$'
run evaluate --model run-local/model --data end.bin
says err 'end.bin: a .bin file contains ids, .* name it in data.validation_files, and run `evaluate JOB.YAML`$'
run verify job.yaml --set model.config=named.json --set train.steps=2 --layout tp=2
code_is 0

end_of_cases
