//! A slot of the session page: what is asked in its first half, how it ended in the other.
//!
//! The client writes the number last, and takes it away before it writes anything else; the server
//! reads it before and after the rest. So what is copied is one request, whole.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use contracts::blocks::{BlocksError, Extent};
use runtime::Page;

/// Words of a slot: a cache line.
const WORDS: usize = 8;
const OPERATION: usize = 0;
const NUMBER: usize = 1;
const SECTOR: usize = 2;
/// Sectors << 32 | offset in the data region.
const PLACE: usize = 3;
/// How it ended, and on which cores it was: the worker's << 16 | the handler's << 40.
const ANSWER: usize = 4;
/// When it was preprocessed; then pairs of nanoseconds after that.
const PREPROCESSED: usize = 5;
const SUBMITTED_PROGRAMMED: usize = 6;
const INTERRUPTED_SIGNALLED: usize = 7;
const _: () = assert!(super::SLOTS * WORDS * 8 == size_of::<Page>());

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk into the data region.
    Read,
    /// The other way.
    Write,
    /// What was written survives the loss of power.
    Flush,
    /// What stands there is of no use any more.
    Discard,
    /// Zeros are read there afterwards.
    WriteZeroes {
        /// The disk may give up the room.
        may_discard: bool,
    },
}

impl Operation {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Operation::Read => 1,
            Operation::Write => 2,
            Operation::Flush => 3,
            Operation::Discard => 4,
            Operation::WriteZeroes { may_discard } => 5 + u64::from(may_discard),
        }
    }

    pub(crate) fn decode(word: u64) -> Option<Operation> {
        Some(match word {
            1 => Operation::Read,
            2 => Operation::Write,
            3 => Operation::Flush,
            4 => Operation::Discard,
            5 | 6 => Operation::WriteZeroes { may_discard: word == 6 },
            _ => return None,
        })
    }
}

/// A request, as `contracts::blocks` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub operation: Operation,
    /// The client's number for it, not 0.
    pub number: u64,
    /// Where on the disk; nowhere for a flush.
    pub extent: Extent,
    /// Where in the data region, if it has data; else 0.
    pub offset: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is done.
    Done,
    /// A flush of a disk that keeps nothing back.
    WritesThrough,
    /// See there.
    Failed(BlocksError),
    /// Nothing of the slot was asked since the server began. Remedy: ask.
    NotAsked,
}

impl Ended {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Ended::Done => 1,
            Ended::WritesThrough => 2,
            Ended::NotAsked => 3,
            Ended::Failed(BlocksError::Range) => 4,
            Ended::Failed(BlocksError::ReadOnly) => 5,
            Ended::Failed(BlocksError::Unsupported) => 6,
            Ended::Failed(BlocksError::Full) => 7,
            Ended::Failed(BlocksError::Number) => 8,
            Ended::Failed(BlocksError::Io) => 9,
            Ended::Failed(BlocksError::NoDevice) => 10,
        }
    }

    /// What cannot be is a failure of the device's.
    pub(crate) fn decode(word: u64) -> Ended {
        match word {
            1 => Ended::Done,
            2 => Ended::WritesThrough,
            3 => Ended::NotAsked,
            4 => Ended::Failed(BlocksError::Range),
            5 => Ended::Failed(BlocksError::ReadOnly),
            6 => Ended::Failed(BlocksError::Unsupported),
            7 => Ended::Failed(BlocksError::Full),
            8 => Ended::Failed(BlocksError::Number),
            10 => Ended::Failed(BlocksError::NoDevice),
            _ => Ended::Failed(BlocksError::Io),
        }
    }
}

/// When a request was where, nanoseconds since boot; those that it did not come to are the moment
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// The worker checked it,
    pub preprocess_ns: u64,
    /// and put it into the ring.
    pub submit_ns: u64,
    /// The handler gave it to the device,
    pub program_ns: u64,
    /// saw it done,
    pub interrupt_ns: u64,
    /// and raised the client's semaphore.
    pub signal_ns: u64,
    /// The core of the worker,
    pub submit_core: u32,
    /// and of the handler; the worker's, if the request never came to that.
    pub program_core: u32,
}

const ENDED_MASK: u64 = 0xffff;
const CORE_MASK: u64 = 0xff_ffff;
const CORE_SHIFTS: [u32; 2] = [16, 40];

fn word(page: &Page, slot: usize, word: usize) -> &AtomicU64 {
    // In bounds: slots come from words of 64 bits or were checked.
    &page[slot % super::SLOTS * WORDS + word]
}

/// Client: writes what it asks.
pub(crate) fn fill(page: &Page, slot: usize, request: &Request) {
    let Request { operation, number, extent, offset } = *request;
    word(page, slot, NUMBER).store(0, Ordering::Relaxed);
    fence(Ordering::Release);
    word(page, slot, OPERATION).store(operation.encode(), Ordering::Relaxed);
    word(page, slot, SECTOR).store(extent.sector, Ordering::Relaxed);
    word(page, slot, PLACE).store(u64::from(extent.sectors) << 32 | u64::from(offset), Ordering::Relaxed);
    word(page, slot, NUMBER).store(number, Ordering::Release);
}

