//! A core's part: its frames, its read sections, and what it changes. All unsafe code of this
//! library is here.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::marker::PhantomData;

use lock::{Line, LineIndex, Memory, Ordering, Reader, Relax, Spare};

use crate::tree::{Node, Nodes, SEALED, Stop, Tree};

/// Names a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

impl FrameId {
    /// A number from 0 on, smaller than the frames that there ever were.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The word that says what a frame is of; that of the link is `lock::Spare`'s, the second.
const KEY: usize = 0;
const HOME: usize = 2;

/// Memory for a block.
#[repr(C)]
struct Frame<T> {
    /// What it is of plus 1, a link of the list it is on, the core whose it is.
    line: Line,
    bytes: UnsafeCell<T>,
}

// SAFETY: the bytes are reached by `fill`, of one who alone has the frame, and by `bytes`, while
// nobody fills it: see these.
unsafe impl<T: Send + Sync> Sync for Frame<T> {}

impl<T> Frame<T> {
    /// One of a core's.
    fn new(home: usize, bytes: T) -> Frame<T> {
        let line = Line::new();
        line.0[HOME].store(home as u64, Ordering::Relaxed);
        Frame { line, bytes: UnsafeCell::new(bytes) }
    }

    /// The core whose it is.
    fn home(&self) -> usize {
        self.line.0[HOME].load(Ordering::Relaxed) as usize
    }

    /// What it is of, while it is in the tree.
    fn key(&self) -> Option<u64> {
        self.line.0[KEY].load(Ordering::Relaxed).checked_sub(1)
    }

    fn set_key(&self, key: Option<u64>) {
        self.line.0[KEY].store(key.map_or(0, |key| key + 1), Ordering::Relaxed);
    }

    /// Fills it.
    ///
    /// # Safety
    /// It is in the caller's hands alone: not in the tree, on no list, and every read section that
    /// was open when it was taken out of the tree has ended.
    unsafe fn fill(&self, fill: impl FnOnce(&mut T)) {
        // SAFETY: nobody else has it, by the caller's word.
        fill(unsafe { &mut *self.bytes.get() });
    }

    /// Its bytes.
    ///
    /// # Safety
    /// It was found in the tree in a read section that is open for as long as the bytes are used.
    unsafe fn bytes(&self) -> &T {
        // SAFETY: it was filled before it was put into the tree (release and acquire), and is
        // filled again after this section has ended.
        unsafe { &*self.bytes.get() }
    }
}

/// What all cores see.
struct Shared<T> {
    /// Each a box of one, or of none where one was given back.
    frames: Vec<Box<[Frame<T>]>>,
    tree: Tree,
    /// One for each core, which it alone writes.
    readers: Vec<Reader>,
    /// For each core the frames and the nodes of its own that others took out, two words.
    home: Vec<Line>,
}

/// A core's part of the blocks. It alone calls it; to another thread it may move.
pub struct Local<T> {
    shared: Arc<Shared<T>>,
    core: usize,
    blank: fn() -> T,
    /// Frames in its hands, and those that it took out of the tree.
    free: Vec<FrameId>,
    retired: Vec<FrameId>,
    nodes: Nodes,
    /// Places of frames that were given back.
    holes: Vec<u32>,
    not_sync: PhantomData<Cell<()>>,
}

/// A read section: what is found in it stays as it is until it is dropped.
pub struct Section<'a, T> {
    shared: &'a Shared<T>,
    _open: lock::Section<'a>,
}

/// There is no memory for one more frame, or the cores that share cannot have one more. Remedy:
/// remove something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// No frame or node of this core is free, or the key is none of the tree's. Remedy: grow, or remove
/// something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The parts of so many cores, with so many frames each, for keys below `keys`. `blank` makes what
/// is in a frame that was never filled.
///
/// # Errors
/// [`NoMemory`].
pub fn locals<T>(cores: usize, keys: u64, frames_each: usize, blank: fn() -> T) -> Result<Vec<Local<T>>, NoMemory> {
    let mut shared = Shared {
        frames: Vec::new(),
        tree: Tree::new(keys),
        readers: (0..cores).map(|_| Reader::new()).collect(),
        home: (0..cores).map(|_| Line::new()).collect(),
    };
    let mut parts = Vec::new();
    for core in 0..cores {
        let mut free = Vec::new();
        let mut nodes = Nodes::default();
        for _ in 0..frames_each {
            free.push(shared.add_frame(core, blank, None)?);
            shared.add_nodes(core, &mut nodes, shared.tree.depth() * free.len())?;
        }
        parts.push((free, nodes));
    }
    let shared = Arc::new(shared);
    let parts = parts.into_iter().enumerate();
    Ok(parts.map(|(core, (free, nodes))| Local::new(shared.clone(), core, blank, free, nodes)).collect())
}

impl<T> Shared<T> {
    fn frame(&self, id: FrameId) -> &Frame<T> {
        &self.frames[id.index()][0]
    }

