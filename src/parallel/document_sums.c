/* Pairs of documents: a rank of cp or sp has some of their rows. Its sums over these are summed over both axes, and are
 * those of whole documents from then on: every rank of a micro-batch computes the same losses of pairs, and what its
 * own rows get of them. Ranks of tp have all rows of a (cp, sp) place in the head.
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

ndp_status ndp_pairs_document_sums(ndp_pass *p) {
    const ndp_node *n = p->node;
    int sums = ndp_pass_value(p, n->out[0]), ins[] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1)};
    ndp_graph_op(p->to, n->op, &n->attr, "sums", ins, 2, &sums, 1);
    ndp_pass_out(p, 0, ndp_pass_sum_rows(p, sums, "sums"), NDP_SPREAD_SAME);
    return p->to->status;
}
