// Threads that take from each other what a call needs, ids that nobody has, signals at every call
// that waits, and processes that end at any moment. Nothing of it may harm more than who does it.
//
// Arguments: seed, rounds of processes that end.
#define ONLY_FAILURES
#define WITH_THREADS
#include "checks.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#define PAGE 4096L
enum { BOTH = PROT_READ | PROT_WRITE, NOBODY = 29999 };

static uint64_t chosen;
static long below(long limit) {
    chosen ^= chosen << 13, chosen ^= chosen >> 7, chosen ^= chosen << 17;
    return (chosen >> 16) % limit;
}
static char *map(long bytes) { return mmap(NULL, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static long futex(volatile int *word, int operation, long value, void *timeout, volatile int *second, int third) {
    return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

// Memory goes away under a call that waits for what comes. The call gives EFAULT; where it was done
// before, or in part, what it did.

static volatile int entered;
static void until_entered(void) {
    while (!entered) sched_yield();
    for (int round = 0; round < 10; round++) sched_yield();
    entered = 0;
}
struct call { const char *name; int number; long arguments[6]; };
static void *make_call(void *argument) {
    struct call *call = argument;
    long *a = call->arguments;
    entered = 1;
    long given = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return (void *)(given == -1 ? -errno : given);
}
// Takes a page away in one of three ways.
static void take_away(char *page, int way) {
    if (way == 0) munmap(page, PAGE);
    if (way == 1) mprotect(page, PAGE, PROT_NONE);
    if (way == 2) mprotect(page, PAGE, PROT_READ);
}
static void bytes_that_come(void) {
    for (int way = 0; way < 3; way++) {
        for (int which = 0; which < 5; which++) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(99);
            char *page = map(PAGE), *stable = map(PAGE), byte = 'x';
            struct iovec *part = (void *)stable;
            struct msghdr *message = (void *)(stable + 512);
            *part = (struct iovec){ page, 100 };
            *message = (struct msghdr){ .msg_iov = part, .msg_iovlen = 1 };
            struct call calls[] = {
                { "read", SYS_read, { ends[0], (long)page, 100 } },
                { "readv", SYS_readv, { ends[0], (long)part, 1 } },
                { "recvfrom", SYS_recvfrom, { ends[0], (long)page, 100 } },
                { "recvmsg", SYS_recvmsg, { ends[0], (long)message, 0 } },
                { "poll", SYS_poll, { (long)page, 1, 10000 } },
            };
            *(struct pollfd *)page = (struct pollfd){ ends[0], POLLIN };
            pthread_t thread = begin(make_call, (long)&calls[which]);
            until_entered();
            take_away(page, way);
            write(ends[1], &byte, 1);
            long given = end(thread);
            check(calls[which].name, given == -EFAULT, given);
            munmap(page, PAGE), munmap(stable, PAGE), close(ends[0]), close(ends[1]);
        }
    }
}
// A sender waits for room; half of what it sends goes away.
static void bytes_that_go(void) {
    enum { MUCH = 1 << 20 };
    for (int which = 0; which < 2; which++) {
        int ends[2];
        if (pipe(ends)) exit(99);
        char *much = map(MUCH), part[PAGE];
        struct iovec parts[2] = { { much, PAGE }, { much + PAGE, MUCH - PAGE } };
        struct call calls[] = {
            { "write", SYS_write, { ends[1], (long)much, MUCH } },
            { "writev", SYS_writev, { ends[1], (long)parts, 2 } },
        };
        memset(much, 'a', MUCH);
        pthread_t thread = begin(make_call, (long)&calls[which]);
        until_entered();
        munmap(much + MUCH / 2, MUCH / 2);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        long got = 0, wrong = 0, count;
        // The rest comes until the sender finds its memory gone; then it has ended, and closes.
        void *close_after(void *);
        struct { pthread_t thread; int file; long given; } closer = { thread, ends[1], 0 };
        pthread_t closing = begin(close_after, (long)&closer);
        struct pollfd readable = { ends[0], POLLIN };
        while (poll(&readable, 1, 20000) == 1 && (count = read(ends[0], part, sizeof part)) > 0)
            for (got += count; count--;) wrong += part[count] != 'a';
        end(closing);
        check(calls[which].name, wrong == 0 && got <= MUCH / 2 && (closer.given == got || closer.given == -EFAULT), closer.given);
        munmap(much, MUCH), close(ends[0]);
    }
}
void *close_after(void *argument) {
    struct { pthread_t thread; int file; long given; } *closer = argument;
    closer->given = end(closer->thread);
    close(closer->file);
    return NULL;
}

// Calls that do not wait, beside a thread that takes the page away and brings it back.
static char *unsteady;
static volatile int is_over;
static void *unsettle(void *argument) {
    for (int round = 0; !is_over; round++) {
        if (round % 2) mprotect(unsteady, PAGE, PROT_NONE);
        else munmap(unsteady, PAGE);
        sched_yield();
        mmap(unsteady, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        sched_yield();
    }
    return NULL;
}
static void calls_beside(void) {
    unsteady = map(PAGE);
    int folder = open("/", O_RDONLY | O_DIRECTORY), file = open("/tmp/bad_threads", O_RDWR | O_CREAT, 0600), wrong = 0, done = 0, refused = 0;
    ftruncate(file, PAGE);
    is_over = 0;
    pthread_t thread = begin(unsettle, 0);
    for (int round = 0; round < 300 || (!(done && refused) && round < 100000); round++) {
        long given = -1;
        errno = 0;
        switch (round % 5) {
        case 0: lseek(folder, 0, SEEK_SET), given = syscall(SYS_getdents64, folder, unsteady, PAGE); break;
        case 1: given = pread(file, unsteady, PAGE, 0); break;
        case 2: given = pwrite(file, unsteady, PAGE, 0); break;
        case 3: given = syscall(SYS_openat, AT_FDCWD, unsteady, O_RDONLY), given = given == -1 && errno == ENOENT ? 0 : given; break;
        case 4: given = syscall(SYS_fstat, file, unsteady); break;
        }
        if (given >= 0) done++;
        else if (errno == EFAULT) refused++;
        else wrong++;
        sched_yield();
    }
    is_over = 1, end(thread);
    check("beside a page that comes and goes", wrong == 0 && done && refused, wrong);
    // The same place gets the file's bytes and is taken away at once.
    thread = (is_over = 0, begin(unsettle, 0));
    for (int round = 0; round < 100; round++) {
        wrong += mmap(unsteady, PAGE, BOTH, (round % 2 ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED, file, 0) != unsteady;
        sched_yield();
    }
    is_over = 1, end(thread);
    check("mmap of a file there", wrong == 0, wrong);
    munmap(unsteady, PAGE), close(file), close(folder), unlink("/tmp/bad_threads");
}

// A thread's execve names what another one takes away: it is done or refused.
static void *run_again(void *argument) {
    char **words = argument;
    execv("/proc/self/exe", words);
    _exit(errno == EFAULT ? 22 : 23);
}
static void execs(void) {
    int wrong = 0;
    for (int round = 0; round < 8; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            char **words = (char **)map(PAGE), *text = map(PAGE);
            strcpy(text, "end"), words[0] = "checks", words[1] = text;
            pthread_t thread = begin(run_again, (long)words);
            for (int turn = 0; turn < round / 2; turn++) sched_yield();
            munmap(round % 2 ? text : (char *)words, PAGE);
            end(thread);
            _exit(24);
        }
        int status = ended(child);
        wrong += status != 21 && status != 22;
    }
    check("execve of what goes away", wrong == 0, wrong);
}

static volatile int *word;
static void *sleep_at_word(void *argument) {
    entered = 1;
    return (void *)(long)(futex(word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == -1 ? -errno : 0);
}
static void words(void) {
    volatile int *gone = (void *)map(PAGE), fine = 0;
    munmap((void *)gone, PAGE);
    FAILS("a wait on no memory", EFAULT, futex(gone, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    FAILS("of several processes", EFAULT, futex(gone, FUTEX_WAIT, 0, NULL, NULL, 0));
    GIVES("a wake there finds nobody", 0, futex(gone, FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0));
    FAILS("a wake of several processes there", EFAULT, futex(gone, FUTEX_WAKE, 9, NULL, NULL, 0));
    FAILS("a requeue from there", EFAULT, futex(gone, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)1, &fine, 0));
    FAILS("a wake and a change there", EFAULT, futex(&fine, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, gone, FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)));
    FAILS("a lock there", EFAULT, futex(gone, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
    FAILS("an unlock there", EFAULT, futex(gone, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
    FAILS("a time that is not there", EFAULT, futex(&fine, FUTEX_WAIT_PRIVATE, 0, (void *)gone, NULL, 0));
    FAILS("a kernel's address", EFAULT, futex((void *)0xffffffff80000000, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    // It goes away under a sleeper, who is woken all the same.
    word = (void *)map(PAGE);
    pthread_t thread = begin(sleep_at_word, 0);
    until_entered();
    munmap((void *)word, PAGE);
    long woken = 0;
    while (!woken) woken = futex(word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), sched_yield();
    long slept = end(thread);
    check("a sleeper whose word went away", woken == 1 && slept == 0, slept);
}

// As many threads as there may be, twice: all that were made end, and the next ones are made.
static sem_t gate;
static void *wait_at_gate(void *argument) {
    while (sem_wait(&gate)) {}
    return NULL;
}
static void crowd(void) {
    enum { WANTED = 10000 };
    static pthread_t all[WANTED];
    long told = WANTED, made[2];
    FILE *file = fopen("/proc/sys/kernel/threads-max", "r");
    check("it is told how many threads there may be", file && fscanf(file, "%ld", &told) == 1, told);
    if (file) fclose(file);
    pthread_attr_t small;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN);
    sem_init(&gate, 0, 0);
    for (int time = 0; time < 2; time++) {
        int error = 0;
        long count = 0;
        while (count < WANTED && !(error = pthread_create(&all[count], &small, wait_at_gate, NULL))) count++;
        check("the one too many", count == WANTED || (error == EAGAIN && count == told - 1), count);
        for (long i = 0; i < count; i++) sem_post(&gate);
        for (long i = 0; i < count; i++) pthread_join(all[i], NULL);
        made[time] = count;
    }
    check("as many again", made[0] == made[1], made[1]);
}

// Signals at threads in every call that waits.
enum { WAYS = 20, TIMES = 12 };
static sem_t handled;
static volatile long taken[WAYS];
static volatile int has_ended[WAYS];
static __thread int own_way;
static void note(int signal) { taken[own_way]++, sem_post(&handled); }
static int waits_for[8];
static long wait_in(int way) {
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    struct timespec long_time = { 1000, 0 };
    struct pollfd entry = { waits_for[0], POLLIN };
    struct epoll_event event;
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    sigset_t set;
    fd_set files;
    char bytes[PAGE];
    struct iovec part = { bytes, 8 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    switch (way) {
    case 0: return read(waits_for[0], bytes, 1);
    case 1: return readv(waits_for[0], &part, 1);
    case 2: return write(waits_for[1], bytes, PAGE);
    case 3: return poll(&entry, 1, 1000000);
    case 4:
        FD_ZERO(&files);
        FD_SET(waits_for[0], &files);
        return select(waits_for[0] + 1, &files, NULL, NULL, NULL);
    case 5: return epoll_wait(waits_for[2], &event, 1, -1);
    case 6: return accept(waits_for[3], NULL, NULL);
    case 7: return recv(waits_for[4], bytes, 1, 0);
    case 8: return recvmsg(waits_for[4], &message, 0);
    case 9: return recvfrom(waits_for[5], bytes, 1, 0, (void *)&from, &length);
    case 10: return futex((void *)&entered, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    case 11: return nanosleep(&long_time, NULL);
    case 12: return (errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL)) ? -1 : 0;
    case 13: sigemptyset(&set), sigaddset(&set, SIGUSR2); return sigtimedwait(&set, NULL, NULL);
    case 14: return pause();
    case 15: sigemptyset(&set); return sigsuspend(&set);
    case 16: return wait4(-1, NULL, 0, NULL);
    case 17: return read(waits_for[6], bytes, 8);
    case 18: return flock(waits_for[7], LOCK_EX);
    default: return fcntl(waits_for[7], F_SETLKW, &lock);
    }
}
static void *wait_in_turn(void *argument) {
    int way = own_way = (int)(long)argument, wrong = 0;
    sem_post(&handled);
    while (taken[way] < TIMES) {
        long given = wait_in(way);
        // A futex may be woken for nothing.
        if (given != -1 || errno != EINTR) wrong += way != 10 || (given && errno != EAGAIN);
        if (wrong == 1) printf("way %d: %ld, errno %d\n", way, given, errno);
        if (wrong > 3) break;
    }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    has_ended[way] = 1;
    sem_post(&handled);
    return (void *)(long)wrong;
}
static void storm(void) {
    int ends[2], pairs[2];
    char bytes[PAGE];
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    if (pipe(ends)) exit(99);
    waits_for[0] = ends[0];
    int full[2];
    if (pipe(full)) exit(99);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], bytes, PAGE) > 0) {}
    fcntl(full[1], F_SETFL, 0), waits_for[1] = full[1];
    waits_for[2] = epoll_create1(0);
    waits_for[3] = socket(AF_INET, SOCK_STREAM, 0);
    bind(waits_for[3], (void *)&own, sizeof own), listen(waits_for[3], 1);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs)) exit(99);
    waits_for[4] = pairs[0];
    waits_for[5] = socket(AF_INET, SOCK_DGRAM, 0);
    bind(waits_for[5], (void *)&own, sizeof own);
    waits_for[6] = timerfd_create(CLOCK_MONOTONIC, 0);
    waits_for[7] = open("/tmp/bad_lock", O_RDWR | O_CREAT, 0600);
    // A child has the locks, and is one to wait for.
    int told[2];
    if (pipe(told)) exit(99);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        int file = open("/tmp/bad_lock", O_RDWR);
        flock(file, LOCK_EX), fcntl(file, F_SETLKW, &lock);
        write(told[1], "x", 1);
        for (;;) pause();
    }
    read(told[0], bytes, 1);
    struct sigaction action = { .sa_handler = note };
    sigaction(SIGUSR1, &action, NULL), sem_init(&handled, 0, 0);
    pthread_t threads[WAYS];
    for (long way = 0; way < WAYS; way++) {
        threads[way] = begin(wait_in_turn, way);
        while (sem_wait(&handled)) {}
    }
    // The next one is sent when one was taken, or a thread has ended.
    long wrong = 0, fewest = LONG_MAX;
    for (int living = 1; living;) {
        living = 0;
        for (int way = 0; way < WAYS; way++) {
            if (has_ended[way] || pthread_kill(threads[way], SIGUSR1)) continue;
            living++;
            while (sem_wait(&handled)) {}
        }
    }
    for (int way = 0; way < WAYS; way++) {
        wrong += end(threads[way]);
        if (taken[way] < fewest) fewest = taken[way];
    }
    check("signals at calls that wait", wrong == 0 && fewest >= TIMES, wrong ? wrong : fewest);
    kill(child, SIGKILL), check("the one that had the locks", ended(child) == 1000 + SIGKILL, 0);
    for (int i = 0; i < 8; i++) close(waits_for[i]);
    close(ends[1]), close(full[0]), close(pairs[1]), close(told[0]), close(told[1]), unlink("/tmp/bad_lock");
}

// Ids that nobody has.
static void forged(void) {
    siginfo_t info = { .si_code = SI_QUEUE };
    FAILS("a signal to nobody", ESRCH, kill(NOBODY, SIGURG));
    FAILS("to no group", ESRCH, kill(-NOBODY, SIGURG));
    FAILS("to the least of all numbers", ESRCH, kill(INT_MIN, SIGURG));
    FAILS("no such signal", EINVAL, kill(getpid(), 65));
    FAILS("nor this one", EINVAL, kill(getpid(), -1));
    FAILS("nobody's thread", ESRCH, syscall(SYS_tgkill, NOBODY, NOBODY, SIGURG));
    FAILS("another's thread", ESRCH, syscall(SYS_tgkill, NOBODY, getpid(), SIGURG));
    FAILS("no thread of ours", ESRCH, syscall(SYS_tgkill, getpid(), NOBODY, SIGURG));
    FAILS("thread 0", EINVAL, syscall(SYS_tgkill, getpid(), 0, SIGURG));
    FAILS("process -1", EINVAL, syscall(SYS_tgkill, -1, getpid(), SIGURG));
    FAILS("tkill of nobody", ESRCH, syscall(SYS_tkill, NOBODY, SIGURG));
    FAILS("tkill of 0", EINVAL, syscall(SYS_tkill, 0, SIGURG));
    FAILS("tkill of the largest", ESRCH, syscall(SYS_tkill, INT_MAX, SIGURG));
    FAILS("data to nobody", ESRCH, syscall(SYS_rt_sigqueueinfo, NOBODY, SIGURG, &info));
    FAILS("data to nobody's thread", ESRCH, syscall(SYS_rt_tgsigqueueinfo, NOBODY, NOBODY, SIGURG, &info));
    FAILS("a group for nobody", ESRCH, setpgid(NOBODY, 0));
    FAILS("a group that is not there", EPERM, setpgid(0, NOBODY));
    FAILS("group -1", EINVAL, setpgid(0, -1));
    FAILS("the group of nobody", ESRCH, getpgid(NOBODY));
    FAILS("the group of -1", ESRCH, getpgid(-1));
    FAILS("the session of nobody", ESRCH, getsid(NOBODY));
    FAILS("no child", ECHILD, waitpid(NOBODY, NULL, 0));
    FAILS("no child in such a group", ECHILD, waitpid(-NOBODY, NULL, 0));
    FAILS("no child at all", ECHILD, waitpid(-1, NULL, WNOHANG));
    FAILS("nor by waitid", ECHILD, waitid(P_PID, NOBODY, &info, WEXITED));
    FAILS("a wait for what", EINVAL, waitid(99, 0, &info, WEXITED));
    FAILS("a handle of nobody", ESRCH, syscall(SYS_pidfd_open, NOBODY, 0));
    FAILS("a handle of -1", EINVAL, syscall(SYS_pidfd_open, -1, 0));
    FAILS("a signal by no handle", EBADF, syscall(SYS_pidfd_send_signal, 999, SIGURG, NULL, 0));
    FAILS("limits of nobody", ESRCH, syscall(SYS_prlimit64, NOBODY, 7, NULL, NULL));
    char name[64];
    sprintf(name, "/proc/%d/stat", NOBODY);
    FAILS("nothing is told of nobody", ENOENT, open(name, O_RDONLY));
    GIVES("init is there", 0, kill(1, 0));
}

// Processes of several threads that fork, run another program, end or are killed, whatever the
// others are doing.
static int busy[2];
static void *be_busy(void *argument) {
    uint64_t random = (uint64_t)argument | 1;
    char bytes[3000];
    for (;;) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        struct timespec short_time = { 0, random >> 20 & 0xffff };
        struct pollfd entry = { busy[0], POLLIN };
        switch ((random >> 40) % 8) {
        case 0: write(busy[1], bytes, 1 + (random >> 16) % sizeof bytes); break;
        case 1: read(busy[0], bytes, 1 + (random >> 16) % sizeof bytes); break;
        case 2: nanosleep(&short_time, NULL); break;
        case 3: munmap(map(2 * PAGE), 2 * PAGE); break;
        case 4: close(open("/proc/self/stat", O_RDONLY)); break;
        case 5: poll(&entry, 1, 1); break;
        case 6: close(socket(AF_INET, SOCK_STREAM, 0)); break;
        default: sched_yield();
        }
    }
}
static volatile long counted;
static void *leave(void *argument) {
    long how = (long)argument;
    for (long turn = below(200); turn--;) sched_yield();
    for (long turn = below(20000); turn--;) counted++;
    if (how == 0) _exit(31);
    if (how == 1) execl("/proc/self/exe", "checks", "end", NULL);
    if (how == 2) {
        pid_t child = fork();
        if (!child) _exit(33);
        _exit(ended(child));
    }
    if (how == 3) kill(getpid(), SIGKILL);
    // Another one kills it.
    for (;;) pause();
}
static void ends_of_processes(long rounds) {
    static const int expected[] = { 31, 21, 33, 1000 + SIGKILL, 1000 + SIGKILL };
    long wrong = 0;
    for (long round = 0; round < rounds; round++) {
        long how = below(5);
        fflush(stdout);
        if (pipe2(busy, 0)) exit(99);
        pid_t child = fork();
        if (!child) {
            for (int i = 0; i < 3; i++) begin(be_busy, chosen + i);
            if (below(2)) leave((void *)how);
            else end(begin(leave, how));
        }
        close(busy[0]), close(busy[1]);
        for (long turn = below(100); turn--;) sched_yield();
        if (how == 4) {
            for (long turn = below(20000); turn--;) counted++;
            kill(child, SIGKILL);
        }
        int status = ended(child);
        if (status != expected[how] && !wrong++) printf("round %ld, way %ld: %d\n", round, how, status);
    }
    check("processes that end at any moment", wrong == 0, wrong);
    FAILS("and nobody is left", ECHILD, waitpid(-1, NULL, WNOHANG));
}

int main(int count, char **arguments) {
    if (count == 2) return 21;
    if (count < 3) return 2;
    chosen = strtoull(arguments[1], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
    printf("bad threads: seed %s, %s rounds\n", arguments[1], arguments[2]);
    signal(SIGPIPE, SIG_IGN);
    forged();
    words();
    bytes_that_come();
    bytes_that_go();
    calls_beside();
    execs();
    storm();
    crowd();
    ends_of_processes(atol(arguments[2]));
    return all_checked();
}
