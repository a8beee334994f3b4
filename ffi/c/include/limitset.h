// limitset: limits that hold across processes. Rates, calls and resources, acquired together, all or none, by every
// process that opens the same name. There is no daemon and no server; a process may be killed at any instruction, and
// the others go on.
//
// This file is generated from the source of the library; do not edit it. docs/c.md explains how to build and install
// the library.
//
// Compile with `cc program.c $(pkg-config --cflags --libs limitset)`.
//
// EXAMPLE: four forked workers share one connection limit and one rate; one of them is killed while it holds a
// connection, and the others go on.
//
//     #include <limitset.h>
//     #include <signal.h>
//     #include <stdio.h>
//     #include <stdlib.h>
//     #include <sys/wait.h>
//     #include <unistd.h>
//
//     // Ends the program with the reason if a call fails.
//     static void must(limitset_status status, const char *what) {
//         if (status != LIMITSET_OK) {
//             fprintf(stderr, "%s: %s\n", what, limitset_last_error());
//             exit(1);
//         }
//     }
//
//     // Runs in a child. It uses the set and the request that the parent opened before the fork.
//     static void work(const limitset_request *request, int is_killed) {
//         for (int job = 0; job < 5; job++) {
//             limitset_held held;
//             must(limitset_acquire(request, LIMITSET_FOREVER, NULL, &held, NULL), "acquire");
//             if (is_killed && job == 2) {
//                 kill(getpid(), SIGKILL);                           // its connection returns
//             }
//             // ... make the request, count the tokens of the answer ...
//             must(limitset_settle(held, "tokens", 20, NULL), "settle");  // 80 of 100 back
//             must(limitset_release(held), "release");
//         }
//     }
//
//     int main(void) {
//         limitset_limit tokens = limitset_rate("tokens", 10000, 1000000000);  // per second
//         limitset_limit connections = limitset_resource("connections", 2);
//         limitset_builder *builder;
//         limitset_set *set;
//         limitset_request *request;
//         limitset_amount usual = { "tokens", 100 };                 // one connection comes along
//         must(limitset_builder_new(&builder), "describe");
//         must(limitset_builder_limit(builder, &tokens), "limit");
//         must(limitset_builder_limit(builder, &connections), "limit");
//         must(limitset_open_anonymous(builder, &set), "open");      // limitset_open(builder, "name", &set) for all
//         must(limitset_request_new(set, &usual, 1, NULL, &request), "request");
//         must(limitset_builder_free(builder), "free");
//
//         for (int worker = 0; worker < 4; worker++) {
//             pid_t child = fork();
//             if (child == 0) {
//                 work(request, worker == 0);
//                 _exit(0);
//             }
//             if (child < 0) {
//                 perror("fork");
//                 return 1;
//             }
//         }
//         while (wait(NULL) > 0) {
//         }
//
//         limitset_held held;
//         limitset_amount all = { "connections", 2 };
//         limitset_amount none = { "tokens", 0 };
//         limitset_amount both[2] = { all, none };
//         must(limitset_acquire_amounts(set, both, 2, 5000000000, NULL, &held, NULL), "all connections are back");
//         must(limitset_release(held), "release");
//         must(limitset_request_free(request), "free");
//         must(limitset_set_free(set), "free");
//         puts("done");
//         return 0;
//     }
//
// END OF THE EXAMPLE. ffi/c/examples/prefork.c is a server with an accept loop.
//
// OWNERSHIP
//
// * A handle that a function returns through a `limitset_xyz **` belongs to the caller, who frees it once. Handles
//   are numbers, not addresses: a call with a freed handle returns LIMITSET_SPENT, with an unknown one
//   LIMITSET_BAD_HANDLE.
// * A set may be freed before its requests, pools and acquisitions, which keep it open. A handle may be freed while
//   another thread is in a call with it; that call ends as usual. A thread keeps the request that it used last until
//   it acquires with another one, or ends: until then a process may stay attached to a set that it has freed.
// * An acquisition (limitset_held), an item (limitset_item) and a finished item (limitset_finished) are small values.
//   Copies are one acquisition or item, which ends once; after that a call with any copy returns LIMITSET_SPENT. A
//   thread keeps the memory of up to 64 ended acquisitions and allocates nothing while it can use these again, but
//   tables grow when more are held at one time than ever before.
// * While the process lives, only the program releases its acquisitions. When the process ends, for any reason, the
//   kernel reports it, and its permits return to the set.
// * The caller owns the texts and structs that it passes; they are not used after the call. Texts are UTF-8 and end
//   with a zero; names of sets may be any bytes. Keys have at most 64 bytes.
// * A pointer that is not null must point to a value of its type. Null returns LIMITSET_NULL, except where the
//   function says that it may be null.
// * A struct with a struct_size is initialized by the function of this header that has its name and `_init`, or by
//   one of limitset_rate(), limitset_call(), limitset_resource(), limitset_settings_usual(),
//   limitset_cooldown_usual() and limitset_queue_of(). A call with another size returns LIMITSET_BAD_STRUCT_SIZE and
//   does nothing.
//
// THREADS
//
// * All threads may use sets, pools and requests at one time. An acquisition, an item and a builder may be used by
//   any thread, one at a time; a second thread at the same moment gets LIMITSET_IN_USE, and its call does nothing.
// * limitset_last_error() returns the last error of the calling thread.
// * A signal does not end a wait. limitset_interrupt_raise() does; any thread may call it, also from a signal
//   handler. No other function of this header may be called from a signal handler.
//
// FORKS
//
// * Open before the fork, use after it: a child becomes a participant of its own at its first call, also after it has
//   dropped its privileges. Sets, pools and requests work in the child as in the parent. A set in private memory does
//   not: calls return LIMITSET_NOT_SHARED.
// * Acquisitions and items of the parent stay the parent's. In the child a call with one returns LIMITSET_FORKED and
//   changes nothing.
// * Any thread may fork, by libc's fork(): the locks of this library work in the child, whatever other threads were
//   doing.
// * After exec, open or attach again by name.
//
// TIME
//
// * All times are nanoseconds. A timeout of LIMITSET_FOREVER (-1) waits for ever. In results, -1 is "not known" or
//   "none".
//
// ERRORS
//
// * Every function returns a limitset_status, and 0 is success. limitset_last_error() has the message: what failed,
//   what was found, what to do. A call that failed has acquired, changed and opened nothing, unless its status says
//   otherwise.
//
//   | LIMITSET_… | after which call | what to do |
//   | --- | --- | --- |
//   | DENIED, QUEUED, COOLING_DOWN, TIMED_OUT | acquiring | retry; limitset_denial has the time |
//   | QUEUE_FULL | waiting | retry later, or create the set with more waiters |
//   | NEVER, BAD_REQUEST | acquiring | change the request: waiting cannot help |
//   | INTERRUPTED | waiting | the program raised the interrupt |
//   | UNAVAILABLE | all | a stopped process holds the lock, or the set is damaged: see the message |
//   | REMOVED | all | open the set again |
//   | NOT_SHARED, FORKED | in a child | open the set again; acquire again |
//   | BAD_LIMIT, BAD_SETTING, BAD_NAME | opening, reconfiguring | change the definition, or the name |
//   | DIFFERS, EXISTS, NOT_FOUND, UNUSABLE, PERMISSION | opening | another definition, name or user: see the message |
//   | BUSY, TOO_MANY_PARTICIPANTS, NO_SPACE, UNSUPPORTED, IO | opening | a problem of the system: see the message |
//   | UNKNOWN_KEY, NOT_NUMBERS, CLOCK_MOVES_ITSELF | changing a set | change the call |
//   | NOT_REQUESTED, ABOVE_REQUESTED, ABOVE_CHARGED, PERMITS, TOO_MUCH | reporting | change the report; still held |
//   | UNREPORTED | release | the acquisition is released; report with limitset_settle() before |
//   | EMPTY, FULL, OVER, CLOSED, TOO_LONG, NO_QUEUE | queues | wait; wait; stop; do not push; shorten; create a queue |
//   | NOT_HELD | queues | another program changed the segment; take another item |
//   | TOO_MANY_HANDLES | all | release or free some of the 16 million |
//   | SPENT, IN_USE, NULL, BAD_HANDLE, BAD_ARGUMENT, BAD_STRUCT_SIZE | all | a bug in the program |
//   | DEFECT | all | a bug in limitset: report it |
//   | OTHER | all | see the message |

