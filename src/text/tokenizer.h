/* Text <-> token ids, as Hugging Face's tokenizer.json describes it.
 *
 * A tokenizer is a line of stages, each a file of this room:
 *   added tokens -> normalizers -> added tokens again -> pre-tokenizers -> words (BPE or unigram) -> template (encode)
 *   ids -> tokens -> decoders -> text (decode) A stage or an option that is not built is refused by name when the file
 * is read; nothing is skipped.
 *
 * A tokenizer is constant once made: any number of threads may use it at the same time.
 */
#ifndef NDP_TEXT_TOKENIZER_H
#define NDP_TEXT_TOKENIZER_H

#include "base/hash128.h"
#include "base/text.h"
#include "text/ids.h"

typedef struct ndp_tokenizer ndp_tokenizer;

/* `source`: "bytes" (ids 0..255 are bytes, 256 begins a document, 257 ends one), a folder that holds a tokenizer.json
 * (or GPT-2's older vocab.json and merges.txt), or such a file. A tokenizer_config.json beside it may name the begin
 * and end tokens. */
NDP_API ndp_status ndp_tokenizer_create(const char *source, ndp_tokenizer **out);
/* From the text of a tokenizer.json; `what` names it in messages. */
NDP_API ndp_status ndp_tokenizer_parse(const char *text, size_t size, const char *what, ndp_tokenizer **out);
void ndp_tokenizer_destroy(ndp_tokenizer *t);

/* Appends the ids of `n` bytes of UTF-8 (`bytes` takes any bytes). With `add_special`, the tokens that the file's
 * post-processor puts before and after a text are added. Special tokens written in the text are recognised. On failure
 * `ids` may hold a part. */
NDP_API ndp_status ndp_tokenizer_encode(const ndp_tokenizer *t, const char *text, size_t n, bool add_special,
                                        ndp_ids *ids);
/* Appends the text of the ids. With `skip_special`, special tokens leave no text. NDP_EINVAL: an id without a token.
 * Bytes that are not UTF-8 become U+FFFD where the file's decoder says so; `bytes` gives them as they are. */
NDP_API ndp_status ndp_tokenizer_decode(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special,
                                        ndp_str *out);

/* One more than the largest id. */
int32_t ndp_tokenizer_vocab_size(const ndp_tokenizer *t);
/* The token that begins (ends) a document, or -1. */
int32_t ndp_tokenizer_bos(const ndp_tokenizer *t);
int32_t ndp_tokenizer_eos(const ndp_tokenizer *t);
/* How many tokens it adds before (after) a text with `add_special`. */
int64_t ndp_tokenizer_prefix(const ndp_tokenizer *t);
int64_t ndp_tokenizer_suffix(const ndp_tokenizer *t);
/* The id of a token's exact text, or -1. Those of `bytes` that are no bytes are <bos> and <eos>. */
int32_t ndp_tokenizer_id(const ndp_tokenizer *t, const char *token);
/* The text of a token as the vocabulary writes it, borrowed; data is NULL for an id without one. `bytes` has none. */
ndp_span ndp_tokenizer_token(const ndp_tokenizer *t, int32_t id);
/* Equal for equal definitions, whatever their path: XXH3-128 of the file. */
ndp_hash128 ndp_tokenizer_fingerprint(const ndp_tokenizer *t);

#endif
