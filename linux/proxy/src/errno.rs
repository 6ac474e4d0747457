//! Linux error numbers: the only place where they are known.

macro_rules! errnos {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, )*) => {
        /// An error as Linux numbers it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        #[allow(clippy::upper_case_acronyms)]
        pub enum Errno { $( $(#[$doc])* $name = $number, )* }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1,
    /// No such file or directory.
    ENOENT = 2,
    /// No such process.
    ESRCH = 3,
    /// Interrupted by a signal.
    EINTR = 4,
    /// Input or output error.
    EIO = 5,
    /// No such device or address.
    ENXIO = 6,
    /// Argument list too long.
    E2BIG = 7,
    /// Not an executable file.
    ENOEXEC = 8,
    /// Bad descriptor.
    EBADF = 9,
    /// No child.
    ECHILD = 10,
    /// Would block, or no resources now.
    EAGAIN = 11,
    /// Out of memory.
    ENOMEM = 12,
    /// Permission denied.
    EACCES = 13,
    /// Bad pointer.
    EFAULT = 14,
    /// In use.
    EBUSY = 16,
    /// Exists.
    EEXIST = 17,
    /// Other device.
    EXDEV = 18,
    /// No such device.
    ENODEV = 19,
    /// Not a directory.
    ENOTDIR = 20,
    /// Is a directory.
    EISDIR = 21,
    /// Invalid argument.
    EINVAL = 22,
    /// Table full.
    ENFILE = 23,
    /// Too many open descriptors.
    EMFILE = 24,
    /// Not a terminal.
    ENOTTY = 25,
    /// File too large.
    EFBIG = 27,
    /// No space.
    ENOSPC = 28,
    /// Cannot seek.
    ESPIPE = 29,
    /// Nothing may be written there.
    EROFS = 30,
    /// Too many names.
    EMLINK = 31,
    /// Broken pipe.
    EPIPE = 32,
    /// Argument out of range.
    EDOM = 33,
    /// Result out of range.
    ERANGE = 34,
    /// To wait would be for ever.
    EDEADLK = 35,
    /// Name too long.
    ENAMETOOLONG = 36,
    /// No locks left.
    ENOLCK = 37,
    /// No such call.
    ENOSYS = 38,
    /// Directory not empty.
    ENOTEMPTY = 39,
    /// Too many symbolic links.
    ELOOP = 40,
    /// No such attribute.
    ENODATA = 61,
    /// Value too large.
    EOVERFLOW = 75,
    /// Not a socket.
    ENOTSOCK = 88,
    /// A message needs an address.
    EDESTADDRREQ = 89,
    /// Message too long.
    EMSGSIZE = 90,
    /// A socket of another kind.
    EPROTOTYPE = 91,
    /// No such option.
    ENOPROTOOPT = 92,
    /// Protocol not supported.
    EPROTONOSUPPORT = 93,
    /// No such kind of socket.
    ESOCKTNOSUPPORT = 94,
    /// Operation not supported.
    EOPNOTSUPP = 95,
    /// Address family not supported.
    EAFNOSUPPORT = 97,
    /// Address in use.
    EADDRINUSE = 98,
    /// Address not available.
    EADDRNOTAVAIL = 99,
    /// Network unreachable.
    ENETUNREACH = 101,
    /// Connection aborted.
    ECONNABORTED = 103,
    /// Connection reset.
    ECONNRESET = 104,
    /// Is connected.
    EISCONN = 106,
    /// Not connected.
    ENOTCONN = 107,
    /// Timed out.
    ETIMEDOUT = 110,
    /// Connection refused.
    ECONNREFUSED = 111,
    /// In progress.
    EINPROGRESS = 115,
}

impl Errno {
    /// The value for RAX.
    pub const fn to_result(self) -> u64 {
        (-(self as i64)) as u64
    }

    /// The positive number, as SO_ERROR gives it.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_gives_the_negative_number() {
        for (errno, number) in [(Errno::ENOENT, 2), (Errno::EINVAL, 22), (Errno::EINPROGRESS, 115)] {
            assert_eq!((errno.number(), errno.to_result() as i64), (number, -i64::from(number)));
        }
    }
}
