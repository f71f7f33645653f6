#include "check.h"
#include "config/config.h"
#include "place.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

static int init(void **state) {
    ndp_config *c = calloc(1, sizeof *c);
    *state = c;
    return ndp_config_init(c) == NDP_OK ? 0 : -1;
}

static int release(void **state) {
    ndp_config_release(*state);
    free(*state);
    return 0;
}

static ndp_status parse(ndp_config *c, const char *text) { return ndp_config_parse(c, text, strlen(text), "job.yaml"); }

static char *written(const ndp_config *c) {
    ndp_str s = {0};
    CHECK_OK(ndp_config_write(c, &s));
    return ndp_str_detach(&s);
}

static void defaults(void **state) {
    const ndp_config *c = *state;
    assert_null(c->model.path);
    assert_null(c->model.config);
    assert_int_equal(c->model.init, NDP_INIT_PRETRAINED);
    assert_int_equal(c->data.files.n, 0);
    assert_int_equal(c->data.sequence_length, 256);
    assert_null(c->data.tokenizer);
    assert_true(c->data.document_mask && c->data.shuffle && !c->model.allow_longer);
    assert_string_equal(c->data.text_field, "text");
    assert_int_equal(c->parallelism.size[NDP_DP_SHARD], 0);
    assert_int_equal(c->parallelism.size[NDP_TP], 1);
    assert_true(c->parallelism.reshard_after_forward);
    assert_int_equal(c->parallelism.cp_method, NDP_CP_RING);
    assert_true(c->parallelism.cp_zigzag && c->parallelism.tp_sequence_parallel);
    assert_int_equal(c->precision.compute, NDP_F32);
    assert_int_equal(c->batch.global_batch_size, 16);
    assert_int_equal(c->batch.micro_batch_size, 1);
    assert_int_equal(c->optimizer.name, NDP_ADAMW);
    assert_true(c->optimizer.lr == 3e-4 && c->optimizer.betas[0] == 0.9 && c->optimizer.betas[1] == 0.95);
    assert_true(c->optimizer.eps == 1e-8 && c->optimizer.weight_decay == 0.1 && c->optimizer.momentum == 0);
    assert_true(c->optimizer.max_grad_norm == 1.0 && c->schedule.min_lr_ratio == 0.1);
    assert_int_equal(c->schedule.name, NDP_LR_COSINE);
    assert_int_equal(c->schedule.warmup_steps, 10);
    assert_int_equal(c->train.steps, 100);
    assert_int_equal(c->train.seed, 42);
    assert_int_equal(c->train.recompute, NDP_RECOMPUTE_NONE);
    assert_string_equal(c->train.output_dir, "runs/demo");
    assert_string_equal(ndp_device_names[c->train.device], "cpu");
    assert_string_equal(c->train.transport, "auto");
    assert_int_equal(c->train.log_every, 0); /* auto */
    assert_int_equal(c->checkpoint.every, 0);
    assert_true(c->checkpoint.minutes == 30);
    assert_int_equal(c->checkpoint.keep, 3);
    assert_int_equal(c->checkpoint.async, NDP_ASYNC_AUTO);
}

/* The example of the plan. */
static const char *const job = "model: {path: path/to/hf_folder}            # or {config: path/to/config.json}\n"
                               "data: {files: [corpus.txt], sequence_length: 512}\n"
                               "parallelism: {dp_replicate_size: 1, dp_shard_size: 2, cp_size: 1, sp_size: 1, tp_size: "
                               "2, pp_size: 1, ep_size: 1}\n"
                               "precision: {compute: bf16, reduce: fp32}\n"
                               "batch: {global_batch_size: 32, micro_batch_size: 2}\n"
                               "optimizer: {name: sgd, lr: 3.5e-4, betas: [0.8, 0.97], eps: 1.0e-6, weight_decay: 0.2, "
                               "momentum: 0.9, max_grad_norm: 0}\n"
                               "schedule: {name: linear, warmup_steps: 20, min_lr_ratio: 0.25}\n"
                               "train:\n  steps: 7\n  seed: 9223372036854775807\n  recompute: block\n"
                               "  output_dir: runs/other\n"
                               "checkpoint: {every: 50, keep: 2, async: true}\n";

static void a_whole_job(void **state) {
    ndp_config *c = *state;
    CHECK_OK(parse(c, job));
    assert_string_equal(c->model.path, "path/to/hf_folder");
    assert_int_equal(c->data.files.n, 1);
    assert_string_equal(c->data.files.items[0], "corpus.txt");
    assert_int_equal(c->parallelism.size[NDP_DP_SHARD], 2);
    assert_int_equal(c->parallelism.size[NDP_TP], 2);
    assert_int_equal(c->precision.compute, NDP_BF16);
    assert_int_equal(c->optimizer.name, NDP_SGD);
    assert_true(c->optimizer.lr == 3.5e-4 && c->optimizer.betas[0] == 0.8 && c->optimizer.momentum == 0.9);
    assert_int_equal(c->schedule.name, NDP_LR_LINEAR);
    assert_int_equal(c->train.seed, INT64_MAX);
    assert_int_equal(c->train.recompute, NDP_RECOMPUTE_BLOCK);
    assert_int_equal(c->checkpoint.keep, 2);
    assert_int_equal(c->checkpoint.async, NDP_ASYNC_TRUE);
    assert_int_equal(c->train.log_every, 0); /* what is not named keeps its default */
    CHECK_OK(ndp_config_check(c));
}

