#!/bin/sh
# Each exit code of `ndparallel help --exit-codes`, from a command that ends with it.
. "$(dirname "$0")/cases.sh"
make_job
: >tried

# ends_with ROW CODE: what was run, as the row of the table says.
ends_with() {
    echo "$1" >>tried
    code_is "$2"
}

run env
ends_with 0 0

case_of env, to a full disk
"$NDP_PROGRAM" env >/dev/full 2>err
code=$?
ends_with 1 1

run plan job.yaml --set train.stepz=1
ends_with 2 2

case_of train, and SIGTERM
"$NDP_PROGRAM" train job.yaml --set train.steps=1000000 --transport local >out 2>err &
pid=$!
within grep -qs '"step"' run/metrics.jsonl || fail "it did not begin"
kill -TERM $pid
wait $pid
code=$?
ends_with 130 130
[ -d run/checkpoints ] || fail "no checkpoint was saved"

run launch -n 2 -- sh -c 'kill -9 $$'
ends_with "128 + N" 137

run launch -n 2 -- sh -c 'exit 7'
ends_with "any other" 7

run help --exit-codes
code_is 0
sed -n 's/^| \([0-9a-z][^|]*\) |.*/\1/p' out | grep -v '^exit code$' | LC_ALL=C sort >listed
LC_ALL=C sort -u tried >each
cmp -s listed each || fail "the table has other codes than those above: $(tr '\n' ';' <listed)"
end_of_cases
