#!/bin/sh
# Bad records: an error, or skipped and counted, the same on every number of ranks, from the cache, and in a dry run.
. "$(dirname "$0")/cases.sh"
make_job
awk 'BEGIN { for (i = 1; i <= 400; i++)
  if (i % 50 == 7) print "{\"text\": \"cut"
  else if (i == 100) print "{\"txt\": \"b\"}"
  else print "{\"text\": \"number " i " of a few\", \"system\": \"s\"}" }' >bad.jsonl
bad="--set data.files=[bad.jsonl] --set data.bad_records=skip --set train.steps=2"

counted() {
    code_is 0
    says out '^skipped: 9 records of bad.jsonl: 8 not JSON, 1 with a missing or mistyped field$' \
        '^  not JSON: bad.jsonl:7: the JSON text ends' '^  not JSON: bad.jsonl:57: ' '^  not JSON: bad.jsonl:107: ' \
        "^  with a missing or mistyped field: bad.jsonl:100: the record has no 'text'" \
        '^note: bad.jsonl has known fields that are not read: system \(391\)$' '^data: 391 documents'
    lines out 3 '^  not JSON:'
}

run train job.yaml --set 'data.files=[bad.jsonl]' --dry-run
refused 'bad.jsonl:7: the JSON text ends before its value does, at byte 14'
# shellcheck disable=SC2086
run train job.yaml $bad --dry-run
code_is 0
says out '^skipped: 3 records of bad.jsonl: 2 not JSON, 1 with' '^data: 97 documents'

for world in '1 local' '2 local' '4 local' '2 shm' '4 shm'; do
    ranks=${world% *} transport=${world#* }
    # shellcheck disable=SC2086
    run train job.yaml $bad --transport "$transport" --set "parallelism.dp_shard_size=$ranks" \
        --set batch.micro_batch_size=1 --set "data.cache_dir=cache-$ranks-$transport" --set "train.output_dir=run-$ranks-$transport"
    counted
    cmp -s "cache-$ranks-$transport"/*.tokens cache-1-local/*.tokens || fail "another cache on $ranks ranks, $transport"
done
# From the cache, and resumed with and without the key, which does not determine the curve.
# shellcheck disable=SC2086
run train job.yaml $bad --transport local --set parallelism.dp_shard_size=1 --set data.cache_dir=cache-1-local --set train.output_dir=again
counted
# shellcheck disable=SC2086
run train job.yaml $bad --transport local --set parallelism.dp_shard_size=1 --resume --set data.cache_dir=cache-1-local --set train.output_dir=again \
    --set train.steps=3 --set schedule.name=cosine --accept train.steps
counted
run train job.yaml --transport local --set parallelism.dp_shard_size=1 --resume --set 'data.files=[bad.jsonl]' --set data.cache_dir=cache-1-local \
    --set train.output_dir=again
code_is 2
says err 'bad.jsonl:7: .*at byte 14'

# Held-out files have their own lines; a cut file is not a bad record.
# shellcheck disable=SC2086
run train job.yaml $bad --transport local --set 'data.files=[text.txt]' --set 'data.validation_files=[bad.jsonl]'
code_is 0
says out '^skipped: 9 records of bad.jsonl: '
gzip -c bad.jsonl | head -c 1000 >cut.jsonl.gz
# shellcheck disable=SC2086
run train job.yaml $bad --dry-run --set 'data.files=[cut.jsonl.gz]'
refused 'cut.jsonl.gz'
end_of_cases
