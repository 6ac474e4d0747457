// Flags of calls that make processes and threads, wait for them, and say what they may.

static long clone_by(long flags, int *parent_at, int *child_at) { return syscall(SYS_clone, flags | SIGCHLD, 0L, parent_at, child_at, 0L); }
static long over(pid_t child) { int error = errno; if (child > 0) ended(child); errno = error; return child; }
TRY(clone_flags) { int one, other; pid_t child = clone_by(value, &one, &other); if (!child) _exit(0); return over(child); }
// What a thread does that its process is to see.
static volatile int seen_by_all, thread_process, thread_file;
static __thread int of_one;
static void on_usr2(int number) {}
static void *does(void *unused) {
    struct sigaction action = { .sa_handler = on_usr2 };
    seen_by_all = of_one = 5, thread_process = getpid(), thread_file = dup(0);
    umask(031), sigaction(SIGUSR2, &action, NULL);
    return (void *)7;
}
static long threaded(void) { seen_by_all = of_one = thread_process = thread_file = 0; return end(begin(does, 0)); }
SEEN(clone_flags, CLONE_VM) { return threaded() == 7 && seen_by_all == 5; }
SEEN(clone_flags, CLONE_FS) { long given = threaded(); return umask(022) == 031 && given == 7; }
SEEN(clone_flags, CLONE_FILES) { return threaded() == 7 && fcntl(thread_file, F_GETFD) == 0; }
SEEN(clone_flags, CLONE_SIGHAND) {
    struct sigaction found, plain = { .sa_handler = SIG_DFL };
    threaded(), sigaction(SIGUSR2, &plain, &found);
    return found.sa_handler == on_usr2 && fails_by(clone_by(value, NULL, NULL), EINVAL);
}
SEEN(clone_flags, CLONE_THREAD) { return threaded() == 7 && thread_process == getpid(); }
SEEN(clone_flags, CLONE_SETTLS) { return threaded() == 7 && of_one == 0; }
// Joining is waiting for the word to be cleared.
SEEN(clone_flags, CLONE_CHILD_CLEARTID) { return threaded() == 7; }
SEEN(clone_flags, CLONE_PIDFD) { int handle = -1; pid_t child = clone_by(value, &handle, NULL); if (!child) _exit(3); return child > 0 && is_cloexec(handle) && ready(handle, POLLIN, 2000) == POLLIN && ended(child) == 3; }
SEEN(clone_flags, CLONE_VFORK) {
    struct timespec pause = { 0, 20000000 };
    long began = now_ms();
    pid_t child = clone_by(value, NULL, NULL);
    if (!child) nanosleep(&pause, NULL), _exit(3);
    return child > 0 && now_ms() - began >= 19 && ended(child) == 3;
}
SEEN(clone_flags, CLONE_PARENT_SETTID) { int id = 0; pid_t child = clone_by(value, &id, NULL); if (!child) _exit(3); return child > 0 && id == child && ended(child) == 3; }
SEEN(clone_flags, CLONE_CHILD_SETTID) { int id = 0; pid_t child = clone_by(value, NULL, &id); if (!child) _exit(id == getpid() ? 3 : 4); return child > 0 && id == 0 && ended(child) == 3; }
// A child of which `number` tells when it has ended, at once, with 3.
static pid_t telling_by(long number) { pid_t child = syscall(SYS_clone, number, 0L, NULL, NULL, 0L); if (!child) _exit(3); return child; }
static volatile int end_number, end_of, end_code, end_status;
static void on_end(int number, siginfo_t *info, void *unused) { end_number = number, end_of = info->si_pid, end_code = info->si_code, end_status = info->si_status; }
SEEN(clone_flags, CSIGNAL) {
    struct sigaction action = { .sa_sigaction = on_end, .sa_flags = SA_SIGINFO | SA_RESTART };
    int status, fine;
    sigaction(SIGUSR2, &action, NULL), sigaction(SIGCHLD, &action, NULL);
    end_number = 0;
    pid_t child = telling_by(SIGUSR2 & value);
    fine = waitpid(child, &status, __WALL) == child && WEXITSTATUS(status) == 3 && end_number == SIGUSR2 && end_of == child && end_code == CLD_EXITED && end_status == 3;
    end_number = 0;
    child = telling_by(0);
    fine = fine && waitpid(child, &status, __WALL) == child && WEXITSTATUS(status) == 3 && end_number == 0;
    signal(SIGUSR2, SIG_DFL), signal(SIGCHLD, SIG_DFL);
    return fine;
}

