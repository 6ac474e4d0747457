//! Page tables of x86-64: four levels, 4 KiB leaves for users, 2 MiB and 1 GiB leaves for the
//! kernel's direct map.
//!
//! Invariants: the upper half of every root is a copy of this core's kernel root, so that a switch
//! never unmaps the kernel; table pages lie in RAM the direct map covers. A table below a root may
//! be mapped under several roots (a nested range), on several cores (a shared one): rights are the
//! least of all levels. Whether a change needs a flush, and on which cores, the caller knows.
//! Processors walk tables, and mark entries, at any time; so a table is whole before an entry leads
//! to it, and `view`, which kernels use without the lock of a shared range, takes each entry at one
//! look.

use super::cpu;
use crate::memory::{DIRECT_MAP_BYTES, PAGE_BYTES, PhysAddr, phys_to_virt};
use core::ops::BitOr;

const ENTRIES: usize = 512;
const ADDRESS_MASK: u64 = 0x000f_ffff_ffff_f000;
const USER_ENTRIES: usize = ENTRIES / 2;
/// Entries of one cache line.
const GROUP: usize = 8;

/// Bits of an entry besides the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u64);

impl Flags {
    /// No bit.
    pub const NONE: Flags = Flags(0);
    /// The entry means something.
    pub const PRESENT: Flags = Flags(1);
    /// Writable.
    pub const WRITE: Flags = Flags(1 << 1);
    /// Reachable from user mode.
    pub const USER: Flags = Flags(1 << 2);
    /// Not cached: for device registers (PCD and PWT, that is UC under the reset value of the PAT).
    pub const UNCACHED: Flags = Flags(1 << 3 | 1 << 4);
    /// A leaf above the lowest level.
    pub const LARGE: Flags = Flags(1 << 7);
    /// Survives a change of root.
    pub const GLOBAL: Flags = Flags(1 << 8);
    /// Free for the kernel's own use.
    pub const SOFTWARE_0: Flags = Flags(1 << 9);
    /// Not executable.
    pub const NO_EXECUTE: Flags = Flags(1 << 63);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Without the bits of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Both; for constants.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

/// A page-table entry.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte(pub u64);

impl Pte {
    /// Maps nothing.
    pub const EMPTY: Pte = Pte(0);

    /// Maps `address` (page aligned) with `flags`.
    pub const fn new(address: PhysAddr, flags: Flags) -> Pte {
        Pte(address.0 & ADDRESS_MASK | flags.0)
    }

    /// Whether it maps anything.
    pub const fn is_present(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is a leaf above the lowest level (only meaningful there).
    pub const fn is_large(self) -> bool {
        self.flags().contains(Flags::LARGE)
    }

    /// The page or table it points to.
    pub const fn address(self) -> PhysAddr {
        PhysAddr(self.0 & ADDRESS_MASK)
    }

    /// Its other bits.
    pub const fn flags(self) -> Flags {
        Flags(self.0 & !ADDRESS_MASK)
    }
}

/// The top-level table of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root(pub PhysAddr);

/// A table is reached through the direct map; `frame` comes from a present entry or from an owner
/// of page-table memory.
fn table(frame: PhysAddr) -> &'static mut [Pte; ENTRIES] {
    debug_assert!(frame.is_page_aligned() && frame.0 < DIRECT_MAP_BYTES);
    // SAFETY: the frame is a whole page of RAM in the direct map that is used as a table only; the
    // kernel is single-threaded, and no caller in this file keeps two references to one table at a
    // time.
    unsafe { &mut *phys_to_virt(frame).cast::<[Pte; ENTRIES]>() }
}

/// Bits of an address that index one table.
const LEVEL_BITS: u32 = 9;
/// Where those of the lowest table begin.
const LEAF_SHIFT: u32 = 12;

/// Where the bits that index a table of `level` begin.
const fn shift(level: u32) -> u32 {
    LEAF_SHIFT + LEVEL_BITS * level
}

/// Index into the table of `level` (3 is the root, 0 holds 4 KiB leaves).
const fn index(address: u64, level: u32) -> usize {
    (address >> shift(level)) as usize & (ENTRIES - 1)
}

/// Makes `frame` a root whose upper half is this core's kernel.
pub fn new_root(frame: PhysAddr) -> Root {
    let kernel = *table(kernel_root().0);
    let new = table(frame);
    new[..USER_ENTRIES].fill(Pte::EMPTY);
    new[USER_ENTRIES..].copy_from_slice(&kernel[USER_ENTRIES..]);
    Root(frame)
}

/// The root that maps only this core's kernel.
pub fn kernel_root() -> Root {
    super::instance::kernel_root()
}

/// The root in use.
pub fn current_root() -> Root {
    Root(PhysAddr(cpu::page_table()))
}

/// Switches the address space.
///
/// # Safety
/// `root` was made by [`new_root`] on this core or is its [`kernel_root`], and is not freed while
/// in use.
pub unsafe fn load_root(root: Root) {
    // SAFETY: by contract its upper half is this core's kernel.
    unsafe { cpu::set_page_table(root.0.0) }
}

/// Flushes one page from this core's TLB.
pub fn flush_page(address: u64) {
    // SAFETY: dropping a cached translation is always sound.
    unsafe { core::arch::asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
}

/// Flushes all user translations from this core's TLB.
pub fn flush_all() {
    // SAFETY: reloads what is loaded.
    unsafe { cpu::set_page_table(cpu::page_table()) }
}

/// A table of user space and how far it reaches: level 0 holds 4 KiB entries and covers 2 MiB, each
/// further level 512 times as much; the lower half of a root is a table of level 3. Addresses
/// inside are relative to its first byte, which for a root is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its page.
    pub frame: PhysAddr,
    /// 0 to [`Table::TOP_LEVEL`].
    pub level: u32,
}

impl Table {
    /// The level of a root.
    pub const TOP_LEVEL: u32 = 3;

