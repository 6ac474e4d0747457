//! Paths of the file system: what `fs` does besides `descriptions`.

use alloc::string::String;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::descriptions::{DescriptionError, DescriptionId, Kind, Status};

/// Bits of [`Files::open`].
pub mod open {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    /// With CREATE: `Exists` if it is there.
    pub const EXCLUSIVE: u32 = 16;
    pub const TRUNCATE: u32 = 32;
    /// `NotDirectory` if it is none.
    pub const DIRECTORY: u32 = 64;
    /// `Loop` if the last part is a symbolic link.
    pub const NO_FOLLOW: u32 = 128;
}

/// A freshly opened description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub id: DescriptionId,
    pub kind: Kind,
    /// Bytes at the time of opening.
    pub size: u64,
    /// `Kind::Terminal`: the path names the terminal; the client is to open it at `console`.
    pub elsewhere: bool,
}

/// Times for [`Files::set_status`]; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub permissions: Option<u32>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub modified_ns: Option<u64>,
    pub accessed_ns: Option<u64>,
}

/// [`Status::device`](crate::descriptions::Status) of what lies in /proc.
pub const PROC_DEVICE: u64 = 3;

/// Operations on paths. All paths are absolute, normalised by the server, at most 700 bytes (a
/// message is one kilobyte at most). Every operation acts at once and completely or not at all.
/// Rights: every client may name every path of its root file system; permission bits are kept and
/// shown but the caller counts as user 0.
#[contract(name = "files", version = 1)]
pub trait Files {
    /// Opens or creates. `permissions` count when created.
    #[op]
    async fn open(&self, path: String, flags: u32, permissions: u32) -> Result<Opened, DescriptionError>;

    /// What is known of a path; of the link itself unless `follow`.
    #[op(repeatable)]
    async fn status(&self, path: String, follow: bool) -> Result<Status, DescriptionError>;

    /// Changes permissions, owner or times.
    #[op(repeatable)]
    async fn set_status(&self, path: String, follow: bool, change: Change) -> Result<(), DescriptionError>;

    /// Makes a directory.
    #[op]
    async fn make_directory(&self, path: String, permissions: u32) -> Result<(), DescriptionError>;

    /// Makes a symbolic link at `path`.
    #[op]
    async fn make_link(&self, path: String, target: String) -> Result<(), DescriptionError>;

    /// A second name for a file.
    #[op]
    async fn link(&self, existing: String, path: String) -> Result<(), DescriptionError>;

    /// Where a symbolic link points.
    #[op(repeatable)]
    async fn read_link(&self, path: String) -> Result<String, DescriptionError>;

    /// Removes a name: a directory if `directory`, else anything else.
    #[op]
    async fn remove(&self, path: String, directory: bool) -> Result<(), DescriptionError>;

    /// Renames, replacing what is at `to` as rename(2) does.
    #[op]
    async fn rename(&self, from: String, to: String) -> Result<(), DescriptionError>;

    /// Pages used and free in the store.
    #[op(repeatable)]
    async fn space(&self) -> Result<(u64, u64), DescriptionError>;
}
