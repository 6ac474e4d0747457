// Flags of signals, timers and clocks.

// The kernel's own form: the C library keeps some flags to itself.
struct kernel_action { void *handler; unsigned long flags; void *restorer; uint64_t mask; };
static volatile int got, depth, deepest;
static volatile siginfo_t got_info;
static char *volatile got_at;
static int wakes_by;
static void count(int number, siginfo_t *info, void *context) {
    char here;
    got++, got_at = &here;
    if (info) got_info = *info;
    if (wakes_by) write(wakes_by, "x", 1);
    if (++depth > deepest) deepest = depth;
    if (got == 1 && number == SIGUSR2) raise(number);
    depth--;
}
static long raw_action(int number, struct kernel_action *new, struct kernel_action *old) { return syscall(SYS_rt_sigaction, number, new, old, 8L); }
// Counts a signal with those flags of the kernel's; gives the flags that are told back.
static long count_by(int number, long flags) {
    struct kernel_action known, action = { count, flags | SA_RESTORER };
    struct sigaction plain = { .sa_sigaction = count, .sa_flags = SA_SIGINFO };
    got = depth = deepest = wakes_by = 0, got_at = NULL;
    if (sigaction(number, &plain, NULL) || raw_action(number, NULL, &known)) return -1;
    action.restorer = known.restorer;
    if (raw_action(number, &action, NULL) || raw_action(number, NULL, &known)) return -1;
    return known.flags;
}
static int is_told(int number, long flag) { long told = count_by(number, flag); return told >= 0 && (told & flag) == flag; }
static int by_default(int number) { struct sigaction plain = { .sa_handler = SIG_DFL }; return sigaction(number, &plain, NULL); }
// A child that stops, is continued, and ends.
static pid_t stopping(void) { pid_t child = fork(); if (!child) { by_default(SIGCHLD), raise(SIGSTOP); _exit(0); } return child; }

TRY(rt_sigaction_flags) {
    long told = count_by(SIGUSR1, value);
    by_default(SIGUSR1);
    return value == SA_EXPOSE_TAGBITS || !(told & value) ? told : -1;
}
SEEN(rt_sigaction_flags, SA_NOCLDSTOP) {
    int status, told = is_told(SIGCHLD, value);
    pid_t child = stopping();
    int stopped = waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && got == 0;
    kill(child, SIGCONT);
    int over = ended(child) == 0 && got == 1;
    by_default(SIGCHLD);
    return told && stopped && over;
}
SEEN(rt_sigaction_flags, SA_NOCLDWAIT) {
    int told = is_told(SIGCHLD, value), status;
    pid_t child = fork();
    if (!child) _exit(0);
    int nobody = fails_by(waitpid(child, &status, 0), ECHILD);
    by_default(SIGCHLD);
    return told && nobody;
}
SEEN(rt_sigaction_flags, SA_SIGINFO) { int told = is_told(SIGUSR1, value); kill(getpid(), SIGUSR1); by_default(SIGUSR1); return told && got == 1 && got_info.si_code == SI_USER && got_info.si_pid == getpid(); }
SEEN(rt_sigaction_flags, SA_RESTORER) { int told = is_told(SIGUSR1, value); raise(SIGUSR1), raise(SIGUSR1); by_default(SIGUSR1); return told && got == 2; }
SEEN(rt_sigaction_flags, SA_ONSTACK) {
    static char bytes[65536];
    stack_t own = { .ss_sp = bytes, .ss_size = sizeof bytes }, none = { .ss_flags = SS_DISABLE };
    int told = is_told(SIGUSR1, value);
    sigaltstack(&own, NULL), raise(SIGUSR1), sigaltstack(&none, NULL), by_default(SIGUSR1);
    return told && got_at > bytes && got_at < bytes + sizeof bytes;
}
// A read that a signal comes into, whose handler writes what is read.
static long interrupted(long flags) {
    int ends[2];
    char c;
    struct itimerval soon = { { 0, 0 }, { 0, 10000 } };
    pipe(ends), count_by(SIGALRM, flags);
    wakes_by = ends[1];
    setitimer(ITIMER_REAL, &soon, NULL);
    errno = 0;
    long given = read(ends[0], &c, 1);
    int error = errno;
    wakes_by = 0, by_default(SIGALRM);
    return given < 0 ? -error : given;
}
// On a busy machine it may come before the read.
static int is_interrupted(long flags) { for (int i = 0; i < 6; i++) if (interrupted(flags) == -EINTR) return 1; return 0; }
SEEN(rt_sigaction_flags, SA_RESTART) { return is_interrupted(0) && interrupted(value) == 1; }
SEEN(rt_sigaction_flags, SA_NODEFER) { count_by(SIGUSR2, 0), raise(SIGUSR2); int once = deepest == 1; int told = is_told(SIGUSR2, value); raise(SIGUSR2), by_default(SIGUSR2); return once && told && deepest == 2; }
SEEN(rt_sigaction_flags, SA_RESETHAND) { struct kernel_action now; int told = is_told(SIGUSR1, value); raise(SIGUSR1), raw_action(SIGUSR1, NULL, &now); return told && got == 1 && now.handler == SIG_DFL; }