#ifndef LIMITSET_H
#define LIMITSET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The version of the interface that this header describes; see limitset_abi_version().
#define LIMITSET_ABI_VERSION 1

// Waits for ever.
#define LIMITSET_FOREVER -1

// Room for a key and the zero at its end: keys have at most 64 bytes.
#define LIMITSET_KEY_ROOM 72

// The status that every function returns. 0 is success, every other number a reason of failure; limitset_last_error()
// has the message.
//
// Numbers never change; new ones may be added.
typedef enum {
  // Success.
  LIMITSET_OK = 0,
  // The limits do not allow the request now. limitset_denial has the status of every limit and the time to retry.
  LIMITSET_DENIED = 1,
  // Other requests wait for the same limits and came first.
  LIMITSET_QUEUED = 2,
  // The set is paused, after an answer of "too many requests" or by hand.
  LIMITSET_COOLING_DOWN = 3,
  // The wait queue has no free entry.
  LIMITSET_QUEUE_FULL = 4,
  // The timeout of a wait for limits, or at a work queue, has expired.
  LIMITSET_TIMED_OUT = 5,
  // The request exceeds the most that a limit ever grants: waiting cannot help.
  LIMITSET_NEVER = 6,
  // limitset_interrupt_raise() ended the wait.
  LIMITSET_INTERRUPTED = 7,
  // The request names an unknown limit, names one twice, or leaves out a rate.
  LIMITSET_BAD_REQUEST = 8,
  // The set cannot be asked: a stopped process holds its lock, it is damaged, or this process cannot enrol.
  LIMITSET_UNAVAILABLE = 20,
  // The set was removed. Open it again.
  LIMITSET_REMOVED = 21,
  // The set is private memory of the process that forked this one.
  LIMITSET_NOT_SHARED = 22,
  // The acquisition or item belongs to the process that forked this one, and cannot be used here.
  LIMITSET_FORKED = 23,
  // The handle was released, cancelled, finished or freed before.
  LIMITSET_SPENT = 30,
  // The acquisition has nothing of that limit.
  LIMITSET_NOT_REQUESTED = 31,
  // The report exceeds the requested amount: use limitset_settle() or limitset_adjust().
  LIMITSET_ABOVE_REQUESTED = 32,
  // The refund exceeds the charged amount.
  LIMITSET_ABOVE_CHARGED = 33,
  // A report cannot acquire permits: use limitset_acquire_more().
  LIMITSET_PERMITS = 34,
  // The amount exceeds the capacity of any limit.
  LIMITSET_TOO_MUCH = 35,
  // The acquisition was released without a report that was due.
  LIMITSET_UNREPORTED = 36,
  // Another thread uses the handle, which only one thread at a time may use.
  LIMITSET_IN_USE = 37,
  // A limit has a parameter out of range.
  LIMITSET_BAD_LIMIT = 50,
  // A setting is out of range.
  LIMITSET_BAD_SETTING = 51,
  // The set has no such limit.
  LIMITSET_UNKNOWN_KEY = 52,
  // The kind or the algorithm of a limit cannot change in place.
  LIMITSET_NOT_NUMBERS = 53,
  // Only a manual clock can be moved.
  LIMITSET_CLOCK_MOVES_ITSELF = 54,
  // The name breaks the rules for names.
  LIMITSET_BAD_NAME = 70,
  // No set has this name.
  LIMITSET_NOT_FOUND = 71,
  // A set of this name exists.
  LIMITSET_EXISTS = 72,
  // The set was declared differently.
  LIMITSET_DIFFERS = 73,
  // The file is not a set that this version can use.
  LIMITSET_UNUSABLE = 74,
  // This user lacks a permission, or the set belongs to another user.
  LIMITSET_PERMISSION = 75,
  // Another process has not finished opening the set.
  LIMITSET_BUSY = 76,
  // Living processes have all slots.
  LIMITSET_TOO_MANY_PARTICIPANTS = 77,
  // The file system is full.
  LIMITSET_NO_SPACE = 78,
  // The kernel is too old.
  LIMITSET_UNSUPPORTED = 79,
  // The system reported an error.
  LIMITSET_IO = 80,
  // The set was created without a queue.
  LIMITSET_NO_QUEUE = 90,
  // The bytes exceed the room for them.
  LIMITSET_TOO_LONG = 91,
  // The queue is closed: no item can be pushed.
  LIMITSET_CLOSED = 92,
  // The queue is full.
  LIMITSET_FULL = 93,
  // The queue has no item now.
  LIMITSET_EMPTY = 94,
  // The queue is closed and all its items are finished. Not an error: the end of a worker's loop.
  LIMITSET_OVER = 95,
  // This process no longer has the item: another program changed the segment.
  LIMITSET_NOT_HELD = 96,
  // A pointer is null that must not be.
  LIMITSET_NULL = 110,
  // No call has returned this handle.
  LIMITSET_BAD_HANDLE = 111,
  // An argument is invalid: a number out of range, a text that is not UTF-8, a misaligned pointer.
  LIMITSET_BAD_ARGUMENT = 112,
  // The struct_size of a struct is wrong: initialize it with the function of its name.
  LIMITSET_BAD_STRUCT_SIZE = 113,
  // Too many handles of this kind are open.
  LIMITSET_TOO_MANY_HANDLES = 114,
  // A defect in limitset. The set is as it was before the call.
  LIMITSET_DEFECT = 120,
  // An error that this version of the interface has no name for.
  LIMITSET_OTHER = 121,
} limitset_status;

