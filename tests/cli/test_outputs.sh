#!/bin/sh
# Files that the user names: through a link, what it names is written; a device or a pipe is written to and stays.
. "$(dirname "$0")/cases.sh"
make_job
axes="--set parallelism.pp_size=2 --set parallelism.dp_shard_size=1"
plan="plan job.yaml $axes"

# is KIND PATH...: as test -KIND, without following links for h.
is() {
    kind=$1
    shift
    for path in "$@"; do
        [ "-$kind" "$path" ] || fail "$path was replaced: $(ls -l "$path")"
    done
}

# ---- devices: our own, never those of /dev ----

if mknod full.csv c 1 7 2>/dev/null; then
    mknod full.svg c 1 7
    mknod full.json c 1 7
    ln -s full.csv to-full.csv
    ln -s full.svg to-full.svg
    for file in full.csv to-full.csv; do
        run $plan --schedule $file
        code_is 1
        says err "cannot write '$file': No space left on device"
    done
    for file in full.svg full.json to-full.svg; do
        run $plan --timeline $file
        code_is 1
        says err "cannot write '$file': No space left on device"
    done
    run train job.yaml --transport local --set train.steps=1 --trace to-full.svg
    code_is 1
    says err "cannot write 'to-full.svg': No space left on device"
    run config import "$NDP_SOURCE_DIR/tests/import/files/accelerate_nd.yaml" -o full.csv
    code_is 1
    is c full.csv full.svg full.json
    is h to-full.csv to-full.svg
    rm -rf run full.* to-full.*
else
    echo "making a device needs root: devices are skipped" >&2
fi

# ---- pipes ----

mkfifo pipe.csv
timeout $patience cat pipe.csv >read &
run $plan --schedule pipe.csv
code_is 0
wait
grep -q '0F0' read || fail "nothing came through the pipe"
is p pipe.csv

# ---- standard output, as a file: the table lies beside the plan ----

ln -s /proc/self/fd/1 stdout.csv # as /dev/stdout is
case_of plan --schedule stdout.csv
"$NDP_PROGRAM" $plan --schedule stdout.csv >out 2>err || fail "exit code $?"
says out '0F0' 'peak memory of rank 0' 'no deadlock'
is h stdout.csv

# ---- links ----

mkdir elsewhere
ln -s elsewhere/table.csv table.csv
ln -s elsewhere/line.svg line.svg
ln -s elsewhere/trace.json trace.json
run $plan --schedule table.csv --timeline line.svg
code_is 0
run train job.yaml --transport local --set train.steps=2 --trace trace.json --set checkpoint.every=1
code_is 0
is h table.csv line.svg trace.json
is s elsewhere/table.csv elsewhere/line.svg elsewhere/trace.json

# metrics.jsonl on another disk stays there when a resumed run cuts it.
mv run/metrics.jsonl elsewhere
ln -s ../elsewhere/metrics.jsonl run/metrics.jsonl
run train job.yaml --transport local --set train.steps=3 --resume --accept train.steps
code_is 0
is h run/metrics.jsonl
lines elsewhere/metrics.jsonl 3 '"step"'

# ---- what cannot be written is refused before the plan is made ----

run $plan --timeline nowhere/line.svg
code_is 1
says err "cannot write 'nowhere/line.svg': the folder 'nowhere': No such file or directory"
end_of_cases