/* A value other than the default for every key that there is; the test fails when a key is missing here. */
static const char *const others[] = {
    "model.path=null",
    "model.config='a \"b\" \\ c.json'",
    "model.init=random",
    "model.allow_longer=true",
    "model.sliding_window=64",
    "model.frozen=[embed, 'layers.*']",
    "model.trained=[lm_head, '*.experts.*']",
    "data.files=[a.txt, \"b, c: d.txt\", 'null', \"t\\ta\\x07b\\nc\\u2028d\\ufeffe\", gr\xc3\xbc\xc3\x9f]",
    "data.sequence_length=77",
    "data.tokenizer=bytes",
    "data.mix=[1, 0.5, 1e1, 2, 0]",
    "data.format=messages",
    "data.text_field='true'",
    "data.messages_field=conversations",
    "data.prompt_field=question",
    "data.input_field=context",
    "data.input_separator=\" \\n\"",
    "data.response_field=answer",
    "data.role_field=speaker",
    "data.content_field=says",
    "data.train_field=training",
    "data.chosen_field=better",
    "data.rejected_field=worse",
    "data.roles=[human: user, \"the bot: assistant\"]",
    "data.chat_template=chatml",
    "data.template_date=2026-11-02",
    "data.train_on=all",
    "data.bad_records=skip",
    "data.bin_type=uint32",
    "data.document_mask=false",
    "data.packing=false",
    "data.overlong=error",
    "data.min_tokens=3",
    "data.max_documents=1000000000000",
    "data.unique=true",
    "data.drop_system=true",
    "data.validation_files=[held.jsonl, {path: 'out/*.txt', text_field: 'b: {c', split: 'train[:10%]'}]",
    "data.validation_fraction=0.125",
    "data.shuffle=false",
    "data.cache_dir=\"#x\"",
    "parallelism.reshard_after_forward=false", /* before pp_size, on which its default depends */
    "parallelism.reduce_every=update",
    "parallelism.pp_size=2",
    "parallelism.dp_replicate_size=3",
    "parallelism.dp_shard_size=5",
    "parallelism.cp_size=7",
    "parallelism.sp_size=auto",
    "parallelism.tp_size=11",
    "parallelism.ep_size=13",
    "parallelism.cp_method=all_gather",
    "parallelism.cp_zigzag=false",
    "parallelism.tp_sequence_parallel=false",
    "pipeline.schedule=zero_bubble",
    "pipeline.virtual_stages=2",
    "pipeline.stages=[3, 1]",
    "moe.routes=a.safetensors",
    "pipeline.file=a.csv",
    "precision.compute=fp64",
    "precision.reduce=bf16",
    "precision.tp_reduce=bf16",
    "precision.weights=bf16",
    "precision.states=bf16",
    "batch.global_batch_size=123",
    "batch.micro_batch_size=3",
    "loss.sft_weight=0.25", /* before the name, on which its default depends */
    "loss.name=simpo",
    "loss.beta=2.5",
    "loss.variant=robust",
    "loss.label_smoothing=0.1",
    "loss.gamma=1.5",
    "loss.center=0.2",
    "loss.desirable_weight=0.5",
    "loss.undesirable_weight=2.5",
    "loss.token_weight=entropy",
    "loss.entropy_k=7",
    "loss.entropy_alpha=0.5",
    "loss.entropy_unit=3",
    "moe.balance=sequence",
    "moe.balance_coef=0.02",
    "moe.z_loss=0.001",
    "moe.bias_rate=0.002",
    "moe.capacity_factor=2",
    "optimizer.name=sgd",
    "optimizer.lr=0.1234567890123456789",
    "optimizer.betas=[0.333333333333333333, 4.9e-324]",
    "optimizer.eps=1e-300",
    "optimizer.weight_decay=1.7976931348623157e308",
    "optimizer.momentum=0.99999999999999989",
    "optimizer.max_grad_norm=0",
    "adapter.lr_ratio_b=16",
    "optimizer.groups=[{params: [a, '*.b'], lr_scale: 0.1}, {optimizer: lion, weight_decay: 0, params: c}]",
    "schedule.name=constant",
    "schedule.warmup_steps=0",
    "schedule.warmup_ratio=0.25",
    "schedule.min_lr_ratio=1",
    "schedule.decay_ratio=0.125",
    "schedule.cycles=9",
    "schedule.like=axolotl",
    "train.steps=5",
    "train.epochs=2.5",
    "train.seed=9007199254740993",
    "train.recompute=selective",
    "data.end_token='</s>'",
    "train.output_dir=/tmp/x",
    "train.threads=3",
    "train.force_memory=true",
    "train.device=cuda",
    "train.share_gpu=true",
    "train.collectives=staged",
    "train.check_links=fail",
    "train.gpu_memory=79.6",
    "train.matmul=tf32",
    "train.transport=local",
    "train.ranks=8",
    "train.log_every=10",
    "train.eval_every=20",
    "train.keep_best=true",
    "train.stop_after=3",
    "train.sample_every=100",
    "train.sample_prompts=['Once, upon', \"it's\"]",
    "train.sample_tokens=32",
    "train.own_batches=true",
    "train.own_logits=true",
    "train.own_generate=16",
    "train.layer_norms_every=50",
    "train.spike=6",
    "train.trackers=tensorboard",
    "adapter.type=qlora",
    "adapter.r=8",
    "adapter.alpha=0.5",
    "adapter.rslora=true",
    "adapter.dropout=0.05",
    "adapter.targets=[q_proj, 'layers.*']",
    "adapter.dora=true",
    "adapter.modules_to_save=[lm_head]",
    "adapter.base=int8",
    "adapter.init=random",
    "adapter.path=dir",
    "checkpoint.every=4",
    "checkpoint.minutes=0.5",
    "checkpoint.keep=1",
    "checkpoint.async=false"};

