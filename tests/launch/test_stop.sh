#!/bin/sh
# What a batch system does to a run: tasks that cannot find each other, and the time that a save has when it is stopped; what
# Slurm says is a script's words here (in Slurm itself: ../slurm).
. "$(dirname "$0")/../cli/cases.sh"
make_job

# ---- srun without PMIx: one line, by task 0, and none of Open MPI's ----

case " $(transports) " in *" mpi "*) mpi=1 ;; *) mpi= ;; esac
if [ "$mpi" ]; then
    for task in 0 1; do
        export SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task
        run train job.yaml
        code_is 1
        [ ! -s out ] || fail "something on stdout"
        lines err $((1 - task)) ''
        [ $task = 1 ] || says err '^ndparallel: srun started 2 tasks without PMIx, by which Open MPI connects them: use `srun --mpi=pmix`'
    done
    unset SLURM_JOB_ID SLURM_JOBID SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NUM_TASKS SLURM_PROCID
fi

# ---- as many tasks as srun was told, and not as the layout has ranks ----

for tasks in 1 3; do
    for task in 0 $((tasks - 1)); do
        export SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=$tasks SLURM_PROCID=$task
        run train job.yaml
        code_is 2
        lines err $((task == 0)) ''
        started="$tasks tasks"
        [ $tasks != 1 ] || started="one task"
        [ $task != 0 ] || says err "^ndparallel: srun started $started, and the layout has 2 ranks: use .srun --ntasks=2 --mpi=pmix"
    done
done
export SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0
run train job.yaml --set parallelism.dp_shard_size=auto --set train.output_dir=one --set train.transport=self
code_is 0
unset SLURM_JOB_ID SLURM_STEP_NUM_TASKS SLURM_PROCID

# ---- a plan of several nodes says what a save takes, and what the mpirun that is found leaves for it ----

mkdir found
cat >found/mpirun <<'END'
#!/bin/sh
[ -z "$FOUND" ] || echo "mpirun (Open MPI) $FOUND"
END
chmod +x found/mpirun
before=$PATH
export PATH="$PWD/found:$PATH" FOUND=4.1.4
run plan job.yaml
lines out 0 '^a save|^warning: at that rate'
run plan job.yaml --ranks-per-node 1
says out '^a save writes [0-9.]+ KiB, [0-9.]+ KiB from each node: 0.000[0-9]+ s if the disk takes 1 GB/s from a node, which is assumed; where a batch system stops the job, mpirun leaves 20 s$'
lines out 0 '^warning: at that rate'
OMPI_MCA_odls_base_sigkill_timeout=0
export OMPI_MCA_odls_base_sigkill_timeout
run plan job.yaml --ranks-per-node 1
says out 'mpirun leaves 0 s$' '^warning: at that rate a job that is stopped loses .* OMPI_MCA_odls_base_sigkill_timeout=1, .*checkpoint.every'
OMPI_MCA_odls_base_sigkill_timeout=60 FOUND=5.0.7 run plan job.yaml --ranks-per-node 1
says out ' assumed; where a batch system stops the job, mpirun of Open MPI 5 ends its ranks at once: use .srun --mpi=pmix., or '
lines out 0 'mpirun leaves|^warning: at that rate'
PATH=$before

# ---- a run says what one has taken ----

export SLURM_JOB_ID=7 OMPI_COMM_WORLD_SIZE=1
run train job.yaml --transport self --set parallelism.dp_shard_size=1 --set checkpoint.every=2
code_is 0
lines err 1 '^warning .*: a save writes .*, and ranks end 0 s after the batch system.s SIGTERM: .*USR1@1\), .*_timeout=1\)$'
lines err 1 SIGTERM
[ "$(grep -nE 'SIGTERM|^ *1/6' err out | head -n 1 | cut -d: -f1)" = err ] || fail "not before the first step"
unset OMPI_COMM_WORLD_SIZE
run train job.yaml --transport self --set parallelism.dp_shard_size=1 --set train.output_dir=alone
code_is 0
lines err 0 'SIGTERM'

# ---- what Slurm waits, and whether the job is still there ----

mkdir slurm
cat >slurm/scontrol <<'END'
#!/bin/sh
case $* in
*"show config"*) [ -z "$KILL_WAIT" ] || printf 'Xyz = 1\nKillWait                = %s sec\nUnkillableStepTimeout   = 60 sec\n' "$KILL_WAIT" ;;
*"show job"*) [ -z "$STATE" ] && echo "slurm_load_jobs error: Invalid job id specified" >&2 && exit 1
    echo "JobId=7 JobName=x JobState=$STATE Reason=None" ;;
esac
END
chmod +x slurm/scontrol
export PATH="$PWD/slurm:$PATH" KILL_WAIT=45 STATE=RUNNING
unset OMPI_MCA_odls_base_sigkill_timeout
with_slurm=$PATH
PATH="$work/found:$PATH"
run plan job.yaml --ranks-per-node 1
says out 'mpirun leaves 30 s$'
OMPI_MCA_odls_base_sigkill_timeout=7 run plan job.yaml --ranks-per-node 1
says out 'mpirun leaves 7 s$'
for FOUND in 4.1.4 ""; do
    KILL_WAIT="" run plan job.yaml --ranks-per-node 1
    says out 'mpirun leaves 20 s$'
