#!/bin/sh
# Adapters merged by the program: what it says, what it refuses, and what it leaves. tests/weights/test_merge.c compares
# the numbers with those of PEFT.
. "$(dirname "$0")/cases.sh"
golden=$NDP_SOURCE_DIR/tests/golden

for family in llama-yarn phi3 gpt2; do
    for kind in lora rslora dora; do
        run merge --model "$golden/$family" --adapter "$golden/peft/$family-$kind" -o "$family-$kind"
        code_is 0
        says out "^model: $family-$kind, [0-9]+ tensors merged\$"
        [ ! -s err ] || fail 'something on stderr'
        cmp -s "$golden/$family/config.json" "$family-$kind/config.json" || fail 'another config.json'
        [ -s "$family-$kind/model.safetensors" ] || fail 'no tensors'
    done
done
cmp -s gpt2-lora/model.safetensors gpt2-dora/model.safetensors && fail 'the adapters change nothing'

# The same bytes again, with one thread as with many.
OMP_NUM_THREADS=1 "$NDP_PROGRAM" merge -m "$golden/phi3" -a "$golden/peft/phi3-dora" -o again >out 2>err
cmp -s phi3-dora/model.safetensors again/model.safetensors || fail 'other bytes'

# An adapter that does nothing leaves the model as it was; the folder of a run has it in `adapter`.
make_job
run train job.yaml --transport local --set train.steps=1
code_is 0
make_adapter trained/adapter
run merge -m run/model -a trained -o same
code_is 0
says out '^model: same, 1 tensors merged$'
diff -r run/model same >out 2>err || fail 'the model is another one'
run generate --model same --prompt 'Text' --max-tokens 3 --threads 1
code_is 0

# One line each, and nothing is left.
run merge -m run/model -a trained
refused 'merge needs -o DIR'
run merge -a trained -o new
refused '--model DIR is missing'
run merge -m run/model -o new
refused '--adapter DIR is missing'
run merge -m run/model -a trained -o same
refused "the folder 'same' is not empty, and nothing is overwritten"
run merge -m run -a trained -o new
refused "'run' is the folder of a run; give the model that the adapter was trained on"
run merge -m run/model -a run -o new
refused "'run' has no adapter_config.json: it is the folder of a run that has written none"
run merge -m run/model -a run/model -o new
refused "'run/model' has no adapter_config.json: it is a model, not an adapter"
run merge -m trained/adapter -a trained/adapter -o new
refused "'trained/adapter' is a LoRA adapter .* ndparallel merge --model MODEL --adapter 'trained/adapter' -o FOLDER"
run merge -m run/model -a "$golden/peft/llama-yarn-lora" -o new
refused "lora_A.weight is \[4, 44\], but r 4 and this model need \[4, 64\]: it is an adapter of another base model, llama-yarn"
run merge -m run/model -a "$golden/peft/gpt2-lora" -o new
refused 'belongs to transformer.h.0.attn.c_attn.weight, which the model does not have; the nearest are model'
sed 's/"r": 1/"r": 1, "lora_bias": true/' trained/adapter/adapter_config.json >config && mv config trained/adapter/adapter_config.json
run merge -m run/model -a trained -o new
code_is 1
says err '"lora_bias": true is not supported: B has no bias'
[ ! -e new ] || fail 'a folder was left'
ls -A | grep -q 'tmp-folder' && fail 'a hidden folder was left'
run merge-lora
refused "unknown command 'merge-lora'; use .ndparallel merge."

end_of_cases