static void check_same(const ndp_config *a, const ndp_config *b) {
    ndp_config x = *a, y = *b;
    const char *const *left[] = {
        (const char *const *)&x.model.path,          (const char *const *)&x.model.config,
        (const char *const *)&x.data.tokenizer,      (const char *const *)&x.data.text_field,
        (const char *const *)&x.data.cache_dir,      (const char *const *)&x.train.output_dir,
        (const char *const *)&x.train.transport,     (const char *const *)&x.data.messages_field,
        (const char *const *)&x.data.prompt_field,   (const char *const *)&x.data.input_field,
        (const char *const *)&x.data.response_field, (const char *const *)&x.data.chat_template,
        (const char *const *)&x.data.template_date,  (const char *const *)&x.data.end_token,
        (const char *const *)&x.pipeline.file,       (const char *const *)&x.data.role_field,
        (const char *const *)&x.adapter.path,        (const char *const *)&x.data.content_field,
        (const char *const *)&x.data.train_field,    (const char *const *)&x.data.chosen_field,
        (const char *const *)&x.data.rejected_field, (const char *const *)&x.moe.routes,
        (const char *const *)&x.data.input_separator};
    for (int i = 0; i < NDP_COUNT(left); i++) {
        size_t offset = (size_t)((const char *)left[i] - (const char *)&x);
        const char *p = *left[i], *q = *(char *const *)((const char *)&y + offset);
        assert_true(!p == !q);
        if (p)
            assert_string_equal(p, q);
        memset((char *)&x + offset, 0, sizeof p);
        memset((char *)&y + offset, 0, sizeof p);
    }
    ndp_strings *lists[][2] = {
        {&x.model.frozen, &y.model.frozen},       {&x.model.trained, &y.model.trained},
        {&x.adapter.targets, &y.adapter.targets}, {&x.adapter.modules_to_save, &y.adapter.modules_to_save},
        {&x.pipeline.stages, &y.pipeline.stages}, {&x.optimizer.groups, &y.optimizer.groups},
        {&x.train.trackers, &y.train.trackers},   {&x.train.sample_prompts, &y.train.sample_prompts},
        {&x.data.files, &y.data.files},           {&x.data.mix, &y.data.mix},
        {&x.data.roles, &y.data.roles},           {&x.data.validation_files, &y.data.validation_files},
        {&x.data.files_own, &y.data.files_own},   {&x.data.validation_own, &y.data.validation_own}};
    for (int l = 0; l < NDP_COUNT(lists); l++) {
        ndp_strings *p = lists[l][0], *q = lists[l][1];
        assert_int_equal(p->n, q->n);
        for (int i = 0; i < p->n; i++)
            assert_string_equal(p->items[i], q->items[i]);
        *p = *q = (ndp_strings){0};
    }
    memset(x.given, 0, sizeof x.given); /* all that is read is given */
    memset(y.given, 0, sizeof y.given);
    assert_memory_equal(&x, &y, sizeof x); /* both came from one zeroed struct: padding too */
}

static void what_is_written_reads_back_the_same(void **state) {
    ndp_config *c = *state, back, copy;
    char *before = written(c);
    for (int i = 0; i < NDP_COUNT(others); i++) {
        char *was = written(c);
        CHECK_OK(ndp_config_set(c, others[i]));
        char *text = written(c);
        if (i != 0 && !strstr(others[i], "model.init") && strcmp(was, text) == 0)
            fail_msg("%s changed nothing", others[i]);
        CHECK_OK(ndp_config_init(&back));
        CHECK_OK(parse(&back, text));
        check_same(c, &back);
        ndp_config_release(&back);
        free(was);
        free(text);
    }
    assert_string_equal(c->model.config, "a \"b\" \\ c.json");
    assert_string_equal(c->data.files.items[2], "null");
    assert_string_equal(c->data.files.items[3], "t\ta\007b\nc\xe2\x80\xa8"
                                                "d\xef\xbb\xbf"
                                                "e");
    assert_int_equal(c->train.seed, 9007199254740993);
    assert_true(c->optimizer.betas[1] == 4.9e-324);
    /* every key was changed from its default */
    char *after = written(c), *a, *b;
    int keys = 0;
    for (char *p = strtok_r(before, "\n", &a), *q = strtok_r(after, "\n", &b); p && q;
         p = strtok_r(NULL, "\n", &a), q = strtok_r(NULL, "\n", &b)) {
        bool key = p[0] == ' ', exempt = strstr(p, " path: ");
        if (key && !exempt && strcmp(p, q) == 0)
            fail_msg("no other value was tried for%s", p);
        keys += key;
    }
    assert_int_equal(keys, NDP_COUNT(others));
    CHECK_OK(ndp_config_copy(c, &copy));
    check_same(c, &copy);
    assert_ptr_not_equal(copy.model.config, c->model.config);
    ndp_config_release(&copy);
    free(before);
    free(after);
}

