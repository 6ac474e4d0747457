// What Linux promises of threads, asked by a program. Each check prints "ok NAME" or "FAILED NAME"
// with what was found. The waits are for what another thread does; the few times are those of the
// calls that are checked.
#define WITH_THREADS
#include "checks.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static long futex(volatile int *word, int operation, long value, void *timeout, void *second, int third) {
    return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

// Two threads take turns by a condition; registers of all kinds stay each thread's own.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn, turns;
static __thread long own = 7;
static void *take_turns(void *argument) {
    long me = (long)argument;
    double sum = me;
    for (int round = 0; round < 1000; round++) {
        pthread_mutex_lock(&mutex);
        while (turn != me) pthread_cond_wait(&condition, &mutex);
        turn = !me, turns++, sum += 0.5, own += me;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return (void *)(sum == me + 500 && own == 7 + 1000 * me ? 40 + me : -1);
}

// Threads that compute share the processor, and one that sleeps is not forgotten.
static volatile int stop;
static volatile uint64_t rounds_of[2];
static void *compute(void *argument) {
    uint64_t rounds = 0;
    double product = 1 + (long)argument;
    while (!stop) rounds_of[(long)argument] = ++rounds, product = product * 1.0000001 > 1e300 ? 1 : product * 1.0000001;
    return (void *)(product < 1 ? 0 : rounds);
}
static int they_share(long one, long other) { return one > other / 8 && other > one / 8; }

static volatile int handled;
static volatile pthread_t handled_by;
static volatile int entered;
static void note(int signal) { handled = signal, handled_by = pthread_self(); }
static void *sleep_long(void *argument) {
    struct timespec long_time = { 1000, 0 };
    entered = 1;
    return (void *)(long)(nanosleep(&long_time, 0) == -1 && errno == EINTR);
}
static void *read_one(void *argument) {
    char byte = 0;
    entered = 1;
    long got = read((int)(long)argument, &byte, 1);
    return (void *)(got == 1 ? byte : got == 0 ? 1000 : -errno);
}
// Sleeps until a thread has begun and sleeps in turn: who yields lets the other go on first.
static void until_entered(void) {
    while (!entered) sched_yield();
    for (int round = 0; round < 10; round++) sched_yield();
    entered = 0;
}

static void *wait_for_signal(void *argument) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGUSR1);
    entered = 1;
    int signal = sigwaitinfo(&set, &info);
    return (void *)(long)(signal == info.si_signo ? signal : -errno);
}

static pthread_mutex_t robust, inheriting;
static void *die_with_lock(void *argument) { pthread_mutex_lock(&robust); return 0; }
static volatile long counted;
static void *count_locked(void *argument) {
    for (int round = 0; round < 500; round++) {
        pthread_mutex_lock(&inheriting);
        long before = counted;
        if (round % 50 == 0) sched_yield();
        counted = before + 1;
        pthread_mutex_unlock(&inheriting);
    }
    return 0;
}

static volatile int words[4];
static void *sleep_at(void *argument) {
    entered = 1;
    return (void *)(futex(&words[0], FUTEX_WAIT_BITSET_PRIVATE, 0, 0, 0, (int)(long)argument) ? -errno : 0);
}
static void *sleep_then_say(void *argument) {
    entered = 1;
    long slept = futex(&words[0], FUTEX_WAIT, 0, 0, 0, 0);
    __atomic_add_fetch(&words[3], 1, __ATOMIC_SEQ_CST);
    return (void *)(slept ? -errno : 0);
}

static void *poll_pipe(void *argument) {
    struct pollfd wanted = { (int)(long)argument, POLLIN };
    entered = 1;
    return (void *)(long)(poll(&wanted, 1, 100000) == 1 && wanted.revents & POLLIN);
}
static void *map_and_write(void *argument) {
    for (int round = 0; round < 50; round++) {
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return (void *)1;
        for (int at = 0; at < 8192; at += 512) page[at] = (char)at;
        if (munmap(page, 8192)) return (void *)2;
    }
    return 0;
}
static void *name_and_id(void *argument) {
    char name[16] = "";
    prctl(PR_SET_NAME, "a worker");
    prctl(PR_GET_NAME, name);
    return (void *)(strcmp(name, "a worker") ? 0 : (long)gettid());
}
static void *wait_for_child(void *argument) {
    int status = 0;
    return (void *)(long)(waitpid((pid_t)(long)argument, &status, 0) == (pid_t)(long)argument ? WEXITSTATUS(status) : -errno);
}
static void *end_thread_only(void *argument) { syscall(SYS_exit, 3); return 0; }
static sem_t semaphore;
static void *post_later(void *argument) { usleep(2000); sem_post(&semaphore); return 0; }