static long clone3_by(long flags, int *handle) { struct clone_args wishes = { .flags = flags, .pidfd = (long)handle, .exit_signal = SIGCHLD }; return syscall(SYS_clone3, &wishes, sizeof wishes); }
TRY(clone3_flags) { int handle; pid_t child = clone3_by(value, &handle); if (!child) _exit(0); return over(child); }
SEEN(clone3_flags, CLONE_PIDFD) { int handle = -1; pid_t child = clone3_by(value, &handle); if (!child) _exit(3); return child > 0 && ready(handle, POLLIN, 2000) == POLLIN && ended(child) == 3; }
SEEN(clone3_flags, CLONE_CLEAR_SIGHAND) {
    struct sigaction action = { .sa_handler = on_usr2 }, plain = { .sa_handler = SIG_DFL }, found;
    sigaction(SIGUSR2, &action, NULL);
    pid_t child = clone3_by(value, NULL);
    if (!child) sigaction(SIGUSR2, NULL, &found), _exit(found.sa_handler == SIG_DFL ? 3 : 4);
    sigaction(SIGUSR2, &plain, &found);
    return child > 0 && ended(child) == 3 && found.sa_handler == on_usr2;
}

static uint32_t words[2];
static long futex(int at, long operation, long value, void *second, long third) { return syscall(SYS_futex, words + at, operation, value, second, words + 1, third); }
static long sleeping_by, sleeping_bits;
static void *sleeps(void *unused) { return (void *)futex(0, sleeping_by, 0, NULL, sleeping_bits); }
static pthread_t sleeper(long operation, long bits) { words[0] = words[1] = 0, sleeping_by = operation, sleeping_bits = bits; return begin(sleeps, 0); }
// Asks until somebody sleeps there, so often that a machine which stands still meanwhile does not matter.
#define UNTIL_ONE(call) ({ long given = 0; for (int tries = 0; given == 0 && tries < 2000; tries++) { struct timespec pause = { 0, 500000 }; nanosleep(&pause, NULL); given = (call); } given; })
TRY(futex_operations) { words[0] = words[1] = 0; return futex(0, value, 0, NULL, 0); }
SEEN(futex_operations, FUTEX_WAIT) { pthread_t thread = sleeper(value, 0); return UNTIL_ONE(futex(0, FUTEX_WAKE, 1, NULL, 0)) == 1 && end(thread) == 0 && fails_by(futex(0, value, 1, NULL, 0), EAGAIN); }
SEEN(futex_operations, FUTEX_WAKE) { pthread_t thread = sleeper(FUTEX_WAIT, 0); return UNTIL_ONE(futex(0, value, 1, NULL, 0)) == 1 && end(thread) == 0 && futex(0, value, 1, NULL, 0) == 0; }
SEEN(futex_operations, FUTEX_PRIVATE_FLAG) { pthread_t thread = sleeper(FUTEX_WAIT | value, 0); return UNTIL_ONE(futex(0, FUTEX_WAKE | value, 1, NULL, 0)) == 1 && end(thread) == 0; }
static int moves(long operation) {
    pthread_t thread = sleeper(FUTEX_WAIT, 0);
    if (UNTIL_ONE(futex(0, operation, 0, (void *)1, 0)) != 1) return 0;
    return futex(0, FUTEX_WAKE, 1, NULL, 0) == 0 && futex(1, FUTEX_WAKE, 1, NULL, 0) == 1 && end(thread) == 0;
}
SEEN(futex_operations, FUTEX_REQUEUE) { return moves(value); }
SEEN(futex_operations, FUTEX_CMP_REQUEUE) { return moves(value) && fails_by(futex(0, value, 0, (void *)1, 9), EAGAIN); }
SEEN(futex_operations, FUTEX_WAKE_OP) { pthread_t thread = sleeper(FUTEX_WAIT, 0); return UNTIL_ONE(futex(0, value, 1, (void *)1, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_GE, 0))) == 1 && end(thread) == 0 && words[1] >= 5 && words[1] % 5 == 0; }
static int owns(long operation) {
    words[0] = 0;
    return futex(0, operation, 0, NULL, 0) == 0 && words[0] == syscall(SYS_gettid) && fails_by(futex(0, operation, 0, NULL, 0), EDEADLK) && futex(0, FUTEX_UNLOCK_PI, 0, NULL, 0) == 0 && words[0] == 0;
}
SEEN(futex_operations, FUTEX_LOCK_PI) { return owns(value); }
SEEN(futex_operations, FUTEX_LOCK_PI2) { return owns(value); }
SEEN(futex_operations, FUTEX_TRYLOCK_PI) { return owns(value); }
SEEN(futex_operations, FUTEX_UNLOCK_PI) { return owns(FUTEX_LOCK_PI) && fails_by(futex(0, value, 0, NULL, 0), EPERM); }
SEEN(futex_operations, FUTEX_WAIT_BITSET) { pthread_t thread = sleeper(value, 2); return UNTIL_ONE(futex(0, FUTEX_WAKE_BITSET, 1, NULL, 6)) == 1 && end(thread) == 0 && fails_by(futex(0, value, 0, NULL, 0), EINVAL); }
SEEN(futex_operations, FUTEX_WAKE_BITSET) {
    pthread_t thread = sleeper(FUTEX_WAIT_BITSET, 2);
    struct timespec pause = { 0, 20000000 };
    nanosleep(&pause, NULL);
    return futex(0, value, 1, NULL, 5) == 0 && UNTIL_ONE(futex(0, value, 1, NULL, 2)) == 1 && end(thread) == 0;
}
SEEN(futex_operations, FUTEX_CLOCK_REALTIME) {
    struct timespec until;
    long began = now_ms();
    words[0] = 0;
    if (!fails_by(futex(0, FUTEX_WAIT | value, 0, NULL, 0), ENOSYS) || !fails_by(futex(0, FUTEX_WAKE | value, 0, NULL, 0), ENOSYS)) return 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 30;
    // Which was long ago by the time of day, and is to come by the other clock.
    if (!fails_by(futex(0, FUTEX_WAIT_BITSET | value, 0, &until, 1), ETIMEDOUT) || now_ms() / 1000 >= until.tv_sec) return 0;
    began = now_ms();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 6000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    return fails_by(futex(0, FUTEX_WAIT_BITSET | value, 0, &until, 1), ETIMEDOUT) && now_ms() - began >= 5;
}

