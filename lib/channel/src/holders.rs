//! Who holds something at a server, and how often.
//!
//! A client may be given what it already holds, and gives it back as often: then it does not matter
//! which of a gift and a return that cross each other comes first.

use alloc::collections::BTreeMap;
use core::ops::RangeInclusive;

/// Stands for what is lent and was not received yet; no client has this id.
pub const LENT: u64 = u64::MAX;

/// References by client ([`crate::client_id`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    counts: BTreeMap<u64, u32>,
}

impl Holders {
    /// One reference of one client.
    pub fn of(client: u64) -> Holders {
        Holders { counts: BTreeMap::from([(client, 1)]) }
    }

    /// Has the client a reference?
    pub fn contains(&self, client: u64) -> bool {
        self.counts.contains_key(&client)
    }

    /// One more for a client.
    pub fn add(&mut self, client: u64) {
        let count = self.counts.entry(client).or_default();
        *count = count.saturating_add(1);
    }

    /// A child gets one if its parent has any: it names with one number what its parent named with
    /// one.
    pub fn inherit(&mut self, parent: u64, child: u64) {
        if self.contains(parent) {
            self.counts.insert(child, 1);
        }
    }

    /// A client gives one back; false if it had none.
    pub fn remove(&mut self, client: u64) -> bool {
        match self.counts.get_mut(&client) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(self.counts.remove(&client)),
            None => return false,
        }
        true
    }

    /// A client ended: all of its references go. False if it had none.
    pub fn forget(&mut self, client: u64) -> bool {
        self.counts.remove(&client).is_some()
    }

    /// Some client holds it, which is more than being lent.
    pub fn has_client(&self) -> bool {
        self.counts.keys().any(|client| *client != LENT)
    }

    /// Nobody holds it.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The clients among `ids` that hold it.
    pub fn among(&self, ids: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        self.counts.range(ids).map(|(client, _)| *client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn references_are_counted_and_inherited_once() {
        let mut holders = Holders::of(7);
        holders.add(7);
        holders.inherit(7, 9);
        holders.inherit(8, 10);
        assert_eq!(holders.among(0..=u64::MAX).collect::<Vec<_>>(), [7, 9]);
        assert!(holders.remove(9) && !holders.contains(9) && !holders.remove(9));
        assert!(holders.remove(7) && holders.contains(7));
        holders.add(7);
        assert!(holders.forget(7) && holders.is_empty() && !holders.forget(7));
    }
}
