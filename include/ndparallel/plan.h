/* Before a run: what it would do and need, its data, machine and layouts, the cluster. A part of ndparallel.h, which
 * includes it; the same rules hold. */
#ifndef NDPARALLEL_PLAN_H
#define NDPARALLEL_PLAN_H

#include <ndparallel/ndparallel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- planning ---- */

typedef struct ndp_plan_opts {
    int rank;               /* the rank to show; -1: rank 0, and with `program` the first one of every pipeline rank */
    int ranks_per_node;     /* 0: one node for up to 8 ranks, else 8 per node */
    bool program;           /* print the step and unit programs; otherwise memory by class and traffic by group */
    bool data;              /* also read the beginning of every data source, and fail where the run would */
    const char *schedule;   /* a path: write the pipeline's table there, as torch's CSV; NULL: no */
    const char *timeline;   /* a path: simulate a step, write it as `trace` of ndp_train_opts does; NULL: no */
    const char *placements; /* a unit's name: print what a rank has of each of its values; "": of all; NULL: no */
    const char *layout_picture; /* a path (.svg): draw what each rank holds; NULL: no */
    bool json;                  /* the text is one line of JSON; not with `program` or `placements` */
    bool as_run;                /* NDP_EINVAL where the run would be refused for lack of a GPU's memory */
    const char *cluster;        /* a cluster.yaml, or NODESxDEVICES:DEVICE: for its devices, with the links; NULL: no */
    bool cyclic;                /* ranks go around its nodes; otherwise they fill one after the other */
    /* Layouts instead of the job's, such as "tp=8,pp=4": each has a text, and JSON an entry of "results". Since 0.2.0.
     */
    const char *const *layouts;
    int n_layouts;
    bool search; /* the fastest layouts of the cluster, instead of the job's. Since 0.2.0. */
    /* Asked by a search before each candidate: true ends it with what it has found. NULL: never. Since 0.2.0. */
    bool (*stop)(void *user);
    void *user;
    const char *apply; /* a path: a search writes the job there with the keys of its first result; NULL: no */
    /* As many nodes as each of these instead of those that the cluster has, one after the other; `fewest_nodes`: 1, 2
     * and so on, doubled until a search finds a layout that fits, and with which all of train.steps takes at most
     * `within` seconds (0: any). Since 0.2.0. */
    const int *nodes;
    int n_nodes;
    bool fewest_nodes;
    double within;
    /* Clusters that a search tries besides `cluster`: the results of all are one list. Since 0.2.0. */
    const char *const *other_clusters;
    int n_other_clusters;
    /* With `cluster`: a run folder of the same model, device and precision. All times are scaled by what its steps took
     * to what their plan says. NULL: none. Since 0.2.0. */
    const char *anchor;
} ndp_plan_opts;
#define NDP_PLAN_OPTS_INIT                                                                                             \
    {                                                                                                                  \
        -1, 0, false, false, NULL, NULL, NULL, NULL, false, false, NULL, false, NULL, 0, false, NULL, NULL, NULL,      \
            NULL, 0, false, 0, NULL, 0, NULL                                                                           \
    }
/* What a run would do and need, for a world of any size, without starting ranks or loading weights: config.json is
 * enough. With `data` the model's weights must exist (NDP_EIO), the tokenizer and all data files are opened, and the
 * first 100 records or 1 MiB of each source are rendered and tokenized; the text then also has the run's lines about
 * its data. Writes nothing but `schedule`, `timeline` and `layout_picture`. */
NDP_API ndp_status ndp_plan(const ndp_config *c, const ndp_plan_opts *o, char **text);
/* The passes that make the step program of a rank, in the order in which they run: a name, when it runs, what it writes
 * and what it does. With a job also how much each wrote for o->rank (-1: rank 0); other options but `ranks_per_node`
 * are not read. `c` NULL: the list alone. Since 0.2.0. */
NDP_API ndp_status ndp_plan_passes(const ndp_config *c, const ndp_plan_opts *o, char **text);

typedef struct ndp_data_opts {
    int64_t show;                                  /* records to show of each source, or pairs */
    bool ids;                                      /* token ids instead of text */
    bool colour;                                   /* for a terminal: colours instead of brackets */
    bool head;                                     /* read only the first 100 records or 1 MiB of each source */
    bool json;                                     /* the text is one line of JSON */
    void (*working)(void *user, const char *line); /* what takes long, now; may be NULL */
    void *user;
} ndp_data_opts;
#define NDP_DATA_OPTS_INIT                                                                                             \
    { 3, false, false, false, false, NULL, NULL }
