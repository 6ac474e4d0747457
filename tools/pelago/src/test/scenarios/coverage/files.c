// Flags of calls that are about files and paths.

TRY(open_flags) {
    fresh();
    long way = value & O_ACCMODE ? 0 : O_RDWR;
    return syscall(SYS_openat, AT_FDCWD, value & O_DIRECTORY ? "." : "f", value | way, 0600);
}
SEEN(open_flags, O_RDONLY) { int file = opened(value); char c; return fails_by(write(file, "x", 1), EBADF) && read(file, &c, 1) == 1; }
SEEN(open_flags, O_WRONLY) { int file = opened(value); char c; return fails_by(read(file, &c, 1), EBADF) && write(file, "x", 1) == 1; }
SEEN(open_flags, O_RDWR) { int file = opened(value); char c; return read(file, &c, 1) == 1 && write(file, "x", 1) == 1; }
SEEN(open_flags, O_CREAT) { unlink("f"); return fails_by(open("f", O_RDWR), ENOENT) && open("f", O_RDWR | value, 0600) >= 0; }
SEEN(open_flags, O_EXCL) { return fails_by(open(fresh(), O_RDWR | O_CREAT | value, 0600), EEXIST); }
SEEN(open_flags, O_TRUNC) { return size_of(opened(O_RDWR | value)) == 0; }
SEEN(open_flags, O_APPEND) { int file = opened(O_RDWR | value); return write(file, "x", 1) == 1 && size_of(file) == 11; }
SEEN(open_flags, O_NONBLOCK) {
    unlink("p"), mkfifo("p", 0600);
    int file = open("p", O_RDONLY | value), other = open("p", O_WRONLY);
    char c;
    return other >= 0 && is_nonblocking(file) && fails_by(read(file, &c, 1), EAGAIN);
}
SEEN(open_flags, O_DIRECTORY) { return fails_by(open(fresh(), O_RDONLY | value), ENOTDIR) && open(".", O_RDONLY | value) >= 0; }
SEEN(open_flags, O_NOFOLLOW) { leads(); return open("l", O_RDONLY) >= 0 && fails_by(open("l", O_RDONLY | value), ELOOP); }
SEEN(open_flags, O_CLOEXEC) { return is_cloexec(opened(O_RDONLY | value)) && fcntl(opened(O_RDONLY), F_GETFD) == 0; }
SEEN(open_flags, O_PATH) { char c; int file = opened(value); return fails_by(read(file, &c, 1), EBADF) && size_of(file) == 10; }
// That a write is on the disk when it is answered is seen by `volume/durable`: here, that it is told.
static int is_synced(long flags, long told) { int file = opened(O_RDWR | flags); return (fcntl(file, F_GETFL) & O_SYNC) == told && write(file, "x", 1) == 1; }
SEEN(open_flags, O_DSYNC) { return is_synced(value, O_DSYNC) && is_synced(0, 0); }
SEEN(open_flags, __O_SYNC) { return is_synced(value, O_SYNC); }
SEEN(open_flags, O_SYNC) { return is_synced(value, O_SYNC); }
SEEN(open_flags, O_TMPFILE) {
    struct stat status;
    int file = open(".", O_RDWR | value, 0600);
    return file >= 0 && !fstat(file, &status) && status.st_nlink == 0;
}

static long open_how(long flags, long resolve) {
    struct open_how how = { .flags = flags, .resolve = resolve };
    return syscall(SYS_openat2, AT_FDCWD, fresh(), &how, sizeof how);
}
TRY(openat2_flags) { return open_how(value, 0); }
TRY(openat2_resolve) { return open_how(0, value); }

