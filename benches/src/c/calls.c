// The C side of the bench "c": one acquisition and its release, by a request that was resolved beforehand. It
// is built as a separate library, so that it calls limitset as any C program does: through the shared
// library.
#include <limitset.h>
#include <stdlib.h>

// Attaches to a set and resolves a request for these amounts; null if that fails.
limitset_request *bench_open(const char *name, const limitset_amount *amounts, size_t count) {
    limitset_set *set;
    limitset_request *request = NULL;
    if (limitset_attach(name, &set) != LIMITSET_OK) {
        return NULL;
    }
    if (limitset_request_new(set, amounts, count, NULL, &request) != LIMITSET_OK) {
        request = NULL;
    }
    limitset_set_free(set);
    return request;
}

void bench_take_and_give(const limitset_request *request) {
    limitset_held held;
    // A failed call would be fast, and must not count.
    if (limitset_try_acquire(request, &held, NULL) != LIMITSET_OK || limitset_release(held) != LIMITSET_OK) {
        abort();
    }
}

void bench_close(limitset_request *request) {
    limitset_request_free(request);
}
