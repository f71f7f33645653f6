/* The parts of the picture of a layout: what all of it is drawn from, and the card of a rank. layout_picture.c lays the
 * cards out. */
#ifndef NDP_PLAN_PICTURE_PARTS_H
#define NDP_PLAN_PICTURE_PARTS_H

#include "base/svg.h"
#include "plan/holding.h"

/* Sizes in pixels. */
enum { MARGIN = 16, GAP = 10, PAD = 10, HEAD = 24, CARD = 198, LINE = 16, LEAST_WIDTH = 640 };

typedef struct ndp_picture {
    const ndp_dry_run *d;
    const ndp_job *job;
    const ndp_model *whole;
    ndp_axis axes[NDP_AXES]; /* drawn: those with several coordinates, outermost first */
    int n_axes;
    int shown[NDP_AXES];   /* by axis: the coordinates drawn, from 0 on */
    int columns[NDP_AXES]; /* by place in `axes`: how many lie side by side */
    ndp_holding *holdings; /* of the ranks drawn, in their order */
    int n_holdings;
    int card_height;
    ndp_str body;
} ndp_picture;

/* The axis whose colour something has that both axes cut: the one that cuts it, the inner one if both do. */
ndp_axis ndp_picture_axis_of_both(const ndp_picture *p, ndp_axis outer, ndp_axis inner);
static inline int ndp_picture_size(const ndp_picture *p, ndp_axis axis) { return p->job->layout.size[axis]; }

/* "all 4", "0-63, 192-255", "0, 2, 4, ..", "none" */
void ndp_picture_add_numbers(const ndp_numbers *s, ndp_str *out);
/* "embed, 0-1": the units between the first and the last are the layers. */
void ndp_picture_add_layers(const ndp_picture *p, const ndp_numbers *s, ndp_str *out);
/* 103488 as "103.5 K". */
const char *ndp_picture_number(int64_t n, char out[16]);

/* A card is CARD wide; p->card_height has to be its height when one is added. */
int ndp_picture_card_height(const ndp_picture *p);
void ndp_picture_add_card(ndp_picture *p, double x, double y, const ndp_holding *h);

#endif
