#!/bin/sh
# What a run says of itself: the first line, rows of steps, the summary, run.json, the clock in metrics.jsonl.
. "$(dirname "$0")/cases.sh"
make_job

# Into a file at most 1,000 rows, however many steps and evaluations; each evaluation has its numbers in metrics.jsonl.
head -c 300 text.txt >held.txt
run train job.yaml --transport self --ranks 1 --set parallelism.dp_shard_size=1 --set train.steps=1100 --set train.eval_every=2 \
    --set data.validation_files='[held.txt]' --set data.files='[text.txt]' --set checkpoint.every=500 --set data.sequence_length=8 \
    --set batch.global_batch_size=2 --set train.output_dir=many
code_is 0
rows=$(grep -cE '^ *[0-9]+/1100 ' out)
[ "$rows" -le 1000 ] && [ "$rows" -ge 300 ] || fail "$rows rows of 1100 steps"
[ "$(wc -l <many/metrics.jsonl)" = 1100 ] || fail "not a line for each step"
[ "$(grep -c '"eval_loss"' many/metrics.jsonl)" = 550 ] || fail "not each evaluation has a line"
says out '^ndparallel [0-9.]+( \([0-9a-f]+\))?, host [^ ]+, process [0-9]+, [0-9-]{10} [0-9:]{8}$' \
    '^ *step +loss +eval +norm +lr +tok/s +mfu +left +time$' '^ *1100/1100 .* [0-9]{2}:[0-9]{2}:[0-9]{2}$' \
    '^steps: 1100 of 1100 in .*; [0-9]+ tokens, [0-9]+ tokens/s$' '^best: eval_loss [0-9.]+ at step [0-9]+$' \
    '^memory: .* planned per rank; the process of rank 0 used .* at most$'
[ "$(head -n 1 out | cut -c1-11)" = "ndparallel " ] || fail "the first line is another"

# The parts of the time are all of it, and nearly nothing is left over.
sed -n 's/^time: //p' out | tr ',' '\n' | awk '{ sum += $2; if ($1 == "other") other = $2 }
    END { if (sum < 99 || sum > 101 || other > 8) { print "parts sum to " sum "%, other " other "%"; exit 1 } }' >>err ||
    fail "the time does not add up: $(grep ^time: out)"
# So are those of a step.
awk -F '[:,]' '{ for (i = 1; i < NF; i += 2) { gsub(/[ "{]/, "", $i); v[$i] = $(i + 1) + 0 }
    parts = v["compute_seconds"] + v["communication_seconds"] + v["data_seconds"]
    if (parts > 1.001 * v["step_seconds"] || parts < 0.999 * v["step_seconds"]) { print "step " NR; exit 1 }
    if (v["time"] < last || v["tokens_total"] <= total) { print "time or tokens of step " NR; exit 1 }
    last = v["time"]; total = v["tokens_total"]; delete v }' many/metrics.jsonl >>err || fail "metrics of a step"

# run.json: a part for each start, with its end.
for transport in $(transports); do
    run train job.yaml --transport "$transport" --set checkpoint.every=3 --set train.output_dir="$transport" --set train.steps=6
    code_is 0
    run train job.yaml --transport "$transport" --resume-from 3 --set train.output_dir="$transport"
    code_is 0
    says "$transport/run.json" '"first_step":1,' '"first_step":4,' '"last_step":6,' '"exit_code":0,' '"cause":"done"' '"dp_shard":2,' '"device_name":"..*",' '"threads":1,'
    [ "$(grep -c '"first_step"' "$transport/run.json")" = 2 ] || fail "run.json has not two parts"
    [ "$(grep -c '^ *"[^"]*",\{0,1\}$' "$transport/run.json")" -ge 2 ] || fail "no hosts"
done
end_of_cases
