#!/bin/sh
# Layouts against one rank, by the program: exit codes, the table, JSON. (Layouts that disagree: test_verify_table.)
. "$(dirname "$0")/cases.sh"
make_job

run verify job.yaml --set batch.micro_batch_size=1 --layout dp_shard=2 --layout dp_shard=2,dp_replicate=2 --steps 3
code_is 0
says out '^layout +gradient, step 1 +of tensor +gradient, step 3 +grad_norm +loss +verdict$' \
    '^dp_shard=2 +[0-9.e-]+ +[0-9.]+%  model\.[a-z0-9_.]+ .* agrees$' '^dp_shard=2,dp_replicate=2 .* agrees$' \
    '^All agree with one rank; the closest to its bound, at [0-9.]+%, is the '
lines out 2 ' agrees$'
says err '^memory: at most .*, .* available$' '^one rank: 3 steps in ' '^dp_shard=2: 2 ranks, ' '^dp_shard=2,dp_replicate=2: 4 ranks, .* agrees'
[ "$(grep -vc 'starting anyway' err)" = 4 ] || fail "not four lines"
[ ! -e run ] || fail "it left a run folder"

run verify job.yaml --layout dp_shard=2 --steps 1 --transport local --json --set optimizer.lr=0.01
code_is 0
lines out 1 '^\{"steps": 1, "layouts": \[\{"layout": "dp_shard=2", "ranks": 2, "agrees": true, .*"words": ""\}\]\}$'
says out '"first_gradient": \{"off": [0-9.e-]+, "bound": 2e-05, "where": "model\.' '"weights": \{"off": [0-9.e-]+, "bound": null'
says err 'optimizer.lr 0.01 is lowered to 0.0003'

sed 's/steps: 6/epochs: 0.5/' job.yaml >epochs.yaml
run verify epochs.yaml --layout dp_shard=2 --steps 2 --transport local
code_is 0
says err '^one rank: 2 steps in ' '^dp_shard=2: 2 ranks, .* agrees'

# A mixture of experts: what the layout would choose otherwise.
sed 's/"llama"/"mixtral", "num_local_experts": 5, "num_experts_per_tok": 2/; s/LlamaFor/MixtralFor/' config.json >mixtral.json
run verify job.yaml --set model.config=mixtral.json --layout dp_shard=2 --layout tp=2 --steps 2
code_is 0
says out ' loss +flips +verdict$' '^dp_shard=2 .* [0-9]+ of 1024 +agrees$' '^tp=2 .* [0-9]+ of 1024 +agrees$'
run verify job.yaml --set model.config=mixtral.json --layout tp=2 --steps 2 --json
code_is 0
says out '"flip_gap": \{"off": [0-9.e-]+, "bound": ' '"flip_share": ' '"choices": 1024, "flips": [0-9]+, "listed": \['
run verify job.yaml --set moe.routes=routes.safetensors --layout tp=2 --steps 2
refused 'the model has no mixture of experts to route'
run train job.yaml --set model.config=mixtral.json --set moe.routes=routes.safetensors
code_is 1
says err "cannot read 'routes.safetensors'"

run verify job.yaml
refused 'no layout; give at least one'
run verify job.yaml --layout dp_shrad=2
refused "unknown axis 'dp_shrad' in the layout 'dp_shrad=2'; did you mean 'dp_shard'"
run verify job.yaml --layout dp_shard=2 --layout dp_shard_size=2
refused "did you mean 'dp_shard'"
run verify job.yaml --layout dp_shard
refused 'expected AXIS=SIZE'
run verify job.yaml --layout dp_shard=2 --layout tp=3
refused 'layout tp=3: 2 attention heads are not divisible'
run verify job.yaml --layout dp_shard=3
refused 'layout dp_shard=3: global batch 4 is not a multiple of micro batch 2'
run verify job.yaml --layout dp_shard=2 --steps 21
refused "--steps '21': expected a whole number from 1 to 20"
run verify job.yaml --layout dp_shard=2 --transport mpi
refused 'threads of one process'
run verify job.yaml --layout dp_shard=2,ep=2
refused 'ep 2: the model has no mixtures of experts'
[ ! -s out ] || fail "something on stdout"

end_of_cases
