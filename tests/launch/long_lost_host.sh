#!/bin/sh
# A host whose link goes down, or that is killed: it is named within 45 s at the default time limit of 300 s, and the run ends
# with its code, or starts again, or says what to do. A host that is slow is not taken for a lost one (more of it, and links that
# lose packets, in long_partitions.sh).
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
make_job
make_hosts 3
export ASAN_OPTIONS=detect_leaks=0
unset NDP_COMM_TIMEOUT
printf 'node-1 slots=2\nnode-2 slots=2\n' >two
printf 'head slots=2\nnode-2 slots=2\n' >with_head
printf 'node-1 slots=1\nnode-2 slots=1\nnode-3 slots=1\n' >three

some_steps() { [ -e run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt 3 ]; }
link() { ip link set "veth${1#node-}" "$2"; }

# begin HOSTS AXES ARGUMENT...
begin() {
    hosts=$1
    axes=$2
    shift 2
    case_of "$hosts: ndparallel train" "$@"
    rm -rf run
    # shellcheck disable=SC2046
    timeout -s KILL 150 "$NDP_PROGRAM" train job.yaml --hostfile "$hosts" $(layout_words "$axes") --set train.steps=1000000 \
        --set schedule.name=constant --set batch.global_batch_size=12 "$@" >out 2>err </dev/null &
    pid=$!
    within some_steps || fail "no steps"
}

# ended SECONDS CODE: since $began.
ended() {
    wait "$pid"
    code=$?
    took=$(($(date +%s) - began))
    code_is "$2"
    [ $took -le "$1" ] || fail "it ended after $took s"
    says err '^ndparallel: .*node-2.*no sign of life'
}

for hosts in two with_head three; do
    axes="dp_shard 2 tp 2"
    [ $hosts != three ] || axes="dp_shard 3"
    begin $hosts "$axes"
    began=$(date +%s)
    link node-2 down
    ended 60 1
    link node-2 up
done

more_steps() { [ "$(wc -l <run/metrics.jsonl)" -gt "$before" ]; }
goes_on() {
    before=$(wc -l <run/metrics.jsonl)
    within more_steps || fail "no more steps"
}
stop_it() {
    kill -TERM "$(pgrep -P "$pid")"
    wait "$pid"
    code=$?
    code_is 130
}
ranks_of() { on "$1" pgrep -x ndparallel; }

# All ranks of a host are stopped for longer than a lost host is waited for; a link is down for half of that time.
begin two "dp_shard 2 tp 2"
on node-2 kill -STOP $(ranks_of node-2)
sleep 40
on node-2 kill -CONT $(ranks_of node-2)
goes_on
link node-2 down
sleep 15
link node-2 up
goes_on
stop_it
lines err 0 'no sign of life|has died'

# The link is there again when the ranks start again; there is no other host.
begin two "dp_shard 2 tp 2" --restarts 2 --set checkpoint.minutes=0.01
saved() { ls -d run/checkpoints/step-* >/dev/null 2>&1; }
within saved || fail "no checkpoint"
link node-2 down
named() { grep -q 'no sign of life' err; }
within named || fail "not named"
link node-2 up
restarts() { grep -q '^restart 1 of 2' out; }
within restarts || fail "no restart"
goes_on
stop_it
says out '^restart 1 of 2: the ranks ended with code 1' '^resume: from step'

# The host is gone, with all of its processes.
begin two "dp_shard 2 tp 2"
began=$(date +%s)
kill_host node-2
wait "$pid"
code=$?
[ "$code" != 0 ] || fail "it ended well"
[ $(($(date +%s) - began)) -le 20 ] || fail "it took $(($(date +%s) - began)) s"
says err '^ndparallel: .*(rank [23]|node-2)'

# Two slots are left for four ranks.
lose_node_2() {
    revive_host node-2
    begin two "dp_shard 2 tp 2" --restarts 1 --set checkpoint.minutes=0.01 "$@"
    within saved || fail "no checkpoint"
    kill_host node-2
}
lose_node_2
wait "$pid"
code=$?
[ "$code" != 0 ] || fail "it ended well"
says err '^ndparallel: host node-2 is lost: two has 2 slots left for 4 ranks. Add slots to it, start with --oversubscribe'
lines out 0 '^restart 1'
for option in --oversubscribe --elastic; do
    lose_node_2 $option
    resumed() { grep -q '^resume: from step' out; }
    within resumed || fail "it did not go on"
    goes_on
    stop_it
done
says out '^restart 1 of 1: .*; host node-2 is lost; the layout changes for 2 ranks instead of 4: dp_shard 2 -> 1; the global batch stays 12' \
    '^layout: tp 2 on 2 ranks'

end_of_cases
