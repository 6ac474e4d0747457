// What Linux promises of files in memory that is shared, asked by a program. Each check prints
// "ok NAME" or "FAILED NAME" with what was found. Where another program may be refused, it must be told.
#include "checks.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define PAGE 4096
#define FILE_NAME "/tmp/shared-file"
enum { BOTH = PROT_READ | PROT_WRITE };

// A file of so many bytes 'a'.
static int make(long bytes) {
    int file = open(FILE_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *all = malloc(bytes + 1);
    memset(all, 'a', bytes);
    if (file < 0 || write(file, all, bytes) != bytes) exit(99);
    free(all);
    return file;
}
static char *map(int file, long bytes, int access, long offset) {
    return mmap(NULL, bytes, access, MAP_SHARED, file, offset);
}
// A byte of the file as a descriptor of its own finds it.
static int byte_at(long at) {
    char byte = 0;
    int file = open(FILE_NAME, O_RDONLY);
    long count = pread(file, &byte, 1, at);
    close(file);
    return count == 1 ? byte : -1;
}
// Another program does `what` to the file at `at`.
static pid_t begun(const char *what, long at) {
    char place[20];
    sprintf(place, "%ld", at);
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", "checks", what, place, NULL);
        _exit(98);
    }
    return child;
}
static int stranger(const char *what, long at) {
    return ended(begun(what, at));
}
enum { REFUSED = 10, DONE = 11, COUNTS = 50000 };
static int be_stranger(const char *what, long at) {
    int reader = open(FILE_NAME, O_RDONLY);
    if (!strcmp(what, "peek")) {
        char *mapped = map(reader, PAGE, PROT_READ, at & -PAGE);
        return mapped == MAP_FAILED ? 97 : mapped[at % PAGE];
    }
    int file = open(FILE_NAME, O_RDWR);
    if (!strcmp(what, "count")) {
        int *words = (int *)map(file, 2 * PAGE, BOTH, at);
        for (int i = 0; i < COUNTS; i++) {
            __atomic_fetch_add(words + 16, 1, __ATOMIC_SEQ_CST);
            __atomic_fetch_add(words + PAGE / 4 + 16, 1, __ATOMIC_SEQ_CST);
        }
        return DONE;
    }
    if (!strcmp(what, "map")) {
        char *mapped = map(file, PAGE, BOTH, at & -PAGE);
        if (mapped == MAP_FAILED) return errno == ENODEV ? REFUSED : 97;
        mapped[at % PAGE] = 'S';
        return DONE;
    }
    if (!strcmp(what, "write")) {
        if (pwrite(file, "W", 1, at) == 1) return DONE;
        return errno == EPERM ? REFUSED : 97;
    }
    if (!strcmp(what, "cut")) {
        if (ftruncate(file, at) == 0) return DONE;
        return errno == EPERM ? REFUSED : 97;
    }
    char byte = 0;
    return pread(file, &byte, 1, at) == 1 ? byte : 96;
}

