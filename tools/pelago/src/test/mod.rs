//! Unit tests, boot scenarios, and what judges them.

pub mod audit;
pub mod capture;
pub mod disk;
pub mod matrix;
pub mod notes;
pub mod quick;
pub mod repeat;
pub mod scenario;
pub mod scenarios;
pub mod sim;
pub mod testing;
pub mod times;
pub mod unit;
