//! State of the volume's server: the volume, the blocks that are there, and open descriptions.
//!
//! Single-threaded: a `RefCell` borrow never crosses an await. An operation is asked again for each
//! block that it misses, in the task of its request: nobody else waits for it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::files::{OF_VOLUME, PathError};
use contracts::process::ProcessClient;
use ext4::{Block, Blocks, Error, Inode, Kind, Known, Mount, Operation, Stop, View, Volume};
use open_files::{Descriptions, FileId};
use runtime::{LogLimit, Watch};
use volume_core::ahead::Ahead;
use volume_core::cache::Seen;
use volume_core::lost::{Heard, Losses, LostFiles};
use volume_core::walk::Halt;
use volume_core::words;

use crate::device::{Device, Failed};

/// Blocks of metadata that a change makes newer than the disk, most of the time fewer.
const METADATA_BLOCKS: usize = 8;
/// Descriptions at once, as many as `fs` has.
const OPEN_MAX: usize = 8192;

/// What a description reads and writes.
#[derive(Debug)]
pub struct Target {
    pub inode: u32,
    pub kind: Kind,
    /// Of which losses of the file, and of the volume, its holder has heard.
    pub heard: Heard,
    pub heard_of_all: Heard,
    /// How it is read.
    pub ahead: Ahead,
}

impl open_files::Target for Target {
    fn file(&self) -> Option<FileId> {
        (self.kind == Kind::File).then_some(self.inode.into())
    }
}

/// An open description.
pub type Open = open_files::Open<Target>;

/// The volume, as far as it is known.
pub enum State {
    /// It is being looked at.
    Opening,
    /// It cannot be used; that was logged.
    Refused,
    /// It is only read.
    ReadOnly(Volume),
    /// It is read and written.
    Writable(Box<Mount>),
}

/// The blocks as they are now.
pub enum Now<'a> {
    ReadOnly(&'a Seen<'a>),
    Writable(View<'a, Seen<'a>>),
}

impl Blocks for Now<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        match self {
            Now::ReadOnly(seen) => seen.block(number),
            Now::Writable(view) => view.block(number),
        }
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        match self {
            Now::ReadOnly(seen) => seen.block_known(number),
            Now::Writable(view) => view.block_known(number),
        }
    }
}

/// Blocks that one request needs: they stay in the cache until this is dropped.
pub struct Pins {
    device: Rc<Device>,
    blocks: Vec<u64>,
}

impl Pins {
    /// None yet.
    pub fn new(device: Rc<Device>) -> Pins {
        Pins { device, blocks: Vec::new() }
    }

    /// Waits for a block, and keeps it.
    pub async fn add(&mut self, block: u64) -> Result<(), Failed> {
        self.device.pin(block).await?;
        self.blocks.push(block);
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut cache = self.device.cache.borrow_mut();
        self.blocks.iter().for_each(|block| cache.unpin(*block));
    }
}

/// Of a question that names no path.
pub fn not_of_paths(error: PathError) -> DescriptionError {
    match error {
        PathError::Failed(error) => error,
        PathError::Beyond(_) => DescriptionError::CrossDevice,
    }
}

/// All state.
pub struct Server {
    /// Where the volume's root is seen.
    pub path: String,
    pub processes: Option<ProcessClient>,
    pub state: RefCell<State>,
    /// The disk, once it has answered.
    pub device: RefCell<Option<Rc<Device>>>,
    /// The volume is known.
    pub opened: Watch,
    pub open: Descriptions<Target>,
    /// Descriptions of each file.
    pub opens: RefCell<BTreeMap<u32, u32>>,
    /// Inodes that nobody has any more, to be reclaimed.
    pub unused: RefCell<Vec<u32>>,
    pub reclaiming: Watch,
    /// Inodes without a name that may get one.
    pub unnamed: RefCell<BTreeSet<u32>>,
    /// Changes that could not be written, of each file and of any.
    pub lost: RefCell<LostFiles>,
    pub losses: Cell<Losses>,
    /// There may be something to write.
    pub changed: Watch,
    pub is_changed: Cell<bool>,
    /// Something was changed that nobody asked to be committed yet.
    pub dirtied: Watch,
    pub is_dirty: Cell<bool>,
    /// A transaction lasts, or never will.
    pub lasting: Watch,
    /// Blocks that changes under way may make newer than the disk, and that there may be room for
    /// more of them.
    pub reserved: Cell<usize>,
    pub room_freed: Watch,
    damage: LogLimit,
}

