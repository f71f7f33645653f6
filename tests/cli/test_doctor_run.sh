#!/bin/sh
# `doctor RUN`: what happened to a run, by its lock, metrics, checkpoints and the journals of its ranks, which are on disk
# also of a rank that was killed.
. "$(dirname "$0")/cases.sh"
make_job
program=$(readlink -f "$NDP_PROGRAM")

run train job.yaml --transport shm
code_is 0
run doctor run
code_is 0
says out '^ok +run: done: all steps are there, step 6 of 6' '^ok +metrics: 6 lines, the newest of step 6, loss 5\.' '^ok +checkpoints: 1, the newest of step 6'
lines out 0 '^ok +rank|journal'
run doctor run --json
says out '"checks": \[\{"name": "run", "state": "ok"'
mkdir empty
run doctor empty
code_is 2
says err "'empty' is not a run folder"

# ---- a rank is killed ----

rank_1() {
    for p in $(pgrep -x ndparallel); do
        [ "$(readlink "/proc/$p/exe")" = "$program" ] && grep -qzxE '(NDP_RANK|OMPI_COMM_WORLD_RANK)=1' "/proc/$p/environ" &&
            grep -qF "output_dir=$work/dead" "/proc/$p/cmdline" && echo "$p"
    done
} 2>/dev/null # they may end while we look
# The last process that rank_1 looks at may be one of another run.
some_steps() { [ -e dead/metrics.jsonl ] && [ "$(wc -l <dead/metrics.jsonl)" -gt 12 ] && { victim=$(rank_1); [ -n "$victim" ]; }; }

ways=$(transports)
for transport in ${ways#local }; do
    case_of "--transport $transport, rank 1 is killed"
    rm -rf dead
    "$NDP_PROGRAM" train job.yaml --transport "$transport" --set train.output_dir="$work/dead" --set train.steps=1000000 \
        --set schedule.name=constant --set checkpoint.every=10 >out 2>err </dev/null &
    pid=$!
    within some_steps || fail "no steps"
    kill -KILL "$victim"
    wait "$pid"
    for rank in 0 1; do
        [ "$(grep -c ', begun ' dead/journal.rank$rank)" -ge 200 ] || fail "journal.rank$rank: $(head -c 300 dead/journal.rank$rank)"
    done
    run doctor dead
    code_is 1
    says out '^problem +run: (died|failed)' '-> ndparallel train dead/job.yaml --resume' '^note +checkpoints: [0-9]+, the newest of step [0-9]+: [0-9]+ steps are taken again|^ok +checkpoints: [0-9]+' \
        "^problem +rank 1: .*(killed by signal 9|has died).*; last: [a-z]+ (#[0-9]+ )?[a-z_]+ " '-> memory: ' '^ok +rank 0: last: [a-z]+ (#[0-9]+ )?[a-z_]+ |^problem +rank 0: .*rank 1 .*has died'

    # A later start writes job.yaml: these journals are of an earlier one.
    sleep 1
    touch dead/job.yaml
    run doctor dead
    lines out 0 '^(ok|problem) +rank'
done

# ---- a checkpoint is damaged ----

newest=$(ls -d dead/checkpoints/step-* | tail -n 1)
for file in "$newest"/*.safetensors; do truncate -s 100 "$file"; done
run doctor dead
code_is 1
says out '^problem +checkpoints: that of step [0-9]+ is damaged: ' '-> check the disk'

end_of_cases
