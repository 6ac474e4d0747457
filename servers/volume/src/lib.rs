//! What the volume's server does without waiting: a cache of blocks, reading ahead, places for
//! blocks on their way, paths, who has heard of losses, and ext4's words as the contracts have
//! them.
//!
//! Deliberately unknown here: channels, tasks, devices.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ahead;
pub mod budget;
pub mod cache;
pub mod lost;
pub mod places;
pub mod walk;
pub mod words;
