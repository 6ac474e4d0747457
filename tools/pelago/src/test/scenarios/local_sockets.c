// What Linux promises of event counters and sockets within the machine, asked by a program. Each check prints "FAILED NAME" with
// what was found if it does not hold.
#define ONLY_FAILURES
#include "checks.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

// What poll(2) finds at once.
static int ready(int descriptor, int events) {
    struct pollfd one = { .fd = descriptor, .events = events };
    return poll(&one, 1, 0) < 0 ? -1 : one.revents;
}

static pid_t begin(void) { fflush(stdout); return fork(); }
static int end(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void events(void) {
    uint64_t value = 0;
    int event = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    GIVES("eventfd is closed by exec", FD_CLOEXEC, fcntl(event, F_GETFD));
    GIVES("eventfd flags", O_RDWR | O_NONBLOCK, fcntl(event, F_GETFL));
    GIVES("eventfd is ready for both", POLLIN | POLLOUT, ready(event, POLLIN | POLLOUT));
    GIVES("eventfd is read", 8, read(event, &value, 8));
    check("eventfd gives all", value == 3, value);
    FAILS("eventfd at 0", EAGAIN, read(event, &value, 8));
    GIVES("eventfd at 0 is written only", POLLOUT, ready(event, POLLIN | POLLOUT));
    FAILS("eventfd reads no less than 8", EINVAL, read(event, &value, 4));
    value = UINT64_MAX;
    FAILS("eventfd takes no such number", EINVAL, write(event, &value, 8));
    value = UINT64_MAX - 1;
    GIVES("eventfd takes its largest", 8, write(event, &value, 8));
    value = 1;
    FAILS("eventfd is full", EAGAIN, write(event, &value, 8));
    GIVES("eventfd full is read only", POLLIN, ready(event, POLLIN | POLLOUT));
    GIVES("eventfd is always at 0", 0, lseek(event, 5, SEEK_SET));
    FAILS("eventfd without such flags", EINVAL, eventfd(0, 64));
    struct stat status;
    GIVES("eventfd has a status", 0, fstat(event, &status));
    check("eventfd is no file", (status.st_mode & S_IFMT) == 0, status.st_mode);
    close(event);

    int semaphore = eventfd(0, EFD_SEMAPHORE), set = epoll_create1(0), back = eventfd(0, 0);
    struct epoll_event interest = { .events = EPOLLIN, .data.u64 = 77 }, seen;
    GIVES("eventfd in a set", 0, epoll_ctl(set, EPOLL_CTL_ADD, semaphore, &interest));
    GIVES("a set at 0", 0, epoll_wait(set, &seen, 1, 0));
    pid_t child = begin();
    if (!child) {
        // Each is waited for: by a read, and by the parent's set.
        if (read(back, &value, 8) != 8 || value != 5) _exit(1);
        value = 2;
        _exit(write(semaphore, &value, 8) == 8 ? 0 : 2);
    }
    value = 5;
    GIVES("eventfd wakes a reader", 8, write(back, &value, 8));
    GIVES("a set is told", 1, epoll_wait(set, &seen, 1, 60000));
    check("with its data", seen.data.u64 == 77 && seen.events == EPOLLIN, seen.events);
    for (int i = 0; i < 2; i++) {
        GIVES("a semaphore is read", 8, read(semaphore, &value, 8));
        check("a semaphore gives one", value == 1, value);
    }
    GIVES("the child was woken", 0, end(child));
    GIVES("a semaphore that gave all", 0, ready(semaphore, POLLIN));
    close(set), close(semaphore), close(back);
}


static int is_text(const char *buffer, long count, const char *wanted) {
    return count == (long)strlen(wanted) && !memcmp(buffer, wanted, count);
}

static volatile sig_atomic_t pipes_broken;
static void broken(int number) { pipes_broken += number == SIGPIPE; }

static void streams(void) {
    int ends[2], value;
    socklen_t bytes;
    char buffer[200000];
    GIVES("socketpair", 0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
    GIVES("a pair is closed by exec", FD_CLOEXEC, fcntl(ends[1], F_GETFD));
    GIVES("a pair's flags", O_RDWR | O_NONBLOCK, fcntl(ends[0], F_GETFL));
    FAILS("a pair with nothing to read", EAGAIN, read(ends[0], buffer, 9));
    GIVES("a pair can be written", POLLOUT, ready(ends[0], POLLIN | POLLOUT));
    GIVES("a pair takes", 5, write(ends[0], "hello", 5));
    GIVES("and takes more", 6, send(ends[0], " there", 6, 0));
    GIVES("a pair can be read", POLLIN | POLLOUT, ready(ends[1], POLLIN | POLLOUT));
    GIVES("a look", 3, recv(ends[1], buffer, 3, MSG_PEEK));
    check("a look leaves it", is_text(buffer, 3, "hel"), 0);
    long count = read(ends[1], buffer, sizeof buffer);
    check("a pair joins", is_text(buffer, count, "hello there"), count);
    GIVES("the other way", 4, write(ends[1], "back", 4));
    struct iovec two[2] = { { buffer, 1 }, { buffer + 10, 9 } };
    GIVES("into two pieces", 4, readv(ends[0], two, 2));
    check("both pieces", buffer[0] == 'b' && !memcmp(buffer + 10, "ack", 3), 0);
    bytes = sizeof value;
    GIVES("SO_TYPE", 0, getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &value, &bytes));
    check("is a stream", value == SOCK_STREAM, value);
    GIVES("SO_ERROR", 0, getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &bytes));
    check("is none", value == 0, value);
    GIVES("SO_DOMAIN", 0, getsockopt(ends[0], SOL_SOCKET, SO_DOMAIN, &value, &bytes));
    check("is the machine", value == AF_UNIX, value);
    FAILS("a pair has no TCP option", EOPNOTSUPP, setsockopt(ends[0], 6, 1, &value, 4));
    struct ucred peer;
    bytes = sizeof peer;
    GIVES("SO_PEERCRED", 0, getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &peer, &bytes));
    check("is this process", peer.pid == getpid() && peer.uid == getuid(), peer.pid);
    struct stat status;
    fstat(ends[0], &status);
    check("is a socket", S_ISSOCK(status.st_mode), status.st_mode);

    // Full: the writer is told when there is room, and no byte is lost.
    long sent = 0, got = 0;
    memset(buffer, 'x', sizeof buffer);
    while ((count = write(ends[0], buffer, 7000)) > 0) sent += count;
    check("a full pair", errno == EAGAIN && sent >= 65536, sent);
    GIVES("full is not ready", 0, ready(ends[0], POLLOUT));
    while (!ready(ends[0], POLLOUT) && (count = read(ends[1], buffer, 9000)) > 0) got += count;
    while ((count = read(ends[1], buffer, sizeof buffer)) > 0) got += count;
    check("all that was sent", got == sent, got - sent);
    GIVES("empty is ready again", POLLOUT, ready(ends[0], POLLOUT));

    // Ends, and what is left behind.
    write(ends[0], "last", 4);
    GIVES("half of it ends", 0, shutdown(ends[0], SHUT_WR));
    check("which is seen", ready(ends[1], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP), ready(ends[1], POLLIN | POLLRDHUP));
    FAILS("nothing more is sent", EPIPE, send(ends[0], "x", 1, MSG_NOSIGNAL));
    GIVES("what was sent is there", 4, read(ends[1], buffer, 9));
    GIVES("then the end", 0, read(ends[1], buffer, 9));
    write(ends[1], "unread", 6);
    close(ends[0]);
    check("the end is a hang-up", (ready(ends[1], POLLIN) & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP), ready(ends[1], POLLIN));
    FAILS("an end is a broken pipe", EPIPE, write(ends[1], "x", 1));
    close(ends[1]);

    // Unread bytes that go with their end are a reset; a signal tells of a broken pipe.
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    write(ends[1], "unread", 6);
    close(ends[0]);
    FAILS("unread bytes are a reset", ECONNRESET, read(ends[1], buffer, 9));
    GIVES("which is told once", 0, read(ends[1], buffer, 9));
    signal(SIGPIPE, broken);
    FAILS("a broken pipe", EPIPE, write(ends[1], "x", 1));
    check("is a signal", pipes_broken == 1, pipes_broken);
    FAILS("a broken pipe, silently", EPIPE, send(ends[1], "x", 1, MSG_NOSIGNAL));
    check("is none", pipes_broken == 1, pipes_broken);
    signal(SIGPIPE, SIG_IGN);
    close(ends[1]);

    // Between processes, which both wait; more than fits at once.
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    pid_t child = begin();
    if (!child) {
        close(ends[0]);
        long total = 0;
        unsigned sum = 0;
        while ((count = read(ends[1], buffer, 5000)) > 0) {
            for (long i = 0; i < count; i++) sum = sum * 31 + (unsigned char)buffer[i];
            total += count;
        }
        write(ends[1], &sum, sizeof sum);
        _exit(total == sizeof buffer ? 0 : 1);
    }
    close(ends[1]);
    unsigned sum = 0, its;
    for (long i = 0; i < (long)sizeof buffer; i++) buffer[i] = i * 7, sum = sum * 31 + (unsigned char)buffer[i];
    GIVES("a long write", sizeof buffer, write(ends[0], buffer, sizeof buffer));
    shutdown(ends[0], SHUT_WR);
    GIVES("an answer in full", sizeof its, recv(ends[0], &its, sizeof its, MSG_WAITALL));
    check("every byte in its place", its == sum, its);
    GIVES("a child that read", 0, end(child));
    close(ends[0]);

    int descriptor = open("/tmp", O_RDONLY);
    FAILS("no socket", ENOTSOCK, send(descriptor, "x", 1, 0));
    FAILS("no such family", EAFNOSUPPORT, socketpair(9999, SOCK_STREAM, 0, ends));
    FAILS("no such type", EINVAL, socketpair(AF_UNIX, 77, 0, ends));
    FAILS("a type of others", ESOCKTNOSUPPORT, socketpair(AF_UNIX, SOCK_RDM, 0, ends));
    FAILS("no such protocol", EPROTONOSUPPORT, socketpair(AF_UNIX, SOCK_STREAM, 77, ends));
    FAILS("a bad pointer", EFAULT, socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8));
    close(descriptor);
}

