//! A core's part: its frames, its read sections, and what it changes. All unsafe code of this
//! library is here.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::marker::PhantomData;
#[cfg(not(loom))]
use core::ptr::NonNull;

use lock::{Kind, Line, LineIndex, Lock, Memory, Ordering, Reader, Relax, Spare};

use crate::places::Places;
use crate::tree::{self, Node, Nodes, SEALED, Stop, Tree};

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
/// The word of the lock of an allocator of all; its counts are the second and third.
const LOCK: usize = 4;

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
    /// One of the first core's.
    fn new(bytes: T) -> Frame<T> {
        Frame { line: Line::new(), bytes: UnsafeCell::new(bytes) }
    }

    /// Whose it is. Nobody has seen it.
    fn set_home(&self, home: usize) {
        self.line.0[HOME].store(home as u64, Ordering::Relaxed);
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

/// Whose frames a core fills.
pub trait Allocator: 'static {
    /// Those of all, under a lock, instead of its own, which come back to it.
    const IS_COMMON: bool;
}

/// Its own.
pub struct OfEachCore;

/// Those of all: what the other is compared with.
pub struct OfAll;

impl Allocator for OfEachCore {
    const IS_COMMON: bool = false;
}

impl Allocator for OfAll {
    const IS_COMMON: bool = true;
}

/// How many there are of what. All cores name the same.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Cores, each with a part.
    pub cores: usize,
    /// Keys are below it.
    pub keys: u64,
    /// Frames that each core brings.
    pub frames_each: usize,
}

impl Shape {
    fn nodes_each(&self) -> usize {
        tree::depth(self.keys) * self.frames_each
    }

    /// Bytes of memory for all of it, in whole cache lines.
    pub fn bytes<T>(&self) -> usize {
        let words = self.cores * (size_of::<Reader>() + size_of::<Line>());
        let nodes = 1 + self.cores * self.nodes_each();
        words + nodes * size_of::<Node>() + self.cores * self.frames_each * size_of::<Frame<T>>()
    }
}

/// What all cores see.
struct Shared<T: 'static, A> {
    frames: Places<Frame<T>>,
    tree: Tree,
    /// One for each core, which it alone writes.
    readers: Places<Reader>,
    /// For each core the frames and the nodes of its own that others took out, two words. With one
    /// allocator for all the first has everybody's, and its lock.
    home: Places<Line>,
    allocator: PhantomData<fn() -> A>,
}

/// A core's part of the blocks. It alone calls it; to another thread it may move.
pub struct Local<T: 'static, A = OfEachCore> {
    shared: Arc<Shared<T, A>>,
    core: usize,
    /// `None`: there are as many as there are.
    blank: Option<fn() -> T>,
    /// Frames in its hands, and those that it took out of the tree.
    free: Vec<FrameId>,
    retired: Vec<FrameId>,
    nodes: Nodes,
    /// Places of frames that were given back.
    holes: Vec<u32>,
    not_sync: PhantomData<Cell<()>>,
}

/// A read section: what is found in it stays as it is until it is dropped.
pub struct Section<'a, T: 'static, A = OfEachCore> {
    shared: &'a Shared<T, A>,
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
        frames: Places::of(core::iter::empty()),
        tree: Tree::new(keys, Places::of([Node::new()].into_iter())),
        readers: Places::of((0..cores).map(|_| Reader::new())),
        home: Places::of((0..cores).map(|_| Line::new())),
        allocator: PhantomData,
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
    Ok(parts.map(|(core, (free, nodes))| Local::new(shared.clone(), core, Some(blank), free, nodes)).collect())
}

