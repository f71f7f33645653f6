#!/bin/sh
# Faults at every place of the program where a call can fail (fault_points/fault_points.c): the call fails, does a part, the
# process is killed there, or the run is stopped (SIGTERM to its parent). Then: the message names the cause, nothing hangs, no signal but ours ends a process, no checkpoint that
# was announced is lost, and the same command, or --resume, ends with the bytes of a run that was left alone.
# A short test draws a few; a long one tries all; NDP_FAULTS=N so many of each job, of NDP_FAULT_JOBS="train-2 merge-1" alone, and of those that
# match NDP_FAULT_LIKE: " 1 12$" is the first reaching of each place without memory, " -1$" are kills, " -3$" stops. NDP_SEED repeats.
. "$(dirname "$0")/cases.sh"
points=${NDP_BUILD_DIR:-$(dirname "$NDP_PROGRAM")}/libfault_points.so
[ -z "${NDP_SANITIZE:-}" ] && [ -e "$points" ] || { echo "skipped: a sanitizer has these calls for itself"; exit 77; }
seed=${NDP_SEED:-$(date +%s)}
echo "NDP_SEED=$seed"
patience=${NDP_FAULT_PATIENCE:-60}
golden=$NDP_SOURCE_DIR/tests/golden

# ---- jobs: what a command starts from, the command, the one after a fault, and the files that it is about ----

layout() { [ "$ranks" = 1 ] && echo "--transport self --set parallelism.dp_shard_size=1" || echo "--transport ${transport:-shm}"; }

# A folder that a job starts from.
prepare() {
    mkdir -p "$1" && cd "$1" || exit 1
    make_job
    head -c 3000 text.txt >held.txt
    sed -i 's/^data: {/data: {cache_dir: cache, /' job.yaml
    printf 'checkpoint: {every: 2, keep: 9}\nschedule: {name: constant}\n' >>job.yaml
    case $1 in
    *train) sed -i 's/^data: {/data: {validation_files: [held.txt], /; s/^train: {/train: {eval_every: 3, /' job.yaml ;;
    *save) sed -i 's/every: 2,/every: 1, async: true,/' job.yaml ;;
    *dpo)
        awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"prompt\": \"%d? \", \"chosen\": \"%d\", \"rejected\": \"no\"}\n", i, i * i }' >pairs.jsonl
        sed -i -e 's/text.txt/pairs.jsonl/' -e 's/^data: {/data: {format: preference, /' job.yaml
        echo 'loss: {name: dpo}' >>job.yaml
        ;;
    *cache)
        awk 'BEGIN { for (i = 1; i <= 90; i++) if (i % 30 == 7) print "{\"text\": \"cut"; else print "{\"text\": \"number " i " of a few\"}" }' >text.jsonl
        mkdir tokenizer
        cp "$golden/tokenizers/trained-bpe.json" tokenizer/tokenizer.json
        sed -i 's/"vocab_size": 258/"vocab_size": 2000/' config.json
        sed -i -e 's/text.txt/text.jsonl/' -e 's/tokenizer: bytes/tokenizer: tokenizer, bad_records: skip/' -e 's/steps: 6/steps: 2/' job.yaml
        ;;
    *import) cp "$NDP_SOURCE_DIR/tests/import/files/axolotl_chat.yaml" axolotl.yaml ;;
    *lora | *merge | *export | *resume) "$NDP_PROGRAM" train job.yaml --transport local --set train.steps=4 >out 2>&1 || exit 1 ;;
    esac
    case $1 in
    *lora | *merge)
        mv run base
        sed -i 's/^model: .*/model: {path: base\/model}/' job.yaml
        echo 'adapter: {type: lora, r: 2, alpha: 4}' >>job.yaml
        ;;
    esac
    case $1 in *merge) "$NDP_PROGRAM" train job.yaml --transport local >out 2>&1 || exit 1 ;; esac
    cd "$work" || exit 1
}

commands() {
    again=
    case $job in
    export) command="checkpoint export run -o made" ;;
    merge) command="merge -m base/model -a run -o made" ;;
    import) command="config import axolotl.yaml --output made" ;;
    resume) command="train job.yaml --resume $(layout)" ;;
    restart) command="train job.yaml --restarts 1 $(layout)" && again=--resume ;;
    *) command="train job.yaml $(layout)" && again=--resume ;;
    esac
}

# What has to be the same, however it came about.
result() {
    [ -e made ] || [ -e run/model ] || [ -e run/adapter ] || echo nothing
    find made run/model run/adapter -type f 2>/dev/null | sort | xargs -r cksum
    case $command in train*) sed 's/, "tokens_per_second.*//' run/metrics.jsonl 2>/dev/null ;; esac
}

