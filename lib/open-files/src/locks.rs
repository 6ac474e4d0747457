//! Advisory locks on files (fcntl(2), flock(2)): who holds which bytes, and who waits for whom; and
//! which bytes are memory of programs, who claim them by a lock of a kind of its own.
//!
//! Invariants: no two locks of one inode and [`Space`] that overlap conflict; locks of one owner do
//! not overlap and do not touch in the same mode; an owner waits for one lock at a time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use contracts::descriptions::DescriptionError as Error;
use contracts::files::{Hold, Lock, LockKind};

use crate::FileId;

/// Most locks of all files together.
pub const LOCKS_MAX: usize = 16_384;

/// Locks of different spaces do not see each other: flock's and fcntl's, as on Linux, claims of
/// what is mapped, and turns at writing that back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Ranges,
    Whole,
    Mapped,
    WriteBack,
}

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A client's: gone when it closes any description of the file.
    Client(u64),
    /// A description's: gone when nobody holds that any more.
    Description(u64),
    /// A client's, by a description that others may hold too: gone when it holds that no more.
    Holder(u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    owner: Owner,
    hold: Hold,
    /// First byte, and the first one after it; `u64::MAX` is any end of the file.
    from: u64,
    to: u64,
    /// The process that asked, for F_GETLK.
    process: u32,
    /// Number of the memory of what is mapped, else 0.
    memory: u64,
}

impl Held {
    fn conflicts(&self, wanted: &Held) -> bool {
        let modes = self.hold == Hold::Exclusive || wanted.hold == Hold::Exclusive;
        (modes || self.memory != wanted.memory)
            && self.owner != wanted.owner
            && self.from < wanted.to
            && wanted.from < self.to
    }
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<(FileId, Space), Vec<Held>>,
    waiting: BTreeMap<Owner, (FileId, Held)>,
    count: usize,
}

/// Who owns a lock of that kind, asked for by a client with a description.
pub fn owner(kind: LockKind, client: u64, id: u64) -> Owner {
    match kind {
        LockKind::Client => Owner::Client(client),
        LockKind::Description | LockKind::Whole | LockKind::Mapped(_) => Owner::Description(id),
        LockKind::WriteBack => Owner::Holder(client, id),
    }
}

fn space(kind: LockKind) -> Space {
    match kind {
        LockKind::Client | LockKind::Description => Space::Ranges,
        LockKind::Whole => Space::Whole,
        LockKind::Mapped(_) => Space::Mapped,
        LockKind::WriteBack => Space::WriteBack,
    }
}

fn held(owner: Owner, lock: &Lock, hold: Hold) -> Held {
    let memory = if let LockKind::Mapped(memory) = lock.kind { memory } else { 0 };
    Held { owner, hold, from: lock.from, to: lock.to, process: lock.process, memory }
}

impl Locks {
    fn blocker(&self, inode: FileId, kind: LockKind, wanted: &Held) -> Option<&Held> {
        let all = self.held.get(&(inode, space(kind)))?.iter();
        all.filter(|other| other.conflicts(wanted)).min_by_key(|other| other.from)
    }

    /// The first lock, by its bytes, that stands in the way of this one.
    pub fn test(&self, inode: FileId, owner: Owner, lock: &Lock) -> Option<Lock> {
        let wanted = held(owner, lock, lock.hold?);
        let found = self.blocker(inode, lock.kind, &wanted)?;
        let kind = match (lock.kind, found.owner) {
            (LockKind::Whole | LockKind::WriteBack, _) => lock.kind,
            (LockKind::Mapped(_), _) => LockKind::Mapped(found.memory),
            (_, Owner::Client(_)) => LockKind::Client,
            (_, Owner::Description(_) | Owner::Holder(..)) => LockKind::Description,
        };
        Some(Lock { kind, hold: Some(found.hold), from: found.from, to: found.to, process: found.process })
    }

