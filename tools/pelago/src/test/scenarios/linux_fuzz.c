// Random and near-valid Linux calls of all numbers by 8 threads. What each argument may be is told
// by a letter; most are of the right kind, some are at an edge, a few are wild.
//
// Arguments: seed, calls, rounds in which a process is killed amid its calls; or "probe": how many
// there may be of what servers keep, whether the ports are free, and how many processes live.
#include "checks.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

#define PAGE 4096L
#define FOLDER "/tmp/fuzz"
enum { THREADS = 8, NUMBERS = 461, CALLS_EACH = 2500, FILES = 32, ARENA_PAGES = 64, PORT = 20000, PORTS = 8 };
// Without any call that ends, in looks of the shaker.
enum { LOOK_US = 2000, LOOKS = 2500 };

// Calls that are not made, and why.
static const struct { short number; const char *why; } left_out[] = {
    { 15, "rt_sigreturn: goes on with registers out of garbage, which ends the program" },
    { 60, "exit: ends the thread that makes calls" },
    { 231, "exit_group: ends the program" },
    { 159, "adjtimex: the machine's clock" },
    { 164, "settimeofday: the machine's clock" },
    { 227, "clock_settime: the machine's clock" },
    { 305, "clock_adjtime: the machine's clock" },
    { 169, "reboot: ends the machine, where it is answered" },
    { 335, "uretprobe: SIGILL where the kernel did not ask for it" },
    { 336, "uprobe: the same" },
};
// Signals that are not sent: they end or stop the program. SIGUSR1 is kept for who waits for long.
static int is_sent(int signal) {
    static const unsigned char none[] = { SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGUSR1 };
    return !memchr(none, signal, sizeof none);
}