// The `kind` of a limitset_limit.
typedef enum {
  // Units per time; each request names its amount: tokens, bytes, rows.
  LIMITSET_RATE = 1,
  // Calls per time: each request takes 1 unless it names another amount.
  LIMITSET_CALL = 2,
  // Permits that are held and returned: connections, slots. Each request holds 1 unless it names another amount.
  LIMITSET_RESOURCE = 3,
} limitset_kind;

// The `algorithm` of a limitset_limit: how a rate counts. docs/algorithms.md compares the algorithms.
typedef enum {
  // The default: the token bucket.
  LIMITSET_USUAL = 0,
  // Bursts up to the capacity (or the burst set), continuous refill.
  LIMITSET_TOKEN_BUCKET = 1,
  // A meter that leaks at a constant rate; strictly spaced with a burst of 1.
  LIMITSET_LEAKY_BUCKET = 2,
  // Never more than the capacity in any window of that length.
  LIMITSET_SLIDING_WINDOW = 3,
  // A counter per window, windows aligned to the Unix epoch.
  LIMITSET_FIXED_WINDOW = 4,
  // Generic cell rate algorithm.
  LIMITSET_GCRA = 5,
} limitset_algorithm;

// The clock of a set.
typedef enum {
  // CLOCK_MONOTONIC.
  LIMITSET_MONOTONIC = 0,
  // CLOCK_MONOTONIC_COARSE: faster to read, a few milliseconds behind.
  LIMITSET_COARSE = 1,
  // Stands still until limitset_advance() moves it: for tests.
  LIMITSET_MANUAL = 2,
} limitset_clock;

// How to open a set that exists and was declared differently.
typedef enum {
  // Answer LIMITSET_DIFFERS.
  LIMITSET_FAIL = 0,
  // Use the set as it is.
  LIMITSET_KEEP_CURRENT = 1,
  // Give the set the parameters of this program.
  LIMITSET_RECONFIGURE = 2,
} limitset_difference;

// The order in which the sets of a pool are asked.
typedef enum {
  // One after the other; each worker begins with another set.
  LIMITSET_ROUND_ROBIN = 0,
  // A random set.
  LIMITSET_RANDOM = 1,
  // The first set with room, from the worker's own position on; else the set that will have room first.
  LIMITSET_FIRST_FREE = 2,
} limitset_balance;

// The reason why a finished item is a dead letter.
typedef enum {
  // It is not a dead letter: it is done.
  LIMITSET_DONE = 0,
  // It was tried as often as the queue allows.
  LIMITSET_ATTEMPTS = 1,
  // It was answered "too many requests" as often as the queue allows.
  LIMITSET_RATE_LIMITS = 2,
  // A worker called limitset_dead_letter().
  LIMITSET_GIVEN_UP = 3,
} limitset_reason;

// The description of a set. One thread at a time may use it.
typedef struct limitset_builder limitset_builder;

// Several sets behind a balancer. All threads may use it.
typedef struct limitset_pool limitset_pool;

