//! Channels: calls, replies and events of one contract over a region that two components share.
//!
//! A region is a header page, two rings (`ring`) and a bulk area. The monitor formats it, keeps it
//! when a side dies and raises its generation before that side's successor runs; both sides then
//! begin again from nothing, and the survivor learns of it as `PeerRestarted`. The two sides hold
//! no other common state.
//!
//! Invariants: the layout is read once and checked; everything else in the region may change at any
//! time and is decoded into a value or closes the channel. Every queue has a bound ([`CALLS_MAX`],
//! [`EVENTS_MAX`], [`COMPONENT_EVENTS_MAX`]). Each request is answered exactly once, by a reply or
//! `Cancelled`. Deliberately unknown here: contracts (their stubs are made by `contract`), who
//! wires channels.
#![no_std]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

mod beside;
mod body;
mod bulk;
mod call;
mod client;
mod doorbell;
mod holders;
mod link;
#[cfg(not(target_os = "none"))]
mod loopback;
mod memory;
mod server;
mod table;
#[cfg(test)]
mod testing;

pub use beside::{Beside, Listen};
pub use body::{decode, encode};
pub use bulk::{Bulk, BulkSpan, OutOfBounds};
pub use call::{Call, CallError, queued};
pub use client::{Client, ClientChannel};
pub use doorbell::Doorbell;
pub use holders::{Holders, IN_FLIGHT};
pub use link::{SendError, Wiring, client_id};
#[cfg(not(target_os = "none"))]
pub use loopback::{loopback, loopback_memory, loopback_wiring};
pub use memory::{BadRegion, Layout, Memory, Side};
pub use ring::{BODY_BYTES, Broken};
pub use server::{Clients, Dispatch, Peer, ServerChannel, Task};
pub use table::ClientEvent;

/// Most calls of one channel whose answers are outstanding.
pub const CALLS_MAX: usize = 256;
/// Most events that wait to be sent to one program.
pub const EVENTS_MAX: usize = 256;
/// Most events that wait to be sent to one component, or to be taken by a client.
pub const COMPONENT_EVENTS_MAX: usize = 2048;
/// The number of the event that stands for those that were lost; contracts count from 1.
pub(crate) const EVENTS_LOST: u16 = u16::MAX;