// What arguments may be:
//  d descriptor        D number of a descriptor to be   e folder's descriptor
//  b buffer            n count or length                # bounded length       c small count
//  p name of ours      o name of something              f flags                x permissions
//  g small number      s signal                         i process              T thread
//  t short time        Q the same in microseconds       m milliseconds         u clock
//  a page              l length of pages                P protection           M mapping's flags
//  v vectors           h message                        @ several messages     j what to poll
//  A address           k its length                     W where a length is    O level of options
//  Y mask of signals   y signal to be handled           C its action           K stack of signals
//  I interval          J the same in nanoseconds        E event                Z limit
//  U word              q its operation                  N family               G type of sockets
//  8 length of a mask  H options of waits               L command of fcntl     X its argument
//  R request of ioctl  V code of arch_prctl             ! how to open          B break
static const struct { short number; const char *letters; } kinds[] = {
    { 0, "dbn" }, { 1, "dbn" }, { 2, "ofx" }, { 3, "d" }, { 4, "ob" }, { 5, "db" }, { 6, "ob" }, { 7, "jcm" }, { 8, "dng" },
    { 9, "alPMdl" }, { 10, "alP" }, { 11, "al" }, { 12, "B" }, { 13, "yCb8" }, { 14, "gYb8" }, { 16, "dRb" }, { 17, "dbng" },
    { 18, "dbng" }, { 19, "dvc" }, { 20, "dvc" }, { 21, "og" }, { 22, "b" }, { 23, "gbbbQ" }, { 24, "" }, { 25, "allga" },
    { 26, "alg" }, { 27, "alb" }, { 28, "alg" }, { 32, "d" }, { 33, "dD" }, { 34, "" }, { 35, "tb" }, { 36, "gb" }, { 37, "c" },
    { 38, "gIb" }, { 39, "" }, { 40, "ddb#" }, { 41, "NGg" }, { 42, "dAk" }, { 43, "dbW" }, { 44, "dbnfAk" }, { 45, "dbnfbW" },
    { 46, "dhf" }, { 47, "dhf" }, { 48, "dg" }, { 49, "dAk" }, { 50, "dg" }, { 51, "dbW" }, { 52, "dbW" }, { 53, "NGgb" },
    { 54, "dOgbc" }, { 55, "dOgbW" }, { 59, "obb" }, { 61, "ibHb" }, { 62, "is" }, { 63, "b" }, { 72, "dLX" }, { 73, "dg" },
    { 74, "d" }, { 75, "d" }, { 76, "pn" }, { 77, "dn" }, { 78, "dbn" }, { 79, "bn" }, { 80, "p" }, { 81, "d" }, { 82, "pp" },
    { 83, "px" }, { 84, "p" }, { 85, "px" }, { 86, "pp" }, { 87, "p" }, { 88, "pp" }, { 89, "obn" }, { 90, "px" }, { 91, "dx" },
    { 92, "pgg" }, { 93, "dgg" }, { 94, "pgg" }, { 95, "x" }, { 96, "bb" }, { 97, "gb" }, { 98, "gb" }, { 99, "b" }, { 100, "b" },
    { 102, "" }, { 104, "" }, { 105, "g" }, { 106, "g" }, { 107, "" }, { 108, "" }, { 109, "ii" }, { 110, "" }, { 111, "" },
    { 112, "" }, { 113, "gg" }, { 114, "gg" }, { 115, "gb" }, { 116, "gb" }, { 117, "ggg" }, { 118, "bbb" }, { 119, "ggg" },
    { 120, "bbb" }, { 121, "i" }, { 124, "i" }, { 125, "bb" }, { 126, "bb" }, { 127, "b8" }, { 128, "Ybt8" }, { 129, "isb" },
    { 130, "Y8" }, { 131, "Kb" }, { 132, "pb" }, { 137, "ob" }, { 138, "db" }, { 140, "gi" }, { 141, "gig" }, { 142, "ib" },
    { 143, "ib" }, { 144, "igb" }, { 145, "i" }, { 146, "g" }, { 147, "g" }, { 148, "ib" }, { 149, "al" }, { 150, "al" },
    { 151, "g" }, { 152, "" }, { 157, "gbbbb" }, { 158, "Vb" }, { 160, "gZ" }, { 162, "" }, { 170, "bg" }, { 171, "bg" },
    { 186, "" }, { 187, "dnn" }, { 188, "obbng" }, { 189, "obbng" }, { 190, "dbbng" }, { 191, "obbn" }, { 192, "obbn" },
    { 193, "dbbn" }, { 194, "obn" }, { 195, "obn" }, { 196, "dbn" }, { 197, "ob" }, { 198, "ob" }, { 199, "db" }, { 200, "Ts" },
    { 201, "b" }, { 202, "UqgtUg" }, { 203, "igb" }, { 204, "igb" }, { 213, "g" }, { 217, "dbn" }, { 218, "b" }, { 221, "dnng" },
    { 222, "uEb" }, { 223, "ggJb" }, { 224, "gb" }, { 225, "g" }, { 226, "g" }, { 228, "ub" }, { 229, "ub" }, { 230, "ugtb" },
    { 232, "dbgm" }, { 233, "dgdE" }, { 234, "iTs" }, { 235, "pb" }, { 247, "gibHb" }, { 257, "eofx" }, { 258, "epx" },
    { 260, "epggf" }, { 261, "epb" }, { 262, "eobf" }, { 263, "epf" }, { 264, "epep" }, { 265, "epepf" }, { 266, "pep" },
    { 267, "eobn" }, { 268, "epx" }, { 269, "eog" }, { 270, "gbbbtz" }, { 271, "jctY8" }, { 273, "b#" }, { 274, "Tbb" },
    { 275, "dbdb#f" }, { 276, "dd#f" }, { 277, "dnng" }, { 280, "epbf" }, { 281, "dbgmY8" }, { 282, "dY8" }, { 283, "uf" },
    { 284, "g" }, { 285, "dgnn" }, { 286, "dgJb" }, { 287, "db" }, { 288, "dbWf" }, { 289, "dY8f" }, { 290, "gf" }, { 291, "f" },
    { 292, "dDf" }, { 293, "bf" }, { 295, "dvcn" }, { 296, "dvcn" }, { 297, "iTsb" }, { 299, "d@cft" }, { 302, "igZb" },
    { 306, "d" }, { 307, "d@cf" }, { 309, "bbb" }, { 316, "epepg" }, { 318, "bng" }, { 324, "gg" }, { 325, "alg" },
    { 326, "dbdb#g" }, { 332, "eofgb" }, { 424, "dsbg" }, { 434, "ig" }, { 436, "DDg" }, { 437, "eo!#" }, { 439, "eogf" },
};

