#!/bin/sh
# GGUF files of every family as llama.cpp's readers see them (tests/golden/check_gguf.py). $NDP_DUMP_PYTHON has gguf
# (tools/test-python dump); with llama-cpp-python, which compiles llama.cpp, also what that computes from them.
. "$(dirname "$0")/cases.sh"
python=${NDP_DUMP_PYTHON:-python3}
if ! "$python" -c 'import gguf' 2>import.log; then
    echo "$python: $(tail -n 1 import.log): GGUF files are not shown to gguf (tools/test-python dump installs it)"
    exit 77
fi
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 PYTHONDONTWRITEBYTECODE=1
case_of check_gguf.py
timeout $patience "$python" "$NDP_SOURCE_DIR/tests/golden/check_gguf.py" "$NDP_PROGRAM" ${NDP_TEST_DATA:+"$NDP_TEST_DATA"} >out 2>err ||
    fail "exit code $?"
cases=$((cases + $(grep -c 'tensors equal' out)))
end_of_cases
