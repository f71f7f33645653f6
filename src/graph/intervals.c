/* Placing blocks that live for an interval: the lowest gap, in several orders, of which the best is taken; then a local
 * search over orders, where that leaves gaps. The plans of small sets are kept (known_plans): lists of calls with the
 * same shapes are planned for every rank of a world and every layout that is tried, and the search is most of it. */
#include "graph/intervals.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

/* What orders compare: most first, but the earliest first for BY_START, which ends an order. */
typedef enum sort_key { BY_START, BY_END, BY_SIZE, BY_LIFE, BY_AREA } sort_key;
enum { MOST_KEYS = 3 };

static double key_of(const ndp_interval *x, sort_key key) {
    int steps = x->life.last - x->life.first + 1 - x->life.gap_n;
    const double of[] = {[BY_START] = -x->life.first,
                         [BY_END] = x->life.last,
                         [BY_SIZE] = (double)x->bytes,
                         [BY_LIFE] = steps,
                         [BY_AREA] = (double)x->bytes * steps}; /* bytes times the time they are held */
    return of[key];
}

/* A total order: the plan is the same on every rank. */
static int by_keys(const void *a, const void *b, void *order) {
    const ndp_interval *x = *(ndp_interval *const *)a, *y = *(ndp_interval *const *)b;
    for (const sort_key *key = order;; key++) {
        double of_x = key_of(x, *key), of_y = key_of(y, *key);
        if (of_x != of_y)
            return of_x > of_y ? -1 : 1;
        if (*key == BY_START)
            return x < y ? -1 : x > y;
    }
}

typedef struct placed_item {
    size_t offset, end;
    ndp_life life;
} placed_item;

/* The placed items of its level that live in a range of steps, the lowest first. */
typedef struct cell {
    placed_item *items; /* room for all that live there */
    int n;
    int passed; /* how many of them the item that is being placed is compared with already */
} cell;

/* Cells of one width. An item is in the cells of one level, of few cells each, and is compared with those that it meets
 * at every level: so long lives are not listed in every narrow cell. */
typedef struct cell_level {
    cell *cells;
    int n, width; /* steps of a cell */
} cell_level;
enum { MOST_LEVELS = 16, WIDER = 4, SPANS = 4 };

/* Room for one plan. */
typedef struct planning {
    ndp_interval *items;
    int n;
    ndp_interval **order;           /* in which they are placed */
    cell_level levels[MOST_LEVELS]; /* the last one has one cell */
    int n_levels, n_cells;
    cell *cells;               /* of all levels */
    placed_item *placed;       /* of all cells */
    ndp_interval **kept_order; /* of the search: the order to go back to, and its offsets by item */
    size_t *kept;
    size_t *offsets; /* of the best plan so far, by item */
    size_t least;    /* its size */
} planning;

/* Moves `at` up past the items of a cell that live at the same time and leave no gap of `need` bytes. */
static size_t pass(cell *c, const ndp_life *life, size_t at, size_t need) {
    for (; c->passed < c->n && c->items[c->passed].offset < at + need; c->passed++) {
        const placed_item *x = &c->items[c->passed];
        if (x->end > at && ndp_lives_meet(&x->life, life))
            at = x->end;
    }
    return at;
}

static void insert(cell *c, placed_item x) {
    int i = c->n++;
    for (; i > 0 && c->items[i - 1].offset > x.offset; i--)
        c->items[i] = c->items[i - 1];
    c->items[i] = x;
}

static cell *first_cell(const cell_level *l, const ndp_life *life) { return &l->cells[life->first / l->width]; }
static cell *last_cell(const cell_level *l, const ndp_life *life) { return &l->cells[life->last / l->width]; }

/* The narrowest level of which the life spans few cells. */
static const cell_level *level_of(const planning *p, const ndp_life *life) {
    const cell_level *l = p->levels;
    while (l < &p->levels[p->n_levels - 1] && last_cell(l, life) - first_cell(l, life) >= SPANS)
        l++;
    return l;
}

