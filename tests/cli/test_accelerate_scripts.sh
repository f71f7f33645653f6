#!/bin/sh
# Scripts of the structure of published ones of Accelerate and transformers (accelerate/) run with their imports changed: the same
# losses, evaluations and models on several layouts, and from a checkpoint of another one. tests/golden/check_accelerate.py
# compares them with Accelerate itself. They need no torch: a few lines stand in for it (accelerate/stand_in).
[ -z "${NDP_SANITIZE-}" ] || { echo "skipped: a sanitizer is loaded before all else"; exit 77; }
. "$(dirname "$0")/cases.sh"
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -c 'import ctypes' 2>/dev/null || { echo "SKIPPED: no Python with ctypes ($python)"; exit 77; }
[ -e "$NDP_BUILD_DIR/python/ndparallel/_declarations.py" ] || { echo "SKIPPED: the build found no python3 for its package"; exit 77; }
scripts=$NDP_SOURCE_DIR/tests/cli/accelerate
export PYTHONPATH="$NDP_BUILD_DIR/python:$scripts/stand_in" PYTHONDONTWRITEBYTECODE=1
cat "$NDP_SOURCE_DIR/examples/data/text.txt" "$NDP_SOURCE_DIR/examples/data/text.txt" >text

# launches N SCRIPT ARGUMENT...: on N ranks.
launches() {
    case_of launch -n "$@"
    ranks=$1 script=$2
    shift 2
    timeout $patience "$python" -m ndparallel launch -n "$ranks" --threads 1 "$scripts/$script" "$@" >out 2>err
    code=$?
    code_is 0
}
# clm N FOLDER ARGUMENT...: 100 rows of 64 tokens of which 20 are held out, 8 an update.
clm() {
    ranks=$1 folder=$2
    shift 2
    head -c 6400 text >rows
    launches "$ranks" clm_no_trainer.py --train_file rows --config_name "$NDP_SOURCE_DIR/examples/tiny" --learning_rate 3e-3 \
        --weight_decay 0.1 --validation_split_percentage 20 --per_device_eval_batch_size 2 --num_train_epochs 2 --num_warmup_steps 3 \
        --seed 3 --output_dir "$folder" --checkpointing_steps epoch --with_tracking "$@"
}
clm 1 one --per_device_train_batch_size 8
grep -E '^(step|epoch)' out >expected
lines expected 22 '[0-9]\.[0-9]+'
clm 4 four --dp_shard_size 2 --tp_size 2 --per_device_train_batch_size 2 --gradient_accumulation_steps 2
same_numbers() {
    grep -E '^(step|epoch)' out | tail -n "${1:-100}" >found
    tail -n "${1:-100}" expected | paste -d ' ' - found | awk '
        { for (i = 1; i <= NF / 2; i++) { a = $i; b = $(i + NF / 2); if (a != b && (a - b > 2e-5 * a || b - a > 2e-5 * a || a + 0 == 0)) bad = 1 } }
        END { exit bad || NR == 0 }' || fail "other numbers than $(cat expected)"
}
same_numbers
lines four/metrics.jsonl 2 '"perplexity": [0-9.]+, "eval_loss".*"log/step"'
[ -s four/model.safetensors ] && [ -s four/all_results.json ] || fail "no model"
lines err 1 '^log_with all: log\(\) writes to four/metrics.jsonl$'
clm 2 one --dp_replicate_size 2 --per_device_train_batch_size 4 --resume_from_checkpoint one/epoch_0
same_numbers 11

# Rows of several lengths, the first not the longest; updates of two batches, the last of an epoch of one.
counts() {
    ranks=$1 size=$2
    shift 2
    launches "$ranks" count_tokens.py --file text --model one --gradient_accumulation_steps 2 --per_device_batch_size "$size" "$@"
}
counts 1 8
grep '^epoch' out >expected
lines expected 22 'loss: [0-9.]+$'
counts 2 4 --cpu
same_numbers
counts 4 2 --mixed_precision no
same_numbers

end_of_cases
