/* A dump: one training step of any trainer, as a folder of safetensors files with the names of Hugging Face.
 *
 *   batch.safetensors        all rows of the update, of all ranks and micro-batches:
 *     input_ids              [rows, S] i64 or i32
 *     labels                 [rows, S] as transformers takes them: not shifted; the label of column t is the id there,
 *                            predicted from column t - 1; -100: not predicted. Column 0 never counts
 *     position_ids           [rows, S], optional: RoPE's or the table's. A document begins where one does not follow
 *                            the one before it
 *     document_starts        [rows, S], optional: of each token the column at which its document begins
 *     loss                   [] or [1], any float type: the mean over all valid tokens of the update
 *     tokens                 [] or [1] i64 or i32: how many these are
 *     lr                     [] or [1], optional: the learning rate of the update; without it the job's first one
 *     logits                 [rows, S, vocabulary], optional, any float type; compared where a token is predicted
 *   gradients*.safetensors   any float type: summed over ranks, before clipping; of all tensors that are trained
 *   weights*.safetensors     optional: after the update
 *
 * Attention is causal and stays inside documents; without position_ids and document_starts a row is one document. */
#ifndef NDP_VERIFY_DUMP_H
#define NDP_VERIFY_DUMP_H

#include "checkpoint/folder.h"
#include "weights/weights.h"

#define NDP_DUMP_BATCH "batch.safetensors"
enum { NDP_DUMP_NO_LABEL = -100 };

/* Rows as an engine takes them: labels are shifted, -1: none. Arrays of n x length. */
typedef struct ndp_dump_rows {
    int64_t n, length;
    int32_t *tokens, *labels, *positions, *starts; /* starts: columns */
    bool one_state;                                /* of a trial: states go on over documents */
} ndp_dump_rows;

/* Allocates rows of zeros. NDP_ENOMEM. */
NDP_API ndp_status ndp_dump_rows_init(ndp_dump_rows *r, int64_t n, int64_t length);
/* Accepts {0}. */
void ndp_dump_rows_release(ndp_dump_rows *r);

typedef struct ndp_dump {
    const char *folder; /* borrowed */
    ndp_safetensors *batch;
    ndp_weights *gradients, *weights; /* weights: NULL: none */
    int64_t rows, length, tokens;
    double loss, lr;                /* lr: NaN: the job's */
    const ndp_tensor_entry *logits; /* of the batch; NULL: none */
} ndp_dump;

/* NDP_ENOTSUP: the job has a loss of pairs, losses of routers, or choices of experts, which a dump does not have.
 * Losses of routers that only the model's configuration asks for are left out of dumps. */
NDP_API ndp_status ndp_dump_check_job(const ndp_config *c);

/* Opens the files of a dump and reads the numbers of its batch; checks the tensors of the batch by their headers.
 * NDP_EIO, NDP_EFORMAT name the file and the tensor. */
NDP_API ndp_status ndp_dump_open(const char *folder, ndp_dump *out);
/* Accepts {0}. */
void ndp_dump_close(ndp_dump *d);

/* Checks that the gradients, and the weights if there are any, are those of the model: names and shapes, by the headers
 * alone; and that logits, if there are any, have the shape of its vocabulary. NDP_EFORMAT. */
NDP_API ndp_status ndp_dump_check_model(const ndp_dump *d, const ndp_model *m);
NDP_API ndp_status ndp_dump_check_logits(const ndp_dump *d, int64_t vocab);
/* Reads the rows. NDP_EFORMAT names the first id beyond the vocabulary, position or start that cannot be. The caller
 * releases them. */
NDP_API ndp_status ndp_dump_read_rows(const ndp_dump *d, int64_t vocab, ndp_dump_rows *out);
/* Reads every element of the gradients and weights: NDP_EFORMAT names the first that is NaN or infinite. */
NDP_API ndp_status ndp_dump_check_values(const ndp_dump *d);

#endif
