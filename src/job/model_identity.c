/* The identity of a model: its facts and its tokenizer. */
#include "job/model_identity.h"

#include "base/json.h"
#include "model/architecture.h"
#include <stdio.h>
#include <string.h>

void ndp_identity_text(struct json_object *o, const char *key, ndp_str *text) {
    json_object_object_add(o, key, text->failed ? NULL : json_object_new_string(text->data ? text->data : ""));
    ndp_str_release(text);
}

void ndp_identity_hash(ndp_str *out, ndp_hash128 h) {
    ndp_str_addf(out, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

bool ndp_identity_is_hash(const char *text) { return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32; }

/* With bos and eos, which may come from a file that the fingerprint does not cover. */
void ndp_identity_tokenizer(const ndp_tokenizer *t, ndp_str *out) {
    ndp_identity_hash(out, ndp_tokenizer_fingerprint(t));
    ndp_str_addf(out, " bos %d eos %d", ndp_tokenizer_bos(t), ndp_tokenizer_eos(t));
}

static void add_fact(void *o, const ndp_fact *fact) {
    char key[64];
    snprintf(key, sizeof key, "model.%s", fact->key);
    json_object_object_add(o, key, fact->value ? json_object_new_string(fact->value) : NULL);
}

void ndp_identity_facts(const ndp_model *m, struct json_object *o) { m->architecture->list(m->facts, add_fact, o); }

typedef struct shape_search {
    const char *key;
    bool shape;
} shape_search;

static void find_shape(void *user, const ndp_fact *fact) {
    shape_search *s = user;
    s->shape |= fact->shape && strcmp(s->key, fact->key) == 0;
}

bool ndp_identity_is_shape(const ndp_model *m, const char *key) {
    static const char section[] = "model.";
    size_t n = sizeof section - 1;
    shape_search s = {key + n, false};
    if (strncmp(key, section, n) == 0)
        m->architecture->list(m->facts, find_shape, &s);
    return s.shape;
}

struct json_object *ndp_identity_model(const ndp_model *m, const ndp_tokenizer *t) {
    struct json_object *o = json_object_new_object();
    ndp_str text = {0};
    ndp_identity_facts(m, o);
    ndp_identity_tokenizer(t, &text);
    ndp_identity_text(o, "data.tokenizer", &text);
    return o;
}
