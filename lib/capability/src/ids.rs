//! Names that are never used twice, and runs of pages.
//!
//! A core that stops and is started again is a new [`NodeId`]: whatever its earlier life named is
//! gone, and nothing that is still on its way from that life can be mistaken for something new.

/// One life of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The core.
    pub core: u16,
    /// Counts its starts, from 1.
    pub life: u32,
}

/// An object: its home, and a number that home gives once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Where its record is.
    pub home: NodeId,
    /// Never used again.
    pub number: u64,
}

/// A capability. It keeps its id when it moves to another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId {
    /// Where it was made.
    pub node: NodeId,
    /// Never used again.
    pub number: u64,
}

impl CapabilityId {
    /// The capability for a core's own memory. The same in every life, so that memory handed out in
    /// an earlier life is still derived from it.
    pub const fn root(core: u16) -> CapabilityId {
        CapabilityId { node: NodeId { core, life: 0 }, number: 0 }
    }
}

/// An operation over several cores: who coordinates it, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// The coordinator.
    pub coordinator: NodeId,
    /// Never used again.
    pub number: u64,
}

/// An operation's place in the one global order: Lamport's clock first, then the coordinator.
/// Smaller is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Lamport's clock at the coordinator when it began.
    pub clock: u64,
    /// Tells equal clocks apart.
    pub coordinator: NodeId,
}

/// A slot of the core's Shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A local caller's request, named by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A run of physical pages, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Number of the first page.
    pub first: u64,
    /// How many.
    pub pages: u64,
}

impl Extent {
    /// First page after it.
    pub const fn end(self) -> u64 {
        self.first + self.pages
    }

    /// Is any page in both?
    pub const fn overlaps(self, other: Extent) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// Is every page of `other` here?
    pub const fn contains(self, other: Extent) -> bool {
        self.first <= other.first && other.end() <= self.end()
    }

    /// The `index`th of the pieces of `pages` each that it is cut into.
    pub const fn piece(self, index: u64, pages: u64) -> Extent {
        Extent { first: self.first + index * pages, pages }
    }
}
