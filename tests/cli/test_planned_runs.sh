#!/bin/sh
# A run beside its plan: the line of train --cluster, on every transport and as an event; plan --anchor with a run's own folder;
# evaluations in the whole run of a plan.
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/steps: 6/steps: 20/' job.yaml
cat >hosts.yaml <<'EOF2'
nodes: 1
node: {device: host, devices: 2, price: 3, power: 400}
devices:
  host: {like: cpu, flops: {fp32: 1.0e12, bf16: 1.0e12}, memory_bytes: 64.0e9, memory_bandwidth: 50.0e9, multiprocessors: 2,
         call_seconds: 1.0e-6}
EOF2

# of_result KEY: of the first entry of results in `out`.
of_result() { python3 -c 'import json, sys; print(json.load(open("out"))["results"][0][sys.argv[1]])' "$1"; }
# near X Y: to 0.6%, what three digits say.
near() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x > 0 && y > 0 && x / y < 1.006 && y / x < 1.006) }' || fail "$1 is not $2"; }
# The losses and the model of the run, which then is gone.
bits() {
    sed 's/, "tokens_per_second.*//' run/metrics.jsonl | cat - run/model/model.safetensors | cksum
    rm -rf run
}

run plan job.yaml --cluster hosts.yaml --json
code_is 0
planned=$(of_result step_seconds)
run train job.yaml
code_is 0
lines out 0 '^plan: '
same=$(bits)
for transport in $(transports); do
    run train job.yaml --cluster hosts.yaml --transport "$transport" --profile
    code_is 0
    lines out 1 '^plan: .{,73}$'
    says out '^plan: [0-9.e-]+ s, measured [0-9.e-]+ s; (matmul|attention|memory_bound|communication|other) differs most, [+-][0-9.e-]+ s$'
    near "$(sed -n 's/^plan: \([^ ]*\) s, .*/\1/p' out)" "$planned"
    median=$(sed '1,5d; s/.*"step_seconds": \([^,]*\),.*/\1/' run/metrics.jsonl | sort -g | sed -n 8p)
    near "$(sed -n 's/^plan: .*measured \([^ ]*\) s.*/\1/p' out)" "$median"
    [ "$(bits)" = "$same" ] || fail "the run has other bits on $transport"
done
run train job.yaml --cluster hosts.yaml --json --trace trace.json
code_is 0
python3 - "$planned" <<'EOF2' 2>>err || fail "the event"
import json, sys
events = [json.loads(line) for line in open("out", encoding="utf-8")]
e, = [e for e in events if e.get("event") == "plan"]
assert list(e) == ["event", "time", "step", "planned_seconds", "measured_seconds", "part", "part_difference", "message"], e
assert e["step"] == 20 and abs(e["planned_seconds"] / float(sys.argv[1]) - 1) < 0.006 and e["measured_seconds"] > 0, e
assert e["part"] and isinstance(e["part_difference"], float), e
EOF2
rm -rf run
# On a cluster that is slow in one way that part differs most, by what the plan has of it.
for slow in 's/1.0e12/1.0e6/g' 's/50.0e9/1.0e5/' 's/call_seconds: 1.0e-6/call_seconds: 1.0/' 's/price: 3/links: {bandwidth: 1.0e3}/'; do
    sed "$slow" hosts.yaml >slow.yaml
    run plan job.yaml --cluster slow.yaml --json
    code_is 0
    cp out plan.json
    run train job.yaml --cluster slow.yaml --profile --json
    code_is 0
    python3 - <<'EOF2' 2>>err || fail "the part: $slow"
import json
t = json.load(open("plan.json"))["results"][0]["time"]
parts = {"matmul": t["matmul"], "attention": t["attention"], "memory_bound": t["memory_bound"] + t["optimizer"],
         "other": t["launch"] + t["fixed"]}
parts["communication"] = sum(t.values()) - sum(parts.values())
e, = [e for e in map(json.loads, open("out", encoding="utf-8")) if e.get("event") == "plan"]
most = max(parts, key=parts.get)
assert parts[most] > 0.1 and e["part"] == most and abs(e["part_difference"] / -parts[most] - 1) < 0.03, (e, parts)
EOF2
    rm -rf run
done
run train job.yaml --cluster hosts.yaml
code_is 0
# 20 steps of this process, not of the run.
run train job.yaml --resume --accept train.steps --set train.steps=39 --cluster hosts.yaml
code_is 0
lines out 0 '^plan: '
run train job.yaml --resume --accept train.steps --set train.steps=59 --cluster hosts.yaml
code_is 0
says out '^plan: [0-9.e-]+ s, measured [0-9.e-]+ s$'

