// Threads in pairs, one of which sends the other bytes: pipes, socket pairs, TCP and a file that is
// gone round in. Sizes are drawn at random, signals interrupt calls, and every byte is checked.
//
// Arguments: seed, bytes for each pair.
#include "checks.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAIRS = 16, KINDS = 4, MOST = 64 << 10, ROUND = 96 << 10 };
enum kind { PIPE, SOCKETS, TCP, FILE_ROUND };

struct side {
    struct pair *pair;
    int file;
    uint64_t random;
    long calls;
    volatile long interrupted;
    pthread_t thread;
    volatile int ended;
};
static struct pair {
    int number;
    enum kind kind;
    struct side from, to;
    long wrong;
    // Of a file: how far both are.
    pthread_mutex_t lock;
    pthread_cond_t moved;
    long written, taken;
} pairs[PAIRS];
static long bytes_each;
static sem_t answered;
static volatile long handled;

static long below(struct side *side, long limit) {
    side->random ^= side->random << 13, side->random ^= side->random >> 7, side->random ^= side->random << 17;
    return (side->random >> 16) % limit;
}
static unsigned char at(int pair, long position) {
    uint32_t mixed = (uint32_t)position * 2654435761u + (uint32_t)pair * 40503u;
    return mixed >> 24 ^ mixed >> 9;
}

static void note(int signal) {
    handled++;
    sem_post(&answered);
}

// Sends a part in one of the ways there are; gives what came of it.
static long put(struct side *side, unsigned char *bytes, long count, long position) {
    struct pair *pair = side->pair;
    long first = below(side, count + 1);
    struct iovec parts[2] = { { bytes, first }, { bytes + first, count - first } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    int is_socket = pair->kind == SOCKETS || pair->kind == TCP;
    if (pair->kind == FILE_ROUND) {
        long place = position % ROUND;
        if (count > ROUND - place) count = ROUND - place;
        if (below(side, 2)) return pwrite(side->file, bytes, count, place);
        return lseek(side->file, place, SEEK_SET) == place ? write(side->file, bytes, count) : -1;
    }
    switch (below(side, is_socket ? 4 : 2)) {
    case 0: return write(side->file, bytes, count);
    case 1: return writev(side->file, parts, 2);
    case 2: return send(side->file, bytes, count, MSG_NOSIGNAL);
    default: return sendmsg(side->file, &message, 0);
    }
}
static long get(struct side *side, unsigned char *bytes, long count, long position) {
    struct pair *pair = side->pair;
    long first = below(side, count + 1);
    struct iovec parts[2] = { { bytes, first }, { bytes + first, count - first } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    int is_socket = pair->kind == SOCKETS || pair->kind == TCP;
    if (pair->kind == FILE_ROUND) {
        long place = position % ROUND;
        if (count > ROUND - place) count = ROUND - place;
        if (below(side, 2)) return pread(side->file, bytes, count, place);
        return lseek(side->file, place, SEEK_SET) == place ? read(side->file, bytes, count) : -1;
    }
    switch (below(side, is_socket ? 4 : 2)) {
    case 0: return read(side->file, bytes, count);
    case 1: return readv(side->file, parts, 2);
    case 2: return recv(side->file, bytes, count, 0);
    default: return recvmsg(side->file, &message, 0);
    }
}

// How much may be done now, at least 1: all, but of a file what the other one has left.
static long room(struct side *side, long position, long wanted) {
    struct pair *pair = side->pair;
    if (pair->kind != FILE_ROUND) return wanted;
    pthread_mutex_lock(&pair->lock);
    long most;
    while (!(most = side == &pair->from ? ROUND - (pair->written - pair->taken) : pair->written - pair->taken))
        pthread_cond_wait(&pair->moved, &pair->lock);
    pthread_mutex_unlock(&pair->lock);
    return wanted < most ? wanted : most;
}
static void advance(struct side *side, long position) {
    struct pair *pair = side->pair;
    if (pair->kind != FILE_ROUND) return;
    pthread_mutex_lock(&pair->lock);
    *(side == &pair->from ? &pair->written : &pair->taken) = position;
    pthread_cond_signal(&pair->moved);
    pthread_mutex_unlock(&pair->lock);
}

// Both sides: the same loop, with other bytes at its heart.
static void *run(void *argument) {
    struct side *side = argument;
    struct pair *pair = side->pair;
    int sends = side == &pair->from;
    unsigned char *bytes = malloc(MOST);
    long position = 0, filled = 0;
    while (position < bytes_each) {
        long left = bytes_each - position, wanted = below(side, below(side, 4) ? MOST : 64) + 1;
        long count = room(side, position, wanted < left ? wanted : left);
        if (sends) for (long i = 0; i < count; i++) bytes[i] = at(pair->number, position + i);
        long done = (sends ? put : get)(side, bytes, count, position);
        side->calls++;
        if (done == -1 && errno == EINTR) { side->interrupted++; continue; }
        if (done <= 0 || done > count) {
            printf("pair %d: %ld of %ld at %ld, errno %d\n", pair->number, done, count, position, errno);
            pair->wrong++;
            // The other one would wait for ever.
            exit(3);
        }
        if (!sends) for (long i = 0; i < done; i++) pair->wrong += bytes[i] != at(pair->number, position + i);
        position += done;
        advance(side, position);
    }
    free(bytes);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    side->ended = 1;
    sem_post(&answered);
    return (void *)position;
}

static void connect_tcp(int *ends) {
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1)) exit(99);
    getsockname(listener, (void *)&own, &length);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&own, sizeof own)) exit(99);
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}
static void connect_pair(struct pair *pair) {
    char name[40];
    int ends[2] = { -1, -1 };
    sprintf(name, "/tmp/pattern%d", pair->number);
    switch (pair->kind) {
    case PIPE: pipe(ends); break;
    case SOCKETS: socketpair(AF_UNIX, SOCK_STREAM, 0, ends); break;
    case TCP: connect_tcp(ends); break;
    case FILE_ROUND: ends[1] = open(name, O_RDWR | O_CREAT, 0600), ends[0] = open(name, O_RDWR); break;
    }
    if (ends[0] < 0 || ends[1] < 0) exit(99);
    pair->from.file = ends[1], pair->to.file = ends[0];
}

