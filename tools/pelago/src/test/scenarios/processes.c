// What Linux promises of vfork, posix_spawn and the ids of processes, asked by a program. Each check prints "ok NAME" or
// "FAILED NAME" with what was found. The waits are for what another process does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
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

// Rounds in which a program's start closes a pipe.
enum { CLOSES = 12 };

static void vforked(void) {
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
    int closed = 0;
    for (int round = 0; round < CLOSES; round++) {
        pipe2(ends, O_CLOEXEC | O_NONBLOCK);
        child = vfork();
        if (!child) {
            execl("/checks", "checks", "waits", NULL);
            _exit(99);
        }
        close(ends[1]);
        closed += read(ends[0], bytes, 8) == 0;
        close(ends[0]);
        kill(child, SIGKILL);
        status_of(child);
    }
    check("each time the parent finds it closed", closed == CLOSES, closed);

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
    check("a vfork in a vfork", WEXITSTATUS(status_of(child)) == 4 && error == 2 && inner == 3, error * 10 + inner);
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
        // It lives for longer than any pause of the machine's.
        child = vfork();
        if (!child) { sleep(60); _exit(0); }
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

// Whose a process is.

static int ids_are(int real, int effective, int saved) {
    uid_t found[3];
    getresuid(&found[0], &found[1], &found[2]);
    return found[0] == real && found[1] == effective && found[2] == saved && getuid() == real && geteuid() == effective;
}
static int says(const char *path, const char *line) {
    char text[4096] = { 0 };
    int file = open(path, O_RDONLY);
    read(file, text, sizeof text - 1);
    close(file);
    return strstr(text, line) != NULL;
}

// Who sent a byte, and who is at the other end.
static struct ucred sender_of(int file) {
    char byte, control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec vector = { &byte, 1 };
    struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct ucred who = { -1, -1, -1 };
    if (recvmsg(file, &message, 0) == 1 && CMSG_FIRSTHDR(&message)) memcpy(&who, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof who);
    return who;
}
static struct ucred peer_of(int file) {
    struct ucred who = { -1, -1, -1 };
    socklen_t length = sizeof who;
    getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &length);
    return who;
}

static int gives_up_root(void) {
    int failed = 0;
#define want(number, what) if (!failed && !(what)) failed = number
    gid_t groups[40] = { 3, 4, 5 }, found[40];
    want(1, setgroups(3, groups) == 0 && getgroups(0, NULL) == 3);
    want(2, getgroups(40, found) == 3 && found[0] == 3 && found[2] == 5);
    want(3, getgroups(2, found) == -1 && errno == EINVAL);
    want(4, setresgid(1234, 1234, 1234) == 0 && getgid() == 1234 && getegid() == 1234);
    want(5, seteuid(33) == 0 && ids_are(0, 33, 0) && setgroups(1, groups) == -1 && errno == EPERM);
    want(6, setresuid(-1, 34, -1) == -1 && errno == EPERM && ids_are(0, 33, 0));
    want(7, seteuid(0) == 0 && setresuid(33, 33, 0) == 0 && ids_are(33, 33, 0));
    want(8, seteuid(0) == 0 && setuid(33) == 0 && ids_are(33, 33, 33));
    want(9, setuid(0) == -1 && errno == EPERM && setresuid(33, 33, 0) == -1 && errno == EPERM && setreuid(0, -1) == -1 && errno == EPERM);
    want(10, setgid(0) == -1 && errno == EPERM && setgroups(0, NULL) == -1 && errno == EPERM && ids_are(33, 33, 33));
    want(11, says("/proc/self/status", "Uid:\t33\t33\t33\t33\nGid:\t1234\t1234\t1234\t1234\n") && says("/proc/self/status", "Groups:\t3 4 5 \n"));
    // A child has them too, and its program is told.
    char *asks[] = { "checks", "whose", NULL };
    want(12, spawn("/checks", asks) == 24 << 8);
    int file = open("/tmp/own", O_CREAT | O_RDWR | O_TRUNC, 0600), child = fork();
    if (!child) _exit(ids_are(33, 33, 33) && getgroups(40, found) == 3 ? 25 : 26);
    want(13, status_of(child) == 25 << 8);
    struct stat status;
    want(14, fstat(file, &status) == 0 && status.st_uid == 33 && status.st_gid == 1234);
    want(15, stat("/proc/self", &status) == 0 && status.st_uid == 33 && status.st_gid == 1234);
    unlink("/tmp/own");
    return failed;
}