static void blocking_calls(void) {
    int pipes[2][2], bytes = 0;
    pthread_t threads[2];
    if (pipe(pipes[0]) || pipe(pipes[1])) exit(99);
    for (int at = 0; at < 2; at++) threads[at] = begin(read_one, pipes[at][0]), until_entered();
    // Both wait in a read; a third writes, the later one's first.
    write(pipes[1][1], "b", 1), check("the second of two reads is answered first", end(threads[1]) == 'b', 0);
    write(pipes[0][1], "a", 1), check("then the first", end(threads[0]) == 'a', 0);
    threads[0] = begin(poll_pipe, pipes[0][0]), until_entered();
    threads[1] = begin(read_one, pipes[1][0]), until_entered();
    write(pipes[0][1], "c", 1), check("a poll ends beside a read", end(threads[0]) == 1, 0);
    close(pipes[1][1]), check("a read ends when the pipe does", end(threads[1]) == 1000, 0);
    // The memory of a read that waits goes away.
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct { int file; char *into; } wish = { pipes[0][0], page };
    read(pipes[0][0], &bytes, 1);
    void *read_into(void *);
    threads[0] = begin(read_into, (long)&wish), until_entered();
    munmap(page, 4096), write(pipes[0][1], "d", 1);
    long failed = end(threads[0]);
    check("a copy whose page went away gives EFAULT", failed == -EFAULT, failed);
}
void *read_into(void *argument) {
    struct { int file; char *into; } *wish = argument;
    entered = 1;
    long got = read(wish->file, wish->into, 1);
    return (void *)(got < 0 ? -errno : got);
}

static void locks(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind), pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    end(begin(die_with_lock, 0));
    long found = pthread_mutex_lock(&robust);
    check("a robust mutex tells of its owner's end", found == EOWNERDEAD, found);
    pthread_mutexattr_init(&kind), pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inheriting, &kind);
    pthread_t threads[4];
    for (int at = 0; at < 4; at++) threads[at] = begin(count_locked, at);
    for (int at = 0; at < 4; at++) end(threads[at]);
    check("a mutex with priority inheritance excludes", counted == 2000, counted);

    pthread_t sleepers[3];
    for (long at = 0; at < 3; at++) sleepers[at] = begin(sleep_at, 1 << at), until_entered();
    found = futex(&words[0], FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, 0, 0, 2);
    check("a wake takes those of its bits", found == 1 && end(sleepers[1]) == 0, found);
    found = futex(&words[0], FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)1, (void *)&words[1], 0);
    check("a requeue wakes one and moves one", found == 2 && end(sleepers[0]) == 0, found);
    found = futex(&words[1], FUTEX_WAKE_PRIVATE, 9, 0, 0, 0);
    check("who was moved is found there", found == 1 && end(sleepers[2]) == 0, found);
    found = futex(&words[0], FUTEX_CMP_REQUEUE, 1, (void *)1, (void *)&words[1], 5) == -1 ? errno : 0;
    check("a requeue compares first", found == EAGAIN, found);
    sleepers[0] = begin(sleep_then_say, 0), until_entered();
    found = futex(&words[2], FUTEX_WAKE_OP, 1, (void *)1, (void *)&words[0], FUTEX_OP(FUTEX_OP_SET, 6, FUTEX_OP_CMP_EQ, 0));
    check("wake and change does both", found == 1 && words[0] == 6 && end(sleepers[0]) == 0, found);
    long begun = now_ms();
    struct timespec ten_ms = { 0, 10000000 };
    found = futex(&words[0], FUTEX_WAIT, 6, &ten_ms, 0, 0) == -1 ? errno : 0;
    check("a wait ends by its time", found == ETIMEDOUT && now_ms() - begun >= 10, found);
    found = futex(&words[0], FUTEX_WAIT, 5, 0, 0, 0) == -1 ? errno : 0;
    check("a wait compares first", found == EAGAIN, found);
    found = futex((int *)((char *)words + 1), FUTEX_WAIT, 5, 0, 0, 0) == -1 ? errno : 0;
    check("a word is aligned", found == EINVAL, found);
    found = futex((int *)16, FUTEX_WAIT, 5, 0, 0, 0) == -1 ? errno : 0;
    check("and there", found == EFAULT, found);
    sem_init(&semaphore, 0, 0);
    pthread_t poster = begin(post_later, 0);
    check("a semaphore", sem_wait(&semaphore) == 0 && end(poster) == 0, 0);
}