// A request to a set or pool, with its keys looked up. All threads may use it.
typedef struct limitset_request limitset_request;

// An open set. All threads may use it.
typedef struct limitset_set limitset_set;

// A limit. Initialize it with limitset_rate(), limitset_call() or limitset_resource(), then change its fields.
typedef struct {
  // sizeof(limitset_limit).
  size_t struct_size;
  // A limitset_kind.
  uint32_t kind;
  // A limitset_algorithm; not for resources.
  uint32_t algorithm;
  // The key by which requests name the limit: 1 to 64 bytes of UTF-8. Null for a call limit is "call_count".
  const char *key;
  // Units per window; permits of a resource limit.
  uint64_t capacity;
  // Length of the window; not for resources.
  uint64_t window_ns;
  // The most units at once; 0: as many as the capacity. Not for windows and resources.
  uint64_t burst;
  // Sub-windows of a sliding window; 0: the default of 10.
  uint32_t resolution;
  // For a rate: 1 if its use need not be reported before release.
  uint32_t report_optional;
} limitset_limit;

// Settings of a set and its segment that are seldom changed. Initialize with limitset_settings_usual().
typedef struct {
  // sizeof(limitset_settings).
  size_t struct_size;
  // A limitset_clock.
  uint32_t clock;
  // 1: the first waiter that fits is granted. 0: waiters are granted in order of arrival.
  uint32_t any_order;
  // 1: requests pass, marked as not enforced, when the set cannot be asked. 0: they are answered
  // LIMITSET_UNAVAILABLE.
  uint32_t allow_when_unavailable;
  // A limitset_difference.
  uint32_t on_difference;
  // How many processes can be attached at one time; 0: 256.
  uint32_t slots;
  // How many waiters there is room for; 0: 1024.
  uint32_t waiters;
  // Permissions of the file; 0: 0600.
  uint32_t mode;
  // 1: accept a set that belongs to another user.
  uint32_t any_owner;
  // Group of the file, for mode 0660; -1: not changed.
  int64_t group;
  // The lock timeout: how long to wait while a living process holds the set's lock; 0: 5 seconds.
  uint64_t patience_ns;
} limitset_settings;

// How a set pauses after "too many requests", and resumes. Initialize with limitset_cooldown_usual().
typedef struct {
  // sizeof(limitset_cooldown).
  size_t struct_size;
  // Length of the first pause.
  uint64_t first_ns;
  // The longest pause that follows from `factor`.
  uint64_t longest_ns;
  // How many times as long each further pause is until a request succeeds, from 1 to 1000.
  double factor;
  // The part by which a pause or gap may be longer at random, from 0 to 1.
  double jitter;
  // How many admissions are spaced after a pause; 0: none, all waiters go on at once.
  uint32_t slow_admissions;
  // 0.
  uint32_t reserved;
  // The first gap between spaced admissions.
  uint64_t first_gap_ns;
  // The last gap between spaced admissions.
  uint64_t last_gap_ns;
} limitset_cooldown;

// A work queue in the segment of a set. Initialize with limitset_queue_of().
typedef struct {
  // sizeof(limitset_queue).
  size_t struct_size;
  // How many items there is room for.
  uint32_t items;
  // Most bytes of an item.
  uint32_t item_bytes;
  // Most bytes of a result.
  uint32_t result_bytes;
  // How often an item is tried before it becomes a dead letter; 0: 3 times.
  uint32_t attempts;
  // How often an item may be answered "too many requests" before it becomes a dead letter; 0: 20 times.
  uint32_t rate_limits;
  // 0.
  uint32_t reserved;
} limitset_queue;

// An amount of a limit.
typedef struct {
  // The limit.
  const char *key;
  // The amount. 0: none of this limit.
  uint64_t amount;
} limitset_amount;

// A held acquisition: a small value that may be copied. All copies are one acquisition, which ends once. One thread at
// a time may use it.
typedef struct {
  // 0: nothing is held.
  uint64_t id;
} limitset_held;

// The status of one limit with respect to a request.
typedef struct {
  // The limit.
  char key[LIMITSET_KEY_ROOM];
  // The amount that was requested of it; 0: none.
  uint64_t requested;
  // The amount that it would grant now; negative is debt.
  int64_t available;
  // The most that it ever grants at once.
  uint64_t most;
  // The time until the request fits, if no other request comes first; -1: it fits now, or never, or the time depends
  // on other holders.
  int64_t retry_after_ns;
  // 1: the request fits.
  uint32_t passed;
  // 0.
  uint32_t reserved;
} limitset_limit_status;

// The reason why a request was denied. Initialize with limitset_denial_init(), and set `limits` and `limits_room` to
// get the status of every limit. It may be used again without being initialized again.
typedef struct {
  // sizeof(limitset_denial).
  size_t struct_size;
  // The answer: a limitset_status. LIMITSET_OK after a limitset_check() that found room.
  int32_t status;
  // How many entries of `limits` were written: the limits in the order of their definition, as many as there is
  // room for. Set by LIMITSET_DENIED, LIMITSET_TIMED_OUT, and a limitset_check() that found room.
  uint32_t limits_written;
  // The time until the request can succeed, if no other request comes first; -1: not known.
  int64_t retry_after_ns;
  // How many waiters for the same limits are ahead. Set by LIMITSET_QUEUED and LIMITSET_TIMED_OUT.
  uint64_t ahead;
  // The limit that takes longest to allow the request; empty if there is none. Set by LIMITSET_DENIED,
  // LIMITSET_TIMED_OUT and LIMITSET_NEVER.
  char bottleneck[LIMITSET_KEY_ROOM];
  // The amount that was requested of that limit.
  uint64_t requested;
  // The amount that it would grant now. Not set by LIMITSET_NEVER.
  int64_t available;
  // The most that it ever grants at once. After LIMITSET_QUEUE_FULL, the number of entries of the wait queue.
  uint64_t most;
  // Where the status of every limit is to be written; null: nowhere.
  limitset_limit_status *limits;
  // How many entries there is room for.
  uint32_t limits_room;
  // 0.
  uint32_t reserved;
} limitset_denial;

