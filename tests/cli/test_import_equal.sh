#!/bin/sh
# What an imported job makes of its records, and its batch, steps, learning rates and targets, are what the other program
# itself has made of the file: tests/import/equal, a folder a job, whose `expected` tests/golden/check_imports.py has
# written. Weights are random here.
. "$(dirname "$0")/cases.sh"
cp -r "$NDP_SOURCE_DIR/tests/import/equal" equal
chmod -R u+w equal
cd equal || exit 1

# value KEY: of `expected`.
value() { sed -n "s/^$1 //p" "$folder/expected"; }
# same WHAT IS: as expected, where the other program says it.
same() {
    [ -z "$(value "$1")" ] || [ "$2" = "$(value "$1")" ] || fail "$1 is $2, expected $(value "$1")"
}
# of KEY: a number of the plan, which is in the file `plan`.
of() { grep -oE "\"$1\": [0-9]+" plan | head -n 1 | grep -oE '[0-9]+$'; }

# A record a line: its tokens, and which of them are trained on; those that are in a row, sorted.
records() {
    grep -oE '"row": [0-9]+, "ids": \[[^]]*\], "trained": \[[^]]*\]' | tr -d ',' |
        sed -E 's/.*"ids": \[([^]]*)\] "trained": \[([^]]*)\]/\1 | \2/' | LC_ALL=C sort
}

# rates: of metrics.jsonl against the expected ones, one after the other.
rates() {
    sed -nE 's/.*"lr": ?([-+.0-9e]+).*/\1/p' run/metrics.jsonl |
        awk -v want="$(value rates)" '{ is[NR] = $1 } END { n = split(want, w, " "); m = 0
            for (i = 1; i <= n; i++) m = w[i] > m ? w[i] : m
            if (n != NR) { print NR " rates, expected " n; exit 1 }
            for (i = 1; i <= n; i++) { d = is[i] - w[i]; if (d > 1e-9 * m || d < -1e-9 * m) { print "update " i ": " is[i] ", expected " w[i]; exit 1 } } }'
}

compared=0
for folder in */; do
    folder=${folder%/}
    [ -f "$folder/expected" ] || continue
    cd "$folder" || exit 1
    what="import of $folder"
    folder=.
    # shellcheck disable=SC2046 # words
    run config import $(value import) --output ours.yaml --set model.path=null --set model.config=../model/config.json \
        --set model.init=random --set data.tokenizer=../model --set train.output_dir=run --set train.force_memory=true
    code_is 0
    run plan ours.yaml --json
    code_is 0
    cp out plan
    same rows "$(of global_batch)"
    same micro "$(of micro_batch)"
    same accumulation "$(of accumulation)"
    for axis in dp_replicate dp_shard cp tp; do
        same $axis "$(of $axis)"
    done
    if [ -n "$(value records)" ]; then
        run data ours.yaml --ids --json --show 1000
        code_is 0
        records <out >records
        value record >wanted
        while read -r record; do
            grep -qxF "$record" records || fail "there is no record $record"
        done <wanted
        same records "$(wc -l <records) $(md5sum <records | cut -d ' ' -f 1)"
    fi
    if [ -n "$(value rates)" ]; then
        run train ours.yaml --transport local
        code_is 0
        same steps "$(grep -c '"lr"' run/metrics.jsonl)"
        rates >why || fail "$(cat why)"
    fi
    if [ -n "$(value target)" ]; then
        head -c 100000 run/adapter/adapter_model.safetensors | grep -aoE 'base_model\.model\.[a-z_0-9.]*\.lora_A' |
            sed 's/^base_model.model.//; s/.lora_A$//' | LC_ALL=C sort >targets
        value target | LC_ALL=C sort | cmp -s - targets || fail "other targets: $(tr '\n' ' ' <targets)"
    fi
    compared=$((compared + 1))
    cd .. || exit 1
done
case_of all imports
[ "$compared" -ge 12 ] || fail "$compared imports were compared"
end_of_cases
