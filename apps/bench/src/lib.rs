//! Measures the system from inside, one row a line on the log: `bench: NAME VALUE ns`; `./pelago
//! bench` collects them.
//!
//! The same program is two echo servers, `echo-near` on the first core and `echo-far` on the
//! second, and the client `bench`; the name on its start page says which it is
//! (`system/bench.toml`).
//!
//! Around each stretch stand the marks of `lib/mark`, for the emulator's plugin, which counts
//! instructions; the row `known-loop` shows whether it does. Deliberately unknown here: what the
//! figures should be.
#![no_std]

extern crate alloc;

pub mod calls;
pub mod echo;
pub mod faults;
pub mod gang;
pub mod layouts;
pub mod load;
pub mod nova;
mod parts;
pub mod ping;
pub mod portal;
pub mod revoke;
pub mod sample;
pub mod signals;
pub mod spaces;
pub mod threads;
