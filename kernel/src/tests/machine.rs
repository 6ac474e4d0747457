//! A machine of several cores, with devices, that a test plays: the other cores' memory is RAM of
//! the test, and what lies in it is the test's to write.

use crate::boot::info::{CoreEntry, Machine};
use crate::core_local::Shared;
use crate::hardware::{self, Layout};
use crate::memory::{PhysAddr, PhysRange, phys_to_virt, set_test_ram};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Statics of a core that lie no further than this from the one named.
const REACH: u64 = 1 << 20;
const LOCAL_APIC: u64 = 0xfee0_0000;
const INSTANCE_BYTES: u64 = 2 * REACH;

/// Statics of the kernel are one of the test program: who plays a machine with them is alone.
static ALONE: Mutex<()> = Mutex::new(());

/// A machine of a test; there is none any more when this goes.
pub(crate) struct Played {
    _memory: Vec<u128>,
    _alone: MutexGuard<'static, ()>,
}

impl Played {
    /// A machine that is as `fill` says, without other cores.
    pub(crate) fn new(fill: impl FnOnce(&mut Machine)) -> Played {
        Played::with_memory(Vec::new(), fill)
    }

    /// All of a core's copy of statics holds this word.
    pub(crate) fn fill(&self, core: usize, word: u64) {
        assert!(core > 0, "this core's statics are what they are");
        let to = phys_to_virt(hardware::machine().shares[core].instance.base).cast::<u64>();
        // SAFETY: memory of this machine, which is there as long as this.
        unsafe { core::slice::from_raw_parts_mut(to, (INSTANCE_BYTES / 8) as usize) }.fill(word);
    }

    fn with_memory(memory: Vec<u128>, fill: impl FnOnce(&mut Machine)) -> Played {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let machine: &'static Shared<Machine> = Box::leak(Box::new(Shared::zeroed()));
        // SAFETY: zero bytes are a valid machine, and nobody else knows of this one.
        fill(unsafe { machine.write_alone() });
        // SAFETY: as above; it is not changed any more.
        hardware::set_machine(Some(unsafe { machine.get() }));
        Played { _memory: memory, _alone: alone }
    }

    /// A machine of `cores`, each with its own copy of `local` and of statics near it. All copies
    /// but this core's begin as zeros.
    pub(crate) fn of_cores<T>(cores: usize, local: *const T) -> Played {
        let memory = vec![0u128; (cores as u64 * INSTANCE_BYTES / 16) as usize];
        // This core's statics begin at the physical address 0, and the others' memory behind them.
        let core_start = (local as u64 & !63) - REACH;
        let others = (memory.as_ptr() as u64).checked_sub(core_start).expect("a heap lies above statics");
        assert!(others >= INSTANCE_BYTES);
        set_test_ram(core::ptr::with_exposed_provenance_mut(core_start as usize));
        hardware::set_image(Some((Layout { core_start, ..Layout::default() }, PhysAddr(0))));
        Played::with_memory(memory, |machine| {
            machine.core_count = cores;
            for core in 0..cores {
                machine.cores[core] = CoreEntry { apic_id: core as u32, node: 0 };
                let base = if core == 0 { 0 } else { others + core as u64 * INSTANCE_BYTES };
                machine.shares[core].instance = PhysRange::new(base, INSTANCE_BYTES);
            }
            // Its command register is never busy.
            machine.facts.local_apic = LOCAL_APIC;
            hardware::set_register(LOCAL_APIC + 0x300, 0, 0);
        })
    }
}

/// Writes to memory of the test, of which nobody has a reference.
pub(crate) fn write<T: Copy>(at: PhysAddr, values: &[T]) {
    let to = phys_to_virt(at).cast::<T>();
    // SAFETY: there is memory of the test, by contract.
    unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) }
}

/// Reads a byte of memory of the test.
pub(crate) fn read(at: PhysAddr) -> u8 {
    // SAFETY: as for `write`.
    unsafe { phys_to_virt(at).read() }
}

/// Who was sent an interrupt since the last question: APIC id and command.
pub(crate) fn take_interrupts() -> Vec<(u32, u32)> {
    let writes = hardware::take_register_writes();
    let sent = |pair: &[(u64, u32)]| (pair[0].1 >> 24, pair[1].1);
    assert!(writes.chunks(2).all(|pair| pair[0].0 == LOCAL_APIC + 0x310 && pair[1].0 == LOCAL_APIC + 0x300));
    writes.chunks_exact(2).map(sent).collect()
}

impl Drop for Played {
    fn drop(&mut self) {
        hardware::set_machine(None);
        hardware::set_image(None);
        hardware::remove_registers();
        set_test_ram(core::ptr::null_mut());
    }
}
