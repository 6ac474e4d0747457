//! What each core publishes in its own memory for others to read: its pools, and whether it is in a
//! read section.

use super::POOLS_MAX;
use crate::arch::{cores, instance};
use crate::boot::command_line;
use crate::boot::info::machine;
use crate::core_commands::{self, State};
use crate::memory::{PAGE_BYTES, PhysAddr};
use lock::{AtomicU64, Reader};

static POOLS: [AtomicU64; POOLS_MAX] = [const { AtomicU64::new(0) }; POOLS_MAX];
static READER: Reader = Reader::new();

/// A static of another core, whose kernel runs; `None` for one where none ever did. A core that was
/// halted still has its kernel.
#[inline(never)]
fn of_core<T: Sync>(core: usize, local: &'static T) -> Option<&'static T> {
    if core == cores::this_core() {
        return Some(local);
    }
    let remote = (core_commands::state(core) != State::Never).then(|| instance::remote(core, local))??;
    // SAFETY: that core's copy, initialised before it was marked as running; it holds atomics only
    // and stays in place.
    Some(unsafe { &*remote })
}

/// Physical addresses of the pools whose home is `core`; 0 where there is none.
pub fn pools(core: usize) -> Option<&'static [AtomicU64; POOLS_MAX]> {
    of_core(core, &POOLS)
}

/// A pool was made there: says so, if the command line asks whose memory is whose
/// (`pelago.list=memory`).
pub fn tell(base: PhysAddr, pages: u64) {
    if command_line::values(machine().command_line(), "pelago.list").any(|what| what == "memory") {
        crate::log!("pelago: memory of a pool: {:#x}+{:#x}", base.0, pages * PAGE_BYTES as u64);
    }
}

/// This core's read sections.
pub fn reader() -> &'static Reader {
    &READER
}

/// Those of a core whose kernel runs. One that starts meanwhile has not seen what was unlinked
/// before: it is marked as running before its first section, and a section's fence and that of
/// `Reader::wait_for_all` put the mark and the unlinking in order.
pub fn reader_of(core: usize) -> Option<&'static Reader> {
    of_core(core, &READER)
}

/// Cores of the machine.
pub fn cores() -> usize {
    machine().cores().len()
}
