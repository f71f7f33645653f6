#!/bin/sh
# Links of four hosts: topology finds the rates that tbf sets within 10%, and a trunk as a level, twice alike; each host's link in
# turn at a tenth is named by train within 2 s and by topology; `fail` ends the run with 2 before it reads data; equal links give no
# warning in 50 launches, ten of them beside a load of 8. Prints what the check costs on 2, 8 and 16 ranks.
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../cli/cases.sh"
make_job
printf 'node-%d slots=2\n' 1 2 3 4 >four
job="--set batch.global_batch_size=16 --set parallelism.dp_shard_size=8 --set train.steps=1"

# near VALUE WANTED: within 10%.
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.9 * b && a < 1.1 * b) }'; }
nic() { sed -n 's/.*nics: {[^}]*bandwidth: \([0-9.e+]*\).*/\1/p' "$1"; }
trunk() { sed -n 's/.*core.*oversubscription: \([0-9.e+]*\).*/\1/p' "$1"; }

# ---- topology ----

for rate in 100 200 500; do
    make_hosts 4 2
    shape "${rate}mbit"
    shape_trunk "${rate}mbit"
    for turn in 1 2; do
        run topology --quick --hostfile four -o "$turn.yaml"
        code_is 0
        says out '^racks: node-1, node-2 \| node-3, node-4; between two '
        near "$(nic $turn.yaml)" $((rate * 125000)) || fail "a NIC of $rate Mbit/s: $(nic $turn.yaml)"
        near "$(trunk $turn.yaml)" 2 || fail "a trunk of half: $(trunk $turn.yaml)"
    done
    near "$(nic 1.yaml)" "$(nic 2.yaml)" && near "$(trunk 1.yaml)" "$(trunk 2.yaml)" || fail "two topologies differ"
    echo "topology at $rate Mbit/s: NICs $(nic 1.yaml) and $(nic 2.yaml) bytes/s, oversubscription $(trunk 1.yaml) and $(trunk 2.yaml)"
    unmake_hosts
done

# ---- one slow link ----

make_hosts 4
shape 200mbit
for i in 1 2 3 4; do
    slow_host node-$i 20mbit
    # shellcheck disable=SC2086
    run train job.yaml $job --hostfile four --set train.output_dir=slow$i
    code_is 0
    says err "^warning .rank 0.: .*node-$i.*: [0-9.]+ MB/s, 2 others of its kind [0-9.]+ MB/s; group shard .ranks 0-7.$" \
        "^warning .rank 0.: all 2 links of node-$i are slow"
    lines err 3 '^warning'
    taken=$(sed -n 's/^links: .* measured in \([0-9.]*\) s.*$/\1/p' out)
    awk -v t="$taken" 'BEGIN { exit !(t != "" && t <= 2) }' || fail "measured in '$taken' s"
    echo "node-$i at a tenth: named in $taken s"
    # shellcheck disable=SC2086
    run train job.yaml $job --hostfile four --set train.output_dir=ended$i --set train.check_links=fail --set 'data.files=[missing.txt]'
    code_is 2
    says err "^ndparallel: rank 0: train.check_links: .*node-$i"
    lines err 1 '^ndparallel'
    lines out 0 '^(data|model|step)'
    [ -s ended$i/links.json ] || fail "no links.json"
    run topology --quick --hostfile four
    code_is 0
    says out "^slow: node-$i, whose links pass [0-9.]+ MB/s at best"
    slow_host node-$i 200mbit
done

# ---- equal links ----

# They end with this script, however it ends.
loads=
load() { for _ in 1 2 3 4 5 6 7 8; do timeout 900 sh -c 'while :; do :; done' & loads="$loads $!"; done; }
for i in $(seq 50); do
    [ "$i" != 41 ] || load
    # shellcheck disable=SC2086
    run train job.yaml $job --hostfile four --set train.output_dir=equal$i
    code_is 0
    lines err 0 '^warning'
    sed -n 's/^links: .* measured in \([0-9.]*\) s.*$/\1/p' out >>"$(if [ -n "$loads" ]; then echo loaded; else echo quiet; fi)"
done
# shellcheck disable=SC2086
kill $loads
# shellcheck disable=SC2046
echo "check of equal links, seconds: 40 launches $(sort -g quiet | sed -n '1p;20p;$p' | tr '\n' ' ')(least, median, most), 10 beside a load of 8 $(sort -g loaded | sed -n '1p;5p;$p' | tr '\n' ' ')"

# ---- what it costs ----

cost() {
    ranks=$1
    shift
    for _ in 1 2 3 4 5; do
        rm -rf cost
        run train job.yaml "$@" --set batch.global_batch_size=32 --set train.steps=1 --set train.output_dir=cost
        code_is 0
        sed -n 's/^links: .* measured in \([0-9.]*\) s.*$/\1/p' out
    done | sort -g | sed -n 3p >middle
    echo "check of links on $ranks ranks: $(awk '{ print $1 * 1000 }' middle) ms (median of 5)"
}
printf 'node-%d slots=1\n' 1 2 >two
printf 'node-%d slots=4\n' 1 2 3 4 >sixteen
cost 2 --hostfile two --set parallelism.dp_shard_size=2
cost 8 --hostfile four --set parallelism.dp_shard_size=8
cost 16 --hostfile sixteen --set parallelism.dp_shard_size=8 --set parallelism.dp_replicate_size=2

# An inner axis that crosses hosts while an outer one stays inside.
export OMPI_MCA_rmaps_base_mapping_policy=node
printf 'node-%d slots=2\n' 1 2 >two
run train job.yaml --hostfile two --set parallelism.tp_size=2 --set parallelism.dp_shard_size=2 --set train.steps=1 --set train.output_dir=crossed
code_is 0
says err '^warning .rank 0.: axis tp .2 ranks. crosses hosts while dp_shard .2., outside it, stays inside them: .*--placement best$'
end_of_cases
