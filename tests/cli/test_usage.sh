#!/bin/sh
# What the program says to those who do not know it yet.
. "$(dirname "$0")/cases.sh"

run --version
code_is 0
says out '^ndparallel [0-9]+\.[0-9]+\.[0-9]+$'

run --help
code_is 0
for command in train plan verify checkpoint merge launch evaluate generate runs report tokenize config env help; do
    says out "^  $command "
    run $command --help
    code_is 0
    says out "^Usage: ndparallel $command"
    run --help
done

run
code_is 2
says err '^Usage: ndparallel COMMAND'

run trian job.yaml
refused "unknown command 'trian'; did you mean 'train'\?"
run genrate
refused "did you mean 'generate'"
run nosuchcommand
refused "unknown command 'nosuchcommand'; the nearest are '[a-z]+', '[a-z]+', '[a-z]+'$"
run fit job.yaml
refused "unknown command 'fit'; use \`ndparallel train\`"
run test
refused "unknown command 'test'; use \`ndparallel evaluate\`. Accelerate's test is \`ndparallel verify JOB.YAML\`"

# help prints what --help prints, which ends with two examples.
for command in train plan verify checkpoint "checkpoint list" "checkpoint verify" "checkpoint export" "checkpoint rm" merge \
    launch evaluate generate runs report tokenize config "config import" env help; do
    run $command --help
    code_is 0
    mv out long.txt
    tail -n 3 long.txt >out
    lines out 1 '^Examples:$'
    lines out 2 "^  ndparallel $command( |\$)"
    run help $command
    code_is 0
    cmp -s out long.txt || fail "help $command differs from $command --help"
    run $command -h
    code_is 0
    cmp -s out long.txt || fail "$command -h differs from $command --help"
    run $command -V
    code_is 0
    says out '^ndparallel [0-9.]+$'
done

# on_terminal ARGUMENT...: with stdout and stderr on a terminal; what it shows is in out.
on_terminal() {
    case_of on a terminal: ndparallel "$@"
    python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$NDP_PROGRAM" "$@" >out 2>err
    code=$?
    code_is 2
}
red=$(printf '\033')'\[1;31mndparallel:'
(
    unset NO_COLOR
    export TERM=xterm
    on_terminal trian
    says out "^$red"
    TERM=dumb on_terminal trian
    says out '^ndparallel: unknown command'
    NO_COLOR=1 on_terminal trian
    says out '^ndparallel: unknown command'
    NO_COLOR='' on_terminal trian
    says out "^$red"
    [ $failures = 0 ]
) || failures=$((failures + 1))
run help
code_is 0
says out '^  checkpoint list, verify'
run help trian
refused "unknown command 'trian'; did you mean 'train'\?"
run help nosuchcommand
refused "unknown command 'nosuchcommand'; the nearest are '"
run help checkpoint lst
refused "unknown command 'checkpoint lst'; did you mean 'list'\?"
run help estimate-memory
refused "use \`ndparallel plan\`"

run train
refused 'no job file'
run train a.yaml b.yaml
refused "two job files: 'a.yaml' and 'b.yaml'"
run train --nope job.yaml
refused "--nope is not an option; \`ndparallel train --help\` lists them"
run train --ranks 0 job.yaml
refused "--ranks '0': expected a whole number from 1"
run train --ranks 2x job.yaml
refused "--ranks '2x'"
run plan --rank -1 job.yaml
refused "--rank '-1'"
run launch
refused 'no number of ranks'
run launch -n 2
refused 'no program'
run launch -n none -- true
refused "--ranks 'none': expected a whole number from 1"
run launch -n 2 -- nowhere/program
refused "cannot run 'nowhere/program'"
run evaluate --model m
refused 'give a job file, or --model DIR and --data FILE'
run evaluate --data d
refused 'give a job file, or --model DIR and --data FILE'
run evaluate --model m --data d --set train.threads=1
refused '--set needs a job file'
run evaluate job.yaml --data d
refused '--data cannot be used with a job file'
run evaluate job.yaml --stride 5
refused '--stride cannot be used with a job file'
run train job.yaml --no-data
refused '--no-data needs --dry-run'
run train job.yaml --dry-run --trace t.json
refused '--trace records a real step'
run generate --prompt x
refused '--model DIR is missing'
run generate --model m --temperature warm
refused "--temperature 'warm': expected a number"
run generate --model m --top-p 1.5
refused "--top-p '1.5'"
run generate --model m --device gpu
refused "there is no device 'gpu'; supported: cpu, ref"
run generate --model nowhere
refused 'nowhere is not a folder'

