// Flags of calls that are about the program's memory.

#define PAGE 4096L

static char *mapped(long access, long flags) { return mmap(NULL, 4 * PAGE, access, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static int loads(long at) { return *(volatile char *)at & 0; }
static int stores(long at) { *(volatile char *)at = 1; return 0; }
// A return.
static int calls(long at) { ((void (*)(void))at)(); return 0; }
// What a child may do with memory: 0, or that it dies by SIGSEGV.
static int may(int (*use)(long), void *at) { int end = child_finds(use, (long)at); return end == 0 ? 1 : end == 1000 + SIGSEGV ? 0 : -1; }
static int is_given(char *at, int reads, int writes, int runs) { return may(loads, at) == reads && may(stores, at) == writes && may(calls, at) == runs; }

TRY(mmap_access) { return (long)mapped(value, 0); }
SEEN(mmap_access, PROT_NONE) { char *at = mapped(value, 0); return at != MAP_FAILED && is_given(at, 0, 0, 0); }
SEEN(mmap_access, PROT_READ) { char *at = mapped(value, 0); return at != MAP_FAILED && is_given(at, 1, 0, 0); }
SEEN(mmap_access, PROT_WRITE) { char *at = mapped(value, 0); if (at == MAP_FAILED) return 0; *at = '\xc3'; return is_given(at, 1, 1, 0); }
// The code of a program's own: a file that begins with a return.
SEEN(mmap_access, PROT_EXEC) {
    int file = opened(O_RDWR);
    pwrite(file, "\xc3", 1, 0);
    char *at = mmap(NULL, PAGE, value, MAP_PRIVATE, file, 0);
    return at != MAP_FAILED && may(calls, at) == 1 && may(stores, at) == 0;
}

TRY(mmap_flags) {
    int file = opened(O_RDWR);
    if (value == MAP_SYNC) return (long)mmap(NULL, PAGE, PROT_READ, value | MAP_SHARED_VALIDATE, file, 0);
    return (long)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, value | MAP_ANONYMOUS | (value & MAP_TYPE ? 0 : MAP_PRIVATE), -1, 0);
}
TRY(mmap_flags_of_MAP_SHARED_VALIDATE) { return (long)mmap(NULL, PAGE, PROT_READ, value | MAP_SHARED_VALIDATE, opened(O_RDWR), 0); }
// Is what is stored in a file's mapping in the file?
static int is_shared(long flags) {
    int file = opened(O_RDWR);
    char found = 0, *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) return -1;
    at[3] = 'x';
    pread(file, &found, 1, 3);
    munmap(at, PAGE);
    return found == 'x';
}
SEEN(mmap_flags, MAP_SHARED) { return is_shared(value) == 1; }
SEEN(mmap_flags, MAP_SHARED_VALIDATE) { return is_shared(value) == 1; }
SEEN(mmap_flags, MAP_PRIVATE) { return is_shared(value) == 0; }
SEEN(mmap_flags, MAP_FIXED) { char *at = mapped(PROT_READ | PROT_WRITE, 0); at[PAGE] = 'x'; return mmap(at + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | value, -1, 0) == at + PAGE && at[PAGE] == 0; }
SEEN(mmap_flags, MAP_FIXED_NOREPLACE) { char *at = mapped(PROT_READ, 0); return fails_by((long)mmap(at + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | value, -1, 0), EEXIST); }
SEEN(mmap_flags, MAP_ANONYMOUS) { char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | value, -1, 0); return at != MAP_FAILED && *at == 0; }
SEEN(mmap_flags, MAP_32BIT) { char *at = mapped(PROT_READ | PROT_WRITE, value); return at != MAP_FAILED && (long)at >> 31 == 0 && may(stores, at) == 1; }

