//! The kernel instance of a core: its copy of .data and .bss, its stacks, and the page tables that show them.
//!
//! Shared by all cores, built once by core 0 and constant afterwards: the tables of direct map, device map and image, hanging under the boot root.
//! Private: the root, one table below it for the top 512 GiB, and the tables of the core region. Each core makes its own copy from the pristine
//! template, in its own memory, so it can also be stopped and started again. No page is both writable and executable in any of these tables.

use super::paging::{self, Flags, Root};
use super::{cpu, image};
use crate::boot::info::machine;
use crate::core_local::CoreLocal;
use crate::memory::{DEVICE_MAP, DIRECT_MAP, PAGE_BYTES, PhysAddr, PhysRange, phys_to_virt};
use core::ptr;

const PAGE: u64 = PAGE_BYTES as u64;
const LARGE_PAGE: u64 = 2 << 20;
const DATA: Flags = Flags::WRITE.with(Flags::NO_EXECUTE).with(Flags::GLOBAL);
const READ_ONLY: Flags = Flags::NO_EXECUTE.with(Flags::GLOBAL);
const CODE: Flags = Flags::GLOBAL;
const REGISTERS: Flags = DATA.with(Flags::UNCACHED);
/// Root, the table of the top 512 GiB and the directory of the core region's GiB.
const UPPER_TABLES: u64 = 3;

static KERNEL_ROOT: CoreLocal<Root> = CoreLocal::new(Root(PhysAddr(0)));

/// Frames for tables, cut off the front of a range.
pub struct Frames(pub PhysRange);

impl Frames {
    /// The next frame.
    pub fn take(&mut self) -> Option<PhysAddr> {
        let frame = self.0.base;
        let rest = self.0.bytes.checked_sub(PAGE)?;
        self.0 = PhysRange::new(frame.0 + PAGE, rest);
        Some(frame)
    }
}

/// Bytes of the core region.
fn region_bytes() -> u64 {
    let layout = image::layout();
    layout.core_end - layout.core_start
}

/// Contiguous physical memory that one instance needs, tables included.
pub fn instance_bytes() -> u64 {
    region_bytes() + (UPPER_TABLES + region_bytes().div_ceil(LARGE_PAGE)) * PAGE
}

/// The root that maps only this core's kernel.
pub fn kernel_root() -> Root {
    KERNEL_ROOT.get()
}

/// Builds the shared tables under the boot root and narrows it to what a starting core needs. `None`: `frames` is exhausted.
///
/// # Safety
/// Core 0 during boot, on the boot tables, once.
pub unsafe fn build_shared(ram: impl Iterator<Item = PhysRange>, frames: &mut Frames) -> Option<()> {
    let scratch = paging::empty_root(frames.take()?);
    let level_max = if cpu::has_huge_pages() { 2 } else { 1 };
    let image_range = PhysRange::new(image::image_range().base.0, image::image_range().bytes.next_multiple_of(PAGE));
    for range in ram {
        let range = range.whole_pages();
        let (before, after) = around(range, image_range);
        let inside = PhysRange::new(range.base.0 + before.bytes, range.bytes - before.bytes - after.bytes);
        for (part, flags) in [(before, DATA), (inside, READ_ONLY), (after, DATA)] {
            let address = DIRECT_MAP + part.base.0;
            paging::map_kernel(scratch, address, part.base, part.bytes, flags, level_max, &mut || frames.take())?;
        }
    }
    let layout = image::layout();
    for (start, end, flags) in [
        (layout.image_start, layout.text_end, CODE),
        (layout.text_end, layout.rodata_end, READ_ONLY),
        (layout.rodata_end, layout.shared_end, DATA),
    ] {
        let frame = PhysAddr(start - image::KERNEL_BASE);
        paging::map_kernel(scratch, start, frame, end - start, flags, 0, &mut || frames.take())?;
    }
    // The device map's top entry must exist before roots copy it.
    let local_apic = PhysRange::new(machine().facts.local_apic, PAGE);
    map_registers_in(scratch, local_apic, frames)?;
    let boot = Root(image::boot_tables());
    // The direct map last: the new one shows the boot root read-only, as it lies in the image.
    for address in [DEVICE_MAP, image::KERNEL_BASE, DIRECT_MAP] {
        paging::share_top_entry(scratch, boot, address);
    }
    paging::flush_all();
    // SAFETY: core 0, at boot; the old direct map, which used the same tables, is no longer in use.
    unsafe { image::narrow_boot_identity() };
    paging::flush_all();
    Some(())
}

