// Common parts of the tests: checks that print where they failed, and a table of tests to run by name.
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limitset.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

// Checks a condition.
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);      \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

// Checks the status of a call.
#define IS(status, call)                                                                       \
    do {                                                                                       \
        limitset_status answer_ = (call);                                                      \
        if (answer_ != (status)) {                                                             \
            fprintf(stderr, "%s:%d: %s answered %d, not %s: %s\n", __FILE__, __LINE__, #call,  \
                    (int)answer_, #status, limitset_last_error());                             \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define OK(call) IS(LIMITSET_OK, call)

typedef struct test {
    const char *name;
    void (*run)(void);
} test;

// `PROGRAM` lists its tests, `PROGRAM NAME` runs one.
static inline int run_tests(int count, char **arguments, const test *tests) {
    for (; tests->name != NULL; tests++) {
        if (count < 2) {
            puts(tests->name);
        } else if (strcmp(arguments[1], tests->name) == 0) {
            alarm(300); // Tells a hang from slowness.
            tests->run();
            return 0;
        }
    }
    return count < 2 ? 0 : 2;
}

// Opens a set with these limits and this clock; anonymous, so that children share it.
static inline limitset_set *open_set(const limitset_limit *limits, int count, uint32_t clock) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_settings settings = limitset_settings_usual();
    settings.clock = clock;
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_settings(builder, &settings));
    for (int index = 0; index < count; index++) {
        OK(limitset_builder_limit(builder, &limits[index]));
    }
    OK(limitset_open_anonymous(builder, &set));
    OK(limitset_builder_free(builder));
    return set;
}

static inline limitset_set *open_connections(uint64_t count) {
    limitset_limit limit = limitset_resource("connections", count);
    return open_set(&limit, 1, LIMITSET_MONOTONIC);
}

static inline limitset_request *request_of(const limitset_set *set, const char *key, uint64_t amount) {
    limitset_request *request;
    limitset_amount one;
    one.key = key;
    one.amount = amount;
    OK(limitset_request_new(set, &one, key == NULL ? 0 : 1, NULL, &request));
    return request;
}

static inline limitset_limit_stats stats_of(const limitset_set *set, const char *key) {
    limitset_stats stats;
    limitset_limit_stats limits[8];
    limitset_stats_init(&stats);
    stats.limits = limits;
    stats.limits_room = 8;
    OK(limitset_read_stats(set, &stats));
    for (uint32_t index = 0; index < stats.limits_count; index++) {
        if (strcmp(limits[index].key, key) == 0) {
            return limits[index];
        }
    }
    CHECK(!"there is such a limit");
    return limits[0];
}

static inline uint64_t waiters_of(const limitset_set *set) {
    limitset_stats stats;
    limitset_stats_init(&stats);
    OK(limitset_read_stats(set, &stats));
    return stats.waiters;
}

// Waits until the set has `count` waiters.
static inline void until_waiters(const limitset_set *set, uint64_t count) {
    while (waiters_of(set) != count) {
        sched_yield();
    }
}

static inline void must_end_well(pid_t child) {
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif // CHECK_H
