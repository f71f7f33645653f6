#!/bin/sh
# `doctor` on this machine, with a job, and with hosts that a program in place of ssh makes of this one. The rules are in
# tests/launch/test_checkup.c.
. "$(dirname "$0")/cases.sh"
make_job
unset OMP_NUM_THREADS

# This machine may have findings; one without problems ends with 0.
ends_well() {
    if grep -q '^problem ' out; then code_is 1; else code_is 0; fi
    [ ! -s err ] || fail "something on stderr"
}
run doctor
ends_well
for check in processor threads memory swap 'huge pages' /dev/shm Python MPI 'host name' GPUs 'disk of this folder'; do
    says out "^(ok|note|problem) +$check: "
done
for axis in pp dp_replicate dp_shard cp sp tp; do says out "^ok +axis $axis: a step on 2 ranks is that of one rank"; done
says out '^ok +processes by shm: a step on 2 ranks'
# Every finding has its remedy in the next line.
awk '/^(note|problem) / { want = 1; next } want { if ($1 != "->") exit 1; want = 0 } END { exit want }' out || fail "a finding without a remedy"
lines out 0 'axis ep'

run doctor --no-steps --json
ends_well
says out '^\{"version": "[^"]+", "time": [0-9.e+]+, "problems": [0-9]+, "data": null, "checks": \[\{"name": "processor", "state": "(ok|note)"'
lines out 1 .

# ---- faults of this host ----

case_of more threads than cores
OMP_NUM_THREADS=4000 "$NDP_PROGRAM" doctor --no-steps >out 2>err
code=$?
code_is 1
says out '^problem +threads: 1 rank of 4000 threads \(OMP_NUM_THREADS\)' '^ +-> unset OMP_NUM_THREADS'

case_of no Python
NDP_PYTHON=/nowhere/python "$NDP_PROGRAM" doctor --no-steps >out 2>err
says out '^note +Python: /nowhere/python does not run' '^ +-> apt install python3'

case_of no room for files
(ulimit -f 1 && exec "$NDP_PROGRAM" doctor --no-steps 2>&1) | cat >out
says out '^problem +file size: files of at most 512 B can be written' '^problem +disk of this folder: \. cannot be written to: '

case_of a step that cannot be tried
TMPDIR=/nowhere "$NDP_PROGRAM" doctor >out 2>err
code=$?
code_is 1
says out '^problem +axes: no step can be tried: /nowhere/'

# ---- a job ----

run doctor job.yaml --no-steps
says out '^ok +job: its model, data and programs are in order' '^ok +disk of train.output_dir: \.'
[ ! -e run ] || fail "it made the run folder"
run doctor job.yaml --no-steps --set 'data.files=[nowhere.txt]'
code_is 1
says out '^problem +job: .*nowhere.txt'
run doctor job.yaml --no-steps --set train.threads=999
code_is 1
says out '^problem +threads: 2 ranks of 999 threads \(train.threads\)'
sed 's/"hidden_size": 32/"hidden_size": 65536/; s/"intermediate_size": 64/"intermediate_size": 262144/; s/"num_attention_heads": 2/"num_attention_heads": 512/' \
    config.json >huge.json
run doctor job.yaml --no-steps --set model.config=huge.json
code_is 1
says out '^problem +memory of the job: on this host it would be refused: ' '^problem +disk of train.output_dir: .* a checkpoint and the model of this job need more'
run doctor job.yaml --no-steps --set train.what=1
refused 'train.what'
[ "$(id -u)" = 0 ] || { mkdir shut && chmod 500 shut; run doctor job.yaml --no-steps --set train.output_dir=shut/run; code_is 1; says out '^problem +disk of train.output_dir: shut cannot be written to'; }

# ---- hosts ----

# Every host is this one, but: `far` cannot be reached, `bare` has no program, `old` another version, `late` a clock that is
# a minute behind, and `copy` other data.
cat >agent <<END
#!/bin/sh
host=\$1
shift
case \$host in
far) echo "ssh: connect to host far port 22: No route to host" >&2; exit 255 ;;
bare) echo "sh: 1: ndparallel: not found" >&2; exit 127 ;;
old) sh -c "\$*" | sed 's/"version": "/"version": "0.0-/' ;;
late) sh -c "\$*" | awk '{ match(\$0, /"time": [0-9.e+]+/); t = substr(\$0, RSTART + 8, RLENGTH - 8); sub(/"time": [0-9.e+]+/, sprintf("\"time\": %.3f", t - 60)); print }' ;;
copy) mkdir -p "$work/other" && cp "$work"/*.json "$work"/*.yaml "$work/other" && echo other >"$work/other/text.txt"
    cat "$work/text.txt" >>"$work/other/text.txt"
    sh -c "\$(echo "\$*" | sed "s|cd '$work'|cd '$work/other'|")" ;;
*) echo "Welcome to \$host"; sh -c "\$*" ;;
esac
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent="$work/agent"
printf 'near slots=2\n' >one
run doctor job.yaml --no-steps --hostfile one
says out '^ok +near: version: ' '^ok +near: clock: agrees with this host.s within' '^ok +near: data: the same files as here'
printf 'near\nfar\nbare\nold\nlate\ncopy\n' >all
run doctor job.yaml --no-steps --hostfile all
code_is 1
says out '^problem +far: ssh: cannot be reached: exit code 255: ssh: connect to host far' '^ +-> try `ssh far true`' \
    '^problem +bare: ssh: ndparallel does not run there: exit code 127: sh: 1: ndparallel: not found' \
    '^problem +old: version: 0\.0-' '^problem +late: clock: about [56][0-9] s behind this host.s' \
    '^problem +copy: data: other files of the model or the data than here' '^ok +near: data: '
lines out 0 '^problem +near'
run doctor --no-steps --hostfile nowhere
code_is 1
says out '^problem +hostfile: .*nowhere'

end_of_cases
