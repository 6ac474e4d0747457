// What Linux promises of a file that is read piece by piece while it, or the place where the next
// piece begins, changes by others. Called with a folder.
#define ONLY_FAILURES
#include "checks.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { SIZE = 300000, PIECE = 1000, MOST = 400000, FILES = 3, STEPS = 3000, ROUNDS = 400 };
static char path[200];
static unsigned char *model, buffer[MOST];
static long size;

static unsigned long seed = 20261127;
static unsigned long below(unsigned long end) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % end;
}

// The file is as the model from now on.
static void make(void) {
    size = SIZE;
    for (long at = 0; at < size; at++) model[at] = at * 7 + at / 251;
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, model, size) != size || close(file)) exit(99);
}
// A piece from there is what the model has; how long it is.
static long piece(const char *name, int file, long at, long count) {
    long wanted = at >= size ? 0 : size - at < count ? size - at : count;
    memset(buffer, 0xee, count);
    long got = read(file, buffer, count);
    check(name, got == wanted && !memcmp(buffer, model + at, wanted), got);
    return got;
}
static long pieces(const char *name, int file, long at, long count, int times) {
    while (times--) at += piece(name, file, at, count);
    return at;
}
static int begin(void) { return open(path, O_RDONLY); }
// Changes the file and the model.
static void change(int file, long at, long count) {
    for (long i = 0; i < count; i++) model[at + i] ^= 0x55;
    if (pwrite(file, model + at, count, at) != count) exit(98);
    if (at + count > size) size = at + count;
}
static void cut(int file, long to) {
    if (ftruncate(file, to)) exit(97);
    if (to > size) memset(model + size, 0, to - size);
    size = to;
}

static void whole(void) {
    static const int lengths[] = { 1, 7, 100, 1000, 4096, 5000, 16384, 20000, MOST };
    make();
    for (int i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int file = begin();
        long at = i ? 0 : SIZE - 5000;
        lseek(file, at, SEEK_SET);
        while (at < size) at += piece("a file is read whole", file, at, lengths[i]);
        GIVES("a file ends", 0, read(file, buffer, lengths[i]));
        GIVES("a file is at its end", size, lseek(file, 0, SEEK_CUR));
        close(file);
    }
}

static void changes(void) {
    make();
    int file = begin(), other = open(path, O_RDWR);
    long at = pieces("before a change", file, 0, PIECE, 20);
    change(other, at + 10, 5);
    at = pieces("a change is seen", file, at, PIECE, 9);
    pid_t child = fork();
    if (!child) {
        int own = open(path, O_RDWR);
        _exit(pwrite(own, "another", 7, at + 3) != 7);
    }
    check("another process writes", ended(child) == 0, 0);
    memcpy(model + at + 3, "another", 7);
    at = pieces("what another process wrote is seen", file, at, PIECE, 9);
    cut(other, at + 100);
    at = pieces("a file that was cut off ends", file, at, PIECE, 2);
    cut(other, at + 5000);
    at = pieces("a file that grew goes on with zeros", file, at, PIECE, 6);
    change(other, size, 300);
    at = pieces("what is added at the end is read", file, at, PIECE, 2);
    for (int i = 0; i < 20; i++) {
        change(other, size, 10);
        at = pieces("who waits at the end gets what is added", file, at, PIECE, 2);
    }
    GIVES("it may be emptied", 0, close(open(path, O_WRONLY | O_TRUNC)));
    size = 0;
    piece("an emptied file has nothing", file, at, PIECE);
    lseek(file, 0, SEEK_SET);
    piece("an emptied file has nothing at its begin", file, 0, PIECE);
    close(file), close(other);
    make();
    file = begin(), other = open(path, O_RDWR);
    at = pieces("before it is mapped", file, 0, PIECE, 10);
    char *mapped = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    mapped[at + 1] ^= 1, model[at + 1] ^= 1;
    at = pieces("what is stored in a mapping is read", file, at, PIECE, 10);
    munmap(mapped, SIZE);
    at = pieces("a file that was mapped is read", file, at, PIECE, 10);
    close(file), close(other);
}

// What a description's offset is to all who have it.
static void shared(char *self) {
    make();
    int file = begin(), again = dup(file), between[2];
    long at = pieces("one", file, 0, PIECE, 10);
    at = pieces("a copy of the descriptor goes on", again, at, PIECE, 10);
    close(again);
    at = pieces("and the first after it", file, at, PIECE, 10);
    pid_t child = fork();
    if (!child) {
        failures = 0;
        pieces("a child goes on", file, at, PIECE, 10);
        _exit(failures);
    }
    check("a child goes on", ended(child) == 0, 0);
    at = pieces("its parent goes on after it", file, at + 10 * PIECE, PIECE, 10);
    child = vfork();
    if (!child) {
        char words[3][20];
        sprintf(words[0], "%d", file), sprintf(words[1], "%ld", at);
        execl(self, self, path, words[0], words[1], NULL);
        _exit(96);
    }
    check("another program goes on", ended(child) == 0, 0);
    at = pieces("its parent goes on after that", file, at + PIECE, PIECE, 10);
    socketpair(AF_UNIX, SOCK_STREAM, 0, between);
    char space[CMSG_SPACE(sizeof file)] = { 0 };
    struct iovec one = { "x", 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(head), &file, sizeof file);
    GIVES("a descriptor is sent", 1, sendmsg(between[0], &message, 0));
    at = pieces("who sent it goes on", file, at, PIECE, 5);
    char byte[2];
    one.iov_base = byte;
    GIVES("a descriptor is received", 1, recvmsg(between[1], &message, 0));
    memcpy(&again, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof again);
    at = pieces("who received it goes on", again, at, PIECE, 5);
    GIVES("all are at one place", at, lseek(file, 0, SEEK_CUR));
    close(again), close(between[0]), close(between[1]);
    at = pieces("who has it alone again goes on", file, at, PIECE, 10);
    struct iovec two[2] = { { buffer, 10 }, { buffer + 10, 20 } };
    GIVES("vectors are read", 30, readv(file, two, 2));
    check("vectors are what lies there", !memcmp(buffer, model + at, 30), at);
    at = pieces("one goes on behind vectors", file, at + 30, PIECE, 3);
    close(file);
}