// What the processes and who began them have in common.
static struct common {
    volatile long made, accepted, stuck_in;
    volatile int number[THREADS];
    volatile long given[NUMBERS];
} *common;

struct thread {
    int place;
    uint64_t random;
    volatile long count;
    volatile int id;
    pthread_t thread;
    // What arguments point at that is no buffer.
    union { char bytes[256]; uint64_t words[32]; } parts[6];
};
static struct thread threads[THREADS];
static char *arena, spare_stacks[THREADS][4 * PAGE], *break_at;
static volatile int has_begun;
static int process;
static const char *letters_of[NUMBERS];
static char is_left_out[NUMBERS], long_name[400];

static void note(int signal) {}

static long below(struct thread *me, long limit) {
    me->random ^= me->random << 13, me->random ^= me->random >> 7, me->random ^= me->random << 17;
    return (me->random >> 16) % limit;
}
static long raw(long number, const long *a) {
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall" : "+a"(number) : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return number;
}
// Of fork and its relatives: what they make ends at once, whatever stack it has.
static long raw_fork(long number, const long *a) {
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; mov $60, %%eax; xor %%edi, %%edi; syscall; 1:"
                     : "+a"(number) : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return number;
}

static long pointer(struct thread *me) {
    static const long wild[] = { 1, -1, -4096, 0x7fffffffffff, 0x800000000000, 0xffffffff80000000, 0x70000000, 0x720000100000, 0x10000000 };
    long page = (long)arena + below(me, ARENA_PAGES) * PAGE;
    switch (below(me, 20)) {
    case 0: return 0;
    case 1: return wild[below(me, sizeof wild / sizeof *wild)];
    case 2: return (long)&kinds;
    case 3: return page + PAGE - 1 - below(me, 64);
    case 4: return page + below(me, PAGE);
    default: return page + below(me, 64) * 8;
    }
}
static long length(struct thread *me) {
    static const long edges[] = { -1, -5000, LONG_MAX, LONG_MAX - 5000, 1L << 40, 1L << 31, 0x7fffffff, 0xffffffff, 1 << 20, 1L << 47 };
    return below(me, 12) ? below(me, below(me, 4) ? 200 : 70000) : edges[below(me, 10)];
}
static const char *own_name(struct thread *me) {
    static const char *names[] = { "a", "b", "c", "d", "d/a", "d/b", "d/d", "a/a", "./a", "d/", ".", "", "sock", "e" };
    return below(me, 30) ? names[below(me, 14)] : long_name;
}
static const char *any_name(struct thread *me) {
    static const char *names[] = { "/dev/null", "/dev/zero", "/dev/urandom", "/proc/self/stat", "/proc/self/fd", "/proc/meminfo", "/proc",
                                   "/", "/proc/1/cmdline", "/proc/self/exe/x" };
    return below(me, 3) ? own_name(me) : names[below(me, 10)];
}
static void fill_vectors(struct thread *me, struct iovec *vectors, int count) {
    for (int i = 0; i < count; i++) vectors[i] = (struct iovec){ (void *)pointer(me), length(me) };
}
static void fill_address(struct thread *me, struct sockaddr_storage *address) {
    memset(address, 0, sizeof *address);
    struct sockaddr_in *four = (void *)address;
    struct sockaddr_in6 *six = (void *)address;
    struct sockaddr_un *local = (void *)address;
    switch (below(me, 5)) {
    case 0: local->sun_family = AF_UNIX, strcpy(local->sun_path + below(me, 2), "sock"); break;
    case 1: six->sin6_family = AF_INET6, six->sin6_addr.s6_addr[15] = 1, six->sin6_port = htons(PORT + below(me, PORTS)); break;
    case 2:
        for (int i = 0; i < 16; i++) ((char *)address)[i] = below(me, 256);
        four->sin_family = below(me, 20), four->sin_addr.s_addr = htonl(INADDR_LOOPBACK), four->sin_port = htons(PORT);
        break;
    default: four->sin_family = AF_INET, four->sin_addr.s_addr = htonl(INADDR_LOOPBACK), four->sin_port = htons(PORT + below(me, PORTS));
    }
}

