/* Text <-> token ids, as described by a Hugging Face tokenizer.json.
 *
 * A tokenizer is a pipeline of stages, each in a file of this room:
 *
 *   encode   added tokens -> normalizers -> added tokens again -> pre-tokenizers -> words (BPE or unigram) -> template
 *   decode   ids -> tokens -> decoders -> text
 *
 * A stage or option that is not supported is rejected by name when the file is read; nothing is skipped. A tokenizer
 * does not change once created: any number of threads may use it at the same time. */
#ifndef NDP_TEXT_TOKENIZER_H
#define NDP_TEXT_TOKENIZER_H

#include "base/hash128.h"
#include "base/text.h"
#include "text/ids.h"

typedef struct ndp_tokenizer ndp_tokenizer;

/* `source`: "bytes" (ids 0..255 are bytes, 256 begins a document, 257 ends one), a folder that contains tokenizer.json
 * (or GPT-2's older vocab.json and merges.txt), or such a file. A tokenizer_config.json next to it may name the begin
 * and end tokens. */
NDP_API ndp_status ndp_tokenizer_create(const char *source, ndp_tokenizer **out);
/* From the text of a tokenizer.json; `what` names it in messages. */
NDP_API ndp_status ndp_tokenizer_parse(const char *text, size_t size, const char *what, ndp_tokenizer **out);
/* A vocabulary of ids without texts, for files of ids: `vocab` ids, of which `bos` begins a document and `eos` ends one
 * (-1: none). It encodes the empty text and decodes no ids; more is NDP_ENOTSUP with `why` (copied) as its message. */
NDP_API ndp_status ndp_tokenizer_of_ids(int64_t vocab, int64_t bos, int64_t eos, const char *why, ndp_tokenizer **out);
/* The `why` of a vocabulary without texts; NULL for every other one. */
const char *ndp_tokenizer_why_no_texts(const ndp_tokenizer *t);
/* Whether a source has a tokenizer's files. */
bool ndp_tokenizer_exists(const char *source);
void ndp_tokenizer_destroy(ndp_tokenizer *t);
/* The folder of a source that is not "bytes"; the caller frees. NULL: out of memory. */
char *ndp_tokenizer_folder(const char *source);

/* Appends the ids of `n` bytes of UTF-8 (`bytes` accepts any bytes). `add_special`: also the tokens that the file's
 * post-processor puts before and after a text. Special tokens written in the text are recognized. On failure, `ids` may
 * contain a part of the result. */
NDP_API ndp_status ndp_tokenizer_encode(const ndp_tokenizer *t, const char *text, size_t n, bool add_special,
                                        ndp_ids *ids);
/* The same for what a chat template has rendered, without tokens before and after. Special tokens that the file looks
 * for in normalized text ("normalized": true) are also recognized where the normalizers would put a space in front. */
NDP_API ndp_status ndp_tokenizer_encode_rendered(const ndp_tokenizer *t, const char *text, size_t n, ndp_ids *ids);
/* Appends the text of the ids. `skip_special`: special tokens produce no text. NDP_EINVAL: an id has no token. Bytes
 * that are not UTF-8 become U+FFFD where the file's decoder says so; `bytes` returns them unchanged. */
NDP_API ndp_status ndp_tokenizer_decode(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special,
                                        ndp_str *out);

/* One more than the largest id. */
int32_t ndp_tokenizer_vocab_size(const ndp_tokenizer *t);
/* The token that begins a document, and the one that ends it; -1: none. */
int32_t ndp_tokenizer_bos(const ndp_tokenizer *t);
int32_t ndp_tokenizer_eos(const ndp_tokenizer *t);
/* How many tokens `add_special` puts before a text, and after it. */
int64_t ndp_tokenizer_prefix(const ndp_tokenizer *t);
int64_t ndp_tokenizer_suffix(const ndp_tokenizer *t);
/* The id of a token given by its exact text, or -1. `bytes` knows only <bos> and <eos>. */
int32_t ndp_tokenizer_id(const ndp_tokenizer *t, const char *token);
/* The text of a token as the vocabulary writes it, borrowed; data is NULL if the id has none. `bytes` has no texts. */
ndp_span ndp_tokenizer_token(const ndp_tokenizer *t, int32_t id);
/* Whether it is one of the tokens that stand for no text: they begin, end or separate messages and documents. */
bool ndp_tokenizer_is_special(const ndp_tokenizer *t, int32_t id);
/* XXH3-128 of the file: equal for equal definitions, wherever they are stored. */
ndp_hash128 ndp_tokenizer_fingerprint(const ndp_tokenizer *t);

#endif
