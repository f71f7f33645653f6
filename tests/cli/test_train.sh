#!/bin/sh
# Whole runs of the program: what a user sees and finds, on threads and on processes.
. "$(dirname "$0")/cases.sh"
make_job

loss() { sed -n "$2"' s/.*"loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }

run train job.yaml --transport self --ranks 1 --set parallelism.dp_shard_size=1 --set train.output_dir=one
code_is 0

for transport in $(transports); do
    run train job.yaml --transport "$transport" --set train.output_dir="$transport" --set checkpoint.every=3 --set train.log_every=3
    code_is 0
    [ ! -s err ] || fail "something on stderr"
    says out '^layout: dp_shard 2 on 2 ranks' '^ *6/6  +[0-9.]+  +[0-9.]+  +[0-9.e-]+  +[0-9.]+k?  +[0-9.]+%  +[0-9:]+  +[0-9:]{8}$' "^model: $transport/model"
    lines out 3 '^ *[136]/6 '
    lines out 1 '^step +loss +norm +lr +tok/s +mfu +left +time$'
    [ "$(wc -l <"$transport/metrics.jsonl")" = 6 ] || fail "metrics.jsonl has not 6 lines"
    [ -e "$transport/checkpoints/step-00000003" ] || fail "no checkpoint of step 3"
    for file in job.yaml model/config.json model/model.safetensors; do
        [ -s "$transport/$file" ] || fail "no $file in the run folder"
    done
    awk -v a="$(loss one 6)" -v b="$(loss "$transport" 6)" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }' ||
        fail "loss $(loss "$transport" 6) at step 6, on one rank $(loss one 6)"

    run train job.yaml --transport "$transport" --set train.output_dir="$transport"
    refused "holds another run" '--resume'

    # Half of it, then the rest.
    half=$transport-half
    run train job.yaml --transport "$transport" --set train.output_dir="$half" --set train.steps=3 --set schedule.name=constant
    code_is 0
    run train job.yaml --transport "$transport" --set train.output_dir="$half" --resume --set schedule.name=constant
    code_is 0
    says out '^resume: from step 3' '^ *6/6 '
    [ "$(wc -l <"$half/metrics.jsonl")" = 6 ] || fail "metrics.jsonl has not 6 lines after resuming"

    # One message, whichever rank had it, and the same exit code on any transport.
    run train job.yaml --transport "$transport" --set train.output_dir=bad --set data.files=nowhere.txt
    code_is 2
    lines err 1 '.'
    says err "^ndparallel: .*'nowhere.txt'"
    head -c 1000 "$transport/model/model.safetensors" >short.safetensors
    rm -rf broken && cp -r "$transport/model" broken && cp short.safetensors broken/model.safetensors
    run train job.yaml --transport "$transport" --set train.output_dir=bad --set model.config=null --set model.path=broken
    code_is 2
    lines err 1 '.'
    says err '^ndparallel: .*broken/model.safetensors'
    [ ! -e bad/model ] || fail "a failed run has a model"
    rm -rf bad
done

# The reader of a run's lines has gone, or the disk that they go to is full: it ends as it would have. (mpirun stops
# its ranks instead.)
for transport in local shm; do
    case_of "lines of a run without a reader ($transport)"
    rm -f closed
    { while [ ! -e closed ]; do sleep 0.01; done
        "$NDP_PROGRAM" train job.yaml --transport "$transport" --set train.output_dir="pipe-$transport" 2>err
        echo $? >status; } | { exec </dev/null; touch closed; }
    code=$(cat status)
    code_is 0
    [ -s "pipe-$transport/model/model.safetensors" ] || fail "no model"
    lines err 1 '.'
    says err '^ndparallel: cannot write the output: Broken pipe; the run continues'
done
case_of "lines of a run to a full disk"
"$NDP_PROGRAM" train job.yaml --transport local --set train.output_dir=full >/dev/full 2>err
code=$?
code_is 0
says err 'No space left on device; the run continues'

run evaluate --model one/model --data text.txt --json --threads 1
code_is 0
members='"mean_nll": [0-9.]+, "tokens": [0-9]+, "documents": [0-9]+, "bytes": [0-9]+, "divided": 1, "window": 64, "stride": 63, "perplexity": [0-9.]+, "bits_per_byte": [0-9.]+'
says out "^\\{$members, \"files\": \\[\\{\"file\": \"text.txt\", $members\\}\\]\\}\$"
run evaluate --model one/model --data text.txt --threads 1
code_is 0
says out '^mean nll [0-9.]+ \(perplexity [0-9.]+, [0-9.]+ bits per byte\) over [0-9]+ predictions in 1 document$' \
    '^1 of 1 document divided into windows of 64 tokens, 63 apart: every token but a document.s first is predicted once$'
run evaluate --model one/model --data text.txt --threads 1 --sequence-length 32 --stride 32
code_is 0
says out '^1 of 1 document divided into windows of 32 tokens, 32 apart: every token but a window.s first is predicted once$'
head -c 500 text.txt >part.txt
run evaluate --model one/model --data text.txt --data part.txt --threads 1
code_is 0
says out '^file +tokens +mean nll +perplexity +bits/byte +documents$' '^text.txt +[0-9]+ +[0-9.]+' '^part.txt +[0-9]+ ' '^total +[0-9]+ '
lines out 5 .
says out '^2 of 2 documents divided into windows of 64 tokens'
run generate --model one/model --prompt 'A step' --max-tokens 5 --ids --threads 1
code_is 0
says out '^([0-9]+ ){1,5}$'
cp out first
run generate --model one/model --prompt 'A step' --max-tokens 5 --ids --threads 1 --temperature 1 --top-p 0.001 --seed 7
code_is 0
cmp -s out first || fail "top-p 0.001 is not the most likely token"

run train job.yaml --dry-run --set parallelism.dp_shard_size=8 --set parallelism.dp_replicate_size=4 --set batch.global_batch_size=64
code_is 0
says out 'on 32 ranks' '^  weights .* bytes$' '^  shard '
run plan job.yaml --program --rank 1
code_is 0
says out '^step program of rank 1 of 2' '^#0 '

end_of_cases
