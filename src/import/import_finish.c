/* Settings that depend on several keys of a file: layout, global batch, precision. Called once the whole file is read.
 * The rules are those of the programs: Axolotl's utils/distributed.py and core/builders, Accelerate's
 * parallelism_config.py. */
#include "import/import_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int or_one(int size) { return size ? size : 1; }

/* ---- sharding ---- */

static ndp_status refuse_fsdp_word(ndp_import *m, const char *word, const char *const *words, int n) {
    ndp_str known = {0};
    for (int i = 0; i < n; i++)
        ndp_str_add_choice(&known, i, n, words[i]);
    ndp_status st = ndp_import_fail(&m->notes, "fsdp", "'fsdp' has '%.60s', expected %s", word,
                                    known.failed ? "another word" : known.data);
    ndp_str_release(&known);
    return st;
}

/* A list of words, or one string of several, as the Trainer accepts it: a strategy and its options. */
static ndp_status read_fsdp_words(ndp_import *m) {
    static const char *const words[] = {"full_shard",         "shard_grad_op", "no_shard", "hybrid_shard",
                                        "hybrid_shard_zero2", "auto_wrap",     "offload"};
    for (int i = 0; i < m->read.fsdp.n; i++) {
        char *rest, *word = strtok_r(m->read.fsdp.items[i], " ,", &rest);
        for (; word; word = strtok_r(NULL, " ,", &rest)) {
            int k = 0;
            while (k < NDP_COUNT(words) && strcmp(words[k], word) != 0)
                k++;
            if (k == NDP_COUNT(words))
                return refuse_fsdp_word(m, word, words, NDP_COUNT(words));
            if (k < HYBRID_SHARD_ZERO2) /* the first words are the strategies, in order */
                m->read.strategy = k + 1;
        }
    }
    return NDP_OK;
}

/* How the ranks that no size accounts for share the parameters. */
typedef struct sharding {
    bool sharded, hybrid, reshard, late; /* late: a rank keeps whole gradients until the update */
} sharding;

static sharding sharding_of(ndp_import *m) {
    bool deepspeed = m->read.distributed ? m->read.distributed == DISTRIBUTED_DEEPSPEED : m->read.zero_stage >= 0;
    bool fsdp = m->read.distributed ? m->read.distributed == DISTRIBUTED_FSDP
                                    : m->read.fsdp.n || m->read.strategy || m->read.reshard ||
                                          ndp_import_find(&m->notes, "fsdp_config");
    sharding s = {.sharded = fsdp, .reshard = true};
    int strategy = m->read.strategy ? m->read.strategy : m->read.reshard ? m->read.reshard : FULL_SHARD;
    if (deepspeed) { /* stages 1 and 2 cut optimizer state and gradients alone; Accelerate's default is 2 */
        int stage = m->read.zero_stage >= 0 ? m->read.zero_stage : 2;
        s = (sharding){.sharded = stage > 0, .reshard = stage == 3, .late = stage == 1};
    } else if (m->read.distributed_optimizer == WORD_YES)
        s = (sharding){.sharded = true};
    else if (fsdp) {
        s.sharded = strategy != NO_SHARD;
        s.hybrid = strategy == HYBRID_SHARD || strategy == HYBRID_SHARD_ZERO2;
        s.reshard = strategy == FULL_SHARD || strategy == HYBRID_SHARD;
        if (m->read.reshard) /* FSDP2's key takes precedence */
            s.reshard = m->read.reshard == FULL_SHARD || m->read.reshard == HYBRID_SHARD;
    }
    return s;
}

/* ---- layout ---- */

static int64_t product(const ndp_import *m) {
    int64_t n = 1;
    for (int axis = 0; axis < NDP_AXES && n <= 1 << 20; axis++) /* each is at most 2^20 */
        n *= or_one(m->read.size[axis]);
    return n;
}