impl Server {
    pub fn new(path: String, processes: Option<ProcessClient>) -> Server {
        Server {
            path,
            processes,
            state: RefCell::new(State::Opening),
            device: RefCell::default(),
            opened: Watch::new(),
            // A server that is started again begins behind all that it ever gave.
            open: Descriptions::new(OPEN_MAX, OF_VOLUME | runtime::now_ns()),
            opens: RefCell::default(),
            unused: RefCell::default(),
            reclaiming: Watch::new(),
            unnamed: RefCell::default(),
            lost: RefCell::default(),
            losses: Cell::default(),
            changed: Watch::new(),
            is_changed: Cell::new(false),
            dirtied: Watch::new(),
            is_dirty: Cell::new(false),
            lasting: Watch::new(),
            reserved: Cell::new(0),
            room_freed: Watch::new(),
            damage: LogLimit::default(),
        }
    }

    /// The disk, when the volume is known. `Failed` if it is not to be used.
    pub async fn device(&self) -> Result<Rc<Device>, DescriptionError> {
        let known = || match &*self.state.borrow() {
            State::Opening => None,
            State::Refused => Some(Err(DescriptionError::Failed)),
            State::ReadOnly(_) | State::Writable(_) => Some(Ok(())),
        };
        self.opened.until(known).await?;
        self.device.borrow().clone().ok_or(DescriptionError::Failed)
    }