TRY(futex_operations_of_FUTEX_WAKE_OP) { words[1] = 6; return futex(0, FUTEX_WAKE_OP, 0, NULL, (int)(value << 28 | 3 << 12)); }
SEES(futex_operations_of_FUTEX_WAKE_OP) { static const uint32_t found[] = { 3, 9, 7, 4, 5, 0, 0, 0, 8 }; return try_futex_operations_of_FUTEX_WAKE_OP(value) == 0 && words[1] == found[value]; }
// The second word, on which somebody sleeps while it is 0, is compared.
static long compared(long comparison, long with) { return syscall(SYS_futex, words + 1, FUTEX_WAKE_OP, 0L, 1L, words, (int)(FUTEX_OP_ADD << 28 | comparison << 24 | with & 0xfff)); }
TRY(futex_comparisons_of_FUTEX_WAKE_OP) { words[0] = 0; return compared(value, 0); }
SEES(futex_comparisons_of_FUTEX_WAKE_OP) {
    static const int fails[] = { 1, 0, 0, -1, 0, 1 }, holds[] = { 0, 1, 1, 0, -1, 0 };
    pthread_t thread = sleeper(FUTEX_WAIT, 0);
    struct timespec pause = { 0, 5000000 };
    nanosleep(&pause, NULL);
    return compared(value, fails[value]) == 0 && UNTIL_ONE(compared(value, holds[value])) == 1 && end(thread) == 0;
}

