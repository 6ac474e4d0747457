//! This machine: processes, files, places, and what waits for them.

pub mod cargo;
pub mod child;
pub mod files;
pub mod late;
pub mod leftovers;
pub mod namespace;
pub mod place;
pub mod progress;
pub mod terminal;