// Ends waits when it is raised. Initialize it with zeros (a static variable is), and keep it as long as a thread may
// wait with it or raise it.
typedef struct {
  // Reserved for the functions of this header.
  uint32_t raised;
} limitset_interrupt;

// Properties of an acquisition. Initialize with limitset_held_info_init().
typedef struct {
  // sizeof(limitset_held_info).
  size_t struct_size;
  // The number of the acquisition in order of arrival.
  uint64_t ticket;
  // The position of the set in the pool; -1: it was not acquired from a pool.
  int64_t pool_index;
  // 0: the set was unavailable and is set to allow requests then.
  uint32_t is_enforced;
  // 0.
  uint32_t reserved;
} limitset_held_info;

// A pause of a set. Initialize it with limitset_pause_info_init().
typedef struct {
  // sizeof(limitset_pause_info).
  size_t struct_size;
  // How long the pause lasts from now; -1: it is over.
  int64_t remaining_ns;
  // The number of the pause: how many pauses there have been.
  uint64_t generation;
  // 1: the report began no pause, because its request was granted before the present pause.
  uint32_t absorbed;
  // 0.
  uint32_t reserved;
} limitset_pause_info;

// Counts of a pool's balancer for one of its sets.
typedef struct {
  // How often the set granted a request.
  uint64_t granted;
  // How often the set denied a request.
  uint64_t refused;
  // How often the set was skipped because it was removed.
  uint64_t skipped;
} limitset_pool_stats;

// An item of work that this process has taken: a small value that may be copied, like limitset_held.
typedef struct {
  // 0: no item.
  uint64_t id;
} limitset_item;

// Properties of an item, or of a finished item. Initialize with limitset_item_info_init(). Its pointers are valid
// until a thread ends the item.
typedef struct {
  // sizeof(limitset_item_info).
  size_t struct_size;
  // The program's own number.
  uint64_t id;
  // The payload that was pushed.
  const uint8_t *payload;
  // Length of the payload.
  size_t payload_bytes;
  // The result of a finished item; for a dead letter that a worker gave up, the worker's reason.
  const uint8_t *result;
  // Length of the result.
  size_t result_bytes;
  // How often a worker took it, except the times that ended with "too many requests".
  uint64_t attempts;
  // How often it was answered "too many requests".
  uint64_t rate_limits;
  // A limitset_reason.
  uint32_t reason;
  // 0.
  uint32_t reserved;
} limitset_item_info;

// A finished item that this process has collected: a small value that may be copied, like limitset_held.
typedef struct {
  // 0: none.
  uint64_t id;
} limitset_finished;

// The state of one limit at one instant.
typedef struct {
  // Its key.
  char key[LIMITSET_KEY_ROOM];
  // Units per window, or permits in all.
  uint64_t capacity;
  // Length of the window; -1 for permits.
  int64_t window_ns;
  // The most units at once.
  uint64_t burst;
  // The amount that it would grant now.
  uint64_t available;
  // The part of its capacity that is used up.
  uint64_t in_use;
  // Units used beyond its grants.
  uint64_t debt;
  // Units that waiters ask for.
  uint64_t waiting;
  // How many acquisitions were charged to it.
  uint64_t granted;
  // How many requests were denied because of it.
  uint64_t denied;
  // Units refunded; returned permits are not counted.
  uint64_t refunded;
  // How many acquisitions ended without a report that was due.
  uint64_t unreported;
  // Units used since creation; permits ever acquired.
  uint64_t consumed;
  // How often its parameters were changed live.
  uint64_t revision;
} limitset_limit_stats;

// An attached process, or a dead participant whose permits have not been returned yet.
typedef struct {
  // Its slot.
  uint32_t slot;
  // 1: it is alive.
  uint32_t is_alive;
  // Its process number; 0 if it is dead.
  uint64_t pid;
  // Permits it holds, of all limits together.
  uint64_t holds;
  // Its name.
  char command[24];
} limitset_participant;

// The pauses of a set at one instant.
typedef struct {
  // How many pauses there have been.
  uint64_t generation;
  // How long the present pause lasts; -1: there is none.
  int64_t remaining_ns;
  // The time until the next admission; -1: at once.
  int64_t next_admission_ns;
  // How many pauses in a row, since the last success.
  uint64_t consecutive;
  // How many reports belong to the last pause.
  uint64_t participants;
  // How many reports began no pause, over all pauses.
  uint64_t absorbed;
  // How many more admissions the slow start spaces.
  uint64_t slow_admissions;
} limitset_cooldown_stats;

// The state of a work queue at one instant.
typedef struct {
  // How many items there is room for; 0: the set has no queue.
  uint64_t capacity;
  // Items that wait for a worker.
  uint64_t ready;
  // Items that wait for the end of the set's pause.
  uint64_t parked;
  // Items that wait for the time of their next attempt.
  uint64_t delayed;
  // Items that a worker has.
  uint64_t leased;
  // Results that have not been collected.
  uint64_t results;
  // Dead letters that have not been collected.
  uint64_t dead_letters;
  // 1: nothing more can be pushed.
  uint64_t is_closed;
  // How many items were ever pushed.
  uint64_t pushed;
  // How often a worker took an item.
  uint64_t taken;
  // How many items were done.
  uint64_t done;
  // How often a worker returned an item for another attempt.
  uint64_t retried;
  // How often an item was parked after "too many requests".
  uint64_t rate_limited;
  // How often a worker took a parked item again.
  uint64_t redistributed;
  // How often an item returned from a dead worker.
  uint64_t returned;
  // How many items became dead letters.
  uint64_t dead_lettered;
} limitset_queue_stats;

