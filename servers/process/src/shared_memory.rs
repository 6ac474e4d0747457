//! System V shared memory segments (shmget(2)): which there are, who has them, who may.
//!
//! A segment has no memory until it is attached first; then it gets one memory of the monitor's for
//! each part, which the caller makes and enters here. Memory *without a name* is such a segment
//! that nobody finds by a key or an id: who is told its number may have it. Invariants: a number is
//! of one segment; a segment that is to be removed, or has no name, has a holder; while one has all
//! its parts, it keeps them. Who ends or is thrown away holds nothing. What is given back is to be
//! released by the caller.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use contracts::process::{Identity, ProcessId, capability};
use contracts::shared_memory::*;
use contracts::spawn::MemoryId;

/// Where the number of a part stands in that of a segment.
const NUMBER_OF_PART: u64 = PARTS_MAX - 1;
const PAGE: u64 = abi::PAGE_BYTES;
/// Permission bits, for each of owner, group and others.
const READ: u16 = 4;
const WRITE: u16 = 2;

/// Who asks, and when: seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The process.
    pub process: ProcessId,
    /// Whose it is.
    pub identity: &'a Identity,
    /// Now.
    pub now_s: u64,
}

impl Caller<'_> {
    fn owns(&self, state: &SegmentState) -> bool {
        let user = self.identity.users.effective;
        self.identity.capabilities.has(capability::SYS_ADMIN) || user == state.owner[0] || user == state.creator[0]
    }

    fn is_in(&self, group: u32) -> bool {
        self.identity.groups.effective == group || self.identity.others.contains(&group)
    }

    /// May it do what these bits allow, as Linux judges it (ipcperms)?
    fn may(&self, state: &SegmentState, bits: u16) -> Result<(), SegmentError> {
        let user = self.identity.users.effective;
        let granted = if user == state.owner[0] || user == state.creator[0] {
            state.mode >> 6
        } else if self.is_in(state.owner[1]) || self.is_in(state.creator[1]) {
            state.mode >> 3
        } else {
            state.mode
        };
        let may_all = self.identity.capabilities.has(capability::IPC_OWNER);
        if may_all || bits & 7 & !granted == 0 { Ok(()) } else { Err(SegmentError::Denied) }
    }
}

/// How often a process has a segment, and whether it may write to it, or was allowed to once.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    times: u64,
    is_writer: bool,
}

#[derive(Debug)]
struct Segment {
    state: SegmentState,
    number: u64,
    parts: Vec<Option<MemoryId>>,
    holders: BTreeMap<ProcessId, Holder>,
}

impl Segment {
    fn pages(&self) -> u64 {
        self.state.bytes.div_ceil(PAGE)
    }

    fn told(&self) -> SegmentState {
        SegmentState { attaches: self.holders.values().map(|holder| holder.times).sum(), ..self.state }
    }
}

/// A part that a holder asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is there, for the holder to write or only to read.
    Made(MemoryId, bool),
    /// It is to be made, of so many pages; all that are missing have so many more.
    Missing(u64, u64),
}

/// All segments, by their ids, which ascend, and those without a name by their numbers.
#[derive(Debug, Default)]
pub struct SharedMemory {
    segments: BTreeMap<SegmentId, Segment>,
    nameless: BTreeMap<u64, Segment>,
    last: SegmentId,
}

impl SharedMemory {
    fn by_number(&mut self, number: u64) -> Option<&mut Segment> {
        let first = number & !NUMBER_OF_PART;
        let nameless = self.nameless.get_mut(&first);
        nameless.or_else(|| self.segments.values_mut().find(|segment| segment.number == first))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.segments.values_mut().chain(self.nameless.values_mut())
    }

    /// Is there room for so many pages more?
    fn has_room(&self, pages: u64) -> bool {
        let all: u64 = self.segments.values().chain(self.nameless.values()).map(Segment::pages).sum();
        all.checked_add(pages).is_some_and(|all| all <= PAGES_MAX)
    }

    /// Memory without a name, which a process has once, to write. `Invalid`, `TooMany`.
    pub fn add_nameless(&mut self, process: ProcessId, pages: u64, number: u64) -> Result<Attached, SegmentError> {
        if pages == 0 {
            return Err(SegmentError::Invalid);
        }
        let number = number & !NUMBER_OF_PART;
        if self.nameless.len() >= SEGMENTS_MAX || !self.has_room(pages) || self.by_number(number).is_some() {
            return Err(SegmentError::TooMany);
        }
        let state = SegmentState { bytes: pages * PAGE, is_removed: true, ..SegmentState::default() };
        let parts = vec![None; pages.div_ceil(PART_PAGES) as usize];
        self.nameless.insert(number, Segment { state, number, parts, holders: BTreeMap::new() });
        self.join(process, number)
    }

