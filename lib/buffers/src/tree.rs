//! The tree: from a block's number to the word that names its frame.
//!
//! A word is 0, a number that names a node or a frame, or [`SEALED`]. A node without words is
//! sealed word by word, taken out of its parent, and used again when no section is open that could
//! have found it. Who wants to put something where it is sealed begins again at the root; if a word
//! was not empty, the sealing is undone. So nothing is put into a node that is on its way out.

use alloc::vec::Vec;

use lock::{AtomicU64, Line, LineIndex, Memory, Ordering, Spare};

use crate::places::Places;

/// Words of a node. The model checker has small ones.
#[cfg(not(loom))]
const BITS: u32 = 6;
#[cfg(loom)]
const BITS: u32 = 1;
const WORDS: usize = 1 << BITS;

/// A word of a node that is on its way out.
pub(crate) const SEALED: u64 = u64::MAX;

/// The word of a node's line that says whose it is; the second is the link of `lock::Spare`.
const HOME: usize = 2;

/// Whole cache lines.
#[repr(C)]
pub(crate) struct Node {
    line: Line,
    words: [AtomicU64; WORDS],
}

impl Node {
    /// An empty one of the first core's.
    pub fn new() -> Node {
        Node { line: Line::new(), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Whose it is. Nobody has seen it.
    pub fn set_home(&self, home: usize) {
        self.line.0[HOME].store(home as u64, Ordering::Relaxed);
    }

    fn home(&self) -> usize {
        self.line.0[HOME].load(Ordering::Relaxed) as usize
    }

    /// The word of `key` at a level; 0 is the lowest.
    fn word(&self, key: u64, level: u32) -> &AtomicU64 {
        &self.words[(key >> (BITS * level)) as usize % WORDS]
    }

    /// Whether it is on its way out.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub fn is_sealed(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == SEALED)
    }

    fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Seals it, if it is empty.
    fn seal(&self) -> bool {
        for (at, word) in self.words.iter().enumerate() {
            if word.compare_exchange(0, SEALED, Ordering::Acquire, Ordering::Relaxed).is_err() {
                // What was sealed before this one is ours to give back.
                self.words[..at].iter().for_each(|word| word.store(0, Ordering::Release));
                return false;
            }
        }
        true
    }

    /// Nobody sees it: as it was at first.
    fn reset(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Nodes that a core has to put into the tree, and those that it took out.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub free: Vec<u32>,
    pub retired: Vec<u32>,
}

/// Why a word was not given.
pub(crate) enum Stop {
    /// No node is free.
    NoNode,
    /// A node on the way is sealed: begin again.
    Sealed,
}

impl Memory for Tree {
    fn line(&self, place: LineIndex) -> &Line {
        &self.node(place).line
    }
}

/// Levels of a tree of so many keys.
fn levels(keys: u64) -> u32 {
    let mut levels = 1;
    while 1u64.checked_shl(BITS * levels).is_some_and(|below| keys > below) {
        levels += 1;
    }
    levels
}

/// Nodes below the root on the way to one of so many keys.
pub(crate) fn depth(keys: u64) -> usize {
    levels(keys) as usize - 1
}

/// The tree of keys below a limit.
pub(crate) struct Tree {
    /// The first is the root.
    pub nodes: Places<Node>,
    levels: u32,
    keys: u64,
}

impl Tree {
    /// An empty one, of nodes that nobody has seen.
    pub fn new(keys: u64, nodes: Places<Node>) -> Tree {
        Tree { nodes, levels: levels(keys), keys }
    }

    /// Nodes below the root on the way to a key.
    pub fn depth(&self) -> usize {
        self.levels as usize - 1
    }

    fn root(&self) -> &Node {
        self.nodes.at(0)
    }

    pub fn has(&self, key: u64) -> bool {
        key < self.keys
    }

    fn node(&self, word: u64) -> &Node {
        self.nodes.at(word as usize - 1)
    }

    /// The word of a key, for as long as a section is open; `None` if there is none, or it is on
    /// its way out.
    pub fn find(&self, key: u64) -> Option<&AtomicU64> {
        self.has(key).then_some(())?;
        let mut node = self.root();
        for level in (1..self.levels).rev() {
            // Acquire: the node was empty, or what its words say, before it was linked.
            match node.word(key, level).load(Ordering::Acquire) {
                0 | SEALED => return None,
                next => node = self.node(next),
            }
        }
        Some(node.word(key, 0))
    }

    /// The word of a key, with nodes put there that are missing. A section is open.
    pub fn make(&self, key: u64, nodes: &mut Nodes) -> Result<&AtomicU64, Stop> {
        let mut node = self.root();
        for level in (1..self.levels).rev() {
            let word = node.word(key, level);
            let next = match word.load(Ordering::Acquire) {
                SEALED => return Err(Stop::Sealed),
                0 => self.put_node(word, nodes)?,
                next => next,
            };
            node = self.node(next);
        }
        Ok(node.word(key, 0))
    }

    /// Puts a node there, or finds the one that somebody else put.
    fn put_node(&self, word: &AtomicU64, nodes: &mut Nodes) -> Result<u64, Stop> {
        let fresh = *nodes.free.last().ok_or(Stop::NoNode)?;
        let named = u64::from(fresh) + 1;
        match word.compare_exchange(0, named, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                nodes.free.pop();
                Ok(named)
            }
            Err(SEALED) => Err(Stop::Sealed),
            Err(other) => Ok(other),
        }
    }

    /// Takes out the nodes on the way to a key that are empty. A section is open.
    pub fn prune(&self, key: u64, nodes: &mut Nodes) {
        for level in 1..self.levels {
            let mut parent = self.root();
            for above in (level + 1..self.levels).rev() {
                match parent.word(key, above).load(Ordering::Acquire) {
                    0 | SEALED => return,
                    next => parent = self.node(next),
                }
            }
            let word = parent.word(key, level);
            let named = word.load(Ordering::Acquire);
            if matches!(named, 0 | SEALED) || !self.node(named).is_empty() || !self.node(named).seal() {
                return;
            }
            // Who sealed it alone takes it out; its parent cannot be sealed while it is there.
            word.store(0, Ordering::Release);
            nodes.retired.push((named - 1) as u32);
        }
    }

    /// No section is open that could have found what a core took out: it is free, and goes home,
    /// which for those of `core` is here.
    pub fn reuse<'a>(&self, nodes: &mut Nodes, core: Option<usize>, spare: impl Fn(usize) -> Spare<'a>) {
        for id in nodes.retired.drain(..) {
            let node = self.nodes.at(id as usize);
            node.reset();
            if core == Some(node.home()) {
                nodes.free.push(id);
            } else {
                spare(node.home()).give(self, u64::from(id) + 1);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
