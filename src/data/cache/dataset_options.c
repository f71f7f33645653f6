/* What follows from the options of a data set: threads, the tokens around documents of .bin files, and bytes of an id.
 * */
#include "data/cache/dataset_options.h"

#include "base/cpu.h"

int ndp_dataset_threads(const ndp_dataset_options *o) { return o->threads ? o->threads : ndp_cpu_cores(); }

ndp_bin_rule ndp_dataset_bin_rule(const ndp_dataset_options *o) {
    const ndp_tokenizer *t = o->tokenizer;
    ndp_bin_rule r = {ndp_tokenizer_bos(t), ndp_tokenizer_eos(t), o->vocab ? o->vocab : ndp_tokenizer_vocab_size(t)};
    if (r.bos < 0 && r.eos < 0)
        r.bos = r.eos = ndp_tokenizer_id(t, "<|endoftext|>");
    return r;
}

int ndp_dataset_id_bytes(const ndp_dataset_options *o) {
    int64_t words = ndp_tokenizer_vocab_size(o->tokenizer), limit = ndp_dataset_bin_rule(o).vocab;
    return (words > limit ? words : limit) <= 65536 ? 2 : 4;
}