// Children to wait for: one that has ended, or will; one that waits to be killed.
static pid_t ending(void) { pid_t child = fork(); if (!child) _exit(3); return child; }
static pid_t staying(void) { pid_t child = fork(); if (!child) for (;;) pause(); return child; }
static void finish(pid_t child) { kill(child, SIGKILL); waitpid(child, NULL, 0); }
static long wait_by(pid_t child, long options, int *status) { return syscall(SYS_wait4, child, status, options, NULL); }
TRY(wait4_options) { int status; pid_t child = ending(); long given = wait_by(child, value, &status); int error = errno; if (given != child) finish(child); errno = error; return given; }
SEEN(wait4_options, WNOHANG) { int status; pid_t child = staying(); int none = wait_by(child, value, &status) == 0; finish(child); return none; }
SEEN(wait4_options, WUNTRACED) { int status; pid_t child = stopping(); int fine = wait_by(child, value, &status) == child && WIFSTOPPED(status); finish(child); return fine; }
SEEN(wait4_options, WCONTINUED) {
    int status;
    pid_t child = staying();
    kill(child, SIGSTOP), waitpid(child, &status, WUNTRACED), kill(child, SIGCONT);
    int fine = wait_by(child, value, &status) == child && WIFCONTINUED(status);
    finish(child);
    return fine;
}
static int are_clones(long options) { int status; pid_t plain = ending(), clone = telling_by(0); return fails_by(wait_by(clone, 0, &status), ECHILD) && fails_by(wait_by(plain, options, &status), ECHILD) && wait_by(clone, options, &status) == clone && wait_by(plain, 0, &status) == plain; }
static int are_all(long options) { int status; signal(SIGUSR1, SIG_IGN); pid_t plain = ending(), clone = telling_by(SIGUSR1); int fine = wait_by(clone, options, &status) == clone && wait_by(plain, options, &status) == plain; signal(SIGUSR1, SIG_DFL); return fine; }
SEEN(wait4_options, __WCLONE) { return are_clones(value); }
SEEN(wait4_options, __WALL) { return are_all(value); }
static long waitid_by(long kind, long id, long options, siginfo_t *info) { memset(info, 0, sizeof *info); return syscall(SYS_waitid, kind, id, info, options, NULL); }
TRY(waitid_options) { siginfo_t info; pid_t child = ending(); long given = waitid_by(P_PID, child, value | WEXITED, &info); int error = errno; if (info.si_pid != child) finish(child); errno = error; return given; }
SEEN(waitid_options, WNOHANG) { siginfo_t info; pid_t child = staying(); int none = waitid_by(P_PID, child, value | WEXITED, &info) == 0 && info.si_pid == 0; finish(child); return none; }
SEEN(waitid_options, WEXITED) { siginfo_t info; pid_t child = ending(); return waitid_by(P_PID, child, value, &info) == 0 && info.si_code == CLD_EXITED && info.si_status == 3; }
SEEN(waitid_options, WSTOPPED) { siginfo_t info; pid_t child = stopping(); int fine = waitid_by(P_PID, child, value, &info) == 0 && info.si_code == CLD_STOPPED; finish(child); return fine; }
SEEN(waitid_options, WCONTINUED) {
    siginfo_t info;
    pid_t child = staying();
    kill(child, SIGSTOP), waitpid(child, NULL, WUNTRACED), kill(child, SIGCONT);
    int fine = waitid_by(P_PID, child, value, &info) == 0 && info.si_code == CLD_CONTINUED;
    finish(child);
    return fine;
}
SEEN(waitid_options, WNOWAIT) { siginfo_t info; pid_t child = ending(); return waitid_by(P_PID, child, value | WEXITED, &info) == 0 && info.si_pid == child && ended(child) == 3; }
SEEN(waitid_options, __WCLONE) { siginfo_t info; pid_t clone = telling_by(0); return fails_by(waitid_by(P_PID, clone, WEXITED, &info), ECHILD) && waitid_by(P_PID, clone, WEXITED | value, &info) == 0 && info.si_pid == clone; }
SEEN(waitid_options, __WALL) { siginfo_t info; pid_t clone = telling_by(0), plain = ending(); return waitid_by(P_PID, clone, WEXITED | value, &info) == 0 && info.si_pid == clone && waitid_by(P_PID, plain, WEXITED | value, &info) == 0 && info.si_pid == plain; }
TRY(waitid_kinds_of_ids) { siginfo_t info; return waitid_by(value, 1, WEXITED, &info); }
static int is_found(long kind, pid_t child, long id) { siginfo_t info; return waitid_by(kind, id, WEXITED, &info) == 0 && info.si_pid == child && fails_by(waitpid(child, NULL, 0), ECHILD); }
SEEN(waitid_kinds_of_ids, P_ALL) { return is_found(value, ending(), 0); }
SEEN(waitid_kinds_of_ids, P_PID) { pid_t child = ending(); return is_found(value, child, child); }
SEEN(waitid_kinds_of_ids, P_PGID) { return is_found(value, ending(), getpgrp()); }
SEEN(waitid_kinds_of_ids, P_PIDFD) { pid_t child = ending(); return is_found(value, child, syscall(SYS_pidfd_open, child, 0L)); }

