//! Page tables of x86-64: four levels, 4 KiB leaves for users, 2 MiB and 1 GiB leaves for the kernel's direct map.
//!
//! Invariants: the upper half of every root is a copy of this core's kernel root, so that a switch never unmaps the kernel; table pages lie in RAM
//! the direct map shows. Tables are plain memory here: whether a change needs a flush, and on which cores, the caller knows.

use super::cpu;
use crate::memory::{DIRECT_MAP_BYTES, PAGE_BYTES, PhysAddr, USER_END, phys_to_virt};
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
    /// Set by the CPU on use.
    pub const ACCESSED: Flags = Flags(1 << 5);
    /// Set by the CPU on write.
    pub const DIRTY: Flags = Flags(1 << 6);
    /// A leaf above the lowest level.
    pub const LARGE: Flags = Flags(1 << 7);
    /// Survives a change of root.
    pub const GLOBAL: Flags = Flags(1 << 8);
    /// Free for the kernel's own use.
    pub const SOFTWARE_0: Flags = Flags(1 << 9);
    /// Free for the kernel's own use.
    pub const SOFTWARE_1: Flags = Flags(1 << 10);
    /// Free for the kernel's own use.
    pub const SOFTWARE_2: Flags = Flags(1 << 11);
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

/// A table is reached through the direct map; `frame` comes from a present entry or from an owner of page-table memory.
fn table(frame: PhysAddr) -> &'static mut [Pte; ENTRIES] {
    debug_assert!(frame.is_page_aligned() && frame.0 < DIRECT_MAP_BYTES);
    // SAFETY: the frame is a whole page of RAM in the direct map that is used as a table only; the kernel is single-threaded, and no caller in this
    // file keeps two references to one table at a time.
    unsafe { &mut *phys_to_virt(frame).cast::<[Pte; ENTRIES]>() }
}

/// Index into the table of `level` (3 is the root, 0 holds 4 KiB leaves).
const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize & (ENTRIES - 1)
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
/// `root` was made by [`new_root`] on this core or is its [`kernel_root`], and is not freed while in use.
pub unsafe fn load_root(root: Root) {
    // SAFETY: by contract its upper half is this core's kernel.
    unsafe { cpu::set_page_table(root.0.0) }
}

/// Forgets this core's cached translation of one page.
pub fn flush_page(address: u64) {
    // SAFETY: dropping a cached translation is always sound.
    unsafe { core::arch::asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
}

/// Forgets all of this core's cached user translations.
pub fn flush_all() {
    // SAFETY: reloads what is loaded.
    unsafe { cpu::set_page_table(cpu::page_table()) }
}

/// The 4 KiB entry for user address `address`, making tables on the way; `allocate` supplies their frames (zeroed here).
/// `None`: no frame, not a user address, or a large page is in the way.
pub fn walk(root: Root, address: u64, allocate: &mut dyn FnMut() -> Option<PhysAddr>) -> Option<&'static mut Pte> {
    if address >= USER_END {
        return None;
    }
    let flags = Flags::PRESENT | Flags::WRITE | Flags::USER;
    descend(root, address, 0, flags, &mut |_| allocate())
}

/// The 4 KiB entry for user address `address` if its tables exist; the entry may be empty.
pub fn lookup(root: Root, address: u64) -> Option<&'static mut Pte> {
    walk(root, address, &mut || None)
}

/// The entries of the 4 KiB pages from `address` on, at most `pages` and to the end of their table, if that exists.
pub fn lookup_run(root: Root, address: u64, pages: usize) -> Option<&'static mut [Pte]> {
    if address >= USER_END {
        return None;
    }
    let first = index(address, 0);
    let mut frame = root.0;
    for level in [3, 2, 1] {
        let entry = table(frame)[index(address, level)];
        if !entry.is_present() || entry.is_large() {
            return None;
        }
        frame = entry.address();
    }
    table(frame).get_mut(first..(first + pages).min(ENTRIES))
}

/// The physical byte behind user address `address`, if it is mapped with all of `needs`.
pub fn translate(root: Root, address: u64, needs: Flags) -> Option<PhysAddr> {
    let entry = *lookup(root, address)?;
    let allowed = entry.is_present() && entry.flags().contains(needs | Flags::USER);
    allowed.then(|| entry.address() + (address & (PAGE_BYTES as u64 - 1)))
}

/// Calls `f` with every table page of the user half, leaves first, and clears the entry that pointed to it; `f` may free the page.
pub fn for_each_table(root: Root, f: &mut dyn FnMut(PhysAddr)) {
    for entry in &mut table(root.0)[..USER_ENTRIES] {
        drop_table(entry, 2, f);
    }
}

