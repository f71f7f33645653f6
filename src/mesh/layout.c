/* The rules of a layout. ndp_layout_resolve fills the size that is auto and checks the rules; what it refuses it
 * answers with the nearest layouts that are legal, found by trying all factorizations of the number of ranks in the
 * order of how many sizes they change. Called once a run, by every rank, before anything is opened. */
#include "mesh/mesh.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 320, LAYOUT_TEXT = 160, SUGGESTIONS = 4, LIST = 2 * SUGGESTIONS * LAYOUT_TEXT };

/* Whether kv heads of a layer keep ranks from being tp x sp; `why` has the numbers. Ranks of tp with the same kv head
 * are one kind of group, so of layers with more kv heads than others each rank has one of its own. */
static bool kv_breaks(const ndp_layout *l, const ndp_layout_facts *facts, char why[TEXT]) {
    int64_t tp_sp = (int64_t)l->size[NDP_TP] * l->size[NDP_SP];
    const int counts[] = {facts->kv_heads, facts->most_kv_heads ? facts->most_kv_heads : facts->kv_heads};
    for (int i = 0; i < 2; i++)
        if (counts[i] % tp_sp != 0 && tp_sp % counts[i] != 0) {
            snprintf(why, TEXT, "%d kv heads and tp %d x sp %d = %lld: neither divides the other", counts[i],
                     l->size[NDP_TP], l->size[NDP_SP], (long long)tp_sp);
            return true;
        }
    snprintf(why, TEXT, "tp %d is more than %d, and some layers have %d kv heads, others %d", l->size[NDP_TP],
             counts[1], counts[0], counts[1]);
    return counts[0] != counts[1] && l->size[NDP_TP] > counts[1];
}

/* True if a full layout breaks a rule, which is then in `why` with its numbers. */
static bool breaks_rule(const ndp_layout *l, const ndp_layout_facts *facts, char why[TEXT]) {
    int64_t tp_sp = (int64_t)l->size[NDP_TP] * l->size[NDP_SP];
    int64_t replica = l->size[NDP_DP_SHARD] * (int64_t)l->size[NDP_CP] * tp_sp;
    if (replica % l->size[NDP_EP] != 0)
        snprintf(why, TEXT, "ep %d does not divide dp_shard %d x cp %d x sp %d x tp %d = %lld", l->size[NDP_EP],
                 l->size[NDP_DP_SHARD], l->size[NDP_CP], l->size[NDP_SP], l->size[NDP_TP], (long long)replica);
    else if (facts && l->size[NDP_EP] > 1 && facts->experts == 0)
        snprintf(why, TEXT, "ep %d: the model has no mixtures of experts", l->size[NDP_EP]);
    else if (facts && l->size[NDP_EP] > 1 && l->size[NDP_EP] > facts->experts)
        snprintf(why, TEXT, "ep %d is more than the %d experts of a layer", l->size[NDP_EP], facts->experts);
    else if (facts && facts->heads % tp_sp != 0)
        snprintf(why, TEXT, "%d attention head%s not divisible by tp %d x sp %d = %lld", facts->heads,
                 facts->heads == 1 ? " is" : "s are", l->size[NDP_TP], l->size[NDP_SP], (long long)tp_sp);
    else if (facts && facts->state_heads % l->size[NDP_TP] != 0)
        snprintf(why, TEXT, "%d key head%s of layers with a state %s not divisible by tp %d", facts->state_heads,
                 facts->state_heads == 1 ? "" : "s", facts->state_heads == 1 ? "is" : "are", l->size[NDP_TP]);
    else if (facts && facts->heads > 0 && kv_breaks(l, facts, why))
        return true;
    else if (facts && l->size[NDP_PP] > facts->layers)
        snprintf(why, TEXT, "pp %d is more than the %d layer%s", l->size[NDP_PP], facts->layers,
                 facts->layers == 1 ? "" : "s");
    else
        return false;
    return true;
}

/* Fills the auto size. False if the product is not `world`; `why` then has the numbers. */
static bool fill(ndp_layout *l, int world, char why[TEXT]) {
    char text[LAYOUT_TEXT];
    int open = -1;
    int64_t product = 1;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        if (l->size[axis] == 0)
            open = axis;
        else if (product <= INT32_MAX) /* a larger one is wrong already */
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
        snprintf(why, TEXT, "%s: %d rank%s not a multiple of %lld", text, world, world == 1 ? " is" : "s are",
                 (long long)product);
    else if (product == 1)
        snprintf(why, TEXT, "the layout has 1 rank, since all its sizes are 1, but the run has %d", world);
    else
        snprintf(why, TEXT, "the layout %s has %lld ranks, but the run has %d", text, (long long)product, world);
    return false;
}

