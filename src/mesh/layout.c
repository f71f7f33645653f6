#include "mesh/mesh.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is trained today; the rest is legal and comes later. */
static const bool axis_built[NDP_AXES] = {
    [NDP_DP_REPLICATE] = true, [NDP_DP_SHARD] = true, [NDP_CP] = true, [NDP_SP] = true, [NDP_TP] = true};

enum { TEXT = 320, LAYOUT_TEXT = 160, SUGGESTIONS = 4 };

ndp_status ndp_layout_built(const ndp_layout *layout) {
    char names[TEXT] = "";
    for (int axis = 0; axis <= NDP_AXES; axis++) {
        bool ep = axis == NDP_AXES;
        int size = ep ? layout->ep : layout->size[axis];
        if (size == 1 || (!ep && axis_built[axis]))
            continue;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s_size %d", used ? ", " : "",
                 ep ? "ep" : ndp_axis_name((ndp_axis)axis), size);
    }
    return names[0] ? NDP_FAIL(NDP_ENOTSUP, "not built yet: %s; set to 1 what is named here", names) : NDP_OK;
}

/* The rule that a full layout breaks, with its numbers, in `why`; false when it is legal. */
static bool breaks_rule(const ndp_layout *l, const ndp_layout_facts *facts, char why[TEXT]) {
    int64_t tp_sp = (int64_t)l->size[NDP_TP] * l->size[NDP_SP];
    int64_t shard = (int64_t)l->size[NDP_DP_SHARD] * l->size[NDP_CP] * l->size[NDP_SP];
    if (shard % l->ep != 0)
        snprintf(why, TEXT, "ep %d does not divide dp_shard %d x cp %d x sp %d = %lld", l->ep, l->size[NDP_DP_SHARD],
                 l->size[NDP_CP], l->size[NDP_SP], (long long)shard);
    else if (facts && facts->heads % tp_sp != 0)
        snprintf(why, TEXT, "%d attention heads are not divisible by tp %d x sp %d = %lld", facts->heads,
                 l->size[NDP_TP], l->size[NDP_SP], (long long)tp_sp);
    else if (facts && facts->kv_heads % tp_sp != 0 && tp_sp % facts->kv_heads != 0)
        snprintf(why, TEXT, "%d kv heads and tp %d x sp %d = %lld: neither divides the other", facts->kv_heads,
                 l->size[NDP_TP], l->size[NDP_SP], (long long)tp_sp);
    else if (facts && l->size[NDP_PP] > facts->layers)
        snprintf(why, TEXT, "pp %d is more than the %d decoder layers", l->size[NDP_PP], facts->layers);
    else
        return false;
    return true;
}

/* Fills the auto size; false, with the numbers in `why`, when the product is not `world`. */
static bool fill(ndp_layout *l, int world, char why[TEXT]) {
    char text[LAYOUT_TEXT];
    int open = -1;
    int64_t product = 1;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        if (l->size[axis] == 0)
            open = axis;
        else if (product <= INT32_MAX) /* beyond it, it is wrong already */
            product *= l->size[axis];
    }
    if (open < 0 && product == world)
        return true;
    if (open >= 0 && world % product == 0) {
        l->size[open] = (int)(world / product);
        return true;
    }
    ndp_layout_text(l, text, sizeof text);
    if (open >= 0)
        snprintf(why, TEXT, "%s: %d ranks are not a multiple of %lld", text, world, (long long)product);
    else
        snprintf(why, TEXT, "%s is %lld ranks, not the %d of this run", text, (long long)product, world);
    return false;
}

/* The legal layouts nearest to what was asked: fewest changed sizes first, then the smallest sum of |log(new / asked)|.
 */
typedef struct search {
    const ndp_layout *asked;
    const ndp_layout_facts *facts;
    int world;
    int limit; /* of changed sizes: only layouts with exactly so many are taken */
    int found;
    ndp_layout layouts[SUGGESTIONS];
    double distances[SUGGESTIONS];
} search;

static double distance(int asked, int size) { return asked ? fabs(log((double)size / asked)) : 0; }

static void take(search *s, const ndp_layout *l, double far) {
    char why[TEXT];
    if (breaks_rule(l, s->facts, why))
        return;
    int at = s->found;
    while (at > 0 && far < s->distances[at - 1])
        at--;
    if (at == SUGGESTIONS)
        return;
    s->found += s->found < SUGGESTIONS;
    for (int i = s->found - 1; i > at; i--) {
        s->layouts[i] = s->layouts[i - 1];
        s->distances[i] = s->distances[i - 1];
    }
    s->layouts[at] = *l;
    s->distances[at] = far;
}

