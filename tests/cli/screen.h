/* A terminal: what is on it after what a program wrote. Lines that do not fit are wrapped, and wrapped anew when it is
 * resized, the cursor with them, as current terminals do. It has as many rows as it needs. */
#ifndef TESTS_CLI_SCREEN_H
#define TESTS_CLI_SCREEN_H

#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { SCREEN_ROWS = 4000, SCREEN_COLUMNS = 256 };

typedef struct screen_row {
    char text[SCREEN_COLUMNS + 1];
    bool wrapped; /* it goes on in the next row */
} screen_row;

typedef struct screen {
    int columns, rows, row, column, saved_row, saved_column;
    bool no_wrap;
    char escape[16]; /* a sequence that has begun; "": none */
    screen_row *at;
} screen;

static inline screen screen_open(int columns) {
    screen s = {.columns = columns, .rows = 1, .at = calloc(SCREEN_ROWS, sizeof *s.at)};
    assert_non_null(s.at);
    return s;
}

static inline void screen_erase_row(screen *s, int row, int column) {
    memset(s->at[row].text + column, 0, (size_t)(SCREEN_COLUMNS + 1 - column));
    s->at[row].wrapped = false;
}

static inline void screen_next_row(screen *s) {
    assert_true(s->row + 1 < SCREEN_ROWS);
    if (++s->row == s->rows)
        screen_erase_row(s, s->rows++, 0);
}

static inline void screen_put(screen *s, char c) {
    if (s->column == s->columns && s->no_wrap)
        s->column--;
    else if (s->column == s->columns) {
        s->at[s->row].wrapped = true;
        screen_next_row(s);
        s->column = 0;
    }
    char *text = s->at[s->row].text;
    for (int i = (int)strlen(text); i < s->column; i++)
        text[i] = ' ';
    text[s->column++] = c;
}

static inline void screen_escape(screen *s, const char *e) {
    if (strcmp(e, "[K") == 0)
        screen_erase_row(s, s->row, s->column);
    else if (strcmp(e, "[J") == 0) {
        screen_erase_row(s, s->row, s->column);
        s->rows = s->row + 1;
    } else if (strcmp(e, "[B") == 0)
        s->row += s->row + 1 < s->rows;
    else if (strcmp(e, "[?7l") == 0 || strcmp(e, "[?7h") == 0)
        s->no_wrap = e[3] == 'l';
    else if (strcmp(e, "7") == 0) {
        s->saved_row = s->row;
        s->saved_column = s->column;
    } else if (strcmp(e, "8") == 0) {
        s->row = s->saved_row;
        s->column = s->saved_column;
    } else if (e[strlen(e) - 1] != 'm') /* a colour changes no character */
        fail_msg("a terminal was sent ESC %s", e);
}

static inline void screen_write(screen *s, const char *text, size_t n) {
    for (; n > 0; n--, text++) {
        size_t k = strlen(s->escape);
        if (*text == '\033' || k > 0) {
            assert_true(k + 1 < sizeof s->escape);
            s->escape[k] = *text;
            s->escape[k + 1] = '\0';
            if (k > 0 && strchr("KJBlhm78", *text) && !(s->escape[1] == '[' && strchr("78", *text))) {
                screen_escape(s, s->escape + 1);
                s->escape[0] = '\0';
            }
        } else if (*text == '\n')
            screen_next_row(s);
        else if (*text == '\r')
            s->column = 0;
        else
            screen_put(s, *text);
    }
}

/* Rows that are one line are joined and cut again. */
static inline void screen_resize(screen *s, int columns) {
    screen to = screen_open(columns);
    to.no_wrap = s->no_wrap;
    memcpy(to.escape, s->escape, sizeof to.escape);
    int row = 0, column = 0;
    for (int r = 0; r < s->rows; r++) {
        const char *text = s->at[r].text;
        int length = (int)strlen(text), all = r == s->row && s->column > length ? s->column : length;
        for (int i = 0; i <= all; i++) {
            if (r == s->row && i == s->column) {
                bool over = to.column == columns; /* where the next character would be */
                row = to.row + over;
                column = over ? 0 : to.column;
            }
            if (i < all) {
                bool no_wrap = to.no_wrap;
                to.no_wrap = false;
                screen_put(&to, i < length ? text[i] : ' ');
                to.no_wrap = no_wrap;
            }
        }
        if (!s->at[r].wrapped && r + 1 < s->rows) {
            screen_next_row(&to);
            to.column = 0;
        }
    }
    to.row = row;
    to.column = column;
    while (to.row >= to.rows)
        screen_erase_row(&to, to.rows++, 0);
    free(s->at);
    *s = to;
}

/* Its lines, however many rows they take. Freed by the caller. */
static inline char *screen_text(const screen *s) {
    size_t size = (size_t)s->rows * (SCREEN_COLUMNS + 2) + 1;
    char *text = calloc(size, 1), *end = text;
    assert_non_null(text);
    for (int r = 0; r < s->rows; r++)
        end += snprintf(end, size - (size_t)(end - text), "%s%s", s->at[r].text, s->at[r].wrapped ? "" : "\n");
    return text;
}

#endif
