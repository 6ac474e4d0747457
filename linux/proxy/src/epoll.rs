//! Interest lists of epoll sets, and which of them are worth a question.
//!
//! Interest is plain data, inherited by fork. What is ready only the servers know; a server that
//! was asked tells once when it changes. So a wait asks for candidates only: what is new, what
//! changed, and what was ready at the last look and is to be reported as long as it is
//! (level-triggered).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptors::{DESCRIPTORS_MAX, server};
use crate::errno::Errno;
use crate::flags::{POLLERR, POLLHUP, POLLIN, POLLOUT};

/// Entries of all sets of a process together: each descriptor in one set, and as many again.
pub const INTERESTS_MAX: usize = 2 * DESCRIPTORS_MAX;
/// Report one event, then none until the next change.
pub const ONE_SHOT: u32 = 1 << 30;
/// Report what comes, not what is.
pub const EDGE: u32 = 1 << 31;
/// Of several sets, one is told.
pub const EXCLUSIVE: u32 = 1 << 28;
/// The system is not to sleep while this is dealt with; ours does not.
pub const WAKE_UP: u32 = 1 << 29;

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

impl Interest {
    /// May it be [`EXCLUSIVE`]? Not with a mask that others would have to know of.
    pub fn may_be_exclusive(&self) -> bool {
        let allowed = u32::from(POLLIN | POLLOUT | POLLERR | POLLHUP) | EDGE | EXCLUSIVE | WAKE_UP;
        self.events & !allowed == 0
    }
}

/// An entry of the table, on the list of its descriptor or on that of free ones.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    interest: Interest,
    /// Index of the next, plus 1; 0 = none.
    next: u64,
}

/// All sets. The entries of a descriptor, one for each set that has it, are on a list, so that one
/// of them is found at once however many there are.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interests {
    last_set: u64,
    /// Entries from here on were never used.
    end: u64,
    /// First of those that were, and are free, plus 1.
    free: u64,
    entries: [Entry; INTERESTS_MAX],
    /// First entry of each descriptor, plus 1; 0 = none.
    first: [u16; DESCRIPTORS_MAX],
}

const _: () = assert!(INTERESTS_MAX < u16::MAX as usize && DESCRIPTORS_MAX.is_multiple_of(4));

impl Interests {
    /// Number of a new, empty set.
    pub fn create(&mut self) -> u64 {
        self.last_set += 1;
        self.last_set
    }

    /// All of all sets. Looks at all entries that were used.
    pub fn all(&self) -> impl Iterator<Item = &Interest> {
        let used = self.entries.iter().take(self.end as usize);
        used.map(|entry| &entry.interest).filter(|interest| interest.set != 0)
    }

    /// The descriptors of a set. As [`Interests::all`].
    pub fn of(&self, set: u64) -> impl Iterator<Item = &Interest> {
        self.all().filter(move |interest| interest.set == set)
    }

    /// Index of an entry, and of the one before it in its list, both plus 1.
    fn place(&self, set: u64, descriptor: u32) -> Option<(u64, u64)> {
        let (mut before, mut at) = (0, u64::from(*self.first.get(descriptor as usize)?));
        loop {
            let entry = self.entries.get((at as usize).checked_sub(1)?)?;
            if entry.interest.set == set {
                return Some((at, before));
            }
            (before, at) = (at, entry.next);
        }
    }

    fn find(&mut self, set: u64, descriptor: u32) -> Option<&mut Interest> {
        let (at, _) = self.place(set, descriptor)?;
        Some(&mut self.entries[at as usize - 1].interest)
    }

    /// One descriptor in one set.
    pub fn get(&self, set: u64, descriptor: u32) -> Option<Interest> {
        self.place(set, descriptor).map(|(at, _)| self.entries[at as usize - 1].interest)
    }

