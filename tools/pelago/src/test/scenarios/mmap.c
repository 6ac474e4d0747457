// What Linux promises of a program's own memory: that what it needs no more is free, and that
// there may be many areas of it. Each check prints "ok NAME" or "FAILED NAME" with what was found.
#include "checks.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096L
#define MIB (1L << 20)
#ifndef MADV_FREE
#define MADV_FREE 8
#endif

static char *own(long bytes, int access) {
    return mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static long touch(char *from, long bytes, char value) {
    for (long at = 0; at < bytes; at += PAGE) from[at] = value;
    return bytes / PAGE;
}

// More than the machine has, a part at a time. Each part stays mapped.
#define PARTS 24
#define PART_BYTES (32 * MIB)
static void discarded(void) {
    char *parts[PARTS];
    long zeroes = 0, expected = 0;
    for (int part = 0; part < PARTS; part++) {
        parts[part] = own(PART_BYTES, PROT_READ | PROT_WRITE);
        if (part % 2) mprotect(parts[part] + PAGE, PAGE, PROT_READ);
        for (long at = 0; at < PART_BYTES; at += PAGE) if (!(part % 2) || at != PAGE) parts[part][at] = 1;
        if (madvise(parts[part], PART_BYTES, part % 3 ? MADV_DONTNEED : MADV_FREE)) break;
        // Linux may leave what MADV_FREE got until it is short of memory.
        zeroes += part % 3 == 0 || parts[part][0] == 0 && parts[part][PART_BYTES - PAGE] == 0, expected++;
    }
    check("more than there is comes and goes", zeroes == PARTS && expected == PARTS, zeroes);
    for (int part = 0; part < PARTS; part++) munmap(parts[part], PART_BYTES);
}

static void moved(void) {
    char *memory = own(3 * PAGE, PROT_READ | PROT_WRITE);
    touch(memory, 3 * PAGE, 6);
    mprotect(memory, PAGE, PROT_NONE);
    char *elsewhere = mremap(memory, PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    int is_there = elsewhere != MAP_FAILED && mprotect(elsewhere, PAGE, PROT_READ) == 0;
    check("what may not be read moves too", is_there && elsewhere[0] == 6 && memory[PAGE] == 6, is_there);
    munmap(memory + PAGE, 2 * PAGE), munmap(elsewhere, 4 * PAGE);
}

static void edges(void) {
    char *memory = own(8 * PAGE, PROT_READ | PROT_WRITE);
    touch(memory, 8 * PAGE, 5);
    int result = madvise(memory + PAGE, 2 * PAGE, MADV_DONTNEED);
    check("what is beside it stays", !result && memory[0] == 5 && !memory[PAGE] && !memory[2 * PAGE] && memory[3 * PAGE] == 5, result);
    mprotect(memory, 4 * PAGE, PROT_NONE);
    result = madvise(memory, 4 * PAGE, MADV_DONTNEED);
    mprotect(memory, 4 * PAGE, PROT_READ);
    check("without access, too", !result && memory[0] == 0 && memory[3 * PAGE] == 0 && memory[4 * PAGE] == 5, result);
    int child = fork();
    if (!child) {
        madvise(memory + 4 * PAGE, 2 * PAGE, MADV_DONTNEED);
        _exit(memory[4 * PAGE] == 0 && memory[6 * PAGE] == 5 ? 7 : 8);
    }
    check("a child discards its own", ended(child) == 7 && memory[4 * PAGE] == 5, memory[4 * PAGE]);
    munmap(memory + 5 * PAGE, PAGE);
    errno = 0;
    result = madvise(memory + 4 * PAGE, 4 * PAGE, MADV_DONTNEED);
    check("a hole is an error, and the rest is done", result == -1 && errno == ENOMEM && !memory[4 * PAGE] && !memory[7 * PAGE], result);
    errno = 0;
    check("an advice that is none", madvise(memory, PAGE, 99) == -1 && errno == EINVAL, 0);
    errno = 0;
    check("a place that is none", madvise(memory + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL, 0);
    check("nothing at all", madvise(memory, 0, MADV_DONTNEED) == 0, 0);

    char *common = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    common[PAGE] = 6;
    check("what is in common stays", madvise(common, 2 * PAGE, MADV_DONTNEED) == 0 && common[PAGE] == 6, common[PAGE]);
    errno = 0;
    check("and is not free", madvise(common, 2 * PAGE, MADV_FREE) == -1 && errno == EINVAL && common[PAGE] == 6, errno);

    int file = open("/tmp/areas", O_RDWR | O_CREAT, 0600);
    char bytes[2 * PAGE];
    memset(bytes, 'f', sizeof bytes);
    check("a file", write(file, bytes, sizeof bytes) == sizeof bytes, file);
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    result = madvise(mapped, 2 * PAGE, MADV_DONTNEED);
    check("bytes of a file are the file's", !result && mapped[0] == 'f' && mapped[PAGE] == 'f', mapped[0]);
    char *heap = sbrk(16 * PAGE);
    heap = (char *)(((unsigned long)heap + PAGE - 1) & -PAGE);
    touch(heap, 8 * PAGE, 9);
    result = madvise(heap + PAGE, 2 * PAGE, MADV_DONTNEED);
    check("of the heap", !result && heap[0] == 9 && heap[PAGE] == 0 && heap[3 * PAGE] == 9, result);
}

// Neighbours are one area, and stay as separate as a program wants them.
#define SINGLES 20000
static char *singles[SINGLES];
static void joined(void) {
    long made = 0, right = 0;
    while (made < SINGLES && (singles[made] = own(PAGE, PROT_READ | PROT_WRITE)) != MAP_FAILED) made++;
    for (long at = 0; at < made; at++) *(long *)singles[at] = at;
    for (long at = 0; at < made; at++) right += *(long *)singles[at] == at;
    check("20,000 mappings of a page", made == SINGLES && right == made, made);
    int child = fork();
    if (!child) {
        for (long at = 0; at < made; at++) if (at % 2) munmap(singles[at], PAGE);
        right = 0;
        for (long at = 0; at < made; at += 2) right += *(long *)singles[at] == at;
        int null = open("/dev/zero", O_RDONLY);
        int is_gone = read(null, singles[made / 2 | 1], 1) == -1 && errno == EFAULT;
        char *again = mmap(singles[1], PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        _exit(right == made / 2 && is_gone && *(long *)again == 0 && *(long *)singles[2] == 2 ? 7 : 8);
    }
    check("half of them go, and the others stay", ended(child) == 7, 0);
    right = 0;
    for (long at = 0; at < made; at++) right += *(long *)singles[at] == at && !munmap(singles[at], PAGE);
    check("all of them go", right == made, right);

    char *kept = own(PAGE, PROT_READ | PROT_WRITE);
    *kept = 3;
    for (int round = 0; round < PARTS; round++) {
        char *part = own(PART_BYTES, PROT_READ | PROT_WRITE);
        if (part == MAP_FAILED) break;
        right += !part[PART_BYTES / 2], touch(part, PART_BYTES, 1), munmap(part, PART_BYTES);
    }
    check("what is unmapped beside another is free", right == made + PARTS && *kept == 3, right - made);
    munmap(kept, PAGE);
}

// As the C library opens its arenas: a reservation, piece by piece.
static void opened(void) {
    long parts = 0, right = 0;
    char *arena = own(64 * MIB, PROT_NONE);
    for (; parts < 64 && !mprotect(arena + parts * MIB, MIB, PROT_READ | PROT_WRITE); parts++) touch(arena + parts * MIB, MIB, parts + 1);
    for (long at = 0; at < parts; at++) right += arena[at * MIB] == at + 1 && arena[(at + 1) * MIB - PAGE] == at + 1;
    check("a reservation opened in 64 pieces", parts == 64 && right == 64, right);
    mmap(arena + 8 * MIB, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    mprotect(arena + 8 * MIB, 4 * MIB, PROT_READ | PROT_WRITE);
    check("closed and opened again it is empty", arena[8 * MIB] == 0 && arena[8 * MIB - PAGE] == 8 && arena[16 * MIB] == 17, arena[8 * MIB]);
    munmap(arena, 64 * MIB);
}

// As many areas as Linux allows, nearly.
#define AREAS 60000L
static void many(void) {
    char *memory = own(AREAS * PAGE, PROT_READ | PROT_WRITE);
    memory[0] = 1, memory[(AREAS - 1) * PAGE] = 2;
    long done = 0;
    for (long at = 1; at < AREAS; at += 2) done += !mprotect(memory + at * PAGE, PAGE, PROT_READ);
    check("60,000 areas", done == AREAS / 2 && memory[0] == 1 && memory[(AREAS - 1) * PAGE] == 2, done);
    int child = fork();
    if (!child) {
        if (memory[(AREAS - 1) * PAGE] != 2) _exit(1);
        memory[(AREAS - 2) * PAGE] = 3, memory[(AREAS - 1) * PAGE] = 3;
        _exit(2);
    }
    check("a child has them all", ended(child) == 1000 + SIGSEGV && memory[(AREAS - 2) * PAGE] == 0, 0);
    int result = mprotect(memory, AREAS * PAGE, PROT_READ | PROT_WRITE);
    memory[PAGE] = 4;
    check("and are one again", !result && memory[0] == 1, result);
    munmap(memory, AREAS * PAGE);
}

// Threads whose stacks the C library keeps; it says of each that it needs the bytes no more.
#define AT_ONCE 20
static void *use_stack(void *argument) {
    volatile char large[2 * MIB];
    for (long at = 0; at < sizeof large; at += PAGE) large[at] = 1;
    return (void *)(long)large[PAGE];
}
static void stacks(void) {
    long done = 0;
    for (int round = 0; round < 15; round++) {
        pthread_t threads[AT_ONCE];
        int made = 0;
        while (made < AT_ONCE && !pthread_create(&threads[made], NULL, use_stack, NULL)) made++;
        for (int thread = 0; thread < made; thread++) {
            void *result = NULL;
            pthread_join(threads[thread], &result);
            done += (long)result;
        }
    }
    check("300 threads with stacks of 8 MiB", done == 300, done);
}

// What is at an address: 256 if nothing is.
static int at(const char *address) {
    int ends[2];
    unsigned char found = 0;
    pipe(ends);
    long done = write(ends[1], address, 1);
    if (done == 1) read(ends[0], &found, 1);
    close(ends[0]), close(ends[1]);
    return done == 1 ? found : errno == EFAULT ? 256 : 257;
}

// What a child is not to have, or to have as zeroes.
static void forked(void) {
    char *memory = own(6 * PAGE, PROT_READ | PROT_WRITE), *common = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *heap = (char *)(((unsigned long)sbrk(9 * PAGE) + PAGE - 1) & -PAGE);
    touch(memory, 6 * PAGE, 5), touch(heap, 8 * PAGE, 5);
    *common = 5;
    int result = madvise(memory + PAGE, 2 * PAGE, MADV_DONTFORK) | madvise(memory + 4 * PAGE, PAGE, MADV_WIPEONFORK)
        | madvise(heap, 8 * PAGE, MADV_DONTFORK) | madvise(common, PAGE, MADV_DONTFORK);
    check("advices about forks", !result, errno);
    int child = fork();
    if (!child) {
        int missing = at(memory + PAGE) == 256 && at(memory + 2 * PAGE) == 256 && at(heap) == 256 && at(common) == 256;
        int there = at(memory) == 5 && at(memory + 3 * PAGE) == 5 && at(memory + 5 * PAGE) == 5 && at(memory + 4 * PAGE) == 0;
        char *more = sbrk(2 * PAGE), *again = mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        int grows = more != (void *)-1 && (*more = 6) && again == memory + PAGE && *again == 0;
        memory[4 * PAGE] = *again = 7;
        int grandchild = fork();
        if (!grandchild) _exit(at(memory + 4 * PAGE) == 0 && at(memory + PAGE) == 7 && at(memory + 2 * PAGE) == 256 ? 7 : 8);
        _exit(!missing ? 3 : !there ? 4 : !grows ? 5 : ended(grandchild) == 7 && memory[4 * PAGE] == 7 ? 7 : 6);
    }
    int found = ended(child);
    check("a child has not what it is not to have", found == 7, found);
    check("its parent has all", memory[PAGE] == 5 && memory[4 * PAGE] == 5 && *heap == 5 && *common == 5, 0);
    child = vfork();
    if (!child) _exit(memory[PAGE] == 5 && memory[4 * PAGE] == 5 ? 7 : 8);
    check("one that borrows its parent's memory has all", ended(child) == 7, 0);
    result = madvise(memory, PAGE, MADV_DONTNEED) | madvise(memory + PAGE, 4 * PAGE, MADV_DONTNEED);
    check("what is not forked can be discarded", !result && !memory[0] && !memory[PAGE] && !memory[4 * PAGE] && memory[5 * PAGE] == 5, result);
    madvise(memory, 6 * PAGE, MADV_DOFORK), madvise(memory, 6 * PAGE, MADV_KEEPONFORK);
    touch(memory, 6 * PAGE, 4);
    child = fork();
    if (!child) _exit(memory[PAGE] == 4 && memory[4 * PAGE] == 4 ? 7 : 8);
    check("and is forked again", ended(child) == 7, 0);
    munmap(memory, 6 * PAGE), munmap(common, PAGE);
    madvise(heap, 8 * PAGE, MADV_DOFORK);
}

int main(void) {
    forked();
    edges();
    moved();
    discarded();
    joined();
    opened();
    many();
    stacks();
    return all_checked();
}
