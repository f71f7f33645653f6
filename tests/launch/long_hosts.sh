#!/bin/sh
# Runs over several hosts, made of namespaces.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
make_job
make_hosts 4
export ASAN_OPTIONS=detect_leaks=0
printf 'node-1 slots=2\nnode-2 slots=2\n' >two
printf 'node-%d slots=1\n' 1 2 3 4 >four

# ---- what is run ----

losses() { sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$1/metrics.jsonl"; }

# near A B: losses of two runs, step by step, within 2e-6.
near() {
    losses "$1" >a
    losses "$2" >b
    [ "$(wc -l <a)" = 6 ] && paste a b | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 2e-6) bad = 1 } END { exit bad }' ||
        fail "losses of $1 and $2: $(paste a b | tr '\n' ';')"
}

# train RUN "AXIS SIZE ..." ARGUMENT...: on those axes and no others.
train() {
    folder=$1
    sizes=$2
    shift 2
    run train job.yaml --set train.output_dir="$folder" $(layout_words "$sizes") "$@"
}

# only_axes: no message but of axes that cross hosts.
only_axes() { lines err "$(grep -cE '^warning .rank 0.: .* crosses hosts while ' err)" '^(ndparallel|warning)'; }

train one "" --transport self
code_is 0

turn=0
for layout in "dp_shard 2 tp 2" "dp_replicate 2 tp 2" "cp 2 dp_shard 2" "sp 2 dp_replicate 2"; do
    turn=$((turn + 1))
    train here$turn "$layout" --transport local
    code_is 0
    near one here$turn
    # Ranks 0 and 1 on one host; then on two: the inner axis goes across the border.
    for policy in slot node; do
        export OMPI_MCA_rmaps_base_mapping_policy=$policy
        train two$turn$policy "$layout" --hostfile two
        code_is 0
        only_axes
        lines err $([ $policy = node ] && echo 1 || echo 0) ' crosses hosts while '
        losses here$turn >a
        losses two$turn$policy | cmp -s - a || fail "$layout on two hosts, by $policy: other losses than on one"
    done
    unset OMPI_MCA_rmaps_base_mapping_policy
done
# One rank a host, every axis over the border.
for layout in "dp_shard 2 tp 2" "cp 4"; do
    turn=$((turn + 1))
    train here$turn "$layout" --transport local
    train four$turn "$layout" --hostfile four
    code_is 0
    losses here$turn >a
    losses four$turn | cmp -s - a || fail "$layout on four hosts: other losses than on one"
done

# Eight ranks by a map, one digit for the host of each: neighbours apart, and hosts with 1 to 4 of them.
for layout in "dp_shard 2 tp 2 cp 2" "pp 2 dp_shard 2 tp 2" "dp_replicate 4 dp_shard 2"; do
    turn=$((turn + 1))
    train here$turn "$layout" --transport local --set batch.global_batch_size=16
    code_is 0
    for map in 11223344 12341234 42413321 11123344 12123444; do
        run_on $map train job.yaml --set train.output_dir=map$map $(layout_words "$layout") --set batch.global_batch_size=16
        code_is 0
        only_axes
        losses here$turn >a
        losses map$map | cmp -s - a || fail "other losses than on one host"
        rm -rf map$map
    done
done

# Half of it on two hosts; the rest on four, on another layout.
train moved "dp_shard 2 tp 2" --hostfile two --set train.steps=3 --set schedule.name=constant
code_is 0
train straight "dp_shard 2 tp 2" --transport local --set schedule.name=constant
train moved "cp 2 dp_shard 2" --hostfile four --set schedule.name=constant --resume
code_is 0
says out '^resume: from step 3'
near straight moved

# One message, whichever host had it.
rm text.txt
run train job.yaml --set train.output_dir=bad --set parallelism.tp_size=2 --hostfile four
code_is 1
lines err 1 '^ndparallel'
says err "^ndparallel: .*'text.txt'"
cp "$NDP_SOURCE_DIR/README.md" text.txt

# What every host has of its own is not a place for a run, or for the program.
run train job.yaml --set train.output_dir=/dev/shm/run --set parallelism.tp_size=2 --hostfile two
code_is 1
lines err 1 '^ndparallel'
says err "^ndparallel: rank 2: '/dev/shm/run/job.yaml', which rank 0 wrote, is not visible on this host: train.output_dir must be on"
lines out 0 '^step'
case_of a program that is on one host alone
cp "$NDP_PROGRAM" /dev/shm/program
timeout 60 /dev/shm/program train job.yaml --set train.output_dir=bad --set parallelism.tp_size=2 --hostfile two >out 2>err </dev/null
code=$?
[ "$code" != 0 ] || fail "it ran"
says err '^Executable: /dev/shm/program' '^Node: node-' '^ndparallel: .* could not be started'

