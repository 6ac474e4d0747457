// What Linux promises of epoll, asked by a program. Each check prints "ok NAME" or "FAILED NAME" with
// what was found.
#include "checks.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static int add(int set, int file, unsigned events) {
    struct epoll_event event = { events, { .u64 = 0x100000000ull + file } };
    return epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
}
// The events of the one file that is ready; 0 for none, -1 for another file or several.
static long wait_one(int set, int file, int timeout) {
    struct epoll_event events[8];
    int count = epoll_wait(set, events, 8, timeout);
    if (count <= 0) return count ? -errno - 1000 : 0;
    return count == 1 && events[0].data.u64 == 0x100000000ull + file ? (long)events[0].events : -1;
}
static void count_up(int file) { uint64_t one = 1; if (write(file, &one, 8) != 8) exit(99); }
static void count_down(int file) { uint64_t all; if (read(file, &all, 8) != 8) exit(99); }

static void levels_and_edges(void) {
    int set = epoll_create1(0), file = eventfd(0, EFD_NONBLOCK);
    add(set, file, EPOLLIN);
    check("nothing yet", wait_one(set, file, 0) == 0, 0);
    count_up(file);
    long found = wait_one(set, file, 0);
    check("what is written is seen at once", found == EPOLLIN, found);
    check("a level stays", wait_one(set, file, -1) == EPOLLIN && wait_one(set, file, 0) == EPOLLIN, 0);
    count_down(file);
    check("until it is read", wait_one(set, file, 0) == 0, 0);

    struct epoll_event event = { EPOLLIN | EPOLLET, { .u64 = 0x100000000ull + file } };
    epoll_ctl(set, EPOLL_CTL_MOD, file, &event);
    count_up(file);
    found = wait_one(set, file, -1);
    check("an edge is told", found == EPOLLIN, found);
    check("once", wait_one(set, file, 0) == 0, 0);
    count_up(file);
    check("the next one too, though nothing was read", wait_one(set, file, -1) == EPOLLIN && wait_one(set, file, 0) == 0, 0);
    epoll_ctl(set, EPOLL_CTL_MOD, file, &event);
    check("a change tells again what holds", wait_one(set, file, 0) == EPOLLIN && wait_one(set, file, 0) == 0, 0);

    event.events = EPOLLIN | EPOLLONESHOT;
    epoll_ctl(set, EPOLL_CTL_MOD, file, &event);
    check("one shot", wait_one(set, file, 0) == EPOLLIN && wait_one(set, file, 0) == 0, 0);
    count_up(file);
    check("and no other", wait_one(set, file, 0) == 0, 0);
    epoll_ctl(set, EPOLL_CTL_MOD, file, &event);
    check("until it is asked for", wait_one(set, file, 0) == EPOLLIN, 0);
    close(file);
    check("what is closed is gone", wait_one(set, file, 0) == 0, 0);
    close(set);
}

// A stream that is written until it is full, and read until it is empty, by edges alone.
static void a_stream_by_edges(int one, int other, const char *name) {
    char bytes[4096];
    memset(bytes, 7, sizeof bytes);
    int set = epoll_create1(0);
    fcntl(one, F_SETFL, O_NONBLOCK), fcntl(other, F_SETFL, O_NONBLOCK);
    add(set, one, EPOLLOUT | EPOLLET), add(set, other, EPOLLIN | EPOLLET);
    long sent = 0, got = 0, total = 1 << 20, rounds = 0;
    while (got < total && rounds++ < 10000) {
        struct epoll_event events[2];
        int count = epoll_wait(set, events, 2, 20000);
        if (count <= 0) break;
        for (int at = 0; at < count; at++) {
            if (events[at].events & EPOLLOUT)
                while (sent < total) {
                    long done = write(one, bytes, total - sent < 4096 ? total - sent : 4096);
                    if (done < 0) break;
                    sent += done;
                }
            if (events[at].events & EPOLLIN)
                for (long done; (done = read(other, bytes, 4096)) > 0;) got += done;
        }
    }
    check(name, got == total, got);
    close(one), check("and its end is told", wait_one(set, other, 20000) & (EPOLLIN | EPOLLHUP), 0);
    close(other), close(set);
}

