/* Mutants of many worlds: those that the other checks accept must be refused by the placement check, or change nothing
 * when they are run. */
#ifndef TESTS_PLACEMENT_MUTANTS_H
#define TESTS_PLACEMENT_MUTANTS_H

#include "placement/lies.h"
#include "placement/runs.h"

enum { MUTANT_TEXT = 512 };

typedef struct mutant_counts {
    int drawn, counted, refused, named, harmless, survived;
} mutant_counts;

typedef struct mutants {
    uint64_t seed;
    int most; /* of each kind in a world */
    int only; /* this mutation of each world alone; NDP_NONE: all */
    bool verbose;
    mutant_counts by_kind[MUTATIONS], by_model[WORLD_MODELS];
    struct {
        int told, refused;
    } lies[LIES];
    double checking, running; /* seconds of the processor */
    int worlds, alarms;       /* alarms: refused as they are */
} mutants;

static inline ndp_status check_placement(const planned *w) {
    const ndp_placement_opts o = {w->programs, w->n, &ndp_engine_claims};
    return ndp_placement_check(&o, NULL);
}

/* ---- what the other checks say ---- */

static inline bool call_has_shapes(const ndp_call *c, const ndp_exec *exec) {
    ndp_op_call shapes = {.op = c->op, .attr = &c->attr, .exec = exec};
    if (c->kind == NDP_CALL_WAIT)
        return true;
    for (int k = 0; k < c->n_in; k++)
        shapes.in[k] = c->in[k].view;
    for (int k = 0; k < c->n_out; k++)
        shapes.out[k] = c->out[k].view;
    if (c->op->shape(&shapes) != NDP_OK)
        return false;
    for (int k = 0; k < c->n_out; k++)
        if (c->out[k].base != NDP_NONE &&
            (shapes.out[k].rows != c->out[k].view.rows || shapes.out[k].cols != c->out[k].view.cols))
            return false;
    return true;
}

static inline bool has_shapes(const ndp_program *p, const mutation *m) {
    bool ok = true;
    if (m->site.graph != NDP_NONE) {
        const ndp_list *list = &p->opts.units[m->site.graph].lists[m->site.phase];
        for (int i = 0; ok && i < list->n; i++)
            ok = call_has_shapes(&list->calls[i], p->opts.step.exec);
        return ok;
    }
    for (int i = 0; ok && i < p->n; i++)
        ok = p->instrs[i].code != NDP_DO_CALL || call_has_shapes(&p->instrs[i].call, p->opts.step.exec);
    return ok;
}

/* Bits by rank of a world: whose programs are changed. */
static inline bool others_accept(const planned *w, const mutation *m, const bool *changed) {
    for (int i = 0; i < w->n; i++)
        if (changed[i] && (!has_shapes(w->programs[i], m) || ndp_program_order(w->programs[i]) != NDP_OK))
            return false;
    return !mutation_communicates(m) || ndp_program_check(w->programs, w->n) == NDP_OK;
}

/* ---- what the placement check says ---- */

/* A program that has the place of the mutation. */
static inline const ndp_program *mutated_program(const planned *w, const mutation *m) {
    int i = 0;
    while (m->pp != NDP_NONE && w->programs[i]->opts.step.mesh.coord[NDP_PP] != m->pp)
        i++;
    return w->programs[i];
}

/* True if the message has the place of the mutation, its value, or one that reads it. */
static inline bool is_named(const planned *w, const mutation *m, const char *message) {
    char place[48];
    const ndp_program *p = mutated_program(w, m);
    if (m->site.graph == NDP_NONE)
        return m->site.what[0] && strstr(message, m->site.what);
    const ndp_list *list = &p->opts.units[m->site.graph].lists[m->site.phase];
    const ndp_graph *g = p->opts.units[m->site.graph].graph;
    const ndp_call *c = &list->calls[m->site.call];
    snprintf(place, sizeof place, "#%d ", m->site.call);
    bool named = strstr(message, place) != NULL;
    for (int k = 0; k < c->n_out && !named; k++)
        named = c->out[k].value != NDP_NONE && strstr(message, g->values[c->out[k].value].name);
    for (int i = 0; i < list->n && !named; i++)
        for (int k = 0; k < list->calls[i].n_in && !named; k++) {
            const ndp_call *reader = &list->calls[i];
            bool reads = c->n_out > 0 && mutation_overlap(&reader->in[k], &c->out[0]);
            if (reads && reader->n_out > 0 && reader->out[0].value != NDP_NONE)
                named = strstr(message, g->values[reader->out[0].value].name);
        }
    return named;
}

