//! What spawn keeps: which Linux domains exist, for whom, with which channels. Everything else it asks the monitors.
//!
//! Invariants: a channel number is never used twice; a domain is entered when it exists and removed when its death was told.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use contracts::monitor::{ChannelId, ChannelPlan};
use contracts::spawn::DomainId;

/// Most Linux domains at a time. Each has a few wake slots of the 1,024 of a core if its servers are elsewhere.
pub const DOMAINS_MAX: usize = 1024;

/// The core of a domain.
pub const fn home(domain: DomainId) -> u32 {
    (domain >> 48) as u32
}

/// A Linux domain and for whom it was made.
pub struct LinuxEntry<C> {
    /// Its channels, to be closed after it.
    pub channels: Vec<ChannelPlan>,
    /// Who is told of its death.
    pub client: C,
}

/// All Linux domains.
pub struct Table<C> {
    domains: BTreeMap<DomainId, LinuxEntry<C>>,
    next_channel: ChannelId,
    making: usize,
}

impl<C> Table<C> {
    /// Nothing made yet.
    pub fn new() -> Table<C> {
        Table { domains: BTreeMap::new(), next_channel: wiring::RUN_TIME_CHANNELS, making: 0 }
    }

    /// Room and channel numbers for one more domain; `None` if there are too many. Followed by `made` or `failed`.
    pub fn begin(&mut self, channels: usize) -> Option<ChannelId> {
        if self.domains.len() + self.making >= DOMAINS_MAX {
            return None;
        }
        self.making += 1;
        let first = self.next_channel;
        self.next_channel += channels as u64;
        Some(first)
    }

    /// It exists.
    pub fn made(&mut self, domain: DomainId, entry: LinuxEntry<C>) {
        self.making -= 1;
        self.domains.insert(domain, entry);
    }

    /// It does not.
    pub fn failed(&mut self) {
        self.making -= 1;
    }

    /// It died.
    pub fn take(&mut self, domain: DomainId) -> Option<LinuxEntry<C>> {
        self.domains.remove(&domain)
    }
}

impl<C> Default for Table<C> {
    fn default() -> Table<C> {
        Table::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bound_and_numbers_are_not_used_again() {
        let mut table = Table::new();
        for id in 0..DOMAINS_MAX as u64 {
            assert_eq!(table.begin(7), Some(wiring::RUN_TIME_CHANNELS + 7 * id));
            table.made(id, LinuxEntry { channels: Vec::new(), client: () });
        }
        assert_eq!(table.begin(7), None);
        assert!(table.take(5).is_some() && table.take(5).is_none());
        assert_eq!(table.begin(7), Some(wiring::RUN_TIME_CHANNELS + 7 * DOMAINS_MAX as u64));
        table.failed();
        assert!(table.begin(7).is_some());
    }
}
