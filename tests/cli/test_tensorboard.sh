#!/bin/sh
# train.trackers: [tensorboard]: TensorBoard's own reader (event_files.py) finds the numbers of metrics.jsonl in the files of a
# run, resumed from its newest checkpoint and from an earlier one, and killed at moments that the clock chooses.
# $NDP_DUMP_PYTHON has the package (tools/test-python dump).
python=${NDP_DUMP_PYTHON:-$NDP_SOURCE_DIR/build/dump-python/bin/python}
reader=$NDP_SOURCE_DIR/tests/cli/event_files.py
"$python" "$reader" 2>/dev/null || { echo "skipped: no NDP_DUMP_PYTHON, a Python with tensorboard (tools/test-python dump)"; exit 77; }
. "$(dirname "$0")/cases.sh"
make_job
cp text.txt held.txt
cat >>job.yaml <<'EOF'
checkpoint: {every: 2, keep: 10}
EOF
keys="--set train.trackers=[tensorboard] --set data.validation_files=held.txt --set train.eval_every=2"

equal() {
    case_of event_files "$1"
    "$python" "$reader" "$1" >out 2>err
    code=$?
    code_is 0
}

# shellcheck disable=SC2086 # a list of options
for from in "" --resume-from=4 --resume --resume-from=2; do
    run train job.yaml $keys $from
    code_is 0
    equal run
done

# Killed after a while that grows with every try; the last one is left alone.
for i in 1 2 3 4; do
    case_of kill "$i"
    resume=
    [ ! -d killed/checkpoints ] || resume=--resume
    [ -n "$resume" ] || rm -rf killed
    # shellcheck disable=SC2086
    "$NDP_PROGRAM" train job.yaml $keys --set train.output_dir=killed --set train.steps=100000 $resume >out 2>err &
    child=$!
    within test -s killed/metrics.jsonl || fail "no step"
    sleep 0.$((i * 2))
    kill -9 $child
    wait $child 2>/dev/null
    equal killed
done

end_of_cases
