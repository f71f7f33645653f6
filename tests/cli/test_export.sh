#!/bin/sh
# The model of a checkpoint: exported, it is the folder that a run writes which ends at that step; generate and evaluate
# find in the checkpoint what they find in that folder.
. "$(dirname "$0")/cases.sh"
make_job
cat >gpt2.json <<'EOF'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 258, "n_embd": 32, "n_layer": 2,
 "n_head": 2, "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
EOF
printf '\001\000\002\000\003\000\004\000' >ids.bin
for i in 1 2 3 4 5 6; do cat ids.bin ids.bin >more.bin; mv more.bin ids.bin; done

train() { run train job.yaml --transport local --set schedule.name=constant --set data.files=[text.txt] "$@"; }
same() { diff -r "$1" "$2" >out 2>err || fail "$1 and $2 differ"; }

# way NAME OPTION...: the checkpoints of a run of 6 steps, and runs of 2 and of 6.
way() {
    name=$1
    shift
    train "$@" --set checkpoint.every=2 --set checkpoint.keep=9 --set train.output_dir="$name"
    code_is 0
    train "$@" --set train.steps=2 --set train.output_dir="$name-short"
    code_is 0
    run checkpoint export "$name" 2 -o "$name-2"
    code_is 0
    says out "^model: $name-2, of step 2\$"
    same "$name-2" "$name-short/model"
    run checkpoint export "$name" -o "$name-6"
    code_is 0
    says out "^model: $name-6, of step 6\$"
    same "$name-6" "$name/model"
}
way shard
way tp --set parallelism.tp_size=2 --set parallelism.dp_shard_size=1 --set precision.compute=bf16
way pp --set parallelism.pp_size=2 --set precision.compute=bf16 --set 'model.frozen=[embed, "layers.0"]'
way gpt2 --set model.config=gpt2.json --set precision.compute=bf16
way pretrained --set model.config=null --set model.init=pretrained --set model.path=shard-2 --set data.tokenizer=null
[ -e pretrained-2/tokenizer.json ] || fail 'no tokenizer'
way muon --set optimizer.name=muon --set parallelism.cp_size=2
way codes --set optimizer.name=adamw8bit --set parallelism.dp_shard_size=2
sed 's/"vocab_size": 258/"vocab_size": 300/' config.json >larger.json
way ids --set model.config=larger.json --set data.tokenizer=null --set data.files=[ids.bin]

# From the checkpoint as from the folder, which has the values of the computing type.
for name in shard tp gpt2; do
    for step in 2 6; do
        head -c 700 text.txt >part.txt
        run evaluate --model "$name-$step" --data part.txt --json --threads 1
        code_is 0
        cp out expected
        run evaluate --model "$name" --step "$step" --data part.txt --json --threads 1
        code_is 0
        cmp -s out expected || fail "another result than that of $name-$step"
        run generate --model "$name-$step" --prompt 'Text ' --max-tokens 20 --ids --threads 1
        cp out expected
        run generate --model "$name" --step "$step" --prompt 'Text ' --max-tokens 20 --ids --threads 1
        code_is 0
        cmp -s out expected || fail "another text than that of $name-$step"
    done
done
run generate --model gpt2 --prompt 'Text ' --max-tokens 20 --ids --threads 1
code_is 0
cmp -s out expected || fail 'the newest one is not step 6'

# What is refused, by name; nothing is overwritten or left.
run checkpoint export shard 2 -o shard-2
refused "the folder 'shard-2' is not empty, and nothing is overwritten"
run checkpoint export shard 2 -o job.yaml
refused "'job.yaml' exists and is not a folder"
run checkpoint export shard 3 -o new
refused "there is no checkpoint of step 3 in 'shard/checkpoints'"
run checkpoint export nowhere -o new
refused "'nowhere' is not a run folder: there is no 'nowhere/job.yaml'"
run checkpoint export shard
refused 'export needs -o DIR'
run checkpoint export shard 2 4 -o new
refused "export takes one step"
run checkpoint list shard -o new
refused "-o is not an option; \`ndparallel checkpoint list --help\` lists them"
run generate --model shard-2 --step 2 --prompt x
refused 'step 2 of shard-2: that is the folder of a model, not of a run'
run evaluate job.yaml --step 2
refused '--step needs --model and the folder of a run'
run evaluate job.yaml --model shard-2 --step 2
refused '--step needs --model and the folder of a run'
run evaluate job.yaml --model shard --step 3
refused "there is no checkpoint of step 3 in 'shard/checkpoints'"
run generate --model ids --prompt x
refused 'ids was trained on ids, without a tokenizer'

