//! What a caller is known to hold, as far as the results of its calls have shown. Some calls take
//! things away unseen, so some of it is stale. A few stale handles are wanted: of two handles
//! drawn, the pool gives the one that is likelier to work, by how earlier calls with them ended.

use abi::call::Word;
use abi::call::kinds::Gives;
use abi::{Call, Error, Handle, ObjectType};

use crate::{Made, Random};

/// Handles that the pool holds.
const HANDLES: usize = 96;
/// Handles given up that it keeps, and ids of shared objects.
const OLD: usize = 8;
const IDS: usize = 8;
/// One handle drawn in so many is one that was given up.
const STALE_IN: u64 = 24;
/// One handle in so many is drawn whatever is known of it, so that each is tried.
const UNSEEN_IN: u64 = 4;
/// The trust in a handle that was just made or worked. A refusal that may be due to the handle
/// takes one away, down to none.
const TRUST_MAX: u8 = 3;

/// A handle that a caller was given.
#[derive(Clone, Copy)]
struct Known {
    handle: u64,
    object_type: ObjectType,
    trust: u8,
}

/// See the module's head.
pub struct Pool {
    handles: [Known; HANDLES],
    count: usize,
    /// The first ones, which are never given up to make room.
    kept: usize,
    old: [u64; OLD],
    named: [u64; OLD],
    mapped: [[u64; 3]; OLD],
    ids: [(u64, ObjectType); IDS],
}

impl Pool {
    /// Holds what a caller has from the start.
    pub fn new(given: &[(u64, ObjectType)]) -> Pool {
        let mut pool = Pool {
            handles: [Known { handle: 0, object_type: ObjectType::Ram, trust: 0 }; HANDLES],
            count: 0,
            kept: 0,
            old: [0; OLD],
            named: [0; OLD],
            mapped: [[0; 3]; OLD],
            ids: [(0, ObjectType::Share); IDS],
        };
        for (handle, object_type) in given {
            pool.add(*handle, *object_type);
        }
        pool.kept = pool.count;
        pool
    }

    fn add(&mut self, handle: u64, object_type: ObjectType) {
        if self.count < HANDLES {
            self.handles[self.count] = Known { handle, object_type, trust: TRUST_MAX };
            self.count += 1;
        }
    }

    fn remove(&mut self, index: usize) -> u64 {
        let handle = self.handles[index].handle;
        self.handles.copy_within(index + 1..self.count, index);
        self.count -= 1;
        self.kept -= usize::from(index < self.kept);
        self.old.rotate_right(1);
        self.old[0] = handle;
        handle
    }

    /// Gives up a handle before the next call, so that there is room for what that gives: the less
    /// likely to work of two. `None` while there is room.
    pub fn surplus(&mut self, random: &mut Random) -> Option<u64> {
        if self.count < HANDLES {
            return None;
        }
        let mut any = || self.kept + random.below((self.count - self.kept) as u64) as usize;
        let (one, other) = (any(), any());
        let index = if self.handles[one].trust <= self.handles[other].trust { one } else { other };
        Some(self.remove(index))
    }

    /// Draws a handle of that type, mostly the likelier to work of two; now and then one that was
    /// given up. 0 if there is none.
    pub fn handle(&self, random: &mut Random, wanted: Option<ObjectType>) -> u64 {
        if random.once_in(STALE_IN) {
            return random.one(&self.old);
        }
        let Some(first) = self.any(random, wanted) else { return 0 };
        if random.once_in(UNSEEN_IN) {
            return first.handle;
        }
        let second = self.any(random, wanted).unwrap_or(first);
        if second.trust > first.trust { second.handle } else { first.handle }
    }

    fn any(&self, random: &mut Random, wanted: Option<ObjectType>) -> Option<Known> {
        let known = &self.handles[..self.count];
        let from = random.below(self.count.max(1) as u64) as usize;
        let fits = |known: &&Known| wanted.is_none_or(|wanted| wanted == known.object_type);
        known[from..].iter().chain(&known[..from]).find(fits).copied()
    }

    /// Draws the id of a shared object that a call gave, or of a pool.
    pub fn id(&self, random: &mut Random) -> u64 {
        random.one(&self.ids).0
    }