    /// EPOLL_CTL_ADD. `EEXIST`, `ENOSPC`, `EBADF` for what cannot be a descriptor.
    pub fn add(&mut self, interest: Interest) -> Result<(), Errno> {
        if self.place(interest.set, interest.descriptor).is_some() {
            return Err(Errno::EEXIST);
        }
        let first = self.first.get_mut(interest.descriptor as usize).ok_or(Errno::EBADF)?;
        let at = if self.free != 0 { self.free } else { self.end + 1 };
        let entry = self.entries.get_mut(at as usize - 1).ok_or(Errno::ENOSPC)?;
        if self.free != 0 {
            self.free = entry.next;
        } else {
            self.end = at;
        }
        *entry = Entry { interest, next: (*first).into() };
        *first = at as u16;
        Ok(())
    }

    /// EPOLL_CTL_MOD. `ENOENT`, `EINVAL` for an exclusive one.
    pub fn change(&mut self, interest: Interest) -> Result<(), Errno> {
        let known = self.find(interest.set, interest.descriptor).ok_or(Errno::ENOENT)?;
        if known.events & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        *known = interest;
        Ok(())
    }

    /// EPOLL_CTL_DEL. `ENOENT`.
    pub fn remove(&mut self, set: u64, descriptor: u32) -> Result<(), Errno> {
        let (at, before) = self.place(set, descriptor).ok_or(Errno::ENOENT)?;
        let next = self.entries[at as usize - 1].next;
        match before {
            0 => self.first[descriptor as usize] = next as u16,
            before => self.entries[before as usize - 1].next = next,
        }
        self.entries[at as usize - 1] = Entry { interest: Interest::default(), next: self.free };
        self.free = at;
        Ok(())
    }

    /// An event was reported: a one-shot entry falls silent.
    pub fn reported(&mut self, set: u64, descriptor: u32) {
        if let Some(entry) = self.find(set, descriptor).filter(|entry| entry.events & ONE_SHOT != 0) {
            entry.events = ONE_SHOT;
        }
    }

    /// Takes a descriptor that was closed out of one set; gives that, or `None` if none has it.
    pub fn take_closed(&mut self, descriptor: u32) -> Option<u64> {
        let at = usize::from(*self.first.get(descriptor as usize)?).checked_sub(1)?;
        let set = self.entries.get(at)?.interest.set;
        self.remove(set, descriptor).ok().map(|()| set)
    }

    /// A set is no more. Looks at all entries that were used.
    pub fn forget_set(&mut self, set: u64) {
        for at in 0..(self.end as usize).min(INTERESTS_MAX) {
            let interest = self.entries[at].interest;
            if interest.set == set && set != 0 {
                let _ = self.remove(set, interest.descriptor);
            }
        }
    }
}

/// What a server calls an open description: the server's number and the id. Sets have numbers of
/// the proxy's own ([`server::EPOLL`]).
pub type Object = (u32, u64);

/// A descriptor in a set.
type Entrance = (u64, u32);

/// The entries of one object, and of those that are exclusive the one whose turn it was last.
#[derive(Debug, Default)]
struct Watchers {
    /// With whether it is exclusive.
    all: BTreeMap<Entrance, bool>,
    last: Entrance,
}

impl Watchers {
    /// Those that a change concerns: of exclusive ones the next in turn in whose set somebody
    /// waits, and all if nobody does.
    fn concerned(&mut self, waits: impl Fn(u64) -> bool) -> impl Iterator<Item = Entrance> {
        let exclusive = || self.all.iter().filter(|(_, is_exclusive)| **is_exclusive).map(|(entrance, _)| *entrance);
        let is_next = |entrance: &Entrance| *entrance > self.last;
        let mut in_turn = exclusive().filter(is_next).chain(exclusive().filter(|entrance| !is_next(entrance)));
        let chosen = in_turn.find(|(set, _)| waits(*set));
        self.last = chosen.unwrap_or(self.last);
        let concerns = move |entrance: &Entrance, is_exclusive: bool| {
            !is_exclusive || chosen.is_none_or(|chosen| chosen == *entrance)
        };
        self.all.iter().filter(move |(entrance, is_exclusive)| concerns(entrance, **is_exclusive)).map(|one| *one.0)
    }
}

