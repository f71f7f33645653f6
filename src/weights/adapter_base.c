/* Comparing the weights beside an adapter with those that it was trained beside. Called where a run's adapter is used:
 * by inference, by merges, and by a run that goes on with it. */
#include "weights/adapter_base.h"

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "job/model_identity.h"
#include <stdio.h>
#include <stdlib.h>

ndp_adapter_base ndp_adapter_base_of(struct json_object *identity) {
    ndp_adapter_base b = {""};
    const char *text = ndp_json_text(json_object_object_get(identity, "model.path"));
    if (text && ndp_identity_is_hash(text))
        snprintf(b.hash, sizeof b.hash, "%s", text);
    return b;
}

static ndp_adapter_base base_of_step(const char *folder, int64_t step) {
    ndp_adapter_base b = {""};
    ndp_checkpoint *c;
    if (ndp_checkpoint_open(folder, step, &c) != NDP_OK)
        return b;
    b = ndp_adapter_base_of(json_object_object_get(ndp_checkpoint_get_info(c)->extra, "identity"));
    ndp_checkpoint_close(c);
    return b;
}

ndp_adapter_base ndp_adapter_base_find(const char *adapter) {
    ndp_adapter_base b = {""};
    char folder[NDP_PATH];
    int64_t *steps = NULL;
    int n = 0;
    if (ndp_path_join(folder, adapter, "../checkpoints") != NDP_OK ||
        ndp_checkpoint_steps(folder, &steps, &n) != NDP_OK)
        return b;
    for (int i = 0; i < n && !*b.hash; i++)
        b = base_of_step(folder, steps[i]);
    free(steps);
    return b;
}

bool ndp_adapter_base_differs(const ndp_adapter_base *b, ndp_hash128 now, const char *folder, const char *adapter,
                              ndp_str *words) {
    ndp_str text = {0};
    ndp_identity_hash(&text, now);
    bool differs = *b->hash && !text.failed && strcmp(text.data, b->hash) != 0;
    if (differs)
        ndp_str_addf(words,
                     "the adapter of '%s' was trained beside other weights than those in '%s': model.path was %s, now "
                     "it is %s",
                     adapter, folder, b->hash, text.data);
    ndp_str_release(&text);
    return differs;
}

ndp_status ndp_adapter_base_check(const ndp_adapter_base *b, const char *folder, const char *adapter) {
    static const ndp_log log = {NDP_LOG_INFO, 0};
    ndp_hash128 now;
    ndp_str words = {0};
    if (!*b->hash)
        return NDP_OK;
    NDP_TRY(ndp_weights_hash_folder(folder, &now));
    if (ndp_adapter_base_differs(b, now, folder, adapter, &words))
        ndp_warn(&log, "%s", words.failed ? "the adapter was trained beside other weights" : words.data);
    ndp_str_release(&words);
    return NDP_OK;
}

ndp_status ndp_adapter_base_check_folder(const char *adapter, const char *folder) {
    const ndp_adapter_base base = ndp_adapter_base_find(adapter);
    return ndp_adapter_base_check(&base, folder, adapter);
}
