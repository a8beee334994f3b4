// These functions are inline because they record the struct sizes that the program is compiled with.

// A rate limit: `capacity` units per `window_ns`; each request names its amount. Its use has to be reported before
// release, unless report_optional is set.
static inline limitset_limit limitset_rate(const char *key, uint64_t capacity, uint64_t window_ns) {
    limitset_limit limit;
    memset(&limit, 0, sizeof limit);
    limit.struct_size = sizeof limit;
    limit.kind = LIMITSET_RATE;
    limit.key = key;
    limit.capacity = capacity;
    limit.window_ns = window_ns;
    return limit;
}

// A call limit: `capacity` calls per `window_ns`; each request takes one unless it names another amount. Its key is
// "call_count"; set another key for a second call limit in one set.
static inline limitset_limit limitset_call(uint64_t capacity, uint64_t window_ns) {
    limitset_limit limit = limitset_rate(NULL, capacity, window_ns);
    limit.kind = LIMITSET_CALL;
    return limit;
}

// A resource limit: `capacity` permits that are held and returned; each request holds one unless it names another
// amount.
static inline limitset_limit limitset_resource(const char *key, uint64_t capacity) {
    limitset_limit limit = limitset_rate(key, capacity, 0);
    limit.kind = LIMITSET_RESOURCE;
    return limit;
}

// The default settings.
static inline limitset_settings limitset_settings_usual(void) {
    limitset_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.struct_size = sizeof settings;
    settings.group = -1;
    return settings;
}

// The default cooldown: 5 seconds, twice as long each time, at most 10 minutes, up to a tenth longer at random; then 20
// admissions with gaps from half a second down to 50 milliseconds.
static inline limitset_cooldown limitset_cooldown_usual(void) {
    limitset_cooldown cooldown;
    memset(&cooldown, 0, sizeof cooldown);
    cooldown.struct_size = sizeof cooldown;
    cooldown.first_ns = UINT64_C(5000000000);
    cooldown.longest_ns = UINT64_C(600000000000);
    cooldown.factor = 2;
    cooldown.jitter = 0.1;
    cooldown.slow_admissions = 20;
    cooldown.first_gap_ns = 500000000;
    cooldown.last_gap_ns = 50000000;
    return cooldown;
}

// A work queue with room for `items` items of at most `item_bytes` bytes each; a result may be as long as an item.
static inline limitset_queue limitset_queue_of(uint32_t items, uint32_t item_bytes) {
    limitset_queue queue;
    memset(&queue, 0, sizeof queue);
    queue.struct_size = sizeof queue;
    queue.items = items;
    queue.item_bytes = item_bytes;
    queue.result_bytes = item_bytes;
    return queue;
}

// Initialize structs for answers.

static inline void limitset_denial_init(limitset_denial *denial) {
    memset(denial, 0, sizeof *denial);
    denial->struct_size = sizeof *denial;
}

static inline void limitset_stats_init(limitset_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->struct_size = sizeof *stats;
}

static inline void limitset_held_info_init(limitset_held_info *info) {
    memset(info, 0, sizeof *info);
    info->struct_size = sizeof *info;
}

static inline void limitset_pause_info_init(limitset_pause_info *pause) {
    memset(pause, 0, sizeof *pause);
    pause->struct_size = sizeof *pause;
}

static inline void limitset_item_info_init(limitset_item_info *info) {
    memset(info, 0, sizeof *info);
    info->struct_size = sizeof *info;
}