/// A core's part of blocks in memory that several domains have, each of them one core's. It neither
/// grows nor shrinks.
///
/// # Safety
/// `memory` begins a cache line and has [`Shape::bytes`] bytes, all zero when the first core calls
/// this. They are mapped for ever, and used by nothing but one part for each core, all of the same
/// shape. A `T` may be all zero.
///
/// # Errors
/// [`NoMemory`], for lists of this core.
#[cfg(not(loom))]
pub unsafe fn local_in<T, A: Allocator>(
    memory: NonNull<u8>,
    shape: Shape,
    core: usize,
) -> Result<Local<T, A>, NoMemory> {
    const { assert!(align_of::<Frame<T>>() == align_of::<Line>()) };
    let (frames_each, nodes_each) = (shape.frames_each, shape.nodes_each());
    let readers = memory.cast::<Reader>();
    // SAFETY: these follow each other in memory that is there for ever; all begin with whole lines
    // of atomic words, of which zero is one, and frames are read and filled as they may be.
    let (readers, home, nodes, frames) = unsafe {
        let home = readers.add(shape.cores).cast::<Line>();
        let nodes = home.add(shape.cores).cast::<Node>();
        let frames = nodes.add(1 + shape.cores * nodes_each).cast::<Frame<T>>();
        (
            NonNull::slice_from_raw_parts(readers, shape.cores).as_ref(),
            NonNull::slice_from_raw_parts(home, shape.cores).as_ref(),
            NonNull::slice_from_raw_parts(nodes, 1 + shape.cores * nodes_each).as_ref(),
            NonNull::slice_from_raw_parts(frames, shape.cores * frames_each).as_ref(),
        )
    };
    let shared = Shared {
        frames: Places::Given(frames),
        tree: Tree::new(shape.keys, Places::Given(nodes)),
        readers: Places::Given(readers),
        home: Places::Given(home),
        allocator: PhantomData,
    };
    let own = |first: usize, each: usize| (first + core * each..first + (core + 1) * each).map(|place| place as u32);
    let (mut free, mut list) = (Vec::new(), Nodes::default());
    free.try_reserve(frames.len()).map_err(|_| NoMemory)?;
    list.free.try_reserve(nodes.len()).map_err(|_| NoMemory)?;
    free.extend(own(0, frames_each).map(FrameId));
    list.free.extend(own(1, nodes_each));
    let to = shared.list(core);
    free.iter().for_each(|id| shared.frame(*id).set_home(to));
    list.free.iter().for_each(|id| shared.tree.nodes.at(*id as usize).set_home(to));
    let mut local = Local::new(Arc::new(shared), core, None, free, list);
    local.bring();
    Ok(local)
}

impl<T, A: Allocator> Shared<T, A> {
    fn frame(&self, id: FrameId) -> &Frame<T> {
        self.frames.at(id.index())
    }

    /// Adds a frame, at the place of one that was given back if there is any.
    fn add_frame(&mut self, home: usize, blank: fn() -> T, hole: Option<u32>) -> Result<FrameId, NoMemory> {
        let id = FrameId(self.frames.add(Frame::new(blank()), hole)?);
        self.frame(id).set_home(home);
        Ok(id)
    }

    /// Adds nodes until so many are free.
    fn add_nodes(&mut self, home: usize, nodes: &mut Nodes, wanted: usize) -> Result<(), NoMemory> {
        while nodes.free.len() < wanted {
            let id = self.tree.nodes.add(Node::new(), None)?;
            self.tree.nodes.at(id as usize).set_home(home);
            nodes.free.push(id);
        }
        Ok(())
    }

    /// The list that frames and nodes of a core come home to.
    fn list(&self, core: usize) -> usize {
        if A::IS_COMMON { 0 } else { core }
    }

    fn spare(&self, core: usize) -> Spare<'_> {
        Spare(&self.home.at(core).0[0])
    }

    fn spare_nodes(&self, core: usize) -> Spare<'_> {
        Spare(&self.home.at(core).0[1])
    }
}

impl<T, A> Memory for Shared<T, A> {
    fn line(&self, place: LineIndex) -> &Line {
        &self.frames.at(place as usize - 1).line
    }
}

impl<T, A: Allocator> Section<'_, T, A> {
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

impl<T, A: Allocator> Local<T, A> {
    fn new(
        shared: Arc<Shared<T, A>>,
        core: usize,
        blank: Option<fn() -> T>,
        free: Vec<FrameId>,
        nodes: Nodes,
    ) -> Local<T, A> {
        let (retired, holes) = (Vec::new(), Vec::new());
        Local { shared, core, blank, free, retired, nodes, holes, not_sync: PhantomData }
    }

