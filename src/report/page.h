/* The page of a report: one HTML file without scripts, whose style and pictures are in it. Every text from outside goes
 * through ndp_page_put. */
#ifndef NDP_REPORT_PAGE_H
#define NDP_REPORT_PAGE_H

#include "report/run.h"

typedef struct ndp_page {
    ndp_str out;
    ndp_run_view *runs; /* [n] */
    char **names;       /* [n], distinct */
    int n;
} ndp_page;

/* Appends <TAG>text</...>, formatted as by printf and escaped. `tag` may have attributes: "td class=\"number\"". */
void ndp_page_put(ndp_str *out, const char *tag, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The date and the time of day of seconds since 1970, in local time, into `out`; returns `out`. */
char *ndp_page_date(double time, char out[32]);

/* The style of the page, and the hash of its bytes by which the page's policy allows it, as base64. */
extern const char ndp_page_style[], ndp_page_style_sha256[];

/* Appends the whole page of p->runs to p->out. */
NDP_API ndp_status ndp_page_write(ndp_page *p);
/* The last folder of a path, which may be "."; owned by the caller, NULL: out of memory. */
char *ndp_page_name(const char *folder);
/* Appends the plots over steps, tokens and seconds, with the buttons that choose between them. Makes columns wider
 * where there are many curves. */
NDP_API ndp_status ndp_page_plots(ndp_page *p);
/* Appends the sections of run i alone: time, layout, memory, evaluations, checkpoints, samples, job. */
NDP_API ndp_status ndp_page_run(ndp_page *p, int i);

#endif
