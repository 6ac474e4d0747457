//! Tests of the kernel's objects and calls, from user mode, on every core at once: one instance per
//! core (`conform-0`, `conform-1`, ...).
//!
//! To add tests of an object: a file in `suites/` with a `suite!` table, and its line in
//! `suites/mod.rs`. A test is a function of a [`Fixture`], which pays for it with an account of its
//! own; it gives everything back, and one that does not fails. A test that needs two cores is
//! an `async` function of a fixture and a [`Partner`], who runs named functions on the next core.
//!
//! One line per test, `core N SUITE/NAME ok` or `core N SUITE/NAME FAILED: why`, and a last one per
//! core, `core N done: X ok, Y failed`. The host's scenarios `objects/*` read them. Deliberately
//! unknown here: the kernel's inside.
#![no_std]

extern crate alloc;

pub mod fixture;
pub mod partner;
pub mod runner;
pub mod suites;
pub mod table;
pub mod turns;

pub use fixture::Fixture;
pub use partner::Partner;
pub use runner::run;
pub use table::{Failure, Outcome, Suite, drop_all, refused};
