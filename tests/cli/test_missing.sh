#!/bin/sh
# A file or folder that is named on the command line, or in the job, and is not there: exit code 2, in every command, and one
# message that names it.
. "$(dirname "$0")/cases.sh"
make_job

# missing WORD...: whose arguments name `nowhere`.
missing() {
    run "$@"
    code_is 2
    says err nowhere
    [ ! -s out ] || fail "something on stdout"
}

for command in train plan data "verify --layout tp=2" evaluate; do
    # shellcheck disable=SC2086 # words
    missing $command nowhere.yaml
done
for key in data.files data.tokenizer data.validation_files model.config; do
    missing train job.yaml --transport local --set $key=nowhere.txt
    missing train job.yaml --dry-run --set $key=nowhere.txt
done
# A plan needs no data, and says that the run does.
for key in 'data.files=[text.txt, nowhere.txt]' 'data.files=nowhere/*.txt' 'data.files=[{path: no/where, split: train}]' \
    'data.validation_files=nowhere.txt'; do
    for way in "" "--cluster 1x2:h100-sxm" "--cluster 1x2:h100-sxm --layout dp_shard=2 --layout tp=2" \
        "--cluster 1x2:h100-sxm --search"; do
        # shellcheck disable=SC2086 # words
        run plan job.yaml --set "$key" $way
        code_is 0
        lines out 1 '^planned without data; train refuses the job: .*(nowhere|no/where)'
        # shellcheck disable=SC2086 # words
        run plan job.yaml --set "$key" $way --json
        code_is 0
        lines out 1 '"missing_data": ".*(nowhere|no/where)'
    done
done
run plan job.yaml --set data.files=nowhere.txt --program
lines out 0 'planned without'
run plan job.yaml --cluster 1x2:h100-sxm --set 'data.files=[]'
lines out 1 '^planned without data; .* data.files is empty'
run plan job.yaml --cluster 1x2:h100-sxm
lines out 0 'planned without'
missing data job.yaml --set data.files=nowhere.jsonl
missing data job.yaml --set data.tokenizer=nowhere
missing data job.yaml --set data.chat_template=nowhere.jinja
missing plan job.yaml --set model.config=nowhere.json
missing plan job.yaml --set model.config=null --set model.init=pretrained --set model.path=./nowhere
missing plan job.yaml --cluster nowhere.yaml
missing train job.yaml --hostfile nowhere.txt
missing launch -n 2 --hostfile nowhere.txt -- true
missing topology --hostfile nowhere.txt
missing verify job.yaml --against nowhere

run train job.yaml --transport local --set train.steps=1
code_is 0
missing evaluate --model ./nowhere --data text.txt
missing evaluate --model run/model --data nowhere.txt
missing evaluate --model run/model --adapter ./nowhere --data text.txt
missing generate --model ./nowhere --prompt a
missing generate --model run/model --file nowhere.jsonl
missing generate --model run/model --chat --chat-template nowhere.jinja
make_adapter adapter
missing merge --model ./nowhere --adapter adapter -o new
missing merge --model run/model --adapter ./nowhere -o new
missing tokenize --tokenizer ./nowhere --text a
missing tokenize --tokenizer bytes --file nowhere.txt
missing config import nowhere.yaml
for command in list verify "rm 1" "export -o new"; do
    # shellcheck disable=SC2086 # words
    set -- $command
    part=$1
    shift
    missing checkpoint "$part" nowhere "$@"
done
end_of_cases
