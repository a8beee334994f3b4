// Forked processes: a child may use sets and requests, cannot use its parent's acquisitions, and its own permits return
// when it is killed.
#include "check.h"

#include <signal.h>

static void a_child_takes_part_on_its_own(void) {
    limitset_set *set = open_connections(2);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held;
    OK(limitset_try_acquire(request, &held, NULL));
    pid_t child = fork();
    if (child == 0) {
        limitset_held mine, none;
        OK(limitset_try_acquire(request, &mine, NULL));
        IS(LIMITSET_DENIED, limitset_try_acquire(request, &none, NULL));
        OK(limitset_release(mine));
        _exit(0);
    }
    must_end_well(child);
    CHECK(stats_of(set, "connections").in_use == 1 && stats_of(set, "connections").granted == 2);
    OK(limitset_release(held));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void a_child_cannot_touch_what_its_parent_holds(void) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_limit limits[2];
    limitset_queue queue = limitset_queue_of(2, 8);
    limits[0] = limitset_resource("connections", 3);
    limits[1] = limitset_rate("tokens", 100, 3600 * SECOND);
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &limits[0]));
    OK(limitset_builder_limit(builder, &limits[1]));
    OK(limitset_builder_queue(builder, &queue));
    OK(limitset_open_anonymous(builder, &set));
    OK(limitset_builder_free(builder));
    limitset_request *request = request_of(set, "tokens", 10);
    limitset_held held[5];
    limitset_item item;
    limitset_amount more = {"connections", 1};
    OK(limitset_push(set, 1, NULL, 0, 0, NULL));
    OK(limitset_take(set, 0, NULL, &item));
    for (int index = 0; index < 3; index++) {
        OK(limitset_try_acquire(request, &held[index], NULL));
    }
    pid_t child = fork();
    if (child == 0) {
        IS(LIMITSET_FORKED, limitset_update(held[0], "tokens", 5, NULL));
        IS(LIMITSET_FORKED, limitset_acquire_more(held[0], &more, 1, NULL));
        IS(LIMITSET_FORKED, limitset_release(held[0]));
        IS(LIMITSET_SPENT, limitset_release(held[0]));
        IS(LIMITSET_FORKED, limitset_cancel(held[1]));
        IS(LIMITSET_FORKED, limitset_rate_limited(held[2], -1, NULL));
        IS(LIMITSET_FORKED, limitset_done(item, NULL, 0));
        CHECK(stats_of(set, "connections").in_use == 3);
        _exit(0);
    }
    must_end_well(child);
    CHECK(stats_of(set, "connections").in_use == 3 && stats_of(set, "tokens").consumed == 30);
    for (int index = 0; index < 3; index++) {
        OK(limitset_settle(held[index], "tokens", 1, NULL));
        OK(limitset_release(held[index]));
    }
    CHECK(stats_of(set, "connections").in_use == 0 && stats_of(set, "tokens").consumed == 3);
    OK(limitset_done(item, NULL, 0));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void what_a_killed_child_held_comes_back(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    for (int round = 0; round < 3; round++) {
        int told[2];
        CHECK(pipe(told) == 0);
        pid_t child = fork();
        if (child == 0) {
            limitset_held held;
            OK(limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, NULL));
            CHECK(write(told[1], "h", 1) == 1);
            pause();
            _exit(0);
        }
        char byte;
        int status;
        CHECK(read(told[0], &byte, 1) == 1);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        close(told[0]);
        close(told[1]);
        limitset_held held;
        OK(limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, NULL));
        OK(limitset_release(held));
    }
    limitset_stats stats;
    limitset_stats_init(&stats);
    OK(limitset_read_stats(set, &stats));
    CHECK(stats.reaped_permits == 3 && stats.deposed == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void a_private_set_is_not_shared_with_a_child(void) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_limit limit = limitset_resource("connections", 1);
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &limit));
    OK(limitset_open_private(builder, &set));
    limitset_request *request = request_of(set, NULL, 0);
    pid_t child = fork();
    if (child == 0) {
        limitset_held held;
        IS(LIMITSET_NOT_SHARED, limitset_try_acquire(request, &held, NULL));
        IS(LIMITSET_NOT_SHARED, limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, NULL));
        // A builder of the parent still works.
        OK(limitset_open_private(builder, &set));
        OK(limitset_builder_free(builder));
        OK(limitset_set_free(set));
        _exit(0);
    }
    must_end_well(child);
    OK(limitset_builder_free(builder));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static const limitset_request *common;
static int is_over;

static void *keep_busy(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        limitset_held held[3];
        for (int index = 0; index < 3; index++) {
            OK(limitset_acquire(common, LIMITSET_FOREVER, NULL, &held[index], NULL));
        }
        for (int index = 0; index < 3; index++) {
            OK(limitset_release(held[index]));
        }
    }
    return NULL;
}

static void a_fork_in_the_middle_of_other_threads_calls_leaves_tables_that_work(void) {
    limitset_set *set = open_connections(100);
    limitset_request *request = request_of(set, NULL, 0);
    pthread_t threads[2];
    common = request;
    for (int index = 0; index < 2; index++) {
        CHECK(pthread_create(&threads[index], NULL, keep_busy, NULL) == 0);
    }
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(120);
            for (int again = 0; again < 3; again++) {
                limitset_held held[8];
                for (int index = 0; index < 8; index++) {
                    if (limitset_acquire(request, LIMITSET_FOREVER, NULL, &held[index], NULL) != LIMITSET_OK) {
                        _exit(3);
                    }
                }
                for (int index = 0; index < 8; index++) {
                    if (limitset_release(held[index]) != LIMITSET_OK) {
                        _exit(4);
                    }
                }
            }
            _exit(0);
        }
        must_end_well(child);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (int index = 0; index < 2; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(stats_of(set, "connections").in_use == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

int main(int count, char **arguments) {
    const test tests[] = {
        {"a_child_takes_part_on_its_own", a_child_takes_part_on_its_own},
        {"a_child_cannot_touch_what_its_parent_holds", a_child_cannot_touch_what_its_parent_holds},
        {"what_a_killed_child_held_comes_back", what_a_killed_child_held_comes_back},
        {"a_private_set_is_not_shared_with_a_child", a_private_set_is_not_shared_with_a_child},
        {"a_fork_in_the_middle_of_other_threads_calls_leaves_tables_that_work", a_fork_in_the_middle_of_other_threads_calls_leaves_tables_that_work},
        {NULL, NULL},
    };
    return run_tests(count, arguments, tests);
}
