#!/bin/sh
# The device sim by command line. Two ranks give the losses of cpu: threads, whose collectives are on the device, and
# processes, whose collectives are staged.
. "$(dirname "$0")/cases.sh"
[ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_sim.so" ] || { echo "SKIPPED: no ndp_sim.so"; exit 77; }
make_job
head -c 400 text.txt >short.txt
tiny="--set data.sequence_length=8 --set schedule.name=constant --set checkpoint.every=1"

loss() { sed -n "$2"' s/.*"loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }

# planned FILE: "taken" of a plan or "memory:" of a run, as a user reads it.
planned() { sed -n -E '/process of rank 0/d; s/^(  taken +|memory: )([0-9.]+ [A-Za-z]+).*/\2/p' "$1"; }

# same_losses FOLDER: those of the run on cpu.
same_losses() {
    for step in 1 2; do
        awk -v a="$(loss cpu $step)" -v b="$(loss "$1" $step)" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }' ||
            fail "loss $(loss "$1" $step) at step $step, on cpu $(loss cpu $step)"
    done
}

run train job.yaml $tiny --set train.steps=2 --set train.output_dir=cpu --transport local
code_is 0

run plan job.yaml $tiny --set data.validation_fraction=0 --device sim
code_is 0
says out '^  pinned +[0-9.]+ [A-Za-z]+  [0-9]+ bytes of the host, through which ranks communicate$' 'gathers into buffers'
taken=$(planned out)

run train job.yaml $tiny --set train.steps=1 --set train.output_dir=sim --device sim --set train.share_gpu=true --transport local
code_is 0
lines out 0 ' pinned ' # threads exchange tensors on the GPU
says out '^kernels: sim$' '^peak: that of the device sim is not known'
[ "$(planned out)" = "$taken" ] || fail "$(planned out) planned in the run, $taken by plan"
run train job.yaml $tiny --set train.steps=2 --set train.output_dir=sim --device sim --set train.share_gpu=true --transport shm --resume
code_is 0
says out '^resume: from step 1' '^ *2/2 '
same_losses sim

# Where cuBLASLt has no algorithm, a run says so once, and goes on.
grep -q 'no algorithm in cuBLASLt' err && fail "products of the run have no algorithm"
export NDP_SIM_REFUSES=cublasLtMatmulAlgoGetHeuristic
run train job.yaml $tiny --set train.steps=2 --set train.output_dir=plain --device sim --set train.share_gpu=true --transport local
code_is 0
lines err 1 '[0-9]+ matrix products of this rank so far have no algorithm in cuBLASLt.*the first: linear, fp32 \[[0-9]+,[0-9]+\] = fp32 times fp32 over [0-9]+$'
same_losses plain
unset NDP_SIM_REFUSES

# Threads that each have a GPU cannot access each other's memory.
export NDP_SIM_GPUS=2
run train job.yaml $tiny --set train.steps=2 --set train.output_dir=apart --device sim --transport local
code_is 0
says out '^memory: [0-9.]+ [A-Za-z]+ and [0-9.]+ [A-Za-z]+ pinned planned per rank'
same_losses apart
run train job.yaml $tiny --set train.steps=2 --set train.output_dir=refused --device sim --transport local --set train.collectives=device
code_is 1
says err '^ndparallel: rank [0-9]: train.collectives: device is not supported between threads that each have a GPU: start processes \(--transport shm\), or set train.collectives: staged$'
unset NDP_SIM_GPUS

run evaluate --model cpu/model --data short.txt --json --threads 1 --sequence-length 16
code_is 0
want=$(cat out)
run evaluate --model cpu/model --data short.txt --json --threads 1 --sequence-length 16 --device sim
code_is 0
says out '"tokens": '
nll() { echo "$1" | sed -n 's/.*"mean_nll": \([0-9.]*\).*/\1/p'; }
awk -v a="$(nll "$want")" -v b="$(nll "$(cat out)")" 'BEGIN { exit !(a > 1 && (a - b) ^ 2 < (2e-6 * a) ^ 2) }' || fail "on cpu: $want"

run generate --model cpu/model --prompt 'A step' --max-tokens 3 --ids --threads 1
code_is 0
want=$(cat out)
run generate --model cpu/model --prompt 'A step' --max-tokens 3 --ids --threads 1 --device sim
code_is 0
[ "$(cat out)" = "$want" ] || fail "on cpu: $want"

run verify job.yaml $tiny --set batch.micro_batch_size=1 --device sim --layout dp_shard=2 --steps 1
code_is 0
lines out 1 ' agrees$'
# A stop while a result is pending: the step that is under way is saved, and the run goes on from there. Evaluations too
# wait for it.
held="--set train.steps=4 --set checkpoint.every=0 --set train.eval_every=1 --set data.validation_files=[short.txt]"
run train job.yaml $tiny $held --set train.output_dir=held_cpu --transport local
code_is 0
case_of a run on sim stopped by SIGINT
timeout $patience "$NDP_PROGRAM" train job.yaml $tiny $held --set train.output_dir=held --device sim --set train.share_gpu=true --transport local \
    >out 2>err </dev/null &
stopped=$!
until grep -q '^ *1/4 ' out || ! kill -0 $stopped; do sleep 0.05; done
kill -INT "$(pgrep -P $stopped)"
wait $stopped
code=$?
code_is 130
says out '^checkpoint: .*step-'
run train job.yaml $tiny $held --set train.output_dir=held --device sim --set train.share_gpu=true --transport local --resume
code_is 0
paste held_cpu/metrics.jsonl held/metrics.jsonl |
    sed -n 's/.*"loss": *\([0-9.]*\).*"eval_loss": *\([0-9.]*\).*"loss": *\([0-9.]*\).*"eval_loss": *\([0-9.]*\).*/\1 \2 \3 \4/p' >losses
lines losses 4 .
awk '{ if (($1 - $3) ^ 2 > (1e-5 * $1) ^ 2 || ($2 - $4) ^ 2 > (1e-5 * $2) ^ 2) exit 1 }' losses || fail "$(cat losses)"

end_of_cases
