#!/bin/sh
# docs/a-step.md shows all of a listing, in parts: joined, they are what the program prints, no line left out or twice.
. "${NDP_SOURCE_DIR:?}/tests/cli/cases.sh"
ln -s "$NDP_SOURCE_DIR"/docs "$NDP_SOURCE_DIR"/README.md .
page=docs/a-step.md

# The lines of the output blocks, without their commands.
parts() {
    awk '/^<!-- output/ { block = 1; next }
        block && /^```/ { fence = !fence; if (!fence) block = 0; next }
        fence && (/^\$ / || more) { more = /\\$/; next }
        fence' "$1"
}

run plan docs/a-step/job.yaml --program --rank=2 --ranks-per-node=1
code_is 0
says out '^step program of rank 2 .*: 58 instructions$'
parts $page >"$work/shown"
cmp -s out "$work/shown" || { fail "$page is not the listing"; diff out "$work/shown" | head -n 20; }

# Rank 0 owns no norms, as the page says.
run plan docs/a-step/job.yaml --program --rank=0 --ranks-per-node=1
code_is 0
says out '^step program of rank 0 .*: 52 instructions$'
end_of_cases
