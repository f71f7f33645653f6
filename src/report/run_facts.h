/* Members of run.json, all optional: other versions of the program, or a person, may have written it. */
#ifndef NDP_REPORT_RUN_FACTS_H
#define NDP_REPORT_RUN_FACTS_H

#include "base/json.h"

/* NULL: `o` has no such member of the type. */
struct json_object *ndp_fact_member(struct json_object *o, const char *key, json_type type);
bool ndp_fact_is_number(struct json_object *o);
/* NaN: no such number. */
double ndp_fact_number(struct json_object *o, const char *key);
/* "": no such text. */
const char *ndp_fact_word(struct json_object *o, const char *key);
/* The text of a string; any other value as JSON. */
const char *ndp_fact_text(struct json_object *value);
/* The newest part of a run: from one start to its end; NULL: there is none. */
struct json_object *ndp_fact_part(struct json_object *record);

#endif
