#!/bin/sh
# train --profile: the table after the summary, on layouts, transports and a device with a queue. Its shares sum to the step,
# its lines are short, and it changes no bit of the run.
. "$(dirname "$0")/cases.sh"
make_job
steps="--set train.steps=3"

# profiled RANKS CLOCK: the table of a run of so many ranks.
profiled() {
    says out '^profile: 3 steps of [0-9.]+ ms' '^  ops and exposed times by the clock of the '"$2"'$' '^  op  +share +ms a step +calls a step$' \
        '^  [a-z0-9_]+ +[0-9.]+% +[0-9.]+ +[0-9.]+$' '^  loading data ' '^  between the ops '
    awk '/^profile:/ { inside = 1; step = $5 } inside && length > 79 { bad = bad " long: " $0 }
         inside && $0 ~ /%/ { for (i = 1; i < NF; i++) if ($i ~ /%$/) { share += $i; ms += $(i + 1); rows++ } }
         inside && /^memory:/ { bad = bad " the summary is not first" }
         END { if (share < 100 - rows / 10 || share > 100 + rows / 10 || ms < step - rows / 500 || ms > step + rows / 500)
                   bad = bad " " share "%, " ms " of " step " ms in " rows " rows"
               if (bad) { print bad; exit 1 } }' out >>err || fail "the table is wrong"
    [ "$1" = 1 ] && expected=0 || expected=1
    lines out $expected '^  slowest: rank [0-9]+ works [0-9.]+ ms of a step, the others [0-9.]+ ms \(mean\),$'
    lines out $expected '^  collective  +calls a step +exposed ms +hidden ms +sent +GB/s$'
}

run train job.yaml $steps --transport local
code_is 0
lines out 0 '^profile:'
cp run/model/model.safetensors plain.safetensors
rm -rf run
for transport in $(transports); do
    run train job.yaml $steps --transport "$transport" --profile
    code_is 0
    profiled 2 host
    says out '^  all_gather +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ [KM]?i?B +[0-9.]+$' '^  reduce_scatter +[0-9]'
    cmp run/model/model.safetensors plain.safetensors >>err || fail "other weights"
    rm -rf run
done
run train job.yaml $steps --transport local --profile --set parallelism.dp_shard_size=1
code_is 0
profiled 1 host
rm -rf run
run train job.yaml $steps --transport local --profile --set parallelism.pp_size=2 --set batch.micro_batch_size=1
code_is 0
profiled 4 host
says out '^  send +[0-9.]+ ' '^  recv +[0-9.]+ '
rm -rf run
if [ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_sim.so" ]; then
    run train job.yaml $steps --transport local --profile --device sim --set train.share_gpu=true --set data.sequence_length=8
    code_is 0
    profiled 2 device
    says out '^  all_gather +[0-9]+ +[0-9.]+ +- +[0-9.]+ [KM]?i?B +-$' '^  hidden times and rates are not measured'
    rm -rf run
fi

run train job.yaml --dry-run --profile
refused '--profile times real steps, --dry-run has none'
run train job.yaml --trace-steps 2-3
refused '--trace-steps needs --trace FILE'
run train job.yaml --trace t.json --trace-steps 3-2
refused '--trace-steps 3-2: the first step is after the last'
run train job.yaml --trace t.json --trace-steps 2-x
refused "--trace-steps 'x': expected a whole number"
run train job.yaml --transport local --trace t.json --trace-steps 2-7
code_is 2
says err 'the trace is to end with step 7, and the run has 6 steps'
run train job.yaml --transport local --trace t.svg --trace-steps 2-3
code_is 0
says out '^trace: t.svg, step 3$' '^step: [0-9.]+ ms, of which$'
rm -rf run
run train job.yaml --transport local --trace t.json --trace-steps 2-3
code_is 0
says out '^trace: t.json, steps 2 to 3$' '^2 steps: [0-9.]+ ms, of which$'
grep -q '"args": {"step": 2}' t.json && grep -q '"args": {"step": 3}' t.json || fail "no steps in the file"
grep -q '"args": {"step": 4}' t.json && fail "step 4 is in the file"

end_of_cases
