// The usual life of sets, requests and acquisitions, and everything that answers through a struct.
#include "check.h"

static void versions_agree(void) {
    CHECK(limitset_abi_version() == LIMITSET_ABI_VERSION);
    CHECK(strcmp(limitset_last_error(), "") == 0);
}

static void limits_are_acquired_together_and_released(void) {
    limitset_limit limits[3];
    limits[0] = limitset_call(5, 60 * SECOND);
    limits[1] = limitset_rate("tokens", 100, 60 * SECOND);
    limits[2] = limitset_resource("connections", 2);
    limitset_set *set = open_set(limits, 3, LIMITSET_MANUAL);
    limitset_request *request = request_of(set, "tokens", 60);
    limitset_held held;
    OK(limitset_try_acquire(request, &held, NULL));
    uint64_t amount = 0;
    OK(limitset_charged(held, "call_count", &amount));
    CHECK(amount == 1);

    limitset_denial denial;
    limitset_limit_status statuses[3];
    limitset_held none = {7};
    limitset_denial_init(&denial);
    denial.limits = statuses;
    denial.limits_room = 3;
    IS(LIMITSET_DENIED, limitset_try_acquire(request, &none, &denial));
    CHECK(none.id == 0);
    CHECK(denial.status == LIMITSET_DENIED);
    CHECK(strcmp(denial.bottleneck, "tokens") == 0);
    CHECK(denial.requested == 60 && denial.available == 40 && denial.most == 100);
    CHECK(denial.retry_after_ns == 12 * (int64_t)SECOND);
    CHECK(denial.limits_written == 3);
    CHECK(strcmp(statuses[0].key, "call_count") == 0 && statuses[0].passed == 1);
    CHECK(strcmp(statuses[1].key, "tokens") == 0 && statuses[1].passed == 0);
    CHECK(strcmp(statuses[2].key, "connections") == 0 && statuses[2].retry_after_ns == -1);
    CHECK(strcmp(limitset_last_error(), "60 of \"tokens\" wanted, 40 available: try again in 12s") == 0);
    denial.limits_room = 1;
    IS(LIMITSET_DENIED, limitset_try_acquire(request, &none, &denial));
    CHECK(denial.limits_written == 1);

    uint64_t returned = 0;
    OK(limitset_update(held, "tokens", 10, &returned));
    CHECK(returned == 50);
    OK(limitset_adjust(held, "tokens", 5, NULL));
    OK(limitset_settle(held, "tokens", 12, &returned));
    CHECK(returned == 3);
    limitset_held_info info;
    limitset_held_info_init(&info);
    OK(limitset_read_held(held, &info));
    CHECK(info.is_enforced == 1 && info.pool_index == -1);
    limitset_amount more = {"connections", 1};
    OK(limitset_acquire_more(held, &more, 1, NULL));
    CHECK(stats_of(set, "connections").in_use == 2);
    OK(limitset_release(held));
    CHECK(stats_of(set, "connections").in_use == 0);
    CHECK(stats_of(set, "tokens").consumed == 12);

    OK(limitset_try_acquire(request, &held, NULL));
    OK(limitset_cancel(held));
    CHECK(stats_of(set, "tokens").consumed == 12);
    OK(limitset_try_acquire(request, &held, NULL));
    IS(LIMITSET_UNREPORTED, limitset_release(held));
    CHECK(stats_of(set, "connections").in_use == 0);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void amounts_may_differ_each_time(void) {
    limitset_limit limit = limitset_rate("tokens", 100, 60 * SECOND);
    limit.report_optional = 1;
    limitset_set *set = open_set(&limit, 1, LIMITSET_MANUAL);
    for (uint64_t tokens = 1; tokens <= 10; tokens++) {
        limitset_held held;
        limitset_amount amount = {"tokens", tokens};
        if (tokens % 2 == 0) {
            OK(limitset_try_acquire_amounts(set, &amount, 1, &held, NULL));
        } else {
            OK(limitset_acquire_amounts(set, &amount, 1, LIMITSET_FOREVER, NULL, &held, NULL));
        }
        OK(limitset_release(held));
    }
    CHECK(stats_of(set, "tokens").consumed == 55);
    OK(limitset_set_free(set));
}

static void many_are_held_at_one_time(void) {
    enum { MANY = 1000 };
    static limitset_held held[MANY];
    limitset_set *set = open_connections(MANY);
    limitset_request *request = request_of(set, NULL, 0);
    for (int round = 0; round < 2; round++) {
        for (int index = 0; index < MANY; index++) {
            OK(limitset_try_acquire(request, &held[index], NULL));
        }
        limitset_held one_more;
        IS(LIMITSET_DENIED, limitset_try_acquire(request, &one_more, NULL));
        for (int index = 0; index < MANY; index++) {
            OK(limitset_release(held[(index * 7) % MANY]));
        }
    }
    CHECK(stats_of(set, "connections").in_use == 0 && stats_of(set, "connections").granted == 2 * MANY);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

static void a_set_has_a_name_a_config_and_an_end(void) {
    char name[64];
    snprintf(name, sizeof name, "test-c-%d", (int)getpid());
    limitset_builder *builder;
    limitset_set *set, *again, *other;
    limitset_limit limit = limitset_resource("connections", 3), larger = limitset_resource("connections", 5);
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &limit));
    OK(limitset_builder_config(builder, "region", "eu"));
    OK(limitset_create(builder, name, &set));
    IS(LIMITSET_EXISTS, limitset_create(builder, name, &other));
    OK(limitset_open(builder, name, &again));
    OK(limitset_set_free(again));
    OK(limitset_attach(name, &again));
    char region[8];
    size_t needed = 0;
    OK(limitset_config(again, "region", region, sizeof region, &needed));
    CHECK(strcmp(region, "eu") == 0 && needed == 3);
    IS(LIMITSET_TOO_LONG, limitset_config(again, "region", region, 2, &needed));
    IS(LIMITSET_TOO_LONG, limitset_config(again, "region", NULL, 0, &needed));
    IS(LIMITSET_UNKNOWN_KEY, limitset_config(again, "account", region, sizeof region, NULL));
    OK(limitset_reconfigure(again, &larger, 1));
    CHECK(stats_of(set, "connections").capacity == 5);
    uint64_t permits = 9;
    OK(limitset_reap(set, &permits));
    CHECK(permits == 0);
    OK(limitset_builder_free(builder));
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &larger));
    OK(limitset_builder_config(builder, "region", "eu"));
    IS(LIMITSET_DIFFERS, limitset_open(builder, name, &other));
    OK(limitset_builder_free(builder));
    OK(limitset_remove(set));
    IS(LIMITSET_NOT_FOUND, limitset_attach(name, &other));
    limitset_held held;
    limitset_request *request = request_of(set, NULL, 0);
    IS(LIMITSET_REMOVED, limitset_try_acquire(request, &held, NULL));
    OK(limitset_request_free(request));
    OK(limitset_set_free(again));
    OK(limitset_set_free(set));
}

