/* Inside the infer room: a model folder opened for use on one rank. */
#ifndef NDP_INFER_INFER_H
#define NDP_INFER_INFER_H

#include "step/engine.h"
#include "text/tokenizer.h"

typedef struct ndp_infer {
    char *folder;
    ndp_facts facts;
    ndp_tokenizer *tokenizer;
    ndp_transport *transport;
    ndp_mesh mesh;
    const ndp_device *device;
    int threads;
    bool force_memory; /* false after init */
} ndp_infer;

/* Reads the facts of the folder (train/folder_facts.h; their note goes to stderr) and the tokenizer; the weights have
 * to be there (NDP_EIO), but are not loaded yet. `device`: "cpu" or "ref"; threads: 0 for all cores. */
NDP_API ndp_status ndp_infer_init(ndp_infer *f, const char *folder, const char *device, int threads);
/* After all engines of it. */
void ndp_infer_release(ndp_infer *f);

/* Appends the ids of a text, with the special tokens that the tokenizer puts around one. NDP_EINVAL: a token that the
 * model has no embedding of. */
NDP_API ndp_status ndp_infer_encode(const ndp_infer *f, const char *text, size_t n, ndp_ids *ids);

/* Whether there is memory for engines of `n` models, all of which read the first one's weights, and `besides` bytes.
 * `less`: what takes less, for the message. */
NDP_API ndp_status ndp_infer_check_memory(const ndp_infer *f, const ndp_model *const *models, int n, int64_t besides,
                                          const char *less);
/* An engine for `m`, which was built of the folder's facts in fp32. Its weights are loaded, or read where `weights_of`
 * has them. */
NDP_API ndp_status ndp_infer_engine(const ndp_infer *f, const ndp_model *m, const ndp_engine *weights_of,
                                    ndp_engine **out);

#endif
