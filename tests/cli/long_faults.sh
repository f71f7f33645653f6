#!/bin/sh
# Faults, each seeded for real on this machine, that `doctor`, `--profile` or the log has to name: the file, record, rank, link,
# host or limit that is the cause. Prints which were named and by what, and which could not be seeded here; fails if one that was
# seeded is not named. As root with namespaces all of them are seeded.
self=$(cd "$(dirname "$0")" && pwd)/long_faults.sh
case ${1:-} in
inside)
    # ---- a link between hosts that is slow: the second part, in namespaces of its own ----
    . "$(dirname "$0")/../launch/hosts.sh"
    . "$(dirname "$0")/cases.sh"
    make_job
    make_hosts 4
    shape 200mbit
    slow_host node-3 20mbit
    printf 'node-%d slots=1\n' 1 2 3 4 >four
    run train job.yaml --hostfile four --profile --set batch.global_batch_size=8 --set parallelism.dp_shard_size=4 --set train.steps=2
    code_is 0
    # Where other programs keep the hosts busy, the run judges nothing; the measurement alone does.
    if grep -q '^links: .*hosts are busy' out; then
        run topology --quick --hostfile four
        says out '^slow: node-3, whose links pass'
    else
        says err '^warning .rank 0.: all 2 links of node-3 are slow'
    fi
    [ "$failures" != 0 ] || echo named: a link
    before=$failures
    shape 200mbit
    slow_host node-3 200mbit

    # Other data under the same name on one host: what the run says, and what doctor says before it.
    on node-2 sh -c "echo other >'$work/other' && mount --bind '$work/other' '$work/text.txt'"
    run doctor job.yaml --no-steps --hostfile four --set batch.global_batch_size=8 --set parallelism.dp_shard_size=4
    code_is 1
    says out '^problem +node-2: data: other files of the model or the data than here'
    lines out 0 '^problem +node-[134]: data'
    [ "$failures" != "$before" ] || echo named: a copy
    end_of_cases
    ;;
links)
    . "$(dirname "$0")/../launch/hosts.sh"
    ;;
esac
. "$(dirname "$0")/cases.sh"
make_job
named=0
seeded=0
report=$work/report

# seed WHAT: a fault that is seeded; what the checks after it find is counted.
seed() {
    seeded=$((seeded + 1))
    before=$failures
    fault=$*
}
# by WHO: the fault has been named, unless a check failed since.
by() {
    [ "$failures" != "$before" ] || { named=$((named + 1)); echo "named by $1: $fault" >>"$report"; }
}
skip() { echo "skipped: $*" >>"$report"; }
# private COMMAND: as root, where mounts are seen by no other process.
private() { unshare --mount --propagation private sh -c "$1"; }
can_mount=yes
private true 2>/dev/null || can_mount=

# ---- by the log ----

seed a bad record
printf '{"text": "a"}\n{"text": "b"\n' >bad.jsonl
run train job.yaml --set 'data.files=[bad.jsonl]' --set train.output_dir=bad
refused '^ndparallel: (rank [01]: )?bad.jsonl:2: '
by "the log"

seed a damaged shard of a checkpoint
run train job.yaml --set train.output_dir=damaged --set train.steps=4 --set checkpoint.every=2 --set schedule.name=constant
code_is 0
printf '\377\377\377\377' | dd of=damaged/checkpoints/step-00000004/model.safetensors bs=1 seek=4000 conv=notrunc 2>/dev/null
run train damaged/job.yaml --resume --set train.steps=5
code_is 0
says err 'step-00000004.*model.safetensors.*damaged|step-00000004.*damaged'
by "the log"

seed a damaged shard of a model
cp -r damaged/model cut
head -c 20000 damaged/model/model.safetensors >cut/model.safetensors
run train job.yaml --set model.path=cut --set model.config=null --set model.init=pretrained --set train.output_dir=shard
[ "$code" != 0 ] || fail "it trained"
says err '^ndparallel: .*cut/model.safetensors'
by "the log"

# ---- by the profile ----

# Of two processes the second one stands still for ten times as long as it runs, so that another load does not matter. Steps are
# mostly work: what stands still inside a wait is counted as a wait.
seed a rank that SIGSTOP makes slow
case_of a slow rank
"$NDP_PROGRAM" train job.yaml --transport shm --profile --set train.steps=120 --set train.output_dir=slow \
    --set batch.global_batch_size=128 --set batch.micro_batch_size=64 --set checkpoint.minutes=0 >out 2>err &