/* Gives `item` the lowest gap between the placed ones that live at the same time. */
static void place_one(planning *p, ndp_interval *item) {
    size_t at = 0, need = aligned(item->bytes), before;
    const ndp_life *life = &item->life;
    const cell_level *end = &p->levels[p->n_levels], *own = level_of(p, life);
    for (const cell_level *l = p->levels; l < end; l++)
        for (cell *c = first_cell(l, life); c <= last_cell(l, life); c++)
            c->passed = 0;
    do {
        before = at;
        for (const cell_level *l = p->levels; l < end; l++)
            for (cell *c = first_cell(l, life); c <= last_cell(l, life); c++)
                at = pass(c, life, at, need);
    } while (at > before);
    item->offset = at;
    for (cell *c = first_cell(own, life); c <= last_cell(own, life); c++)
        insert(c, (placed_item){at, at + need, *life});
}

static size_t end_of(const ndp_interval *item) { return item->offset + aligned(item->bytes); }

/* Places all in their current order, and notes the plan if it takes the least memory. Returns its size; above `most`,
 * that of the part which was placed by then. */
static size_t place_all(planning *p, size_t most) {
    size_t end = 0;
    for (int i = 0; i < p->n_cells; i++)
        p->cells[i].n = 0;
    for (int i = 0; i < p->n; i++) {
        place_one(p, p->order[i]);
        end = end_of(p->order[i]) > end ? end_of(p->order[i]) : end;
        if (end > most)
            return end;
    }
    for (int i = 0; end < p->least && i < p->n; i++)
        p->offsets[i] = p->items[i].offset;
    p->least = end < p->least ? end : p->least;
    return end;
}

static size_t place_sorted(planning *p, const sort_key order[MOST_KEYS], size_t most) {
    for (int i = 0; i < p->n; i++)
        p->order[i] = &p->items[i];
    qsort_r(p->order, (size_t)p->n, sizeof *p->order, by_keys, (void *)order);
    return place_all(p, most);
}

/* Moves entry `from` of the order to place `to`. */
static void move(planning *p, int from, int to) {
    ndp_interval *item = p->order[from];
    size_t size = sizeof *p->order;
    if (from < to)
        memmove(p->order + from, p->order + from + 1, (size_t)(to - from) * size);
    else
        memmove(p->order + to + 1, p->order + to, (size_t)(from - to) * size);
    p->order[to] = item;
}

static int highest(const planning *p) {
    int top = 0;
    for (int i = 1; i < p->n; i++)
        if (end_of(p->order[i]) > end_of(p->order[top]))
            top = i;
    return top;
}

/* The block that reaches highest is placed first in the next try. */
static void lift_the_highest(planning *p, size_t peak) {
    enum { TRIES = 12 };
    for (int k = 0; k < TRIES && p->least > peak; k++) {
        move(p, highest(p), 0);
        place_all(p, SIZE_MAX);
    }
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 20;
}

/* A step of the search: the block that reaches highest is placed earlier, or any block at another time. A plan that
 * takes no more is kept. */
static size_t try_another(planning *p, uint64_t *random, size_t now) {
    uint64_t n = (uint64_t)p->n;
    memcpy(p->kept_order, p->order, n * sizeof *p->order);
    for (int i = 0; i < p->n; i++)
        p->kept[i] = p->items[i].offset;
    if (next_random(random) % 2) {
        int top = highest(p);
        move(p, top, (int)(next_random(random) % (uint64_t)(top + 1)));
    } else {
        move(p, (int)(next_random(random) % n), (int)(next_random(random) % n));
    }
    size_t end = place_all(p, now);
    if (end <= now)
        return end;
    memcpy(p->order, p->kept_order, n * sizeof *p->order);
    for (int i = 0; i < p->n; i++)
        p->items[i].offset = p->kept[i];
    return now;
}

