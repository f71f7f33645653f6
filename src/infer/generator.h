/* Inside the infer room: what all texts of a generation share, and a text as it is generated. */
#ifndef NDP_INFER_GENERATOR_H
#define NDP_INFER_GENERATOR_H

#include "infer/cached.h"
#include "infer/choose.h"
#include "infer/stops.h"
#include "infer/text_stream.h"

#include "ndparallel/ndparallel.h"

typedef struct ndp_generator {
    const ndp_generate_opts *opts; /* borrowed */
    ndp_infer infer;
    ndp_ids ends;        /* tokens that end a text */
    ndp_candidate *room; /* to choose among the vocabulary; NULL: greedy */
} ndp_generator;

/* NDP_EINVAL: a number of the options is out of range, or a stop string is empty. */
NDP_API ndp_status ndp_generator_check(const ndp_generate_opts *o);
/* Checks the options, opens the model's folder and finds what ends a text: eos_token_id of config.json and
 * generation_config.json, the tokenizer's begin and end tokens, and stop strings that are special tokens. */
NDP_API ndp_status ndp_generator_init(ndp_generator *g, const ndp_generate_opts *o);
/* The same for a model that is open: g->opts and g->infer. */
NDP_API ndp_status ndp_generator_prepare(ndp_generator *g);
void ndp_generator_release(ndp_generator *g);

/* One text. */
typedef struct ndp_answer {
    ndp_text_stream stream;
    ndp_stops stops;
    ndp_str text;    /* what the latest token completed, without stop strings */
    uint64_t number; /* of the text: texts of one seed draw different numbers */
    int64_t tokens, most;
    bool ended;
    ndp_finish finish; /* once it ended */
} ndp_answer;

/* An answer of up to `most` tokens, not counting the prompt, which it follows. */
NDP_API ndp_status ndp_answer_init(ndp_answer *a, const ndp_generator *g, const ndp_ids *prompt, uint64_t number,
                                   int64_t most);
void ndp_answer_release(ndp_answer *a);
/* Chooses the token at `position` from its logits and decodes what it completes. The text may end with it. */
NDP_API ndp_status ndp_answer_next(ndp_answer *a, const ndp_generator *g, const float *logits, int64_t position,
                                   int32_t *id);

#endif
