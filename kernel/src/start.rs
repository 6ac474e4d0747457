//! From a core that is ready to its monitor running.
//!
//! Each core makes its root Ram from the memory boot gave it, finds `sbin/monitor` in the boot archive, and starts it in a domain of its own with the
//! capabilities that `abi::Handle` names. Nothing else is ever started by the kernel. A core tells core 0 that it runs by a word in its own memory and a
//! wake bit; it writes no other core's memory.

mod archive;
mod monitor;

use crate::arch::{cores, instance, power};
use crate::boot::info::{CORES_MAX, CoreInfo, machine};
use crate::memory::{PAGE_BYTES, PhysAddr, PhysRange, phys_to_virt};
use crate::objects::frames::AddError;
use crate::objects::remote::{CORE_UP_SLOT, WAKE_TABLE_PAGES};
use crate::objects::{Domain, Ptr};
use crate::state::Kernel;
use crate::{hardware, log, trace, trap};
use core::sync::atomic::{AtomicU64, Ordering};

/// Status of a machine that cannot start.
const FAILED: u8 = 100;
/// What [`RUNNING`] holds while the core runs. Memory of a core that never ran may hold anything else.
const RUNNING_MARK: u64 = 0x5045_4c41_474f_5550;

/// This core runs; other cores read it.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// On core 0: the memory that core 0's monitor shares with the monitor of each core, as (physical address, pages). The starting core reads it there.
static LINKS: [[AtomicU64; 2]; CORES_MAX] = [const { [const { AtomicU64::new(0) }; 2] }; CORES_MAX];

/// Core 0: what the monitor of `core` is to share with the caller.
pub fn set_link(core: usize, link: PhysRange) {
    if let Some([base, pages]) = LINKS.get(core) {
        base.store(link.base.0, Ordering::Relaxed);
        pages.store(link.bytes / PAGE_BYTES as u64, Ordering::Release);
    }
}

/// What this core's monitor shares with core 0's, if anything.
fn link(core: usize) -> Option<(PhysAddr, u64)> {
    // SAFETY: the address of core 0's copy, which lives as long as the machine; only atomics touch it.
    let links = unsafe { &*instance::remote(0, &LINKS)? };
    let [base, pages] = links.get(core).filter(|_| core != 0)?;
    let pages = pages.load(Ordering::Acquire);
    (pages > 0).then(|| (PhysAddr(base.load(Ordering::Relaxed)), pages))
}

/// Whether a core's kernel runs.
pub fn is_running(core: usize) -> bool {
    if core == cores::this_core() {
        return RUNNING.load(Ordering::Relaxed) == RUNNING_MARK;
    }
    // SAFETY: the address of another core's copy, in RAM of the direct map; only atomics touch it.
    instance::remote(core, &RUNNING).is_some_and(|word| unsafe { &*word }.load(Ordering::Acquire) == RUNNING_MARK)
}

/// Called once per core when boot is done.
pub fn kernel_main(info: &'static CoreInfo) -> ! {
    let started = trap::KERNEL.with(|slot| {
        let kernel = slot.insert(Kernel::new(info.core, Some(info)));
        take_memory(kernel, info).and_then(|()| monitor::start(kernel, info))
    });
    if let Err(reason) = started {
        log!("pelago: core {} cannot start: {reason}", info.core);
        power::power_off(FAILED);
    }
    report_distant_memory(info);
    RUNNING.store(RUNNING_MARK, Ordering::Release);
    if info.core == 0 {
        report_if_complete(info);
    } else {
        hardware::post(0, CORE_UP_SLOT);
    }
    let decision = trap::KERNEL.with(|kernel| kernel.as_mut().map(Kernel::decide));
    trap::leave(decision.unwrap_or(crate::scheduler::Decision::Idle))
}

