#!/bin/sh
# Mutants of host code that only some layouts reach: which rows a rank reads, and which reference its answers have. No
# program of a step has that, so the placement check passes all of them. Each is found by `verify`, by the check of inputs
# that ranks of one sample must share, or by that of the first step's policy.
set -u
command -v ninja >/dev/null && [ -e "$NDP_BUILD_DIR/build.ninja" ] || { echo "skipped: no ninja" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME="$work/cache"
found=0
tried=0
failed=0

cat >config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
 "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 258,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "initializer_range": 0.2}
END
# Pairs, and held-out rows of which no layout has as many as fill its passes.
awk 'BEGIN { for (i = 0; i < 50; i++) printf "{\"prompt\": \"%d? \", \"chosen\": \"%d, %d\", \"rejected\": \"no: %d\"}\n", i, i, i * i, 7 * i }' >pairs.jsonl
sed 's/.*chosen": "\([^"]*\)".*/{"text": "\1 and \1"}/' pairs.jsonl >texts.jsonl
head -n 13 pairs.jsonl >held-pairs.jsonl
head -n 13 texts.jsonl >held-texts.jsonl
cat >texts.yaml <<'END'
model: {config: config.json}
data: {files: [texts.jsonl], validation_files: [held-texts.jsonl], tokenizer: bytes, sequence_length: 32, packing: false}
batch: {global_batch_size: 16, micro_batch_size: 2}
train: {steps: 2, threads: 1, force_memory: true, transport: local, output_dir: run}
END
sed -e 's/texts.jsonl/pairs.jsonl/g' -e 's/packing: false/format: preference/' texts.yaml >pairs.yaml
echo 'loss: {name: dpo}' >>pairs.yaml
sed 's/^train:/adapter: {type: lora, r: 4, dropout: 0.5}\n&/' texts.yaml >dropout.yaml

# The commands of the build, for a source and a program of our own.
compile=$(ninja -C "$NDP_BUILD_DIR" -t commands CMakeFiles/ndp_rank.dir/src/rank/rows.c.o | tail -n 1 | sed -e 's/ -MD -MT [^ ]* -MF [^ ]*//' -e 's/ -o [^ ]* -c [^ ]*$//')
link=$(ninja -C "$NDP_BUILD_DIR" -t commands ndparallel | tail -n 1)
[ -n "$compile" ] && [ -n "$link" ] || { echo "the build has no such commands"; exit 1; }

# build FILE: a program with this source, in the place of src/FILE.
build() {
    (cd "$NDP_BUILD_DIR" && sh -c "$compile -w -o $work/mutant.o -c $work/mutant.c") >log 2>&1 &&
        (cd "$NDP_BUILD_DIR" && sh -c "$(echo "$link" | sed -e "s| -o ndparallel| $work/mutant.o -o $work/mutant|")") >log 2>&1 ||
        { cat log; exit 1; }
}

sizes() { echo "$1" | sed 's/\([a-z_]*\)=\([0-9]*\),*/ --set parallelism.\1_size=\2/g'; }

# says JOB LAYOUT: what finds it, and how; nothing where all passes.
says() {
    rm -rf run
    # shellcheck disable=SC2046
    ./mutant train "$1.yaml" --set parallelism.dp_shard_size=1 $(sizes "$2") --dry-run >dry 2>&1 && grep -q '^checked:' dry ||
        { echo "the placement check"; return; }
    # shellcheck disable=SC2046
    ./mutant train "$1.yaml" --set parallelism.dp_shard_size=1 $(sizes "$2") >out 2>err || { grep -h '^ndparallel' err | head -n 1; return; }
    ./mutant verify "$1.yaml" --layout "$2" --steps 2 >out 2>err || { grep -h -e disagrees: -e '^ndparallel' out err | head -n 1; return; }
}

# seed NAME FILE SED JOB LAYOUT
seed() {
    tried=$((tried + 1))
    sed -E "$3" "$NDP_SOURCE_DIR/src/$2" >mutant.c
    if cmp -s "$NDP_SOURCE_DIR/src/$2" mutant.c; then
        echo "$1: $2 has no such line any more"
        failed=1
        return
    fi
    build
    rm -rf cache
    how=$(says "$4" "$5")
    case $how in
    '') echo "$1: NOT FOUND" && failed=1 ;;
    'the placement check') echo "$1: found by $how, so it is none of these" && failed=1 ;;
    *) echo "$1: $how" | cut -c 1-200 && found=$((found + 1)) ;;
    esac
}