static inline mutant_counts *counts_of(mutants *s, int model, const mutation *m, int k) {
    return k ? &s->by_model[model] : &s->by_kind[m->kind];
}

static inline void count(mutants *s, int model, const mutation *m, size_t field) {
    for (int k = 0; k < 2; k++)
        ++*(int *)((char *)counts_of(s, model, m, k) + field);
}
#define COUNT(s, model, m, field) count(s, model, m, offsetof(mutant_counts, field))

static inline void undo_all(const planned *w, journal *j) {
    for (int i = 0; i < w->n; i++)
        journal_undo(&j[i]);
}

/* Applies a mutation to all programs, and has it checked. True: it was accepted, so that it is to be run. */
static inline bool try_mutant(mutants *s, const planned *w, int model, int number, const mutation *m) {
    journal j[64] = {{.n = 0}};
    bool changed[64], any = false, accepted = false;
    char text[MUTANT_TEXT];
    for (int i = 0; i < w->n; i++) {
        changed[i] = mutation_apply(m, (ndp_program *)w->programs[i], &j[i]);
        any |= changed[i];
    }
    COUNT(s, model, m, drawn);
    if (any && others_accept(w, m, changed)) {
        COUNT(s, model, m, counted);
        accepted = check_placement(w) == NDP_OK;
        bool named = !accepted && is_named(w, m, ndp_error_message());
        char *message = accepted ? NULL : strdup(ndp_error_message());
        undo_all(w, j);
        if (!accepted)
            COUNT(s, model, m, refused);
        if (named)
            COUNT(s, model, m, named);
        if (s->verbose && (s->only != NDP_NONE || !named))
            printf("  %s %d %s: %s\n",
                   accepted ? "accepted"
                   : named  ? "refused"
                            : "refused elsewhere",
                   number, mutation_text(m, mutated_program(w, m), text, sizeof text), message ? message : "");
        free(message);
    }
    undo_all(w, j);
    return accepted;
}

/* ---- a world ---- */

/* Which of the mutations of a world are tried: `most` of each kind, drawn. */
static inline void choose(const mutants *s, const mutations *all, uint64_t layout, bool *chosen) {
    int left[MUTATIONS] = {0}, take[MUTATIONS];
    for (int i = 0; i < all->n; i++)
        left[all->items[i].kind]++;
    for (int k = 0; k < MUTATIONS; k++)
        take[k] = s->most;
    for (int i = 0; i < all->n; i++) {
        int k = (int)all->items[i].kind;
        int r = (int)ndp_rng_below(s->seed, layout, (uint64_t)i, (uint64_t)left[k]);
        chosen[i] = s->only == NDP_NONE ? r < take[k] : i == s->only;
        take[k] -= r < take[k];
        left[k]--;
    }
}

static inline void list_mutations(const planned *w, mutations *all) {
    for (int pp = 0; pp < w->way.layout.size[NDP_PP]; pp++)
        for (int i = 0; i < w->n; i++)
            if (w->programs[i]->opts.step.mesh.coord[NDP_PP] == pp) {
                mutations_of(w->programs[i], all);
                break;
            }
}

/* Runs a mutant that was accepted: it must give what the original gives. */
static inline void judge(mutants *s, const planned *w, int model, uint64_t layout, int number, const mutation *m,
                         rank_result **original) {
    static const char *const words[] = {"harmless", "SURVIVED", "SURVIVED and fails"};
    char text[MUTANT_TEXT], where[WORLD_TEXT];
    ndp_status st = NDP_OK;
    double start = used_seconds();
    run_verdict v = RUN_DIFFERS; /* of places in pinned memory, which a device without any does not run */
    if (w->exec.device->executes) {
        if (!*original)
            *original = run_world(w, &st);
        assert_int_equal(st, NDP_OK);
        assert_true((*original)[0].numbers[0][1] > WORLD_MAX_NORM); /* clipping is active */
        v = run_mutant(w, m, *original);
    }
    if (v == RUN_SAME)
        COUNT(s, model, m, harmless);
    else
        COUNT(s, model, m, survived);
    printf("%s: model %d layout %d mutation %d: %s: %s%s%s\n", words[v], model, (int)layout, number,
           world_text(w, where), mutation_text(m, mutated_program(w, m), text, sizeof text), v == RUN_SAME ? ": " : "",
           v == RUN_SAME ? mutation_harmless(m->kind) : "");
    s->running += used_seconds() - start;
}

