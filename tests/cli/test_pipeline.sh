#!/bin/sh
# A pipeline writes what one stage writes: checkpoints and models byte for byte, whatever the transport; they load on any
# other layout. Held-out loss, evaluate and verify; and a rank that is killed in the middle of it.
. "$(dirname "$0")/cases.sh"
make_job
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 9/; s/"num_attention_heads": 2, "num_key_value_heads": 1/"num_attention_heads": 4, "num_key_value_heads": 2/' config.json
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' config.json >untied.json
tail -n 40 text.txt >held.txt
cat >job.yaml <<'EOF'
model: {config: untied.json, init: random}
data: {files: [text.txt], validation_files: [held.txt], tokenizer: bytes, sequence_length: 32}
optimizer: {max_grad_norm: 0}
schedule: {name: constant}
batch: {global_batch_size: 8, micro_batch_size: 1}
checkpoint: {every: 2}
train: {steps: 4, output_dir: one, threads: 1}
EOF

# axes AXIS=SIZE...: as options.
axes() { for axis in "$@"; do printf ' --set parallelism.%s_size=%s' "${axis%%=*}" "${axis#*=}"; done; }

# files FOLDER: the names of all files with checksums, but of what says how the run was made. A manifest has the loss and
# the norm of its step, which are sums over the layout, and a hash of all that.
files() {
    (
        cd "$1" || exit
        find . -type f ! -name job.yaml ! -name metrics.jsonl ! -name run.json ! -name report.html ! -name 'lock*' ! -name manifest.json | sort | xargs cksum
        find . -name manifest.json | sort | xargs sed -E 's/, "metrics": *\{[^}]*\}//; /^ *"hash"/d'
    )
}

same_files() {
    files "$1" >expected
    files "$2" >got
    cmp -s expected got || fail "$2 has other files or bytes than $1: $(diff expected got | head -n 4)"
}