// An image of this program, which has the file open: a piece from there.
static int successor(char **words) {
    make();
    long at = atol(words[3]);
    pieces("another program's piece", atoi(words[2]), at, PIECE, 1);
    return failures;
}

// All at random, by one process, beside a model.
static void at_random(void) {
    long at[FILES] = { 0 };
    int files[FILES];
    make();
    for (int i = 0; i < FILES; i++) files[i] = open(path, O_RDWR);
    for (int step = 0; step < STEPS; step++) {
        int i = below(FILES), file = files[i];
        long count = 1 + below(below(4) ? 2000 : 30000), place = below(SIZE);
        switch (below(12)) {
        case 0: lseek(file, at[i] = place, SEEK_SET); break;
        case 1: if (!below(4)) cut(file, place); break;
        case 2: if (place <= size) change(file, place, below(300)); break;
        case 3:
            for (long n = 0; n < 10; n++) model[at[i] + n] = n;
            if (at[i] > size) memset(model + size, 0, at[i] - size);
            check("a write at the offset", write(file, model + at[i], 10) == 10, step);
            at[i] += 10;
            if (at[i] > size) size = at[i];
            break;
        case 4: {
            long wanted = place >= size ? 0 : size - place < count ? size - place : count;
            check("a piece at a place", pread(file, buffer, count, place) == wanted && !memcmp(buffer, model + place, wanted), step);
            break;
        }
        case 5: close(files[i]), files[i] = open(path, O_RDWR), at[i] = 0; break;
        case 6: GIVES("an offset at random", at[i], lseek(file, 0, SEEK_CUR)); break;
        default: at[i] += piece("a piece at random", file, at[i], count);
        }
    }
    for (int i = 0; i < FILES; i++) close(files[i]);
}

// A piece at a place is what the model has.
static void placed(const char *name, int file, long at, long count, int step) {
    long wanted = at >= size ? 0 : size - at < count ? size - at : count;
    memset(buffer, 0xee, count);
    check(name, pread(file, buffer, count, at) == wanted && !memcmp(buffer, model + at, wanted), step);
}

// Few places are read again and again, by two descriptions, while the file changes.
static void again(void) {
    make();
    int files[] = { begin(), open(path, O_RDWR) }, other = open(path, O_RDWR);
    for (int step = 0; step < STEPS; step++) {
        long place = below(12) * 5000 + below(3) * 100, count = 1 + below(6000);
        switch (below(20)) {
        case 0: if (place + 200 < size) change(other, place + below(200), 1 + below(300)); break;
        case 1: if (place + 200 < size) change(files[1], place + below(200), 1 + below(300)); break;
        case 2: if (!below(5)) cut(other, place + below(9000)); break;
        case 3: if (!below(5)) close(files[0]), files[0] = begin(); break;
        }
        if (size < 20000) cut(other, 60000);
        placed("a place that is read again", files[below(2)], place, count, step);
    }
    close(files[0]), close(files[1]), close(other);
}

// One process changes the file, says so, and another, which reads piece by piece, sees it: at its
// offset, at places in order, or at few of them again and again.
enum { OFFSET, PLACES, AGAIN };
static void two(int how) {
    make();
    int go[2], done[2];
    if (pipe(go) || pipe(done)) exit(95);
    pid_t writer = fork();
    if (!writer) {
        close(go[1]), close(done[0]);
        int file = open(path, O_RDWR);
        for (char byte; read(go[0], &byte, 1) == 1 && write(done[1], "d", 1) == 1;) {
            // The next half a piece, most often: it is what is kept.
            long at = *(long *)(model + MOST) + below(PIECE);
            model[at] ^= 0x33;
            if (pwrite(file, model + at, 1, at) != 1) _exit(1);
            if (write(done[1], "e", 1) != 1) _exit(2);
        }
        _exit(0);
    }
    close(done[1]), close(go[0]);
    int file = begin();
    long at = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char said[2];
        if (how == AGAIN) at = below(6) * 3 * PIECE;
        *(long *)(model + MOST) = at;
        if (write(go[1], "g", 1) != 1 || read(done[0], said, 1) != 1 || read(done[0], said + 1, 1) != 1) break;
        if (how != OFFSET) {
            placed("a piece at a place that another process changed", file, at, PIECE, round);
            if (how == AGAIN) placed("the same once more", file, at, PIECE, round);
            at += PIECE;
        } else at += piece("a piece that another process changed", file, at, PIECE);
        if (at > SIZE - 2 * PIECE) at = lseek(file, 0, SEEK_SET);
    }
    close(go[1]);
    check("the writer goes on to the end", ended(writer) == 0, 0);
    close(file);
}

int main(int count, char **words) {
    model = mmap(NULL, MOST + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (count == 4) return strcpy(path, words[1]), successor(words);
    sprintf(path, "%s/pieces", words[1]);
    whole(), changes(), shared(words[0]), at_random(), again();
    two(OFFSET), two(PLACES), two(AGAIN);
    unlink(path);
    return all_checked();
}
