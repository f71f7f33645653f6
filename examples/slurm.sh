#!/bin/sh
# A job of Slurm: a rank on each of its tasks; it goes on by itself after its time limit.
#
#     sbatch --nodes=2 --ntasks-per-node=8 --time=24:00:00 slurm.sh job.yaml
#
# srun starts the ranks where it offers PMIx, else mpirun; LAUNCHER=mpirun or LAUNCHER=srun decides it.
#SBATCH --signal=B:USR1@120 --requeue --open-mode=append

[ "${LAUNCHER-}" ] || { srun --mpi=list 2>&1 | grep -qw pmix && LAUNCHER=srun || LAUNCHER=mpirun; }

# `exec`, so that a signal to this shell is one to the run.
train() {
    [ "$LAUNCHER" = mpirun ] || exec srun --mpi=pmix "${NDP_PROGRAM:-ndparallel}" train "$@" --resume
    exec "${NDP_PROGRAM:-ndparallel}" train "$@" --resume
}

# At SIGUSR1, two minutes before the limit, the run saves and ends with code 130. With `RequeueExit=130` in slurm.conf Slurm then
# requeues the job.
scontrol show config | grep -qE '^RequeueExit *= *([0-9,-]*,)?130' && train "$@"

# Without it the job does so itself. Not after scancel: that sends SIGTERM to all processes.
train "$@" &
run=$!
trap 'limit=1; kill -USR1 $run' USR1
trap : TERM
while wait $run; code=$?; kill -0 $run 2>/dev/null; do :; done
[ "${limit-} $code" != "1 130" ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
