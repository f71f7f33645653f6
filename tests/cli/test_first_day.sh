#!/bin/sh
# Mistakes of a first day, by users of Accelerate, Axolotl, torchtitan and llm.c: each message names the fix, which is
# taken from the message and applied. Jobs, layouts and arguments; models, data and disks are in test_first_files.sh.
. "$(dirname "$0")/first_day.sh"

# ---- values ----

mistake 2 "'precision.compute' is 'fp16'.*fp16 is not supported; bf16 has fp32's range and needs no loss scaling" \
    --set precision.compute=fp16
take "did you mean '([a-z0-9]+)'"
works --set precision.compute="$fix"

mistake 2 "'optimizer.lr' is the string \"1e-4\", expected a number" --set 'optimizer.lr="1e-4"'
take 'remove the quotes: ([^ ]+)$'
works --set optimizer.lr="$fix"

mistake 2 "'train.log_every' is '1e3'" --set train.log_every=1e3
take 'did you mean ([0-9]+)\?'
works --set train.log_every="$fix"

mistake 2 "'data.shuffle' is 'False', expected true or false" --set data.shuffle=False
take "did you mean '([a-z]+)'"
works --set data.shuffle="$fix"

mistake 2 "'parallelism.dp_shard_size' is '-1'" --ranks 2 --set parallelism.dp_shard_size=-1
take 'did you mean ([a-z]+)\?'
works --ranks 2 --set parallelism.dp_shard_size="$fix"

mistake 2 "'optimizer.name' is 'adamw_torch_fused'" --set optimizer.name=adamw_torch_fused
take "did you mean '([a-z]+)'"
works --set optimizer.name="$fix"

# ---- keys ----

# job_with LINE...: bad.yaml, the job with more lines.
job_with() {
    cp job.yaml bad.yaml
    printf '%s\n' "$@" >>bad.yaml
}

job=bad.yaml
job_with 'lr: 1e-4'
mistake 2 "bad.yaml:6: unknown (key|section) 'lr'"
take "did you mean '([a-z_.]+)'"
job=job.yaml
works --set "$fix=1e-4"

job=bad.yaml
job_with 'optimizer.lr: 1e-4'
mistake 2 "'optimizer.lr' is a name for --set"
take 'in a file it is (.*VALUE\})'
job_with "$(echo "$fix" | sed 's/VALUE/1e-4/')"
works

job_with 'optimizer:' '	lr: 1e-4'
mistake 2 'bad.yaml:7: tab character'
take '; indent with (spaces)'
[ "$fix" = spaces ] && job_with 'optimizer:' '  lr: 1e-4'
works

job_with 'optimizer:' '  lr:1e-4'
mistake 2 'bad.yaml:7: YAML needs a space after the colon'
take "after the colon: '([^']+)'"
job_with 'optimizer:' "  $fix"
works
job=job.yaml

mistake 2 "unknown key 'momentun' in 'optimizer'" --set optimizer.momentun=0
take "did you mean '([a-z]+)'"
works --set optimizer."$fix"=0

# Accumulation follows from the batches: 4 passes of 2 rows on 2 ranks.
mistake 2 "gradient_accumulation_steps'; it is derived: batch.global_batch_size = .* x accumulation" \
    --set gradient_accumulation_steps=4
take 'set ([a-z_.]+)$'
works --set "$fix=$((4 * 2 * 2))"
says out 'x accumulation 4;'

job=bad.yaml
job_with 'learning_rate: 1e-4'
mistake 2 "unknown key 'learning_rate'"
take 'use ([a-z_.]+)$'
job=job.yaml
works --set "$fix=1e-4"

mistakes=$((mistakes + 1))
run estimate-memory job.yaml
refused "unknown command 'estimate-memory'"
take 'use `ndparallel ([a-z]+)`'
run "$fix" job.yaml
code_is 0
says out 'peak memory of rank 0'

# ---- files of other programs ----

printf '[job]\ndescription = "Llama 3"\n[model]\nname = "llama3"\nflavor = "8B"\n' >titan.toml
job=titan.toml
mistake 2 'titan.toml: a TOML file, as torchtitan.s are; a job file is YAML'
take '`ndparallel (config --defaults)`'
case_of "ndparallel $fix"
"$NDP_PROGRAM" $fix >filled.yaml 2>err || fail "exit code $?"
job=filled.yaml
works --set model.config=config.json --set data.files=text.txt --set data.tokenizer=bytes --set data.sequence_length=32

