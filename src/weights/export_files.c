/* The files of an exported model beside its weights: config.json, those of the tokenizer, generation_config.json. */
#include "base/json.h"
#include "model/decoder.h"
#include "model/families.h"
#include "weights/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Updates the keys of config.json that depend on the exported weights; all other keys stay, in their order. The type is
 * set in the keys that exist: `torch_dtype` (transformers 4) or `dtype` (5). If there is none, `torch_dtype` is added,
 * which all versions read. */
static void correct_type(struct json_object *config, ndp_dtype type) {
    static const char *const keys[] = {"torch_dtype", "dtype"};
    const char *name = type == NDP_BF16 ? "bfloat16" : type == NDP_F64 ? "float64" : "float32";
    bool stated = json_object_object_get_ex(config, "dtype", NULL);
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (json_object_object_get_ex(config, keys[i], NULL) || (i == 0 && !stated))
            json_object_object_add(config, keys[i], json_object_new_string(name));
}

static ndp_status write_text(const char *folder, const char *name, const char *text, size_t n) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, name));
    return ndp_file_write_atomic(path, text, n);
}

/* That of a reward model, whose one label transformers counts by its name. `type`: the family. */
static void make_reward(struct json_object *config, const char *type) {
    char class[NDP_TENSOR_NAME];
    struct json_object *classes = json_object_new_array(), *names = json_object_new_object(),
                       *numbers = json_object_new_object();
    if (!ndp_family_score_class(ndp_family_find(type), class))
        class[0] = '\0'; /* the model was built, so there is one */
    json_object_array_add(classes, json_object_new_string(class));
    json_object_object_add(names, "0", json_object_new_string("LABEL_0"));
    json_object_object_add(numbers, "LABEL_0", json_object_new_int(0));
    json_object_object_add(config, "architectures", classes);
    json_object_object_add(config, "num_labels", json_object_new_int(1));
    json_object_object_add(config, "id2label", names);
    json_object_object_add(config, "label2id", numbers);
}

/* config.json of weights of `type` (NDP_DTYPES: as it says). With a head of its own it also says that: older versions
 * would tie the head again. reward: the family, if it becomes that of a reward model. */
static ndp_status export_config(const char *path, const char *folder, ndp_dtype type, bool own_head,
                                const char *reward) {
    struct json_object *config;
    NDP_TRY(ndp_json_read(path, &config));
    if (type != NDP_DTYPES)
        correct_type(config, type);
    json_object_object_del(config, "quantization_config"); /* what was stored so was dequantised */
    if (reward)
        make_reward(config, reward);
    struct json_object *part = json_object_object_get(config, "text_config");
    if (own_head)
        json_object_object_add(config, "tie_word_embeddings", json_object_new_boolean(false));
    if (own_head && part) /* of some models of several parts this one counts too */
        json_object_object_add(part, "tie_word_embeddings", json_object_new_boolean(false));
    const char *text = json_object_to_json_string_ext(config, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    ndp_status st = write_text(folder, "config.json", text, strlen(text));
    json_object_put(config);
    return st;
}

static ndp_status copy_file(const char *from_folder, const char *name, const char *to_folder) {
    char from[NDP_PATH], *data;
    size_t size;
    NDP_TRY(ndp_path_join(from, from_folder, name));
    if (!ndp_path_exists(from))
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_TOKENIZER, from, &data, &size));
    ndp_status st = write_text(to_folder, name, data, size);
    free(data);
    return st;
}

static ndp_status copy_template(void *to_folder, const char *from_folder, const char *name) {
    char from[NDP_PATH];
    NDP_TRY(ndp_path_join(from, from_folder, name));
    return ndp_ends_with(name, ".jinja") && !ndp_path_is_folder(from) ? copy_file(from_folder, name, to_folder)
                                                                      : NDP_OK;
}

