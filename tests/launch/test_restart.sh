#!/bin/sh
# Where the ranks of a run start again after a host was lost. In place of mpirun a program that notes how it was called, and
# the first time says what ranks say of a lost host; in place of ssh one that fails for the hosts in `silent`.
. "$(dirname "$0")/../cli/cases.sh"
make_job
mkdir bin
cat >bin/mpirun <<'END'
#!/bin/sh
n=$(($(cat starts) + 1))
echo $n >starts
echo "$*" >words$n
while [ $# -gt 0 ] && [ "$1" != --hostfile ]; do shift; done
cp "$2" hosts$n
[ -e says$n ] || exit 0
cat says$n >&2
exit 1
END
printf '#!/bin/sh\n! grep -qx "$1" silent\n' >bin/agent
chmod +x bin/mpirun bin/agent
export PATH="$PWD/bin:$PATH" OMPI_MCA_plm_rsh_agent="$PWD/bin/agent"
for i in 1 2 3 4; do echo "node-$i slots=2"; done >four
head -n 3 four >three
head -n 2 four >two
silent_host='has shown no sign of life for 30 s: it, or its link, is down'

# lose HOSTFILE ARGUMENT...: four ranks, whose second host is lost.
lose() {
    rm -f words* hosts[0-9] says*
    : >silent
    echo 0 >starts
    echo "ndparallel: rank 0 on node-1: host node-2 (ranks 2-3) $silent_host" >says1
    hosts=$1
    shift
    "${before:-true}"
    run train job.yaml --hostfile "$hosts" --set parallelism.dp_shard_size=4 --set batch.micro_batch_size=1 "$@"
}
# placed N "HOST ...": start N had its ranks there.
placed() {
    [ "$(tr '\n' ' ' <"hosts$1")" = "$2 " ] || fail "start $1 on $(tr '\n' ' ' <"hosts$1")"
    grep -q -- '--map-by seq' "words$1" || fail "start $1 without a map: $(cat "words$1")"
}
started() { [ "$(cat starts)" = "$1" ] || fail "$(cat starts) starts, expected $1"; }

# ---- a spare host ----

lose three --restarts 1
code_is 0
started 2
placed 2 "node-1 node-1 node-3 node-3"
says out '^restart 1 of 1: the ranks ended with code 1; host node-2 is lost: ranks 2-3 start on node-3$'
grep -qE -- ' --resume$' words2 || fail "$(cat words2)"
# The lock of the run knows that these are the same ranks.
launcher() { grep -oE 'NDP_LAUNCHER=[^ ]*' "words$1"; }
[ "$(launcher 1)" = "$(launcher 2 | sed 's/1$/0/')" ] || fail "$(launcher 1) and $(launcher 2)"

# A host that does not answer is lost as well; one that was lost before is not used while others have slots.
twice() { cp says1 says2 && echo node-3 >silent; }
before=twice; lose four --restarts 2
code_is 0
placed 2 "node-1 node-1 node-4 node-4"
placed 3 "node-1 node-1 node-4 node-4"
says out '^restart 1 of 2: .*; hosts node-2, node-3 are lost: ranks 2-3 start on node-4$'

# Two hosts have each named the other: the one that answers is used.
both() {
    echo "ndparallel: rank 2 on node-2: host node-1 (ranks 0-1) $silent_host" >>says1
    echo node-1 >silent
}
before=both; lose three --restarts 1
code_is 0
placed 2 "node-3 node-3 node-2 node-2"

# mpirun names a host as well.
by_mpirun() { printf 'ORTE has lost communication\n  Remote daemon: [[1,0],2] on node node-2\n' >says1; }
before=by_mpirun lose three --restarts 1
placed 2 "node-1 node-1 node-3 node-3"

# Nothing is lost: the ranks start where they were.
none() { echo 'ndparallel: rank 2: it failed' >says1; }
before=none; lose two --restarts 1
code_is 0
says out '^restart 1 of 1: the ranks ended with code 1$'
cmp -s two hosts2 || fail "$(cat hosts2)"
# It was lost, and is back.
lose two --restarts 1
code_is 0
cmp -s two hosts2 || fail "$(cat hosts2)"

# ---- too few slots ----

gone() { echo node-2 >silent; }
before=gone; lose two --restarts 3
code_is 1
started 1
says err '^ndparallel: host node-2 is lost: two has 2 slots left for 4 ranks. Add slots to it, start with --oversubscribe \(two ranks a slot: 4\), or with --elastic \(a layout of fewer ranks\); --resume continues'

before=gone; lose two --restarts 1 --oversubscribe
code_is 0
placed 2 "node-1 node-1 node-1 node-1"
says out '; host node-2 is lost: ranks 2-3 start on node-1, up to two ranks a slot$'

before=gone; lose two --restarts 1 --elastic
code_is 0
placed 2 "node-1 node-1"
says out '; host node-2 is lost; the layout changes for 2 ranks instead of 4: dp_shard 4 -> 2; the global batch stays 4$'
grep -qE -- '-n 2 .* --set train.ranks=2 --set parallelism.dp_shard_size=2 --resume$' words2 || fail "$(cat words2)"

# The data axes change first: 2 of the 3 ranks that are left, as 3 do not divide the batch, and tp stays.
printf 'node-1 slots=3\nnode-2 slots=1\n' >uneven
before=gone; lose uneven --restarts 1 --elastic --set parallelism.dp_shard_size=2 --set parallelism.tp_size=2
code_is 0
says out 'the layout changes for 2 ranks instead of 4: dp_shard 2 -> 1; the global batch stays 4$'
# Where tp has to change, it does.
printf 'node-1 slots=1\nnode-2 slots=3\n' >one_left
before=gone; lose one_left --restarts 1 --elastic --set parallelism.dp_shard_size=2 --set parallelism.tp_size=2
code_is 0
says out 'the layout changes for 1 rank instead of 4: dp_shard 2 -> 1, tp 2 -> 1; '

# Both: first two ranks a slot, which keeps the layout.
before=gone; lose two --restarts 1 --elastic --oversubscribe
code_is 0
placed 2 "node-1 node-1 node-1 node-1"

# ---- refused ----

unstated() { echo node-2 >silent; }
printf 'node-1\nnode-1\nnode-2\nnode-2\n' >lines
before=unstated; lose lines --restarts 1
code_is 1
says err '^ndparallel: host node-2 is lost, and lines:1 does not say how many ranks .node-1. takes: write slots=N'

for option in --elastic --oversubscribe; do
    run train job.yaml $option --hostfile two
    refused "$option needs --restarts N"
    run train job.yaml $option --restarts 1
    refused "$option needs --hostfile: on one host all ranks start again where they were"
done

end_of_cases