    /// Draws a handle in a shared share that a call gave; now and then one made of a share and an
    /// object that need not belong together.
    pub fn named(&self, random: &mut Random) -> u64 {
        let (share, id) = (Handle(self.handle(random, Some(ObjectType::Share))), self.id(random));
        let mixed = Handle::in_share(share, id).map_or(share.0, |pair| pair.0);
        if random.once_in(4) { mixed } else { random.one(&self.named) }
    }

    /// Draws a mapping that was made: range, address, pages.
    pub fn mapped(&self, random: &mut Random) -> Option<[u64; 3]> {
        Some(random.one(&self.mapped)).filter(|[.., pages]| *pages > 0)
    }

    fn add_named(&mut self, handle: u64) {
        self.named.rotate_right(1);
        self.named[0] = handle;
    }

    fn add_id(&mut self, id: u64, object_type: ObjectType) {
        self.ids.rotate_right(1);
        self.ids[0] = (id, object_type);
    }

    fn type_of(&self, handle: u64) -> Option<ObjectType> {
        if let Some((_, id)) = Handle(handle).parts() {
            return self.ids.iter().find(|(known, _)| *known == id).map(|(_, object_type)| *object_type);
        }
        self.handles[..self.count].iter().find(|known| known.handle == handle).map(|known| known.object_type)
    }

    /// Notes how a call ended for the handles that it was made with.
    pub fn note(&mut self, made: &Made, ended: Result<(), Error>) {
        let Some(call) = Call::decode(made.number) else { return };
        let is_due_to_one = |error| {
            matches!(error, Error::BadHandle | Error::WrongType | Error::NoRights | Error::PeerDead | Error::NoMemory)
        };
        let is_named = |(word, kind): (u64, Word), handle| word == handle && matches!(kind, Word::Capability { .. });
        let has = |handle| made.words.into_iter().zip(call.words()).any(|both| is_named(both, handle));
        for known in self.handles[..self.count].iter_mut().filter(|known| has(known.handle)) {
            match ended {
                Ok(()) => known.trust = TRUST_MAX,
                Err(error) if is_due_to_one(error) => known.trust = known.trust.saturating_sub(1),
                Err(_) => {}
            }
        }
    }

