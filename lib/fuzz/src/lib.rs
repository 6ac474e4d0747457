//! Kernel calls from a seed: numbers of every call and of none, arguments at random or as the call
//! wants them, most of them a mixture.
//!
//! Who makes the calls stands behind [`Surroundings`]: a caller in the kernel's host tests, or a
//! domain on the target, whose handles a [`Pool`] remembers by what calls gave back. A [`Tally`]
//! counts how calls ended. Deliberately unknown here: how a call is made, and what it should give.
#![no_std]
#![forbid(unsafe_code)]

mod generate;
mod pool;
mod random;
mod tally;

pub use generate::{Made, RARE, Surroundings, argument, next};
pub use pool::Pool;
pub use random::Random;
pub use tally::Tally;
