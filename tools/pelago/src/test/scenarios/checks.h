// What programs of checks have in common: each check prints "ok NAME", or "FAILED NAME" with what
// was found; the end of `main` says how many failed. A program of many checks defines ONLY_FAILURES
// before it includes this, and prints those alone; one of threads defines WITH_THREADS.
#ifndef CHECKS_H
#define CHECKS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures, checks;

static void check(const char *name, int is_fine, long found) {
    int error = errno;
    checks++;
#ifdef ONLY_FAILURES
    if (is_fine) return;
#endif
    if (!is_fine) failures++;
    printf(is_fine ? "ok %s\n" : "FAILED %s: %ld, errno %d\n", name, found, error);
    fflush(stdout);
}

// A call fails with that errno; a call gives that value.
#define FAILS(name, error, call) do { errno = 0; long given = (call); check(name, given == -1 && errno == (error), given); } while (0)
#define GIVES(name, value, call) do { errno = 0; long given = (call); check(name, given == (long)(value), given); } while (0)

// The end of `main`: what it returns.
static int all_checked(void) {
    printf("%d were made; all checked, %d failed\n", checks, failures);
    return failures != 0;
}

// What a child ended with: its status, or 1000 and the signal.
static int ended(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#ifdef WITH_THREADS
#include <pthread.h>

// A thread begins with that argument; the end of one gives what it returned.
static pthread_t begin(void *(*body)(void *), long argument) {
    pthread_t thread;
    int error = pthread_create(&thread, 0, body, (void *)argument);
    if (error) { printf("FAILED to make a thread: %d\n", error); exit(99); }
    return thread;
}
static long end(pthread_t thread) {
    void *result;
    pthread_join(thread, &result);
    return (long)result;
}
#endif

#endif
