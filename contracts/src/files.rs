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
    /// To name something, whatever it is, and for nothing else: with NO_FOLLOW a symbolic link too.
    pub const PLACE: u32 = 256;
    /// For memory of the file, not for a descriptor: the client's locks stay when it is closed, as
    /// at the end of a mapping.
    pub const MAPPING: u32 = 512;
}

/// A freshly opened description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub id: DescriptionId,
    pub kind: Kind,
    /// Bytes at the time of opening.
    pub size: u64,
    /// Permission bits of a file, else 0.
    pub permissions: u32,
    /// The client is to open something that is not here.
    pub elsewhere: Option<Elsewhere>,
}

/// What a path names that the client reaches by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Elsewhere {
    /// The terminal, at `console`.
    Terminal,
    /// A descriptor of its own (`/proc/self/fd/N`).
    Descriptor(u32),
    /// All of them, as a directory (`/proc/self/fd`).
    Descriptors,
    /// Its threads, as a directory (`/proc/self/task`).
    Threads,
    /// A named pipe, at `process`, by the number of its file.
    Pipe(u64),
}

/// A path as a client names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Where a relative path starts: a directory's description that the client holds.
    pub directory: Option<DescriptionId>,
    /// Absolute, or relative if there is a directory.
    pub path: String,
    /// The client's process, which `/proc/self` leads to.
    pub process: u32,
    /// User and group as whom it acts, whose what it makes there is.
    pub owner: (u32, u32),
}

/// Whose a lock is, and what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Bytes, for the client, until it closes any description of the file.
    Client,
    /// Bytes, for the description, until nobody holds that.
    Description,
    /// The whole file, for the description; does not see the other kinds.
    Whole,
    /// Bytes that are memory of programs, for the description of a mapping, by the number of that
    /// memory; does not see the other kinds, and locks of different memory are never beside each
    /// other. Exclusive until the memory was filled, then shared by all who have it; `NotFound` for
    /// who would share what nobody has there. A client that holds no such description cannot change
    /// the bytes: `Denied`.
    Mapped(u64),
    /// Bytes that are memory of programs, for the client and the description of a mapping, while
    /// they are compared with the file and written to it: of two who do that at once, the later
    /// would write what memory held earlier. Does not see the other kinds.
    WriteBack,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Beside others that are shared.
    Shared,
    /// Alone.
    Exclusive,
}

/// An advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub kind: LockKind,
    /// `None` gives it back.
    pub hold: Option<Hold>,
    /// First byte, and the first one after; `u64::MAX` is wherever the file ends.
    pub from: u64,
    pub to: u64,
    /// The process that asks or holds.
    pub process: u32,
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

/// [`Status::device`](crate::descriptions::Status) of what lies in the store.
pub const STORE_DEVICE: u64 = 1;
/// The same of what lies in /proc.
pub const PROC_DEVICE: u64 = 3;
/// The same of what lies in the volume on the disk.
pub const VOLUME_DEVICE: u64 = 5;
/// Set in every number that the volume's server gives: of a description, a socket or a named pipe.
/// So no two files have one, whichever server has them.
pub const OF_VOLUME: u64 = 1 << 63;

/// The trees that one tree of paths is made of, each kept by a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    /// The root, with all that is mounted nowhere else: `fs`.
    Root,
    /// The volume on the disk: `volume`.
    Volume,
}

/// Where a path goes on that leads out of a server's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beyond {
    pub tree: Tree,
    /// Absolute in that tree.
    pub path: String,
}

/// Why an operation on a path was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathError {
    /// It failed.
    Failed(DescriptionError),
    /// The path leads into another tree. Remedy: ask the server of that.
    Beyond(Beyond),
}

impl From<DescriptionError> for PathError {
    fn from(error: DescriptionError) -> PathError {
        PathError::Failed(error)
    }
}

/// What a rename does where something is at the new path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Renaming {
    /// It goes, if it fits.
    Replace,
    /// `Exists`.
    Keep,
    /// It gets the old path. `NotFound` if nothing is there.
    Exchange,
}

/// What a file without a name is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unnamed {
    /// It lies in a directory, and may be given a name if so.
    Temporary { may_link: bool },
    /// It lies nowhere and never has a name; it may be sealed if so.
    Memory { may_seal: bool },
}

/// What can no longer be done to a file, by any description. Bits of [`Files::seals`].
pub mod seal {
    /// Add a seal.
    pub const SEAL: u32 = 1;
    /// Make it smaller.
    pub const SHRINK: u32 = 2;
    /// Make it larger.
    pub const GROW: u32 = 4;
    /// Change its bytes.
    pub const WRITE: u32 = 8;
    /// The same, but for mappings that are there; here nobody may have one.
    pub const FUTURE_WRITE: u32 = 16;
}

/// Operations on paths, and on open files what Linux has besides `descriptions`. Paths are
/// normalised by the server, at most 700 bytes (a message is one kilobyte at most). A path that
/// leads into another server's tree ends with where it goes on: the client asks there (decision
/// 87). Each operation acts completely or not at all; `fs` acts at once, but for a lock that waits,
/// and `volume` when it has read what it needs. Rights: every client may name every path of its
/// root file system; permission bits are kept and shown; what is new is whose the caller says it
/// acts as, and of its directory's group if that has set-group-ID; nothing is refused by either.
#[contract(name = "files", version = 10)]
pub trait Files {
    /// Opens or creates. `permissions` count when created.
    #[op]
    async fn open(&self, path: Name, flags: u32, permissions: u32) -> Result<Opened, PathError>;

