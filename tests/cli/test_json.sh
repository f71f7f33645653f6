#!/bin/sh
# --json: one line of JSON with these keys. Programs rely on them: a key that is renamed or removed breaks someone's script,
# so a change of the lists below is a decision, not a repair of the test.
. "$(dirname "$0")/cases.sh"
make_job

# keys_are OBJECTS KEY...: those of `out`, with the members of OBJECTS as `*`.
keys_are() {
    objects=$1
    shift
    printf '%s\n' "$@" | tr -s ' \n' '\n' | LC_ALL=C sort -u >wanted
    # shellcheck disable=SC2086 # a list of words
    python3 "$NDP_SOURCE_DIR/tests/cli/json_keys.py" $objects <out >found 2>>err || fail "it is no line of JSON"
    LC_ALL=C sort -u -o found found
    diff wanted found >differ || fail "keys differ (<: missing, >: new): $(grep '^[<>]' differ | tr '\n' ' ')"
}

# value EXPRESSION TEXT: of the object `o` in `out`, in Python.
value() {
    got=$(python3 -c 'import json, sys; o = json.load(open("out", encoding="utf-8")); print(eval(sys.argv[1]))' "$1" 2>>err)
    [ "$got" = "$2" ] || fail "$1 is '$got', expected '$2'"
}

# ---- plan, train --dry-run ----

plan_keys="model model.type model.layers model.hidden model.heads model.kv_heads model.vocabulary model.parameters
    model.notes
    layout layout.pp layout.dp_replicate layout.dp_shard layout.cp layout.sp layout.tp layout.ep layout.ranks layout.compute
    batch batch.global_batch batch.micro_batch batch.data_ranks batch.accumulation batch.sequence_length
    data
    rows rows.micro_batch rows.padded rows.rank rows.queries rows.keys rows.residual
    program program.rank program.instructions program.ranks_per_node program.gathers
    memory memory.classes memory.classes.weights memory.classes.master_weights memory.classes.frozen_weights
    memory.classes.gradients memory.classes.optimizer_state memory.classes.activations memory.classes.work memory.classes.data
    memory.sum memory.taken memory.held_out memory.pinned
    node node.ranks node.bytes node.available node.lacks
    save save.bytes save.node_bytes save.assumed_rate save.seconds save.limit
    sent sent[].group sent[].ranks sent[].bytes sent[].calls sent[].calls[].times sent[].calls[].bytes
    sent[].calls[].operation sent[].calls[].unit sent[].calls[].what sent[].calls[].others sent[].calls[].in_place
    holds holds.samples holds.tokens holds.units holds.heads holds.kv_heads holds.attention holds.ffn holds.vocabulary
    holds.slice holds.slices holds.parameters
    pipeline
    checked checked.ranks checked.all_ranks checked.proof"

run plan job.yaml --json
code_is 0
keys_are "" "$plan_keys"
value 'o["layout"]["dp_shard"]' 2
value 'o["data"], o["pipeline"], o["node"]["lacks"]' '(None, None, None)'
value 'sum(o["memory"]["classes"].values()) == o["memory"]["sum"]' True
value 'o["holds"]["samples"]' '[[0, 1]]'
json_taken=$(python3 -c 'import json; print(json.load(open("out"))["memory"]["taken"])')
run plan job.yaml
says out "^  taken .* $json_taken bytes"

run plan job.yaml --json --set parallelism.pp_size=2 --set parallelism.dp_shard_size=1 --timeline line.svg
code_is 0
keys_are "" "$plan_keys" "pipeline.schedule pipeline.micro_batches pipeline.reshard_after_forward pipeline.reduce_every
    pipeline.ranks pipeline.ranks[].rank pipeline.ranks[].taken pipeline.ranks[].stages pipeline.ranks[].stages[].stage
    pipeline.ranks[].stages[].first pipeline.ranks[].stages[].last pipeline.ranks[].stages[].units"
value '[r["stages"][0]["first"] for r in o["pipeline"]["ranks"]]' "['embed', 'layers.1']"

data_keys="data.train data.train.documents data.train.tokens data.train.predicted data.train.rows data.train.fill
    data.held_out data.head_only data.steps data.lines"
run train job.yaml --dry-run --json
code_is 0
keys_are "" "$plan_keys" "$data_keys"
value 'o["data"]["held_out"], o["data"]["train"]["documents"] > 0' '(None, True)'
run train job.yaml --dry-run --json --set data.validation_files=text.txt
code_is 0
keys_are "" "$plan_keys" "$data_keys" "data.held_out.documents data.held_out.tokens data.held_out.predicted
    data.held_out.rows data.held_out.fill"

# saved: bytes of the tensors in the files of the run's checkpoint.
saved() {
    python3 -c 'import glob, os, struct
print(sum(os.path.getsize(f) - 8 - struct.unpack("<Q", open(f, "rb").read(8))[0] for f in glob.glob("run/checkpoints/*/*.safetensors")))'
}
for set in optimizer.name=adamw optimizer.name=muon train.steps=1 precision.compute=bf16; do
    run plan job.yaml --json --ranks-per-node 1 --set $set
    value 'o["save"]["node_bytes"] * 2 == o["save"]["bytes"], o["save"]["limit"]' '(True, 20)'
    planned=$(python3 -c 'import json; print(json.load(open("out"))["save"]["bytes"])')
    rm -rf run
    run train job.yaml --transport local --set $set --set train.steps=1
    code_is 0
    [ "$(saved)" = "$planned" ] || fail "a save of $planned bytes was planned, and has $(saved)"
done
rm -rf run

for words in "--program" "--placements layers.0"; do
    # shellcheck disable=SC2086 # two words
    run plan job.yaml --json $words
    refused "--json has no ${words%% *}"
