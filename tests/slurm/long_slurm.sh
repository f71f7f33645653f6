#!/bin/sh
# Runs in Slurm, on two nodes, each case NDP_SLURM_TIMES times (10), with the launchers that examples/slurm.sh knows.
# NDP_SLURM_CASES, an extended regular expression, chooses rows. Prints a table: case, runs, failures.
. "$(dirname "$0")/../launch/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
. "$NDP_SOURCE_DIR/tests/slurm/cluster.sh"
case " $(transports) " in *" mpi "*) ;; *) echo "skipped: no mpirun"; exit 77 ;; esac
make_job
sed -i 's/dp_shard_size: 2/dp_shard_size: 4/; s/global_batch_size: 4/global_batch_size: 24/' job.yaml
sed 's/steps: 6/steps: 1000000/' job.yaml >endless.yaml
: >table
make_slurm 2
times=${NDP_SLURM_TIMES:-10}
script=$NDP_SOURCE_DIR/examples/slurm.sh
nodes="--nodes=2 --ntasks-per-node=2"
export ASAN_OPTIONS=detect_leaks=0
unset NDP_COMM_TIMEOUT

# ---- what is looked at ----

ended() { job_is COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL; }
state_is() { job_is "$@" || fail "job $job is $(job_state), expected $*"; }
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
steps_of() { [ -e "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]; }
newest() { ls "$1/checkpoints" | sort | tail -n 1 | sed 's/.*step-0*//'; }
# No process of the run, and no file but those of its folder.
processes() { for host in node-1 node-2; do on $host ps -eo args= | grep -E 'ndparallel train|orted|mpirun|slurmstepd: \[' | grep -v grep; done; }
no_processes() { [ -z "$(processes)" ]; }
left_behind() {
    within no_processes || fail "processes are left: $(processes)"
    for host in node-1 node-2; do on $host find /dev/shm -mindepth 1; done >left
    find "$work"/ndparallel-* -mindepth 1 >>left 2>/dev/null
    ls "$1"/lock "$1"/checkpoints/*.tmp >>left 2>/dev/null
    [ ! -s left ] || fail "files are left: $(cat left)"
}
# The job's own output is what messages show.
take() { cp "$work/$1.out" out && cp "$work/$1.err" err; }

# saved RUN NAME: with a checkpoint of the last step that the metrics have.
saved() {
    take "$2"
    lines err 1 '^ndparallel: stopped after step '
    at=$(sed -n 's/^ndparallel: stopped after step \([0-9]*\).*/\1/p' err | tail -n 1)
    [ "$(newest "$1")" = "$at" ] || fail "the newest checkpoint is $(newest "$1"), expected $at"
}

# resumes NAME: the job, from step $at. Slurm holds it back for two minutes: a node that still knows its end as one of this second
# would refuse it.
has_resumed() { grep -q "^resume: from step $at$" "$work/$1.out"; }
resumes() {
    within job_is PENDING || fail "it is not in the queue"
    sleep 3
    scontrol update JobId="$job" StartTime=now
    within has_resumed "$1" || fail "it has not resumed from step $at"
}

# count CASE COMMAND...: so many times, and a row of the table.
count() {
    row=$1
    shift
    echo "$row" | grep -qE "${NDP_SLURM_CASES:-.}" || return 0
    before=$failures
    i=0
    while [ $i -lt "$times" ]; do
        i=$((i + 1))
        rm -rf run-*
        "$@"
    done
    printf '%-66s %4d runs %4d failures\n' "$row" "$times" $((failures - before)) >>table
    tail -n 1 table
}

# ---- the cases ----

whole_run() {
    case_of "sbatch examples/slurm.sh, $1"
    LAUNCHER=$1 submit whole $nodes "$script" job.yaml --set train.output_dir=run-whole
    within ended
    state_is COMPLETED
    take whole
    [ "$(losses run-whole)" = "$(losses one)" ] || fail "other losses than on one host"
    left_behind run-whole
}

by_srun() {
    case_of "srun --mpi=pmix, $1 and $2 tasks on the nodes"
    printf 'node-1\n%.0s' $(seq "$1") >places
    printf 'node-2\n%.0s' $(seq "$2") >>places
    timeout $patience env SLURM_HOSTFILE="$work/places" srun --mpi=pmix --distribution=arbitrary -n $(($1 + $2)) "$NDP_PROGRAM" train job.yaml \
        --set parallelism.dp_shard_size=$(($1 + $2)) --set train.output_dir=run-srun >out 2>err </dev/null
    code=$?
    code_is 0
    [ $(($1 + $2)) != 4 ] || [ "$(losses run-srun)" = "$(losses one)" ] || fail "other losses than on one host"
    left_behind run-srun
}

# refused_by CODE PATTERN ARGUMENT...: one line, and nothing is begun.
refused_by() {
    wanted=$1
    pattern=$2
    shift 2
    case_of "$@"
    timeout $patience "$@" >out 2>err </dev/null
    code=$?
    code_is "$wanted"
    lines err 1 '^ndparallel'
    says err "$pattern"
    [ ! -e run ] || fail "there is a run folder"
}
wrong_tasks() {
    refused_by 1 '^ndparallel: srun started 4 tasks without PMIx' srun --mpi=none $nodes "$NDP_PROGRAM" train job.yaml
    refused_by 2 '^ndparallel: srun started 3 tasks, and the layout has 4 ranks: use `srun --ntasks=4' srun --mpi=pmix -N 2 -n 3 "$NDP_PROGRAM" train job.yaml
    refused_by 2 '^ndparallel: srun started one task, and the layout has 4 ranks: use `srun --ntasks=4' srun --mpi=pmix -n 1 "$NDP_PROGRAM" train job.yaml
}

# Before its limit of two minutes a job gets SIGUSR1, is put into the queue again, by itself or by Slurm, and goes on. Another
# one is stopped by a limit of one minute, with a signal that does nothing. Both, with each launcher, at the same time.
stopped() { grep -qs '^ndparallel: stopped after' "$work/$1.err"; }
submit_limits() {
    LAUNCHER=$1 submit "limit-$1" $nodes --time=1 --signal=B:CONT@1 "$script" endless.yaml --set train.output_dir="run-limit-$1"
    eval "limit_$1=$job"
    LAUNCHER=$1 submit "signal-$1" $nodes --time=2 --signal=B:USR1@60 "$script" endless.yaml --set train.output_dir="run-signal-$1"
    eval "signal_$1=$job"
}
look_at_signal() {
    case_of "--signal=B:USR1@60, $1, RequeueExit=$exits"
    eval "job=\$signal_$1"
    within stopped "signal-$1" || fail "no signal"
    saved "run-signal-$1" "signal-$1"
    resumes "signal-$1"
    case_of "scancel, $1"
    within steps_of "run-signal-$1" $((at + 10))
    : >"$work/signal-$1.err"
    scancel "$job"
    within ended
    state_is CANCELLED
    saved "run-signal-$1" "signal-$1"
}
# With RequeueExit Slurm requeues it as well, since it ends with code 130.
look_at_limit() {
    case_of "the time limit, $1, RequeueExit=$exits"
    eval "job=\$limit_$1"
    within stopped "limit-$1" || fail "it has not stopped"
    saved "run-limit-$1" "limit-$1"
    within job_is TIMEOUT PENDING || fail "job $job is $(job_state)"
    [ "$exits" ] || state_is TIMEOUT
    scancel "$job"
    within ended
}
signals_and_limits() {
    [ $((i % 2)) = 0 ] && exits=130 || exits=
    sed -i '/^RequeueExit/d' "$SLURM_CONF"
    [ -z "$exits" ] || echo "RequeueExit=$exits" >>"$SLURM_CONF"
    scontrol reconfigure
    for launcher in srun mpirun; do submit_limits $launcher; done
    for launcher in srun mpirun; do look_at_signal $launcher; done
    for launcher in srun mpirun; do look_at_limit $launcher; done
    for run in run-signal-srun run-signal-mpirun run-limit-srun run-limit-mpirun; do left_behind $run; done
}

requeued() {
    case_of "scontrol requeue, $1"
    LAUNCHER=$1 submit requeue $nodes "$script" endless.yaml --set train.output_dir=run-requeue
    within steps_of run-requeue 10 || fail "no steps"
    scontrol requeue "$job"
    within stopped requeue || fail "it has not stopped"
    saved run-requeue requeue
    resumes requeue
    within steps_of run-requeue $((at + 10))
    scancel "$job"
    within ended
    left_behind run-requeue
}

# All processes of a node: slurmd, its steps, the ranks. Slurm itself finds that after SlurmdTimeout.
lost_node() {
    case_of "a node is killed, $1"
    LAUNCHER=$1 submit lost $nodes --no-requeue "$script" endless.yaml --set train.output_dir=run-lost
    within steps_of run-lost 10 || fail "no steps"
    kill_host node-2
    within ended
    take lost
    lines err 1 '^ndparallel: '
    says err '^ndparallel: .*node-2.*ranks 2-3'
    grep -nE '^ndparallel: |^slurmstepd|^srun: ' err | head -n 1 | grep -q ndparallel || fail "Slurm has spoken first"
    revive_host node-2
    start_slurmd node-2
    within nodes_are_up || fail "the node has not come back"
}

# ---- what cannot be ----

bad_input() {
    case_of "an allocation of 2 tasks for 4 ranks"
    LAUNCHER=mpirun submit small --nodes=2 --ntasks-per-node=1 "$script" job.yaml --set train.output_dir=run-small
    within ended
    take small
    lines err 1 '^ndparallel: '
    says err '^ndparallel: the run has 4 ranks, and Slurm has allocated 2 tasks on 2 nodes: .*--ntasks=4'
    export SLURM_JOB_ID=$job SLURM_JOBID=$job SLURM_JOB_NODELIST=node-1,node-2 SLURM_JOB_NUM_NODES=2
    export SLURM_TASKS_PER_NODE='2(x2)'
    refused_by 2 "^ndparallel: SLURM_JOB_ID is $job in the environment, and that job of Slurm (is FAILED|does not exist any more)" \
        "$NDP_PROGRAM" train job.yaml
    unset SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_TASKS_PER_NODE
}

case_of one host
"$NDP_PROGRAM" train job.yaml --set train.output_dir=one >/dev/null || fail "no losses to compare with"
for launcher in srun mpirun; do count "sbatch of examples/slurm.sh, $launcher" whole_run $launcher; done
count "srun --mpi=pmix" by_srun 2 2
count "srun --mpi=pmix, 2 tasks and 1 on the nodes" by_srun 2 1
count "srun without PMIx, with 3 tasks for 4 ranks, with 1" wrong_tasks
for launcher in srun mpirun; do
    count "scontrol requeue resumes, $launcher" requeued $launcher
    count "a killed node is named with its ranks, $launcher" lost_node $launcher
done
count "--signal=B:USR1@60 resumes; it, time limit and scancel save" signals_and_limits
count "allocation too small, variables of a job that has ended" bad_input
cat table
end_of_cases