static uint64_t masked(long how, uint64_t set) { uint64_t now = 0; return syscall(SYS_rt_sigprocmask, how, &set, NULL, 8L) || syscall(SYS_rt_sigprocmask, 0L, NULL, &now, 8L) ? ~0ull : now; }
TRY(rt_sigprocmask_ways) { uint64_t set = 0; return syscall(SYS_rt_sigprocmask, value, &set, NULL, 8L); }
SEEN(rt_sigprocmask_ways, SIG_BLOCK) { masked(SIG_SETMASK, 2); uint64_t now = masked(value, 4); masked(SIG_SETMASK, 0); return now == 6; }
SEEN(rt_sigprocmask_ways, SIG_UNBLOCK) { masked(SIG_SETMASK, 6); uint64_t now = masked(value, 4); masked(SIG_SETMASK, 0); return now == 2; }
SEEN(rt_sigprocmask_ways, SIG_SETMASK) { masked(value, 6); uint64_t now = masked(value, 2); masked(value, 0); return now == 2; }

static char stack_bytes[65536];
TRY(sigaltstack_flags) { stack_t own = { .ss_sp = stack_bytes, .ss_size = sizeof stack_bytes, .ss_flags = value }, none = { .ss_flags = SS_DISABLE }; long given = syscall(SYS_sigaltstack, &own, NULL); int error = errno; sigaltstack(&none, NULL); errno = error; return given; }
SEEN(sigaltstack_flags, SS_DISABLE) { stack_t own = { .ss_sp = stack_bytes, .ss_size = sizeof stack_bytes }, none = { .ss_flags = value }, now = { 0 }; return !sigaltstack(&own, &now) && now.ss_flags == value && !sigaltstack(&none, &now) && now.ss_flags == 0 && !sigaltstack(NULL, &now) && now.ss_flags == value; }

// Clocks.

static long of_clock(long clock) { struct timespec now; return clock_gettime(clock, &now) ? -1 : now.tv_sec * 1000 + now.tv_nsec / 1000000; }
static void use_ms(long ms) { for (long end = of_clock(CLOCK_PROCESS_CPUTIME_ID) + ms; of_clock(CLOCK_PROCESS_CPUTIME_ID) < end;) {} }
TRY(clock_gettime_clocks) { struct timespec now; return syscall(SYS_clock_gettime, value, &now); }
SEES(clock_gettime_clocks) {
    struct timespec step;
    long before = of_clock(value), day = time(NULL) * 1000, up = now_ms();
    if (clock_getres(value, &step) || step.tv_sec || before < 0) return errno == EINVAL ? NOT_HERE : 0;
    use_ms(12);
    if (of_clock(value) <= before) return 0;
    long from = value == CLOCK_PROCESS_CPUTIME_ID || value == CLOCK_THREAD_CPUTIME_ID ? before : value == 0 || value == 5 || value == 8 || value == 11 ? day : up;
    // How far TAI is ahead, and the raw clock off, is the machine's to say.
    return labs(before - from) < (value == 11 ? 60000 : value == 4 ? 5000 : 2000) || is_linux && value == 4;
}
TRY(clock_settime_clocks) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now); return syscall(SYS_clock_settime, value, &now); }
TRY(clock_nanosleep_clocks) { struct timespec pause = { 0, 1000000 }; return syscall(SYS_clock_nanosleep, value, 0L, &pause, NULL); }
SEES(clock_nanosleep_clocks) {
    struct timespec pause = { 0, 6000000 };
    long began = now_ms();
    if (syscall(SYS_clock_nanosleep, value, 0L, &pause, NULL)) return errno == EPERM || errno == EOPNOTSUPP ? NOT_HERE : 0;
    return now_ms() - began >= 5;
}
TRY(clock_nanosleep_flags) { struct timespec pause = { 0, 1000000 }; return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, value, &pause, NULL); }
SEEN(clock_nanosleep_flags, TIMER_ABSTIME) {
    struct timespec end;
    long began = now_ms();
    // By a length it would be a sleep of half a century.
    clock_gettime(CLOCK_REALTIME, &end);
    if (syscall(SYS_clock_nanosleep, CLOCK_REALTIME, value, &end, NULL)) return 0;
    end.tv_nsec += 6000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    return syscall(SYS_clock_nanosleep, CLOCK_REALTIME, value, &end, NULL) == 0 && now_ms() - began >= 5;
}