// An argument of a kind. What it points at lies in `part`, of 256 bytes.
static long argument(struct thread *me, char letter, void *part) {
    static const int edges[] = { -1, AT_FDCWD, 1023, 1024, 10239, 10240, 0x7fffffff };
    uint64_t *words = part;
    struct iovec *vectors = part;
    struct msghdr *message = part;
    if (strchr("vh@jAtQIJEZYCKW!", letter) && !below(me, 15)) return pointer(me);
    switch (letter) {
    case 'd': return below(me, 12) ? below(me, 3 + FILES) : edges[below(me, 7)];
    case 'D': return below(me, 30) ? 3 + below(me, FILES) : edges[below(me, 7)];
    case 'e': return below(me, 3) ? AT_FDCWD : below(me, 3 + FILES);
    case 'b': return pointer(me);
    case 'n': return length(me);
    case '#': return below(me, 4) ? 24 : below(me, 70000);
    case 'c': return below(me, 10) ? below(me, 5) : length(me);
    case 'p': return below(me, 30) ? (long)own_name(me) : pointer(me);
    case 'o': return below(me, 30) ? (long)any_name(me) : pointer(me);
    case 'f': { long bits = 0; if (below(me, 2)) return 0; for (long i = below(me, 4); i--;) bits |= 1L << below(me, 24); return below(me, 40) ? bits : -1; }
    case 'x': return 0700 | (below(me, 2) ? 0 : below(me, 010000));
    case 'g': return below(me, 12) ? below(me, 12) : below(me, 3) ? below(me, 70) : length(me);
    case 's': { long signal = below(me, 68); return is_sent(signal) ? signal : 0; }
    case 'y': { long signal = below(me, 68); return is_sent(signal) || signal == SIGKILL ? signal : 0; }
    case 'i': { const long ids[] = { 0, process, -process, 29999, -29999, 0x7fffffff }; return ids[below(me, 12) < 8 ? 1 : below(me, 6)]; }
    case 'T': return below(me, 8) ? threads[below(me, THREADS)].id : below(me, 2) ? 29999 : 0x7fffffff - below(me, 99);
    case 'm': return below(me, 8) ? below(me, 3) : -1;
    case 'u': return below(me, 10) ? below(me, 12) : -below(me, 99);
    case 'a': return below(me, 30) ? (long)arena + below(me, ARENA_PAGES) * PAGE : 0;
    case 'l': { static const long edges[] = { -1, -3 * PAGE, LONG_MAX - PAGE, 1L << 47, 1, 4097 }; return below(me, 15) ? below(me, 9) * PAGE : edges[below(me, 6)]; }
    case 'P': return below(me, 8);
    case 'M': { static const int flags[] = { 0x22, 0x21, 1, 2, 3, 0x32, 0x31, 0x11, 0x12 }; return flags[below(me, 9)] | (below(me, 8) ? 0 : 1L << below(me, 21)); }
    case 'v': fill_vectors(me, vectors, 4); break;
    case 'h':
        memset(message, 0, sizeof *message);
        fill_vectors(me, vectors + 8, 2);
        message->msg_iov = vectors + 8, message->msg_iovlen = below(me, 3);
        if (below(me, 2)) message->msg_control = (void *)pointer(me), message->msg_controllen = below(me, 100);
        if (!below(me, 3)) message->msg_name = (void *)pointer(me), message->msg_namelen = below(me, 130);
        if (!below(me, 3)) {
            // A descriptor goes along.
            uint64_t control[3] = { 20, 1L << 32 | SOL_SOCKET, below(me, FILES) };
            memcpy(words + 26, control, 24), message->msg_control = words + 26, message->msg_controllen = 24;
        }
        break;
    case '@':
        memset(part, 0, 256);
        fill_vectors(me, vectors + 12, 2);
        for (int i = 0; i < 3; i++) ((struct mmsghdr *)part)[i].msg_hdr = (struct msghdr){ .msg_iov = vectors + 12, .msg_iovlen = below(me, 3) };
        break;
    case 'j': for (int i = 0; i < 5; i++) ((struct pollfd *)part)[i] = (struct pollfd){ below(me, 3 + FILES), below(me, 64) }; break;
    case 'A': fill_address(me, part); break;
    case 'k': { static const int lengths[] = { 16, 28, 110, 7, 0, 2, 128, -1 }; return lengths[below(me, 4) ? below(me, 3) : below(me, 8)]; }
    case 'W': words[0] = below(me, 4) ? below(me, 130) : length(me); break;
    case 'O': { static const int levels[] = { SOL_SOCKET, 0, 6, 17, 41 }; return levels[below(me, 5)]; }
    case 't': words[0] = below(me, 20) ? 0 : length(me), words[1] = below(me, 300000); break;
    case 'Q': words[0] = 0, words[1] = below(me, 20) ? below(me, 300) : -1; break;
    case 'I': case 'J': words[0] = words[2] = 0, words[1] = below(me, 2) ? 0 : 1000000, words[3] = below(me, 20) ? below(me, 500000) : length(me); break;
    case 'E': words[0] = below(me, 2) ? below(me, 32) : me->random >> 20, words[1] = (uint64_t)below(me, 5) << 32 | SIGUSR2; break;
    case 'Z': words[0] = below(me, 2) ? 1000 : length(me), words[1] = below(me, 2) ? 1024 : -1; break;
    case 'Y': words[0] = me->random & me->random << 21 & ~(1UL << (SIGUSR1 - 1)); return below(me, 4) ? (long)part : 0;
    case 'C': {
        static const int flags[] = { 0, SA_RESTART, SA_NODEFER, SA_SIGINFO, SA_ONSTACK, SA_NOCLDWAIT };
        // As the library has it set, with its way back.
        raw(SYS_rt_sigaction, (long[]){ SIGUSR1, 0, (long)part, 8, 0, 0 });
        words[1] |= flags[below(me, 6)];
        if (!below(me, 4)) words[0] = 1;
        break;
    }
    case 'K': words[0] = (uint64_t)spare_stacks[me->place], words[1] = below(me, 4) ? 0 : 2, words[2] = below(me, 4) ? sizeof spare_stacks[0] : below(me, 3000); break;
    case 'U': return (long)arena + below(me, ARENA_PAGES) * PAGE + below(me, 3) * 4;
    case 'q': return below(me, 14) | (below(me, 2) ? 128 : 0) | (below(me, 6) ? 0 : 256);
    case 'N': { static const int families[] = { AF_UNIX, AF_INET, AF_INET6, 0, 16 }; return families[below(me, 4) ? below(me, 3) : below(me, 5)]; }
    case 'G': return (below(me, 8) ? 1 + below(me, 2) : below(me, 8)) | (below(me, 2) ? SOCK_NONBLOCK : 0) | (below(me, 4) ? 0 : SOCK_CLOEXEC);
    case '8': return below(me, 20) ? 8 : below(me, 130);
    case 'H': return below(me, 4) ? WNOHANG | (below(me, 2) ? WEXITED : 0) : below(me, 16);
    case 'L': { static const int commands[] = { F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_DUPFD_CLOEXEC, 36, 37, 1031, 1032 }; return below(me, 10) ? commands[below(me, 13)] : below(me, 1100); }
    case 'X':
        if (below(me, 2)) return below(me, 4) ? below(me, 40) : length(me);
        *(struct flock *)part = (struct flock){ below(me, 4), below(me, 3), below(me, 100), below(me, 100) };
        break;
    case 'R': { static const int requests[] = { 0x5401, 0x5413, 0x541b, 0x5421, 0x5451, 0x5450, 0x5452, 0x540f, 0x5410 }; return below(me, 4) ? requests[below(me, 9)] : below(me, 0x10000); }
    case 'V': { static const int codes[] = { 0x1001, 0x1003, 0x1004, 0, 0x1011 }; return codes[below(me, 5)]; }
    case '!': words[0] = argument(me, 'f', NULL), words[1] = below(me, 2) ? 0 : 0600, words[2] = below(me, 3) ? 0 : below(me, 64); break;
    case 'B': return below(me, 3) ? (long)break_at + below(me, 64) * PAGE : below(me, 2) ? 0 : -1;
    default: return 0;
    }
    return (long)part;
}

