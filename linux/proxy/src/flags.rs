//! Linux flag values used by more than one call, for x86-64 (asm-generic and arch/x86 of the Linux
//! user interface headers).
#![allow(missing_docs)]

use crate::errno::Errno;

/// `EINVAL` for flags that a call does not know.
pub fn only(flags: u64, known: u64) -> Result<(), Errno> {
    if flags as u32 & !(known as u32) == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

pub const AT_FDCWD: i32 = -100;
pub const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
pub const AT_REMOVEDIR: u64 = 0x200;
pub const AT_EACCESS: u64 = 0x200;
pub const AT_SYMLINK_FOLLOW: u64 = 0x400;
pub const AT_NO_AUTOMOUNT: u64 = 0x800;
pub const AT_EMPTY_PATH: u64 = 0x1000;
pub const AT_STATX_SYNC_TYPE: u64 = 0x6000;

pub const O_ACCMODE: u32 = 3;
pub const O_WRONLY: u32 = 1;
pub const O_RDWR: u32 = 2;
pub const O_CREAT: u32 = 0o100;
pub const O_EXCL: u32 = 0o200;
pub const O_TRUNC: u32 = 0o1000;
pub const O_APPEND: u32 = 0o2000;
pub const O_NONBLOCK: u32 = 0o4000;
/// Each write is on the disk before it is answered, as far as it is found again by that;
pub const O_DSYNC: u32 = 0o10000;
/// with all that is known of the file: what O_SYNC has besides O_DSYNC.
pub const O_SYNC_WHOLE: u32 = 0o4000000;
pub const O_DIRECTORY: u32 = 0o200000;
pub const O_NOFOLLOW: u32 = 0o400000;
pub const O_CLOEXEC: u32 = 0o2000000;
pub const O_PATH: u32 = 0o10000000;
/// Alone: what O_TMPFILE has besides O_DIRECTORY.
pub const O_TMPFILE: u32 = 0o20000000;

pub const F_DUPFD: u64 = 0;
pub const F_GETFD: u64 = 1;
pub const F_SETFD: u64 = 2;
pub const F_GETFL: u64 = 3;
pub const F_SETFL: u64 = 4;
pub const F_SETOWN: u64 = 8;
pub const F_GETOWN: u64 = 9;
pub const F_SETOWN_EX: u64 = 15;
pub const F_GETOWN_EX: u64 = 16;
pub const F_GETLK: u64 = 5;
pub const F_SETLK: u64 = 6;
pub const F_SETLKW: u64 = 7;
pub const F_OFD_GETLK: u64 = 36;
pub const F_OFD_SETLK: u64 = 37;
pub const F_OFD_SETLKW: u64 = 38;
pub const F_DUPFD_CLOEXEC: u64 = 1030;
pub const F_SETPIPE_SZ: u64 = 1031;
pub const F_GETPIPE_SZ: u64 = 1032;
pub const F_ADD_SEALS: u64 = 1033;
pub const F_GET_SEALS: u64 = 1034;
pub const F_RDLCK: i16 = 0;
pub const F_WRLCK: i16 = 1;
pub const F_UNLCK: i16 = 2;
pub const LOCK_SH: u64 = 1;
pub const LOCK_EX: u64 = 2;
pub const LOCK_NB: u64 = 4;
pub const LOCK_UN: u64 = 8;
pub const LOCK_MAND: u64 = 32;

pub const RWF_NOWAIT: u64 = 8;
pub const RWF_APPEND: u64 = 16;
pub const RWF_DSYNC: u64 = 2;
pub const RWF_SYNC: u64 = 4;
/// RWF_HIPRI and both of these.
pub const RWF_OF_STORAGE: u64 = 7;

pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const PROT_SEM: u64 = 8;
pub const PROT_GROWSDOWN: u64 = 0x100_0000;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_SHARED_VALIDATE: u64 = 3;
pub const MAP_TYPE: u64 = 15;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_32BIT: u64 = 0x40;
pub const MAP_SYNC: u64 = 0x80000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x100000;
/// All flags that mmap had before it refused unknown ones (LEGACY_MAP_MASK), besides its type: from
/// MAP_FIXED to MAP_HUGETLB with MAP_32BIT, MAP_UNINITIALIZED, and the sizes of large pages.
pub const MAP_OLD: u64 = 0x7c07_f970;
pub const MREMAP_MAYMOVE: u64 = 1;
pub const MREMAP_FIXED: u64 = 2;

pub const POLLIN: u16 = 1;
pub const POLLPRI: u16 = 2;
pub const POLLOUT: u16 = 4;
pub const POLLERR: u16 = 8;
pub const POLLHUP: u16 = 16;
pub const POLLNVAL: u16 = 32;
pub const POLLRDNORM: u16 = 0x40;
pub const POLLWRNORM: u16 = 0x100;
pub const POLLRDHUP: u16 = 0x2000;

/// An ioctl.
pub const FIOASYNC: u64 = 0x5452;

pub const CLONE_VM: u64 = 0x100;
pub const CLONE_SIGHAND: u64 = 0x800;
pub const CLONE_PIDFD: u64 = 0x1000;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_PARENT: u64 = 0x8000;
pub const CLONE_THREAD: u64 = 0x10000;
pub const CLONE_SETTLS: u64 = 0x80000;
pub const CLONE_PARENT_SETTID: u64 = 0x100000;
pub const CLONE_CHILD_CLEARTID: u64 = 0x200000;
pub const CLONE_CHILD_SETTID: u64 = 0x1000000;
pub const CLONE_DETACHED: u64 = 0x400000;
/// CLONE_NEWNS, and all others but CLONE_NEWTIME, which is of clone3.
pub const CLONE_NEW: u64 = 0x7e02_0000;
pub const CLONE_NEWTIME: u64 = 0x80;
pub const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// What clone has in the bits of its flags, and clone3 elsewhere: the signal at the child's end.
pub const CSIGNAL: u64 = 0xff;

pub const WNOHANG: u64 = 1;
pub const WUNTRACED: u64 = 2;
pub const WEXITED: u64 = 4;
pub const WCONTINUED: u64 = 8;
pub const WNOWAIT: u64 = 0x0100_0000;
/// __WALL: children whatever tells their end.
pub const WALL: u64 = 0x4000_0000;
/// __WCLONE: those alone whose end SIGCHLD does not tell.
pub const WCLONE: u64 = 0x8000_0000;
/// These, and __WNOTHREAD: children are the process's, whichever thread made them.
pub const WHOSE: u64 = WALL | WCLONE | 0x2000_0000;

pub const AF_UNSPEC: u16 = 0;
pub const AF_UNIX: u16 = 1;
pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
pub const SOCK_STREAM: u64 = 1;
pub const SOCK_DGRAM: u64 = 2;
pub const SOCK_SEQPACKET: u64 = 5;
pub const SOCK_NONBLOCK: u64 = 0o4000;
pub const SOCK_CLOEXEC: u64 = 0o2000000;
pub const MSG_OOB: u64 = 1;
pub const MSG_PEEK: u64 = 2;
pub const MSG_CTRUNC: u64 = 8;
pub const MSG_TRUNC: u64 = 0x20;
pub const MSG_DONTWAIT: u64 = 0x40;
pub const MSG_WAITALL: u64 = 0x100;
pub const MSG_ERRQUEUE: u64 = 0x2000;
pub const MSG_WAITFORONE: u64 = 0x10000;
pub const MSG_NOSIGNAL: u64 = 0x4000;
pub const MSG_MORE: u64 = 0x8000;
pub const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;

pub const SCM_RIGHTS: u32 = 1;
pub const SCM_CREDENTIALS: u32 = 2;

pub const EFD_SEMAPHORE: u64 = 1;
pub const TFD_TIMER_ABSTIME: u64 = 1;
pub const TFD_TIMER_CANCEL_ON_SET: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a number is made of others, or is not what it looks like.
    #[test]
    fn numbers_are_linuxs() {
        assert_eq!((AT_FDCWD as u32, CLONE_CLEAR_SIGHAND, WHOSE), (0xffff_ff9c, 0x1_0000_0000, 0xe000_0000));
    }

    #[test]
    fn flags_that_a_call_does_not_know_are_invalid() {
        for (flags, expected) in [(0, Ok(())), (5, Ok(())), (2, Err(Errno::EINVAL)), (7, Err(Errno::EINVAL))] {
            assert_eq!(only(flags, 5), expected, "{flags}");
        }
        assert_eq!(only(1 << 32, 5), Ok(()), "a flag is an int");
    }
}