    /// Begins a read section; none of this core's is open.
    pub fn read(&self) -> Section<'_, T, A> {
        Section { shared: &self.shared, _open: self.shared.readers.at(self.core).enter() }
    }

    /// What a frame is of, while it is in the tree. Others may take it out at any time.
    pub fn key_of(&self, id: FrameId) -> Option<u64> {
        self.shared.frames.get(id.index())?.key()
    }

    /// Places of frames: ids have smaller numbers.
    pub fn places(&self) -> usize {
        self.shared.frames.len()
    }

    /// The frame at a place, if there is one.
    pub fn at(&self, place: usize) -> Option<FrameId> {
        self.shared.frames.get(place).map(|_| FrameId(place as u32))
    }

    /// Has one frame more.
    ///
    /// # Errors
    /// [`NoMemory`]; also if it is not the only core.
    pub fn grow(&mut self) -> Result<(), NoMemory> {
        let (shared, blank) = (Arc::get_mut(&mut self.shared).ok_or(NoMemory)?, self.blank.ok_or(NoMemory)?);
        self.free.try_reserve(1).map_err(|_| NoMemory)?;
        let id = shared.add_frame(self.core, blank, self.holes.last().copied())?;
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
        let Ok(boxes) = shared.frames.boxes() else { return false };
        let Some(id) = self.free.pop() else { return false };
        boxes[id.index()] = Box::default();
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
        let here = (!A::IS_COMMON).then_some(self.core);
        for id in self.retired.drain(..) {
            let home = self.shared.frame(id).home();
            if here == Some(home) {
                self.free.push(id);
            } else {
                self.shared.spare(home).give(&*self.shared, u64::from(id.0) + 1);
            }
        }
        self.shared.tree.reuse(&mut self.nodes, here, |home| self.shared.spare_nodes(home));
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
        if self.blank.is_some()
            && let Some(shared) = Arc::get_mut(&mut self.shared)
        {
            shared.add_nodes(self.core, &mut self.nodes, wanted).map_err(|_| NoRoom)?;
        }
        let lacks = |local: &Local<T, A>| local.free.is_empty() || local.nodes.free.len() < wanted;
        if lacks(self) {
            self.collect::<R>(wanted);
        }
        if lacks(self) {
            self.reclaim::<R>();
        }
        if lacks(self) {
            self.collect::<R>(wanted);
        }
        self.free.pop().ok_or(NoRoom)
    }

    /// Takes what came home; of what is of all, a frame and so many nodes.
    fn collect<R: Relax>(&mut self, nodes: usize) {
        let shared = &*self.shared;
        let list = shared.list(self.core);
        let (frames, nodes) = if A::IS_COMMON { (1, nodes) } else { (usize::MAX, usize::MAX) };
        let line = shared.home.at(list);
        let lock = Lock::new(Kind::Spin, &line.0[LOCK], core::slice::from_ref(line));
        let _alone = A::IS_COMMON.then(|| lock.write::<R>(self.core));
        while self.free.len() < frames
            && let Some(place) = shared.spare(list).take(shared)
        {
            self.free.push(FrameId((place - 1) as u32));
        }
        while self.nodes.free.len() < nodes
            && let Some(place) = shared.spare_nodes(list).take(&shared.tree)
        {
            self.nodes.free.push((place - 1) as u32);
        }
    }

    /// What this core brings is everybody's, if that is how it is.
    #[cfg(not(loom))]
    fn bring(&mut self) {
        let shared = &*self.shared;
        if A::IS_COMMON {
            self.free.drain(..).for_each(|id| shared.spare(0).give(shared, u64::from(id.0) + 1));
            self.nodes.free.drain(..).for_each(|id| shared.spare_nodes(0).give(&shared.tree, u64::from(id) + 1));
        }
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
fn walk<T, A>(shared: &Shared<T, A>, core: usize) -> lock::Section<'_> {
    shared.readers.at(core).enter()
}

impl<T, A> fmt::Debug for Local<T, A> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Local {{ core: {}, free: {}, retired: {} }}", self.core, self.free.len(), self.retired.len())
    }
}

/// Parts as two domains have them, of two frames each.
#[cfg(test)]
#[cfg(not(loom))]
fn in_domains<A: Allocator>() -> [Local<u64, A>; 2] {
    let shape = Shape { cores: 2, keys: 1000, frames_each: 2 };
    let lines: Vec<Line> = (0..shape.bytes::<u64>() / size_of::<Line>()).map(|_| Line::new()).collect();
    let memory = NonNull::from(lines.leak()).cast();
    // SAFETY: so many bytes, zero, of which nobody else knows.
    [0, 1].map(|core| unsafe { local_in(memory, shape, core) }.unwrap())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
