// Flags of calls that make descriptors, wait for them, or ask what is behind them.

TRY(dup3_flags) { return syscall(SYS_dup3, opened(O_RDWR), 40L, value); }
SEEN(dup3_flags, O_CLOEXEC) { return dup3(opened(O_RDWR), 40, value) == 40 && is_cloexec(40) && dup3(opened(O_RDWR), 41, 0) == 41 && !is_cloexec(41); }
TRY(pipe2_flags) { int ends[2]; return syscall(SYS_pipe2, ends, value); }
SEEN(pipe2_flags, O_CLOEXEC) { int ends[2]; return pipe2(ends, value) == 0 && is_cloexec(ends[0]) && is_cloexec(ends[1]); }
SEEN(pipe2_flags, O_NONBLOCK) { int ends[2]; char c; return pipe2(ends, value) == 0 && is_nonblocking(ends[1]) && fails_by(read(ends[0], &c, 1), EAGAIN); }

static long counted(int file) { uint64_t count; return read(file, &count, 8) == 8 ? (long)count : -errno; }
TRY(eventfd2_flags) { return syscall(SYS_eventfd2, 0L, value); }
SEEN(eventfd2_flags, EFD_SEMAPHORE) { int file = eventfd(3, value | EFD_NONBLOCK); return counted(file) == 1 && counted(file) == 1 && counted(file) == 1 && counted(file) == -EAGAIN; }
SEEN(eventfd2_flags, EFD_CLOEXEC) { return is_cloexec(eventfd(0, value)); }
SEEN(eventfd2_flags, EFD_NONBLOCK) { return counted(eventfd(0, value)) == -EAGAIN; }

TRY(epoll_create1_flags) { return syscall(SYS_epoll_create1, value); }
SEEN(epoll_create1_flags, EPOLL_CLOEXEC) { return is_cloexec(epoll_create1(value)) && !is_cloexec(epoll_create1(0)); }

// What a set finds of a descriptor, and the set.
static int watched_by;
static long watch(int file, long events) {
    struct epoll_event event = { events, { .fd = file } };
    watched_by = epoll_create1(0);
    return epoll_ctl(watched_by, EPOLL_CTL_ADD, file, &event);
}
static long found(int timeout) { struct epoll_event event = { 0 }; int count = epoll_wait(watched_by, &event, 1, timeout); return count == 1 ? (long)event.events : count ? -1 : 0; }
static long control(long operation, int file, long events) { struct epoll_event event = { events, { .fd = file } }; return syscall(SYS_epoll_ctl, watched_by, operation, file, &event); }
TRY(epoll_ctl_operations) { watched_by = epoll_create1(0); return control(value, eventfd(1, 0), EPOLLIN); }
SEEN(epoll_ctl_operations, EPOLL_CTL_ADD) { watched_by = epoll_create1(0); int file = eventfd(1, 0); return control(value, file, EPOLLIN) == 0 && found(0) == EPOLLIN && fails_by(control(value, file, EPOLLIN), EEXIST); }
SEEN(epoll_ctl_operations, EPOLL_CTL_DEL) { int file = eventfd(1, 0); watch(file, EPOLLIN); return control(value, file, 0) == 0 && found(0) == 0 && fails_by(control(value, file, 0), ENOENT); }
SEEN(epoll_ctl_operations, EPOLL_CTL_MOD) { int file = eventfd(1, 0); watch(file, EPOLLIN); return control(value, file, EPOLLOUT) == 0 && found(0) == EPOLLOUT && fails_by(control(value, eventfd(1, 0), EPOLLIN), ENOENT); }

