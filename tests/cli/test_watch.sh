#!/bin/sh
# watch: rows in a pipe, the screen in a file and on a terminal that is resized, the server and its clients, what is refused.
. "$(dirname "$0")/cases.sh"
make_job
head -n 20 text.txt >notes.txt
export LC_ALL=C.UTF-8
patience=120
keys="--set data.validation_files=[notes.txt] --set train.eval_every=2 --transport local"
# shellcheck disable=SC2086 # a list of options
run train job.yaml $keys
code_is 0
grep -E '^ *[0-9]+/6 ' out >log

# Rows of a run that has ended are those of its log.
run watch run
code_is 0
says out '^done: step 6 of 6$'
grep -E '^ *[0-9]+/6 ' out >rows
cut -c 1-60 log >log.cut
cut -c 1-60 rows | diff log.cut - >diff.txt || fail "other rows than the log: $(cat diff.txt)"

# The screen: braille, ASCII, no escape sequences.
run watch run --once
code_is 0
says out '^run  done  step 6 of 6  100.0%$' '^\[█+\]$' '^loss [0-9.]+  eval [0-9.]+  best [0-9.]+ at step [0-9]+ ' '│ *[^ -~]' \
    '^memory [0-9.]+ .iB planned per rank  rank 0 used ' '^ranks 2  dp_shard 2  cpu, local  on ' '^time: compute '
lines out 0 "$(printf '\033')"
awk 'length > 79 * 3' out | grep . && fail "a line is too long"
case_of watch TERM=dumb
TERM=dumb "$NDP_PROGRAM" watch run --once >out 2>err || fail "exit code $?"
says out '^\[#+\]$' '^ +[0-9.]+\|.*\*'
LC_ALL=C "$NDP_PROGRAM" watch run --once >out2 2>err || fail "exit code $?"
cmp -s out out2 || fail "another screen in the locale C"
[ -z "$(LC_ALL=C tr -d ' -~\n' <out)" ] || fail "not ASCII"

# Damaged lines are counted; a run that waits for its first step.
cp -r run damaged
sed -i '2s/.*/nonsense/' damaged/metrics.jsonl
printf '{"step": 9, "lo' >>damaged/metrics.jsonl
run watch damaged
code_is 0
says out '^2 lines of metrics.jsonl left out: damaged$'
mkdir fresh && cp run/job.yaml fresh && : >fresh/metrics.jsonl
run watch fresh --once
code_is 0
says out '^fresh  stopped  step 0 of 6' '^no step is recorded yet$'

# Beside a run, in a pipe: until it ends.
# shellcheck disable=SC2086
"$NDP_PROGRAM" train job.yaml $keys --set train.output_dir=live --set train.steps=1000000 --set train.log_every=5 >train.out 2>&1 &
pid=$!
case_of watch beside a run
within test -s live/metrics.jsonl || fail 'it has not begun'
"$NDP_PROGRAM" watch live >out 2>err &
watcher=$!
within grep -qE '^ *25/1000000 ' out || fail 'no row'
for end in q ^C; do
    python3 "$NDP_SOURCE_DIR/tests/cli/watch_terminal.py" $end live >ended 2>>err || fail "the terminal, ended by $end"
    [ $end = q ] && expected=0 || expected=130
    grep -qx "exit code $expected" ended || fail "$end: $(cat ended)"
done
NO_COLOR=1 python3 "$NDP_SOURCE_DIR/tests/cli/watch_terminal.py" - live $pid >ended 2>>err || fail 'the terminal until the end'
grep -qx "exit code 0" ended || fail "the end of the run: $(cat ended)"
wait $pid
wait $watcher
code=$?
code_is 0
says out '^stopped: step [0-9]+ of 1000000$'

# What is refused.
run watch
refused 'no run folder'
run watch nowhere
refused "'nowhere' is not a run folder: No such file or directory"
run watch .
refused "'.' is not a run folder: there is no './metrics.jsonl'|'.' has a job.yaml, but no metrics.jsonl"
run watch run live
refused 'one run at a time'
run watch run --http-any
refused 'without --http'
run watch run --http 0.0.0.0:0
refused '0.0.0.0 is not a loopback address.*--http-any'
run watch run --http example.com:80
refused "'example.com:80' is no address to serve on"
mkdir none
case_of watch without the plugin
NDP_PLUGIN_DIR=none "$NDP_PROGRAM" watch run --http 0 >out 2>err
code=$?
[ $code != 0 ] || fail 'it served'
says err 'no HTTP server: looked for none/ndp_http.so; install libmicrohttpd'
NDP_PLUGIN_DIR=none "$NDP_PROGRAM" watch run --once >out 2>err || fail 'the screen needs the plugin'

# The server.
if [ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_http.so" ]; then
    case_of watch --http
    "$NDP_PROGRAM" watch damaged --http 0 >out 2>err &
    server=$!
    within grep -q '^metrics: ' out || fail 'it does not serve'
    port=$(sed -n 's|^report: http://127.0.0.1:\([0-9]*\)/$|\1|p' out)
    python3 "$NDP_SOURCE_DIR/tests/cli/watch_clients.py" "$port" damaged >clients.out 2>>err || fail 'its clients'
    "$NDP_PROGRAM" watch run --http "$port" >taken 2>&1
    [ $? = 2 ] && grep -q "cannot serve on 127.0.0.1:$port: Address already in use; give another port" taken || fail "$(cat taken)"
    kill -TERM $server
    wait $server
    code=$?
    code_is 130
    [ ! -s err ] || fail 'something on stderr'
else
    echo "no ndp_http.so, built where libmicrohttpd-dev is: the server is not tested" >&2
fi

end_of_cases
