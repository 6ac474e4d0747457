//! Interest lists of epoll sets, and which of them are worth a question.
//!
//! Interest is plain data, inherited by fork. What is ready only the servers know; a server that
//! was asked tells once when it changes. So a wait asks for candidates only: what is new, what
//! changed, and what was ready at the last look and is to be reported as long as it is
//! (level-triggered).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Entries of all sets of a process together: each descriptor in one set, and as many again.
pub const INTERESTS_MAX: usize = 2048;
/// Report one event, then none until the next change.
pub const ONE_SHOT: u32 = 1 << 30;
/// Report what comes, not what is.
pub const EDGE: u32 = 1 << 31;

/// One descriptor in one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interest {
    /// Number of the set, 0 = free entry.
    pub set: u64,
    /// What the program gets back.
    pub data: u64,
    /// Descriptor.
    pub descriptor: u32,
    /// EPOLL* bits; the low 16 are poll's.
    pub events: u32,
}

/// All sets.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interests {
    last_set: u64,
    /// Entries from here on were never used: closing a descriptor looks at no more than there were.
    end: u64,
    entries: [Interest; INTERESTS_MAX],
}

impl Default for Interests {
    fn default() -> Self {
        Interests { last_set: 0, end: 0, entries: [Interest::default(); INTERESTS_MAX] }
    }
}

impl Interests {
    /// Number of a new, empty set.
    pub fn create(&mut self) -> u64 {
        self.last_set += 1;
        self.last_set
    }

    fn used(&self) -> &[Interest] {
        &self.entries[..(self.end as usize).min(INTERESTS_MAX)]
    }

    fn used_mut(&mut self) -> &mut [Interest] {
        &mut self.entries[..(self.end as usize).min(INTERESTS_MAX)]
    }

    /// The descriptors of a set.
    pub fn of(&self, set: u64) -> impl Iterator<Item = &Interest> {
        self.used().iter().filter(move |entry| entry.set == set && set != 0)
    }

    fn find(&mut self, set: u64, descriptor: u32) -> Option<&mut Interest> {
        self.used_mut().iter_mut().find(|entry| entry.set == set && entry.descriptor == descriptor)
    }

    /// All of all sets.
    pub fn all(&self) -> impl Iterator<Item = &Interest> {
        self.used().iter().filter(|entry| entry.set != 0)
    }

    /// One descriptor in one set.
    pub fn get(&self, set: u64, descriptor: u32) -> Option<Interest> {
        self.of(set).find(|entry| entry.descriptor == descriptor).copied()
    }

    /// EPOLL_CTL_ADD. `EEXIST`, `ENOSPC`.
    pub fn add(&mut self, interest: Interest) -> Result<(), Errno> {
        if self.find(interest.set, interest.descriptor).is_some() {
            return Err(Errno::EEXIST);
        }
        let free = self.entries.iter().position(|entry| entry.set == 0).ok_or(Errno::ENOSPC)?;
        self.entries[free] = interest;
        self.end = self.end.max(free as u64 + 1);
        Ok(())
    }

    /// EPOLL_CTL_MOD. `ENOENT`.
    pub fn change(&mut self, interest: Interest) -> Result<(), Errno> {
        *self.find(interest.set, interest.descriptor).ok_or(Errno::ENOENT)? = interest;
        Ok(())
    }

    /// EPOLL_CTL_DEL. `ENOENT`.
    pub fn remove(&mut self, set: u64, descriptor: u32) -> Result<(), Errno> {
        *self.find(set, descriptor).ok_or(Errno::ENOENT)? = Interest::default();
        Ok(())
    }

    /// An event was reported: a one-shot entry falls silent.
    pub fn reported(&mut self, set: u64, descriptor: u32) {
        if let Some(entry) = self.find(set, descriptor).filter(|entry| entry.events & ONE_SHOT != 0) {
            entry.events = ONE_SHOT;
        }
    }

    /// A descriptor was closed, or a set with all it held; `false` if no set had it.
    pub fn forget(&mut self, descriptor: Option<u32>, set: Option<u64>) -> bool {
        let mut found = false;
        for entry in self.used_mut().iter_mut().filter(|entry| entry.set != 0) {
            if Some(entry.descriptor) == descriptor || Some(entry.set) == set {
                *entry = Interest::default();
                found = true;
            }
        }
        found
    }
}

/// What a server calls an open description: the server's number and the id.
pub type Object = (u32, u64);

/// Which descriptors of which sets are to be asked for.
///
/// Invariant: a descriptor that is in no list has a watch at its server.
#[derive(Debug, Default)]
pub struct Candidates {
    lists: BTreeMap<u64, VecDeque<u32>>,
    /// Set and descriptor of all that stand in lists.
    listed: BTreeSet<(u64, u32)>,
    watchers: BTreeMap<Object, BTreeSet<(u64, u32)>>,
}

impl Candidates {
    /// A descriptor was added to a set or changed there.
    pub fn add(&mut self, set: u64, descriptor: u32, object: Object) {
        self.watchers.entry(object).or_default().insert((set, descriptor));
        self.put_back(set, descriptor);
    }

