//! IP: IPv4, ARP, ICMP echo and DHCP as one step machine.
//!
//! [`Ip`] takes what arrived, what TCP wants sent and the time, and fills an [`Output`] with what
//! to pass on; `main.rs` wires it to its two channels. Invariants: no input of a peer or of the
//! network panics it, every refused packet is counted under its own name ([`Counters`]), every
//! table is bounded; a packet's payload is never copied.
//!
//! After a crash its successor has the lease and the neighbours from a region ([`state`]), asks the
//! driver what it still sends, and TCP begins again. When the driver crashed, what it had not sent
//! is given to its successor.
//!
//! Deliberately unknown here: TCP's ports and states, devices, channels, clocks.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
pub mod counters;
pub mod dhcp;
pub mod engine;
pub mod neighbours;
mod receive;
pub mod state;

pub use address::Host;
pub use counters::Counters;
pub use engine::{Attached, Ip, Link, Output};
