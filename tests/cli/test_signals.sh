#!/bin/sh
# Ctrl-C finishes the step, saves and ends with 130; ranks that are killed end the run; what a terminal shows.
. "$(dirname "$0")/cases.sh"
make_job
endless="train job.yaml --set train.output_dir=$work/run --set train.steps=1000000 --set train.log_every=100000 --set schedule.name=constant"

# Processes of this test, by the folder in their arguments: all, or the rank of that number.
processes() {
    for p in $(grep -lF "$work/run" /proc/[0-9]*/cmdline); do
        p=$(dirname "$p")
        case $(tr '\0' ' ' <"$p/cmdline") in "$NDP_PROGRAM train"* | mpirun*) ;; *) continue ;; esac
        [ $# = 0 ] || grep -qzxE "(NDP_RANK|OMPI_COMM_WORLD_RANK)=$1" "$p/environ" || continue
        basename "$p"
    done
} 2>/dev/null # they may end while we look

some_steps() { [ -e run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt 1 ]; }
more_steps() { [ "$(wc -l <run/metrics.jsonl)" -gt "$before" ]; }
all_ended() { [ -z "$(processes)" ]; }

# begin ARGUMENT...: a run that does not end by itself, in the background; $pid is its process.
own_group=""
begin() {
    case_of ndparallel "$endless" "$@"
    rm -rf run
    # shellcheck disable=SC2086
    $own_group "$NDP_PROGRAM" $endless "$@" >out 2>err </dev/null &
    pid=$!
    within some_steps || fail "no steps"
}

newest() { ls -d run/checkpoints/step-* 2>/dev/null | tail -n 1 | sed 's/.*step-0*//'; }
saved() {
    step=$(newest)
    [ -n "$step" ] && [ "$step" = "$(wc -l <run/metrics.jsonl)" ] || fail "the newest checkpoint is '$step', metrics.jsonl has $(wc -l <run/metrics.jsonl) steps"
}

ended() {
    wait "$pid"
    code=$?
    code_is "$1"
    within all_ended || fail "processes are left: $(processes)"
}

ways=$(transports)
for transport in $ways; do
    begin --transport "$transport"
    kill -TERM "$pid"
    ended 130
    says err '^ndparallel: stopped after step [0-9]+; continue with --resume$'
    lines err 1 '.'
    saved

    more=$((step + 1))
    run train job.yaml --transport "$transport" --set train.output_dir="$work/run" --set train.steps=$more --set schedule.name=constant --resume
    code_is 0
    says out "^resume: from step $step" "^ *$more/$more "
done

# What a closed terminal sends, twice, as its shell and the kernel do: to all processes of the job, or to its parent.
# Ignored from the start (nohup), it stops nothing.
for transport in $ways; do
    for target in "" -; do
        own_group=setsid # as a shell with job control starts it
        begin --transport "$transport"
        own_group=""
        kill -HUP "$target$pid"
        kill -HUP "$target$pid" 2>/dev/null # it may have ended
        ended 130
        says err '^ndparallel: stopped after step [0-9]+; continue with --resume$'
        lines err 1 '.'
        saved
    done
done
(
    trap '' HUP
    exec "$NDP_PROGRAM" train job.yaml --set train.output_dir="$work/run" --set train.steps=1000000 --set schedule.name=constant \
        --set train.log_every=100000 >out 2>err </dev/null
) &
pid=$!
case_of SIGHUP under nohup
rm -rf run
within some_steps || fail "no steps"
kill -HUP "$pid"
sleep 0.3
before=$(wc -l <run/metrics.jsonl)
within more_steps || fail "it stopped after step $before"
kill -TERM "$pid"
ended 130
saved

# A Ctrl-C typed on a terminal, where the run shows a live line. A shell may have told us to ignore it.
ignored=$(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/self/status)
case $ignored in [2367abef]) ways_typed="" ;; *) ways_typed=$ways ;; esac
command -v script >/dev/null || ways_typed=""
[ -n "$ways_typed" ] || echo "no script(1), or SIGINT is ignored here: no terminal is tried" >&2
for transport in $ways_typed; do
    case_of Ctrl-C on a terminal, --transport "$transport"
    rm -rf run
    { within some_steps; printf '\003'; within all_ended; } |
        timeout $patience script -qec "stty cols 110; TERM=xterm $NDP_PROGRAM $endless --transport $transport" /dev/null >typed
    code=$?
    tr '\r' '\n' <typed | sed 's/\x1b\[[?0-9]*[A-Za-z]//g; s/\x1b[78]//g; s/\^C//' >out
    code_is 130
    says out '^\[ *#* *\] [0-9]+/1000000  loss [0-9.]+  left [0-9dh: ]+  [0-9.]+k? tok/s' 'ndparallel: stopped after step [0-9]+; continue with --resume$'
    grep -q "$(printf '\r')" typed || fail "no live line"
    awk '/^\[/ && length > 109 { bad = 1 } END { exit bad }' out || fail "a line is longer than the terminal is wide"
    saved
done

for transport in $ways; do
    [ "$transport" != local ] || continue
    begin --transport "$transport"
    victim=$(processes 1)
    kill -KILL "$victim"
    ended 137
    says err "^ndparallel: rank 1 \(process $victim\) was killed by signal 9 \(Killed\)" # a peer may have said what it did last
    says err '^ndparallel: .* killed by signal 9.*; no step is on disk$'
    [ "$(ours err | grep -vcE "^ndparallel: rank 1 \(process $victim\) has died")" = 1 ] || fail 'more than one line'

    # The ranks do not outlive the program that started them.
    begin --transport "$transport"
    kill -KILL "$pid"
    ended 137
done

# What checkpoint.minutes has saved is there after a kill; all ranks save after the same step.
saved_by_time() { [ "$(find run/checkpoints -name 'step-*' 2>/dev/null | wc -l)" -gt 1 ]; }
for transport in $ways; do
    begin --transport "$transport" --set checkpoint.minutes=0.005
    within saved_by_time || fail "no two checkpoints"
    kill -KILL "$pid"
    ended 137
    more=$(($(newest) + 3))
    run train job.yaml --transport "$transport" --set train.output_dir="$work/run" --set train.steps=$more --set schedule.name=constant \
        --set checkpoint.minutes=0 --resume
    code_is 0
    says out "^resume: from step $((more - 3))" "^ *$more/$more "
    lines out 1 '^checkpoint: '
done

# A rank on one host takes signals from anybody; all stop after the same step.
begin --transport shm
kill -TERM "$(processes 0)"
ended 130
says err '^ndparallel: stopped after step [0-9]+; continue with --resume$'
lines err 1 '.'
saved

end_of_cases
