//! What spawn keeps: which Linux domains exist, for whom, with which channels; and which domains
//! are a program of several cores. Everything else it asks the monitors.
//!
//! Invariants: a set of channels has one user at a time; a domain is entered when it exists and
//! removed when its death was told. While a domain is being made none of its servers begins again:
//! so a set was brought to each life of a server once, by who made it or by who began that life.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod closing;
mod programs;

pub use closing::close_all;
pub use programs::{Outcome, Programs, all_or_none};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use contracts::monitor::ChannelPlan;
use contracts::spawn::DomainId;

/// Most Linux domains at a time.
pub const DOMAINS_MAX: usize = 1024;
/// Sets of channels that are kept for later domains of a core, so that a fork makes none; more are
/// closed when their domain dies. Each holds some 20 pages, and what of its bulk areas was used.
pub const SPARE_SETS_MAX: usize = 32;

/// The core of a domain.
pub const fn home(domain: DomainId) -> u32 {
    (domain >> 48) as u32
}

/// The channels of a Linux domain to all its servers. They outlive it and serve another one after
/// it, in a new generation.
pub struct ChannelSet {
    /// From 1; servers know their clients by it.
    pub number: u32,
    /// The core of its domains.
    pub core: u32,
    /// Its channels; empty if they have to be made.
    pub channels: Vec<ChannelPlan>,
    /// Some of its channels went with a core, or have a generation of their own since their server
    /// began again: it serves nobody else.
    pub is_broken: bool,
}

/// A Linux domain and for whom it was made.
pub struct LinuxEntry<C> {
    /// Its channels.
    pub set: ChannelSet,
    /// Who is told of its death.
    pub client: C,
}

/// All Linux domains.
pub struct Table<C> {
    domains: BTreeMap<DomainId, LinuxEntry<C>>,
    spare: Vec<ChannelSet>,
    last_set: u32,
    making: usize,
    /// Servers of theirs that begin again.
    beginning: usize,
}

impl<C> Table<C> {
    /// Nothing made yet.
    pub fn new() -> Table<C> {
        Table { domains: BTreeMap::new(), spare: Vec::new(), last_set: 0, making: 0, beginning: 0 }
    }

    /// May a domain be made? Not while a server of theirs begins again.
    pub fn may_begin(&self) -> bool {
        self.beginning == 0
    }

