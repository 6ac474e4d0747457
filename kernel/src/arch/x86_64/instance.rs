//! The kernel instance of a core: its copy of .data and .bss, its stacks, and the page tables that
//! map them; and the image it runs.
//!
//! Shared by all cores, built once by core 0 and constant afterwards: the tables of direct map,
//! device map and the loader's image, hanging under the boot root. Shared by the cores of a node: a
//! copy of the image (text, read-only data and `.shared`), which core 0 makes once `.shared` is
//! complete, and the tables that map it. Private: the root, one table below it for the top 512
//! GiB, and the tables of the core region. Each core makes its own copy from the pristine template,
//! in its own memory, so it can also be stopped and started again. No page is both writable and
//! executable in any of these tables, and what is executable is nowhere writable.

use super::paging::{self, Flags, Root, Table};
use super::{cpu, image};
use crate::boot::split::Needs;
use crate::core_local::CoreLocal;
use crate::hardware::machine;
use crate::memory::{DEVICE_MAP, DIRECT_MAP, PAGE, PAGE_BYTES, PhysAddr, PhysRange, phys_to_virt};
use core::ptr;

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

/// What the loader's image maps at its addresses.
fn loaded() -> PhysRange {
    let layout = image::layout();
    PhysRange::new(layout.image_start - image::KERNEL_BASE, layout.start_end - layout.image_start)
}

/// Bytes of the image that every core uses.
fn image_bytes() -> u64 {
    let layout = image::layout();
    layout.shared_end - layout.image_start
}

/// Tables that map a copy of the image: its directory and those below.
fn image_tables() -> u64 {
    let layout = image::layout();
    1 + layout.shared_end.div_ceil(LARGE_PAGE) - layout.image_start / LARGE_PAGE
}

/// Contiguous physical memory that one instance and one copy of the image need, tables included.
pub fn needs() -> Needs {
    Needs {
        instance: region_bytes() + (UPPER_TABLES + region_bytes().div_ceil(LARGE_PAGE)) * PAGE,
        image: loaded().base,
        copy: image_bytes() + image_tables() * PAGE,
    }
}

/// The image that `core` runs.
pub fn image_of(core: usize) -> PhysRange {
    PhysRange::new(machine().shares[core].image.0, image_bytes())
}

/// The copies of the loader's image.
fn copies() -> impl Iterator<Item = PhysRange> + Clone {
    let shares = &machine().shares[..machine().core_count];
    let known = |core: usize| shares[..core].iter().map(|share| share.image).chain([loaded().base]);
    (0..shares.len()).filter(move |core| known(*core).all(|image| image != shares[*core].image)).map(image_of)
}

/// The root that maps only this core's kernel.
pub fn kernel_root() -> Root {
    KERNEL_ROOT.get()
}

/// Builds the shared tables under the boot root and reduces it to what a starting core needs.
/// `None`: `frames` is exhausted.
///
/// # Safety
/// Core 0 during boot, on the boot tables, once.
pub unsafe fn build_shared(ram: impl Iterator<Item = PhysRange>, frames: &mut Frames) -> Option<()> {
    let scratch = paging::empty_root(frames.take()?);
    let level_max = if cpu::has_huge_pages() { 2 } else { 1 };
    let image = PhysRange::new(image::image_range().base.0, image::image_range().bytes.next_multiple_of(PAGE));
    let images = core::iter::once(image).chain(copies());
    for range in ram {
        for (part, is_image) in pieces(range.whole_pages(), &images) {
            let flags = if image.contains(part.base) { READ_ONLY } else { DATA };
            // In small pages a copy becomes read-only by itself, when it is made.
            let level_max = if is_image { 0 } else { level_max };
            let address = DIRECT_MAP + part.base.0;
            paging::map_kernel(scratch.top(), address, part.base, part.bytes, flags, level_max, &mut || frames.take())?;
        }
    }
    map_image(scratch.top(), loaded(), DATA, frames)?;
    // The device map's top entry must exist before roots copy it.
    let local_apic = PhysRange::new(machine().facts.local_apic, PAGE);
    map_registers_in(scratch, local_apic, frames)?;
    let boot = Root(image::boot_tables());
    // The direct map last: the new one maps the boot root read-only, as it lies in the image.
    for address in [DEVICE_MAP, image::KERNEL_BASE, DIRECT_MAP] {
        paging::share_top_entry(scratch, boot, address);
    }
    paging::flush_all();
    // SAFETY: core 0, at boot; the old direct map, which used the same tables, is no longer in use.
    unsafe { image::restrict_boot_identity() };
    paging::flush_all();
    Some(())
}

/// `range` cut at the borders of `holes`; true: this part lies in one.
fn pieces(
    range: PhysRange,
    holes: &(impl Iterator<Item = PhysRange> + Clone),
) -> impl Iterator<Item = (PhysRange, bool)> {
    let mut at = range.base;
    core::iter::from_fn(move || {
        let hole = holes.clone().filter(|hole| hole.end() > at).min_by_key(|hole| hole.base);
        let is_inside = hole.is_some_and(|hole| hole.contains(at));
        let border = hole.map_or(range.end(), |hole| if is_inside { hole.end() } else { hole.base });
        let part = PhysRange::new(at.0, border.min(range.end()).0 - at.0);
        at = part.end();
        (!part.is_empty()).then_some((part, is_inside))
    })
}