done
run train job.yaml --json
refused '--json needs --dry-run'

# ---- env, config ----

run data job.yaml --json --show 1 --set data.cache_dir=cache
code_is 0
keys_are "" "lines sources sources[].source sources[].records sources[].tokens sources[].to_predict sources[].cut
    sources[].left_out sources[].held_out sources[].without_end records records[].source records[].record records[].held_out
    records[].row records[].ids records[].trained"
value 'len(o["records"]), len(o["records"][0]["ids"]) == len(o["records"][0]["trained"])' '(1, True)'

run env --json
code_is 0
keys_are "" "version compiler system processor cores cores.usable cores.online kernels bf16 levels levels.here
    levels.not_here memory memory.bytes
    memory.available huge_pages host host_resolves libraries libraries.onednn libraries.json_c libraries.libfyaml
    libraries.pcre2 libraries.utf8proc libraries.xxhash libraries.hwloc_api mpirun transports mpi cuda_lacks gpus"
value '"local" in o["transports"]' True

key_keys="keys keys[].key keys[].type keys[].values keys[].words keys[].low keys[].high keys[].interval keys[].default
    keys[].optimizers keys[].help keys[].read_by keys[].when keys[].on_resume keys[].per_entry"
run config --json
code_is 0
keys_are "keys[].optimizers" "$key_keys" "keys[].optimizers.*"
value 'len(o["keys"]) == len(set(k["key"] for k in o["keys"]))' True
"$NDP_PROGRAM" config | grep -c '; default ' >number
value 'len(o["keys"])' "$(cat number)"
run config optimizer.betas --json
code_is 0
keys_are "keys[].optimizers" "$key_keys" "keys[].optimizers.*"
value 'o["keys"][0]["default"], o["keys"][0]["optimizers"]["lion"]' "('[0.9, 0.95]', '[0.9, 0.99]')"
run config train.steps checkpoint --json
code_is 0
value '[k["key"] for k in o["keys"]][:2]' "['train.steps', 'checkpoint.every']"
run config nosuchkey --json
refused "nosuchkey"
run config --markdown --json
refused "give one of them"

# ---- checkpoint list, checkpoint verify ----

checkpoint_keys="run checkpoints checkpoints[].name checkpoints[].step checkpoints[].bytes checkpoints[].saved
    checkpoints[].state checkpoints[].damage checkpoints[].seconds verified"
run train job.yaml --transport local --set checkpoint.every=3
code_is 0
run checkpoint list run --json
code_is 0
keys_are "" "$checkpoint_keys"
value '[(c["step"], c["state"], c["damage"]) for c in o["checkpoints"]]' "[(6, 'unread', None), (3, 'unread', None)]"
value 'o["verified"]' False
run checkpoint verify run --json
code_is 0
keys_are "" "$checkpoint_keys"
value 'o["verified"], o["checkpoints"][0]["state"]' "(True, 'verified')"
# A folder whose name is no UTF-8, with a quote and a control character in it.
odd=$(printf 'r"\\\001\377')
mv run "$odd"
file=$(ls "$odd"/checkpoints/step-00000006/*.safetensors | head -n 1)
printf 'x' | dd of="$file" bs=1 seek=5000 conv=notrunc 2>/dev/null
run checkpoint verify "$odd" --json
code_is 1
keys_are "" "$checkpoint_keys"
value 'o["run"] == "r\"\\\x01\ufffd", o["verified"]' '(True, False)'
value 'o["checkpoints"][0]["state"], "safetensors" in o["checkpoints"][0]["damage"]' "('damaged', True)"
mv "$odd" run

# ---- verify, evaluate ----

distance="off bound where beyond first unit"
verify_keys="steps layouts layouts[].layout layouts[].ranks layouts[].agrees layouts[].seconds layouts[].choices layouts[].flips layouts[].listed layouts[].words"
for measure in tokens first_gradient grad_norm last_gradient loss eval_loss weights flip_gap flip_share; do
    verify_keys="$verify_keys layouts[].$measure"
    for key in $distance; do
        verify_keys="$verify_keys layouts[].$measure.$key"
    done
done
run verify job.yaml --layout dp_shard=2 --steps 1 --json
code_is 0
keys_are "" "$verify_keys"
value 'o["layouts"][0]["agrees"], o["layouts"][0]["weights"]["bound"]' '(True, None)'

run verify job.yaml --dump dump
code_is 0
run verify job.yaml --against dump --json
code_is 0
keys_are gradients "dump agrees rows length tokens tokens.dump tokens.ours tokens.agrees loss loss.dump loss.ours loss.off
    loss.bound loss.agrees gradients gradients.* gradients.*.off gradients.*.bound gradients.*.agrees weights weights.off
    weights.bound weights.agrees causes"

scores="mean_nll tokens documents bytes divided window stride perplexity bits_per_byte"
files=$(for key in $scores; do printf 'files[].%s ' "$key"; done)
run evaluate --model run/model --data text.txt --json
code_is 0
keys_are "" "$scores files files[].file $files"
printf 'a' >one.txt # nothing to predict
run evaluate --model run/model --data one.txt --json
[ "$code" != 0 ] || value 'o["mean_nll"] is None or o["tokens"] > 0' True

# ---- errors are on stderr alone ----

for command in "plan nowhere.yaml" "checkpoint list nowhere" "checkpoint verify nowhere" "evaluate --model nowhere --data text.txt"; do
    # shellcheck disable=SC2086 # words
    run $command --json
    [ "$code" != 0 ] || fail "exit code 0"
    [ ! -s out ] || fail "something on stdout"
    lines err 1 '^ndparallel'
done
end_of_cases
