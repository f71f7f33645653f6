/* The names of tensors in a set of weights: files of a bare model omit a prefix, and those of models of several parts
 * have had several names for one text. They become the names that the model has, and exports give them those of the
 * files again. Called by what loads a model (weights/, job/). */
#include "checkpoint/folder_stacks.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

static bool has_any(const ndp_weights *w, const char *begin) {
    for (int64_t i = 0; i < w->n; i++)
        if (begins(w->tensors[i].entry->spec.name, begin))
            return true;
    return false;
}

/* Gives a tensor the name `begin` + `rest`. */
static ndp_status rename_to(ndp_weights *w, ndp_named_tensor *t, const char *begin, const char *rest) {
    ndp_tensor_entry *entry = ndp_arena_alloc(&w->arena, sizeof *entry);
    const char *name = ndp_arena_format(&w->arena, "%s%s", begin, rest);
    NDP_CHECK_MEMORY(entry && name, "for the names of %lld tensors", (long long)w->n);
    *entry = *t->entry;
    entry->spec.name = name;
    t->entry = entry;
    return NDP_OK;
}

static const char head[] = "lm_head.";

/* A bare model's: all names but the head's. */
static ndp_status add_prefix(ndp_weights *w, const char *prefix) {
    for (int64_t i = 0; i < w->n; i++)
        if (!begins(w->tensors[i].entry->spec.name, "lm_head"))
            NDP_TRY(rename_to(w, &w->tensors[i], prefix, w->tensors[i].entry->spec.name));
    return ndp_weights_sort(w);
}

/* Sets w->file_text and file_head to what the files have. */
static ndp_status find_spelling(ndp_weights *w, const ndp_naming *n) {
    const char *word = n->text + strlen(n->prefix);
    const char *of_old = ndp_arena_format(&w->arena, "%s%s", word, n->prefix);
    const char *head_of_old = ndp_arena_format(&w->arena, "%s%s", word, head);
    NDP_CHECK_MEMORY(of_old && head_of_old, "for the names of %lld tensors", (long long)w->n);
    const char *const ways[] = {n->text, of_old, word, n->prefix};
    int k = 0;
    while (k < NDP_COUNT(ways) - 1 && !has_any(w, ways[k]))
        k++;
    if (k == 0 && has_any(w, of_old))
        return NDP_FAIL(NDP_EFORMAT,
                        "'%s' has tensors named %s... and others named %s..., which are one text in two spellings; "
                        "remove one",
                        w->folder, n->text, of_old);
    w->text = n->text, w->file_text = ways[k], w->file_head = ways[k] == of_old ? head_of_old : head;
    return NDP_OK;
}

/* Where the text alone has no word of its own, other parts stand behind the prefix too. */
static bool is_other(const char *name) { return begins(name, "model.visual."); }

static ndp_status rename_text(ndp_weights *w, const ndp_naming *n) {
    NDP_TRY(find_spelling(w, n));
    for (int64_t i = 0; i < w->n; i++) {
        const char *name = w->tensors[i].entry->spec.name;
        if (begins(name, w->file_head))
            NDP_TRY(rename_to(w, &w->tensors[i], head, name + strlen(w->file_head)));
        else if (begins(name, w->file_text) && !is_other(name))
            NDP_TRY(rename_to(w, &w->tensors[i], w->text, name + strlen(w->file_text)));
    }
    return ndp_weights_sort(w);
}

/* A text that transformers took out of a model of several parts. */
static ndp_status replace_alias(ndp_weights *w, const ndp_naming *n) {
    w->text = n->prefix, w->file_text = n->alias, w->file_head = head;
    for (int64_t i = 0; i < w->n; i++) {
        const char *name = w->tensors[i].entry->spec.name;
        if (begins(name, n->alias))
            NDP_TRY(rename_to(w, &w->tensors[i], n->prefix, name + strlen(n->alias)));
    }
    return ndp_weights_sort(w);
}

ndp_status ndp_weights_rename(ndp_weights *w, const ndp_naming *n) {
    if (*n->text)
        return rename_text(w, n);
    if (n->alias && has_any(w, n->alias))
        return replace_alias(w, n);
    return has_any(w, n->prefix) ? NDP_OK : add_prefix(w, n->prefix);
}

const char *ndp_weights_file_name(const ndp_weights *w, ndp_arena *arena, const char *name) {
    if (w->text && begins(name, w->text))
        return ndp_arena_format(arena, "%s%s", w->file_text, name + strlen(w->text));
    if (w->text && begins(name, head))
        return ndp_arena_format(arena, "%s%s", w->file_head, name + strlen(head));
    return name;
}