# That run as an anchor: planned by itself, a step takes what was measured.
run plan job.yaml --cluster hosts.yaml --anchor run
code_is 0
says out '^note: the anchor ran on .*; whether those of the cluster are, it does not say \(full_name\)$'
says out '^anchored: run measured [0-9.e-]+ s a step, planned [0-9.e-]+: times are scaled by [0-9.]+$'
run plan job.yaml --cluster hosts.yaml --anchor run --json
code_is 0
near "$(of_result step_seconds)" "$(sed '1,5d; s/.*"step_seconds": \([^,]*\),.*/\1/' run/metrics.jsonl | sort -g | sed -n '27p;28p' | awk '{ s += $1 } END { print s / 2 }')"
run plan job.yaml --cluster hosts.yaml --anchor run --search --set batch.global_batch_size=8
code_is 0
says out '^anchored: run measured' '^ 1  '
fastest=$(sed -n 's|^ *\([0-9.e-]*\) s/step .*|\1|p' out | head -n 1)
run plan job.yaml --cluster hosts.yaml --anchor run --search --set batch.global_batch_size=8 --json
code_is 0
near "$fastest" "$(of_result step_seconds)"
sed 's/"hidden_size": 32/"hidden_size": 64/' config.json >other.json
while read -r words options; do
    # shellcheck disable=SC2086 # a list of words
    run plan job.yaml --anchor run $options
    refused "$(echo "$words" | tr _ ' ')"
done <<'EOF2'
another_model:_its_hidden.size_32,_and_the_job's_64 --cluster hosts.yaml --set model.config=other.json
train.device_cpu,_and_the_job_cuda --cluster 1x2:h100-sxm
measured_on_device_cpu,_and_the_cluster's_devices_are_h100-sxm --cluster 1x2:h100-sxm --device cpu
precision.compute_fp32,_and_the_job_bf16 --cluster hosts.yaml --set precision.compute=bf16
EOF2
# Processors that are measured have this one's name, and the cores that `threads` says.
run plan job.yaml --cluster 1x2:cpu --anchor run --json --set train.threads=1
case $(nproc) in 2 | 3) says out '"note": null' ;; *) says err 'was measured with 1 cores a rank' ;; esac
sed -i 's/"device_name":.*"/"device_name":"Z80"/' run/run.json
run plan job.yaml --cluster 1x2:cpu --anchor run
refused "was measured on 'Z80', and the cluster's devices, cpu, are '"
rm run/job.yaml
run plan job.yaml --cluster hosts.yaml --anchor run
refused "there is no 'run/job.yaml'"
rm -rf run

# Runs of every kind anchor plans of their own job, of other layouts and of a search.
sed 's/LlamaForCausalLM/MixtralForCausalLM/; s/"llama"/"mixtral", "num_local_experts": 4, "num_experts_per_tok": 2/' config.json >mixtral.json
awk '{ gsub(/["\\\t]/, " ") } length($0) > 50 { printf "{\"prompt\": \"%s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n",
    substr($0, 1, 10), substr($0, 11, 10), substr($0, 41, 10) }' text.txt >pairs.jsonl
pairs="data.format=preference data.files=[pairs.jsonl] data.overlong=truncate"
while read -r sets; do
    # shellcheck disable=SC2046,SC2086 # lists of words
    set -- $(printf -- '--set %s ' $sets)
    run train job.yaml "$@" --set train.steps=9
    code_is 0
    median=$(sed '1,5d; s/.*"step_seconds": \([^,]*\),.*/\1/' run/metrics.jsonl | sort -g | sed -n '2p;3p' | awk '{ s += $1 } END { print s / 2 }')
    run plan job.yaml "$@" --cluster hosts.yaml --anchor run --json
    code_is 0
    near "$(of_result step_seconds)" "$median"
    run plan job.yaml "$@" --set train.steps=9 --cluster hosts.yaml --anchor run --layout dp_replicate=2 --json
    code_is 0
    run plan job.yaml "$@" --cluster hosts.yaml --anchor run --search
    code_is 0
    says out '^anchored: run measured' '^ 1  '
    rm -rf run
