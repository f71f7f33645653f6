#!/bin/sh
# `record`: what a run was, as lines, as a section of a model card and as JSON, over several parts and with parts that did not
# end; each field that job, metrics or manifest contradict; and steps of it once more, where data may have changed.
. "$(dirname "$0")/cases.sh"
make_job
printf 'checkpoint: {every: 2, keep: 9}\nschedule: {name: constant}\n' >>job.yaml
train() { run train job.yaml --transport local --set train.log_every=1 --set parallelism.dp_shard_size=1 "$@"; }
value() { sed -n "s/^$1  *//p" out; }

for layout in dp_shard tp; do
    rm -rf run
    train --set parallelism.${layout}_size=2 --set train.steps=4
    code_is 0
    train --set parallelism.${layout}_size=2 --resume
    code_is 0
    run record show run
    code_is 0
    says out '^run  *run: done, step 6 of 6$' '^tokens  *768$' "^layout  *$layout 2$" '^device hours  *0\.[0-9]*$' '^data  *[0-9a-f]{32}' \
        '^result  *checkpoint of step 6, [0-9a-f]{32}$' '^part .* steps 1 to 4, .*: done$' '^part .* steps 5 to 6, .*: done$'
    grep -q differs out && fail 'a field differs'
    [ "$(value 'model FLOPs')" = "$(value 'hardware FLOPs')" ] || fail 'something was computed again'
    model=$(value 'model FLOPs')
    run record verify run
    code_is 0
    says out '^step 3: .*as in the run' '^step 5: .*as in the run'
done

# What is computed again counts for the hardware alone.
cp -r run tp
rm -rf run
train --set train.recompute=block --set parallelism.tp_size=2
run record show run
code_is 0
awk -v a="$(value 'hardware FLOPs')" -v b="$(value 'model FLOPs')" 'BEGIN { exit !(a > 1.1 * b && a < 1.34 * b) }' || fail 'not a third more at most'
[ "$(value 'model FLOPs')" = "$model" ] || fail 'the model has other FLOPs'

# Weights that the checkpoints hold have the hash of what the run began with, also once the folder has others.
cp -r tp/model base
grep -v '^ *config: config.json' job.yaml | sed 's/^model:.*/model: {path: base}/' >tuned.yaml
tune() { run train tuned.yaml --transport local --set parallelism.dp_shard_size=1 "$@"; }
base_of() {
    code_is 0
    run record show run
    says out '^base  *[0-9a-f]{32}$' '^energy, kWh  *([0-9.e+-]+|unknown)$'
    value base
}
mv run first
tune --set train.steps=4
base=$(base_of)
printf '\000' | dd of=base/model.safetensors bs=1 seek=20000 conv=notrunc 2>dd
tune --resume
[ "$(base_of)" = "$base" ] || fail 'the base changed'
[ "$(grep -c '"energy_joules":' run/run.json)" = 2 ] || fail 'a part has no energy'
mv run tuned
tune
[ "$(base_of)" != "$base" ] || fail 'another base has the same hash'
rm -rf run
mv first run

# The other forms.
run record show run --markdown
code_is 0
says out '^## Training record$' '^\| tokens \| 768 \|$'
run record show run --json
code_is 0
says out '^\{"run":"run","state":"done","record":\{.*"differences":\[\]\}$'

# A killed part has what it had at its last checkpoint, and the next one repeats steps.
rm -rf run
train --set train.steps=6
sed -i -e 's/"last_step":6/"last_step":4/' -e 's/"tokens":768/"tokens":512/' -e '/"exit_code"/d' run/run.json
run record show run
code_is 0
says out 'steps 1 to 4, .*: did not end$'

# Fields that something else contradicts.
contradict() { # FILE SED PATTERN
    rm -rf run
    cp -r tp run
    sed -i "$2" run/$1
    run record show run
    code_is 1
    says out "$3"
    run record show run --json
    code_is 1
    says out '"differences":\["'
}
contradict run.json '0,/"tokens":512/s//"tokens":513/' '^differs: tokens: run.json has 769, metrics.jsonl 768$'
contradict run.json 's/"last_step":6/"last_step":5/' '^differs: last_step: run.json has 5, metrics.jsonl 6$'
contradict run.json 's/"tp":2/"tp":4/' '^differs: parallelism.tp_size: run.json has 4, job.yaml 2$'
contradict run.json '/"result"/,/}/s/"hash":"../"hash":"zz/' '^differs: result: run.json has zz.*, the manifest [0-9a-f]{32}$'
contradict run.json '/"hashes"/,/}/s/"data":"../"data":"zz/' '^differs: data: run.json has zz.*, the manifest [0-9a-f]{32}'

# One byte of the data is another.
rm -rf run
cp -r tp run
cp text.txt before.txt
printf x | dd of=text.txt bs=1 seek=1000 conv=notrunc 2>dd
run record verify run
code_is 2
says err 'data.files'
cp before.txt text.txt
run record verify run --steps 3-3
code_is 0

# What cannot be shown.
run record show nowhere
code_is 2
run record show run --json --markdown
code_is 2
rm run/run.json
run record show run
code_is 2
says err 'has no run.json'
run record verify run --steps 99-99
code_is 2
rm -rf run/checkpoints/step-00000002 run/checkpoints/step-00000004
run record verify run
code_is 2
says err 'no two checkpoints'
end_of_cases
