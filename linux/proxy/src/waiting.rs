//! Which calls wait for which open descriptions, and whom a change concerns.
//!
//! A call that only looks (poll, select) is told of each change. Of those that take what there is
//! (reads, accepts, waits for an epoll set) the first is told, and passes it on when it ends: what
//! is enough for one wakes one, however many wait.
//!
//! Invariant: where several wait to take the same, for the same mask, either their server (or their
//! set) has yet to tell of a change, or the first of them was told, or one that was told still
//! lives and has to [pass it on](Waits::end). What is ready, and who asks, is not known here.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::task::Waker;

use crate::epoll::Object;

/// Names one wait.
pub type Ticket = u64;

/// What somebody waits to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// To look: it is told of each change.
    Look,
    /// To take what comes, for which the server watches these bits.
    Take(u32),
}

#[derive(Debug)]
struct Wait {
    purpose: Purpose,
    objects: Vec<Object>,
    /// What changed and it has not taken notice of yet.
    told: Vec<Object>,
    waker: Option<Waker>,
}

impl Wait {
    fn tell(&mut self, object: Object) -> Option<Waker> {
        if !self.told.contains(&object) {
            self.told.push(object);
        }
        self.waker.take()
    }
}

/// All waits of a process. Wakers are given to the caller, who wakes them when nothing here is
/// borrowed.
#[derive(Debug, Default)]
pub struct Waits {
    changes: u64,
    last: Ticket,
    waits: BTreeMap<Ticket, Wait>,
    /// First come, first served among those of one purpose.
    by_object: BTreeSet<(Object, Purpose, Ticket)>,
}

impl Waits {
    /// How many changes there were, of whatever object.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Begins to wait for changes of objects, which must not be twice among them. With `seen`,
    /// [`changes`](Waits::changes) as of a look at all of them, it is told of all if there was one
    /// since.
    pub fn begin(&mut self, purpose: Purpose, objects: Vec<Object>, seen: Option<u64>) -> Ticket {
        self.last += 1;
        self.by_object.extend(objects.iter().map(|object| (*object, purpose, self.last)));
        let told = if seen.is_some_and(|seen| seen != self.changes) { objects.clone() } else { Vec::new() };
        self.waits.insert(self.last, Wait { purpose, objects, told, waker: None });
        self.last
    }

    /// What the waiting one is told, once; `waker` is woken when there is more.
    pub fn take(&mut self, ticket: Ticket, waker: Option<&Waker>) -> Vec<Object> {
        let Some(wait) = self.waits.get_mut(&ticket) else { return Vec::new() };
        if wait.told.is_empty() {
            wait.waker = waker.cloned();
        }
        core::mem::take(&mut wait.told)
    }

    /// Ends it. If it was told and took no notice, or `passes_on`, the next one of those that take
    /// the same is told.
    pub fn end(&mut self, ticket: Ticket, passes_on: bool) -> Option<Waker> {
        let wait = self.waits.remove(&ticket)?;
        for object in &wait.objects {
            self.by_object.remove(&(*object, wait.purpose, ticket));
        }
        if wait.purpose == Purpose::Look || !passes_on && wait.told.is_empty() {
            return None;
        }
        let object = *wait.objects.first()?;
        let of_all = (object, wait.purpose, 0)..=(object, wait.purpose, Ticket::MAX);
        let next = self.by_object.range(of_all).next()?.2;
        self.waits.get_mut(&next)?.tell(object)
    }

    /// An object changed: tells all who look, and of those who take the first for each mask,
    /// whether the change is one that it waits for or not: the server watches no more for any.
    pub fn changed(&mut self, object: Object) -> Vec<Waker> {
        self.changes += 1;
        let mut last = None;
        let of_all = (object, Purpose::Look, 0)..=(object, Purpose::Take(u32::MAX), Ticket::MAX);
        let told = self.by_object.range(of_all).filter(|(_, purpose, _)| {
            let is_first = last.replace(*purpose) != Some(*purpose);
            is_first || *purpose == Purpose::Look
        });
        let waits = &mut self.waits;
        told.filter_map(|(_, _, ticket)| waits.get_mut(ticket)?.tell(object)).collect()
    }

    /// Any object of a server may have changed: tells all.
    pub fn all_changed(&mut self, server: u32) -> Vec<Waker> {
        self.changes += 1;
        let of_all = ((server, 0), Purpose::Look, 0)..=((server, u64::MAX), Purpose::Take(u32::MAX), Ticket::MAX);
        let waits = &mut self.waits;
        let told = self.by_object.range(of_all);
        told.filter_map(|(object, _, ticket)| waits.get_mut(ticket)?.tell(*object)).collect()
    }

    /// Does anybody wait for that object?
    pub fn has(&self, object: Object) -> bool {
        let of_all = (object, Purpose::Look, 0)..=(object, Purpose::Take(u32::MAX), Ticket::MAX);
        self.by_object.range(of_all).next().is_some()
    }

