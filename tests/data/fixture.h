/* A folder with the small tokenizer and a chat template, for tests: cmocka's setup and teardown. */
#ifndef NDP_TESTS_DATA_FIXTURE_H
#define NDP_TESTS_DATA_FIXTURE_H

#include "text/chat/chat.h"

#include "data/folder.h"
#include "data/small_tokenizer.h"

typedef struct fixture {
    char *folder;
    ndp_tokenizer *t;
    ndp_chat plain;
} fixture;

static inline int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    void *folder;
    if (make_folder(&folder))
        return -1;
    f->folder = folder;
    f->t = small_tokenizer(folder);
    CHECK_OK(ndp_chat_init(&f->plain, f->t, folder, "plain", NULL));
    *state = f;
    return 0;
}

static inline int teardown(void **state) {
    fixture *f = *state;
    void *folder = f->folder;
    ndp_chat_release(&f->plain);
    ndp_tokenizer_destroy(f->t);
    free(f);
    return remove_folder(&folder);
}

#endif