    /// Whether a path's last part is, or would be, in this tree: for who names two paths, which
    /// have to be in one. `Beyond` if not. Of a symbolic link the place of itself, unless `follow`.
    #[op(repeatable)]
    async fn locate(&self, path: Name, follow: bool) -> Result<(), PathError>;

    /// What is known of a path; of the link itself unless `follow`.
    #[op(repeatable)]
    async fn status(&self, path: Name, follow: bool) -> Result<Status, PathError>;

    /// Changes permissions, owner or times.
    #[op(repeatable)]
    async fn set_status(&self, path: Name, follow: bool, change: Change) -> Result<(), PathError>;

    /// Makes a directory.
    #[op]
    async fn make_directory(&self, path: Name, permissions: u32) -> Result<(), PathError>;

    /// Makes a symbolic link at `path`.
    #[op]
    async fn make_link(&self, path: Name, target: String) -> Result<(), PathError>;

    /// Makes what a socket is bound to, and gives its number.
    #[op]
    async fn make_socket(&self, path: Name, permissions: u32) -> Result<u64, PathError>;

    /// Makes a named pipe.
    #[op]
    async fn make_pipe(&self, path: Name, permissions: u32) -> Result<(), PathError>;

    /// Makes a file without a name and opens it. `place` is the directory where it lies, or how a
    /// file in memory is called. `flags` and `permissions` as for `open`.
    #[op]
    async fn open_unnamed(
        &self,
        place: Name,
        flags: u32,
        permissions: u32,
        purpose: Unnamed,
    ) -> Result<Opened, PathError>;

    /// A name for what a description names. `NotFound` if it has none and may have none, `Denied`
    /// for a directory.
    #[op]
    async fn link_opened(&self, id: DescriptionId, path: Name) -> Result<(), PathError>;

    /// Which seals a file has, as `seal::*`. `Invalid` for a file that cannot have any.
    #[op(repeatable)]
    async fn seals(&self, id: DescriptionId) -> Result<u32, DescriptionError>;

    /// Adds seals. `Denied` if they are sealed, or it is not open for writing; `Busy` for WRITE and
    /// FUTURE_WRITE while bytes of it are memory of programs; `Invalid` as for `seals`.
    #[op(repeatable)]
    async fn add_seals(&self, id: DescriptionId, seals: u32) -> Result<(), DescriptionError>;

    /// A second name for a file; for what a symbolic link leads to if `follow`.
    #[op]
    async fn link(&self, existing: Name, follow: bool, path: Name) -> Result<(), PathError>;

    /// Where a symbolic link points.
    #[op(repeatable)]
    async fn read_link(&self, path: Name) -> Result<String, PathError>;

    /// Removes a name: a directory if `directory`, else anything else.
    #[op]
    async fn remove(&self, path: Name, directory: bool) -> Result<(), PathError>;

    /// Renames, as rename(2) does. A path that ends with a slash names a directory.
    #[op]
    async fn rename(&self, from: Name, to: Name, how: Renaming) -> Result<(), PathError>;

    /// Pages used and free in the tree.
    #[op(repeatable)]
    async fn space(&self) -> Result<(u64, u64), DescriptionError>;

    /// What was written to a file is kept whatever happens to the machine, as far as it is found
    /// again by that; all that is known of it, too, if `whole`. `Failed` if some of it was lost,
    /// once for each description that was open then, or hears of it first; `ReadOnly` if nothing is
    /// written any more since a device failed.
    #[op(repeatable)]
    async fn synchronize(&self, id: DescriptionId, whole: bool) -> Result<(), DescriptionError>;

    /// The same for all files. `Failed` if something was lost of which the description `asking` did
    /// not hear so: once for each description. A server's successor is not asked again: it cannot
    /// know what was lost with the one before.
    #[op]
    async fn synchronize_all(&self, asking: Option<DescriptionId>) -> Result<(), DescriptionError>;

    /// Opens again what a description names, with an offset of its own. `flags` as for `open`.
    #[op]
    async fn reopen(&self, id: DescriptionId, flags: u32) -> Result<Opened, DescriptionError>;

    /// Changes permissions, owner or times of what a description names.
    #[op(repeatable)]
    async fn change(&self, id: DescriptionId, change: Change) -> Result<(), DescriptionError>;

    /// Whether each write goes to the end, for all who share the description.
    #[op(repeatable)]
    async fn set_append(&self, id: DescriptionId, appends: bool) -> Result<(), DescriptionError>;

    /// Where an open directory is now, `NotFound` if it was removed; of a file, by which path it
    /// was opened, with ` (deleted)` behind it if that no longer leads there.
    #[op(repeatable)]
    async fn path_of(&self, id: DescriptionId) -> Result<String, DescriptionError>;

    /// Takes or releases a lock, whole or not at all. With `wait`, waits until nothing stands in
    /// the way (`Deadlock` if that would be for ever); without, `WouldBlock`. `NoLocks`.
    #[op]
    async fn lock(&self, id: DescriptionId, lock: Lock, wait: bool) -> Result<(), DescriptionError>;

    /// The lock that stands in the way of this one.
    #[op(repeatable)]
    async fn blocking_lock(&self, id: DescriptionId, lock: Lock) -> Result<Option<Lock>, DescriptionError>;
}
