#!/bin/sh
# Published configurations, by a dry run: each is planned with its published number of parameters; nothing is read but
# config.json, and nothing made.
. "$(dirname "$0")/cases.sh"
if [ -z "${NDP_TEST_DATA-}" ]; then
    echo "SKIPPED: published configurations (NDP_TEST_DATA is not set)"
    exit 77
fi
configs=$NDP_TEST_DATA/configs
make_job
rm text.txt config.json

# The dry run has this many parameters, to 0.1 million, in its words.
plans() {
    code_is 0
    says out "^model: .*, $(awk -v n="$1" 'BEGIN { printf "%.1f", n / 1e6 }') M parameters" '^checked: '
}

planned=0
for folder in "$configs"/*/; do
    model=$(basename "$folder")
    run train job.yaml --dry-run --no-data --set "model.config=${folder}config.json" --set data.tokenizer=bytes
    plans "$(sed -n "s/^ *\"$model\": \([0-9]*\),*\$/\1/p" "$configs/expected_params.json")"
    planned=$((planned + 1))
    [ ! -e run ] && [ ! -e cache ] || fail "it made a folder"
done

case_of "DeepSeek-V3 on 2,048 ranks: all programs meet, every gradient is a complete sum"
run train job.yaml --dry-run --no-data --set "model.config=$configs/DeepSeek-V3/config.json" --set data.tokenizer=bytes \
    --set batch.global_batch_size=2048 --set batch.micro_batch_size=1 --set parallelism.dp_shard_size=128 \
    --set parallelism.pp_size=16 --set parallelism.ep_size=64
plans "$(sed -n 's/^ *"DeepSeek-V3": \([0-9]*\),*$/\1/p' "$configs/expected_params.json")"
says out '^layout: pp 16 x dp_shard 128 with ep 64 on 2048 ranks' 'every gradient is a complete sum over'

case_of "the number of configurations"
[ "$planned" -ge 18 ] || fail "$planned configurations planned, expected 18"
end_of_cases
