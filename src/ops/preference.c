/* The table of losses of preference data, made from its list. The formulas themselves are in the header, where kernels
 * call them. */
#include "ops/preference.h"

#include <string.h>

#define ROW(NAME, name, variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SINGLE, SFT, formula)                    \
    [NDP_PREFERENCE_##NAME] = {#name, #variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SINGLE, SFT},
const ndp_preference_row ndp_preference_table[NDP_PREFERENCE_KINDS] = {NDP_PREFERENCES(ROW)};

#define WORD(NAME, name) #name,
static const char *const losses[] = {NDP_LOSSES(WORD)}, *const variants[] = {NDP_LOSS_VARIANTS(WORD)};

int ndp_preference_documents(const ndp_preference *p, int rows) {
    return ndp_preference_table[p->kind].single ? 2 * rows : rows;
}

ndp_preference_kind ndp_preference_find(ndp_loss loss, ndp_loss_variant variant) {
    for (int k = 1; k < NDP_PREFERENCE_KINDS; k++)
        if (strcmp(ndp_preference_table[k].name, losses[loss]) == 0 &&
            strcmp(ndp_preference_table[k].variant, variants[variant]) == 0)
            return (ndp_preference_kind)k;
    return NDP_PREFERENCE_NONE;
}