/* The data of a job as its run sees it, from the token cache, which is made if it is missing, and the table of rows:
 * the run's lines about them, totals of each source, and the first records with what is trained on marked. Loads no
 * weights. *text is for people, or JSON; the caller frees it. */
NDP_API ndp_status ndp_data(const ndp_config *c, const ndp_data_opts *o, char **text);

/* ---- help with a job: all of it since 0.2 ---- */

/* What this machine has for a run. */
typedef struct ndp_machine {
    int cores, gpus;            /* cores that this process may use; GPUs that the plugin finds */
    int64_t memory, gpu_memory; /* bytes: available to this process; free on the first GPU, 0 without one */
} ndp_machine;
NDP_API ndp_status ndp_machine_read(ndp_machine *out);

/* The model of model.path or model.config, by its config.json, with the errors that a run would have. */
typedef struct ndp_model_summary {
    char family[32]; /* "llama" */
    int layers, heads;
    int64_t parameters, positions, vocabulary; /* positions: the longest row */
} ndp_model_summary;
NDP_API ndp_status ndp_model_summarize(const ndp_config *c, ndp_model_summary *out);
/* The names of its tensors, as ndp_trainer_tensor has them, one a line. The caller frees *names. */
NDP_API ndp_status ndp_model_tensors(const ndp_config *c, char **names);

/* What a source of data looks like, by its name, as in data.files, and the first record of its first file. A source
 * that cannot be read fails as a run would; records whose fields are not known have the format "auto". */
typedef struct ndp_data_guess {
    const char *kind, *format; /* for people: "text", "conversations", ...; for data.format */
    char text_field[64];       /* for data.text_field, where the text has another name; "" */
    bool conversations;        /* a chat template renders them */
} ndp_data_guess;
NDP_API ndp_status ndp_data_guess_of(const char *name, ndp_data_guess *out);

/* A layout for a job, and what it needs. */
typedef struct ndp_proposal {
    char layout[128], keys[160]; /* "dp_shard 4 x tp 2"; of `parallelism`: "dp_shard_size: 4, tp_size: 2" */
    bool fits, recompute;        /* in `limit`; with train.recompute: block, without which it would not */
    int64_t rank_memory, limit;  /* bytes: of the rank that needs the most; that a rank may need, 0: not known */
    double cost, waits;          /* of a simulated step, the least 1; the share of it that a rank waits for others */
    const char *bound_by;        /* "memory" (it does not fit), "communication", "pipeline" or "compute" */
} ndp_proposal;
typedef struct ndp_propose_opts {
    int ranks, ranks_per_node; /* ranks_per_node 0: all on one node */
    int64_t memory; /* bytes of a node, or of a GPU where the job's device is one; 0: those of this machine */
} ndp_propose_opts;
#define NDP_PROPOSE_OPTS_INIT                                                                                          \
    { 1, 0, 0 }
/* Tries the legal layouts of so many ranks for a job, at most 64 of them, by dry runs, and returns the `most` best:
 * those that fit, by their cost, then the others, by their memory. *n: how many. The layout of `c` is not read.
 * NDP_EINVAL: no layout is legal; the message is that of the first. */
NDP_API ndp_status ndp_propose_layouts(const ndp_config *c, const ndp_propose_opts *o, ndp_proposal *out, int most,
                                       int *n);

typedef struct ndp_doctor_opts {
    const ndp_config *job;     /* is checked too; NULL: none */
    const char *hostfile;      /* its hosts are checked too; NULL: this one alone */
    const char *const *remote; /* this program, and words with which it prints such JSON elsewhere, NULL at the end */
    int ranks_here;  /* ranks of the job on this host, beside those of others; 0: all, or this one's part of hostfile */
    bool axes, json; /* train one step on each axis; the text is one line of JSON */
    void (*say)(void *user, const char *line); /* what is being checked; may be NULL */
    void *user;
    const char *run; /* a run folder: says what happened to that run, and nothing else; NULL: none. Since 0.2 */
} ndp_doctor_opts;
#define NDP_DOCTOR_OPTS_INIT                                                                                           \
    { NULL, NULL, NULL, 0, true, false, NULL, NULL, NULL }
