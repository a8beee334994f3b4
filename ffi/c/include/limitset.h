// limitset: limits that hold across processes. Rates, calls and resources, acquired together, all or none, by every
// process that opens the same name. No daemon, no server; a process may be killed at any instruction, and the others go
// on.
//
// This file is made of the source of the library; do not edit it. docs/c.md says how to build and install it.
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
//     // In a child: what was opened before the fork is used as it is; the child takes part on its own.
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
// * What a function gives through a `limitset_xyz **` is yours: give it to the function that frees it, once. Handles are
//   numbers, not addresses: one that was freed, or never given out, is answered LIMITSET_SPENT or LIMITSET_BAD_HANDLE.
// * Things keep what they need: a set may be freed before its requests, pools and acquisitions. A handle may be freed
//   while another thread is in a call with it; that call ends as usual. A thread keeps the request that it used last until
//   its next acquire with another one, or its end: so long a process may stay attached to a set that it has freed.
// * An acquisition (limitset_held), an item (limitset_item) and a finished item (limitset_finished) are small values. Copies
//   are the same thing, which ends once; after that every copy is answered LIMITSET_SPENT. Nothing is allocated for an
//   acquisition by a thread that has ended as many before (it keeps the memory of up to 64), but tables grow when more are
//   held at one time than ever before.
// * Nobody releases an acquisition for you while the process lives. When it ends, however it ends, the kernel says so, and
//   the others get the permits back.
// * Texts and structs that you pass are yours, and are not used after the call. Texts are UTF-8 and end with a zero; names
//   of sets may be any bytes. Keys have at most 64 bytes.
// * A pointer that is not null must point to what its type says. Null is answered LIMITSET_NULL, or means "none" where that
//   is said.
// * A struct with a struct_size is initialized by the function of this header that has its name and `_init`, or by one of
//   limitset_rate(), limitset_call(), limitset_resource(), limitset_settings_usual(), limitset_cooldown_usual() and
//   limitset_queue_of(). Another size is answered LIMITSET_BAD_STRUCT_SIZE, and nothing is done.
//
// THREADS
//
// * Sets, pools and requests may be used by all threads at one time. An acquisition, an item and a builder may be used by
//   any thread, one at a time; a second one at the same moment is answered LIMITSET_IN_USE, and nothing is done.
// * limitset_last_error() is of the thread that asks.
// * A signal does not end a wait. limitset_interrupt_raise() does; it may be called from a signal handler, by any thread.
//   Nothing else here may be called from a signal handler.
//
// FORKS
//
// * Open before the fork, use after it: a child takes part on its own from its first call on, also after it has dropped its
//   privileges. Sets, pools and requests work in it as they did in the parent. A set in private memory does not: it answers
//   LIMITSET_NOT_SHARED.
// * What the parent holds is the parent's. In the child every function answers LIMITSET_FORKED to it, and changes nothing.
// * By libc's fork(), from any thread: what this library locks works in the child, whatever other threads were doing.
// * After exec, open or attach again by name.
//
// TIME
//
// * All times are nanoseconds. A timeout of LIMITSET_FOREVER (-1) waits for ever. In answers, -1 is "not known" or "none".
//
// ERRORS
//
// * Every function answers a limitset_status, and 0 is success; limitset_last_error() says what was found, what was expected
//   and what to do. Nothing was acquired, changed or opened then, unless the status says otherwise.
//
//   | LIMITSET_… | after which call | what to do |
//   | --- | --- | --- |
//   | DENIED, QUEUED, COOLING_DOWN, TIMED_OUT | acquiring | try again; limitset_denial says when |
//   | QUEUE_FULL | waiting | try again later, or create the set with more waiters |
//   | NEVER, BAD_REQUEST | acquiring | change the request: waiting is of no use |
//   | INTERRUPTED | waiting | what you raised it for |
//   | UNAVAILABLE | all | a process is stopped while it has the lock, or the set is damaged: see the message |
//   | REMOVED | all | open the set again |
//   | NOT_SHARED, FORKED | in a child | open it anew; acquire anew |
//   | BAD_LIMIT, BAD_SETTING, BAD_NAME | opening, reconfiguring | change the definition, or the name |
//   | DIFFERS, EXISTS, NOT_FOUND, UNUSABLE, PERMISSION | opening | another definition, name or user: see the message |
//   | BUSY, TOO_MANY_PARTICIPANTS, NO_SPACE, UNSUPPORTED, IO | opening | what the message says of the system |
//   | UNKNOWN_KEY, NOT_NUMBERS, CLOCK_MOVES_ITSELF | changing a set | change the call |
//   | NOT_REQUESTED, ABOVE_REQUESTED, ABOVE_CHARGED, PERMITS, TOO_MUCH | reporting | change the report; it is held as before |
//   | UNREPORTED | release | it is released; report with limitset_settle() before |
//   | EMPTY, FULL, OVER, CLOSED, TOO_LONG, NO_QUEUE | queues | wait; wait; stop; do not push; make it shorter; create it |
//   | NOT_HELD | queues | the segment was changed by somebody else; take another item |
//   | TOO_MANY_HANDLES | all | release or free some of the 16 million |
//   | SPENT, IN_USE, NULL, BAD_HANDLE, BAD_ARGUMENT, BAD_STRUCT_SIZE | all | a mistake of the program |
//   | DEFECT | all | a mistake of limitset: report it |
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

