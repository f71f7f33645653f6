#!/bin/sh
# mfu: 6 x parameters x tokens a second over the peak that the run measured, printed and wrote down; of the cores that there
# are, however many ranks share them.
. "$(dirname "$0")/cases.sh"
make_job
parameters=26848 # 258 x 32; in each of 2 layers 2 x 32 x 32 + 2 x 16 x 32 + 3 x 64 x 32 + 2 x 32; and 32
cores=$("$NDP_PROGRAM" env | sed -n 's/^cores *\([0-9]*\) usable.*/\1/p')

# checked RANKS TYPE: the run of that many, one thread each.
checked() {
    printed=$(sed -n 's/^peak: \([0-9.]*\) GFLOP.*/\1/p' out | head -n 1)
    on="$1 threads"
    [ "$1" -le "$cores" ] || on="$1 threads of $cores cores?"
    says out "^peak: [0-9.]+ GFLOP/s in $2 on $on, by multiply-adds in registers$"
    awk -F '[:,]' -v parameters=$parameters -v printed="$printed" '
    function off(a, b) { return a > b ? a / b - 1 : b / a - 1 }
    {
        for (i = 1; i < NF; i += 2) { gsub(/[ "{]/, "", $i); value[$i] = $(i + 1) + 0 }
        if (!(value["mfu"] > 0 && value["mfu"] < 1)) bad = bad " mfu " value["mfu"]
        if (off(value["mfu"], 6 * parameters * value["tokens_per_second"] / value["peak_flops"]) > 2e-5) bad = bad " step " NR # six digits each
        if (value["peak_flops"] < last) bad = bad " a peak that falls"
        last = value["peak_flops"]
        if (NR == 1 && off(1e-9 * last, printed) > 0.06 / printed) bad = bad " peak " last ", printed " printed
    }
    END { if (bad || NR != 6) { print NR " steps:" bad; exit 1 } }' run/metrics.jsonl >>err || fail "mfu does not recompute"
    rm -rf run
}

for transport in $(transports); do
    for precision in fp32 bf16; do
        run train job.yaml --transport "$transport" --set precision.compute=$precision
        code_is 0
        checked 2 $precision
    done
done
# More ranks than most machines of tests have cores.
run train job.yaml --transport local --set parallelism.dp_shard_size=8 --set parallelism.dp_replicate_size=4 \
    --set batch.global_batch_size=64
code_is 0
checked 32 fp32
# A run that has nothing left to do measures nothing.
run train job.yaml --transport local
code_is 0
lines out 1 '^peak: .* registers$'
run train job.yaml --transport local --resume
code_is 0
lines out 0 '^peak'

end_of_cases
