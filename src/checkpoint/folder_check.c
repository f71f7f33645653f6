/* Whether the weights of a folder are those that a model has: names, shapes and types, all differences in one message.
 * Called by the trainer, inference and checkpoints once a folder is open. */
#include "checkpoint/folder.h"
#include "checkpoint/safetensors_types.h"

#include <stdio.h>
#include <stdlib.h>

/* One kind of mismatch: how many there are, and the first few names. */
typedef struct trouble {
    ndp_str text;
    int n;
} trouble;

enum { NAMES = 5 };

static void note(trouble *t, const char *name, const char *detail) {
    if (t->n++ < NAMES)
        ndp_str_addf(&t->text, "%s%s%s", t->n > 1 ? ", " : "", name, detail);
}

static void add_trouble(ndp_str *message, const char *kind, trouble *t) {
    if (t->n)
        ndp_str_addf(message, "%s%d %s: %s%s", message->length ? "; " : "", t->n, kind,
                     t->text.data ? t->text.data : "", t->n > NAMES ? ", ..." : "");
    message->failed |= t->text.failed;
    ndp_str_release(&t->text);
}

static void check_expected(const ndp_tensor_spec *want, const ndp_tensor_entry *found, trouble *missing,
                           trouble *wrong) {
    char have_text[100], want_text[100], detail[256];
    if (!found) {
        note(missing, want->name, "");
    } else if (!ndp_tensor_same_shape(want, &found->spec)) {
        snprintf(detail, sizeof detail, " is %s, expected %s",
                 ndp_shape_text(&found->spec, have_text, sizeof have_text),
                 ndp_shape_text(want, want_text, sizeof want_text));
        note(wrong, want->name, detail);
    } else if (want->dtype == NDP_U8 ? found->spec.dtype != NDP_U8 : !ndp_dtype_is_float(found->spec.dtype)) {
        snprintf(detail, sizeof detail, " is %s, which is not read as a weight", found->type_name);
        note(wrong, want->name, detail);
    }
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_extra(const ndp_weights *w, const char **sorted, int n, ndp_weights_ignore *ignore, void *arg,
                        trouble *extra) {
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const char *name = ndp_weights_at(w, i)->spec.name;
        if ((n && bsearch(&name, sorted, (size_t)n, sizeof *sorted, compare_names)) ||
            ndp_ends_with(name, "rotary_emb.inv_freq") || (ignore && ignore(name, arg)))
            continue;
        note(extra, name, "");
    }
}

ndp_status ndp_weights_compare(const ndp_weights *w, const ndp_tensor_spec *expected, int n, ndp_weights_ignore *ignore,
                               void *arg, ndp_str *out) {
    const char **sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    NDP_CHECK_MEMORY(sorted, "to check %d tensors", n);
    trouble missing = {0}, wrong = {0}, extra = {0};
    for (int i = 0; i < n; i++) {
        sorted[i] = expected[i].name;
        check_expected(&expected[i], ndp_weights_find(w, expected[i].name), &missing, &wrong);
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_names);
    check_extra(w, sorted, n, ignore, arg, &extra);
    free(sorted);
    add_trouble(out, "missing", &missing);
    add_trouble(out, "of another shape or type", &wrong);
    add_trouble(out, "that the model does not have", &extra);
    return NDP_MEMORY(!out->failed, "to say which of %d tensors are wrong", n);
}

ndp_status ndp_weights_check(const ndp_weights *w, const ndp_tensor_spec *expected, int n, ndp_weights_ignore *ignore,
                             void *arg) {
    ndp_str wrong = {0};
    ndp_status st = ndp_weights_compare(w, expected, n, ignore, arg, &wrong);
    if (st == NDP_OK && wrong.length)
        st = NDP_FAIL(NDP_EFORMAT,
                      "the weights in '%s' are not those of its config.json: %s. Take both from the same model",
                      ndp_weights_folder(w), wrong.data);
    ndp_str_release(&wrong);
    return st;
}
