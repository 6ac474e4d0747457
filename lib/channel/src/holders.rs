//! Who holds something at a server, and how often.
//!
//! A client may be given what it already holds, and gives it back as often: then it does not matter
//! which of a gift and a return that cross each other comes first.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Stands for a message that carries the description and was not received yet; no client has this
/// id.
pub const IN_FLIGHT: u64 = u64::MAX;

/// References by client ([`crate::client_id`]), in the order of clients: most have one or two, and
/// are asked for in each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    counts: Vec<(u64, u32)>,
}

impl Holders {
    /// One reference of one client.
    pub fn of(client: u64) -> Holders {
        Holders { counts: vec![(client, 1)] }
    }

    /// Where a client is, or would be.
    fn place(&self, client: u64) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&client, |(client, _)| *client)
    }

    /// The client's count, which begins at 0.
    fn count(&mut self, client: u64) -> &mut u32 {
        let place = self.place(client).unwrap_or_else(|place| {
            self.counts.insert(place, (client, 0));
            place
        });
        &mut self.counts[place].1
    }

    /// Has the client a reference?
    pub fn contains(&self, client: u64) -> bool {
        match self.counts[..] {
            [(only, _)] => only == client,
            [(first, _), (second, _)] => first == client || second == client,
            _ => self.place(client).is_ok(),
        }
    }

    /// One more for a client.
    pub fn add(&mut self, client: u64) {
        let count = self.count(client);
        *count = count.saturating_add(1);
    }

    /// A child gets one if its parent has any: it names with one number what its parent named with
    /// one.
    pub fn inherit(&mut self, parent: u64, child: u64) {
        if self.contains(parent) {
            *self.count(child) = 1;
        }
    }

    /// A client gives one back; false if it had none.
    pub fn remove(&mut self, client: u64) -> bool {
        let Ok(place) = self.place(client) else { return false };
        match &mut self.counts[place].1 {
            count if *count > 1 => *count -= 1,
            _ => drop(self.counts.remove(place)),
        }
        true
    }

    /// Removes all references of a client, which ended. False if it had none.
    pub fn remove_all(&mut self, client: u64) -> bool {
        self.place(client).map(|place| self.counts.remove(place)).is_ok()
    }

    /// Whether a client holds it, and not only a message.
    pub fn has_client(&self) -> bool {
        self.counts.iter().any(|(client, _)| *client != IN_FLIGHT)
    }

    /// Nobody holds it.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The clients among `ids` that hold it.
    pub fn among(&self, ids: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        let first = self.counts.partition_point(|(client, _)| client < ids.start());
        self.counts[first..].iter().map(|(client, _)| *client).take_while(move |client| client <= ids.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn however_many_hold_it_each_is_found() {
        let (mut holders, all) = (Holders::default(), [50, 10, IN_FLIGHT, 30, 20, 40]);
        for count in 0..=all.len() {
            assert!(all.iter().enumerate().all(|(place, client)| holders.contains(*client) == (place < count)));
            all.get(count).into_iter().for_each(|client| holders.add(*client));
        }
        assert_eq!(holders.among(20..=49).collect::<Vec<_>>(), [20, 30, 40]);
        assert_eq!((holders.among(51..=60).count(), holders.among(0..=IN_FLIGHT).count()), (0, 6));
        for client in [50, 10, 30, 20, 40] {
            assert!(holders.has_client() && holders.remove(client) && !holders.contains(client));
        }
        assert!(!holders.has_client() && !holders.is_empty());
    }

    #[test]
    fn references_are_counted_and_inherited_once() {
        let mut holders = Holders::of(7);
        holders.add(7);
        holders.inherit(7, 9);
        holders.inherit(8, 10);
        assert_eq!(holders.among(0..=u64::MAX).collect::<Vec<_>>(), [7, 9]);
        assert!(holders.remove(9) && !holders.contains(9) && !holders.remove(9));
        assert!(holders.remove(7) && holders.contains(7));
        assert!(holders.remove(7) && !holders.contains(7) && !holders.remove(7));
        holders.add(7);
        holders.add(7);
        assert!(holders.remove_all(7) && holders.is_empty() && !holders.remove_all(7));
    }
}
