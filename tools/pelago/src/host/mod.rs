//! This machine: processes, files, places, and what waits for them.

pub mod cargo;
pub mod child;
pub mod disk;
pub mod files;
pub mod late;
pub mod leftovers;
pub mod namespace;
pub mod path;
pub mod place;
pub mod port;
pub mod progress;
pub mod size;
pub mod skip;
pub mod terminal;
