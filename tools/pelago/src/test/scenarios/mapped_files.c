// What Linux promises of large mappings of files that are only read, wherever memory of them is
// when it is needed. Called with a folder, and "large" if a file of more than the machine has
// memory is to be mapped.
#define WITH_THREADS
#define ONLY_FAILURES
#include "checks.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PAGE 4096L
#define KIB 1024L
#define MIB (1L << 20)
// Large enough to be read as it is touched, as is half of it.
enum { SIZE = 6 * 1024 * 1024 + 1234 };
static char path[200], other[200], *model;

static char *map(int file, long from, long bytes, int access, int how) {
    char *at = mmap(0, bytes, access, how, file, from);
    if (at == MAP_FAILED) printf("FAILED mmap: errno %d\n", errno), exit(99);
    return at;
}
static int make(void) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, model, SIZE) != SIZE) exit(98);
    return file;
}
// Another mapping of all of it, of which nothing was touched.
static char *fresh(void) {
    int file = open(path, O_RDONLY);
    char *at = map(file, 0, SIZE, PROT_READ, MAP_PRIVATE);
    close(file);
    return at;
}

static unsigned long seed = 20261128;
static unsigned long below(unsigned long end) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % end;
}

static void read_as_touched(void) {
    int file = open(path, O_RDONLY);
    for (int how = 0; how < 2; how++) {
        char *at = map(file, 0, SIZE, PROT_READ, how ? MAP_SHARED : MAP_PRIVATE);
        int same = 0;
        for (int i = 0; i < 300; i++) {
            long place = below(SIZE - 8);
            same += !memcmp(at + place, model + place, 8);
        }
        check("what is touched is the file's", same == 300, same);
        check("and all of it", !memcmp(at, model, SIZE), 0);
        check("behind its end are zeroes", !at[SIZE] && !at[SIZE + 2000], 0);
        GIVES("it goes", 0, munmap(at, SIZE));
        // Of another page than the first, in parts.
        at = map(file, 5 * PAGE, 3 * MIB, PROT_READ, how ? MAP_SHARED : MAP_PRIVATE);
        munmap(at + 40 * PAGE, 3 * PAGE);
        check("beside a hole", !memcmp(at + 30 * PAGE, model + 35 * PAGE, 10 * PAGE) && !memcmp(at + 43 * PAGE, model + 48 * PAGE, 60 * PAGE), 0);
        munmap(at, 3 * MIB);
    }
    close(file);
}

