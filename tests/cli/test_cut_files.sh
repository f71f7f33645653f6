#!/bin/sh
# A mapped file that another process cuts during a run: the run ends with the file's name, not with a bare signal.
. "$(dirname "$0")/cases.sh"
make_job

# cut_during FILE WHEN ARGUMENT...: runs the program and cuts the file once a line of its output matches.
cut_during() {
    file=$1
    when=$2
    shift 2
    case_of "cut $file, ndparallel" "$@"
    timeout $patience "$NDP_PROGRAM" "$@" >out 2>err </dev/null &
    pid=$!
    until grep -qE "$when" out; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    truncate -s 1000 $file
    wait $pid
    code=$?
}

for transport in $(transports); do
    rm -rf cache run
    cut_during 'cache/ndparallel/*.tokens' '^ *5/' train job.yaml --transport "$transport" --set train.steps=1000000 --set train.log_every=5
    code_is 1
    lines err 1 '^ndparallel: .*\.tokens. was cut from [0-9]+ to 1000 bytes while it was in use; restore it and start again'
    lines err 1 '.'
    # The cache is made again.
    rm -rf run
    run train job.yaml --transport "$transport"
    code_is 0
done

# A text of 128 MB, cut while it is read.
case_of "cut a text, ndparallel tokenize"
yes 'a line of text' | head -c 64000000 >half.txt
printf '\n<|endoftext|>\n' | cat half.txt - half.txt >big.txt
"$NDP_PROGRAM" tokenize --tokenizer bytes --count --file big.txt >out 2>err &
pid=$!
until [ -s out ] || grep -q big.txt /proc/$pid/maps 2>/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
truncate -s 5000 big.txt
wait $pid
code=$?
code_is 1
says err "^ndparallel: 'big.txt' was cut from [0-9]+ to 5000 bytes while it was in use"
lines err 1 '.'
end_of_cases
