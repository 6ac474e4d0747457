//! The kernel's calls as typed functions, one per [`abi::Call`]; what each takes, gives and refuses
//! stands there.
//!
//! Invariants: a function here is one `syscall` and keeps no state. It is `unsafe` exactly when it
//! could pull memory or registers from under the caller's own code; whatever else goes wrong is an
//! [`Error`]. On a host every call is refused with `BadCall`, so that programs above can be tested
//! where there is no Pelago kernel. Deliberately unknown here: contracts, channels, policy.
#![no_std]

#[cfg(not(target_os = "none"))]
#[path = "enter_host.rs"]
mod enter;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
#[path = "enter_x86_64.rs"]
mod enter;

mod by_hand;
mod encode;
mod ring;
mod rows;

// These take the place of the row's function of the same name.
pub use by_hand::{
    context_resume, device_list, domain_alloc, domain_alloc_named, domain_exit, domain_state, log, log_of_machine,
    pcore_add_ring, pcore_add_word, portal_ring, power_off, ram_turns, segment_discard, segment_set_pages, share_alloc,
    share_pool_alloc,
};
pub use ring::CallRing;
pub use rows::*;

use abi::{Call, Error};

/// What a call gives back.
type Outcome<T> = Result<T, Error>;

/// A rendezvous request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Badge of the portal it came through.
    pub badge: u64,
    /// The caller's words.
    pub words: [u64; 4],
}

/// Makes a call and decodes RAX: RDI, RSI, RDX, R10, R8, R9. Arguments that the call lacks are
/// zero.
///
/// # Safety
/// The call must not take away or overwrite memory or registers that the caller's code relies on.
#[inline(always)]
unsafe fn call(call: Call, arguments: [u64; 6]) -> Outcome<[u64; 6]> {
    // SAFETY: passed on to the caller.
    let (status, words) = unsafe { enter::enter(call.number(), arguments) };
    match status {
        0 => Ok(words),
        code => Err(Error::from_code(code.wrapping_neg()).unwrap_or(Error::BadCall)),
    }
}