done
PATH=$with_slurm
# mpirun of Open MPI 5 ends ranks at once.
at_once=$([ "$mpi" ] && mpirun --version | grep -c ') 5')
for wait in 0 45; do
    KILL_WAIT=$wait run train job.yaml --set train.output_dir=wait$wait
    code_is 0
    lines err $((wait == 0 || at_once)) '^warning .*: a save writes .*, and ranks end 0 s after the batch system.s SIGTERM'
done
if [ "$mpi" ]; then
    export SLURM_JOB_NODELIST=node-8,node-9 SLURM_JOB_NUM_NODES=2
    for STATE in "" COMPLETED TIMEOUT; do
        run train job.yaml --set train.output_dir=ended
        refused "^ndparallel: SLURM_JOB_ID is 7 in the environment, and that job of Slurm (does not exist any more|is $STATE): .*unset SLURM_JOB_ID"
    done
    STATE=RUNNING SLURM_TASKS_PER_NODE="1,3" run train job.yaml --set parallelism.dp_shard_size=5 --set batch.global_batch_size=10
    refused '^ndparallel: the run has 5 ranks, and Slurm has allocated 4 tasks on 2 nodes: .*--ntasks=5'
    unset SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES
fi
PATH=$before

# ---- several SIGTERM: a batch job saves; elsewhere the second one ends the process ----

some_steps() { [ -e $1/metrics.jsonl ] && [ "$(wc -l <$1/metrics.jsonl)" -gt 2 ]; }
for in_job in 7 ""; do
    case_of "SIGTERM until the run ends, SLURM_JOB_ID=$in_job"
    [ "$in_job" ] || unset SLURM_JOB_ID
    "$NDP_PROGRAM" train job.yaml --transport local --set train.steps=1000000 --set train.output_dir=terms$in_job >out 2>err &
    pid=$!
    within some_steps terms$in_job || fail "no steps"
    kill -STOP $pid
    kill -TERM $pid
    kill -CONT $pid
    while kill -TERM $pid 2>/dev/null; do :; done
    wait $pid
    code=$?
    if [ "$in_job" ]; then
        code_is 130
        says err '^ndparallel: stopped after step'
    else
        code_is 143
    fi
done
export SLURM_JOB_ID=7

# ---- output that mpirun does not take, as it waits for the ranks to end: a rank that is to stop saves all the same ----

mkfifo pipe
sleep 10000 <pipe &
reader=$!
case_of "a rank whose output is not taken"
OMPI_COMM_WORLD_SIZE=1 NDP_LAUNCHED=1 "$NDP_PROGRAM" train job.yaml --transport self --set parallelism.dp_shard_size=1 \
    --set train.steps=1000000 --set train.log_every=1 --set train.output_dir=blocked >pipe 2>err &
rank=$!
metrics() { wc -l 2>/dev/null <blocked/metrics.jsonl || echo 0; }
blocked() {
    n=$(metrics)
    sleep 0.5
    [ "$n" -gt 300 ] && [ "$n" = "$(metrics)" ]
}
within blocked || fail "it writes on"
kill -TERM $rank
has_ended() { ! kill -0 $rank 2>/dev/null; }
within has_ended || kill -KILL $rank
wait $rank
code=$?
code_is 130
says err "^ndparallel: stopped after step $(metrics); continue with --resume$"
[ -e "blocked/checkpoints/step-$(printf %08d "$(metrics)")" ] || fail "step $(metrics) is not saved: $(ls blocked/checkpoints)"
kill $reader

# ---- ranks that a stop ends before rank 0 could say so: the parent says it ----

unset SLURM_JOB_ID OMPI_MCA_odls_base_sigkill_timeout
if [ "$mpi" ]; then
    mkdir bin
    printf '#!/bin/sh\ntouch started\nuntil [ -e end ]; do sleep 0.05; done\nexit 130\n' >bin/mpirun
    chmod +x bin/mpirun
    case_of "a stop before the ranks have begun"
    PATH="$PWD/bin:$PATH" "$NDP_PROGRAM" train job.yaml --transport mpi --set train.output_dir=stopped >out 2>err &
    parent=$!
    within test -e started && kill -TERM $parent && touch end
    wait $parent
    code=$?
    code_is 130
    lines err 1 ''
    says err '^ndparallel: stopped before the run began; no step is on disk$'

    # mpirun ends the ranks when it gets the signal itself, and exits with 1; or the signal comes to a rank alone.
    for said in "stopped after step 7; continue with --resume:1" :130; do
        printf '#!/bin/sh\n[ -z "%s" ] || echo "ndparallel: %s" >&2\nexit %s\n' "${said%:*}" "${said%:*}" "${said#*:}" >bin/mpirun
        PATH="$PWD/bin:$PATH" run train job.yaml --transport mpi --set train.output_dir=stopped
        code_is 130
        lines err 1 ''
        says err '^ndparallel: stopped (after step 7; continue with --resume|before the run began; no step is on disk)$'
    done
fi


end_of_cases