/// The parts of `range` before and after `hole`.
fn around(range: PhysRange, hole: PhysRange) -> (PhysRange, PhysRange) {
    let before = hole.base.0.clamp(range.base.0, range.end().0) - range.base.0;
    let after = range.end().0 - hole.end().0.clamp(range.base.0, range.end().0);
    (PhysRange::new(range.base.0, before), PhysRange::new(range.end().0 - after, after))
}

/// Shows device registers in the device map, on all cores. Core 0 during boot only. `None`: `frames` is exhausted.
pub fn map_registers(range: PhysRange, frames: &mut Frames) -> Option<()> {
    map_registers_in(Root(image::boot_tables()), range, frames)
}

fn map_registers_in(root: Root, range: PhysRange, frames: &mut Frames) -> Option<()> {
    let first = range.base.0 / PAGE * PAGE;
    let bytes = range.end().0.checked_next_multiple_of(PAGE)? - first;
    let address = DEVICE_MAP + first;
    paging::map_kernel(root, address, PhysAddr(first), bytes, REGISTERS, 1, &mut || frames.take())
}

/// Makes `.shared` read-only, for every core: its tables are shared. From here on the shared part of the kernel is constant.
///
/// # Safety
/// Core 0, in its own instance, before it starts another core; nobody writes a `Shared` afterwards.
pub unsafe fn seal_shared() {
    let layout = image::layout();
    for address in (layout.rodata_end..layout.shared_end).step_by(PAGE_BYTES) {
        paging::protect_kernel(Root(image::boot_tables()), address, READ_ONLY);
        paging::flush_page(address);
    }
}

/// Top of the kernel stack of `core`, through the direct map: what it uses until it has its own tables.
pub fn early_stack(core: usize) -> u64 {
    let layout = image::layout();
    let base = machine().shares[core].instance.base;
    phys_to_virt(base + (layout.stack_top - layout.core_start)) as u64
}

/// Where `core` keeps its copy of a core-local static. Other cores may read there; write only the mailbox.
pub fn remote<T>(core: usize, local: *const T) -> Option<*const T> {
    let offset = (local as u64).checked_sub(image::layout().core_start)?;
    let base = machine().instance_base(core)?;
    Some(phys_to_virt(base + offset).cast_const().cast())
}

/// Where a core-local static lies in an instance at `base`.
pub fn place<T>(base: PhysAddr, local: *const T) -> PhysRange {
    PhysRange::new((base + (local as u64 - image::layout().core_start)).0, size_of::<T>() as u64)
}

/// Makes the calling core's instance and goes on in it at `function` with `core`.
///
/// # Safety
/// The caller is `core`, on the boot tables, with shared tables built; its instance memory is its own.
pub unsafe fn enter(core: usize, function: extern "C" fn(u64) -> !) -> ! {
    let layout = image::layout();
    let memory = machine().shares[core].instance;
    let at = |address: u64| phys_to_virt(memory.base + (address - layout.core_start));
    // SAFETY: source is the template, destinations lie in this core's instance memory; the stack in use (if it is there) is in neither.
    unsafe {
        let bytes = (layout.data_end - layout.data_start) as usize;
        ptr::copy_nonoverlapping(phys_to_virt(layout.data_template), at(layout.data_start), bytes);
        at(layout.bss_start).write_bytes(0, (layout.core_end - layout.bss_start) as usize);
    }
    let tables = PhysRange::new(memory.base.0 + region_bytes(), memory.bytes - region_bytes());
    let root = build_private(memory.base, &mut Frames(tables));
    let root = root.expect("instance_bytes counts the tables");
    // SAFETY: the root maps image and core region.
    unsafe { image::enter_root(root.0, function, core as u64) }
}

fn build_private(memory: PhysAddr, frames: &mut Frames) -> Option<Root> {
    let layout = image::layout();
    let boot = Root(image::boot_tables());
    let root = paging::empty_root(frames.take()?);
    for address in [DIRECT_MAP, DEVICE_MAP] {
        paging::share_top_entry(boot, root, address);
    }
    for (start, end) in [
        (layout.stack_bottom, layout.stack_top),
        (layout.fault_stack_bottom, layout.fault_stack_top),
        (layout.data_start, layout.core_end),
    ] {
        let frame = memory + (start - layout.core_start);
        paging::map_kernel(root, start, frame, end - start, DATA, 0, &mut || frames.take())?;
    }
    paging::share_second_entry(boot, root, image::KERNEL_BASE);
    Some(root)
}

/// Notes the root just entered; first thing in an instance.
pub fn remember_root() {
    KERNEL_ROOT.with(|root| *root = paging::current_root());
}
