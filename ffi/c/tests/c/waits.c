// Waiting: order, timeouts, signals that do not end a wait, interrupts that do; and threads that share handles.
#include "check.h"

#include <errno.h>
#include <signal.h>

static void time_that_is_up_says_what_was_in_the_way(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held, late;
    limitset_denial denial;
    limitset_denial_init(&denial);
    OK(limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, &denial));
    IS(LIMITSET_TIMED_OUT, limitset_acquire(request, 0, NULL, &late, &denial));
    CHECK(denial.status == LIMITSET_TIMED_OUT && strcmp(denial.bottleneck, "connections") == 0);
    IS(LIMITSET_TIMED_OUT, limitset_acquire(request, 1000000, NULL, &late, &denial));
    CHECK(strstr(limitset_last_error(), "held by this process") != NULL);
    CHECK(waiters_of(set) == 0);
    OK(limitset_release(held));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

typedef struct waiter {
    pthread_t thread;
    const limitset_request *request;
    limitset_interrupt *interrupt;
    limitset_held held;
    limitset_status answer;
} waiter;

static void *wait_in_thread(void *argument) {
    waiter *me = (waiter *)argument;
    me->answer = limitset_acquire(me->request, LIMITSET_FOREVER, me->interrupt, &me->held, NULL);
    return NULL;
}

static void start(waiter *it, const limitset_request *request, limitset_interrupt *interrupt) {
    it->request = request;
    it->interrupt = interrupt;
    CHECK(pthread_create(&it->thread, NULL, wait_in_thread, it) == 0);
}

static limitset_status finish(waiter *it) {
    CHECK(pthread_join(it->thread, NULL) == 0);
    return it->answer;
}

static void waiters_are_served_in_order_with_or_without_an_interrupt(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_interrupt interrupt = {0};
    limitset_held held;
    waiter waiters[4];
    OK(limitset_try_acquire(request, &held, NULL));
    for (int index = 0; index < 4; index++) {
        start(&waiters[index], request, index % 2 ? &interrupt : NULL);
        until_waiters(set, (uint64_t)index + 1);
    }
    OK(limitset_release(held));
    for (int index = 0; index < 4; index++) {
        OK(finish(&waiters[index]));
        CHECK(waiters_of(set) == (uint64_t)(3 - index));
        OK(limitset_release(waiters[index].held));
    }
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static limitset_interrupt stop;
static volatile sig_atomic_t seen;

static void note(int signal) {
    (void)signal;
    seen = 1;
}

static void interrupt(int signal) {
    (void)signal;
    errno = 123;
    limitset_interrupt_raise(&stop);
    seen = errno == 123 ? 2 : 3;
}

static void handle(int signal, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler; // Without SA_RESTART: system calls end with EINTR.
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void a_signal_ends_no_wait_and_an_interrupt_from_its_handler_does(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held;
    waiter plain, stopped;
    handle(SIGUSR1, note);
    handle(SIGUSR2, interrupt);
    OK(limitset_try_acquire(request, &held, NULL));
    start(&plain, request, NULL);
    until_waiters(set, 1);
    start(&stopped, request, &stop);
    until_waiters(set, 2);
    for (int round = 0; round < 50; round++) {
        seen = 0;
        CHECK(pthread_kill(round % 2 ? plain.thread : stopped.thread, SIGUSR1) == 0);
        while (seen == 0) {
            sched_yield();
        }
    }
    CHECK(waiters_of(set) == 2);
    CHECK(pthread_kill(stopped.thread, SIGUSR2) == 0);
    IS(LIMITSET_INTERRUPTED, finish(&stopped));
    CHECK(seen == 2);
    CHECK(stopped.held.id == 0 && waiters_of(set) == 1);
    // A raised interrupt lets no wait begin; a request that fits is still granted.
    IS(LIMITSET_INTERRUPTED, limitset_acquire(request, LIMITSET_FOREVER, &stop, &stopped.held, NULL));
    OK(limitset_release(held));
    OK(finish(&plain));
    OK(limitset_release(plain.held));
    OK(limitset_acquire(request, LIMITSET_FOREVER, &stop, &held, NULL));
    OK(limitset_interrupt_clear(&stop));
    IS(LIMITSET_TIMED_OUT, limitset_acquire(request, 1000000, &stop, &stopped.held, NULL));
    OK(limitset_release(held));
    CHECK(stats_of(set, "connections").in_use == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void *take_in_thread(void *argument) {
    limitset_item item;
    IS(LIMITSET_INTERRUPTED, limitset_take((const limitset_set *)argument, LIMITSET_FOREVER, &stop, &item));
    CHECK(item.id == 0);
    return NULL;
}

static void waits_for_work_can_be_interrupted(void) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_queue queue = limitset_queue_of(1, 8);
    limitset_item item;
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_queue(builder, &queue));
    OK(limitset_open_private(builder, &set));
    OK(limitset_builder_free(builder));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_in_thread, set) == 0);
    limitset_interrupt_raise(&stop);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(limitset_push(set, 1, NULL, 0, LIMITSET_FOREVER, &stop));
    IS(LIMITSET_INTERRUPTED, limitset_push(set, 2, NULL, 0, LIMITSET_FOREVER, &stop));
    IS(LIMITSET_INTERRUPTED, limitset_drain(set, LIMITSET_FOREVER, &stop));
    limitset_finished finished;
    IS(LIMITSET_INTERRUPTED, limitset_collect(set, LIMITSET_FOREVER, &stop, &finished));
    IS(LIMITSET_FULL, limitset_push(set, 2, NULL, 0, 0, NULL));
    IS(LIMITSET_TIMED_OUT, limitset_push(set, 2, NULL, 0, 1000, NULL));
    OK(limitset_take(set, LIMITSET_FOREVER, &stop, &item));
    IS(LIMITSET_EMPTY, limitset_take(set, 0, NULL, &item));
    OK(limitset_set_free(set));
}

