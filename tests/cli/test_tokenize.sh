#!/bin/sh
# ndparallel tokenize: ids, pieces, counts and texts, from the command line and from files; what it refuses.
. "$(dirname "$0")/cases.sh"

cat > tokenizer.json <<'EOF'
{"added_tokens": [{"id": 4, "content": "<s>", "special": true}],
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed", "invert": false},
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
   {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\"": 3}, "merges": ["a b"]}}
EOF
printf '{"text": "ab a"}\n{"text": ""}\n{"text": "b\\"", "body": "a"}\n' > texts.jsonl
printf '[2, 0]\n\n{"ids": [4, 1]}\n' > ids.jsonl

# prints TEXT ARGUMENT...: all of the output.
prints() {
    text=$1
    shift
    run tokenize --tokenizer . "$@"
    code_is 0
    [ "$(cat out)" = "$text" ] || fail "expected '$text'"
}

prints '[2, 0, 1]' --text 'ab  a b'
prints '[4, 2]' --text 'ab' --special
prints '["ab", "\""]' --text 'ab"' --pieces
prints '3' --text 'ab a b' --count
prints '[]' --text ''
prints '[2, 0]
[]
[1, 3]' --file texts.jsonl
prints '2
0
2' --file texts.jsonl --count
prints '"ab a"
"b"' --file ids.jsonl --decode
prints '"<s> b"' --text '[4, 1]' --decode --special

# pipes INPUT TEXT ARGUMENT...: prints, with that on standard input.
input=in
pipes() {
    printf "$1" > in
    shift
    prints "$@"
}

pipes 'ab a\nb' '[2, 0, 1]' --file -
pipes 'ab\n<|endoftext|>\nb\n' '[2]
[1]' --file -
pipes '{"text": "ab a"}\n{"text": "b"}\n' '[2, 0]
[1]' --file - --text-field text
pipes '[2, 0]\n\n{"ids": [4, 1]}\n' '"ab a"
"b"' --file - --decode
pipes '' '' --file -
cat ids.jsonl | "$NDP_PROGRAM" tokenize --tokenizer . -f - --decode > out || fail 'a pipe is not read'
says out '^"ab a"$'
cp texts.jsonl in
run tokenize --tokenizer . --file - --text-field body
refused "standard input:1: the record has no 'body'"
printf 'a\n\377' > in
run tokenize --tokenizer . --file -
refused 'standard input:2: byte 2 of the file \(0xff\) is not valid UTF-8'
input=.
run tokenize --tokenizer . --file - --decode
code_is 1
says err "cannot read 'standard input': Is a directory"
input=/dev/null

run tokenize --tokenizer . --file texts.jsonl --text-field body
refused "texts.jsonl:1: the record has no 'body'"
run tokenize --tokenizer . --text '[1, 5]' --decode
refused 'item 1, 5, is not an id of this vocabulary of 5'
run tokenize --tokenizer . --text 7 --decode
refused 'neither a list of ids'
run tokenize --tokenizer . --text c
refused 'the character U\+0063 has no token'
run tokenize --tokenizer . --text a --pieces --count
refused 'cannot be combined'
run tokenize --tokenizer .
refused 'either --file FILE or --text TEXT'
run tokenize --text a
refused '--tokenizer DIR is missing'
run tokenize --tokenizer . --file missing.jsonl
code_is 2
says err 'missing.jsonl'
run tokenize --tokenizer missing --text a
code_is 2
says err "'missing' is not there"

# A reader that leaves early ends it without words.
case_of 'tokenize into a closed pipe'
yes '{"text": "ab a"}' | head -n 100000 > long.jsonl
"$NDP_PROGRAM" tokenize --tokenizer . --file long.jsonl 2> err | head -n 1 > out
says out '^\[2, 0\]$'

# A tokenizer that is larger than the model: told before the first step.
make_job
cat > large.json <<'EOF'
{"model": {"type": "BPE", "vocab": {"<0x0A>": 0, "unused": 400, "?": 300}, "unk_token": "?", "merges": []}}
EOF
run train job.yaml --set data.tokenizer=large.json --set parallelism.dp_shard_size=1
code_is 2
says err ':1: the text has the token 300, the model.s vocabulary ends at 257: the tokenizer does not belong to the model'

if [ -n "${NDP_TEST_DATA:-}" ]; then
    # The older pair of files is the same tokenizer.
    cp "$NDP_TEST_DATA/tokenizers/gpt2/vocab.json" "$NDP_TEST_DATA/tokenizers/gpt2/merges.txt" .
    rm tokenizer.json
    run tokenize --tokenizer . --file "$NDP_TEST_DATA/conformance/tokenizers/gpt2.jsonl"
    code_is 0
    mv out pair
    run tokenize --tokenizer "$NDP_TEST_DATA/tokenizers/gpt2" --file "$NDP_TEST_DATA/conformance/tokenizers/gpt2.jsonl"
    code_is 0
    cmp -s out pair || fail 'vocab.json and merges.txt give other ids than tokenizer.json'
    echo '{"tokenizer_class": "Qwen2Tokenizer"}' > tokenizer_config.json
    run tokenize --tokenizer . --text a
    code_is 1
    says err 'vocab.json and merges.txt of a Qwen2Tokenizer'
else
    echo 'SKIPPED: NDP_TEST_DATA is not set, no vocab.json and merges.txt to compare'
fi
end_of_cases