static struct sockaddr_un address(const char *path, socklen_t *bytes) {
    struct sockaddr_un made = { .sun_family = AF_UNIX };
    size_t length = path[0] ? strlen(path) + 1 : 1 + strlen(path + 1);
    memcpy(made.sun_path, path, length);
    *bytes = offsetof(struct sockaddr_un, sun_path) + length;
    return made;
}

static int bound(int type, const char *path) {
    socklen_t bytes;
    struct sockaddr_un at = address(path, &bytes);
    int made = socket(AF_UNIX, type, 0);
    return bind(made, (void *)&at, bytes) ? -1 : made;
}

static int connected(int type, const char *path) {
    socklen_t bytes;
    struct sockaddr_un at = address(path, &bytes);
    int made = socket(AF_UNIX, type, 0);
    if (!connect(made, (void *)&at, bytes)) return made;
    int error = errno;
    close(made);
    errno = error;
    return -1;
}

static void names(int type, const char *path) {
    char buffer[64];
    struct sockaddr_un told;
    socklen_t bytes, full;
    struct sockaddr_un at = address(path, &full);
    int listener = bound(type, path);
    check("bind", listener >= 0, listener);
    FAILS("before it listens", ECONNREFUSED, connected(type, path));
    FAILS("accept before it listens", EINVAL, accept(listener, NULL, NULL));
    FAILS("a name that is taken", EADDRINUSE, bound(type, path));
    struct sockaddr_un other = address("/tmp/other", &bytes);
    FAILS("a second name", EINVAL, bind(listener, (void *)&other, bytes));
    FAILS("which leaves no file", ENOENT, access("/tmp/other", F_OK));
    GIVES("listen", 0, listen(listener, 1));
    FAILS("another kind there", path[0] ? EPROTOTYPE : ECONNREFUSED, connected(SOCK_DGRAM, path));
    GIVES("nobody comes", 0, ready(listener, POLLIN));
    bytes = sizeof told;
    memset(&told, 0, sizeof told);
    GIVES("getsockname", 0, getsockname(listener, (void *)&told, &bytes));
    check("its length", bytes == full, bytes);
    check("its text", !memcmp(&told, &at, full), 0);
    if (path[0]) {
        struct stat status;
        GIVES("a socket's file", 0, lstat(path, &status));
        check("is of its kind", S_ISSOCK(status.st_mode), status.st_mode);
        FAILS("is not opened", ENXIO, open(path, O_RDWR));
    }

    pid_t child = begin();
    if (!child) {
        int own = connected(type, path);
        struct ucred peer;
        bytes = sizeof peer;
        if (own < 0 || write(own, "hello", 5) != 5) _exit(1);
        if (getsockopt(own, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) || peer.pid != getppid()) _exit(2);
        bytes = sizeof told;
        if (getpeername(own, (void *)&told, &bytes) || memcmp(&told, &at, full)) _exit(3);
        if (read(own, buffer, sizeof buffer) != 4 || memcmp(buffer, "back", 4)) _exit(4);
        _exit(read(own, buffer, sizeof buffer) == 0 ? 0 : 5);
    }
    bytes = sizeof told;
    int taken = accept4(listener, (void *)&told, &bytes, SOCK_CLOEXEC);
    check("accept", taken >= 0, taken);
    check("from one without a name", bytes == 2 && told.sun_family == AF_UNIX, bytes);
    struct ucred peer;
    bytes = sizeof peer;
    GIVES("who it is", 0, getsockopt(taken, SOL_SOCKET, SO_PEERCRED, &peer, &bytes));
    check("is the child", peer.pid == child, peer.pid);
    bytes = sizeof told;
    GIVES("an accepted one's name", 0, getsockname(taken, (void *)&told, &bytes));
    check("is the listener's", bytes == full && !memcmp(&told, &at, full), bytes);
    long count = read(taken, buffer, sizeof buffer);
    check("what it says", is_text(buffer, count, "hello"), count);
    GIVES("an answer", 4, write(taken, "back", 4));
    close(taken);
    GIVES("the child is content", 0, end(child));

    // More than may wait; and those who wait when the listener goes.
    struct sockaddr_un to = address(path, &full);
    int waiting[3];
    for (int i = 0; i < 3; i++) {
        waiting[i] = socket(AF_UNIX, type | SOCK_NONBLOCK, 0);
        int done = connect(waiting[i], (void *)&to, full);
        check("as many wait as may", i < 2 ? !done : done == -1 && errno == EAGAIN, done);
    }
    GIVES("they are told of", POLLIN, ready(listener, POLLIN));
    taken = accept(listener, NULL, NULL);
    FAILS("connected already", EISCONN, connect(waiting[0], (void *)&to, full));
    close(listener);
    check("a listener's end is a reset", (ready(waiting[1], POLLIN) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP), ready(waiting[1], POLLIN));
    GIVES("the accepted one stays", 2, write(taken, "ok", 2));
    GIVES("and is heard", 2, read(waiting[0], buffer, 9));
    FAILS("nobody listens", ECONNREFUSED, connected(type, path));
    for (int i = 0; i < 3; i++) close(waiting[i]);
    close(taken);
    if (path[0]) {
        FAILS("the file stays", EADDRINUSE, bound(type, path));
        GIVES("until it is removed", 0, unlink(path));
        FAILS("then nothing is there", ENOENT, connected(type, path));
    }
    listener = bound(type, path);
    check("a name is free again", listener >= 0, listener);
    close(listener);
    if (path[0]) unlink(path);
}