    /// Takes, changes or releases a lock. `WouldBlock` if another stands in the way, `NotFound` for
    /// bytes of memory that nobody has mapped there, `NoLocks`; then nothing changed. `true` if
    /// others may have become free.
    pub fn set(&mut self, inode: FileId, owner: Owner, lock: &Lock) -> Result<bool, Error> {
        if lock.from >= lock.to {
            return Err(Error::Invalid);
        }
        if let Some(hold) = lock.hold {
            let joined = held(owner, lock, hold).memory;
            if hold == Hold::Shared
                && joined != 0
                && !self.mapped(inode, lock.from..lock.to).any(|(_, memory)| memory == joined)
            {
                return Err(Error::NotFound);
            }
            if self.blocker(inode, lock.kind, &held(owner, lock, hold)).is_some() {
                return Err(Error::WouldBlock);
            }
            // One more, and one that is cut in two.
            if self.count + 2 > LOCKS_MAX {
                return Err(Error::NoLocks);
            }
        }
        let key = (inode, space(lock.kind));
        let list = self.held.entry(key).or_default();
        let before = list.len();
        let mut wanted = held(owner, lock, lock.hold.unwrap_or(Hold::Shared));
        let mut freed = false;
        let mut rest = Vec::with_capacity(before + 2);
        for other in list.drain(..) {
            let touches = other.from <= wanted.to && wanted.from <= other.to;
            if other.owner != owner || !touches {
                rest.push(other);
            } else if lock.hold == Some(other.hold) {
                (wanted.from, wanted.to) = (wanted.from.min(other.from), wanted.to.max(other.to));
            } else {
                freed |= other.from < wanted.to && wanted.from < other.to;
                let parts = [(other.from, other.to.min(wanted.from)), (other.from.max(wanted.to), other.to)];
                let left = parts.into_iter().filter(|(from, to)| from < to);
                rest.extend(left.map(|(from, to)| Held { from, to, ..other }));
            }
        }
        if lock.hold.is_some() {
            rest.push(wanted);
        }
        self.count = self.count - before + rest.len();
        if rest.is_empty() {
            self.held.remove(&key);
        } else {
            self.held.insert(key, rest);
        }
        Ok(freed)
    }

    /// Notes that an owner waits. `Deadlock` if that would close a circle of clients.
    pub fn wait(&mut self, inode: FileId, owner: Owner, lock: &Lock) -> Result<(), Error> {
        let wanted = held(owner, lock, lock.hold.ok_or(Error::Invalid)?);
        // As on Linux, circles are looked for among clients' own locks only.
        if lock.kind == LockKind::Client {
            self.check_circle(owner, inode, &wanted)?;
            self.waiting.insert(owner, (inode, wanted));
        }
        Ok(())
    }

    /// It waits no longer.
    pub fn wait_is_over(&mut self, owner: Owner) {
        self.waiting.remove(&owner);
    }

    fn check_circle(&self, owner: Owner, inode: FileId, wanted: &Held) -> Result<(), Error> {
        let holders = |inode: FileId, wanted: &Held| -> Vec<Owner> {
            let all = self.held.get(&(inode, Space::Ranges)).into_iter().flatten();
            all.filter(|other| other.conflicts(wanted)).map(|other| other.owner).collect()
        };
        let mut seen = Vec::new();
        let mut todo = holders(inode, wanted);
        while let Some(next) = todo.pop() {
            if next == owner {
                return Err(Error::Deadlock);
            }
            if !seen.contains(&next) {
                seen.push(next);
                todo.extend(self.waiting.get(&next).into_iter().flat_map(|(inode, wanted)| holders(*inode, wanted)));
            }
        }
        Ok(())
    }

    /// The descriptions of mappings to which some of these bytes of a file belong, with the numbers
    /// of their memory.
    pub fn mapped(&self, inode: FileId, bytes: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let all = self.held.get(&(inode, Space::Mapped)).into_iter().flatten();
        all.filter(move |claim| claim.from < bytes.end && bytes.start < claim.to).filter_map(|claim| {
            match claim.owner {
                Owner::Description(id) => Some((id, claim.memory)),
                Owner::Client(_) | Owner::Holder(..) => None,
            }
        })
    }

