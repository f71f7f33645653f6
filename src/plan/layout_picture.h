/* A picture of a layout: a card for each rank with what it holds, in nested frames, one for each coordinate of each
 * axis. */
#ifndef NDP_PLAN_LAYOUT_PICTURE_H
#define NDP_PLAN_LAYOUT_PICTURE_H

#include "plan/plan_parts.h"

/* NDP_EINVAL: the path does not end in .svg. NDP_EIO: it cannot be written. */
NDP_API ndp_status ndp_layout_picture_check_path(const char *path);

/* Draws up to 64 ranks: of more, the first along each axis, and says which. NDP_EIO, NDP_ENOMEM, and the errors of
 * ndp_plan_engine. */
NDP_API ndp_status ndp_layout_picture_write(const ndp_dry_run *d, const ndp_model *whole, const char *path);

#endif