/// The candidates of a set, in the order in which they are to be asked for.
#[derive(Debug, Default)]
struct List {
    order: VecDeque<u32>,
    /// A bit for each descriptor that stands there.
    bits: Vec<u64>,
}

/// Word and bit of a descriptor.
fn place_of(descriptor: u32) -> (usize, u64) {
    (descriptor as usize / 64, 1 << (descriptor % 64))
}

impl List {
    fn put_last(&mut self, descriptor: u32) {
        let (word, bit) = place_of(descriptor);
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.order.push_back(descriptor);
        }
    }

    /// Takes its bit. `false` if it had none.
    fn unmark(&mut self, descriptor: u32) -> bool {
        let (word, bit) = place_of(descriptor);
        let word = self.bits.get_mut(word).filter(|word| **word & bit != 0);
        word.map(|word| *word &= !bit).is_some()
    }

    fn take_first(&mut self) -> Option<u32> {
        let first = self.order.pop_front()?;
        self.unmark(first);
        Some(first)
    }
}

/// Those of all sets that have or had some.
#[derive(Debug, Default)]
struct Lists(BTreeMap<u64, List>);

impl Lists {
    fn put_back(&mut self, (set, descriptor): Entrance) {
        self.0.entry(set).or_default().put_last(descriptor);
    }

    /// `false` if it stood in no list.
    fn remove(&mut self, (set, descriptor): Entrance) -> bool {
        let Some(list) = self.0.get_mut(&set) else { return false };
        let stood = list.unmark(descriptor);
        if stood {
            list.order.retain(|listed| *listed != descriptor);
        }
        stood
    }
}

/// Which descriptors of which sets are to be asked for.
///
/// Invariant: a descriptor that is in no list has a watch at its server; or it is exclusive, and
/// another one of the same object is in a list or has been asked for since it was.
#[derive(Debug, Default)]
pub struct Candidates {
    lists: Lists,
    watchers: BTreeMap<Object, Watchers>,
}

impl Candidates {
    /// A descriptor was added to a set or changed there. Of exclusive ones of an object, one is
    /// told of a change.
    pub fn add(&mut self, set: u64, descriptor: u32, object: Object, is_exclusive: bool) {
        self.watchers.entry(object).or_default().all.insert((set, descriptor), is_exclusive);
        self.put_back(set, descriptor);
    }

    /// It is to be asked for again, behind the others.
    pub fn put_back(&mut self, set: u64, descriptor: u32) {
        self.lists.put_back((set, descriptor));
    }

    /// How many of a set there are.
    pub fn count(&self, set: u64) -> usize {
        self.lists.0.get(&set).map_or(0, |list| list.order.len())
    }

    /// The first of a set.
    pub fn first(&self, set: u64) -> Option<u32> {
        self.lists.0.get(&set)?.order.front().copied()
    }

    /// Takes the first of a set out, as [`take`](Candidates::take).
    pub fn take_first(&mut self, set: u64) -> Option<u32> {
        self.lists.0.get_mut(&set)?.take_first()
    }

    /// Takes the first of a set out, `count` at most; each is settled by a watch at its server or
    /// put back.
    pub fn take(&mut self, set: u64, count: usize) -> Vec<u32> {
        let Some(list) = self.lists.0.get_mut(&set) else { return Vec::new() };
        let taken: Vec<u32> = list.order.drain(..count.min(list.order.len())).collect();
        for descriptor in &taken {
            list.unmark(*descriptor);
        }
        taken
    }

    /// Those that were taken and not asked for are to be the first again.
    pub fn put_first(&mut self, set: u64, descriptors: &[u32]) {
        let behind = self.take(set, usize::MAX);
        descriptors.iter().chain(&behind).for_each(|descriptor| self.put_back(set, *descriptor));
    }

    /// A server tells that something changed. Gives the sets which that concerns, with those that
    /// hold them; `waits` tells whether anybody waits for a set.
    pub fn changed(&mut self, object: Object, waits: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut sets = Vec::new();
        self.put_watchers_back(object, &waits, &mut sets);
        let mut outer = 0;
        while let Some(set) = sets.get(outer) {
            self.put_watchers_back((server::EPOLL, *set), &waits, &mut sets);
            outer += 1;
        }
        sets
    }

