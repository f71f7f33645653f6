#!/bin/sh
# What `env` says about GPUs where the plugin of CUDA is missing, in one line; a job on one is refused with the same words.
. "$(dirname "$0")/cases.sh"
mkdir plugins
export NDP_PLUGIN_DIR="$work/plugins"

run env
code_is 0
says out '^processor  ' '^levels        generic' '^transports  '
lines out 1 CUDA
says out "^GPUs          no CUDA: looked for $work/plugins/ndp_cuda.so; build it with .make cuda."

# Processes: in a name space of their own, below the /proc of another.
says out '^processes     shown by /proc'
if unshare --pid --fork true 2>/dev/null; then
    case_of env in another name space of processes
    unshare --pid --fork "$NDP_PROGRAM" env >out 2>err
    says out '^processes     not shown by /proc'
fi

# A file that is not a plugin.
echo nothing >plugins/ndp_cuda.so
run env
code_is 0
lines out 1 CUDA
says out "^GPUs          no CUDA: $work/plugins/ndp_cuda.so cannot be loaded: .*file too short|invalid ELF"
rm plugins/ndp_cuda.so

yes 'some text' | head -n 300 >text.txt
run train "$NDP_SOURCE_DIR/examples/quickstart.yaml" --device cuda --set data.files=text.txt \
    --set model.config="$NDP_SOURCE_DIR/examples/quickstart/config.json" --set train.output_dir=run
[ "$code" != 0 ] || fail "it ran"
lines err 1 "no CUDA: looked for $work/plugins/ndp_cuda.so"

end_of_cases
