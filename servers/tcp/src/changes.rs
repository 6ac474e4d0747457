//! What programs may want to know after a turn: each change once, in the order of arrival.
//!
//! Programs are told in this order, as on Linux. Who waits for several connections sees first whose
//! bytes came first, also if another one got an acknowledgement before that.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use contracts::descriptions::DescriptionId;

use crate::engine::ConnectionId;

/// What a program may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Data, room, a new state or the end.
    Connection(ConnectionId),
    /// A connection to accept.
    Listener(u16),
    /// A datagram, room for one, or that one met nobody.
    Datagrams(DescriptionId),
}

/// Changes of a turn.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    places: BTreeMap<Change, u64>,
    next: u64,
}

impl Changes {
    /// Notes a change. Noted again, it keeps its place.
    pub fn note(&mut self, change: Change) {
        if let Entry::Vacant(place) = self.places.entry(change) {
            place.insert(self.next);
            self.next += 1;
        }
    }

    /// Notes that there is something to read where there was nothing: its place is here.
    pub fn note_arrival(&mut self, change: Change) {
        self.places.insert(change, self.next);
        self.next += 1;
    }

    /// Takes all, in the order of their places.
    pub fn take(&mut self) -> Vec<Change> {
        let mut changes: Vec<(Change, u64)> = core::mem::take(&mut self.places).into_iter().collect();
        changes.sort_unstable_by_key(|(_, place)| *place);
        changes.into_iter().map(|(change, _)| change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once_and_in_order_of_arrival() {
        let mut changes = Changes::default();
        let [first, second, third] = [3, 1, 2].map(Change::Connection);
        changes.note(first);
        changes.note(second);
        changes.note(first);
        assert_eq!(changes.take(), [first, second]);
        // Room for the first one was there before the bytes for the second, but no bytes.
        changes.note(first);
        changes.note_arrival(second);
        changes.note(third);
        changes.note_arrival(first);
        assert_eq!(changes.take(), [second, third, first]);
        assert!(changes.take().is_empty());
    }
}
