/* Inside the model room: models of several parts, whose text is a decoder of a family. */
#ifndef NDP_MODEL_COMPOSITES_H
#define NDP_MODEL_COMPOSITES_H

#include "model/families.h"

typedef struct ndp_composite {
    const char *type, *architecture; /* model_type; the class in `architectures` */
    const char *base;                /* what the names of the text's tensors begin with, but for the head's */
    const char *text;                /* the text's model_type, where text_config has none */
    bool fixed;                      /* it is, whatever text_config says */
    bool flat;                       /* without text_config, its keys are beside the others */
    bool tied;                       /* where tie_word_embeddings is missing */
    bool caps;                       /* its head caps logits as the text's own */
    bool ties_as_text;               /* where it is false, that in text_config counts */
} ndp_composite;

/* NULL: no row has that model_type. */
const ndp_composite *ndp_composite_find(const char *type);
/* "gemma3, llava, ..." into `out`, cut to fit; returns it. */
const char *ndp_composite_list(char *out, size_t size);
/* The configuration of the text, as that of a model by itself. The caller releases it. NDP_EFORMAT: there is none, it
 * is no object, or the sizes beside it are others. */
ndp_status ndp_composite_text(const ndp_composite *c, struct json_object *config, const char *what,
                              struct json_object **out);

#endif
