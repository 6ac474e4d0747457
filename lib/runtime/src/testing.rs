//! Servers under `cargo test`: the same executor and channels over plain memory, with virtual time.
//!
//! ```
//! use contracts::endpoint::{EndpointClient, EndpointError, EndpointServer, Hurt, Wired, serve_endpoint};
//! use std::rc::Rc;
//!
//! struct Nothing;
//! impl EndpointServer for Nothing {
//!     async fn connect(&self, _peer: &runtime::Peer, _wired: Wired) -> Result<(), EndpointError> {
//!         Err(EndpointError::NotServed)
//!     }
//!     fn hurt(&self, _peer: &runtime::Peer, _how: Hurt) {}
//! }
//!
//! runtime::testing::run(async {
//!     let (client, server) = channel::loopback(channel::Layout::default());
//!     runtime::spawn(serve_endpoint(Rc::new(Nothing), server));
//!     let client = EndpointClient::new(client);
//!     assert_eq!(client.hurt(Hurt::Hang), Ok(()));
//! });
//! ```

use core::future::Future;
use std::eprintln;

/// Runs a test to its end. Time jumps to the next timer when nothing is ready.
///
/// # Panics
/// If nothing can ever happen again before the future is done.
pub fn run<F: Future>(future: F) -> F::Output {
    crate::block_on(future)
}

/// What a component does when a host starts it.
pub fn refuse_to_run() {
    eprintln!("this program runs in Pelago only");
    std::process::exit(2);
}
