// An acquisition and its release allocate nothing. The library is the shared one, so its calls of malloc reach the
// functions of this file.
#include "check.h"

#ifdef __cplusplus
extern "C" {
#endif
// The functions of glibc, under names that this file does not replace.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static long allocations;

void *malloc(size_t size) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? 12 : 0;
}
#ifdef __cplusplus
}
#endif

static long count(void) {
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

static void an_acquisition_and_its_end_allocate_nothing(void) {
    limitset_limit limits[3];
    limits[0] = limitset_call(1000000, SECOND);
    limits[1] = limitset_rate("tokens", 1000000, SECOND);
    limits[2] = limitset_resource("connections", 8);
    limitset_set *set = open_set(limits, 3, LIMITSET_MANUAL);
    limitset_request *request = request_of(set, "tokens", 10);
    long before = 0;
    for (int round = 0; round < 120; round++) {
        if (round == 20) {
            before = count();
            CHECK(before > 0); // The functions of this file are in use.
        }
        limitset_held first, second;
        OK(limitset_try_acquire(request, &first, NULL));
        OK(limitset_acquire(request, LIMITSET_FOREVER, NULL, &second, NULL));
        OK(limitset_settle(first, "tokens", 5, NULL));
        OK(limitset_settle(second, "tokens", 15, NULL));
        OK(limitset_release(first));
        OK(limitset_release(second));
        OK(limitset_try_acquire(request, &first, NULL));
        OK(limitset_cancel(first));
    }
    CHECK(count() == before);
    OK(limitset_request_free(request));
    OK(limitset_set_free(set));
}

int main(int argument_count, char **arguments) {
    const test tests[] = {
        {"an_acquisition_and_its_end_allocate_nothing", an_acquisition_and_its_end_allocate_nothing},
        {NULL, NULL},
    };
    return run_tests(argument_count, arguments, tests);
}