# The held-out rows of a job, on any layout, from the checkpoint as from the folder; the run's model replaces the job's.
held_out() { run evaluate job.yaml --transport local --set data.files=[text.txt] --set data.validation_files=[part.txt] "$@"; }
for layout in dp_shard_size=2 dp_shard_size=1,tp_size=2 dp_shard_size=1,pp_size=2 dp_shard_size=1,cp_size=2,dp_replicate_size=2; do
    sizes=$(echo "$layout" | sed 's/\([a-z_]*=[0-9]*\),*/ --set parallelism.\1/g')
    for name in shard tp gpt2 pretrained; do
        held_out --model "$name-2" --json --set data.tokenizer=bytes $sizes
        code_is 0
        cp out expected
        held_out --model "$name" --step 2 --json --set data.tokenizer=bytes $sizes
        code_is 0
        cmp -s out expected || fail "$layout: another result than that of $name-2"
    done
done
held_out --model gpt2-6 --set data.tokenizer=bytes
cp out expected
held_out --model gpt2 --set data.tokenizer=bytes
cmp -s out expected || fail 'not the newest checkpoint'
mkdir -p empty/deeper
run checkpoint export shard 2 -o empty/deeper/
code_is 0
same empty/deeper shard-2

# A damaged checkpoint is refused, and passed over when no step is asked for; nothing is renamed.
printf X | dd of=shard/checkpoints/step-00000006/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
for command in 'generate --prompt x --max-tokens 1' 'evaluate --data part.txt'; do
    run $command --model shard --step 6 --threads 1
    refused "the checkpoint of step 6 in 'shard/checkpoints' is damaged: .*model.safetensors"
done
held_out --model shard --step 6 --set parallelism.dp_shard_size=2
refused "the checkpoint of step 6 in 'shard/checkpoints' is damaged: .*model.safetensors"
run checkpoint export shard 6 -o new
refused "the checkpoint of step 6 in 'shard/checkpoints' is damaged"
run checkpoint export shard -o new
code_is 0
says out '^model: new, of step 4$'
says err 'step 6 in .shard/checkpoints. is DAMAGED and not used'
rm -r new
[ -d shard/checkpoints/step-00000006 ] || fail 'the damaged checkpoint was renamed'

# The files that a checkpoint does not have.
mv shard-2 moved
run checkpoint export pretrained -o new
refused 'shard-2 is not a folder .*A checkpoint has only tensors: config\.json and the tokenizer are those that pretrained/job\.yaml names'
mv moved shard-2
mv config.json gone.json
run checkpoint export tp -o new
code_is 2
says err "config\.json.*A checkpoint has only tensors: .* tp/job\.yaml names"
sed 's/"rms_norm_eps": 1e-5/"rms_norm_eps": 1e-6/' gone.json >config.json
run checkpoint export tp -o new
refused 'config\.json belongs to another model than the checkpoint of step 6: model\.norm_eps was 1e-05, now it is 1e-06'
cp gone.json config.json
run checkpoint export pretrained -o new
code_is 0
rm -r new
sed -i 's/<0x41>/<0x__>/' shard-2/tokenizer.json
run checkpoint export pretrained -o new
refused 'the tokenizer belongs to another model than the checkpoint of step 6: data\.tokenizer was '
[ ! -e new ] || fail 'a folder was left'
ls -A | grep -q 'tmp-folder' && fail 'a hidden folder was left'

end_of_cases