// Timers that signal: SIGUSR1, which is waited for.
struct kernel_event { void *value; int number, notify, thread, rest[11]; };
static int timer_id;
static long timer_by(long clock, long notify) {
    struct kernel_event event = { NULL, SIGUSR1, notify, syscall(SYS_gettid) };
    return syscall(SYS_timer_create, clock, &event, &timer_id);
}
static long start(long flags, struct itimerspec spec) { return syscall(SYS_timer_settime, timer_id, flags, &spec, NULL); }
// Does it signal in time? It is deleted.
static int signals_within(long ms) {
    uint64_t set = 1 << (SIGUSR1 - 1);
    struct timespec limit = { ms / 1000, ms % 1000 * 1000000 };
    long came = syscall(SYS_rt_sigtimedwait, &set, NULL, &limit, 8L);
    syscall(SYS_timer_delete, timer_id);
    return came == SIGUSR1;
}
static void block_own(void) { masked(SIG_SETMASK, 1 << (SIGUSR1 - 1)); }
TRY(timer_create_clocks) { long given = timer_by(value, SIGEV_SIGNAL); int error = errno; if (given == 0) syscall(SYS_timer_delete, timer_id); errno = error; return given; }
SEES(timer_create_clocks) {
    if (timer_by(value, SIGEV_SIGNAL)) return errno == EPERM || errno == EOPNOTSUPP ? NOT_HERE : 0;
    block_own();
    int set = start(0, in_ms(6)) == 0, came = signals_within(2000);
    masked(SIG_SETMASK, 0);
    return set && came;
}
TRY(timer_create_notifications) { return timer_by(CLOCK_MONOTONIC, value); }
SEES(timer_create_notifications) {
    if (timer_by(CLOCK_MONOTONIC, value)) return 0;
    block_own();
    int set = start(0, in_ms(6)) == 0, came = signals_within(value == SIGEV_NONE ? 20 : 2000);
    masked(SIG_SETMASK, 0);
    return set && came == (value != SIGEV_NONE);
}
TRY(timer_settime_flags) { timer_by(CLOCK_MONOTONIC, SIGEV_NONE); long given = start(value, in_ms(1000)); syscall(SYS_timer_delete, timer_id); return given; }
SEEN(timer_settime_flags, TIMER_ABSTIME) {
    struct itimerspec spec = { 0 };
    timer_by(CLOCK_MONOTONIC, SIGEV_SIGNAL), block_own();
    clock_gettime(CLOCK_MONOTONIC, &spec.it_value);
    int set = start(value, spec) == 0, came = signals_within(2000);
    masked(SIG_SETMASK, 0);
    return set && came;
}
TRY(setitimer_timers) { struct itimerval wish = { { 0, 0 }, { 0, 0 } }; return syscall(SYS_setitimer, value, &wish, NULL); }
SEES(setitimer_timers) {
    static const int numbers[] = { SIGALRM, SIGVTALRM, SIGPROF };
    struct itimerval later = { { 0, 0 }, { 100, 0 } }, soon = { { 0, 0 }, { 0, 5000 } }, left = { 0 };
    count_by(numbers[value], 0);
    if (setitimer(value, &later, NULL) || getitimer(value, &left) || left.it_value.tv_sec < 90 || setitimer(value, &soon, NULL)) return 0;
    for (long end = now_ms() + 2000; !got && now_ms() < end;) {}
    by_default(numbers[value]);
    return got == 1 && getitimer(value, &left) == 0 && left.it_value.tv_usec == 0;
}