static char *changed(long access) { char *at = mapped(PROT_READ | PROT_WRITE, 0); *at = '\xc3'; return mprotect(at, PAGE, access) ? NULL : at; }
TRY(mprotect_access) { return changed(value) ? 0 : -1; }
SEEN(mprotect_access, PROT_NONE) { char *at = changed(value); return at && is_given(at, 0, 0, 0); }
SEEN(mprotect_access, PROT_READ) { char *at = changed(value); return at && is_given(at, 1, 0, 0); }
SEEN(mprotect_access, PROT_WRITE) { char *at = changed(value); return at && is_given(at, 1, 1, 0); }
SEEN(mprotect_access, PROT_EXEC) { char *at = changed(value); return at && may(calls, at) == 1 && may(stores, at) == 0; }
// Code further down in the stack than what is named.
static int runs_in_the_stack(long access) {
    volatile char code[8 * PAGE];
    code[0] = '\xc3';
    long top = (long)(code + sizeof code) & -PAGE;
    if (mprotect((void *)top, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC | access)) return 5;
    ((void (*)(void))code)();
    return 7;
}
SEEN(mprotect_access, PROT_GROWSDOWN) {
    char *at = mapped(PROT_READ, 0);
    return child_finds(runs_in_the_stack, value) == 7 && child_finds(runs_in_the_stack, 0) == 1000 + SIGSEGV && fails_by(mprotect(at, PAGE, PROT_READ | value), EINVAL);
}

TRY(mremap_flags) { return syscall(SYS_mremap, mapped(PROT_READ, 0), PAGE, 2 * PAGE, value, mapped(PROT_READ, 0)); }
SEEN(mremap_flags, MREMAP_MAYMOVE) {
    char *at = mapped(PROT_READ | PROT_WRITE, 0);
    *at = 'x';
    int stays = fails_by((long)mremap(at, PAGE, 2 * PAGE, 0), ENOMEM);
    char *moved = mremap(at, PAGE, 2 * PAGE, value);
    return stays && moved != MAP_FAILED && moved != at && *moved == 'x' && moved[PAGE] == 0;
}

TRY(madvise_advice) { char *at = mapped(PROT_READ | PROT_WRITE, 0); *at = 1; return madvise(at, PAGE, value); }
SEEN(madvise_advice, MADV_DONTNEED) { char *at = mapped(PROT_READ | PROT_WRITE, 0); *at = 'x'; return madvise(at, PAGE, value) == 0 && *at == 0; }
SEEN(madvise_advice, MADV_DONTNEED_LOCKED) { return seen_madvise_advice_MADV_DONTNEED(value); }
// When is not said, and what is stored later stays.
SEEN(madvise_advice, MADV_FREE) { char *at = mapped(PROT_READ | PROT_WRITE, 0); *at = 'x'; if (madvise(at, PAGE, value) || *at && *at != 'x') return 0; *at = 'y'; return *at == 'y'; }

// What a child finds of memory: its byte, or 9 where there is none.
static char *advised;
static int reads_it(long unused) {
    int ends[2];
    return pipe(ends) ? 8 : write(ends[1], advised, 1) == 1 ? *advised : errno == EFAULT ? 9 : 8;
}
static int is_forked(long first, long second, int expected) {
    advised = mapped(PROT_READ | PROT_WRITE, 0);
    *advised = 5;
    return madvise(advised, PAGE, first) == 0 && madvise(advised, PAGE, second) == 0 && child_finds(reads_it, 0) == expected && *advised == 5;
}
SEEN(madvise_advice, MADV_DONTFORK) { return is_forked(value, value, 9); }
SEEN(madvise_advice, MADV_DOFORK) { return is_forked(MADV_DONTFORK, value, 5); }
SEEN(madvise_advice, MADV_WIPEONFORK) { return is_forked(value, value, 0) && fails_by(madvise(mapped(PROT_READ, MAP_SHARED), PAGE, value), EINVAL); }
SEEN(madvise_advice, MADV_KEEPONFORK) { return is_forked(MADV_WIPEONFORK, value, 5); }