// fork, vfork, clone, clone3.
static long make_party(struct thread *me, int number) {
    static const long flags[] = { SIGCHLD, 0x11, 0x3d0f00, 0x10f00, 0x4000 | SIGCHLD, 0x4100 | SIGCHLD, 0x100 | SIGCHLD, 0x1200000 | SIGCHLD, 0x8000 | SIGCHLD, 0x1000 | SIGCHLD, 0x10000, 0x800 };
    long flag = flags[below(me, 12)] | (below(me, 6) ? 0 : 1L << below(me, 33)), stack = below(me, 4) ? (long)arena + (1 + below(me, ARENA_PAGES)) * PAGE : 0;
    // Without a stack it would run on its parent's beside it.
    if (flag & 0x100 && !(flag & 0x4000) && !stack) stack = (long)arena + 8 * PAGE;
    long arguments[6] = { flag, stack, pointer(me), pointer(me), pointer(me), 0 };
    if (number == SYS_clone3) {
        uint64_t how[11] = { flag & ~0xff, pointer(me), pointer(me), pointer(me), below(me, 4) ? SIGCHLD : below(me, 70), stack ? stack - PAGE : 0, stack ? PAGE : 0, pointer(me) };
        memcpy(me->parts, how, sizeof how);
        arguments[0] = below(me, 10) ? (long)me->parts : pointer(me), arguments[1] = below(me, 6) ? 64 + 8 * below(me, 4) : below(me, 200);
    }
    return raw_fork(number, arguments);
}

