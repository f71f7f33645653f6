#!/bin/sh
# Files that other programs publish, tests/import/files/published: how many are imported, and how many of those jobs `plan`
# accepts, with the config.json of a tiny model of the published one's type. A file there has what all of its jobs share,
# behind "=", and a line for each: its name, and its keys, which replace shared ones.
. "$(dirname "$0")/cases.sh"
export HF_HOME="$work/hf"
unset HF_HUB_CACHE
. "$NDP_SOURCE_DIR/tests/cli/published.sh"

# job_of LINE: its keys and the shared ones that it does not have, as YAML.
job_of() {
    own=$(echo "$1" | sed 's/^[^ ]* *//')
    echo "$shared" | awk -v own="$own" 'BEGIN { print "{" own } {
        n = split($0, part, /, */)
        for (i = 1; i <= n; i++) {
            key = part[i]; sub(/:.*/, "", key)
            joined = part[i]
            while (gsub(/"/, "\"", joined) % 2 && i < n) joined = joined ", " part[++i]
            if ((", " own) !~ (", " key ":")) printf ", %s\n", joined
        }
    } END { print "}" }'
}

# count PROGRAM IMPORTED OPTION...: at least so many are imported; every other has a reason, and every job a plan.
count() {
    program=$1 least=$2
    shift 2
    imported=0 planned=0 files=0
    shared=$(sed -n 's/^= *//p' "$NDP_SOURCE_DIR/tests/import/files/published/$program")
    grep -v '^[#=]' "$NDP_SOURCE_DIR/tests/import/files/published/$program" >lines
    while read -r line <&3; do
        name=${line%% *} files=$((files + 1))
        job_of "$line" | sed 's/^{,/{/; s/^{\([a-z0-9]*\/[a-z0-9_]*\)$/{/' >their.yaml
        case_of "$program" "$name"
        "$NDP_PROGRAM" config import their.yaml --output job.yaml "$@" >out 2>err
        code=$?
        if [ "$code" != 0 ]; then
            grep -q 'unknown key' err && [ "$name" != tests/invalid_keys ] && fail "an unknown key: $(cat err)"
            grep -qE "'[^']*': |their.yaml:[0-9]+" err || fail "no reason: $(cat err)"
            echo "  $program $name: $(sed -n '1s/^ndparallel: [^ ]* //p' err | cut -c 1-130)"
            continue
        fi
        imported=$((imported + 1))
        config_of "$(type_of "$(sed -nE 's/^  path: "(.*)"$/\1/p' job.yaml | head -n 1)")" >config.json
        [ -s config.json ] || config_of llama >config.json
        if "$NDP_PROGRAM" plan job.yaml --set model.path=null --set model.config=config.json --set data.sequence_length=32 \
            --set adapter.path=null --force-memory >out 2>err; then
            planned=$((planned + 1))
        else
            fail "no plan: $(head -n 3 err)"
        fi
    done 3<lines
    table="$table$(printf '%-14s %5d %9d %8d' "$program" "$files" "$imported" "$planned")
"
    [ "$imported" -ge "$least" ] || fail "$imported of $program's files are imported, expected $least"
}

table=
count llamafactory 32 --ranks 8
count deepspeed 21 --ranks 16 --set batch.global_batch_size=32 --set batch.micro_batch_size=1
count accelerate 14
echo "program        files  imported  planned"
printf %s "$table"
end_of_cases