static void a_handle_may_be_freed_before_what_was_made_from_it(void) {
    limitset_set *set = open_connections(1), *twin = open_connections(1);
    const limitset_set *sets[2];
    limitset_request *request = request_of(set, NULL, 0), *of_pool;
    limitset_pool *pool;
    limitset_held held, other;
    sets[0] = set;
    sets[1] = twin;
    OK(limitset_pool_new(sets, 2, LIMITSET_FIRST_FREE, 0, &pool));
    OK(limitset_set_free(set));
    OK(limitset_set_free(twin));
    OK(limitset_try_acquire(request, &held, NULL));
    OK(limitset_request_free(request));
    OK(limitset_pool_request_new(pool, NULL, 0, "chat", &of_pool));
    OK(limitset_try_acquire(of_pool, &other, NULL));
    limitset_held_info info;
    limitset_held_info_init(&info);
    OK(limitset_read_held(other, &info));
    CHECK(info.pool_index == 1);
    limitset_pool_stats stats[2];
    size_t count = 0;
    OK(limitset_read_pool(pool, stats, 2, &count));
    CHECK(count == 2 && stats[0].refused == 1 && stats[1].granted == 1);
    OK(limitset_pool_free(pool));
    OK(limitset_request_free(of_pool));
    OK(limitset_release(other));
    OK(limitset_release(held));
}

static uint32_t participants_of(const limitset_set *set) {
    limitset_stats stats;
    limitset_stats_init(&stats);
    OK(limitset_read_stats(set, &stats));
    return stats.participants_count;
}

static void whoever_frees_the_last_of_a_set_leaves_it(void) {
    char name[64];
    snprintf(name, sizeof name, "test-c-leave-%d", (int)getpid());
    limitset_builder *builder;
    limitset_set *set, *again;
    limitset_limit limit = limitset_resource("connections", 3);
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &limit));
    OK(limitset_open(builder, name, &set));
    OK(limitset_builder_free(builder));
    OK(limitset_attach(name, &again));
    limitset_request *request = request_of(again, NULL, 0);
    limitset_held held;
    OK(limitset_try_acquire(request, &held, NULL));
    CHECK(participants_of(set) == 2);
    OK(limitset_set_free(again));
    OK(limitset_request_free(request));
    CHECK(participants_of(set) == 2); // It still holds a permit.
    OK(limitset_release(held));
    CHECK(participants_of(set) == 1);
    OK(limitset_remove(set));
    OK(limitset_set_free(set));
}