# ---- one fault ----

# start FAULT ARGUMENT...: in a copy of what the job starts from.
start() {
    at=$1
    shift
    # shellcheck disable=SC2086
    LD_PRELOAD=$points FAULT_TABLE=$work/table FAULT_AT=$at timeout -k 5 "$patience" "$NDP_PROGRAM" "$@" >out 2>err </dev/null
    code=$?
}

cause() {
    case $how in
    28) echo "No space left on device" ;;
    5) echo "Input/output error|MPI" ;;
    4) echo "Interrupted system call" ;;
    12) echo "memory" ;;
    11) echo "Resource temporarily unavailable" ;;
    *) echo "" ;;
    esac
}

step_of() { sed -n "s/.*$1.*step[ -]0*\([1-9][0-9]*\).*/\1/p" out | tail -n 1; }
left_processes() { grep -lsF "$work/" /proc/[0-9]*/environ 2>/dev/null | while read -r p; do p=${p%/environ}; readlink "$p/exe" 2>/dev/null; done | grep -xE "$NDP_PROGRAM|.*/(orterun|prterun|mpirun)"; }
all_gone() { [ -z "$(left_processes)" ]; }

# After a stop: a step that was made is saved, unless it came after the end. Commands that do not train just end.
judge_stop() {
    case $code-$command in 0-* | 143-[!t]*) return ;; esac
    code_is 130
    lines err 1 '^ndparallel'
    ours err | grep '^ndparallel' | sed 's/[0-9][0-9.]*/N/g' >>"$work/stops"
    steps=$(cat run/metrics.jsonl 2>/dev/null | wc -l)
    newest=$(ls -d run/checkpoints/step-* 2>/dev/null | tail -n 1 | sed 's/.*step-0*//')
    [ "$steps" = "${newest:-0}" ] || fail "$steps steps were made, step ${newest:-0} is saved"
}

# After the fault: what it says.
judge() {
    if [ "$how" = -1 ]; then
        case $role in
        parent) [ $code = 137 ] || [ $code = 0 ] || fail "exit code $code of a process that was killed" ;;
        *)
            if [ "$job" = restart ]; then code_is 0; else
                says err "rank $role .*was killed by signal 9|rank $role"
                [ $code != 0 ] || fail "exit code 0 though rank $role was killed"
            fi
            ;;
        esac
    elif [ "$how" = -3 ]; then
        judge_stop
    elif [ $code = 124 ] || [ $code -gt 128 ]; then
        fail "exit code $code"
    elif [ $code != 0 ]; then
        says err "^ndparallel[a-z ]*: .*($(cause))"
        case $code in 1 | 2 | 7) ;; *) fail "exit code $code" ;; esac
    fi
}

try() {
    rm -rf f "$work/table."*
    cp -r "jobs/$job" f
    cd f || exit 1
    case_of "$job-$ranks${transport:-}: fault $role $key $n $how"
    # shellcheck disable=SC2086
    start "$role $key $n $how" $command
    if [ ! -e "$work/table.fired" ]; then
        missed=$((missed + 1))
        cd "$work" && return
    fi
    injected=$((injected + 1))
    before=$failures
    judge
    saved=$(step_of '^checkpoint:')
    if [ "$code" != 0 ]; then
        ended=$((ended + 1))
        [ "$how" != -1 ] || within all_gone || fail "processes are left"
        cp out out.first
        cp err err.first
        # shellcheck disable=SC2086
        [ -e made ] || timeout -k 5 "$patience" "$NDP_PROGRAM" $command $again >out 2>err </dev/null || fail "the next one ends with $?"
        from=$(step_of '^resume:')
        [ "${saved:-0}" -le "${from:-99}" ] || fail "step $saved was saved, and it goes on from $from"
    fi
    result >results
    # A line of metrics that there was no memory for is lost, and the error says so.
    grep -q '^ndparallel: .* no memory; .* not in it' err.first 2>/dev/null && kept='^{' || kept='^$'
    grep -v "$kept" "$work/whole.$job" >expected
    grep -v "$kept" results >more && mv more results
    # A checkpoint that cannot be read is not used, with a warning.
    grep -q 'is DAMAGED and not used' err || cmp -s results expected || { diff expected results | head -n 5; fail "other results than without a fault"; }
    [ "$failures" = "$before" ] || report
    cd "$work" || exit 1
}