    /// Does anybody wait to take what comes to an object, with that mask?
    pub fn takes(&self, object: Object, mask: u32) -> bool {
        let purpose = Purpose::Take(mask);
        self.by_object.range((object, purpose, 0)..=(object, purpose, Ticket::MAX)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet as Set;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const READS: Purpose = Purpose::Take(1);
    const WRITES: Purpose = Purpose::Take(2);

    fn wake(wakers: impl IntoIterator<Item = Waker>) -> usize {
        wakers.into_iter().map(Waker::wake).count()
    }

    #[test]
    fn one_event_wakes_one_of_a_hundred() {
        let (mut waits, count) = (Waits::default(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut sleep = |object| {
            let ticket = waits.begin(READS, vec![object], None);
            assert!(waits.take(ticket, Some(&waker)).is_empty());
            ticket
        };
        let apart: Vec<_> = (0..100).map(|id| sleep((2, id))).collect();
        let together: Vec<_> = (0..100).map(|_| sleep((2, 500))).collect();
        assert_eq!(wake(waits.changed((2, 7))), 1);
        assert_eq!((waits.take(apart[7], None), waits.take(apart[8], Some(&waker))), (vec![(2, 7)], vec![]));
        // Of those at one object the first, and it once.
        assert_eq!(wake(waits.changed((2, 500))) + wake(waits.changed((2, 500))), 1);
        assert_eq!(waits.take(together[0], None), [(2, 500)]);
        assert_eq!(wake(waits.changed((3, 500))), 0);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn who_takes_passes_on_to_the_next_of_its_kind() {
        let mut waits = Waits::default();
        let readers = [(); 3].map(|()| waits.begin(READS, vec![(2, 1)], None));
        let writer = waits.begin(WRITES, vec![(2, 1)], None);
        waits.changed((2, 1));
        assert_eq!([readers[0], readers[1], writer].map(|one| waits.take(one, None).len()), [1, 0, 1]);
        waits.end(readers[0], true);
        assert_eq!((waits.take(readers[1], None).len(), waits.take(writer, None).len()), (1, 0));
        assert!(waits.takes((2, 1), 2) && !waits.takes((2, 1), 4) && !waits.takes((2, 2), 2));
        // One that has nothing to pass on, and one that was told and ends without taking notice.
        waits.end(readers[1], false);
        assert!(waits.take(readers[2], None).is_empty());
        let last = waits.begin(READS, vec![(2, 1)], None);
        waits.changed((2, 1));
        waits.end(readers[2], false);
        assert_eq!(waits.take(last, None), [(2, 1)]);
        waits.end(last, true);
        waits.end(writer, true);
        assert!(waits.waits.is_empty() && waits.by_object.is_empty());
    }

    #[test]
    fn who_looks_hears_of_what_changed_and_of_nothing_else() {
        let mut waits = Waits::default();
        let seen = waits.changes();
        assert_eq!(seen, 0);
        let all: Vec<Object> = (0..1000).map(|id| (4, id)).collect();
        let looks = waits.begin(Purpose::Look, all.clone(), Some(seen));
        let other = waits.begin(Purpose::Look, vec![(4, 9)], Some(seen));
        assert!(waits.take(looks, None).is_empty());
        waits.changed((4, 9));
        waits.changed((4, 9));
        waits.changed((4, 5000));
        assert_eq!((waits.take(looks, None), waits.take(other, None)), (vec![(4, 9)], vec![(4, 9)]));
        // What came between a look and the wait is not lost.
        let late = waits.begin(Purpose::Look, vec![(4, 1), (3, 1)], Some(seen));
        assert_eq!(waits.take(late, None), [(4, 1), (3, 1)]);
        waits.all_changed(4);
        assert_eq!(waits.changes(), 4);
        let told: Set<Object> = waits.take(looks, None).into_iter().collect();
        assert!(told.into_iter().eq(all) && waits.has((3, 1)) && !waits.has((3, 2)));
        assert_eq!(waits.take(late, None), [(4, 1)]);
    }

    /// Against a table that knows what is to be taken: nobody sleeps while there is something.
    #[test]
    fn nothing_is_left_lying_while_somebody_sleeps() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let mut waits = Waits::default();
        // What lies there; whether the server watches; who sleeps, and owes.
        let (mut lies, mut watched, mut sleepers) = (0u64, false, Vec::<(Ticket, bool)>::new());
        for _ in 0..50_000 {
            match random(4) {
                0 => {
                    lies += 1 + random(3);
                    if core::mem::take(&mut watched) {
                        wake(waits.changed((2, 1)));
                    }
                }
                1 if lies == 0 => {
                    sleepers.push((waits.begin(READS, vec![(2, 1)], None), false));
                    watched = true;
                }
                // A signal ends any wait.
                2 if !sleepers.is_empty() => {
                    let (ticket, owes) = sleepers.remove(random(sleepers.len() as u64) as usize);
                    wake(waits.end(ticket, owes));
                }
                _ if !sleepers.is_empty() => {
                    let at = random(sleepers.len() as u64) as usize;
                    if waits.take(sleepers[at].0, None).is_empty() {
                        continue;
                    }
                    if lies > 0 {
                        lies -= 1;
                        wake(waits.end(sleepers.remove(at).0, true));
                    } else {
                        watched = true;
                    }
                }
                _ => {}
            }
            let is_told = waits.waits.values().any(|wait| !wait.told.is_empty());
            assert!(sleepers.is_empty() || watched || is_told, "{lies} lie there and nobody was told");
            assert!(lies == 0 || sleepers.is_empty() || is_told);
        }
    }
}
