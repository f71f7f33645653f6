#include "ops/preference.h"

#define ROW(NAME, name, variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SFT, formula)                            \
    [NDP_PREFERENCE_##NAME] = {#name, #variant, REFERENCE, AVERAGE, SMOOTHED, MARGIN, WHOLE, SFT},
const ndp_preference_row ndp_preference_table[NDP_PREFERENCE_KINDS] = {NDP_PREFERENCES(ROW)};