// What every function answers. 0 is success, everything else says why not; limitset_last_error() says it in words.
//
// Numbers never change; new ones may come.
typedef enum {
  // It is done.
  LIMITSET_OK = 0,
  // The limits do not allow it now. limitset_denial says how every limit stands and when to ask again.
  LIMITSET_DENIED = 1,
  // The limits may allow it, but others who want the same came first and wait.
  LIMITSET_QUEUED = 2,
  // The set pauses: somebody was answered "too many requests", or paused it by hand.
  LIMITSET_COOLING_DOWN = 3,
  // All places in the queue of those who wait are taken.
  LIMITSET_QUEUE_FULL = 4,
  // The limits, or the work queue, did not allow it in time.
  LIMITSET_TIMED_OUT = 5,
  // More was asked for than a limit ever gives: waiting is of no use.
  LIMITSET_NEVER = 6,
  // The wait was ended by limitset_interrupt_raise().
  LIMITSET_INTERRUPTED = 7,
  // The request names what the set has not, or names something twice, or leaves out a rate.
  LIMITSET_BAD_REQUEST = 8,
  // The set could not be asked: a stopped process has its lock, it is damaged, or this process cannot enrol.
  LIMITSET_UNAVAILABLE = 20,
  // The set was removed. Open it again.
  LIMITSET_REMOVED = 21,
  // The set is private memory of the process that forked this one.
  LIMITSET_NOT_SHARED = 22,
  // What is held belongs to the process that forked this one. Here it is inert.
  LIMITSET_FORKED = 23,
  // It was released, cancelled, finished or freed before.
  LIMITSET_SPENT = 30,
  // The acquisition has nothing of that limit.
  LIMITSET_NOT_REQUESTED = 31,
  // More was used than requested: use limitset_settle() or limitset_adjust().
  LIMITSET_ABOVE_REQUESTED = 32,
  // More is to be given back than is charged.
  LIMITSET_ABOVE_CHARGED = 33,
  // Permits cannot be had by a report: use limitset_acquire_more().
  LIMITSET_PERMITS = 34,
  // An amount beyond any limit.
  LIMITSET_TOO_MUCH = 35,
  // It was released, but the use of a rate that needs a report was not reported.
  LIMITSET_UNREPORTED = 36,
  // Another thread uses it at this moment, and it can only be used by one at a time.
  LIMITSET_IN_USE = 37,
  // A limit that cannot be.
  LIMITSET_BAD_LIMIT = 50,
  // A setting that cannot be.
  LIMITSET_BAD_SETTING = 51,
  // The set has no such limit.
  LIMITSET_UNKNOWN_KEY = 52,
  // Something else than numbers would change.
  LIMITSET_NOT_NUMBERS = 53,
  // Only a manual clock can be moved.
  LIMITSET_CLOCK_MOVES_ITSELF = 54,
  // A name against the rules.
  LIMITSET_BAD_NAME = 70,
  // There is no such set.
  LIMITSET_NOT_FOUND = 71,
  // There is one of that name.
  LIMITSET_EXISTS = 72,
  // It was declared otherwise.
  LIMITSET_DIFFERS = 73,
  // What is there is no set that this version can use.
  LIMITSET_UNUSABLE = 74,
  // This user may not, or the set is of another user.
  LIMITSET_PERMISSION = 75,
  // Another process was in the middle of opening it for too long.
  LIMITSET_BUSY = 76,
  // All slots are taken by living processes.
  LIMITSET_TOO_MANY_PARTICIPANTS = 77,
  // The file system is full.
  LIMITSET_NO_SPACE = 78,
  // The kernel is too old.
  LIMITSET_UNSUPPORTED = 79,
  // The system reported an error.
  LIMITSET_IO = 80,
  // The set was created without a queue.
  LIMITSET_NO_QUEUE = 90,
  // More bytes than there is room for.
  LIMITSET_TOO_LONG = 91,
  // The queue is closed: nothing more can be pushed.
  LIMITSET_CLOSED = 92,
  // All places of the queue are taken.
  LIMITSET_FULL = 93,
  // There is nothing in the queue now.
  LIMITSET_EMPTY = 94,
  // The queue is closed and all that was in it is finished. No error: the end of a worker's loop.
  LIMITSET_OVER = 95,
  // The item is no longer with this process: the segment was changed by somebody else.
  LIMITSET_NOT_HELD = 96,
  // A pointer that must not be null was.
  LIMITSET_NULL = 110,
  // A handle that was never given out.
  LIMITSET_BAD_HANDLE = 111,
  // An argument that makes no sense: a number out of range, a text that is not UTF-8, a misaligned pointer.
  LIMITSET_BAD_ARGUMENT = 112,
  // A struct whose struct_size is not that of its type: initialize it with the function of its name.
  LIMITSET_BAD_STRUCT_SIZE = 113,
  // There are too many things of this kind.
  LIMITSET_TOO_MANY_HANDLES = 114,
  // A defect of limitset. The set is as if the call had not been made.
  LIMITSET_DEFECT = 120,
  // An error that this version of the interface has no name for.
  LIMITSET_OTHER = 121,
} limitset_status;