    /// It is to be asked for again, behind the others.
    pub fn put_back(&mut self, set: u64, descriptor: u32) {
        if self.listed.insert((set, descriptor)) {
            self.lists.entry(set).or_default().push_back(descriptor);
        }
    }

    /// Takes all of a set out; each is settled by a watch at its server or put back.
    pub fn take(&mut self, set: u64) -> Vec<u32> {
        let taken: Vec<u32> = self.lists.remove(&set).unwrap_or_default().into();
        for descriptor in &taken {
            self.listed.remove(&(set, *descriptor));
        }
        taken
    }

    /// Those that were taken and not asked for are to be the first again.
    pub fn put_first(&mut self, set: u64, descriptors: VecDeque<u32>) {
        let behind = self.take(set);
        descriptors.into_iter().chain(behind).for_each(|descriptor| self.put_back(set, descriptor));
    }

    /// A server tells that something changed; `false` if no set has it.
    pub fn changed(&mut self, object: Object) -> bool {
        let Some(watchers) = self.watchers.get(&object) else { return false };
        for (set, descriptor) in watchers.clone() {
            self.put_back(set, descriptor);
        }
        true
    }

    /// A server forgot its watches.
    pub fn all_changed(&mut self, server: u32) {
        let objects: Vec<Object> =
            self.watchers.range((server, 0)..=(server, u64::MAX)).map(|(object, _)| *object).collect();
        for object in objects {
            self.changed(object);
        }
    }

    /// A descriptor left a set, or every set (`None`).
    pub fn remove(&mut self, set: Option<u64>, descriptor: u32) {
        self.retain(|of, other| other != descriptor || set.is_some_and(|set| set != of));
    }

    /// A set is no more.
    pub fn remove_set(&mut self, set: u64) {
        self.retain(|of, _| of != set);
    }

    fn retain(&mut self, keep: impl Fn(u64, u32) -> bool) {
        for (set, list) in &mut self.lists {
            list.retain(|descriptor| keep(*set, *descriptor));
        }
        self.listed.retain(|(set, descriptor)| keep(*set, *descriptor));
        self.watchers.retain(|_, watchers| {
            watchers.retain(|(set, descriptor)| keep(*set, *descriptor));
            !watchers.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_separate_and_bounded() {
        let mut interests = Interests::default();
        let (one, two) = (interests.create(), interests.create());
        let entry = |set, descriptor| Interest { set, descriptor, events: 1 | ONE_SHOT, data: 9 };
        interests.add(entry(one, 3)).unwrap();
        assert_eq!(interests.add(entry(one, 3)), Err(Errno::EEXIST));
        interests.add(entry(two, 3)).unwrap();
        interests.reported(one, 3);
        assert_eq!(interests.of(one).next().unwrap().events, ONE_SHOT);
        assert_eq!(interests.of(two).next().unwrap().events, 1 | ONE_SHOT);
        assert_eq!(interests.change(entry(one, 4)), Err(Errno::ENOENT));
        assert!(
            interests.forget(Some(3), None) && !interests.forget(Some(3), None) && !interests.forget(Some(0), None)
        );
        assert_eq!(interests.of(two).count(), 0);
        (0..INTERESTS_MAX as u32).for_each(|descriptor| interests.add(entry(one, descriptor)).unwrap());
        assert_eq!(interests.add(entry(two, 3)), Err(Errno::ENOSPC));
        interests.forget(None, Some(one));
        assert_eq!(interests.of(one).count(), 0);
        // What became free is found again, and so are entries behind it.
        interests.add(entry(two, 9)).unwrap();
        interests.forget(Some(9), None);
        assert_eq!((interests.of(two).count(), interests.remove(two, 9)), (0, Err(Errno::ENOENT)));
    }

    #[test]
    fn only_what_changed_is_asked_for() {
        let mut candidates = Candidates::default();
        candidates.add(1, 3, (4, 30));
        candidates.add(1, 5, (4, 50));
        candidates.add(2, 3, (4, 30));
        candidates.add(1, 3, (4, 30));
        assert_eq!(candidates.take(1), [3, 5]);
        assert!(candidates.take(1).is_empty());
        assert!(candidates.changed((4, 50)) && candidates.changed((4, 30)) && candidates.changed((4, 50)));
        assert!(!candidates.changed((4, 99)));
        assert_eq!((candidates.take(1), candidates.take(2)), (vec![5, 3], vec![3]));
        candidates.all_changed(4);
        candidates.remove(Some(1), 3);
        assert_eq!((candidates.take(1), candidates.take(2)), (vec![5], vec![3]));
        candidates.all_changed(3);
        assert!(candidates.take(1).is_empty());
        candidates.put_back(1, 3);
        candidates.put_first(1, [5, 3].into());
        assert_eq!(candidates.take(1), [5, 3]);
        candidates.remove(None, 3);
        candidates.all_changed(4);
        assert_eq!((candidates.take(1), candidates.take(2)), (vec![5], vec![]));
        candidates.remove_set(1);
        candidates.all_changed(4);
        assert!(candidates.watchers.is_empty() && candidates.listed.is_empty() && candidates.take(1).is_empty());
    }
}
