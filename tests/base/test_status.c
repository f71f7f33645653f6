#include "base/status.h"
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static ndp_status deep(int n) { return NDP_FAIL(NDP_EIO, "the cause is %d", n); }
static ndp_status middle(int n) {
    NDP_TRY(deep(n));
    return NDP_OK;
}
static ndp_status with_label(int n, bool *cleaned) {
    ndp_status st = NDP_OK;
    NDP_TRY_GOTO(middle(n), clean);
clean:
    *cleaned = true;
    return st;
}
static ndp_status checked(int n) {
    NDP_CHECK(n > 0, "%d is not positive", n);
    return NDP_OK;
}

static void message_once_and_a_trail(void **state) {
    (void)state;
    bool cleaned = false;
    CHECK_FAILS(with_label(7, &cleaned), NDP_EIO, "the cause is 7");
    assert_true(cleaned);
    int frames = 0;
    for (const char *p = ndp_error_trail(); (p = strstr(p, "test_status.c:")); p++)
        frames++;
    assert_int_equal(frames, 3);
    CHECK_FAILS(checked(0), NDP_EINVAL, "0 is not positive");
    CHECK_OK(checked(1));
}

static void *other_thread(void *arg) {
    (void)arg;
    return ndp_error_message()[0] == '\0' && deep(1) == NDP_EIO ? NULL : "saw the error of another thread";
}

static void errors_belong_to_their_thread(void **state) {
    (void)state;
    deep(9);
    pthread_t thread;
    void *complaint;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, &complaint);
    assert_null(complaint);
    assert_string_equal(ndp_error_message(), "the cause is 9");
    ndp_error_set(NDP_ECOMM, "rank 3 said so");
    assert_string_equal(ndp_error_message(), "rank 3 said so");
    ndp_error_set(NDP_OK, "");
    assert_string_equal(ndp_error_message(), "");
}

static void endless_messages_are_cut(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    NDP_FAIL(NDP_EIO, "%s", text);
    assert_in_range(strlen(ndp_error_message()), 1000, 4000);
    for (int i = 0; i < 1000; i++)
        ndp_trail_add(__FILE__, i);
    assert_in_range(strlen(ndp_error_trail()), 100, 1023);
}

/* In a process whose keys of pthreads are used up, a message has no memory: the status is what it was. */
static void an_error_without_memory_says_so(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        pthread_key_t key;
        while (pthread_key_create(&key, NULL) == 0)
            ;
        bool good = middle(3) == NDP_EIO && strstr(ndp_error_message(), "not enough memory") && !*ndp_error_trail();
        ndp_error_set(NDP_OK, "");
        _exit(good && !*ndp_error_message() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_lack_of_memory_is_told_with_what_comes_of_it(void **state) {
    (void)state;
    ndp_memory_lacked(64);
    CHECK_FAILS(checked(0), NDP_ENOMEM, "0 is not positive; before that there was not enough memory for 64 bytes");
    CHECK_FAILS(checked(0), NDP_EINVAL, "0 is not positive");
    assert_null(strstr(ndp_error_message(), "memory"));
    ndp_memory_lacked(64);
    CHECK_FAILS(middle(1), NDP_EIO, "not enough memory for 64 bytes");
    ndp_memory_lacked(64);
    CHECK_FAILS(NDP_FAIL(NDP_ENOMEM, "no room"), NDP_ENOMEM, "no room");
    assert_null(strstr(ndp_error_message(), "before"));
    CHECK_FAILS(checked(0), NDP_ENOMEM, "0 is not positive; before that");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_without_memory_says_so), /* before any other error */
        cmocka_unit_test(message_once_and_a_trail), cmocka_unit_test(errors_belong_to_their_thread),
        cmocka_unit_test(a_lack_of_memory_is_told_with_what_comes_of_it), cmocka_unit_test(endless_messages_are_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