TRY(pidfd_open_flags) { return syscall(SYS_pidfd_open, getpid(), value); }
SEEN(pidfd_open_flags, PIDFD_NONBLOCK) { siginfo_t info; pid_t child = staying(); int fine = fails_by(waitid_by(P_PIDFD, syscall(SYS_pidfd_open, child, value), WEXITED, &info), EAGAIN); finish(child); return fine; }
TRY(pidfd_send_signal_flags) { return syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, getpid(), 0L), 0L, NULL, value); }

static long process_control(long option, long argument) { return syscall(SYS_prctl, option, argument, 0L, 0L, 0L); }
TRY(prctl_options) { return process_control(value, value == PR_SET_DUMPABLE ? 1 : 0); }
static int at_parents_end(void) { int number = -1; return process_control(PR_GET_PDEATHSIG, (long)&number) ? -2 : number; }
// What a child finds whose parent ends before it.
static void outlives(long option, pid_t parent, int to) {
    struct timespec limit = { 5, 0 };
    siginfo_t info;
    sigset_t wanted;
    sigemptyset(&wanted), sigaddset(&wanted, SIGUSR2), sigprocmask(SIG_BLOCK, &wanted, NULL);
    int is_set = process_control(option, SIGUSR2) == 0 && at_parents_end() == SIGUSR2;
    write(to, "a", 1);
    int is_told = sigtimedwait(&wanted, &info, &limit) == SIGUSR2 && info.si_pid == parent && info.si_code == SI_USER;
    write(to, is_set && is_told ? "y" : "n", 1);
    _exit(0);
}
SEEN(prctl_options, PR_SET_PDEATHSIG) {
    int ends[2];
    char word = 0;
    pipe(ends);
    pid_t parent = fork();
    if (!parent) {
        pid_t own = getpid();
        if (!fork()) outlives(value, own, ends[1]);
        read(ends[0], &word, 1);
        _exit(3);
    }
    return ended(parent) == 3 && read(ends[0], &word, 1) == 1 && word == 'y';
}
static int has_none(long unused) { return at_parents_end() == 0; }
static int asks_for_one(long unused) {
    if (at_parents_end() != 0 || process_control(PR_SET_PDEATHSIG, SIGUSR2) || !fails_by(process_control(PR_SET_PDEATHSIG, 65), EINVAL) || at_parents_end() != SIGUSR2) return 3;
    if (child_finds(has_none, 0) != 1) return 4;
    // Who becomes another user is asked again.
    return getuid() || (setuid(65534) == 0 && at_parents_end() == 0);
}
SEEN(prctl_options, PR_GET_PDEATHSIG) { return child_finds(asks_for_one, 0) == 1; }
// Root that becomes another keeps what is permitted, and changes its group once that is in force again; a program that it runs
// could not.
static int keeps_capabilities(long unused) {
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct own[2];
    if (process_control(PR_GET_KEEPCAPS, 0) || !fails_by(process_control(PR_SET_KEEPCAPS, 2), EINVAL) || process_control(PR_SET_KEEPCAPS, 1) || process_control(PR_GET_KEEPCAPS, 0) != 1) return 3;
    if (setresuid(7, 7, 7) || syscall(SYS_capget, &head, own) || own[0].effective || !own[0].permitted) return 4;
    if (!fails_by(setresgid(8, 8, 8), EPERM)) return 5;
    own[0].effective = own[0].permitted;
    return syscall(SYS_capset, &head, own) == 0 && setresgid(8, 8, 8) == 0 && getegid() == 8;
}
static int gives_capabilities_up(long unused) {
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { 0 }, own[2];
    if (syscall(SYS_capset, &head, none) || syscall(SYS_capget, &head, own) || own[0].effective || own[0].permitted) return 3;
    own[0].permitted = 1;
    if (!fails_by(syscall(SYS_capset, &head, own), EPERM)) return 4;
    head.pid = getppid();
    return fails_by(syscall(SYS_capset, &head, none), EPERM) && fails_by(setresgid(8, 8, 8), EPERM) && fails_by(setuid(7), EPERM);
}
SEEN(prctl_options, PR_SET_KEEPCAPS) { return getuid() ? NOT_HERE : child_finds(keeps_capabilities, 0) == 1; }
SEEN(prctl_options, PR_GET_KEEPCAPS) { return seen_prctl_options_PR_SET_KEEPCAPS(0); }
SEEN(prctl_options, PR_SET_NAME) { char name[16] = { 0 }; return process_control(value, (long)"coverage") == 0 && process_control(PR_GET_NAME, (long)name) == 0 && !strcmp(name, "coverage"); }
SEEN(prctl_options, PR_GET_NAME) { return seen_prctl_options_PR_SET_NAME(PR_SET_NAME); }
SEEN(prctl_options, PR_CAPBSET_READ) { return process_control(value, 0) >= 0 && fails_by(process_control(value, 64), EINVAL) && (is_linux || process_control(value, 0) == 1); }
static int gets_no_more(long unused) { return process_control(PR_GET_NO_NEW_PRIVS, 0) == 0 && fails_by(process_control(PR_SET_NO_NEW_PRIVS, 0), EINVAL) && process_control(PR_SET_NO_NEW_PRIVS, 1) == 0 && process_control(PR_GET_NO_NEW_PRIVS, 0) == 1; }
SEEN(prctl_options, PR_SET_NO_NEW_PRIVS) { return is_linux && process_control(PR_GET_NO_NEW_PRIVS, 0) ? NOT_HERE : child_finds(gets_no_more, 0) == 1; }
SEEN(prctl_options, PR_GET_NO_NEW_PRIVS) { return seen_prctl_options_PR_SET_NO_NEW_PRIVS(0); }

