#!/bin/sh
# Checkpoints from the outside: damage between two runs, going back, and `ndparallel checkpoint`.
. "$(dirname "$0")/cases.sh"
make_job

loss() { sed -n "$2"' s/.*"loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }

# Other bytes in the middle of a file; the size stays.
scribble() { printf '\001\002\003\004' | dd of="$1" bs=1 seek="$(($(wc -c <"$1") / 2))" conv=notrunc 2>/dev/null; }

there() {
    for path in "$@"; do
        [ -e "$path" ] || fail "no $path"
    done
}
gone() { [ ! -e "$1" ] || fail "$1 is still there"; }

# A copy of the run of 6 steps, with a checkpoint of each of the last five.
run train job.yaml --set train.output_dir=whole --set checkpoint.every=1 --set checkpoint.keep=5 --transport local
code_is 0
says out '^checkpoint: whole/checkpoints/step-00000006  [0-9.]+ [KM]iB in [0-9.]+ s, [0-9.]+% of it hashing$'
says whole/checkpoints/step-00000006/manifest.json '"version": 2,' '^  "hash": "[0-9a-f]{32}"$'
again() {
    rm -rf run && cp -r whole run
    steps=run/checkpoints/step-0000000
}
resume() { run train job.yaml --set checkpoint.every=1 --set checkpoint.keep=5 --transport "$@"; }

run checkpoint list whole
code_is 0
lines out 1 '^checkpoint +saved +size +loss +eval +state$'
lines out 5 '^step-0000000[2-6]  [0-9]{4}-[0-9-]+ [0-9:]+ +[0-9.]+ MiB  [0-9.]{6}       -  complete, not read$'
says out "^step-00000006 .*  $(printf %.4f "$(loss whole 6)")  "
[ "$(awk '{ print length }' out | sort -n | tail -n 1)" -le 79 ] || fail "a line of more than 79 columns"
run checkpoint verify whole
code_is 0
lines out 5 '^step-0000000[2-6] .* verified in [0-9.]+ s$'
run checkpoint verify whole 4 6
code_is 0
lines out 2 'verified'
run checkpoint verify whole 1
refused "no checkpoint of step 1 in 'whole/checkpoints'"

for transport in $(transports); do
    # The newest is damaged: it is set aside, the one before it is loaded, and the losses are the same.
    again
    scribble ${steps}6/optimizer.safetensors
    run checkpoint verify run
    code_is 1
    says out '^step-00000006 .* DAMAGED: optimizer\.safetensors: tensor optimizer\.[mv]\.model\..*bytes \[[0-9]+, [0-9]+\) are not'
    lines out 4 'verified'
    resume "$transport" --resume
    code_is 0
    says err 'step 6 .* is DAMAGED: optimizer\.safetensors: tensor optimizer\.' 'going back from step 6 to step 5'
    says out '^resume: from step 5$'
    there ${steps}6 ${steps}6.damaged/optimizer.safetensors
    [ "$(loss run 6)" = "$(loss whole 6)" ] || fail "loss $(loss run 6) of step 6, without damage $(loss whole 6)"
    run checkpoint list run
    code_is 0
    says out '^step-00000006\.damaged .* set aside$'

    # Whatever is damaged about it.
    for damage in "rm ${steps}6/manifest.json" "truncate -s 100 ${steps}6/model.safetensors" \
        "cp ${steps}5/model.safetensors ${steps}6/" "ln -sf ../step-00000005/model.safetensors ${steps}6/model.safetensors" \
        "sed -i /samples/d ${steps}6/manifest.json"; do
        again
        $damage
        resume "$transport" --resume
        code_is 0
        says err 'step 6 .* is DAMAGED' 'going back from step 6 to step 5'
        there ${steps}6.damaged
    done

    # It would have to go back further: it stops, and says what verifies.
    again
    scribble ${steps}6/model.safetensors
    scribble ${steps}5/model.safetensors
    find run | sort >before
    resume "$transport" --resume
    code_is 2
    lines err 1 '^ndparallel'
    says err 'of step 6, is damaged \(model\.safetensors: tensor model\.' 'the one before it, of step 5' \
        'Steps that verify: 4, 3, 2; resume from one of them with --resume-from STEP'
    find run | sort | cmp -s - before || fail "something was changed"
    resume "$transport" --resume-from 5
    code_is 2
    says err '--resume-from 5: that checkpoint .* is damaged' 'Steps that verify: 4, 3, 2'
    resume "$transport" --resume-from 1
    code_is 2
    says err 'there is no checkpoint of that step' 'Steps that verify: 4, 3, 2'
    find run | sort | cmp -s - before || fail "something was changed"
    resume "$transport" --resume-from 3
    code_is 0
    says out '^resume: from step 3$'
    there ${steps}4.superseded ${steps}5.damaged ${steps}6.damaged ${steps}6 ${steps}4
    [ "$(loss run 6)" = "$(loss whole 6)" ] || fail "loss $(loss run 6) of step 6 after going back to step 3"

    # All are damaged: it does not begin again over them.
    again
    for step in 2 3 4 5 6; do
        scribble ${steps}$step/model.safetensors
    done
    resume "$transport" --resume
    code_is 2
    says err 'No checkpoint verifies: start again in another train.output_dir'
    for step in 2 3 4 5 6; do
        mv ${steps}$step ${steps}$step.damaged
    done
    resume "$transport" --resume
    code_is 2
    says err 'no checkpoint but 5 that were set aside'
done

# None was ever saved: from the beginning.
rm -rf run/checkpoints
resume local --resume
code_is 0
says out 'no checkpoint in run, starting from the beginning'

# Away with them.
again
run checkpoint rm run 2 step-00000003
code_is 0
says out '^removed 2$' '^removed step-00000003$'
gone ${steps}2
gone ${steps}3
mv ${steps}4 ${steps}4.superseded
scribble ${steps}6/model.safetensors
run checkpoint rm run 5
refused "this would leave no checkpoint in 'run/checkpoints' that verifies; --force"
there ${steps}5
run checkpoint rm run 4
refused "no checkpoint '4'"
run checkpoint rm run step-00000004.superseded 6
code_is 0
gone ${steps}4.superseded
gone ${steps}6
run checkpoint rm --force run 5
code_is 0
run checkpoint list run
code_is 0
says out '^no checkpoints in run/checkpoints$'

end_of_cases
