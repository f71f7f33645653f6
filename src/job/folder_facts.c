/* Facts of a model folder, corrected by its weights: is the head really tied to the embedding? */
#include "job/folder_facts.h"

#include "base/text.h"
#include "checkpoint/folder.h"

/* *own: the weights contain a head that differs from the embedding. */
static ndp_status compare_head(const ndp_weights *w, const char *folder, const ndp_model_spec *s, bool *own) {
    char head_text[100], tokens_text[100];
    const ndp_tensor_entry *tokens = ndp_weights_find(w, s->tie[0]), *head = ndp_weights_find(w, s->tie[1]);
    bool equal = true;
    if (head && tokens) { /* a missing embedding is found when the weights are loaded */
        if (!ndp_tensor_same_shape(&head->spec, &tokens->spec))
            return NDP_FAIL(NDP_EFORMAT,
                            "'%s': %s is %s and %s is %s, but config.json ties them (tie_word_embeddings), so they "
                            "must have the same shape. Take all files from the same model",
                            folder, head->spec.name, ndp_shape_text(&head->spec, head_text, sizeof head_text),
                            tokens->spec.name, ndp_shape_text(&tokens->spec, tokens_text, sizeof tokens_text));
        NDP_TRY(ndp_weights_same(w, tokens, head, &equal));
    }
    *own = !equal;
    return NDP_OK;
}

static ndp_status read_head(const char *folder, ndp_model_spec *s) {
    ndp_weights *w;
    bool own = false;
    NDP_TRY(ndp_weights_open(folder, &w));
    ndp_status st = ndp_weights_rename(w, &(ndp_naming){s->prefix, s->text, s->alias});
    if (st == NDP_OK)
        st = compare_head(w, folder, s, &own);
    if (st == NDP_OK)
        st = ndp_weights_intact(w);
    ndp_weights_close(w);
    NDP_TRY(st);
    ndp_model_spec_set_own_head(s, own);
    return NDP_OK;
}

ndp_status ndp_folder_facts(const char *folder, const ndp_own_list *own, ndp_model_spec *out) {
    ndp_model_spec s;
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, "config.json"));
    NDP_TRY(ndp_model_spec_read(path, own, &s));
    ndp_status st = s.tie[0][0] && ndp_weights_exist(folder) ? read_head(folder, &s) : NDP_OK;
    if (st == NDP_OK)
        *out = s;
    else
        ndp_model_spec_release(&s);
    return st;
}

const char *ndp_head_note(const ndp_model_spec *s) {
    return s->own_head ? "note: tie_word_embeddings is true in config.json, but lm_head.weight differs from the "
                         "embedding: the two are not tied"
                       : NULL;
}
