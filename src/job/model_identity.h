/* The part of a run's identity (train/identity.h) that its model determines. Every value is a text. */
#ifndef NDP_JOB_MODEL_IDENTITY_H
#define NDP_JOB_MODEL_IDENTITY_H

#include "base/hash128.h"
#include "base/text.h"
#include "model/model.h"
#include "text/tokenizer.h"

struct json_object;

/* The facts of a built model and its tokenizer, by key. The caller releases it with json_object_put; a value is null if
 * memory ran out. */
struct json_object *ndp_identity_model(const ndp_model *m, const ndp_tokenizer *t);

/* True for a fact that the shapes of tensors depend on: a checkpoint with another value does not fit. */
bool ndp_identity_is_shape(const ndp_model *m, const char *key);

/* Adds the facts of a built model. */
void ndp_identity_facts(const ndp_model *m, struct json_object *o);
/* Appends the hash of a tokenizer, with its begin and end token. */
void ndp_identity_tokenizer(const ndp_tokenizer *t, ndp_str *out);
/* Appends a hash as hexadecimal digits. */
void ndp_identity_hash(ndp_str *out, ndp_hash128 h);
/* True for such a text. */
bool ndp_identity_is_hash(const char *text);
/* Adds a key and its text, which is released; null if memory ran out. */
void ndp_identity_text(struct json_object *o, const char *key, ndp_str *text);

#endif
