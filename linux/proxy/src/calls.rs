//! The Linux calls this proxy answers, how far, and the names of those it does not.
//!
//! Invariant: [`Call`] holds exactly the calls that are answered; the dispatcher matches it without
//! a wildcard, so a call cannot be declared here and forgotten there. `docs/linux-coverage.md` is
//! generated from this table (see the test at the end).

/// How far a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As Linux does, for what a single-threaded program can see.
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
    7 Poll "poll" Partial("at most 256 entries, the limit of descriptors: EINVAL");
    8 Lseek "lseek" Partial("no SEEK_DATA and SEEK_HOLE");
    9 Mmap "mmap" Partial("shared mappings are private copies; at most 512 areas");
    10 Mprotect "mprotect" Full;
    11 Munmap "munmap" Full;
    12 Brk "brk" Partial("at most 992 MiB");
    13 RtSigaction "rt_sigaction" Full;
    14 RtSigprocmask "rt_sigprocmask" Full;
    15 RtSigreturn "rt_sigreturn" Full;
    16 Ioctl "ioctl" Partial("terminals, FIONREAD, FIONBIO, FIOCLEX");
    17 Pread64 "pread64" Full;
    18 Pwrite64 "pwrite64" Full;
    19 Readv "readv" Full;
    20 Writev "writev" Full;
    21 Access "access" Partial("existence only; the caller is user 0");
    22 Pipe "pipe" Full;
    23 Select "select" Partial("descriptors below 256");
    24 SchedYield "sched_yield" Full;
    25 Mremap "mremap" Partial("moves by copying; no MREMAP_DONTUNMAP");
    28 Madvise "madvise" Partial("MADV_DONTNEED writes zeros, also over bytes of a file, and gives no memory back; other advice is accepted");
    32 Dup "dup" Full;
    33 Dup2 "dup2" Full;
    34 Pause "pause" Full;
    35 Nanosleep "nanosleep" Full;
    36 Getitimer "getitimer" Partial("ITIMER_REAL; always tells no timer");
    37 Alarm "alarm" Full;
    38 Setitimer "setitimer" Partial("ITIMER_REAL");
    39 Getpid "getpid" Full;
    40 Sendfile "sendfile" Full;
    41 Socket "socket" Partial("AF_INET streams");
    42 Connect "connect" Full;
    43 Accept "accept" Full;
    44 Sendto "sendto" Partial("connected sockets");
    45 Recvfrom "recvfrom" Partial("MSG_PEEK and MSG_DONTWAIT only");
    46 Sendmsg "sendmsg" Partial("no control messages");
    47 Recvmsg "recvmsg" Partial("no control messages");
    48 Shutdown "shutdown" Full;
    49 Bind "bind" Full;
    50 Listen "listen" Full;
    51 Getsockname "getsockname" Full;
    52 Getpeername "getpeername" Full;
    54 Setsockopt "setsockopt" Partial("TCP_CORK, TCP_KEEPIDLE to KEEPCNT, TCP_DEFER_ACCEPT, TCP_FASTOPEN and IP_TOS are accepted without effect; SO_REUSEPORT and unknown ones are refused with ENOPROTOOPT; timeouts are not shared over fork");
    55 Getsockopt "getsockopt" Partial("the common SOL_SOCKET and IPPROTO_TCP options");
    56 Clone "clone" Partial("processes only, no threads: CLONE_VM copies the memory, CLONE_FILES and CLONE_FS copy too, namespaces are ignored");
    57 Fork "fork" Partial("descriptor flags that F_SETFL changes and timeouts of sockets are no longer shared after it");
    58 Vfork "vfork" Partial("as fork: the parent does not wait and memory is copied");
    59 Execve "execve" Full;
    60 Exit "exit" Full;
    61 Wait4 "wait4" Partial("usage is zero");
    62 Kill "kill" Full;
    63 Uname "uname" Full;
    72 Fcntl "fcntl" Partial("F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL (O_APPEND and O_NONBLOCK) and locks; others EINVAL");
    73 Flock "flock" Full;
    74 Fsync "fsync" Full;
    75 Fdatasync "fdatasync" Full;
    76 Truncate "truncate" Full;
    77 Ftruncate "ftruncate" Full;
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
    97 Getrlimit "getrlimit" Partial("fixed limits");
    98 Getrusage "getrusage" Partial("zeros");
    99 Sysinfo "sysinfo" Partial("uptime and process count");
    100 Times "times" Partial("elapsed time only");
    102 Getuid "getuid" Full;
    104 Getgid "getgid" Full;
    105 Setuid "setuid" Partial("accepted for user 0 only");
    106 Setgid "setgid" Partial("accepted for group 0 only");
    107 Geteuid "geteuid" Full;
    108 Getegid "getegid" Full;
    109 Setpgid "setpgid" Full;
    110 Getppid "getppid" Full;
    111 Getpgrp "getpgrp" Full;
    112 Setsid "setsid" Full;
    115 Getgroups "getgroups" Full;
    116 Setgroups "setgroups" Partial("accepted");
    117 Setresuid "setresuid" Partial("accepted for user 0 only");
    119 Setresgid "setresgid" Partial("accepted for group 0 only");
    121 Getpgid "getpgid" Full;
    124 Getsid "getsid" Full;
    127 RtSigpending "rt_sigpending" Full;
    130 RtSigsuspend "rt_sigsuspend" Full;
    131 Sigaltstack "sigaltstack" Full;
    137 Statfs "statfs" Full;
    138 Fstatfs "fstatfs" Full;
    157 Prctl "prctl" Partial("PR_SET_NAME and PR_GET_NAME; others EINVAL");
    158 ArchPrctl "arch_prctl" Full;
    160 Setrlimit "setrlimit" Partial("accepted, without effect");
    164 Settimeofday "settimeofday" Partial("EPERM: the clock is the machine's");
    186 Gettid "gettid" Full;
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
    200 Tkill "tkill" Full;
    201 Time "time" Full;
    202 Futex "futex" Partial("WAIT and WAKE of a single thread");
    204 SchedGetaffinity "sched_getaffinity" Partial("one core");
    213 EpollCreate "epoll_create" Full;
    217 Getdents64 "getdents64" Full;
    218 SetTidAddress "set_tid_address" Full;
    221 Fadvise64 "fadvise64" Full;
    227 ClockSettime "clock_settime" Partial("EPERM: the clock is the machine's");
    228 ClockGettime "clock_gettime" Partial("CLOCK_TAI is CLOCK_REALTIME; no clocks of other processes");
    229 ClockGetres "clock_getres" Full;
    230 ClockNanosleep "clock_nanosleep" Full;
    231 ExitGroup "exit_group" Full;
    232 EpollWait "epoll_wait" Partial("level-triggered; EPOLLET counts as level");
    233 EpollCtl "epoll_ctl" Partial("EPOLLONESHOT yes, EPOLLEXCLUSIVE ignored");
    234 Tgkill "tgkill" Full;
    247 Waitid "waitid" Partial("no WNOWAIT");
    257 Openat "openat" Partial("permission bits are kept, not enforced");
    258 Mkdirat "mkdirat" Full;
    260 Fchownat "fchownat" Full;
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
    273 SetRobustList "set_robust_list" Partial("accepted; the list is not walked at the end");
    280 Utimensat "utimensat" Full;
    281 EpollPwait "epoll_pwait" Partial("level-triggered");
    285 Fallocate "fallocate" Partial("mode 0");
    288 Accept4 "accept4" Full;
    291 EpollCreate1 "epoll_create1" Full;
    292 Dup3 "dup3" Full;
    293 Pipe2 "pipe2" Full;
    295 Preadv "preadv" Full;
    296 Pwritev "pwritev" Full;
    302 Prlimit64 "prlimit64" Partial("fixed limits");
    316 Renameat2 "renameat2" Partial("RENAME_NOREPLACE is not atomic; no RENAME_EXCHANGE");
    318 Getrandom "getrandom" Full;
    332 Statx "statx" Full;
    436 CloseRange "close_range" Full;
    439 Faccessat2 "faccessat2" Partial("existence only");
}

