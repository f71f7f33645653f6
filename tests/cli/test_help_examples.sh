#!/bin/sh
# The examples at the end of every --help work: each is run, in a folder that has the files it names.
. "$(dirname "$0")/cases.sh"

mkdir bin
ln -s "$NDP_PROGRAM" bin/ndparallel
export NDP_PLUGIN_DIR="${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}"
PATH=$work/bin:$PATH
make_job
sed -e 's/dp_shard_size: 2/dp_shard_size: auto/' -e 's/output_dir: run,/output_dir: runs\/demo,/' \
    -e 's/^data: {/data: {validation_files: [notes.txt], /' -e 's/global_batch_size: 4/global_batch_size: 16/' job.yaml >job && mv job job.yaml
echo 'checkpoint: {every: 2, keep: 9}' >>job.yaml
head -n 20 text.txt >notes.txt
printf '#!/bin/sh\nexit 0\n' | tee nd_parallel >my_program
chmod +x nd_parallel my_program
cp "$NDP_SOURCE_DIR/tests/import/files/accelerate_nd.yaml" accelerate.yaml

# The commands that others need come first.
run train job.yaml --ranks 1
code_is 0
cp -r runs/demo/model my-model
cp -r runs/demo runs/other
make_adapter runs/lora/adapter
cp "$NDP_SOURCE_DIR"/tests/import/files/axolotl_chat.yaml axolotl.yaml

for command in train plan verify "checkpoint list" "checkpoint verify" "checkpoint export" "checkpoint" merge launch evaluate \
    generate runs report tokenize config "config import" env help "checkpoint rm"; do
    "$NDP_PROGRAM" help $command | sed -n '/^Examples:$/,$ s/^  ndparallel/ndparallel/p' >examples
    [ "$(wc -l <examples)" = 2 ] || { case_of "$command"; fail 'there are not two examples'; }
    while read -r example; do
        case_of "$example"
        rm -rf newest step-2 merged
        rm -rf runs/demo && mkdir -p runs
        cp -r saved runs/demo 2>/dev/null || { "$NDP_PROGRAM" train job.yaml --ranks 1 >/dev/null 2>&1; cp -r runs/demo saved; }
        case $example in "ndparallel train "*) rm -rf runs/demo ;; esac
        cp job.yaml kept.yaml
        sh -c "$example" >out 2>err </dev/null
        code=$?
        code_is 0
        mv kept.yaml job.yaml
    done <examples
done

end_of_cases
