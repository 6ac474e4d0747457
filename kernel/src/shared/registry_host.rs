//! The host's stand-in for `registry.rs`: a machine of a few cores that a test makes; each of its
//! threads is one core.

use super::POOLS_MAX;
use crate::mailbox::TlbShootdown;
use core::cell::Cell;
use lock::{AtomicU64, Reader};

/// Cores of a test's machine.
pub const CORES: usize = 4;

/// What the cores of one test publish.
pub struct Machine {
    pools: [[AtomicU64; POOLS_MAX]; CORES],
    readers: [Reader; CORES],
    shootdown: [TlbShootdown; CORES],
}

impl Machine {
    /// A machine whose cores published nothing. Stays until the test program ends: threads refer to
    /// it.
    pub fn new() -> &'static Machine {
        let pools = [const { [const { AtomicU64::new(0) }; POOLS_MAX] }; CORES];
        let (readers, shootdown) = ([const { Reader::new() }; CORES], [const { TlbShootdown::new() }; CORES]);
        Box::leak(Box::new(Machine { pools, readers, shootdown }))
    }
}

/// Nobody on the host asks whose memory is whose.
pub fn tell(_: crate::memory::PhysAddr, _: u64) {}

std::thread_local! {
    static THIS: Cell<Option<(&'static Machine, usize)>> = const { Cell::new(None) };
}

/// Makes this thread a core of `machine`; otherwise it is the first of one of its own.
pub fn set_test_core(machine: &'static Machine, core: usize) {
    THIS.set(Some((machine, core)));
}

fn this() -> (&'static Machine, usize) {
    THIS.get().unwrap_or_else(|| {
        set_test_core(Machine::new(), 0);
        this()
    })
}

/// As in `registry.rs`.
pub fn pools(core: usize) -> Option<&'static [AtomicU64; POOLS_MAX]> {
    this().0.pools.get(core)
}

/// As in `registry.rs`.
pub fn reader() -> &'static Reader {
    let (machine, core) = this();
    &machine.readers[core]
}

/// As in `registry.rs`.
pub fn reader_of(core: usize) -> Option<&'static Reader> {
    this().0.readers.get(core)
}

/// The shootdown requests to a core, and the number of this core.
pub fn shootdown(core: usize) -> (&'static TlbShootdown, usize) {
    let (machine, own) = this();
    (&machine.shootdown[core], own)
}

/// As in `registry.rs`.
pub fn cores() -> usize {
    CORES
}
