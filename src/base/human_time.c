/* Lengths of time for people. */
#include "base/human_time.h"

#include <math.h>
#include <stdio.h>

const char *ndp_human_time(double seconds, char out[16]) {
    int s = seconds >= 0 && seconds <= 1e9 ? (int)lround(seconds) : 0;
    if (s >= 48 * 3600)
        snprintf(out, 16, "%dd %dh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, 16, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 16, "%d:%02d", s / 60, s % 60);
    return out;
}
