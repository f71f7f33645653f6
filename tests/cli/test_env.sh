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

# Plugins of another version of the interface, 1000: refused with both versions.
interfaces="$NDP_SOURCE_DIR/src/device/cuda/cuda_api.h $NDP_SOURCE_DIR/src/comm/mpi/mpi_api.h"
cuda=$(sed -n 's/.*NDP_CUDA_API_VERSION = \([0-9]*\).*/\1/p' $interfaces)
mpi=$(sed -n 's/.*define NDP_MPI_API_VERSION \([0-9]*\).*/\1/p' $interfaces)
for symbol in ndp_cuda_api_table ndp_mpi_plugin; do
    echo "int $symbol[64] = {1000};" | cc -shared -fPIC -x c - -o "plugins/$(echo $symbol | cut -d _ -f 1,2).so"
done
run env
code_is 0
says out "^GPUs          no CUDA: $work/plugins/ndp_cuda.so has version 1000, but this program needs $cuda; " \
    "^transports .*no MPI: $work/plugins/ndp_mpi.so has version 1000, but this program needs $mpi; "
rm plugins/ndp_cuda.so plugins/ndp_mpi.so

yes 'some text' | head -n 300 >text.txt
run train "$NDP_SOURCE_DIR/examples/quickstart.yaml" --device cuda --set data.files=text.txt \
    --set model.config="$NDP_SOURCE_DIR/examples/quickstart/config.json" --set train.output_dir=run
[ "$code" != 0 ] || fail "it ran"
lines err 1 "no CUDA: looked for $work/plugins/ndp_cuda.so"

end_of_cases
