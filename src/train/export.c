/* The trained model as a Hugging Face folder: config.json, tokenizer files, safetensors. */
#include "base/json.h"
#include "checkpoint/agree.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

/* Updates the keys of config.json that depend on the exported weights; all other keys stay, in their order. The type is
 * set in the keys that exist: `torch_dtype` (transformers 4) or `dtype` (5). If there is none, `torch_dtype` is added,
 * which all versions read. */
static void correct_config(const ndp_trainer *t, struct json_object *config, ndp_dtype type) {
    static const char *const keys[] = {"torch_dtype", "dtype"};
    const char *name = type == NDP_BF16 ? "bfloat16" : type == NDP_F64 ? "float64" : "float32";
    bool stated = json_object_object_get_ex(config, "dtype", NULL);
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (json_object_object_get_ex(config, keys[i], NULL) || (i == 0 && !stated))
            json_object_object_add(config, keys[i], json_object_new_string(name));
    if (t->job.facts.own_head) /* older versions would tie them again */
        json_object_object_add(config, "tie_word_embeddings", json_object_new_boolean(false));
}

static ndp_status write_config(const ndp_trainer *t, const char *folder, ndp_dtype type) {
    struct json_object *config;
    NDP_TRY(ndp_json_read(t->job.facts_path, &config));
    correct_config(t, config, type);
    const char *text = json_object_to_json_string_ext(config, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    char *path = ndp_format("%s/config.json", folder);
    ndp_status st =
        path ? ndp_file_write_atomic(path, text, strlen(text)) : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    free(path);
    json_object_put(config);
    return st;
}

static ndp_status copy_file(const char *from_folder, const char *name, const char *to_folder) {
    char *from = ndp_format("%s/%s", from_folder, name), *to = ndp_format("%s/%s", to_folder, name), *data = NULL;
    size_t size = 0;
    ndp_status st = from && to ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    if (st == NDP_OK && ndp_path_exists(from)) {
        st = ndp_file_read_as(NDP_FILE_TOKENIZER, from, &data, &size);
        if (st == NDP_OK)
            st = ndp_file_write_atomic(to, data, size);
    }
    free(data);
    free(from);
    free(to);
    return st;
}

static ndp_status write_text(const char *folder, const char *name, const char *text, size_t n) {
    char *path = ndp_format("%s/%s", folder, name);
    ndp_status st = path ? ndp_file_write_atomic(path, text, n) : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    free(path);
    return st;
}

/* The byte tokenizer in the format of the tokenizers library: byte fallback over an alphabet of bytes, no merges.
 * tokenizer_config.json names its end token, so that texts end in the same way with the exported folder. */
static ndp_status write_byte_tokenizer(const char *folder) {
    ndp_str s = {0};
    ndp_str_add(&s, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int id = 256; id < 258; id++)
        ndp_str_addf(
            &s,
            "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false, \"special\": true}",
            id > 256 ? ", " : "", id, id == 256 ? "<s>" : "</s>");
    ndp_str_add(
        &s,
        "], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": {\"type\": \"TemplateProcessing\", "
        "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], "
        "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
        "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [256], \"tokens\": [\"<s>\"]}}}, "
        "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
        "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
        "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": true, \"vocab\": {");
    for (int id = 0; id < 256; id++)
        ndp_str_addf(&s, "\"<0x%02X>\": %d, ", id, id);
    ndp_str_add(&s, "\"<s>\": 256, \"</s>\": 257}, \"merges\": []}}\n");
    ndp_status st = s.failed ? NDP_FAIL(NDP_ENOMEM, "no memory for a tokenizer")
                             : write_text(folder, "tokenizer.json", s.data, s.length);
    ndp_str_release(&s);
    static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"clean_up_tokenization_spaces\": "
                                 "false, \"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n";
    return st == NDP_OK ? write_text(folder, "tokenizer_config.json", config, sizeof config - 1) : st;
}

static ndp_status write_tokenizer(const ndp_trainer *t, const char *folder) {
    static const char *const names[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
        "merges.txt",     "added_tokens.json",     "chat_template.jinja"};
    if (strcmp(t->data.tokenizer_source, "bytes") == 0)
        return write_byte_tokenizer(folder);
    char *from = ndp_format("%s", t->data.tokenizer_source);
    if (!from)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    if (!ndp_path_is_folder(from)) { /* a file: take its folder */
        char *slash = strrchr(from, '/');
        if (slash)
            *slash = '\0';
        else
            strcpy(from, ".");
    }
    ndp_status st = NDP_OK;
    for (int i = 0; i < NDP_COUNT(names) && st == NDP_OK; i++)
        st = copy_file(from, names[i], folder);
    free(from);
    if (st == NDP_OK && t->job.config->model.path)
        st = copy_file(t->job.config->model.path, "generation_config.json", folder);
    return st;
}

/* Rank 0: writes everything except the weights. */
static ndp_status write_rest(const ndp_trainer *t, const char *folder, ndp_dtype type) {
    NDP_TRY(ndp_lock_check(t->lock));
    NDP_TRY(ndp_folder_create(folder));
    NDP_TRY(write_config(t, folder, type));
    return write_tokenizer(t, folder);
}

static ndp_status export_to(ndp_trainer *t, const char *folder) {
    ndp_dtype type = t->model.opts.compute == NDP_BF16 ? NDP_BF16 : t->model.opts.master;
    NDP_TRY(ndp_agree(t->world, ndp_is_first(t->world) ? write_rest(t, folder, type) : NDP_OK));
    ndp_tensor_list list = {0};
    ndp_status st = ndp_agree(t->world, ndp_tensor_list_add(&list, t->engine, NDP_OWNED_MASTER, "", type));
    if (st == NDP_OK)
        st = ndp_weights_save_locked(t->world, t->lock, folder, list.specs, list.n, list.pieces, list.n_pieces,
                                     NDP_SHARD_BYTES);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_trainer_export(ndp_trainer *t, const char *folder) {
    char *path = folder ? ndp_format("%s", folder) : ndp_format("%s/model", t->job.config->train.output_dir);
    ndp_status st = path ? export_to(t, path) : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    free(path);
    return st;
}