    /// Adds a frame, at the place of one that was given back if there is any.
    fn add_frame(&mut self, home: usize, blank: fn() -> T, hole: Option<u32>) -> Result<FrameId, NoMemory> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).map_err(|_| NoMemory)?;
        one.push(Frame::new(home, blank()));
        if let Some(hole) = hole {
            self.frames[hole as usize] = one.into_boxed_slice();
            return Ok(FrameId(hole));
        }
        let id = u32::try_from(self.frames.len()).map_err(|_| NoMemory)?;
        self.frames.try_reserve(1).map_err(|_| NoMemory)?;
        self.frames.push(one.into_boxed_slice());
        Ok(FrameId(id))
    }

    /// Adds nodes until so many are free.
    fn add_nodes(&mut self, home: usize, nodes: &mut Nodes, wanted: usize) -> Result<(), NoMemory> {
        while nodes.free.len() < wanted {
            let id = u32::try_from(self.tree.nodes.len()).map_err(|_| NoMemory)?;
            let mut one = Vec::new();
            one.try_reserve_exact(1).map_err(|_| NoMemory)?;
            self.tree.nodes.try_reserve(1).map_err(|_| NoMemory)?;
            one.push(Node::new(home));
            self.tree.nodes.push(one.into_boxed_slice());
            nodes.free.push(id);
        }
        Ok(())
    }

    fn spare(&self, core: usize) -> Spare<'_> {
        Spare(&self.home[core].0[0])
    }

    fn spare_nodes(&self, core: usize) -> Spare<'_> {
        Spare(&self.home[core].0[1])
    }
}

impl<T> Memory for Shared<T> {
    fn line(&self, place: LineIndex) -> &Line {
        &self.frames[place as usize - 1][0].line
    }
}

impl<T> Section<'_, T> {
    /// The block of a key, and its frame.
    pub fn get(&self, key: u64) -> Option<(FrameId, &T)> {
        let word = self.shared.tree.find(key)?;
        // Acquire: the frame was filled before it was put there.
        let id = match word.load(Ordering::Acquire) {
            0 | SEALED => return None,
            named => FrameId((named - 1) as u32),
        };
        // SAFETY: it was found in the tree in this section, which the bytes do not outlive.
        Some((id, unsafe { self.shared.frame(id).bytes() }))
    }
}

impl<T> Local<T> {
    fn new(shared: Arc<Shared<T>>, core: usize, blank: fn() -> T, free: Vec<FrameId>, nodes: Nodes) -> Local<T> {
        let (retired, holes) = (Vec::new(), Vec::new());
        Local { shared, core, blank, free, retired, nodes, holes, not_sync: PhantomData }
    }

