// Writes that are on the disk when they are answered, each by another way. Behind each the program says so, and waits for
// a line: by then the host has taken a copy of the disk.
#include "checks.h"
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define TEXT "written by "

static int by_write(const char *name, int flags) {
    int file = open(name, O_WRONLY | O_CREAT | flags, 0600);
    char text[64];
    int length = sprintf(text, TEXT "%s\n", name);
    return write(file, text, length) == length;
}

static int by_flags(const char *name, int flags) {
    int file = open(name, O_WRONLY | O_CREAT, 0600);
    struct iovec parts[2] = { { TEXT, strlen(TEXT) }, { (char *)name, strlen(name) } };
    return pwritev2(file, parts, 2, 0, flags) == parts[0].iov_len + parts[1].iov_len;
}

static int by_sendfile(const char *name, int flags) {
    int from = memfd_create("from", 0), file = open(name, O_WRONLY | O_CREAT | flags, 0600);
    long length = dprintf(from, TEXT "%s\n", name);
    off_t at = 0;
    return sendfile(file, from, &at, length) == length;
}

static int by_rest(const char *name, int flags) {
    // With O_APPEND, at the end of what was written without waiting.
    int plain = open(name, O_WRONLY | O_CREAT, 0600), file = open(name, O_WRONLY | O_APPEND | flags);
    return write(plain, TEXT, strlen(TEXT)) == strlen(TEXT) && dprintf(file, "%s\n", name) == strlen(name) + 1;
}

static const struct way { const char *name; int (*write)(const char *, int); int flags; } ways[] = {
    { "whole", by_write, O_SYNC },       { "bytes", by_write, O_DSYNC },      { "whole-once", by_flags, RWF_SYNC },
    { "bytes-once", by_flags, RWF_DSYNC }, { "sent", by_sendfile, O_DSYNC }, { "appended", by_rest, O_SYNC },
};

int main(void) {
    if (chdir("/data")) return 1;
    for (int i = 0; i < sizeof ways / sizeof *ways; i++) {
        check(ways[i].name, ways[i].write(ways[i].name, ways[i].flags), 0);
        printf("durable: %s\n", ways[i].name);
        fflush(stdout);
        if (getchar() < 0) return 1;
    }
    return all_checked();
}
