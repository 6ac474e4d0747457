// What files on a disk have: extended attributes, files without a name, names that are exchanged, holes, and groups that
// directories give. The same program passes on ext4 in Linux.
#include "checks.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static struct stat about;
static struct stat *of(const char *path) { lstat(path, &about); return &about; }
static int new_file(const char *path) { return open(path, O_RDWR | O_CREAT | O_TRUNC, 0644); }
static char value[70000];

static void names_of_attributes(int file) {
    char long_name[300] = "user.";
    memset(long_name + 5, 'x', 251);
    FAILS("an attribute without a name", ERANGE, fsetxattr(file, "", "x", 1, 0));
    FAILS("a name of 256 bytes", ERANGE, fsetxattr(file, long_name, "x", 1, 0));
    long_name[255] = 0;
    GIVES("a name of 255 bytes", 0, fsetxattr(file, long_name, "x", 1, 0));
    GIVES("it goes", 0, fremovexattr(file, long_name));
    FAILS("nothing behind the dot", EINVAL, fsetxattr(file, "user.", "x", 1, 0));
    FAILS("another beginning", EOPNOTSUPP, fsetxattr(file, "other.x", "x", 1, 0));
    FAILS("another beginning is asked for", EOPNOTSUPP, fgetxattr(file, "other.x", value, 10));
    FAILS("a name that is nowhere", EFAULT, fsetxattr(file, (char *)8, "x", 1, 0));
}

static void attributes(void) {
    int file = new_file("a");
    GIVES("an attribute is set", 0, setxattr("a", "user.one", "first", 5, 0));
    GIVES("its size is told", 5, getxattr("a", "user.one", 0, 0));
    GIVES("it is there", 5, fgetxattr(file, "user.one", value, sizeof value));
    check("as it was set", !memcmp(value, "first", 5), 0);
    FAILS("no room for it", ERANGE, getxattr("a", "user.one", value, 4));
    FAILS("nowhere to put it", EFAULT, getxattr("a", "user.one", (char *)8, 5));
    FAILS("it is there already", EEXIST, setxattr("a", "user.one", "x", 1, XATTR_CREATE));
    FAILS("it is not there yet", ENODATA, setxattr("a", "user.two", "x", 1, XATTR_REPLACE));
    FAILS("neither new nor old", EEXIST, setxattr("a", "user.one", "x", 1, XATTR_CREATE | XATTR_REPLACE));
    FAILS("neither old nor new", ENODATA, setxattr("a", "user.two", "x", 1, XATTR_CREATE | XATTR_REPLACE));
    FAILS("an unknown flag", EINVAL, setxattr("a", "user.one", "x", 1, 4));
    GIVES("it gets another value", 0, setxattr("a", "user.one", "", 0, XATTR_REPLACE));
    GIVES("an empty one", 0, getxattr("a", "user.one", value, 10));
    GIVES("another is made", 0, fsetxattr(file, "user.two", "second", 6, XATTR_CREATE));
    GIVES("the names have a size", 18, listxattr("a", 0, 0));
    GIVES("they are there", 18, flistxattr(file, value, 18));
    check("each with a zero behind it", memmem(value, 18, "user.one", 9) && memmem(value, 18, "user.two", 9), 0);
    FAILS("no room for them", ERANGE, listxattr("a", value, 17));
    FAILS("there is none of that name", ENODATA, getxattr("a", "user.three", value, 10));
    FAILS("nor to be removed", ENODATA, removexattr("a", "user.three"));
    GIVES("one goes", 0, removexattr("a", "user.one"));
    GIVES("the other stays", 9, listxattr("a", value, 100));
    FAILS("more than a value may have", E2BIG, fsetxattr(file, "user.big", value, 65537, 0));
    FAILS("more than fits into a block", ENOSPC, fsetxattr(file, "user.big", value, 5000, 0));
    memset(value, 'v', 3000);
    GIVES("a large value", 0, fsetxattr(file, "user.big", value, 3000, 0));
    GIVES("is there", 3000, fgetxattr(file, "user.big", value, sizeof value));
    GIVES("and takes a block", 8, of("a")->st_blocks);
    names_of_attributes(file);
    unlink("a");
    GIVES("without a name it has them still", 6, fgetxattr(file, "user.two", value, 10));
    FAILS("but nobody finds them", ENOENT, getxattr("a", "user.two", value, 10));
    FAILS("a descriptor that only names", EBADF, fgetxattr(open(".", O_PATH), "user.two", value, 10));
    int ends[2];
    pipe(ends);
    FAILS("nor may get any", EPERM, fsetxattr(ends[0], "user.two", "x", 1, 0));
    FAILS("a pipe has none", ENODATA, fgetxattr(ends[0], "user.two", value, 10));
}

