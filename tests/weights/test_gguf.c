/* GGUF files: what their headers say and where their elements are, read back by a small reader; and what is refused.
 * tests/golden/check_gguf.py shows the files to llama.cpp. */
#include "base/fault.h"
#include "train/golden.h"
#include "weights/gguf/gguf.h"
#include "weights/tensor_set.h"

#include <dirent.h>
#include <math.h>
#include <ndparallel/ndparallel.h>
#include <unistd.h>

static char *place, *file; /* a folder for all files of this program; one of them */

static int make_place(void **state) {
    (void)state;
    place = strdup("/tmp/ndp-gguf-XXXXXX");
    file = place && mkdtemp(place) ? ndp_format("%s/m.gguf", place) : NULL;
    return file ? 0 : -1;
}

static int drop_place(void **state) {
    (void)state;
    ndp_status st = ndp_folder_remove(place);
    free(place);
    free(file);
    return st == NDP_OK ? 0 : -1;
}

/* ---- a reader ---- */

typedef struct header {
    char *data;
    size_t size, at, begin; /* of the file; where reading is; where the data begin */
    uint64_t tensors, keys;
    size_t first_key, first_tensor;
} header;

static uint64_t number(header *h, size_t bytes) {
    uint64_t v = 0;
    assert_true(h->at + bytes <= h->size);
    memcpy(&v, h->data + h->at, bytes);
    h->at += bytes;
    return v;
}

static bool word_is(header *h, const char *word) {
    uint64_t n = number(h, 8);
    bool is = n == strlen(word) && memcmp(h->data + h->at, word, n) == 0;
    assert_true(h->at + n <= h->size);
    h->at += n;
    return is;
}

static void pass_over(header *h, uint64_t type) {
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == NDP_GGUF_TEXT) {
        (void)word_is(h, "");
    } else if (type == 9) {
        uint64_t of = number(h, 4), n = number(h, 8);
        for (uint64_t i = 0; i < n; i++)
            pass_over(h, of);
    } else
        h->at += (size_t)sizes[type];
}

/* Reads all of the header, so that it is known to be whole. */
static header open_file(void) {
    header h = {0};
    CHECK_OK(ndp_file_read(file, &h.data, &h.size));
    assert_memory_equal(h.data, "GGUF\3\0\0\0", 8);
    h.at = 8;
    h.tensors = number(&h, 8), h.keys = number(&h, 8);
    h.first_key = h.at;
    for (uint64_t i = 0; i < h.keys; i++) {
        (void)word_is(&h, "");
        pass_over(&h, number(&h, 4));
    }
    h.first_tensor = h.at;
    for (uint64_t i = 0; i < h.tensors; i++) {
        (void)word_is(&h, "");
        h.at += 8 * number(&h, 4) + 12;
    }
    h.begin = (h.at + 31) / 32 * 32;
    return h;
}

/* Goes to the value of a key. */
static bool find_key(header *h, const char *key, uint64_t type) {
    h->at = h->first_key;
    for (uint64_t i = 0; i < h->keys; i++) {
        bool is = word_is(h, key);
        uint64_t of = number(h, 4);
        if (is)
            assert_int_equal(of, type);
        if (is)
            return true;
        pass_over(h, of);
    }
    return false;
}

static void check_u32(header *h, const char *key, uint64_t value) {
    assert_true(find_key(h, key, NDP_GGUF_U32));
    assert_int_equal(number(h, 4), value);
}

static void check_float(header *h, const char *key, double value) {
    float v;
    assert_true(find_key(h, key, NDP_GGUF_FLOAT));
    uint64_t bits = number(h, 4);
    memcpy(&v, &bits, 4);
    assert_true(fabs((double)v - value) <= 1e-6 * fabs(value));
}

static void check_word(header *h, const char *key, const char *word) {
    assert_true(find_key(h, key, NDP_GGUF_TEXT));
    assert_true(word_is(h, word));
}