TRY(epoll_ctl_events) { return watch(eventfd(0, 0), value); }
// A stream, whose other end is gone if so.
static int stream(int alone) { int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair); if (alone) close(pair[1]); return pair[0]; }
// A pipe's end whose other one is gone.
static int lonely(int reads) { int ends[2]; pipe(ends); close(ends[reads]); return ends[!reads]; }
SEEN(epoll_ctl_events, EPOLLIN) { return watch(eventfd(1, 0), value) == 0 && found(0) == value && watch(eventfd(0, 0), value) == 0 && found(0) == 0; }
SEEN(epoll_ctl_events, EPOLLOUT) { int file = eventfd(0, 0); return watch(file, value) == 0 && found(0) == value && eventfd_write(file, ~0ull - 1) == 0 && found(0) == 0; }
SEEN(epoll_ctl_events, EPOLLERR) { return watch(lonely(0), 0) == 0 && (found(0) & value) != 0; }
SEEN(epoll_ctl_events, EPOLLHUP) { return watch(lonely(1), 0) == 0 && found(0) == value; }
SEEN(epoll_ctl_events, EPOLLRDNORM) { int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair), write(pair[1], "x", 1); return watch(pair[0], value) == 0 && found(0) == value; }
SEEN(epoll_ctl_events, EPOLLWRNORM) { return watch(stream(0), value) == 0 && found(0) == value; }
SEEN(epoll_ctl_events, EPOLLRDHUP) { int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair), shutdown(pair[1], SHUT_WR); return watch(pair[0], value) == 0 && found(0) == value; }
SEEN(epoll_ctl_events, EPOLLEXCLUSIVE) { int file = eventfd(1, 0); return watch(file, EPOLLIN | value) == 0 && found(0) == EPOLLIN && fails_by(control(EPOLL_CTL_MOD, file, EPOLLIN), EINVAL); }
SEEN(epoll_ctl_events, EPOLLONESHOT) { int file = eventfd(1, 0); return watch(file, EPOLLIN | value) == 0 && found(0) == EPOLLIN && found(0) == 0 && control(EPOLL_CTL_MOD, file, EPOLLIN) == 0 && found(0) == EPOLLIN; }
SEEN(epoll_ctl_events, EPOLLET) { int file = eventfd(1, 0); return watch(file, EPOLLIN | value) == 0 && found(0) == EPOLLIN && found(0) == 0 && eventfd_write(file, 1) == 0 && found(0) == EPOLLIN; }

TRY(poll_events) { return ready(eventfd(0, 0), value, 0); }
SEEN(poll_events, POLLIN) { return ready(eventfd(1, 0), value, 0) == value && ready(eventfd(0, 0), value, 0) == 0; }
SEEN(poll_events, POLLOUT) { int file = eventfd(0, 0); return ready(file, value, 0) == value && eventfd_write(file, ~0ull - 1) == 0 && ready(file, value, 0) == 0; }
SEEN(poll_events, POLLERR) { return (ready(lonely(0), 0, 0) & value) != 0; }
SEEN(poll_events, POLLHUP) { return ready(lonely(1), 0, 0) == value; }
SEEN(poll_events, POLLNVAL) { return ready(900, POLLIN, 0) == value; }
SEEN(poll_events, POLLRDNORM) { int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair), write(pair[1], "x", 1); return ready(pair[0], value, 0) == value; }
SEEN(poll_events, POLLWRNORM) { return ready(stream(0), value, 0) == value; }
SEEN(poll_events, POLLRDHUP) { int pair[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, pair), shutdown(pair[1], SHUT_WR); return ready(pair[0], value, 0) == value; }

static long signals_by(long flags) { uint64_t set = 1 << (SIGUSR2 - 1); return syscall(SYS_signalfd4, -1L, &set, 8L, flags); }
TRY(signalfd4_flags) { return signals_by(value); }
SEEN(signalfd4_flags, SFD_CLOEXEC) { return is_cloexec(signals_by(value)); }
SEEN(signalfd4_flags, SFD_NONBLOCK) { char record[128]; return fails_by(read(signals_by(value), record, 128), EAGAIN); }

TRY(timerfd_create_flags) { return syscall(SYS_timerfd_create, CLOCK_MONOTONIC, value); }
SEEN(timerfd_create_flags, TFD_CLOEXEC) { return is_cloexec(timerfd_create(CLOCK_MONOTONIC, value)); }
SEEN(timerfd_create_flags, TFD_NONBLOCK) { return counted(timerfd_create(CLOCK_MONOTONIC, value)) == -EAGAIN; }
TRY(timerfd_create_clocks) { return syscall(SYS_timerfd_create, value, 0L); }
SEES(timerfd_create_clocks) {
    int file = timerfd_create(value, TFD_NONBLOCK);
    struct itimerspec later = in_ms(100000), soon = in_ms(5);
    if (file < 0 && errno == EPERM) return NOT_HERE;
    return timerfd_settime(file, 0, &later, NULL) == 0 && counted(file) == -EAGAIN && timerfd_settime(file, 0, &soon, NULL) == 0 && ready(file, POLLIN, 1000) == POLLIN && counted(file) == 1;
}
TRY(timerfd_settime_flags) { struct itimerspec spec = in_ms(1000); return syscall(SYS_timerfd_settime, timerfd_create(CLOCK_MONOTONIC, 0), value, &spec, NULL); }
SEEN(timerfd_settime_flags, TFD_TIMER_ABSTIME) {
    struct itimerspec spec = { 0 };
    int file = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    clock_gettime(CLOCK_MONOTONIC, &spec.it_value);
    return timerfd_settime(file, value, &spec, NULL) == 0 && ready(file, POLLIN, 1000) == POLLIN;
}