    /// Learns from a call that was not refused.
    pub fn learn(&mut self, made: &Made, results: [u64; 3]) {
        let Some(call) = Call::decode(made.number) else { return };
        let source = |pool: &Pool| pool.type_of(made.words[usize::from(call == Call::ShareAdd)]);
        match call {
            Call::CapDrop => {
                if let Some(index) = self.handles[..self.count].iter().position(|known| known.handle == made.words[0]) {
                    self.remove(index);
                }
            }
            Call::RangeMap => {
                self.mapped.rotate_right(1);
                self.mapped[0] = [made.words[0], made.words[1], made.words[4]];
            }
            _ => {}
        }
        let mut shared = None;
        for (&gives, result) in call.gives().iter().zip(results) {
            match gives {
                Gives::Handle(object_type) => {
                    if let Some(object_type) = object_type.or_else(|| source(self)) {
                        self.add(result, object_type);
                    }
                }
                // Without a share it comes into the caller's own.
                Gives::SharedHandle(object_type) => {
                    shared = object_type.or_else(|| source(self));
                    match shared {
                        Some(object_type) if made.words[0] == Handle::NONE.0 => self.add(result, object_type),
                        _ => self.add_named(result),
                    }
                }
                Gives::SharedId => self.add_id(result, shared.unwrap_or(ObjectType::Pool)),
                Gives::Numbers | Gives::Nothing => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(call: Call, words: [u64; 6]) -> Made {
        Made { number: call.number(), words }
    }

    #[test]
    fn what_calls_give_is_found_by_its_type() {
        let mut random = Random::new(1);
        let mut pool = Pool::new(&[(3, ObjectType::Ram)]);
        pool.learn(&made(Call::SemaphoreAlloc, [3, 0, 0, 0, 0, 0]), [9, 0, 0]);
        pool.learn(&made(Call::CapCopy, [9, 1, 0, 0, 0, 0]), [10, 0, 0]);
        let mut seen = [false; 11];
        for _ in 0..1000 {
            seen[pool.handle(&mut random, Some(ObjectType::Semaphore)) as usize] = true;
        }
        assert!(seen[9] && seen[10] && !seen[3]);
        pool.learn(&made(Call::CapDrop, [9, 0, 0, 0, 0, 0]), [0; 3]);
        let mut stale = 0;
        for _ in 0..10_000 {
            stale += u32::from(pool.handle(&mut random, Some(ObjectType::Semaphore)) == 9);
        }
        assert!((1..1000).contains(&stale), "what was given up came {stale} times");
    }

    /// How often each of two semaphores comes; the second's calls are refused with that first.
    fn drawn(refusals: usize, error: Error) -> [u32; 2] {
        let mut random = Random::new(1);
        let mut pool = Pool::new(&[(8, ObjectType::Semaphore), (9, ObjectType::Semaphore)]);
        // That the number of ups looks like a handle says nothing of that.
        let up = |handle| made(Call::SemaphoreUp, [handle, 8, 0, 0, 0, 0]);
        (0..refusals).for_each(|_| pool.note(&up(9), Err(error)));
        let mut times = [0; 2];
        for _ in 0..8000 {
            match pool.handle(&mut random, Some(ObjectType::Semaphore)) {
                8 => times[0] += 1,
                9 => times[1] += 1,
                _ => {}
            }
        }
        if refusals > 0 {
            pool.note(&up(9), Ok(()));
            assert_eq!(pool.handles[1].trust, TRUST_MAX, "it works again");
        }
        times
    }

    #[test]
    fn what_worked_comes_more_often_than_what_was_refused_and_both_come() {
        let even = drawn(0, Error::BadHandle);
        assert!(even[0] < 2 * even[1] && even[1] < 2 * even[0], "{even:?}");
        for error in [Error::BadHandle, Error::WrongType, Error::NoRights, Error::PeerDead, Error::NoMemory] {
            let uneven = drawn(5, error);
            assert!(uneven[0] > 2 * uneven[1] && uneven[1] > 500, "{error:?}: {uneven:?}");
        }
        assert_eq!(drawn(5, Error::Timeout), even, "that is not the handle's fault");
    }

    #[test]
    fn what_does_not_work_is_given_up_first() {
        let mut random = Random::new(1);
        let mut pool = Pool::new(&[]);
        for handle in 1..=HANDLES as u64 {
            pool.learn(&made(Call::RamSplit, [0; 6]), [handle, 0, 0]);
        }
        for handle in 1..=HANDLES as u64 / 2 {
            (0..TRUST_MAX).for_each(|_| pool.note(&made(Call::RamStat, [handle; 6]), Err(Error::BadHandle)));
        }
        let mut bad = 0;
        for next in 1000..1100 {
            bad += u32::from(pool.surplus(&mut random).is_some_and(|handle| handle <= HANDLES as u64 / 2));
            pool.learn(&made(Call::RamSplit, [0; 6]), [next, 0, 0]);
        }
        assert!((36..=48).contains(&bad), "{bad} of 48, and some 31 by chance");
    }

    #[test]
    fn what_was_there_from_the_start_is_not_given_up_for_room() {
        let mut random = Random::new(1);
        let mut pool = Pool::new(&[(3, ObjectType::Ram)]);
        for handle in 8..2000 {
            assert_ne!(pool.surplus(&mut random), Some(3));
            pool.learn(&made(Call::RamSplit, [3, 0, 0, 0, 0, 0]), [handle, 0, 0]);
        }
        assert_eq!(pool.type_of(3), Some(ObjectType::Ram));
    }

    #[test]
    fn a_name_in_a_share_has_its_objects_type() {
        let mut pool = Pool::new(&[(8, ObjectType::Share)]);
        pool.learn(&made(Call::ShareSegment, [8, 1, 0, 0, 0, 0]), [Handle::in_share(Handle(8), 77).unwrap().0, 77, 0]);
        let named = Handle::in_share(Handle(8), 77).unwrap().0;
        pool.learn(&made(Call::ShareAdd, [0, named, 255, 0, 0, 0]), [12, 0, 0]);
        assert_eq!(pool.type_of(12), Some(ObjectType::Segment));
    }
}