static bool has_word(header *h, const char *key, uint64_t at, const char *word) {
    assert_true(find_key(h, key, 9));
    assert_int_equal(number(h, 4), NDP_GGUF_TEXT);
    uint64_t n = number(h, 8);
    for (uint64_t i = 0; i < at && i < n; i++)
        (void)word_is(h, "");
    return at < n && word_is(h, word);
}

/* Returns the elements of the tensor `name` and asserts its extents. NULL: no tensor has that name. */
static const void *find_tensor(header *h, const char *name, uint64_t type, uint64_t a, uint64_t b, uint64_t c) {
    h->at = h->first_tensor;
    for (uint64_t i = 0; i < h->tensors; i++) {
        bool is = word_is(h, name);
        uint64_t dims = number(h, 4), n[3] = {1, 1, 1};
        for (uint64_t d = 0; d < dims; d++)
            n[d] = number(h, 8);
        uint64_t of = number(h, 4), offset = number(h, 8);
        assert_int_equal(offset % 32, 0);
        if (!is)
            continue;
        assert_int_equal(of, type);
        assert_true(n[0] == a && n[1] == b && n[2] == c);
        return h->data + h->begin + offset;
    }
    return NULL;
}

/* ---- folders ---- */

static void write_gguf(const char *folder, const char *type) {
    int64_t tensors;
    unlink(file);
    CHECK_OK(ndp_gguf_export(&(ndp_gguf_opts){.model = folder, .file = file, .type = type}, &tensors));
    header h = open_file();
    assert_int_equal(tensors, h.tensors);
    free(h.data);
}

/* A golden folder as a file of a type, and its tensors, which the caller releases. */
static tensor_set *export_golden(const char *name, const char *type, header *h) {
    char folder[1024];
    golden_folder(name, folder, sizeof folder);
    write_gguf(folder, type);
    *h = open_file();
    return set_read(folder, "model");
}

static void close_both(tensor_set *s, header *h) {
    set_release(s);
    free(h->data);
}

/* Element [row, column] of a matrix of a set. */
static float at(tensor_set *s, const char *name, int64_t row, int64_t column) {
    const set_tensor *t = set_find(s, name);
    return (float)t->x[row * (t->spec.ndim > 1 ? t->spec.shape[t->spec.ndim - 1] : 1) + column];
}

/* ---- elements ---- */

static void rows_of_queries_are_turned(void **state) {
    (void)state;
    enum { HIDDEN = 24, HEAD = 8, HEADS = 4 };
    header h;
    tensor_set *s = export_golden("llama-yarn", "fp32", &h);
    const float *q = find_tensor(&h, "blk.1.attn_q.weight", NDP_GGUF_F32, HIDDEN, HEADS * HEAD, 1),
                *v = find_tensor(&h, "blk.1.attn_v.weight", NDP_GGUF_F32, HIDDEN, 2 * HEAD, 1);
    assert_true(q && v);
    for (int r = 0; r < HEADS * HEAD; r++)
        for (int c = 0; c < HIDDEN; c++) {
            int in = r % HEAD, from = r - in + in / 2 + in % 2 * (HEAD / 2);
            assert_true(q[r * HIDDEN + c] == at(s, "model.layers.1.self_attn.q_proj.weight", from, c));
            if (r < 2 * HEAD)
                assert_true(v[r * HIDDEN + c] == at(s, "model.layers.1.self_attn.v_proj.weight", r, c));
        }
    check_word(&h, "general.architecture", "llama");
    check_word(&h, "general.name", "llama-yarn");
    check_word(&h, "tokenizer.ggml.model", "none");
    check_word(&h, "llama.rope.scaling.type", "yarn");
    check_float(&h, "llama.rope.scaling.factor", 4);
    check_u32(&h, "llama.rope.scaling.original_context_length", 16);
    check_u32(&h, "llama.attention.head_count", HEADS);
    check_u32(&h, "llama.attention.head_count_kv", 2);
    check_u32(&h, "llama.attention.key_length", HEAD);
    check_u32(&h, "general.file_type", 0);
    close_both(s, &h);
}

