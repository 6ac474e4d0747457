//! The simulator: the real state machines of many nodes, with channels, deaths and time made up,
//! all from one seed.
//!
//! [`cluster`] is the machine without time: nodes, channels between them, news of who lives; each
//! step of it is an [`Action`] that somebody chooses. [`simulation`] chooses by a seeded clock (and
//! [`workload`] what callers ask for); the model checker of `tests/exhaustive.rs` chooses every
//! action that is possible. [`invariants`] says what must hold in either case.
//!
//! What it does not model: memory ordering of the channels (that is `lib/ring`), time spent
//! computing, broken kernels that lie.

#![forbid(unsafe_code)]

pub mod broken;
pub mod cluster;
pub mod invariants;
pub mod scenario;
pub mod simulation;
pub mod workload;

pub use broken::{Broken, without};
pub use cluster::{Action, Cluster, Occurrence};
pub use scenario::{Failure, Report, run};
pub use simulation::{Options, Simulation};

#[cfg(test)]
mod tests {
    mod exhaustive;
    mod seeds;
}
