//! The Linux calls this proxy answers, how far, and the names of those it does not.
//!
//! Invariant: [`Call`] holds exactly the calls that are answered; the dispatcher matches it without
//! a wildcard, so a call cannot be declared here and forgotten there. `docs/linux-coverage.md` is
//! generated from this table (see the test at the end).

/// How far a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As Linux does.
    Full,
    /// The text says what is narrower.
    Partial(&'static str),
}

macro_rules! calls {
    ($( $number:literal $name:ident $text:literal $support:expr; )*) => {
        /// An answered call.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Call { $( $name = $number, )* }

        impl Call {
            /// All of them in the order of their numbers: call, Linux name, how far.
            pub const ALL: &'static [(Call, &'static str, Support)] = &[ $( (Call::$name, $text, $support), )* ];

            /// From RAX.
            pub const fn decode(number: u64) -> Option<Call> {
                match number { $( $number => Some(Call::$name), )* _ => None }
            }
        }
    };
}

use Support::{Full, Partial};

calls! {
    0 Read "read" Full;
    1 Write "write" Full;
    2 Open "open" Partial("permission bits are kept, not enforced");
    3 Close "close" Full;
    4 Stat "stat" Full;
    5 Fstat "fstat" Full;
    6 Lstat "lstat" Full;
    7 Poll "poll" Full;
    8 Lseek "lseek" Partial("no SEEK_DATA and SEEK_HOLE");
    9 Mmap "mmap" Partial("bytes of a file that are mapped with MAP_SHARED by a descriptor that can write belong to the program and its forked children: others get ENODEV, and EPERM if they write there; no SIGBUS past the end of a file; MAP_SYNC gives EOPNOTSUPP, as where no file lies in persistent memory; at most 65,530 areas, 256 of them such bytes");
    10 Mprotect "mprotect" Full;
    11 Munmap "munmap" Full;
    12 Brk "brk" Partial("at most 992 MiB");
    13 RtSigaction "rt_sigaction" Full;
    14 RtSigprocmask "rt_sigprocmask" Full;
    15 RtSigreturn "rt_sigreturn" Full;
    16 Ioctl "ioctl" Partial("terminals, FIONREAD, FIONBIO, FIOCLEX; FIOASYNC is accepted, SIGIO is not sent");
    17 Pread64 "pread64" Full;
    18 Pwrite64 "pwrite64" Full;
    19 Readv "readv" Full;
    20 Writev "writev" Full;
    21 Access "access" Partial("existence only; the caller is user 0");
    22 Pipe "pipe" Full;
    23 Select "select" Full;
    24 SchedYield "sched_yield" Full;
    25 Mremap "mremap" Partial("moves by copying; no MREMAP_DONTUNMAP");
    26 Msync "msync" Full;
    27 Mincore "mincore" Partial("every mapped page counts as present");
    28 Madvise "madvise" Partial("MADV_DONTNEED leaves bytes of files and memory in common as they are; MADV_FREE frees at once; no MADV_REMOVE and MADV_WIPEONFORK; other advice has no effect");
    32 Dup "dup" Full;
    33 Dup2 "dup2" Full;
    34 Pause "pause" Full;
    35 Nanosleep "nanosleep" Full;
    36 Getitimer "getitimer" Partial("the timers of used time are never set");
    37 Alarm "alarm" Full;
    38 Setitimer "setitimer" Partial("ITIMER_REAL");
    39 Getpid "getpid" Full;
    40 Sendfile "sendfile" Full;
    41 Socket "socket" Partial("AF_UNIX, AF_INET and AF_INET6, of which only IPv4's part is there; no raw sockets and no AF_NETLINK");
    42 Connect "connect" Full;
    43 Accept "accept" Full;
    44 Sendto "sendto" Partial("a message of AF_UNIX has at most 65,536 bytes, a datagram that leaves the machine 1,472; no MSG_OOB, MSG_MORE and MSG_CONFIRM are ignored");
    45 Recvfrom "recvfrom" Partial("MSG_PEEK, MSG_DONTWAIT, MSG_TRUNC and, with an address or of AF_UNIX, MSG_WAITALL");
    46 Sendmsg "sendmsg" Partial("as sendto; of control messages SCM_CREDENTIALS and SCM_RIGHTS, with AF_UNIX; IP_TOS, IP_TTL and IP_PKTINFO are ignored; at most 32 descriptors, no epoll sets");
    47 Recvmsg "recvmsg" Partial("as recvfrom; of control messages SCM_CREDENTIALS and SCM_RIGHTS, with AF_UNIX");
    48 Shutdown "shutdown" Full;
    49 Bind "bind" Full;
    50 Listen "listen" Full;
    51 Getsockname "getsockname" Full;
    52 Getpeername "getpeername" Full;
    53 Socketpair "socketpair" Full;
    54 Setsockopt "setsockopt" Partial("TCP_CORK, TCP_KEEPIDLE to KEEPCNT, TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_USER_TIMEOUT, IP_TOS, IP_TTL, IP_RECVERR and IP_MTU_DISCOVER are accepted without effect; listeners that share a port by SO_REUSEPORT share one queue; unknown ones are refused with ENOPROTOOPT; timeouts are not shared over fork");
    55 Getsockopt "getsockopt" Partial("the common SOL_SOCKET and IPPROTO_TCP options");
    56 Clone "clone" Partial("threads share the process's one core; for processes CLONE_VM copies the memory (with CLONE_VFORK as vfork), CLONE_FILES and CLONE_FS copy too, namespaces are ignored");
    57 Fork "fork" Partial("descriptor flags that F_SETFL changes and timeouts of sockets are no longer shared after it");
    58 Vfork "vfork" Partial("memory is copied: the parent sees what the child changed within 4 KiB of its stack, above where it called, and nothing else");
    59 Execve "execve" Full;
    60 Exit "exit" Full;
    61 Wait4 "wait4" Partial("of the usage only the time, all as the program's own");
    62 Kill "kill" Full;
    63 Uname "uname" Full;
    72 Fcntl "fcntl" Partial("F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL (O_APPEND and O_NONBLOCK) and locks; F_SETOWN and F_GETOWN are accepted; others EINVAL");
    73 Flock "flock" Full;
    74 Fsync "fsync" Full;
    75 Fdatasync "fdatasync" Full;
    76 Truncate "truncate" Full;
    77 Ftruncate "ftruncate" Full;
    78 Getdents "getdents" Full;
    79 Getcwd "getcwd" Full;
    80 Chdir "chdir" Full;
    81 Fchdir "fchdir" Full;
    82 Rename "rename" Full;
    83 Mkdir "mkdir" Full;
    84 Rmdir "rmdir" Full;
    85 Creat "creat" Full;
    86 Link "link" Full;
    87 Unlink "unlink" Full;
    88 Symlink "symlink" Full;
    89 Readlink "readlink" Full;
    90 Chmod "chmod" Full;
    91 Fchmod "fchmod" Partial("of files; accepted without effect for others");
    92 Chown "chown" Full;
    93 Fchown "fchown" Partial("of files; accepted without effect for others");
    94 Lchown "lchown" Full;
    95 Umask "umask" Full;
    96 Gettimeofday "gettimeofday" Partial("the time zone is zero");
    97 Getrlimit "getrlimit" Full;
    98 Getrusage "getrusage" Partial("all time counts as the program's own; a thread's is the process's; of memory what is used now");
    99 Sysinfo "sysinfo" Partial("uptime and process count");
    100 Times "times" Partial("all time counts as the program's own");
    102 Getuid "getuid" Full;
    104 Getgid "getgid" Full;
    105 Setuid "setuid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    106 Setgid "setgid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    107 Geteuid "geteuid" Full;
    108 Getegid "getegid" Full;
    109 Setpgid "setpgid" Full;
    110 Getppid "getppid" Full;
    111 Getpgrp "getpgrp" Full;
    112 Setsid "setsid" Full;
    113 Setreuid "setreuid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    114 Setregid "setregid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    115 Getgroups "getgroups" Full;
    116 Setgroups "setgroups" Partial("as setuid; at most 32 groups");
    117 Setresuid "setresuid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    118 Getresuid "getresuid" Full;
    119 Setresgid "setresgid" Partial("judged as on Linux; the process's, where Linux has ids of threads, and nothing else is refused by them");
    120 Getresgid "getresgid" Full;
    121 Getpgid "getpgid" Full;
    124 Getsid "getsid" Full;
    125 Capget "capget" Partial("all of version 3 for who acts as root, else none");
    126 Capset "capset" Partial("accepted");
    127 RtSigpending "rt_sigpending" Full;
    128 RtSigtimedwait "rt_sigtimedwait" Full;
    129 RtSigqueueinfo "rt_sigqueueinfo" Partial("at most 64 wait for a process, and for each thread");
    130 RtSigsuspend "rt_sigsuspend" Full;
    131 Sigaltstack "sigaltstack" Full;
    132 Utime "utime" Full;
    137 Statfs "statfs" Full;
    138 Fstatfs "fstatfs" Full;
    140 Getpriority "getpriority" Partial("all have niceness 0");
    141 Setpriority "setpriority" Partial("accepted, without effect");
    142 SchedSetparam "sched_setparam" Partial("priority 0 of the own process");
    143 SchedGetparam "sched_getparam" Partial("of the own process");
    144 SchedSetscheduler "sched_setscheduler" Partial("SCHED_OTHER, SCHED_BATCH, SCHED_IDLE; others EPERM");
    145 SchedGetscheduler "sched_getscheduler" Partial("SCHED_OTHER; of the own process");
    146 SchedGetPriorityMax "sched_get_priority_max" Full;
    147 SchedGetPriorityMin "sched_get_priority_min" Full;
    148 SchedRrGetInterval "sched_rr_get_interval" Partial("of the own process");
    149 Mlock "mlock" Partial("accepted: memory is never paged out");
    150 Munlock "munlock" Full;
    151 Mlockall "mlockall" Partial("accepted: memory is never paged out");
    152 Munlockall "munlockall" Full;
    157 Prctl "prctl" Partial("names, dumpable, capabilities of the bounding set; PR_SET_PDEATHSIG is without effect; others EINVAL");
    158 ArchPrctl "arch_prctl" Full;
    160 Setrlimit "setrlimit" Partial("most that can be had: 10,240 descriptors (1,024 at first), a stack of 64 MiB, 420 processes, no core files and no priorities, else EPERM; RLIMIT_CPU, RLIMIT_FSIZE and RLIMIT_SIGPENDING are kept and told, and bound nothing");
    162 Sync "sync" Full;
    164 Settimeofday "settimeofday" Partial("EPERM: the clock is the machine's");
    170 Sethostname "sethostname" Full;
    171 Setdomainname "setdomainname" Full;
    186 Gettid "gettid" Full;
    187 Readahead "readahead" Full;
    188 Setxattr "setxattr" Partial("EOPNOTSUPP: files have none");
    189 Lsetxattr "lsetxattr" Partial("EOPNOTSUPP: files have none");
    190 Fsetxattr "fsetxattr" Partial("EOPNOTSUPP: files have none");
    191 Getxattr "getxattr" Partial("EOPNOTSUPP: files have none");
    192 Lgetxattr "lgetxattr" Partial("EOPNOTSUPP: files have none");
    193 Fgetxattr "fgetxattr" Partial("EOPNOTSUPP: files have none");
    194 Listxattr "listxattr" Full;
    195 Llistxattr "llistxattr" Full;
    196 Flistxattr "flistxattr" Full;
    197 Removexattr "removexattr" Partial("EOPNOTSUPP: files have none");
    198 Lremovexattr "lremovexattr" Partial("EOPNOTSUPP: files have none");
    199 Fremovexattr "fremovexattr" Partial("EOPNOTSUPP: files have none");
    200 Tkill "tkill" Partial("of threads of other processes only the first");
    201 Time "time" Full;
    202 Futex "futex" Partial("between threads of one process; no FUTEX_WAIT_REQUEUE_PI; priorities are all the same");
    203 SchedSetaffinity "sched_setaffinity" Partial("one core; of the own process");
    204 SchedGetaffinity "sched_getaffinity" Partial("one core; of the own process");
    213 EpollCreate "epoll_create" Full;
    217 Getdents64 "getdents64" Full;
    218 SetTidAddress "set_tid_address" Full;
    221 Fadvise64 "fadvise64" Full;
    222 TimerCreate "timer_create" Partial("no clocks of used time; 32 timers; an interval below half a millisecond is told at its times and counted");
    223 TimerSettime "timer_settime" Full;
    224 TimerGettime "timer_gettime" Full;
    225 TimerGetoverrun "timer_getoverrun" Full;
    226 TimerDelete "timer_delete" Full;
    227 ClockSettime "clock_settime" Partial("EPERM: the clock is the machine's");
    228 ClockGettime "clock_gettime" Partial("CLOCK_TAI is CLOCK_REALTIME; no clocks of other processes");
    229 ClockGetres "clock_getres" Full;
    230 ClockNanosleep "clock_nanosleep" Full;
    231 ExitGroup "exit_group" Full;
    232 EpollWait "epoll_wait" Full;
    233 EpollCtl "epoll_ctl" Partial("EPOLLEXCLUSIVE chooses among the sets of one process, not of several; EPOLLWAKEUP is ignored; a set that a child inherits is a copy");
    234 Tgkill "tgkill" Partial("of threads of other processes only the first");
    235 Utimes "utimes" Full;
    247 Waitid "waitid" Partial("of the usage only the time");
    257 Openat "openat" Partial("permission bits are kept, not enforced");
    258 Mkdirat "mkdirat" Full;
    260 Fchownat "fchownat" Full;
    261 Futimesat "futimesat" Full;
    262 Newfstatat "newfstatat" Full;
    263 Unlinkat "unlinkat" Full;
    264 Renameat "renameat" Full;
    265 Linkat "linkat" Partial("no AT_EMPTY_PATH");
    266 Symlinkat "symlinkat" Full;
    267 Readlinkat "readlinkat" Full;
    268 Fchmodat "fchmodat" Full;
    269 Faccessat "faccessat" Partial("existence only");
    270 Pselect6 "pselect6" Full;
    271 Ppoll "ppoll" Full;
    273 SetRobustList "set_robust_list" Full;
    274 GetRobustList "get_robust_list" Partial("of the own process");
    275 Splice "splice" Partial("copies; two readers of one pipe at once may both get its bytes");
    276 Tee "tee" Partial("copies, at most 64 KiB a call");
    277 SyncFileRange "sync_file_range" Full;
    280 Utimensat "utimensat" Full;
    281 EpollPwait "epoll_pwait" Full;
    282 Signalfd "signalfd" Partial("the set of a signalfd that a child inherits is a copy; not sent by SCM_RIGHTS");
    283 TimerfdCreate "timerfd_create" Partial("an interval below half a millisecond makes ready at its times; all expirations are counted");
    284 Eventfd "eventfd" Full;
    285 Fallocate "fallocate" Partial("mode 0");
    286 TimerfdSettime "timerfd_settime" Full;
    287 TimerfdGettime "timerfd_gettime" Full;
    288 Accept4 "accept4" Full;
    289 Signalfd4 "signalfd4" Partial("as signalfd");
    290 Eventfd2 "eventfd2" Full;
    291 EpollCreate1 "epoll_create1" Full;
    292 Dup3 "dup3" Full;
    293 Pipe2 "pipe2" Full;
    295 Preadv "preadv" Full;
    296 Pwritev "pwritev" Full;
    297 RtTgsigqueueinfo "rt_tgsigqueueinfo" Partial("as rt_sigqueueinfo; of threads of other processes only the first");
    299 Recvmmsg "recvmmsg" Partial("as recvmsg");
    302 Prlimit64 "prlimit64" Partial("as setrlimit; of other processes EPERM");
    306 Syncfs "syncfs" Full;
    307 Sendmmsg "sendmmsg" Partial("as sendmsg");
    309 Getcpu "getcpu" Full;
    316 Renameat2 "renameat2" Partial("RENAME_NOREPLACE is not atomic; no RENAME_EXCHANGE");
    318 Getrandom "getrandom" Full;
    324 Membarrier "membarrier" Full;
    325 Mlock2 "mlock2" Partial("accepted: memory is never paged out");
    326 CopyFileRange "copy_file_range" Partial("copies; ranges of one file that overlap are not refused");
    332 Statx "statx" Full;
    424 PidfdSendSignal "pidfd_send_signal" Partial("no flags");
    434 PidfdOpen "pidfd_open" Partial("of processes, not of threads");
    435 Clone3 "clone3" Partial("as clone; no set_tid and cgroups");
    436 CloseRange "close_range" Full;
    437 Openat2 "openat2" Partial("as openat; RESOLVE_CACHED gives EAGAIN, other resolve flags EINVAL");
    439 Faccessat2 "faccessat2" Partial("existence only");
}