/* A local search from two orders, with several seeds each: the same on every rank. It ends at `enough`. */
static void search(planning *p, size_t enough) {
    enum { STARTS = 32, TRIES = 300 };
    static const sort_key orders[][MOST_KEYS] = {{BY_SIZE}, {BY_START}};
    for (int k = 0; k < STARTS && p->least > enough; k++) {
        uint64_t random = 0x9E3779B97F4A7C15u * (uint64_t)(k + 1);
        size_t now = place_sorted(p, orders[k % NDP_COUNT(orders)], SIZE_MAX);
        for (int i = 0; i < TRIES && p->least > enough; i++)
            now = try_another(p, &random, now);
    }
}

static int end_step(const ndp_interval *items, int n) {
    int end = 1;
    for (int i = 0; i < n; i++)
        end = items[i].life.last >= end ? items[i].life.last + 1 : end;
    return end;
}

size_t ndp_intervals_peak(const ndp_interval *items, int n) {
    int end = end_step(items, n);
    int64_t *change = calloc((size_t)end + 1, sizeof *change), now = 0, most = 0; /* of bytes, at a step */
    if (!change)
        return 0;
    for (int i = 0; i < n; i++) {
        const ndp_life *l = &items[i].life;
        int64_t bytes = (int64_t)aligned(items[i].bytes), inside = l->gap_n > 0 ? bytes : 0;
        change[l->first] += bytes;
        change[l->last + 1] -= bytes;
        change[l->gap] -= inside;
        change[l->gap + l->gap_n] += inside;
    }
    for (int i = 0; i < end; i++) {
        now += change[i];
        most = now > most ? now : most;
    }
    free(change);
    return (size_t)most;
}

/* Small sets are planned with more care, and in one cell. */
enum { SMALL = 300 };

static void plan(planning *p, size_t enough) {
    enum { WORTH = 64 << 10 };
    static const sort_key orders[][MOST_KEYS] = {{BY_SIZE}, {BY_LIFE, BY_SIZE}, {BY_START},
                                                 {BY_AREA}, {BY_SIZE, BY_END},  {BY_END}};
    size_t peak = ndp_intervals_peak(p->items, p->n);
    peak = enough > peak && p->n > SMALL ? enough : peak;
    for (int k = 0; k < NDP_COUNT(orders) && (k == 0 || p->least > peak); k++) {
        place_sorted(p, orders[k], p->n <= SMALL ? SIZE_MAX : p->least - 1);
        if (p->n > 1 && p->n <= SMALL)
            lift_the_highest(p, peak);
    }
    if (p->n <= SMALL)
        search(p, peak + (peak / 25 > WORTH ? peak / 25 : WORTH));
    for (int i = 0; i < p->n; i++)
        p->items[i].offset = p->offsets[i];
}

/* The widths of levels. Narrow cells are wide enough for many items to begin in each. */
static void choose_levels(planning *p) {
    enum { BEGIN = 16 };
    int steps = end_step(p->items, p->n);
    int n = p->n <= SMALL ? 1 : p->n / BEGIN, width = (steps + n - 1) / n;
    for (n = (steps + width - 1) / width; p->n_levels < MOST_LEVELS - 1 && n > 1; n = (n + WIDER - 1) / WIDER) {
        p->levels[p->n_levels++] = (cell_level){.n = n, .width = width};
        width *= WIDER;
    }
    p->levels[p->n_levels++] = (cell_level){.n = 1, .width = steps};
    for (int k = 0; k < p->n_levels; k++)
        p->n_cells += p->levels[k].n;
}

/* Divides the steps into cells, with room in each for all that are listed there. */
static bool make_cells(planning *p) {
    size_t room = 0;
    choose_levels(p);
    p->cells = calloc((size_t)p->n_cells, sizeof *p->cells);
    cell *next_cell = p->cells;
    for (int k = 0; p->cells && k < p->n_levels; next_cell += p->levels[k++].n)
        p->levels[k].cells = next_cell;
    for (int i = 0; p->cells && i < p->n; i++) {
        const ndp_life *life = &p->items[i].life;
        const cell_level *own = level_of(p, life);
        for (cell *c = first_cell(own, life); c <= last_cell(own, life); c++, room++)
            c->n++;
    }
    p->placed = malloc((room + 1) * sizeof *p->placed);
    placed_item *next = p->placed;
    for (int c = 0; p->cells && p->placed && c < p->n_cells; c++) {
        p->cells[c].items = next;
        next += p->cells[c].n;
    }
    return p->cells && p->placed;
}

