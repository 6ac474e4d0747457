//! Volumes that e2fsprogs make are read and recovered; with wrong bytes nothing panics.

mod common;
mod cuts;
mod disk;
mod format;
mod host;
mod model;
mod mutated;
mod mutated_used;
mod operations;
mod power;
mod reading;
mod recovery;
mod transactions;
mod tree;
mod writer;
mod xattr;