static void mistakes(void) {
    socklen_t bytes;
    struct sockaddr_un at = address("/tmp/plain", &bytes);
    close(open("/tmp/plain", O_CREAT | O_WRONLY, 0600));
    FAILS("a file is no socket", ECONNREFUSED, connected(SOCK_STREAM, "/tmp/plain"));
    FAILS("a file's name is taken", EADDRINUSE, bound(SOCK_STREAM, "/tmp/plain"));
    FAILS("no such folder", ENOENT, bound(SOCK_STREAM, "/none/socket"));
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    FAILS("too short", EINVAL, bind(stream, (void *)&at, 1));
    FAILS("too long", EINVAL, bind(stream, (void *)&at, 111));
    FAILS("a bad address", EFAULT, bind(stream, (void *)8, bytes));
    at.sun_family = AF_INET;
    FAILS("another family", EINVAL, bind(stream, (void *)&at, bytes));
    FAILS("listen without a name", EINVAL, listen(stream, 1));
    FAILS("not connected", ENOTCONN, write(stream, "x", 1));
    FAILS("not connected, so no peer", ENOTCONN, getpeername(stream, (void *)&at, &bytes));
    check("not connected, so hung up", ready(stream, POLLIN | POLLOUT) == (POLLOUT | POLLHUP), ready(stream, POLLIN | POLLOUT));
    close(stream);
    unlink("/tmp/plain");
    // Relative paths, and the name of the longest.
    chdir("/tmp");
    char longest[109] = { 0 };
    memset(longest, 'n', 100);
    int listener = bound(SOCK_STREAM, longest);
    check("a long name", listener >= 0 && !listen(listener, 1), listener);
    memcpy(longest, "/tmp/", 5);
    memset(longest + 5, 'n', 100);
    int client = connected(SOCK_STREAM, longest);
    check("by its whole path", client >= 0, client);
    close(client), close(listener), unlink(longest), chdir("/");
}

