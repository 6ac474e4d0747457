//! TCP and UDP: connections, listeners, endpoints and the descriptions that programs hold of them.
//!
//! [`Tcp`] is the protocol: packets and time in, packets and changes out, around the library
//! smoltcp (its limits are in `docs/network.md`), with UDP beside it in `datagrams.rs`. [`Sockets`]
//! adds what Linux programs know: descriptions, references, options, errors, the rules of closing.
//! `main.rs` wires both to channels.
//!
//! Invariants: no packet and no client panics it; a segment finds its connection by one look into a
//! map, and the library is only ever shown that one; every table has a named limit; no timer runs
//! unless something waits for it. After the card was reset every connection repeats
//! what is unacknowledged and acknowledges at once ([`Tcp::resume`]); otherwise `retransmission.rs`
//! says when a connection sends again.
//!
//! Deliberately unknown here: Ethernet, routes, files, errno.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod changes;
pub mod connection;
mod cork;
mod datagram_sockets;
pub mod datagrams;
pub mod engine;
mod isn;
pub mod listener;
mod options;
mod programs;
mod quiet;
pub mod record;
mod resume;
mod retransmission;
pub mod segment;
pub mod sockets;
mod time_wait;
mod traffic;
mod transfer;
pub mod wire;

pub use changes::Change;
pub use engine::{ConnectionId, Counters, Refused, Tcp};
pub use record::Record;
pub use sockets::{Ready, Sockets};
