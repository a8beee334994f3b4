// Runs the steps of a scenario with the functions of limitset.h. Reads a line for each step: words of the form
// PATH=VALUE, one for each number or text of the step's JSON, with tabs between them. Answers a line of JSON.
// tests/scenarios/README.md describes the steps; the process that writes the lines compares the answers.
#include "check.h"

#include <stdarg.h>

enum { MOST_WORDS = 256, MOST_NAMES = 32, MOST_SETS = 4, MOST_LIMITS = 8, KEY_ROOM = 64 };

typedef struct word {
    char *path;
    char *value;
} word;

typedef struct line {
    word words[MOST_WORDS];
    int count;
} line;

typedef enum what { NOTHING, HELD, ITEM, FINISHED, WAITER } what;

// An object that a scenario has under a name.
typedef struct thing {
    char name[KEY_ROOM];
    what kind;
    limitset_held held;
    limitset_item item;
    limitset_finished finished;
    pthread_t thread;
    limitset_request *request;
    int64_t timeout_ns;
    limitset_status answer;
    limitset_denial denial;
    limitset_limit_status statuses[MOST_LIMITS];
} thing;

static line definition;
static limitset_set *sets[MOST_SETS];
static int set_count;
static limitset_pool *pool;
static thing things[MOST_NAMES];

// ---- lines ----

static void split(char *text, line *to) {
    to->count = 0;
    for (char *rest = text, *next; rest != NULL && *rest != 0; rest = next) {
        next = strchr(rest, '\t');
        if (next != NULL) {
            *next++ = 0;
        }
        char *value = strchr(rest, '=');
        CHECK(value != NULL && to->count < MOST_WORDS);
        *value = 0;
        to->words[to->count].path = rest;
        to->words[to->count++].value = value + 1;
    }
}

