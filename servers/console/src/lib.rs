//! What a terminal is, without any serial line: settings, line discipline, output, and the control
//! lines beside it.
//!
//! `terminal`, `input`, `output`, `control` and `record` are pure: bytes go in, bytes and facts
//! come out, everything is bounded by constants. `service` and `commands` put them behind
//! contracts. Deliberately unknown here: devices and system calls (see `main.rs`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod accounts;
pub mod commands;
pub mod control;
pub mod description;
pub mod ending;
pub mod input;
pub mod output;
pub mod record;
pub mod service;
pub mod settings;
pub mod streams;
pub mod terminal;
