#!/bin/sh
# precision.weights and precision.states: choices on an axis each and with every optimizer, resumed there and elsewhere, by
# runs with other types, and refused where they do not fit.
. "$(dirname "$0")/cases.sh"
make_job
printf 'precision: {compute: bf16}\ncheckpoint: {every: 3, keep: 9}\n' >>job.yaml
train() {
    rm -rf run
    [ -z "${from-}" ] || cp -r "$from" run
    run train job.yaml --transport local --set train.threads=1 --set train.log_every=1 --set parallelism.dp_shard_size=1 "$@"
    from=
}
loss() { sed -n 's/^ *6\/6 *\([0-9.]*\) .*/\1/p' out; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; exit !(d < 2e-3 && d > -2e-3) }' || fail "loss '$1', expected '$2'"; }
bytes() { cat run/checkpoints/*/"$1"*.safetensors | wc -c; }
# Half of the bytes, but for the headers and, of 8-bit states, the codes.
halved() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a / b > 0.45 && a / b < 0.65) }' || fail "$1 bytes beside $2"; }

train
code_is 0
weights=$(bytes model) states=$(bytes optimizer)
mv run full
for choice in "fp32 bf16 lion" "bf16 fp32 muon" "bf16 bf16 adamw8bit" "bf16 bf16 adamw"; do
    # shellcheck disable=SC2086
    set -- $choice
    kept="--set precision.weights=$1 --set precision.states=$2 --set optimizer.name=$3"
    # shellcheck disable=SC2086
    train $kept
    code_is 0
    one=$(loss)
    for layout in dp_shard tp pp cp sp dp_replicate; do
        # shellcheck disable=SC2086
        train $kept --set parallelism.${layout}_size=2
        code_is 0
        near "$(loss)" "$one"
    done
done
halved "$(bytes model)" "$weights"
halved "$(bytes optimizer)" "$states"

# The same run in two parts: bit for bit, and near it on another layout.
# shellcheck disable=SC2086
train $kept
mv run whole
cp -r whole half
rm -rf half/checkpoints/step-00000006 half/model
from=half
# shellcheck disable=SC2086
train $kept --resume
code_is 0
cmp -s run/model/model.safetensors whole/model/model.safetensors || fail 'the resumed run has another model'
from=half
# shellcheck disable=SC2086
train $kept --set parallelism.tp_size=2 --resume
code_is 0
near "$(loss)" "$one"

# A checkpoint of other types is refused by both keys, and taken if they are accepted, either way.
from=half
train --resume
code_is 2
says err 'precision.weights' 'precision.states' '--accept'
from=half
train --resume --accept precision.weights --accept precision.states
code_is 0
near "$(loss)" "$one"
rm -rf full/checkpoints/step-00000006 full/model
from=full
# shellcheck disable=SC2086
train $kept --resume --accept precision.weights --accept precision.states
code_is 0
near "$(loss)" "$one"

train --set precision.compute=fp32 --set precision.weights=bf16
code_is 2
says err 'precision.weights is bf16, but kernels compute in another type'

# verify has bounds for moments in bf16, also where all else is fp32.
run verify job.yaml --set precision.compute=fp32 --set precision.states=bf16 --layout dp_shard=2 --layout tp=2 --layout pp=2
code_is 0
says out 'All agree with one rank'

end_of_cases