/* text, message: the whole of it, or its beginning */
static const char *const refused[][2] = {
    {"train:\n  steps: 3\nparallelism:\n  dp_shard_size: 2\n  tp_sze: 2\n",
     "job.yaml:5:3: unknown key 'tp_sze' in 'parallelism'; did you mean 'tp_size'?\n    tp_sze: 2\n    ^"},
    {"parallelisn: {}",
     "job.yaml:1:1: unknown section 'parallelisn'; did you mean 'parallelism'?\n  parallelisn: {}\n  ^"},
    {"tp_size: 2", "job.yaml:1:1: unknown key 'tp_size'; did you mean 'parallelism.tp_size'?"},
    {"checkpoint: {steps: 5}", "job.yaml:1:14: unknown key 'steps' in 'checkpoint'; did you mean 'train.steps'?"},
    {"model: {zzzzzz: 1}", "job.yaml:1:9: unknown key 'zzzzzz' in 'model'; known are path, config, init, "},
    {"{gr\xc3\xbc\xc3\x9f: 1}", "job.yaml:1:2: unknown section 'gr\xc3\xbc\xc3\x9f'; known are model, adapter, data, "},
    /* duplicate keys */
    {"train: {steps: 1, steps: 2}",
     "job.yaml:1:19: duplicate key\n  train: {steps: 1, steps: 2}\n                    ^"},
    {"train: {steps: 1}\nbatch:\ntrain: {steps: 2}", "job.yaml:3:1: duplicate key"},
    /* wrong types */
    {"train: 3", "job.yaml:1:8: 'train' is a section: expected KEY: VALUE below it"},
    {"train: [1]", "job.yaml:1:8: 'train' is a section"},
    {"[]", "job.yaml:1:1: expected sections such as"},
    {"word", "job.yaml:1:1: expected sections such as"},
    {"train: {steps: [1]}", "job.yaml:1:16: 'train.steps' is a list, expected a whole number from 1 to "},
    {"train: {steps: {a: 1}}", "job.yaml:1:16: 'train.steps' is a mapping, expected"},
    {"train: {steps: \"5\"}", "job.yaml:1:17: 'train.steps' is the string \"5\", expected a whole number"},
    {"train:\n  steps:\n  seed: 1\n", "job.yaml:2:3: 'train.steps' is empty, expected a whole number"},
    {"train: {trackers: [tensorbord]}",
     "job.yaml:1:20: 'train.trackers' is 'tensorbord', expected a list of tensorboard; did you mean 'tensorboard'?"},
    {"train: {trackers: wandb}", "job.yaml:1:19: 'train.trackers' is 'wandb', expected a list of tensorboard; did you "
                                 "mean 'tensorboard'? `wandb sync --sync-tensorboard` of wandb up to 0.29 reads it"},
    {"train: {output_dir: null}", "job.yaml:1:21: 'train.output_dir' is empty, expected a string"},
    {"model: {path: [a]}", "job.yaml:1:15: 'model.path' is a list, expected a string or null"},
    {"model: {path: ''}", "job.yaml:1:16: 'model.path' is the string \"\", expected a string or null"},
    {"data: {files: {a: b}}",
     "job.yaml:1:16: unknown key 'a' in an entry of data.files; known are path, split, format"},
    {"data: {files: [a, [b]]}", "job.yaml:1:19: 'data.files' is a list, expected"},
    {"data: {files: [a, null]}", "job.yaml:1:19: 'data.files' is empty, expected"},
    {"optimizer: {betas: 0.9}", "job.yaml:1:20: 'optimizer.betas' is '0.9', expected [a, b], two numbers in [0, 1)"},
    {"optimizer: {betas: [0.9]}", "job.yaml:1:20: 'optimizer.betas' is a list, expected [a, b]"},
    {"optimizer: {betas: [0.9, 0.9, 0.9]}", "job.yaml:1:20: 'optimizer.betas' is a list"},
    {"? {a: b}\n: 3\n", "job.yaml:1:3: expected a word as the name of a section"},
    {"train:\n  ? [a]\n  : 3\n", "job.yaml:2:5: expected a word as the key"},
    {": 4", "job.yaml:1:1: unknown section ''"},
    /* to the end of the text */
    {"train: {steps: 12abc}", "job.yaml:1:16: 'train.steps' is '12abc'"},
    {"train: {steps: 1.0}", "job.yaml:1:16: 'train.steps' is '1.0'"},
    {"train: {steps: 1e3}", "'train.steps' is '1e3'"},
    {"train: {steps: 0x10}", "'train.steps' is '0x10'"},
    {"optimizer: {lr: 12abc}", "'optimizer.lr' is '12abc', expected a number in [0, inf)"},
    {"optimizer: {lr: 1e-3 x}", "'optimizer.lr' is '1e-3 x'"},
    {"optimizer: {lr: .inf}", "'optimizer.lr' is '.inf'"},
    {"optimizer: {lr: inf}", "'optimizer.lr' is 'inf'"},
    {"optimizer: {lr: nan}", "'optimizer.lr' is 'nan'"},
    {"optimizer: {lr: .nan}", "'optimizer.lr' is '.nan'"},
    {"optimizer: {lr: 1e999}", "'optimizer.lr' is '1e999'"},
    {"optimizer: {lr: 0x1p3}", "'optimizer.lr' is '0x1p3'"},
    {"data: {shuffle: yes}", "'data.shuffle' is 'yes', expected true or false"},
    {"data: {shuffle: \"true\"}", "'data.shuffle' is the string \"true\", expected true or false"},
    {"data: {shuffle: 1}", "'data.shuffle' is '1', expected true or false"},
    {"precision: {compute: fp23}",
     "'precision.compute' is 'fp23', expected fp32, bf16, fp64 or fp8; did you mean 'fp32'?"},
    {"precision: {compute: fp16}",
     "expected fp32, bf16, fp64 or fp8; did you mean 'bf16'? fp16 is not supported; bf16 has "
     "fp32's range and needs no loss scaling"},
    {"precision: {compute: BF16}", "; did you mean 'bf16'?\n"},
    {"precision: {compute: \"no\"}", "; did you mean 'fp32'?\n"},
    {"optimizer: {name: paged_adamw_8bit}", "; did you mean 'adamw8bit'?"},
    {"optimizer: {name: adamw_torch_4bit}", "; did you mean 'adamw'?"},
    {"optimizer: {name: adamw_bnb_4bit}", "; did you mean 'adamw'? its states are fp32"},
    {"train: {steps: 1e3}", "; did you mean 1000?"},
    {"train: {steps: \"500\"}", "; remove the quotes: 500"},
    {"optimizer: {lr: \"1e-4\"}", "; remove the quotes: 1e-4"},
    {"parallelism: {dp_shard_size: -1}", "; did you mean auto?"},
    {"data: {shuffle: True}", "'data.shuffle' is 'True', expected true or false; did you mean 'true'?"},
    {"data: {shuffle: \"false\"}", "; remove the quotes: false"},
    {"precision: {reduce: fp16}", "'precision.reduce' is 'fp16', expected fp32 or bf16"},
    {"precision: {compute: float8}", "; did you mean 'bf16'? fp8 is only planned (plan --cluster)"},
    {"train: {transport: tcp}", "'train.transport' is 'tcp', expected auto, self, local, shm or mpi"},
    /* out of range */
    {"train: {steps: 0}", "'train.steps' is '0'"},
    {"train: {steps: 99999999999999999999}", "'train.steps' is '99999999999999999999'"},
    {"train: {seed: 9223372036854775808}", "'train.seed' is '9223372036854775808'"},
    {"train: {seed: -1}", "'train.seed' is '-1'"},
    {"batch: {micro_batch_size: 0}",
     "'batch.micro_batch_size' is '0', expected a whole number from 1 to 16777216, or auto"},
    {"batch: {global_batch_size: auto}", "'batch.global_batch_size' is 'auto', expected a whole number from 1"},
    {"parallelism: {tp_size: 0}", "'parallelism.tp_size' is '0', expected a whole number from 1 to 1048576, or auto"},
    {"parallelism: {ep_size: auto}", "'parallelism.ep_size' is 'auto', expected a whole number from 1 to 1048576"},
    {"optimizer: {momentum: 1}", "'optimizer.momentum' is '1', expected a number in [0, 1)"},
    {"optimizer: {eps: 0}", "'optimizer.eps' is '0', expected a number in (0, inf)"},
    {"optimizer: {lr: -1e-9}", "'optimizer.lr' is '-1e-9'"},
    {"optimizer: {betas: [0.9, 1.0]}", "job.yaml:1:26: 'optimizer.betas' is '1.0'"},
    {"schedule: {min_lr_ratio: 1.01}", "expected a number in [0, 1]"},
    {"schedule: {decay_ratio: 0}", "expected a number in (0, 1]"},
    {"schedule: {cycles: 0}", "expected a whole number from 1 to 1048576"},
    {"schedule: {name: warmup_stable_decay}", "wsd"},
    {"schedule: {name: cosine_with_restarts}", "cosine_restarts"},
    /* syntax, by the parser */
    {"data: [a\n", "job.yaml:1:9: flow sequence without a closing bracket\n  data: [a\n          ^"},
    {"data:\n\tfiles: x", "job.yaml:2:1: tab character may not be used as indentation; indent with spaces\n"},
    {"train:\n  steps: 3\n seed: 1\n",
     "job.yaml:3:2: invalid indentation in mapping; begin the keys of a section in the"},
    {"train: {output_dir: @a}", "plain scalar cannot start with '@'; put the text in quotes\n"},
    {"train:\n  steps:5\n", "job.yaml:2:3: YAML needs a space after the colon: 'steps: 5'\n"},
    {"train: {steps:5}", "job.yaml:1:9: YAML needs a space after the colon: 'steps: 5'\n"},
    {"optimizer.lr: 1e-3", "'optimizer.lr' is a name for --set; in a file it is optimizer: {lr: VALUE}\n"},
    /* files of other programs */
    {"# titan\n[model]\nname = \"llama3\"\n", "job.yaml: a TOML file, as torchtitan's are; a job file is YAML: "},
    {"base_model: m\noptimizer: adamw_torch\n", "job.yaml:1:1: a file of Axolotl, not a job file; convert it: "
                                                "ndparallel config import job.yaml -o converted.yaml\n"},
    {"mixed_precision: bf16\ndistributed_type: FSDP\n", "job.yaml:2:1: a file of `accelerate config`, not a job file"},
    {"{\"model_type\": \"llama\"}",
     "a model's config.json, not a job file; a job file names it as model: {config: job.yaml}\n"},
    {"{\"zero_optimization\": {}}", "a file of DeepSpeed, not a job file; `ndparallel config --defaults`"},
    {"train: {steps: 1}\nbase_model: m", "job.yaml:2:1: unknown key 'base_model'"},
    {"a: 'x' y", "job.yaml:1:8: invalid trailing content after single-quoted scalar"},
    {"train: {steps: 1}\n---\ntrain: {steps: 2}", "job.yaml:3:1: a second document; a configuration has one"},
    {"train: {steps: 1}\n---\n", "job.yaml"},
    {"%YAML 9.9\n---\ntrain: {}\n", "job.yaml:1:1: "},
    {"train: {steps: *missing}", "job.yaml:1:17: no anchor has this name"},
    {"train: {seed: 1}\n# gr\xc3\xbc\xc3\xff", "job.yaml:2:6: not valid UTF-8"},
};