# ---- ranks that stop ----

# The processes of a rank: those of all hosts are in sight from here.
process_of() {
    for p in $(grep -slzx "OMPI_COMM_WORLD_RANK=$1" /proc/[0-9]*/environ); do
        p=${p%/environ}
        case $(tr '\0' ' ' <"$p/cmdline") in "$NDP_PROGRAM train"*) basename "$p" ;; esac
    done
}
some_steps() { [ -e long/metrics.jsonl ] && [ "$(wc -l <long/metrics.jsonl)" -gt 2 ]; }

# begin HOSTS: a run without end, in the background; $pid is its process.
begin() {
    case_of a run on "$1" hosts
    rm -rf long
    "$NDP_PROGRAM" train job.yaml --set train.output_dir=long --set train.steps=1000000 --set train.log_every=100000 \
        --set parallelism.tp_size=2 --hostfile "$1" >out 2>err </dev/null &
    pid=$!
    for _ in $(seq 600); do
        some_steps && return
        sleep 0.1
    done
    fail "no steps in a minute"
}

# ended CODE: the run, within 20 s, without anything left.
ended() {
    (sleep 20; kill -KILL $pid) 2>/dev/null &
    timer=$!
    wait $pid
    code=$?
    kill $timer 2>/dev/null
    code_is "$1"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(process_of 0)$(process_of 3)" ] || return
        sleep 0.5
    done
    fail "ranks are left"
}

begin two
kill -KILL "$(process_of 3)"
ended 137
says err '^ndparallel: .*rank.* was killed by signal 9'
begin two
kill -TERM $pid
ended 130
says err '^ndparallel: stopped after step [0-9]+; continue with --resume$'
lines err 1 '^ndparallel'

# On two hosts its neighbour tells where it is; on four none does.
export NDP_COMM_TIMEOUT=5
begin two
kill -STOP "$(process_of 3)"
ended 1
says err '^ndparallel: .*rank 3 on node-2( has not arrived: it|, which) (computes after|waits at) .*(#[0-9.]+|no. [0-9]+) '
says err '^ndparallel: .*( computes after |, and is stopped: it has not polled for [0-9.]+ s)'
begin four
kill -STOP "$(process_of 3)"
ended 1
says err '^ndparallel: .*rank 3 on node-4(, which| has not arrived: it| has begun it and stopped replying: it) .*(#[0-9.]+|no. [0-9]+) .* has not (replied|polled) for [0-9.]+ s'
unset NDP_COMM_TIMEOUT

# ---- what is not as it should be ----

# Ranks of one host that cannot see each other's processes.
case_of ranks in boxes of their own
timeout 60 mpirun --allow-run-as-root --oversubscribe --mca pml ob1 --mca btl self,tcp -n 4 \
    unshare --pid --fork --mount-proc "$NDP_PROGRAM" train job.yaml --set train.output_dir=boxed \
    --set parallelism.tp_size=2 >out 2>err </dev/null
code=$?
code_is 0
losses here1 >a
losses boxed | cmp -s - a || fail "other losses than with shared memory"
lines err 1 "^warning .rank [0-3].: the 4 ranks of this host cannot read each other's memory"

# A name that does not resolve is reported before mpirun tries it; its daemon may be about for a while, so this comes last.
hostname nohost
run train job.yaml --set train.output_dir=unnamed --transport mpi
code_is 0
says out "^warning: this host's name 'nohost' does not resolve.*add this line to /etc/hosts: 127.0.1.1 nohost"
echo "127.0.1.1 nohost" >>hosts
run train job.yaml --set train.output_dir=named --transport mpi
code_is 0
lines out 0 '^warning'
printf 'node-1 slots=2\nnode-9 slots=2\n' >unknown
run train job.yaml --set train.output_dir=unknown --set parallelism.tp_size=2 --hostfile unknown
[ "$code" != 0 ] || fail "a host that is not there was used"
says out "^warning: unknown:2: the host 'node-9' does not resolve; .*/etc/hosts"
says err "^ndparallel: cannot reach 'node-9' .unknown:2.: .$work/agent node-9 true. fails"

end_of_cases