// What is limited: the `kind` of a limitset_limit.
typedef enum {
  // Units per time, however many a request names: tokens, bytes, rows.
  LIMITSET_RATE = 1,
  // Calls per time: each request takes 1 unless it names another amount.
  LIMITSET_CALL = 2,
  // Things that are held and given back: connections, slots. Each request holds 1 unless it names another amount.
  LIMITSET_RESOURCE = 3,
} limitset_kind;

// How a rate counts: the `algorithm` of a limitset_limit. docs/algorithms.md compares them.
typedef enum {
  // The token bucket.
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
  // CLOCK_MONOTONIC_COARSE: quicker to read, a few milliseconds behind.
  LIMITSET_COARSE = 1,
  // Stands still until limitset_advance() moves it: for tests.
  LIMITSET_MANUAL = 2,
} limitset_clock;

// What to do when a set exists and was declared otherwise.
typedef enum {
  // Answer LIMITSET_DIFFERS.
  LIMITSET_FAIL = 0,
  // Use the set as it is.
  LIMITSET_KEEP_CURRENT = 1,
  // Give the set the numbers of this program.
  LIMITSET_RECONFIGURE = 2,
} limitset_difference;

// Which set of a pool is asked first.
typedef enum {
  // One after the other, each worker beginning with another one.
  LIMITSET_ROUND_ROBIN = 0,
  // Any.
  LIMITSET_RANDOM = 1,
  // The first that has room, from the worker's own position on; else the one that will have room first.
  LIMITSET_FIRST_FREE = 2,
} limitset_balance;

// Why a finished item is a dead letter.
typedef enum {
  // It is none: it is done.
  LIMITSET_DONE = 0,
  // It was tried as often as the queue allows.
  LIMITSET_ATTEMPTS = 1,
  // The other side said "too many requests" as often as the queue allows.
  LIMITSET_RATE_LIMITS = 2,
  // A worker gave it up.
  LIMITSET_GIVEN_UP = 3,
} limitset_reason;

// The description of a set. One thread at a time may use it.
typedef struct limitset_builder limitset_builder;

// Several sets behind a balancer. All threads may use it.
typedef struct limitset_pool limitset_pool;

// What is asked for, of which set or pool, looked up once. All threads may use it.
typedef struct limitset_request limitset_request;

// An open set. All threads may use it.
typedef struct limitset_set limitset_set;

// A limit. Initialize it with limitset_rate(), limitset_call() or limitset_resource(), then change what shall differ.
typedef struct {
  // sizeof(limitset_limit).
  size_t struct_size;
  // A limitset_kind.
  uint32_t kind;
  // A limitset_algorithm; not for resources.
  uint32_t algorithm;
  // By which requests name it: 1 to 64 bytes of UTF-8. Of a call limit it may be null: "call_count".
  const char *key;
  // Units per window, or how many there are.
  uint64_t capacity;
  // Length of the window; not for resources.
  uint64_t window_ns;
  // Most units at once; 0: as many as the capacity. Not for windows and resources.
  uint64_t burst;
  // Sub-windows of a sliding window; 0: the usual 10.
  uint32_t resolution;
  // Of a rate: 1 if its use need not be reported before release.
  uint32_t report_optional;
} limitset_limit;

// Numbers of a set and its segment that are seldom changed. Initialize with limitset_settings_usual().
typedef struct {
  // sizeof(limitset_settings).
  size_t struct_size;
  // A limitset_clock.
  uint32_t clock;
  // 1: whoever fits goes first. 0: those who wait are served in the order in which they came.
  uint32_t any_order;
  // 1: requests pass, marked as not enforced, when the set cannot be asked. 0: they are answered
  // LIMITSET_UNAVAILABLE.
  uint32_t allow_when_unavailable;
  // A limitset_difference.
  uint32_t on_difference;
  // How many processes can be attached at one time; 0: 256.
  uint32_t slots;
  // How many blocked acquirers there is room for; 0: 1024.
  uint32_t waiters;
  // Permissions of the file; 0: 0600.
  uint32_t mode;
  // 1: a set that belongs to another user is accepted.
  uint32_t any_owner;
  // Group of the file, for mode 0660; -1: not changed.
  int64_t group;
  // How long to wait for a lock that a living process does not give up; 0: 5 seconds.
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
  // How many times as long each further pause is while nothing goes well, from 1 to 1000.
  double factor;
  // By which part a pause or gap may be longer at random, from 0 to 1.
  double jitter;
  // How many admissions are spaced after a pause; 0: everybody goes on at once.
  uint32_t slow_admissions;
  // 0.
  uint32_t reserved;
  // The first gap between them.
  uint64_t first_gap_ns;
  // The last gap between them.
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
  // How often the other side may say "too many requests" to an item before that; 0: 20 times.
  uint32_t rate_limits;
  // 0.
  uint32_t reserved;
} limitset_queue;

