#!/bin/sh
# --resume with something changed in place, as a user does it: refused with 2, by name, with nothing in the run folder
# touched; --accept goes on. On threads and on processes.
. "$(dirname "$0")/cases.sh"
make_job

# Names, bytes and times of all files in the run folder, but for its lock.
state() {
    find run -type f ! -name 'lock*' -printf '%p %s %T@\n' | sort
    find run -type f ! -name 'lock*' | sort | xargs cat | cksum
}
unchanged() { state | cmp -s - before || fail "the run folder has changed"; }

for transport in $(transports); do
    rm -rf run
    run train job.yaml --transport "$transport" --set train.steps=3
    code_is 0
    state >before

    # The same lines in another order: as many documents, tokens and rows.
    cp text.txt kept.txt
    tac kept.txt >text.txt
    run train job.yaml --transport "$transport" --resume --set train.steps=3
    refused 'data\.files was [0-9a-f]{32}, now it is [0-9a-f]{32}' '--accept data\.files'
    unchanged
    mv kept.txt text.txt

    cp config.json kept.json
    sed 's/"rms_norm_eps"/"rope_theta": 20000.0, "rms_norm_eps"/' kept.json >config.json
    run train job.yaml --transport "$transport" --resume --set train.steps=3
    refused 'model\.rope_theta was 10000, now it is 20000'
    unchanged
    mv kept.json config.json

    run train job.yaml --transport "$transport" --resume --set optimizer.lr=1e-3
    refused 'optimizer\.lr was 0\.0003, now it is 0\.001' 'train\.steps was 3, now it is 6' 'lr of step 4: [0-9.e-]+ then, [0-9.e-]+ now' \
        '--accept optimizer\.lr --accept train\.steps'
    unchanged
    run train job.yaml --transport "$transport" --resume --set optimizer.lr=1e-3 --accept train.steps
    refused 'optimizer\.lr was' '--accept optimizer\.lr$'
    unchanged
    run train job.yaml --transport "$transport" --resume --accept train.steps --accept optimizer.lr
    refused '--accept optimizer\.lr: it does not differ'
    unchanged

    run train job.yaml --transport "$transport" --resume --set optimizer.lr=1e-3 --set train.seed=7 \
        --accept train.steps --accept optimizer.lr --accept train.seed
    code_is 0
    says out '^accepted: optimizer\.lr was 0\.0003, now it is 0\.001$' '^accepted: train\.steps was 3, now it is 6$' \
        '^lr of step 4: [0-9.e-]+ then, [0-9.e-]+ now$' \
        '^cursor: stays at sample 12 \(row 13 of [0-9]+ in epoch 1\); the next rows are [0-9]+ [0-9]+ [0-9]+ [0-9]+; ' \
        '^resume: from step 3$' '^ *6/6 '
    says run/job.yaml '^# accepted at step 3: optimizer\.lr from 0\.0003 to 0\.001$' '^  lr: 0\.001$'
    says run/checkpoints/step-00000006/manifest.json '"key": ?"train\.seed"'
done

# A run that began when documents were cut anywhere has such rows to its end: the losses are those with data.overlong: cut.
awk 'BEGIN { for (i = 1; i <= 12; i++) {
    printf "{\"messages\": ["
    for (turn = 1; turn <= 4; turn++)
        printf "%s{\"role\": \"user\", \"content\": \"%d plus %d, please?\"}, {\"role\": \"assistant\", \"content\": \"That is %d.\"}", (turn > 1 ? ", " : ""), i, turn, i + turn
    print "]}" } }' >chats.jsonl
chats() { run train job.yaml --set data.files=chats.jsonl --set data.chat_template=chatml --set data.sequence_length=160 --set model.allow_longer=true "$@"; }
losses() { sed -E 's/.*"step": ?([0-9]+),.*"loss": ?([^,]*),.*/\1 \2/' run/metrics.jsonl; }
rm -rf run
chats --set train.steps=3 --set data.overlong=cut
code_is 0
cp -r run old
chats --resume --accept train.steps --set data.overlong=cut
code_is 0
lines out 0 'data.overlong stays cut'
losses >expected
[ "$(wc -l <expected)" = 6 ] || fail "no six losses: $(cat expected)"
rm -rf run && cp -r old run
chats --resume --accept train.steps
code_is 0
says out '^resume: data\.overlong stays cut, as in run/job\.yaml; --accept data\.overlong changes it to auto$'
says run/job.yaml '^  overlong: cut$'
losses | cmp - expected || fail 'the losses of other rows'
rm -rf run && cp -r old run
chats --resume --accept train.steps --accept data.overlong
code_is 0
says out '^accepted: data\.overlong was cut, now it is auto$'
losses | cmp -s - expected && fail 'the losses of the same rows'

# The micro-batch that was chosen when a run began, which would be 2 here, stays; on a layout that cannot have it, another
# is chosen.
for transport in $(transports); do
    rm -rf run
    run train job.yaml --transport "$transport" --set train.steps=3 --set batch.micro_batch_size=1
    code_is 0
    run train job.yaml --transport "$transport" --resume --accept train.steps --set batch.micro_batch_size=auto
    code_is 0
    says out '^resume: batch\.micro_batch_size stays 1, as in run/job\.yaml$' '^resume: from step 3$' '= micro batch 1 x '
    says run/job.yaml '^  micro_batch_size: 1$'
done
rm -rf run
run train job.yaml --set train.steps=3 --set batch.micro_batch_size=auto
code_is 0
says out '^micro-batch 2 \(auto: all samples of a data rank fit\)$'
says run/job.yaml '^  micro_batch_size: 2$'
for size in 1 auto; do
    run evaluate job.yaml --model run/model --set data.validation_files=text.txt --set batch.micro_batch_size=$size
    code_is 0
    mv out nll.$size
done
cmp nll.1 nll.auto >>err || fail "an evaluation whose micro-batch is auto has another result"
run train job.yaml --ranks 4 --set parallelism.dp_shard_size=4 --resume --accept train.steps --set batch.micro_batch_size=auto
code_is 0
lines out 0 'micro_batch_size stays'
says out '^micro-batch 1 \(auto: all samples of a data rank fit\)$'
says run/job.yaml '^  micro_batch_size: 1$'

run train job.yaml --accept train.steps
code_is 2
says err '--accept needs --resume'

end_of_cases