static void matrices_are_transposed(void **state) {
    (void)state;
    header h;
    tensor_set *s = export_golden("gpt2", "fp32", &h);
    const set_tensor *t = set_find(s, "h.0.attn.c_attn.weight");
    int64_t in = t->spec.shape[0], out = t->spec.shape[1];
    const float *w = find_tensor(&h, "blk.0.attn_qkv.weight", NDP_GGUF_F32, (uint64_t)in, (uint64_t)out, 1);
    assert_non_null(w);
    for (int64_t r = 0; r < out; r++)
        for (int64_t c = 0; c < in; c++)
            assert_true(w[r * in + c] == (float)t->x[c * out + r]);
    assert_null(find_tensor(&h, "output.weight", NDP_GGUF_F32, 0, 0, 0)); /* the head is tied */
    close_both(s, &h);
    s = export_golden("gpt-neox", "fp32", &h); /* heads of queries, keys and values in turn: the second head of keys */
    const float *b = find_tensor(&h, "blk.0.attn_qkv.bias", NDP_GGUF_F32, 96, 1, 1);
    assert_non_null(b);
    for (int i = 0; i < 8; i++)
        assert_true(b[32 + 8 + i] == at(s, "gpt_neox.layers.0.attention.query_key_value.bias", 24 + 8 + i, 0));
    close_both(s, &h);
}

static void experts_are_stacked(void **state) {
    (void)state;
    enum { EXPERT = 2, ROW = 3, COLUMN = 5, HIDDEN = 24 };
    header h;
    tensor_set *s = export_golden("mixtral", "fp32", &h);
    const set_tensor *one = set_find(s, "model.layers.0.block_sparse_moe.experts.0.w1.weight");
    int64_t ffn = one->spec.shape[0],
            experts = set_find(s, "model.layers.0.block_sparse_moe.gate.weight")->spec.shape[0];
    const float *up =
        find_tensor(&h, "blk.0.ffn_up_exps.weight", NDP_GGUF_F32, HIDDEN, (uint64_t)ffn, (uint64_t)experts);
    assert_non_null(up);
    assert_true(up[(EXPERT * ffn + ROW) * HIDDEN + COLUMN] ==
                at(s, "model.layers.0.block_sparse_moe.experts.2.w3.weight", ROW, COLUMN));
    check_u32(&h, "llama.expert_count", (uint64_t)experts);
    close_both(s, &h);
    s = export_golden("gpt-oss", "fp32", &h); /* pairs of columns of [experts, inputs, 2 ffn] */
    const set_tensor *pairs = set_find(s, "model.layers.0.mlp.experts.gate_up_proj");
    int64_t in = pairs->spec.shape[1], both = pairs->spec.shape[2];
    up = find_tensor(&h, "blk.0.ffn_up_exps.weight", NDP_GGUF_F32, (uint64_t)in, (uint64_t)both / 2,
                     (uint64_t)pairs->spec.shape[0]);
    assert_non_null(up);
    assert_true(up[(EXPERT * both / 2 + ROW) * in + COLUMN] ==
                (float)pairs->x[(EXPERT * in + COLUMN) * both + 2 * ROW + 1]);
    close_both(s, &h);
}

static void norms_of_gemma_are_whole(void **state) {
    (void)state;
    header h;
    tensor_set *s = export_golden("gemma2", "q8_0", &h);
    const float *norm = find_tensor(&h, "blk.0.post_ffw_norm.weight", NDP_GGUF_F32, 24, 1, 1);
    assert_non_null(norm);
    assert_true(norm[7] == at(s, "model.layers.0.post_feedforward_layernorm.weight", 7, 0) + 1);
    /* Rows of 24 have no whole blocks: fp16 in their place. */
    assert_non_null(find_tensor(&h, "blk.0.attn_k.weight", NDP_GGUF_F16, 24, 16, 1));
    assert_non_null(find_tensor(&h, "blk.0.attn_output.weight", NDP_GGUF_Q8_0, 32, 24, 1));
    check_u32(&h, "gemma2.attention.sliding_window", 6);
    close_both(s, &h);
}

