//! Volumes that e2fsprogs make are read and recovered; with wrong bytes nothing panics.

mod common;
mod mutated;
mod reading;
mod recovery;