/// Names of calls that give ENOSYS, so that the log can name them: with those above, all that Linux
/// has on x86-64.
pub const ABSENT: &[(u16, &str)] = &[
    (29, "shmget"),
    (30, "shmat"),
    (31, "shmctl"),
    (64, "semget"),
    (65, "semop"),
    (66, "semctl"),
    (67, "shmdt"),
    (68, "msgget"),
    (69, "msgsnd"),
    (70, "msgrcv"),
    (71, "msgctl"),
    (101, "ptrace"),
    (103, "syslog"),
    (122, "setfsuid"),
    (123, "setfsgid"),
    (133, "mknod"),
    (134, "uselib"),
    (135, "personality"),
    (136, "ustat"),
    (139, "sysfs"),
    (153, "vhangup"),
    (154, "modify_ldt"),
    (155, "pivot_root"),
    (156, "_sysctl"),
    (159, "adjtimex"),
    (161, "chroot"),
    (163, "acct"),
    (165, "mount"),
    (166, "umount2"),
    (167, "swapon"),
    (168, "swapoff"),
    (169, "reboot"),
    (172, "iopl"),
    (173, "ioperm"),
    (174, "create_module"),
    (175, "init_module"),
    (176, "delete_module"),
    (177, "get_kernel_syms"),
    (178, "query_module"),
    (179, "quotactl"),
    (180, "nfsservctl"),
    (181, "getpmsg"),
    (182, "putpmsg"),
    (183, "afs_syscall"),
    (184, "tuxcall"),
    (185, "security"),
    (205, "set_thread_area"),
    (206, "io_setup"),
    (207, "io_destroy"),
    (208, "io_getevents"),
    (209, "io_submit"),
    (210, "io_cancel"),
    (211, "get_thread_area"),
    (212, "lookup_dcookie"),
    (214, "epoll_ctl_old"),
    (215, "epoll_wait_old"),
    (216, "remap_file_pages"),
    (219, "restart_syscall"),
    (220, "semtimedop"),
    (236, "vserver"),
    (237, "mbind"),
    (238, "set_mempolicy"),
    (239, "get_mempolicy"),
    (240, "mq_open"),
    (241, "mq_unlink"),
    (242, "mq_timedsend"),
    (243, "mq_timedreceive"),
    (244, "mq_notify"),
    (245, "mq_getsetattr"),
    (246, "kexec_load"),
    (248, "add_key"),
    (249, "request_key"),
    (250, "keyctl"),
    (251, "ioprio_set"),
    (252, "ioprio_get"),
    (253, "inotify_init"),
    (254, "inotify_add_watch"),
    (255, "inotify_rm_watch"),
    (256, "migrate_pages"),
    (259, "mknodat"),
    (272, "unshare"),
    (278, "vmsplice"),
    (279, "move_pages"),
    (294, "inotify_init1"),
    (298, "perf_event_open"),
    (300, "fanotify_init"),
    (301, "fanotify_mark"),
    (303, "name_to_handle_at"),
    (304, "open_by_handle_at"),
    (305, "clock_adjtime"),
    (308, "setns"),
    (310, "process_vm_readv"),
    (311, "process_vm_writev"),
    (312, "kcmp"),
    (313, "finit_module"),
    (314, "sched_setattr"),
    (315, "sched_getattr"),
    (317, "seccomp"),
    (319, "memfd_create"),
    (320, "kexec_file_load"),
    (321, "bpf"),
    (322, "execveat"),
    (323, "userfaultfd"),
    (327, "preadv2"),
    (328, "pwritev2"),
    (329, "pkey_mprotect"),
    (330, "pkey_alloc"),
    (331, "pkey_free"),
    (333, "io_pgetevents"),
    (334, "rseq"),
    (335, "uretprobe"),
    (336, "uprobe"),
    (425, "io_uring_setup"),
    (426, "io_uring_enter"),
    (427, "io_uring_register"),
    (428, "open_tree"),
    (429, "move_mount"),
    (430, "fsopen"),
    (431, "fsconfig"),
    (432, "fsmount"),
    (433, "fspick"),
    (438, "pidfd_getfd"),
    (440, "process_madvise"),
    (441, "epoll_pwait2"),
    (442, "mount_setattr"),
    (443, "quotactl_fd"),
    (444, "landlock_create_ruleset"),
    (445, "landlock_add_rule"),
    (446, "landlock_restrict_self"),
    (447, "memfd_secret"),
    (448, "process_mrelease"),
    (449, "futex_waitv"),
    (450, "set_mempolicy_home_node"),
    (451, "cachestat"),
    (452, "fchmodat2"),
    (453, "map_shadow_stack"),
    (454, "futex_wake"),
    (455, "futex_wait"),
    (456, "futex_requeue"),
    (457, "statmount"),
    (458, "listmount"),
    (459, "lsm_get_self_attr"),
    (460, "lsm_set_self_attr"),
    (461, "lsm_list_modules"),
    (462, "mseal"),
    (463, "setxattrat"),
    (464, "getxattrat"),
    (465, "listxattrat"),
    (466, "removexattrat"),
    (467, "open_tree_attr"),
    (468, "file_getattr"),
    (469, "file_setattr"),
];