static void streams(void) {
    int files[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    if (pipe(files)) exit(99);
    a_stream_by_edges(files[1], files[0], "a megabyte through a pipe");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, files)) exit(99);
    a_stream_by_edges(files[0], files[1], "a megabyte through a socket pair");
    struct sockaddr_in address = { AF_INET, htons(7000), { htonl(INADDR_LOOPBACK) } };
    bind(listener, (void *)&address, sizeof address), listen(listener, 8);
    int set = epoll_create1(0), client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    add(set, listener, EPOLLIN | EPOLLET);
    // It was there before it was connected.
    int clients = epoll_create1(0);
    add(clients, client, EPOLLOUT | EPOLLET);
    check("a socket of no connection hangs up", wait_one(clients, client, 0) == (EPOLLOUT | EPOLLHUP), 0);
    int begun = connect(client, (void *)&address, sizeof address);
    check("a connection is begun", begun == 0 || errno == EINPROGRESS, begun);
    check("and told", wait_one(clients, client, 20000) == EPOLLOUT, 0);
    long found = wait_one(set, listener, 20000);
    check("a listener by edges", found == EPOLLIN && wait_one(set, listener, 0) == 0, found);
    int server = accept(listener, 0, 0);
    a_stream_by_edges(server, client, "a megabyte through a connection");
    close(listener), close(set), close(clients);
}

// The end of a pipe: a hang-up and nothing else, which select counts as readable.
static void *read_there(void *file) { char byte; return (void *)(long)read((long)file, &byte, 1); }
static void is_over(int file, int wait_ms, const char *name) {
    struct pollfd entry = { file, POLLIN, 0 };
    check(name, poll(&entry, 1, wait_ms) == 1 && entry.revents == POLLHUP, entry.revents);
    int set = epoll_create1(0);
    add(set, file, EPOLLIN);
    long found = wait_one(set, file, 0);
    check("epoll has a hang-up alone", found == EPOLLHUP && wait_one(set, file, 0) == EPOLLHUP, found);
    fd_set reads;
    struct timeval none = { 0, 0 };
    FD_ZERO(&reads);
    FD_SET(file, &reads);
    check("select has it to be read", select(file + 1, &reads, 0, 0, &none) == 1 && FD_ISSET(file, &reads), 0);
    check("and so it is", read_there((void *)(long)file) == 0, 0);
    close(set);
}
static void ends_of_pipes(void) {
    int files[2], again[2];
    char byte;
    if (pipe(files) || pipe(again) || write(files[1], "x", 1) != 1) exit(99);
    close(files[1]);
    struct pollfd entry = { files[0], POLLIN, 0 };
    check("what is left is told with the end", poll(&entry, 1, 0) == 1 && entry.revents == (POLLIN | POLLHUP), entry.revents);
    if (read(files[0], &byte, 1) != 1) exit(99);
    is_over(files[0], 0, "what is read is told no more"), close(files[0]);
    // Two threads wait, by one call each, when the last writer goes.
    pthread_t reader;
    void *read_there_gave = (void *)9;
    pthread_create(&reader, 0, read_there, (void *)(long)again[0]);
    pid_t child = fork();
    if (child == 0) {
        close(again[0]), usleep(50000);
        _exit(0);
    }
    close(again[1]);
    is_over(again[0], 20000, "a poll that waits hears of the end");
    pthread_join(reader, &read_there_gave);
    check("a read that waits gives 0", read_there_gave == 0, (long)read_there_gave);
    waitpid(child, 0, 0), close(again[0]);
    // A named one, by edges: each hang-up is one.
    if (mkfifo("/tmp/ends", 0600)) exit(99);
    int set = epoll_create1(0), from = open("/tmp/ends", O_RDONLY | O_NONBLOCK);
    close(open("/tmp/ends", O_WRONLY));
    add(set, from, EPOLLIN | EPOLLET);
    long found = wait_one(set, from, 1000);
    check("a named pipe's end", found == EPOLLHUP && wait_one(set, from, 0) == 0, found);
    int to = open("/tmp/ends", O_WRONLY);
    usleep(20000), close(to);
    found = wait_one(set, from, 1000);
    check("and the next one", found == EPOLLHUP && wait_one(set, from, 0) == 0, found);
    close(set), is_over(from, 0, "a named pipe's, looked at"), close(from), unlink("/tmp/ends");
}