static ndp_status fail_product(ndp_import *m, int64_t known, int ranks) {
    const char *key = m->notes.o->ranks                          ? ""
                      : ndp_import_find(&m->notes, "world_size") ? "world_size"
                                                                 : "num_processes";
    ndp_str sizes = {0};
    for (int axis = 0; axis < NDP_AXES; axis++)
        ndp_str_addf(&sizes, "%s%s %d", axis ? " x " : "", ndp_axis_name((ndp_axis)axis), or_one(m->read.size[axis]));
    ndp_status st = ndp_import_fail(
        &m->notes, key, "the sizes multiply to %lld (%s), but there are %d ranks; change a size or the number of ranks",
        (long long)known, sizes.failed ? "" : sizes.data, ranks);
    ndp_str_release(&sizes);
    return st;
}

/* Assigns `rest` ranks, which no size accounts for, to the data axes. */
static ndp_status spread(ndp_import *m, sharding s, int rest) {
    bool one_replica = m->read.size[NDP_DP_REPLICATE] <= 1, whole = m->read.size[NDP_DP_SHARD] <= 1;
    int machines = or_one(m->read.machines);
    if (one_replica && whole && s.hybrid) {
        if (rest % machines)
            return ndp_import_fail(&m->notes, "num_machines",
                                   "HYBRID_SHARD shards the parameters within a machine, but %d ranks "
                                   "cannot be divided evenly among %d machines",
                                   rest, machines);
        m->read.size[NDP_DP_REPLICATE] = machines;
        m->read.size[NDP_DP_SHARD] = rest / machines;
        if (machines == 1)
            SAY(m,
                "HYBRID_SHARD on one machine is FULL_SHARD: dp_shard_size %d; with several machines set "
                "dp_replicate_size "
                "to their number\n",
                rest);
        return NDP_OK;
    }
    if (one_replica && whole && s.sharded && s.reshard && m->read.hpz > 1 && rest % m->read.hpz == 0) {
        m->read.size[NDP_DP_REPLICATE] = rest / m->read.hpz;
        m->read.size[NDP_DP_SHARD] = m->read.hpz;
        SAY(m,
            "zero_hpz_partition_size %d: dp_shard_size %d, also of the optimizer's state, which DeepSpeed cuts among "
            "all ranks\n",
            m->read.hpz, m->read.hpz);
    } else if (one_replica && whole)
        *(s.sharded ? &m->read.size[NDP_DP_SHARD] : &m->read.size[NDP_DP_REPLICATE]) = rest;
    else if (ndp_import_is_axolotl(m) && whole && s.sharded)
        m->read.size[NDP_DP_SHARD] = rest;
    else if (ndp_import_is_axolotl(m) && one_replica)
        m->read.size[NDP_DP_REPLICATE] = rest;
    else
        return fail_product(m, product(m), m->notes.o->ranks ? m->notes.o->ranks : m->read.processes);
    return NDP_OK;
}