static void attributes_of_others(void) {
    close(new_file("b")), symlink("b", "l"), mkfifo("p", 0600), mkdir("d", 0700);
    GIVES("through a link", 0, setxattr("l", "user.x", "1", 1, 0));
    GIVES("it is the file's", 1, getxattr("b", "user.x", value, 10));
    FAILS("a link has none of programs", EPERM, lsetxattr("l", "user.x", "1", 1, 0));
    FAILS("and none to be read", ENODATA, lgetxattr("l", "user.x", value, 10));
    GIVES("none is listed", 0, llistxattr("l", value, 10));
    FAILS("nor has a pipe with a name", EPERM, setxattr("p", "user.x", "1", 1, 0));
    GIVES("a directory has", 0, setxattr("d", "user.x", "12", 2, 0));
    GIVES("as it was set there", 2, getxattr("d", "user.x", value, 10));
    if (!geteuid()) {
        GIVES("a link has others", 0, lsetxattr("l", "trusted.t", "link", 4, 0));
        GIVES("which are its own", 4, lgetxattr("l", "trusted.t", value, 10));
        FAILS("and not the file's", ENODATA, getxattr("l", "trusted.t", value, 10));
        GIVES("they go, too", 0, lremovexattr("l", "trusted.t"));
    }
}

// What the host made, and what it finds.
static void attributes_of_the_host(void) {
    int kept = new_file("kept");
    fsetxattr(kept, "user.guest", "from the guest", 14, 0);
    memset(value, 'g', 2000);
    fsetxattr(kept, "user.large", value, 2000, 0);
    if (access("given", 0)) return;
    GIVES("what the host set", 13, getxattr("given", "user.host", value, 100));
    check("is as it was", !memcmp(value, "from the host", 13), 0);
    GIVES("a large one, too", 1500, getxattr("given", "user.large", value, sizeof value));
    int same = 1;
    for (int i = 0; i < 1500; i++) same &= value[i] == 'h';
    check("all of it", same, 0);
    GIVES("it is changed", 0, setxattr("given", "user.host", "changed", 7, XATTR_REPLACE));
    GIVES("and the other removed", 0, removexattr("given", "user.large"));
}

static int entries(void) {
    int count = 0;
    DIR *here = opendir(".");
    while (readdir(here)) count++;
    closedir(here);
    return count;
}

static int name(int file, const char *path) {
    char link[40];
    sprintf(link, "/proc/self/fd/%d", file);
    return linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

static void unnamed(void) {
    int before = entries(), file = open(".", O_TMPFILE | O_RDWR, 0640);
    char link[40], text[4200];
    check("a file without a name", file >= 0, file);
    GIVES("is in no directory", before, entries());
    fstat(file, &about);
    GIVES("and has none", 0, about.st_nlink);
    GIVES("but permissions", 0640, about.st_mode & 07777);
    GIVES("it is written", 9000, pwrite(file, value, 9000, 0));
    sprintf(link, "/proc/self/fd/%d", file);
    int length = readlink(link, text, sizeof text);
    check("its path tells that", length > 10 && !memcmp(text + length - 10, " (deleted)", 10), length);
    GIVES("it gets a name", 0, name(file, "named"));
    GIVES("one", 1, of("named")->st_nlink);
    GIVES("with all its bytes", 9000, about.st_size);
    GIVES("and another", 0, name(file, "twice"));
    FAILS("but not one that is there", EEXIST, name(file, "twice"));
    unlink("named"), unlink("twice");
    FAILS("when all are gone it gets none", ENOENT, name(file, "again"));
    file = open(".", O_TMPFILE | O_EXCL | O_RDWR, 0640);
    FAILS("one that was not to have any", ENOENT, name(file, "never"));
    FAILS("only to be read", EINVAL, open(".", O_TMPFILE | O_RDONLY, 0640));
    close(new_file("f"));
    FAILS("not in a file", ENOTDIR, open("f", O_TMPFILE | O_RDWR, 0640));
    FAILS("nor in what is not there", ENOENT, open("none", O_TMPFILE | O_RDWR, 0640));
    file = open(".", O_TMPFILE | O_WRONLY, 0604);
    write(file, "kept", 4);
    GIVES("the host finds this one", 0, name(file, "was-unnamed"));
}

static long exchange(const char *from, const char *to, int flags) { return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags); }

