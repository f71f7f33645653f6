/* Known fields of records beside their texts (record_known.c). All of these change the record in place: a text of JSON
 * becomes what it says, an empty value goes. */
#ifndef NDP_DATA_CORPUS_RECORD_KNOWN_H
#define NDP_DATA_CORPUS_RECORD_KNOWN_H

#include "data/corpus/record_parts.h"

/* Of a record that is rendered as a conversation; `messages`: it has a list of them. NDP_EFORMAT: a field has no value
 * of its type, or must not be there. */
NDP_API ndp_status ndp_record_check_known(const ndp_record_input *r, bool messages);
/* Of any other: counts them as unread. */
ndp_status ndp_record_note_known(const ndp_record_input *r);
/* Of a message of it; `what` names it. */
ndp_status ndp_message_check_known(const ndp_record_input *r, struct json_object *message, const char *what);
/* NDP_EFORMAT: its text holds a place for a picture. */
ndp_status ndp_message_check_text(const ndp_record_input *r, const ndp_message *m, const char *what);

/* The i-th name, from 0, of a mark that says whether a message is trained on; false: there are no more. `weight`: 1 on
 * a message of another role says nothing. */
bool ndp_known_mark(int i, const char **name, bool *weight);
/* The list with a mark for each message, borrowed; NULL: the record has no such list. NDP_EFORMAT: it is no list. */
ndp_status ndp_record_masks(const ndp_record_input *r, struct json_object **out);

#endif
