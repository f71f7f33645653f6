#!/bin/sh
# Axolotl's published examples, as they are: at least 70 import, and of those at least ten that train an adapter do so on a
# tiny model with our data. Prints why each of the others does not
# import, or does not train: most of those name projections of another family.
if [ -z "${NDP_TEST_DATA-}" ]; then
    echo "SKIPPED: Axolotl's published examples (NDP_TEST_DATA is not set)"
    exit 77
fi
. "$(dirname "$0")/cases.sh"
ln -s "$NDP_SOURCE_DIR/examples" examples
run train examples/pretrain-text.yaml --transport local --set train.steps=1 --set train.output_dir=first
code_is 0

# trains FILE: the job of it with a tiny model and tiny data.
trains() {
    run config import "$1" --output job.yaml --set model.path=first/model --set data.format="$format" \
        --set "data.files=[examples/data/$data.jsonl]" --set data.chat_template=plain --set data.sequence_length=128 \
        --set data.validation_fraction=0 --set train.eval_every=0 --set train.epochs=0 --set train.steps=2 --set train.output_dir=run
    [ "$code" = 0 ] || return 1
    rm -rf run
    run train job.yaml --transport local --set train.threads=1
    [ "$code" = 0 ]
}

find "$NDP_TEST_DATA/axolotl/examples" -name '*.y*ml' | sort >files
imported=0
trained=0
tried=0
while read -r file; do
    run config import "$file"
    if [ "$code" != 0 ]; then
        echo "${file#"$NDP_TEST_DATA/axolotl/examples/"}: $(grep -o -m 1 "'.*" err | cut -c 1-110)"
        continue
    fi
    imported=$((imported + 1))
    grep -q '^adapter' out && [ "$trained" -lt 12 ] || continue
    tried=$((tried + 1))
    data=chats format=messages
    ! grep -q preference out || data=pairs format=preference
    if trains "$file"; then
        trained=$((trained + 1))
        echo "trained: ${file#"$NDP_TEST_DATA/axolotl/examples/"}"
    else
        echo "not trained: ${file#"$NDP_TEST_DATA/axolotl/examples/"}: $(tail -n 1 err | cut -c 1-150)"
    fi
done <files
what="Axolotl's published examples"
echo "$imported of $(wc -l <files) import, $trained of $tried train"
[ "$imported" -ge 70 ] || fail "$imported import, expected 70 or more"
[ "$trained" -ge 10 ] || fail "$trained train, expected 10 or more"
end_of_cases
