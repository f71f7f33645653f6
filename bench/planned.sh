# Sourced by planned_runs.sh and planned_hosts.sh: what is planned beside what `repeats` runs of `program` take.
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
number() { sed -n 's/.*"'"$1"'": *\([0-9.e-]*\).*/\1/p' "$2" | head -n 1; }

# planned_and_measured NAME CLUSTER JOB HOSTFILE OPTION...: a row in the file `row`: seconds planned, the median of the repeats, their
# least and greatest, the error. plan.json and the last run stay. HOSTFILE may be "".
planned_and_measured() {
    name=$1 cluster=$2 job=$3 hosts=$4
    shift 4
    "$program" plan "$job" "$@" --cluster "$cluster" --json >plan.json 2>err || { echo "$name: $(head -n 1 err)"; return 1; }
    for i in $(seq "$repeats"); do
        rm -rf run
        timeout 300 "$program" train "$job" "$@" ${hosts:+--hostfile "$hosts"} >out 2>err </dev/null || { echo "$name: $(tail -n 1 err)" >&2; break; }
        sed -n 's/.*"step_seconds": *\([0-9.e-]*\).*/\1/p' run/metrics.jsonl | tail -n +3 | median
    done | sort -g | awk -v name="$name" -v planned="$(number step_seconds plan.json)" '{ v[NR] = $1 } END { if (NR) { m = v[int((NR + 1) / 2)]
        printf "%-44s %8.4f  %8.4f  %8.4f .. %8.4f  %+6.1f%%\n", name, planned, m, v[1], v[NR], 100 * (planned / m - 1) } }' >row
    [ -s row ]
}