    /// Bytes that a table of the level covers.
    pub const fn bytes(level: u32) -> u64 {
        let entries = if level == Table::TOP_LEVEL { USER_ENTRIES } else { ENTRIES } as u64;
        entries << shift(level)
    }

    /// The root with this lower half. Only for tables of the top level.
    pub const fn root(self) -> Root {
        assert!(self.level == Table::TOP_LEVEL);
        Root(self.frame)
    }

    fn reaches(self, address: u64) -> bool {
        address < Table::bytes(self.level)
    }
}

impl Root {
    /// The same as a table; what is meant by it to users is its lower half.
    pub const fn top(self) -> Table {
        Table { frame: self.0, level: Table::TOP_LEVEL }
    }
}

const TABLE_FLAGS: Flags = Flags(Flags::PRESENT.0 | Flags::WRITE.0 | Flags::USER.0);

/// The 4 KiB entry for `address`, making tables on the way; `allocate` supplies their frames
/// (zeroed here). `None`: no frame, past what the table covers, or a large page is in the way.
pub fn walk(top: Table, address: u64, allocate: &mut dyn FnMut() -> Option<PhysAddr>) -> Option<&'static mut Pte> {
    walk_to(top, address, 0, allocate)
}

/// As `walk`, but the entry that leads to a table of `level - 1`, or maps a page of that size.
pub fn walk_to(
    top: Table,
    address: u64,
    level: u32,
    allocate: &mut dyn FnMut() -> Option<PhysAddr>,
) -> Option<&'static mut Pte> {
    if !top.reaches(address) {
        return None;
    }
    descend(top, address, level, TABLE_FLAGS, allocate)
}

/// The entry that maps `part` under a table above it; `flags` bound what can be done through it.
pub const fn link(part: Table, flags: Flags) -> Pte {
    Pte::new(part.frame, flags)
}

