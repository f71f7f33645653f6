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

# documented COMMAND: the keys of the object in `out` are those of the command's row in the page. What it has beyond them is
# named there by "and more", or is what another option adds.
documented() {
    python3 - "$1" "$NDP_SOURCE_DIR/docs/guide/json.md" >>err 2>&1 <<'EOF' || fail "the row of $1 in docs/guide/json.md has other keys"
import json, re, sys
rows = [line.split("|") for line in open(sys.argv[2], encoding="utf-8") if line.startswith("| `")]
row = next(r[2] for r in rows if f"`{sys.argv[1]}`" in r[1])
known, keys = set(re.findall(r"`([a-z_]+)`", row)), set(json.load(open("out", encoding="utf-8")))
assert keys <= known or "and more" in row, keys - known
EOF
}

# value EXPRESSION TEXT: of the object `o` in `out`, in Python.
value() {
    got=$(python3 -c 'import json, sys; o = json.load(open("out", encoding="utf-8")); print(eval(sys.argv[1]))' "$1" 2>>err)
    [ "$got" = "$2" ] || fail "$1 is '$got', expected '$2'"
}

# refused_as_json CODE PATTERN: one object on stderr, and nothing on stdout.
refused_as_json() {
    code_is "$1"
    [ ! -s out ] || fail "something on stdout"
    lines err 1 .
    python3 -c 'import json, re, sys
e = json.load(open("err", encoding="utf-8"))
assert list(e) == ["error"], e
assert e["error"]["code"] == int(sys.argv[1]) and re.search(sys.argv[2], e["error"]["message"]), e
assert set(e["error"]) <= {"code", "message", "file", "line", "key", "rank", "at"}, e' "$1" "$2" 2>>err || fail "no error with '$2'"
}

# error EXPRESSION TEXT: of the error `e` in `err`, in Python.
error() {
    got=$(python3 -c 'import json, sys; e = json.load(open("err"))["error"]; print(eval(sys.argv[1]))' "$1" 2>&1)
    [ "$got" = "$2" ] || fail "$1 is '$got', expected '$2'"
}

# ---- plan, train --dry-run ----

plan_keys="model model.type model.layers model.hidden model.heads model.kv_heads model.vocabulary model.parameters
    model.notes
    layout layout.pp layout.dp_replicate layout.dp_shard layout.cp layout.sp layout.tp layout.ep layout.ranks layout.compute
    batch batch.global_batch batch.micro_batch batch.data_ranks batch.accumulation batch.sequence_length
    data missing_data
    rows rows.micro_batch rows.padded rows.rank rows.queries rows.keys rows.residual
    program program.rank program.instructions program.ranks_per_node program.gathers
    memory memory.classes memory.classes.weights memory.classes.master_weights memory.classes.frozen_weights
    memory.classes.gradients memory.classes.optimizer_state memory.classes.activations memory.classes.work memory.classes.data
    memory.sum memory.taken memory.held_out memory.nccl memory.pinned
    node node.ranks node.bytes node.available node.lacks background_saves copy_bytes
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
documented "plan"
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
documented "train --dry-run"
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
# mpirun of Open MPI 5 leaves a save no time.
limit=$(mpirun --version 2>/dev/null | grep -q ') 5' && echo 0 || echo 20)
for set in optimizer.name=adamw optimizer.name=muon train.steps=1 precision.compute=bf16; do
    run plan job.yaml --json --ranks-per-node 1 --set $set
    value 'o["save"]["node_bytes"] * 2 == o["save"]["bytes"], o["save"]["limit"]' "(True, $limit)"
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
    refused_as_json 2 "--json has no ${words%% *}"
done

# ---- env, config ----

run data job.yaml --json --show 1 --set data.cache_dir=cache
code_is 0
keys_are "" "lines sources sources[].source sources[].records sources[].tokens sources[].to_predict sources[].cut
    sources[].left_out sources[].held_out sources[].without_end records records[].source records[].record records[].held_out
    records[].row records[].ids records[].trained"