/* Fills the sizes so that their product is the number of ranks. */
static ndp_status resolve_ranks(ndp_import *m, sharding s) {
    int64_t known = product(m);
    int ranks = m->notes.o->ranks ? m->notes.o->ranks : m->read.processes;
    if (m->read.machines > 1)
        SAY(m,
            "num_machines %d: the layout is that of all ranks; --hostfile, mpirun or srun place them on the machines\n",
            m->read.machines);
    if (m->read.distributed == DISTRIBUTED_NO && ranks > 1 && !m->notes.o->ranks) {
        SAY(m,
            "distributed_type NO is one process: num_processes %d is not used; --ranks %d makes so many data ranks\n",
            ranks, ranks);
        ranks = (int)(known <= 1 << 20 ? known : 1);
    }
    if (known > 1 << 20)
        return ndp_import_fail(&m->notes, "", "the parallel sizes multiply to more than %d ranks", 1 << 20);
    if (!ranks && ndp_import_is_deepspeed(m)) {
        SAY(m, "the file does not give the number of ranks, which train.ranks sets; --ranks N sets the layout\n");
        m->read.undecided = true;
        return NDP_OK;
    }
    if (!ranks) {
        if (!m->read.size[NDP_DP_REPLICATE] && !m->read.size[NDP_DP_SHARD])
            SAY(m,
                "the file does not give the number of ranks; assuming %lld, with one data rank. Use --ranks N to set "
                "it\n",
                (long long)known);
        return NDP_OK;
    }
    if (ranks % known)
        return fail_product(m, known, ranks);
    /* An Accelerate file that names sizes names all of them; only where it names none do the ranks become replicas. */
    if (!ndp_import_is_axolotl(m) && known > 1 && ranks != known &&
        m->read.size[NDP_DP_REPLICATE] + m->read.size[NDP_DP_SHARD] > 0)
        return fail_product(m, known, ranks);
    return ranks == known ? NDP_OK : spread(m, s, (int)(ranks / known));
}

static void set_context_method(ndp_import *m) {
    static const struct {
        ndp_cp_method method;
        bool zigzag;
    } rings[] = {[RING_PLAIN] = {NDP_CP_RING, false},
                 [RING_ZIGZAG] = {NDP_CP_RING, true},
                 [RING_STRIPE] = {NDP_CP_RING, true},
                 [RING_GATHERED] = {NDP_CP_ALL_GATHER, true}};
    if (ndp_import_is_axolotl(m)) {
        int ring = m->read.ring ? m->read.ring : m->read.packing == WORD_YES ? RING_GATHERED : RING_PLAIN;
        m->job.parallelism.cp_method = rings[ring].method;
        m->job.parallelism.cp_zigzag = rings[ring].zigzag;
        if (ring == RING_STRIPE)
            SAY(m, "ring_attn_func batch_stripe: cut in zig-zag instead, with the same result\n");
    } else /* torch's default, which balances the causal mask too */
        m->job.parallelism.cp_method = m->read.rotate ? (ndp_cp_method)(m->read.rotate - 1) : NDP_CP_ALL_GATHER;
}

/* Ranks that share experts share the other parameters too. Axolotl counts them beside those of dp_shard_size, with rows
 * of their own; Megatron, among all ranks of a stage. */
static ndp_status join_experts(ndp_import *m, sharding *s) {
    int64_t shard = (int64_t)or_one(m->read.size[NDP_DP_SHARD]) * m->read.size[NDP_EP];
    if (m->read.size[NDP_EP] <= 1)
        return NDP_OK;
    if (!s->sharded && or_one(m->read.size[NDP_DP_SHARD]) == 1)
        SAY(m,
            "parallelism.ep_size %d: ranks that share experts share all parameters, so the data ranks are dp_shard\n",
            m->read.size[NDP_EP]);
    s->sharded = true;
    if (!ndp_import_is_axolotl(m))
        return NDP_OK;
    if (shard > 1 << 20)
        return ndp_import_fail(&m->notes, "expert_parallel_size", "dp_shard_size x expert_parallel_size is %lld ranks",
                               (long long)shard);
    SAY(m, "expert_parallel_size %d x dp_shard_size %d: parallelism.dp_shard_size %d\n", m->read.size[NDP_EP],
        or_one(m->read.size[NDP_DP_SHARD]), (int)shard);
    m->read.size[NDP_DP_SHARD] = (int)shard;
    return NDP_OK;
}

