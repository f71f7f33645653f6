#!/bin/sh
# Published configurations, by a dry run: each is planned with its published number of parameters or refused by what it
# is; nothing is read but config.json, and nothing made.
. "$(dirname "$0")/cases.sh"
if [ -z "${NDP_TEST_DATA-}" ]; then
    echo "SKIPPED: published configurations (NDP_TEST_DATA is not set)"
    exit 77
fi
configs=$NDP_TEST_DATA/configs
make_job
rm text.txt config.json

# refuses "PATTERN": what the program cannot do, in one message.
refuses() {
    code_is 1
    says err "$1"
    lines err 1 '^ndparallel'
    [ ! -s out ] || fail "something on stdout"
}

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
case_of "the number of configurations"
[ "$planned" -ge 18 ] || fail "$planned configurations planned, expected 18"
end_of_cases