documented "data"
value 'len(o["records"]), len(o["records"][0]["ids"]) == len(o["records"][0]["trained"])' '(1, True)'

run env --json
code_is 0
keys_are "" "version compiler system processor cores cores.usable cores.online kernels bf16 levels levels.here
    levels.not_here memory memory.bytes
    memory.available huge_pages host host_resolves processes_shown libraries libraries.onednn libraries.json_c libraries.libfyaml
    libraries.pcre2 libraries.utf8proc libraries.xxhash libraries.hwloc_api mpirun transports mpi cuda_lacks gpus"
documented "env"
value '"local" in o["transports"]' True

key_keys="keys keys[].key keys[].type keys[].values keys[].words keys[].low keys[].high keys[].interval keys[].default
    keys[].optimizers keys[].help keys[].read_by keys[].when keys[].on_resume keys[].per_entry"
run config --json
code_is 0
keys_are "keys[].optimizers" "$key_keys" "keys[].optimizers.*"
documented "config"
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
refused_as_json 2 "nosuchkey"
run config --markdown --json
refused_as_json 2 "give one of them"

# ---- checkpoint list, checkpoint verify ----

checkpoint_keys="run checkpoints checkpoints[].name checkpoints[].step checkpoints[].bytes checkpoints[].saved
    checkpoints[].loss checkpoints[].eval_loss checkpoints[].state checkpoints[].damage checkpoints[].seconds verified"
run train job.yaml --transport local --set checkpoint.every=3 --set data.validation_files=text.txt --set train.eval_every=3
code_is 0
run checkpoint list run --json
code_is 0
keys_are "" "$checkpoint_keys"
documented "checkpoint list"
value '[(c["step"], c["state"], c["damage"]) for c in o["checkpoints"]]' "[(6, 'unread', None), (3, 'unread', None)]"
value 'o["verified"]' False
cp out listed
python3 -c 'import json
steps = {m["step"]: m for m in map(json.loads, open("run/metrics.jsonl"))}
for c in json.load(open("listed"))["checkpoints"]:
    m = steps[c["step"]]
    assert (c["loss"], c["eval_loss"]) == (m["loss"], m["eval_loss"]), (c, m)' 2>>err || fail "losses are not those of metrics.jsonl"
run checkpoint verify run --json
code_is 0
keys_are "" "$checkpoint_keys"
documented "checkpoint verify"
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
documented "verify --layout"
value 'o["layouts"][0]["agrees"], o["layouts"][0]["weights"]["bound"]' '(True, None)'

run verify job.yaml --dump dump
code_is 0
run verify job.yaml --against dump --json
code_is 0
keys_are gradients "dump agrees rows length tokens tokens.dump tokens.ours tokens.agrees loss loss.dump loss.ours loss.off
    loss.bound loss.agrees gradients gradients.* gradients.*.off gradients.*.bound gradients.*.agrees weights weights.off
    weights.bound weights.agrees causes"
documented "verify --against"

scores="mean_nll tokens documents bytes divided window stride perplexity bits_per_byte"
files=$(for key in $scores; do printf 'files[].%s ' "$key"; done)
run evaluate --model run/model --data text.txt --json
code_is 0
keys_are "" "$scores files files[].file $files"
documented "evaluate"
printf 'a' >one.txt # nothing to predict
run evaluate --model run/model --data one.txt --json
[ "$code" != 0 ] || value 'o["mean_nll"] is None or o["tokens"] > 0' True

# ---- train ----

rm -rf run
run train job.yaml --json --transport local --set checkpoint.every=3 --set data.validation_files=text.txt --set train.eval_every=3
code_is 0
python3 - >>err 2>&1 <<'EOF' || fail "events are not those of the run"
import json
objects = [json.loads(line) for line in open("out")]
steps = [o for o in objects if "event" not in o]
assert steps == [json.loads(line) for line in open("run/metrics.jsonl")]
events = [o for o in objects if "event" in o]
names = [o["event"] for o in events]
assert names[0] == "start" and names[-1] == "end" and set(names) == {"start", "message", "evaluation", "checkpoint", "end"}
assert [e["step"] for e in events if e["event"] == "checkpoint"] == [3, 6]
assert [e["folder"] for e in events if e["event"] == "checkpoint"][0] == "run/checkpoints/step-00000003"
assert [(e["step"], e["eval_loss"]) for e in events if e["event"] == "evaluation"] == \
    [(m["step"], m["eval_loss"]) for m in steps if "eval_loss" in m]