static long base(long option, unsigned long *at) { return syscall(SYS_arch_prctl, option, option == ARCH_SET_FS || option == ARCH_SET_GS ? *at : (long)at); }
TRY(arch_prctl_options) { unsigned long place = 0; return base(value, &place); }
static unsigned long of_fs(void) { unsigned long found; asm volatile("mov %%fs:0, %0" : "=r"(found)); return found; }
SEEN(arch_prctl_options, ARCH_GET_FS) { unsigned long found = 0; return base(value, &found) == 0 && found == of_fs(); }
SEEN(arch_prctl_options, ARCH_SET_FS) { unsigned long own = of_fs(); return base(value, &own) == 0 && of_fs() == own; }
SEEN(arch_prctl_options, ARCH_SET_GS) {
    unsigned long there = 77, at = (unsigned long)&there, none = 0, found = 0, read;
    if (base(value, &at)) return 0;
    asm volatile("mov %%gs:0, %0" : "=r"(read));
    return base(ARCH_GET_GS, &found) == 0 && found == at && read == 77 && base(value, &none) == 0;
}
SEEN(arch_prctl_options, ARCH_GET_GS) { return seen_arch_prctl_options_ARCH_SET_GS(ARCH_SET_GS); }

static int limit_to(long resource, long soft) { struct rlimit limit; if (getrlimit(resource, &limit)) return -1; limit.rlim_cur = soft; return setrlimit(resource, &limit); }
TRY(setrlimit_resources) { struct rlimit limit = { 0, 0 }, told; long given = syscall(SYS_getrlimit, value, &limit) | syscall(SYS_setrlimit, value, &limit); return given ? given : syscall(SYS_getrlimit, value, &told) || told.rlim_cur != limit.rlim_cur ? -1 : 0; }
static int deep(long left) { volatile char page[4096]; page[0] = left; return left ? deep(left - 1) + page[0] * 0 : 0; }
static void *nothing(void *unused) { return unused; }
// Root may have all.
static int has_no_more_processes(void) {
    struct rlimit limit;
    pthread_t thread;
    if (!getuid() && setuid(65534)) return 4;
    if (limit_to(RLIMIT_NPROC, 1) || !fails_by(fork(), EAGAIN) || pthread_create(&thread, NULL, nothing, NULL) != EAGAIN) return 5;
    getrlimit(RLIMIT_NPROC, &limit);
    if (limit_to(RLIMIT_NPROC, limit.rlim_max)) return 6;
    pid_t child = ending();
    return child > 0 && ended(child) == 3;
}
static int is_limited(long resource) {
    if (resource == RLIMIT_NPROC) return has_no_more_processes();
    int file = opened(O_RDWR);
    signal(SIGXFSZ, SIG_IGN);
    if (limit_to(resource, resource == RLIMIT_FSIZE ? 15 : resource == RLIMIT_NOFILE ? 12 : 16 << 20)) return 3;
    switch (resource) {
    case RLIMIT_FSIZE: return pwrite(file, "0123456789", 10, 10) == 5 && fails_by(pwrite(file, "x", 1, 15), EFBIG);
    case RLIMIT_NOFILE: while (dup(0) >= 0) {} return errno == EMFILE && fails_by(dup2(0, 12), EBADF) && dup2(0, 11) == 11;
    case RLIMIT_STACK: return deep(3000) == 0;
    case RLIMIT_DATA: {
        char *read_only = mmap(NULL, 64 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!fails_by(mprotect(read_only, 64 << 20, PROT_READ | PROT_WRITE), ENOMEM) || mprotect(read_only, PAGE, PROT_READ | PROT_WRITE)) return 4;
    } // fall through
    default: return fails_by((long)mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    }
}
// No second is used up at once: that is told. A child has the limit too, and none of the time; the last second ends it.
static volatile sig_atomic_t told_of_time;
static void tell_time(int unused) { told_of_time++; }
static int uses_up(long resource) {
    struct rlimit limit = { 0, 1 };
    signal(SIGXCPU, tell_time);
    if (setrlimit(resource, &limit)) return 3;
    for (int tries = 0; !told_of_time && tries < 50; tries++) use_ms(10);
    if (told_of_time != 1 || getrlimit(resource, &limit) || limit.rlim_cur != 1 || limit.rlim_max != 1) return 4;
    pid_t child = fork();
    if (!child) use_ms(700), told_of_time == 1 || (_exit(5), 0), use_ms(3000), _exit(6);
    return ended(child) == 1000 + SIGKILL ? 1 : 7;
}
SEEN(setrlimit_resources, RLIMIT_CPU) { return child_finds(uses_up, value) == 1; }
// In Linux the user's other processes count too.
static int queues_few(long resource) {
    int sent = 0;
    union sigval data = { 0 };
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGRTMIN), sigprocmask(SIG_BLOCK, &set, NULL);
    if (limit_to(resource, 3)) return 3;
    while (sent < 9 && !sigqueue(getpid(), SIGRTMIN, data)) sent++;
    return errno == EAGAIN && (is_linux ? sent <= 3 : sent == 3) && !kill(getpid(), SIGRTMIN);
}
SEEN(setrlimit_resources, RLIMIT_SIGPENDING) { return child_finds(queues_few, value) == 1; }
SEES(setrlimit_resources) { return child_finds(is_limited, value) == 1; }

