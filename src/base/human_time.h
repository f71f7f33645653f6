/* A length of time for people. */
#ifndef NDP_BASE_HUMAN_TIME_H
#define NDP_BASE_HUMAN_TIME_H

/* "0:42", "1:02:03", "3d 4h" into `out`, which it returns; 0:00 for what is not from 0 to 30 years. */
const char *ndp_human_time(double seconds, char out[16]);

#endif
