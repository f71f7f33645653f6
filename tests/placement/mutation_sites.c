/* Places of mutations, the text of one, and which numbers are changed. */
#include "placement/mutations.h"

#include <stdio.h>
#include <string.h>

#define NAME(NAME_, name, harmless) name,
#define HARMLESS(NAME_, name, harmless) harmless,
const char *mutation_name(mutation_kind k) {
    static const char *const names[] = {MUTATION_KINDS(NAME)};
    return names[k];
}
const char *mutation_harmless(mutation_kind k) {
    static const char *const reasons[] = {MUTATION_KINDS(HARMLESS)};
    return reasons[k];
}

static bool same_kind(const mutation_site *a, const mutation_site *b) {
    return a->code == b->code && a->op == b->op && a->kind == b->kind && strcmp(a->what, b->what) == 0 &&
           a->channel == b->channel && a->number == b->number && a->phase == b->phase &&
           a->micro_batch == b->micro_batch;
}

static mutation_site of_instr(const ndp_program *p, int i) {
    const ndp_instr *in = &p->instrs[i];
    mutation_site s = {.graph = NDP_NONE, .code = in->code, .what = in->what, .micro_batch = in->micro_batch};
    if (in->code == NDP_DO_RUN)
        s.number = p->opts.model->units[in->unit].number, s.phase = in->phase;
    else
        s.op = in->call.op, s.kind = in->call.kind, s.channel = in->call.channel;
    return s;
}

mutation_site mutation_site_of(const ndp_program *p, int graph, ndp_phase phase, int i) {
    if (graph != NDP_NONE)
        return (mutation_site){.graph = graph, .phase = phase, .call = i, .what = ""};
    mutation_site s = of_instr(p, i);
    for (int k = 0; k < i; k++) {
        mutation_site other = of_instr(p, k);
        s.nth += same_kind(&s, &other);
    }
    return s;
}

int mutation_find(ndp_program *p, const mutation_site *s, journal *j, edited *e) {
    *e = (edited){j, p, NULL};
    if (s->graph != NDP_NONE) {
        e->list = &((ndp_unit_program *)p->opts.units)[s->graph].lists[s->phase];
        return s->call < e->list->n ? s->call : NDP_NONE;
    }
    int nth = s->nth;
    for (int i = 0; i < p->n; i++) {
        mutation_site other = of_instr(p, i);
        if (same_kind(s, &other) && nth-- == 0)
            return i;
    }
    return NDP_NONE;
}

bool mutation_communicates(const mutation *m) {
    switch (m->kind) {
    case MUTATION_SKIPPED:
    case MUTATION_OPERAND:
    case MUTATION_ABSENT:
    case MUTATION_NUMBER:
    case MUTATION_ACCUMULATE:
    case MUTATION_SHIFTED:
    case MUTATION_MICRO_BATCH:
    case MUTATION_BLOCK:
    case MUTATION_MESSAGE:
    case MUTATION_STAGED:
        return false;
    default:
        return true;
    }
}

bool mutation_overlap(const ndp_operand *a, const ndp_operand *b) {
    if (a->base == NDP_NONE || a->base != b->base || a->view.rows == 0 || b->view.rows == 0)
        return false;
    size_t size = ndp_dtype_size(a->view.dtype), other = ndp_dtype_size(b->view.dtype);
    size_t end = a->offset + (size_t)((a->view.rows - 1) * a->view.ld + a->view.cols) * size;
    size_t other_end = b->offset + (size_t)((b->view.rows - 1) * b->view.ld + b->view.cols) * other;
    return a->offset < other_end && b->offset < end;
}

/* ---- numbers ---- */

/* Numbers of collectives, types, and what fp64 has no use for, are not changed. */
#define NUMBERS                                                                                                        \
    (NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_rotary_dim | NDP_READS_window |             \
     NDP_READS_scale | NDP_READS_cap | NDP_READS_eps | NDP_READS_max_norm | NDP_READS_inverse | NDP_READS_train |      \
     NDP_READS_vocab | NDP_READS_unit_offset | NDP_READS_parts | NDP_READS_first | NDP_READS_capacity |                \
     NDP_READS_spectral)

