//! The driver against a device made here, its deaths, and damage.
//!
//! One program, so that what all tests stand on is compiled once.

mod common;
mod damage;
mod deaths;
mod device;
