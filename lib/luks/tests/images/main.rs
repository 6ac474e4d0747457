//! Volumes as they lie on a disk: those that are made here, those that cryptsetup made, and wrong
//! ones.

mod common;
mod cryptsetup;
mod formatting;
mod kept;
mod refusals;
mod sectors;
