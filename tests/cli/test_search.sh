#!/bin/sh
# plan --search as users type it: the fastest layouts of a cluster or of several, the job that is written with the first, other
# numbers of nodes, the fewest that are done in time, wrong use.
. "$(dirname "$0")/cases.sh"
mkdir -p examples && cp -r "$NDP_SOURCE_DIR/examples/llama-8b" examples/
job=examples/llama-8b/job.yaml

run plan $job --cluster 1x8:h100-sxm --search --apply first.yaml
code_is 0
says out '^llama, 8.03 B parameters, bf16: 64 samples of 4096 tokens a step, on 1 node x 8 h100-sxm \(built in\)$' '^100 steps and 1 save: ' '^ 1  ' 'bound by matmul: matmul' \
    '^[0-9]+ considered: [0-9]+ priced' '^2x network: same layout' '^wrote first.yaml'
first=$(sed -n '/^ 1 /{n;s/^ *\([0-9.]*\) s.step.*/\1/p}' out)
run plan first.yaml --cluster 1x8:h100-sxm
code_is 0
says out "^a step takes $first s:"

run plan $job --cluster 1x8:h100-sxm --search --nodes 1,2 --json
code_is 0
says out '"nodes": 1, "layout"' '"nodes": 2, "layout"' '"sensitivity": \{"network_x2": ' '"equal_to_first": true'

run plan $job --cluster 1x8:rtx-4090 --search --nodes auto --set optimizer.name=adamw8bit
code_is 0
says out '^1 node$' '^ 1  '

# Several clusters have one list, ordered by time, in which each result names its machine, and the first of each says what a change
# of it would do. What a run costs is said where a price is.
cat >small.yaml <<EOF
model: {config: $NDP_SOURCE_DIR/tests/golden/odd/config.json, init: random}
data: {files: [corpus.txt], sequence_length: 128}
batch: {global_batch_size: 8}
train: {steps: 1000000}
EOF
printf 'name: rented\nnodes: 1\nnode: {device: a100-sxm-80, devices: 2, price: 4}\n' >rented.yaml
printf 'name: tiny\nnodes: 1\nnode: {device: t, devices: 2}\ndevices:\n  t: {like: h100-sxm, memory_bytes: 642e6, runtime_bytes: 640e6}\n' \
    >tiny.yaml
run plan small.yaml --cluster rented.yaml --cluster 1x2:h100-sxm --cluster tiny.yaml --search --apply both.yaml
code_is 0
says out '^llama, 0.347 M parameters, fp32: 8 samples of 128 tokens a step$' '^ 1  1 node of 1x2-h100-sxm: ' '^[ 1][0-9=]  1 node of rented: ' 'h, .* device-hours, [0-9.]+ at 4 an hour and node$' \
    '^1 node of rented: [0-9]+ considered' '^1 node of 1x2-h100-sxm: 2x network: .*; 2x memory: same layout, \+0%$' \
    '^tiny.yaml: no layout of 2 t fits' '^wrote both.yaml'
sed -n 's/^ *\([0-9.]*\) s.step.*/\1/p' out >times
[ "$(wc -l <times)" = 10 ] || fail "$(wc -l <times) results, expected those of two clusters"
[ "$(sed -n '6,$p' times)" = "$(sed -n '6,$p' times | sort -g)" ] || fail "the results are not ordered by time"
run plan both.yaml --cluster 1x2:h100-sxm
code_is 0
run plan small.yaml --cluster rented.yaml --cluster 1x2:h100-sxm --search --json
code_is 0
[ "$(grep -o '"cluster": "rented", "nodes"' out | wc -l)" = 5 ] || fail "results of rented are not named"
[ "$(grep -o '"memory_x2": ' out | wc -l)" = 2 ] || fail "the first result of each cluster has its sensitivity"
[ "$(grep -o '"checked": ' out | wc -l)" = 1 ] || fail "members of the first layout are there once"
run plan small.yaml --cluster tiny.yaml --cluster tiny.yaml --search
code_is 2
says err '^ndparallel: no layout of 2 t fits'

# The fewest nodes that are done in time, the fastest where none is.
run plan small.yaml --cluster 1x1:h100-sxm --search --json
hours=$(grep -o '"run": {[^}]*}' out | head -n 1 | sed 's/.*, "seconds": \([0-9.e+]*\).*/\1/' | awk '{ print $1 / 3600 }')
run plan small.yaml --cluster 1x1:h100-sxm --search --within "$(awk "BEGIN { print $hours * 1.01 }")h"
code_is 0
says out '^1 node$' '^    1000000 steps and 1 save: '
run plan small.yaml --cluster 1x1:h100-sxm --search --nodes auto --within "$(awk "BEGIN { print $hours * 59 }")m" --json
code_is 0
says out '"within_seconds": ' '"place": 1, "cluster": "1x1-h100-sxm", "nodes": 2'
run plan small.yaml --cluster 1x1:h100-sxm --search --within 1s
code_is 0
says out '^the run takes [0-9.]+ h, more than 1 s$' '^none of up to [0-9]+ nodes is done within 1 s, nor are more' '^ 1  '

# Rates of processors that nothing states are measured once, and all results are planned with them.
run plan small.yaml --cluster 1x2:cpu --search --json
code_is 0
grep -o '"step_seconds": [^,]*, "tokens_per_second": [^,]*, "mfu": [^,]*' out | tr -d , |
    awk '{ printf "%.9g\n", $2 * $6 }' | sort -u >rates
[ "$(wc -l <rates)" = 1 ] || fail "results of $(wc -l <rates) rates"

for wrong in '--search' '--cluster 1x8:h100-sxm --cluster 1x8:mi300x' '--cluster 1x8:h100-sxm --cluster 1x8:mi300x --layout tp=8' \
    '--cluster 1x8:h100-sxm --within 1h' '--cluster 1x8:h100-sxm --search --within 1' '--cluster 1x8:h100-sxm --search --within 0h' \
    '--cluster 1x8:h100-sxm --search --within nanh' '--cluster 1x8:h100-sxm --search --within 1h --nodes 2' \
    '--cluster 1x8:h100-sxm --search --within 1h --set train.epochs=2' '--cluster 1x8:h100-sxm --layout tq=8' \
    '--cluster 1x8:h100-sxm --search --cluster none.yaml' "--cluster 1x8:h100-sxm --search --apply ./$job" \
    '--cluster 1x8:h100-sxm --search --layout tp=8' '--cluster 1x8:h100-sxm --apply x.yaml' '--nodes 2' \
    '--cluster 1x8:h100-sxm --nodes 0' '--cluster 1x8:h100-sxm --nodes auto' '--cluster 1000000x8:h100-sxm --search' \
    "--cluster 1x8:h100-sxm --search --apply $job"; do
    # shellcheck disable=SC2086
    run plan $job $wrong
    code_is 2
    [ "$(head -n 1 err | grep -c '^ndparallel[ a-z]*: ')" = 1 ] || fail "no line says what is wrong"
done
cmp -s $job "$NDP_SOURCE_DIR/$job" || fail "the job was written"
run plan $job --cluster 1x8:h100-sxm --search --apply none/x.yaml
code_is 1
[ ! -e x.yaml ] || fail "x.yaml was written"
run plan $job --cluster 1x1:rtx-4090 --search
code_is 2
says err 'no layout of 1 rtx-4090 fits: of [0-9]+ considered [0-9]+ need more memory'
end_of_cases
