//! Memory of all dispatchers: lines of atomic words, and user semaphores over cores.
//!
//! Each word that cores write has a cache line of its own. A core's semaphore is a count in its
//! line and a kernel semaphore on that core; others reach that by a wake slot, whose number stands
//! in a line, too (NOVA section 3: `down` and `up` enter the kernel only where somebody sleeps).

use abi::{Error, Handle};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::Start;
use semaphore::{KernelSemaphore, Semaphore};

use super::NAME;
use crate::parts::Lines;

const CORES_MAX: u64 = 64;
const PRESENT: u64 = 0;
const ARRIVED: u64 = 1;
/// Free for a study.
pub(super) const STUDY: u64 = 2;
const SLOTS: u64 = 64;
const COUNTS: u64 = SLOTS + CORES_MAX;
/// A line for each core, free for a study.
pub(super) const ASKED: u64 = COUNTS + CORES_MAX;
pub(super) const ANSWERED: u64 = ASKED + CORES_MAX;
const LINES: u64 = ANSWERED + CORES_MAX;

/// A core's view of it.
#[derive(Clone, Copy)]
pub(super) struct Room {
    lines: Lines,
    pub(super) core: u64,
    pub(super) cores: u64,
}

impl Room {
    /// `None`: the description gives no region for so many cores.
    pub(super) fn of(start: &Start) -> Option<Room> {
        let lines = Lines::of(&start.region(NAME)?, LINES)?;
        let room = Room { lines, core: start.core().into(), cores: start.cores().into() };
        (room.cores <= CORES_MAX).then_some(room)
    }

    /// A word of a line.
    pub(super) fn word(&self, line: u64, word: u64) -> &'static AtomicU64 {
        self.lines.word(line, word)
    }

    /// The first word of a line.
    pub(super) fn line(&self, line: u64) -> &'static AtomicU64 {
        self.word(line, 0)
    }

    /// This core is here.
    pub(super) fn arrive(&self) {
        self.line(PRESENT).fetch_add(1, Ordering::AcqRel);
    }

    /// Whether all cores are.
    pub(super) fn is_complete(&self) -> bool {
        self.line(PRESENT).load(Ordering::Acquire) >= self.cores
    }
}

/// Where all cores meet, spinning, again and again.
pub(super) struct Barrier(u64);

impl Barrier {
    pub(super) const fn new() -> Barrier {
        Barrier(0)
    }

    /// Waits until all cores are here.
    pub(super) fn meet(&mut self, room: &Room) {
        self.0 += room.cores;
        room.line(ARRIVED).fetch_add(1, Ordering::AcqRel);
        while room.line(ARRIVED).load(Ordering::Acquire) < self.0 {
            core::hint::spin_loop();
        }
    }
}

/// A kernel semaphore, or the wake slot of one on another core; it is kept for ever.
pub(super) struct Gate(Handle);

impl KernelSemaphore for Gate {
    fn up(&self, count: u64) -> Result<(), Error> {
        sys::semaphore_up(self.0, count)
    }
    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        sys::semaphore_down(self.0, deadline_ns)
    }
}

/// A semaphore of each core: its own may be waited at, others raised.
pub(super) fn semaphores(
    start: &Start,
    room: &Room,
    barrier: &mut Barrier,
) -> Result<Vec<Semaphore<&'static AtomicU64, Gate>>, Error> {
    let pcore = start.capability("cores").ok_or(Error::NoRights)?;
    let own = sys::semaphore_alloc(Handle::SELF_RAM, 0)?;
    room.line(SLOTS + room.core).store(sys::wake_slot_alloc(pcore, own, 0)?, Ordering::Release);
    barrier.meet(room);
    let gate = |core| match core == room.core {
        true => Ok(own),
        false => {
            let slot = room.line(SLOTS + core).load(Ordering::Acquire);
            sys::wake_slot_import(pcore, Handle::SELF_RAM, core, slot)
        }
    };
    let made = (0..room.cores).map(|core| Ok(Semaphore::new(room.line(COUNTS + core), Gate(gate(core)?))));
    made.collect()
}