    /// A process has such memory once more, to write. `Invalid`.
    pub fn join(&mut self, process: ProcessId, number: u64) -> Result<Attached, SegmentError> {
        let segment = self.nameless.get_mut(&number).ok_or(SegmentError::Invalid)?;
        let holder = segment.holders.entry(process).or_default();
        holder.times += 1;
        holder.is_writer = true;
        Ok(Attached { number, pages: segment.pages() })
    }

    /// The segment of a key; a new one gets `number`, which nobody guesses. As for
    /// [`Process::segment`](contracts::process::Process::segment).
    pub fn find(&mut self, caller: Caller, wish: SegmentWish, number: u64) -> Result<SegmentId, SegmentError> {
        let is_it = |segment: &&Segment| segment.state.key == wish.key && wish.key != KEY_PRIVATE;
        if let Some(found) = self.segments.values().find(is_it) {
            if wish.creates && wish.is_new {
                return Err(SegmentError::Exists);
            }
            if found.state.bytes < wish.bytes {
                return Err(SegmentError::Invalid);
            }
            let bits = wish.mode >> 6 | wish.mode >> 3 | wish.mode;
            caller.may(&found.state, bits)?;
            return Ok(found.state.id);
        }
        if !wish.creates && wish.key != KEY_PRIVATE {
            return Err(SegmentError::NotFound);
        }
        if wish.bytes == 0 {
            return Err(SegmentError::Invalid);
        }
        let pages = wish.bytes.div_ceil(PAGE);
        let last = self.last.checked_add(1).filter(|id| *id <= i32::MAX as u32);
        let id = last.filter(|_| self.segments.len() < SEGMENTS_MAX && self.has_room(pages));
        let id = id.ok_or(SegmentError::TooMany)?;
        self.last = id;
        let own = [caller.identity.users.effective, caller.identity.groups.effective];
        let state = SegmentState {
            id,
            key: wish.key,
            bytes: wish.bytes,
            owner: own,
            creator: own,
            mode: wish.mode & 0o777,
            changed_s: caller.now_s,
            creator_process: caller.process,
            ..SegmentState::default()
        };
        let parts = vec![None; pages.div_ceil(PART_PAGES) as usize];
        let number = number & !NUMBER_OF_PART;
        self.segments.insert(id, Segment { state, number, parts, holders: BTreeMap::new() });
        Ok(id)
    }

    /// A process has a segment once more. `Invalid`, `Denied`.
    pub fn attach(&mut self, caller: Caller, id: SegmentId, is_writer: bool) -> Result<Attached, SegmentError> {
        let segment = self.segments.get_mut(&id).ok_or(SegmentError::Invalid)?;
        let may_write = caller.may(&segment.state, READ | WRITE);
        if is_writer { may_write } else { caller.may(&segment.state, READ) }?;
        let holder = segment.holders.entry(caller.process).or_default();
        holder.times += 1;
        holder.is_writer |= may_write.is_ok();
        (segment.state.attached_s, segment.state.last_process) = (caller.now_s, caller.process);
        Ok(Attached { number: segment.number, pages: segment.pages() })
    }

    /// A part, for who has the segment. `Invalid`.
    pub fn part(&mut self, process: ProcessId, number: u64, part: u32) -> Result<Part, SegmentError> {
        let segment = self.by_number(number).ok_or(SegmentError::Invalid)?;
        let holder = segment.holders.get(&process).ok_or(SegmentError::Invalid)?;
        let pages_of = |part: usize| (segment.pages() - part as u64 * PART_PAGES).min(PART_PAGES);
        match segment.parts.get(part as usize).ok_or(SegmentError::Invalid)? {
            Some(memory) => Ok(Part::Made(*memory, holder.is_writer)),
            None => {
                let missing = segment.parts.iter().enumerate().filter(|(_, memory)| memory.is_none());
                let all: u64 = missing.map(|(part, _)| pages_of(part)).sum();
                Ok(Part::Missing(pages_of(part as usize), all - pages_of(part as usize)))
            }
        }
    }

