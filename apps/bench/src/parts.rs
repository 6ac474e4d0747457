//! What programs here are made of beyond their first context: lines of atomic words that cores
//! share, contexts with time of their own, workers without.

use abi::layout::portal;
use abi::{Error, Handle};
use alloc::boxed::Box;
use buffers::{Allocator, Local, Shape};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use lock::Line;
use runtime::{Companion, Region, Serve, Vectors, Worker};

pub(crate) const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;
pub(crate) const BLOCK_WORDS: usize = 512;
/// Bit by which we are told that a worker hangs; calls here have no deadline, so none is.
const HANGS: u64 = 1 << 56;
/// Processor time that a worker may serve beyond its callers' deadlines.
const HANG_NS: u64 = 1_000_000_000;

/// Cache lines of a region, used as atomic words only, each on a line of its own or with others of
/// its writer.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    address: u64,
    count: u64,
}

impl Lines {
    /// The first `count` lines; `None`: the region is smaller.
    pub(crate) fn of(region: &Region, count: u64) -> Option<Lines> {
        (region.bytes >= count * LINE_BYTES).then_some(Lines { address: region.address, count })
    }

    /// A line that there is.
    pub(crate) fn line(&self, line: u64) -> &'static Line {
        debug_assert!(line < self.count);
        // SAFETY: as for a word of it.
        unsafe { &*((self.address + line * LINE_BYTES) as *const Line) }
    }

    /// A word of a line, both of which there are.
    #[inline(always)]
    pub(crate) fn word(&self, line: u64, word: u64) -> &'static AtomicU64 {
        debug_assert!(line < self.count && word < LINE_BYTES / WORD_BYTES);
        // SAFETY: `of` checked that the region has these lines, beyond which no caller goes; it is
        // mapped for the component's life.
        unsafe { &*((self.address + line * LINE_BYTES + word * WORD_BYTES) as *const AtomicU64) }
    }
}

/// A block of the buffer cache.
pub(crate) type Block = [u64; BLOCK_WORDS];

/// A core's part of blocks in a region of all cores from a byte on, the beginning of a line, and
/// where they end; `None`: the region is smaller, or there is no memory. Called once for each core
/// and each place, of which nothing else is made.
pub(crate) fn blocks<A: Allocator>(
    region: &Region,
    first: u64,
    shape: Shape,
    core: usize,
) -> Option<(Local<Block, A>, u64)> {
    let end = first + shape.bytes::<Block>() as u64;
    let memory = NonNull::new((region.address + first) as *mut u8).filter(|_| end <= region.bytes)?;
    // SAFETY: so many bytes are there, mapped for the component's life and zero when it began; a
    // block may be all zero.
    unsafe { buffers::local_in(memory, shape, core) }.ok().map(|local| (local, end))
}

/// A server that a portal leads to, for ever: it computes, makes kernel calls, and uses nothing but
/// atomics. Errors: those of `PortalAlloc` and of [`Worker::start`].
pub(crate) fn serve<S: Serve + 'static>(server: S) -> Result<Handle, Error> {
    let portal = sys::portal_alloc(Handle::SELF_RAM, Handle::NONE, 0, portal::RENDEZVOUS)?;
    // SAFETY: all servers of this crate do no more than is said above.
    let worker = unsafe { Worker::start(Box::leak(Box::new(server)), Vectors::None, HANG_NS, HANGS) }?;
    worker.lead(portal)?;
    core::mem::forget(worker);
    Ok(portal)
}

/// What a context of its own does, once: it computes, makes kernel calls, and uses nothing but
/// atomics.
pub(crate) trait Task: Sync {
    /// All of it.
    fn run(&self);
}

/// Starts a task with time of that priority, in slices of `slice_us`. Errors: those of
/// [`Companion::start`].
pub(crate) fn start<T: Task>(task: &'static T, priority: u64, slice_us: u64) -> Result<Companion, Error> {
    let place = core::ptr::from_ref(task).expose_provenance() as u64;
    // SAFETY: all tasks of this crate do no more than is said above.
    unsafe { Companion::start(run::<T>, place, Some((priority, slice_us))) }
}

extern "C" fn run<T: Task>(place: u64) -> ! {
    // SAFETY: `start` gave the address of one that is there for ever.
    let task = unsafe { &*core::ptr::with_exposed_provenance::<T>(place as usize) };
    task.run();
    loop {
        let _ = sys::wait(u64::MAX);
    }
}