/* Tells lies about some of the buffers. */
static inline void tell_lies(mutants *s, const planned *w, int model, uint64_t layout) {
    char where[WORLD_TEXT];
    for (int k = 0; k < LIES; k++)
        for (int i = 0; i < (lie_is_of_buffers((lie_kind)k) ? s->most / 2 : 1); i++) {
            const ndp_program *p = w->programs[ndp_rng_below(s->seed, layout, (uint64_t)i, (uint64_t)w->n)];
            int buffer = (int)ndp_rng_below(s->seed + 1, layout, (uint64_t)i, (uint64_t)p->opts.model->n_buffers);
            lie l = {.kind = (lie_kind)k,
                     .name = p->opts.model->buffers[buffer].name,
                     .of = &p->opts.model->buffers[buffer].segments,
                     .place = i};
            const ndp_claims claims = lying_claims(&l);
            const ndp_placement_opts o = {w->programs, w->n, &claims};
            bool refused = ndp_placement_check(&o, NULL) != NDP_OK;
            s->lies[k].told += l.told;
            s->lies[k].refused += l.told && refused;
            if (l.told && !refused)
                printf("BELIEVED: model %d layout %d: %s: %s, %s, no. %d\n", model, (int)layout, world_text(w, where),
                       lie_texts[k], l.name, l.place);
        }
}

/* Mutants of a world that is planned; its numbers are for the counts and for what is printed. */
static inline void try_planned(mutants *s, const planned *w, int model, uint64_t layout) {
    mutations all = {0};
    rank_result *original = NULL;
    char text[WORLD_TEXT];
    double start = used_seconds(), ran = s->running;
    if (check_placement(w) != NDP_OK) {
        s->alarms++;
        printf("ALARM: model %d layout %d: %s: %s\n", model, (int)layout, world_text(w, text), ndp_error_message());
        return;
    }
    list_mutations(w, &all);
    bool *chosen = calloc((size_t)all.n + 1, sizeof *chosen);
    choose(s, &all, layout, chosen);
    for (int i = 0; i < all.n; i++)
        if (chosen[i] && (!getenv("NDP_UNITS_ONLY") || all.items[i].site.graph != NDP_NONE) &&
            try_mutant(s, w, model, i, &all.items[i]))
            judge(s, w, model, layout, i, &all.items[i], &original);
    tell_lies(s, w, model, layout);
    s->worlds++;
    s->checking += used_seconds() - start - (s->running - ran);
    free(chosen);
    free(all.items);
    run_release(w, original);
}

static inline void try_world(mutants *s, int model, const ndp_layout *l, uint64_t layout) {
    planned w;
    world_draw_one(&w, &world_models[model], l, layout + 1000 * (uint64_t)model);
    try_planned(s, &w, model, layout);
    world_release(&w);
}

/* ---- all ---- */

static inline void print_counts(const char *name, const mutant_counts *c) {
    printf("  %-20s drawn %6d, accepted by other checks %6d, refused %6d (named %6d), harmless %4d, survived %4d\n",
           name, c->drawn, c->counted, c->refused, c->named, c->harmless, c->survived);
}

static inline mutant_counts print_mutants(const mutants *s) {
    mutant_counts all = {0};
    for (int k = 0; k < MUTATIONS; k++) {
        const mutant_counts *c = &s->by_kind[k];
        print_counts(mutation_name((mutation_kind)k), c);
        all.drawn += c->drawn, all.counted += c->counted, all.refused += c->refused, all.named += c->named;
        all.harmless += c->harmless, all.survived += c->survived;
    }
    for (int m = 0; m < WORLD_MODELS; m++)
        print_counts(world_models[m].name, &s->by_model[m]);
    for (int k = 0; k < LIES; k++) {
        printf("  %-36s told %5d, refused %5d\n", lie_texts[k], s->lies[k].told, s->lies[k].refused);
        all.drawn += s->lies[k].told, all.counted += s->lies[k].told, all.refused += s->lies[k].refused;
        all.survived += s->lies[k].told - s->lies[k].refused;
    }
    print_counts("all", &all);
    printf("  %d worlds, %d more refused as they are; %.0f s of the processor, and %.0f s to run mutants\n", s->worlds,
           s->alarms, s->checking, s->running);
    return all;
}

/* `layouts` of each model, of up to `ranks` ranks. */
static inline mutant_counts try_models(mutants *s, int layouts, int ranks) {
    ndp_layout *l = calloc((size_t)layouts, sizeof *l);
    for (int m = 0; m < WORLD_MODELS; m++) {
        int n = world_layouts(&world_models[m], ranks, s->seed + (uint64_t)m, layouts, l);
        for (int i = 0; i < n; i++)
            try_world(s, m, &l[i], (uint64_t)i);
    }
    free(l);
    return print_mutants(s);
}

#endif
