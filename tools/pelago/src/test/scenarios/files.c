// What Linux promises of files, locks, clocks and descriptors, asked by a program. Each check prints
// "ok NAME" or "FAILED NAME" with what was found.
#include "checks.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <poll.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>

static int make(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, "0123456789", 10) != 10) exit(99);
    return file;
}

static struct flock range(short type, long start, long length) {
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
}

static int lock(int file, int command, short type, long start, long length) {
    struct flock wish = range(type, start, length);
    return fcntl(file, command, &wish);
}

// A child that does something and then waits to be told to end.
static int told[2], telling[2];
static pid_t begin(void) {
    if (pipe(told) || pipe(telling)) exit(99);
    fflush(stdout);
    return fork();
}
static void say(int *pipe) { if (write(pipe[1], "x", 1) != 1) exit(99); }
static void hear(int *pipe) { char byte; if (read(pipe[0], &byte, 1) != 1) exit(99); }
static int end(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    for (int i = 0; i < 2; i++) close(told[i]), close(telling[i]);
    return status;
}

static long ns_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void clocks(void) {
    struct timespec now, later;
    struct timeval day;
    struct stat status;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("time %ld\n", (long)now.tv_sec);
    gettimeofday(&day, NULL);
    check("gettimeofday", day.tv_sec >= now.tv_sec && day.tv_sec <= now.tv_sec + 60, day.tv_sec);
    check("time", time(NULL) >= now.tv_sec && time(NULL) <= now.tv_sec + 60, time(NULL));
    fstat(make("/tmp/new"), &status);
    check("mtime", status.st_mtime >= now.tv_sec && status.st_mtime <= now.tv_sec + 60, status.st_mtime);
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += 20000000;
    if (now.tv_nsec >= 1000000000) now.tv_sec++, now.tv_nsec -= 1000000000;
    int slept = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &now, NULL);
    clock_gettime(CLOCK_REALTIME, &later);
    long early_ns = (now.tv_sec - later.tv_sec) * 1000000000 + now.tv_nsec - later.tv_nsec;
    check("sleep-until", slept == 0 && early_ns <= 0 && early_ns > -60000000000, early_ns);
    check("clock_settime", clock_settime(CLOCK_REALTIME, &now) == -1 && errno == EPERM, errno);
    check("settimeofday", settimeofday(&day, NULL) == -1 && errno == EPERM, errno);
    // Who computes uses time, no more than passes, and who sleeps uses none.
    long begun_ns = ns_of(CLOCK_MONOTONIC), used_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID), computed_ns;
    do computed_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID) - used_ns;
    while (computed_ns < 20000000 && ns_of(CLOCK_MONOTONIC) - begun_ns < 10000000000);
    check("cpu-time", computed_ns >= 20000000 && computed_ns <= ns_of(CLOCK_MONOTONIC) - begun_ns, computed_ns);
    // A machine that stands still before it sleeps or after is time of its own: the least counts.
    long least_ns = 1l << 60;
    for (int tries = 0; tries < 10 && least_ns >= 100000000; tries++) {
        used_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID);
        usleep(200000);
        computed_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID) - used_ns;
        if (computed_ns < least_ns) least_ns = computed_ns;
    }
    check("cpu-time-asleep", least_ns >= 0 && least_ns < 100000000, least_ns);
}

