//! The table of names, without messages: what is registered, and who is nearest.
//!
//! Invariants: at most [`ENTRIES_MAX`] entries; a component has one entry for each contract, its
//! latest generation's. Deliberately unknown here: who may register (only spawn is wired for it),
//! how entries are used.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod asked;

pub use asked::Asked;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use contracts::names::{Named, NamesError};

/// Most entries: twenty contracts for each of two hundred components.
pub const ENTRIES_MAX: usize = 4000;
/// Longest name, as in `abi::start`.
const NAME_BYTES_MAX: usize = 31;

/// All names.
#[derive(Default)]
pub struct Table {
    /// By contract, then component.
    entries: BTreeMap<(String, String), Named>,
    /// All that existed when it began was registered.
    is_whole: bool,
}

impl Table {
    /// Registers; an older generation never replaces a newer one. Tells whether that changed
    /// anything.
    pub fn register(&mut self, entry: Named) -> Result<bool, NamesError> {
        if [&entry.component, &entry.contract].iter().any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
            return Err(NamesError::BadName);
        }
        let key = (entry.contract.clone(), entry.component.clone());
        let is_full = self.entries.len() >= ENTRIES_MAX;
        match self.entries.get_mut(&key) {
            Some(known) if known.generation > entry.generation || *known == entry => return Ok(false),
            Some(known) => *known = entry,
            None if is_full => return Err(NamesError::Full),
            None => drop(self.entries.insert(key, entry)),
        }
        Ok(true)
    }

    /// All that existed when it began was registered.
    pub fn told_all(&mut self) {
        self.is_whole = true;
    }

    /// Removes all of a component; gives the contracts that it served.
    pub fn unregister(&mut self, component: &str) -> Vec<String> {
        let gone = self.entries.extract_if(.., |(_, name), _| name == component);
        gone.map(|((contract, _), _)| contract).collect()
    }

    /// The `index`th of those who serve `contract`, nearest to `core` first, then by name.
    pub fn find(&self, contract: &str, core: u32, index: u32) -> Result<&Named, NamesError> {
        let from = (contract.to_string(), String::new());
        let all = self.entries.range(from..).take_while(|((name, _), _)| name == contract);
        let mut all: Vec<&Named> = all.map(|(_, entry)| entry).collect();
        all.sort_by_key(|entry| entry.core.abs_diff(core));
        let unknown = if self.is_whole { NamesError::NotFound } else { NamesError::NotYet };
        all.get(index as usize).copied().ok_or(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(component: &str, core: u32, generation: u64) -> Named {
        Named { component: component.into(), contract: "files".into(), domain: generation, core, generation }
    }

    #[test]
    fn the_nearest_comes_first_and_old_generations_lose() {
        let mut table = Table::default();
        let changes = [("far", 7, 1, true), ("near", 2, 2, true), ("near", 2, 1, false), ("near", 2, 2, false)];
        for (component, core, generation, changed) in changes {
            assert_eq!(table.register(entry(component, core, generation)), Ok(changed));
        }
        assert_eq!(table.find("files", 3, 0).unwrap().domain, 2);
        assert_eq!(table.find("files", 3, 1).unwrap().component, "far");
        assert_eq!(table.find("files", 3, 2), Err(NamesError::NotYet));
        table.told_all();
        assert_eq!(table.find("files", 3, 2), Err(NamesError::NotFound));
        assert_eq!(table.unregister("near"), ["files"]);
        assert_eq!(table.find("files", 3, 0).unwrap().component, "far");
    }

    #[test]
    fn bad_names_are_refused() {
        let mut table = Table::default();
        assert_eq!(table.register(entry("", 0, 1)), Err(NamesError::BadName));
        assert_eq!(table.register(entry("a-name-of-more-than-thirty-one-bytes", 0, 1)), Err(NamesError::BadName));
    }
}