TRY(msync_flags) { return syscall(SYS_msync, mapped(PROT_READ, 0), PAGE, value); }
SEES(msync_flags) {
    int file = opened(O_RDWR);
    char found = 0, *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *gone = mapped(PROT_READ, 0);
    munmap(gone, 4 * PAGE);
    at[3] = 'x';
    return fails_by(msync(gone, PAGE, value), ENOMEM) && msync(at, PAGE, value) == 0 && pread(open("f", O_RDONLY), &found, 1, 3) == 1 && found == 'x';
}
TRY(mlock2_flags) { return syscall(SYS_mlock2, mapped(PROT_READ | PROT_WRITE, 0), PAGE, value); }
TRY(mlockall_flags) { long given = syscall(SYS_mlockall, value); int error = errno; munlockall(); errno = error; return given; }

// A key of the program's own, in Linux too.
static key_t own_key(void) { return 0x70650000 + getpid(); }
static int segment_of(void) { return shmget(IPC_PRIVATE, 2 * PAGE, 0600); }
static int removed(int id) { return shmctl(id, IPC_RMID, NULL) == 0; }
static struct shmid_ds state_of(int id) { struct shmid_ds state = { 0 }; shmctl(id, IPC_STAT, &state); return state; }
static int is_attached(char *at) { return at != (char *)-1; }

TRY(shmget_flags) { int id = shmget(IPC_PRIVATE, PAGE, 0600 | value); return id >= 0 && removed(id) ? 0 : -1; }
SEEN(shmget_flags, IPC_CREAT) {
    int none = fails_by(shmget(own_key(), PAGE, 0600), ENOENT), id = shmget(own_key(), PAGE, 0600 | value);
    return none && id >= 0 && shmget(own_key(), 0, 0600 | value) == id && removed(id) && fails_by(shmget(own_key(), 0, 0), ENOENT);
}
SEEN(shmget_flags, IPC_EXCL) {
    int id = shmget(own_key(), PAGE, 0600 | IPC_CREAT | value);
    return id >= 0 && fails_by(shmget(own_key(), PAGE, 0600 | IPC_CREAT | value), EEXIST) && removed(id);
}

TRY(shmat_flags) { int id = segment_of(); char *at = shmat(id, NULL, value); return removed(id) && is_attached(at) ? shmdt(at) : -1; }
SEEN(shmat_flags, SHM_RDONLY) {
    int id = segment_of();
    char *at = shmat(id, NULL, value), *other = shmat(id, NULL, 0);
    if (!removed(id) || !is_attached(at) || !is_attached(other)) return 0;
    other[PAGE] = 'x';
    return at[PAGE] == 'x' && may(stores, at) == 0 && fails_by(mprotect(at, PAGE, PROT_READ | PROT_WRITE), EACCES);
}
SEEN(shmat_flags, SHM_RND) {
    int id = segment_of();
    char *free = mapped(PROT_READ, 0);
    munmap(free, 4 * PAGE);
    int refused = fails_by((long)shmat(id, free + 5, 0), EINVAL);
    char *at = shmat(id, free + 5, value);
    return removed(id) && refused && at == free && shmdt(at) == 0;
}
SEEN(shmat_flags, SHM_REMAP) {
    int id = segment_of();
    char *taken = mapped(PROT_READ | PROT_WRITE, 0);
    *taken = taken[2 * PAGE] = 'x';
    int refused = fails_by((long)shmat(id, taken, 0), EINVAL) && fails_by((long)shmat(id, NULL, value), EINVAL);
    char *at = shmat(id, taken, value);
    return removed(id) && refused && at == taken && *at == 0 && at[2 * PAGE] == 'x' && shmdt(at) == 0 && fails_by(shmdt(at), EINVAL);
}
SEEN(shmat_flags, SHM_EXEC) { int id = segment_of(); char *at = shmat(id, NULL, value); if (!removed(id) || !is_attached(at)) return 0; *at = '\xc3'; return may(calls, at) == 1 && may(stores, at) == 1; }

