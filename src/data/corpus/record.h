/* Records of JSON files as documents: a text, a conversation, or an instruction and its response.
 *
 *   {"text": "..."}
 *       trained on as a whole
 *   {"messages": [{"role": "user", "content": "..."}, ...]}
 *       rendered by a chat template (chat.h); a content may be a list of {"type": "text", "text": ...}, and a message
 *       may have ShareGPT's members {"from": "human", "value": ...}; one with "weight": 0 or "train": false is not
 *       trained on
 *   {"instruction": "...", "input": "...", "response": "..."}
 *       rendered as a question and an answer; `input` may be missing or empty, otherwise it follows the instruction
 *       after an empty line; without an `input`, that is `context`; the response is `response` or `output`, unless its
 *       field is configured; earlier turns may be in `history`, [[question, answer], ...]
 *
 *   A text `system` of a record is the first message, unless its messages begin with one of the system's.
 *
 *   {"conversations": [{"from": "human", "value": ...}, ...]}
 *       ShareGPT's, as `messages`
 *   {"prompt": ..., "completion": ...}
 *       TRL's: two texts, joined as they are, or two lists of messages, joined to a conversation; of it the completion
 * is trained on, with the token that ends the text
 *
 *   {"input_ids": [...], "labels": [...], "attention_mask": [...]}
 *       a text as ids, as transformers' data sets have them; the tokens whose label is -100 are not trained on
 *
 * With a format of Axolotl's configured:
 *
 *   alpaca
 *       an instruction as a text: "Below is an instruction ...", "### Instruction:", "### Input:" if there is an
 *       input, "### Response:"; of it the response is trained on, with the token that ends the text; other words in
 *       other styles, and in alpaca_system and alpaca_system_chat the record's `system` as the task, if it has one
 *   jeopardy
 *       the same of {"question": ..., "category": ..., "answer": ...}: the answer follows "what is "
 *   sharegpt
 *       a conversation in the field `conversations`
 *   completion
 *       a text
 *   input_output
 *       {"segments": [{"label": true, "text": "..."}, ...]}: the texts joined, without further tokens; those with the
 *       label true are trained on
 *
 * Preference data, in the forms of TRL and Axolotl (record_pairs.c):
 *
 *   preference
 *       {"prompt": ..., "chosen": ..., "rejected": ...}: texts, or messages; a pair of documents, of which the two
 *       answers are trained on; for a loss of single answers also {"prompt": ..., "completion": ..., "label": true} */
#ifndef NDP_DATA_CORPUS_RECORD_H
#define NDP_DATA_CORPUS_RECORD_H

#include "base/json.h"
#include "data/corpus/tally.h"
#include "text/chat/chat.h"

/* Why a record is refused, where the record itself is the reason. */
typedef enum ndp_bad_record {
    NDP_BAD_NONE, /* it is not, or for another reason: what renders it is missing, memory, what the visitor found */
    NDP_BAD_JSON,
    NDP_BAD_SIZE,
    NDP_BAD_FIELDS,
    NDP_BAD_RENDERING,
    NDP_BAD_UNSURE,
    NDP_BAD_EMPTY,
    NDP_BAD_EQUAL,
    NDP_BAD_CUT,
    NDP_BAD_RECORDS
} ndp_bad_record;
/* "not JSON": the reason as data.bad_records: skip counts it. */
const char *ndp_bad_record_text(ndp_bad_record b);

typedef struct ndp_document {
    const char *text; /* valid UTF-8; borrowed for the call */
    size_t n;
    const char *path;
    int64_t line;           /* where it begins, from 1; in a .json list, the record's number */
    size_t end;             /* bytes of the file up to and including this document */
    bool rendered;          /* by a chat template, which writes the special tokens itself */
    bool partly;            /* only the bytes in `spans` are trained on */
    const ndp_range *spans; /* sorted */
    const int32_t *ids;     /* [n_ids], and `spans` are places in them: it is not a text, which is ""; NULL: it is */
    int64_t n_ids;
    int64_t n_spans;
    const size_t *questions; /* bytes at which a later question of a conversation begins; sorted */
    int64_t n_questions;
    ndp_bad_record bad; /* after a failed ndp_record_visit */
    /* A pair: this document is the chosen one. NULL: none. Of a single answer one of the two has no text (NULL). */
    const struct ndp_document *rejected;
    ndp_bad_record *fault; /* of a pair: where a visitor that fails says that the record is the reason */
} ndp_document;