/* Made by gguf.quants.quantize of gguf 0.19: halves, zeros, a scale without an exact half, and a subnormal one. */
static void blocks_are_those_of_gguf(void **state) {
    (void)state;
    static const unsigned char blocks[4][NDP_GGUF_BLOCK_BYTES] = {
        {0x00, 0x3c, 0x81, 0x7f, 0x01, 0xff, 0x02, 0xfe, 0x03, 0xfd, 0x00, 0xff, 0x3f, 0x65, 0x00, 0x01, 0x02,
         0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13},
        {0},
        {0xf7, 0x29, 0x89, 0x91, 0x99, 0xa1, 0xa9, 0xb1, 0xb9, 0xc1, 0xc8, 0xd0, 0xd8, 0xe0, 0xe8, 0xf0, 0xf8,
         0x00, 0x08, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x3f, 0x47, 0x4f, 0x57, 0x5f, 0x67, 0x6f, 0x77, 0x7f},
        {0x04, 0x00, 0x04, 0xf8, 0x0c, 0xf0, 0x14, 0xe8, 0x1c, 0xe0, 0x24, 0xd8, 0x2c, 0xd0, 0x34, 0xc8, 0x3c,
         0xc1, 0x43, 0xb9, 0x4b, 0xb1, 0x53, 0xa9, 0x5b, 0xa1, 0x63, 0x99, 0x6b, 0x91, 0x73, 0x89, 0x7b, 0x81}};
    static const float halves[] = {-127, 126.5f, 0.5f, -0.5f, 1.5f, -1.5f, 2.5f, -2.5f, 0.49f, -0.51f, 63.25f, 100.75f};
    float x[4][NDP_GGUF_BLOCK] = {0};
    unsigned char out[4][NDP_GGUF_BLOCK_BYTES];
    for (int i = 0; i < NDP_GGUF_BLOCK; i++) {
        x[0][i] = i < NDP_COUNT(halves) ? halves[i] : (float)(i - NDP_COUNT(halves));
        x[2][i] = (float)((i - 15) * 0.37);
        x[3][i] = (float)(1e-6 * (i + 1) * (i % 2 ? -1 : 1));
    }
    ndp_gguf_encode_q8_0(x[0], 4, out[0]);
    assert_memory_equal(out, blocks, sizeof blocks);
}

/* ---- tokenizers ---- */

static void put_file(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

/* The folder of llama-yarn, with a tokenizer of these parts. */
static char *with_tokenizer(const char *tokenizer) {
    char source[1024], *folder = ndp_format("%s/model", place), *config = ndp_format("%s/config.json", folder), *text;
    char *from = ndp_format("%s/config.json", golden_folder("llama-yarn", source, sizeof source));
    size_t n;
    CHECK_OK(ndp_folder_create(folder));
    CHECK_OK(ndp_file_read(from, &text, &n));
    CHECK_OK(ndp_file_write_atomic(config, text, n));
    tensor_set *s = set_read(source, "model");
    set_write(s, folder, "model");
    set_release(s);
    put_file(folder, "tokenizer.json", tokenizer);
    free(text);
    free(from);
    free(config);
    return folder;
}

#define TOKENIZER(normalizer, stages, model)                                                                           \
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true, \"normalized\": false, "                 \
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false}], \"normalizer\": " normalizer                      \
    ", \"pre_tokenizer\": " stages ", \"model\": {\"type\": \"BPE\", " model "}}"
#define BYTES_STAGE "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true}"
#define BYTE_MODEL "\"vocab\": {\"<s>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3}, \"merges\": [\"a b\"]"
#define SPACE_STAGES                                                                                                   \
    "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"}, "              \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}]}"
