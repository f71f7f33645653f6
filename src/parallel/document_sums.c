/* Pairs of documents: a rank of cp or sp has some of their rows. Its sums over these are summed over both axes, and are
 * those of whole documents from then on: every rank of a micro-batch computes the same losses of pairs, and what its
 * own rows get of them. Ranks of tp have all rows of a (cp, sp) place in the head, or gather their scores, a column.
 *
 * The flow of the ops (ops/pair_loss.c) says what these sums are; placement/flow_meet.c proves them. */
#include "parallel/pass.h"

int ndp_pass_sum_rows(ndp_pass *p, int part, const char *name) {
    static const ndp_group_kind groups[] = {NDP_GROUP_CP, NDP_GROUP_SP};
    for (int i = 0; i < NDP_COUNT(groups); i++) {
        ndp_op_attr over = {.group = (int)groups[i], .ranks = ndp_mesh_group(p->mesh, groups[i]).count};
        if (over.ranks > 1)
            part = ndp_graph_op1(p->to, &ndp_op_all_reduce, &over, name, &part, 1);
    }
    return part;
}

/* All rows of a score, of which a rank of tp has some with tp_sequence_parallel: gathered once. All ranks make the same
 * gradient of them, and each takes that of its rows. */
static int all_scores(ndp_pass *p) {
    int x = ndp_pass_in(p, 0);
    ndp_image *image = &p->images[p->node->in[0]];
    ndp_op_attr over = {.group = NDP_GROUP_TP, .ranks = p->tp, .alike = true};
    if (image->spread != NDP_SPREAD_ROWS)
        return x;
    over.first = p->mesh->coord[NDP_TP] * p->to->values[x].view.rows;
    if (image->entered == NDP_NONE)
        image->entered = ndp_graph_op1(p->to, &ndp_op_all_gather, &over, "scores", &x, 1);
    return image->entered;
}

ndp_status ndp_pairs_row_score(ndp_pass *p) {
    const ndp_node *n = p->node;
    int ins[] = {all_scores(p), n->n_in > 1 ? ndp_pass_in(p, 1) : NDP_NONE}, outs[] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(p->to, n->op, &n->attr, "scores", ins, n->n_in, outs, n->n_out);
    for (int i = 0; i < n->n_out; i++)
        ndp_pass_out(p, i, outs[i], NDP_SPREAD_SAME);
    return p->to->status;
}

ndp_status ndp_pairs_document_sums(ndp_pass *p) {
    const ndp_node *n = p->node;
    int sums = ndp_pass_value(p, n->out[0]), ins[] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1)};
    ndp_graph_op(p->to, n->op, &n->attr, "sums", ins, 2, &sums, 1);
    ndp_pass_out(p, 0, ndp_pass_sum_rows(p, sums, "sums"), NDP_SPREAD_SAME);
    return p->to->status;
}