static int uses(long whose) {
    struct rusage before, after;
    getrusage(whose, &before);
    if (whose == RUSAGE_CHILDREN) { pid_t child = fork(); if (!child) use_ms(12), _exit(3); ended(child); } else use_ms(12);
    if (getrusage(whose, &after)) return 0;
    long micro = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 + after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    return micro >= 5000;
}
TRY(getrusage_whose) { struct rusage usage; return syscall(SYS_getrusage, value, &usage); }
SEES(getrusage_whose) { return uses(value); }

TRY(setpriority_whose) { return syscall(SYS_setpriority, value, 0L, 0L); }
static int is_nicer(long whose) { return setpriority(whose, 0, 5) == 0 && getpriority(whose, 0) == 5; }
SEEN(setpriority_whose, PRIO_PROCESS) { return child_finds(is_nicer, value) == 1; }
TRY(sched_setscheduler_policies) { int priority = value == SCHED_FIFO || value == SCHED_RR; return syscall(SYS_sched_setscheduler, 0L, value, &priority); }
SEEN(sched_setscheduler_policies, SCHED_NORMAL) { return try_sched_setscheduler_policies(value) == 0 && sched_getscheduler(0) == value; }
TRY(sched_get_priority_max_policies) { return syscall(SYS_sched_get_priority_max, value); }
SEES(sched_get_priority_max_policies) { int real = value == SCHED_FIFO || value == SCHED_RR; return sched_get_priority_max(value) == (real ? 99 : 0) && sched_get_priority_min(value) == real; }

