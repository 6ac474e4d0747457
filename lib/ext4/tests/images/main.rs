//! Volumes that e2fsprogs make are read; with wrong bytes nothing panics.

mod common;
mod mutated;
mod reading;