/// Says if this core's kernel or memory lies on other nodes than its own: a node has too little for its cores then.
fn report_distant_memory(info: &CoreInfo) {
    let affinities = machine().facts.affinities.all();
    let own = || affinities.iter().filter(|affinity| affinity.node == info.node()).map(|affinity| affinity.range);
    let near = |range: PhysRange| own().map(|node| node.overlap_bytes(&range)).sum::<u64>();
    let parts = || info.ram.iter().copied().chain([PhysRange::new(instance::kernel_root().0.0, PAGE_BYTES as u64)]);
    let distant: u64 = parts().map(|range| range.bytes - near(range)).sum();
    if !affinities.is_empty() && distant > 0 {
        let (core, node, kib) = (info.core, info.node(), distant >> 10);
        log!("pelago: {kib} KiB of core {core}'s memory are not of its node {node}");
    }
}

/// The root Ram, and the tables the kernel itself needs.
fn take_memory(kernel: &mut Kernel, info: &CoreInfo) -> Result<(), &'static str> {
    for range in info.ram {
        match kernel.frames.add(*range) {
            // A range of a page or two is not worth its tables.
            Ok(()) | Err(AddError::Small) => (),
            Err(AddError::Full | AddError::Overlap) => return Err("boot gave it overlapping memory"),
        }
    }
    kernel.make_root_ram().ok_or("it has no memory")?;
    let ring = kernel.frames.allocate_run(trace::PAGES).ok_or("its memory is too small")?;
    kernel.trace.set_ring(ring);
    let table = kernel.frames.allocate_run(WAKE_TABLE_PAGES).ok_or("its memory is too small")?;
    kernel.wake_slots.set_table(table);
    Ok(())
}

/// Core 0: another core's kernel runs.
pub fn core_came_up(kernel: &Kernel) {
    if let Some(info) = kernel.info {
        report_if_complete(info);
    }
}

fn report_if_complete(info: &CoreInfo) {
    let cores = info.cores.len();
    if (0..cores).all(is_running) {
        log!("pelago: {cores} cores up");
    }
}

/// The boot archive's bytes.
fn archive_bytes(info: &CoreInfo) -> Result<&'static [u8], &'static str> {
    let range = info.archive.ok_or("there is no boot archive; give one with -initrd")?;
    // SAFETY: boot checked that it is RAM of the direct map, reserved it and never writes it.
    Ok(unsafe { core::slice::from_raw_parts(phys_to_virt(range.base), range.bytes as usize) })
}

impl Kernel {
    /// Whether the range lies in memory that was given to some core, or in the boot archive.
    pub fn is_ram(&self, range: PhysRange) -> bool {
        let inside = |whole: &PhysRange| whole.base.0 <= range.base.0 && range.end().0 <= whole.end().0;
        let archive = self.info.and_then(|info| info.archive);
        let archive =
            archive.map(|archive| PhysRange::new(archive.base.0 & !0xfff, (archive.base.0 & 0xfff) + archive.bytes));
        self.is_core_memory(range)
            || archive
                .is_some_and(|archive| inside(&PhysRange::new(archive.base.0, archive.bytes.next_multiple_of(4096))))
    }

    /// Whether the range lies in memory that was given to some core.
    pub fn is_core_memory(&self, range: PhysRange) -> bool {
        let Some(info) = self.info else { return false };
        let inside = |whole: &PhysRange| whole.base.0 <= range.base.0 && range.end().0 <= whole.end().0;
        machine().shares[..info.cores.len()].iter().flat_map(|share| &share.ram).any(inside)
    }

    /// When this core's monitor has ended: core 0 ends the machine with its status.
    pub fn monitor_ended(&self, monitor: Ptr<Domain>) {
        let state = monitor.stand();
        log!("pelago: monitor of core {} ended, cause {} status {}", self.core(), state.cause, state.status);
        if self.core() == 0 {
            power::power_off(state.status.min(255) as u8 | u8::from(state.cause != abi::DeathCause::Exit as u64));
        }
    }
}