static void record_locks(void) {
    int file = make("/tmp/locked");
    pid_t child = begin();
    if (child == 0) {
        lock(file, F_SETLK, F_WRLCK, 2, 3);
        lock(file, F_SETLK, F_RDLCK, 7, 0);
        say(told);
        hear(telling);
        _exit(0);
    }
    hear(told);
    struct flock found = range(F_WRLCK, 0, 0);
    fcntl(file, F_GETLK, &found);
    check("getlk", found.l_type == F_WRLCK && found.l_start == 2 && found.l_len == 3 && found.l_pid == child, found.l_start);
    found = range(F_WRLCK, 6, 0);
    fcntl(file, F_GETLK, &found);
    check("getlk-shared", found.l_type == F_RDLCK && found.l_start == 7 && found.l_len == 0, found.l_start);
    found = range(F_RDLCK, 7, 1);
    fcntl(file, F_GETLK, &found);
    check("getlk-free", found.l_type == F_UNLCK, found.l_type);
    check("setlk-busy", lock(file, F_SETLK, F_WRLCK, 4, 1) == -1 && (errno == EAGAIN || errno == EACCES), errno);
    check("setlk-beside", lock(file, F_SETLK, F_WRLCK, 5, 2) == 0, 0);
    check("setlk-shared", lock(file, F_SETLK, F_RDLCK, 8, 1) == 0, 0);
    say(telling);
    check("setlkw-after-exit", lock(file, F_SETLKW, F_WRLCK, 0, 0) == 0, 0);
    end(child);

    // Closing any descriptor of the file gives the locks back; a child does not inherit them.
    child = begin();
    if (child == 0) _exit(lock(file, F_SETLK, F_WRLCK, 0, 1) == -1 ? 1 : 0);
    check("not-inherited", WEXITSTATUS(end(child)) == 1, 0);
    close(dup(file));
    child = begin();
    if (child == 0) _exit(lock(file, F_SETLKW, F_WRLCK, 0, 1) == -1 ? 1 : 0);
    check("close-of-a-copy", WEXITSTATUS(end(child)) == 0, 0);
    lock(file, F_SETLK, F_WRLCK, 0, 0);
    close(open("/tmp/locked", O_RDONLY));
    child = begin();
    if (child == 0) _exit(lock(file, F_SETLKW, F_WRLCK, 0, 1) == -1 ? 1 : 0);
    check("close-of-another", WEXITSTATUS(end(child)) == 0, 0);
    int readable = open("/tmp/locked", O_RDONLY);
    check("write-lock-of-a-reader", lock(readable, F_SETLK, F_WRLCK, 0, 1) == -1 && errno == EBADF, errno);
    close(readable);
    close(file);
}

// What is closed has ended for who asks next, be it the same process.
static void after_close(void) {
    int kept = 0, lost = 0, heard = 0;
    close(make("/tmp/closed"));
    if (mkfifo("/tmp/closed.pipe", 0600)) check("mkfifo", 0, errno);
    for (int round = 0; round < 50; round++) {
        int file = open("/tmp/closed", O_RDWR), other = open("/tmp/closed", O_RDWR);
        flock(other, LOCK_EX);
        close(other);
        kept += flock(file, LOCK_EX | LOCK_NB) != 0;
        close(open("/tmp/closed", O_RDWR));
        lock(file, F_SETLK, F_WRLCK, 0, 1);
        other = open("/tmp/closed", O_RDWR);
        struct flock found = range(F_WRLCK, 0, 0);
        lost += fcntl(other, F_OFD_GETLK, &found) != 0 || found.l_type != F_WRLCK;
        close(other), close(file);
        close(open("/tmp/closed.pipe", O_RDONLY | O_NONBLOCK));
        file = open("/tmp/closed.pipe", O_WRONLY | O_NONBLOCK);
        heard += file != -1 || errno != ENXIO;
        if (file >= 0) close(file);
    }
    check("flock-after-close", kept == 0, kept);
    check("setlk-after-close", lost == 0, lost);
    check("pipe-after-close", heard == 0, heard);
}

static void on_alarm(int number) { (void)number; }

