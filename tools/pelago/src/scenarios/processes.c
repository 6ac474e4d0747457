// What Linux promises of vfork and posix_spawn, asked by a program. Each check prints "ok NAME" or
// "FAILED NAME" with what was found. The waits are for what another process does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static int failures;

static void check(const char *name, int is_fine, long found) {
    int error = errno;
    if (!is_fine) failures++;
    printf(is_fine ? "ok %s\n" : "FAILED %s: %ld, errno %d\n", name, found, error);
    fflush(stdout);
}

static long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
static int readable(int file, int timeout) {
    struct pollfd entry = { file, POLLIN, 0 };
    return poll(&entry, 1, timeout) == 1;
}
static int status_of(int child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}
static void make(const char *path, const char *text, int mode) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, mode);
    write(file, text, strlen(text));
    fchmod(file, mode);
    close(file);
}

// posix_spawn.

static int spawn(const char *path, char *const *arguments) {
    int child = -1, error = posix_spawn(&child, path, NULL, NULL, arguments, environ);
    if (error) return -error;
    return status_of(child);
}

static void spawned(void) {
    char *quits[] = { "checks", "quit", NULL };
    int status = spawn("/checks", quits);
    check("a program is spawned", WIFEXITED(status) && WEXITSTATUS(status) == 23, status);
    check("what is not there", spawn("/tmp/nothing", quits) == -ENOENT, spawn("/tmp/nothing", quits));
    make("/tmp/text", "no program at all\n", 0755);
    check("what has no header", spawn("/tmp/text", quits) == -ENOEXEC, spawn("/tmp/text", quits));
    make("/tmp/bare", "#!/checks\n", 0644);
    check("what nobody may execute", spawn("/tmp/bare", quits) == -EACCES, spawn("/tmp/bare", quits));
    check("a folder", spawn("/tmp", quits) == -EACCES, spawn("/tmp", quits));
    int child = -1, error = posix_spawnp(&child, "nothing-of-that-name", NULL, NULL, quits, environ);
    check("what is on no path", error == ENOENT, error);
    // The child that found nothing is waited for by the C library.
    check("leaves no child", waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, 999);
    posix_spawn_file_actions_addopen(&actions, 5, "/tmp/nothing", O_RDONLY, 0);
    error = posix_spawn(&child, "/checks", &actions, NULL, quits, environ);
    check("a file that the child cannot open", error == ENOENT, error);
    check("a shell's command", WEXITSTATUS(system("exit 9")) == 9, 0);
    FILE *text = popen("echo hello", "r");
    char line[16] = { 0 };
    fgets(line, sizeof line, text);
    check("a pipe from a command", !strcmp(line, "hello\n") && pclose(text) == 0, 0);
}

static void *spawns(void *argument) {
    char *quits[] = { "checks", "quit", NULL };
    long fine = 0;
    for (int i = 0; i < 8; i++) {
        int is_there = (i + (long)argument) % 2, status = spawn(is_there ? "/checks" : "/tmp/nothing", quits);
        fine += is_there ? WIFEXITED(status) && WEXITSTATUS(status) == 23 : status == -ENOENT;
    }
    return (void *)fine;
}

// vfork.

static volatile int other_runs, child_waits[2];
static void *counts(void *unused) {
    // Runs while the thread that called vfork waits, and lets its child go on.
    other_runs = 1;
    for (int i = 0; i < 1000; i++) sched_yield();
    other_runs = 2;
    write(child_waits[1], "x", 1);
    return NULL;
}