TRY(close_range_flags) { return syscall(SYS_close_range, 500L, 600L, value); }
SEEN(close_range_flags, CLOSE_RANGE_CLOEXEC) { int file = opened(O_RDWR); return syscall(SYS_close_range, file, file, value) == 0 && is_cloexec(file); }
TRY(getrandom_flags) { char bytes[8]; return syscall(SYS_getrandom, bytes, 8L, value); }

static long asked(int file, long request) { static char place[4096]; memset(place, 0, sizeof place); return syscall(SYS_ioctl, file, request, place); }
TRY(ioctl_requests_to_any_descriptor) { return asked(opened(O_RDWR), value); }
SEEN(ioctl_requests_to_any_descriptor, FIOCLEX) { int file = opened(O_RDWR); return ioctl(file, value) == 0 && is_cloexec(file); }
SEEN(ioctl_requests_to_any_descriptor, FIONCLEX) { int file = opened(O_RDWR | O_CLOEXEC); return ioctl(file, value) == 0 && !is_cloexec(file); }
SEEN(ioctl_requests_to_any_descriptor, FIONBIO) { int ends[2], on = 1, off = 0; pipe(ends); return ioctl(ends[0], value, &on) == 0 && is_nonblocking(ends[0]) && ioctl(ends[0], value, &off) == 0 && !is_nonblocking(ends[0]); }
SEEN(ioctl_requests_to_any_descriptor, FIONREAD) { int pair[2], count = 0; socketpair(AF_UNIX, SOCK_STREAM, 0, pair), write(pair[1], "12345", 5); return ioctl(pair[0], value, &count) == 0 && count == 5; }
TRY(ioctl_requests_to_files) { return asked(opened(O_RDWR), value); }
TRY(ioctl_requests_to_timers) { return asked(timerfd_create(CLOCK_MONOTONIC, 0), value); }
TRY(ioctl_requests_to_sockets) { return asked(socket(AF_INET, SOCK_DGRAM, 0), value); }

// The system's console, or a terminal of our own.
static int terminal(void) {
    if (!is_linux) return 0;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlocked = 0;
    ioctl(master, TIOCSPTLCK, &unlocked);
    return master < 0 ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
}
static int settings_by(long request) {
    struct termios first = { 0 }, other, found = { 0 };
    int file = terminal();
    if (file < 0) return NOT_HERE;
    if (ioctl(file, TCGETS, &first)) return 0;
    other = first, other.c_lflag ^= ECHO;
    int is_set = ioctl(file, request, &other) == 0 && ioctl(file, TCGETS, &found) == 0 && found.c_lflag == other.c_lflag;
    return ioctl(file, TCSETS, &first) == 0 && is_set;
}
TRY(ioctl_requests_to_terminals) { return asked(terminal(), value); }
SEEN(ioctl_requests_to_terminals, TCGETS) { return settings_by(TCSETS); }
SEEN(ioctl_requests_to_terminals, TCSETS) { return settings_by(value); }
SEEN(ioctl_requests_to_terminals, TCSETSW) { return settings_by(value); }
SEEN(ioctl_requests_to_terminals, TCSETSF) { return settings_by(value); }
// A new session's terminal is asked for the group in front.
static int in_a_session(long unused) {
    int file = terminal(), group = 0, own;
    if (file < 0) return 2;
    if (setsid() < 0 || ioctl(file, TIOCSCTTY, 0)) return 3;
    own = getpid();
    if (ioctl(file, TIOCGPGRP, &group) || group != own) return 4;
    return ioctl(file, TIOCSPGRP, &own) == 0;
}
SEEN(ioctl_requests_to_terminals, TIOCSCTTY) { int given = child_finds(in_a_session, 0); return given == 2 ? NOT_HERE : given; }
SEEN(ioctl_requests_to_terminals, TIOCGPGRP) { return seen_ioctl_requests_to_terminals_TIOCSCTTY(0); }
SEEN(ioctl_requests_to_terminals, TIOCSPGRP) { return seen_ioctl_requests_to_terminals_TIOCSCTTY(0); }
SEEN(ioctl_requests_to_terminals, TIOCSWINSZ) {
    struct winsize size = { 31, 97, 0, 0 }, found = { 0 };
    int file = terminal();
    if (file < 0) return NOT_HERE;
    return ioctl(file, TIOCSWINSZ, &size) == 0 && ioctl(file, TIOCGWINSZ, &found) == 0 && found.ws_row == 31 && found.ws_col == 97;
}
SEEN(ioctl_requests_to_terminals, TIOCGWINSZ) { return seen_ioctl_requests_to_terminals_TIOCSWINSZ(0); }
