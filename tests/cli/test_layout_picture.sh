#!/bin/sh
# docs/layout.svg, which README.md shows, is what the program draws. After a change of the picture, run in a clone
#     build/ndparallel plan examples/quickstart.yaml AXES --layout-picture docs/layout.svg
# with the AXES of the run below.
. "$(dirname "$0")/cases.sh"
here=$PWD
axes="--set parallelism.dp_replicate_size=1 --set parallelism.dp_shard_size=2 --set parallelism.cp_size=2
      --set parallelism.tp_size=2 --set batch.global_batch_size=2 --set batch.micro_batch_size=1"
job=examples/quickstart.yaml

: >out
: >err
cd "$NDP_SOURCE_DIR" || exit 1
"$NDP_PROGRAM" plan $job $axes --layout-picture "$here/layout.svg" >"$here/out" 2>"$here/err"
code=$?
cd "$here" || exit 1
cases=1
what="plan --layout-picture"
code_is 0
cmp layout.svg "$NDP_SOURCE_DIR/docs/layout.svg" >>out 2>&1 || fail "docs/layout.svg is not what the program draws"

# It has colours for both schemes, and is well-formed.
[ "$(grep -c 'prefers-color-scheme: dark' layout.svg)" = 1 ] || fail "no dark colours"
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' layout.svg >>out 2>&1 || fail "it is no XML"

make_job
run plan job.yaml --layout-picture nowhere/layout.svg
code_is 1
says err "cannot write 'nowhere/layout.svg': the folder 'nowhere': No such file or directory"

# Layers whose MLPs differ: what a rank has of those like the first, which are experts. Stage 1 has none of them, and none
# of the vocabulary.
run plan "$NDP_SOURCE_DIR/$job" --set model.config="$NDP_SOURCE_DIR/tests/golden/qwen3-moe/config.json" \
    --set data.sequence_length=64 --set parallelism.pp_size=3 --set parallelism.dp_shard_size=1 \
    --set parallelism.dp_replicate_size=1 --set parallelism.tp_size=2 --layout-picture layers.svg
code_is 0
lines layers.svg 2 '>7-13<'
lines layers.svg 4 '>none<'
lines layers.svg 0 '>22-43<'
end_of_cases
