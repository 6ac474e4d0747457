//! Measures the system it runs on through Linux calls, one row at a time; the same static file runs
//! in Pelago and in a Linux guest, so a difference between two results is the systems'.
//!
//! A row prints one line per sample, `measure: ROW NANOSECONDS ns OPERATIONS operations FAULTS
//! faults` (faults of pages, in rows that count them), or one line that says why not: `measure: ROW
//! absent: WHAT` if the system lacks a call, `measure: ROW failed: WHAT` for everything else.
//! `measure: ROW begin` and `measure: ROW end` stand around it, so that the reader knows what
//! was under way when a guest died. First comes `measure: placement bound` where workers are bound
//! to their cores, or `free` where the system's own placement holds.
//!
//! Around each measured loop stand the marks of `lib/mark`, for the emulator's plugin, which writes
//! its report after each row. Deliberately unknown here: which system this is, and what the figures
//! should be.

pub mod arrays;
pub mod calls;
pub mod descriptors;
pub mod disk;
pub mod memory;
pub mod model;
pub mod network;
pub mod page_server;
pub mod problem;
pub mod requests;
pub mod round_trips;
pub mod rows;
pub mod sample;
pub mod system;
pub mod tasks;
pub mod waiting;
pub mod words;
pub mod workers;