/* The tokenizer's templates besides that for conversations. */
static ndp_status copy_templates(const char *from_folder, const char *to_folder) {
    static const char name[] = "additional_chat_templates";
    char from[NDP_PATH], to[NDP_PATH];
    NDP_TRY(ndp_path_join(from, from_folder, name));
    NDP_TRY(ndp_path_join(to, to_folder, name));
    if (!ndp_path_is_folder(from))
        return NDP_OK;
    NDP_TRY(ndp_folder_create(to));
    return ndp_folder_visit(from, copy_template, to);
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
    ndp_status st = s.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer")
                             : write_text(folder, "tokenizer.json", s.data, s.length);
    ndp_str_release(&s);
    static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"clean_up_tokenization_spaces\": "
                                 "false, \"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n";
    return st == NDP_OK ? write_text(folder, "tokenizer_config.json", config, sizeof config - 1) : st;
}

/* The files of a tokenizer that are there. */
static ndp_status copy_tokenizer(const char *from, const char *to) {
    static const char *const names[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
        "merges.txt",     "added_tokens.json",     "chat_template.jinja"};
    for (int i = 0; i < NDP_COUNT(names); i++)
        NDP_TRY(copy_file(from, names[i], to));
    return copy_templates(from, to);
}

/* With the template, where that is not the tokenizer's own. */
static ndp_status export_tokenizer(const ndp_job_data *d, const char *folder, const ndp_str *template) {
    const char *source = d->tokenizer_source, *slash = strrchr(source, '/');
    char folder_of_file[NDP_PATH];
    if (!*source)
        return NDP_OK;
    snprintf(folder_of_file, sizeof folder_of_file, "%.*s", slash ? (int)(slash - source) : 1, slash ? source : ".");
    NDP_TRY(strcmp(source, "bytes") == 0
                ? write_byte_tokenizer(folder)
                : copy_tokenizer(ndp_path_is_folder(source) ? source : folder_of_file, folder));
    return template->length ? ndp_export_template(folder, template) : NDP_OK;
}

/* What the tokenizer's own template is replaced by, if by anything. */
static ndp_status find_template(const ndp_job_data *d, ndp_str *out) {
    return *d->tokenizer_source ? ndp_chat_add_other_text(&d->chat, d->tokenizer, d->tokenizer_source, out) : NDP_OK;
}

/* The other files of a model folder that are there: how it generates, and what prepares images for its other parts. */
static ndp_status copy_others(const char *from, const char *to) {
    static const char *const names[] = {"generation_config.json", "preprocessor_config.json", "processor_config.json",
                                        "video_preprocessor_config.json", "chat_template.json"};
    for (int i = 0; i < NDP_COUNT(names); i++)
        NDP_TRY(copy_file(from, names[i], to));
    return NDP_OK;
}

ndp_status ndp_export_rest(const ndp_job *j, const ndp_job_data *d, const char *folder, ndp_dtype type) {
    const bool scores = ndp_preference_scores(j->model.preference.kind);
    NDP_TRY(ndp_folder_create(folder));
    NDP_TRY(export_config(j->facts_path, folder, type, j->spec.own_head && !scores, scores ? j->spec.type : NULL));
    ndp_str template = {0};
    ndp_status st = find_template(d, &template);
    if (st == NDP_OK)
        st = export_tokenizer(d, folder, &template);
    ndp_str_release(&template);
    return st == NDP_OK && j->config->model.path ? copy_others(j->model_folder, folder) : st;
}

ndp_status ndp_export_adapter_tokenizer(const ndp_job *j, const ndp_job_data *d, const char *folder) {
    ndp_str template = {0};
    ndp_status st = find_template(d, &template);
    bool other = template.length || (j->config->data.tokenizer && (d->chat.template || d->chat.jinja));
    if (st == NDP_OK && other)
        st = export_tokenizer(d, folder, &template);
    ndp_str_release(&template);
    return st;
}

ndp_status ndp_export_copy(const char *from, const char *to, bool own_head, bool dequantised) {
    char path[NDP_PATH];
    NDP_TRY(ndp_folder_create(to));
    NDP_TRY(copy_tokenizer(from, to));
    NDP_TRY(copy_others(from, to));
    NDP_TRY(ndp_path_join(path, from, "config.json"));
    return own_head || dequantised ? export_config(path, to, NDP_DTYPES, own_head, NULL)
                                   : copy_file(from, "config.json", to);
}
