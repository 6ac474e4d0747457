//! User-level threads of one execution context: the kernel knows one context, its program many
//! threads (Barrelfish section 4.5, scheduler activations).
//!
//! [`Threads::run`] runs threads until all have ended or none can go on; which is next a [`Policy`]
//! says, which every program may write for itself. Switches between threads that wait for each
//! other happen in user mode. The kernel tells the rest by upcalls: the end of a slice, so that a
//! thread that computes does not keep the others waiting, and faults, which end the thread, or are
//! mended by the program and tried again.
//!
//!   thread A            hub (the stack of `run`)        kernel
//!   yield_now ------->  policy: B
//!                       B's registers -------------->   (ContextResume, if B was interrupted)
//!   B computes                                          slice ends: registers to the control page,
//!                       upcall: B is ready again   <--  in_proxy = 1, entry
//!                       policy: A
//!
//! Invariants: while the hub runs, or a thread is inside a function of this room, `in_proxy` of the
//! control page is set, so that nothing interrupts it; a thread that does not run has its registers
//! either on its own stack or, if it was interrupted, in its table entry. A program has at most one
//! [`Threads`] running. Deliberately unknown here: what threads do, notifications, other cores.
#![no_std]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

#[cfg(target_os = "none")]
#[path = "platform_bare.rs"]
mod platform;
#[cfg(not(target_os = "none"))]
#[path = "platform_host.rs"]
mod platform;
mod policy;
#[cfg(target_os = "none")]
#[path = "running_bare.rs"]
mod running;
#[cfg(not(target_os = "none"))]
#[path = "running_host.rs"]
mod running;
mod switch;
mod table;
#[cfg(all(test, not(target_os = "none")))]
mod tests;
mod threads;

pub use policy::{Policy, RoundRobin};
pub use table::{Outcome, Refused, ThreadId};
pub use threads::{Answer, Ended, Entry, Threads, block, current, join, spawn, undisturbed, wake, yield_now};
