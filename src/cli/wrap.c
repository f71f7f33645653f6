/* Columns are counted as characters of UTF-8, each one wide, as all that the program prints is. */
#include "cli/wrap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { INDENT = 4, NARROWEST = 20 };

int cli_line_width(int fd) {
    struct winsize size;
    const char *given = getenv("COLUMNS");
    if (!isatty(fd))
        return 0;
    int wide = ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    wide = wide ? wide : given ? atoi(given) : 0;
    return wide > NARROWEST ? wide - 1 : wide ? NARROWEST : 79;
}

static bool begins_character(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static int columns_of(const char *text, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += begins_character(text[i]);
    return columns;
}

/* The bytes of the last `columns` characters. */
static size_t tail_of(const char *text, size_t n, int columns) {
    size_t at = n;
    while (at > 0 && columns > 0)
        columns -= begins_character(text[--at]);
    return n - at;
}

static void add_word(ndp_str *out, const char *word, size_t n, int room) {
    if (columns_of(word, n) > room && room > 3 && memchr(word, '/', n)) {
        size_t tail = tail_of(word, n, room - 3);
        ndp_str_add(out, "...");
        ndp_str_add_bytes(out, word + n - tail, tail);
    } else {
        ndp_str_add_bytes(out, word, n);
    }
}

static void wrap_line(ndp_str *out, const char *line, size_t n, int width) {
    int at = 0;
    for (size_t i = 0; i < n;) {
        size_t blanks = strspn(line + i, " "), word = blanks;
        blanks = blanks < n - i ? blanks : n - i;
        while (i + word < n && line[i + word] != ' ')
            word++;
        int needed = columns_of(line + i, word);
        if (at > 0 && at + needed > width) {
            ndp_str_addf(out, "\n%*s", INDENT, "");
            i += blanks, word -= blanks;
            at = INDENT;
            needed = columns_of(line + i, word);
        }
        if (at == 0) { /* a line's own indentation stays */
            ndp_str_add_bytes(out, line + i, blanks);
            at = (int)blanks, needed -= at;
            i += blanks, word -= blanks;
        }
        add_word(out, line + i, word, width - at);
        at += needed < width - at ? needed : width - at;
        i += word;
    }
}

void cli_wrap(ndp_str *out, const char *text, int width) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (width == 0 || columns_of(text, n) <= width)
            ndp_str_add_bytes(out, text, n);
        else
            wrap_line(out, text, n, width);
        text += n;
        if (*text)
            ndp_str_add_bytes(out, text++, 1);
    }
}