static void calls_read_it(void) {
    int file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *at = fresh(), *got = malloc(SIZE);
    GIVES("all of it is written by one call", SIZE, write(file, at, SIZE));
    check("to a file", pread(file, got, SIZE, 0) == SIZE && !memcmp(got, model, SIZE), 0);
    munmap(at, SIZE), at = fresh();
    struct iovec parts[3] = { { at + 100 * PAGE + 5, 70000 }, { got, 10 }, { at + 300 * PAGE, 3 } };
    GIVES("parts of it by another", 70013, pwritev(file, parts, 3, 0));
    check("where they are", pread(file, got, 70013, 0) == 70013 && !memcmp(got, model + 100 * PAGE + 5, 70000) && !memcmp(got + 70010, model + 300 * PAGE, 3), 0);
    close(file);
    int ends[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    GIVES("a message", 5000, send(ends[0], at + 500 * PAGE + 9, 5000, 0));
    check("has it", recv(ends[1], got, 9000, 0) == 5000 && !memcmp(got, model + 500 * PAGE + 9, 5000), 0);
    close(ends[0]), close(ends[1]);
    FAILS("nothing is read into it", EFAULT, getcwd(at + 600 * PAGE, PAGE) ? 0 : -1);
    munmap(at, SIZE);
    free(got);
    // A path that lies over the end of what is read at once.
    long place = 64 * KIB - strlen(path) / 2;
    file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (ftruncate(file, 3 * MIB) || pwrite(file, path, strlen(path) + 1, place) < 0) exit(97);
    at = map(file, 0, 3 * MIB, PROT_READ, MAP_PRIVATE);
    int opened = open(at + place, O_RDONLY);
    check("a path of it is a path", opened >= 0, opened);
    close(opened), close(file);
    GIVES("by a call of its own", 0, access(at + place, R_OK));
    munmap(at, 3 * MIB);
}

static sigjmp_buf away;
static siginfo_t seen;
static void on_fault(int signal, siginfo_t *info, void *context) { seen = *info, siglongjmp(away, 1); }

static void access_changes(void) {
    char *at = fresh();
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, old;
    sigaction(SIGSEGV, &action, &old);
    if (!sigsetjmp(away, 1)) at[200 * PAGE] = 1, check("it cannot be written", 0, 0);
    check("a store says so", seen.si_code == SEGV_ACCERR && seen.si_addr == at + 200 * PAGE, seen.si_code);
    mprotect(at + 210 * PAGE, 20 * PAGE, PROT_NONE);
    if (!sigsetjmp(away, 1)) check("nor read without access", 0, at[215 * PAGE]);
    check("a load says so", seen.si_code == SEGV_ACCERR, seen.si_code);
    sigaction(SIGSEGV, &old, 0);
    mprotect(at + 210 * PAGE, 20 * PAGE, PROT_READ);
    check("then it can", !memcmp(at + 210 * PAGE, model + 210 * PAGE, 20 * PAGE), 0);
    GIVES("some of it may be written", 0, mprotect(at + 100 * PAGE, 50 * PAGE, PROT_READ | PROT_WRITE));
    at[120 * PAGE] ^= 1;
    check("which the file does not see", at[120 * PAGE] != model[120 * PAGE] && !memcmp(at + 121 * PAGE, model + 121 * PAGE, 100 * PAGE), 0);
    mprotect(at + 100 * PAGE, 50 * PAGE, PROT_READ);
    check("and which stays", at[120 * PAGE] != model[120 * PAGE], 0);
    munmap(at, SIZE), at = fresh();
    check("some is there", at[9] == model[9], 0);
    char *moved = mremap(at, 300 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
    check("it moves", moved != MAP_FAILED && !memcmp(moved, model, 300 * PAGE), 0);
    munmap(moved, 400 * PAGE), munmap(at + 300 * PAGE, SIZE - 300 * PAGE);
}

static void cut(void) {
    char *at = fresh();
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, old;
    sigaction(SIGBUS, &action, &old);
    GIVES("the file is cut", 0, truncate(path, MIB + 5));
    check("before its end it is there", !memcmp(at, model, MIB + 5) && !at[MIB + 5], 0);
    if (!sigsetjmp(away, 1)) check("behind its end it is not", 0, at[4 * MIB]);
    check("a load says so", seen.si_signo == SIGBUS && seen.si_code == BUS_ADRERR && seen.si_addr == at + 4 * MIB, seen.si_code);
    int ends[2];
    pipe(ends);
    FAILS("so does a call", EFAULT, write(ends[1], at + 4 * MIB, 10));
    close(ends[0]), close(ends[1]);
    sigaction(SIGBUS, &old, 0);
    munmap(at, SIZE), close(make());
}

static void children(void) {
    char *at = fresh();
    unlink(path);
    check("some is there", at[0] == model[0], 0);
    pid_t child = fork();
    if (!child) {
        int is_same = !memcmp(at, model, SIZE);
        pid_t grandchild = fork();
        if (!grandchild) _exit(memcmp(at, model, SIZE) ? 1 : 0);
        _exit(is_same && ended(grandchild) == 0 ? 7 : 8);
    }
    GIVES("a child has the rest, though the file has no name", 7, ended(child));
    check("and the parent", !memcmp(at, model, SIZE), 0);
    munmap(at, SIZE);
    close(make());
}

static void advice(void) {
    int file = open(path, O_RDWR);
    char *at = fresh(), flipped = ~model[150 * PAGE];
    check("it is read", at[150 * PAGE] == model[150 * PAGE], 0);
    GIVES("it is written", 1, pwrite(file, &flipped, 1, 150 * PAGE));
    GIVES("and let go", 0, madvise(at + 100 * PAGE, 100 * PAGE, MADV_DONTNEED));
    check("what is there then is new", at[150 * PAGE] == flipped && !memcmp(at + 151 * PAGE, model + 151 * PAGE, 49 * PAGE), at[150 * PAGE]);
    unsigned char there[3] = { 9, 9, 9 };
    GIVES("it is asked what is there", 0, mincore(at + 150 * PAGE, 3 * PAGE, there));
    check("what was read is", there[0] == 1 && there[1] == 1, there[0]);
    pwrite(file, model + 150 * PAGE, 1, 150 * PAGE);
    munmap(at, SIZE), close(file);
}

static void locks(void) {
    int file = open(path, O_RDWR);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    GIVES("a lock is taken", 0, fcntl(file, F_SETLK, &lock));
    for (int how = 0; how < 2; how++) {
        char *at = how ? map(file, 0, MIB, PROT_READ | PROT_WRITE, MAP_SHARED) : map(file, 0, SIZE, PROT_READ, MAP_PRIVATE);
        check("it is mapped", at[9] == model[9], 0);
        munmap(at, how ? MIB : SIZE);
        pid_t child = fork();
        if (!child) {
            struct flock mine = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
            _exit(fcntl(open(path, O_RDWR), F_SETLK, &mine) == -1 && errno == EAGAIN ? 7 : 8);
        }
        GIVES("the end of a mapping is not the end of a lock", 7, ended(child));
    }
    close(file);
}

static char *shared_map;
static void *all_of_it(void *from) {
    long differ = 0;
    for (long step = 0, at = (long)from; step < SIZE / PAGE; step++, at = (at + 97 * PAGE) % (SIZE & -PAGE)) differ += shared_map[at] != model[at];
    return (void *)differ;
}
static void *writes_it(void *to) { return (void *)write((long)to, shared_map, SIZE); }
static void threads(void) {
    shared_map = fresh();
    int file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    pthread_t some[5];
    for (int i = 0; i < 4; i++) some[i] = begin(all_of_it, i * 7 * PAGE);
    some[4] = begin(writes_it, file);
    for (int i = 0; i < 4; i++) GIVES("threads find it", 0, end(some[i]));
    GIVES("and one writes it", SIZE, end(some[4]));
    munmap(shared_map, SIZE), close(file);
}

// Each 64 KiB of it begin with their number.
static void larger_than_memory(long size) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (ftruncate(file, size)) exit(96);
    for (long at = 0; at < size; at += 64 * KIB) if (pwrite(file, &at, sizeof at, at) != sizeof at) exit(95);
    for (int how = 0; how < 2; how++) {
        int reader = open(path, O_RDONLY);
        char *all = map(reader, 0, size, PROT_READ, how ? MAP_SHARED : MAP_PRIVATE);
        close(reader);
        long wrong = 0, others = 0;
        for (long at = 0; at < size; at += 16 * KIB) {
            long found = *(long *)(all + at);
            if (at % (64 * KIB)) others += found != 0; else wrong += found != at;
        }
        check("all of it is there", wrong == 0 && others == 0, wrong);
        for (int i = 0; i < 500; i++) {
            long at = below(size / (64 * KIB)) * 64 * KIB;
            wrong += *(long *)(all + at) != at;
        }
        check("here and there", wrong == 0, wrong);
        // What the program wants for itself comes first.
        char *own = mmap(0, 48 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long at = 0; at < 48 * MIB; at += PAGE) own[at] = 1;
        check("beside other memory", *(long *)(all + size - 64 * KIB) == size - 64 * KIB, 0);
        munmap(own, 48 * MIB);
        // More at once than may be there: done, or refused, and nothing hangs.
        int out = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        long wrote = pwrite(out, all, size, 0);
        check("a call for all of it ends", wrote == -1 && errno == ENOMEM || wrote == size, wrote);
        close(out), unlink(other), munmap(all, size);
    }
    close(file), unlink(path);
}

int main(int count, char **arguments) {
    snprintf(path, sizeof path, "%s/mapped", arguments[1]), snprintf(other, sizeof other, "%s/other", arguments[1]);
    if (count > 2) {
        larger_than_memory(atol(arguments[2]) * MIB);
        return all_checked();
    }
    model = malloc(SIZE);
    for (long at = 0; at < SIZE; at++) model[at] = at * 7 + at / 251 + at / 65536;
    close(make());
    read_as_touched(), calls_read_it(), access_changes(), cut(), children(), advice(), locks(), threads();
    unlink(path), unlink(other);
    return all_checked();
}
