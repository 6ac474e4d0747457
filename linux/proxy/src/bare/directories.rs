//! Paths at which open descriptions were opened, for calls relative to a directory descriptor.
//!
//! Control state: a forked child starts without it and then knows only what it opens itself
//! (CAVEATS). Bounded; the oldest goes first.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::cell::RefCell;

use contracts::descriptions::DescriptionId;

/// As many as a process may have descriptors.
const PATHS_MAX: usize = personality::descriptors::DESCRIPTORS_MAX;

struct Paths(RefCell<VecDeque<(DescriptionId, String)>>);
// SAFETY: one context runs proxy code, and no borrow is held across an await.
unsafe impl Sync for Paths {}
static PATHS: Paths = Paths(RefCell::new(VecDeque::new()));

/// Keeps the path of a freshly opened description of the file server (ids are never used again).
pub fn remember(id: DescriptionId, path: &str) {
    let mut paths = PATHS.0.borrow_mut();
    if paths.len() == PATHS_MAX {
        paths.pop_front();
    }
    paths.push_back((id, path.into()));
}

/// The path, if it is still known.
pub fn path_of(id: DescriptionId) -> Option<String> {
    PATHS.0.borrow().iter().rev().find(|(known, _)| *known == id).map(|(_, path)| path.clone())
}
