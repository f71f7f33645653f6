# Sourced by test_first_day.sh and test_first_files.sh: a mistake, the fix that its message names, and the run with it.
. "$(dirname "$0")/cases.sh"
make_job
job=job.yaml
mistakes=0
fix=

# mistake CODE PATTERN ARGUMENT...: `train` with the job refuses, in one message with these words.
mistake() {
    expected=$1
    pattern=$2
    shift 2
    mistakes=$((mistakes + 1))
    run train "$job" --set train.steps=1 --set train.output_dir=never "$@"
    code_is "$expected"
    says err "$pattern"
    lines err 1 '^ndparallel'
    [ ! -s out ] || fail "something on stdout"
}

# take PATTERN: $fix is the group of the pattern in that message.
take() {
    fix=$(sed -nE "s/.*$1.*/\\1/p" err | head -n 1)
    [ -n "$fix" ] || fail "the message names no fix: $1"
}

# works ARGUMENT...: a step of the job with the fix.
works() {
    rm -rf fixed
    run train "$job" --set train.steps=1 --set train.output_dir=fixed "$@"
    code_is 0
    says out '^ *1/1 '
}