static void messages(void) {
    char buffer[70000];
    static char too_long[1 << 20];
    struct sockaddr_un told;
    socklen_t bytes;
    int ends[2];
    for (int type = SOCK_DGRAM; type; type = type == SOCK_DGRAM ? SOCK_SEQPACKET : 0) {
        GIVES("a pair of messages", 0, socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, ends));
        GIVES("one", 3, write(ends[0], "one", 3));
        GIVES("none", 0, send(ends[0], "", 0, 0));
        struct iovec parts[2] = { { "th", 2 }, { "ree", 3 } };
        GIVES("of two parts", 5, writev(ends[0], parts, 2));
        GIVES("cut", 2, recv(ends[1], buffer, 2, 0));
        GIVES("an empty one", 0, recv(ends[1], buffer, 9, 0));
        struct iovec into[2] = { { buffer, 2 }, { buffer + 10, 2 } };
        struct msghdr header = { .msg_iov = into, .msg_iovlen = 2 };
        GIVES("the whole length, at a look", 5, recvmsg(ends[1], &header, MSG_TRUNC | MSG_PEEK));
        GIVES("scattered", 4, recvmsg(ends[1], &header, 0));
        check("and cut", header.msg_flags == MSG_TRUNC && !memcmp(buffer, "th", 2) && !memcmp(buffer + 10, "re", 2), header.msg_flags);
        FAILS("all taken", EAGAIN, recv(ends[1], buffer, 9, 0));
        write(ends[0], "abcde", 5), write(ends[0], "next", 4);
        GIVES("into two pieces, one message", 4, readv(ends[1], into, 2));
        GIVES("the next is the next", 4, read(ends[1], buffer, 9));
        FAILS("too long for any", EMSGSIZE, write(ends[0], too_long, sizeof too_long));
        GIVES("a large one", 60000, send(ends[0], buffer, 60000, 0));
        GIVES("in one piece", 60000, recv(ends[1], buffer, sizeof buffer, 0));
        int sent = 0, got = 0;
        while (send(ends[0], buffer, 1000, 0) == 1000) sent++;
        check("full of messages", errno == EAGAIN && sent > 5, sent);
        GIVES("which poll sees", 0, ready(ends[0], POLLOUT));
        while (recv(ends[1], buffer, sizeof buffer, 0) == 1000) got++;
        check("none is lost", got == sent, got);
        GIVES("and empty again", POLLOUT, ready(ends[0], POLLOUT));
        close(ends[0]);
        if (type == SOCK_SEQPACKET) GIVES("the end of messages", 0, recv(ends[1], buffer, 9, 0));
        else FAILS("no end of datagrams", EAGAIN, recv(ends[1], buffer, 9, 0));
        close(ends[1]);
    }
    // Names, sources and senders.
    socklen_t full, own_full;
    struct sockaddr_un at = address("/tmp/log", &full);
    int log = bound(SOCK_DGRAM, "/tmp/log"), client = socket(AF_UNIX, SOCK_DGRAM, 0), on = 1;
    GIVES("SO_PASSCRED", 0, setsockopt(log, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    FAILS("to nobody", ENOTCONN, send(client, "x", 1, 0));
    FAILS("datagrams have no listener", EOPNOTSUPP, listen(log, 1));
    GIVES("a name by itself", 0, bind(client, (void *)&at, 2));
    bytes = sizeof told;
    getsockname(client, (void *)&told, &bytes);
    check("is abstract", bytes == 8 && !told.sun_path[0], bytes);
    own_full = bytes;
    pid_t child = begin();
    if (!child) _exit(sendto(client, "from a child", 12, 0, (void *)&at, full) == 12 ? 0 : 1);
    struct sockaddr_un source;
    char control[64];
    struct iovec into = { buffer, sizeof buffer };
    struct msghdr header = { .msg_name = &source, .msg_namelen = sizeof source, .msg_iov = &into, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof control };
    GIVES("with its source", 12, recvmsg(log, &header, 0));
    check("the name it gave itself", header.msg_namelen == own_full && !memcmp(&source, &told, own_full), header.msg_namelen);
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    struct ucred *who = first ? (void *)CMSG_DATA(first) : NULL;
    check("with its sender", first && first->cmsg_type == SCM_CREDENTIALS && first->cmsg_len == CMSG_LEN(sizeof *who), header.msg_controllen);
    check("which is the child", who && who->pid == child && who->uid == 0, who ? who->pid : -1);
    GIVES("the child that sent", 0, end(child));
    header.msg_controllen = 4;
    sendto(client, "again", 5, 0, (void *)&at, full);
    GIVES("without room for that", 5, recvmsg(log, &header, 0));
    check("it is cut", header.msg_flags & MSG_CTRUNC, header.msg_flags);
    GIVES("datagrams are connected", 0, connect(client, (void *)&at, full));
    GIVES("and sent so", 2, write(client, "hi", 2));
    bytes = sizeof source;
    GIVES("with source again", 2, recvfrom(log, buffer, 9, 0, (void *)&source, &bytes));
    check("the same", bytes == own_full, bytes);
    GIVES("back to it", 4, sendto(log, "back", 4, 0, (void *)&source, bytes));
    GIVES("which arrives", 4, recv(client, buffer, 9, 0));
    close(log);
    FAILS("nobody there now", ECONNREFUSED, send(client, "x", 1, 0));
    unlink("/tmp/log");
    close(client);
}


static int send_descriptors(int by, const int *numbers, int count) {
    char control[CMSG_SPACE(sizeof(int) * 64)] = { 0 };
    struct iovec one = { "d", 1 };
    struct msghdr header = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = CMSG_SPACE(sizeof(int) * count) };
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET, first->cmsg_type = SCM_RIGHTS, first->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(first), numbers, sizeof(int) * count);
    return sendmsg(by, &header, 0);
}