static void lock_waits(void) {
    int file = make("/tmp/waited");
    pid_t child = begin();
    if (child == 0) {
        lock(file, F_SETLK, F_WRLCK, 0, 1);
        say(told);
        hear(telling);
        // Waits for its parent, who then must not wait for it.
        int waited = lock(file, F_SETLKW, F_WRLCK, 1, 1);
        _exit(waited == 0 ? 0 : 1);
    }
    hear(told);
    lock(file, F_SETLK, F_WRLCK, 1, 1);
    struct sigaction action = { .sa_handler = on_alarm };
    sigaction(SIGALRM, &action, NULL);
    // Again and again, as the first may come before the call.
    struct itimerval often = { { 0, 50000 }, { 0, 50000 } }, never = { 0 };
    setitimer(ITIMER_REAL, &often, NULL);
    check("wait-ends-by-signal", lock(file, F_SETLKW, F_WRLCK, 0, 1) == -1 && errno == EINTR, errno);
    setitimer(ITIMER_REAL, &never, NULL);
    say(telling);
    // The child's wait and ours: the second to come closes the circle and is told.
    int waited = lock(file, F_SETLKW, F_WRLCK, 0, 1), error = errno;
    lock(file, F_SETLK, F_UNLCK, 0, 0);
    int status = WEXITSTATUS(end(child));
    check("deadlock", (waited == -1 && error == EDEADLK && status == 0) || (waited == 0 && status == 1), error);
    close(file);
}