    fn put_watchers_back(&mut self, object: Object, waits: &impl Fn(u64) -> bool, sets: &mut Vec<u64>) {
        let Some(watchers) = self.watchers.get_mut(&object) else { return };
        for entrance in watchers.concerned(waits) {
            self.lists.put_back(entrance);
            if !sets.contains(&entrance.0) {
                sets.push(entrance.0);
            }
        }
    }

    /// A server lost its watches. Gives as [`changed`](Candidates::changed).
    pub fn all_changed(&mut self, server: u32) -> Vec<u64> {
        let objects: Vec<Object> =
            self.watchers.range((server, 0)..=(server, u64::MAX)).map(|(object, _)| *object).collect();
        let sets: BTreeSet<u64> = objects.into_iter().flat_map(|object| self.changed(object, |_| false)).collect();
        sets.into_iter().collect()
    }

    /// A descriptor, which names that object, left a set. What it was told of and others were not
    /// is told to them: gives as [`changed`](Candidates::changed).
    pub fn remove(&mut self, set: u64, descriptor: u32, object: Object) -> Vec<u64> {
        let was_told = self.lists.remove((set, descriptor));
        let Some(watchers) = self.watchers.get_mut(&object) else { return Vec::new() };
        let was_exclusive = watchers.all.remove(&(set, descriptor)) == Some(true);
        if watchers.all.is_empty() {
            self.watchers.remove(&object);
        }
        if was_told && was_exclusive { self.changed(object, |_| false) } else { Vec::new() }
    }

