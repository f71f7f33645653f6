/* Edits of programs that can be undone. A program is changed in place, so that an engine can run what was edited; the
 * journal keeps what was there. Indices that instructions and calls have of each other are repaired, as are ranges that
 * repeat and the lives of blocks. */
#ifndef TESTS_PLACEMENT_EDITS_H
#define TESTS_PLACEMENT_EDITS_H

#include "step/program.h"

typedef struct edit_record {
    void *at, *old;
    size_t n;
} edit_record;

typedef struct journal {
    ndp_arena arena; /* of what was there, and of all that edits add */
    edit_record *records;
    int n;
    int64_t capacity;
} journal;

/* Restores everything, the latest edit first. */
void journal_undo(journal *j);

/* Keeps n bytes, which the caller then changes. */
void journal_keep(journal *j, void *at, size_t n);

/* Either a unit's list or the instructions of a program: what both kinds of edits have in common. */
typedef struct edited {
    journal *journal;
    ndp_program *program;
    ndp_list *list; /* NULL: the program's instructions */
} edited;

int edited_n(const edited *e);
/* The call at place i; NULL: a RUN. */
ndp_call *edited_call(const edited *e, int i);
/* Its operands are the edit's own from now on, as are those of its partner, which a begin and its wait share. */
void edited_own_operands(const edited *e, int i);

/* Places from `i` on move. */
void edited_remove(const edited *e, int i);
/* Puts a copy of entry `of` before place `at`; it is in the ranges that entry `like`, its neighbour, is in. A copied
 * begin and wait are partners once edited_pair has said so. */
void edited_copy(const edited *e, int of, int at, int like);
void edited_pair(const edited *e, int begin, int wait);
/* A block more, of so many bytes behind all others: the program's last. */
int edited_block(const edited *e, size_t bytes);
/* Makes of entry i, which is a call, a kernel of `op`. False: the device has none. */
bool edited_kernel(const edited *e, int i, const ndp_op *op, const ndp_op_attr *attr, const ndp_operand *in, int n_in,
                   const ndp_operand *out, int n_out);

#endif