static ndp_status finish_layout(ndp_import *m) {
    NDP_TRY(read_fsdp_words(m));
    sharding s = sharding_of(m);
    NDP_TRY(join_experts(m, &s));
    if (ndp_import_is_deepspeed(m))
        ndp_import_deepspeed_ranks(m);
    if (ndp_import_is_axolotl(m) && m->read.zero_stage >= 0 && m->read.size[NDP_CP] > 1) {
        SAY(m, "context_parallel_size under DeepSpeed is Ulysses: parallelism.sp_size %d\n", m->read.size[NDP_CP]);
        m->read.size[NDP_SP] = m->read.size[NDP_CP];
        m->read.size[NDP_CP] = 0;
    }
    NDP_TRY(resolve_ranks(m, s));
    for (int axis = 0; axis < NDP_SIZES; axis++)
        m->job.parallelism.size[axis] = or_one(m->read.size[axis]);
    if (m->read.undecided) { /* auto: the number of ranks decides */
        ndp_axis data = s.sharded ? NDP_DP_SHARD : NDP_DP_REPLICATE;
        m->job.parallelism.size[data] = 0;
        ndp_import_mark(m, offsetof(ndp_config, parallelism.size) + (size_t)data * sizeof m->job.parallelism.size[0]);
    }
    bool staged = m->read.size[NDP_PP] > 1; /* the defaults of a pipeline, which a job file without these keys has */
    s.late |= staged;
    m->job.parallelism.reshard_after_forward = s.sharded ? s.reshard : !staged;
    if (!m->job.parallelism.reshard_after_forward)
        ndp_import_mark(m, offsetof(ndp_config, parallelism.reshard_after_forward));
    if (s.late) {
        m->job.parallelism.reduce_every = NDP_REDUCE_EVERY_UPDATE;
        ndp_import_mark(m, offsetof(ndp_config, parallelism.reduce_every));
    }
    if (m->read.size[NDP_CP] > 1)
        set_context_method(m);
    if (m->read.tp_sequence)
        m->job.parallelism.tp_sequence_parallel = m->read.tp_sequence == WORD_YES;
    return NDP_OK;
}

/* ---- batch ---- */

static ndp_status finish_batch(ndp_import *m) {
    int micro = or_one(m->read.micro);
    if (m->read.batch && m->read.accumulation)
        return ndp_import_fail(&m->notes, "batch_size",
                               "'batch_size' and 'gradient_accumulation_steps' both set the "
                               "gradient accumulation; give one of them");
    if (m->read.batch % micro)
        return ndp_import_fail(&m->notes, "batch_size", "'batch_size' %d is not a multiple of micro_batch_size %d",
                               m->read.batch, micro);
    int accumulation = m->read.batch ? m->read.batch / micro : or_one(m->read.accumulation);
    int replicate = m->job.parallelism.size[NDP_DP_REPLICATE], shard = m->job.parallelism.size[NDP_DP_SHARD];
    int64_t global;
    if (__builtin_mul_overflow((int64_t)micro * accumulation, (int64_t)replicate * shard, &global) || global > 1 << 30)
        return ndp_import_fail(&m->notes, "gradient_accumulation_steps",
                               "the global batch, %d x %d x %d x %d samples, is more than %d", micro, accumulation,
                               replicate, shard, 1 << 30);
    bool pairs = m->read.pairs && m->read.pairs != PAIRS_KTO;
    int rows = pairs ? 2 : 1; /* of a sample */
    if (global > (1 << 30) / rows)
        return ndp_import_fail(&m->notes, "gradient_accumulation_steps", "the global batch has more than %d rows",
                               1 << 30);
    m->job.batch.micro_batch_size = micro * rows;
    m->job.batch.global_batch_size = (int)global * rows;
    if (pairs)
        SAY(m, "batch sizes here count rows, of which a pair is two\n");
    if (ndp_import_is_set(&m->notes, "batch.global_batch_size") ||
        ndp_import_is_set(&m->notes, "batch.micro_batch_size"))
        SAY(m, "of the file, which --set changes: ");
    SAY(m,
        "global batch %lld samples = micro batch %d x accumulation %d x %lld data ranks (dp_replicate %d x dp_shard "
        "%d)\n",
        (long long)global, micro, accumulation, (long long)replicate * shard, replicate, shard);
    ndp_import_mark(m, offsetof(ndp_config, batch.global_batch_size));
    ndp_import_mark(m, offsetof(ndp_config, batch.micro_batch_size));
    return NDP_OK;
}

