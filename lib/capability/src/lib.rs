//! Capabilities over many cores: derivation, retype, revoke, transfer and invalidation.
//!
//! One [`Node`] is the part of a core's monitor and kernel that keeps capabilities. It is a step
//! machine: an [`Event`] and the time go in, [`Effect`]s come out, and nothing else is known of
//! clocks, channels or threads; so the same code can run on the metal, under a simulator with
//! thousands of nodes, and under a model checker that tries every order of events.
//!
//! How the cores agree:
//!
//! - **Alone.** A capability whose remote flag is clear is retyped, revoked and deleted without a
//!   message.
//! - **Two phases** (`commit.rs`) for retype, revoke and the end of an object whose capabilities
//!   may be elsewhere. Every living node locks the memory in question, waits for capabilities it
//!   has sent off to arrive, and votes. Operations on overlapping memory have one order, by
//!   [`Stamp`]: an older one waits for a younger that holds the lock, a younger one is refused with
//!   [`Refusal::Busy`]. So nothing waits in a circle and of several that collide one goes through.
//! - **One phase** (`invalidate.rs`) for taking away or narrowing translations.
//! - **Death** (`membership.rs`). A time-out only raises a suspicion; that a core is stopped is
//!   told by the node that stopped it, in one order to all. Operations that a dead coordinator left
//!   behind are carried out everywhere if anyone did, else dropped.
//!
//! What it deliberately does not know: which Share a slot belongs to, the contents of objects,
//! multicast trees, policy about who may have what.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod commit;
mod ids;
mod invalidate;
mod local;
mod lock;
mod membership;
mod message;
mod node;
mod protocol;
mod reclaim;
mod table;
mod transfer;

#[cfg(test)]
mod tests;

pub use ids::{CapabilityId, Extent, NodeId, ObjectId, OperationId, RequestId, Slot, Stamp};
pub use message::{Answer, Call, Claim, Effect, Envelope, Event, Message, Refusal};
pub use node::{Node, RETRY_NS, SUSPECT_NS};
pub use protocol::{Protocol, Sound, Step};
pub use table::{Capability, LINEAGE_MAX, Record, Table, Translation};
