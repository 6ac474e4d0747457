//! Connections on the host, between two of these servers or against segments made here.
//!
//! One program, so that what all tests stand on is compiled once.

mod common;
mod corked;
mod datagrams;
mod descriptions;
mod lifetimes;
mod opening;
mod recovery;
mod sockets;
mod windows;