// A thread that sends what it has while another one waits for the set, as event loops of several
// threads do. A write that takes less than all is the last one until there is news.
struct sending { int file, set, by_send, is_over; long sent; sem_t news; };
enum { SENT = 1 << 20 };
static void *wait_for_room(void *argument) {
    struct sending *all = argument;
    struct epoll_event event;
    while (!__atomic_load_n(&all->is_over, __ATOMIC_SEQ_CST) && epoll_wait(all->set, &event, 1, 20000) == 1) sem_post(&all->news);
    return 0;
}
static void *send_all(void *argument) {
    struct sending *all = argument;
    static char bytes[SENT];
    struct timespec late;
    clock_gettime(CLOCK_REALTIME, &late), late.tv_sec += 20;
    while (all->sent < SENT && !sem_timedwait(&all->news, &late)) {
        long left, done;
        do {
            left = SENT - all->sent;
            if (left > 50000) left = 50000;
            done = all->by_send ? send(all->file, bytes, left, 0) : write(all->file, bytes, left);
            if (done > 0) all->sent += done;
        } while (left && done == left);
    }
    shutdown(all->file, SHUT_WR);
    return 0;
}
static void room_is_told(int by_send, const char *name) {
    int files[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { AF_INET, htons(7010 + by_send), { htonl(INADDR_LOOPBACK) } };
    bind(listener, (void *)&address, sizeof address), listen(listener, 8);
    files[1] = socket(AF_INET, SOCK_STREAM, 0), connect(files[1], (void *)&address, sizeof address);
    files[0] = accept4(listener, 0, 0, SOCK_NONBLOCK);
    struct sending all = { files[0], epoll_create1(0), by_send };
    sem_init(&all.news, 0, 0);
    add(all.set, files[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    pthread_t waiter, sender;
    pthread_create(&waiter, 0, wait_for_room, &all), pthread_create(&sender, 0, send_all, &all);
    // Full before anything is read.
    usleep(200000);
    long got = 0, done;
    static char bytes[1 << 16];
    while ((done = read(files[1], bytes, sizeof bytes)) > 0) got += done;
    pthread_join(sender, 0);
    check(name, got == SENT, got);
    __atomic_store_n(&all.is_over, 1, __ATOMIC_SEQ_CST);
    close(files[1]), pthread_join(waiter, 0);
    close(files[0]), close(listener), close(all.set);
}

static void sets(void) {
    int outer = epoll_create1(0), inner = epoll_create1(0), file = eventfd(0, 0);
    add(outer, inner, EPOLLIN), add(inner, file, EPOLLIN);
    check("a set in a set", wait_one(outer, inner, 0) == 0, 0);
    count_up(file);
    check("is ready when it holds what is", wait_one(outer, inner, 20000) == EPOLLIN && wait_one(inner, file, 0) == EPOLLIN, 0);
    struct pollfd wanted = { inner, POLLIN };
    check("poll asks a set", poll(&wanted, 1, 0) == 1 && wanted.revents == POLLIN, wanted.revents);
    errno = 0;
    check("a circle is refused", add(inner, outer, EPOLLIN) == -1 && errno == ELOOP, errno);
    check("and a set in itself", add(inner, inner, EPOLLIN) == -1 && errno == EINVAL, errno);
    pid_t child = fork();
    if (child == 0) _exit(wait_one(inner, file, 20000) == EPOLLIN ? 11 : 12);
    int status;
    waitpid(child, &status, 0);
    check("a child asks for itself", WEXITSTATUS(status) == 11, WEXITSTATUS(status));
}

static int told, waiting;
static void *wait_there(void *argument) {
    struct epoll_event event;
    __atomic_store_n(&waiting, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)epoll_wait((int)(long)argument, &event, 1, 60000);
}
static void threads(void) {
    int set = epoll_create1(0), file = eventfd(1, 0);
    pthread_t thread;
    void *found;
    pthread_create(&thread, 0, wait_there, (void *)(long)set);
    while (!__atomic_load_n(&waiting, __ATOMIC_SEQ_CST)) usleep(1000);
    add(set, file, EPOLLIN);
    pthread_join(thread, &found);
    check("who waits is told of what is added", found == (void *)1, (long)found);
    count_down(file), waiting = 0;
    pthread_create(&thread, 0, wait_there, (void *)(long)set);
    while (!__atomic_load_n(&waiting, __ATOMIC_SEQ_CST)) usleep(1000);
    count_up(file);
    pthread_join(thread, &found);
    check("and of what another thread writes", found == (void *)1, (long)found);
    room_is_told(0, "and of room, after a write");
    room_is_told(1, "and of room, after a send");
}

// Threads that wait, each for what concerns it, cost nobody anything: what two others say to each
// other takes as long as it did before they came.
enum { READERS = 100, POLLED = 400, ROUNDS = 20 };
static int asked[2], answered[2], polled[POLLED], waiting_all;
static void say(int file, char byte) { if (write(file, &byte, 1) != 1) exit(99); }
static int hear(int file) { char byte; return read(file, &byte, 1) == 1 ? byte : -1; }
static void *answer(void *argument) {
    while (hear(asked[0]) == 1) say(answered[1], 1);
    return 0;
}
static long shortest_ns(void) {
    long shortest = 1l << 60;
    for (int stretch = 0; stretch < 15; stretch++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int round = 0; round < ROUNDS; round++) say(asked[1], 1), hear(answered[0]);
        clock_gettime(CLOCK_MONOTONIC, &end);
        long ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
        if (ns < shortest) shortest = ns;
    }
    return shortest;
}
static void *hear_there(void *argument) {
    __atomic_add_fetch(&waiting_all, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)hear((int)(long)argument);
}
static void *poll_there(void *argument) {
    struct pollfd all[POLLED];
    for (int at = 0; at < POLLED; at++) all[at] = (struct pollfd){ polled[at], POLLIN };
    __atomic_add_fetch(&waiting_all, 1, __ATOMIC_SEQ_CST);
    int count = poll(all, POLLED, 60000);
    return (void *)(long)(count == 1 && all[7].revents == POLLIN);
}
static void until_waiting(int count) {
    while (__atomic_load_n(&waiting_all, __ATOMIC_SEQ_CST) != count) usleep(1000);
    usleep(20000);
    waiting_all = 0;
}
static void crowd(void) {
    pthread_t answering, polling, reading[READERS];
    int files[READERS][2], right = 0;
    void *found;
    if (pipe(asked) || pipe(answered)) exit(97);
    pthread_create(&answering, 0, answer, 0);
    long alone = shortest_ns();
    for (int at = 0; at < POLLED; at++)
        if ((polled[at] = timerfd_create(CLOCK_MONOTONIC, 0)) < 0) exit(96);
    pthread_create(&polling, 0, poll_there, 0);
    for (int at = 0; at < READERS; at++)
        if (pipe(files[at]) || pthread_create(&reading[at], 0, hear_there, (void *)(long)files[at][0])) exit(95);
    until_waiting(READERS + 1);
    // A host that is busy with others may have been less so before: what costs time does so each time.
    long crowded = shortest_ns();
    for (int tries = 0; tries < 20 && crowded >= 2 * alone; tries++) {
        usleep(100000);
        long again = shortest_ns();
        if (again < crowded) crowded = again;
    }
    check("100 reads and a poll of 400 wait, and cost nothing", crowded < 2 * alone, crowded / (alone / 100 + 1));
    for (int at = READERS; at-- > 0;) {
        say(files[at][1], at);
        pthread_join(reading[at], &found);
        right += found == (void *)(long)at;
    }
    check("each read has what is its own", right == READERS, right);
    struct itimerspec soon = { { 0 }, { 0, 1 } };
    timerfd_settime(polled[7], 0, &soon, 0);
    pthread_join(polling, &found);
    check("the poll what is one of its", found == (void *)1, (long)found);
    for (int at = 0; at < POLLED; at++) close(polled[at]);
    say(asked[1], 2), pthread_join(answering, 0);
    // One change, enough for all of them: who is told passes it on.
    for (int at = 0; at < READERS; at++) pthread_create(&reading[at], 0, hear_there, (void *)(long)files[0][0]);
    until_waiting(READERS);
    char all[READERS];
    memset(all, 5, READERS);
    if (write(files[0][1], all, READERS) != READERS) exit(99);
    right = 0;
    for (int at = 0; at < READERS; at++) pthread_join(reading[at], &found), right += found == (void *)5;
    check("100 reads of one pipe each take a byte", right == READERS, right);
    for (int at = 0; at < READERS; at++) close(files[at][0]), close(files[at][1]);
    close(asked[0]), close(asked[1]), close(answered[0]), close(answered[1]);
}

// A set that several threads wait for, and several sets of which one is to be told.
static int returned;
static void *wait_once(void *argument) {
    struct epoll_event event;
    __atomic_add_fetch(&waiting_all, 1, __ATOMIC_SEQ_CST);
    long count = epoll_wait((int)(long)argument, &event, 1, 60000);
    __atomic_add_fetch(&returned, 1, __ATOMIC_SEQ_CST);
    return (void *)count;
}
static void several_wait(void) {
    enum { THREADS = 20 };
    pthread_t threads[THREADS];
    int set = epoll_create1(0), files[THREADS], sum = 0;
    void *found;
    for (int at = 0; at < THREADS; at++) add(set, files[at] = eventfd(0, 0), EPOLLIN | EPOLLET);
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], 0, wait_once, (void *)(long)set);
    until_waiting(THREADS);
    count_up(files[3]);
    while (!__atomic_load_n(&returned, __ATOMIC_SEQ_CST)) usleep(1000);
    usleep(20000);
    check("one of 20 that wait for a set is told", returned == 1, returned);
    for (int at = 0; at < THREADS; at++) if (at != 3) count_up(files[at]);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], &found), sum += found == (void *)1;
    check("and all of what is for all", sum == THREADS, sum);
    for (int at = 0; at < THREADS; at++) close(files[at]);
    close(set);

    int file = eventfd(0, 0), sets[3];
    for (int at = 0; at < 3; at++) add(sets[at] = epoll_create1(0), file, EPOLLIN | EPOLLEXCLUSIVE);
    struct epoll_event event = { EPOLLIN };
    check("an exclusive one is not changed", epoll_ctl(sets[0], EPOLL_CTL_MOD, file, &event) == -1 && errno == EINVAL, errno);
    int other = eventfd(0, 0);
    check("nor told once", add(sets[0], other, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT) == -1 && errno == EINVAL, errno);
    returned = 0;
    // In the third nobody waits.
    for (int at = 0; at < 2; at++) pthread_create(&threads[at], 0, wait_once, (void *)(long)sets[at]);
    until_waiting(2);
    count_up(file);
    while (!__atomic_load_n(&returned, __ATOMIC_SEQ_CST)) usleep(1000);
    usleep(20000);
    check("of two sets one is told", returned == 1, returned);
    count_up(file);
    for (int at = 0; at < 2; at++) pthread_join(threads[at], &found), sum += found == (void *)1;
    check("of what comes next the other", sum == THREADS + 2, sum);
    close(file), close(other);
    for (int at = 0; at < 3; at++) close(sets[at]);
}

