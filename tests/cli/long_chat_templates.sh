#!/bin/sh
# Every built-in chat template, trained with tokenizers of several kinds: transformers, beside the result and beside an adapter, gives
# conversations and prompts the tokens of the training (chat_templates.py). $NDP_DUMP_PYTHON has transformers (tools/test-python dump).
. "$(dirname "$0")/cases.sh"
python=${NDP_DUMP_PYTHON:-python3}
if ! "$python" -c 'import jinja2, safetensors.torch, transformers' 2>import.log; then
    echo "$python: $(tail -n 1 import.log): chat templates in transformers are skipped (tools/test-python dump installs what they need)"
    exit 77
fi
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
case_of chat_templates.py
timeout $patience "$python" "$NDP_SOURCE_DIR/tests/cli/chat_templates.py" "$NDP_PROGRAM" >out 2>err || fail "exit code $?"
cases=$((cases + $(grep -c ' have the tokens of the training$' out)))
end_of_cases
