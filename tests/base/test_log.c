#include "base/log.h"
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

/* What a log of this level and rank prints on stderr. */
static char *printed(ndp_log_level level, int rank) {
    ndp_log log = {level, rank};
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    ndp_info(&log, "step %d", 3);
    ndp_warn(&log, "slow %s", "disk");
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    static char text[512];
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void levels_and_ranks(void **state) {
    (void)state;
    assert_string_equal(printed(NDP_LOG_QUIET, 0), "");
    assert_string_equal(printed(NDP_LOG_WARN, 0), "warning (rank 0): slow disk\n");
    assert_string_equal(printed(NDP_LOG_INFO, 0), "step 3\nwarning (rank 0): slow disk\n");
    assert_string_equal(printed(NDP_LOG_INFO, 5), "warning (rank 5): slow disk\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_and_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
