//! Interest lists of epoll sets.
//!
//! Level-triggered: what is ready is asked of the servers at each wait, so only interest is kept
//! here. Plain data, inherited by fork.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Entries of all sets of a process together: each descriptor in one set, and as many again.
pub const INTERESTS_MAX: usize = 512;
/// Report one event, then none until the next change.
pub const ONE_SHOT: u32 = 1 << 30;

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

    /// A descriptor was closed, or a set with all it held.
    pub fn forget(&mut self, descriptor: Option<u32>, set: Option<u64>) {
        for entry in self.used_mut() {
            if Some(entry.descriptor) == descriptor || (entry.set != 0 && Some(entry.set) == set) {
                *entry = Interest::default();
            }
        }
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
        interests.forget(Some(3), None);
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
}