// An amount of a limit.
typedef struct {
  // The limit.
  const char *key;
  // How much of it. 0: it is left alone.
  uint64_t amount;
} limitset_amount;

// A held acquisition: a small value, to be copied at will. All copies are the same acquisition, which ends once. One
// thread at a time may use it.
typedef struct {
  // 0: nothing is held.
  uint64_t id;
} limitset_held;

// How one limit stands to a request.
typedef struct {
  // The limit.
  char key[LIMITSET_KEY_ROOM];
  // How much was asked of it; 0: it was left alone.
  uint64_t requested;
  // How much it would give now; negative is debt.
  int64_t available;
  // How much it ever gives at once.
  uint64_t most;
  // How long until it fits if nobody else asks before; -1: it fits, or that depends on others, or it never does.
  int64_t retry_after_ns;
  // 1: the request fits.
  uint32_t passed;
  // 0.
  uint32_t reserved;
} limitset_limit_status;

// Why nothing was acquired. Initialize with limitset_denial_init(), and set `limits` and `limits_room` if the status of
// every limit is wanted. It may be used again without being initialized again.
typedef struct {
  // sizeof(limitset_denial).
  size_t struct_size;
  // What was answered: a limitset_status. LIMITSET_OK by a limitset_check() that found room.
  int32_t status;
  // How many entries of `limits` were written: the limits in the order of their definition, as many as there is
  // room for. Of LIMITSET_DENIED, LIMITSET_TIMED_OUT, and a limitset_check() that found room.
  uint32_t limits_written;
  // How long to wait before the same request succeeds, if nobody else asks before; -1: not known.
  int64_t retry_after_ns;
  // How many others who want the same wait before. Of LIMITSET_QUEUED and LIMITSET_TIMED_OUT.
  uint64_t ahead;
  // The limit that is most in the way; empty if none is. Of LIMITSET_DENIED, LIMITSET_TIMED_OUT and LIMITSET_NEVER.
  char bottleneck[LIMITSET_KEY_ROOM];
  // How much was asked of that limit.
  uint64_t requested;
  // How much it would give now. Not of LIMITSET_NEVER.
  int64_t available;
  // How much it ever gives at once. Of LIMITSET_QUEUE_FULL, how many places there are.
  uint64_t most;
  // Where the status of every limit is to be written; null: nowhere.
  limitset_limit_status *limits;
  // How many entries there is room for.
  uint32_t limits_room;
  // 0.
  uint32_t reserved;
} limitset_denial;

// Ends waits when it is raised. Begin with all zero (a static variable is), and keep it as long as somebody may wait
// with it or raise it.
typedef struct {
  // Only for the functions of this header.
  uint32_t raised;
} limitset_interrupt;

// What an acquisition is. Initialize with limitset_held_info_init().
typedef struct {
  // sizeof(limitset_held_info).
  size_t struct_size;
  // Its number in the order of arrival.
  uint64_t ticket;
  // The position of its set in the pool that it came from; -1: it did not come from one.
  int64_t pool_index;
  // 0: the set could not be asked, and lets requests pass then.
  uint32_t is_enforced;
  // 0.
  uint32_t reserved;
} limitset_held_info;

// A pause of a set. Initialize with limitset_pause_info_init().
typedef struct {
  // sizeof(limitset_pause_info).
  size_t struct_size;
  // How long it lasts from now; -1: it is over.
  int64_t remaining_ns;
  // Its number: how many pauses there have been.
  uint64_t generation;
  // 1: the report began no pause, because it was about a request from before this one.
  uint32_t absorbed;
  // 0.
  uint32_t reserved;
} limitset_pause_info;

// What the balancer of a pool has seen of one of its sets.
typedef struct {
  // How often it granted.
  uint64_t granted;
  // How often it refused.
  uint64_t refused;
  // How often it was skipped because it was removed.
  uint64_t skipped;
} limitset_pool_stats;

// An item of work that this process has: a small value, as limitset_held.
typedef struct {
  // 0: no item.
  uint64_t id;
} limitset_item;

