/* Checkpoints of a whole run that are written while its steps go on. commit.c decides when. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "train/trainer.h"

#include <json-c/json.h>
#include <stdlib.h>

static void release_borrowed(ndp_trainer *t) {
    ndp_tensor_list_release(&t->background.list);
    json_object_put(t->background.extra);
    t->background.extra = NULL;
}

/* The work of the thread `touch`. */
static ndp_status touch_pages(void *arg) {
    ndp_trainer *t = arg;
    enum { PAGE = 4096 };
    for (int64_t at = 0; at < t->background.bytes; at += PAGE)
        ((volatile char *)t->background.space)[at] = 0;
    return NDP_OK;
}

/* The list of the first save is that of every save, so the space is taken once. Where saves are certain, a thread takes
 * its pages while the first steps run, which costs three times what a copy does. They are small: huge ones have taken a
 * second, where memory is fragmented. */
ndp_status ndp_trainer_open_background(ndp_trainer *t) {
    ndp_tensor_list list = {0};
    ndp_save_request r;
    int64_t bytes = 0;
    if (!t->rank.background)
        return NDP_OK;
    ndp_status st = ndp_trainer_save_request(t, &list, &r);
    if (st == NDP_OK)
        st = ndp_background_save_bytes(t->rank.world, &r, &bytes);
    json_object_put(r.info.extra);
    ndp_tensor_list_release(&list);
    NDP_TRY(st);
    t->background.bytes = bytes;
    t->background.space = malloc((size_t)bytes + 1);
    if (t->background.space && t->rank.job.config->checkpoint.every > 0)
        ndp_writer_thread_begin(&t->background.touch, touch_pages, t);
    return ndp_agree(t->rank.world, NDP_MEMORY(t->background.space,
                                               "for a copy of %lld bytes for saves: set "
                                               "checkpoint.async: false",
                                               (long long)bytes));
}

ndp_status ndp_trainer_begin_save(ndp_trainer *t) {
    char folder[NDP_PATH];
    ndp_save_request r;
    (void)ndp_writer_thread_end(&t->background.touch);
    t->saved = (ndp_save_cost){0};
    t->background.step = t->updates;
    NDP_TRY(ndp_path_join(folder, t->rank.job.config->train.output_dir, "checkpoints"));
    ndp_status st = ndp_trainer_save_request(t, &t->background.list, &r);
    r.folder = folder;
    t->background.extra = r.info.extra;
    if (st == NDP_OK)
        st =
            ndp_background_save_begin(t->rank.world, &r, t->background.space, t->background.bytes, &t->background.save);
    if (st != NDP_OK)
        release_borrowed(t);
    return st;
}

bool ndp_trainer_save_works(const ndp_trainer *t) {
    return t->background.save && ndp_background_save_works(t->background.save);
}

ndp_status ndp_trainer_go_on_saving(ndp_trainer *t, bool *ended) {
    ndp_status st = ndp_background_save_go_on(t->background.save, ended, &t->saved);
    if (*ended) {
        t->background.save = NULL;
        release_borrowed(t);
    }
    return st;
}

bool ndp_trainer_drop_save(ndp_trainer *t) {
    bool committed = ndp_background_save_drop(t->background.save);
    (void)ndp_writer_thread_end(&t->background.touch);
    t->background.save = NULL;
    release_borrowed(t);
    free(t->background.space);
    t->background.space = NULL;
    return committed;
}
