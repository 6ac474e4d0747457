//! Servers under `cargo test`: the same executor and channels over plain memory, with virtual time.
//!
//! ```
//! use contracts::memory::{MemoryClient, MemoryError, MemoryServer, serve_memory};
//! use channel::CallError;
//! use std::rc::Rc;
//!
//! struct Nothing;
//! impl MemoryServer for Nothing {
//!     async fn prepare(
//!         &self,
//!         _: &runtime::Peer,
//!         _: u32,
//!         _: u64,
//!         _: u64,
//!     ) -> Result<u64, MemoryError> {
//!         Err(MemoryError::NoMemory)
//!     }
//!     async fn usage(&self, _: &runtime::Peer, core: u32) -> Result<(u64, u64), MemoryError> {
//!         Ok((core.into(), 7))
//!     }
//! }
//!
//! runtime::testing::run(async {
//!     let (client, server) = channel::loopback(channel::Layout::default());
//!     runtime::spawn(serve_memory(Rc::new(Nothing), server));
//!     let client = MemoryClient::new(client);
//!     assert_eq!(client.usage(3).await, Ok((3, 7)));
//!     assert_eq!(client.prepare(0, 1, 1).await, Err(CallError::Server(MemoryError::NoMemory)));
//! });
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;
use std::eprintln;

/// Runs a test to its end. Time jumps to the next timer when nothing is ready.
///
/// # Panics
/// If nothing can ever happen again before the future is done.
pub fn run<F: Future>(future: F) -> F::Output {
    crate::block_on(future)
}

/// As [`run`]; gives what was written to the log, too.
///
/// # Panics
/// As [`run`].
pub fn logged<F: Future>(future: F) -> (F::Output, Vec<String>) {
    crate::platform::keep_lines(true);
    let output = run(future);
    (output, crate::platform::keep_lines(false))
}

/// Runs a test to its end, as [`run`] does, and ends all tasks that it left: what they held is
/// dropped. For many runs one after the other.
///
/// # Panics
/// As [`run`].
pub fn run_and_end<F: Future>(future: F) -> F::Output {
    let output = run(future);
    executor::abort_all();
    output
}

/// What a component does when a host starts it.
pub fn refuse_to_run() {
    eprintln!("this program runs in Pelago only");
    std::process::exit(2);
}