/* Checks what runs need, or what happened to one. *text: a line for each check, and below one that is not ok what to
 * do; or {"version", "time", "problems", "data", "checks": [{"name", "state", "found", "remedy"}]}. *problems: how many
 * checks found one. */
NDP_API ndp_status ndp_doctor(const ndp_doctor_opts *o, char **text, int *problems);

/* ---- the cluster ---- */

typedef struct ndp_topology_opts {
    const char *device;                        /* to measure; NULL: cpu */
    const char *output;                        /* a path: write a cluster.yaml there; NULL: no */
    bool quick;                                /* only the links */
    void (*say)(void *user, const char *line); /* rank 0: what is being measured; may be NULL */
    void *user;
    bool json; /* the text is one line of JSON. Since 0.2. */
} ndp_topology_opts;
#define NDP_TOPOLOGY_OPTS_INIT                                                                                         \
    { NULL, NULL, false, NULL, NULL, false }
/* Measures the devices of all ranks, the links between ranks and hosts, and collectives. *text: what was found, for
 * people; the caller frees it. NDP_EIO, before anything is measured: `output` cannot be written. Collective; all ranks
 * get the same. */
NDP_API ndp_status ndp_topology(ndp_world *w, const ndp_topology_opts *o, char **text);
/* How many ranks a topology of these hosts has: one for each slot of the hostfile, or of the batch system's
 * allocation; NULL and no allocation: 2 on this host. */
NDP_API ndp_status ndp_topology_ranks(const char *hostfile, int *ranks);
/* Chooses the host of every rank of a job, so that the axes with the most traffic are innermost in the tree of links:
 * of a cluster.yaml, or with NULL of hosts that are all alike. The hosts are those of the hostfile, or of the batch
 * system's allocation. *hosts: [ranks], for ndp_launch_opts.rank_hosts; ndp_rank_hosts_free frees it. *text: lines for
 * people, which the caller frees. NDP_EINVAL: there is one host; it has fewer slots than the job has ranks; it is not
 * in the cluster. */
NDP_API ndp_status ndp_place_ranks(const ndp_config *c, const char *hostfile, const char *cluster, char ***hosts,
                                   char **text);
void ndp_rank_hosts_free(char **hosts);

typedef struct ndp_restart_opts {
    const char *hostfile;          /* of the run; read anew */
    const char *const *rank_hosts; /* that its ranks had, as in ndp_launch_opts; NULL: they filled the hosts in order */
    const char *const *lost;       /* hosts that ndp_launch has said are lost, of all starts so far */
    int n_lost;
    bool oversubscribe, elastic; /* if slots are too few: two ranks a slot; then a layout of fewer ranks */
} ndp_restart_opts;
#define NDP_RESTART_OPTS_INIT                                                                                          \
    { NULL, NULL, NULL, 0, false, false }
/* "parallelism.tp_size=2" */
typedef struct ndp_restart_setting {
    char text[40];
} ndp_restart_setting;

typedef struct ndp_restart {
    int ranks;
    char **rank_hosts; /* by rank, for ndp_launch_opts; NULL: no host is lost, and the ranks start where they were */
    ndp_restart_setting settings[8]; /* for ndp_config_set, in the ranks: the layout, if it is another one */
    int n_settings;
    char *text; /* what changes, as a part of a line; NULL: nothing */
} ndp_restart;
/* Where the ranks of a run start after one of them, or a host, has died. A host that was lost, or does not answer now,
 * is left out: its ranks start on free slots of the others. With too few of them, and `elastic`, the nearest legal
 * layout is that of at most as many ranks which divides the same global batch, fits in the memory, and changes the
 * sizes of the job's own the least. NDP_ECOMM: too few slots; the message says what to do. NDP_EINVAL: no such layout;
 * a line of the hostfile without slots. ndp_restart_release frees what is in *out. Since 0.2. */
NDP_API ndp_status ndp_restart_find(const ndp_config *c, const ndp_restart_opts *o, ndp_restart *out);
void ndp_restart_release(ndp_restart *r);
/* All keys of cluster.yaml, with what they mean, their values and defaults. The caller frees *text. */
NDP_API ndp_status ndp_cluster_help(char **text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