static struct flock all_of(int kind) { struct flock lock = { kind, SEEK_SET, 0, 0, 0 }; return lock; }
// How a lock that another description has stands in the way of this one.
static int is_in_the_way(int held, int wanted) {
    int one = opened(O_RDWR), other = open("f", O_RDWR);
    struct flock lock = all_of(held);
    if (fcntl(one, F_OFD_SETLK, &lock)) return -1;
    lock = all_of(wanted);
    return fcntl(other, F_OFD_SETLK, &lock) == -1 && errno == EAGAIN;
}
TRY(fcntl_commands) {
    struct f_owner_ex owner = { F_OWNER_PID, getpid() };
    uint64_t hint = 0;
    uint32_t ids[2];
    int file = opened(O_RDWR), ends[2];
    switch (value) {
    case F_SETOWN: return fcntl(file, value, getpid());
    case F_SETOWN_EX: case F_GETOWN_EX: return fcntl(file, value, &owner);
    case 17: return fcntl(file, value, ids);
    case 1035 ... 1038: return fcntl(file, value, &hint);
    case F_SETLEASE: return fcntl(open("f", O_RDONLY), value, F_RDLCK);
    case F_NOTIFY: return fcntl(open(".", O_RDONLY), value, DN_CREATE);
    default: return fcntl(file, value, 0);
    }
}
SEEN(fcntl_commands, F_DUPFD) { int file = opened(O_RDWR), other = fcntl(file, value, 20); return other == 20 && !is_cloexec(other) && lseek(file, 3, SEEK_SET) == lseek(other, 0, SEEK_CUR); }
SEEN(fcntl_commands, F_DUPFD_CLOEXEC) { int other = fcntl(opened(O_RDWR), value, 20); return other == 20 && is_cloexec(other); }
SEEN(fcntl_commands, F_GETFD) { return fcntl(opened(O_RDWR | O_CLOEXEC), value) == FD_CLOEXEC; }
SEEN(fcntl_commands, F_SETFD) { int file = opened(O_RDWR); return fcntl(file, value, FD_CLOEXEC) == 0 && is_cloexec(file) && fcntl(file, value, 0) == 0 && !is_cloexec(file); }
SEEN(fcntl_commands, F_GETFL) { return (fcntl(opened(O_RDWR | O_APPEND), value) & (O_ACCMODE | O_APPEND)) == (O_RDWR | O_APPEND); }
SEEN(fcntl_commands, F_SETFL) { int file = opened(O_RDWR | O_APPEND); return fcntl(file, value, 0) == 0 && write(file, "x", 1) == 1 && size_of(file) == 10; }
static int held_by_another(long command) {
    struct flock lock = all_of(F_WRLCK);
    return command == F_GETLK ? fcntl(open("f", O_RDWR), command, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == getppid()
                              : fails_by(fcntl(open("f", O_RDWR), F_SETLK, &lock), EAGAIN);
}
static int is_held(long command, long ask) {
    int file = opened(O_RDWR);
    struct flock lock = all_of(F_WRLCK);
    return fcntl(file, command, &lock) == 0 && child_finds(held_by_another, ask) == 1;
}
SEEN(fcntl_commands, F_GETLK) { return is_held(F_SETLK, F_GETLK); }
SEEN(fcntl_commands, F_SETLK) { return is_held(value, 0); }
SEEN(fcntl_commands, F_SETLKW) { return is_held(value, 0); }
SEEN(fcntl_commands, F_OFD_SETLK) { return is_in_the_way(F_WRLCK, F_WRLCK) == 1; }
SEEN(fcntl_commands, F_OFD_SETLKW) { int file = opened(O_RDWR); struct flock lock = all_of(F_WRLCK); return fcntl(file, value, &lock) == 0 && child_finds(held_by_another, 0) == 1; }
SEEN(fcntl_commands, F_OFD_GETLK) {
    int file = opened(O_RDWR), other = open("f", O_RDWR);
    struct flock lock = all_of(F_WRLCK);
    fcntl(file, F_OFD_SETLK, &lock);
    return fcntl(other, value, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == -1;
}
static int pipe_of(long bytes) { int ends[2]; return pipe(ends) || fcntl(ends[0], F_SETPIPE_SZ, bytes) != bytes ? -1 : ends[1]; }
SEEN(fcntl_commands, F_SETPIPE_SZ) { static char bytes[8192]; int end = pipe_of(4096); fcntl(end, F_SETFL, O_NONBLOCK); return end >= 0 && write(end, bytes, 8192) == 4096; }
SEEN(fcntl_commands, F_GETPIPE_SZ) { return fcntl(pipe_of(8192), value) == 8192; }
static int sealed(long seals) { int file = memfd_create("s", MFD_ALLOW_SEALING); return ftruncate(file, 10) || fcntl(file, F_ADD_SEALS, seals) ? -1 : file; }
SEEN(fcntl_commands, F_ADD_SEALS) { return fails_by(ftruncate(sealed(F_SEAL_GROW), 20), EPERM); }
SEEN(fcntl_commands, F_GET_SEALS) { return fcntl(sealed(F_SEAL_GROW), value) == F_SEAL_GROW; }

TRY(fcntl_flags_of_F_SETFD) { return fcntl(opened(O_RDWR), F_SETFD, value); }
SEEN(fcntl_flags_of_F_SETFD, FD_CLOEXEC) { int file = opened(O_RDWR); return fcntl(file, F_SETFD, value) == 0 && is_cloexec(file); }
TRY(fcntl_flags_of_F_SETFL) { return fcntl(opened(O_RDWR), F_SETFL, value); }
SEEN(fcntl_flags_of_F_SETFL, O_APPEND) { int file = opened(O_RDWR); return fcntl(file, F_SETFL, value) == 0 && write(file, "x", 1) == 1 && size_of(file) == 11; }
SEEN(fcntl_flags_of_F_SETFL, O_NONBLOCK) { int ends[2]; char c; pipe(ends); return fcntl(ends[0], F_SETFL, value) == 0 && fails_by(read(ends[0], &c, 1), EAGAIN); }

TRY(fcntl_kinds_of_locks) { struct flock lock = all_of(value); return fcntl(opened(O_RDWR), F_SETLK, &lock); }
SEEN(fcntl_kinds_of_locks, F_RDLCK) { return is_in_the_way(value, F_RDLCK) == 0 && is_in_the_way(value, F_WRLCK) == 1; }
SEEN(fcntl_kinds_of_locks, F_WRLCK) { return is_in_the_way(value, F_RDLCK) == 1; }
SEEN(fcntl_kinds_of_locks, F_UNLCK) {
    int one = opened(O_RDWR), other = open("f", O_RDWR);
    struct flock held = all_of(F_WRLCK), none = all_of(value), wanted = all_of(F_WRLCK);
    return !fcntl(one, F_OFD_SETLK, &held) && !fcntl(one, F_OFD_SETLK, &none) && !fcntl(other, F_OFD_SETLK, &wanted);
}

TRY(fcntl_kinds_of_owners) { struct f_owner_ex owner = { value, value == F_OWNER_PGRP ? getpgrp() : getpid() }; return fcntl(opened(O_RDWR), F_SETOWN_EX, &owner); }

TRY(fcntl_seals) { return sealed(value); }
SEEN(fcntl_seals, F_SEAL_SEAL) { return fails_by(fcntl(sealed(value), F_ADD_SEALS, F_SEAL_GROW), EPERM); }
SEEN(fcntl_seals, F_SEAL_SHRINK) { return fails_by(ftruncate(sealed(value), 5), EPERM); }
SEEN(fcntl_seals, F_SEAL_GROW) { return fails_by(ftruncate(sealed(value), 20), EPERM); }
SEEN(fcntl_seals, F_SEAL_WRITE) { return fails_by(write(sealed(value), "x", 1), EPERM); }
SEEN(fcntl_seals, F_SEAL_FUTURE_WRITE) { return fails_by(write(sealed(value), "x", 1), EPERM); }

static long flock_twice(long first, long second) { int one = opened(O_RDWR); return flock(one, first) ? -1 : flock(open("f", O_RDWR), second); }
TRY(flock_operations) { return syscall(SYS_flock, opened(O_RDWR), value); }
SEEN(flock_operations, LOCK_SH) { return flock_twice(value, LOCK_SH) == 0 && fails_by(flock_twice(value, LOCK_EX | LOCK_NB), EAGAIN); }
SEEN(flock_operations, LOCK_EX) { return fails_by(flock_twice(value, LOCK_SH | LOCK_NB), EAGAIN); }
SEEN(flock_operations, LOCK_NB) { return fails_by(flock_twice(LOCK_EX, LOCK_EX | value), EAGAIN); }
SEEN(flock_operations, LOCK_UN) { int one = opened(O_RDWR), other = open("f", O_RDWR); return !flock(one, LOCK_EX) && !flock(one, value) && !flock(other, LOCK_EX | LOCK_NB); }

TRY(lseek_whence) { return lseek(opened(O_RDWR), 4, value); }
SEEN(lseek_whence, SEEK_SET) { char c; int file = opened(O_RDWR); return lseek(file, 4, value) == 4 && read(file, &c, 1) == 1 && c == '4'; }
SEEN(lseek_whence, SEEK_CUR) { int file = opened(O_RDWR); lseek(file, 4, SEEK_SET); return lseek(file, 3, value) == 7; }
SEEN(lseek_whence, SEEK_END) { return lseek(opened(O_RDWR), -3, value) == 7; }
// With a hole from 4 KiB up to 64 KiB, and one behind the byte there.
static int with_holes(void) { int file = opened(O_RDWR); pwrite(file, "x", 1, 65536); return ftruncate(file, 1 << 20) ? -1 : file; }
SEEN(lseek_whence, SEEK_DATA) {
    int file = with_holes();
    return lseek(opened(O_RDWR), 4, value) == 4 && fails_by(lseek(opened(O_RDWR), 10, value), ENXIO) && lseek(file, 4, value) == 4
        && lseek(file, 5000, value) == 65536 && lseek(file, 0, SEEK_CUR) == 65536 && fails_by(lseek(file, 70000, value), ENXIO);
}
SEEN(lseek_whence, SEEK_HOLE) {
    int file = with_holes();
    return lseek(opened(O_RDWR), 4, value) == 10 && lseek(file, 4, value) == 4096 && lseek(file, 5000, value) == 5000
        && lseek(file, 65537, value) == 69632 && fails_by(lseek(file, 1 << 20, value), ENXIO);
}

TRY(fallocate_mode) { return syscall(SYS_fallocate, opened(O_RDWR), value, 0L, 4096L); }
SEEN(fallocate_mode, 0) { int file = opened(O_RDWR); return fallocate(file, value, 0, 4096) == 0 && size_of(file) == 4096 && fails_by(fallocate(file, value, 0, 0), EINVAL) && fails_by(fallocate(file, value, -1, 5), EINVAL) && fails_by(fallocate(file, value, INT64_MAX, 5), EFBIG); }

TRY(renameat2_flags) { fresh(); unlink("g"); close(creat("g", 0600)); return syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", value); }
SEEN(renameat2_flags, RENAME_NOREPLACE) { int taken = fails_by(try_renameat2_flags(value), EEXIST); unlink("g"); return taken && syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", value) == 0; }
SEEN(renameat2_flags, RENAME_EXCHANGE) {
    struct stat status;
    int missing = (fresh(), unlink("g"), fails_by(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", value), ENOENT));
    return missing && try_renameat2_flags(value) == 0 && !stat("f", &status) && status.st_size == 0 && !stat("g", &status) && status.st_size == 10;
}

TRY(linkat_flags) { fresh(); unlink("g"); return linkat(AT_FDCWD, "f", AT_FDCWD, "g", value); }
static int is_link(const char *path) { struct stat status; return lstat(path, &status) ? -1 : S_ISLNK(status.st_mode); }
SEEN(linkat_flags, AT_SYMLINK_FOLLOW) {
    leads(), unlink("g");
    int plain = linkat(AT_FDCWD, "l", AT_FDCWD, "g", 0) == 0 && is_link("g") == 1;
    unlink("g");
    return plain && linkat(AT_FDCWD, "l", AT_FDCWD, "g", value) == 0 && is_link("g") == 0;
}
SEEN(linkat_flags, AT_EMPTY_PATH) { int file = opened(O_RDWR); unlink("g"); long done = linkat(file, "", AT_FDCWD, "g", value); return done == 0 ? 1 : is_linux && errno == ENOENT ? NOT_HERE : 0; }

TRY(unlinkat_flags) { return unlinkat(AT_FDCWD, fresh(), value); }
SEEN(unlinkat_flags, AT_REMOVEDIR) { mkdir("d", 0700); return fails_by(unlinkat(AT_FDCWD, "d", 0), EISDIR) && unlinkat(AT_FDCWD, "d", value) == 0 && fails_by(access("d", 0), ENOENT); }

static int owner_of(const char *path) { struct stat status; return lstat(path, &status) ? -1 : status.st_uid; }
TRY(fchownat_flags) { return syscall(SYS_fchownat, AT_FDCWD, fresh(), -1, -1, value); }
SEEN(fchownat_flags, AT_SYMLINK_NOFOLLOW) { leads(); return geteuid() ? NOT_HERE : fchownat(AT_FDCWD, "l", 5, -1, value) == 0 && owner_of("l") == 5 && owner_of("f") == 0; }
SEEN(fchownat_flags, AT_EMPTY_PATH) { int file = opened(O_RDWR); return geteuid() ? NOT_HERE : fchownat(file, "", 5, -1, value) == 0 && owner_of("f") == 5 && fails_by(fchownat(file, "", 6, -1, 0), ENOENT); }

static long modified(const char *path) { struct stat status; return lstat(path, &status) ? -1 : status.st_mtime; }
static long set_times(int folder, const char *path, long seconds, long nanoseconds, long flags) {
    struct timespec times[2] = { { seconds, nanoseconds }, { seconds, nanoseconds } };
    return syscall(SYS_utimensat, folder, path, times, flags);
}
TRY(utimensat_flags) { return set_times(AT_FDCWD, fresh(), 1000, 0, value); }
SEEN(utimensat_flags, AT_SYMLINK_NOFOLLOW) { leads(); return set_times(AT_FDCWD, "l", 1000, 0, value) == 0 && modified("l") == 1000 && modified("f") > 1000; }
SEEN(utimensat_flags, AT_EMPTY_PATH) { int file = opened(O_RDWR); return set_times(file, "", 1000, 0, value) == 0 && modified("f") == 1000 && fails_by(set_times(file, "", 1, 0, 0), ENOENT); }
TRY(utimensat_nanoseconds) { return set_times(AT_FDCWD, fresh(), 1000, value, 0); }
SEEN(utimensat_nanoseconds, UTIME_NOW) { fresh(); set_times(AT_FDCWD, "f", 1000, 0, 0); return set_times(AT_FDCWD, "f", 1, value, 0) == 0 && modified("f") > 1000; }
SEEN(utimensat_nanoseconds, UTIME_OMIT) { fresh(); set_times(AT_FDCWD, "f", 1000, 0, 0); return set_times(AT_FDCWD, "f", 1, value, 0) == 0 && modified("f") == 1000; }

static long told(int folder, const char *path, long flags, long mask, struct statx *found) { memset(found, 0, sizeof *found); return syscall(SYS_statx, folder, path, flags, mask, found); }
TRY(newfstatat_flags) { struct stat status; return syscall(SYS_newfstatat, AT_FDCWD, fresh(), &status, value); }
SEEN(newfstatat_flags, AT_SYMLINK_NOFOLLOW) {
    struct stat status;
    struct statx found;
    leads();
    return fstatat(AT_FDCWD, "l", &status, value) == 0 && S_ISLNK(status.st_mode) && told(AT_FDCWD, "l", value, STATX_TYPE, &found) == 0 && S_ISLNK(found.stx_mode);
}
SEEN(newfstatat_flags, AT_EMPTY_PATH) {
    struct stat status;
    struct statx found;
    int file = opened(O_RDWR);
    return fstatat(file, "", &status, value) == 0 && status.st_size == 10 && fails_by(fstatat(file, "", &status, 0), ENOENT)
        && told(file, "", value, STATX_SIZE, &found) == 0 && found.stx_size == 10;
}
TRY(statx_flags) { struct statx found; return told(AT_FDCWD, fresh(), value, STATX_SIZE, &found); }
TRY(statx_mask) {
    struct statx found;
    long given = told(AT_FDCWD, fresh(), 0, value, &found);
    // What is not told is not said to be.
    return is_linux || (found.stx_mask & value & ~STATX_BASIC_STATS) == 0 ? given : -1;
}
SEES(statx_mask) {
    struct statx found;
    struct stat status;
    if (told(AT_FDCWD, fresh(), 0, value, &found) || stat("f", &status)) return 0;
    return (found.stx_mask & value) == value && found.stx_mode == status.st_mode && found.stx_nlink == status.st_nlink && found.stx_uid == status.st_uid
        && found.stx_gid == status.st_gid && found.stx_ino == status.st_ino && found.stx_size == status.st_size && found.stx_blocks == status.st_blocks
        && found.stx_atime.tv_sec == status.st_atime && (!(value & STATX_MTIME) || found.stx_mtime.tv_nsec == status.st_mtim.tv_nsec)
        && (!(value & STATX_CTIME) || found.stx_ctime.tv_sec == status.st_ctime);
}

TRY(access_mode) { return syscall(SYS_faccessat2, AT_FDCWD, fresh(), value, 0L); }
SEEN(access_mode, F_OK) { fresh(); return access("f", value) == 0 && fails_by(access("nothing", value), ENOENT); }
SEEN(access_mode, X_OK) { fresh(); int before = fails_by(access("f", value), EACCES); chmod("f", 0700); return before && access("f", value) == 0; }
TRY(faccessat2_flags) { return syscall(SYS_faccessat2, AT_FDCWD, fresh(), F_OK, value); }
SEEN(faccessat2_flags, AT_SYMLINK_NOFOLLOW) { unlink("l"); symlink("nothing", "l"); return fails_by(syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, 0L), ENOENT) && syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, value) == 0; }
SEEN(faccessat2_flags, AT_EMPTY_PATH) { int file = opened(O_RDWR); return syscall(SYS_faccessat2, file, "", F_OK, value) == 0 && fails_by(syscall(SYS_faccessat2, file, "", F_OK, 0L), ENOENT); }

TRY(setxattr_flags) { return syscall(SYS_setxattr, fresh(), "user.coverage", "x", 1L, value); }

static long execute(int folder, const char *path, long flags) { char *words[] = { "f", 0 }; return syscall(SYS_execveat, folder, path, words, words + 1, flags); }
TRY(execveat_flags) { return execute(AT_FDCWD, fresh(), value); }
SEEN(execveat_flags, AT_SYMLINK_NOFOLLOW) { leads(); return fails_by(execute(AT_FDCWD, "l", value), ELOOP); }
// The file is no program, which is found out only where it is found.
SEEN(execveat_flags, AT_EMPTY_PATH) { int file = opened(O_RDONLY); fchmod(file, 0700); return fails_by(execute(file, "", 0), ENOENT) && fails_by(execute(file, "", value), ENOEXEC); }

TRY(mknod_kinds) { unlink("n"); return syscall(SYS_mknodat, AT_FDCWD, "n", value | 0600, 0L); }
SEES(mknod_kinds) { struct stat status; return try_mknod_kinds(value) == 0 && stat("n", &status) == 0 && (status.st_mode & S_IFMT) == value; }

TRY(memfd_create_flags) { return syscall(SYS_memfd_create, "m", value); }
SEEN(memfd_create_flags, MFD_CLOEXEC) { return is_cloexec(memfd_create("m", value)); }
SEEN(memfd_create_flags, MFD_ALLOW_SEALING) { return fcntl(memfd_create("m", value), F_GET_SEALS) == 0 && fcntl(memfd_create("m", 0), F_GET_SEALS) == F_SEAL_SEAL; }

static struct iovec one_part(void *bytes, long count) { struct iovec part = { bytes, count }; return part; }
static long read_by(int file, long place, long flags) { char c; struct iovec part = one_part(&c, 1); return syscall(SYS_preadv2, file, &part, 1, place, 0L, flags); }
static long write_by(int file, long place, long flags) { struct iovec part = one_part("x", 1); return syscall(SYS_pwritev2, file, &part, 1, place, 0L, flags); }
TRY(preadv2_flags) { return read_by(opened(O_RDWR), 0, value); }
TRY(pwritev2_flags) { return write_by(opened(O_RDWR), 0, value); }
SEEN(pwritev2_flags, RWF_DSYNC) { int file = opened(O_RDWR); return write_by(file, 10, value) == 1 && size_of(file) == 11; }
SEEN(pwritev2_flags, RWF_SYNC) { int file = opened(O_RDWR); return write_by(file, 10, value) == 1 && size_of(file) == 11; }
static int fill(int end) { static char bytes[65536]; fcntl(end, F_SETFL, O_NONBLOCK); while (write(end, bytes, sizeof bytes) > 0) {} return fcntl(end, F_SETFL, 0); }
SEEN(preadv2_flags, RWF_NOWAIT) { int ends[2]; pipe(ends); long given = read_by(ends[0], -1, value); return fails_by(given, EAGAIN) ? 1 : fails_by(given, EOPNOTSUPP) ? NOT_HERE : 0; }
SEEN(pwritev2_flags, RWF_NOWAIT) { int ends[2]; pipe(ends), fill(ends[1]); long given = write_by(ends[1], -1, value); return fails_by(given, EAGAIN) ? 1 : fails_by(given, EOPNOTSUPP) ? NOT_HERE : 0; }

TRY(splice_flags) { int ends[2]; pipe(ends); return syscall(SYS_splice, opened(O_RDONLY), NULL, ends[1], NULL, 5L, value); }
SEEN(splice_flags, SPLICE_F_NONBLOCK) { int one[2], other[2]; pipe(one), pipe(other); return fails_by(splice(one[0], NULL, other[1], NULL, 5, value), EAGAIN); }
TRY(tee_flags) { int one[2], other[2]; pipe(one), pipe(other), write(one[1], "12345", 5); return syscall(SYS_tee, one[0], other[1], 5L, value); }
SEEN(tee_flags, SPLICE_F_NONBLOCK) { int one[2], other[2]; pipe(one), pipe(other); return fails_by(tee(one[0], other[1], 5, value), EAGAIN); }
TRY(copy_file_range_flags) { int file = opened(O_RDONLY); return syscall(SYS_copy_file_range, file, NULL, memfd_create("m", 0), NULL, 5L, value); }
TRY(sync_file_range_flags) { return syscall(SYS_sync_file_range, opened(O_RDWR), 0L, 0L, value); }
TRY(fadvise64_advice) { return syscall(SYS_fadvise64, opened(O_RDWR), 0L, 0L, value); }
