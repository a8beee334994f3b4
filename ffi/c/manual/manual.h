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