/// The name of any call of Linux.
pub fn name(number: u64) -> Option<&'static str> {
    let answered = Call::ALL.iter().find(|(call, ..)| *call as u64 == number).map(|(_, name, _)| *name);
    answered.or_else(|| absent_name(number))
}

/// The name of a call that is not answered, for the log.
pub fn absent_name(number: u64) -> Option<&'static str> {
    ABSENT.iter().find(|(listed, _)| u64::from(*listed) == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn page() -> String {
        let mut text = String::from(
            "# Linux calls\n\nGenerated from `linux/proxy/src/calls.rs`; after a change run `UPDATE_COVERAGE=1 cargo test -p pelago-proxy --lib coverage`.\n\
             The dispatcher matches the same list exhaustively. A call that is not listed gives ENOSYS and is logged once by name or number.\n\n\
             | number | call | support |\n|---:|---|---|\n",
        );
        for (call, name, support) in Call::ALL {
            match support {
                Full => writeln!(text, "| {} | {name} | full |", *call as u16).unwrap(),
                Partial(what) => writeln!(text, "| {} | {name} | partial: {what} |", *call as u16).unwrap(),
            }
        }
        writeln!(
            text,
            "\nKnown by name and absent: {}.",
            ABSENT.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
        )
        .unwrap();
        text
    }

    #[test]
    fn coverage_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/linux-coverage.md");
        if std::env::var_os("UPDATE_COVERAGE").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page(), "docs/linux-coverage.md is stale");
    }

    /// Linux has a call of each of these numbers (arch/x86/entry/syscalls/syscall_64.tbl, 6.17).
    #[test]
    fn every_number_of_linux_has_a_name() {
        const NUMBERS: [core::ops::RangeInclusive<u64>; 2] = [0..=336, 424..=469];
        let mut names = std::collections::BTreeSet::new();
        for number in NUMBERS.into_iter().flatten() {
            let name = name(number).unwrap_or_default();
            assert!(!name.is_empty() && names.insert(name), "call {number} is named {name:?}");
        }
        assert_eq!(names.len(), Call::ALL.len() + ABSENT.len());
        for number in [337, 423, 470, u64::MAX] {
            assert_eq!(absent_name(number), None);
        }
    }

    #[test]
    fn numbers_ascend_and_absent_ones_are_not_answered() {
        assert!(Call::ALL.windows(2).all(|pair| (pair[0].0 as u16) < pair[1].0 as u16));
        assert!(ABSENT.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(ABSENT.iter().all(|(number, _)| Call::decode(u64::from(*number)).is_none()));
        for (call, ..) in Call::ALL {
            assert_eq!(Call::decode(*call as u64), Some(*call));
        }
    }
}
