#!/bin/sh
# A batch job that is stopped: SIGTERM to all of its processes, as Slurm sends it. Ranks that take 5 s to save can do so,
# though Open MPI's daemon by itself would kill them a second or two later.
. "$(dirname "$0")/../cli/cases.sh"
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
cat >rank <<'END'
trap '{ sleep 5; echo saved >saved.$OMPI_COMM_WORLD_RANK; exit 0; } & wait $!; exit 130' TERM
echo $$ >started.$OMPI_COMM_WORLD_RANK
while :; do sleep 0.1; done
END
both() { [ -s "$1.0" ] && [ -s "$1.1" ]; }

# stop SAVED: starts two ranks, sends the signal to them and to mpirun, and looks what is saved once all have ended.
stop() {
    rm -f started.* saved.*
    "$NDP_PROGRAM" launch -n 2 --transport mpi -- sh rank >out 2>err </dev/null &
    pid=$!
    within both started || fail "the ranks have not started"
    # shellcheck disable=SC2046 # process numbers
    kill -TERM $(pgrep -P $pid -x mpirun) $(cat started.0 started.1)
    wait $pid
    [ "$(ls saved.* 2>/dev/null | wc -l)" = "$1" ] || fail "$(ls saved.* 2>/dev/null | wc -l) ranks have saved, expected $1"
}

case_of outside of a batch job
stop 0
case_of in a batch job
export SLURM_JOB_ID=7
stop 2

# ---- an mpirun that hangs once its ranks have ended ----

mkdir bin
cat >bin/mpirun <<'END'
#!/bin/sh
OMPI_COMM_WORLD_RANK=0 sleep 1 &
OMPI_COMM_WORLD_RANK=1 sleep 2 &
wait
sleep 10000
END
chmod +x bin/mpirun
unset SLURM_JOB_ID
before=$(date +%s)
PATH="$PWD/bin:$PATH" run launch -n 2 --transport mpi -- sh rank
code_is 1
lines err 1 ''
says err '^ndparallel: rank 0 \(process [0-9]+\) ended first; all ranks have ended, and mpirun hangs: it is killed'
[ $(($(date +%s) - before)) -le 60 ] || fail "it took $(($(date +%s) - before)) s"

end_of_cases
