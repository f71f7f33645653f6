/* What steps read and no checkpoint holds, as hashes of contents: a run that is resumed must find it again, wherever it
 * lies now (train/identity.h). Weights alone need that: the other files of a run, its data and its tokenizer, have
 * hashes of their own (job/job_data.h). */
#include "base/hub.h"
#include "rank/rank.h"
#include "weights/adapter_base.h"
#include "weights/adapter_folder.h"

/* Warns if the adapter was trained beside other weights than those that it goes on beside. */
static void warn_of_base(const ndp_rank *r, const char *base, const char *adapter) {
    const ndp_adapter_base trained = ndp_adapter_base_find(adapter);
    ndp_str words = {0};
    if (base && ndp_adapter_base_differs(&trained, r->base, base, adapter, &words) && !words.failed)
        ndp_warn(&r->log, "%s", words.data);
    ndp_str_release(&words);
}

static ndp_status hash_adapter(ndp_rank *r, const ndp_weight_sources *from) {
    char folder[NDP_PATH];
    ndp_adapter_folder a;
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, from->adapter, folder));
    NDP_TRY(ndp_adapter_folder_open(folder, &a));
    ndp_status st = ndp_job_refers(&r->job) ? ndp_weights_hash(a.weights, &r->began_with) : NDP_OK;
    warn_of_base(r, from->folder, a.path);
    ndp_adapter_folder_close(&a);
    return st;
}

ndp_status ndp_rank_hash_unsaved(ndp_rank *r) {
    const ndp_weight_sources from = ndp_job_weights(&r->job);
    if (from.folder && ndp_job_reads_base(&r->job))
        NDP_TRY(ndp_weights_hash_folder(from.folder, &r->base));
    return from.adapter ? hash_adapter(r, &from) : NDP_OK;
}
