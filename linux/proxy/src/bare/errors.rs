//! From the contracts' errors to errno and back to the program.

use channel::CallError;
use contracts::descriptions::DescriptionError;
use contracts::process::ProcessError;
use personality::Errno;

/// Why a Linux call gives no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error number.
    Errno(Errno),
    /// A signal came first; the call may start again after its handler if that says SA_RESTART.
    Interrupted,
    /// What it needs is there now: the program makes it again.
    Again,
}

/// What a Linux call gives.
pub type Outcome = Result<u64, Failure>;

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

/// Errors of a contract that have an errno.
pub trait AsErrno {
    /// The errno.
    fn errno(self) -> Errno;
}

impl AsErrno for DescriptionError {
    fn errno(self) -> Errno {
        use DescriptionError as E;
        match self {
            E::BadId => Errno::EBADF,
            E::NotFound => Errno::ENOENT,
            E::Denied => Errno::EPERM,
            E::Exists => Errno::EEXIST,
            E::NotDirectory => Errno::ENOTDIR,
            E::IsDirectory => Errno::EISDIR,
            E::NotEmpty => Errno::ENOTEMPTY,
            E::Loop => Errno::ELOOP,
            E::NameTooLong => Errno::ENAMETOOLONG,
            E::Invalid => Errno::EINVAL,
            E::NotSupported => Errno::EOPNOTSUPP,
            E::WouldBlock => Errno::EAGAIN,
            E::BrokenPipe => Errno::EPIPE,
            E::NotSeekable => Errno::ESPIPE,
            E::NoSpace => Errno::ENOSPC,
            E::TooMany => Errno::ENFILE,
            E::CrossDevice => Errno::EXDEV,
            E::NotTerminal => Errno::ENOTTY,
            E::TooLarge => Errno::EFBIG,
            E::ConnectionReset => Errno::ECONNRESET,
            E::ConnectionRefused => Errno::ECONNREFUSED,
            E::ConnectionAborted => Errno::ECONNABORTED,
            E::AddressInUse => Errno::EADDRINUSE,
            E::AddressNotAvailable => Errno::EADDRNOTAVAIL,
            E::NotConnected => Errno::ENOTCONN,
            E::AlreadyConnected => Errno::EISCONN,
            E::InProgress => Errno::EINPROGRESS,
            E::TimedOut => Errno::ETIMEDOUT,
            E::Unreachable => Errno::ENETUNREACH,
            E::Failed => Errno::EIO,
            E::Deadlock => Errno::EDEADLK,
            E::NoLocks => Errno::ENOLCK,
            E::WrongKind => Errno::EPROTOTYPE,
            E::MessageTooLong => Errno::EMSGSIZE,
            E::DestinationRequired => Errno::EDESTADDRREQ,
            E::NoDevice => Errno::ENXIO,
            E::Busy => Errno::EBUSY,
            E::ReadOnly => Errno::EROFS,
            E::TooManyLinks => Errno::EMLINK,
            E::PastEnd => Errno::ENXIO,
            E::NoAttribute => Errno::ENODATA,
        }
    }
}

impl AsErrno for ProcessError {
    fn errno(self) -> Errno {
        match self {
            ProcessError::NotFound => Errno::ESRCH,
            ProcessError::NoChild => Errno::ECHILD,
            ProcessError::Denied => Errno::EPERM,
            ProcessError::Invalid => Errno::EINVAL,
            ProcessError::TooMany => Errno::EAGAIN,
            ProcessError::Failed => Errno::EIO,
        }
    }
}

impl<E: AsErrno> From<CallError<E>> for Failure {
    fn from(error: CallError<E>) -> Failure {
        match error {
            CallError::Server(error) => error.errno().into(),
            CallError::Cancelled => Failure::Interrupted,
            // The server is new and does not know what we hold, or is gone.
            CallError::PeerRestarted | CallError::Closed | CallError::Malformed => Errno::EIO.into(),
            CallError::Full => Errno::EAGAIN.into(),
            CallError::TooLong => Errno::ENAMETOOLONG.into(),
        }
    }
}