static void *read_counter(void *argument) {
    struct { int file; uint64_t *into; } *wish = (void *)argument;
    entered = 1;
    return (void *)(read(wish->file, wish->into, 8) == 8 ? (long)*wish->into : -errno);
}
static void add(int file, uint64_t count) { if (write(file, &count, 8) != 8) exit(99); }
static volatile int side;
static void *rally(void *argument) {
    int me = (int)(long)argument;
    while (!stop) {
        while (side != me && !stop) futex(&side, FUTEX_WAIT_PRIVATE, !me, 0, 0, 0);
        side = !me, futex(&side, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
    return 0;
}

// Threads that wait for nothing but another one.
static void sleepers(void) {
    struct sigaction action = { .sa_handler = note };
    uint64_t counts[2];
    struct { int file; uint64_t *into; } wishes[2];
    pthread_t threads[2];
    sigaction(SIGUSR1, &action, 0);
    words[0] = 0, threads[0] = begin(sleep_at, 1), until_entered();
    pthread_kill(threads[0], SIGUSR1);
    long found = end(threads[0]);
    check("a signal ends a sleep at a word", found == -EINTR && pthread_equal(handled_by, threads[0]), found);
    found = futex(&words[0], FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0);
    check("who was interrupted sleeps there no longer", found == 0, found);

    int file = eventfd(0, 0);
    for (int at = 0; at < 2; at++) wishes[at].file = file, wishes[at].into = &counts[at];
    threads[0] = begin(read_counter, (long)&wishes[0]), until_entered();
    pthread_kill(threads[0], SIGUSR1), found = end(threads[0]), add(file, 3);
    check("a signal ends a read of a counter", found == -EINTR, found);
    found = read(file, &counts[1], 8) == 8 ? (long)counts[1] : -errno;
    check("which takes nothing then", found == 3, found);
    action.sa_flags = SA_RESTART, sigaction(SIGUSR1, &action, 0), handled = 0;
    threads[0] = begin(read_counter, (long)&wishes[0]), until_entered();
    pthread_kill(threads[0], SIGUSR1);
    while (!handled) sched_yield();
    add(file, 5), found = end(threads[0]);
    check("or it begins again", found == 5, found);
    for (int at = 0; at < 2; at++) threads[at] = begin(read_counter, (long)&wishes[at]), until_entered();
    struct pollfd wanted = { file, POLLIN };
    add(file, 7), found = end(threads[0]);
    check("of two that read the first takes all", found == 7 && poll(&wanted, 1, 0) == 0, found);
    add(file, 8), found = end(threads[1]);
    check("the other what comes next", found == 8, found);
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wishes[0].into = (uint64_t *)page, threads[0] = begin(read_counter, (long)&wishes[0]), until_entered();
    munmap(page, 4096), add(file, 1), found = end(threads[0]);
    check("a count whose page went away gives EFAULT", found == -EFAULT, found);
    close(file), file = eventfd(0, EFD_SEMAPHORE);
    for (int at = 0; at < 2; at++) {
        wishes[at].file = file, wishes[at].into = &counts[at];
        threads[at] = begin(read_counter, (long)&wishes[at]), until_entered();
    }
    add(file, 3), found = end(threads[0]) + end(threads[1]);
    check("two that read a semaphore take one each", found == 2, found);
    found = read(file, &counts[1], 8) == 8 ? (long)counts[1] : -errno;
    wanted.fd = file, check("and one is left", found == 1 && poll(&wanted, 1, 0) == 0, found);
    close(file);

    for (long at = 0; at < 2; at++) threads[at] = begin(rally, at);
    // A machine that stood still meanwhile is asked once more.
    long slept = 1000;
    for (int tries = 0; tries < 10 && slept >= 1000; tries++) {
        long begun = now_ms();
        for (int round = 0; round < 50; round++) usleep(1000);
        slept = now_ms() - begun;
    }
    stop = 1, futex(&side, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0);
    end(threads[0]), end(threads[1]), stop = 0;
    check("two that wake each other leave time to a sleeper", slept < 1000, slept);
}

static void signals(void) {
    struct sigaction action = { .sa_handler = note };
    sigaction(SIGUSR1, &action, 0);
    pthread_t thread = begin(sleep_long, 0);
    until_entered();
    pthread_kill(thread, SIGUSR1);
    check("a signal to a thread ends its sleep", end(thread) == 1 && pthread_equal(handled_by, thread), handled);
    sigset_t set, old;
    sigfillset(&set), pthread_sigmask(SIG_BLOCK, &set, &old);
    handled = 0;
    thread = begin(wait_for_signal, 0);
    until_entered();
    kill(getpid(), SIGUSR2);
    long found = end(thread);
    check("a thread waits for a signal that all block", found == SIGUSR2 && handled == 0, found);
    kill(getpid(), SIGUSR1);
    sigset_t pending;
    sigpending(&pending);
    check("one that nobody takes is pending", sigismember(&pending, SIGUSR1) == 1 && handled == 0, handled);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    check("and comes when it is let in", handled == SIGUSR1 && pthread_equal(handled_by, pthread_self()), handled);
    found = pthread_kill(pthread_self(), 0);
    check("signal 0 asks", found == 0, found);
    check("a thread that is not there", syscall(SYS_tgkill, getpid(), 999999, SIGUSR1) == -1 && errno == ESRCH, errno);
}

static void lives(char *self) {
    long id = end(begin(name_and_id, 0));
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    check("ids and names are each thread's own", id != getpid() && id > 0 && strcmp(name, "a worker"), id);
    long sum = 0;
    for (int round = 0; round < 300; round++) sum += end(begin(map_and_write, 0));
    check("300 threads, one after the other", sum == 0, sum);
    pthread_t threads[100];
    for (int at = 0; at < 100; at++) threads[at] = begin(map_and_write, at);
    for (int at = 0; at < 100; at++) sum += end(threads[at]);
    check("100 threads at once", sum == 0, sum);
    end(begin(end_thread_only, 0));
    pid_t child = fork();
    if (child == 0) _exit(gettid() == getpid() ? 17 : 18);
    long status = end(begin(wait_for_child, child));
    check("a thread waits for a child of another", status == 17, status);
    // A child forked from a second thread is that thread, and alone.
    void *fork_and_wait(void *);
    status = end(begin(fork_and_wait, 0));
    check("a thread forks", status == 7, status);
    child = fork();
    if (child == 0) {
        begin(sleep_long, 0), begin(compute, 0), until_entered();
        void *run(void *);
        end(begin(run, (long)self));
        _exit(9);
    }
    waitpid(child, (int *)&status, 0), status = WEXITSTATUS(status);
    check("exec from a thread ends the others", status == 21, status);
    child = fork();
    if (child == 0) {
        begin(sleep_long, 0), until_entered();
        void *leave(void *);
        end(begin(leave, 0));
        _exit(9);
    }
    waitpid(child, (int *)&status, 0), status = WEXITSTATUS(status);
    check("exit_group ends all", status == 23, status);
    child = fork();
    if (child == 0) {
        void *leave_last(void *);
        begin(leave_last, 0);
        syscall(SYS_exit, 4);
    }
    waitpid(child, (int *)&status, 0), status = WEXITSTATUS(status);
    check("the process ends with its last thread", status == 25, status);
    child = fork();
    if (child == 0) {
        void *crash(void *);
        begin(sleep_long, 0), end(begin(crash, 0));
        _exit(9);
    }
    waitpid(child, (int *)&status, 0);
    check("a fault of one thread ends all", WIFSIGNALED((int)status) && WTERMSIG((int)status) == SIGSEGV, status);
}
void *fork_and_wait(void *argument) {
    own = 99;
    pid_t parent = getpid(), child = fork();
    if (child == 0) _exit(own == 99 && gettid() == getpid() && getpid() != parent ? 7 : 8);
    return wait_for_child((void *)(long)child);
}
void *run(void *argument) { execl((char *)argument, "checks", "again", (char *)0); return 0; }
void *leave(void *argument) { exit(23); }
void *leave_last(void *argument) { usleep(2000); exit(25); }
void *crash(void *argument) { *(volatile int *)8 = 1; return 0; }

int main(int count, char **arguments) {
    if (count > 1) return gettid() == getpid() ? 21 : 22;
    pthread_t threads[2];
    for (long at = 0; at < 2; at++) threads[at] = begin(take_turns, at);
    long first = end(threads[0]), second = end(threads[1]);
    check("two threads take 2,000 turns", turns == 2000 && first == 40 && second == 41, turns);
    for (long at = 0; at < 2; at++) threads[at] = begin(compute, at);
    long begun = now_ms();
    usleep(100000);
    long slept = now_ms() - begun;
    // Of a machine that stood still meanwhile one has had little: they go on until both have theirs.
    for (int more = 0; more < 50 && !they_share(rounds_of[0], rounds_of[1]); more++) usleep(100000);
    stop = 1, first = end(threads[0]), second = end(threads[1]);
    check("two that compute share, beside a sleeper", they_share(first, second) && slept >= 100, slept);
    stop = 0;
    blocking_calls();
    locks();
    sleepers();
    signals();
    lives(arguments[0]);
    cpu_set_t cores;
    check("one core is told", sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1, CPU_COUNT(&cores));
    return all_checked();
}
