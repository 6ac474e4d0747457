// The end of the program: all rows, in a process that another one waits for, so that one that hangs or dies is named.

static int judge_all(void) {
    for (unsigned long i = 0; i < sizeof rows / sizeof *rows; i++) judge(rows + i);
    printf("%lu rows, ", sizeof rows / sizeof *rows);
    if (is_linux) printf("%d cannot be looked at on this machine, ", not_here);
    return all_checked();
}

int main(int count, char **words) {
    is_linux = count > 1 && !strcmp(words[1], "linux");
    // Files in memory, as all are here.
    char folder[] = "/dev/shm/coverage-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder)) return printf("FAILED to make %s\n", folder), 99;
    trying = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    umask(022);
    pid_t child = fork();
    if (!child) {
        syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0L, 0L, 0L);
        exit(judge_all());
    }
    // Who started this knows how long to wait, and is told for what.
    int status;
    for (long tell = now_ms() + 60000; !waitpid(child, &status, WNOHANG);) {
        struct timespec pause = { 0, 20000000 };
        nanosleep(&pause, NULL);
        if (now_ms() < tell) continue;
        printf("still at %s %s\n", *trying ? (*trying)->group : "", *trying ? (*trying)->name : "what is before the first");
        fflush(stdout), tell = now_ms() + 10000;
    }
    static const char *files[] = { "f", "g", "l", "n", "p", "d", "s" };
    for (unsigned long i = 0; i < sizeof files / sizeof *files; i++) remove(files[i]);
    rmdir(folder);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    printf("FAILED %s %s: it died; all checked, 1 failed\n", *trying ? (*trying)->group : "", *trying ? (*trying)->name : "before the first");
    return 1;
}
