#!/bin/sh
# Files that other programs publish: how many are imported, and of those whose model's family is known how many `plan` accepts, with
# the config.json of a tiny model of the published one's type. A job is wrong where it has no plan, or where a number of the file,
# which agree.awk reads by itself, is another one in the job. Axolotl's are its examples in $NDP_TEST_DATA/axolotl; of the others,
# tests/import/files/published has a file each: what all jobs share, behind "=", and a line for each, its name and its keys, which
# replace shared ones. The table is that of docs/guide/imports.md.
. "$(dirname "$0")/cases.sh"
export HF_HOME="$work/hf"
unset HF_HUB_CACHE
. "$NDP_SOURCE_DIR/tests/cli/published.sh"
published=$NDP_SOURCE_DIR/tests/import/files/published
"$NDP_PROGRAM" config --defaults >defaults.yaml

# job_of LINE: its keys and the shared ones that it does not have, as YAML, a key a line.
job_of() {
    printf '%s\n' "$1" | sed 's/^[^ ]* *//' >own
    printf '%s\n' "$shared" | cat own - | awk '{
        n = split($0, part, /, */)
        for (i = 1; i <= n; i++) {
            entry = part[i]
            while (gsub(/[{[]/, "&", entry) > gsub(/[]}]/, "&", entry) || gsub(/"/, "&", entry) % 2) entry = entry ", " part[++i]
            key = entry; sub(/:.*/, "", key)
            if (entry != "" && !seen[key]++) print entry
        }
    }'
}

# What of the file and of the job has to be the same: theirs=ours.
cat >agree.awk <<'EOF2'
{ sub(/ +#.*/, ""); gsub(/"|'\''/, "") }
kind == "ours" && /^[a-z]/ { section = $1; sub(/:/, "", section) }
kind == "ours" && /^  [a-z_]+: / { key = $1; sub(/:/, "", key); $1 = ""; is[section "." key] = substr($0, 2) }
kind == "theirs" && /^[a-z_]+: *[^ ]/ { key = $1; sub(/:.*/, "", key); sub(/^[^:]*: */, ""); gsub(/_/, "", $0); want[key] = $0 }
END {
    data = is["parallelism.dp_replicate_size"] * is["parallelism.dp_shard_size"]
    ranks = data * is["parallelism.cp_size"] * is["parallelism.sp_size"] * is["parallelism.tp_size"] * is["parallelism.pp_size"]
    pairs_of = is["data.format"] == "preference" && is["loss.name"] != "kto" ? 2 : 1
    is["micro"] = is["batch.micro_batch_size"] / pairs_of
    is["accumulation"] = data ? is["batch.global_batch_size"] / is["batch.micro_batch_size"] / data : 0
    is["ranks"] = ranks
    if (want["max_steps"] > 0) { delete want["num_epochs"]; delete want["num_train_epochs"] } else delete want["max_steps"]
    if (want["distributed_type"] == "NO") want["num_processes"] = 1
    if (is["adapter.type"] == "none") { delete want["lora_r"]; delete want["lora_rank"]; delete want["lora_alpha"]; delete want["lora_dropout"] }
    if (want["gradient_accumulation_steps"] == "" && want["micro_batch_size"] != "" && want["batch_size"] == "") want["gradient_accumulation_steps"] = 1
    n = split(same, pair, " ")
    for (i = 1; i <= n; i++) {
        split(pair[i], of, "=")
        w = want[of[1]]
        if (w == "" || w == "null" || w == "auto") continue
        compared++
        d = is[of[2]] - w
        if (w ~ /^[-+.0-9e]+$/ ? (d < 0 ? -d : d) > 1e-9 * w : w != is[of[2]]) print of[1] ": " w ", ours " is[of[2]]
    }
    if (!compared && same != "") print "nothing was compared"
}
EOF2
trainers="learning_rate=optimizer.lr weight_decay=optimizer.weight_decay max_grad_norm=optimizer.max_grad_norm \
gradient_accumulation_steps=accumulation seed=train.seed max_steps=train.steps lora_alpha=adapter.alpha \
lora_dropout=adapter.dropout"

# begin PROGRAM SAME: counts of its files; SAME, for agree.awk.
begin() {
    program=$1 same=$2
    files=0 imported=0 known=0 planned=0 wrong=0
}

# plans JOB: with a model of the published one's type. Families of planned jobs are counted in the file `families`.
plans() {
    type=$(type_of "$(sed -nE 's/^  path: "(.*)"$/\1/p' "$1" | head -n 1)")
    config_of "$type" >config.json
    [ -s config.json ] || config_of llama >config.json
    # Published models have more layers, and heads for 8 ranks of Ulysses and 4 of tensor parallelism.
    ! grep -q '^  sp_size: 8' "$1" ||
        sed -i -E 's/("num_attention_heads": *)[0-9]+/\132/; s/("num_key_value_heads": *)[0-9]+/\18/' config.json
    ! grep -q '^  tp_size: 4' "$1" || sed -i -E 's/("num_key_value_heads": *)[0-9]+/\14/' config.json
    ! grep -q '^  pp_size: 4' "$1" || sed -i -E 's/("num_hidden_layers": *)[0-9]+/\14/' config.json
    "$NDP_PROGRAM" plan "$1" --set model.path=null --set model.config=config.json --set data.sequence_length=32 \
        --set adapter.path=null --force-memory >out 2>err || return 1
    echo "$program ${type:-none}" >>families
}

# judge FILE CODE: an imported job.yaml, or err with a reason.
judge() {
    files=$((files + 1))
    if [ "$2" != 0 ]; then
        grep -qE "'[^']*': |:[0-9]+" err || fail "no reason: $(cat err)"
        return
    fi
    imported=$((imported + 1))
    awk -v same="$same" -f agree.awk kind=ours defaults.yaml kind=ours job.yaml kind=theirs "$1" >differs
    grep -q '^# not checked: whether' job.yaml || known=$((known + 1))
    if [ -s differs ]; then
        wrong=$((wrong + 1))
        fail "$(cat differs)"
    elif grep -q '^# not checked: whether' job.yaml; then
        : # the type of its model is not known
    elif plans job.yaml; then
        planned=$((planned + 1))
    else
        wrong=$((wrong + 1))
        fail "no plan: $(head -n 3 err)"
    fi
    ! grep -qE 'job.yaml:[0-9]+:[0-9]+: ' err || fail "the job cannot be read"
}

# end IMPORTED PLANNED: at least so many.
end() {
    table="$table$(printf '%-13s %5d %9d %13d %8d %6d' "$program" $files $imported $known $planned $wrong)
"
    [ "$imported" -ge "$1" ] || fail "$imported of $program's files are imported, expected $1"
    [ "$planned" -ge "$2" ] || fail "$planned of $program's jobs have a plan, expected $2"
}

# count PROGRAM SAME IMPORTED PLANNED OPTION...: the files of published/PROGRAM.
count() {
    begin "$1" "$2"
    least=$3 of_these=$4
    shift 4
    shared=$(sed -n 's/^= *//p' "$published/$program")
    grep -v '^[#=]' "$published/$program" >lines
    while read -r line <&3; do
        name=${line%% *}
        case_of "$program" "$name"
        job_of "$line" >their.yaml
        "$NDP_PROGRAM" config import their.yaml --output job.yaml "$@" >out 2>err
        code=$?
        if [ "$code" != 0 ]; then
            grep -q 'unknown key' err && [ "$name" != tests/invalid_keys ] && fail "an unknown key: $(cat err)"
            echo "  $program $name: $(sed -n '1s/^ndparallel: [^ ]* //p' err | cut -c 1-130)"
        fi
        judge their.yaml "$code"
    done 3<lines
    end "$least" "$of_these"
}

# Standard input: messages of refusals. Output: a reason a line, each once.
reasons() {
    grep -oE "'[^']+': .*" | sed -E "s/^'[^']*': //; s/; or --set .*//; s/; did you mean .*//; s/^data sets? .*/data sets/" | sort -u
}

# Axolotl's examples, in their folder, which has what they name; and the reasons of those that are not imported: for how many files
# each is one of the reasons, and for how many the only one.
count_axolotl() {
    begin axolotl "micro_batch_size=micro sequence_len=data.sequence_length num_epochs=train.epochs lora_r=adapter.r $trainers"
    for file in $(cd "$theirs" && grep -lrE '^base_model:' examples | sort); do
        case_of axolotl "$file"
        (cd "$theirs" && "$NDP_PROGRAM" config import "$file") >job.yaml 2>err
        code=$?
        [ "$code" -le 2 ] || fail "exit code $code"
        judge "$theirs/$file" "$code"
        [ "$code" != 0 ] || continue
        reasons <err >why
        [ -s why ] || sed -n '1s/^ndparallel: [^ ]* //p' err >why
        awk -v n="$(wc -l <why)" '{ print (n == 1 ? "only" : "one") "\t" $0 }' why >>all
    done
    echo "reasons of Axolotl's others: files that have it, files that have no other"
    awk -F '\t' '{ n[$2]++; only[$2] += $1 == "only" } END { for (r in n) printf "%5d %5d  %s\n", n[r], only[r], r }' all | sort -rn
    [ "$files" = 250 ] || fail "$files examples, expected 250"
    end 128 126
}

table=
: >families
theirs=${NDP_TEST_DATA:-/nonexistent}/axolotl
[ ! -d "$theirs/examples" ] || count_axolotl
count llamafactory "per_device_train_batch_size=micro cutoff_len=data.sequence_length num_train_epochs=train.epochs \
lora_rank=adapter.r $trainers" 40 40 --ranks 8
count deepspeed "" 21 21 --ranks 16 --set batch.global_batch_size=32 --set batch.micro_batch_size=1
count accelerate "num_processes=ranks" 14 14
echo "planned jobs by the model_type of their models:"
sort families | uniq -c | awk '{ of[$2] = of[$2] (of[$2] ? ", " : "") $3 " " $1 } END { for (p in of) print "  " p ": " of[p] }' | sort
echo "program       files  imported  family known  planned  wrong"
printf %s "$table"
case_of the table of docs/guide/imports.md
printf %s "$table" | while read -r row; do
    grep -qxF -- "$row" "$NDP_SOURCE_DIR/docs/guide/imports.md" || echo "$row"
done >differs
[ ! -s differs ] || fail "the page has other rows than: $(cat differs)"
end_of_cases