static void stores(void) {
    int file = make(3 * PAGE);
    char *mapped = map(file, 3 * PAGE, BOTH, 0), byte = 0;
    check("filled", mapped != MAP_FAILED && mapped[0] == 'a' && mapped[3 * PAGE - 1] == 'a', 0);
    mapped[5] = 'b';
    check("seen by a read", byte_at(5) == 'b', byte_at(5));
    mapped[PAGE + 1] = 'c';
    lseek(file, PAGE + 1, SEEK_SET);
    check("at the own place", read(file, &byte, 1) == 1 && byte == 'c' && lseek(file, 0, SEEK_CUR) == PAGE + 2, byte);
    mapped[2 * PAGE] = 'd';
    check("msync", msync(mapped, 3 * PAGE, MS_SYNC) == 0 && stranger("read", 2 * PAGE) == 'd', errno);
    mapped[2 * PAGE] = 'e';
    check("fsync", fsync(file) == 0 && stranger("read", 2 * PAGE) == 'e', errno);
    check("a write is seen", pwrite(file, "fgh", 3, PAGE - 1) == 3 && !memcmp(mapped + PAGE - 1, "fgh", 3), mapped[PAGE]);
    lseek(file, 7, SEEK_SET);
    check("at the own place too", write(file, "i", 1) == 1 && mapped[7] == 'i' && mapped[5] == 'b', mapped[7]);
    mapped[9] = 'j';
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    off_t from = 9;
    check("sendfile", sendfile(ends[0], file, &from, 1) == 1 && read(ends[1], &byte, 1) == 1 && byte == 'j', byte);
    mapped[11] = 'k';
    char *copy = mmap(NULL, PAGE, BOTH, MAP_PRIVATE, file, 0);
    check("a private mapping", copy[11] == 'k', copy[11]);
    copy[11] = 'x';
    check("keeps to itself", mapped[11] == 'k' && byte_at(11) == 'k', byte_at(11));
    close(file);
    mapped[12] = 'l';
    check("after close", byte_at(12) == 'l', byte_at(12));
    mapped[13] = 'm', mapped[PAGE - 3] = 'm';
    munmap(mapped, 20);
    check("a part unmapped", stranger("read", 13) == 'm' && stranger("read", PAGE - 3) == 'm' && mapped[2 * PAGE] == 'e', 0);
    mapped[2 * PAGE + 1] = 'n';
    munmap(mapped + PAGE, 2 * PAGE);
    check("all unmapped", stranger("read", 2 * PAGE + 1) == 'n', 0);
    munmap(copy, PAGE), close(ends[0]), close(ends[1]);

    file = make(3 * PAGE);
    mapped = map(file, 3 * PAGE, BOTH, 0);
    mapped[0] = 'o';
    void *over = mmap(mapped, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check("mapped over", over == mapped && mapped[0] == 0 && stranger("read", 0) == 'o', 0);
    mapped[2 * PAGE] = 's';
    over = mmap(mapped + 2 * PAGE, PAGE, BOTH, MAP_SHARED | MAP_FIXED, file, 2 * PAGE);
    check("mapped over itself", over == mapped + 2 * PAGE && mapped[2 * PAGE] == 's', 0);
    mapped[2 * PAGE] = 'p';
    check("made smaller", mremap(mapped + PAGE, 2 * PAGE, PAGE, 0) == mapped + PAGE && stranger("read", 2 * PAGE) == 'p', errno);
    mapped[PAGE] = 'q';
    mprotect(mapped + PAGE, PAGE, PROT_READ);
    check("made read-only", stranger("read", PAGE) == 'q', 0);
    unlink(FILE_NAME);
    mprotect(mapped + PAGE, PAGE, BOTH);
    mapped[PAGE + 1] = 'r';
    char byte_of_unlinked = 0;
    check("unlinked", pread(file, &byte_of_unlinked, 1, PAGE + 1) == 1 && byte_of_unlinked == 'r', byte_of_unlinked);
    munmap(mapped, 2 * PAGE), close(file);
}

static void sizes(void) {
    int file = make(10);
    char *mapped = map(file, 2 * PAGE, BOTH, 0);
    struct stat status;
    mapped[5] = 'b', mapped[100] = 'c';
    munmap(mapped, 2 * PAGE);
    check("no longer than it was", fstat(file, &status) == 0 && status.st_size == 10 && byte_at(5) == 'b', status.st_size);
    close(file);
    file = make(2 * PAGE);
    mapped = map(file, 2 * PAGE, BOTH, 0);
    mapped[99] = 'd', mapped[101] = 'e', mapped[PAGE + 1] = 'f';
    ftruncate(file, 100), ftruncate(file, 2 * PAGE);
    check("cut", mapped[99] == 'd' && mapped[101] == 0 && mapped[PAGE + 1] == 0, mapped[101]);
    check("in the file", byte_at(99) == 'd' && byte_at(101) == 0 && byte_at(PAGE + 1) == 0, byte_at(101));
    truncate(FILE_NAME, 50), truncate(FILE_NAME, 2 * PAGE);
    check("cut by its name", mapped[49] == 'a' && mapped[99] == 0, mapped[99]);
    int again = open(FILE_NAME, O_RDWR | O_TRUNC);
    static char all[2 * PAGE];
    memset(all, 'g', sizeof all);
    check("written anew", write(again, all, sizeof all) == sizeof all && mapped[0] == 'g' && mapped[2 * PAGE - 1] == 'g', 0);
    close(again);
    again = open(FILE_NAME, O_RDWR | O_APPEND);
    ftruncate(again, PAGE);
    check("appended", write(again, "hi", 2) == 2 && mapped[PAGE] == 'h' && mapped[PAGE + 1] == 'i', 0);
    munmap(mapped, 2 * PAGE);
    check("as it was left", byte_at(PAGE + 1) == 'i' && byte_at(PAGE + 2) == -1 && byte_at(0) == 'g', byte_at(PAGE + 2));
    close(again), close(file);
}

static void places(void) {
    int file = make(6 * PAGE);
    char *one = map(file, 3 * PAGE, BOTH, PAGE), *two = map(file, 4 * PAGE, BOTH, 2 * PAGE);
    one[PAGE] = 'b', two[PAGE] = 'c', two[3 * PAGE] = 'd';
    check("at two places", two[0] == 'b' && one[2 * PAGE] == 'c' && one != two, two[0]);
    char *all = map(file, 6 * PAGE, PROT_READ, 0);
    check("and a third", all[2 * PAGE] == 'b' && all[3 * PAGE] == 'c' && all[5 * PAGE] == 'd' && all[0] == 'a', all[2 * PAGE]);
    munmap(one, 3 * PAGE);
    two[1] = 'e';
    check("one goes", all[2 * PAGE + 1] == 'e' && byte_at(2 * PAGE + 1) == 'e', 0);
    int reader = open(FILE_NAME, O_RDONLY), writer = open(FILE_NAME, O_WRONLY);
    check("read only", map(reader, PAGE, BOTH, 0) == MAP_FAILED && errno == EACCES, errno);
    check("write only", map(writer, PAGE, PROT_READ, 0) == MAP_FAILED && errno == EACCES, errno);
    char *seen = map(reader, PAGE, PROT_READ, 2 * PAGE);
    check("by a reader", seen != MAP_FAILED && seen[1] == 'e', errno);
    check("who stays one", mprotect(seen, PAGE, BOTH) == -1 && errno == EACCES, errno);
    check("a write to it", pwrite(file, "f", 1, PAGE) == 1 && all[PAGE] == 'f', all[PAGE]);
    check("opened later", mprotect(all, PAGE, BOTH) == 0 && (all[3] = 'g') && byte_at(3) == 'g', errno);
    munmap(two, 4 * PAGE), munmap(all, 6 * PAGE), munmap(seen, PAGE);
    check("all is there", byte_at(3) == 'g' && byte_at(3 * PAGE) == 'c' && byte_at(5 * PAGE) == 'd', 0);
    close(reader), close(writer), close(file);
}

static void ends_of_processes(void) {
    int file = make(8 * PAGE);
    pid_t child = fork();
    if (!child) {
        map(file, PAGE, BOTH, 0)[0] = 'b';
        _exit(0);
    }
    check("exit", ended(child) == 0 && byte_at(0) == 'b', byte_at(0));
    if (!(child = fork())) {
        map(file, PAGE, BOTH, PAGE)[0] = 'c';
        execl("/proc/self/exe", "checks", "read", "4096", NULL);
        _exit(98);
    }
    check("exec", ended(child) == 'c' && byte_at(PAGE) == 'c', byte_at(PAGE));
    if (!(child = fork())) {
        map(file, PAGE, BOTH, 2 * PAGE)[0] = 'd';
        abort();
    }
    check("abort", ended(child) == 1000 + SIGABRT && byte_at(2 * PAGE) == 'd', byte_at(2 * PAGE));
    if (!(child = fork())) {
        map(file, PAGE, BOTH, 3 * PAGE)[0] = 'e';
        *(volatile char *)NULL = 1;
    }
    check("a fault", ended(child) == 1000 + SIGSEGV && byte_at(3 * PAGE) == 'e', byte_at(3 * PAGE));

    char *mapped = map(file, PAGE, BOTH, 4 * PAGE);
    mapped[0] = 'f';
    if (!(child = fork())) {
        char byte = 0;
        int is_fine = mapped[0] == 'f' && pread(file, &byte, 1, 4 * PAGE) == 1 && byte == 'f';
        mapped[1] = 'g';
        is_fine &= pwrite(file, "h", 1, 4 * PAGE + 2) == 1 && mapped[2] == 'h';
        _exit(!is_fine);
    }
    check("a child", ended(child) == 0 && mapped[1] == 'g' && mapped[2] == 'h', mapped[1]);
    check("whose file it is too", byte_at(4 * PAGE + 1) == 'g', byte_at(4 * PAGE + 1));
    if (!(child = fork())) {
        mapped[3] = 'i';
        kill(getpid(), SIGKILL);
    }
    check("a killed child", ended(child) == 1000 + SIGKILL && mapped[3] == 'i' && byte_at(4 * PAGE + 3) == 'i', mapped[3]);
    // The child has it for longer.
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (!(child = fork())) {
        char byte;
        read(pair[1], &byte, 1);
        mapped[4] = 'j';
        _exit(0);
    }
    munmap(mapped, PAGE);
    int mine = stranger("map", 4 * PAGE + 5);
    write(pair[0], "x", 1);
    check("held by a child", ended(child) == 0 && byte_at(4 * PAGE + 4) == 'j', byte_at(4 * PAGE + 4));
    check("and by others", mine == DONE && byte_at(4 * PAGE + 5) == 'S', mine);
    check("then by others", stranger("map", 4 * PAGE + 6) == DONE && byte_at(4 * PAGE + 6) == 'S', 0);
    close(pair[0]), close(pair[1]), close(file);
}

static void strangers(void) {
    int file = make(4 * PAGE);
    char *mapped = map(file, 2 * PAGE, BOTH, PAGE);
    mapped[0] = 'b';
    int found = stranger("map", PAGE + 1);
    check("a stranger's mapping", found == DONE && mapped[1] == 'S' && mapped[0] == 'b', found);
    mapped[7] = 'p';
    check("that only reads", stranger("peek", PAGE + 7) == 'p', 0);
    found = stranger("write", PAGE + 2);
    check("a stranger's write", found == REFUSED || found == DONE && mapped[2] == 'W', found);
    enum { COUNTERS = 4 };
    pid_t all[COUNTERS];
    int *words = (int *)mapped, before = words[16], done = 0, first[17];
    // They count in a page that nobody has yet, too: one of them fills it.
    for (int i = 0; i < COUNTERS; i++) all[i] = begun("count", 0);
    for (int i = 0; i < COUNTERS; i++) done += ended(all[i]) == DONE;
    check("several at once", done == COUNTERS && words[16] == before + COUNTERS * COUNTS, words[16] - before);
    pread(file, first, sizeof first, 0);
    check("where one of them was first", first[16] == 0x61616161 + COUNTERS * COUNTS, first[16] - 0x61616161);
    // One ends as the next begin, and nobody else has the page: what each stored is there.
    enum { ROUNDS = 40 };
    int all_done = 0, all_there = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNTERS; i++) all[i] = begun("map", 3 * PAGE + round * COUNTERS + i);
        for (int i = 0; i < COUNTERS; i++) all_done += ended(all[i]) == DONE;
    }
    for (int i = 0; i < ROUNDS * COUNTERS; i++) all_there += byte_at(3 * PAGE + i) == 'S';
    check("one after the other", all_done == ROUNDS * COUNTERS && all_there == all_done, 1000 * all_done + all_there);
    check("beside it", stranger("map", 3 * PAGE) == DONE && stranger("write", 0) == DONE, 0);
    found = stranger("cut", 3 * PAGE - 5);
    check("a stranger's cut", found == REFUSED || found == DONE && mapped[2 * PAGE - 1] == 0, found);
    check("reads are free", msync(mapped, PAGE, MS_SYNC) == 0 && stranger("read", PAGE) == 'b', 0);
    munmap(mapped, 2 * PAGE);
    check("free again", stranger("map", PAGE + 3) == DONE && stranger("write", PAGE + 4) == DONE, 0);
    check("nothing is lost", byte_at(PAGE) == 'b' && byte_at(PAGE + 3) == 'S' && byte_at(PAGE + 4) == 'W' && byte_at(0) == 'W', byte_at(PAGE));
    close(file);
}

