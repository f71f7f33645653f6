#!/bin/sh
# What a run has open while it works, and what is left of it when a process of it is killed: on one host nothing listens
# and nothing is left; of mpirun's files the next start removes what is left.
. "$(dirname "$0")/cases.sh"
make_job
mkdir tmp
export TMPDIR="$work/tmp"

# Those of the run, with mpirun's.
processes() {
    for p in $(grep -lF "$work/run" /proc/[0-9]*/cmdline); do
        p=${p%/cmdline}
        case $(tr '\0' ' ' <"$p/cmdline") in "$NDP_PROGRAM train"* | mpirun*) basename "$p" ;; esac
    done
} 2>/dev/null # they may end while we look
rank() { for p in $(processes); do ! grep -qzx "NDP_RANK=$1" "/proc/$p/environ" 2>/dev/null || echo "$p"; done; }
some_steps() { [ -e run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt 1 ]; }
all_ended() { [ -z "$(processes)" ]; }
joined() { [ -n "$(rank 3)" ]; }

# begin TRANSPORT: a run on 4 ranks that does not end by itself; $pid is its process.
begin() {
    case_of a run by --transport "$1"
    rm -rf run
    "$NDP_PROGRAM" train job.yaml --transport "$1" --set parallelism.dp_replicate_size=2 --set batch.global_batch_size=8 --set train.output_dir="$work/run" \
        --set train.steps=1000000 --set train.log_every=100000 >out 2>err </dev/null &
    pid=$!
}

gone() {
    { wait "$pid"; } 2>/dev/null
    within all_ended || fail "processes are left: $(processes)"
}
left() { find tmp -mindepth 1; }

begin shm
within some_steps || fail "no steps"
[ "$(processes | wc -l)" = 5 ] || fail "$(processes | wc -l) processes, not 4 ranks and their parent"
for p in $(processes); do
    find "/proc/$p/fd" -lname 'socket:*' 2>/dev/null | grep . >sockets && fail "process $p has sockets: $(cat sockets)"
    grep -E '/dev/shm|/tmp/.*/tmp' "/proc/$p/maps" 2>/dev/null | grep -v '/tsan\.rodata\.' >maps && fail "process $p maps $(cat maps)"
done
[ -z "$(left)" ] || fail "files while it runs: $(left)"
kill -KILL "$pid"
gone
[ -z "$(left)" ] || fail "left: $(left)"

# At other moments, other processes.
for moment in joined some_steps; do
    for number in 0 3; do
        begin shm
        within $moment || fail "never $moment"
        victim=$(rank $number)
        kill -KILL "$victim"
        gone
        says err "^ndparallel: rank $number \(process $victim\) was killed by signal 9"
        lines err 1 '.'
        [ -z "$(left)" ] || fail "left: $(left)"
    done
done

case $(transports) in *mpi*)
    begin mpi
    within some_steps || fail "no steps"
    # As Open MPI 4 and 5 call them.
    [ -n "$(find tmp -name 'vader*' -o -name 'sm_segment*')" ] || fail "no segment of MPI in TMPDIR: $(left)"
    for p in $(processes); do
        grep /dev/shm "/proc/$p/maps" >maps 2>/dev/null && fail "process $p maps $(cat maps)"
    done
    # shellcheck disable=SC2046
    kill -KILL $(processes)
    gone
    rm -rf run
    run train job.yaml --transport mpi --set train.output_dir="$work/run" --set train.steps=1
    code_is 0
    [ -z "$(find tmp -mindepth 2)" ] || fail "left in TMPDIR: $(find tmp -mindepth 2)"
    ;;
esac

end_of_cases
