#!/bin/sh
# runs and report on real runs: states, the page's policy and its hash, what is refused.
. "$(dirname "$0")/cases.sh"
make_job
head -n 20 text.txt >notes.txt
train() { run train job.yaml --set "data.validation_files=[notes.txt]" --set train.eval_every=2 --transport local "$@"; code_is 0; }
train --set train.output_dir=runs/a --set checkpoint.every=3
says out '^report: runs/a/report.html$'
says runs/a/report.html '<!doctype html>' 'The run'

# A run that diverges has a page too, and one message; a refused one has none.
run train job.yaml --set train.output_dir=bad --set optimizer.lr=1e30 --transport local
code_is 2
lines err 1 '^ndparallel'
says bad/report.html '1 step was checked, step 2 last'
run train job.yaml --set train.output_dir=none --set optimizer.lr=-1
code_is 2
[ ! -e none/report.html ] || fail "a page about no run"
rm -rf bad
train --set train.output_dir=runs/b --set optimizer.lr=1e-4
cp -r runs/b runs/c
sed -i 's/steps: 6/steps: 60/' runs/c/job.yaml
train --set train.output_dir=early --set train.steps=40 --set optimizer.lr=1e-30 --set train.stop_after=2

# A run that stopped early is done.
run runs early
code_is 0
says out '^early +done +6/40 '

run runs runs
code_is 0
says out '^run +state +step +loss +eval +tokens/s +age$' \
    '^runs/a +done +6/6 +[0-9]\.[0-9]{4} +[0-9]\.[0-9]{4} +[0-9.]+k? +[0-9]+s$' '^runs/c +stopped +6/60 '
lines out 4 '.'

# A lock of another host.
printf '{"host": "elsewhere", "machine_id": "%s", "pid": 1, "start_time": 1, "boot_id": "%s", "pid_namespace": 1, "generation": 0, "counter": 1}\n' \
    0123456789abcdef0123456789abcdef 01234567-89ab-cdef-0123-456789abcdef >runs/b/lock
run runs runs
code_is 0
says out '^runs/b +running\? +6/6 '
rm runs/b/lock
run runs runs/c --json
code_is 0
says out '^\{"runs": \[\{"path": "runs/c", "state": "stopped", "step": 6, "steps": 60, "loss": [0-9.]+, "eval_loss": [0-9.]+, "tokens_per_second": [0-9.]+, "age_seconds": [0-9.]+\}\]\}$'

# While it runs.
"$NDP_PROGRAM" train job.yaml --set train.output_dir=runs/d --set train.steps=1000000 --transport local >out 2>err &
pid=$!
case_of 'runs and report beside a run'
within test -s runs/d/metrics.jsonl || fail 'it has not begun'
"$NDP_PROGRAM" runs runs/d >out 2>>err
says out '^runs/d +running +[0-9]+/1000000 '
"$NDP_PROGRAM" report runs/d >out 2>>err || fail 'no report beside a run'
says out '^report: runs/d/report.html$'
says runs/d/report.html '<td>running</td>'
kill -KILL $pid
wait $pid 2>/dev/null
run runs runs/d
says out '^runs/d +died +[0-9]+/1000000 '

# One run: no script, and a style that the policy allows by its hash.
run report runs/a
code_is 0
page=runs/a/report.html
says $page '<title>a</title>' '<td>done</td>' '6 of 6' 'step-00000006' 'over tokens' 'eval_loss, of held-out data' 'learning rate'
lines $page 0 '<script|style="|https?://[^w]'
python3 - "$page" <<'END' >out 2>err || fail 'the hash of the style is another one: put it into report/page_style.c'
import base64, hashlib, re, sys
from html.parser import HTMLParser
text = open(sys.argv[1], encoding="utf-8").read()
styles = re.findall(r"<style>(.*?)</style>", text, re.S)
digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
print("sha256 of the style:", digest)
assert len(styles) == 1
assert f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:" in text
class Balanced(HTMLParser):
    stack = []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "input", "link"):
            self.stack.append(tag)
    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag
check = Balanced()
check.feed(text)
assert not check.stack, check.stack
END

# Several, one of them with a damaged line.
printf '{"step": 7, "lo' >>runs/c/metrics.jsonl
run report runs/a runs/b runs/c -o all.html
code_is 0
says out '^report: all.html$'
says all.html 'How the jobs differ' '<td>optimizer.lr</td><td>[0-9.]+</td><td>0.0001</td><td>0.0001</td>' \
    '<td>train.steps</td><td>6</td><td>6</td><td>60</td>' 'c: 1 line of metrics.jsonl is damaged and left out'
lines all.html 0 'different models'

run report
refused 'no run folder'
run report runs/a runs/b
refused 'a report of several runs needs -o FILE'
run report runs
refused "'runs' is not a run folder: there is no 'runs/job.yaml'"
run report nowhere
refused "'nowhere' is not a run folder: No such file or directory"
mkdir empty && cp job.yaml empty
run report empty
refused "'empty' has a job.yaml, but no metrics.jsonl and no lock"
run report runs/a -o nowhere/x.html
code_is 1
says err "cannot write 'nowhere/x.html'"
run runs nowhere
refused "cannot list runs in 'nowhere': No such file or directory"
run runs empty
code_is 0
says out "^no runs in 'empty' and 3 levels below it$"

end_of_cases
