#!/bin/sh
# plan --search as users type it: the fastest layouts of a cluster, the job that is written with the first, other numbers of nodes,
# wrong use.
. "$(dirname "$0")/cases.sh"
mkdir -p examples && cp -r "$NDP_SOURCE_DIR/examples/llama-8b" examples/
job=examples/llama-8b/job.yaml

run plan $job --cluster 1x8:h100-sxm --search --apply first.yaml
code_is 0
says out '^64 samples of 4096 tokens a step, on 1 node, 8 h100-sxm$' '^ 1  ' 'bound by matmul: matmul' \
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

for wrong in '--search' '--cluster 1x8:h100-sxm --search --layout tp=8' '--cluster 1x8:h100-sxm --apply x.yaml' '--nodes 2' \
    '--cluster 1x8:h100-sxm --nodes 0' '--cluster 1x8:h100-sxm --nodes auto' '--cluster 1000000x8:h100-sxm --search' \
    "--cluster 1x8:h100-sxm --search --apply $job"; do
    # shellcheck disable=SC2086
    run plan $job $wrong
    code_is 2
done
run plan $job --cluster 1x8:h100-sxm --search --apply none/x.yaml
code_is 1
[ ! -e x.yaml ] || fail "x.yaml was written"
run plan $job --cluster 1x1:rtx-4090 --search
code_is 2
says err 'no layout of 1 rtx-4090 fits: of [0-9]+ considered [0-9]+ need more memory'
end_of_cases