# near A B: two numbers, within 1e-6.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && d * d <= 1e-12 * b * b) }' || fail "$1 is not near $2"
}
last_loss() { sed -n '$s/.*"loss": \([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"; }
last_eval() { sed -n '$s/.*"eval_loss": \([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"; }

# ---- the bytes of one stage ----

run train job.yaml --transport local $(axes dp_shard=2) --set parallelism.reduce_every=update
code_is 0
for transport in $(transports); do
    run train job.yaml --transport "$transport" $(axes pp=2 dp_shard=2) --set train.output_dir="$transport"
    code_is 0
    same_files one "$transport"
    near "$(last_loss "$transport")" "$(last_loss one)"
    near "$(last_eval "$transport")" "$(last_eval one)"
done
for schedule in 'pipeline.schedule=zbv' 'pipeline.schedule=interleaved' 'pipeline.stages=[5,1,1,2]'; do
    rm -rf other
    run train job.yaml --transport local $(axes pp=4 dp_shard=2) --set "$schedule" --set train.output_dir=other
    code_is 0
    same_files one other
    near "$(last_eval other)" "$(last_eval one)"
done

# A tied table: its gradient is a sum over two stages, so only steps of size 0 leave the same weights. One stage writes
# it.
still="--set model.config=config.json --set optimizer.lr=0 --set optimizer.weight_decay=0 --set optimizer.name=sgd --set optimizer.momentum=0"
run train job.yaml --transport local $still --set train.output_dir=tied
code_is 0
run train job.yaml --transport local $still $(axes pp=4) --set train.output_dir=tied4
code_is 0
same_files tied tied4
for file in tied4/model tied4/checkpoints/step-00000004; do
    n=$(grep -aoE '"model\.embed_tokens\.weight"' $file/model.safetensors | wc -l)
    [ "$n" = 1 ] || fail "$file has the table $n times"
done
# The model folder, loaded by every stage, and written again.
run train job.yaml --transport local $(axes pp=4) --set model.config= --set model.path=tied4/model --set model.init=pretrained \
    --set optimizer.lr=0 --set optimizer.weight_decay=0 --set train.output_dir=again
code_is 0
cmp -s tied4/model/model.safetensors again/model/model.safetensors || fail "the model has changed"

# ---- checkpoints on other layouts ----

run train job.yaml --transport local $(axes pp=4 dp_shard=2) --set train.output_dir=moved --set train.steps=2
code_is 0
run train job.yaml --transport local $(axes tp=2 cp=2) --set train.output_dir=moved --set train.steps=4 --resume
code_is 0
says out '^resume: from step 2$'
near "$(last_loss moved)" "$(last_loss one)"
run train job.yaml --transport local $(axes pp=4 dp_shard=2) --set train.output_dir=moved --set train.steps=6 --resume
code_is 0
says out '^resume: from step 4$'
run train job.yaml --transport local $(axes dp_shard=2) --set parallelism.reduce_every=update --set train.steps=6 --resume
code_is 0
near "$(last_loss moved)" "$(last_loss one)"
near "$(last_eval moved)" "$(last_eval one)"

# ---- evaluate, verify ----

run evaluate job.yaml --model one/model --json
code_is 0
alone=$(sed -n 's/.*"mean_nll": \([0-9.]*\).*/\1/p' out)
near "$alone" "$(last_eval one)"
for way in 'pp=4' 'pp=2 tp=2' 'pp=2 dp_shard=2 cp=2'; do
    run evaluate job.yaml --model one/model --json $(axes $way) --transport local
    code_is 0
    near "$(sed -n 's/.*"mean_nll": \([0-9.]*\).*/\1/p' out)" "$alone"
done
# Fewer rows than a pass of all micro-batches takes.
echo 'A row.' >row.txt
short="--set data.validation_files=[row.txt] --set model.path=one/model --set model.init=pretrained --set train.steps=1"
run train job.yaml --transport local $short --set model.config= --set train.output_dir=row1
code_is 0
run train job.yaml --transport local $short --set model.config= --set train.output_dir=row4 $(axes pp=4)
code_is 0
near "$(last_eval row4)" "$(last_eval row1)"
run verify job.yaml --layout pp=2,tp=2
code_is 0
says out '^pp=2,tp=2 .* agrees$'
run verify job.yaml --layout pp=4 --set pipeline.schedule=zero_bubble --set pipeline.virtual_stages=2
code_is 0
says out '^pp=4 .* agrees$'

# ---- what is refused ----

run train job.yaml --transport local $(axes pp=4) --set pipeline.schedule=interleaved --set pipeline.virtual_stages=3 --set train.output_dir=no
refused '12 pipeline stages, but the model has 9 layers'
run train job.yaml --transport local $(axes pp=4) --set 'pipeline.stages=[3,3,3]' --set train.output_dir=no
refused 'pipeline\.stages has 3 numbers for 4 stages'

# ---- a rank is killed ----

rank_process() {
    for p in $(grep -lF "$work/endless" /proc/[0-9]*/cmdline); do
        p=$(dirname "$p")
        grep -qzxE "(NDP_RANK|OMPI_COMM_WORLD_RANK)=$1" "$p/environ" && basename "$p"
    done
} 2>/dev/null

some_steps() { [ -e endless/metrics.jsonl ] && [ "$(wc -l <endless/metrics.jsonl)" -gt 1 ]; }

# kill_rank_2 TRANSPORT LAST: steps of many micro-batches, so the rank is in one of them. LAST: the end of the message.
kill_rank_2() {
    case_of ndparallel train, rank 2 of 4 stages killed, "$1"
    rm -rf endless
    "$NDP_PROGRAM" train job.yaml --transport "$1" $(axes pp=4) --set train.output_dir="$work/endless" --set train.steps=1000000 \
        --set checkpoint.every=0 --set batch.global_batch_size=256 >out 2>err </dev/null &
    pid=$!
    within some_steps || fail "no steps"
    victim=$(rank_process 2 | head -n 1)
    [ -n "$victim" ] || fail "no rank 2"
    kill -KILL "$victim"
    wait "$pid"
    code=$?
    code_is 137
    says err "^ndparallel: rank 2 \(process $victim\) $2; its last operation was #[0-9]+ (send output of|recv output of|send gradient from|recv gradient from) stage [123], micro-batch [0-9]+ .* of group pp (for|back)ward"
    [ -z "$(rank_process '[0-9]')" ] || fail "ranks are left"
}

kill_rank_2 shm 'was killed by signal 9 .*'
lines err 1 '.'
case " $(transports) " in
*" mpi "*)
    kill_rank_2 mpi 'has died'
    says err '^ndparallel: rank 2 .process [0-9]+. was killed by signal 9'
    ;;
esac

end_of_cases
