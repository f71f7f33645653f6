#!/bin/sh
# Tables as data: the tokens and losses of the same records as JSONL, on one rank and on several; readers that fail.
. "$(dirname "$0")/cases.sh"
make_job
tables=$NDP_SOURCE_DIR/tests/golden/tables
losses() { grep -o '"loss": [0-9.e-]*' "$1/metrics.jsonl"; }
# The ids, without the header, in which the key differs.
payload() { tail -c +129 cache/ndparallel/*.tokens | cksum; }

# trains FOLDER FILE OPTION...: a run with a cache of its own.
trains() {
    folder=$1 file=$2
    shift 2
    rm -rf cache "$folder"
    run train job.yaml --transport local --set "train.output_dir=$folder" --set "data.files=[$file]" "$@"
    code_is 0
    ls -d cache/ndparallel/building-* >/dev/null 2>&1 && fail "it left a work folder"
    losses "$folder" >"$folder.losses"
    payload >"$folder.tokens"
}

# same FILE JSONL OPTION...: on 1 rank and on 4.
same() {
    table=$1 records=$2
    shift 2
    for ranks in 1 4; do
        trains "a$ranks" "$records" --set parallelism.dp_shard_size=$ranks --set batch.micro_batch_size=1 "$@"
        trains "b$ranks" "$table" --set parallelism.dp_shard_size=$ranks --set batch.micro_batch_size=1 "$@"
        cmp -s "a$ranks.losses" "b$ranks.losses" || fail "other losses from $table on $ranks ranks"
        cmp -s "a$ranks.tokens" "b$ranks.tokens" || fail "other tokens from $table on $ranks ranks"
    done
    cmp -s b1.tokens b4.tokens || fail "other tokens on 4 ranks"
}

# ---- CSV ----

python=${NDP_PYTHON:-/usr/bin/python3}
if [ ! -x "$python" ]; then
    echo "SKIPPED: $python is not there"
    exit 77
fi
awk 'BEGIN {
    print "text,n" >"a.csv"
    for (i = 0; i < 3000; i++) {
        printf "\"story \"\"%d\"\", with a comma\nand a line é\",%d\n", i, i >"a.csv"
        printf "{\"text\": \"story \\\"%d\\\", with a comma\\nand a line é\", \"n\": \"%d\"}\n", i, i >"a.jsonl"
    }
}'
same a.csv a.jsonl

# A second run starts no Python; a changed file is another cache.
rm -rf again
NDP_PYTHON=/nowhere/python run train job.yaml --transport local --set train.output_dir=again --set 'data.files=[a.csv]' \
    --set parallelism.dp_shard_size=4 --set batch.micro_batch_size=1
code_is 0
rm -rf again
echo 'one more,1' >>a.csv
NDP_PYTHON=/nowhere/python run train job.yaml --transport local --set train.output_dir=again --set 'data.files=[a.csv]'
code_is 2
says err 'has no /nowhere/python: install it'
lines err 1 '^ndparallel'

# A dry run reads the head; `tokenize` and `evaluate` also read tables.
run train job.yaml --dry-run --set 'data.files=[a.csv]'
code_is 0
says out '^data: 100 documents' '^note: only the head of the data was read'
run tokenize --tokenizer bytes --file a.csv --count
code_is 0
lines out 3001 '^[0-9]+$'
run evaluate --model a1/model --data a.csv --sequence-length 64 --threads 1
code_is 0
says out 'in 3001 documents'

# Messages name the row.
printf 'text,n\na,1\n,2\nb\n' >bad.csv
run train job.yaml --transport local --set 'data.files=[bad.csv]'
refused 'bad.csv: row 3 \(line 4\) has fields: 1, but the header has 2$'
printf 'body,n\na,1\n' >bad.csv
run train job.yaml --transport local --set 'data.files=[bad.csv]'
refused "bad.csv: row 1: the record has no 'text', .*; it has: body, n"
echo a >bad.csv.gz
run train job.yaml --transport local --set 'data.files=[bad.csv.gz]'
[ "$code" = 1 ] || fail "exit code $code, expected 1"
says err 'bad.csv.gz: compressed tables are not supported; unpack it'

# ---- readers that fail, on several ranks: nothing is left, and no run begins ----

# reader SCRIPT WORDS
reader() {
    printf '#!/bin/sh\n%s\n' "$1" >reader
    chmod +x reader
    rm -rf cache failed
    NDP_PYTHON=$work/reader run train job.yaml --transport local --set train.output_dir=failed --set 'data.files=[a.csv, a.tsv]'
    [ "$code" -ne 0 ] || fail "exit code 0"
    says err "$2"
    lines err 1 '^ndparallel'
    ls -d cache/ndparallel/building-* cache/ndparallel/*.tokens >/dev/null 2>&1 && fail "it left something in the cache"
}
printf 'text\na\n' >a.tsv
reader "printf '{\"text\": \"a\"}\\n{\"te'; kill -9 \$\$" 'a.[ct]sv: row 2: .* was killed by signal 9 .*, before it had read all rows'
reader "printf '{\"text\": \"a\"}\\n'" 'a.[ct]sv: row 2: .* ended before it had read all rows'
reader "printf '{\"text\": \"a\"}\\n{\"te\\nend 2\\n'" 'a.[ct]sv: row 2: the JSON text ends before its value does, at byte 5'
reader "printf 'what\\n'" "a.[ct]sv: row 1: its reader wrote 'what', which is not a record"

# ---- Parquet and Arrow ----

if "$python" -I -c 'import pyarrow' 2>/dev/null; then
    for file in chat.parquet chat.arrow chat-file.arrow; do
        same "$tables/$file" "$tables/chat.jsonl" --set data.chat_template=chatml --set data.overlong=cut --set train.steps=3
    done
    # As datasets.save_to_disk writes a folder: tables, and what describes them.
    mkdir saved
    cp "$tables/chat.arrow" saved/data-00000-of-00001.arrow
    echo '{}' | tee saved/dataset_info.json >saved/state.json
    same saved "$tables/chat.jsonl" --set data.chat_template=chatml --set data.overlong=cut --set train.steps=3
    mkdir splits
    cp -r saved splits/train
    echo '{"splits": ["train"]}' >splits/dataset_dict.json
    run train job.yaml --transport local --set 'data.files=[splits]'
    refused "data.files: the folder 'splits' has several splits; name one, such as 'splits/train'"
else
    echo "SKIPPED: $python has no pyarrow: Parquet and Arrow"
    run train job.yaml --transport local --set "data.files=[$tables/chat.parquet]"
    refused "chat.parquet: reading it needs Python's pyarrow, .*pip install pyarrow, and set NDP_PYTHON"
fi

end_of_cases