// The state of a set at one instant. Initialize with limitset_stats_init(), and set `limits` and `participants` and
// their room to get these.
typedef struct {
  // sizeof(limitset_stats).
  size_t struct_size;
  // Where the limits are to be written, in the order of their definition; null: nowhere.
  limitset_limit_stats *limits;
  // Where the participants are to be written; null: nowhere.
  limitset_participant *participants;
  // How many limits there is room for.
  uint32_t limits_room;
  // How many participants there is room for.
  uint32_t participants_room;
  // How many limits there are, written or not.
  uint32_t limits_count;
  // How many participants there are, written or not.
  uint32_t participants_count;
  // How many waiters there are.
  uint64_t waiters;
  // How often the lock was taken from a dead holder.
  uint64_t steals;
  // How many of these steals found an unfinished transaction, which was rolled back.
  uint64_t recoveries;
  // How often the set was swept for dead participants.
  uint64_t sweeps;
  // How many dead participants were reaped.
  uint64_t reaped_participants;
  // How many permits reaping returned.
  uint64_t reaped_permits;
  // Acquisitions allowed because the set was unavailable.
  uint64_t unenforced;
  // How often a holder lost its lock to another process. Any number but 0 is a defect to report.
  uint64_t deposed;
  // Pauses after "too many requests".
  limitset_cooldown_stats cooldown;
  // The state of the work queue.
  limitset_queue_stats queue;
} limitset_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of this library's interface: LIMITSET_ABI_VERSION of the header that it was built with. It
// changes only when programs have to be compiled again, and is the number in the library's soname.
uint32_t limitset_abi_version(void);

// Returns the message of the last error of this thread: what failed, what was found, what to do. Empty if there was
// none; successful calls leave it as it is. Valid until the next call of this thread that fails.
const char *limitset_last_error(void);

// Begins the description of a set. Free it with limitset_builder_free() when the set is open.
limitset_status limitset_builder_new(limitset_builder **builder);

// Frees a builder; the sets that it opened stay open. Null is ignored.
limitset_status limitset_builder_free(limitset_builder *builder);

// Adds a limit. Opening the set checks whether the limit is valid.
limitset_status limitset_builder_limit(limitset_builder *builder, const limitset_limit *limit_to_add);

// Adds an entry to the config map, which every process that attaches can read.
limitset_status limitset_builder_config(limitset_builder *builder, const char *key, const char *value);

// Replaces all settings by `settings`.
limitset_status limitset_builder_settings(limitset_builder *builder, const limitset_settings *settings);

// Sets how the set pauses after "too many requests", and resumes.
limitset_status limitset_builder_cooldown(limitset_builder *builder, const limitset_cooldown *cooldown);

// Adds a work queue.
limitset_status limitset_builder_queue(limitset_builder *builder, const limitset_queue *queue);

// Opens the set with this name, for sharing with every process that opens it; creates it if it does not exist. A name
// with a slash in it is the path of a file.
limitset_status limitset_open(const limitset_builder *builder,
                              const char *name,
                              limitset_set **set);

// Creates a set that must not exist yet.
limitset_status limitset_create(const limitset_builder *builder, const char *name, limitset_set **set);

// Creates a set without a name, for this process and the processes that it forks.
limitset_status limitset_open_anonymous(const limitset_builder *builder, limitset_set **set);

// Creates a set in private memory, for the threads of this process. In a forked child it answers LIMITSET_NOT_SHARED.
limitset_status limitset_open_private(const limitset_builder *builder,
                                      limitset_set **set);

// Attaches to a set that exists. Its limits are read from the segment.
limitset_status limitset_attach(const char *name, limitset_set **set);

// Creates a request to a set and looks up its keys. All threads may use the request, any number of times. `label`
// names it in events and may be null.
//
// Without amounts (`count` 0) it asks for one of each call and resource limit; a set with rates answers
// LIMITSET_BAD_REQUEST, because the amount of a rate cannot be guessed. With amounts it asks for these, and for one of
// each call and resource limit that is not named. Free it with limitset_request_free().
limitset_status limitset_request_new(const limitset_set *set,
                                     const limitset_amount *first,
                                     size_t count,
                                     const char *label,
                                     limitset_request **request);

// Creates a request to a pool, as limitset_request_new() does to a set.
limitset_status limitset_pool_request_new(const limitset_pool *pool,
                                          const limitset_amount *first,
                                          size_t count,
                                          const char *label,
                                          limitset_request **request);

// Frees a request; its acquisitions stay held. Null is ignored.
limitset_status limitset_request_free(limitset_request *request);

// Acquires the amounts of the request if the limits allow it now. `denial` may be null.
limitset_status limitset_try_acquire(const limitset_request *request,
                                     limitset_held *held,
                                     limitset_denial *denial);

// Acquires the amounts of the request; waits for its turn, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at
// all, the answer is LIMITSET_TIMED_OUT where limitset_try_acquire() answers with the reason). Signals do not end the
// wait; raising `interrupt` does. `interrupt` and `denial` may be null.
limitset_status limitset_acquire(const limitset_request *request,
                                 int64_t timeout_ns,
                                 const limitset_interrupt *interrupt,
                                 limitset_held *held,
                                 limitset_denial *denial);

