// A prefork server: four workers accept on one Unix socket and share two connections to a backend. One of the workers
// is killed while it holds a connection; the limit holds all the time, and its connection comes back.
//
//     cc prefork.c $(pkg-config --cflags --libs limitset) -o prefork && ./prefork
//
// The program is its own client, and ends by itself. It fails if ever more than two workers were at work at one time.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limitset.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, CONNECTIONS = 2, CLIENTS = 6, REQUESTS = 10 };

// Counters of the demonstration; a server needs none of them.
typedef struct counts {
    int at_work;
    int most_at_work;
    int served;
} counts;

static counts *shared;
static volatile sig_atomic_t is_stopping;
// Ends a worker's wait for a connection when it is told to stop.
static limitset_interrupt stop;

static void on_sigterm(int signal_number) {
    (void)signal_number;
    is_stopping = 1;
    limitset_interrupt_raise(&stop);
}

static void must(limitset_status status, const char *what) {
    if (status != LIMITSET_OK) {
        fprintf(stderr, "%s: %s\n", what, limitset_last_error());
        exit(1);
    }
}

static void must_work(int is_fine, const char *what) {
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static void begin_work(void) {
    int now = __atomic_add_fetch(&shared->at_work, 1, __ATOMIC_SEQ_CST);
    int most = __atomic_load_n(&shared->most_at_work, __ATOMIC_SEQ_CST);
    while (now > most &&
           !__atomic_compare_exchange_n(&shared->most_at_work, &most, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static void end_work(void) {
    __atomic_sub_fetch(&shared->at_work, 1, __ATOMIC_SEQ_CST);
}

// Serves one client: "w" is work, "k" kills the worker in the middle of it.
static void serve(int client, const limitset_request *request) {
    char what = 0;
    if (read(client, &what, 1) != 1) {
        return;
    }
    limitset_held held;
    limitset_status status = limitset_acquire(request, LIMITSET_FOREVER, &stop, &held, NULL);
    if (status == LIMITSET_INTERRUPTED) {
        return; // The client sees that the connection ends, and asks another server.
    }
    must(status, "acquire");
    begin_work();
    usleep(1000);
    end_work();
    if (what == 'k') {
        kill(getpid(), SIGKILL); // The connection is still held.
    }
    must(limitset_release(held), "release");
    __atomic_add_fetch(&shared->served, 1, __ATOMIC_SEQ_CST);
    if (write(client, "d", 1) != 1) {
        perror("answer");
    }
}

// Accepts until the worker is told to stop. Uses the set that was opened before the fork.
static void work(int listener, const limitset_request *request) {
    struct sigaction action;
    sigset_t terminate, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_sigterm;
    sigaction(SIGTERM, &action, NULL);
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    for (;;) {
        // The signal is blocked between the check of the flag and the sleep.
        sigprocmask(SIG_BLOCK, &terminate, &before);
        struct pollfd ready;
        ready.fd = listener;
        ready.events = POLLIN;
        ready.revents = 0;
        int found = is_stopping ? -1 : ppoll(&ready, 1, NULL, &before);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (is_stopping) {
            return;
        }
        int client = found > 0 ? accept(listener, NULL, NULL) : -1;
        if (client >= 0) {
            serve(client, request);
            close(client);
        } else if (found > 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            perror("accept");
            exit(1);
        }
    }
}

static pid_t start_worker(int listener, const limitset_request *request) {
    pid_t worker = fork();
    if (worker == 0) {
        work(listener, request);
        _exit(0);
    }
    must_work(worker > 0, "fork");
    return worker;
}

// Sends REQUESTS requests; the first one of client 0 kills its worker.
static void ask(const struct sockaddr_un *address, int number) {
    for (int request = 0; request < REQUESTS; request++) {
        char what = number == 0 && request == 0 ? 'k' : 'w', answer = 0;
        int server = socket(AF_UNIX, SOCK_STREAM, 0);
        must_work(server >= 0 && connect(server, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
        must_work(write(server, &what, 1) == 1, "ask");
        ssize_t bytes = read(server, &answer, 1);
        must_work(what == 'k' ? bytes <= 0 : bytes == 1 && answer == 'd', "the answer");
        close(server);
    }
}

int main(void) {
    limitset_builder *builder;
    limitset_set *set;
    limitset_request *request;
    limitset_limit connections = limitset_resource("connections", CONNECTIONS);
    must(limitset_builder_new(&builder), "describe");
    must(limitset_builder_limit(builder, &connections), "limit");
    must(limitset_open_anonymous(builder, &set), "open");
    must(limitset_builder_free(builder), "free");
    must(limitset_request_new(set, NULL, 0, "serve", &request), "request");
    void *memory = mmap(NULL, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must_work(memory != MAP_FAILED, "mmap");
    shared = (counts *)memory;

    // An abstract name: nothing is left in any folder.
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "limitset-prefork-%d", (int)getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must_work(listener >= 0 && bind(listener, (const struct sockaddr *)&address, sizeof address) == 0, "bind");
    must_work(listen(listener, 64) == 0, "listen");

    pid_t workers[WORKERS], clients[CLIENTS];
    for (int index = 0; index < WORKERS; index++) {
        workers[index] = start_worker(listener, request);
    }
    for (int index = 0; index < CLIENTS; index++) {
        clients[index] = fork();
        if (clients[index] == 0) {
            ask(&address, index);
            _exit(0);
        }
        must_work(clients[index] > 0, "fork");
    }

    // A worker that ends is replaced, until all clients have their answers.
    int clients_left = CLIENTS, killed = 0;
    while (clients_left > 0) {
        int status;
        pid_t ended = wait(&status);
        must_work(ended > 0, "wait");
        for (int index = 0; index < CLIENTS; index++) {
            if (clients[index] == ended) {
                must_work(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a client");
                clients_left--;
            }
        }
        for (int index = 0; index < WORKERS; index++) {
            if (workers[index] == ended) {
                must_work(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a worker that was not killed");
                killed++;
                workers[index] = start_worker(listener, request);
            }
        }
    }
    for (int index = 0; index < WORKERS; index++) {
        int status;
        kill(workers[index], SIGTERM);
        must_work(waitpid(workers[index], &status, 0) == workers[index], "wait");
        must_work(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a worker that was told to stop");
    }

    // All connections are back, also that of the worker that was killed.
    limitset_held held;
    limitset_amount all;
    all.key = "connections";
    all.amount = CONNECTIONS;
    must(limitset_acquire_amounts(set, &all, 1, INT64_C(60000000000), NULL, &held, NULL), "all connections are back");
    must(limitset_release(held), "release");
    must(limitset_request_free(request), "free");
    must(limitset_set_free(set), "free");
    close(listener);
    printf("%d requests served, %d worker killed, at most %d at work at one time\n", shared->served, killed,
           shared->most_at_work);
    return shared->served == CLIENTS * REQUESTS - 1 && killed == 1 && shared->most_at_work <= CONNECTIONS ? 0 : 1;
}
