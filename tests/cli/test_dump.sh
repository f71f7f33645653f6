#!/bin/sh
# Dumps, by the program: what is written agrees with itself, on other layouts too; usage; what is printed.
. "$(dirname "$0")/cases.sh"
make_job

run verify job.yaml --dump dump
code_is 0
[ ! -s out ] || fail "something on stdout"
says err '^dump: [0-9]+ tokens, loss [0-9.]+, gradient norm [0-9.]+, 2 ranks$'
tokens=$(sed -n 's/^dump: \([0-9]*\) tokens.*/\1/p' err) # of the README, which make_job takes as its text
[ "$(ls -A dump | tr '\n' ' ')" = "batch.safetensors gradients.safetensors weights.safetensors " ] || fail "other files"
[ ! -e run ] || fail "it left a run folder"

run verify job.yaml --against dump
code_is 0
says out '^ +off +of bound  verdict$' "^tokens +agrees: $tokens, ours $tokens\$" '^loss .* agrees: [0-9.]+, ours [0-9.]+$' \
    '^model.norm.weight +[0-9.e-]+ +[0-9.]+%  agrees$' '^dump agrees with our step on its 4 rows of 32 tokens$'
lines out 20 '^model\..*  agrees$'
says err '^one rank, 4 rows of 32 tokens: '

run verify job.yaml --against dump --json
code_is 0
lines out 1 '^\{"dump": "dump", "agrees": true, "rows": 4, .*"causes": \[\]\}$'

# Of a dump that differs, the first gradient in the order of the backward.
mixtral=$NDP_SOURCE_DIR/tests/golden/mixtral
run verify job.yaml --set model.path="$mixtral" --set model.config=null --set model.init=pretrained --against "$mixtral/batched_mm" --json
code_is 1
lines out 1 '"agrees": false.* "first": "model.layers.1.block_sparse_moe.gate.weight", "causes": \["model.layers.1.block_sparse_moe.gate'

# The data and the layout of the job are those of the dump, not read.
sed 's/text.txt/gone.txt/; s/dp_shard_size: 2/tp_size: 64/' job.yaml >other.yaml
run verify other.yaml --against dump
code_is 0

run verify job.yaml --dump dump
refused "the folder 'dump' is not empty"
run verify job.yaml --against gone
refused "gone: not a folder"
run verify job.yaml --against dump --dump other
refused 'three different checks'
run verify job.yaml --layout dp_shard=2 --against dump
refused 'three different checks'
run verify job.yaml --dump other --transport mpi
refused 'threads of one process'
[ ! -e other ] || fail "it left a folder"

end_of_cases