    /// Room and channels for one more domain of `core`, which may be made; `None` if there are too
    /// many. Followed by `made` or `failed`.
    pub fn begin(&mut self, core: u32) -> Option<ChannelSet> {
        if self.domains.len() + self.making >= DOMAINS_MAX {
            return None;
        }
        self.making += 1;
        // The one used last has its memory in caches.
        let spare = self.spare.iter().rposition(|set| set.core == core).map(|index| self.spare.remove(index));
        Some(spare.unwrap_or_else(|| {
            self.last_set += 1;
            ChannelSet { number: self.last_set, core, channels: Vec::new(), is_broken: false }
        }))
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

    /// A server of theirs is about to begin again, once `is_making` says no; followed by
    /// `server_began`.
    pub fn server_begins(&mut self) {
        self.beginning += 1;
    }

    /// It has, or could not.
    pub fn server_began(&mut self) {
        self.beginning -= 1;
    }

    /// Is a domain being made?
    pub fn is_making(&self) -> bool {
        self.making > 0
    }

    /// The channels of domains to a server that began again and the sets they are of: the server is
    /// to be brought them. They get a generation of their own by that, and what names a client must
    /// be the same to all its servers, so nobody else has the set after that domain.
    pub fn clients_of(&mut self, server: &str) -> Vec<(u32, ChannelPlan)> {
        let of = |set: &mut ChannelSet| {
            let channels = set.channels.iter().filter(|plan| plan.server == server);
            let channels: Vec<_> = channels.map(|plan| (set.number, plan.clone())).collect();
            set.is_broken |= !channels.is_empty();
            channels
        };
        self.domains.values_mut().flat_map(|entry| of(&mut entry.set)).collect()
    }

    /// Those that exist, ascending, from `from` on.
    pub fn domains(&self, from: DomainId) -> impl Iterator<Item = DomainId> {
        self.domains.range(from..).map(|(domain, _)| *domain)
    }

    /// The sets that nobody has, to be closed.
    pub fn take_spare(&mut self) -> Vec<ChannelSet> {
        core::mem::take(&mut self.spare)
    }

    /// A core was lost: sets with channels to it serve nobody after those who have them; gives the
    /// others of them, to be closed.
    pub fn core_lost(&mut self, core: u32) -> Vec<ChannelSet> {
        let with_it = |plan: &ChannelPlan| [plan.client_core, plan.server_core].contains(&core);
        for LinuxEntry { set, .. } in self.domains.values_mut() {
            set.is_broken |= set.channels.iter().any(with_it);
        }
        self.spare.extract_if(.., |set| set.channels.iter().any(with_it)).collect()
    }

    /// It died.
    pub fn take(&mut self, domain: DomainId) -> Option<LinuxEntry<C>> {
        self.domains.remove(&domain)
    }

    /// Keeps a set whose domain died; gives it back, to be closed, if enough are kept.
    pub fn keep(&mut self, set: ChannelSet) -> Option<ChannelSet> {
        if set.is_broken || self.spare.iter().filter(|spare| spare.core == set.core).count() >= SPARE_SETS_MAX {
            return Some(set);
        }
        self.spare.push(set);
        None
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

    fn domain(table: &mut Table<()>, id: DomainId, core: u32) -> u32 {
        let set = table.begin(core).unwrap();
        let number = set.number;
        table.made(id, LinuxEntry { set, client: () });
        number
    }

    #[test]
    fn the_core_of_a_domain_is_in_its_highest_bits() {
        assert_eq!([0, 7, (1 << 48) | 7, (0x1234 << 48) | 1, u64::MAX].map(home), [0, 0, 1, 0x1234, 0xffff]);
    }

    #[test]
    fn there_is_a_bound() {
        let mut table = Table::new();
        (0..DOMAINS_MAX as u64).for_each(|id| assert_eq!(domain(&mut table, id, 0), id as u32 + 1));
        assert!(table.begin(0).is_none());
        assert!(table.take(5).is_some() && table.take(5).is_none());
        assert!(table.begin(0).is_some() && table.begin(0).is_none());
        table.failed();
        assert!(table.begin(0).is_some());
    }

    #[test]
    fn channels_serve_one_domain_after_another_of_their_core() {
        let mut table = Table::new();
        let (first, second) = (domain(&mut table, 1, 0), domain(&mut table, 2, 0));
        let entry = table.take(1).unwrap();
        assert!(table.keep(entry.set).is_none());
        assert!(domain(&mut table, 3, 1) > second);
        assert_eq!(domain(&mut table, 4, 0), first);
        for id in 10..10 + SPARE_SETS_MAX as u64 + 1 {
            domain(&mut table, id, 0);
        }
        let mut given_back = 0;
        for id in 10..10 + SPARE_SETS_MAX as u64 + 1 {
            let set = table.take(id).unwrap().set;
            given_back += usize::from(table.keep(set).is_some());
        }
        assert_eq!(given_back, 1);
    }

    #[test]
    fn a_server_that_starts_again_is_brought_the_sets_in_use() {
        let mut table = Table::new();
        let plan = |server: &str| ChannelPlan {
            worker: None,
            id: 1,
            contract: "files".into(),
            client: "linux".into(),
            server: server.into(),
            client_core: 0,
            server_core: 0,
            ring_slots: 8,
            bulk_bytes: 0,
        };
        for id in 1..=2 {
            let mut set = table.begin(0).unwrap();
            set.channels = alloc::vec![plan("console"), plan("fs")];
            table.made(id, LinuxEntry { set, client: () });
        }
        let set = table.take(1).unwrap().set;
        assert!(table.keep(set).is_none());
        assert!(table.clients_of("tcp").is_empty());
        assert!(table.core_lost(1).is_empty());
        assert_eq!(table.take_spare().iter().map(|set| set.number).collect::<Vec<_>>(), [1]);
        assert!(table.take_spare().is_empty());
        // The core with it: the set in use is closed when its domain is gone, not kept.
        assert!(table.core_lost(0).is_empty());
        let set = table.take(2).unwrap().set;
        assert!(table.keep(set).is_some_and(|set| set.is_broken));
        // And so is one whose channels have a generation of their own.
        let mut set = table.begin(0).unwrap();
        set.channels = alloc::vec![plan("console"), plan("fs")];
        table.made(3, LinuxEntry { set, client: () });
        assert_eq!(table.clients_of("console"), [(3, plan("console"))]);
        let set = table.take(3).unwrap().set;
        assert!(table.keep(set).is_some_and(|set| set.is_broken));
    }

    #[test]
    fn servers_begin_again_or_domains_are_made() {
        let mut table = Table::new();
        domain(&mut table, 1, 0);
        assert!(table.may_begin() && !table.is_making());
        table.begin(0).unwrap();
        assert!(table.is_making());
        table.failed();
        assert!(!table.is_making());
        table.server_begins();
        table.server_begins();
        table.server_began();
        assert!(!table.may_begin());
        table.server_began();
        assert!(table.may_begin());
    }
}
