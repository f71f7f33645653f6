#!/bin/sh
# Signals while the reference of a job is scored: it ends at once with 130, keeps what it has scored, and the same command
# goes on after that, on any transport.
. "$(dirname "$0")/cases.sh"
make_job
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "{\"prompt\": \"%d? \", \"chosen\": \"%d, %d\", \"rejected\": \"no %d\"}\n", i, i, i * i, i }' >pairs.jsonl
sed -i -e 's/text.txt/pairs.jsonl/' -e 's/^data: {/data: {format: preference, cache_dir: cached, /' job.yaml
echo 'loss: {name: dpo}' >>job.yaml
job="train job.yaml --set train.output_dir=$work/run"

scores() { grep -q '^reference: scoring' err; }
kept() { sed -n 's/^ndparallel: stopped while the reference was scored, .*; \([0-9]*\) of 80000 answers are kept, and .*/\1/p' err; }

# begin ARGUMENT...: the job in the background, until it scores; $pid is its process. A script ignores INT there.
begin() {
    case_of ndparallel "$job" "$@"
    # shellcheck disable=SC2086
    env --default-signal=INT "$NDP_PROGRAM" $job "$@" >out 2>err </dev/null &
    pid=$!
    within scores || fail "it does not score"
}

stopped() {
    wait "$pid"
    code=$?
    code_is 130
    before=${now:-0}
    now=$(kept)
    [ -n "$now" ] || fail "it does not say what it keeps"
    [ "${now:-0}" -gt "$before" ] || fail "$now answers are kept, $before were there before"
    lines err 1 '^ndparallel'
    [ ! -e run/metrics.jsonl ] || fail "it has begun a run"
}

for transport in $(transports); do
    rm -rf cached run
    now=0
    for signal in TERM HUP INT; do
        begin --transport "$transport"
        [ $now = 0 ] || says err "^reference: scoring $((80000 - now)) of 80000 answers with the initial model; the others are kept"
        kill -$signal "$pid"
        stopped
    done
    # And another layout.
    begin --transport "$transport" --set parallelism.dp_shard_size=1 --set parallelism.tp_size=2
    says err "^reference: scoring $((80000 - now)) of 80000 answers"
    kill -TERM "$pid"
    stopped
done

end_of_cases