#define PIECES_MODEL                                                                                                   \
    "\"byte_fallback\": true, \"vocab\": {\"<s>\": 0, \"<0x0A>\": 1, \"a\": 2, \"\xe2\x96\x81\": 3, "                  \
    "\"\xe2\x96\x81"                                                                                                   \
    "a\": 4, \"aa\": 5}, \"merges\": [[\"a\", \"a\"], [\"\xe2\x96\x81\", \"a\"]]"

static header export_tokenizer(const char *tokenizer) {
    char *folder = with_tokenizer(tokenizer);
    put_file(folder, "chat_template.jinja", "{{ messages }}");
    write_gguf(folder, NULL);
    free(folder);
    return open_file();
}

static void words_have_a_name(void **state) {
    (void)state;
    header h = export_tokenizer(TOKENIZER("null", BYTES_STAGE, BYTE_MODEL));
    check_word(&h, "tokenizer.ggml.model", "gpt2");
    check_word(&h, "tokenizer.ggml.pre", "gpt-2");
    check_word(&h, "tokenizer.chat_template", "{{ messages }}");
    assert_true(has_word(&h, "tokenizer.ggml.tokens", 3, "ab"));
    assert_true(has_word(&h, "tokenizer.ggml.tokens", 4, "[PAD4]"));
    assert_true(has_word(&h, "tokenizer.ggml.merges", 0, "a b"));
    assert_true(find_key(&h, "tokenizer.ggml.token_type", 9));
    h.at += 12;
    assert_int_equal(number(&h, 4), 3); /* control */
    assert_int_equal(number(&h, 4), 1);
    free(h.data);
}

static void pieces_have_scores(void **state) {
    (void)state;
    static const float expected[] = {-1000, 0, -2, -3, -1, 0, -10000}; /* those that are merged, by their merges */
    header h = export_tokenizer(TOKENIZER(SPACE_STAGES, "null", PIECES_MODEL));
    check_word(&h, "tokenizer.ggml.model", "llama");
    assert_true(find_key(&h, "tokenizer.ggml.add_space_prefix", NDP_GGUF_BOOL));
    assert_int_equal(number(&h, 1), 1);
    assert_true(find_key(&h, "tokenizer.ggml.scores", 9));
    h.at += 12;
    assert_memory_equal(h.data + h.at, expected, sizeof expected);
    assert_true(find_key(&h, "tokenizer.ggml.token_type", 9));
    h.at += 16;
    assert_int_equal(number(&h, 4), 6); /* a byte */
    free(h.data);
}

static void bytes_are_characters_of_gpt2(void **state) {
    (void)state;
    header h = export_tokenizer(
        TOKENIZER("null", "null",
                  "\"byte_fallback\": true, \"vocab\": {\"<s>\": 0, \"<0x41>\": 1, \"<0x20>\": 2}, \"merges\": []"));
    check_word(&h, "tokenizer.ggml.model", "gpt2");
    assert_true(has_word(&h, "tokenizer.ggml.tokens", 1, "A"));
    assert_true(has_word(&h, "tokenizer.ggml.tokens", 2, "\xc4\xa0"));
    free(h.data);
}

static void refuse_tokenizer(const char *tokenizer, const char *words) {
    char *folder = with_tokenizer(tokenizer);
    int64_t tensors;
    unlink(file);
    CHECK_FAILS(ndp_gguf_export(&(ndp_gguf_opts){.model = folder, .file = file}, &tensors), NDP_ENOTSUP, words);
    free(folder);
}

static void other_tokenizers_are_refused(void **state) {
    (void)state;
    refuse_tokenizer(TOKENIZER("null",
                               "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"x+\"}, \"behavior\": \"Removed\", "
                               "\"invert\": false}",
                               BYTE_MODEL),
                     "its stages are: Split Removed x+");
    refuse_tokenizer(TOKENIZER("{\"type\": \"Lowercase\"}", BYTES_STAGE, BYTE_MODEL), "its stages are: Lowercase");
    refuse_tokenizer("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", 0.0], [\"b\", -1.0]]}}",
                     "is Unigram, which llama.cpp has in no decoder");
}