// Acquires as limitset_try_acquire() does, for amounts that differ each time: the call looks up the keys.
limitset_status limitset_try_acquire_amounts(const limitset_set *set,
                                             const limitset_amount *first,
                                             size_t count,
                                             limitset_held *held,
                                             limitset_denial *denial);

// Acquires as limitset_acquire() does, for amounts that differ each time.
limitset_status limitset_acquire_amounts(const limitset_set *set,
                                         const limitset_amount *first,
                                         size_t count,
                                         int64_t timeout_ns,
                                         const limitset_interrupt *interrupt,
                                         limitset_held *held,
                                         limitset_denial *denial);

// Acquires from a pool as limitset_try_acquire_amounts() does from a set.
limitset_status limitset_pool_try_acquire_amounts(const limitset_pool *pool,
                                                  const limitset_amount *first,
                                                  size_t count,
                                                  limitset_held *held,
                                                  limitset_denial *denial);

// Acquires from a pool as limitset_acquire_amounts() does from a set.
limitset_status limitset_pool_acquire_amounts(const limitset_pool *pool,
                                              const limitset_amount *first,
                                              size_t count,
                                              int64_t timeout_ns,
                                              const limitset_interrupt *interrupt,
                                              limitset_held *held,
                                              limitset_denial *denial);

// Checks whether limitset_try_acquire() would succeed now, and writes the status of every limit. Charges nothing. Not
// for a request of a pool.
limitset_status limitset_check(const limitset_request *request,
                               limitset_denial *denial);

// Charges the rates of the request if all of them allow it now, and holds nothing: no permits are taken, and no
// report is due. Not for a request of a pool. `is_enforced` may be null; it becomes 0 if the set was unavailable and
// is set to allow requests then. `denial` may be null.
limitset_status limitset_try_charge(const limitset_request *request,
                                    uint32_t *is_enforced,
                                    limitset_denial *denial);

// Charges the rates of the request as limitset_try_charge() does, but waits for its turn, as limitset_acquire() does:
// at most `timeout_ns`, or until `interrupt` is raised.
limitset_status limitset_charge_timeout(const limitset_request *request,
                                        int64_t timeout_ns,
                                        const limitset_interrupt *interrupt,
                                        uint32_t *is_enforced,
                                        limitset_denial *denial);

// Charges without waiting: the former name of limitset_try_charge().
limitset_status limitset_charge(const limitset_request *request,
                                uint32_t *is_enforced,
                                limitset_denial *denial);

// Ends all waits that were given this interrupt, and every later one until limitset_interrupt_clear(), with
// LIMITSET_INTERRUPTED; a request that fits at once is still granted. **The one function of this header that may be
// called from a signal handler.** It leaves errno as it is. Null is ignored.
void limitset_interrupt_raise(limitset_interrupt *interrupt);

// Clears the interrupt: later waits are not ended by it.
limitset_status limitset_interrupt_clear(limitset_interrupt *interrupt);

// Reports that `used` of the requested amount was used; the rest is refunded where the limit's algorithm can refund.
// `returned`, if it is not null, becomes the refunded amount. Reporting again corrects the report.
limitset_status limitset_update(limitset_held held,
                                const char *key,
                                uint64_t used,
                                uint64_t *returned);

// Charges `delta` units more than so far, into debt if need be, or refunds them if it is negative. Counts as a report.
limitset_status limitset_adjust(limitset_held held,
                                const char *key,
                                int64_t delta,
                                uint64_t *returned);

// Reports the real use, less or more than requested, into debt if need be.
limitset_status limitset_settle(limitset_held held, const char *key, uint64_t actual, uint64_t *returned);

// Reads the amount of a limit that is charged or held now. LIMITSET_NOT_REQUESTED if the request left the limit out.
limitset_status limitset_charged(limitset_held held,
                                 const char *key,
                                 uint64_t *amount);

// Reads the properties of an acquisition.
limitset_status limitset_read_held(limitset_held held, limitset_held_info *info);

// Acquires exactly the named amounts in addition, under the same acquisition, all or none. Never waits. `denial` may
// be null.
limitset_status limitset_acquire_more(limitset_held held,
                                      const limitset_amount *first,
                                      size_t count,
                                      limitset_denial *denial);

// Ends the acquisition: permits return, charges stay. After LIMITSET_UNREPORTED it is released, too. After
// LIMITSET_UNAVAILABLE the permits return as soon as the lock is free.
limitset_status limitset_release(limitset_held held);

// Cancels the acquisition: permits return, and charges are refunded where the limit's algorithm can refund.
limitset_status limitset_cancel(limitset_held held);

// Ends the acquisition because the other side answered "too many requests": the whole set pauses, in every process.
// `retry_after_ns` is the other side's Retry-After; -1: it sent none. `pause` may be null.
limitset_status limitset_rate_limited(limitset_held held,
                                      int64_t retry_after_ns,
                                      limitset_pause_info *pause);

// Frees the handle of a set. The set itself stays, for other processes, and for requests, pools and acquisitions that
// were made from it; this process leaves it when the last of them is gone. Null is ignored.
limitset_status limitset_set_free(limitset_set *set);

// Removes the set: from now on every request to it, by any process, is answered LIMITSET_REMOVED, and the name is free
// again.
limitset_status limitset_remove(const limitset_set *the_set);

// Changes the parameters of limits in place, all of them at one instant, for every process. Keys, kinds and
// algorithms cannot change.
limitset_status limitset_reconfigure(const limitset_set *the_set, const limitset_limit *first, size_t count);