# Without a bug nothing is found.
cp "$NDP_SOURCE_DIR/src/rank/rows.c" mutant.c
build
for case in texts:dp_shard=2 texts:dp_shard=2,tp=2 texts:pp=2,dp_shard=2 pairs:dp_shard=2,tp=2 pairs:cp=2 pairs:pp=2,dp_shard=2 dropout:dp_shard=2; do
    how=$(says "${case%%:*}" "${case#*:}")
    [ -z "$how" ] || { echo "without a bug, $case: $how"; exit 1; }
done

draw='t->samples \+ ndp_sample_index\(&t->rank.shape, 0, m, data_rank\(t\), j\)'
data='ndp_mesh_group\(&ndp_engine_program\(e\)->opts.step.mesh, NDP_GROUP_DATA\).rank \* micro'
seed 'rows of the first data rank' train/trainer.c "s/$draw/t->samples + ndp_sample_index(\&t->rank.shape, 0, m, 0, j)/" texts dp_shard=2
seed 'rows by the number of the rank' train/trainer.c "s/$draw/t->samples + ndp_sample_index(\&t->rank.shape, 0, m, ndp_comm_rank(t->rank.world) % t->rank.shape.data_ranks, j)/" texts dp_shard=2,tp=2
seed 'dropout of the first data rank' train/trainer.c 's/int64_t sample = ndp_sample_index\(&t->rank.shape, 0, m, data_rank\(t\), j\);/int64_t sample = ndp_sample_index(\&t->rank.shape, 0, m, 0, j);/' dropout dp_shard=2
seed 'rows of a context rank that are not its own' step/engine_host.c 's/int64_t t = ndp_row_cut_at\(&cut, in->extent, i\);/int64_t t = i;/' texts cp=2
seed "another document's reference on other ranks" rank/rows.c 's/= reference_of\(r, d, document\);/= reference_of(r, d, ndp_is_first(r->world) ? document : document ^ 1);/' pairs dp_shard=2
seed "another pair's reference on other ranks" rank/rows.c 's/= reference_of\(r, d, document\);/= reference_of(r, d, ndp_is_first(r->world) ? document : document ^ 2);/' pairs tp=2
seed 'scores in the places of the first data rank' rank/reference.c "s/^( *at = )$data;/\\10;/" pairs dp_shard=2
seed 'scores of all tensor ranks' rank/reference.c 's/ && at\[NDP_TP\] == 0//' pairs dp_shard=2,tp=2
seed 'scores of all context ranks' rank/reference.c 's/at\[NDP_CP\] == 0 && //' pairs cp=2
seed 'scores of a pass whose micro-batches overlap' rank/reference.c 's/at \+= micro \* r->shape.data_ranks;/at += micro;/' pairs pp=2,dp_shard=2
seed 'held-out rows of the first data rank' rank/held_out.c "s/mine = ndp_mesh_group\(\&step->mesh, NDP_GROUP_DATA\).rank \* micro;/mine = 0;/" texts dp_shard=2
seed 'held-out rows of a pass whose micro-batches overlap' rank/held_out.c 's/m\+\+, at \+= micro \* r->shape.data_ranks\)/m++, at += micro)/' texts pp=2,dp_shard=2
seed 'a last pass that is filled up with rows' rank/held_out.c 's/at \+ mine \+ j < end \? at \+ mine \+ j : -1;/(at + mine + j) % ndp_dataset_rows(d);/' texts dp_shard=4
echo "$found of $tried found"
exit $failed