/// At most four levels deep.
fn drop_table(entry: &mut Pte, level: u32, f: &mut dyn FnMut(PhysAddr)) {
    if !entry.is_present() || entry.is_large() {
        return;
    }
    let frame = entry.address();
    if level > 0 {
        for group in table(frame).chunks_exact_mut(GROUP) {
            // Most groups are empty: one look at eight entries.
            if group.iter().fold(0, |all, lower| all | lower.0) != 0 {
                group.iter_mut().for_each(|lower| drop_table(lower, level - 1, f));
            }
        }
    }
    *entry = Pte::EMPTY;
    f(frame);
}

/// Goes down to the entry of `leaf_level`; `make` supplies missing tables, told the level of the table wanted.
fn descend(
    root: Root,
    address: u64,
    leaf_level: u32,
    table_flags: Flags,
    make: &mut dyn FnMut(u32) -> Option<PhysAddr>,
) -> Option<&'static mut Pte> {
    let mut frame = root.0;
    for level in (leaf_level + 1..=3).rev() {
        let entry = &mut table(frame)[index(address, level)];
        if !entry.is_present() {
            let new = make(level - 1)?;
            table(new).fill(Pte::EMPTY);
            *entry = Pte::new(new, table_flags);
        } else if entry.is_large() {
            return None;
        }
        frame = entry.address();
    }
    Some(&mut table(frame)[index(address, leaf_level)])
}

/// Maps kernel memory: `bytes` at `address` to `frames`, with the largest pages alignment allows (up to `level_max`: 0, 1 or 2).
/// Used only while boot builds a kernel root; `None` when `allocate` gives nothing or something is mapped there already in other sizes.
pub fn map_kernel(
    root: Root,
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
        let entry = descend(root, here, level, Flags::PRESENT | Flags::WRITE, &mut |_| allocate())?;
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

/// Copies the second-level entry that covers `address` (1 GiB); both roots have a table above it.
pub fn share_second_entry(from: Root, to: Root, address: u64) {
    let second = |root: Root| table(root.0)[index(address, 3)].address();
    let entry = table(second(from))[index(address, 2)];
    table(second(to))[index(address, 2)] = entry;
}

/// Changes the flags of a 4 KiB kernel page.
pub fn protect_kernel(root: Root, address: u64, flags: Flags) {
    if let Some(entry) = descend(root, address, 0, Flags::NONE, &mut |_| None) {
        *entry = Pte::new(entry.address(), flags | Flags::PRESENT);
    }
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

    #[test]
    fn map_translate_free() {
        let (_ram, mut allocate) = ram();
        let root = empty_root(PhysAddr(0));
        let (user, write) = (Flags::PRESENT | Flags::USER, Flags::PRESENT | Flags::USER | Flags::WRITE);
        *walk(root, 0x40_0000, &mut allocate).unwrap() = Pte::new(PhysAddr(0x9000), user);
        *walk(root, 0x7fff_ffff_e000, &mut allocate).unwrap() = Pte::new(PhysAddr(0xa000), write);
        assert_eq!(translate(root, 0x40_0123, Flags::NONE), Some(PhysAddr(0x9123)));
        assert_eq!(translate(root, 0x40_0123, Flags::WRITE), None);
        assert_eq!(translate(root, 0x7fff_ffff_efff, Flags::WRITE), Some(PhysAddr(0xafff)));
        assert!(lookup(root, 0x50_0000).is_some_and(|entry| !entry.is_present()));
        assert!(lookup(root, 0x8000_0000).is_none());
        assert!(walk(root, USER_END, &mut allocate).is_none());
        let mut freed = Vec::new();
        for_each_table(root, &mut |frame| freed.push(frame.0 / PAGE_BYTES as u64));
        freed.sort();
        assert_eq!(freed, [1, 2, 3, 4, 5, 6]);
        assert!(lookup(root, 0x40_0000).is_none());
    }

    #[test]
    fn large_pages_where_aligned() {
        let (_ram, mut allocate) = ram();
        let root = empty_root(PhysAddr(0));
        let base = 0x4000_0000u64;
        map_kernel(root, base, PhysAddr(0x20_0000 - 0x1000), 0x1000, Flags::WRITE, 2, &mut allocate).unwrap();
        map_kernel(root, base + 0x20_0000, PhysAddr(0x20_0000), 0x20_1000, Flags::WRITE, 2, &mut allocate).unwrap();
        assert_eq!(lookup(root, base).unwrap().address(), PhysAddr(0x1f_f000));
        assert!(lookup(root, base + 0x20_0000).is_none(), "a large page is in the way of a 4 KiB walk");
        assert_eq!(lookup(root, base + 0x40_0000).unwrap().address(), PhysAddr(0x40_0000));
    }
}