/* ---- precision ---- */

static void finish_precision(ndp_import *m) {
    bool fp16 = m->read.fp16 == WORD_YES || m->read.mixed == WORD_HALF, fp32 = m->read.fp32 == WORD_YES;
    bool bf16 = fp16 || m->read.bf16 == WORD_YES || m->read.bf16 == WORD_AUTO || m->read.half == WORD_YES ||
                m->read.mixed == WORD_YES;
    if (ndp_import_is_axolotl(m) && !m->read.bf16 && !fp16 && !fp32) /* Axolotl's default */
        bf16 = true;
    m->job.precision.compute = bf16 ? NDP_BF16 : NDP_F32;
    if (fp16)
        SAY(m, "fp16: computation is in bf16, which has fewer bits and needs no loss scaling; weights are in fp32\n");
    else if (m->read.half == WORD_YES && !ndp_import_is_axolotl(m))
        SAY(m, "pure_bf16: computation is in bf16, weights and optimizer state are in fp32\n");
    else if (bf16 && ndp_import_is_axolotl(m))
        SAY(m, "bf16: computation is in bf16, weights and optimizer state are in fp32; Axolotl %s\n",
            m->read.bf16 == WORD_YES ? "loads the weights as bf16" : "decides by the GPU it finds");
    ndp_import_mark(m, offsetof(ndp_config, precision.compute));
}

static void finish_recompute(ndp_import *m) {
    bool blocks = ndp_import_find(&m->notes, "activation_checkpointing") || m->read.checkpointing == WORD_YES ||
                  m->read.checkpointing == WORD_OFFLOAD || m->read.fsdp_checkpointing == WORD_YES;
    m->job.train.recompute = blocks ? NDP_RECOMPUTE_BLOCK : NDP_RECOMPUTE_NONE;
    if (m->read.checkpointing == WORD_OFFLOAD)
        SAY(m, "gradient_checkpointing: blocks are recomputed; their inputs are not offloaded\n");
}

/* bitsandbytes' Lion, which the Trainer runs, adds wd w to the gradient: decay goes through the sign and the momentum.
 * Ours is the paper's. Without decay they are the same. */
static ndp_status finish_lion(ndp_import *m) {
    double *decay = &m->job.optimizer.weight_decay;
    char value[32];
    if (m->job.optimizer.name != NDP_LION || *decay == 0)
        return NDP_OK;
    snprintf(value, sizeof value, "%g", *decay);
    *decay = 0;
    return ndp_import_refuse(
        &m->notes, "weight_decay", value, ndp_import_node(&m->notes, "weight_decay"),
        "the Trainer's Lion adds weight decay to the gradient, before the sign; here it shrinks the "
        "weights, as in the paper",
        "optimizer.weight_decay");
}

/* Axolotl's Muon is that of microsoft/dion where parameters are sharded; elsewhere, and in transformers, others. The
 * rest is AdamW's, with its betas if both are given, and embeddings have no decay. */