// An item, or a finished item. Initialize with limitset_item_info_init(). What it points to is there until the item is
// ended, by whichever thread.
typedef struct {
  // sizeof(limitset_item_info).
  size_t struct_size;
  // The program's own number.
  uint64_t id;
  // What was pushed.
  const uint8_t *payload;
  // How many bytes that are.
  size_t payload_bytes;
  // What came of it; of a dead letter that a worker gave up, why. Only of a finished item.
  const uint8_t *result;
  // How many bytes that are.
  size_t result_bytes;
  // How often it was handed out, without the times that ended with "too many requests".
  uint64_t attempts;
  // How often the other side said "too many requests" to it.
  uint64_t rate_limits;
  // A limitset_reason.
  uint32_t reason;
  // 0.
  uint32_t reserved;
} limitset_item_info;

// A finished item that this process collects: a small value, as limitset_held.
typedef struct {
  // 0: none.
  uint64_t id;
} limitset_finished;

// One limit at one instant.
typedef struct {
  // Its key.
  char key[LIMITSET_KEY_ROOM];
  // Units per window, or permits in all.
  uint64_t capacity;
  // Length of the window; -1 for permits.
  int64_t window_ns;
  // Most units at once.
  uint64_t burst;
  // How much it would give now.
  uint64_t available;
  // How much of what it could give is used up.
  uint64_t in_use;
  // How much was used beyond what it gave.
  uint64_t debt;
  // Units that blocked acquirers wait for.
  uint64_t waiting;
  // How many acquisitions took from it.
  uint64_t granted;
  // How many requests were refused because of it.
  uint64_t denied;
  // Units given back, permits apart.
  uint64_t refunded;
  // How many acquisitions ended without the report they owed.
  uint64_t unreported;
  // Units used since creation; of permits, units ever taken.
  uint64_t consumed;
  // How often its numbers were changed live.
  uint64_t revision;
} limitset_limit_stats;

// A process that is attached, or a dead one whose permits nobody has returned yet.
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

// How a set pauses, at one instant.
typedef struct {
  // How many pauses there have been.
  uint64_t generation;
  // How long the pause still lasts; -1: none does.
  int64_t remaining_ns;
  // How long until somebody is admitted; -1: at once.
  int64_t next_admission_ns;
  // How many pauses in a row, since something last went well.
  uint64_t consecutive;
  // How many reports took part in the last pause.
  uint64_t participants;
  // How many reports began no pause, over all pauses.
  uint64_t absorbed;
  // How many more admissions the slow start spaces.
  uint64_t slow_admissions;
} limitset_cooldown_stats;

// A work queue at one instant.
typedef struct {
  // How many items there is room for; 0: the set has no queue.
  uint64_t capacity;
  // Waiting for a worker.
  uint64_t ready;
  // Waiting for the end of the set's pause.
  uint64_t parked;
  // Waiting for their own time to be tried again.
  uint64_t delayed;
  // With a worker.
  uint64_t leased;
  // Results that nobody has collected.
  uint64_t results;
  // Items that were given up, and that nobody has collected.
  uint64_t dead_letters;
  // 1: nothing more can be pushed.
  uint64_t is_closed;
  // How many items were ever pushed.
  uint64_t pushed;
  // How often an item was handed out.
  uint64_t taken;
  // How many items were done.
  uint64_t done;
  // How often an item was put off to be tried again.
  uint64_t retried;
  // How often an item was parked because the other side wanted less.
  uint64_t rate_limited;
  // How often a parked item was handed out again.
  uint64_t redistributed;
  // How often an item came back from a worker that died.
  uint64_t returned;
  // How many items became dead letters.
  uint64_t dead_lettered;
} limitset_queue_stats;

// A set at one instant. Initialize with limitset_stats_init(), and set `limits` and `participants` and the room there if
// they are wanted.
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
  // How many blocked acquirers wait.
  uint64_t waiters;
  // How often the lock was taken from a dead holder.
  uint64_t steals;
  // How many of those had left an update half done, which was then undone.
  uint64_t recoveries;
  // How often the dead were looked for.
  uint64_t sweeps;
  // How many dead participants were cleaned up after.
  uint64_t reaped_participants;
  // How many permits came back that way.
  uint64_t reaped_permits;
  // Acquisitions let through because the set could not be asked.
  uint64_t unenforced;
  // How often an unlock found the lock in other hands. Anything but 0 is a defect worth a report.
  uint64_t deposed;
  // Pauses after "too many requests".
  limitset_cooldown_stats cooldown;
  // The work queue.
  limitset_queue_stats queue;
} limitset_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that this library has: LIMITSET_ABI_VERSION of the header that it was made with. It
// changes only when programs have to be compiled anew, and is the number in the library's soname.
uint32_t limitset_abi_version(void);

// The message of the last error of this thread: what was found, what was expected, what to do. Empty if there was none;
// successful calls leave it as it is. Valid until the next call of this thread that fails.
const char *limitset_last_error(void);

