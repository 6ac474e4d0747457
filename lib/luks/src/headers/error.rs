//! Why a volume is not read or not opened.

use alloc::string::String;
use core::fmt;

/// Bytes of a foreign name that an error keeps.
const NAME_BYTES_MAX: usize = 64;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Neither place of a header has the magic number of LUKS.
    NotLuks,
    /// It is LUKS, but with something that is not supported. Convert it with `cryptsetup`
    /// (`luksConvertKey` for a key slot), or make it anew without.
    Refused(Refusal),
    /// No header is whole; this is wrong with the first. `cryptsetup repair` may help, a backup of
    /// the header does.
    Damaged(&'static str),
    /// The device has no [`Slot`](crate::Slot) of this number.
    NoSlot(u8),
    /// A key does not have the volume's digest.
    WrongKey,
    /// So much memory is not to be had. Give the component more.
    OutOfMemory {
        /// KiB that were asked for.
        kib: u32,
    },
    /// The caller gave another number of bytes.
    WrongLength {
        /// Bytes that are needed.
        needed: usize,
    },
}

/// What is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something that the volume has and that has no name of its own.
    Has(&'static str),
    /// Something by a name that is unknown here: what it is, and the name.
    Name(&'static str, String),
    /// A number that is another here: what it is, and the number.
    Size(&'static str, u64),
    /// A key slot costs more than the [`Budget`](crate::Budget) of its reader.
    Costs {
        /// What it needs too much of, with its unit.
        what: &'static str,
        /// How much it needs.
        needed: u64,
        /// How much there was left.
        left: u64,
    },
    /// The device ends before the volume does.
    Device {
        /// Bytes of the device.
        bytes: u64,
        /// Bytes that the volume needs.
        needed: u64,
    },
}

impl Refusal {
    /// A foreign name, cut to a length that fits a line.
    pub(crate) fn name(what: &'static str, name: &str) -> Refusal {
        Refusal::Name(what, name[..name.floor_char_boundary(NAME_BYTES_MAX)].into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Has(what) => write!(out, "has {what}, which is not supported"),
            // The name is the disk's: nothing of it may steer a terminal.
            Refusal::Name(what, name) => write!(out, "{what} is `{}`, which is not supported", name.escape_debug()),
            Refusal::Size(what, value) => write!(out, "{what} is {value}, which is not supported"),
            Refusal::Costs { what, needed, left } => write!(out, "needs {needed} {what}, of {left} that are left"),
            Refusal::Device { bytes, needed } => write!(out, "needs {needed} bytes of a device of {bytes}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotLuks => write!(out, "not a LUKS volume"),
            Error::Refused(why) => write!(out, "the LUKS volume {why}"),
            Error::Damaged(what) => write!(out, "the LUKS headers are damaged: {what}"),
            Error::NoSlot(number) => write!(out, "there is no key slot {number} to open"),
            Error::WrongKey => write!(out, "this is not the volume's key"),
            Error::OutOfMemory { kib } => write!(out, "there are no {kib} KiB to open a key slot"),
            Error::WrongLength { needed } => write!(out, "{needed} bytes are needed"),
        }
    }
}
