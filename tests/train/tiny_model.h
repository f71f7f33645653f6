/* A small random Llama over bytes, as a folder: for tests of what reads model folders. */
#ifndef TESTS_TRAIN_TINY_MODEL_H
#define TESTS_TRAIN_TINY_MODEL_H

#include "base/text.h"
#include "check.h"
#include "infer/infer.h"
#include "weights/weights.h"
#include <stdlib.h>
#include <unistd.h>

enum { TINY_VOCAB = 260, TINY_LONGEST = 200, TINY_BOS = 256 };

/* Heads of 6 over a hidden size of 16, GQA, biases, an untied head. eos: JSON. */
static const char tiny_config[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 260, \"hidden_size\": 16, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 200, \"attention_bias\": true, \"mlp_bias\": true, "
    "\"tie_word_embeddings\": false, \"initializer_range\": 0.4, \"rms_norm_eps\": 1e-5, \"eos_token_id\": %s}";

static inline void tiny_write(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    assert_non_null(path);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

static inline void tiny_write_config(const char *folder, const char *eos) {
    char *text = ndp_format(tiny_config, eos);
    assert_non_null(text);
    tiny_write(folder, "config.json", text);
    free(text);
}

/* Every byte a token; with `bos`, <s> (256) before a text. */
static inline void tiny_write_tokenizer(const char *folder, bool bos) {
    ndp_str s = {0};
    ndp_str_add(&s,
                "{\"added_tokens\": [{\"id\": 256, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, "
                "\"rstrip\": false, \"normalized\": false, \"special\": true}], ");
    if (bos)
        ndp_str_add(&s,
                    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
                    "\"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], "
                    "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [256], \"tokens\": [\"<s>\"]}}}, ");
    ndp_str_add(
        &s,
        "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
        "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"merges\": [], \"vocab\": {");
    for (int id = 0; id < 256; id++)
        ndp_str_addf(&s, "\"<0x%02X>\": %d, ", id, id);
    ndp_str_add(&s, "\"<s>\": 256, \"&1&\": 257, \"&2&\": 258, \"&3&\": 259}}}");
    assert_false(s.failed);
    tiny_write(folder, "tokenizer.json", s.data);
    ndp_str_release(&s);
}

/* An engine of the folder's model; its weights are still zero. */
static inline ndp_engine *tiny_engine(const ndp_infer *f, ndp_model_mode mode, int64_t rows, ndp_model *m) {
    ndp_model_opts opts = {
        .mode = mode, .rows = rows, .keys = rows, .positions = rows, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(f->facts, &opts, m));
    ndp_engine_opts o = {.model = m,
                         .step = {.parallel = NDP_PARALLEL_INIT, .mesh = f->mesh, .exec = &f->exec, .accumulation = 1},
                         .transport = f->transport};
    ndp_engine *e;
    CHECK_OK(ndp_engine_create(&o, &e));
    return e;
}

/* Random weights, stored as `stored`. */
static inline void tiny_write_weights(const char *folder, uint64_t seed, ndp_dtype stored) {
    ndp_infer f;
    ndp_model m;
    ndp_tensor_list list = {0};
    char *path = ndp_format("%s/model.safetensors", folder);
    CHECK_OK(ndp_file_write_atomic(path, "\2\0\0\0\0\0\0\0{}", 10)); /* no tensors yet: a folder has weights */
    free(path);
    CHECK_OK(ndp_infer_init(&f, folder, "cpu", 1));
    ndp_engine *e = tiny_engine(&f, NDP_MODEL_TRAIN, 8, &m);
    CHECK_OK(ndp_weights_draw(e, seed));
    CHECK_OK(ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, NDP_TENSORS_ALL, stored));
    CHECK_OK(ndp_weights_save(NULL, NULL, folder, list.specs, list.n, list.pieces, list.n_pieces, NDP_SHARD_BYTES));
    ndp_tensor_list_release(&list);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    ndp_infer_release(&f);
}

/* cmocka: a folder with the whole model, as *state. */
static inline int tiny_setup(void **state) {
    char *folder = strdup("/tmp/ndp-tiny-XXXXXX");
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    tiny_write_config(folder, "null");
    tiny_write_tokenizer(folder, true);
    tiny_write_weights(folder, 3, NDP_F32);
    return 0;
}

static inline int tiny_teardown(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* FOLDER/NAME below $NDP_TEST_DATA, freed by the caller; NULL, and said so, where there is none. */
static inline char *reference_path(const char *what, const char *name) {
    const char *root = getenv("NDP_TEST_DATA");
    char *path = root ? ndp_format("%s/%s", root, name) : NULL;
    if (path && ndp_path_exists(path))
        return path;
    print_message("SKIPPED: %s: needs %s in the folder that NDP_TEST_DATA names\n", what, name);
    free(path);
    return NULL;
}

#endif
