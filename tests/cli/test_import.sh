#!/bin/sh
# Job files of other programs: what is written can be read, planned for and trained on.
. "$(dirname "$0")/cases.sh"

make_job
mkdir -p model data
cp config.json model/
for n in 1 2 3 4 5 6 7 8; do
    echo "{\"body\": \"text number $n of a few that are read as bytes\"}"
done >data/rows.jsonl
cat >axolotl.yaml <<'EOF'
base_model: model
datasets: [{path: data/rows.jsonl, type: completion, field: body}]
dp_shard_size: 2
dp_replicate_size: 2
fsdp_config: {reshard_after_forward: true, auto_wrap_policy: TRANSFORMER_BASED_WRAP}
sequence_len: 32
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 2
max_steps: 3
optimizer: adamw_torch
learning_rate: 1.0e-3
bf16: false
output_dir: run
EOF

run config import axolotl.yaml --output imported.yaml
code_is 0
says err 'global batch 8 samples = micro batch 1 x accumulation 2 x 4 data ranks' \
    'fsdp_config.auto_wrap_policy \(line 5\): sharding is by' 'written to imported.yaml'
[ ! -s out ] || fail "something on stdout"
says imported.yaml '^  dp_shard_size: 2$' '^# global batch 8 samples' '^#   fsdp_config.auto_wrap_policy \(line 5\)'
cp err notes

# The same on stdout.
run config import axolotl.yaml
code_is 0
cmp -s out imported.yaml || fail "stdout is not what --output writes"
sed '$d' notes | cmp -s - err || fail "the notes differ"

# Read by our own parser; accepted by a dry run; trained on. The model here has random weights and bytes.
run train imported.yaml --dry-run --set model.init=random --set data.tokenizer=bytes
code_is 0
says out 'layout: dp_replicate 2 x dp_shard 2 on 4 ranks' 'global batch 8 samples = micro batch 1 x 4 data ranks x accumulation 2'
run train imported.yaml --transport local --set model.init=random --set data.tokenizer=bytes --set train.threads=1
code_is 0
lines run/metrics.jsonl 3 '"loss"'

run config import "$NDP_SOURCE_DIR/tests/config/import/accelerate_nd.yaml"
code_is 0
says out '^  tp_size: 2$' '^# imported from .*, an Accelerate configuration$'

# Refusals leave nothing behind.
echo 'adapter: lora' >>axolotl.yaml
run config import axolotl.yaml --output other.yaml
refused "axolotl.yaml:15:1: 'adapter: lora': adapters are not trained" '--force imports without it'
[ ! -e other.yaml ] || fail "other.yaml was written"
run config import axolotl.yaml --force --ranks 8 --set train.steps=5
code_is 2
says err 'but there are 8 ranks'
run config import axolotl.yaml --force --set train.steps=5 --set optimizer.lr=0.5
code_is 0
says out '^  steps: 5$' '^  lr: 0.5$' '^# NOT CARRIED OVER, BY --force' '^#   adapter: lora \(line 15\)'

run config import
refused 'which file'
run config import a b
refused "two files: 'a' and 'b'"
run config import none.yaml
code_is 1
says err 'none.yaml'
run config import axolotl.yaml --force --output none/job.yaml
code_is 1
says err 'cannot write none/job.yaml'
run config improt a.yaml
refused "'improt': the one thing to do here is import"

end_of_cases