static void exchanges(void) {
    enum { KEEP = 1, EXCHANGE = 2, WHITEOUT = 4 };
    close(new_file("one")), mkdir("up", 0755), mkdir("up/down", 0755), mkdir("other", 0755);
    ino_t one = of("one")->st_ino, down = of("up/down")->st_ino, other = of("other")->st_ino;
    FAILS("with nothing", ENOENT, exchange("one", "none", EXCHANGE));
    FAILS("with what is to stay", EINVAL, exchange("one", "other", EXCHANGE | KEEP));
    GIVES("with itself", 0, exchange("one", "one", EXCHANGE));
    GIVES("a file with a directory", 0, exchange("one", "up/down", EXCHANGE));
    check("each is where the other was", of("one")->st_ino == down && of("up/down")->st_ino == one, 0);
    GIVES("the directory above it is this one", of(".")->st_ino, of("one/..")->st_ino);
    GIVES("which has one more now", 2, of("up")->st_nlink);
    GIVES("back again", 0, exchange("up/down", "one", EXCHANGE));
    GIVES("two directories", 0, exchange("up/down", "other", EXCHANGE));
    check("are where the other was", of("other")->st_ino == down && of("up/down")->st_ino == other, 0);
    FAILS("a directory with one in it", EINVAL, exchange("up", "up/down", EXCHANGE));
    FAILS("and the other way round", EINVAL, exchange("up/down", "up", EXCHANGE));
    FAILS("a name that is taken", EEXIST, exchange("one", "other", KEEP));
    FAILS("even by itself", EEXIST, exchange("one", "one", KEEP));
    GIVES("one that is free", 0, exchange("one", "free", KEEP));
}

static void holes(void) {
    int file = new_file("holes");
    GIVES("an empty file takes nothing", 0, of("holes")->st_blocks);
    FAILS("and has no data", ENXIO, lseek(file, 0, SEEK_DATA));
    FAILS("nor a hole", ENXIO, lseek(file, 0, SEEK_HOLE));
    ftruncate(file, 1 << 20);
    FAILS("a hole has no data", ENXIO, lseek(file, 0, SEEK_DATA));
    GIVES("but a hole", 100, lseek(file, 100, SEEK_HOLE));
    pwrite(file, value, 5000, 64 << 10), pwrite(file, "x", 1, 512 << 10);
    GIVES("what is written takes blocks", 24, of("holes")->st_blocks);
    GIVES("data behind a hole", 64 << 10, lseek(file, 10, SEEK_DATA));
    GIVES("in the middle of it", 66000, lseek(file, 66000, SEEK_DATA));
    GIVES("a hole behind it", 72 << 10, lseek(file, 66000, SEEK_HOLE));
    GIVES("in the middle of that", 80000, lseek(file, 80000, SEEK_HOLE));
    GIVES("more behind that", 512 << 10, lseek(file, 80000, SEEK_DATA));
    GIVES("and it is read from there", 1, read(file, value, 1));
    FAILS("then no more", ENXIO, lseek(file, 600 << 10, SEEK_DATA));
    FAILS("nothing behind the end", ENXIO, lseek(file, 1 << 20, SEEK_HOLE));
    FAILS("nor before the beginning", ENXIO, lseek(file, -1, SEEK_DATA));
    fsync(file);
    GIVES("the same on the disk", 24, of("holes")->st_blocks);
    ftruncate(file, 70000), ftruncate(file, 1 << 20);
    GIVES("what is cut off takes none", 16, of("holes")->st_blocks);
    GIVES("and is a hole", 72 << 10, lseek(file, 70001, SEEK_HOLE));
    FAILS("a directory has neither", EINVAL, lseek(open(".", O_RDONLY), 1L << 40, 9));
    symlink("short", "short");
    GIVES("a short link takes none", 0, of("short")->st_blocks);
}

static void groups(void) {
    if (geteuid()) return;
    mkdir("shared", 0755), chown("shared", -1, 7), chmod("shared", 02775);
    close(new_file("shared/file")), mkdir("shared/below", 0755), symlink("x", "shared/link"), mkfifo("shared/pipe", 0600);
    GIVES("a file has the directory's group", 7, of("shared/file")->st_gid);
    GIVES("and no such bit", 0644, about.st_mode & 07777);
    GIVES("a directory has it", 7, of("shared/below")->st_gid);
    GIVES("with the bit", 02755, about.st_mode & 07777);
    GIVES("so have links", 7, of("shared/link")->st_gid);
    GIVES("and pipes", 7, of("shared/pipe")->st_gid);
    close(new_file("shared/below/file"));
    GIVES("and what is below", 7, of("shared/below/file")->st_gid);
    fstat(open("shared", O_TMPFILE | O_RDWR, 0600), &about);
    GIVES("and what has no name", 7, about.st_gid);
    mkdir("plain", 02755);
    GIVES("mkdir does not set the bit", 0755, of("plain")->st_mode & 07777);
    GIVES("elsewhere it is one's own group", getegid(), about.st_gid);
}

int main(int count, char **arguments) {
    if (count < 2 || chdir(arguments[1])) return 1;
    umask(022);
    attributes(), attributes_of_others(), attributes_of_the_host();
    unnamed(), exchanges(), holes(), groups();
    return all_checked();
}