    /// An owner lost all its locks on a file. `true` if there were some.
    pub fn release(&mut self, inode: FileId, owner: Owner) -> bool {
        let mut freed = false;
        for space in [Space::Ranges, Space::Whole, Space::Mapped, Space::WriteBack] {
            let Some(list) = self.held.get_mut(&(inode, space)) else { continue };
            let before = list.len();
            list.retain(|lock| lock.owner != owner);
            self.count -= before - list.len();
            freed |= list.len() < before;
            if list.is_empty() {
                self.held.remove(&(inode, space));
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = 7;

    fn lock(kind: LockKind, hold: Option<Hold>, from: u64, to: u64) -> Lock {
        Lock { kind, hold, from, to, process: 1 }
    }

    #[test]
    fn ranges_follow_a_map_of_bytes() {
        const BYTES: u64 = 24;
        let owners = [Owner::Client(1), Owner::Client(2), Owner::Description(3)];
        let mut locks = Locks::default();
        // Who holds each byte, and how.
        let mut model = vec![Vec::<(Owner, Hold)>::new(); BYTES as usize];
        let mut seed = 11u64;
        let mut random = move |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % limit
        };
        for step in 0..4_000 {
            let owner = owners[random(3) as usize];
            let from = random(BYTES);
            let to = from + 1 + random(BYTES - from);
            let hold = [None, Some(Hold::Shared), Some(Hold::Exclusive)][random(3) as usize];
            let wanted = lock(LockKind::Client, hold, from, to);
            let bytes = from as usize..to as usize;
            let blocked = hold.is_some_and(|hold| {
                let other = |(holder, held): &(Owner, Hold)| {
                    *holder != owner && (hold == Hold::Exclusive || *held == Hold::Exclusive)
                };
                model[bytes.clone()].iter().flatten().any(other)
            });
            assert_eq!(locks.test(FILE, owner, &wanted).is_some(), blocked, "step {step}");
            match locks.set(FILE, owner, &wanted) {
                Err(error) => assert!(blocked && error == Error::WouldBlock, "step {step}"),
                Ok(freed) => {
                    assert!(!blocked, "step {step}");
                    // Others are told if a byte is held otherwise than before, and was held.
                    let differs = |(holder, held): &(Owner, Hold)| *holder == owner && hold != Some(*held);
                    assert_eq!(freed, model[bytes.clone()].iter().flatten().any(differs), "step {step}");
                    for byte in &mut model[bytes] {
                        byte.retain(|(holder, _)| *holder != owner);
                        byte.extend(hold.map(|hold| (owner, hold)));
                    }
                }
            }
            let all = locks.held.get(&(FILE, Space::Ranges)).cloned().unwrap_or_default();
            assert_eq!(locks.count, all.len());
            let joins = |one: &Held, next: &Held| (one.owner, one.hold, one.to) == (next.owner, next.hold, next.from);
            assert!(!all.iter().any(|one| all.iter().any(|next| joins(one, next))), "two are one: step {step}");
            for (at, byte) in model.iter().enumerate() {
                let covers = |held: &&Held| held.from <= at as u64 && (at as u64) < held.to;
                let mut found: Vec<_> = all.iter().filter(covers).map(|held| (held.owner, held.hold)).collect();
                let mut byte = byte.clone();
                found.sort_by_key(|(owner, _)| *owner);
                byte.sort_by_key(|(owner, _)| *owner);
                assert_eq!(found, byte, "step {step}");
            }
        }
        assert!(!locks.release(FILE, Owner::Client(99)), "it had none");
        assert!(owners.into_iter().filter(|owner| locks.release(FILE, *owner)).count() > 0);
        assert_eq!((locks.count, locks.held.len()), (0, 0));
    }

    #[test]
    fn whole_files_are_locked_apart_from_ranges() {
        let mut locks = Locks::default();
        let exclusive = |kind| lock(kind, Some(Hold::Exclusive), 0, u64::MAX);
        assert_eq!(locks.set(FILE, Owner::Client(1), &exclusive(LockKind::Client)), Ok(false));
        assert_eq!(locks.set(FILE, Owner::Description(5), &exclusive(LockKind::Whole)), Ok(false));
        let other = Owner::Description(6);
        assert_eq!(locks.set(FILE, other, &exclusive(LockKind::Whole)), Err(Error::WouldBlock));
        assert_eq!(locks.set(FILE, other, &exclusive(LockKind::Description)), Err(Error::WouldBlock));
        assert!(locks.release(FILE, Owner::Description(5)));
        assert_eq!(locks.set(FILE, other, &exclusive(LockKind::Whole)), Ok(false));
        // Down to shared: others may look again.
        assert_eq!(locks.set(FILE, other, &lock(LockKind::Whole, Some(Hold::Shared), 0, u64::MAX)), Ok(true));
        assert_eq!(locks.set(FILE, other, &lock(LockKind::Whole, Some(Hold::Shared), 1, 1)), Err(Error::Invalid));
    }

    #[test]
    fn one_at_a_time_writes_back_what_is_mapped_whatever_else_is_locked() {
        let mut locks = Locks::default();
        let turn = |from, to| lock(LockKind::WriteBack, Some(Hold::Exclusive), from, to);
        // Of clients that have one description, as parents and children, and of another's.
        let of = |client| owner(LockKind::WriteBack, client, 3 + client / 7);
        let claim = lock(LockKind::Mapped(70), Some(Hold::Exclusive), 0, 8192);
        assert_eq!(locks.set(FILE, owner(claim.kind, 1, 4), &claim), Ok(false));
        assert_eq!(locks.set(FILE, Owner::Client(1), &lock(LockKind::Client, Some(Hold::Exclusive), 0, 9)), Ok(false));
        assert_eq!(locks.set(FILE, of(5), &turn(0, 4096)), Ok(false));
        assert_eq!(locks.set(FILE, of(6), &turn(4096, 8192)), Ok(false), "other bytes");
        assert_eq!(locks.set(FILE, of(7), &turn(0, 8192)), Err(Error::WouldBlock));
        assert_eq!(locks.test(FILE, of(7), &turn(0, 8192)), Some(turn(0, 4096)));
        assert_eq!(locks.set(FILE, of(5), &lock(LockKind::WriteBack, None, 0, 4096)), Ok(true));
        assert!(!locks.release(FILE, Owner::Client(6)) && locks.release(FILE, of(6)), "its mapping is over");
        assert_eq!(locks.set(FILE, of(7), &turn(0, 8192)), Ok(false));
    }

    #[test]
    fn what_is_mapped_belongs_to_who_has_its_memory() {
        let mut locks = Locks::default();
        let claim = |from, to| lock(LockKind::Mapped(from + 70), Some(Hold::Exclusive), from, to);
        let of = |id| owner(LockKind::Mapped(0), 1, id);
        let mapped = |locks: &Locks, bytes| locks.mapped(FILE, bytes).map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(locks.set(FILE, of(5), &claim(0, 4096)), Ok(false));
        assert_eq!(locks.set(FILE, of(6), &claim(4096, 12288)), Ok(false));
        for (from, to) in [(0, 4096), (4095, 4096), (0, u64::MAX), (8192, 16384)] {
            assert_eq!(locks.set(FILE, of(7), &claim(from, to)), Err(Error::WouldBlock));
            let first = [70, 70 + 4096][usize::from(from == 8192)];
            let found = locks.test(FILE, of(7), &claim(from, to)).unwrap();
            assert_eq!((found.kind, found.from), (LockKind::Mapped(first), first - 70));
        }
        assert_eq!(locks.set(FILE, of(7), &claim(12288, 16384)), Ok(false));
        assert_eq!(mapped(&locks, 0..1), [5]);
        assert_eq!(mapped(&locks, 4000..5000), [5, 6]);
        assert_eq!((mapped(&locks, 4096..4096), mapped(&locks, 16384..u64::MAX)), (vec![], vec![]));
        // Locks that programs take are of another world.
        assert_eq!(locks.set(FILE, Owner::Client(9), &lock(LockKind::Client, Some(Hold::Exclusive), 0, 8)), Ok(false));
        assert_eq!(locks.set(FILE, of(9), &lock(LockKind::Whole, Some(Hold::Exclusive), 0, u64::MAX)), Ok(false));
        assert_eq!(locks.mapped(FILE + 1, 0..u64::MAX).count(), 0);
        assert!(locks.release(FILE, of(6)));
        assert_eq!(mapped(&locks, 0..u64::MAX), [5, 7]);
        assert_eq!(locks.set(FILE, of(8), &claim(4096, 8192)), Ok(false));
        // Shared, when it is filled: by who has the same memory, and by nobody else.
        let join = |memory| lock(LockKind::Mapped(memory), Some(Hold::Shared), 4096, 8192);
        let number = 4096 + 70;
        assert_eq!(locks.set(FILE, of(9), &join(number)), Err(Error::WouldBlock));
        assert_eq!(locks.set(FILE, of(8), &join(number)), Ok(true));
        assert_eq!(locks.set(FILE, of(9), &join(number)), Ok(false));
        for other in [join(0), claim(0, u64::MAX)] {
            assert_eq!(locks.set(FILE, of(6), &other), Err(Error::WouldBlock));
        }
        // Who comes too late for some memory is told, though another may have the bytes: it would
        // wait for as long as that does, or have memory that nobody fills.
        assert_eq!(locks.set(FILE, of(6), &join(number + 1)), Err(Error::NotFound));
        assert!(locks.release(FILE, of(8)));
        assert_eq!(locks.mapped(FILE, 4096..8192).collect::<Vec<_>>(), [(9, number)]);
        assert!(locks.release(FILE, of(9)));
        assert_eq!(locks.set(FILE, of(6), &join(number)), Err(Error::NotFound));
    }

    #[test]
    fn a_circle_of_waiting_clients_is_refused() {
        let mut locks = Locks::default();
        let clients = [1, 2, 3].map(Owner::Client);
        let byte = |at: usize| lock(LockKind::Client, Some(Hold::Exclusive), at as u64, at as u64 + 1);
        for (at, client) in clients.into_iter().enumerate() {
            locks.set(FILE, client, &byte(at)).unwrap();
        }
        locks.wait(FILE, clients[0], &byte(1)).unwrap();
        locks.wait(FILE, clients[1], &byte(2)).unwrap();
        assert_eq!(locks.wait(FILE, clients[2], &byte(0)), Err(Error::Deadlock));
        locks.wait_is_over(clients[1]);
        assert_eq!(locks.wait(FILE, clients[2], &byte(0)), Ok(()));
    }

    #[test]
    fn there_is_a_limit_of_all_files_together() {
        const EACH: usize = 100;
        let mut locks = Locks::default();
        let file = |at: usize| FILE + (at / EACH) as FileId;
        let one = |at: usize| lock(LockKind::Client, Some(Hold::Shared), 2 * at as u64, 2 * at as u64 + 1);
        let taken = (0..).take_while(|at| locks.set(file(*at), Owner::Client(1), &one(*at)).is_ok()).count();
        assert_eq!(taken, LOCKS_MAX - 1);
        assert_eq!(locks.set(file(taken), Owner::Client(1), &one(taken)), Err(Error::NoLocks));
        let none = lock(LockKind::Client, None, 0, u64::MAX);
        assert!((0..taken).step_by(EACH).all(|at| locks.set(file(at), Owner::Client(1), &none) == Ok(true)));
        assert_eq!((locks.count, locks.held.len()), (0, 0));
    }
}
