#!/bin/sh
# plan --passes: the list alone without a job, and what each pass wrote with one.
. "${NDP_SOURCE_DIR:?}/tests/cli/cases.sh"
ln -s "$NDP_SOURCE_DIR"/docs "$NDP_SOURCE_DIR"/README.md .

run plan --passes
code_is 0
says out '^pass +when +writes +does$' '^  backward +training +nodes +derives ' '^  staging +staged '
awk '/^  / { print $1 }' out >"$work/names"

# The same passes in the same order; the counts of calls and instructions are those of the program.
run plan docs/a-step/job.yaml --passes --rank=2 --ranks-per-node=1
code_is 0
says out '^  ring +ring +no nodes' '^  gather_tp_again +always +\+2 nodes' '^  memory +alike +yes '
awk '/^  / { print $1 }' out | cmp -s - "$work/names" || fail "the passes of a job are not those of the list"
[ "$(awk '/ instructions / && $3 != "no" { n += $3 } END { print n }' out)" = 58 ] || fail "not 58 instructions, as docs/a-step.md has"

run plan docs/a-step/job.yaml --passes --rank=99
refused 'there is no rank 99: the layout has ranks 0 to'
for other in --program '--placements=all'; do
    run plan docs/a-step/job.yaml --passes $other
    refused "--passes is a text of its own: leave out ${other%=*}"
done
run plan
refused 'no job file'
end_of_cases