static void refusals_point_at_the_place(void **state) {
    ndp_config *c = *state;
    CHECK_OK(parse(c, job));
    char *before = written(c);
    for (int i = 0; i < NDP_COUNT(refused); i++) {
        CHECK_FAILS(parse(c, refused[i][0]), NDP_EINVAL, "");
        check_points_at(refused[i][1]);
        char *after = written(c);
        assert_string_equal(after, before);
        free(after);
    }
    CHECK_FAILS(ndp_config_parse(c, "a: \0", 4, "job.yaml"), NDP_EINVAL, "job.yaml:1: a zero byte");
    CHECK_FAILS(parse(c, "train: {output_dir: \"a\\0b\"}"), NDP_EINVAL, "'train.output_dir' is not a string");
    free(before);
}

/* The caret stays under its place behind tabs, wide text and in lines longer than a screen. */
static void carets(void **state) {
    ndp_config *c = *state;
    CHECK_FAILS(parse(c, "data: {\ttext_field: \"\xc3\xa4\xc3\xb6\", x: 1}"), NDP_EINVAL,
                "job.yaml:1: unknown key 'x' in 'data'; known are files, ");
    CHECK_FAILS(parse(c, "data: {\ttext_field: \"\xc3\xa4\xc3\xb6\", x: 1}"), NDP_EINVAL,
                "\n  data: {\ttext_field: \"\xc3\xa4\xc3\xb6\", x: 1}\n         \t                  ^");
    char text[700] = "data: {text_field: ", expected[200] = "\n  ";
    memset(text + strlen(text), 'x', 500);
    strcat(text, ", zzzzzz: 1, lr: 3}");
    memset(expected + 3, 'x', 68);
    strcat(expected, ", zzzzzz: 1, lr: 3}\n  ");
    memset(expected + strlen(expected), ' ', 70);
    strcat(expected, "^");
    CHECK_FAILS(parse(c, text), NDP_EINVAL, "job.yaml:1: unknown key");
    if (!strstr(ndp_error_message(), expected))
        fail_msg("not this line: %s", ndp_error_message());
}

