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