// Gives how many came; -1 for none at all.
static int receive_descriptors(int by, int *numbers, int room, int flags, int *told) {
    char control[CMSG_SPACE(sizeof(int) * 64)], byte;
    struct iovec one = { &byte, 1 };
    struct msghdr header = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = room ? CMSG_LEN(sizeof(int) * room) : 0 };
    if (recvmsg(by, &header, flags) != 1 || byte != 'd') return -1;
    *told = header.msg_flags;
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    if (!first || first->cmsg_type != SCM_RIGHTS) return 0;
    int count = (first->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(numbers, CMSG_DATA(first), sizeof(int) * count);
    return count;
}

static void rights(int type) {
    int ends[2], pipes[2], got[64], told, count;
    char buffer[64];
    GIVES("a pair for descriptors", 0, socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, ends));
    // A file with its place, an end of a pipe, and an event, to a process that has none of them.
    pid_t child = begin();
    if (!child) {
        struct pollfd wait = { .fd = ends[1], .events = POLLIN };
        close(ends[0]);
        poll(&wait, 1, 60000);
        if (receive_descriptors(ends[1], got, 8, MSG_CMSG_CLOEXEC, &told) != 3 || told & MSG_CTRUNC) _exit(1);
        if (fcntl(got[0], F_GETFD) != FD_CLOEXEC) _exit(2);
        if (read(got[0], buffer, 4) != 4 || memcmp(buffer, "4567", 4)) _exit(3);
        if (fcntl(got[1], F_GETFL) != (O_WRONLY | O_NONBLOCK)) _exit(4);
        if (write(got[1], "through", 7) != 7) _exit(5);
        uint64_t one = 41;
        _exit(write(got[2], &one, 8) == 8 ? 0 : 6);
    }
    int file = open("/tmp/passed", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, "0123456789", 10);
    lseek(file, 4, SEEK_SET);
    GIVES("a pipe", 0, pipe2(pipes, O_NONBLOCK));
    int event = eventfd(1, 0);
    GIVES("descriptors are sent", 1, send_descriptors(ends[0], (int[]){ file, pipes[1], event }, 3));
    close(pipes[1]);
    GIVES("the child used them", 0, end(child));
    GIVES("the place is shared", 8, lseek(file, 0, SEEK_CUR));
    GIVES("a pipe's end in a child", 7, read(pipes[0], buffer, 9));
    GIVES("and its end", 0, read(pipes[0], buffer, 9));
    uint64_t value = 0;
    GIVES("an event from a child", 8, read(event, &value, 8));
    check("its count", value == 42, value);

    // They live in the message: the sender's numbers are closed, or the sender has ended.
    unlink("/tmp/passed");
    lseek(file, 6, SEEK_SET);
    child = begin();
    if (!child) _exit(send_descriptors(ends[0], (int[]){ file }, 1) == 1 ? 0 : 1);
    GIVES("a sender that ended", 0, end(child));
    close(file);
    GIVES("a look at it", 1, receive_descriptors(ends[1], got, 1, MSG_PEEK, &told));
    GIVES("gives it too", 2, read(got[0], buffer, 2));
    close(got[0]);
    GIVES("what it sent is there", 1, receive_descriptors(ends[1], got, 1, 0, &told));
    count = read(got[0], buffer, 9);
    check("with its content", is_text(buffer, count, "89"), count);
    close(got[0]);

    // To oneself: a second number for the same.
    file = open("/tmp", O_RDONLY);
    for (int i = 0; i < 300; i++) {
        if (send_descriptors(ends[0], (int[]){ file, event, pipes[0] }, 3) != 1) { check("again and again", 0, i); break; }
        count = receive_descriptors(ends[1], got, 3, 0, &told);
        if (count != 3) { check("again and again", 0, count); break; }
        while (count) close(got[--count]);
    }
    GIVES("the first number lives", 8, write(event, &value, 8));
    struct stat status;
    GIVES("the folder's too", 0, fstat(file, &status));

    // Too many for the room, nowhere to put them, or read over.
    send_descriptors(ends[0], (int[]){ event, event, event }, 3);
    GIVES("room for one", 1, receive_descriptors(ends[1], got, 1, 0, &told));
    check("of more", told & MSG_CTRUNC, told);
    close(got[0]);
    send_descriptors(ends[0], (int[]){ event }, 1);
    GIVES("no room", 0, receive_descriptors(ends[1], got, 0, 0, &told));
    check("is told", told & MSG_CTRUNC, told);
    pipe2(pipes, O_NONBLOCK);
    send_descriptors(ends[0], (int[]){ pipes[1] }, 1);
    close(pipes[1]);
    FAILS("a pipe in a message is open", EAGAIN, read(pipes[0], buffer, 1));
    GIVES("read without control", 1, read(ends[1], buffer, 1));
    GIVES("closes it", 0, read(pipes[0], buffer, 1));
    FAILS("a number that is none", EBADF, send_descriptors(ends[0], (int[]){ 999 }, 1));
    if (type == SOCK_STREAM) {
        // Bytes of two messages with descriptors are not joined.
        send_descriptors(ends[0], (int[]){ event }, 1);
        send_descriptors(ends[0], (int[]){ event }, 1);
        write(ends[0], "plain", 5);
        for (int i = 0; i < 2; i++) GIVES("one by one", 1, recv(ends[1], buffer, 9, 0));
        GIVES("and the rest", 5, recv(ends[1], buffer, 9, 0));
    }

    // What is lost with its socket, also when it lies in itself.
    pipe2(pipes, O_NONBLOCK);
    send_descriptors(ends[0], (int[]){ pipes[1], ends[1], ends[0] }, 3);
    send_descriptors(ends[1], (int[]){ ends[1], ends[0] }, 2);
    close(pipes[1]);
    FAILS("still open there", EAGAIN, read(pipes[0], buffer, 1));
    close(ends[0]), close(ends[1]);
    // Linux looks for such circles when it has time.
    struct pollfd gone = { .fd = pipes[0], .events = POLLIN };
    GIVES("gone in time", 1, poll(&gone, 1, 60000));
    GIVES("gone with the sockets", 0, read(pipes[0], buffer, 1));
    close(pipes[0]), close(event), close(file);
}


