//! What goes in and out of a node.

use crate::ids::{CapabilityId, Extent, NodeId, ObjectId, OperationId, RequestId, Slot, Stamp};
use crate::table::Capability;
use abi::{ObjectType, Rights};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A local caller asks; answered by exactly one [`Effect::Reply`].
    Call(RequestId, Call),
    /// From another node. Channels are first in, first out and lose nothing while both ends live.
    Message(NodeId, Envelope),
    /// The next change of who lives: a core was started. Changes are numbered one after another,
    /// the same for all.
    Up(u64, NodeId),
    /// The next change of who lives: a core was stopped. It is known never to act again before
    /// anyone is told.
    Down(u64, NodeId),
    /// The time asked for with `Node::wake_at_ns` has come.
    Timer,
}

/// What a node wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// To another node.
    Send(NodeId, Envelope),
    /// The answer to a local caller.
    Reply(RequestId, Result<Answer, Refusal>),
    /// Take hardware entries and TLB entries of the segment that allow more than this off this
    /// core, before the effects after it.
    Invalidate(ObjectId, Rights),
    /// This node was waited for longer than [`crate::SUSPECT_NS`]: find out whether it lives, and
    /// stop it if it does not answer.
    Suspect(NodeId),
}

/// What local callers ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Another capability for the same object, with equal or fewer rights.
    Copy {
        /// From here.
        slot: Slot,
        /// With these.
        rights: Rights,
    },
    /// Turns Ram into `count` objects of `pages` each. Right: WRITE. What remains of the Ram lies
    /// idle until they are all gone.
    Retype {
        /// The Ram.
        slot: Slot,
        /// What of.
        kind: ObjectType,
        /// Size of each.
        pages: u64,
        /// How many.
        count: u32,
    },
    /// Empties a slot. The object goes with its last capability.
    Delete {
        /// This one.
        slot: Slot,
    },
    /// Deletes everything derived from the capability, on all cores; the capability stays.
    Revoke {
        /// This one.
        slot: Slot,
    },
    /// Gives a capability to another core. Right: GRANT.
    Transfer {
        /// This one.
        slot: Slot,
        /// To whom.
        to: u16,
        /// With these, equal or fewer.
        rights: Rights,
        /// Keep none. A capability under way to a core that stops goes with it.
        moved: bool,
    },
    /// Lets this core's tables hold the segment's pages. Rights: those asked for.
    Touch {
        /// The segment.
        slot: Slot,
        /// READ, or READ and WRITE.
        rights: Rights,
    },
    /// Narrows the translations of a segment, on all cores, that were there when it was asked for.
    /// Right: WRITE.
    Invalidate {
        /// The segment.
        slot: Slot,
        /// What they may keep; none to unmap.
        keep: Rights,
    },
}

/// What a call gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Done.
    Done,
    /// New capabilities are here.
    Slots(Vec<Slot>),
}

/// Why a call was refused. It changed nothing that its caller could see, but for
/// [`Refusal::Stopped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The slot is empty.
    BadSlot,
    /// The object is of another type than the call needs.
    WrongType,
    /// The capability lacks a right the call needs.
    NoRights,
    /// A number out of range, a core's own Ram that is to be deleted or moved, or a type that is
    /// not made out of Ram.
    BadArgument,
    /// The Ram has been retyped already. Remedy: delete or revoke what was made out of it.
    HasDescendants,
    /// The lineage is at its limit. Remedy: copy from a capability nearer to the root.
    TooDeep,
    /// The table is full, here or where a capability was to go.
    NoSlot,
    /// An operation under way concerns the same object or its memory. Remedy: ask again later.
    Busy,
    /// The object's home stopped, and the object with it.
    Gone,
    /// The other core is stopped, or did so before it answered. A capability that was to be moved
    /// there went with it.
    Stopped,
    /// Between nodes only: a capability of the object exists.
    InUse,
}

/// A message with the sender's view of who lives. The receiver looks at it only when it has come as
/// far, so that nobody is asked for a vote by, or hands a capability to, someone it never heard of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The number of the last change the sender was told.
    pub view: u64,
    /// What it says.
    pub message: Message,
}

/// What two-phase commit decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Retype the Ram; refused by a node that knows of something made out of it.
    Retype {
        /// The Ram's depth.
        depth: u8,
        /// The capability it is retyped through.
        capability: CapabilityId,
    },
    /// Delete what is derived from the capability.
    Revoke {
        /// Depth of its object.
        depth: u8,
        /// The capability.
        capability: CapabilityId,
    },
    /// Destroy an object whose home holds no capability of it; refused by a node that does.
    Reclaim {
        /// The object.
        object: ObjectId,
    },
}

/// What nodes say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// First phase: lock the extent and say whether the claim may be carried out.
    Prepare {
        /// Which operation.
        operation: OperationId,
        /// Its place in the global order.
        stamp: Stamp,
        /// Every operation of this coordinator with a smaller number is finished everywhere.
        settled: u64,
        /// What to lock.
        extent: Extent,
        /// What for.
        claim: Claim,
    },
    /// Yes, and whether something related remains at the voter afterwards; or why not.
    Vote(OperationId, Result<bool, Refusal>),
    /// Second phase: carry it out or drop it, and unlock.
    Decide(OperationId, bool),
    /// It has been carried out here.
    Done(OperationId),
    /// A capability, with a number of the sender.
    Transfer {
        /// Comes back in the answer.
        number: u64,
        /// What is given.
        capability: Capability,
    },
    /// Whether it was taken.
    Transferred(u64, Result<(), Refusal>),
    /// To an object's home: the sender's last capability of it is deleted; `true` if it was the
    /// last anywhere.
    Dropped(ObjectId, bool),
    /// One phase: downgrade translations of the segment, then answer.
    Invalidate(u64, ObjectId, Rights),
    /// Done.
    Invalidated(u64),
    /// After a death, to the lowest living node: of which dead nodes the sender still holds locks,
    /// and which operations of dead nodes it carried out.
    Flush {
        /// The change that told of the death.
        view: u64,
        /// Dead coordinators whose operations are open here.
        unresolved: BTreeSet<NodeId>,
        /// Carried out here.
        committed: BTreeSet<OperationId>,
    },
    /// What becomes of the operations of dead nodes: those that someone carried out are carried out
    /// by all, the others dropped.
    Resolve {
        /// The change that told of the death.
        view: u64,
        /// Of these nodes.
        dead: BTreeSet<NodeId>,
        /// These are carried out.
        committed: BTreeSet<OperationId>,
    },
}
