#!/bin/sh
# One run at a time writes into a run folder. Pid namespaces stand for hosts: what runs in one cannot be seen from another.
. "$(dirname "$0")/cases.sh"
make_job
export NDP_LOCK_PATIENCE=2
job="job.yaml --transport local --set train.output_dir=$work/run --set schedule.name=constant --set checkpoint.every=20 --set train.log_every=100000"
endless="--set train.steps=1000000"

lines_of() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
more_steps() { [ "$(lines_of run/metrics.jsonl)" -gt "$1" ]; }
saved() { ls -d run/checkpoints/step-* >/dev/null 2>&1; }
newest() { ls -d run/checkpoints/step-* | tail -n 1 | sed 's/.*step-0*//'; }
# All that is in the folder, with its content.
content() { find run -type f -exec cksum {} + | sort; }
nothing_left() {
    left=$(find run \( -name '*.tmp*' -o -name 'lock*' \))
    [ -z "$left" ] || fail "left over: $left"
}

# begin COMMAND...: a run that does not end by itself, in the background, until it has saved.
begin() {
    case_of "a run by $*"
    rm -rf run
    # shellcheck disable=SC2086
    "$@" "$NDP_PROGRAM" train $job $endless >out-first 2>err-first </dev/null &
    pid=$!
    within saved || fail "no checkpoint: $(cat out-first err-first)"
}

# refused_at_once WORDS ARGUMENT...: the second run, which does not wait for the first.
refused_at_once() {
    words=$1
    shift
    # shellcheck disable=SC2086
    run train $job "$@"
    code_is 2
    lines err 1 '^ndparallel'
    says err "$words"
    [ ! -s out ] || fail "it waited, or did more"
}

# ---- on this host ----

begin env
refused_at_once "is in use: process $pid of this host .* generation 1"
refused_at_once "is in use: process $pid of this host" --resume
before=$(lines_of run/metrics.jsonl)
within more_steps "$before" || fail "the first run stands still"
kill -KILL $pid
wait $pid
step=$(newest)
# shellcheck disable=SC2086
run train $job --set train.steps=$((step + 25)) --resume
code_is 0
says out "^run folder: takes over $work/run from process $pid on '.*', which has ended; generation 2" '^resume: from step'
nothing_left

# ---- elsewhere ----

space=""
for way in "unshare" "unshare --user --map-root-user"; do
    # shellcheck disable=SC2086
    [ -z "$space" ] && $way --pid --fork --kill-child --mount-proc true 2>/dev/null && space="$way --pid --fork --kill-child --mount-proc"
done
if [ -z "$space" ]; then
    echo "skipped: no pid namespaces here, so nothing stands for another host" >&2
    end_of_cases
fi
inner() { tr -d ' ' <"/proc/$1/task/$1/children"; }

# shellcheck disable=SC2086
begin $space
refused_at_once "process 1 on '.*' holds $work/run/lock .generation 1.*another container of this host.*remove $work/run/lock" --resume
case_of a holder that lives is waited for, and Ctrl-C ends that
# shellcheck disable=SC2086
SLURM_JOB_ID=1 "$NDP_PROGRAM" train $job $endless --resume >out 2>err </dev/null &
waiting=$!
within [ -s out ] || fail "it does not wait"
sleep 4 # twice the time for which the counter would have to stand still
says out "^run folder: process 1 on '.*' holds $work/run/lock; waiting until its counter has stood still for 2 s"
lines out 1 '.'
kill -TERM $waiting
wait $waiting
code=$?
code_is 130
kill -KILL "$(inner $pid)"
wait $pid
step=$(newest)
# shellcheck disable=SC2086
SLURM_JOB_ID=1 run train $job --set train.steps=$((step + 25)) --resume
code_is 0
says out "^run folder: takes over .* whose counter has stood still for 2 s; generation 2"
nothing_left

# One that is stopped within a save still writes the rest of it, into a folder that nothing commits.
stop_between_saves() {
    while kill -STOP "$1" && [ -n "$(find run/checkpoints -name '.step-*.tmp')" ]; do
        kill -CONT "$1"
        sleep 0.02
    done
}

# A holder that is stopped and wakes up writes nothing: when the other run is over, and while it runs.
for end in 25 1000000; do
    # shellcheck disable=SC2086
    begin $space
    holder=$(inner $pid)
    stop_between_saves "$holder"
    step=$(newest)
    # shellcheck disable=SC2086
    "$NDP_PROGRAM" train $job --set train.steps=$((step + end)) --resume --restarts 1 >out 2>err </dev/null &
    taker=$!
    if [ $end = 25 ]; then
        wait $taker
        code=$?
        code_is 0
        words="$work/run/lock is gone, so another run may write"
    else
        taken() { grep -q '"generation": 2,' run/lock; }
        within taken || fail "it was not taken over"
        within more_steps "$(lines_of run/metrics.jsonl)" || fail "the second run stands still"
        words="process $taker on '.*' has taken over the run folder $work/run in generation 2"
    fi
    says out "^run folder: takes over .*; generation 2"
    [ $end != 25 ] || content >before
    kill -CONT "$holder"
    wait $pid
    code=$?
    cp err-first err
    code_is 2
    lines err 1 '^ndparallel'
    says err "$words"
    if [ $end = 25 ]; then
        content | cmp -s - before || fail "the run that woke up wrote: $(content | diff before - | head -n 5)"
    else
        within more_steps "$(lines_of run/metrics.jsonl)" || fail "the second run stands still"
        kill -TERM $taker
        wait $taker
        code=$?
        code_is 130
    fi
    nothing_left
done

# ---- ranks that die ----

restarted() { sed -n '/^restart 1 of 2: the ranks ended with code 137/,$p' out | grep -q '^resume: from step'; }
saved_after() { [ "$(newest)" -gt "$1" ]; }
kill_holder() { kill -KILL "$(sed 's/.*"pid": \([0-9]*\).*/\1/' run/lock)"; }
# begin_restarting ARGUMENT...: a run in the background that starts its ranks again.
begin_restarting() {
    # shellcheck disable=SC2086
    "$NDP_PROGRAM" train $job --transport $t --set train.steps=30000 --set checkpoint.every=500 --restarts 2 "$@" >out 2>err </dev/null &
    pid=$!
}
die_once() {
    kill_holder
    within restarted || fail "no restart: $(tail -n 3 out err)"
}
stop() {
    kill -TERM $pid
    wait $pid
    code=$?
    code_is 130
    nothing_left
}

unset NDP_LOCK_PATIENCE
for t in $(transports 2>/dev/null); do
    [ "$t" = local ] && continue
    case_of ranks that die are started again, --transport "$t"
    rm -rf run
    begin_restarting
    within saved || fail "no checkpoint"
    die_once
    says out '^restart 1 of 2: the ranks ended with code 137' '^run folder: takes over .*, (which has ended|whose launcher has started these ranks in place of it); generation 2'
    run checkpoint rm run 1
    code_is 2
    says err 'is in use: process'
    stop
done

case_of a run with --resume-from and --accept is started again from its newest checkpoint
t=shm
within saved || fail "nothing to go on from"
from=$(newest)
begin_restarting --resume-from "$from" --accept optimizer.lr --set optimizer.lr=1e-5
within saved_after "$from" || fail "no later checkpoint: $(tail -n 3 out err)"
die_once
at=$(sed -n '/^restart/,$s/^resume: from step \([0-9]*\).*/\1/p' out)
[ "${at:-0}" -gt "$from" ] || fail "started again from step ${at:-none}, not from one after $from"
stop

end_of_cases
