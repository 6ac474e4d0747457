//! The end of objects: when the last capability anywhere is gone, the record at home goes, and the
//! memory is the Ram's again.
//!
//! A core whose last capability of an object is deleted tells the object's home, unless it is the
//! home. If others may have one, the home asks all in two phases; a core that has one refuses, and
//! will itself tell the home one day. So an object is never forgotten while it is named, and never
//! kept for good when it is not.

use crate::commit::Work;
use crate::ids::{ObjectId, Slot};
use crate::message::{Claim, Message, Refusal};
use crate::node::{Node, RETRY_NS};
use crate::protocol::{Protocol, Step};
use alloc::vec::Vec;

/// An object at home here that may have no capability any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Orphan {
    /// Somebody dropped it while it was being asked about.
    again: bool,
    /// When to ask again; `None` while it is being asked about.
    pub retry_at_ns: Option<u64>,
}

impl<P: Protocol> Node<P> {
    /// Empties a slot and sees to the object. `lost`: the capability may live on elsewhere.
    pub(crate) fn empty(&mut self, slot: Slot, lost: bool) {
        let Some((held, translation)) = self.table.remove(slot) else { return };
        translation.into_iter().for_each(|translation| self.queue_invalidation(translation.object));
        if self.table.holds(held.object) {
            return;
        }
        let last = !held.remote && !lost;
        if held.object.home == self.me {
            self.dropped(held.object, last);
        } else if self.live.contains(&held.object.home) {
            self.send(held.object.home, Message::Dropped(held.object, last));
        }
    }

    /// At home: somebody's last capability of the object is gone.
    pub(crate) fn dropped(&mut self, object: ObjectId, last: bool) {
        if self.table.record(object).is_none() || self.keeps(object) {
            return;
        }
        if last || !P::takes(Step::AskBeforeEnd) {
            self.table.remove_record(object);
            return;
        }
        if let Some(orphan) = self.orphans.get_mut(&object) {
            orphan.again = true;
        } else {
            self.reclaim(object);
        }
    }

    /// Whether a capability of the object is here to stay. One on its way elsewhere may have been
    /// given on from there and dropped, and that been said, before its arrival is.
    fn keeps(&self, object: ObjectId) -> bool {
        self.table.slots().any(|(slot, held)| held.object == object && !self.is_moving(slot))
    }

    fn reclaim(&mut self, object: ObjectId) {
        let Some(record) = self.table.record(object).filter(|_| !self.keeps(object)) else {
            self.orphans.remove(&object);
            return;
        };
        let extent = record.extent;
        self.orphans.insert(object, Orphan { again: false, retry_at_ns: None });
        self.begin(Work::Reclaim, extent, Claim::Reclaim { object }, None);
    }

    pub(crate) fn reclaim_refused(&mut self, object: ObjectId, refusal: Refusal) {
        let Some(orphan) = self.orphans.get_mut(&object) else { return };
        if refusal == Refusal::Busy || orphan.again {
            orphan.retry_at_ns = Some(self.now_ns.saturating_add(RETRY_NS));
        } else {
            self.orphans.remove(&object);
        }
    }

    pub(crate) fn retry_orphans(&mut self) {
        let due = |orphan: &Orphan| orphan.retry_at_ns.is_some_and(|at| at <= self.now_ns);
        let due: Vec<ObjectId> =
            self.orphans.iter().filter(|(_, orphan)| due(orphan)).map(|(object, _)| *object).collect();
        due.into_iter().for_each(|object| self.reclaim(object));
    }

    /// After a death: it may have held the last capability of any object at home here that has none
    /// here.
    pub(crate) fn look_for_orphans(&mut self) {
        self.table.unnamed().into_iter().for_each(|object| self.dropped(object, false));
    }
}