/* ---- the nearest legal layouts ---- */

/* A search for layouts that change exactly `limit` sizes; the nearest of them, sorted by distance. */
typedef struct layout_search {
    const ndp_layout *asked;
    const ndp_layout_facts *facts;
    int world;
    int limit;
    int found;
    ndp_layout layouts[SUGGESTIONS];
    double distances[SUGGESTIONS];
} layout_search;

static double change(int asked, int size) { return asked ? fabs(log((double)size / asked)) : 0; }

/* Among equal changes those of the data axes come first, which affect model and batch least. Only cp comes before them
 * where sp shrinks: both cut the sequence, and the batch stays the same. */
double ndp_layout_distance(const ndp_layout *asked, const ndp_layout *l) {
    double sum = change(asked->size[NDP_EP], l->size[NDP_EP]) * ndp_axis_table[NDP_EP].weight;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        bool instead = axis == NDP_CP && l->size[NDP_SP] < asked->size[NDP_SP];
        sum += change(asked->size[axis], l->size[axis]) * (instead ? 0.99 : ndp_axis_table[axis].weight);
    }
    return sum;
}

/* Adds a legal layout to the list, if it is one of the nearest. */
static void take(layout_search *s, const ndp_layout *l) {
    char why[TEXT];
    if (breaks_rule(l, s->facts, why))
        return;
    int at = s->found;
    double far = ndp_layout_distance(s->asked, l);
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

static void try_size(layout_search *s, ndp_layout *l, int axis, int left, int changes, int size);

/* All axes are set: takes the layout, or the same with another ep, less than twice as large. */
static void try_ep(layout_search *s, ndp_layout *l, int changes) {
    int asked = s->asked->size[NDP_EP], *ep = &l->size[NDP_EP];
    if (changes == s->limit)
        take(s, l);
    if (changes + 1 != s->limit)
        return;
    for (*ep = 1; *ep < 2 * (int64_t)asked && *ep <= s->world; ++*ep)
        if (*ep != asked)
            take(s, l);
    *ep = asked;
}

/* Tries all sizes of `axis` and all inner ones, whose product must be `left`. */
static void try_axis(layout_search *s, ndp_layout *l, int axis, int left, int changes) {
    if (axis == NDP_AXES) {
        if (left == 1)
            try_ep(s, l, changes);
        return;
    }
    int asked = s->asked->size[axis];
    if (asked && changes == s->limit) {
        try_size(s, l, axis, left, changes, asked);
        return;
    }
    for (int size = 1; (int64_t)size * size <= left; size++) {
        if (left % size != 0)
            continue;
        try_size(s, l, axis, left, changes, size);
        if (size != left / size)
            try_size(s, l, axis, left, changes, left / size);
    }
}

static void try_size(layout_search *s, ndp_layout *l, int axis, int left, int changes, int size) {
    int asked = s->asked->size[axis];
    if (left % size != 0)
        return;
    l->size[axis] = size;
    try_axis(s, l, axis + 1, left / size, changes + (asked && size != asked));
}

/* Adds a layout to a list; with `ranks` also its number of ranks. */
static void list_layout(ndp_layout l, bool ranks, char list[LIST]) {
    char text[LAYOUT_TEXT];
    size_t used = strlen(list);
    int64_t world = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        world *= l.size[axis];
    used +=
        (size_t)snprintf(list + used, LIST - used, "%s%s", used ? "; " : "", ndp_layout_text(&l, text, sizeof text));
    if (ranks && used < LIST)
        snprintf(list + used, LIST - used, " (%lld rank%s)", (long long)world, world == 1 ? "" : "s");
}

/* Lists the nearest legal layouts; `first` is the nearest of them. */
static void list_nearest(const ndp_layout *asked, int world, const ndp_layout_facts *facts, char list[LIST],
                         ndp_layout *first) {
    layout_search s = {.asked = asked, .facts = facts, .world = world};
    int n = 0;
    /* One or two changes repair nearly every request: more are only tried if nothing was found. */
    for (s.limit = 1; s.limit <= NDP_SIZES && n < SUGGESTIONS && (n == 0 || s.limit <= 2); s.limit++) {
        ndp_layout at = *asked;
        s.found = 0;
        try_axis(&s, &at, 0, world, 0);
        for (int i = 0; i < s.found && n < SUGGESTIONS; i++, n++) {
            *first = n == 0 ? s.layouts[i] : *first;
            list_layout(s.layouts[i], false, list);
        }
    }
}

/* "; set parallelism.dp_shard_size=3, or auto": the keys that turn `asked` into `to`. */
static void add_fix(const ndp_layout *asked, const ndp_layout *to, char fix[TEXT]) {
    int changes = 0;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        size_t used = strlen(fix);
        if (asked->size[axis] != to->size[axis])
            snprintf(fix + used, TEXT - used, "%sparallelism.%s_size=%d", changes++ ? " and " : "; set ",
                     ndp_axis_name((ndp_axis)axis), to->size[axis]);
    }
    if (changes == 1)
        snprintf(fix + strlen(fix), TEXT - strlen(fix), ", or auto");
}

