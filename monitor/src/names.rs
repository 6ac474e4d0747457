//! The name cache of a core (fos, section 3.2.1): what the name server answered, until it tells
//! that this is not so any more.
//!
//! Invariants: at most [`ANSWERS_MAX`] answers; an answer that was on its way when its contract
//! changed is given, not kept. Deliberately unknown here: messages, who asks, what an entry is used
//! for.

use alloc::collections::BTreeMap;
use alloc::string::String;

use contracts::lookup::CacheCounters;
use contracts::names::Named;

/// Answers kept; with one more all are dropped, which costs a miss each.
pub const ANSWERS_MAX: usize = 256;

/// See the module's head.
#[derive(Default)]
pub struct NameCache {
    /// By contract and how many are nearer. `None`: there are not so many.
    answers: BTreeMap<(String, u32), Option<Named>>,
    counters: CacheCounters,
    /// Counts changes.
    epoch: u64,
}

impl NameCache {
    /// The answer, if it is known; counted as a hit or a miss.
    pub fn find(&mut self, contract: &str, index: u32) -> Option<Option<Named>> {
        let answer = self.answers.get(&(contract.into(), index)).cloned();
        let counter = if answer.is_some() { &mut self.counters.hits } else { &mut self.counters.misses };
        *counter += 1;
        answer
    }

    /// To be given to `learn` with what is asked for now.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Keeps an answer to a question that was asked at `epoch`.
    pub fn learn(&mut self, contract: String, index: u32, answer: Option<Named>, epoch: u64) {
        if epoch != self.epoch {
            return;
        }
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert((contract, index), answer);
    }

    /// Who serves `contract` is not what it was; empty: nor who serves any other.
    pub fn changed(&mut self, contract: &str) {
        self.epoch += 1;
        let before = self.answers.len();
        self.answers.retain(|(of, _), _| !contract.is_empty() && of != contract);
        self.counters.dropped += (before - self.answers.len()) as u64;
    }

    /// What it did.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(component: &str, generation: u64) -> Option<Named> {
        Some(Named { component: component.into(), contract: "files".into(), domain: 1, core: 0, generation })
    }

    fn learned(cache: &mut NameCache, contract: &str, index: u32, answer: Option<Named>) {
        let epoch = cache.epoch();
        cache.learn(contract.into(), index, answer, epoch);
    }

    #[test]
    fn a_change_drops_the_answers_of_its_contract_and_no_others() {
        let mut cache = NameCache::default();
        assert_eq!(cache.find("files", 0), None);
        learned(&mut cache, "files", 0, named("fs", 1));
        learned(&mut cache, "files", 1, None);
        learned(&mut cache, "names", 0, named("names", 1));
        assert_eq!((cache.find("files", 0), cache.find("files", 1)), (Some(named("fs", 1)), Some(None)));
        cache.changed("files");
        assert_eq!((cache.find("files", 0), cache.find("files", 1)), (None, None));
        assert!(cache.find("names", 0).is_some());
        cache.changed("");
        assert_eq!(cache.find("names", 0), None);
        assert_eq!(cache.counters(), CacheCounters { hits: 3, misses: 4, dropped: 3 });
    }

    #[test]
    fn what_changed_while_it_was_asked_for_is_not_kept() {
        let mut cache = NameCache::default();
        let epoch = cache.epoch();
        cache.changed("files");
        cache.learn("files".into(), 0, named("fs", 1), epoch);
        assert_eq!(cache.find("files", 0), None);
        learned(&mut cache, "files", 0, named("fs", 2));
        assert_eq!(cache.find("files", 0), Some(named("fs", 2)), "asked since");
    }

    #[test]
    fn a_client_that_asks_for_everything_fills_no_memory() {
        let mut cache = NameCache::default();
        (0..3 * ANSWERS_MAX as u32).for_each(|index| learned(&mut cache, "files", index, None));
        assert!(cache.answers.len() <= ANSWERS_MAX);
        assert_eq!(cache.find("files", 3 * ANSWERS_MAX as u32 - 1), Some(None));
    }
}
