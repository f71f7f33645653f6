#!/bin/sh
# Names on the Hub, in Hub cache folders made here as the Hub's tools make them: refs, snapshots, links into blobs.
. "$(dirname "$0")/cases.sh"
unset HF_HUB_CACHE
export HF_HOME="$work/hf"
commit=0123456789abcdef0123456789abcdef01234567

# put REPO NAME: standard input becomes a file of its snapshot, a link to a blob.
put() {
    snapshot=$HF_HOME/hub/$1/snapshots/$commit
    mkdir -p "$HF_HOME/hub/$1/blobs" "$HF_HOME/hub/$1/refs" "$snapshot/$(dirname "$2")"
    blob=$(echo "$2" | tr / _)
    cat >"$HF_HOME/hub/$1/blobs/$blob"
    ln -s "$HF_HOME/hub/$1/blobs/$blob" "$snapshot/$2"
    printf %s "$commit" >"$HF_HOME/hub/$1/refs/main"
}
loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

# ---- models ----

make_job
run train job.yaml --transport local
code_is 0
for file in run/model/*; do put models--org--tiny "$(basename "$file")" <"$file"; done
cat >hub.yaml <<'END'
model: {path: org/tiny}
data: {files: [text.txt], sequence_length: 32}
parallelism: {dp_shard_size: 2}
batch: {global_batch_size: 4, micro_batch_size: 2}
train: {steps: 2, output_dir: out-hub, threads: 1}
END
run train hub.yaml --transport local --set model.path=run/model --set train.output_dir=out-path
code_is 0
run train hub.yaml --transport local
code_is 0
[ "$(loss out-hub)" = "$(loss out-path)" ] || fail "the loss is $(loss out-hub) by its name, $(loss out-path) by its path"
cmp -s out-hub/model/model.safetensors out-path/model/model.safetensors || fail "other weights by its name"
# What was trained from a name goes on from its folder: only contents count.
run train hub.yaml --transport local --resume --accept train.steps --set train.steps=3 --set model.path=run/model
code_is 0
for name in org/tiny org/tiny@main "org/tiny@$commit"; do
    run plan hub.yaml --set "model.path=$name"
    code_is 0
done
run verify hub.yaml --layout dp_shard=2 --steps 2
code_is 0
run generate --model org/tiny --prompt a -n 4 --ids
code_is 0
cp out by-name
run generate --model run/model --prompt a -n 4 --ids
cmp -s out by-name || fail "generate differs"
run evaluate --model org/tiny --data text.txt --threads 1
code_is 0
run tokenize --tokenizer org/tiny --text ab
code_is 0
run train job.yaml --dry-run --set data.tokenizer=org/tiny
code_is 0
HF_HUB_CACHE=$HF_HOME/hub HF_HOME=/nowhere run plan hub.yaml
code_is 0

run plan hub.yaml --set model.path=org/other
refused "'org/other' is neither a path here nor a model in the Hub cache $HF_HOME/hub; .*: hf download org/other$"
run plan hub.yaml --set model.path=org/tiny@v2
refused "no snapshot of its revision 'v2'; download it: hf download org/tiny --revision v2"
run generate --model org/other
refused 'hf download org/other$'
run tokenize --tokenizer org/other --text a
refused 'hf download org/other$'
run plan hub.yaml --set model.path=s3://bucket/model
refused "model.path: 's3://bucket/model' is a URL"
run plan hub.yaml --set 'data.files=[https://host/a.jsonl]'
refused "data.files: 'https://host/a.jsonl' is a URL"
# A path wins over a name.
mkdir -p org
cp -r run/model org/other
run plan hub.yaml --set model.path=org/other
code_is 0

# A snapshot of which only a part is there.
snapshot=$HF_HOME/hub/models--org--tiny/snapshots/$commit
without() {
    mv "$snapshot/$1" aside
    [ -z "${2:-}" ] || ln -s /nowhere/blob "$snapshot/$1"
    rm -rf out-part
    run train hub.yaml --transport local --set train.output_dir=out-part
    refused "$1" 'only a part of org/tiny; complete it: hf download org/tiny$'
    [ ! -e out-part ] || fail "it made a run folder"
    rm -f "$snapshot/$1"
    mv aside "$snapshot/$1"
}
without config.json
without config.json dangling
without model.safetensors
without model.safetensors dangling
without tokenizer.json
mv "$snapshot/model.safetensors" model-1.safetensors
echo '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}' >"$snapshot/model.safetensors.index.json"
run train hub.yaml --transport local --set train.output_dir=out-part
refused 'model-00001-of-00002.safetensors.*, which is missing' 'hf download org/tiny$'
run generate --model org/tiny
refused 'model-00001-of-00002.safetensors.*, which is missing' 'hf download org/tiny$'

# ---- data sets ----

record() { echo "{\"text\": \"$1 $1 $1 $1 $1 $1 $1 $1\"}"; }
# reads NAME WORD...: a dry run of this name reads so many documents.
reads() {
    run train job.yaml --dry-run --set "data.files=[\"$1\"]"
    code_is 0
    says out "^data: $2 documents?,"
}
not_read() {
    name=$1
    shift
    run train job.yaml --dry-run --set "data.files=[\"$name\"]"
    refused "$@"
}
for n in 0 1; do record train | put datasets--org--shards "data/train-0000$n-of-00002.jsonl"; done
record test | put datasets--org--shards data/test-00000-of-00001.jsonl
echo '# A data set' | put datasets--org--shards README.md
reads org/shards:train 2
reads org/shards@main:test 1
not_read org/shards "'org/shards': the data set has several splits: test, train; name one as org/name:SPLIT"
not_read org/shards:valid "the data set has no split 'valid'; its splits: test, train"
not_read org/missing:train "nor a data set in the Hub cache .*: hf download --repo-type dataset org/missing$"
rm "$HF_HOME/hub/datasets--org--shards/snapshots/$commit/data/train-00001-of-00002.jsonl"
not_read org/shards:train "train-00001-of-00002.jsonl' is missing" 'complete it: hf download --repo-type dataset org/shards$'
rm "$HF_HOME/hub/datasets--org--shards/blobs/data_test-00000-of-00001.jsonl"
not_read org/shards:test "test-00000-of-00001.jsonl' is missing" 'hf download --repo-type dataset org/shards$'

record a | put datasets--org--plain train.jsonl
{ record b; record b; } | put datasets--org--plain dev.jsonl
echo '{}' | put datasets--org--plain dataset_infos.json
reads org/plain:train 1
reads org/plain:validation 2
record a | put datasets--org--folders test/part.jsonl
{ record b; record b; } | put datasets--org--folders training/part.jsonl
reads org/folders:train 2
reads org/folders:test 1
{ record c; record c; record c; } | put datasets--org--all corpus.jsonl
reads org/all 3
reads org/all:train 3
record a | put datasets--org--mixed train.jsonl
echo a | put datasets--org--mixed train.txt
not_read org/mixed:train 'its split train has files of several kinds, such as train.jsonl and train.txt'

record a | put datasets--org--card en/x/1.jsonl
{ record b; record b; } | put datasets--org--card de/y.jsonl
{ record c; record c; record c; } | put datasets--org--card de/z.jsonl
put datasets--org--card README.md <<'END'
---
license: mit
configs:
- config_name: en
  data_files: "en/**/*.jsonl"