    /// Asks the volume as it is now.
    pub fn look<T>(
        &self,
        device: &Device,
        question: impl FnOnce(&Volume, &Now<'_>) -> T,
    ) -> Result<T, DescriptionError> {
        let (state, cache) = (self.state.borrow(), device.cache.borrow());
        let seen = cache.seen();
        match &*state {
            State::ReadOnly(volume) => Ok(question(volume, &Now::ReadOnly(&seen))),
            State::Writable(mount) => Ok(question(mount.volume(), &Now::Writable(mount.view(&seen)))),
            State::Opening | State::Refused => Err(DescriptionError::Failed),
        }
    }

    /// Asks, reads what is missing, and asks again, until there is an answer.
    pub async fn ask<T>(&self, question: impl Fn(&Volume, &Now<'_>) -> Result<T, Stop>) -> Result<T, DescriptionError> {
        let found = self.walk(|volume, blocks| question(volume, blocks).map_err(Halt::from)).await;
        found.map_err(not_of_paths)
    }

    /// The same for a question about a path.
    pub async fn walk<T>(&self, question: impl Fn(&Volume, &Now<'_>) -> Result<T, Halt>) -> Result<T, PathError> {
        let mut pins = Pins::new(self.device().await?);
        self.walk_with(&mut pins, question).await
    }

    /// The same with blocks that are kept there already.
    pub async fn walk_with<T>(
        &self,
        pins: &mut Pins,
        question: impl Fn(&Volume, &Now<'_>) -> Result<T, Halt>,
    ) -> Result<T, PathError> {
        loop {
            match self.look(&pins.device, &question)? {
                Ok(answer) => return Ok(answer),
                Err(Halt::Need(block)) => pins.add(block).await.map_err(|Failed| DescriptionError::Failed)?,
                Err(Halt::Path(error)) => return Err(error),
                Err(Halt::Volume(error)) => return Err(self.failed(error).into()),
            }
        }
    }

    /// Changes the volume: all that the operation says, or nothing.
    pub async fn change<T>(
        &self,
        operation: impl Fn(&mut Operation<'_, Seen<'_>>) -> Result<T, Stop>,
    ) -> Result<T, DescriptionError> {
        self.change_much(0, operation).await
    }

    /// The same with up to so many blocks of files' bytes. Waits while so much was changed that the
    /// disk has to follow first.
    pub async fn change_much<T>(
        &self,
        blocks: usize,
        operation: impl Fn(&mut Operation<'_, Seen<'_>>) -> Result<T, Stop>,
    ) -> Result<T, DescriptionError> {
        let mut pins = Pins::new(self.device().await?);
        let _room = self.room(&pins.device, blocks + METADATA_BLOCKS).await;
        loop {
            let now = words::time(runtime::realtime_ns());
            let outcome = {
                let (mut state, cache) = (self.state.borrow_mut(), pins.device.cache.borrow());
                let State::Writable(mount) = &mut *state else { return Err(DescriptionError::ReadOnly) };
                mount.change(&cache.seen(), now, &operation)
            };
            self.hold(&pins.device);
            match outcome {
                Ok(result) => {
                    self.wake_writer();
                    self.is_dirty.set(true);
                    self.dirtied.changed();
                    return Ok(result);
                }
                Err(Stop::Need(block)) => pins.add(block).await.map_err(|Failed| DescriptionError::Failed)?,
                Err(Stop::Commit(number)) => self.until_lasting(number).await?,
                Err(Stop::Failed(error)) => return Err(self.failed(error)),
            }
        }
    }

    /// There may be something to write.
    pub fn wake_writer(&self) {
        self.is_changed.set(true);
        self.changed.changed();
    }

    /// Waits until a transaction lasts. `Failed` if it never will.
    pub async fn until_lasting(&self, number: u32) -> Result<(), DescriptionError> {
        self.wake_writer();
        let look = || match &*self.state.borrow() {
            State::Writable(mount) => match mount.lasts(number) {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(_) => Some(Err(DescriptionError::Failed)),
            },
            _ => Some(Err(DescriptionError::Failed)),
        };
        self.lasting.until(look).await
    }

    /// What a client is told; what the disk says that cannot be is logged, too.
    fn failed(&self, error: Error) -> DescriptionError {
        if words::is_damage(error) {
            self.damage.log(format!("{}: {error}: run e2fsck", self.path));
        }
        words::error(error)
    }

    /// Is the volume known, and not to be written?
    pub fn is_read_only(&self) -> bool {
        matches!(&*self.state.borrow(), State::ReadOnly(_))
    }

    /// An inode.
    pub async fn inode(&self, number: u32) -> Result<Inode, DescriptionError> {
        self.ask(|volume, blocks| volume.inode(blocks, number)).await
    }

    /// Opens an inode for a client. `flags` are `files::open`'s. `TooMany`.
    pub fn add(&self, peer: &Peer, number: u32, kind: Kind, flags: u32) -> Result<DescriptionId, DescriptionError> {
        let mut open = self.open.table.borrow_mut();
        open.room(peer)?;
        *self.opens.borrow_mut().entry(number).or_default() += 1;
        let (heard, heard_of_all) = (self.lost.borrow_mut().begin(number), self.losses.get().begin());
        Ok(open.add(peer, Target { inode: number, kind, heard, heard_of_all, ahead: Ahead::default() }, flags))
    }

    /// Works on a description the client holds. `BadId`.
    pub fn with<T>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Open) -> Result<T, DescriptionError>,
    ) -> Result<T, DescriptionError> {
        self.open.with(peer, id, work)
    }

    /// The inode that a description of a client's is of. `BadId`.
    pub fn number(&self, peer: &Peer, id: DescriptionId) -> Result<u32, DescriptionError> {
        self.with(peer, id, |open| Ok(open.target.inode))
    }
}

impl open_files::Server for Server {
    type Target = Target;

    fn descriptions(&self) -> &Descriptions<Target> {
        &self.open
    }

    fn closed(&self, Target { inode, .. }: Target) {
        let is_last = {
            let mut opens = self.opens.borrow_mut();
            let left = opens.get(&inode).map_or(0, |count| count - 1);
            if left > 0 {
                opens.insert(inode, left)
            } else {
                opens.remove(&inode)
            };
            left == 0
        };
        if is_last {
            self.unnamed.borrow_mut().remove(&inode);
            self.lost.borrow_mut().close(inode);
            self.unused(inode);
        }
    }
}
