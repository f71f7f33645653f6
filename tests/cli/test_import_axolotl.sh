#!/bin/sh
# Axolotl's own examples, $NDP_TEST_DATA/axolotl/examples: how many are imported, and a table of the reasons of the rest: for
# how many files each is one of the reasons, and for how many the only one.
[ -d "${NDP_TEST_DATA:-/nonexistent}/axolotl/examples" ] || { echo "SKIPPED: no Axolotl examples in NDP_TEST_DATA"; exit 77; }
. "$(dirname "$0")/cases.sh"
export HF_HOME="$work/hf"
unset HF_HUB_CACHE
theirs=$NDP_TEST_DATA/axolotl # the files name others from there

# from_theirs COMMAND...: the program, in their folder.
from_theirs() { (cd "$theirs" && "$NDP_PROGRAM" "$@"); }

# Standard input: messages of refusals. Output: a reason a line, each once.
reasons() {
    grep -oE "'[^']+': .*" | sed -E "s/^'[^']*': //; s/; or --set .*//; s/; did you mean .*//; s/^data sets? .*/data sets/" | sort -u
}

imported=0
files=0
for file in $(cd "$theirs" && grep -lrE '^base_model:' examples | sort); do
    case_of config import "$file"
    files=$((files + 1))
    from_theirs config import "$file" >job.yaml 2>err
    code=$?
    if [ "$code" = 0 ]; then
        imported=$((imported + 1))
        echo "$file" >>imported
        # What was written is a job file.
        "$NDP_PROGRAM" train job.yaml --dry-run >out 2>err
        grep -qE 'job.yaml:[0-9]+:[0-9]+: ' err && fail "the job cannot be read"
        continue
    fi
    code_is 2
    reasons <err >why
    [ -s why ] || sed -n '1s/^ndparallel: [^ ]* //p' err >why
    [ -s why ] || fail "refused without a reason"
    awk -v n="$(wc -l <why)" '{ print (n == 1 ? "only" : "one") "\t" $0 }' why >>all
done

echo "$imported of $files examples are imported:"
sed 's/^/  /' imported
echo "reasons of the others: files that have it, files that have no other"
awk -F '\t' '{ n[$2]++; only[$2] += $1 == "only" } END { for (r in n) printf "%5d %5d  %s\n", n[r], only[r], r }' all | sort -rn
[ "$files" = 250 ] || fail "$files examples, expected 250"
[ "$imported" -ge 21 ] || fail "only $imported of Axolotl's examples are imported"
end_of_cases
