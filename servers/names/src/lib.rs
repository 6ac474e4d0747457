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
        let of = |component: &str, contract: &str| Named { contract: contract.into(), ..entry(component, 0, 1) };
        let (longest, longer) = ("x".repeat(NAME_BYTES_MAX), "x".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(table.register(of(&longest, &longest)), Ok(true));
        for (component, contract) in [(&*longer, "files"), ("fs", &longer), ("fs", "")] {
            assert_eq!(table.register(of(component, contract)), Err(NamesError::BadName));
        }
    }

    #[test]
    fn what_serves_a_contract_is_told_apart_from_what_serves_others() {
        let mut table = Table::default();
        let of = |component: &str, contract: &str| Named { contract: contract.into(), ..entry(component, 0, 1) };
        for (component, contract) in [("fs", "files"), ("volume", "files"), ("fs", "descriptions"), ("tcp", "sockets")]
        {
            assert_eq!(table.register(of(component, contract)), Ok(true));
        }
        let found = |table: &Table, contract, index| table.find(contract, 0, index).ok().map(|it| it.component.clone());
        assert_eq!([0, 1].map(|index| found(&table, "files", index)), ["fs", "volume"].map(|name| Some(name.into())));
        assert_eq!((found(&table, "files", 2), found(&table, "fil", 0)), (None, None));
        // Of the same generation on another core: it was told wrongly before, or moved.
        let moved = Named { core: 3, ..of("fs", "files") };
        assert_eq!((table.register(moved.clone()), table.register(moved)), (Ok(true), Ok(false)));
        assert_eq!(found(&table, "files", 0).as_deref(), Some("volume"), "it is nearer now");
        assert_eq!(table.unregister("fs"), ["descriptions", "files"]);
        assert_eq!(table.unregister("fs"), [""; 0]);
        assert_eq!((found(&table, "files", 1), found(&table, "sockets", 0).as_deref()), (None, Some("tcp")));
    }

    #[test]
    fn a_full_table_takes_what_it_knows_and_nothing_else() {
        let mut table = Table::default();
        for number in 0..ENTRIES_MAX {
            assert_eq!(table.register(entry(&number.to_string(), 0, 1)), Ok(true));
        }
        assert_eq!(table.register(entry("one-more", 0, 1)), Err(NamesError::Full));
        assert_eq!(table.register(entry("7", 0, 2)), Ok(true));
        assert_eq!(table.unregister("8"), ["files"]);
        assert_eq!(table.register(entry("one-more", 0, 1)), Ok(true));
    }
}