# file:line of a place, and of who called it.
report() {
    od -An -v -tx8 -w32 "$work/table.$role" | awk -v k="$key" '$1 == k { print $2, $3 }' | while read -r place callers; do
        for pc in "${place#????????}" "${callers%????????}" "${callers#????????}"; do echo "$pc"; done |
            xargs addr2line -s -e "$NDP_PROGRAM" | paste -sd' '
        echo "  kind and module: ${place%????????????}"
    done
    for f in out.first err.first; do [ ! -e $f ] || sed "s/^/  $f: /" $f | tail -n 6; done
    [ -z "${NDP_FAULT_KEEP:-}" ] || cp -r . "$NDP_FAULT_KEEP/$job-$ranks-$role-$key-$n-$how"
}

# ---- all of a job ----

# The faults of all places that were reached, by kind of call: first, second, last, and a number at random.
faults() {
    for table in "$work"/table.*; do
        od -An -v -tx8 -w32 "$table" | awk -v role="${table##*.}" -v seed="$seed" -v reached="$work/reached.$job-$ranks$transport" '
function number(hex, i, n) { for (i = 1; i <= length(hex); i++) n = 16 * n + index("123456789abcdef", substr(hex, i, 1)); return n }
BEGIN {
    hows["01"] = "28 5 4 0 -1 -3"; hows["02"] = "5 4 -1 -3"; hows["03"] = "28 5 -1 -3"; hows["04"] = "28 5 4 -1 -3"
    hows["05"] = "5 4 0 -1 -3"; hows["06"] = "12 -1 -3"; hows["07"] = "11 -1 -3"; hows["08"] = "5 -1 -3"
}
$1 !~ /^0+$/ {
    count = number($4)
    print substr($2, 1, 2), role >>reached
    srand(seed % 1000003 + number(substr($1, 11)))
    times = count < 4 ? "1 2 " count : "1 2 " count " " 3 + int(rand() * (count - 3))
    n = split(times, at, " ")
    for (i = split(hows[substr($2, 1, 2)], how, " "); i > 0; i--)
        for (k = 1; k <= n; k++)
            if (at[k] <= count && !seen[$1, how[i], at[k]]++) print role, $1, at[k], how[i]
}'
    done
}

# all_of JOB-RANKS[mpi] MOST
all_of() {
    job=${1%-*}
    ranks=${1#*-}
    transport=${ranks#[12]}
    ranks=${ranks%mpi}
    cd "$work" || exit 1
    from=$job
    [ "$job" != restart ] || from=train
    [ -d "jobs/$job" ] || (prepare "jobs/$from" && [ "$job" = "$from" ] || mv "jobs/$from" "jobs/$job") || exit 1
    commands
    rm -rf f table.*
    cp -r "jobs/$job" f
    cd f || exit 1
    case_of "$1: $command"
    # shellcheck disable=SC2086
    start "" $command
    code_is 0
    result >"$work/whole.$job"
    cd "$work" || exit 1
    faults | grep -E -- "${NDP_FAULT_LIKE:-.}" | awk -v s="$seed" 'BEGIN { srand(s) } { print rand(), $0 }' | sort | cut -d' ' -f2- >"faults.$1"
    all=$(wc -l <"faults.$1")
    injected=0 missed=0 ended=0 before_all=$failures
    head -n "$2" "faults.$1" >drawn
    while read -r role key n how; do try; done <drawn
    echo "$1: $(wc -l <"reached.$job-$ranks$transport") places ($(cut -c1-2 "reached.$job-$ranks$transport" | sort | uniq -c | awk '{ printf "%s%s: %s", s, $2, $1; s = ", " }')), $all faults of them; $injected injected, $ended ended the program, $missed not reached again; $((failures - before_all)) failures"
}

jobs=${NDP_FAULT_JOBS:-"train-1 train-2 save-1 save-2 dpo-1 dpo-2 lora-1 lora-2 resume-1 resume-2 restart-2 cache-1 cache-2 export-1 merge-1 import-1"}
most=${NDP_FAULTS:-1000000}
mkdir jobs
if [ -n "${NDP_TEST_EVERY:-}" ]; then
    jobs=$(echo "$jobs" | tr ' ' '\n' | awk -v s="$seed" 'BEGIN { srand(s) } { print rand(), $0 }' | sort | head -n 1 | cut -d' ' -f2)
    most=${NDP_FAULTS:-4}
fi
for j in $jobs; do all_of "$j" "$most"; done
cd "$work" || exit 1
[ ! -e stops ] || sort stops | uniq -c
end_of_cases