static long barrier(long command, long flags) { return syscall(SYS_membarrier, command, flags, 0L); }
TRY(membarrier_commands) { return barrier(value, 0); }
SEES(membarrier_commands) {
    long known = barrier(0, 0);
    if (is_linux && (known & value) != value) return NOT_HERE;
    // What is of the process alone asks to be registered first.
    if (value == 0x8 || value == 0x20 || value == 0x80) barrier(value << 1, 0);
    return value ? (known & value) == value && barrier(value, 0) == 0 : known > 0;
}
TRY(membarrier_flags) { return barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, value); }
SEEN(membarrier_flags, MEMBARRIER_CMD_FLAG_CPU) {
    if (is_linux && !(barrier(0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)) return NOT_HERE;
    barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0);
    return barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, value) == 0 && fails_by(barrier(MEMBARRIER_CMD_GLOBAL, value), EINVAL);
}

static struct __user_cap_data_struct capabilities[2];
TRY(capget_versions) { struct __user_cap_header_struct head = { value, 0 }; return syscall(SYS_capget, &head, capabilities); }
TRY(capset_versions) { struct __user_cap_header_struct head = { value, 0 }; if (value == _LINUX_CAPABILITY_VERSION_3) try_capget_versions(value); return syscall(SYS_capset, &head, capabilities); }
SEEN(capset_versions, _LINUX_CAPABILITY_VERSION_3) { return getuid() ? NOT_HERE : child_finds(gives_capabilities_up, 0) == 1; }
SEES(capget_versions) { return try_capget_versions(value) == 0 && (is_linux || capabilities[0].effective == ~0u); }