static ndp_status finish_spectral(ndp_import *m) {
    bool meshed = ndp_import_find(&m->notes, "fsdp_config") || ndp_import_find(&m->notes, "fsdp") || product(m) > 1;
    if (!ndp_import_is_axolotl(m) || !meshed)
        return ndp_import_refuse(
            &m->notes, "optimizer", "muon", ndp_import_node(&m->notes, "optimizer"),
            "Muon is read of Axolotl's files with sharded parameters (fsdp_config, dp_shard_size); "
            "optimizer.name is muon or muon_spectral",
            "optimizer.name");
    if (m->job.adapter.type != NDP_ADAPTER_NONE)
        return ndp_import_refuse(&m->notes, "optimizer", "muon", ndp_import_node(&m->notes, "optimizer"),
                                 "Muon updates whole matrices, and factors are none", "optimizer.name");
    NDP_TRY(ndp_config_set(&m->job, "optimizer.momentum=0.95"));
    if (!ndp_import_find(&m->notes, "adam_beta1") || !ndp_import_find(&m->notes, "adam_beta2"))
        NDP_TRY(ndp_config_set(&m->job, "optimizer.betas=[0.9, 0.95]"));
    if (m->job.optimizer.weight_decay == 0 || ndp_import_is_set(&m->notes, "optimizer.groups"))
        return NDP_OK;
    ndp_import_mark(m, offsetof(ndp_config, optimizer.groups));
    return ndp_config_set(&m->job, "optimizer.groups=[{params: [embed_tokens, lm_head], weight_decay: 0}]");
}

ndp_status ndp_import_finish_optimizer(ndp_import *m) {
    int read = m->read.optimizer;
    if (ndp_import_is_set(&m->notes, "optimizer.name") || read == 0)
        return NDP_OK;
    m->job.optimizer.name = (ndp_optimizer_name)((read & OPTIMIZER_NAME) - 1);
    ndp_import_mark(m, offsetof(ndp_config, optimizer.name));
    if (read & OPTIMIZER_PAGED)
        SAY(m, "optimizer.name %s: nothing is paged; the states stay in memory, and `plan` shows how much they take\n",
            ndp_optimizers[m->job.optimizer.name]->name);
    if (read & OPTIMIZER_OF_4_BITS)
        SAY(m, "optimizer.name adamw8bit: states of 8 bits, where torchao's have 4: finer, and twice as large\n");
    if (read & OPTIMIZER_OF_TORCHAO)
        SAY(m, "optimizer.name adamw8bit: blocks and codes are torchao's; states of embeddings are fp32\n");
    if (read & OPTIMIZER_OF_BF16)
        SAY(m, "optimizer.name %s: the steps of Newton-Schulz are in fp32, %s's in bf16\n",
            ndp_optimizers[m->job.optimizer.name]->name, m->dialect->program);
    if (m->job.optimizer.name == NDP_MUON_SPECTRAL)
        NDP_TRY(finish_spectral(m));
    return ndp_import_is_deepspeed(m) ? NDP_OK : finish_lion(m); /* DeepSpeed's Lion is the paper's */
}

ndp_status ndp_import_finish(ndp_import *m) {
    m->read.pairs = m->read.pairs ? m->read.pairs : m->read.reward;
    NDP_TRY(finish_layout(m));
    NDP_TRY(ndp_import_is_deepspeed(m) ? ndp_import_deepspeed_batch(m) : finish_batch(m));
    finish_precision(m);
    finish_recompute(m);
    NDP_TRY(ndp_import_finish_trackers(m));
    if (ndp_import_is_deepspeed(m))
        return ndp_import_deepspeed_training(m);
    if (!m->dialect->whole) {
        static const char *const rest[] = {"model.path", "data.files",  "batch", "optimizer",
                                           "schedule",   "train.steps", NULL};
        SAY(m, "the file has the layout, but not the training");
        ndp_import_say_unset(&m->notes, rest,
                             m->read.micro || ndp_import_is_set(&m->notes, "batch.micro_batch_size")
                                 ? "\n"
                                 : ", as in your script (micro batch 1 is assumed)\n");
        return NDP_OK;
    }
    NDP_TRY(ndp_import_finish_adapter(m));
    NDP_TRY(ndp_import_finish_optimizer(m));
    NDP_TRY(ndp_import_finish_groups(m));
    NDP_TRY(ndp_import_finish_preference(m));
    NDP_TRY(ndp_import_finish_steps(m));
    NDP_TRY(ndp_import_finish_model(m));
    NDP_TRY(ndp_import_finish_data(m));
    return ndp_import_finish_events(m);
}