static void flocks(void) {
    close(make("/tmp/whole"));
    int one = open("/tmp/whole", O_RDONLY), two = open("/tmp/whole", O_RDONLY);
    check("flock", flock(one, LOCK_EX) == 0, 0);
    check("flock-busy", flock(two, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK, errno);
    pid_t child = begin();
    if (child == 0) {
        // The description is shared, and so is its lock.
        _exit(flock(one, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
    }
    check("flock-inherited", WEXITSTATUS(end(child)) == 0, 0);
    check("flock-shared", flock(one, LOCK_SH) == 0 && flock(two, LOCK_SH | LOCK_NB) == 0, errno);
    close(one);
    check("flock-closed", flock(two, LOCK_EX | LOCK_NB) == 0, errno);
    close(two);
    int first = open("/tmp/whole", O_RDWR), second = open("/tmp/whole", O_RDWR);
    check("ofd", lock(first, F_OFD_SETLK, F_WRLCK, 0, 5) == 0, errno);
    check("ofd-busy", lock(second, F_OFD_SETLK, F_WRLCK, 4, 1) == -1 && errno == EAGAIN, errno);
    check("ofd-against-process", lock(second, F_SETLK, F_WRLCK, 4, 1) == -1 && errno == EAGAIN, errno);
    close(first);
    check("ofd-closed", lock(second, F_OFD_SETLK, F_WRLCK, 4, 1) == 0, errno);
    close(second);
}

static void after_fork(void) {
    int before = failures;
    mkdir("/tmp/dir", 0755);
    close(make("/tmp/dir/file"));
    int directory = open("/tmp/dir", O_RDONLY | O_DIRECTORY), file = open("/tmp/dir/file", O_RDWR);
    rename("/tmp/dir", "/tmp/moved");
    pid_t child = begin();
    if (child == 0) {
        char path[100] = "";
        struct stat status;
        check("openat-in-child", openat(directory, "file", O_RDONLY) >= 0, 0);
        check("fstatat-in-child", fstatat(directory, "../moved/file", &status, 0) == 0, 0);
        check("mkdirat-in-child", mkdirat(directory, "new", 0700) == 0 && access("/tmp/moved/new", F_OK) == 0, 0);
        check("fchdir-in-child", fchdir(directory) == 0 && getcwd(path, sizeof path) && !strcmp(path, "/tmp/moved"), 0);
        check("fchmod-in-child", fchmod(file, 0640) == 0 && fstat(file, &status) == 0 && (status.st_mode & 0777) == 0640, status.st_mode);
        _exit(failures != before);
    }
    check("child", end(child) == 0, 0);
    check("not-a-directory", openat(file, "x", O_RDONLY) == -1 && errno == ENOTDIR, errno);
    check("linkat-follows", symlink("file", "/tmp/moved/link") == 0
        && linkat(directory, "link", directory, "second", AT_SYMLINK_FOLLOW) == 0
        && faccessat(directory, "second", F_OK, AT_SYMLINK_NOFOLLOW) == 0, errno);
    struct stat second;
    fstatat(directory, "second", &second, AT_SYMLINK_NOFOLLOW);
    check("linkat-to-file", S_ISREG(second.st_mode), second.st_mode);
    close(directory);
    close(file);
}

static void flags(void) {
    int file = make("/tmp/appended");
    check("setfl", fcntl(file, F_SETFL, O_APPEND) == 0 && (fcntl(file, F_GETFL) & O_APPEND) != 0, 0);
    lseek(file, 0, SEEK_SET);
    check("appends", write(file, "x", 1) == 1 && lseek(file, 0, SEEK_CUR) == 11, lseek(file, 0, SEEK_CUR));
    fcntl(file, F_SETFL, 0);
    lseek(file, 0, SEEK_SET);
    check("appends-no-more", write(file, "y", 1) == 1 && lseek(file, 0, SEEK_CUR) == 1, lseek(file, 0, SEEK_CUR));
    check("no-attributes", fgetxattr(file, "user.x", NULL, 0) == -1 && errno == EOPNOTSUPP, errno);
    check("no-attributes-by-path", lgetxattr("/tmp/appended", "user.x", NULL, 0) == -1 && errno == EOPNOTSUPP, errno);
    check("attributes-of-nothing", getxattr("/tmp/none", "user.x", NULL, 0) == -1 && errno == ENOENT, errno);
    check("attribute-list", listxattr("/tmp/appended", NULL, 0) == 0, errno);
    close(file);
}

static void devices(void) {
    static char bytes[3 << 20];
    int zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
    check("zero", read(zero, bytes, sizeof bytes) == sizeof bytes, 0);
    check("urandom", read(random, bytes, sizeof bytes) == sizeof bytes, 0);
    close(zero), close(random);
    int file = make("/tmp/by-number");
    char path[40], byte = 0;
    sprintf(path, "/dev/fd/%d", file);
    int again = open(path, O_RDONLY);
    check("dev-fd", again >= 0 && read(again, &byte, 1) == 1 && byte == '0', byte);
    struct stat one, two;
    check("dev-fd-stat", stat(path, &one) == 0 && fstat(file, &two) == 0 && one.st_ino == two.st_ino, one.st_ino);
    check("dev-fd-none", open("/dev/fd/200", O_RDONLY) == -1 && errno == ENOENT, errno);
    check("proc-self", readlink("/proc/self", path, sizeof path) > 0 && atoi(path) == getpid(), atoi(path));
    int ends[2];
    if (pipe(ends)) exit(99);
    sprintf(path, "/proc/self/fd/%d", ends[1]);
    again = open(path, O_WRONLY);
    check("fd-of-pipe", again >= 0 && write(again, "p", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'p', byte);
    int big = open("/tmp/big", O_RDWR | O_CREAT, 0600);
    check("sparse", ftruncate(big, 900l << 20) == 0, errno);
    // The machine has 512 MiB, and 128 of them to spare: before the one is refused and after.
    void *mapped;
    for (int round = 0; round < 2; round++) {
        mapped = mmap(NULL, 128l << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, big, 0);
        check("mmap-fits", mapped != MAP_FAILED && ((char *)mapped)[127l << 20] == 0, errno);
        if (mapped != MAP_FAILED) munmap(mapped, 128l << 20);
        mapped = mmap(NULL, 900l << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, big, 0);
        check("mmap-large", mapped == MAP_FAILED && errno == ENOMEM, errno);
        mapped = mmap(NULL, 900l << 20, PROT_READ, MAP_PRIVATE, big, 0);
        check("mmap-large-to-read", mapped != MAP_FAILED && ((char *)mapped)[899l << 20] == 0, errno);
        if (mapped != MAP_FAILED) munmap(mapped, 900l << 20);
    }
    mapped = mmap(NULL, 4 << 20, PROT_READ, MAP_PRIVATE, big, 899l << 20);
    check("mmap-past-the-end", mapped != MAP_FAILED && ((char *)mapped)[2 << 20] == 0, errno);
    munmap(mapped, 4 << 20);
    close(big);
}

// Flags that only MAP_SHARED_VALIDATE looks at. A file here lies in no persistent memory.
static void map_flags(void) {
    int file = make("/tmp/validated");
    int access = PROT_READ | PROT_WRITE;
    check("map-sync", mmap(NULL, 4096, access, MAP_SHARED_VALIDATE | MAP_SYNC, file, 0) == MAP_FAILED && errno == EOPNOTSUPP, errno);
    check("map-unknown", mmap(NULL, 4096, access, MAP_SHARED_VALIDATE | 1 << 25, file, 0) == MAP_FAILED && errno == EOPNOTSUPP, errno);
    check("map-no-kind", mmap(NULL, 4096, access, MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL, errno);
    char *mapped = mmap(NULL, 4096, access, MAP_SHARED_VALIDATE, file, 0);
    check("map-validated", mapped != MAP_FAILED && mapped[9] == '9', errno);
    munmap(mapped, 4096);
    close(file);
}

static struct rlimit limit_of(int resource) {
    struct rlimit found = { 1, 2 };
    getrlimit(resource, &found);
    return found;
}
static int set_limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit wanted = { soft, hard };
    return setrlimit(resource, &wanted);
}
// What a program finds that was started under limits.
static int limited(void) {
    struct rlimit files = limit_of(RLIMIT_NOFILE), stack = limit_of(RLIMIT_STACK);
    return files.rlim_cur != 16 || files.rlim_max != 32 || stack.rlim_cur != 1 << 20;
}
static long use_stack(long bytes) {
    volatile char part[16384];
    part[0] = bytes;
    return bytes <= 0 ? part[0] : use_stack(bytes - sizeof part) + part[0];
}

// Limits are kept, told, inherited and obeyed. In a child each, so that no other check is under them.
static void limits(void) {
    int before = failures;
    struct rlimit first = limit_of(RLIMIT_NOFILE);
    check("limit-soft-above-hard", set_limit(RLIMIT_NOFILE, 20, 10) == -1 && errno == EINVAL, errno);
    check("limit-of-nothing", set_limit(99, 1, 1) == -1 && errno == EINVAL, errno);
    check("limit-above-all", set_limit(RLIMIT_NOFILE, 16, RLIM_INFINITY) == -1 && errno == EPERM, errno);
    struct rlimit after = limit_of(RLIMIT_NOFILE);
    check("limit-unchanged", after.rlim_cur == first.rlim_cur && after.rlim_max == first.rlim_max, after.rlim_cur);
    pid_t child = begin();
    if (child == 0) {
        struct rlimit wanted = { 16, 32 }, old = { 0 };
        for (int i = 3; i < 64; i++) close(i);
        int ends[2], file = open("/dev/null", O_RDONLY), last = file;
        struct pollfd many[17] = { 0 };
        check("limit-set", prlimit(getpid(), RLIMIT_NOFILE, &wanted, &old) == 0 && old.rlim_cur == first.rlim_cur, old.rlim_cur);
        check("limit-told", limit_of(RLIMIT_NOFILE).rlim_cur == 16 && limit_of(RLIMIT_NOFILE).rlim_max == 32, 0);
        check("limit-dup2", dup2(file, 16) == -1 && errno == EBADF && dup2(file, 15) == 15, errno);
        check("limit-dupfd", fcntl(file, F_DUPFD, 16) == -1 && errno == EINVAL, errno);
        while ((file = open("/dev/null", O_RDONLY)) >= 0) last = file;
        check("limit-open", errno == EMFILE && last == 14, last);
        check("limit-pipe", pipe(ends) == -1 && errno == EMFILE, errno);
        check("limit-pair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == -1 && errno == EMFILE, errno);
        check("limit-epoll", epoll_create1(0) == -1 && errno == EMFILE, errno);
        check("limit-dup", dup(0) == -1 && errno == EMFILE, errno);
        check("limit-poll", poll(many, 17, 0) == -1 && errno == EINVAL, errno);
        close(last);
        check("limit-pipe-of-one", pipe(ends) == -1 && errno == EMFILE, errno);
        check("limit-open-again", open("/dev/null", O_RDONLY) == last, errno);
        for (int i = 3; i < 16; i++) close(i);
        set_limit(RLIMIT_STACK, 1 << 20, limit_of(RLIMIT_STACK).rlim_max);
        if (fork() == 0) {
            execl("/proc/self/exe", "checks", "limited", NULL);
            _exit(9);
        }
        int status = -1;
        wait(&status);
        check("limit-inherited", status == 0, status);
        _exit(failures != before);
    }
    check("limit-child", end(child) == 0, 0);
    child = begin();
    if (child == 0) {
        check("limit-memory", set_limit(RLIMIT_AS, 256 << 20, RLIM_INFINITY) == 0
            && mmap(NULL, 300 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM, errno);
        check("limit-memory-below", mmap(NULL, 10 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED, errno);
        check("limit-heap", set_limit(RLIMIT_DATA, 32 << 20, RLIM_INFINITY) == 0 && sbrk(64 << 20) == (void *)-1, errno);
        check("limit-heap-below", sbrk(1 << 20) != (void *)-1, errno);
        _exit(failures != before);
    }
    check("limit-child-of-memory", end(child) == 0, 0);
    child = begin();
    if (child == 0) {
        check("limit-stack", set_limit(RLIMIT_STACK, 32 << 20, limit_of(RLIMIT_STACK).rlim_max) == 0, errno);
        use_stack(24 << 20);
        _exit(failures != before);
    }
    check("limit-stack-grows", end(child) == 0, 0);
    struct rlimit none = limit_of(RLIMIT_CORE);
    check("limit-of-nobody", prlimit(999999, RLIMIT_CORE, NULL, &none) == -1 && errno == ESRCH, errno);
}

static void watched(void) {
    int first[2], second[2], set = epoll_create1(0);
    if (pipe(first) || pipe(second)) exit(99);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 7 };
    epoll_ctl(set, EPOLL_CTL_ADD, first[0], &event);
    if (write(second[1], "x", 1) != 1) exit(99);
    // What the number names now was never given to the set.
    dup2(second[0], first[0]);
    check("dup2-over-watched", epoll_wait(set, &event, 1, 0) == 0, 0);
    check("add-again", epoll_ctl(set, EPOLL_CTL_ADD, first[0], &event) == 0, errno);
    static struct pollfd many[256];
    for (int i = 0; i < 256; i++) many[i] = (struct pollfd){ .fd = second[0], .events = POLLIN };
    int ready = poll(many, 256, 0), fine = 0;
    for (int i = 0; i < 256; i++) fine += many[i].revents == POLLIN;
    check("poll-256", ready == 256 && fine == 256, fine);
    fd_set none;
    FD_ZERO(&none);
    struct timeval left = { .tv_sec = 100 };
    FD_SET(second[0], &none);
    check("select-time-left", select(second[0] + 1, &none, NULL, NULL, &left) == 1 && left.tv_sec >= 30 && left.tv_sec < 100, left.tv_sec);
}

// More pipes are closed by one call than closes may be under way.
enum { MANY = 300, FROM = 600 };
static struct pollfd readers[MANY];
static int close_writers(void) {
    int ends[2];
    for (int i = 0; i < MANY; i++) {
        if (pipe(ends) || fcntl(ends[1], F_DUPFD, FROM) != FROM + i || close(ends[1])) exit(99);
        readers[i] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
    }
    return close_range(FROM, FROM + MANY - 1, 0);
}
// How many readers hear of the end.
static int ended_readers(void) {
    int over = 0;
    while (over < MANY && poll(readers + over, 1, 5000) == 1 && readers[over].revents == POLLHUP) over++;
    for (int i = 0; i < MANY; i++) close(readers[i].fd);
    return over;
}

// No reader is told of an error meanwhile, all hear of the end, and a child holds none of them.
static void closes(void) {
    int fine = 0, over;
    check("close-300", close_writers() == 0, errno);
    poll(readers, MANY, 0);
    for (int i = 0; i < MANY; i++) fine += (readers[i].revents & ~POLLHUP) == 0;
    check("poll-while-300-close", fine == MANY, fine);
    over = ended_readers();
    check("300-are-closed", over == MANY, over);
    check("close-300-again", close_writers() == 0, errno);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    check("fork-while-300-close", child > 0, errno);
    over = ended_readers();
    check("none-is-inherited", over == MANY, over);
    if (child > 0) kill(child, SIGKILL), waitpid(child, NULL, 0);
}

// What a name leads to, opened without being used; by its number a file's permissions are changed, as
// the C library does for fchmodat.
static void places(void) {
    struct stat status = { 0 };
    char byte, path[32];
    close(make("/tmp/placed"));
    unlink("/tmp/placed-link");
    symlink("placed", "/tmp/placed-link");
    int link = open("/tmp/placed-link", O_PATH | O_NOFOLLOW), file = open("/tmp/placed-link", O_PATH);
    check("place-of-link", link >= 0 && fstat(link, &status) == 0 && S_ISLNK(status.st_mode), status.st_mode);
    check("place-of-file", file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode), status.st_mode);
    check("place-flags", (fcntl(file, F_GETFL) & (O_PATH | O_ACCMODE)) == O_PATH, fcntl(file, F_GETFL));
    check("place-read", read(file, &byte, 1) == -1 && errno == EBADF, errno);
    check("place-fchmod", fchmod(file, 0604) == -1 && errno == EBADF, errno);
    sprintf(path, "/proc/self/fd/%d", file);
    check("chmod-of-number", chmod(path, 0604) == 0, errno);
    check("chmod-seen", stat("/tmp/placed", &status) == 0 && (status.st_mode & 07777) == 0604, status.st_mode);
    check("fchmodat-no-follow", fchmodat(AT_FDCWD, "/tmp/placed", 0640, AT_SYMLINK_NOFOLLOW) == 0, errno);
    check("fchmodat-of-link", fchmodat(AT_FDCWD, "/tmp/placed-link", 0777, AT_SYMLINK_NOFOLLOW) == -1 && errno == EOPNOTSUPP, errno);
    int again = open(path, O_RDONLY);
    check("place-reopened", again >= 0 && read(again, &byte, 1) == 1 && byte == '0', errno);
    int folder = open("/tmp", O_PATH | O_DIRECTORY);
    check("place-of-folder", fstatat(folder, "placed", &status, 0) == 0, errno);
    close(link), close(file), close(again), close(folder);
}

static void sockets(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    check("sockets", listener >= 0 && client >= 0, errno);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(8081), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    check("reuseport", setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0, errno);
    struct timeval limit = { .tv_usec = 50000 }, none = { 0 }, told = { 0 };
    socklen_t bytes = sizeof told;
    check("bind", bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0, errno);
    check("set-limit", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, errno);
    check("get-limit", getsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &told, &bytes) == 0 && told.tv_usec == 50000 && bytes == 16, told.tv_usec);
    check("accept-in-time", accept(listener, NULL, NULL) == -1 && errno == EAGAIN, errno);
    // What comes is waited for without it.
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    check("connect", connect(client, (void *)&address, sizeof address) == 0, errno);
    int server = accept(listener, NULL, NULL);
    char byte;
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    check("receive-in-time", recv(client, &byte, 1, 0) == -1 && errno == EAGAIN, errno);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    check("receive", write(server, "a", 1) == 1 && recv(client, &byte, 1, MSG_WAITALL) == 1 && byte == 'a', byte);
    static char much[8 << 20];
    setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    long sent = write(server, much, sizeof much);
    check("send-in-time", sent > 0 && sent < (long)sizeof much, sent);
    // The time may have been over before it was full.
    long all = sent, more;
    while ((more = write(server, much, sizeof much)) > 0 && all < (long)sizeof much) all += more;
    check("send-when-full", more == -1 && errno == EAGAIN && all < (long)sizeof much, all);
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "limited")) return limited();
    clocks();
    record_locks();
    after_close();
    lock_waits();
    flocks();
    after_fork();
    flags();
    devices();
    map_flags();
    limits();
    watched();
    closes();
    places();
    sockets();
    return all_checked();
}