// Begins the description of a set. Free it with limitset_builder_free() when the set is open.
limitset_status limitset_builder_new(limitset_builder **builder);

// Frees a builder; the sets that it opened stay. Null is nothing to free.
limitset_status limitset_builder_free(limitset_builder *builder);

// Adds a limit. Whether it can be is said when the set is opened.
limitset_status limitset_builder_limit(limitset_builder *builder, const limitset_limit *limit_to_add);

// Adds an entry to the config map, which every process that attaches can read.
limitset_status limitset_builder_config(limitset_builder *builder, const char *key, const char *value);

// Sets what is in `settings`, all of it.
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

// Creates a set without a name, for this process and those it forks.
limitset_status limitset_open_anonymous(const limitset_builder *builder, limitset_set **set);

// Creates a set in private memory, for the threads of this process. In a forked child it answers LIMITSET_NOT_SHARED.
limitset_status limitset_open_private(const limitset_builder *builder,
                                      limitset_set **set);

// Attaches to a set that exists, whatever its limits are: they are in the segment.
limitset_status limitset_attach(const char *name, limitset_set **set);

// Looks up the keys of a request of a set, once; it can then be used any number of times, by any thread, at one time.
// `label` names it in events and may be null.
//
// Naming nothing (`count` 0) means every limit: one of each call and resource limit; a set with rates answers
// LIMITSET_BAD_REQUEST then, because how much of them is meant cannot be guessed. Naming something means the limits
// named, and one of each call and resource limit that is not. Free it with limitset_request_free().
limitset_status limitset_request_new(const limitset_set *set,
                                     const limitset_amount *first,
                                     size_t count,
                                     const char *label,
                                     limitset_request **request);

// The same of a pool.
limitset_status limitset_pool_request_new(const limitset_pool *pool,
                                          const limitset_amount *first,
                                          size_t count,
                                          const char *label,
                                          limitset_request **request);

// Frees a request; what was acquired with it stays held. Null is nothing to free.
limitset_status limitset_request_free(limitset_request *request);

// Acquires what the request asks for if the limits allow it now. `denial` may be null.
limitset_status limitset_try_acquire(const limitset_request *request,
                                     limitset_held *held,
                                     limitset_denial *denial);

// Acquires what the request asks for; waits for its turn, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at
// all, but unlike limitset_try_acquire() the answer then is LIMITSET_TIMED_OUT). Signals do not end the wait, `interrupt`
// does when it is raised; it and `denial` may be null.
limitset_status limitset_acquire(const limitset_request *request,
                                 int64_t timeout_ns,
                                 const limitset_interrupt *interrupt,
                                 limitset_held *held,
                                 limitset_denial *denial);

// As limitset_try_acquire(), for amounts that differ each time: keys are looked up in the call.
limitset_status limitset_try_acquire_amounts(const limitset_set *set,
                                             const limitset_amount *first,
                                             size_t count,
                                             limitset_held *held,
                                             limitset_denial *denial);

// As limitset_acquire(), for amounts that differ each time.
limitset_status limitset_acquire_amounts(const limitset_set *set,
                                         const limitset_amount *first,
                                         size_t count,
                                         int64_t timeout_ns,
                                         const limitset_interrupt *interrupt,
                                         limitset_held *held,
                                         limitset_denial *denial);

// As limitset_try_acquire_amounts(), of a pool.
limitset_status limitset_pool_try_acquire_amounts(const limitset_pool *pool,
                                                  const limitset_amount *first,
                                                  size_t count,
                                                  limitset_held *held,
                                                  limitset_denial *denial);

// As limitset_acquire_amounts(), of a pool.
limitset_status limitset_pool_acquire_amounts(const limitset_pool *pool,
                                              const limitset_amount *first,
                                              size_t count,
                                              int64_t timeout_ns,
                                              const limitset_interrupt *interrupt,
                                              limitset_held *held,
                                              limitset_denial *denial);

// Whether limitset_try_acquire() would succeed now, and how every limit stands. Changes nothing. Not of a pool.
limitset_status limitset_check(const limitset_request *request,
                               limitset_denial *denial);

// Charges rates if all of them allow it now, and holds nothing: permits are left alone, and no report is owed. Not of a
// pool. `is_enforced` may be null; it becomes 0 if the set could not be asked and lets requests pass then.
limitset_status limitset_charge(const limitset_request *request,
                                uint32_t *is_enforced,
                                limitset_denial *denial);

// Ends all waits that were given this interrupt, and every later one until limitset_interrupt_clear(), with
// LIMITSET_INTERRUPTED; what can be had without waiting is still given. **The one function of this header that may be
// called from a signal handler.** It leaves errno as it is. Null does nothing.
void limitset_interrupt_raise(limitset_interrupt *interrupt);

// Lets waits begin again.
limitset_status limitset_interrupt_clear(limitset_interrupt *interrupt);