assert events[-1]["status"] == "done" and events[-1]["step"] == 6 and all(e["time"] > 1e9 for e in events)
EOF
run train job.yaml --json --transport shm
refused_as_json 2 'holds another run'
error 'e["rank"]' 0

# ---- the others ----

run checkpoint export run 3 -o exported --json
code_is 0
keys_are "" folder run step
documented "checkpoint export"
value 'o["folder"], o["step"]' "('exported', 3)"
run checkpoint rm run 3 --json
code_is 0
keys_are "" run removed
documented "checkpoint rm"
value 'o["removed"]' "['3']"
run generate --model run/model --prompt Call --max-tokens 4 --ids --json
code_is 0
keys_are "" text tokens finish ids
documented "generate --prompt"
value 'o["tokens"], len(o["ids"]), o["finish"]' "(4, 4, 'length')"
run tokenize --tokenizer bytes --text ab --json
code_is 0
keys_are "" form texts number
documented "tokenize"
value 'o["form"], o["texts"], o["number"]' "('ids', [[97, 98]], 1)"
run tokenize --tokenizer bytes --text '[97, 98]' --decode --json
value 'o["form"], o["texts"]' "('text', ['ab'])"
make_adapter adapter
run merge --model run/model --adapter adapter -o merged --json
code_is 0
keys_are "" folder model adapter tensors
documented "merge"
run export run --format gguf -o run.gguf --json
code_is 0
keys_are "" file model tensors
documented "export"
run config import "$NDP_SOURCE_DIR/tests/import/files/accelerate_nd.yaml" --json
code_is 0
keys_are "" output job notes
documented "config import"
value '"parallelism" in o["job"], o["output"]' '(True, None)'
[ ! -s err ] || fail "something on stderr"
run record show run --json
value 'sorted(o), o["record"]["parts"][0]["first_step"]' "(['differences', 'record', 'run', 'state'], 1)"
documented "record show"
run doctor --no-steps --json
keys_are "" version time problems data checks checks[].name checks[].state checks[].found checks[].remedy
documented "doctor"
run topology --quick --json
code_is 0
keys_are "" "ranks host host.sockets host.cores host.gpus host.nics host.memory_bytes host.all_alike hosts hosts[].name
    hosts[].ranks hosts[].rack hosts[].alone hosts[].by_all_ranks hosts[].to device device.name device.fp32_flops
    device.bf16_flops device.memory_bandwidth device.call_seconds device.ranks links links.inside links.inside_seconds
    links.nic links.nic_seconds links.between_racks cluster seconds"
documented "topology"
value 'o["ranks"], o["device"]["fp32_flops"]' '(2, None)'

# ---- errors are on stderr alone ----

for command in "plan nowhere.yaml" "checkpoint list nowhere" "checkpoint verify nowhere" "evaluate --model nowhere --data text.txt"; do
    # shellcheck disable=SC2086 # words
    run $command --json
    refused_as_json 2 nowhere
done
printf 'train: {steps: x}\n' >wrong.yaml
run plan wrong.yaml --json
refused_as_json 2 "'train.steps' is 'x'"
error '(e["file"], e["line"], e["key"])' "('wrong.yaml', 1, 'train.steps')"
# A wrong command line too, wherever its --json is.
for command in "plan --json" "plan --ranks x --json job.yaml" "train --nnodes 2 --json job.yaml" "verify --json -Q" "evaluate --what --json"; do
    # shellcheck disable=SC2086 # words
    run $command
    refused_as_json 2 .
done
run train --layouts x --json job.yaml
refused_as_json 2 "--layouts is not an option"
run verify --layouts x --json job.yaml
refused_as_json 2 "did you mean --layout?"
end_of_cases