/// Maps an image under a table that leads to its addresses.
fn map_image(top: Table, image: PhysRange, shared: Flags, frames: &mut Frames) -> Option<()> {
    let layout = image::layout();
    for (start, end, flags) in [
        (layout.image_start, layout.text_end, CODE),
        (layout.text_end, layout.rodata_end, READ_ONLY),
        (layout.rodata_end, layout.image_start + image.bytes, shared),
    ] {
        let frame = image.base + (start - layout.image_start);
        paging::map_kernel(top, start, frame, end - start, flags, 0, &mut || frames.take())?;
    }
    Some(())
}

/// Maps device registers in the device map, on all cores. Core 0 during boot only. `None`:
/// `frames` is exhausted.
pub fn map_registers(range: PhysRange, frames: &mut Frames) -> Option<()> {
    map_registers_in(Root(image::boot_tables()), range, frames)
}

fn map_registers_in(root: Root, range: PhysRange, frames: &mut Frames) -> Option<()> {
    let first = range.base.0 / PAGE * PAGE;
    let bytes = range.end().0.checked_next_multiple_of(PAGE)? - first;
    let address = DEVICE_MAP + first;
    paging::map_kernel(root.top(), address, PhysAddr(first), bytes, REGISTERS, 1, &mut || frames.take())
}

/// Makes `.shared` read-only, for every core, and copies the image. From here on all of it is
/// constant. `None`: [`needs`] is wrong about the tables.
///
/// # Safety
/// Core 0, in its own instance, before it starts another core; nobody writes a `Shared` afterwards.
pub unsafe fn seal_image() -> Option<()> {
    let (boot, image) = (Root(image::boot_tables()).top(), loaded());
    map_image(boot, image, READ_ONLY, &mut Frames(PhysRange::default()))?;
    flush(image::layout().image_start, image.bytes);
    for copy in copies() {
        // SAFETY: `split` set this memory aside, and `build_shared` maps it writable.
        unsafe { ptr::copy_nonoverlapping(phys_to_virt(image.base), phys_to_virt(copy.base), copy.bytes as usize) };
        let address = DIRECT_MAP + copy.base.0;
        paging::map_kernel(boot, address, copy.base, copy.bytes, READ_ONLY, 0, &mut || None)?;
        flush(address, copy.bytes);
        let mut frames = Frames(PhysRange::new(copy.end().0, image_tables() * PAGE));
        let directory = paging::empty_root(frames.take()?).0;
        map_image(Table { frame: directory, level: 1 }, copy, READ_ONLY, &mut frames)?;
    }
    Some(())
}

/// Goes on in the image that is the calling core's: the same bytes at the same addresses. For
/// `core` in its own instance, with the images sealed.
pub fn enter_image(core: usize) {
    let image = image_of(core);
    if image.base != loaded().base
        && let Some(entry) = paging::directory(kernel_root(), image::KERNEL_BASE)
    {
        *entry = paging::link(Table { frame: image.end(), level: 1 }, Flags::PRESENT | Flags::WRITE);
        flush(image::layout().image_start, image.bytes);
    }
}

fn flush(address: u64, bytes: u64) {
    (address..address + bytes).step_by(PAGE_BYTES).for_each(paging::flush_page);
}

/// Top of the kernel stack of `core`, through the direct map: what it uses until it has its own
/// tables.
pub fn early_stack(core: usize) -> u64 {
    let layout = image::layout();
    let base = machine().shares[core].instance.base;
    phys_to_virt(base + (layout.stack_top - layout.core_start)) as u64
}

/// Where `core` keeps its copy of a core-local static. Other cores may read there; write only the
/// mailbox.
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
/// The caller is `core`, on the boot tables, with shared tables built; its instance memory is its
/// own.
pub unsafe fn enter(core: usize, function: extern "C" fn(u64) -> !) -> ! {
    let layout = image::layout();
    let memory = machine().shares[core].instance;
    let at = |address: u64| phys_to_virt(memory.base + (address - layout.core_start));
    // SAFETY: source is the template, destinations lie in this core's instance memory; the stack in
    // use (if it is there) is in neither.
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
        paging::map_kernel(root.top(), start, frame, end - start, DATA, 0, &mut || frames.take())?;
    }
    *paging::directory(root, image::KERNEL_BASE)? = *paging::directory(boot, image::KERNEL_BASE)?;
    Some(root)
}

/// Notes the root just entered; first thing in an instance.
pub fn remember_root() {
    KERNEL_ROOT.with(|root| *root = paging::current_root());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_map_is_cut_at_every_image() {
        let range = |base: u64, bytes: u64| PhysRange::new(base << 12, bytes << 12);
        // In any order; at both ends of the memory, side by side, over its end, and elsewhere.
        let holes = [range(30, 4), range(16, 2), range(40, 8), range(34, 1), range(20, 2), range(60, 3)];
        let parts: Vec<_> = pieces(range(16, 26), &holes.into_iter()).collect();
        let expected = [
            (range(16, 2), true),
            (range(18, 2), false),
            (range(20, 2), true),
            (range(22, 8), false),
            (range(30, 4), true),
            (range(34, 1), true),
            (range(35, 5), false),
            (range(40, 2), true),
        ];
        assert_eq!(parts, expected);
        // A hole that begins before the memory.
        let parts: Vec<_> = pieces(range(42, 10), &holes.into_iter()).collect();
        assert_eq!(parts, [(range(42, 6), true), (range(48, 4), false)]);
        assert!(pieces(range(42, 0), &holes.into_iter()).next().is_none());
        let whole: Vec<_> = pieces(range(1, 5), &core::iter::empty()).collect();
        assert_eq!(whole, [(range(1, 5), false)]);
    }
}