// Reports that `used` of what was requested was used; the rest is given back where the limit's algorithm can take it.
// `returned`, if it is not null, becomes how much that was. Reporting again corrects the report.
limitset_status limitset_update(limitset_held held,
                                const char *key,
                                uint64_t used,
                                uint64_t *returned);

// Charges `delta` more than so far, into debt if need be, or gives back that much if it is negative. Counts as a report.
limitset_status limitset_adjust(limitset_held held,
                                const char *key,
                                int64_t delta,
                                uint64_t *returned);

// Reports what was used, be it less or more than requested, into debt if need be.
limitset_status limitset_settle(limitset_held held, const char *key, uint64_t actual, uint64_t *returned);

// How much of a limit is charged or held now. LIMITSET_NOT_REQUESTED if it was left out.
limitset_status limitset_charged(limitset_held held, const char *key, uint64_t *amount);

// What an acquisition is.
limitset_status limitset_read_held(limitset_held held, limitset_held_info *info);

// Acquires more under the same acquisition, exactly what is named, all or none. Never waits. `denial` may be null.
limitset_status limitset_acquire_more(limitset_held held,
                                      const limitset_amount *first,
                                      size_t count,
                                      limitset_denial *denial);

// Ends the acquisition: permits return, charges stay. Also with LIMITSET_UNREPORTED it is released. With
// LIMITSET_UNAVAILABLE the permits return as soon as the lock is free.
limitset_status limitset_release(limitset_held held);

// Ends the acquisition as if it had not been: permits return, and charges too where the limit's algorithm can take them
// back.
limitset_status limitset_cancel(limitset_held held);

// Ends the acquisition because the other side answered "too many requests": the whole set pauses, in every process.
// `retry_after_ns` is what the other side asked for; -1: nothing. `pause` may be null.
limitset_status limitset_rate_limited(limitset_held held,
                                      int64_t retry_after_ns,
                                      limitset_pause_info *pause);

// Frees the handle of a set. The set itself stays, for others and for requests, pools and acquisitions that were made
// from it; this process leaves it when the last of them is gone. Null is nothing to free.
limitset_status limitset_set_free(limitset_set *set);

// Removes the set: every request to it, by whomever, is answered LIMITSET_REMOVED from now on, and the name is free
// again.
limitset_status limitset_remove(const limitset_set *the_set);

// Changes numbers of limits in place, all of them at one instant, for every process. Keys, kinds and algorithms cannot
// change.
limitset_status limitset_reconfigure(const limitset_set *the_set,
                                     const limitset_limit *first,
                                     size_t count);

// Makes every rate as if nobody had used it, and forgives debt. Permits stay with their holders.
limitset_status limitset_reset(const limitset_set *the_set);

// Returns at once what the dead still hold, instead of when somebody misses it. `permits`, if it is not null, becomes
// how many permits that were.
limitset_status limitset_reap(const limitset_set *the_set,
                              uint64_t *permits);

// Moves a manual clock on, for every process.
limitset_status limitset_advance(const limitset_set *the_set, uint64_t nanos);

// Pauses the set by hand, in every process, for at least so long. `pause` may be null.
limitset_status limitset_pause(const limitset_set *the_set, uint64_t nanos, limitset_pause_info *pause);

// Ends a pause before its time. `was_paused`, if it is not null, becomes 0 if the set admits somebody anyway.
limitset_status limitset_resume(const limitset_set *the_set, uint32_t *was_paused);

// An entry of the config map, with a zero behind it. `needed`, if it is not null, becomes its length with that zero.
// LIMITSET_TOO_LONG if `room` is less (`buffer` may be null then), LIMITSET_UNKNOWN_KEY if there is none.
limitset_status limitset_config(const limitset_set *the_set,
                                const char *key,
                                char *buffer,
                                size_t room,
                                size_t *needed);

// The same of the set that an acquisition is of: which of a pool's sets it was.
limitset_status limitset_held_config(limitset_held held,
                                     const char *key,
                                     char *buffer,
                                     size_t room,
                                     size_t *needed);

// A pool of these sets, in this order, for the worker of this number (each has a balancer of its own; 0 if there are no
// workers). `balance` is a limitset_balance. The pool has its own hold on the sets: their handles may be freed.
limitset_status limitset_pool_new(const limitset_set *const *sets,
                                  size_t count,
                                  uint32_t balance,
                                  size_t worker,
                                  limitset_pool **pool);

// Frees a pool; its requests and what was acquired stay. Null is nothing to free.
limitset_status limitset_pool_free(limitset_pool *pool);

// What the balancer has seen of its sets, as many as there is room for. `count`, if it is not null, becomes how many sets
// there are.
limitset_status limitset_read_pool(const limitset_pool *pool,
                                   limitset_pool_stats *stats,
                                   size_t room,
                                   size_t *count);

