#!/bin/sh
# Runs over several hosts. Each host is a set of namespaces with a network, a name, processes, /dev/shm of its own, all
# on one bridge; mpirun starts its daemons there by a script in place of ssh, from a host that has no ranks. Files are
# shared, as on a cluster.
if [ "${1:-}" != inside ]; then
    for tool in unshare nsenter ip mpirun; do
        command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
    done
    unshare --net --mount --uts --ipc --pid --fork --mount-proc ip link add ndp0 type bridge 2>/dev/null ||
        { echo "skipped: making hosts out of namespaces takes root and a kernel that lets it"; exit 77; }
    # When this ends so does all that was made in it.
    exec unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc sh "$0" inside
fi
. "$(dirname "$0")/../cli/cases.sh"
make_job

# ---- the hosts ----

printf '127.0.0.1 localhost\n10.77.0.100 head\n' >hosts
for i in 1 2 3 4; do echo "10.77.0.$i node-$i" >>hosts; done
mount --bind hosts /etc/hosts
hostname head
ip link set lo up
ip link add ndp0 type bridge
ip addr add 10.77.0.100/24 dev ndp0
ip link set ndp0 up
for i in 1 2 3 4; do
    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
        sh -c "hostname node-$i; mount -t tmpfs tmpfs /dev/shm; ip link set lo up; exec sleep 100000" &
    above=$!
    until [ -s "node-$i" ]; do tr -d ' ' <"/proc/$above/task/$above/children" >"node-$i"; done
    pid=$(cat "node-$i")
    ip link add "veth$i" type veth peer name eth0 netns "$pid"
    ip link set "veth$i" master ndp0 up
    nsenter -t "$pid" -n ip addr add "10.77.0.$i/24" dev eth0
    nsenter -t "$pid" -n ip link set eth0 up
    until [ "$(nsenter -t "$pid" -u hostname)" = "node-$i" ]; do sleep 0.1; done
done
cat >agent <<END
#!/bin/sh
pid=\$(cat "$work/\$1")
shift
exec nsenter -t "\$pid" --net --mount --uts --ipc --pid -- sh -c "\$*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent="$work/agent" ASAN_OPTIONS=detect_leaks=0
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

axes="dp_replicate dp_shard cp sp tp"
# train RUN "AXIS SIZE ..." ARGUMENT...: on those axes and no others.
train() {
    folder=$1
    sizes=$2
    shift 2
    for axis in $axes; do set -- "$@" --set "parallelism.${axis}_size=$(echo "$sizes 1" | sed -n "s/.*\b$axis \([0-9]*\).*/\1/p;t;s/.*/1/p")"; done
    run train job.yaml --set train.output_dir="$folder" "$@"
}

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
        lines err 0 '^(ndparallel|warning)'
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
says err '^ndparallel: .*a rank was killed by signal 9'
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
