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
use crate::hardware::{flush_page, machine};
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
    (address..address + bytes).step_by(PAGE_BYTES).for_each(flush_page);
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
    use crate::hardware::{self, Layout};
    use crate::memory::set_test_ram;
    use crate::tests::machine::Played;

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

    const LINK: u64 = image::KERNEL_BASE;
    const REGION: u64 = LINK + (1 << 30);

    /// An image over a border of 2 MiB, and a core region of three pages more than that.
    fn layout() -> Layout {
        Layout {
            image_start: LINK + 0x1f_d000,
            text_end: LINK + 0x1f_f000,
            rodata_end: LINK + 0x20_1000,
            shared_end: LINK + 0x20_2000,
            start_end: LINK + 0x20_4000,
            core_start: REGION,
            stack_bottom: REGION + 0x1000,
            stack_top: REGION + 0x5000,
            fault_stack_bottom: REGION + 0x6000,
            fault_stack_top: REGION + 0x7000,
            data_start: REGION + 0x8000,
            data_end: REGION + 0x9000,
            bss_start: REGION + 0x9000,
            core_end: REGION + 0x20_3000,
            data_template: PhysAddr(0),
        }
    }

    const LOADED: u64 = 0x1f_d000;
    /// Of core 1: its instance, and behind it a copy of the image.
    const INSTANCE: u64 = 0x80_0000;
    /// Root, and the tables of the loader's image.
    const BOOT: u64 = 0x10_0000;

    /// A machine with 16 MiB of memory and three cores: the first runs the loader's image, the
    /// others a copy of it.
    fn played() -> (Played, Vec<u128>) {
        let played = Played::new(|machine| {
            machine.core_count = 3;
            for (core, base) in [0x40_0000, INSTANCE, 0xc0_0000].into_iter().enumerate() {
                machine.shares[core].instance = PhysRange::new(base, 0x20_8000);
                machine.shares[core].image = PhysAddr(if core == 0 { LOADED } else { INSTANCE + 0x30_0000 });
            }
        });
        let mut memory = vec![0u128; (17 << 20) / 16];
        let start = memory.as_ptr().cast::<u8>().align_offset(PAGE_BYTES);
        set_test_ram(memory.as_mut_ptr().cast::<u8>().wrapping_add(start));
        hardware::set_image(Some((layout(), PhysAddr(BOOT))));
        let mut frames = Frames(PhysRange::new(BOOT, 16 * PAGE));
        let boot = paging::empty_root(frames.take().unwrap());
        map_image(boot.top(), loaded(), DATA, &mut frames).unwrap();
        // Direct map and device map, by one page each.
        for at in [DIRECT_MAP, DEVICE_MAP] {
            let page = PhysAddr(0x123_4000);
            paging::map_kernel(boot.top(), at, page, PAGE, DATA, 0, &mut || frames.take()).unwrap();
        }
        hardware::take_flushes();
        (played, memory)
    }

    /// What tables from `root` on map at an address, and how.
    fn mapped(root: Root, address: u64) -> Option<(u64, Flags)> {
        let mut frame = root.0;
        for level in (0..4).rev() {
            let at = (address >> (12 + 9 * level) & 511) as usize;
            // SAFETY: a table in memory of the test.
            let entry = unsafe { phys_to_virt(frame).cast::<paging::Pte>().add(at).read() };
            if !entry.is_present() {
                return None;
            }
            if level == 0 || entry.is_large() {
                let bytes = 1u64 << (12 + 9 * level);
                return Some((entry.address().0 + address % bytes, entry.flags()));
            }
            frame = entry.address();
        }
        None
    }

    /// Memory is writable or executable or neither, never both, and kept over a change of spaces.
    fn kind_of(flags: Flags) -> &'static str {
        assert!(flags.contains(Flags::GLOBAL) && !flags.contains(Flags::USER) && !flags.contains(Flags::LARGE));
        match (flags.contains(Flags::WRITE), flags.contains(Flags::NO_EXECUTE)) {
            (true, true) => "data",
            (false, true) => "constant",
            (false, false) => "code",
            (true, false) => panic!("writable and executable"),
        }
    }

    fn kinds(root: Root, start: u64, pages: u64) -> Vec<Option<(u64, &'static str)>> {
        let at = |page: u64| mapped(root, start + page * PAGE).map(|(frame, flags)| (frame, kind_of(flags)));
        (0..pages).map(at).collect()
    }

    /// Three tables of a private space, and one for each 2 MiB that the region touches.
    #[test]
    fn what_a_core_needs_is_counted_to_the_page() {
        let (_played, _memory) = played();
        let Needs { instance, image, copy } = needs();
        assert_eq!((image, copy), (PhysAddr(LOADED), 5 * PAGE + 3 * PAGE));
        let tables = instance - 0x20_3000;
        for missing in [0, 1] {
            let mut frames = Frames(PhysRange::new(INSTANCE + 0x20_3000, tables - missing * PAGE));
            assert_eq!(build_private(PhysAddr(INSTANCE), &mut frames).is_some(), missing == 0);
            assert_eq!((frames.0.bytes, frames.take()), (0, None));
        }
        let mut frames = Frames(PhysRange::new(0x5000, 2 * PAGE));
        assert_eq!([(); 3].map(|()| frames.take()), [Some(PhysAddr(0x5000)), Some(PhysAddr(0x6000)), None]);
    }

    /// Where a stack ends nothing is mapped; direct map, device map and image are those of boot.
    #[test]
    fn a_private_space_has_the_cores_memory_and_what_all_share() {
        let (_played, _memory) = played();
        let mut frames = Frames(PhysRange::new(INSTANCE + 0x20_3000, 5 * PAGE));
        let root = build_private(PhysAddr(INSTANCE), &mut frames).unwrap();
        let data = |page: u64| Some((INSTANCE + page * PAGE, "data"));
        let first = kinds(root, REGION, 10);
        assert_eq!(first, [None, data(1), data(2), data(3), data(4), None, data(6), None, data(8), data(9)]);
        assert_eq!(kinds(root, REGION + 0x20_2000, 2), [data(0x202), None]);
        for at in [DIRECT_MAP, DEVICE_MAP, LINK + LOADED] {
            assert!(mapped(root, at).is_some() && mapped(root, at) == mapped(Root(PhysAddr(BOOT)), at), "{at:#x}");
        }
    }

    #[test]
    fn a_sealed_image_is_constant_and_so_is_its_copy() {
        let (_played, _memory) = played();
        let boot = Root(PhysAddr(BOOT));
        let at = |base: u64, kinds: [&'static str; 7]| {
            (0..).zip(kinds).map(|(page, kind)| Some((base + page * PAGE, kind))).collect::<Vec<_>>()
        };
        let (code, constant, data) = ("code", "constant", "data");
        assert_eq!(kinds(boot, LINK + LOADED, 7), at(LOADED, [code, code, constant, constant, data, data, data]));
        let copy = PhysRange::new(INSTANCE + 0x30_0000, 5 * PAGE);
        assert_eq!(copies().collect::<Vec<_>>(), [copy]);
        assert_eq!([0, 1, 2].map(image_of), [PhysRange::new(LOADED, copy.bytes), copy, copy]);
        // `build_shared` maps it writable in the direct map, in small pages.
        let mut frames = Frames(PhysRange::new(BOOT + 0x20_000, 4 * PAGE));
        let direct = DIRECT_MAP + copy.base.0;
        paging::map_kernel(boot.top(), direct, copy.base, copy.bytes, DATA, 0, &mut || frames.take()).unwrap();
        // SAFETY: memory of the test.
        unsafe { phys_to_virt(PhysAddr(LOADED + 4 * PAGE)).write(77) };
        // SAFETY: one core, which is the test.
        unsafe { seal_image() }.unwrap();
        let sealed = [code, code, constant, constant, constant, constant, constant];
        assert_eq!(kinds(boot, LINK + LOADED, 7), at(LOADED, sealed));
        assert_eq!(kinds(boot, direct, 5), at(copy.base.0, [constant; 7])[..5]);
        // SAFETY: memory of the test.
        assert_eq!(unsafe { phys_to_virt(copy.base + 4 * PAGE).read() }, 77);
        let flushed = hardware::take_flushes();
        let pages = |start: u64, pages: u64| (0..pages).map(move |page| hardware::Flush::Page(start + page * PAGE));
        assert_eq!(flushed, pages(LINK + LOADED, 7).chain(pages(direct, 5)).collect::<Vec<_>>());
        // Core 1 goes on in the copy, core 0 in what it runs already. Its root is at 0.
        let mut frames = Frames(PhysRange::new(0, 5 * PAGE));
        let root = build_private(PhysAddr(INSTANCE), &mut frames).unwrap();
        enter_image(0);
        assert_eq!(
            (kinds(root, LINK + LOADED, 5), hardware::take_flushes()),
            (at(LOADED, sealed)[..5].to_vec(), vec![])
        );
        enter_image(1);
        assert_eq!(kinds(root, LINK + LOADED, 6), [&at(copy.base.0, sealed)[..5], &[None]].concat());
        assert_eq!(hardware::take_flushes(), pages(LINK + LOADED, 5).collect::<Vec<_>>());
    }

    /// All pages that the registers touch, as they are for devices.
    #[test]
    fn registers_are_mapped_uncached_in_whole_pages() {
        let (_played, _memory) = played();
        let boot = Root(PhysAddr(BOOT));
        let mut frames = Frames(PhysRange::new(0, 8 * PAGE));
        map_registers(PhysRange::new(0xfee0_0ff0, 0x20), &mut frames).unwrap();
        let all: Vec<_> = (0..3).map(|page| mapped(boot, DEVICE_MAP + 0xfedf_f000 + page * PAGE)).collect();
        assert_eq!(
            all,
            [None, Some((0xfee0_0000, REGISTERS | Flags::PRESENT)), Some((0xfee0_1000, REGISTERS | Flags::PRESENT))]
        );
        assert_eq!(mapped(boot, DEVICE_MAP + 0xfee0_2000), None);
        assert!(map_registers(PhysRange::new(1 << 40, 8), &mut Frames(PhysRange::default())).is_none());
    }

    #[test]
    fn a_cores_own_copy_is_where_its_instance_is() {
        let (_played, _memory) = played();
        let at = |address: u64| phys_to_virt(PhysAddr(address)) as u64;
        assert_eq!([1, 2].map(early_stack), [at(INSTANCE + 0x5000), at(0xc0_5000)]);
        let local = core::ptr::with_exposed_provenance::<u64>((REGION + 0x8010) as usize);
        assert_eq!(remote(1, local).map(|there| there as u64), Some(at(INSTANCE + 0x8010)));
        assert_eq!(remote(3, local), None);
        assert_eq!(remote(1, core::ptr::with_exposed_provenance::<u64>(0x1000)), None, "that is no static of a core");
        assert_eq!(place(PhysAddr(0xc0_0000), local), PhysRange::new(0xc0_8010, 8));
    }
}
