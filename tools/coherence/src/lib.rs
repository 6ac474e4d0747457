//! What the emulator's plugin counts and models, without the emulator: pure, so that all of it is
//! tested on the host.
//!
//! [`Machine`] is private caches and a directory; [`Turns`] lets cores run in turns of modelled
//! time; [`Ledger`] adds up what happened in each measured stretch, by component and function;
//! [`Steps`] keeps the longest steps of a kernel; [`decode`] tells the few instructions that matter
//! apart; [`Names`] gives functions their names.
//! docs/coherence.md says what is modelled and what is not. Unknown here: QEMU, guests, files.
#![forbid(unsafe_code)]

mod cache;
mod counters;
mod decode;
mod ledger;
mod machine;
mod names;
mod report;
mod steps;
mod turns;

pub use cache::Cache;
pub use counters::Counters;
pub use decode::{Instruction, decode};
pub use ledger::{Begin, BucketId, Ledger, Mode};
pub use machine::{Access, Machine, Privilege, Setting};
pub use names::{FunctionId, KERNEL, Names, proxy_name};
pub use report::{FunctionRow, Report, Row, Sample};
pub use steps::{StepRow, Steps, merge};
pub use turns::{Next, Speed, Turns};

/// Most cores; the directory's sets of sharers have this many bits.
pub const CORES_MAX: usize = 256;
/// Bytes of a cache line, as a power of two.
pub const LINE_SHIFT: u32 = 6;