    /// A missing part was made. What is given back is of no use: another was entered meanwhile, or
    /// the segment is gone.
    pub fn made(&mut self, number: u64, part: u32, memory: MemoryId) -> Option<MemoryId> {
        let place = self.by_number(number).and_then(|segment| segment.parts.get_mut(part as usize));
        match place {
            Some(place) if place.is_none() => {
                *place = Some(memory);
                None
            }
            _ => Some(memory),
        }
    }

    /// A part could not be made: nobody has stored anything in the others yet, so they are given
    /// back.
    pub fn not_made(&mut self, number: u64) -> Vec<MemoryId> {
        let Some(segment) = self.by_number(number) else { return Vec::new() };
        if segment.parts.iter().all(Option::is_some) {
            return Vec::new();
        }
        segment.parts.iter_mut().filter_map(Option::take).collect()
    }

    /// Takes out what nobody has any more and is to be removed.
    fn take_unused(&mut self) -> Vec<MemoryId> {
        let is_unused = |segment: &Segment| segment.state.is_removed && segment.holders.is_empty();
        let named = self.segments.extract_if(.., |_, segment| is_unused(segment)).map(|(_, segment)| segment);
        let nameless = self.nameless.extract_if(.., |_, segment| is_unused(segment)).map(|(_, segment)| segment);
        named.chain(nameless).flat_map(|segment| segment.parts).flatten().collect()
    }

    /// A process has a segment once less.
    pub fn detach(&mut self, process: ProcessId, number: u64, now_s: u64) -> Vec<MemoryId> {
        let Some(segment) = self.by_number(number) else { return Vec::new() };
        let Some(holder) = segment.holders.get_mut(&process) else { return Vec::new() };
        holder.times -= 1;
        if holder.times == 0 {
            segment.holders.remove(&process);
        }
        (segment.state.detached_s, segment.state.last_process) = (now_s, process);
        self.take_unused()
    }

    /// A child has all that its parent has.
    pub fn inherit(&mut self, parent: ProcessId, child: ProcessId) {
        for segment in self.all_mut() {
            if let Some(holder) = segment.holders.get(&parent).copied() {
                segment.holders.insert(child, holder);
            }
        }
    }

    /// A process ended, or was thrown away.
    pub fn ended(&mut self, process: ProcessId, now_s: u64) -> Vec<MemoryId> {
        for segment in self.all_mut() {
            if segment.holders.remove(&process).is_some() {
                (segment.state.detached_s, segment.state.last_process) = (now_s, process);
            }
        }
        self.take_unused()
    }

    /// How a segment stands. `Invalid`, `Denied`.
    pub fn state(&self, caller: Caller, name: SegmentName) -> Result<SegmentState, SegmentError> {
        let (found, is_open) = match name {
            SegmentName::Id(id) => (self.segments.get(&id), false),
            SegmentName::Place { place, is_open } => (self.segments.values().nth(place as usize), is_open),
        };
        let found = found.ok_or(SegmentError::Invalid)?;
        if !is_open {
            caller.may(&found.state, READ)?;
        }
        Ok(found.told())
    }

    /// All together, and the highest place of one.
    pub fn sum(&self) -> (SegmentsSum, u32) {
        let present = |segment: &Segment| {
            if segment.parts.iter().any(Option::is_some) { segment.pages() } else { 0 }
        };
        let sum = SegmentsSum {
            segments: self.segments.len() as u32,
            pages: self.segments.values().map(Segment::pages).sum(),
            present_pages: self.segments.values().map(present).sum(),
        };
        (sum, sum.segments.saturating_sub(1))
    }

    /// Changes a segment. `Invalid`, `NotOwner`.
    pub fn change(
        &mut self,
        caller: Caller,
        id: SegmentId,
        change: SegmentChange,
    ) -> Result<Vec<MemoryId>, SegmentError> {
        let segment = self.segments.get_mut(&id).ok_or(SegmentError::Invalid)?;
        if !caller.owns(&segment.state) {
            return Err(SegmentError::NotOwner);
        }
        let state = &mut segment.state;
        match change {
            // Nobody finds it by its key any more.
            SegmentChange::Remove => (state.is_removed, state.key) = (true, KEY_PRIVATE),
            SegmentChange::Set { owner, mode } => {
                (state.owner, state.mode, state.changed_s) = (owner, mode & 0o777, caller.now_s);
            }
            SegmentChange::Lock(is_locked) => state.is_locked = is_locked,
        }
        Ok(self.take_unused())
    }
}

#[cfg(test)]
mod tests;