TRY(shmctl_commands) { int id = segment_of(), given = shmctl(id, value, NULL), found = errno; removed(id); errno = found; return given; }
// How often a segment is attached, for a child to tell.
static int attaches(long id) { return state_of(id).shm_nattch; }
static int dies_with(long id) { char *at = shmat(id, NULL, 0); at[0]++; raise(SIGKILL); return 0; }
SEEN(shmctl_commands, IPC_RMID) {
    int id = segment_of();
    char *at = shmat(id, NULL, 0);
    if (!is_attached(at) || shmctl(id, value, NULL) || !(state_of(id).shm_perm.mode & SHM_DEST)) return 0;
    int lives = child_finds(attaches, id) == 2 && child_finds(dies_with, id) == 1000 + SIGKILL && at[0] == 1 && attaches(id) == 1;
    struct shmid_ds state;
    return lives && munmap(at, 2 * PAGE) == 0 && fails_by(shmctl(id, IPC_STAT, &state), EINVAL) && fails_by((long)shmat(id, NULL, 0), EINVAL);
}
SEEN(shmctl_commands, IPC_SET) {
    int id = segment_of();
    struct shmid_ds state = { .shm_perm = { .uid = 7, .gid = 8, .mode = 0777640 } };
    int done = shmctl(id, value, &state) == 0;
    state = state_of(id);
    return done && (state.shm_perm.mode & 0777) == 0640 && state.shm_perm.uid == 7 && state.shm_perm.gid == 8 && state.shm_ctime > 0 && removed(id);
}
SEEN(shmctl_commands, IPC_STAT) {
    int id = shmget(own_key(), 5000, 0620 | IPC_CREAT);
    char *at = shmat(id, NULL, 0), *again = shmat(id, NULL, SHM_RDONLY);
    struct shmid_ds state;
    int done = shmctl(id, value, &state) == 0 && shmdt(at) == 0 && shmdt(again) == 0;
    return done && state.shm_segsz == 5000 && state.shm_nattch == 2 && state.shm_cpid == getpid() && state.shm_lpid == getpid() && state.shm_atime > 0 && state.shm_dtime == 0
        && state.shm_perm.mode == 0620 && state.shm_perm.__key == own_key() && attaches(id) == 0 && state_of(id).shm_dtime > 0 && removed(id) && fails_by(shmctl(-1, value, &state), EINVAL);
}
SEEN(shmctl_commands, IPC_INFO) { struct shminfo info; return shmctl(0, value, (void *)&info) >= 0 && info.shmmin == 1 && info.shmmax > PAGE && info.shmall > 1 && info.shmmni > 1; }
static int locks(long id) { return (state_of(id).shm_perm.mode & SHM_LOCKED) != 0; }
SEEN(shmctl_commands, SHM_LOCK) { int id = segment_of(); return shmctl(id, value, NULL) == 0 && locks(id) && removed(id); }
SEEN(shmctl_commands, SHM_UNLOCK) { int id = segment_of(); shmctl(id, SHM_LOCK, NULL); return shmctl(id, value, NULL) == 0 && !locks(id) && removed(id); }
// Is a segment found among all?
static int is_listed(long command) {
    int id = segment_of(), found = 0;
    struct shm_info info;
    for (int place = shmctl(0, SHM_INFO, (void *)&info); place >= 0; place--) {
        struct shmid_ds state;
        found += shmctl(place, command, &state) == id && state.shm_segsz == 2 * PAGE;
    }
    return found == 1 && removed(id);
}
SEEN(shmctl_commands, SHM_STAT) { return is_listed(value); }
SEEN(shmctl_commands, SHM_STAT_ANY) { return is_listed(value); }
SEEN(shmctl_commands, SHM_INFO) { int id = segment_of(); struct shm_info info = { 0 }; return shmctl(0, value, (void *)&info) >= 0 && info.used_ids > 0 && info.shm_tot >= 2 && removed(id); }
