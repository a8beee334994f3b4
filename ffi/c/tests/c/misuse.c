// Bugs of a program: each is an error with a message, and none crashes.
#include "check.h"

#define SAYS(part) CHECK(strstr(limitset_last_error(), part) != NULL)

static void an_acquisition_ends_once_whichever_copy_is_used(void) {
    limitset_set *set = open_connections(2);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held, copy;
    OK(limitset_try_acquire(request, &held, NULL));
    copy = held;
    OK(limitset_release(held));
    IS(LIMITSET_SPENT, limitset_release(held));
    SAYS("released, finished or freed before");
    IS(LIMITSET_SPENT, limitset_release(copy));
    IS(LIMITSET_SPENT, limitset_cancel(copy));
    IS(LIMITSET_SPENT, limitset_rate_limited(copy, -1, NULL));
    IS(LIMITSET_SPENT, limitset_update(copy, "connections", 0, NULL));
    // Its place is used again; the old number stays spent.
    limitset_held next;
    OK(limitset_try_acquire(request, &next, NULL));
    IS(LIMITSET_SPENT, limitset_release(copy));
    CHECK(stats_of(set, "connections").in_use == 1);
    OK(limitset_release(next));
    CHECK(stats_of(set, "connections").in_use == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void what_was_never_held_cannot_be_released(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_held held, garbage;
    uint64_t ids[] = {0, 1, 42, UINT64_MAX, UINT64_C(0x5000000000000000), UINT64_C(0x5000000000ffffff)};
    for (size_t index = 0; index < sizeof ids / sizeof *ids; index++) {
        limitset_item item;
        limitset_finished finished;
        garbage.id = item.id = finished.id = ids[index];
        IS(LIMITSET_BAD_HANDLE, limitset_release(garbage));
        IS(LIMITSET_BAD_HANDLE, limitset_done(item, NULL, 0));
        IS(LIMITSET_BAD_HANDLE, limitset_forget(finished));
    }
    OK(limitset_try_acquire(request, &held, NULL));
    limitset_held refused;
    IS(LIMITSET_DENIED, limitset_try_acquire(request, &refused, NULL));
    IS(LIMITSET_BAD_HANDLE, limitset_release(refused));
    SAYS("unknown acquisition");
    garbage.id = held.id + (UINT64_C(1) << 24);
    IS(LIMITSET_BAD_HANDLE, limitset_release(garbage));
    OK(limitset_release(held));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void null_is_an_error_wherever_something_is_needed(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_builder *builder;
    limitset_held held;
    limitset_item item = {0};
    limitset_finished finished = {0};
    OK(limitset_builder_new(&builder));
    IS(LIMITSET_NULL, limitset_builder_new(NULL));
    IS(LIMITSET_NULL, limitset_builder_limit(NULL, NULL));
    IS(LIMITSET_NULL, limitset_builder_limit(builder, NULL));
    IS(LIMITSET_NULL, limitset_builder_config(builder, NULL, "x"));
    IS(LIMITSET_NULL, limitset_builder_config(builder, "x", NULL));
    IS(LIMITSET_NULL, limitset_builder_settings(builder, NULL));
    IS(LIMITSET_NULL, limitset_builder_cooldown(builder, NULL));
    IS(LIMITSET_NULL, limitset_builder_queue(builder, NULL));
    IS(LIMITSET_NULL, limitset_open(NULL, "x", &set));
    IS(LIMITSET_NULL, limitset_open(builder, NULL, &set));
    IS(LIMITSET_NULL, limitset_open(builder, "x", NULL));
    IS(LIMITSET_NULL, limitset_open_anonymous(builder, NULL));
    IS(LIMITSET_NULL, limitset_open_private(NULL, &set));
    IS(LIMITSET_NULL, limitset_attach(NULL, &set));
    IS(LIMITSET_NULL, limitset_attach("x", NULL));
    IS(LIMITSET_NULL, limitset_request_new(NULL, NULL, 0, NULL, &request));
    IS(LIMITSET_NULL, limitset_request_new(set, NULL, 0, NULL, NULL));
    IS(LIMITSET_NULL, limitset_request_new(set, NULL, 1, NULL, &request));
    limitset_amount nameless = {NULL, 1};
    IS(LIMITSET_NULL, limitset_request_new(set, &nameless, 1, NULL, &request));
    IS(LIMITSET_NULL, limitset_pool_request_new(NULL, NULL, 0, NULL, &request));
    IS(LIMITSET_NULL, limitset_try_acquire(NULL, &held, NULL));
    IS(LIMITSET_NULL, limitset_try_acquire(request, NULL, NULL));
    IS(LIMITSET_NULL, limitset_acquire(NULL, 0, NULL, &held, NULL));
    IS(LIMITSET_NULL, limitset_acquire(request, 0, NULL, NULL, NULL));
    IS(LIMITSET_NULL, limitset_try_acquire_amounts(NULL, NULL, 0, &held, NULL));
    IS(LIMITSET_NULL, limitset_acquire_amounts(NULL, NULL, 0, 0, NULL, &held, NULL));
    IS(LIMITSET_NULL, limitset_pool_try_acquire_amounts(NULL, NULL, 0, &held, NULL));
    IS(LIMITSET_NULL, limitset_pool_acquire_amounts(NULL, NULL, 0, 0, NULL, &held, NULL));
    IS(LIMITSET_NULL, limitset_check(NULL, NULL));
    IS(LIMITSET_NULL, limitset_try_charge(NULL, NULL, NULL));
    IS(LIMITSET_NULL, limitset_charge(NULL, NULL, NULL));
    IS(LIMITSET_NULL, limitset_charge_timeout(NULL, 0, NULL, NULL, NULL));
    OK(limitset_try_acquire(request, &held, NULL));
    IS(LIMITSET_NULL, limitset_update(held, NULL, 0, NULL));
    IS(LIMITSET_NULL, limitset_charged(held, "connections", NULL));
    IS(LIMITSET_NULL, limitset_read_held(held, NULL));
    IS(LIMITSET_NULL, limitset_acquire_more(held, NULL, 1, NULL));
    IS(LIMITSET_NULL, limitset_held_config(held, NULL, NULL, 0, NULL));
    OK(limitset_release(held));
    IS(LIMITSET_NULL, limitset_remove(NULL));
    IS(LIMITSET_NULL, limitset_reconfigure(NULL, NULL, 0));
    IS(LIMITSET_NULL, limitset_reconfigure(set, NULL, 1));
    IS(LIMITSET_NULL, limitset_reset(NULL));
    IS(LIMITSET_NULL, limitset_reap(NULL, NULL));
    IS(LIMITSET_NULL, limitset_advance(NULL, 0));
    IS(LIMITSET_NULL, limitset_pause(NULL, 0, NULL));
    IS(LIMITSET_NULL, limitset_resume(NULL, NULL));
    IS(LIMITSET_NULL, limitset_config(NULL, "x", NULL, 0, NULL));
    IS(LIMITSET_NULL, limitset_pool_new(NULL, 1, 0, 0, NULL));
    limitset_pool *pool;
    IS(LIMITSET_NULL, limitset_pool_new(NULL, 1, 0, 0, &pool));
    IS(LIMITSET_BAD_ARGUMENT, limitset_pool_new(NULL, 0, 0, 0, &pool));
    const limitset_set *no_set = NULL;
    IS(LIMITSET_NULL, limitset_pool_new(&no_set, 1, 0, 0, &pool));
    IS(LIMITSET_NULL, limitset_read_pool(NULL, NULL, 0, NULL));
    IS(LIMITSET_NULL, limitset_push(NULL, 0, NULL, 0, 0, NULL));
    IS(LIMITSET_NULL, limitset_push(set, 0, NULL, 1, 0, NULL));
    IS(LIMITSET_NULL, limitset_take(NULL, 0, NULL, &item));
    IS(LIMITSET_NULL, limitset_take(set, 0, NULL, NULL));
    IS(LIMITSET_NULL, limitset_read_item(item, NULL));
    IS(LIMITSET_NULL, limitset_done(item, NULL, 1));
    IS(LIMITSET_NULL, limitset_dead_letter(item, NULL, 1));
    IS(LIMITSET_NULL, limitset_collect(set, 0, NULL, NULL));
    IS(LIMITSET_NULL, limitset_collect_dead(set, NULL));
    IS(LIMITSET_NULL, limitset_read_finished(finished, NULL));
    IS(LIMITSET_NULL, limitset_close(NULL));
    IS(LIMITSET_NULL, limitset_drain(NULL, 0, NULL));
    IS(LIMITSET_NULL, limitset_read_stats(set, NULL));
    IS(LIMITSET_NULL, limitset_interrupt_clear(NULL));
    SAYS("the interrupt is null");
    limitset_interrupt_raise(NULL);
    // Nothing to free.
    OK(limitset_builder_free(NULL));
    OK(limitset_set_free(NULL));
    OK(limitset_request_free(NULL));
    OK(limitset_pool_free(NULL));
    OK(limitset_builder_free(builder));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void handles_that_were_freed_or_made_up_are_errors(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_builder *builder;
    limitset_pool *pool;
    limitset_held held;
    const limitset_set *sets[1];
    sets[0] = set;
    OK(limitset_builder_new(&builder));
    OK(limitset_pool_new(sets, 1, 0, 0, &pool));
    // A handle of another kind.
    IS(LIMITSET_BAD_HANDLE, limitset_remove((const limitset_set *)request));
    IS(LIMITSET_BAD_HANDLE, limitset_try_acquire((const limitset_request *)set, &held, NULL));
    // Addresses of the program.
    int mine = 0;
    IS(LIMITSET_BAD_HANDLE, limitset_remove((const limitset_set *)(void *)&mine));
    IS(LIMITSET_BAD_HANDLE, limitset_set_free((limitset_set *)(void *)&mine));
    OK(limitset_builder_free(builder));
    OK(limitset_pool_free(pool));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
    IS(LIMITSET_SPENT, limitset_builder_free(builder));
    IS(LIMITSET_SPENT, limitset_pool_free(pool));
    IS(LIMITSET_SPENT, limitset_request_free(request));
    IS(LIMITSET_SPENT, limitset_set_free(set));
    IS(LIMITSET_SPENT, limitset_builder_config(builder, "a", "b"));
    IS(LIMITSET_SPENT, limitset_open_anonymous(builder, &set));
    IS(LIMITSET_SPENT, limitset_pool_try_acquire_amounts(pool, NULL, 0, &held, NULL));
    IS(LIMITSET_SPENT, limitset_try_acquire(request, &held, NULL));
    CHECK(held.id == 0);
    IS(LIMITSET_SPENT, limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, NULL));
    IS(LIMITSET_SPENT, limitset_remove(set));
    limitset_request *none = NULL;
    IS(LIMITSET_SPENT, limitset_request_new(set, NULL, 0, NULL, &none));
    CHECK(none == NULL);
}

static void a_struct_of_another_size_is_refused(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_builder *builder;
    OK(limitset_builder_new(&builder));
    size_t deltas[] = {(size_t)-1, 1, 8, (size_t)0 - sizeof(limitset_denial)};
    for (size_t index = 0; index < sizeof deltas / sizeof *deltas; index++) {
        size_t delta = deltas[index];
        limitset_denial denial;
        limitset_held held;
        limitset_denial_init(&denial);
        denial.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_try_acquire(request, &held, &denial));
        SAYS("struct_size of the denial");
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_acquire(request, 0, NULL, &held, &denial));
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_check(request, &denial));
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_charge(request, NULL, &denial));
        limitset_stats stats;
        limitset_stats_init(&stats);
        stats.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_read_stats(set, &stats));
        limitset_held_info info;
        limitset_held_info_init(&info);
        info.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_read_held(held, &info));
        limitset_pause_info pause;
        limitset_pause_info_init(&pause);
        pause.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_pause(set, 1, &pause));
        limitset_item_info item_info;
        limitset_item item = {0};
        limitset_item_info_init(&item_info);
        item_info.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_read_item(item, &item_info));
        limitset_limit limit = limitset_resource("x", 1);
        limit.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_builder_limit(builder, &limit));
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_reconfigure(set, &limit, 1));
        limitset_settings settings = limitset_settings_usual();
        settings.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_builder_settings(builder, &settings));
        limitset_cooldown cooldown = limitset_cooldown_usual();
        cooldown.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_builder_cooldown(builder, &cooldown));
        limitset_queue queue = limitset_queue_of(1, 1);
        queue.struct_size += delta;
        IS(LIMITSET_BAD_STRUCT_SIZE, limitset_builder_queue(builder, &queue));
    }
    // None of the calls did anything.
    CHECK(stats_of(set, "connections").granted == 0 && stats_of(set, "connections").in_use == 0);
    limitset_held held;
    OK(limitset_try_acquire(request, &held, NULL));
    OK(limitset_release(held));
    OK(limitset_builder_free(builder));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void numbers_and_texts_that_make_no_sense_are_refused(void) {
    limitset_set *set = open_connections(1);
    limitset_request *request = request_of(set, NULL, 0);
    limitset_builder *builder;
    limitset_held held;
    limitset_item item;
    limitset_pool *pool;
    OK(limitset_builder_new(&builder));
    IS(LIMITSET_BAD_ARGUMENT, limitset_acquire(request, -2, NULL, &held, NULL));
    SAYS("-1 for ever");
    IS(LIMITSET_BAD_ARGUMENT, limitset_acquire(request, INT64_MIN, NULL, &held, NULL));
    IS(LIMITSET_NO_QUEUE, limitset_take(set, 0, NULL, &item));
    limitset_limit limit = limitset_resource("x", 1);
    limit.kind = 9;
    IS(LIMITSET_BAD_ARGUMENT, limitset_builder_limit(builder, &limit));
    limit = limitset_rate("x", 1, SECOND);
    limit.algorithm = 77;
    IS(LIMITSET_BAD_ARGUMENT, limitset_builder_limit(builder, &limit));
    limitset_settings settings = limitset_settings_usual();
    settings.clock = 5;
    IS(LIMITSET_BAD_ARGUMENT, limitset_builder_settings(builder, &settings));
    settings = limitset_settings_usual();
    settings.group = -7;
    IS(LIMITSET_BAD_ARGUMENT, limitset_builder_settings(builder, &settings));
    const limitset_set *sets[1];
    sets[0] = set;
    IS(LIMITSET_BAD_ARGUMENT, limitset_pool_new(sets, 1, 33, 0, &pool));
    IS(LIMITSET_BAD_ARGUMENT, limitset_builder_config(builder, "\xff\xfe", "x"));
    SAYS("not UTF-8");
    limitset_amount amount = {"\xc3\x28", 1};
    IS(LIMITSET_BAD_ARGUMENT, limitset_try_acquire_amounts(set, &amount, 1, &held, NULL));
    amount.key = "nothing";
    IS(LIMITSET_BAD_REQUEST, limitset_try_acquire_amounts(set, &amount, 1, &held, NULL));
    SAYS("there is no limit \"nothing\" in this set; it has connections");
    limitset_amount twice[2] = {{"connections", 1}, {"connections", 1}};
    IS(LIMITSET_BAD_REQUEST, limitset_try_acquire_amounts(set, twice, 2, &held, NULL));
    IS(LIMITSET_BAD_ARGUMENT, limitset_try_acquire_amounts(set, twice, SIZE_MAX, &held, NULL));
    IS(LIMITSET_CLOCK_MOVES_ITSELF, limitset_advance(set, 1));
    IS(LIMITSET_BAD_NAME, limitset_open(builder, "two words", &set));
    OK(limitset_try_acquire(request, &held, NULL));
    IS(LIMITSET_BAD_ARGUMENT, limitset_rate_limited(held, -2, NULL));
    CHECK(stats_of(set, "connections").in_use == 1);
    // A misaligned address.
    static uint64_t room[64];
    limitset_denial *askew = (limitset_denial *)(void *)((char *)room + 4);
    IS(LIMITSET_BAD_ARGUMENT, limitset_check(request, askew));
    IS(LIMITSET_BAD_ARGUMENT, limitset_try_acquire(request, (limitset_held *)(void *)((char *)room + 4), NULL));
    OK(limitset_release(held));
    OK(limitset_builder_free(builder));
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

int main(int count, char **arguments) {
    const test tests[] = {
        {"an_acquisition_ends_once_whichever_copy_is_used", an_acquisition_ends_once_whichever_copy_is_used},
        {"what_was_never_held_cannot_be_released", what_was_never_held_cannot_be_released},
        {"null_is_an_error_wherever_something_is_needed", null_is_an_error_wherever_something_is_needed},
        {"handles_that_were_freed_or_made_up_are_errors", handles_that_were_freed_or_made_up_are_errors},
        {"a_struct_of_another_size_is_refused", a_struct_of_another_size_is_refused},
        {"numbers_and_texts_that_make_no_sense_are_refused", numbers_and_texts_that_make_no_sense_are_refused},
        {NULL, NULL},
    };
    return run_tests(count, arguments, tests);
}
