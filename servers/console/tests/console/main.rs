//! The console, its commands and its streams, against devices and programs made here.
//!
//! One program, so that what all tests stand on is compiled once.

mod commands;
mod common;
mod console_deaths;
mod discipline;
mod service;
mod streams_damage;
mod streams_deaths;
mod streams_use;