    /// A set is no more. Gives as [`remove`](Candidates::remove).
    pub fn remove_set(&mut self, set: u64) -> Vec<u64> {
        let of_set = |(object, watchers): (&Object, &Watchers)| {
            let range = watchers.all.range((set, 0)..=(set, u32::MAX));
            range.map(|((_, descriptor), _)| (*descriptor, *object)).collect::<Vec<_>>()
        };
        let all: Vec<(u32, Object)> = self.watchers.iter().flat_map(of_set).collect();
        let sets: BTreeSet<u64> =
            all.into_iter().flat_map(|(descriptor, object)| self.remove(set, descriptor, object)).collect();
        self.lists.0.remove(&set);
        sets.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn none() -> Box<Interests> {
        Interests::new_box_zeroed().unwrap()
    }

    #[test]
    fn bits_beside_polls_are_linuxs() {
        assert_eq!([EXCLUSIVE, WAKE_UP, ONE_SHOT, EDGE], [0x1000_0000, 0x2000_0000, 0x4000_0000, 0x8000_0000]);
        let may = |events| Interest { events, ..Interest::default() }.may_be_exclusive();
        assert!(may(EXCLUSIVE | EDGE | WAKE_UP | 1) && !may(EXCLUSIVE | ONE_SHOT) && !may(EXCLUSIVE | 2));
    }

    #[test]
    fn sets_are_separate_and_bounded() {
        let mut interests = none();
        let (one, two) = (interests.create(), interests.create());
        let entry = |set, descriptor| Interest { set, descriptor, events: 1 | ONE_SHOT, data: 9 };
        interests.add(entry(one, 3)).unwrap();
        assert_eq!(interests.add(entry(one, 3)), Err(Errno::EEXIST));
        interests.add(entry(two, 3)).unwrap();
        interests.reported(one, 3);
        assert_eq!(interests.of(one).next().unwrap().events, ONE_SHOT);
        assert_eq!(interests.of(two).next().unwrap().events, 1 | ONE_SHOT);
        interests.change(Interest { events: 1, ..entry(two, 3) }).unwrap();
        interests.reported(two, 3);
        assert_eq!(interests.of(two).next().unwrap().events, 1, "it is not for one event");
        assert_eq!(interests.change(entry(one, 4)), Err(Errno::ENOENT));
        assert_eq!([(); 3].map(|()| interests.take_closed(3)), [Some(two), Some(one), None]);
        assert_eq!((interests.take_closed(0), interests.take_closed(u32::MAX)), (None, None));
        assert_eq!(interests.of(two).count(), 0);
        for set in [one, two] {
            (0..DESCRIPTORS_MAX as u32).for_each(|descriptor| interests.add(entry(set, descriptor)).unwrap());
        }
        let three = interests.create();
        assert_eq!(interests.add(entry(three, 3)), Err(Errno::ENOSPC));
        assert_eq!(interests.add(entry(two, DESCRIPTORS_MAX as u32)), Err(Errno::EBADF));
        interests.forget_set(one);
        assert_eq!((interests.of(one).count(), interests.of(two).count()), (0, DESCRIPTORS_MAX));
        // What became free is found again, and so are entries behind it.
        interests.add(entry(three, 9)).unwrap();
        assert_eq!(interests.take_closed(9), Some(three));
        assert_eq!(interests.take_closed(9), Some(two));
        assert_eq!((interests.get(two, 9), interests.remove(two, 9)), (None, Err(Errno::ENOENT)));
    }

    #[test]
    fn interests_follow_a_model() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let (mut interests, mut model) = (none(), BTreeMap::new());
        (0..4).for_each(|_| assert!(interests.create() > 0));
        for step in 0..40_000u64 {
            let (set, descriptor) = (1 + random(4), random(30) as u32);
            let interest = Interest { set, descriptor, events: step as u32 & 0xff, data: step };
            match random(20) {
                0..=8 => {
                    let made = interests.add(interest);
                    assert_eq!(made.is_ok(), !model.contains_key(&(set, descriptor)));
                    model.entry((set, descriptor)).or_insert(interest);
                }
                9..=12 => {
                    let changed = interests.change(interest);
                    assert_eq!(changed.is_ok(), model.contains_key(&(set, descriptor)));
                    model.entry((set, descriptor)).and_modify(|known| *known = interest);
                }
                13..=17 => {
                    let removed = interests.remove(set, descriptor);
                    assert_eq!(removed.is_ok(), model.remove(&(set, descriptor)).is_some());
                }
                18 => {
                    while let Some(of) = interests.take_closed(descriptor) {
                        assert!(model.remove(&(of, descriptor)).is_some());
                    }
                    assert!(!model.keys().any(|(_, known)| *known == descriptor));
                }
                _ => {
                    interests.forget_set(set);
                    model.retain(|(of, _), _| *of != set);
                }
            }
            assert_eq!(interests.get(set, descriptor), model.get(&(set, descriptor)).copied());
            let mut all: Vec<_> = interests.all().map(|known| (known.set, known.descriptor, known.data)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(model.values().map(|known| (known.set, known.descriptor, known.data))));
        }
        assert!(interests.end <= 120, "entries are used again");
    }

    #[test]
    fn an_exclusive_one_is_never_changed() {
        let mut interests = none();
        let set = interests.create();
        let entry = |events| Interest { set, descriptor: 3, events, data: 9 };
        assert!(entry(EXCLUSIVE | EDGE | WAKE_UP | 0x1d).may_be_exclusive());
        assert!(!entry(EXCLUSIVE | ONE_SHOT | 1).may_be_exclusive() && !entry(EXCLUSIVE | 0x2001).may_be_exclusive());
        interests.add(entry(1 | EXCLUSIVE)).unwrap();
        assert_eq!(interests.change(entry(1)), Err(Errno::EINVAL));
    }

    const ALL: usize = usize::MAX;