int mutation_variants(const ndp_op_attr *attr, int a) {
    if (!((uint64_t)NUMBERS >> a & 1u))
        return 0;
    switch (a) {
    case NDP_ATTR_inverse:
    case NDP_ATTR_train:
    case NDP_ATTR_spectral:
    case NDP_ATTR_unit_offset:
        return 1;
    case NDP_ATTR_max_norm:
        return attr->max_norm > 0 ? 2 : 1;
    default:
        return 2;
    }
}

static void other_double(double *x, int variant) { *x = *x == 0 ? 0.5 + variant : variant ? *x * 1.25 : *x * 0.99; }
static void other_int(int *x, int variant) { *x += variant ? 1 : *x > 0 ? -1 : 2; }
static void other_int64_t(int64_t *x, int variant) { *x += variant ? 1 : *x > 0 ? -1 : 2; }
static void other_bool(bool *x, int variant) { *x = !*x, (void)variant; }
static void other_ndp_dtype(ndp_dtype *x, int variant) { (void)x, (void)variant; }

void mutation_set_number(ndp_op_attr *attr, int a, int variant) {
    if (a == NDP_ATTR_unit_offset) {
        attr->unit_offset = !attr->unit_offset;
        return;
    }
#define SET(type, name)                                                                                                \
    if (a == NDP_ATTR_##name)                                                                                          \
        other_##type(&attr->name, variant);
    NDP_OP_ATTRS(SET)
#undef SET
}

static const char *attribute_name(int a) {
#define NAMED(type, name) #name,
    static const char *const names[] = {NDP_OP_ATTRS(NAMED)};
#undef NAMED
    return names[a];
}

/* ---- text ---- */

static void add_site(const mutation_site *s, const ndp_program *p, ndp_str *out) {
    if (s->graph != NDP_NONE) {
        const ndp_call *c = &p->opts.units[s->graph].lists[s->phase].calls[s->call];
        const ndp_graph *g = p->opts.units[s->graph].graph;
        int value = c->n_out > 0 && c->out[0].base != NDP_NONE ? c->out[0].value : NDP_NONE;
        ndp_str_addf(out, "%s %s .%d %s %s", g->name, ndp_phase_name(s->phase), s->call, c->op->name,
                     value != NDP_NONE ? g->values[value].name : "");
    } else if (s->code == NDP_DO_RUN)
        ndp_str_addf(out, "run %s %s m%d", ndp_phase_name(s->phase), s->what, s->micro_batch);
    else
        ndp_str_addf(out, "%s %s (no. %d)", s->op->name, s->what, s->nth);
}

const char *mutation_text(const mutation *m, const ndp_program *p, char *out, size_t size) {
    ndp_str text = {0};
    if (m->pp != NDP_NONE && p->opts.step.mesh.layout.size[NDP_PP] > 1)
        ndp_str_addf(&text, "pp %d: ", m->pp);
    ndp_str_addf(&text, "%s: ", mutation_name(m->kind));
    add_site(&m->site, p, &text);
    switch (m->kind) {
    case MUTATION_GROUP:
        ndp_str_addf(&text, ", %s", ndp_group_name((ndp_group_kind)m->which));
        break;
    case MUTATION_OP:
        ndp_str_addf(&text, ", %s", ndp_all_ops[m->which]->name);
        break;
    case MUTATION_NUMBER:
        ndp_str_addf(&text, ", %s, variant %d", attribute_name(m->which), m->to);
        break;
    case MUTATION_OPERAND:
        ndp_str_addf(&text, ", in %d is operand %d of ", m->which, m->to);
        add_site(&m->other, p, &text);
        break;
    case MUTATION_EARLY:
    case MUTATION_LATE:
        ndp_str_add(&text, m->kind == MUTATION_EARLY ? ", before " : ", after ");
        add_site(&m->other, p, &text);
        break;
    case MUTATION_BLOCK:
        ndp_str_addf(&text, ", %s of ", ndp_base_name(m->which));
        add_site(&m->other, p, &text);
        break;
    case MUTATION_MESSAGE:
    case MUTATION_STAGED:
        ndp_str_add(&text, ", ");
        add_site(&m->other, p, &text);
        break;
    default:
        ndp_str_addf(&text, ", %d", m->which);
    }
    snprintf(out, size, "%s", text.data);
    ndp_str_release(&text);
    return out;
}
