#!/bin/sh
# A corpus of some size, tokenized by the ranks of a run: one cache, whichever rank made it.
. "$(dirname "$0")/cases.sh"
make_job

# Eight megabytes of records; with `broken N` record N is none.
records() {
    awk -v broken="${1:-0}" 'BEGIN {
        for (i = 1; i <= 100000; i++)
            if (i == broken) print "{\"txet\": 1}"
            else printf "{\"text\": \"record %d, and once more %d, and so it goes on and on for a while\"}\n", i, i % 97
    }'
}
records >records.jsonl
records 90000 >broken.jsonl

corpus() { # FOLDER ARGUMENT...
    folder=$1
    shift
    run train job.yaml --set data.cache_dir="$folder" --set train.output_dir="run-$folder" --set train.steps=1 "$@"
}

corpus one --transport self --ranks 1 --set parallelism.dp_shard_size=1 --set data.files=records.jsonl
code_is 0
says out '^data: 100000 documents'
for transport in $(transports); do
    corpus "$transport" --transport "$transport" --set data.files=records.jsonl --set parallelism.dp_shard_size=4 \
        --set batch.micro_batch_size=1
    code_is 0
    says out 'on 4 ranks' '^data: 100000 documents'
    [ "$(ls "$transport")" = "$(ls one)" ] || fail "$(ls "$transport") in the cache folder, on one rank $(ls one)"
    cmp -s "$transport"/*.tokens one/*.tokens || fail 'another cache than that of one rank'

    corpus "bad-$transport" --transport "$transport" --set data.files=broken.jsonl --set parallelism.dp_shard_size=4 \
        --set batch.micro_batch_size=1
    code_is 2
    says err 'broken.jsonl:90000: the record has no .text.'
    lines err 1 'the record has no'
    [ -z "$(ls "bad-$transport")" ] || fail "$(ls "bad-$transport") is left in the cache folder"
done

# Killed in the middle: what is left is not a cache, and the next run builds one.
case_of 'a run that is killed while it tokenizes'
for i in 1 2 3 4 5 6 7 8; do cat records.jsonl; done >large.jsonl
"$NDP_PROGRAM" train job.yaml --transport self --ranks 1 --set parallelism.dp_shard_size=1 \
    --set data.cache_dir=killed --set train.output_dir=run-killed --set data.files=large.jsonl >out 2>err &
killed=$!
sleep 0.5
kill -KILL $killed
wait $killed 2>/dev/null # until it has let go of its lock
rm -rf run-killed
corpus killed --transport self --ranks 1 --set parallelism.dp_shard_size=1 --set data.files=large.jsonl
code_is 0
says out '^data: 800000 documents'
[ "$(ls killed | wc -l)" = 1 ] || fail "$(ls killed) in the cache folder"
end_of_cases
