/* Tensors of a trainer by their names in the model folder, read and written whole: files hold them so, where several
 * segments may be parts of one tensor. */
#include "checkpoint/agree.h"
#include "train/trainer.h"
#include "weights/packed_weights.h"

#include <string.h>

int ndp_trainer_tensors(const ndp_trainer *t) { return t ? t->n_tensors : 0; }

const char *ndp_trainer_tensor(const ndp_trainer *t, int i, int64_t *elements) {
    if (i < 0 || i >= ndp_trainer_tensors(t))
        return NULL;
    if (elements)
        *elements = ndp_segment_tensor_elements(t->tensors[i].segment);
    return t->tensors[i].name;
}

int ndp_trainer_find(const ndp_trainer *t, const char *name) {
    for (int i = 0; name && i < ndp_trainer_tensors(t); i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- what a tensor has ---- */

static ndp_owned_kind kind_of(ndp_which which) {
    static const ndp_owned_kind kinds[] = {
        [NDP_WEIGHT] = NDP_OWNED_MASTER,
        [NDP_GRADIENT] = NDP_OWNED_GRAD,
        [NDP_STATE0] = NDP_OWNED_STATE0,
        [NDP_STATE1] = NDP_OWNED_STATE1,
    };
    return kinds[which];
}

static ndp_status check(const ndp_trainer *t, ndp_which which, int tensor) {
    NDP_CHECK(tensor >= 0 && tensor < t->n_tensors, "there is no tensor %d; the model has %d", tensor, t->n_tensors);
    NDP_CHECK(which >= NDP_WEIGHT && which <= NDP_STATE1, "there is no ndp_which %d", (int)which);
    const ndp_model_tensor *of = &t->tensors[tensor];
    if (which == NDP_WEIGHT)
        return NDP_OK;
    NDP_CHECK(which < NDP_STATE0 || t->model.buffers[of->buffer].trainable, "%s is frozen: it has no state", of->name);
    NDP_CHECK(which != NDP_GRADIENT || !t->own.begun || t->own.normed,
              "the gradient of %s is read before it is summed: call ndp_trainer_norm first", of->name);
    ndp_owned_kind kind = kind_of(which), codes = which == NDP_STATE0 ? NDP_OWNED_CODES0 : NDP_OWNED_CODES1;
    if (which >= NDP_STATE0 && ndp_engine_keeps(t->engine, codes, of->segment))
        return NDP_FAIL(NDP_ENOTSUP, "the states of %s are kept in codes, which cannot be read or written", of->name);
    NDP_CHECK(which < NDP_STATE0 || ndp_engine_keeps(t->engine, kind, of->segment),
              "the optimizer of %s does not keep state %d", of->name, which - NDP_STATE0);
    return NDP_OK;
}

/* ---- reading and writing ---- */

typedef struct tensor_access {
    const ndp_trainer_part *part;
    char *out;      /* reads; */
    const char *in; /* or writes */
} tensor_access;

/* Of a replica segment the first one is read, and all are written. */
static ndp_status access_run(void *user, const ndp_owned_run *owned) {
    const tensor_access *a = user;
    const ndp_trainer_part *part = a->part;
    const ndp_run *p = &owned->run;
    const ndp_segment *s = part->tensor->segment;
    bool member = ndp_segment_tensors(s) == 1 || p->segment->stack_first + p->member == part->tensor->member;
    int64_t first = p->tensor_first > part->first ? p->tensor_first : part->first,
            end =
                p->tensor_first + p->count < part->first + part->n ? p->tensor_first + p->count : part->first + part->n;
    if (first >= end || !member || strcmp(p->segment->name, s->name) != 0)
        return NDP_OK;
    size_t at = (size_t)(first - part->first) * ndp_dtype_size(part->type);
    if (a->in)
        return ndp_run_put(owned, first - p->tensor_first, end - first, a->in + at, part->type);
    return p->segment->replica ? NDP_OK
                               : ndp_run_get(owned, first - p->tensor_first, end - first, a->out + at, part->type);
}

ndp_status ndp_trainer_part_read(ndp_engine *e, const ndp_trainer_part *part, void *out) {
    return ndp_engine_runs(e, part->kind, access_run, &(tensor_access){.part = part, .out = out});
}

ndp_status ndp_trainer_part_write(ndp_engine *e, const ndp_trainer_part *part, const void *in) {
    return ndp_engine_runs(e, part->kind, access_run, &(tensor_access){.part = part, .in = in});
}

/* All of a tensor. */
static ndp_trainer_part whole(const ndp_trainer *t, ndp_which which, int tensor) {
    const ndp_model_tensor *of = &t->tensors[tensor];
    return (ndp_trainer_part){of, kind_of(which), 0, ndp_segment_tensor_elements(of->segment), NDP_F64};
}

/* Of a stack a member, or all of them. */
static ndp_status read_packed(ndp_trainer *t, const ndp_segments *of, const ndp_model_tensor *tensor, double *out) {
    const ndp_segment *s = tensor->segment;
    bool member = ndp_segment_tensors(s) > 1;
    int64_t first = member ? tensor->member : 0, end = member ? first + 1 : ndp_segment_matrices(s);
    do
        for (int64_t i = first; i < end; i++)
            NDP_TRY(ndp_engine_unpack(t->engine, t->rank.world, s, i, of->packing, out));
    while (++s < of->items + of->n && ndp_segment_continues(s));
    return NDP_OK;
}

ndp_status ndp_trainer_read(ndp_trainer *t, ndp_which which, int tensor, double *out) {
    NDP_NOT_NULL(t, out);
    NDP_TRY(check(t, which, tensor));
    const ndp_model_tensor *of = &t->tensors[tensor];
    const ndp_buffer *buffer = &t->model.buffers[of->buffer];
    int64_t n = ndp_segment_tensor_elements(of->segment);
    memset(out, 0, (size_t)n * sizeof *out);
    if (which == NDP_WEIGHT && ndp_buffer_is_packed(buffer))
        return read_packed(t, &buffer->segments, of, out);
    const ndp_trainer_part part = whole(t, which, tensor);
    if (ndp_engine_program(t->engine)->opts.step.mesh.coord[NDP_DP_REPLICATE] == 0)
        NDP_TRY(ndp_trainer_part_read(t->engine, &part, out));
    NDP_TRY(ndp_reduce_now(t->rank.world, out, n, NDP_F64, NDP_SUM));
    double scale = which == NDP_GRADIENT ? ndp_own_gradient_scale(t) : 1;
    for (int64_t i = 0; i < n && scale != 1; i++)
        out[i] *= scale;
    return NDP_OK;
}

ndp_status ndp_trainer_write(ndp_trainer *t, ndp_which which, int tensor, const double *in) {
    NDP_NOT_NULL(t, in);
    NDP_TRY(check(t, which, tensor));
    const ndp_model_tensor *of = &t->tensors[tensor];
    NDP_CHECK(which != NDP_GRADIENT, "the gradient of %s cannot be written; weights and states can", of->name);
    NDP_CHECK(which != NDP_WEIGHT || !ndp_buffer_is_packed(&t->model.buffers[of->buffer]),
              "the weights of %s are packed, and stay as they are", of->name);
    const ndp_trainer_part part = whole(t, which, tensor);
    NDP_TRY(ndp_agree(t->rank.world, ndp_trainer_part_write(t->engine, &part, in)));
    return which == NDP_WEIGHT ? ndp_agree(t->rank.world, ndp_engine_publish(t->engine)) : NDP_OK;
}