static void accepted(void **state) {
    ndp_config *c = *state;
    CHECK_OK(parse(c, ""));
    CHECK_OK(parse(c, "# nothing\n"));
    CHECK_OK(parse(c, "---\ntrain: {steps: 3}\n...\n"));
    CHECK_OK(parse(c, "train:\nbatch: null\n")); /* sections whose keys are commented out */
    CHECK_OK(parse(c, "data: {files: one.txt}"));
    assert_int_equal(c->data.files.n, 1);
    CHECK_OK(parse(c, "data: {files: [one.txt, two.jsonl]}"));
    assert_int_equal(c->data.files.n, 2);
    CHECK_OK(parse(c, "data: {files: }"));
    assert_int_equal(c->data.files.n, 0);
    CHECK_OK(parse(c, "optimizer: {lr: 1, eps: 1e-3, weight_decay: .5, momentum: 0.}"));
    assert_true(c->optimizer.lr == 1 && c->optimizer.weight_decay == 0.5);
    CHECK_OK(parse(c, "train: {output_dir: 2024, threads: +2}"));
    assert_string_equal(c->train.output_dir, "2024");
    CHECK_OK(parse(c, "{\"train\": {\"steps\": 9}}")); /* JSON is YAML */
    assert_int_equal(c->train.steps, 9);
    CHECK_OK(parse(c, "batch: &sizes {global_batch_size: &n 8, micro_batch_size: *n}\ndata: {files: &f [a, b]}\n"));
    assert_int_equal(c->batch.micro_batch_size, 8);
    CHECK_OK(parse(c, "model: {path: &p here}\ndata: {files: [*p, *p], tokenizer: *p}"));
    assert_string_equal(c->data.files.items[1], "here");
}