/* Any status but NDP_OK stops the reading and is returned. */
typedef ndp_status ndp_document_visitor(void *user, const ndp_document *document);

/* All formats of records, listed here only: X(NAME, word, CONVERSATIONS, reader). `auto` chooses text, messages,
 * instruction, sharegpt, prompt_completion or token_ids by the record's fields; the others are read only where
 * configured. CONVERSATIONS: a chat template renders its records, or some of them. ndp_record_visit_READER
 * (record_parts.h) reads one. */
#define NDP_RECORDS(X)                                                                                                 \
    X(AUTO, auto, true, unknown)                                                                                       \
    X(TEXT, text, false, text)                                                                                         \
    X(MESSAGES, messages, true, messages)                                                                              \
    X(INSTRUCTION, instruction, true, instruction)                                                                     \
    X(ALPACA, alpaca, false, alpaca)                                                                                   \
    X(ALPACA_CHAT, alpaca_chat, false, alpaca)                                                                         \
    X(ALPACA_CHATML, alpaca_chatml, false, alpaca)                                                                     \
    X(ALPACA_PHI, alpaca_phi, false, alpaca)                                                                           \
    X(ALPACA_SYSTEM, alpaca_system, false, alpaca)                                                                     \
    X(ALPACA_SYSTEM_CHAT, alpaca_system_chat, false, alpaca)                                                           \
    X(SHAREGPT, sharegpt, true, messages)                                                                              \
    X(COMPLETION, completion, false, text)                                                                             \
    X(PROMPT_COMPLETION, prompt_completion, true, completion)                                                          \
    X(INPUT_OUTPUT, input_output, false, segments)                                                                     \
    X(PREFERENCE, preference, true, preference)                                                                        \
    X(JEOPARDY, jeopardy, false, jeopardy)                                                                             \
    X(TOKEN_IDS, token_ids, false, ids)

#define NDP_RECORD_ENUMERATOR(NAME, ...) NDP_RECORD_##NAME,
typedef enum ndp_record_kind { NDP_RECORDS(NDP_RECORD_ENUMERATOR) NDP_RECORD_KINDS } ndp_record_kind;
bool ndp_record_has_conversations(ndp_record_kind kind);
static inline bool ndp_record_is_alpaca(ndp_record_kind kind) {
    return kind >= NDP_RECORD_ALPACA && kind <= NDP_RECORD_ALPACA_SYSTEM_CHAT;
}
/* The task is the record's own `system`. */
static inline bool ndp_record_has_system(ndp_record_kind kind) {
    return kind == NDP_RECORD_ALPACA_SYSTEM || kind == NDP_RECORD_ALPACA_SYSTEM_CHAT;
}

typedef struct ndp_record_format {
    ndp_record_kind kind;
    /* Names of fields; NULL: "text", "messages", "instruction", "input", "response" or "output". */
    const char *text, *messages, *prompt, *input, *response;
    const char *separator;         /* between prompt and input of an instruction; NULL: an empty line */
    const char *role, *content;    /* of messages; NULL: "role" or "from", "content" or "value" */
    const char *train;             /* of messages: whether one is trained on; NULL: "train" and "weight" */
    const char *chosen, *rejected; /* of pairs; NULL: "chosen" or "chosen_response", "rejected" or ... */
    const ndp_strings *roles;      /* "name in the records: role"; NULL: none */
    const ndp_chat *chat; /* NULL: a command that reads only texts (option --text-field); conversations are refused */
    bool drop_system;     /* of conversations, leave out a first message of the system */
    bool train_all;       /* of conversations, train on everything, not just the assistant's text */
    bool train_turn;      /* train on line breaks behind the token that ends an answer, too */
    bool open;            /* conversations end where the assistant is to answer (a generation prompt) */
    bool single;          /* of preference data: single answers are compared (record_pairs.c) */
    bool skip;            /* bad records are skipped and counted in `tally` */
    ndp_tally *tally;     /* receives that, and known fields that are not read; NULL: neither */
} ndp_record_format;

/* Visits the record as a document; `d` has its location, `where` names it in messages. NDP_EFORMAT: a field is missing
 * or has another type, a role is unknown, or a conversation contains no answer to train on. On failure d->bad says
 * whether the record is at fault. */
NDP_API ndp_status ndp_record_visit(struct json_object *record, const char *where, const ndp_record_format *format,
                                    ndp_document *d, ndp_document_visitor *visit, void *user);

#endif
