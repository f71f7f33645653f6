#!/bin/sh
# A part of the hosts is cut off from the rest, in every way that namespaces allow, while a run with a spare host trains at the
# default time limits: within 45 s it starts again elsewhere, says which host is lost, has lost no step that was on disk, and the
# steps are those of a run without it. A host that comes back writes nothing. A slow one is not taken for a lost one.
#
#     NDP_PARTITIONS=20         runs of each kind (1)
#     NDP_PARTITION_KINDS="down kill"   these kinds alone
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
runs=${NDP_PARTITIONS:-1}
kinds=${NDP_PARTITION_KINDS:-down out in kill back delay loss slow}
limit_seconds=45
slow_seconds=36 # a host that is lost is named after 31 s
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
make_job
make_hosts 3
export ASAN_OPTIONS=detect_leaks=0
unset NDP_COMM_TIMEOUT
printf 'node-%d slots=1\n' 1 2 3 >hosts.txt
layout=$(layout_words "dp_shard 2")
always="--set schedule.name=constant --set batch.global_batch_size=12 --set checkpoint.every=10"

# shellcheck disable=SC2086
"$NDP_PROGRAM" train job.yaml --transport local $layout $always --set train.steps=500 --set train.output_dir=reference \
    >reference.out 2>&1 || { cat reference.out; exit 1; }

python() { python3 "$NDP_SOURCE_DIR/tests/launch/slow_link.py" "$@"; }
losses() { sed 's/.*"step": *\([0-9]*\),.*"loss": *\([0-9.]*\).*/\1 \2/' "$1/metrics.jsonl"; }
steps() { [ -e run/metrics.jsonl ] && wc -l <run/metrics.jsonl || echo 0; }
newest() { ls run/checkpoints 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1; }
ranks_of() { on "$1" pgrep -x -r R,S,D,T,t ndparallel; } # none that has ended, and that no process waits for
gone_from() { [ -z "$(ranks_of "$1")" ]; }

begin() {
    case_of "$kind of $victim, run $i"
    rm -rf run
    # shellcheck disable=SC2086
    timeout -s KILL 300 "$NDP_PROGRAM" train job.yaml --hostfile hosts.txt --restarts 2 $layout $always \
        --set train.steps=1000000 >out 2>err </dev/null &
    pid=$!
    saved() { [ -n "$(newest)" ]; }
    within saved || fail "no checkpoint"
    before=$(newest)
    began=$(date +%s)
}

# It trains again. Since $began.
seconds() { echo $(($(date +%s) - began)); }
went_on() { grep -q '^resume: from step' out && [ "$(tail -n 1 run/metrics.jsonl | grep -c '"step"')" = 1 ] && more_steps; }
more_steps() { [ "$(steps)" -gt "$((resumed + 3))" ]; }
went_on_or_ended() {
    resumed=$(sed -n 's/^resume: from step \([0-9]*\).*/\1/p' out | tail -n 1)
    { [ -n "$resumed" ] && went_on; } || ! kill -0 "$pid" 2>/dev/null
}
stop_it() {
    kill -TERM "$(pgrep -P "$pid")"
    wait "$pid"
    code=$?
    code_is 130
}

# Steps follow each other, each once, with the losses of the reference.
same_steps() {
    losses run >a
    awk '$1 != NR { exit 1 }' a || fail "steps are missing, or twice: $(awk '$1 != NR' a | head -n 3 | tr '\n' ';')"
    n=$(wc -l <a)
    [ "$n" -le 500 ] || n=500
    losses reference | head -n "$n" >b
    head -n "$n" a | cmp -s - b || fail "other losses than without it"
    "$NDP_PROGRAM" checkpoint verify run >verified 2>&1 || fail "checkpoints: $(tail -n 2 verified)"
}

# lost: what follows on the loss of $victim.
lost() {
    decided=
    until went_on_or_ended; do
        [ -n "$decided" ] || ! grep -q '^restart 1' out || decided=$(seconds)
        [ "$(seconds)" -lt 200 ] || break
        sleep 0.2
    done
    took=$(seconds)
    says out "^restart 1 of 2: .*; host $victim is lost: rank $((${victim#node-} - 1)) starts on node-3"
    [ "${decided:-$took}" -le $limit_seconds ] || fail "it started again after $decided s"
    [ "${resumed:-0}" -ge "$before" ] || fail "step $before was on disk, and it went on from ${resumed:-nothing}"
    echo "$kind $victim run $i: started again after $decided s, its third step after $took s"
}