static void a_request_may_be_freed_while_others_wait_with_it(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held;
    waiter waiting;
    OK(limitset_try_acquire(request, &held, NULL));
    start(&waiting, request, NULL);
    until_waiters(set, 1);
    OK(limitset_request_free(request));
    IS(LIMITSET_SPENT, limitset_request_free(request));
    OK(limitset_set_free(set));
    OK(limitset_release(held));
    OK(finish(&waiting));
    OK(limitset_release(waiting.held));
}

static limitset_held contested;
static pthread_barrier_t barrier;
static int released;

static void *release_in_thread(void *argument) {
    (void)argument;
    pthread_barrier_wait(&barrier);
    limitset_status answer = limitset_release(contested);
    CHECK(answer == LIMITSET_OK || answer == LIMITSET_SPENT || answer == LIMITSET_BAD_HANDLE || answer == LIMITSET_IN_USE);
    if (answer == LIMITSET_OK) {
        __atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void of_threads_that_release_one_acquisition_one_succeeds(void) {
    limitset_set *set = open_connections(3);
    limitset_request *request = request_of(set, NULL, 0);
    for (int round = 0; round < 200; round++) {
        pthread_t threads[3];
        released = 0;
        CHECK(pthread_barrier_init(&barrier, NULL, 3) == 0);
        OK(limitset_try_acquire(request, &contested, NULL));
        for (int index = 0; index < 3; index++) {
            CHECK(pthread_create(&threads[index], NULL, release_in_thread, NULL) == 0);
        }
        for (int index = 0; index < 3; index++) {
            CHECK(pthread_join(threads[index], NULL) == 0);
        }
        pthread_barrier_destroy(&barrier);
        CHECK(released == 1);
        CHECK(stats_of(set, "connections").in_use == 0);
    }
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static const limitset_request *common;

static void *acquire_and_release(void *argument) {
    (void)argument;
    for (int round = 0; round < 500; round++) {
        limitset_held first, second;
        OK(limitset_acquire(common, LIMITSET_FOREVER, NULL, &first, NULL));
        // Each thread has its own last error.
        if (limitset_try_acquire(common, &second, NULL) == LIMITSET_OK) {
            OK(limitset_release(second));
        } else {
            CHECK(second.id == 0 && strlen(limitset_last_error()) > 0);
        }
        OK(limitset_release(first));
    }
    return NULL;
}

static void threads_share_sets_and_requests(void) {
    limitset_set *set = open_connections(2);
    limitset_request *request = request_of(set, NULL, 0);
    pthread_t threads[4];
    common = request;
    for (int index = 0; index < 4; index++) {
        CHECK(pthread_create(&threads[index], NULL, acquire_and_release, NULL) == 0);
    }
    for (int index = 0; index < 4; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(stats_of(set, "connections").in_use == 0 && stats_of(set, "connections").granted >= 2000);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void a_charge_waits_for_its_turn_and_can_be_interrupted(void) {
    limitset_limit limit = limitset_call(1, 20000000);
    limitset_set *set = open_set(&limit, 1, LIMITSET_MONOTONIC);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_interrupt interrupt = {0};
    limitset_denial denial;
    uint32_t is_enforced = 0;
    limitset_denial_init(&denial);
    OK(limitset_try_charge(request, &is_enforced, &denial));
    CHECK(is_enforced == 1);
    OK(limitset_charge_timeout(request, LIMITSET_FOREVER, NULL, &is_enforced, &denial));
    OK(limitset_charge_timeout(request, 5000000000, NULL, NULL, NULL));
    CHECK(stats_of(set, "call_count").granted == 3);
    OK(limitset_pause(set, 60000000000, NULL));
    IS(LIMITSET_COOLING_DOWN, limitset_try_charge(request, NULL, &denial));
    IS(LIMITSET_COOLING_DOWN, limitset_charge(request, NULL, &denial));
    IS(LIMITSET_TIMED_OUT, limitset_charge_timeout(request, 1000000, NULL, NULL, &denial));
    CHECK(denial.status == LIMITSET_TIMED_OUT);
    limitset_interrupt_raise(&interrupt);
    IS(LIMITSET_INTERRUPTED, limitset_charge_timeout(request, LIMITSET_FOREVER, &interrupt, NULL, NULL));
    IS(LIMITSET_BAD_ARGUMENT, limitset_charge_timeout(request, -2, NULL, NULL, NULL));
    CHECK(waiters_of(set) == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

int main(int count, char **arguments) {
    const test tests[] = {
        {"time_that_is_up_says_what_was_in_the_way", time_that_is_up_says_what_was_in_the_way},
        {"waiters_are_served_in_order_with_or_without_an_interrupt", waiters_are_served_in_order_with_or_without_an_interrupt},
        {"a_signal_ends_no_wait_and_an_interrupt_from_its_handler_does", a_signal_ends_no_wait_and_an_interrupt_from_its_handler_does},
        {"waits_for_work_can_be_interrupted", waits_for_work_can_be_interrupted},
        {"a_charge_waits_for_its_turn_and_can_be_interrupted", a_charge_waits_for_its_turn_and_can_be_interrupted},
        {"a_request_may_be_freed_while_others_wait_with_it", a_request_may_be_freed_while_others_wait_with_it},
        {"of_threads_that_release_one_acquisition_one_succeeds", of_threads_that_release_one_acquisition_one_succeeds},
        {"threads_share_sets_and_requests", threads_share_sets_and_requests},
        {NULL, NULL},
    };
    return run_tests(count, arguments, tests);
}