run checkpoint
refused 'no command; give list, verify, export or rm'
run checkpoint lst run
refused "unknown command 'checkpoint lst'; did you mean 'list'"
run checkpoint list
refused 'no run folder'
run checkpoint list run 5
refused "list takes no step"
run checkpoint rm run
refused 'rm takes the steps'
run checkpoint verify run five
refused "step 'five': expected a whole number"
run checkpoint verify --force run
refused "--force is not an option"
run checkpoint list nowhere
refused "'nowhere' is not a run folder"
run train --resume-from x job.yaml
refused "--resume-from 'x': expected a whole number"

run plan --cluster cluster.yaml --ranks-per-node 2 job.yaml
refused '--ranks-per-node and --cluster both say how many ranks a node has'
run plan --distribution cyclic job.yaml
refused '--distribution needs --cluster FILE'
run plan --cluster cluster.yaml --distribution random job.yaml
refused "--distribution 'random': expected block or cyclic"
run train --placement worst job.yaml
refused "--placement 'worst': expected given or best"
run topology --hostfile nowhere.txt
code_is 2
says err "^ndparallel: cannot (open|read) 'nowhere.txt'"
run topology --keys
code_is 0
says out '^node' 'bandwidth' 'oversubscription'

run config
code_is 0
says out '^parallelism:$' '^  tp_size ' 'default auto'
run config --defaults
code_is 0
says out '^  lr: 0.0003$' '^  steps: 100$'
cp out defaults.yaml
run config lr optimizer.betas
code_is 0
says out '^optimizer.lr: learning rate' '^  read by +train, verify$' '^optimizer.betas: adamw, adamw8bit, lion'
run config --markdown schedule
code_is 0
says out '^\| key \| values \| default \| meaning \|$' '^\| `schedule.name` \| constant, linear, cosine, wsd, inverse_sqrt or cosine_restarts \| cosine \|'
lines out 9 '^\|'
run config betass
refused "unknown key 'betass'; did you mean 'optimizer.betas'"
run config --defaults lr
refused 'leave out the names'

run env
code_is 0
says out '^processor ' '^cores ' '^oneDNN ' '^transports +self, local'

# ---- jobs ----

make_job
run train missing.yaml
code_is 2
says err "cannot read 'missing.yaml'"

sed 's/steps:/stesp:/' job.yaml >wrong.yaml
run train wrong.yaml
refused "wrong.yaml:5: unknown key 'stesp' in 'train'; did you mean 'steps'" '^ {10}\^'
run train job.yaml --set optimizer.lrr=1
refused "unknown key 'lrr' in 'optimizer'; did you mean 'lr'"
run train job.yaml --set optimizer.lr=-1
refused 'optimizer.lr=-1' '\^'
run train job.yaml --transport carrier-pigeon
refused 'auto.*self.*local.*mpi'
run train job.yaml --ranks 3
refused 'the layout dp_shard 2 has 2 ranks, but the run has 3; set parallelism.dp_shard_size=3, or auto' 'nearest legal layouts'
run train job.yaml --set train.ranks=3 --set parallelism.dp_shard_size=1
refused 'the layout has 1 rank, since all its sizes are 1, but the run has 3; set parallelism.dp_shard_size=3, or auto'
run train job.yaml --set parallelism.dp_shard_size=2 --set parallelism.ep_size=2
refused 'ep 2: the model has no mixtures of experts. The nearest legal layouts on 2 ranks: dp_shard 2'
run train job.yaml --set data.sequence_length=65
refused 'longer than the model'
run train job.yaml --transport self
refused 'self is one rank'
[ ! -e run ] || fail "a refused job left a run folder"

run train job.yaml --debug --set optimizer.lr=-1
code_is 2
says err '^  at .*\.c:[0-9]+'

# What is written back is a job file.
sed -e 's/^  config: .*/  config: config.json/' -e 's/^  init: pretrained/  init: random/' -e 's/^  files: .*/  files: [text.txt]/' \
    defaults.yaml >whole.yaml
run plan whole.yaml --ranks 2 --set data.sequence_length=32
code_is 0
says out 'dp_shard 2 on 2 ranks'

end_of_cases