/// Names of calls that give ENOSYS, so that the log can name them: those a server or tool is likely
/// to try.
pub const ABSENT: &[(u16, &str)] = &[
    (26, "msync"),
    (27, "mincore"),
    (29, "shmget"),
    (30, "shmat"),
    (31, "shmctl"),
    (53, "socketpair"),
    (64, "semget"),
    (65, "semop"),
    (78, "getdents"),
    (101, "ptrace"),
    (103, "syslog"),
    (113, "setreuid"),
    (114, "setregid"),
    (118, "getresuid"),
    (120, "getresgid"),
    (125, "capget"),
    (126, "capset"),
    (128, "rt_sigtimedwait"),
    (129, "rt_sigqueueinfo"),
    (132, "utime"),
    (133, "mknod"),
    (140, "getpriority"),
    (141, "setpriority"),
    (143, "sched_getparam"),
    (144, "sched_setscheduler"),
    (145, "sched_getscheduler"),
    (149, "mlock"),
    (161, "chroot"),
    (162, "sync"),
    (165, "mount"),
    (166, "umount2"),
    (169, "reboot"),
    (170, "sethostname"),
    (187, "readahead"),
    (203, "sched_setaffinity"),
    (222, "timer_create"),
    (235, "utimes"),
    (253, "inotify_init"),
    (259, "mknodat"),
    (261, "futimesat"),
    (272, "unshare"),
    (275, "splice"),
    (282, "signalfd"),
    (283, "timerfd_create"),
    (284, "eventfd"),
    (286, "timerfd_settime"),
    (289, "signalfd4"),
    (290, "eventfd2"),
    (294, "inotify_init1"),
    (299, "recvmmsg"),
    (307, "sendmmsg"),
    (310, "process_vm_readv"),
    (317, "seccomp"),
    (319, "memfd_create"),
    (324, "membarrier"),
    (326, "copy_file_range"),
    (334, "rseq"),
    (425, "io_uring_setup"),
    (434, "pidfd_open"),
    (435, "clone3"),
    (437, "openat2"),
];

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