/* Of changes that are equally small, those of the data axes come first: they ask the least of model and batch. */
static const double preference[NDP_AXES] = {1.05, 1.01, 1.0, 1.02, 1.03, 1.04};

static void try_size(search *s, ndp_layout *l, int axis, int left, int changes, double far, int size);

/* All sizes are set: takes the layout, or those that differ from it by a smaller ep. */
static void try_ep(search *s, ndp_layout *l, int changes, double far) {
    if (changes == s->limit)
        take(s, l, far);
    if (changes + 1 != s->limit)
        return;
    for (l->ep = 1; l->ep < s->asked->ep && l->ep <= s->world; l->ep++)
        take(s, l, far + distance(s->asked->ep, l->ep));
    l->ep = s->asked->ep;
}

/* Sizes of `axis` and all inner ones, whose product must be `left`. */
static void try_axis(search *s, ndp_layout *l, int axis, int left, int changes, double far) {
    if (axis == NDP_AXES) {
        if (left == 1)
            try_ep(s, l, changes, far);
        return;
    }
    int asked = s->asked->size[axis];
    if (asked && changes == s->limit) {
        try_size(s, l, axis, left, changes, far, asked);
        return;
    }
    for (int size = 1; (int64_t)size * size <= left; size++) {
        if (left % size != 0)
            continue;
        try_size(s, l, axis, left, changes, far, size);
        if (size != left / size)
            try_size(s, l, axis, left, changes, far, left / size);
    }
}

static void try_size(search *s, ndp_layout *l, int axis, int left, int changes, double far, int size) {
    int asked = s->asked->size[axis];
    bool not_built = !axis_built[axis] && size > 1 && asked == 1;
    if (left % size != 0 || not_built)
        return;
    l->size[axis] = size;
    try_axis(s, l, axis + 1, left / size, changes + (asked && size != asked), far + distance(asked, size) * preference[axis]);
}

static ndp_status refuse(const ndp_layout *asked, int world, const ndp_layout_facts *facts, const char *why) {
    search s = {.asked = asked, .facts = facts, .world = world};
    ndp_layout layouts[SUGGESTIONS];
    int n = 0;
    /* Two changes repair every request that one cannot, but for odd ones: go further only when nothing was found. */
    for (s.limit = 1; s.limit <= NDP_AXES + 1 && n < SUGGESTIONS && (n == 0 || s.limit <= 2); s.limit++) {
        ndp_layout at = *asked;
        s.found = 0;
        try_axis(&s, &at, 0, world, 0, 0);
        for (int i = 0; i < s.found && n < SUGGESTIONS; i++)
            layouts[n++] = s.layouts[i];
    }
    char list[SUGGESTIONS * LAYOUT_TEXT] = "", text[LAYOUT_TEXT];
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? "; " : "",
                 ndp_layout_text(&layouts[i], text, sizeof text));
    }
    return NDP_FAIL(NDP_EINVAL, "%s. The nearest legal layouts on %d rank%s: %s", why, world, world == 1 ? "" : "s",
                    list);
}

ndp_status ndp_layout_resolve(ndp_layout *layout, int world, const ndp_layout_facts *facts) {
    int open = 0;
    NDP_CHECK(world >= 1, "%d ranks; a run has at least one", world);
    for (int axis = 0; axis < NDP_AXES; axis++) {
        open += layout->size[axis] == 0;
        NDP_CHECK(layout->size[axis] >= 0, "%s_size is %d; sizes are positive, or auto", ndp_axis_name((ndp_axis)axis),
                  layout->size[axis]);
    }
    NDP_CHECK(open <= 1, "%d sizes are auto; at most one can be", open);
    NDP_CHECK(layout->ep >= 1, "ep_size is %d; it is positive", layout->ep);
    NDP_CHECK(!facts || (facts->heads >= 1 && facts->kv_heads >= 1 && facts->layers >= 1),
              "a model with %d heads, %d kv heads and %d layers cannot be laid out", facts->heads, facts->kv_heads,
              facts->layers);
    char why[TEXT] = "";
    ndp_layout full = *layout;
    if (!fill(&full, world, why) || breaks_rule(&full, facts, why))
        return refuse(layout, world, facts, why);
    *layout = full;
    return NDP_OK;
}
