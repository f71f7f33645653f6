#!/bin/sh
# replay: steps from the checkpoint before them, equal to the run on each transport; a line that differs, a damaged
# checkpoint, steps that are not there; a run that overflowed.
. "$(dirname "$0")/cases.sh"
make_job
run train job.yaml --set train.steps=8 --set checkpoint.every=3 --set checkpoint.keep=2 --transport local
code_is 0
# Lines as they were before they were cut to 80 columns.
unwrap() { awk '/^ / { sub(/^ +/, " "); printf "%s", $0; next } { if (NR > 1) print ""; printf "%s", $0 } END { print "" }' out >whole && mv whole out; }
files() { find run -type f -exec cksum {} + | sort; }
files >before
for transport in $(transports); do
    run replay run --steps 7-8 --compare --transport "$transport"
    code_is 0
    unwrap
    says out '^replay: from the checkpoint of step 6$' '^step 7: loss [0-9.]+, grad_norm [0-9.]+; as in the run;' 'all values are finite' \
        '^step 8: .*as in the run' 'the largest loss of a token is [0-9.]+, row [0-9]+ of micro-batch [0-9]+ \(token [0-9]+ of document'
    lines out 3 '^(replay|step)'
done
run replay run --steps 8
code_is 0
unwrap
says out '^step 8: loss [0-9.]+, grad_norm [0-9.]+; all values are finite'
files | cmp - before >>err || fail "the run was changed"

run replay run --steps 3
refused 'step 3 is not after a checkpoint: the oldest in run/checkpoints is of step 6. Give steps from 7 on'
run replay run --steps 7-9
refused 'step 9 is after the last one of the run, 8'
run replay run
refused 'which steps\?'
run replay run --steps 8-7
refused 'the first step is after the last'
mkdir empty
run replay empty --steps 1
refused 'empty is not the folder of a run'
run replay run --steps 7 --set optimizer.lr=1
refused 'optimizer.lr'

sed 's/"step": 8, "loss": [0-9]/"step": 8, "loss": 1/; /"step": 7,/s/.*/{"step": 7, "loss": /' run/metrics.jsonl >m && cp m run/metrics.jsonl
run replay run --steps 8 --compare --transport local
code_is 1
unwrap
says out '^step 8: .*; NOT as in the run, which had the loss 1'
says err 'differ from the run'
run replay run --steps 7 --compare --transport local
code_is 2
says err 'has no line of step 7'
printf xxxx | dd of=run/checkpoints/step-00000006/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
run replay run --steps 8 --transport local
code_is 2
says err 'the checkpoint of step 6 in run/checkpoints is damaged: model.safetensors'
rm -rf run

# What overflowed in the run is named by it, in its metrics, and by a replay from its last step.
run train job.yaml --set optimizer.lr=1e30 --transport local
code_is 2
says err 'step 2: the loss is .* first in .*, micro-batch [0-9]+, row [0-9]+ \(token [0-9]+ of document .*the run stops here'
says run/metrics.jsonl '"step": 2, .*"cause": ".* first in '
run replay run --steps 2 --compare --transport local
code_is 0
unwrap
says out '^step 2: .*as in the run; (nan|inf|-inf) first in '
run report run
code_is 0
says run/report.html 'run: 1 step was checked, step 2 last: (nan|inf|-inf) first in '
run runs .
code_is 0

end_of_cases