    /// Begins a read section; none of this core's is open.
    pub fn read(&self) -> Section<'_, T> {
        Section { shared: &self.shared, _open: self.shared.readers[self.core].enter() }
    }

    /// What a frame is of, while it is in the tree. Others may take it out at any time.
    pub fn key_of(&self, id: FrameId) -> Option<u64> {
        self.shared.frames.get(id.index())?.first()?.key()
    }

    /// Places of frames: ids have smaller numbers.
    pub fn places(&self) -> usize {
        self.shared.frames.len()
    }

    /// The frame at a place, if there is one.
    pub fn at(&self, place: usize) -> Option<FrameId> {
        let is_there = self.shared.frames.get(place).is_some_and(|frame| !frame.is_empty());
        is_there.then_some(FrameId(place as u32))
    }

    /// Has one frame more.
    ///
    /// # Errors
    /// [`NoMemory`]; also if it is not the only core.
    pub fn grow(&mut self) -> Result<(), NoMemory> {
        let shared = Arc::get_mut(&mut self.shared).ok_or(NoMemory)?;
        self.free.try_reserve(1).map_err(|_| NoMemory)?;
        let id = shared.add_frame(self.core, self.blank, self.holes.last().copied())?;
        self.holes.pop_if(|hole| *hole == id.0);
        self.free.push(id);
        Ok(())
    }

    /// Gives back the memory of a frame that is free; whether there was one. Not for several cores.
    pub fn shrink<R: Relax>(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim::<R>();
        }
        let Some(shared) = Arc::get_mut(&mut self.shared) else { return false };
        let Some(id) = self.free.pop() else { return false };
        shared.frames[id.index()] = Box::default();
        self.holes.push(id.0);
        true
    }

    /// Puts a block into a frame of this core, and that into the tree, in the place of what was
    /// there.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn insert<R: Relax>(&mut self, key: u64, fill: impl FnOnce(&mut T)) -> Result<FrameId, NoRoom> {
        let id = self.take::<R>(key)?;
        // SAFETY: it was on this core's list of free ones, which no other core sees.
        unsafe { self.shared.frame(id).fill(fill) };
        self.publish::<R>(key, id, |_| true).inspect_err(|_| self.put_back(id)).map(|_| id)
    }

    /// Changes a block: what there is is copied into a frame of this core, which `change` changes.
    /// False if there is no such block. Called again if another core was faster.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn change<R: Relax>(&mut self, key: u64, mut change: impl FnMut(&T, &mut T)) -> Result<bool, NoRoom> {
        let id = self.take::<R>(key)?;
        loop {
            let old = {
                let section = self.read();
                let Some((old, bytes)) = section.get(key) else { break };
                // SAFETY: as for `insert`; `old` is another frame, for that one is in the tree.
                unsafe { self.shared.frame(id).fill(|new| change(bytes, new)) };
                old
            };
            let found = self.publish::<R>(key, id, |word| word == u64::from(old.0) + 1);
            if found.inspect_err(|_| self.put_back(id))? {
                return Ok(true);
            }
        }
        self.put_back(id);
        Ok(false)
    }

    /// Takes a block out; whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        let section = walk(&self.shared, self.core);
        let Some(word) = self.shared.tree.find(key) else { return false };
        let removed =
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |named| (!matches!(named, 0 | SEALED)).then_some(0));
        let Ok(named) = removed else { return false };
        self.shared.tree.prune(key, &mut self.nodes);
        drop(section);
        self.retire(named);
        true
    }

    /// Has what was taken out used again, when every section that is open now has ended.
    pub fn reclaim<R: Relax>(&mut self) {
        if self.retired.is_empty() && self.nodes.retired.is_empty() {
            return;
        }
        Reader::wait_for_all::<R>(self.shared.readers.iter());
        for id in self.retired.drain(..) {
            let home = self.shared.frame(id).home();
            if home == self.core {
                self.free.push(id);
            } else {
                self.shared.spare(home).give(&*self.shared, u64::from(id.0) + 1);
            }
        }
        self.shared.tree.reuse(&mut self.nodes, self.core, |core| self.shared.spare_nodes(core));
    }

    /// Frames that are free, as far as this core knows.
    pub fn free(&self) -> usize {
        self.free.len() + self.retired.len()
    }

    /// A frame of this core's, and nodes for a key.
    fn take<R: Relax>(&mut self, key: u64) -> Result<FrameId, NoRoom> {
        if !self.shared.tree.has(key) {
            return Err(NoRoom);
        }
        let wanted = self.shared.tree.depth();
        if self.nodes.free.len() < wanted
            && let Some(shared) = Arc::get_mut(&mut self.shared)
        {
            shared.add_nodes(self.core, &mut self.nodes, wanted).map_err(|_| NoRoom)?;
        }
        if self.free.is_empty() || self.nodes.free.len() < wanted {
            while let Some(place) = self.shared.spare(self.core).take(&*self.shared) {
                self.free.push(FrameId((place - 1) as u32));
            }
            while let Some(place) = self.shared.spare_nodes(self.core).take(&self.shared.tree) {
                self.nodes.free.push((place - 1) as u32);
            }
        }
        if self.free.is_empty() || self.nodes.free.len() < wanted {
            self.reclaim::<R>();
        }
        self.free.pop().ok_or(NoRoom)
    }

    /// A frame that nobody has seen is free again.
    fn put_back(&mut self, id: FrameId) {
        self.shared.frame(id).set_key(None);
        self.free.push(id);
    }

    /// Names a filled frame in the tree if `may` replaces what is there; whether it did.
    fn publish<R: Relax>(&mut self, key: u64, id: FrameId, may: impl Fn(u64) -> bool) -> Result<bool, NoRoom> {
        let shared = &self.shared;
        let section = walk(shared, self.core);
        let mut relax = R::default();
        shared.frame(id).set_key(Some(key));
        let replaced = loop {
            let word = match shared.tree.make(key, &mut self.nodes) {
                Ok(word) => word,
                Err(Stop::NoNode) => return Err(NoRoom),
                Err(Stop::Sealed) => {
                    relax.relax();
                    continue;
                }
            };
            // Release: it is filled before it is seen.
            let next = |named| (named != SEALED && may(named)).then_some(u64::from(id.0) + 1);
            match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
                Ok(named) => break named,
                Err(SEALED) => relax.relax(),
                Err(_) => return Ok(false),
            }
        };
        drop(section);
        self.retire(replaced);
        Ok(true)
    }

    fn retire(&mut self, named: u64) {
        if named != 0 {
            let id = FrameId((named - 1) as u32);
            self.shared.frame(id).set_key(None);
            self.retired.push(id);
        }
    }
}

/// A section around changes of the tree: nodes on the way are not used again.
fn walk<T>(shared: &Shared<T>, core: usize) -> lock::Section<'_> {
    shared.readers[core].enter()
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Local {{ core: {}, free: {}, retired: {} }}", self.core, self.free.len(), self.retired.len())
    }
}