/// Client: how it ended.
pub(crate) fn ended(page: &Page, slot: usize) -> Ended {
    Ended::decode(word(page, slot, ANSWER).load(Ordering::Acquire) & ENDED_MASK)
}

/// Client: when it was where.
pub(crate) fn phases(page: &Page, slot: usize) -> Phases {
    let read = |at| word(page, slot, at).load(Ordering::Relaxed);
    let preprocess_ns = read(PREPROCESSED);
    let pair = |at| [read(at) >> 32, read(at) & u64::from(u32::MAX)].map(|after| preprocess_ns.saturating_add(after));
    let ([submit_ns, program_ns], [interrupt_ns, signal_ns]) =
        (pair(SUBMITTED_PROGRAMMED), pair(INTERRUPTED_SIGNALLED));
    let [submit_core, program_core] = CORE_SHIFTS.map(|shift| (read(ANSWER) >> shift & CORE_MASK) as u32);
    Phases { preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns, submit_core, program_core }
}

/// Server: copies what is asked, once. An operation that there is not, or a slot that is written at
/// the same time, is an error.
pub(crate) fn copy(page: &Page, slot: usize) -> Result<Request, BlocksError> {
    let number = word(page, slot, NUMBER).load(Ordering::Acquire);
    let operation = word(page, slot, OPERATION).load(Ordering::Relaxed);
    let sector = word(page, slot, SECTOR).load(Ordering::Relaxed);
    let place = word(page, slot, PLACE).load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    if number == 0 || word(page, slot, NUMBER).load(Ordering::Relaxed) != number {
        return Err(BlocksError::Number);
    }
    let operation = Operation::decode(operation).ok_or(BlocksError::Unsupported)?;
    let extent = Extent { sector, sectors: (place >> 32) as u32 };
    Ok(Request { operation, number, extent, offset: place as u32 })
}

/// Server: says how it ended, and when it was where.
pub(crate) fn answer(page: &Page, slot: usize, ended: Ended, phases: &Phases) {
    let first = phases.preprocess_ns;
    let mut last = first;
    let mut after = |at_ns: u64| {
        last = last.max(at_ns);
        (last - first).min(u32::MAX.into())
    };
    let submitted = after(phases.submit_ns) << 32 | after(phases.program_ns);
    let interrupted = after(phases.interrupt_ns) << 32 | after(phases.signal_ns);
    word(page, slot, PREPROCESSED).store(first, Ordering::Relaxed);
    word(page, slot, SUBMITTED_PROGRAMMED).store(submitted, Ordering::Relaxed);
    word(page, slot, INTERRUPTED_SIGNALLED).store(interrupted, Ordering::Relaxed);
    let cores = [phases.submit_core, phases.program_core].map(|core| u64::from(core) & CORE_MASK);
    let cores = cores[0] << CORE_SHIFTS[0] | cores[1] << CORE_SHIFTS[1];
    word(page, slot, ANSWER).store(ended.encode() | cores, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        [const { AtomicU64::new(0) }; 512]
    }

    #[test]
    fn what_is_asked_and_answered_comes_over() {
        let page = page();
        let zeroes = |may_discard| Operation::WriteZeroes { may_discard };
        let all =
            [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard, zeroes(false), zeroes(true)];
        for (slot, operation) in all.into_iter().enumerate() {
            let extent = Extent { sector: u64::MAX - slot as u64, sectors: u32::MAX };
            let request = Request { operation, number: 7 + slot as u64, extent, offset: 0x8000_0001 };
            assert_eq!(copy(&page, slot), Err(BlocksError::Number), "nothing is asked");
            fill(&page, slot, &request);
            assert_eq!(copy(&page, slot), Ok(request));
        }
        word(&page, 0, OPERATION).store(9, Ordering::Relaxed);
        assert_eq!(copy(&page, 0), Err(BlocksError::Unsupported));
        let errors = [
            BlocksError::Range,
            BlocksError::ReadOnly,
            BlocksError::Unsupported,
            BlocksError::Full,
            BlocksError::Number,
            BlocksError::Io,
            BlocksError::NoDevice,
        ];
        let ends = [Ended::Done, Ended::WritesThrough, Ended::NotAsked].into_iter().chain(errors.map(Ended::Failed));
        for end in ends {
            answer(&page, 63, end, &Phases::default());
            assert_eq!(ended(&page, 63), end);
        }
    }

    #[test]
    fn phases_never_go_back() {
        let page = page();
        let (submit_core, program_core) = (0xff_ffff, 71);
        let times = Phases { preprocess_ns: 5 << 40, submit_ns: 6 + (5 << 40), ..Phases::default() };
        let all = Phases { program_ns: 7 + (5 << 40), submit_core, program_core, ..times };
        answer(&page, 3, Ended::Done, &all);
        let last = all.program_ns;
        assert_eq!(phases(&page, 3), Phases { interrupt_ns: last, signal_ns: last, ..all });
        assert_eq!(ended(&page, 3), Ended::Done, "the cores are not taken for an end");
    }
}
