// What Linux promises of a program's own memory: that what it needs no more is free. Each check
// prints "ok NAME" or "FAILED NAME" with what was found.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)
#ifndef MADV_FREE
#define MADV_FREE 8
#endif
static int failures;

static void check(const char *name, int is_fine, long found) {
    int error = errno;
    if (!is_fine) failures++;
    printf(is_fine ? "ok %s\n" : "FAILED %s: %ld, errno %d\n", name, found, error);
    fflush(stdout);
}
static char *own(long bytes, int access) {
    return mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static int ended(int child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
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

int main(void) {
    alarm(100);
    edges();
    discarded();
    stacks();
    printf("all checked, %d failed\n", failures);
    return failures != 0;
}
