//! The commands of somebody who uses the system.

pub mod chaos;
pub mod commands;
pub mod doctor;
pub mod program;
mod stop;
