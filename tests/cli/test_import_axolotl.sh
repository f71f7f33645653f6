#!/bin/sh
# Axolotl's own examples, $NDP_TEST_DATA/axolotl/examples: how many are imported, how many of those jobs `plan` accepts with
# the config.json of a tiny model of the published one's type, and a table of the reasons of the rest: for how many files
# each is one of the reasons, and for how many the only one.
[ -d "${NDP_TEST_DATA:-/nonexistent}/axolotl/examples" ] || { echo "SKIPPED: no Axolotl examples in NDP_TEST_DATA"; exit 77; }
. "$(dirname "$0")/cases.sh"
export HF_HOME="$work/hf"
unset HF_HUB_CACHE
theirs=$NDP_TEST_DATA/axolotl # the files name others from there
. "$NDP_SOURCE_DIR/tests/cli/published.sh"

# from_theirs COMMAND...: the program, in their folder.
from_theirs() { (cd "$theirs" && "$NDP_PROGRAM" "$@"); }

# Standard input: messages of refusals. Output: a reason a line, each once.
reasons() {
    grep -oE "'[^']+': .*" | sed -E "s/^'[^']*': //; s/; or --set .*//; s/; did you mean .*//; s/^data sets? .*/data sets/" | sort -u
}

: >unplanned
imported=0
checked=0
planned=0
files=0
for file in $(cd "$theirs" && grep -lrE '^base_model:' examples | sort); do
    case_of config import "$file"
    files=$((files + 1))
    from_theirs config import "$file" >job.yaml 2>err
    code=$?
    if [ "$code" = 0 ]; then
        imported=$((imported + 1))
        # The type of other models is not known.
        grep -q '^# not checked: whether' job.yaml && continue
        checked=$((checked + 1))
        config_of "$(type_of "$(sed -nE 's/^  path: "(.*)"$/\1/p' job.yaml | head -n 1)")" >config.json
        # Ulysses cuts the heads: the published model has 32, 8 of them for keys.
        ! grep -q '^  sp_size: 8' job.yaml ||
            sed -i -E 's/("num_attention_heads": *)[0-9]+/\132/; s/("num_key_value_heads": *)[0-9]+/\18/' config.json
        if "$NDP_PROGRAM" plan job.yaml --set model.path=null --set model.config=config.json --set data.sequence_length=32 \
            --force-memory >out 2>err; then
            planned=$((planned + 1))
        else
            echo "$file: $(head -n 1 err | cut -c 1-160)" >>unplanned
        fi
        grep -qE 'job.yaml:[0-9]+:[0-9]+: ' err && fail "the job cannot be read"
        continue
    fi
    [ "$code" = 1 ] || code_is 2
    reasons <err >why
    [ -s why ] || sed -n '1s/^ndparallel: [^ ]* //p' err >why
    [ -s why ] || fail "refused without a reason"
    awk -v n="$(wc -l <why)" '{ print (n == 1 ? "only" : "one") "\t" $0 }' why >>all
done

echo "$imported of $files examples are imported; the families of $checked are known, and \`plan\` accepts $planned of these. Not:"
sed 's/^/  /' unplanned
echo "reasons of the others: files that have it, files that have no other"
awk -F '\t' '{ n[$2]++; only[$2] += $1 == "only" } END { for (r in n) printf "%5d %5d  %s\n", n[r], only[r], r }' all | sort -rn
[ "$files" = 250 ] || fail "$files examples, expected 250"
[ "$planned" -ge 110 ] || fail "only $planned of Axolotl's examples are imported and planned"
[ "$planned" = "$checked" ] || fail "$((checked - planned)) of the imported jobs have no plan"
end_of_cases
