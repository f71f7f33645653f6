#!/bin/sh
# Folders of models of several parts, as transformers writes and loads them: runs, exports, adapters and merges of each
# (tests/golden/check_folders.py). $NDP_DUMP_PYTHON has PEFT (tools/test-python dump).
. "$(dirname "$0")/cases.sh"
python=${NDP_DUMP_PYTHON:-python3}
if ! "$python" -c 'import peft, safetensors, torch, transformers' 2>import.log; then
    echo "$python: $(tail -n 1 import.log): models of several parts are skipped (tools/test-python dump installs what they need)"
    exit 77
fi
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 PYTHONDONTWRITEBYTECODE=1
case_of check_folders.py
timeout $patience "$python" "$NDP_SOURCE_DIR/tests/golden/check_folders.py" "$NDP_PROGRAM" >out 2>err || fail "exit code $?"
cases=$((cases + $(grep -c 'loss off by' out)))
end_of_cases