    #[test]
    fn only_what_changed_is_asked_for() {
        let mut candidates = Candidates::default();
        let nobody = |_| false;
        candidates.add(1, 3, (4, 30), false);
        candidates.add(1, 5, (4, 50), false);
        candidates.add(2, 3, (4, 30), false);
        candidates.add(1, 3, (4, 30), false);
        assert_eq!(candidates.take(1, ALL), [3, 5]);
        assert!(candidates.take(1, ALL).is_empty());
        assert_eq!(candidates.changed((4, 50), nobody), [1]);
        assert_eq!(candidates.changed((4, 30), nobody), [1, 2]);
        assert_eq!(candidates.changed((4, 50), nobody), [1]);
        assert!(candidates.changed((4, 99), nobody).is_empty());
        assert_eq!((candidates.take(1, ALL), candidates.take(2, ALL)), (vec![5, 3], vec![3]));
        assert_eq!(candidates.all_changed(4), [1, 2]);
        candidates.remove(1, 3, (4, 30));
        assert_eq!((candidates.take(1, ALL), candidates.take(2, ALL)), (vec![5], vec![3]));
        assert!(candidates.all_changed(3).is_empty() && candidates.take(1, ALL).is_empty());
        candidates.put_back(1, 3);
        candidates.put_first(1, &[5, 3]);
        assert_eq!((candidates.count(1), candidates.take(1, 1), candidates.take(1, 9)), (2, vec![5], vec![3]));
        [70, 6, 70].into_iter().for_each(|descriptor| candidates.put_back(1, descriptor));
        assert_eq!((candidates.count(1), candidates.first(1), candidates.first(9)), (2, Some(70), None));
        assert_eq!([(); 3].map(|()| candidates.take_first(1)), [Some(70), Some(6), None]);
        candidates.put_back(1, 70);
        assert_eq!(candidates.take(1, 9), [70]);
        candidates.remove(1, 3, (4, 30));
        candidates.remove(2, 3, (4, 30));
        candidates.all_changed(4);
        assert_eq!((candidates.take(1, ALL), candidates.take(2, ALL)), (vec![5], vec![]));
        candidates.remove_set(1);
        candidates.all_changed(4);
        assert!(candidates.watchers.is_empty() && !candidates.lists.0.contains_key(&1));
        let is_empty = |list: &List| list.order.is_empty() && list.bits.iter().all(|word| *word == 0);
        assert!(candidates.lists.0.values().all(is_empty));
    }

    #[test]
    fn a_set_in_a_set_changes_with_it() {
        let mut candidates = Candidates::default();
        candidates.add(1, 3, (4, 30), false);
        candidates.add(2, 9, (server::EPOLL, 1), false);
        candidates.add(3, 9, (server::EPOLL, 2), false);
        // A circle, which is refused elsewhere, would be no harm.
        candidates.add(1, 8, (server::EPOLL, 3), false);
        (1..=3).for_each(|set| assert!(!candidates.take(set, ALL).is_empty()));
        assert_eq!(candidates.changed((4, 30), |_| false), [1, 2, 3]);
        assert_eq!([1, 2, 3].map(|set| candidates.take(set, ALL)), [vec![3, 8], vec![9], vec![9]]);
    }

    #[test]
    fn exclusive_ones_are_told_in_turn() {
        let mut candidates = Candidates::default();
        for set in 1..=4 {
            candidates.add(set, 3, (4, 30), set != 4);
            candidates.take(set, ALL);
        }
        // The fourth is not exclusive; in the second nobody waits.
        let mut told = || {
            let sets = candidates.changed((4, 30), |set| set != 2);
            sets.iter().for_each(|set| assert_eq!(candidates.take(*set, ALL), [3]));
            sets
        };
        assert_eq!([told(), told(), told()], [[1, 4], [3, 4], [1, 4]]);
        assert_eq!(candidates.changed((4, 30), |_| false), [1, 2, 3, 4]);
        (1..=4).for_each(|set| assert_eq!(candidates.take(set, ALL), [3]));
        // What one was told of, and leaves, is the others'.
        assert_eq!(candidates.changed((4, 30), |set| set == 2), [2, 4]);
        candidates.take(4, ALL);
        assert_eq!(candidates.remove(2, 3, (4, 30)), [1, 3, 4]);
        assert_eq!(candidates.remove_set(1), [3, 4]);
        (3..=4).for_each(|set| assert_eq!(candidates.take(set, ALL), [3]));
        assert!(candidates.remove_set(3).is_empty());
        assert_eq!(candidates.changed((4, 30), |_| true), [4]);
    }
}