// Something new at one of our descriptors.
static void make_descriptor(struct thread *me) {
    int made[2] = { -1, -1 };
    struct sockaddr_storage address;
    switch (below(me, 14)) {
    case 0: if (pipe2(made, below(me, 2) ? O_NONBLOCK : 0)) return; break;
    case 1: if (socketpair(AF_UNIX, below(me, 2) ? SOCK_STREAM : SOCK_DGRAM, 0, made)) return; break;
    case 2: made[0] = socket(AF_INET, SOCK_STREAM, 0), fill_address(me, &address), bind(made[0], (void *)&address, 16), listen(made[0], 3); break;
    case 3: made[0] = socket(AF_INET, SOCK_DGRAM, 0); break;
    case 4: made[0] = socket(AF_UNIX, SOCK_STREAM, 0); break;
    case 5: made[0] = eventfd(below(me, 3), below(me, 2) ? EFD_NONBLOCK : 0); break;
    case 6: made[0] = timerfd_create(CLOCK_MONOTONIC, 0); break;
    case 7: made[0] = epoll_create1(0); break;
    case 8: made[0] = open("d", O_RDONLY | O_DIRECTORY); break;
    case 9: made[0] = open("/proc", O_RDONLY | O_DIRECTORY); break;
    case 10: made[0] = syscall(SYS_pidfd_open, process, 0); break;
    case 11: made[0] = open("/dev/urandom", O_RDWR); break;
    default: made[0] = open(below(me, 2) ? "a" : "b", O_RDWR | O_CREAT | (below(me, 8) ? 0 : O_TRUNC), 0600);
    }
    for (int i = 0; i < 2; i++) {
        if (made[i] < 0) continue;
        dup2(made[i], 3 + below(me, FILES));
        if (made[i] >= 3 + FILES) close(made[i]);
    }
}
// Pages come back; some have holes beside them.
static void make_pages(struct thread *me) {
    long page = below(me, ARENA_PAGES / 8) * 8;
    mmap(arena + page * PAGE, 7 * PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_ANONYMOUS | (below(me, 4) ? MAP_PRIVATE : MAP_SHARED), -1, 0);
    mprotect(arena + (page + 6) * PAGE, PAGE, PROT_READ);
}

static void make_call(struct thread *me) {
    int number = below(me, 10) ? kinds[below(me, sizeof kinds / sizeof *kinds)].number : below(me, NUMBERS);
    if (is_left_out[number]) return;
    const char *letters = letters_of[number];
    long arguments[6] = { 0 };
    int is_fork = number >= 56 && number <= 58 || number == SYS_clone3;
    for (int i = 0; i < 6; i++) {
        if (letters && !letters[0]) break;
        arguments[i] = argument(me, letters ? *letters++ : "dbngpas"[below(me, 7)], &me->parts[i]);
    }
    // Few, since each is long.
    if (is_fork && below(me, 4)) return;
    common->number[me->place] = number;
    long given = is_fork ? make_party(me, number) : raw(number, arguments);
    common->number[me->place] = -1;
    me->count++;
    __atomic_add_fetch(&common->made, 1, __ATOMIC_RELAXED);
    if (given < 0 && given > -4096) return;
    __atomic_add_fetch(&common->accepted, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&common->given[number], 1, __ATOMIC_RELAXED);
}