cat >axolotl.yaml <<'X'
base_model: model
datasets: [{path: text.txt, type: completion}]
sequence_len: 32
micro_batch_size: 2
gradient_accumulation_steps: 1
num_epochs: 1
learning_rate: 1e-4
optimizer: adamw_torch
lr_scheduler: cosine
X
job=axolotl.yaml
mistake 2 'axolotl.yaml:1: a file of Axolotl, not a job file'
take 'convert it: ndparallel (config import [^ ]+ -o [^ ]+)$'
run $fix --force
code_is 0
job=converted.yaml
works --set model.path=null --set model.config=config.json --set data.tokenizer=bytes --set data.files=text.txt \
    --set train.epochs=0

printf 'compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n' >accelerate.yaml
rm -f converted.yaml
job=accelerate.yaml
mistake 2 'accelerate.yaml:1: a file of `accelerate config`, not a job file'
take 'convert it: ndparallel (config import [^ ]+ -o [^ ]+)$'
run $fix --force
code_is 0
job=converted.yaml
works --set model.config=config.json --set data.files=text.txt --set data.tokenizer=bytes --set data.sequence_length=32

job=config.json
mistake 2 "config.json:1: a model's config.json, not a job file"
take 'a job file names it as (model: .*)$'
sed "1s|.*|$fix|" job.yaml >named.yaml
job=named.yaml
works
job=job.yml
mistake 2 "cannot read 'job.yml': No such file or directory"
take "did you mean '([^']+)'"
job=$fix
works

# ---- layouts and batches ----

mistake 2 'global batch 5 is not a multiple of micro batch 2 x dp_replicate 1 x dp_shard 2 = 4' \
    --set batch.global_batch_size=5
take 'the nearest global batches are [0-9]+ and ([0-9]+)'
works --set batch.global_batch_size="$fix"

mistake 2 'the layout dp_shard 2 has 2 ranks, but the run has 4' --ranks 4
take 'set ([a-z_.]+=[0-9]+)'
works --ranks 4 --set "$fix" --set batch.global_batch_size=8

mistake 2 '2 attention heads are not divisible by tp 3' --set parallelism.tp_size=3
take 'On other numbers of ranks: dp_shard 2 x (tp [0-9]+)'
works --set parallelism.tp_size="${fix#tp }"

mistake 2 "data.sequence_length 128 is longer than the model's max_position_embeddings" --set data.sequence_length=128
take 'max_position_embeddings ([0-9]+)'
works --set data.sequence_length="$fix"

mistake 2 'this host .*available' --set train.force_memory=false --set data.sequence_length=64 \
    --set batch.micro_batch_size=4000000 --set batch.global_batch_size=8000000
take 'Lower ([a-z_.]+)'
works --set train.force_memory=false --set "$fix=2"

# ---- arguments ----

mistake 2 "two job files: 'job.yaml' and '1e-3'" --set optimizer.lr 1e-3
take 'write --set ([^ ]+)$'
works --set "$fix"

mistake 2 "two job files: 'job.yaml' and 'optimizer.lr=1e-3'" optimizer.lr=1e-3
take 'write --set ([^ ]+)$'
works --set "$fix"

mistake 2 "--set 'optimizer.lr'.* expected SECTION.KEY=VALUE" --set optimizer.lr
take 'as in --set ([^ ]+)$'
works --set "$fix"

for argument in "--num_processes 4" "--nproc_per_node=4" "-n 4"; do
    mistake 2 "is not an option; .*ndparallel starts th" $argument
    take 'write (--ranks) '
    works "$fix" 4 --set parallelism.dp_shard_size=auto --set batch.global_batch_size=8
done

mistake 2 '--config_file is not an option' --config_file job.yaml
take 'write `ndparallel train ([a-z.]+)`'
job=$fix
works

mistake 2 '--learning_rate is not an option; keys of the job are given by --set' --learning_rate 1e-3
take 'use ([a-z_.]+)$'
works --set "$fix=1e-3"

mistake 2 '--optimizer.lr=1e-3 is not an option' --optimizer.lr=1e-3
take 'write --set ([^ ]+)$'
works --set "$fix"

[ "$mistakes" -ge 30 ] || fail "$mistakes mistakes"
end_of_cases