- config_name: de
  default: true
  data_files:
  - split: train
    path: [de/y.jsonl]
  - split: late
    path: de/[z]*
---
# Text
END
reads org/card:en/train 1
reads org/card:train 2
reads org/card:de/late 3
not_read org/card:fr/train 'the data set has no configuration .fr.; its configurations: en, de'
not_read org/card "several splits: train, late"
printf -- '---\na: [\n---\n' >"$HF_HOME/hub/datasets--org--card/blobs/README.md"
not_read org/card 'README.md: the text between its lines --- is not YAML'

# What patterns match; and those that would take forever if every ** were tried on every folder, or fill the memory.
deep=a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a
record a | put datasets--org--deep $deep/x.jsonl
{ record b; record b; } | put datasets--org--deep b/y.jsonl
{ record c; record c; record c; } | put datasets--org--deep z.jsonl
# card PATTERN...: of the only split.
card() {
    {
        printf -- '---\nconfigs:\n- config_name: c\n  data_files:\n'
        printf '  - "%s"\n' "$@"
        printf -- '---\n'
    } >"$HF_HOME/hub/blob"
    ln -sf "$HF_HOME/hub/blob" "$HF_HOME/hub/datasets--org--deep/snapshots/$commit/README.md"
}
for n in '** 6' '**/*.jsonl 6' '*.jsonl 3' './*.jsonl 3' './/./z.jsonl 0' '././z.jsonl 3' '**/y.jsonl 2' 'b/** 2' 'b/**/y.jsonl 2' '*/*.jsonl 2' \
    '**/a/**/x.jsonl 1' 'a/**/a/x.jsonl 1' '**/./**/z.jsonl 3' "$deep/** 1" "$deep/*/** 0" 'b 0' 'b/ 0' 'z.jsonl/** 0' '**/a/b/*.jsonl 0' \
    '[!z]/*.jsonl 2'; do
    card "${n% *}"
    if [ "${n##* }" = 0 ]; then not_read org/deep 'has no file of records'; else reads org/deep "${n##* }"; fi
done
many=**/
for i in 1 2 3 4; do many=$many$many; done # 16
for end in none.jsonl '**/none.jsonl' 'a/**/none.jsonl'; do
    card "$many**/**/**/**/$end" "**/a/$many**/a/**/a/**/a/$end" "$(echo "$many" | sed 's|\*\*/|**/a/|g')$end"
    began=$(date +%s)
    not_read org/deep 'has no file of records'
    [ $(($(date +%s) - began)) -le 5 ] || fail "it took $(($(date +%s) - began)) s"
done
card "$(printf '%5000s' '' | tr ' ' a)"
not_read org/deep 'README.md: data_files has more than 65536 patterns, or one of more than 4095 bytes'
card $(seq 1 65537)
not_read org/deep 'README.md: data_files has more than 65536 patterns'

# A run by name has the identity of one by path.
run train job.yaml --transport local --set 'data.files=["org/plain:validation"]' --set train.output_dir=by-hub
code_is 0
run train job.yaml --transport local --resume --accept train.steps --set train.steps=7 --set train.output_dir=by-hub \
    --set "data.files=[$HF_HOME/hub/datasets--org--plain/snapshots/$commit/dev.jsonl]"
code_is 0

end_of_cases
