# Sourced by the scripts of this folder: runs the program in a folder of its own and looks at what it said.
: "${NDP_PROGRAM:?the program, as CTest sets it}" "${NDP_SOURCE_DIR:?}"
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME="$work/cache"
# Seconds after which something is called hung: enough where twenty other processes share two cores.
patience=600
cases=0
failures=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $what: $1"
    sed 's/^/  out: /' out | tail -n 20
    sed 's/^/  err: /' err | tail -n 20
}

# What it is about, for messages and the count. What the last case said is gone: the shell opens `out` of a program in the
# background at any time after this. MPI's own leaks are not ours to find.
case_of() {
    what=$*
    : >out
    : >err
    cases=$((cases + 1))
    case $* in *"--transport mpi"*) export ASAN_OPTIONS=detect_leaks=0 ;; *) unset ASAN_OPTIONS ;; esac
}

# run ARGUMENT...: the program, with the file $input on standard input; leaves $code and the files out and err.
input=/dev/null
run() {
    case_of ndparallel "$@"
    timeout $patience "$NDP_PROGRAM" "$@" >out 2>err <"$input"
    code=$?
}

# within COMMAND...: looks until it is true; false when that seems to hang.
within() {
    gives_up=$(($(date +%s) + patience))
    until "$@"; do
        [ "$(date +%s)" -lt $gives_up ] || return 1
        sleep 0.05
    done
}

code_is() { [ "$code" = "$1" ] || fail "exit code $code, expected $1"; }

# says out|err PATTERN...: an extended regular expression each.
says() {
    file=$1
    shift
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$file" || fail "no '$pattern' in $file"
    done
}

# ours FILE: without what mpirun of Open MPI 5 says of a rank that ended, between two lines of hyphens, and cannot be told to
# keep to itself.
ours() { awk '/^-+$/ && length == 74 { inside = !inside; next } !inside' "$1"; }

# lines FILE N PATTERN: so many lines match.
lines() {
    n=$(ours "$1" | grep -cE -- "$3")
    [ "$n" = "$2" ] || fail "$n lines with '$3' in $1, expected $2"
}

# The user's mistake: refused with 2, in one message with these words, and nothing on stdout.
refused() {
    code_is 2
    says err "$@"
    lines err 1 '^ndparallel'
    [ ! -s out ] || fail "something on stdout"
}

# Counted by tools/run-tests.
end_of_cases() {
    [ "$failures" = 0 ] || { echo "[  FAILED  ] $failures test(s)"; exit 1; }
    echo "[  PASSED  ] $cases test(s)"
    exit 0
}

# A Llama of bytes, random weights, two ranks; it starts whatever memory other processes leave at the moment.
make_job() {
    cat >config.json <<'EOF'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
 "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 258,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 257}
EOF
    cat >job.yaml <<'EOF'
model: {config: config.json, init: random}
data: {files: [text.txt], tokenizer: bytes, sequence_length: 32}
parallelism: {dp_shard_size: 2}
batch: {global_batch_size: 4, micro_batch_size: 2}
train: {steps: 6, output_dir: run, threads: 1, force_memory: true}
EOF
    cp "$NDP_SOURCE_DIR/README.md" text.txt
}

# make_adapter DIR: LoRA of rank 1 for q_proj of the first layer of that Llama, all zeros.
make_adapter() {
    mkdir -p "$1"
    module=base_model.model.model.layers.0.self_attn.q_proj
    header=$(printf '{"%s.lora_A.weight":{"dtype":"F32","shape":[1,32],"data_offsets":[0,128]},"%s.lora_B.weight":{"dtype":"F32","shape":[32,1],"data_offsets":[128,256]}}' $module $module)
    printf '{"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["layers.0.self_attn.q_proj"]}' >"$1/adapter_config.json"
    {
        printf "\\$(printf %o ${#header})\\000\\000\\000\\000\\000\\000\\000%s" "$header"
        head -c 256 /dev/zero
    } >"$1/adapter_model.safetensors"
}

# The ways to run ranks that this machine has.
transports() {
    if command -v mpirun >/dev/null && [ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_mpi.so" ]; then
        echo local shm mpi
    else
        echo local shm
        echo "no mpirun, or no plugin for it: its runs are skipped" >&2
    fi
}
