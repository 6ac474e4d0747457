//! Physical addresses, ranges of them, and the direct map.
//!
//! Invariants: all RAM is visible to every core at [`DIRECT_MAP`] + physical address, never
//! executable; device registers the kernel itself uses are visible, uncached, at [`DEVICE_MAP`] +
//! physical address. On the host a test supplies a block of ordinary memory as "RAM". This file
//! does not know who owns a page; it only translates.

use core::ops::Add;

pub use abi::layout::{USER_END, USER_START};

/// Bytes in a page.
pub const PAGE_BYTES: usize = PAGE as usize;
/// As an address has it.
pub const PAGE: u64 = abi::PAGE_BYTES;
/// Where physical address 0 is seen.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Where physical address 0 would be seen uncached; only registers the kernel uses are mapped here.
pub const DEVICE_MAP: u64 = 0xffff_c000_0000_0000;
/// Most RAM the direct map covers: one entry of the top-level table.
pub const DIRECT_MAP_BYTES: u64 = 1 << 39;

/// An address as devices and page tables see it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct PhysAddr(pub u64);

impl PhysAddr {
    /// Whether a page can start here.
    pub const fn is_page_aligned(self) -> bool {
        self.0.is_multiple_of(PAGE_BYTES as u64)
    }
}

impl Add<u64> for PhysAddr {
    type Output = PhysAddr;
    fn add(self, bytes: u64) -> PhysAddr {
        PhysAddr(self.0 + bytes)
    }
}

/// A range of physical memory. `base + bytes` never wraps: [`PhysRange::new`] clips.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PhysRange {
    /// First byte.
    pub base: PhysAddr,
    /// Length; 0 is an empty range.
    pub bytes: u64,
}

impl PhysRange {
    /// A range, clipped at the end of the address space.
    pub const fn new(base: u64, bytes: u64) -> PhysRange {
        let room = u64::MAX - base;
        PhysRange { base: PhysAddr(base), bytes: if bytes < room { bytes } else { room } }
    }

    /// First byte after the range.
    pub const fn end(&self) -> PhysAddr {
        PhysAddr(self.base.0 + self.bytes)
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether `address` lies in the range.
    pub const fn contains(&self, address: PhysAddr) -> bool {
        address.0 >= self.base.0 && address.0 < self.end().0
    }

    /// Whether all of `other` lies in the range.
    pub const fn covers(&self, other: &PhysRange) -> bool {
        self.base.0 <= other.base.0 && other.end().0 <= self.end().0
    }

    /// Whether the two have a byte in common.
    pub const fn overlaps(&self, other: &PhysRange) -> bool {
        self.base.0 < other.end().0 && other.base.0 < self.end().0 && !self.is_empty() && !other.is_empty()
    }

    /// Bytes the two have in common.
    pub const fn overlap_bytes(&self, other: &PhysRange) -> u64 {
        let first = if self.base.0 > other.base.0 { self.base.0 } else { other.base.0 };
        let end = if self.end().0 < other.end().0 { self.end().0 } else { other.end().0 };
        end.saturating_sub(first)
    }

    /// The whole pages inside the range.
    pub const fn whole_pages(&self) -> PhysRange {
        let page = PAGE_BYTES as u64;
        let first = match self.base.0.checked_next_multiple_of(page) {
            Some(first) => first,
            None => return PhysRange::new(self.base.0, 0),
        };
        let last = self.end().0 / page * page;
        PhysRange::new(first, last.saturating_sub(first))
    }
}

/// The direct-map view of a physical address.
pub fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    window::base().wrapping_add(address.0 as usize)
}

/// The physical address behind a direct-map pointer; `None` for any other pointer.
pub fn virt_to_phys(pointer: *const u8) -> Option<PhysAddr> {
    let offset = (pointer as u64).checked_sub(window::base() as u64)?;
    (offset < DIRECT_MAP_BYTES).then_some(PhysAddr(offset))
}

#[cfg(target_os = "none")]
mod window {
    pub(super) fn base() -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(super::DIRECT_MAP as usize)
    }
}

#[cfg(not(target_os = "none"))]
mod window {
    use core::cell::Cell;

    std::thread_local! {
        static BASE: Cell<*mut u8> = const { Cell::new(core::ptr::null_mut()) };
    }

    pub(super) fn base() -> *mut u8 {
        BASE.get()
    }

    /// Host tests: `base` plays physical address 0 for this thread. Must be page aligned and
    /// outlive its use.
    pub fn set_test_ram(base: *mut u8) {
        BASE.set(base);
    }
}

#[cfg(not(target_os = "none"))]
pub use window::set_test_ram;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_clip_and_compare() {
        assert_eq!(PhysRange::new(u64::MAX - 1, 100).bytes, 1);
        assert!(PhysRange::new(0x1000, 0x1000).overlaps(&PhysRange::new(0x1fff, 1)));
        assert!(!PhysRange::new(0x1000, 0x1000).overlaps(&PhysRange::new(0x2000, 1)));
        assert_eq!([0xfff, 0x1000, 0x1fff, 0x2000].map(|at| PhysRange::new(0x1000, 0x1000).contains(PhysAddr(at))), {
            [false, true, true, false]
        });
        assert!(PhysRange::new(0x1000, 0x2000).covers(&PhysRange::new(0x2000, 0x1000)));
        assert!(!PhysRange::new(0x1000, 0x2000).covers(&PhysRange::new(0x2000, 0x1001)));
        assert!(!PhysRange::new(0x1000, 0x2000).covers(&PhysRange::new(0xfff, 2)));
        assert_eq!(PhysRange::new(0x1000, 0x3000).overlap_bytes(&PhysRange::new(0x2000, 0x9000)), 0x2000);
        assert_eq!(PhysRange::new(0x1000, 0x1000).overlap_bytes(&PhysRange::new(0x3000, 1)), 0);
        assert_eq!(PhysRange::new(0x1001, 0x2fff).whole_pages(), PhysRange::new(0x2000, 0x2000));
        assert!(PhysRange::new(0x1001, 0x100).whole_pages().is_empty());
        assert!(PhysRange::new(u64::MAX - 10, 10).whole_pages().is_empty());
        assert_eq!([0, 0x1000, 0x1008, 0x1fff].map(|at| PhysAddr(at).is_page_aligned()), [true, true, false, false]);
    }

    #[test]
    fn what_is_not_in_the_direct_map_has_no_physical_address() {
        let start = phys_to_virt(PhysAddr(0));
        assert_eq!(virt_to_phys(start.wrapping_add(0x1234)), Some(PhysAddr(0x1234)));
        assert_eq!(
            virt_to_phys(start.wrapping_add(DIRECT_MAP_BYTES as usize - 1)),
            Some(PhysAddr(DIRECT_MAP_BYTES - 1))
        );
        assert_eq!(virt_to_phys(start.wrapping_add(DIRECT_MAP_BYTES as usize)), None);
        let mut ram = [0u64; 2];
        set_test_ram(ram.as_mut_ptr().cast());
        assert_eq!(virt_to_phys((&raw const ram[1]).cast()), Some(PhysAddr(8)));
        assert_eq!(virt_to_phys((&raw const ram[0]).cast::<u8>().wrapping_sub(1)), None);
        set_test_ram(core::ptr::null_mut());
    }
}
