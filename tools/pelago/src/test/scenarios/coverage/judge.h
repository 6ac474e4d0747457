// How a row of linux/proxy/src/flag_table.txt is tried. What is tried stands in the files beside this:
//
//   TRY(group)          makes the call with `value` where nothing else can go wrong, and gives what it gives;
//   SEEN(group, NAME)   asks whether `value` did what Linux's manual says;
//   SEES(group)         asks the same of all honoured rows of a group that have no SEEN of their own.
//
// Of a row that is refused, TRY must give that error, and of one without effect, it must not fail. Run with the word
// `linux`, the program judges Linux: what we call honoured must be so there too, and what we say is as Linux must be.
#define ONLY_FAILURES
#define WITH_THREADS
#include "checks.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/memfd.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/serial.h>
#include <linux/sockios.h>
#include <asm/prctl.h>
#include <asm/termbits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

// The C library gives these other values than the kernel's headers, or none of its own.
#undef O_LARGEFILE
#undef __O_TMPFILE
#define __O_TMPFILE 020000000
#undef O_TMPFILE
#define O_TMPFILE 020200000

// What the C library does not name.
#define SA_RESTORER 0x4000000
#define SA_UNSUPPORTED 0x400
#define SA_EXPOSE_TAGBITS 0x800

enum state { HONOURED, WITHOUT_EFFECT, REFUSED };

struct row {
    const char *group, *name;
    long value;
    enum state state;
    int error, as_linux;
    long (*try)(long);
    int (*seen)(long);
};

#define TRY(group) static long try_##group(long value)
#define SEEN(group, name) static int seen_##group##_##name(long value)
#define SEES(group) static int sees_##group(long value)

// What TRY and SEEN give where the machine that Linux runs on has not what is to be tried. A call that it lacks as a whole,
// or that a container keeps from its programs, is one too.
enum { NOT_HERE = -1000 };

static int is_linux, not_here;
// The row that is tried, for who waits for this process.
static const struct row **trying;

static int cannot_look(const struct row *row, long given) {
    int is_so = is_linux && (given == NOT_HERE || errno == ENOSYS && row->error != ENOSYS);
    if (is_so) printf("not here: %s %s\n", row->group, row->name), not_here++;
    return is_so;
}

static void judge(const struct row *row) {
    char name[120];
    if (is_linux && row->state != HONOURED && !row->as_linux) return;
    *trying = row;
    syscall(SYS_close_range, 3, ~0u, 0);
    snprintf(name, sizeof name, "%s %s%s", row->group, row->name, is_linux ? " in Linux" : "");
    errno = 0;
    if (row->state == HONOURED) {
        int seen = row->seen(row->value);
        if (seen == 1 || !cannot_look(row, seen)) check(name, seen == 1, seen);
        return;
    }
    long given = row->try(row->value);
    if (!cannot_look(row, given)) check(name, row->state == REFUSED ? given == -1 && errno == row->error : given != -1, given);
}

// What the checks have in common.

// A new file of ten bytes in the program's own folder.
static const char *fresh(void) {
    unlink("f");
    int file = open("f", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(file, "0123456789", 10);
    close(file);
    return "f";
}
static int opened(int flags) { return open(fresh(), flags, 0600); }
static int leads(void) { unlink("l"); return symlink(fresh(), "l"); }
static long size_of(int file) {
    struct stat status;
    return fstat(file, &status) ? -1 : status.st_size;
}
static int ready(int file, int events, int timeout) {
    struct pollfd entry = { file, events, 0 };
    return poll(&entry, 1, timeout) < 0 ? -1 : entry.revents;
}
static int fails_by(long given, int error) { return given == -1 && errno == error; }
static int is_nonblocking(int file) { return file >= 0 && fcntl(file, F_GETFL) & O_NONBLOCK; }
static int is_cloexec(int file) { return file >= 0 && fcntl(file, F_GETFD) == FD_CLOEXEC; }
// What a child finds: it ends with what `ask` gives.
static int child_finds(int (*ask)(long), long value) {
    pid_t child = fork();
    if (!child) _exit(ask(value) & 0xff);
    return ended(child);
}
// A timer's first expiration.
static struct itimerspec in_ms(long ms) {
    struct itimerspec spec = { { 0, 0 }, { ms / 1000, ms % 1000 * 1000000 } };
    return spec;
}