static void a_pause_stops_the_set_and_work_is_parked(void) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_limit limit = limitset_call(100, 60 * SECOND);
    limitset_settings settings = limitset_settings_usual();
    limitset_cooldown cooldown = limitset_cooldown_usual();
    limitset_queue queue = limitset_queue_of(4, 16);
    settings.clock = LIMITSET_MANUAL;
    cooldown.jitter = 0;
    cooldown.slow_admissions = 0;
    OK(limitset_builder_new(&builder));
    OK(limitset_builder_limit(builder, &limit));
    OK(limitset_builder_settings(builder, &settings));
    OK(limitset_builder_cooldown(builder, &cooldown));
    OK(limitset_builder_queue(builder, &queue));
    OK(limitset_open_private(builder, &set));
    OK(limitset_builder_free(builder));

    limitset_item item;
    limitset_held held;
    limitset_request *request = request_of(set, NULL, 0);
    limitset_pause_info pause;
    limitset_pause_info_init(&pause);
    OK(limitset_push(set, 11, (const uint8_t *)"oslo", 4, LIMITSET_FOREVER, NULL));
    OK(limitset_take(set, LIMITSET_FOREVER, NULL, &item));
    OK(limitset_try_acquire(request, &held, NULL));
    OK(limitset_park(item, held, 7 * (int64_t)SECOND, &pause));
    CHECK(pause.remaining_ns == 7 * (int64_t)SECOND && pause.generation == 1 && pause.absorbed == 0);
    IS(LIMITSET_SPENT, limitset_done(item, NULL, 0));
    IS(LIMITSET_SPENT, limitset_release(held));
    IS(LIMITSET_COOLING_DOWN, limitset_try_acquire(request, &held, NULL));
    OK(limitset_advance(set, 7 * SECOND));
    OK(limitset_take(set, 0, NULL, &item));
    limitset_item_info info;
    limitset_item_info_init(&info);
    OK(limitset_read_item(item, &info));
    CHECK(info.id == 11 && info.payload_bytes == 4 && memcmp(info.payload, "oslo", 4) == 0);
    CHECK(info.rate_limits == 1 && info.attempts == 1 && info.result == NULL);
    IS(LIMITSET_TOO_LONG, limitset_done(item, (const uint8_t *)"12345678901234567", 17));
    OK(limitset_done(item, (const uint8_t *)"OSLO", 4));
    OK(limitset_close(set));
    IS(LIMITSET_CLOSED, limitset_push(set, 1, NULL, 0, 0, NULL));
    OK(limitset_drain(set, LIMITSET_FOREVER, NULL));
    IS(LIMITSET_OVER, limitset_take(set, LIMITSET_FOREVER, NULL, &item));
    limitset_finished finished;
    OK(limitset_collect(set, LIMITSET_FOREVER, NULL, &finished));
    OK(limitset_read_finished(finished, &info));
    CHECK(info.result_bytes == 4 && memcmp(info.result, "OSLO", 4) == 0 && info.reason == LIMITSET_DONE);
    OK(limitset_forget(finished));
    IS(LIMITSET_OVER, limitset_collect(set, 0, NULL, &finished));

    OK(limitset_pause(set, SECOND, NULL));
    uint32_t was_paused = 0;
    OK(limitset_resume(set, &was_paused));
    CHECK(was_paused == 1);
    limitset_stats stats;
    limitset_participant participant;
    limitset_stats_init(&stats);
    stats.participants = &participant;
    stats.participants_room = 1;
    OK(limitset_read_stats(set, &stats));
    CHECK(stats.participants_count == 1 && participant.pid == (uint64_t)getpid() && participant.is_alive == 1);
    CHECK(stats.queue.capacity == 4 && stats.queue.done == 1 && stats.queue.is_closed == 1);
    CHECK(stats.cooldown.generation == 2 && stats.cooldown.remaining_ns == -1);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

int main(int count, char **arguments) {
    const test tests[] = {
        {"versions_agree", versions_agree},
        {"limits_are_acquired_together_and_released", limits_are_acquired_together_and_released},
        {"amounts_may_differ_each_time", amounts_may_differ_each_time},
        {"many_are_held_at_one_time", many_are_held_at_one_time},
        {"a_set_has_a_name_a_config_and_an_end", a_set_has_a_name_a_config_and_an_end},
        {"a_handle_may_be_freed_before_what_was_made_from_it", a_handle_may_be_freed_before_what_was_made_from_it},
        {"whoever_frees_the_last_of_a_set_leaves_it", whoever_frees_the_last_of_a_set_leaves_it},
        {"a_pause_stops_the_set_and_work_is_parked", a_pause_stops_the_set_and_work_is_parked},
        {NULL, NULL},
    };
    return run_tests(count, arguments, tests);
}