run_id=$!
ranks() { tr ' ' '\n' <"/proc/$run_id/task/$run_id/children" | grep .; }
two_ranks() { [ "$(ranks | wc -l)" = 2 ] && [ -s slow/metrics.jsonl ]; }
within two_ranks
second=$(ranks | while read -r p; do tr '\0' '\n' <"/proc/$p/environ" | grep -qx NDP_RANK=1 && echo "$p"; done)
while kill -STOP "$second" 2>/dev/null; do
    sleep 0.2
    kill -CONT "$second" 2>/dev/null
    sleep 0.02
done
wait "$run_id"
code=$?
code_is 0
says out '^  slowest: rank 1 works'
by "--profile"

# ---- by doctor ----

seed more threads than cores
case_of more threads than cores
OMP_NUM_THREADS=4000 "$NDP_PROGRAM" doctor --no-steps >out 2>err
says out '^problem +threads: 1 rank of 4000 threads'
by doctor

seed no pyarrow
if python3 -m venv --without-pip bare 2>/dev/null; then
    : >table.parquet
    case_of no pyarrow
    NDP_PYTHON=$work/bare/bin/python "$NDP_PROGRAM" doctor job.yaml --no-steps --set 'data.files=[table.parquet]' >out 2>err
    says out "^problem +pyarrow: missing from $work/bare/bin/python" 'pip install pyarrow'
    by doctor
else
    seeded=$((seeded - 1))
    skip "no pyarrow: no python3 with venv"
fi

seed a clock that is a minute behind on another host
cat >agent <<'END'
#!/bin/sh
shift
sh -c "$*" | awk '{ match($0, /"time": [0-9.e+]+/); t = substr($0, RSTART + 8, RLENGTH - 8)
    sub(/"time": [0-9.e+]+/, sprintf("\"time\": %.3f", t - 60)); print }'
END
chmod +x agent
echo late >hosts
case_of a clock
OMPI_MCA_plm_rsh_agent="$work/agent" "$NDP_PROGRAM" doctor --no-steps --hostfile hosts >out 2>err
says out '^problem +late: clock: about [56][0-9] s behind'
by doctor

if [ "$can_mount" ]; then
    seed /dev/shm too small
    case_of /dev/shm of 32 MiB
    private "mount -t tmpfs -o size=32m tmpfs /dev/shm && '$NDP_PROGRAM' doctor --no-steps" >out 2>err
    says out '^(note|problem) +/dev/shm: 32.0 MiB, 32.0 MiB free: too small' 'shm-size'
    by doctor

    seed a full disk
    mkdir full
    case_of a full disk
    private "mount -t tmpfs -o size=8m tmpfs full && head -c 8m /dev/zero >full/zeros 2>/dev/null
        '$NDP_PROGRAM' doctor job.yaml --no-steps --set train.output_dir=full/run" >out 2>err
    says out '^problem +disk of train.output_dir: full cannot be written to: No space left'
    by doctor
    case_of a run on a full disk
    private "mount -t tmpfs -o size=100k tmpfs full && '$NDP_PROGRAM' train job.yaml --set train.output_dir=full/run" >out 2>err
    says err 'full/run.*: No space left on device'

    # Its counters say so: the pages that come and go are those of a loop, not of this machine.
    seed a host that swaps
    case_of a host that swaps
    : >swaps
    (while [ -e swaps ]; do n=$((${n:-0} + 5000)) && printf 'pswpin %012d\npswpout %012d\n' $n $n 1<>vmstat; sleep 0.02; done) &
    within [ -s vmstat ]
    private "mount --bind vmstat /proc/vmstat && '$NDP_PROGRAM' doctor --no-steps" >out 2>err
    rm swaps
    wait
    says out '^problem +swap: this host swaps: [0-9]+ pages a second now'
    by doctor
else
    skip "/dev/shm too small, a full disk, a host that swaps: mounting takes root"
fi

# ---- by the links ----

case_of hosts of namespaces
sh "$self" links >links.out 2>&1
code=$?
cp links.out out
if [ "$code" = 77 ]; then
    skip "a throttled link, a host with another copy of the data: $(head -n 1 links.out)"
else
    seed a throttled link between hosts
    says out '^named: a link$'
    by "the log"
    seed a host with another copy of the data
    says out '^named: a copy$'
    by doctor
fi
skip "NaN in a weight: it has a test of its own"

cat "$report"
echo "$named of $seeded faults that were seeded are named"
[ "$named" = "$seeded" ] || fail "only $named of $seeded"
end_of_cases