enum { MANY = 200, THREADS = 4 };
static char *much;
static void *store_own(void *number) {
    long own = (long)number;
    for (int page = own; page < MANY; page += THREADS) {
        for (int i = 0; i < PAGE; i += 64) much[page * PAGE + i] = 'A' + own;
    }
    return NULL;
}
static void threads(void) {
    int file = make(MANY * PAGE);
    much = map(file, MANY * PAGE, BOTH, 0);
    pthread_t all[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, store_own, (void *)i);
    static char part[MANY * PAGE];
    int errors = 0;
    for (int i = 0; i < 10; i++) {
        errors += pread(file, part, sizeof part, 0) != sizeof part;
        errors += msync(much, MANY * PAGE, MS_SYNC) != 0;
        char *other = map(file, PAGE, BOTH, i * PAGE);
        errors += other == MAP_FAILED || munmap(other, PAGE) != 0;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    check("beside threads", errors == 0, errors);
    munmap(much, MANY * PAGE);
    errors = pread(file, part, sizeof part, 0) != sizeof part;
    for (long at = 0; at < MANY * PAGE; at++) errors += part[at] != (at % 64 ? 'a' : 'A' + at / PAGE % THREADS);
    check("every byte", errors == 0, errors);
    close(file);
}

int main(int count, char **words) {
    if (count > 2) return be_stranger(words[1], atol(words[2]));
    stores();
    sizes();
    places();
    ends_of_processes();
    strangers();
    threads();
    unlink(FILE_NAME);
    return all_checked();
}
