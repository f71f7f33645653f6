#!/bin/sh
# What the pages show is what the program prints: all their commands. Counted a block.
: "${NDP_SOURCE_DIR:?}"
out=$("$NDP_SOURCE_DIR/tools/check-readme" 2>&1)
code=$?
echo "$out"
echo "$out" | awk '/^check-readme: / {
    if ($2) printf "[  PASSED  ] %d test(s)\n", $2
    if ($4) printf "[  FAILED  ] %d test(s)\n", $4
    if ($6) printf "[  SKIPPED ] %d test(s)\n", $6
}'
exit $code