static long limit;
static void *fuzz(void *argument) {
    struct thread *me = argument;
    me->id = syscall(SYS_gettid);
    while (!has_begun) sched_yield();
    while (common->made < limit) {
        if (!below(me, 5)) make_descriptor(me);
        if (!below(me, 12)) make_pages(me);
        make_call(me);
    }
    return NULL;
}

// A process of 8 threads. Its first thread wakes those that wait for long.
static void run(uint64_t seed) {
    setsid();
    process = getpid();
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i);
    mkdir("d", 0700);
    struct sigaction action = { .sa_handler = note };
    sigaction(SIGUSR1, &action, NULL);
    // The library keeps two of them for itself.
    uint64_t set[4];
    raw(SYS_rt_sigaction, (long[]){ SIGUSR1, 0, (long)set, 8, 0, 0 });
    for (int signal = 1; signal <= 64; signal++) if (is_sent(signal)) raw(SYS_rt_sigaction, (long[]){ signal, (long)set, 0, 8, 0, 0 });
    // Ranges that begin in it end in it.
    arena = mmap(NULL, (ARENA_PAGES + 16) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct thread first = { .random = seed | 1 };
    for (int i = 0; i < 40; i++) make_descriptor(&first), make_pages(&first);
    for (int i = 0; i < THREADS; i++) {
        threads[i].place = i, threads[i].random = (seed + i) * 0x9e3779b97f4a7c15 | 1;
        common->number[i] = -1;
        if (pthread_create(&threads[i].thread, NULL, fuzz, &threads[i])) _exit(4);
    }
    // What the library has of the heap stays.
    break_at = sbrk(0), has_begun = 1;
    long last[THREADS] = { 0 }, before = 0;
    for (int looks = 0; common->made < limit; looks++) {
        usleep(LOOK_US);
        for (int i = 0; i < THREADS; i++) {
            if (threads[i].count == last[i]) syscall(SYS_tgkill, process, threads[i].id, SIGUSR1);
            last[i] = threads[i].count;
        }
        if (common->made != before) looks = 0, before = common->made;
        if (looks == LOOKS) common->stuck_in = common->number[0], _exit(3);
    }
    _exit(0);
}

static pid_t begin(uint64_t seed, long calls) {
    limit = calls;
    fflush(stdout);
    pid_t child = fork();
    if (!child) run(seed * 0x9e3779b97f4a7c15);
    return child;
}
static void tell(uint64_t seed, int status) {
    printf("fuzz: seed %lu, %ld calls: ended by %d amid", seed, common->made, status);
    for (int i = 0; i < THREADS; i++) printf(" %d", common->number[i]);
    printf("\n");
}

