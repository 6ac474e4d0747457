// What Linux promises of memory that processes have in common, and of sleeping on its words.
// Each check prints "ok NAME" or "FAILED NAME" with what was found.
#include "checks.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define PAGE 4096

static void *common(long bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
static long futex(void *at, int operation, int value, struct timespec *limit) {
    return syscall(SYS_futex, at, operation, value, limit, NULL, -1);
}

static void pages(void) {
    volatile long *memory = common(3 * PAGE);
    check("common memory", memory != MAP_FAILED && memory[0] == 0, 0);
    long *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 1, own[0] = 1;
    int child = fork();
    if (!child) {
        int is_fine = memory[0] == 1;
        memory[0] = 2, memory[1024] = 3, own[0] = 9;
        _exit(is_fine ? 5 : 6);
    }
    check("a child sees it", ended(child) == 5, 0);
    check("and what it writes is seen", memory[0] == 2 && memory[1024] == 3, memory[0]);
    check("but not in memory of its own", own[0] == 1, own[0]);
    // The one in the middle ends first.
    int ends[2];
    pipe(ends);
    if (!(child = fork())) {
        if (!fork()) {
            char byte;
            read(ends[0], &byte, 1);
            memory[1025] = memory[1] + 1;
            memory[2] = 7;
            _exit(0);
        }
        _exit(0);
    }
    ended(child);
    memory[1] = 41;
    write(ends[1], "x", 1);
    for (int i = 0; i < 2000 && memory[2] != 7; i++) usleep(1000);
    check("a grandchild goes on with it", memory[1025] == 42, memory[1025]);
    check("it can be made read-only", mprotect((void *)memory, PAGE, PROT_READ) == 0 && memory[0] == 2, 0);
    if (!(child = fork())) {
        memory[512] = 8;
        memory[0] = 3;
        _exit(0);
    }
    check("for a child too", ended(child) == 1000 + SIGSEGV && memory[512] == 8, memory[512]);
    check("and writable again", mprotect((void *)memory, PAGE, PROT_READ | PROT_WRITE) == 0 && (memory[0] = 4) == 4, 0);
    if (!(child = fork())) {
        munmap((void *)memory, 3 * PAGE);
        _exit(0);
    }
    check("who unmaps it takes nothing away", ended(child) == 0 && memory[0] == 4, memory[0]);
    if (!(child = fork())) {
        madvise((void *)memory, PAGE, MADV_DONTNEED);
        _exit(memory[0] == 4 ? 5 : 6);
    }
    check("nor who needs it no more", ended(child) == 5 && memory[0] == 4, memory[0]);
    if (!(child = fork())) {
        memory[3] = 99;
        raise(SIGKILL);
    }
    check("what a killed one wrote stays", ended(child) == 1000 + SIGKILL && memory[3] == 99, memory[3]);
    munmap((void *)memory, 3 * PAGE), munmap(own, PAGE);

    char *large = common(32l << 20);
    if (!(child = fork())) {
        for (long at = 0; at < 32l << 20; at += PAGE) large[at] = at / PAGE % 251 + 1;
        _exit(0);
    }
    ended(child);
    long wrong = 0;
    for (long at = 0; at < 32l << 20; at += PAGE) wrong += large[at] != (char)(at / PAGE % 251 + 1);
    check("much of it", wrong == 0, wrong);
    munmap(large, 32l << 20);

    int file = open("/tmp/in-common", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, "from the file", 13);
    char *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check("a file in common", mapped != MAP_FAILED && !strcmp(mapped, "from the file"), 0);
    if (!(child = fork())) {
        strcpy(mapped, "from the child");
        _exit(0);
    }
    check("is a child's too", ended(child) == 0 && !strcmp(mapped, "from the child"), mapped[9]);
    munmap(mapped, PAGE), close(file), unlink("/tmp/in-common");
}

static void counters(void) {
    enum { CHILDREN = 6, ROUNDS = 2000 };
    atomic_long *count = common(PAGE);
    int children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        if (!(children[i] = fork())) {
            for (int round = 0; round < ROUNDS; round++) atomic_fetch_add(count, 1);
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) ended(children[i]);
    check("a counter", atomic_load(count) == CHILDREN * ROUNDS, atomic_load(count));
    munmap(count, PAGE);
}

// Wakes by these bits who sleeps there, or is about to; gives how many that were.
static long wake_sleeper(atomic_int *word, int bits) {
    long woken = 0;
    for (int tries = 0; tries < 500 && !woken; tries++) {
        woken = syscall(SYS_futex, word, FUTEX_WAKE_BITSET, 9, NULL, NULL, bits);
        if (!woken) usleep(10000);
    }
    return woken;
}

// More than fits into the machine if each paid for it.
static void large(void) {
    enum { CHILDREN = 40, BYTES = 24 << 20 };
    volatile char *memory = common(BYTES);
    check("large common memory", memory != MAP_FAILED && memory[BYTES - 1] == 0, errno);
    pid_t pids[CHILDREN];
    int begin[2], made = 0, fine = 0;
    pipe(begin);
    for (memory[0] = 7; made < CHILDREN && (pids[made] = fork()) >= 0; made++) {
        if (pids[made]) continue;
        char byte;
        close(begin[1]);
        read(begin[0], &byte, 1);
        memory[BYTES - 1 - made] = memory[0] + made;
        _exit(memory[BYTES / 2] != 8);
    }
    memory[BYTES / 2] = 8;
    close(begin[0]), close(begin[1]);
    for (int i = 0; i < made; i++) fine += ended(pids[i]) == 0 && memory[BYTES - 1 - i] == 7 + i;
    check("many children have it", made == CHILDREN && fine == made, fine);
    munmap((void *)memory, BYTES / 2);
    check("a part of it goes", memory[BYTES - 1] == 7 && memory[BYTES / 2] == 8, memory[BYTES - 1]);
    munmap((void *)memory + BYTES / 2, BYTES / 2);
    for (fine = 0; fine < CHILDREN; fine++) {
        memory = common(BYTES);
        if (memory == MAP_FAILED || memory[BYTES - 1]) break;
        memory[BYTES - 1] = 1;
        munmap((void *)memory, BYTES);
    }
    check("and all of it, to be had again", fine == CHILDREN, fine);
}

static void words(void) {
    atomic_int *word = common(PAGE);
    struct timespec soon = { 0, 30000000 };
    check("a limit", futex(word, FUTEX_WAIT, 0, &soon) == -1 && errno == ETIMEDOUT, 0);
    check("another value", futex(word, FUTEX_WAIT, 1, NULL) == -1 && errno == EAGAIN, 0);
    check("nobody to wake", futex(word, FUTEX_WAKE, 1, NULL) == 0, 0);
    int child = fork();
    if (!child) {
        while (atomic_load(word) == 0) futex(word, FUTEX_WAIT, 0, NULL);
        atomic_store(word + 1, 1);
        futex(word + 1, FUTEX_WAKE, 1, NULL);
        _exit(0);
    }
    long woken = wake_sleeper(word, 4);
    atomic_store(word, 1);
    futex(word, FUTEX_WAKE, 9, NULL);
    check("a child is woken", woken == 1, woken);
    while (atomic_load(word + 1) == 0) futex(word + 1, FUTEX_WAIT, 0, NULL);
    check("and wakes", ended(child) == 0, 0);
    // Turns.
    enum { ROUNDS = 300 };
    atomic_store(word, 0);
    if (!(child = fork())) {
        for (int round = 0; round < ROUNDS; round++) {
            while (atomic_load(word) != 1) futex(word, FUTEX_WAIT, 0, NULL);
            atomic_store(word, 0);
            futex(word, FUTEX_WAKE, 1, NULL);
        }
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(word, 1);
        futex(word, FUTEX_WAKE, 1, NULL);
        while (atomic_load(word) != 0) futex(word, FUTEX_WAIT, 1, NULL);
    }
    check("turns", ended(child) == 0, 0);
    // A sleeper that is killed takes no wake-up with it.
    int first = fork();
    if (!first) for (;;) futex(word + 8, FUTEX_WAIT, 0, NULL);
    usleep(50000);
    kill(first, SIGKILL), ended(first);
    int second = fork();
    if (!second) {
        futex(word + 8, FUTEX_WAIT, 0, NULL);
        _exit(3);
    }
    woken = wake_sleeper(word + 8, 4);
    check("a killed one sleeps no more", woken == 1 && ended(second) == 3, woken);
    int bits = fork();
    if (!bits) _exit(syscall(SYS_futex, word + 9, FUTEX_WAIT_BITSET, 0, NULL, NULL, 4) ? 1 : 0);
    usleep(50000);
    long wrong = syscall(SYS_futex, word + 9, FUTEX_WAKE_BITSET, 9, NULL, NULL, 3);
    long right = wake_sleeper(word + 9, 12);
    check("by bits", wrong == 0 && right == 1 && ended(bits) == 0, wrong * 10 + right);
    munmap(word, PAGE);
}

struct shared {
    sem_t ping, pong;
    pthread_mutex_t lock;
    pthread_cond_t condition;
    int turn;
    long count;
};

static void primitives(void) {
    struct shared *shared = common(PAGE);
    sem_init(&shared->ping, 1, 0), sem_init(&shared->pong, 1, 0);
    pthread_mutexattr_t for_locks;
    pthread_mutexattr_init(&for_locks);
    pthread_mutexattr_setpshared(&for_locks, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &for_locks);
    pthread_condattr_t for_conditions;
    pthread_condattr_init(&for_conditions);
    pthread_condattr_setpshared(&for_conditions, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->condition, &for_conditions);
    int child = fork();
    if (!child) {
        for (int i = 0; i < 100; i++) sem_wait(&shared->ping), sem_post(&shared->pong);
        _exit(0);
    }
    for (int i = 0; i < 100; i++) sem_post(&shared->ping), sem_wait(&shared->pong);
    check("semaphores", ended(child) == 0, 0);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += 50000000;
    if (limit.tv_nsec >= 1000000000) limit.tv_sec++, limit.tv_nsec -= 1000000000;
    check("with a limit", sem_timedwait(&shared->ping, &limit) == -1 && errno == ETIMEDOUT, 0);
    enum { CHILDREN = 4, ROUNDS = 200 };
    int children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        if (!(children[i] = fork())) {
            for (int round = 0; round < ROUNDS; round++) {
                pthread_mutex_lock(&shared->lock);
                long before = shared->count;
                if (round % 20 == 0) usleep(100);
                shared->count = before + 1;
                pthread_mutex_unlock(&shared->lock);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) ended(children[i]);
    check("a lock", shared->count == CHILDREN * ROUNDS, shared->count);
    if (!(child = fork())) {
        pthread_mutex_lock(&shared->lock);
        while (shared->turn != 1) pthread_cond_wait(&shared->condition, &shared->lock);
        shared->turn = 2;
        pthread_cond_broadcast(&shared->condition);
        pthread_mutex_unlock(&shared->lock);
        _exit(0);
    }
    usleep(30000);
    pthread_mutex_lock(&shared->lock);
    shared->turn = 1;
    pthread_cond_broadcast(&shared->condition);
    while (shared->turn != 2) pthread_cond_wait(&shared->condition, &shared->lock);
    pthread_mutex_unlock(&shared->lock);
    check("a condition", ended(child) == 0, 0);
    munmap(shared, PAGE);
}

// A segment of System V: more than a part of it, which has 4 MiB.
#define FAR (5 << 20)
struct segment {
    sem_t turns[2];
    volatile long count;
};
static long attaches(int id) {
    struct shmid_ds state = { 0 };
    return shmctl(id, IPC_STAT, &state) ? -errno : (long)state.shm_nattch;
}
// The same by an exec, which keeps no memory: how often the segment that it names is attached.
static int tells_attaches(const char *id) { return attaches(atoi(id)) & 0xff; }

// What none of them inherited: each attaches it elsewhere, and they take turns by semaphores in it.
static int takes_turns(int id, int own) {
    if (own) common(7 * PAGE);
    struct segment *segment = shmat(id, NULL, 0);
    if (segment == (void *)-1) return 1;
    for (int round = 0; round < 300; round++) {
        sem_wait(&segment->turns[own]);
        segment->count++;
        ((volatile char *)segment)[FAR + own]++;
        sem_post(&segment->turns[!own]);
    }
    return 0;
}

static void segments(void) {
    int id = shmget(IPC_PRIVATE, FAR + 100, 0600);
    struct segment *segment = shmat(id, NULL, 0);
    check("a segment", segment != (void *)-1 && segment->count == 0 && attaches(id) == 1, errno);
    if (segment == (void *)-1) return;
    for (int i = 0; i < 2; i++) sem_init(&segment->turns[i], 1, !i);
    check("is given up", shmdt(segment) == 0 && attaches(id) == 0, errno);
    pid_t children[2];
    for (int i = 0; i < 2; i++) if (!(children[i] = fork())) _exit(takes_turns(id, i));
    int ends[2];
    for (int i = 0; i < 2; i++) ends[i] = ended(children[i]);
    segment = shmat(id, NULL, 0);
    char *far = (char *)segment + FAR;
    check("strangers have it in common", !ends[0] && !ends[1] && segment->count == 600 && far[0] == far[1] && far[1] == 300 % 256, segment->count);
    char text[12];
    snprintf(text, sizeof text, "%d", id);
    if (!(children[0] = fork())) execl("/proc/self/exe", "checks", text, NULL);
    check("a program does not have its predecessor's", ended(children[0]) == 1, 0);
    int told[2];
    check("a pipe", pipe(told) == 0, errno);
    pid_t child = fork();
    if (!child) {
        shmctl(id, IPC_RMID, NULL);
        write(told[1], "", 1);
        pause();
    }
    // It has removed the segment's name by then, and dies below.
    char byte;
    check("its name is gone", read(told[0], &byte, 1) == 1, errno);
    close(told[0]), close(told[1]);
    check("a child has it too", attaches(id) == 2, attaches(id));
    shmdt(segment);
    segment = shmat(id, NULL, SHM_RDONLY);
    check("its pages stay", segment != (void *)-1 && segment->count == 600, errno);
    munmap(segment, FAR + 100);
    check("a killed one has it no more", (kill(child, SIGKILL), ended(child)) == 1000 + SIGKILL, 0);
    for (int i = 0; i < 2000 && attaches(id) >= 0; i++) usleep(1000);
    check("and the last takes it along", attaches(id) == -EINVAL || attaches(id) == -EIDRM, attaches(id));
    id = shmget(IPC_PRIVATE, 1L << 37, 0600);
    check("what does not fit is not begun", id == -1 || shmat(id, NULL, 0) == (void *)-1 && attaches(id) == 0, id);
    if (id >= 0) shmctl(id, IPC_RMID, NULL);
    check("nothing is attached nowhere", shmdt((void *)(long)PAGE) == -1 && errno == EINVAL && shmdt("") == -1 && errno == EINVAL, errno);
}

int main(int count, char **words_of) {
    if (count > 1) return tells_attaches(words_of[1]);
    segments();
    pages();
    counters();
    large();
    words();
    primitives();
    return all_checked();
}