static void begin(struct side *side) {
    if (pthread_create(&side->thread, NULL, run, side)) exit(99);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    uint64_t seed = strtoull(words[1], NULL, 10);
    bytes_each = atol(words[2]);
    printf("pattern: seed %lu, %ld bytes for each pair\n", seed, bytes_each);
    sem_init(&answered, 0, 0);
    // No SA_RESTART: calls are to end.
    struct sigaction action = { .sa_handler = note };
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < PAIRS; i++) {
        struct pair *pair = &pairs[i];
        pair->number = i, pair->kind = i % KINDS, pair->from.pair = pair->to.pair = pair;
        pair->from.random = (seed + 2 * i) * 0x9e3779b97f4a7c15 | 1, pair->to.random = (seed + 2 * i + 1) * 0x9e3779b97f4a7c15 | 1;
        pthread_mutex_init(&pair->lock, NULL), pthread_cond_init(&pair->moved, NULL);
        connect_pair(pair);
    }
    // Nobody sends at first: a receiver waits, and a signal ends its call. A file's has no call that waits.
    for (int i = 0; i < PAIRS; i++) begin(&pairs[i].to);
    for (int i = 0; i < PAIRS; i++)
        while (pairs[i].kind != FILE_ROUND && !pairs[i].to.interrupted) {
            pthread_kill(pairs[i].to.thread, SIGUSR1);
            while (sem_wait(&answered)) {}
        }
    for (int i = 0; i < PAIRS; i++) begin(&pairs[i].from);
    // One signal after the other: the next is sent when a thread has taken one, or has ended.
    struct side self = { .random = seed * 0x9e3779b97f4a7c15 | 1 };
    for (int living = 2 * PAIRS; living;) {
        struct side *all[2 * PAIRS];
        living = 0;
        for (int i = 0; i < 2 * PAIRS; i++) {
            struct side *side = i % 2 ? &pairs[i / 2].to : &pairs[i / 2].from;
            if (!side->ended) all[living++] = side;
        }
        if (living && pthread_kill(all[below(&self, living)]->thread, SIGUSR1) == 0)
            while (sem_wait(&answered)) {}
    }
    long calls = 0, interrupted = 0;
    static const char *names[KINDS] = { "pipes", "socket pairs", "TCP", "files" };
    for (int kind = 0; kind < KINDS; kind++) {
        long passed = 0, wrong = 0;
        for (int i = kind; i < PAIRS; i += KINDS) {
            struct side *sides[2] = { &pairs[i].from, &pairs[i].to };
            for (int s = 0; s < 2; s++) {
                void *position;
                pthread_join(sides[s]->thread, &position);
                passed += (long)position == bytes_each;
                calls += sides[s]->calls, interrupted += sides[s]->interrupted;
            }
            wrong += pairs[i].wrong;
        }
        check(names[kind], passed == 2 * PAIRS / KINDS && wrong == 0, wrong);
    }
    printf("%ld calls, %ld interrupted, %ld signals\n", calls, interrupted, handled);
    check("calls were interrupted", interrupted >= PAIRS - PAIRS / KINDS, interrupted);
    return all_checked();
}