static void lent(void) {
    int ends[2];
    pipe(ends);
    // The parent goes on when the child's program runs: then the descriptor is closed on exec.
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    int child = vfork();
    if (!child) {
        struct timespec some = { 0, 60000000 };
        write(ends[1], "1", 1);
        nanosleep(&some, NULL);
        write(ends[1], "2", 1);
        execl("/checks", "checks", "waits", NULL);
        _exit(99);
    }
    char bytes[8];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    long got = read(ends[0], bytes, 8);
    check("the parent waits until the program runs", got == 2 && bytes[1] == '2', got);
    char path[64], name[64] = { 0 };
    snprintf(path, sizeof path, "/proc/%d/cmdline", child);
    int file = open(path, O_RDONLY);
    read(file, name, sizeof name - 1);
    close(file);
    check("which is the new one", !memcmp(name, "checks", 7) && !strcmp(name + 7, "waits"), child);
    close(ends[1]);
    check("and has no more of it", read(ends[0], bytes, 8) == 0, 0);
    kill(child, SIGKILL);
    check("until it is killed", status_of(child) == SIGKILL, 0);
    close(ends[0]);

    long began = now_ms();
    child = vfork();
    if (!child) {
        struct timespec some = { 0, 60000000 };
        nanosleep(&some, NULL);
        _exit(5);
    }
    check("or has ended", now_ms() - began >= 60, now_ms() - began);
    check("as it was told", status_of(child) == 5 << 8, 0);

    began = now_ms();
    child = vfork();
    if (!child) {
        struct timespec some = { 0, 60000000 };
        nanosleep(&some, NULL);
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    check("or was killed", now_ms() - began >= 60 && status_of(child) == SIGKILL, now_ms() - began);
    child = vfork();
    if (!child) abort();
    check("by its own signal too", WTERMSIG(status_of(child)) == SIGABRT, 0);
}

static __attribute__((noinline)) int fails_to_run(volatile int *error, const char *path) {
    int child = vfork();
    if (!child) {
        execl(path, "checks", "quit", NULL);
        *error = errno;
        _exit(127);
    }
    return child;
}

static volatile int global;
static void seen(void) {
    volatile int error = 0, others[64];
    for (int i = 0; i < 64; i++) others[i] = i;
    int child = fails_to_run(&error, "/tmp/nothing");
    check("the parent sees the child's variable", error == ENOENT, error);
    check("which ended as it said", status_of(child) == 127 << 8, 0);
    error = 0, child = fails_to_run(&error, "/checks");
    check("and nothing of one that ran", error == 0 && status_of(child) == 23 << 8, error);
    child = vfork();
    if (!child) {
        for (int i = 0; i < 64; i += 2) others[i] = -i;
        _exit(0);
    }
    status_of(child);
    int fine = 0;
    for (int i = 0; i < 64; i++) fine += others[i] == (i % 2 ? i : -i);
    check("many of them", fine == 64, fine);
    child = fork();
    if (!child) { others[1] = 99; _exit(0); }
    status_of(child);
    check("of a fork nothing", others[1] == 1, others[1]);
    volatile int inner = 0;
    child = vfork();
    if (!child) {
        error = 1;
        int grandchild = vfork();
        if (!grandchild) { error = 2; _exit(3); }
        int status;
        waitpid(grandchild, &status, 0);
        inner = WEXITSTATUS(status);
        _exit(error == 2 ? 4 : 5);
    }
    check("a loan of a loan", WEXITSTATUS(status_of(child)) == 4 && error == 2 && inner == 3, error * 10 + inner);
}

static void beside_threads(void) {
    pipe((int *)child_waits);
    pthread_t thread;
    pthread_create(&thread, NULL, counts, NULL);
    while (!other_runs) sched_yield();
    char byte;
    int child = vfork();
    if (!child) {
        read(child_waits[0], &byte, 1);
        _exit(6);
    }
    check("other threads go on", other_runs == 2 && status_of(child) == 6 << 8, other_runs);
    pthread_join(thread, NULL);
    pthread_t all[6];
    for (long i = 0; i < 6; i++) pthread_create(&all[i], NULL, spawns, (void *)i);
    long sum = 0;
    for (int i = 0; i < 6; i++) {
        void *fine;
        pthread_join(all[i], &fine);
        sum += (long)fine;
    }
    check("threads spawn at once, each with its own errors", sum == 48, sum);
}

static int clones(void *argument) {
    *(int *)argument = 17;
    _exit(8);
}

static void cloned(void) {
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile int told = 0;
    int child = clone(clones, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)&told);
    check("clone with a stack of its own", child > 0 && told == 17 && status_of(child) == 8 << 8, told);
    // SIGCHLD's handler runs after the wait, and no other signal cuts it short.
    int parent = fork();
    if (!parent) {
        signal(SIGALRM, SIG_DFL);
        alarm(1);
        child = vfork();
        if (!child) { sleep(3); _exit(0); }
        _exit(9);
    }
    int status = status_of(parent);
    check("a signal that ends the parent ends its wait", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM, status);
    munmap(stack, 65536);
}

static volatile int handled;
static void handler(int signal) { handled++; }
static void signalled(void) {
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGUSR1, &action, NULL);
    int ends[2];
    pipe(ends);
    long began = now_ms();
    int child = vfork();
    if (!child) {
        struct timespec some = { 0, 60000000 };
        kill(getppid(), SIGUSR1);
        nanosleep(&some, NULL);
        write(ends[1], "x", 1);
        _exit(3);
    }
    check("a handler waits too", child > 0 && handled == 1 && readable(ends[0], 0), handled);
    check("for the child's end", status_of(child) == 3 << 8, now_ms() - began);
    close(ends[0]), close(ends[1]);
}

// A child is killed at any instant of its life: the parent goes on each time.
static void killed_at_any_instant(void) {
    int fine = 0, killers = 0;
    for (int round = 0; round < 40; round++) {
        int gate[2], killer, status;
        pipe(gate);
        if (!(killer = fork())) {
            int victim = 0;
            close(gate[1]);
            if (read(gate[0], &victim, 4) == 4) {
                struct timespec some = { 0, round * 97000L };
                nanosleep(&some, NULL);
                kill(victim, SIGKILL);
            }
            _exit(0);
        }
        int child = vfork();
        if (!child) {
            int own = getpid();
            write(gate[1], &own, 4);
            execl("/checks", "checks", "waits", NULL);
            _exit(99);
        }
        close(gate[0]), close(gate[1]);
        status = status_of(child);
        fine += child > 0 && status == SIGKILL;
        killers += status_of(killer) == 0;
    }
    check("who is killed at any instant lets the parent go on", fine == 40 && killers == 40, fine);
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "quit")) return 23;
    if (count == 2 && !strcmp(arguments[1], "waits")) for (;;) pause();
    mkdir("/tmp", 01777);
    spawned();
    lent();
    seen();
    beside_threads();
    cloned();
    signalled();
    killed_at_any_instant();
    printf("all checked, %d failed\n", failures);
    return failures != 0;
}