// How many may be made. What was closed before, a server may still count for a moment: whoever is
// refused asks again.
static long count_of(int (*make)(void)) {
    enum { TRIES = 30, TRY_AGAIN_US = 10000 };
    long count = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        for (; make() >= 0; count++) tries = 0;
        usleep(TRY_AGAIN_US);
    }
    syscall(SYS_close_range, 3, ~0u, 0);
    return count;
}
static int make_pipe(void) { int ends[2]; return pipe(ends); }
static int make_event(void) { return eventfd(0, 0); }
static int make_timer(void) { return timerfd_create(CLOCK_MONOTONIC, 0); }
static int make_local(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static int make_stream(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int make_datagram(void) { return socket(AF_INET, SOCK_DGRAM, 0); }
static int make_file(void) { return open("/tmp/probe", O_RDWR | O_CREAT, 0600); }
static int bound;
static int bind_port(void) {
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(PORT + bound / 2) };
    if (bound == 2 * PORTS) return -1;
    return bind(socket(AF_INET, bound++ % 2 ? SOCK_STREAM : SOCK_DGRAM, 0), (void *)&own, sizeof own);
}
// Processes that have not ended.
static int living(void) {
    int count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(all));) {
        char name[300], state = 0;
        sprintf(name, "/proc/%s/stat", entry->d_name);
        FILE *file = atoi(entry->d_name) ? fopen(name, "r") : NULL;
        if (file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state != 'Z') count++;
        if (file) fclose(file);
    }
    closedir(all);
    return count;
}
// So many children live at once: more than the fuzzer ever has, since the system keeps the channels
// of as many processes as it had at once.
static int crowd(void) {
    enum { MANY = 60 };
    int gate[2], made = 0;
    if (pipe(gate)) return -1;
    for (char byte; made < MANY; made++) {
        int child = fork();
        if (child < 0) break;
        if (child) continue;
        close(gate[1]);
        read(gate[0], &byte, 1);
        _exit(0);
    }
    close(gate[0]), close(gate[1]);
    while (waitpid(-1, NULL, 0) > 0) {}
    return made;
}
static int probe(void) {
    struct rlimit most = { 10240, 10240 };
    setrlimit(RLIMIT_NOFILE, &most);
    int (*all[])(void) = { make_pipe, make_event, make_timer, make_local, make_stream, make_datagram, make_file, bind_port };
    long found[10];
    for (int i = 0; i < 8; i++) found[i] = count_of(all[i]);
    found[8] = crowd();
    found[9] = living();
    // At once: the system may have something to say meanwhile, and a child what is not said yet.
    printf("probe:");
    for (int i = 0; i < 10; i++) printf(" %ld", found[i]);
    printf("\n");
    unlink("/tmp/probe");
    return 0;
}

int main(int count, char **words) {
    if (count == 2) return probe();
    if (count < 4) return 2;
    uint64_t seed = strtoull(words[1], NULL, 10);
    long calls = atol(words[2]), kills = atol(words[3]), processes = 0, crashed = 0, stuck = 0, wrong = 0, wrong_status = 0;
    uint64_t wrong_seed = 0;
    printf("fuzz: seed %lu, %ld calls, %ld kills\n", seed, calls, kills);
    memset(long_name, 'n', sizeof long_name - 1);
    for (int i = 0; i < sizeof kinds / sizeof *kinds; i++) letters_of[kinds[i].number] = kinds[i].letters;
    for (int i = 0; i < sizeof left_out / sizeof *left_out; i++) is_left_out[left_out[i].number] = 1;
    mkdir(FOLDER, 0700);
    if (chdir(FOLDER)) exit(99);
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (; common->made < calls; processes++) {
        long part = common->made + CALLS_EACH;
        pid_t child = begin(seed + processes, part < calls ? part : calls);
        int status = ended(child);
        kill(-child, SIGKILL);
        if (status) tell(seed + processes, status);
        crashed += status >= 1000, stuck += status == 3;
        if (status && status < 1000 && status != 3) wrong++, wrong_seed = seed + processes, wrong_status = status;
        if (processes % 20 == 19) printf("fuzz: %ld calls so far\n", common->made), fflush(stdout);
        // What ends before it made a call would go on for ever.
        if (processes > calls / 100 + 20) break;
    }
    long made = common->made;
    struct thread self = { .random = seed * 0x9e3779b97f4a7c15 | 1 };
    for (long round = 0; round < kills; round++) {
        pid_t child = begin(seed + 1000000 + round, 1L << 60);
        long until = common->made + below(&self, 300);
        while (common->made < until && !waitpid(child, &count, WNOHANG)) usleep(200);
        for (volatile long turn = below(&self, 50000); turn--;) {}
        kill(-child, SIGKILL), kill(child, SIGKILL);
        waitpid(child, &count, 0);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    long answered = 0;
    for (int number = 0; number < NUMBERS; number++) answered += common->given[number] != 0;
    // What came before it may have left the console's last lines.
    if (wrong) printf("fuzz: the last that ended wrong: seed %lu by %ld\n", wrong_seed, wrong_status);
    printf("fuzz: %ld made, %ld accepted, %ld numbers, %ld processes, %ld crashed, %ld stuck, %ld wrong\n", made, common->accepted, answered, processes, crashed, stuck, wrong);
    return 0;
}