// A counter that threads wait for in every way, when a fork makes it the child's too.
static int common;
static void *take_common(void *_) {
    uint64_t value = 0;
    __atomic_add_fetch(&waiting_all, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)(read(common, &value, 8) == 8 ? value : 0);
}
static void *look_at_common(void *_) {
    struct pollfd files[2] = { { answered[0], POLLIN, 0 }, { common, POLLIN, 0 } };
    __atomic_add_fetch(&waiting_all, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)(poll(files, 2, 60000) == 1 ? files[1].revents : 0);
}
static void common_counter(char *program) {
    void *(*waits[4])(void *) = { take_common, take_common, look_at_common, wait_once };
    pthread_t threads[4];
    void *found[4];
    if (pipe(answered)) exit(97);
    int set = epoll_create1(0), own = eventfd(4, EFD_CLOEXEC);
    add(set, common = eventfd(0, EFD_SEMAPHORE), EPOLLIN | EPOLLET);
    for (int at = 0; at < 4; at++) pthread_create(&threads[at], 0, waits[at], (void *)(long)set);
    until_waiting(4);
    pid_t child = fork();
    uint64_t value = 3;
    if (child == 0) _exit(write(common, &value, 8) == 8 ? 0 : 1);
    for (int at = 0; at < 4; at++) pthread_join(threads[at], &found[at]);
    check("a child wrote", ended(child) == 0, 0);
    check("two that read took one each", found[0] == (void *)1 && found[1] == (void *)1, (long)found[0]);
    check("who polled saw it", found[2] == (void *)POLLIN, (long)found[2]);
    check("and who waited for a set", found[3] == (void *)1, (long)found[3]);
    check("one is left", read(common, &value, 8) == 8 && value == 1, value);
    check("and none then", wait_one(set, common, 0) == 0, 0);
    close(common);
    // A child that borrows this memory runs a program, which has what is not closed.
    char number[16];
    add(set, common = eventfd(0, 0), EPOLLIN);
    snprintf(number, sizeof number, "%d", common);
    check("what exec closes is as it was", read(own, &value, 8) == 8 && value == 4, value);
    count_up(own);
    if ((child = vfork()) == 0) {
        execl(program, program, number, (char *)0);
        _exit(9);
    }
    check("a program wrote", ended(child) == 0, 0);
    check("and is heard", wait_one(set, common, -1) == EPOLLIN && read(common, &value, 8) == 8 && value == 7, value);
    check("what exec closes stays", read(own, &value, 8) == 8 && value == 1, value);
    close(set), close(own), close(common), close(answered[0]), close(answered[1]);
}