ended() {
    stop_it
    same_steps
}

# ---- kinds ----

link() { ip link set "veth${1#node-}" "$2"; }
# Frames for a host go to the port of another one, or those it sends nowhere.
address_of() { on "$1" ip -o link show eth0 | sed 's/.*ether \([^ ]*\) .*/\1/'; }
lose_in() { bridge fdb replace "$(address_of "$1")" dev veth3 master static sticky; }
find_in() { bridge fdb del "$(address_of "$1")" dev veth3 master static; }
lose_out() { on "$1" ip route replace blackhole 10.77.0.0/25 && on "$1" ip route replace blackhole 10.77.0.100/32; }
find_out() { on "$1" ip route del blackhole 10.77.0.0/25 && on "$1" ip route del blackhole 10.77.0.100/32; }

a_down() { begin && link "$victim" down && lost && ended && link "$victim" up; }
a_in() { begin && lose_in "$victim" && lost && ended && find_in "$victim"; }
a_out() { begin && lose_out "$victim" && lost && ended && find_out "$victim"; }
a_kill() {
    begin
    kill_host "$victim"
    lost
    ended
    revive_host "$victim"
}

# The lost host is frozen, and goes on in the middle of what it did once others have its run.
a_back() {
    begin
    frozen=$(ranks_of "$victim")
    # shellcheck disable=SC2086
    on "$victim" kill -STOP $frozen
    link "$victim" down
    lost
    link "$victim" up
    began=$(date +%s)
    # shellcheck disable=SC2086
    on "$victim" kill -CONT $frozen
    within gone_from "$victim"
    [ "$(seconds)" -le $limit_seconds ] || fail "its ranks lived for $(seconds) s more"
    echo "$kind $victim run $i: its ranks ended after $(seconds) s"
    resumed=$(steps)
    within more_steps || fail "no more steps after the host came back"
    lines out 1 '^restart '
    ended
}

# unharmed: nothing was said, and it goes on.
unharmed() {
    resumed=$(steps)
    within more_steps || fail "no more steps"
    echo "$kind $victim run $i: went on; $resumed steps"
    lines out 0 '^restart '
    lines err 0 'no sign of life|has died'
    ended
}

# slow_link SECONDS SHARE: the link of the victim goes through a relay.
slow_link() {
    n=${victim#node-}
    for node in 1 2 3; do
        nsenter -t "$(cat "$work/node-$node")" --net -- python3 "$NDP_SOURCE_DIR/tests/launch/slow_link.py" plain eth0
    done
    python plain ndp0
    ip link add wire0 type veth peer name wire1
    for device in wire0 wire1; do ip link set $device mtu $mtu up; done
    begin
    : >relays
    python3 "$NDP_SOURCE_DIR/tests/launch/slow_link.py" relay "veth$n" wire1 "$1" "$2" >relays &
    relay=$!
    relays() { [ -s relays ]; }
    within relays || fail "no relay"
    ip link set "veth$n" nomaster
    ip link set wire0 master ndp0
    sleep $slow_seconds
    ip link set wire0 nomaster
    ip link set "veth$n" master ndp0
    kill $relay
    ip link del wire0
    unharmed
}
a_delay() { slow_link 0.5 0; }
a_loss() { slow_link 0 0.2; }

# A host with a slow link, whose ranks get a tenth of the time.
a_slow() {
    begin
    slow_host "$victim" "$((1 + i % 5))mbit"
    until=$(($(date +%s) + slow_seconds))
    while [ "$(date +%s)" -lt $until ]; do
        # shellcheck disable=SC2046
        on "$victim" sh -c 'kill -STOP $(pgrep -x ndparallel); sleep 0.9; kill -CONT $(pgrep -x ndparallel); sleep 0.1'
    done
    slow_host "$victim" off
    unharmed
}

for i in $(seq "$runs"); do
    for kind in $kinds; do
        victim=node-$((1 + i % 2))
        "a_$kind"
    done
done
end_of_cases