// The value at a path, or NULL.
static const char *find(const line *from, const char *format, ...) {
    char path[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    for (int index = 0; index < from->count; index++) {
        if (strcmp(from->words[index].path, path) == 0) {
            return from->words[index].value;
        }
    }
    return NULL;
}

static const char *text_at(const line *from, const char *path) {
    const char *text = find(from, "%s", path);
    CHECK(text != NULL);
    return text;
}

static uint64_t number(const char *text) {
    CHECK(text != NULL);
    return strtoull(text, NULL, 10);
}

static uint32_t small(const char *text) {
    return (uint32_t)number(text);
}

// The rest of a path after a prefix, or NULL.
static const char *after(const char *path, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(path, prefix, length) == 0 ? path + length : NULL;
}

// ---- definitions ----

static uint32_t one_of(const char *found, const char *const *words) {
    for (uint32_t index = 0; words[index] != NULL; index++) {
        if (strcmp(found, words[index]) == 0) {
            return index;
        }
    }
    fprintf(stderr, "%s is not known\n", found);
    exit(1);
}

static int read_limits(const line *from, const char *prefix, limitset_limit *limits) {
    static const char *const kinds[] = {"", "rate", "call", "resource", NULL};
    static const char *const algorithms[] = {"",       "token_bucket", "leaky_bucket", "sliding_window",
                                             "fixed_window", "gcra",         NULL};
    int count = 0;
    for (const char *kind; (kind = find(from, "%slimits.%d.kind", prefix, count)) != NULL; count++) {
        CHECK(count < MOST_LIMITS);
        limitset_limit *limit = &limits[count];
        *limit = limitset_call(number(find(from, "%slimits.%d.capacity", prefix, count)), 0);
        limit->kind = one_of(kind, kinds);
        limit->key = find(from, "%slimits.%d.key", prefix, count);
        const char *rest;
        if ((rest = find(from, "%slimits.%d.window_ns", prefix, count)) != NULL) {
            limit->window_ns = number(rest);
        }
        if ((rest = find(from, "%slimits.%d.algorithm", prefix, count)) != NULL) {
            limit->algorithm = one_of(rest, algorithms);
        }
        if ((rest = find(from, "%slimits.%d.burst", prefix, count)) != NULL) {
            limit->burst = number(rest);
        }
        if ((rest = find(from, "%slimits.%d.resolution", prefix, count)) != NULL) {
            limit->resolution = small(rest);
        }
        limit->report_optional = find(from, "%slimits.%d.report", prefix, count) != NULL;
    }
    return count;
}

static limitset_status open_one(const char *prefix, limitset_set **set) {
    limitset_builder *builder;
    limitset_limit limits[MOST_LIMITS];
    limitset_settings settings = limitset_settings_usual();
    char path[256];
    OK(limitset_builder_new(&builder));
    int count = read_limits(&definition, prefix, limits);
    for (int index = 0; index < count; index++) {
        OK(limitset_builder_limit(builder, &limits[index]));
    }
    snprintf(path, sizeof path, "%sconfig.", prefix);
    for (int index = 0; index < definition.count; index++) {
        const char *key = after(definition.words[index].path, path);
        if (key != NULL) {
            OK(limitset_builder_config(builder, key, definition.words[index].value));
        }
    }
    settings.clock = LIMITSET_MANUAL;
    settings.any_order = find(&definition, "%sorder", prefix) != NULL;
    const char *rest;
    if ((rest = find(&definition, "%swaiters", prefix)) != NULL) {
        settings.waiters = small(rest);
    }
    OK(limitset_builder_settings(builder, &settings));
    if ((rest = find(&definition, "%scooldown.first_ns", prefix)) != NULL) {
        limitset_cooldown cooldown = limitset_cooldown_usual();
        cooldown.first_ns = number(rest);
        cooldown.longest_ns = number(find(&definition, "%scooldown.longest_ns", prefix));
        cooldown.factor = atof(find(&definition, "%scooldown.factor", prefix));
        cooldown.jitter = atof(find(&definition, "%scooldown.jitter", prefix));
        cooldown.slow_admissions = small(find(&definition, "%scooldown.slow_admissions", prefix));
        cooldown.first_gap_ns = number(find(&definition, "%scooldown.first_gap_ns", prefix));
        cooldown.last_gap_ns = number(find(&definition, "%scooldown.last_gap_ns", prefix));
        OK(limitset_builder_cooldown(builder, &cooldown));
    }
    if ((rest = find(&definition, "%squeue.items", prefix)) != NULL) {
        limitset_queue queue =
            limitset_queue_of(small(rest), small(find(&definition, "%squeue.item_bytes", prefix)));
        if ((rest = find(&definition, "%squeue.result_bytes", prefix)) != NULL) {
            queue.result_bytes = small(rest);
        }
        if ((rest = find(&definition, "%squeue.attempts", prefix)) != NULL) {
            queue.attempts = small(rest);
        }
        if ((rest = find(&definition, "%squeue.rate_limits", prefix)) != NULL) {
            queue.rate_limits = small(rest);
        }
        OK(limitset_builder_queue(builder, &queue));
    }
    limitset_status answer = limitset_open_private(builder, set);
    OK(limitset_builder_free(builder));
    return answer;
}

static limitset_status open_all(void) {
    static const char *const balances[] = {"round_robin", "random", "first_free", NULL};
    const char *balance = find(&definition, "pool.balance");
    if (balance == NULL) {
        limitset_status answer = open_one("set.", &sets[0]);
        set_count = answer == LIMITSET_OK;
        return answer;
    }
    for (; find(&definition, "pool.sets.%d.limits.0.kind", set_count) != NULL; set_count++) {
        char prefix[64];
        CHECK(set_count < MOST_SETS);
        snprintf(prefix, sizeof prefix, "pool.sets.%d.", set_count);
        OK(open_one(prefix, &sets[set_count]));
    }
    const limitset_set *all[MOST_SETS];
    for (int index = 0; index < set_count; index++) {
        all[index] = sets[index];
    }
    const char *worker = find(&definition, "pool.worker");
    return limitset_pool_new(all, (size_t)set_count, one_of(balance, balances),
                             worker == NULL ? 0 : (size_t)number(worker), &pool);
}

// ---- answers ----

static const char *word_of(limitset_status status) {
    switch (status) {
    case LIMITSET_OK: return "ok";
    case LIMITSET_DENIED: return "denied";
    case LIMITSET_QUEUED: return "queued";
    case LIMITSET_COOLING_DOWN: return "cooling_down";
    case LIMITSET_QUEUE_FULL: return "queue_full";
    case LIMITSET_TIMED_OUT: return "timed_out";
    case LIMITSET_NEVER: return "never";
    case LIMITSET_BAD_REQUEST: return "bad_request";
    case LIMITSET_REMOVED: return "removed";
    case LIMITSET_NOT_REQUESTED: return "not_requested";
    case LIMITSET_ABOVE_REQUESTED: return "above_requested";
    case LIMITSET_ABOVE_CHARGED: return "above_charged";
    case LIMITSET_PERMITS: return "permits";
    case LIMITSET_TOO_MUCH: return "too_much";
    case LIMITSET_UNREPORTED: return "unreported";
    case LIMITSET_SPENT: return "spent";
    case LIMITSET_BAD_LIMIT: return "bad_limit";
    case LIMITSET_BAD_SETTING: return "bad_setting";
    case LIMITSET_UNKNOWN_KEY: return "unknown_key";
    case LIMITSET_NOT_NUMBERS: return "not_numbers";
    case LIMITSET_NO_QUEUE: return "no_queue";
    case LIMITSET_TOO_LONG: return "too_long";
    case LIMITSET_CLOSED: return "closed";
    case LIMITSET_FULL: return "full";
    case LIMITSET_EMPTY: return "empty";
    case LIMITSET_OVER: return "over";
    default:
        fprintf(stderr, "status %d: %s\n", (int)status, limitset_last_error());
        exit(1);
    }
}

static void begin(limitset_status status) {
    printf("{\"status\":\"%s\"", word_of(status));
}

static void add_number(const char *name, uint64_t value) {
    printf(",\"%s\":%llu", name, (unsigned long long)value);
}

// -1 is none.
static void add_time(const char *name, int64_t value) {
    if (value == -1) {
        printf(",\"%s\":null", name);
    } else {
        printf(",\"%s\":%lld", name, (long long)value);
    }
}

static void add_text(const char *name, const char *text, size_t bytes) {
    printf(",\"%s\":\"", name);
    for (size_t index = 0; index < bytes; index++) {
        printf(text[index] == '"' || text[index] == '\\' ? "\\%c" : "%c", text[index]);
    }
    printf("\"");
}

static void add_truth(const char *name, uint64_t value) {
    printf(",\"%s\":%s", name, value ? "true" : "false");
}

static void end(void) {
    printf("}\n");
    fflush(stdout);
}

static void answer_status(limitset_status status) {
    begin(status);
    end();
}

static void add_statuses(const limitset_denial *denial) {
    printf(",\"limits\":{");
    for (uint32_t index = 0; index < denial->limits_written; index++) {
        const limitset_limit_status *it = &denial->limits[index];
        printf("%s\"%s\":{\"available\":%lld", index ? "," : "", it->key, (long long)it->available);
        add_number("requested", it->requested);
        add_number("most", it->most);
        add_truth("passed", it->passed);
        add_time("retry_after_ns", it->retry_after_ns);
        printf("}");
    }
    printf("}");
}

static void answer_refused(limitset_status status, const limitset_denial *denial) {
    begin(status);
    // A bad request is reported before the struct is filled.
    if (denial->status == (int)status) {
        add_time("retry_after_ns", denial->retry_after_ns);
    }
    if (status == LIMITSET_DENIED || status == LIMITSET_TIMED_OUT) {
        add_text("bottleneck", denial->bottleneck, strlen(denial->bottleneck));
        add_statuses(denial);
    }
    if (status == LIMITSET_QUEUED || status == LIMITSET_TIMED_OUT) {
        add_number("ahead", denial->ahead);
    }
    if (status == LIMITSET_NEVER) {
        add_text("key", denial->bottleneck, strlen(denial->bottleneck));
        add_number("requested", denial->requested);
        add_number("most", denial->most);
    }
    if (status == LIMITSET_QUEUE_FULL) {
        add_number("waiters", denial->most);
    }
    end();
}

static limitset_stats read_stats(const limitset_set *set, limitset_limit_stats *limits) {
    limitset_stats stats;
    limitset_stats_init(&stats);
    stats.limits = limits;
    stats.limits_room = MOST_LIMITS;
    OK(limitset_read_stats(set, &stats));
    return stats;
}

static void answer_granted(limitset_held held) {
    limitset_held_info info;
    limitset_held_info_init(&info);
    OK(limitset_read_held(held, &info));
    int index = info.pool_index < 0 ? 0 : (int)info.pool_index;
    limitset_limit_stats limits[MOST_LIMITS];
    limitset_stats stats = read_stats(sets[index], limits);
    begin(LIMITSET_OK);
    add_truth("enforced", info.is_enforced);
    add_time("pool_index", info.pool_index);
    printf(",\"charged\":{\"\":null");
    for (uint32_t limit = 0; limit < stats.limits_count; limit++) {
        uint64_t amount;
        if (limitset_charged(held, limits[limit].key, &amount) == LIMITSET_OK) {
            add_number(limits[limit].key, amount);
        }
    }
    printf("},\"config\":{\"\":null");
    char prefix[64];
    if (pool == NULL) {
        snprintf(prefix, sizeof prefix, "set.config.");
    } else {
        snprintf(prefix, sizeof prefix, "pool.sets.%d.config.", index);
    }
    for (int entry = 0; entry < definition.count; entry++) {
        const char *key = after(definition.words[entry].path, prefix);
        char value[64];
        if (key != NULL) {
            OK(limitset_held_config(held, key, value, sizeof value, NULL));
            add_text(key, value, strlen(value));
        }
    }
    printf("}");
    end();
}

static void answer_pause(limitset_status status, const limitset_pause_info *pause) {
    begin(status);
    add_time("remaining_ns", pause->remaining_ns);
    add_number("generation", pause->generation);
    add_truth("absorbed", pause->absorbed);
    end();
}

static void answer_stats(const limitset_set *set) {
    limitset_limit_stats limits[MOST_LIMITS];
    limitset_stats stats = read_stats(set, limits);
    begin(LIMITSET_OK);
    add_number("waiters", stats.waiters);
    printf(",\"limits\":{");
    for (uint32_t index = 0; index < stats.limits_count; index++) {
        const limitset_limit_stats *it = &limits[index];
        printf("%s\"%s\":{\"capacity\":%llu", index ? "," : "", it->key, (unsigned long long)it->capacity);
        add_time("window_ns", it->window_ns);
        add_number("burst", it->burst);
        add_number("available", it->available);
        add_number("in_use", it->in_use);
        add_number("debt", it->debt);
        add_number("waiting", it->waiting);
        add_number("granted", it->granted);
        add_number("denied", it->denied);
        add_number("refunded", it->refunded);
        add_number("unreported", it->unreported);
        add_number("consumed", it->consumed);
        add_number("revision", it->revision);
        printf("}");
    }
    printf("},\"cooldown\":{\"generation\":%llu", (unsigned long long)stats.cooldown.generation);
    add_time("remaining_ns", stats.cooldown.remaining_ns);
    add_time("next_admission_ns", stats.cooldown.next_admission_ns);
    add_number("consecutive", stats.cooldown.consecutive);
    add_number("participants", stats.cooldown.participants);
    add_number("absorbed", stats.cooldown.absorbed);
    add_number("slow_admissions", stats.cooldown.slow_admissions);
    const limitset_queue_stats *queue = &stats.queue;
    printf("},\"queue\":{\"capacity\":%llu", (unsigned long long)queue->capacity);
    add_number("ready", queue->ready);
    add_number("parked", queue->parked);
    add_number("delayed", queue->delayed);
    add_number("leased", queue->leased);
    add_number("results", queue->results);
    add_number("dead_letters", queue->dead_letters);
    add_truth("is_closed", queue->is_closed);
    add_number("pushed", queue->pushed);
    add_number("taken", queue->taken);
    add_number("done", queue->done);
    add_number("retried", queue->retried);
    add_number("rate_limited", queue->rate_limited);
    add_number("redistributed", queue->redistributed);
    add_number("returned", queue->returned);
    add_number("dead_lettered", queue->dead_lettered);
    printf("}");
    end();
}

static void answer_pool(void) {
    limitset_pool_stats stats[MOST_SETS];
    size_t count;
    OK(limitset_read_pool(pool, stats, MOST_SETS, &count));
    begin(LIMITSET_OK);
    printf(",\"sets\":[");
    for (size_t index = 0; index < count; index++) {
        printf("%s{\"granted\":%llu", index ? "," : "", (unsigned long long)stats[index].granted);
        add_number("refused", stats[index].refused);
        add_number("skipped", stats[index].skipped);
        printf("}");
    }
    printf("]");
    end();
}

static void answer_item(const limitset_item_info *info, int is_finished) {
    static const char *const reasons[] = {NULL, "attempts", "rate_limits", "given_up"};
    begin(LIMITSET_OK);
    add_number("id", info->id);
    add_text("payload", (const char *)info->payload, info->payload_bytes);
    add_number("attempts", info->attempts);
    add_number("rate_limits", info->rate_limits);
    if (is_finished) {
        add_text("result", (const char *)info->result, info->result_bytes);
        if (reasons[info->reason] != NULL) {
            add_text("reason", reasons[info->reason], strlen(reasons[info->reason]));
        }
    }
    end();
}

// ---- steps ----

static thing *named(const char *name) {
    for (int index = 0; index < MOST_NAMES; index++) {
        if (strcmp(things[index].name, name) == 0) {
            return &things[index];
        }
    }
    fprintf(stderr, "nothing has the name %s\n", name);
    exit(1);
}

// A place for a name; the former object of that name is forgotten.
static thing *place(const char *name, what kind) {
    thing *free_place = NULL;
    for (int index = 0; index < MOST_NAMES; index++) {
        if (strcmp(things[index].name, name) == 0) {
            free_place = &things[index];
            break;
        }
        if (things[index].name[0] == 0 && free_place == NULL) {
            free_place = &things[index];
        }
    }
    CHECK(free_place != NULL && strlen(name) < KEY_ROOM);
    strcpy(free_place->name, name);
    free_place->kind = kind;
    return free_place;
}

static limitset_set *set_of(const line *step) {
    const char *index = find(step, "set");
    return sets[index == NULL ? 0 : number(index)];
}

static size_t amounts_of(const line *step, limitset_amount *amounts) {
    size_t count = 0;
    for (int index = 0; index < step->count; index++) {
        const char *key = after(step->words[index].path, "request.");
        if (key != NULL) {
            amounts[count].key = key;
            amounts[count++].amount = number(step->words[index].value);
        }
    }
    return count;
}

static limitset_status make_request(const line *step, limitset_request **request) {
    limitset_amount amounts[MOST_LIMITS];
    size_t count = amounts_of(step, amounts);
    const char *label = find(step, "label");
    if (pool != NULL && find(step, "set") == NULL) {
        return limitset_pool_request_new(pool, amounts, count, label, request);
    }
    return limitset_request_new(set_of(step), amounts, count, label, request);
}

static int64_t timeout_of(const line *step) {
    const char *timeout = find(step, "timeout_ns");
    return timeout == NULL ? LIMITSET_FOREVER : (int64_t)number(timeout);
}

static int64_t retry_after_of(const line *step) {
    const char *time = find(step, "retry_after_ns");
    return time == NULL ? -1 : (int64_t)number(time);
}

static void init_denial(limitset_denial *denial, limitset_limit_status *statuses) {
    limitset_denial_init(denial);
    denial->limits = statuses;
    denial->limits_room = MOST_LIMITS;
}

static void acquire(const line *step, int waits) {
    limitset_amount amounts[MOST_LIMITS];
    limitset_limit_status statuses[MOST_LIMITS];
    limitset_denial denial;
    limitset_held held = {0};
    limitset_status status;
    size_t count = amounts_of(step, amounts);
    int64_t timeout = timeout_of(step);
    int is_pool = pool != NULL && find(step, "set") == NULL;
    init_denial(&denial, statuses);
    if (find(step, "resolved") != NULL) {
        limitset_request *request;
        status = make_request(step, &request);
        if (status == LIMITSET_OK) {
            status = waits ? limitset_acquire(request, timeout, NULL, &held, &denial)
                           : limitset_try_acquire(request, &held, &denial);
            OK(limitset_request_free(request));
        }
    } else if (is_pool) {
        status = waits ? limitset_pool_acquire_amounts(pool, amounts, count, timeout, NULL, &held, &denial)
                       : limitset_pool_try_acquire_amounts(pool, amounts, count, &held, &denial);
    } else {
        status = waits ? limitset_acquire_amounts(set_of(step), amounts, count, timeout, NULL, &held, &denial)
                       : limitset_try_acquire_amounts(set_of(step), amounts, count, &held, &denial);
    }
    if (status != LIMITSET_OK) {
        answer_refused(status, &denial);
        return;
    }
    answer_granted(held);
    const char *name = find(step, "as");
    if (name != NULL) {
        place(name, HELD)->held = held;
    } else {
        OK(limitset_cancel(held));
    }
}

static void *wait_in_thread(void *argument) {
    thing *it = (thing *)argument;
    init_denial(&it->denial, it->statuses);
    it->answer = limitset_acquire(it->request, it->timeout_ns, NULL, &it->held, &it->denial);
    return NULL;
}

static void start(const line *step) {
    limitset_set *set = set_of(step);
    uint64_t before = waiters_of(set);
    thing *it = place(text_at(step, "as"), WAITER);
    it->timeout_ns = timeout_of(step);
    OK(make_request(step, &it->request));
    CHECK(pthread_create(&it->thread, NULL, wait_in_thread, it) == 0);
    until_waiters(set, before + 1);
    answer_status(LIMITSET_OK);
}

static void finish(const line *step) {
    thing *it = named(text_at(step, "of"));
    CHECK(it->kind == WAITER && pthread_join(it->thread, NULL) == 0);
    OK(limitset_request_free(it->request));
    it->kind = HELD;
    if (it->answer == LIMITSET_OK) {
        answer_granted(it->held);
    } else {
        answer_refused(it->answer, &it->denial);
    }
}

static void look(const line *step, int charges) {
    limitset_limit_status statuses[MOST_LIMITS];
    limitset_denial denial;
    limitset_request *request;
    uint32_t is_enforced = 0;
    init_denial(&denial, statuses);
    limitset_status status = make_request(step, &request);
    if (status == LIMITSET_OK) {
        status = charges ? limitset_try_charge(request, &is_enforced, &denial) : limitset_check(request, &denial);
        OK(limitset_request_free(request));
    }
    if (status != LIMITSET_OK) {
        answer_refused(status, &denial);
        return;
    }
    begin(status);
    if (charges) {
        add_truth("enforced", is_enforced);
    } else {
        add_statuses(&denial);
    }
    end();
}

static void report(const line *step, const char *verb) {
    limitset_held held = named(text_at(step, "of"))->held;
    const char *key = text_at(step, "key");
    uint64_t returned = 0, charged;
    limitset_status status;
    if (strcmp(verb, "update") == 0) {
        status = limitset_update(held, key, number(find(step, "used")), &returned);
    } else if (strcmp(verb, "adjust") == 0) {
        status = limitset_adjust(held, key, strtoll(text_at(step, "delta"), NULL, 10), &returned);
    } else {
        status = limitset_settle(held, key, number(find(step, "actual")), &returned);
    }
    begin(status);
    if (status == LIMITSET_OK) {
        add_number("returned", returned);
    }
    if (limitset_charged(held, key, &charged) == LIMITSET_OK) {
        add_number("charged", charged);
    }
    end();
}

static void acquire_more(const line *step) {
    limitset_amount amounts[MOST_LIMITS];
    limitset_limit_status statuses[MOST_LIMITS];
    limitset_denial denial;
    limitset_held held = named(text_at(step, "of"))->held;
    init_denial(&denial, statuses);
    limitset_status status = limitset_acquire_more(held, amounts, amounts_of(step, amounts), &denial);
    if (status == LIMITSET_OK) {
        answer_granted(held);
    } else {
        answer_refused(status, &denial);
    }
}

static void drop(const line *step) {
    thing *it = named(text_at(step, "of"));
    if (it->kind == HELD) {
        // Dropping an acquisition does not return the error of a missing report.
        limitset_status status = limitset_release(it->held);
        CHECK(status == LIMITSET_OK || status == LIMITSET_UNREPORTED);
    } else if (it->kind == ITEM) {
        OK(limitset_abandon(it->item));
    } else {
        OK(limitset_put_back(it->finished));
    }
    it->name[0] = 0;
    answer_status(LIMITSET_OK);
}

static void take(const line *step) {
    limitset_item item;
    limitset_item_info info;
    limitset_status status = limitset_take(set_of(step), 0, NULL, &item);
    if (status != LIMITSET_OK) {
        answer_status(status);
        return;
    }
    limitset_item_info_init(&info);
    OK(limitset_read_item(item, &info));
    answer_item(&info, 0);
    const char *name = find(step, "as");
    if (name != NULL) {
        place(name, ITEM)->item = item;
    } else {
        OK(limitset_abandon(item));
    }
}

static void collect(const line *step, int is_dead) {
    limitset_finished finished;
    limitset_item_info info;
    limitset_status status = is_dead ? limitset_collect_dead(set_of(step), &finished)
                                     : limitset_collect(set_of(step), 0, NULL, &finished);
    if (status != LIMITSET_OK) {
        answer_status(status);
        return;
    }
    limitset_item_info_init(&info);
    OK(limitset_read_finished(finished, &info));
    answer_item(&info, 1);
    const char *name = find(step, "as");
    if (name != NULL) {
        place(name, FINISHED)->finished = finished;
    } else {
        OK(limitset_put_back(finished));
    }
}

static void do_step(const line *step) {
    const char *verb = text_at(step, "do");
    const char *of = find(step, "of");
    limitset_set *set = set_of(step);
    limitset_pause_info pause;
    limitset_pause_info_init(&pause);
#define DO(name) else if (strcmp(verb, name) == 0)
    if (strcmp(verb, "try_acquire") == 0) {
        acquire(step, 0);
    }
    DO("acquire") { acquire(step, 1); }
    DO("start") { start(step); }
    DO("finish") { finish(step); }
    DO("check") { look(step, 0); }
    DO("charge") { look(step, 1); }
    DO("acquire_more") { acquire_more(step); }
    DO("update") { report(step, verb); }
    DO("adjust") { report(step, verb); }
    DO("settle") { report(step, verb); }
    DO("release") { answer_status(limitset_release(named(of)->held)); }
    DO("cancel") { answer_status(limitset_cancel(named(of)->held)); }
    DO("rate_limited") {
        limitset_status status = limitset_rate_limited(named(of)->held, retry_after_of(step), &pause);
        answer_pause(status, &pause);
    }
    DO("pause") {
        limitset_status status = limitset_pause(set, number(find(step, "ns")), &pause);
        answer_pause(status, &pause);
    }
    DO("resume") {
        uint32_t was_paused = 0;
        begin(limitset_resume(set, &was_paused));
        add_truth("was_paused", was_paused);
        end();
    }
    DO("advance") { answer_status(limitset_advance(set, number(find(step, "ns")))); }
    DO("reconfigure") {
        limitset_limit limits[MOST_LIMITS];
        int count = read_limits(step, "", limits);
        answer_status(limitset_reconfigure(set, limits, (size_t)count));
    }
    DO("reset") { answer_status(limitset_reset(set)); }
    DO("remove") { answer_status(limitset_remove(set)); }
    DO("stats") { answer_stats(set); }
    DO("pool_stats") { answer_pool(); }
    DO("drop") { drop(step); }
    DO("push") {
        const char *payload = text_at(step, "payload");
        uint64_t id = number(find(step, "id"));
        answer_status(limitset_push(set, id, (const uint8_t *)payload, strlen(payload), 0, NULL));
    }
    DO("take") { take(step); }
    DO("done") {
        const char *result = find(step, "result");
        size_t bytes = result == NULL ? 0 : strlen(result);
        answer_status(limitset_done(named(of)->item, (const uint8_t *)result, bytes));
    }
    DO("retry") { answer_status(limitset_retry(named(of)->item, number(find(step, "ns")))); }
    DO("give_back") { answer_status(limitset_give_back(named(of)->item)); }
    DO("dead_letter") {
        const char *why = text_at(step, "why");
        answer_status(limitset_dead_letter(named(of)->item, (const uint8_t *)why, strlen(why)));
    }
    DO("park") {
        limitset_held held = named(text_at(step, "held"))->held;
        limitset_status status = limitset_park(named(of)->item, held, retry_after_of(step), &pause);
        answer_pause(status, &pause);
    }
    DO("collect") { collect(step, 0); }
    DO("collect_dead") { collect(step, 1); }
    DO("forget") { answer_status(limitset_forget(named(of)->finished)); }
    DO("revive") { answer_status(limitset_revive(named(of)->finished)); }
    DO("close") { answer_status(limitset_close(set)); }
    else {
        fprintf(stderr, "unknown step %s\n", verb);
        exit(1);
    }
}

// Releases all that a scenario has left.
static void end_scenario(void) {
    for (int index = 0; index < MOST_NAMES; index++) {
        thing *it = &things[index];
        // A step has ended most of them, and items of a removed set cannot be returned.
        if (it->name[0] != 0 && it->kind == HELD) {
            limitset_release(it->held);
        } else if (it->name[0] != 0 && it->kind == ITEM) {
            limitset_abandon(it->item);
        } else if (it->name[0] != 0 && it->kind == FINISHED) {
            limitset_put_back(it->finished);
        }
        it->name[0] = 0;
    }
    for (int index = 0; index < set_count; index++) {
        OK(limitset_set_free(sets[index]));
        sets[index] = NULL;
    }
    OK(limitset_pool_free(pool));
    pool = NULL;
    set_count = 0;
}

// A line with a name begins another scenario.
int main(void) {
    static char opening[65536], text[65536];
    static line step;
    alarm(300); // Tells a hang from slowness.
    while (fgets(text, sizeof text, stdin) != NULL) {
        text[strcspn(text, "\n")] = 0;
        if (after(text, "name=") != NULL) {
            end_scenario();
            strcpy(opening, text);
            split(opening, &definition);
            answer_status(open_all());
        } else {
            split(text, &step);
            do_step(&step);
        }
    }
    end_scenario();
    return 0;
}
