//! What the process server knows, as pure state: the process table, and the descriptions that need
//! no device: pipes, event counters, timers, process handles and sockets within the machine.
//!
//! Invariants: no clock, no channel, no kernel call here. `serve.rs` and `service.rs` beside the
//! binary wire it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod futex_queues;
pub mod identity;
pub mod notices;
pub mod open;
pub mod pipe;
pub mod shared_memory;
pub mod sockets;
pub mod syslog;
pub mod table;
pub mod timer;
pub mod vfork;
pub mod waiters;