// Resets every rate to unused, and clears debt. Permits stay with their holders.
limitset_status limitset_reset(const limitset_set *the_set);

// Returns at once the permits of dead participants, instead of when a request needs them. `permits`, if it is not
// null, becomes the number of permits returned.
limitset_status limitset_reap(const limitset_set *the_set,
                              uint64_t *permits);

// Advances a manual clock, for every process.
limitset_status limitset_advance(const limitset_set *the_set, uint64_t nanos);

// Pauses the set by hand, in every process, for at least `nanos` nanoseconds. `pause` may be null.
limitset_status limitset_pause(const limitset_set *the_set, uint64_t nanos, limitset_pause_info *pause);

// Ends a pause before its time. `was_paused`, if it is not null, becomes 0 if the set was not paused.
limitset_status limitset_resume(const limitset_set *the_set, uint32_t *was_paused);

// Copies an entry of the config map into `buffer`, with a zero behind it. `needed`, if it is not null, becomes its
// length with that zero. LIMITSET_TOO_LONG if `room` is less (`buffer` may be null then), LIMITSET_UNKNOWN_KEY if the
// map has no such entry.
limitset_status limitset_config(const limitset_set *the_set,
                                const char *key,
                                char *buffer,
                                size_t room,
                                size_t *needed);

// Copies an entry of the config map of the set that an acquisition came from, as limitset_config() does. Tells the
// sets of a pool apart.
limitset_status limitset_held_config(limitset_held held,
                                     const char *key,
                                     char *buffer,
                                     size_t room,
                                     size_t *needed);

// Creates a pool of these sets, in this order, for the worker of this number (each worker has its own balancer; 0 if
// there are no workers). `balance` is a limitset_balance. The pool keeps the sets open: their handles may be freed.
limitset_status limitset_pool_new(const limitset_set *const *sets,
                                  size_t count,
                                  uint32_t balance,
                                  size_t worker,
                                  limitset_pool **pool);

// Frees a pool; its requests and acquisitions stay valid. Null is ignored.
limitset_status limitset_pool_free(limitset_pool *pool);

// Reads the counts of the balancer for each set, for as many sets as there is room for. `count`, if it is not null,
// becomes the number of sets.
limitset_status limitset_read_pool(const limitset_pool *pool,
                                   limitset_pool_stats *stats,
                                   size_t room,
                                   size_t *count);

// Adds an item. While the queue is full it waits, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at all, the
// answer is LIMITSET_FULL), or until `interrupt` is raised. `id` is the program's own and means nothing to the queue.
limitset_status limitset_push(const limitset_set *set,
                              uint64_t id,
                              const uint8_t *payload,
                              size_t bytes,
                              int64_t timeout_ns,
                              const limitset_interrupt *interrupt);

// Takes the next item; waits while there is none, as limitset_push() does (with 0 the answer is LIMITSET_EMPTY).
// LIMITSET_OVER: the queue is closed and all its items are finished.
limitset_status limitset_take(const limitset_set *set,
                              int64_t timeout_ns,
                              const limitset_interrupt *interrupt,
                              limitset_item *item);

// Reads the properties of an item.
limitset_status limitset_read_item(limitset_item item, limitset_item_info *info);

// Records that an item is done. If `result` is not null, the item keeps its place until a process has collected the
// result.
limitset_status limitset_done(limitset_item item,
                              const uint8_t *result,
                              size_t bytes);

// Returns an item to the queue, for any worker to take again after `after_ns`. After its last attempt it becomes a
// dead letter instead.
limitset_status limitset_retry(limitset_item item,
                               uint64_t after_ns);

// Returns an item to the queue at once, as if it had not been taken.
limitset_status limitset_give_back(limitset_item item);

// Returns an item to the queue; the attempt counts.
limitset_status limitset_abandon(limitset_item item);

// Makes an item a dead letter. `why` is kept as its result, and may be null.
limitset_status limitset_dead_letter(limitset_item item, const uint8_t *why, size_t bytes);

// Reports that the other side answered "too many requests": ends the acquisition of the request as
// limitset_rate_limited() does, and parks the item until the pause is over, both at one instant. `retry_after_ns` is
// the other side's Retry-After; -1: it sent none. `pause` may be null.
limitset_status limitset_park(limitset_item item,
                              limitset_held held,
                              int64_t retry_after_ns,
                              limitset_pause_info *pause);

// Takes the oldest result that no process has collected; waits while there is none, as limitset_take() does.
limitset_status limitset_collect(const limitset_set *set,
                                 int64_t timeout_ns,
                                 const limitset_interrupt *interrupt,
                                 limitset_finished *finished);

// Takes the oldest dead letter. Never waits: LIMITSET_EMPTY if there is none.
limitset_status limitset_collect_dead(const limitset_set *set, limitset_finished *finished);

// Reads the properties of a finished item.
limitset_status limitset_read_finished(limitset_finished finished, limitset_item_info *info);

// Frees the place of a finished item.
limitset_status limitset_forget(limitset_finished finished);

// Returns a finished item to the queue, with all counts at zero.
limitset_status limitset_revive(limitset_finished finished);

// Puts a finished item back, to be collected again.
limitset_status limitset_put_back(limitset_finished finished);

// Closes the queue: no process can push any more. Workers go on until all items are finished.
limitset_status limitset_close(const limitset_set *set);

// Waits until all pushed items are finished, at most `timeout_ns`, or until `interrupt` is raised.
limitset_status limitset_drain(const limitset_set *set,
                               int64_t timeout_ns,
                               const limitset_interrupt *interrupt);

// Reads the state of a set at one instant.
limitset_status limitset_read_stats(const limitset_set *set, limitset_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

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

#endif // LIMITSET_H