static void many(void) {
    int set = epoll_create1(0), files[900];
    for (int at = 0; at < 900; at++) {
        files[at] = eventfd(0, 0);
        if (files[at] < 0 || add(set, files[at], EPOLLIN | (at % 2 ? EPOLLET : 0))) exit(99);
    }
    check("900 idle ones", wait_one(set, 0, 0) == 0, 0);
    long right = 0;
    for (int at = 0; at < 900; at += 100) {
        count_up(files[at + 1]);
        right += wait_one(set, files[at + 1], -1) == EPOLLIN;
        count_down(files[at + 1]);
    }
    check("one of 900", right == 9, right);
    for (int at = 0; at < 900; at++) count_up(files[at]);
    struct epoll_event events[100];
    char seen[1024] = "";
    int rounds = 0, all = 0;
    for (; all < 900 && rounds < 30; rounds++) {
        int count = epoll_wait(set, events, 100, 0);
        for (int at = 0; at < count; at++) {
            int file = (int)events[at].data.u64;
            all += !seen[file], seen[file] = 1;
        }
    }
    check("all of 900 have their turn", all == 900, all);
}

// As many numbers as a server of 10,000 clients asks for; the lowest free one is given each time.
#define NUMBERS 10032
static void numbers(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    check("1,024 numbers at first", limit.rlim_cur == 1024 && limit.rlim_max >= NUMBERS, limit.rlim_cur);
    limit.rlim_cur = NUMBERS;
    check("10,032 can be had", setrlimit(RLIMIT_NOFILE, &limit) == 0, 0);
    int file = eventfd(0, EFD_CLOEXEC), last = file, next, set = epoll_create1(0), files[1000];
    while ((next = dup(file)) >= 0) last = next;
    check("and are all given", errno == EMFILE && last == NUMBERS - 1, last);
    close(5000), close(7000);
    next = dup(file), last = dup(file);
    check("the lowest first", next == 5000 && last == 7000 && dup(file) == -1, next);
    for (int at = 0; at < 1000; at++) {
        close(9000 + at);
        files[at] = eventfd(0, 0);
        if (files[at] != 9000 + at || add(set, files[at], EPOLLIN)) { check("a high number", 0, files[at]); return; }
    }
    check("1,000 high ones idle", wait_one(set, 0, 0) == 0, 0);
    count_up(files[700]);
    check("one of them", wait_one(set, files[700], -1) == EPOLLIN, 0);
    int child = fork();
    if (child == 0) {
        int is_fine = fcntl(NUMBERS - 1, F_GETFD) == 0 && wait_one(set, files[700], -1) == EPOLLIN;
        close_range(3, ~0u, 0);
        _exit(is_fine && dup(0) == 3 && fcntl(NUMBERS - 1, F_GETFD) == -1 ? 21 : 22);
    }
    int status;
    waitpid(child, &status, 0);
    check("a child has them, and closes all", WEXITSTATUS(status) == 21, WEXITSTATUS(status));
    close_range(9000, 9998, 0);
    check("what is closed is in no set", wait_one(set, 0, 0) == 0 && fcntl(9999, F_GETFD) == 0, 0);
    count_up(files[999]);
    check("and what is not, is", wait_one(set, files[999], -1) == EPOLLIN, 0);
}

int main(int count, char **arguments) {
    if (count == 2) {
        uint64_t value = 7;
        return write(atoi(arguments[1]), &value, 8) != 8;
    }
    levels_and_edges();
    streams();
    ends_of_pipes();
    sets();
    threads();
    crowd();
    several_wait();
    common_counter("/proc/self/exe");
    many();
    numbers();
    return all_checked();
}