/* With a size that is auto: the numbers of ranks closest to `world` that the other sizes divide. */
static void list_other_worlds(const ndp_layout *asked, int world, const ndp_layout_facts *facts, char list[LIST]) {
    int64_t product = 1;
    char why[TEXT];
    for (int axis = 0; axis < NDP_AXES; axis++)
        product *= asked->size[axis] && product <= world ? asked->size[axis] : 1;
    for (int64_t ranks = world / product * product, i = 0; i < 2 && ranks <= INT32_MAX; i++, ranks += product) {
        ndp_layout l = *asked;
        if (ranks > 0 && fill(&l, (int)ranks, why) && !breaks_rule(&l, facts, why))
            list_layout(l, true, list);
    }
}

/* Changes each of the sizes that a model limits to the nearest legal one below and above, up to twice as large. */
static void list_other_sizes(const ndp_layout *full, const ndp_layout_facts *facts, char list[LIST]) {
    static const ndp_axis limited[] = {NDP_TP, NDP_SP, NDP_PP};
    char why[TEXT];
    for (int i = 0; i < NDP_COUNT(limited); i++) {
        int size = full->size[limited[i]];
        ndp_layout l = *full;
        int *at = &l.size[limited[i]];
        for (*at = size - 1; *at > 1 && breaks_rule(&l, facts, why);)
            --*at;
        if (*at > 1)
            list_layout(l, true, list);
        for (*at = size + 1; *at - size < size && breaks_rule(&l, facts, why);)
            ++*at;
        if (size > 1 && !breaks_rule(&l, facts, why))
            list_layout(l, true, list);
    }
}

/* Fails with `why` and the nearest legal layouts. `full`: the layout whose product is `world`; NULL: there is none. */
static ndp_status refuse(const ndp_layout *asked, const ndp_layout *full, int world, const ndp_layout_facts *facts,
                         const char *why) {
    char here[LIST] = "", elsewhere[LIST] = "", fix[TEXT] = "";
    ndp_layout nearest = *asked;
    bool open = false, given = false; /* a size is auto; it came out above 1 */
    for (int axis = 0; axis < NDP_AXES; axis++) {
        open |= asked->size[axis] == 0;
        given |= asked->size[axis] == 0 && full && full->size[axis] > 1;
    }
    list_nearest(asked, world, facts, here, &nearest);
    if (!open && !full)
        add_fix(asked, &nearest, fix);
    if (open && !full)
        list_other_worlds(asked, world, facts, elsewhere);
    else if (full && !given)
        list_other_sizes(full, facts, elsewhere);
    return NDP_FAIL(NDP_EINVAL, "%s%s. The nearest legal layouts on %d rank%s: %s%s%s", why, fix, world,
                    world == 1 ? "" : "s", here, *elsewhere ? ". On other numbers of ranks: " : "", elsewhere);
}

ndp_status ndp_layout_resolve(ndp_layout *layout, int world, const ndp_layout_facts *facts) {
    int open = 0;
    NDP_CHECK(world >= 1, "%d ranks; a run needs at least one", world);
    for (int axis = 0; axis < NDP_AXES; axis++) {
        open += layout->size[axis] == 0;
        NDP_CHECK(layout->size[axis] >= 0, "%s_size is %d; a size is at least 1, or auto",
                  ndp_axis_name((ndp_axis)axis), layout->size[axis]);
    }
    NDP_CHECK(open <= 1, "%d sizes are auto; at most one can be", open);
    NDP_CHECK(layout->size[NDP_EP] >= 1, "ep_size is %d; it has to be at least 1", layout->size[NDP_EP]);
    bool attends = facts && (facts->heads != 0 || facts->kv_heads != 0);
    NDP_CHECK(!facts || ((!attends || (facts->heads >= 1 && facts->kv_heads >= 1)) && facts->layers >= 1),
              "a model with %d heads, %d kv heads and %d layers cannot be laid out", facts->heads, facts->kv_heads,
              facts->layers);
    char why[TEXT] = "";
    ndp_layout full = *layout;
    if (!fill(&full, world, why))
        return refuse(layout, NULL, world, facts, why);
    if (breaks_rule(&full, facts, why))
        return refuse(layout, &full, world, facts, why);
    *layout = full;
    return NDP_OK;
}