// Adds an item. While all places are taken it waits, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at all, and
// answers LIMITSET_FULL), until `interrupt` is raised. `id` means nothing to the queue.
limitset_status limitset_push(const limitset_set *set,
                              uint64_t id,
                              const uint8_t *payload,
                              size_t bytes,
                              int64_t timeout_ns,
                              const limitset_interrupt *interrupt);

// Takes the next item; waits while there is none, as limitset_push() does (with 0 it answers LIMITSET_EMPTY).
// LIMITSET_OVER: the queue is closed, and all that was in it is finished.
limitset_status limitset_take(const limitset_set *set,
                              int64_t timeout_ns,
                              const limitset_interrupt *interrupt,
                              limitset_item *item);

// What an item is.
limitset_status limitset_read_item(limitset_item item, limitset_item_info *info);

// Records that an item is done. If `result` is not null it is kept for whoever collects it; until then the item keeps its
// place.
limitset_status limitset_done(limitset_item item,
                              const uint8_t *result,
                              size_t bytes);

// Lets an item be tried again, by whomever, not before `after_ns` has passed. Tried often enough, it becomes a dead letter
// instead.
limitset_status limitset_retry(limitset_item item,
                               uint64_t after_ns);

// Gives an item to another worker, at once, as if it had not been taken.
limitset_status limitset_give_back(limitset_item item);

// Leaves an item to another worker; the attempt counts.
limitset_status limitset_abandon(limitset_item item);

// Gives an item up: it becomes a dead letter. `why` is kept as its result, and may be null.
limitset_status limitset_dead_letter(limitset_item item, const uint8_t *why, size_t bytes);

// The other side answered "too many requests": ends the acquisition that the request was made with, as
// limitset_rate_limited() does, and parks the item until the pause is over, both at one instant. `retry_after_ns` is what
// the other side asked for; -1: nothing. `pause` may be null.
limitset_status limitset_park(limitset_item item,
                              limitset_held held,
                              int64_t retry_after_ns,
                              limitset_pause_info *pause);

// Takes the oldest result that nobody has collected; waits while there is none, as limitset_take() does.
limitset_status limitset_collect(const limitset_set *set,
                                 int64_t timeout_ns,
                                 const limitset_interrupt *interrupt,
                                 limitset_finished *finished);

// Takes the oldest dead letter. Never waits: LIMITSET_EMPTY if there is none.
limitset_status limitset_collect_dead(const limitset_set *set, limitset_finished *finished);

// What a finished item is.
limitset_status limitset_read_finished(limitset_finished finished, limitset_item_info *info);

// A finished item is not needed any more; its place is free.
limitset_status limitset_forget(limitset_finished finished);

// Lets a finished item be worked on again, with all counts at zero.
limitset_status limitset_revive(limitset_finished finished);

// Puts a finished item back: it can be collected again.
limitset_status limitset_put_back(limitset_finished finished);

// From now on nothing can be pushed, by anybody. Workers go on until all is finished.
limitset_status limitset_close(const limitset_set *set);

// Waits until everything that was pushed is finished, at most `timeout_ns`, until `interrupt` is raised.
limitset_status limitset_drain(const limitset_set *set,
                               int64_t timeout_ns,
                               const limitset_interrupt *interrupt);

// Reads a set at one instant.
limitset_status limitset_read_stats(const limitset_set *set, limitset_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// What only the compiler of the program can do: it knows the sizes that the program was compiled with.

// `capacity` units per `window_ns`, however many a request names. Its use has to be reported before release, unless
// report_optional is set.
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

// `capacity` calls per `window_ns`: each request takes one unless it names another amount. Its key is "call_count"; set
// another for a second one in one set.
static inline limitset_limit limitset_call(uint64_t capacity, uint64_t window_ns) {
    limitset_limit limit = limitset_rate(NULL, capacity, window_ns);
    limit.kind = LIMITSET_CALL;
    return limit;
}

// `capacity` things that are held and given back: each request holds one unless it names another amount.
static inline limitset_limit limitset_resource(const char *key, uint64_t capacity) {
    limitset_limit limit = limitset_rate(key, capacity, 0);
    limit.kind = LIMITSET_RESOURCE;
    return limit;
}

// The settings of a set that says nothing else.
static inline limitset_settings limitset_settings_usual(void) {
    limitset_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.struct_size = sizeof settings;
    settings.group = -1;
    return settings;
}

// 5 seconds, twice as long each time, at most 10 minutes, up to a tenth longer at random; then 20 admissions with gaps from
// half a second down to 50 milliseconds: the cooldown of a set that says nothing else.
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

// A work queue with room for `items` items, and as many results, of at most `item_bytes` bytes each.
static inline limitset_queue limitset_queue_of(uint32_t items, uint32_t item_bytes) {
    limitset_queue queue;
    memset(&queue, 0, sizeof queue);
    queue.struct_size = sizeof queue;
    queue.items = items;
    queue.item_bytes = item_bytes;
    queue.result_bytes = item_bytes;
    return queue;
}

// Empty structs for answers.

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