static void whose(void) {
    if (geteuid()) {
        // Only the superuser may; what is tested here is the system under test.
        printf("ok whose we are is not ours to change\n");
        return;
    }
    int child = fork(), on = 1, pair[2], status;
    if (!child) _exit(gives_up_root());
    status = status_of(child);
    check("root is given up for good", status == 0, status >> 8);
    check("by one process", ids_are(0, 0, 0) && getegid() == 0, getuid());

    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    if (!(child = fork())) {
        setresgid(44, 45, -1), setresuid(33, 34, -1);
        write(pair[1], "x", 1);
        _exit(0);
    }
    status_of(child);
    struct ucred who = sender_of(pair[0]);
    check("a message tells who sent it", who.pid == child && who.uid == 33 && who.gid == 44, who.uid);
    who = peer_of(pair[0]);
    check("a pair who made it", who.pid == getpid() && who.uid == 0 && who.gid == 0, who.uid);

    struct sockaddr_un { sa_family_t family; char path[108]; } name = { AF_UNIX, "\0whose" };
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (void *)&name, 10), listen(listener, 1);
    int gate[2];
    pipe(gate);
    if (!(child = fork())) {
        int file = socket(AF_UNIX, SOCK_STREAM, 0);
        setresgid(44, 45, -1), setresuid(33, 34, -1);
        connect(file, (void *)&name, 10);
        struct ucred other = peer_of(file);
        setresuid(-1, 33, -1);
        write(gate[1], "x", 1);
        char byte;
        read(file, &byte, 1);
        _exit(other.pid == getppid() && other.uid == 0 && other.gid == 0 ? 27 : 28);
    }
    char byte;
    read(gate[0], &byte, 1);
    int accepted = accept(listener, NULL, NULL);
    who = peer_of(accepted);
    check("a connection as whom it was made", who.pid == child && who.uid == 34 && who.gid == 45, who.uid);
    close(accepted);
    status = status_of(child);
    check("and who listens", status == 27 << 8, status);

    char control[CMSG_SPACE(sizeof(struct ucred))] = { 0 };
    struct iovec vector = { &byte, 1 };
    struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_CREDENTIALS, head->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    if (!(child = fork())) {
        setresuid(33, 33, 33);
        struct ucred forged = { getpid(), 0, 0 };
        memcpy(CMSG_DATA(head), &forged, sizeof forged);
        int is_refused = sendmsg(pair[1], &message, 0) == -1 && errno == EPERM;
        forged.uid = 33;
        memcpy(CMSG_DATA(head), &forged, sizeof forged);
        _exit(is_refused && sendmsg(pair[1], &message, 0) == 1 ? 29 : 30);
    }
    status = status_of(child);
    who = sender_of(pair[0]);
    check("nobody claims to be another", status == 29 << 8 && who.uid == 33 && who.pid == child, status);
    check("an ordinary program is told that it is", getauxval(AT_SECURE) == 0 && getauxval(AT_UID) == 0, 0);
    close(pair[0]), close(pair[1]), close(listener), close(gate[0]), close(gate[1]);
}

static int is_whose(void) {
    int fine = getauxval(AT_UID) == 33 && getauxval(AT_EUID) == 33 && getauxval(AT_GID) == 1234 && getauxval(AT_EGID) == 1234;
    return fine && !getauxval(AT_SECURE) && ids_are(33, 33, 33) ? 24 : 99;
}
// The effective id is saved when a program runs; that it is another than the real one is told.
static int is_secure(void) {
    return getauxval(AT_SECURE) == 1 && ids_are(0, 33, 33) ? 31 : 99;
}
static void secure(void) {
    int child = geteuid() ? -1 : fork();
    if (!child) {
        setresuid(0, 33, 0);
        execl("/checks", "checks", "secure", NULL);
        _exit(98);
    }
    int status = child < 0 ? 31 << 8 : status_of(child);
    check("who acts as another runs its program with care", status == 31 << 8, status);
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "quit")) return 23;
    if (count == 2 && !strcmp(arguments[1], "waits")) for (;;) pause();
    if (count == 2 && !strcmp(arguments[1], "whose")) return is_whose();
    if (count == 2 && !strcmp(arguments[1], "secure")) return is_secure();
    mkdir("/tmp", 01777);
    spawned();
    vforked();
    seen();
    beside_threads();
    cloned();
    signalled();
    killed_at_any_instant();
    whose();
    secure();
    printf("all checked, %d failed\n", failures);
    return failures != 0;
}
