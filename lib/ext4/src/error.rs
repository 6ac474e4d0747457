//! Why an operation ends without a result.

use core::fmt;

/// Why an operation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This block is not there. Read it, then call again: nothing has changed.
    Need(u64),
    /// This transaction must last first, for the log or the volume has no room before. Wait until
    /// [`Mount::lasts`](crate::Mount::lasts) says that it does, then call again: nothing has
    /// changed.
    Commit(u32),
    /// It failed; calling again gives the same.
    Failed(Error),
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The volume is not ext4: its magic number is another.
    NotExt4,
    /// The volume is ext4, but with something that is not supported. Make it anew without.
    Refused(Refusal),
    /// What the disk says cannot be. Run `e2fsck`.
    Corrupt {
        /// What it is that cannot be.
        what: &'static str,
        /// Number of the inode or group; 0 for the volume.
        at: u64,
    },
    /// There is no such name, or no such inode.
    NotFound,
    /// A directory was asked for, and this is none.
    NotDirectory,
    /// A symbolic link was asked for, and this is none.
    NotLink,
    /// A regular file was asked for, and this is a directory.
    IsDirectory,
    /// A name is empty, longer than 255 bytes, or has a NUL or a slash in it.
    InvalidName,
    /// The name is there already.
    Exists,
    /// A directory has names in it.
    NotEmpty,
    /// No block or no inode is free. Free some.
    NoSpace,
    /// More bytes than a file can have, or more changes than one operation may have. Do it in
    /// parts.
    TooLarge,
    /// The file is being cut off, and this would bring back bytes of it. Call
    /// [`Operation::trim`](crate::Operation::trim) until it is done, then again.
    BeingCut,
    /// An inode would get more names than the disk can count.
    TooManyLinks,
    /// What was asked makes no sense, like a directory inside itself.
    Invalid,
    /// There is no such extended attribute.
    NoXattr,
    /// An extended attribute has a prefix that is not known here, or the volume has none at all.
    NotSupported,
    /// The volume is closed, or its journal could not be written: nothing is changed any more.
    ReadOnly,
}

/// What is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A feature that the volume has.
    Has(&'static str),
    /// A feature that the volume lacks.
    Lacks(&'static str),
    /// A feature without a name here: its word (`incompat` or `ro_compat`) and bit.
    Unknown(&'static str, u32),
    /// A size that is another here: its name and value.
    Size(&'static str, u64),
    /// The device has fewer blocks than the volume.
    Device {
        /// Blocks of the device.
        blocks: u64,
        /// Blocks of the volume.
        volume: u64,
    },
}

impl Error {
    /// An error that [`Stop`] carries.
    pub(crate) const fn corrupt(what: &'static str, at: u64) -> Stop {
        Stop::Failed(Error::Corrupt { what, at })
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::Has(feature) => write!(out, "has the feature {feature}, which is not supported"),
            Refusal::Lacks(feature) => write!(out, "lacks the feature {feature}, which is needed"),
            Refusal::Unknown(word, bit) => write!(out, "has the unknown {word} feature {bit:#x}"),
            Refusal::Size(what, value) => write!(out, "{what} is {value}, which is not supported"),
            Refusal::Device { blocks, volume } => write!(out, "has {volume} blocks on a device of {blocks}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotExt4 => write!(out, "not an ext4 volume"),
            Error::Refused(why) => write!(out, "the volume {why}"),
            Error::Corrupt { what, at } => write!(out, "corrupt: {what}, at {at}"),
            Error::NotFound => write!(out, "no such file or directory"),
            Error::NotDirectory => write!(out, "not a directory"),
            Error::NotLink => write!(out, "not a symbolic link"),
            Error::IsDirectory => write!(out, "is a directory"),
            Error::InvalidName => write!(out, "not a name"),
            Error::Exists => write!(out, "the name is there already"),
            Error::NotEmpty => write!(out, "the directory is not empty"),
            Error::NoSpace => write!(out, "no space left on the volume"),
            Error::TooLarge => write!(out, "too large"),
            Error::BeingCut => write!(out, "the file is being cut off"),
            Error::TooManyLinks => write!(out, "too many links"),
            Error::Invalid => write!(out, "makes no sense"),
            Error::NoXattr => write!(out, "no such extended attribute"),
            Error::NotSupported => write!(out, "not a kind of extended attribute that is supported"),
            Error::ReadOnly => write!(out, "the volume is closed, or its journal could not be written"),
        }
    }
}