/* ---- plans that are known ---- */

/* A set that was planned. */
typedef struct known_plan {
    ndp_interval *items; /* NULL: none */
    int n;
    size_t total;
} known_plan;

enum { SHELVES = 256, WAYS = 4 };
static struct {
    pthread_mutex_t lock;
    struct {
        known_plan plans[WAYS];
        unsigned next;  /* to be replaced */
    } shelves[SHELVES]; /* by hash */
} known_plans = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t shelf_of(const ndp_interval *items, int n) {
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        const ndp_life *l = &items[i].life;
        h = (h ^ items[i].bytes) * 0x9E3779B97F4A7C15u;
        h = (h ^ h >> 29 ^ (uint64_t)l->first << 32 ^ (uint64_t)l->last) * 0xBF58476D1CE4E5B9u;
        h = (h ^ h >> 31 ^ (uint64_t)l->gap << 32 ^ (uint64_t)l->gap_n) * 0x94D049BB133111EBu;
    }
    return h >> 32 & (SHELVES - 1);
}

static bool same_set(const known_plan *k, const ndp_interval *items, int n) {
    bool same = k->items && k->n == n;
    for (int i = 0; same && i < n; i++) {
        const ndp_interval *a = &k->items[i], *b = &items[i];
        same = a->bytes == b->bytes && memcmp(&a->life, &b->life, sizeof a->life) == 0;
    }
    return same;
}

static bool take_known(ndp_interval *items, int n, size_t *total) {
    size_t shelf = shelf_of(items, n);
    bool known = false;
    pthread_mutex_lock(&known_plans.lock);
    for (int k = 0; k < WAYS && !known; k++) {
        const known_plan *plan = &known_plans.shelves[shelf].plans[k];
        known = same_set(plan, items, n);
        for (int i = 0; known && i < n; i++)
            items[i].offset = plan->items[i].offset;
        if (known)
            *total = plan->total;
    }
    pthread_mutex_unlock(&known_plans.lock);
    return known;
}

/* Without memory for it the set stays unknown. */
static void keep(const ndp_interval *items, int n, size_t total) {
    size_t shelf = shelf_of(items, n);
    ndp_interval *copy = malloc((size_t)n * sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, items, (size_t)n * sizeof *copy);
    pthread_mutex_lock(&known_plans.lock);
    known_plan *plan = &known_plans.shelves[shelf].plans[known_plans.shelves[shelf].next++ % WAYS];
    free(plan->items);
    *plan = (known_plan){copy, n, total};
    pthread_mutex_unlock(&known_plans.lock);
}

static ndp_status place(ndp_interval *items, int n, size_t enough, size_t *total) {
    size_t room = (size_t)n + 1;
    planning p = {.items = items,
                  .n = n,
                  .order = malloc(room * sizeof *p.order),
                  .kept_order = malloc(room * sizeof *p.kept_order),
                  .kept = malloc(room * sizeof *p.kept),
                  .offsets = malloc(room * sizeof *p.offsets),
                  .least = SIZE_MAX};
    ndp_status st = NDP_OK;
    if (!p.order || !p.kept_order || !p.kept || !p.offsets || !make_cells(&p))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to plan %d blocks", n);
    else
        plan(&p, enough);
    *total = st == NDP_OK && n > 0 ? p.least : 0;
    void *const owned[] = {p.order, p.cells, p.placed, p.kept_order, p.kept, p.offsets};
    for (int i = 0; i < NDP_COUNT(owned); i++)
        free(owned[i]);
    return st;
}

ndp_status ndp_intervals_place(ndp_interval *items, int n, size_t enough, size_t *total) {
    bool small = n > 1 && n <= SMALL;
    if (small && take_known(items, n, total))
        return NDP_OK;
    NDP_TRY(place(items, n, enough, total));
    if (small)
        keep(items, n, *total);
    return NDP_OK;
}