done <<EOF2
adapter.type=lora adapter.r=4
adapter.type=qlora adapter.r=4
loss.name=dpo $pairs
loss.name=kto $pairs
loss.name=dpo adapter.type=lora adapter.r=4 $pairs
model.config=mixtral.json
model.config=mixtral.json adapter.type=lora adapter.r=4
EOF2
if [ -d "${NDP_TEST_DATA-/none}/models/stories260K" ]; then
    set -- --set model.config=null --set model.init=pretrained --set "model.path=$NDP_TEST_DATA/models/stories260K" --set data.tokenizer=null
    run train job.yaml "$@" --set train.steps=9
    code_is 0
    run plan job.yaml "$@" --cluster hosts.yaml --anchor run --set adapter.type=lora --set adapter.r=4
    code_is 0
    rm -rf run
fi

# Wrong use of a run's cluster: nothing is written.
for cluster in none.yaml 1x1:cpu 1x2:h100-sxm; do
    run train job.yaml --cluster $cluster
    refused 'rank 0: .*([Nn]o such file|1 devices on 1 nodes|are h100-sxm: name one of its own)'
    [ ! -e run ] || fail "it has made a folder"
done
run plan job.yaml --anchor run
code_is 2
says err 'add it'

# Evaluations: 12 and 78 passes of 4 rows after steps 7, 14 and 20.
head -c 1500 text.txt >held.txt
run train job.yaml --dry-run --cluster hosts.yaml --set 'data.validation_files=[held.txt, text.txt]' --set train.eval_every=7
code_is 0
says out '^20 steps, 3 evaluations of [0-9.e-]+ s and 1 save: '
run train job.yaml --dry-run --cluster hosts.yaml --set 'data.validation_files=[held.txt, text.txt]' --set train.eval_every=7 --json
code_is 0
python3 - <<'EOF2' 2>>err || fail "the run"
import json
o = json.load(open("out"))
r, run = o["results"][0], o["results"][0]["run"]
rows = o["data"]["held_out"]["rows"]
near = lambda x, y: abs(x / y - 1) < 1e-9
passes = -(-47 // 4) + -(-(rows - 47) // 4)
assert rows > 300 and run["pass_rows"] == 4 and near(run["evaluation_seconds"], passes * run["pass_seconds"]), run
assert near(run["seconds"], 20 * r["step_seconds"] + 3 * run["evaluation_seconds"] + o["save"]["seconds"]), run
assert near(run["price"], 3 * run["seconds"] / 3600) and near(run["energy"], 400 * run["seconds"]), run
assert (run["steps"], run["tokens"], run["evaluations"], run["saves"]) == (20, 2560, 3, 1), run
EOF2
run plan job.yaml --cluster hosts.yaml --set 'data.validation_files=[held.txt]' --set train.eval_every=7
code_is 0
says out '^20 steps and 1 save: ' '^not counted: 3 evaluations, each [0-9.e-]+ s for every 4 held-out rows$'
# Epochs, where there are data; pairs of stages.
sed 's/steps: 20/epochs: 2/; s/dp_shard_size/pp_size/' job.yaml >epochs.yaml
run train epochs.yaml --dry-run --cluster hosts.yaml --set 'data.validation_files=[held.txt]'
code_is 0
rows=$(sed -n 's/^data: .* \([0-9]*\) rows an epoch,.*/\1/p' out)
says out "^$(((2 * rows + 3) / 4)) steps, 1 evaluation of [0-9.e-]+ s and 1 save: "
run plan epochs.yaml --cluster hosts.yaml --set 'data.validation_files=[held.txt]'
code_is 0
lines out 0 ' saves?: '
head -c 30 text.txt >short.txt # of one row: a pass is as short
run train epochs.yaml --dry-run --cluster hosts.yaml --set 'data.validation_files=[short.txt]' --json
code_is 0
says out '"pass_rows": 2,'
# A pass is the third of a step whose products bound it, without its update.
run plan "$NDP_SOURCE_DIR/examples/llama-8b/job.yaml" --cluster 1x8:h100-sxm --layout dp_shard=8 --set batch.global_batch_size=8 \
    --set train.recompute=none --set data.validation_fraction=0.1 --json \
    --set "model.config=$NDP_SOURCE_DIR/examples/llama-8b/config.json"
code_is 0
python3 - <<'EOF2' 2>>err || fail "a pass"
import json
r = json.load(open("out"))["results"][0]
t, p = r["time"], r["run"]["pass_seconds"]
third = (t["matmul"] + t["attention"] + t["memory_bound"]) / 3
assert 0.9 < (p - t["fixed"]) / third < 1.2, (p, t)
EOF2
end_of_cases