static void assignments(void **state) {
    ndp_config *c = *state;
    CHECK_OK(ndp_config_set(c, "optimizer.lr=1e-3"));
    assert_true(c->optimizer.lr == 1e-3);
    CHECK_OK(ndp_config_set(c, "data.files=[a.txt, b=c.txt]"));
    assert_string_equal(c->data.files.items[1], "b=c.txt");
    CHECK_OK(ndp_config_set(c, "parallelism.tp_size=auto"));
    assert_int_equal(c->parallelism.size[NDP_TP], 0);
    CHECK_OK(ndp_config_set(c, "batch.micro_batch_size=auto"));
    CHECK_OK(ndp_config_set(c, "data.format=preference")); /* whose default is 2 */
    assert_int_equal(c->batch.micro_batch_size, 0);
    CHECK_OK(ndp_config_set(c, "data.format=auto"));
    CHECK_OK(ndp_config_set(c, "model.path=x"));
    CHECK_OK(ndp_config_set(c, "model.path="));
    assert_null(c->model.path);
    CHECK_OK(ndp_config_setf(c, "parallelism.%s_size=%d", "cp", 4));
    assert_int_equal(c->parallelism.size[NDP_CP], 4);
    CHECK_OK(ndp_config_setf(c, "model.path=\"%s\"", "a: b #c"));
    assert_string_equal(c->model.path, "a: b #c");
    CHECK_FAILS(ndp_config_setf(c, "train.steps=%s", "few"), NDP_EINVAL, "'train.steps' is 'few'");
    static const char *const cases[][2] = {
        {"optimizer.lr=12abc", "--set:1:14: 'optimizer.lr' is '12abc', expected a number in [0, inf)\n"
                               "  optimizer.lr=12abc\n               ^"},
        {"optimzer.lr=1", "--set:1:1: unknown section 'optimzer'; did you mean 'optimizer'?"},
        {"optimizer.weight_deca=1",
         "--set:1:11: unknown key 'weight_deca' in 'optimizer'; did you mean 'weight_decay'?"},
        {"lr=1", "did you mean 'optimizer.lr'?"},
        {"optimizer", "--set 'optimizer': expected SECTION.KEY=VALUE"},
        {"optimizer=3", "--set:1:1: a section alone; expected SECTION.KEY=VALUE"},
        {"=1", "--set:1:1: unknown section ''"},
        {"", "expected SECTION.KEY=VALUE"},
        {"train.steps=", "--set:1:13: 'train.steps' is empty"},
        {"data.files=[a", "--set:1:14: flow sequence without"},
        {"data.files=[a, {b: c}]", "--set:1:17: unknown key 'b' in an entry of data.files"},
        {"train.steps=1\n---\n2", "a second document"},
        {"train.steps=\xff", "--set: not valid UTF-8"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_FAILS(ndp_config_set(c, cases[i][0]), NDP_EINVAL, "");
        check_points_at(cases[i][1]);
    }
    assert_true(c->optimizer.lr == 1e-3);
}

static void init_follows_the_model(void **state) {
    ndp_config *c = *state;
    CHECK_OK(parse(c, "model: {config: c.json}"));
    assert_int_equal(c->model.init, NDP_INIT_RANDOM);
    CHECK_OK(ndp_config_set(c, "model.config=other.json"));
    assert_int_equal(c->model.init, NDP_INIT_RANDOM);
    CHECK_OK(parse(c, "model: {path: folder, config: null}"));
    assert_int_equal(c->model.init, NDP_INIT_PRETRAINED);
    CHECK_OK(parse(c, "model: {path: folder, init: random}"));
    CHECK_OK(ndp_config_set(c, "model.path=other"));
    assert_int_equal(c->model.init, NDP_INIT_RANDOM); /* as was asked for */
    CHECK_OK(parse(c, "model: {path: null, config: c.json, init: pretrained}"));
    assert_int_equal(c->model.init, NDP_INIT_PRETRAINED); /* refused by the check, with the reason */
}

static void checks_over_several_keys(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"model: {path: x}\ndata: {files: a}", NULL},
        {"model: {config: x}\ndata: {files: a}", NULL},
        {"model: {path: x, init: random}\ndata: {files: a}", NULL},
        {"data: {files: a}", "no model: set model.path"},
        {"model: {path: x, config: y}\ndata: {files: a}", "model.path 'x' and model.config 'y' are both set"},
        {"model: {config: x, init: pretrained}\ndata: {files: a}", "model.config 'x' has no weights"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [1]}", "data.mix has 1 number, data.files has 2 entries"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [1, x]}", "data.mix has 'x', expected a number from 0"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [1, -1]}", "data.mix has '-1', expected a number from 0"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [b: 2, a: 0.5]}", NULL},
        {"model: {path: x}\ndata:\n  files: [a, b]\n  mix:\n    - b: 2\n    - 'a: 1'", NULL},
        {"model: {path: x}\ndata: {files: [a, b], mix: [c: 2, a: 1]}",
         "data.mix names 'c', which data.files does not have; it has 'a', 'b'"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [b: 2]}", "data.mix does not name 'a' of data.files"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [b: 2, 1]}", "1 entries with a name and 1 without"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [b: 2, a: 1, a: 3]}", "3 names for 2 entries of data.files"},
        {"model: {path: x}\ndata: {files: [a, a], mix: [a: 2, a: 1]}", "is 2 entries of data.files"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [b: 2, a: x]}", "data.mix has 'x', expected a number from 0"},
        {"model: {path: x}\ndata: {files: [a, b], mix: [0, 0.0]}", "data.mix is 0 for all"},
        {"model: {path: x}\ndata: {files: a, validation_files: b, validation_fraction: 0.1}",
         "are both set; set one of them"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {eval_every: 5}",
         "train.eval_every is 5, but there is no held-out data"},
        {"model: {path: x}\ndata: {files: a, validation_fraction: 0.5}\ntrain: {keep_best: true}",
         "train.keep_best is set, but nothing is evaluated before the end; set train.eval_every, and "
         "data.validation_fraction"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {sample_every: 2}",
         "train.sample_every is set without train.sample_prompts"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {sample_prompts: [a]}",
         "train.sample_prompts is set without train.sample_every"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {stop_after: 2}", "train.stop_after is set, but nothing is evalu"},
        {"model: {path: x}", "data.files is empty"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {epochs: 0.5}", NULL},
        {"model: {path: x}\ndata: {files: a}\ntrain: {steps: 7, epochs: 0}", NULL},
        {"model: {path: x}\ndata: {files: a}\ntrain: {steps: 7, epochs: 3}",
         "train.steps 7 and train.epochs 3 are both set; remove one of them"},
        {"model: {path: x}\ndata: {files: a}\nprecision: {compute: fp64}", "fp64 is for train.device ref only"},
        {"model: {path: x}\ndata: {files: a}\nprecision: {compute: fp64}\ntrain: {device: ref}", NULL},
        {"model: {path: x}\ndata: {files: a}\nprecision: {compute: fp8, tp_reduce: bf16}",
         "precision.compute: fp8, precision.tp_reduce: bf16: only planned, by `plan --cluster`; to run, set "
         "precision.compute: bf16, precision.tp_reduce: fp32"},
        {"model: {path: x}\ndata: {files: a}\nprecision: {reduce: bf16}",
         "precision.reduce: bf16: only planned, by `plan --cluster`; to run, set precision.reduce: fp32"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {recompute: selective}", NULL},
        {"model: {path: x}\ndata: {files: a}\ntrain: {matmul: tf32}",
         "tf32 is for train.device cuda only; this job's device is cpu"},
        {"model: {path: x}\ndata: {files: a}\ntrain: {matmul: tf32, device: cuda}", NULL},
        {"model: {path: x}\ndata: {files: a}\nbatch: {global_batch_size: 2, micro_batch_size: 3}",
         "micro_batch_size 3 is more than batch.global_batch_size 2"},
        {"model: {path: x}\ndata: {files: a}\nparallelism: {tp_size: auto}",
         "parallelism.dp_shard_size and parallelism.tp_size are both auto"},
        {"model: {path: x}\ndata: {files: a}\nparallelism: {tp_size: auto, dp_shard_size: 1}", NULL},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config c;
        CHECK_OK(ndp_config_init(&c));
        CHECK_OK(parse(&c, cases[i][0]));
        if (cases[i][1])
            CHECK_FAILS(ndp_config_check(&c), NDP_EINVAL, cases[i][1]);
        else
            CHECK_OK(ndp_config_check(&c));
        ndp_config_release(&c);
    }
}

/* The number of steps that epochs are is derived in a run, so it is not written, and the file reads back. */
static void epochs_are_written_without_steps(void **state) {
    ndp_config *c = *state;
    CHECK_OK(parse(c, "model: {path: x}\ndata: {files: a}\ntrain: {epochs: 3}"));
    char *text = written(c);
    assert_non_null(strstr(text, "  epochs: 3\n"));
    assert_null(strstr(text, "  steps: "));
    ndp_config back;
    CHECK_OK(ndp_config_init(&back));
    CHECK_OK(parse(&back, text));
    CHECK_OK(ndp_config_check(&back));
    ndp_config_release(&back);
    free(text);
    CHECK_FAILS(parse(c, "train: {epochs: -1}"), NDP_EINVAL, "'train.epochs' is '-1', expected a number in [0, 1e9]");
}

static void files(void **state) {
    ndp_config *c = *state;
    char path[] = "/tmp/ndp_test_XXXXXX";
    assert_int_not_equal(mkstemp(path), -1);
    CHECK_OK(ndp_file_write_atomic(path, job, strlen(job)));
    CHECK_OK(ndp_config_read(c, path));
    assert_int_equal(c->train.steps, 7);
    char *huge = calloc(1, (1 << 20) + 2);
    memset(huge, '\n', (1 << 20) + 1);
    CHECK_FAILS(parse(c, huge), NDP_EINVAL, "at most 1048576");
    free(huge);
    remove(path);
    CHECK_FAILS(ndp_config_read(c, path), NDP_EINVAL, path);
}

/* A few lines that would be gigabytes if aliases were copied. */
static void alias_bombs_stay_small(void **state) {
    ndp_config *c = *state;
    ndp_str s = {0};
    ndp_str_add(&s, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 30; i++) {
        ndp_str_addf(&s, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            ndp_str_addf(&s, "%s*a%d", k ? ", " : "", i - 1);
        ndp_str_add(&s, "]\n");
    }
    CHECK_FAILS(parse(c, s.data), NDP_EINVAL, "job.yaml:1: unknown section 'a0'");
    ndp_str_release(&s);
    CHECK_FAILS(parse(c, "data: {files: &f [*f]}"), NDP_EINVAL, "'data.files' is a list");
}

/* As many keys as a text may have, and more anchors than one needs: what is compared with all others takes minutes. */
static void large_texts_end_fast(void **state) {
    ndp_config *c = *state;
    ndp_str s = {0};
    for (int i = 0; s.length < (1 << 20) - 32; i++)
        ndp_str_addf(&s, "k%d: 1\n", i);
    clock_t start = clock();
    CHECK_FAILS(parse(c, s.data), NDP_EINVAL, "job.yaml:1: unknown section 'k0'");
    ndp_str_add(&s, "k5: 1\nk4: 1\n");
    CHECK_FAILS(parse(c, s.data), NDP_EINVAL, ": duplicate key\n  k5: 1\n  ^");
    ndp_str_release(&s);
    ndp_str_add(&s, "data: {files: [");
    for (int i = 0; i < 129; i++)
        ndp_str_addf(&s, "%s&a%d x", i ? ", " : "", i);
    ndp_str_add(&s, "]}");
    CHECK_FAILS(parse(c, s.data), NDP_EINVAL, "job.yaml:1: more than 128 anchors");
    assert_true((double)(clock() - start) < 30.0 * CLOCKS_PER_SEC);
    ndp_str_release(&s);
    CHECK_OK(parse(c, "data: {files: [a && b, &x c, \"R &D\", *x]}"));
    CHECK_FAILS(parse(c, "train: {[a, b]: 1, [a, b]: 2}"), NDP_EINVAL, "expected a word as the key");
    CHECK_FAILS(parse(c, "train: {steps: 1, \"steps\": 2}"), NDP_EINVAL, "duplicate key");
}

static void help_has_every_key(void **state) {
    (void)state;
    ndp_str help = {0};
    ndp_config_help(&help);
    for (int i = 0; i < NDP_COUNT(others); i++) {
        char word[64];
        const char *dot = strchr(others[i], '.');
        snprintf(word, sizeof word, "\n  %.*s ", (int)(strchr(others[i], '=') - dot - 1), dot + 1);
        if (!strstr(help.data, word))
            fail_msg("help lacks%s", word);
    }
    assert_non_null(strstr(help.data, "a number in [0, inf); default 3.0e-4"));
    assert_non_null(strstr(help.data, "or auto; default auto"));
    ndp_str_release(&help);
}

static void values_by_key(void **state) {
    static const char *const some[][2] = {{"train.log_every", "auto"},
                                          {"parallelism.dp_shard_size", "auto"},
                                          {"model.path", "null"},
                                          {"optimizer.betas", "[0.9, 0.95]"}};
    for (int i = 0; i < NDP_COUNT(some); i++) {
        char *value;
        CHECK_OK(ndp_config_get(*state, some[i][0], &value));
        assert_string_equal(value, some[i][1]);
        free(value);
    }
    char *none = NULL;
    CHECK_FAILS(ndp_config_get(*state, "train.log_evry", &none), NDP_EINVAL, "'train.log_evry'");
    CHECK_FAILS(ndp_config_get(*state, "train", &none), NDP_EINVAL, "SECTION.KEY");
    assert_null(none);
}

#define CONFIG_TEST(name) cmocka_unit_test_setup_teardown(name, init, release)

/* A number finds each key's name and value; a number beyond the last finds nothing. The limit on their lengths is kept.
 */
static void keys_have_numbers(void **state) {
    (void)state;
    char name[NDP_KEY_NAME], *value;
    ndp_config c;
    int n = 0;
    CHECK_OK(ndp_config_init(&c));
    for (; ndp_config_key(n, name) >= 0; n++) {
        CHECK_OK(ndp_config_get(&c, name, &value));
        free(value);
    }
    assert_in_range(n, 50, 1000);
    assert_int_equal(ndp_config_key(n, name), -1);
    assert_int_equal(ndp_config_key(-1, name), -1);
    CHECK_OK(ndp_config_set(&c, "checkpoint.keep=1048576"));
    CHECK_FAILS(ndp_config_set(&c, "checkpoint.keep=1048577"), NDP_EINVAL, "keep");
    ndp_config_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {CONFIG_TEST(defaults),
                                       CONFIG_TEST(a_whole_job),
                                       CONFIG_TEST(what_is_written_reads_back_the_same),
                                       CONFIG_TEST(refusals_point_at_the_place),
                                       CONFIG_TEST(carets),
                                       CONFIG_TEST(accepted),
                                       CONFIG_TEST(assignments),
                                       CONFIG_TEST(values_by_key),
                                       cmocka_unit_test(keys_have_numbers),
                                       CONFIG_TEST(init_follows_the_model),
                                       cmocka_unit_test(checks_over_several_keys),
                                       CONFIG_TEST(epochs_are_written_without_steps),
                                       CONFIG_TEST(files),
                                       CONFIG_TEST(alias_bombs_stay_small),
                                       CONFIG_TEST(large_texts_end_fast),
                                       cmocka_unit_test(help_has_every_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