/// What the lowest tables have at an address.
pub enum Leaves {
    /// No table.
    Nothing,
    /// A page of 2 MiB.
    Large(&'static mut Pte),
    /// The entries from there on, at most as many as were asked for and to the end of their table.
    Small(&'static mut [Pte]),
}

/// What the lowest tables have at `address`.
#[inline]
pub fn leaves(top: Table, address: u64, pages: usize) -> Leaves {
    if !top.reaches(address) {
        return Leaves::Nothing;
    }
    let mut frame = top.frame;
    let mut shift = shift(top.level);
    while shift > LEAF_SHIFT {
        let entry = &mut table(frame)[(address >> shift) as usize & (ENTRIES - 1)];
        if !entry.is_present() {
            return Leaves::Nothing;
        }
        if entry.is_large() {
            return Leaves::Large(entry);
        }
        frame = entry.address();
        shift -= LEVEL_BITS;
    }
    let first = index(address, 0);
    Leaves::Small(&mut table(frame)[first..(first + pages).min(ENTRIES)])
}

/// The 4 KiB page that `address` maps, with what user code may do there: what all levels allow.
pub fn view(root: Root, address: u64) -> Option<Pte> {
    let mut frame = root.0;
    let mut allowed = Flags::WRITE | Flags::USER;
    let mut denied = Flags::NONE;
    if !root.top().reaches(address) {
        return None;
    }
    for level in (0..=Table::TOP_LEVEL).rev() {
        // SAFETY: an entry of a table in the direct map (see `table`); another kernel may change it
        // meanwhile.
        let entry = unsafe { phys_to_virt(frame).cast::<Pte>().add(index(address, level)).read_volatile() };
        if !entry.is_present() {
            return None;
        }
        allowed = Flags(allowed.0 & entry.0);
        denied = Flags(denied.0 | entry.0 & Flags::NO_EXECUTE.0);
        if level == 0 || entry.is_large() {
            let rest = address & (Table::bytes(level) / ENTRIES as u64 - 1);
            let kept = entry.flags().without(Flags::WRITE | Flags::USER | Flags::LARGE);
            return Some(Pte::new(entry.address() + rest, kept | allowed | denied));
        }
        frame = entry.address();
    }
    None
}

/// The physical byte behind user address `address`, if it is mapped with all of `needs`.
pub fn translate(root: Root, address: u64, needs: Flags) -> Option<PhysAddr> {
    let entry = view(root, address)?;
    let allowed = entry.flags().contains(needs | Flags::USER);
    allowed.then(|| entry.address() + (address & (PAGE_BYTES as u64 - 1)))
}

/// Calls `f` with every table page below `top`, leaves first, and clears the entry that pointed to
/// it; `f` may free the page. Ends before a table that `f` does not take; tells whether it took
/// all.
pub fn for_each_table(top: Table, f: &mut dyn FnMut(PhysAddr) -> bool) -> bool {
    let used = if top.level == Table::TOP_LEVEL { USER_ENTRIES } else { ENTRIES };
    top.level == 0 || drop_tables(&mut table(top.frame)[..used], top.level, f)
}

/// Calls `f` with the table that an entry of `level` leads to and every one below it, and clears
/// the entry.
pub fn drop_table(entry: &mut Pte, level: u32, f: &mut dyn FnMut(PhysAddr)) {
    try_drop_table(entry, level, &mut |frame| {
        f(frame);
        true
    });
}

fn try_drop_table(entry: &mut Pte, level: u32, f: &mut dyn FnMut(PhysAddr) -> bool) -> bool {
    if entry.is_present() && level > 0 && !entry.is_large() {
        let frame = entry.address();
        if level > 1 && !drop_tables(&mut table(frame)[..], level - 1, f) || !f(frame) {
            return false;
        }
    }
    *entry = Pte::EMPTY;
    true
}

/// For the entries of a table of `level`, at least 1. At most four levels deep.
fn drop_tables(entries: &mut [Pte], level: u32, f: &mut dyn FnMut(PhysAddr) -> bool) -> bool {
    // Most groups are empty: one look at eight entries.
    entries.chunks_exact_mut(GROUP).all(|group| {
        group.iter().fold(0, |all, lower| all | lower.0) == 0
            || group.iter_mut().all(|lower| try_drop_table(lower, level, f))
    })
}

/// What was written before is in memory, as other processors see it, before what is written after:
/// the processor keeps that order, and so must the compiler.
fn publish() {
    // SAFETY: no instruction; it keeps the compiler from moving writes over it.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

/// Goes down to the entry of `leaf_level`; `make` supplies missing tables.
#[inline]
fn descend(
    top: Table,
    address: u64,
    leaf_level: u32,
    table_flags: Flags,
    make: &mut dyn FnMut() -> Option<PhysAddr>,
) -> Option<&'static mut Pte> {
    let mut frame = top.frame;
    for level in (leaf_level + 1..=top.level).rev() {
        let entry = &mut table(frame)[index(address, level)];
        if !entry.is_present() {
            let new = make()?;
            table(new).fill(Pte::EMPTY);
            publish();
            *entry = Pte::new(new, table_flags);
        } else if entry.is_large() {
            return None;
        }
        frame = entry.address();
    }
    Some(&mut table(frame)[index(address, leaf_level)])
}

/// Maps kernel memory: `bytes` at `address` to `frames`, with the largest pages alignment allows
/// (up to `level_max`: 0, 1 or 2). What is mapped there already in the same sizes is replaced. Used
/// only while boot builds a kernel's tables, from the root or from a lower one that `address` leads
/// to. `None` when `allocate` gives nothing or something is mapped there in other sizes.
#[inline(never)]
pub fn map_kernel(
    top: Table,
    address: u64,
    frames: PhysAddr,
    bytes: u64,
    flags: Flags,
    level_max: u32,
    allocate: &mut dyn FnMut() -> Option<PhysAddr>,
) -> Option<()> {
    let mut done = 0;
    while done < bytes {
        let (here, frame) = (address + done, frames + done);
        let fits = |level: &u32| {
            let size = 1u64 << (12 + 9 * *level);
            (here | frame.0).is_multiple_of(size) && bytes - done >= size
        };
        let level = (0..=level_max).rev().find(fits)?;
        let entry = descend(top, here, level, Flags::PRESENT | Flags::WRITE, allocate)?;
        let large = if level > 0 { Flags::LARGE } else { Flags::NONE };
        *entry = Pte::new(frame, flags | large | Flags::PRESENT);
        done += 1 << (12 + 9 * level);
    }
    Some(())
}

/// Copies the top-level entry that covers `address`, so that both roots share everything below it.
pub fn share_top_entry(from: Root, to: Root, address: u64) {
    let entry = table(from.0)[index(address, 3)];
    table(to.0)[index(address, 3)] = entry;
}

/// The entry of a kernel root for the directory of the GiB around `address`. `None`: there is no
/// table for it.
pub fn directory(root: Root, address: u64) -> Option<&'static mut Pte> {
    descend(root.top(), address, 2, Flags::NONE, &mut || None)
}

/// Makes `frame` an empty root.
pub fn empty_root(frame: PhysAddr) -> Root {
    table(frame).fill(Pte::EMPTY);
    Root(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::set_test_ram;

    #[repr(C, align(4096))]
    struct Ram([u8; 64 * PAGE_BYTES]);

    fn ram() -> (Box<Ram>, impl FnMut() -> Option<PhysAddr>) {
        let mut ram = Box::new(Ram([0xcc; 64 * PAGE_BYTES]));
        set_test_ram(ram.0.as_mut_ptr());
        let mut next = 0;
        let allocate = move || {
            next += 1;
            (next < 64).then(|| PhysAddr(next * PAGE_BYTES as u64))
        };
        (ram, allocate)
    }

    /// The 4 KiB entry, if its table exists.
    fn entry(root: Root, address: u64) -> Option<Pte> {
        match leaves(root.top(), address, 1) {
            Leaves::Small(entries) => Some(entries[0]),
            _ => None,
        }
    }

    /// As Intel SDM 3A, 4.5, has them.
    #[test]
    fn flags_are_the_bits_that_the_processor_looks_at() {
        let flags = [Flags::PRESENT, Flags::WRITE, Flags::USER, Flags::LARGE, Flags::GLOBAL, Flags::NO_EXECUTE];
        assert_eq!(flags.map(|flag| flag.0), [1, 2, 4, 0x80, 0x100, 1 << 63]);
        assert_eq!(Flags::UNCACHED.0, 0x18, "not cached and written through");
    }

    #[test]
    fn map_translate_free() {
        let (_ram, mut allocate) = ram();
        let root = empty_root(PhysAddr(0));
        let (user, write) = (Flags::PRESENT | Flags::USER, Flags::PRESENT | Flags::USER | Flags::WRITE);
        *walk(root.top(), 0x40_0000, &mut allocate).unwrap() = Pte::new(PhysAddr(0x9000), user);
        *walk(root.top(), 0x7fff_ffff_e000, &mut allocate).unwrap() = Pte::new(PhysAddr(0xa000), write);
        assert_eq!(translate(root, 0x40_0123, Flags::NONE), Some(PhysAddr(0x9123)));
        assert_eq!(translate(root, 0x40_0123, Flags::WRITE), None);
        assert_eq!(translate(root, 0x7fff_ffff_efff, Flags::WRITE), Some(PhysAddr(0xafff)));
        assert!(entry(root, 0x50_0000).is_some_and(|entry| !entry.is_present()));
        assert!(entry(root, 0x8000_0000).is_none());
        assert!(walk(root.top(), 1 << 47, &mut allocate).is_none());
        let mut freed = Vec::new();
        for_each_table(root.top(), &mut |frame| {
            freed.push(frame.0 / PAGE_BYTES as u64);
            true
        });
        freed.sort();
        assert_eq!(freed, [1, 2, 3, 4, 5, 6]);
        assert!(entry(root, 0x40_0000).is_none());
    }

    #[test]
    fn large_pages_where_aligned() {
        let (_ram, mut allocate) = ram();
        let root = empty_root(PhysAddr(0));
        let base = 0x4000_0000u64;
        map_kernel(root.top(), base, PhysAddr(0x20_0000 - 0x1000), 0x1000, Flags::WRITE, 2, &mut allocate).unwrap();
        map_kernel(root.top(), base + 0x20_0000, PhysAddr(0x20_0000), 0x20_1000, Flags::WRITE, 2, &mut allocate)
            .unwrap();
        assert_eq!(entry(root, base).unwrap().address(), PhysAddr(0x1f_f000));
        assert!(entry(root, base + 0x20_0000).is_none(), "a large page is in the way of a 4 KiB walk");
        assert_eq!(entry(root, base + 0x40_0000).unwrap().address(), PhysAddr(0x40_0000));
    }

    #[test]
    fn a_linked_table_is_seen_through_every_root_with_the_rights_of_the_link() {
        let (_ram, mut allocate) = ram();
        let roots = [0, 1].map(|_| empty_root(allocate().unwrap()));
        let part = Table { frame: empty_root(allocate().unwrap()).0, level: 1 };
        let flags = Flags::PRESENT | Flags::USER;
        let at = [0x4000_0000u64, 0x1_8000_0000];
        *walk_to(roots[0].top(), at[0], 2, &mut allocate).unwrap() = link(part, flags | Flags::WRITE);
        *walk_to(roots[1].top(), at[1], 2, &mut allocate).unwrap() = link(part, flags | Flags::NO_EXECUTE);
        *walk(part, 0x20_1000, &mut allocate).unwrap() = Pte::new(PhysAddr(0x9000), flags | Flags::WRITE);
        assert_eq!(translate(roots[0], at[0] + 0x20_1004, Flags::WRITE), Some(PhysAddr(0x9004)));
        assert_eq!(translate(roots[1], at[1] + 0x20_1004, Flags::NONE), Some(PhysAddr(0x9004)));
        assert_eq!(translate(roots[1], at[1] + 0x20_1004, Flags::WRITE), None);
        assert!(view(roots[1], at[1] + 0x20_1000).unwrap().flags().contains(Flags::NO_EXECUTE));
        assert!(!view(roots[0], at[0] + 0x20_1000).unwrap().flags().contains(Flags::NO_EXECUTE));
        assert!(walk(part, Table::bytes(1), &mut allocate).is_none(), "past what it covers");
    }

    #[test]
    fn a_large_page_is_used_only_where_both_sides_are_aligned() {
        let (_ram, mut allocate) = ram();
        let root = empty_root(PhysAddr(0));
        let (large, flags) = (0x20_0000, Flags::WRITE);
        for (at, frame, is_large) in
            [(0x4000_0000u64, large, true), (0x8000_0000, 0x1000, false), (0xc000_1000, 0x1000, false)]
        {
            map_kernel(root.top(), at, PhysAddr(frame), large, flags, 2, &mut allocate).unwrap();
            let found = match leaves(root.top(), at, 1) {
                Leaves::Large(entry) => (true, *entry),
                Leaves::Small(entries) => (false, entries[0]),
                Leaves::Nothing => panic!("nothing is there"),
            };
            let leaf = if is_large { Flags::LARGE } else { Flags::NONE };
            assert_eq!(found, (is_large, Pte::new(PhysAddr(frame), flags | leaf | Flags::PRESENT)), "{at:#x}");
        }
    }
}