static int busy[2], idle[2], event_of_all;
static void *reads(void *unused) {
    char buffer[16];
    return (void *)recv(idle[1], buffer, sizeof buffer, 0);
}
static void *fills(void *unused) {
    static char buffer[50000];
    long sent = 0;
    for (int i = 0; i < 20; i++) sent += sendto(busy[0], buffer, sizeof buffer, 0, NULL, 0);
    return (void *)sent;
}
static void *counts(void *unused) {
    uint64_t value = 0;
    return (void *)(read(event_of_all, &value, 8) == 8 ? value : 0);
}

// Threads that wait at different ends, while others go on.
static void threads(int type) {
    static char buffer[50000];
    pthread_t all[3];
    void *results[3];
    socketpair(AF_UNIX, type, 0, busy), socketpair(AF_UNIX, type, 0, idle);
    event_of_all = eventfd(0, 0);
    void *(*starts[3])(void *) = { reads, fills, counts };
    for (int i = 0; i < 3; i++) pthread_create(&all[i], NULL, starts[i], NULL);
    long got = 0, count;
    while (got < 20 * 50000 && (count = recv(busy[1], buffer, sizeof buffer, 0)) > 0) got += count;
    check("all of a thread's messages", got == 20 * 50000, got);
    uint64_t value = 9;
    GIVES("to a thread that waits", 8, write(event_of_all, &value, 8));
    GIVES("and to another", 5, send(idle[0], "hello", 5, 0));
    for (int i = 0; i < 3; i++) pthread_join(all[i], &results[i]);
    check("one read", results[0] == (void *)5, (long)results[0]);
    check("one wrote", results[1] == (void *)(20 * 50000), (long)results[1]);
    check("one counted", results[2] == (void *)9, (long)results[2]);
    for (int i = 0; i < 2; i++) close(busy[i]), close(idle[i]);
    close(event_of_all);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    events();
    streams();
    for (int type = SOCK_STREAM; type; type = type == SOCK_STREAM ? SOCK_SEQPACKET : 0) {
        names(type, "/tmp/listener");
        names(type, "\0listener");
    }
    mistakes();
    messages();
    rights(SOCK_STREAM), rights(SOCK_SEQPACKET), rights(SOCK_DGRAM);
    threads(SOCK_STREAM), threads(SOCK_SEQPACKET), threads(SOCK_DGRAM);
    return all_checked();
}
