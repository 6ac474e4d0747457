//! What every component starts with: entry, start page, heap, executor, timers, log, panic.
//!
//! A component is one `async fn` that gets a [`Start`] and runs to the end of the component:
//!
//! ```
//! # #![allow(missing_docs)]
//! # extern crate alloc;
//! use alloc::rc::Rc;
//! use contracts::memory::{MemoryError, MemoryServer, NAME, serve_memory};
//! use runtime::{Peer, Start};
//!
//! struct Service;
//!
//! // One method for each operation; each request is a task of its own, so it may wait.
//! impl MemoryServer for Service {
//!     async fn prepare(
//!         &self,
//!         peer: &Peer,
//!         core: u32,
//!         wanted: u64,
//!         _limit: u64,
//!     ) -> Result<u64, MemoryError> {
//!         runtime::log!("{} asks for {wanted} pages on core {core}", peer.name());
//!         Err(MemoryError::NoMemory)
//!     }
//!     async fn usage(&self, _peer: &Peer, _core: u32) -> Result<(u64, u64), MemoryError> {
//!         Err(MemoryError::NoCore)
//!     }
//! }
//!
//! async fn component(start: Start) {
//!     let service = Rc::new(Service);
//!     let mut incoming = start.incoming(NAME);
//!     loop {
//!         let channel = incoming.next().await;
//!         runtime::spawn(serve_memory(service.clone(), channel));
//!     }
//! }
//!
//! runtime::main!(component);
//! ```
//!
//! The file begins with `#![cfg_attr(target_os = "none", no_std, no_main)]`, and `build.rs` is `fn
//! main() { pelago_link::component(); }`.
//!
//! Invariants: one thread, no vector registers, no thread-local storage; on a host everything but
//! entry, heap and panic exists too (see [`testing`]). Deliberately unknown here: any server.
#![no_std]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

mod backoff;
#[cfg(any(test, target_os = "none"))]
mod classes;
mod companion;
mod endpoint;
#[cfg(target_os = "none")]
mod heap;
mod log_limit;
mod map;
#[cfg(target_os = "none")]
mod panic;
#[cfg(target_os = "none")]
#[path = "platform_bare.rs"]
mod platform;
#[cfg(not(target_os = "none"))]
#[path = "platform_host.rs"]
mod platform;
#[cfg_attr(not(all(target_os = "none", target_arch = "x86_64")), path = "random_host.rs")]
mod random;
mod semaphore;
mod start;
#[cfg(not(target_os = "none"))]
pub mod testing;
mod time;
mod watch;
mod work;

pub use backoff::Backoff;
pub use channel::{Bulk, Clients, Holders, IN_FLIGHT, Peer};
pub use companion::{Caller, Companion, Relay, Serve, Turn, Turner, Vectors, Waiter, Worker};
pub use endpoint::{Incoming, inject_fault};
pub use executor::{
    TaskId, abort, begin, is_at_rest, is_due, notified, reserve, sleep_until, spawn, take_in_all, yield_now,
};
pub use log_limit::LogLimit;
pub use map::map_segment;
pub use platform::{log_line, now_ns};
pub use random::fill_random;
pub use semaphore::{Gate, Semaphore, semaphore};
pub use start::{Calls, Device, Page, Program, Region, Start, WireError};
pub use time::{TimedOut, realtime_moment, realtime_ns, sleep, timeout};
pub use watch::Watch;
pub use work::work;

#[cfg(target_os = "none")]
pub use heap::heap_segment;
#[cfg(target_os = "none")]
pub use platform::enter;

/// Badge bits that no monitor gives to channels: for interrupts and other notifications of the
/// component's own.
pub const OWN_BITS: core::ops::Range<u32> = 56..64;

/// Runs the component until `future` is done. Not to be called from inside a task.
pub fn block_on<F: Future>(future: F) -> F::Output {
    executor::block_on(&platform::Machine, future)
}

/// Handles all there is to handle and has all peers ring from now on, without sleeping: before a
/// component does something else until a notification comes. `looks`: one may have come already.
pub fn rest(looks: bool) {
    executor::rest(&platform::Machine, looks);
}

/// Writes a line to the log, with the component's name in front.
#[macro_export]
macro_rules! log {
    ($($text:tt)*) => { $crate::log_line(::core::format_args!($($text)*)) };
}

/// Makes `$component`, an `async fn(Start)`, the program. On a host the program only says where it
/// belongs.
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! main {
    ($component:path) => {
        fn main() {
            // Keeps the component type-checked and its code used.
            let _component = $component;
            $crate::testing::refuse_to_run();
        }
    };
}
