# Sourced after tests/cli/cases.sh: runs of the quickstart's job on two kinds of processor, and their losses.

# The program would execute itself again, out of qemu.
export OMP_WAIT_POLICY=passive

take_job() {
    mkdir -p build/quickstart examples
    cp -r "$NDP_SOURCE_DIR/examples/quickstart" "$NDP_SOURCE_DIR/examples/quickstart.yaml" examples
    cp "$NDP_SOURCE_DIR/README.md" build/quickstart/text.txt
}

# job RUN OPTION...: the words of a command that trains into the folder RUN, for 5 steps; $shorter are more options.
shorter=
job() {
    folder=$1
    shift
    echo train examples/quickstart.yaml --transport local --set train.steps=5 --set train.threads=1 --set train.output_dir="$folder" $shorter "$@"
}
# shellcheck disable=SC2046
train() { "$NDP_PROGRAM" $(job "$@") >out 2>err </dev/null; }

loss_of() { sed -n "s/.*\"step\": $2, \"loss\": \([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }

# same_losses RUN OTHER STEP...: within 1e-6.
same_losses() {
    one=$1
    other=$2
    shift 2
    for step in "$@"; do
        a=$(loss_of "$one" "$step") b=$(loss_of "$other" "$step")
        echo "$a $b" | awk -v step="$step" '{ d = $1 - $2; d = d < 0 ? -d : d; printf "step %d: %s and %s differ by %.2g\n", step, $1, $2, d
            exit !(NF == 2 && d <= 1e-6) }' || fail "the losses of step $step are '$a' and '$b'"
    done
}
