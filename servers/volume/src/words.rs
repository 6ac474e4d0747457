//! ext4's words as the contracts have them, and back.

use contracts::descriptions::{DescriptionError, Kind, Status};
use contracts::files::{Change, VOLUME_DEVICE};
use ext4::{Attributes, Error, Inode, Time};

const NS_PER_S: u64 = 1_000_000_000;

/// What a client is told of a failure.
pub fn error(error: Error) -> DescriptionError {
    match error {
        Error::NotExt4 | Error::Refused(_) | Error::Corrupt { .. } => DescriptionError::Failed,
        Error::NotFound => DescriptionError::NotFound,
        Error::NoXattr => DescriptionError::NoAttribute,
        Error::NotDirectory => DescriptionError::NotDirectory,
        Error::NotLink | Error::InvalidName | Error::Invalid => DescriptionError::Invalid,
        Error::IsDirectory => DescriptionError::IsDirectory,
        Error::NotSupported => DescriptionError::NotSupported,
        Error::Exists => DescriptionError::Exists,
        Error::NotEmpty => DescriptionError::NotEmpty,
        Error::NoSpace => DescriptionError::NoSpace,
        Error::TooLarge => DescriptionError::TooLarge,
        // Who changes a file sees to that.
        Error::BeingCut => DescriptionError::Busy,
        Error::TooManyLinks => DescriptionError::TooManyLinks,
        Error::ReadOnly => DescriptionError::ReadOnly,
    }
}

/// Is it worth a line in the log: the disk says what cannot be?
pub fn is_damage(error: Error) -> bool {
    matches!(error, Error::Refused(_) | Error::Corrupt { .. })
}

/// What kind of thing it is.
pub fn kind(kind: ext4::Kind) -> Kind {
    match kind {
        ext4::Kind::File => Kind::File,
        ext4::Kind::Directory => Kind::Directory,
        ext4::Kind::Link => Kind::SymbolicLink,
        ext4::Kind::Pipe => Kind::Pipe,
        ext4::Kind::Socket => Kind::Socket,
        ext4::Kind::CharacterDevice | ext4::Kind::BlockDevice => Kind::Device,
    }
}

/// A time in nanoseconds since 1970; 0 before that.
pub fn ns(time: Time) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(u64::from(time.nanoseconds))
}

/// The opposite.
pub fn time(ns: u64) -> Time {
    Time { seconds: (ns / NS_PER_S) as i64, nanoseconds: (ns % NS_PER_S) as u32 }
}

/// What is known of a file.
pub fn status(inode: &Inode) -> Status {
    let [accessed, modified, _] = inode.times;
    Status {
        kind: kind(inode.kind),
        permissions: inode.permissions.into(),
        size: inode.size,
        inode: inode.number.into(),
        device: VOLUME_DEVICE,
        links: inode.links.into(),
        user: inode.user,
        group: inode.group,
        special: 0,
        sectors: inode.sectors,
        modified_ns: ns(modified),
        accessed_ns: ns(accessed),
    }
}

/// What is to be changed of a file.
pub fn attributes(change: &Change) -> Attributes {
    Attributes {
        permissions: change.permissions.map(|permissions| (permissions & 0o7777) as u16),
        user: change.user,
        group: change.group,
        accessed: change.accessed_ns.map(time),
        modified: change.modified_ns.map(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept() {
        for ns in [0, 1, NS_PER_S - 1, 1_700_000_000 * NS_PER_S + 123, 9_000_000_000 * NS_PER_S] {
            assert_eq!(super::ns(time(ns)), ns);
        }
        assert_eq!(ns(Time { seconds: -5, nanoseconds: 7 }), 7);
    }
}