/* ---- what is refused ---- */

static int entries_of(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void refusals_leave_nothing(void **state) {
    (void)state;
    char folder[1024];
    int64_t tensors;
    ndp_gguf_opts o = {.model = golden_folder("gemma4", folder, sizeof folder), .file = file};
    unlink(file);
    int before = entries_of(place);
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_ENOTSUP,
                "models of gemma4_text are not written as GGUF; those of these");
    golden_folder("olmoe", folder, sizeof folder);
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_ENOTSUP, "does not load models of olmoe with fewer heads of keys");
    golden_folder("llama-yarn", folder, sizeof folder);
    o.type = "q4_0";
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_EINVAL, "'q4_0' is no type of a GGUF file; it is one of fp32");
    o.type = NULL, o.step = 3;
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_EINVAL, "is no run, so it has no step 3");
    o.step = 0;
    put_file(place, "m.gguf", "kept");
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_EINVAL, "exists, and nothing is overwritten");
    assert_int_equal(entries_of(place), before + 1);
}

/* A disk that is full, or fails, at any moment: no file, no folder, and the cause. */
static void a_full_disk_leaves_nothing(void **state) {
    (void)state;
    static const ndp_fault_kind kinds[] = {NDP_FAULT_WRITE, NDP_FAULT_SYNC, NDP_FAULT_RENAME};
    char folder[1024];
    int64_t tensors;
    ndp_gguf_opts o = {.model = golden_folder("llama-yarn", folder, sizeof folder), .file = file};
    for (int k = 0; k < NDP_COUNT(kinds); k++)
        for (int n = 1;; n++) {
            unlink(file);
            int before = entries_of(place);
            ndp_fault_arm(kinds[k], n);
            ndp_status st = ndp_gguf_export(&o, &tensors);
            bool fired = ndp_fault_fired(kinds[k]);
            ndp_fault_arm(kinds[k], 0);
            if (!fired) {
                CHECK_OK(st);
                assert_true(n > 1);
                break;
            }
            assert_int_equal(st, NDP_EIO);
            assert_true(entries_of(place) == before || kinds[k] == NDP_FAULT_SYNC);
        }
}

static void numbers_beyond_fp16_are_refused(void **state) {
    (void)state;
    char *folder = with_tokenizer(TOKENIZER("null", BYTES_STAGE, BYTE_MODEL));
    int64_t tensors;
    tensor_set *s = set_read(folder, "model");
    set_find(s, "model.layers.0.mlp.up_proj.weight")->x[5] = 1e5; /* in bf16 99840 */
    set_write(s, folder, "model");
    set_release(s);
    unlink(file);
    ndp_gguf_opts o = {.model = folder, .file = file, .type = "f16"};
    CHECK_FAILS(ndp_gguf_export(&o, &tensors), NDP_EFORMAT,
                "blk.0.ffn_up.weight has the number 99840, beyond the range");
    o.type = "bf16";
    CHECK_OK(ndp_gguf_export(&o, &tensors));
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_queries_are_turned),   cmocka_unit_test(matrices_are_transposed),
        cmocka_unit_test(experts_are_stacked),          cmocka_unit_test(norms_of_gemma_are_whole),
        cmocka_unit_test(blocks_are_those_of_gguf),     cmocka_unit_test(words_have_a_name),
        cmocka_unit_test(pieces_have_scores),           cmocka_unit_test(bytes_are_characters_of_gpt2),
        cmocka_unit_test(other_tokenizers_are_refused), cmocka_unit_test(refusals_leave_nothing),
        cmocka_unit_test(a_full_disk_leaves_nothing),   cmocka_unit_test(numbers_beyond_fp16_are_refused),
    };
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
