//! The kernel's reads and writes of user memory.
//!
//! Every user pointer is a claim: it is looked up in the mappings of the caller's range, page by
//! page, and reached through the direct map, never through the user's own address, so SMAP stays
//! shut and no access here can fault. Memory that is not RAM is refused.

use super::fault::{Access, NOT_RAM};
use super::nest::Backing;
use super::{Ptr, Range};
use crate::arch::paging::{self, Flags, Root};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::state::Kernel;
use abi::Error;

/// The bytes at `address` within one page.
fn locate(kernel: &mut Kernel, range: Ptr<Range>, address: u64, access: Access) -> Result<PhysAddr, Error> {
    let needs = if access == Access::Write { Flags::WRITE } else { Flags::NONE };
    if let Some(entry) = paging::view(range.root(), address).filter(|entry| entry.flags().contains(needs)) {
        let is_ram = !entry.flags().contains(NOT_RAM);
        return is_ram.then(|| entry.address() + offset(address)).ok_or(Error::BadPointer);
    }
    let found = range.find(address).ok_or(Error::BadPointer)?;
    if matches!(found.backing, Backing::Own(_, segment) if !segment.is_ram()) {
        return Err(Error::BadPointer);
    }
    let frame = range.resolve(kernel, address, access).map_err(|_| Error::BadPointer)?;
    Ok(frame + offset(address))
}

fn offset(address: u64) -> u64 {
    address & (PAGE_BYTES as u64 - 1)
}

/// A word at any number that a program calls an address, if the program's tables map it, inside
/// one page, and it is RAM. Changes nothing.
pub fn peek(root: Root, address: u64) -> Option<u64> {
    let entry = paging::view(root, address)?;
    let is_ram = entry.flags().contains(Flags::USER) && !entry.flags().contains(NOT_RAM);
    if !is_ram || offset(address) > PAGE_BYTES as u64 - 8 {
        return None;
    }
    let word = phys_to_virt(entry.address() + offset(address)).cast::<u64>();
    // SAFETY: eight bytes of RAM inside a page, seen through the direct map; the program, and
    // others that have the page, may change them meanwhile.
    Some(unsafe { word.read_unaligned() })
}

/// Calls `f` with the direct-map address, position and length of each piece of `bytes` user bytes
/// at `address`.
fn pieces(
    kernel: &mut Kernel,
    range: Ptr<Range>,
    address: u64,
    bytes: usize,
    access: Access,
    mut f: impl FnMut(*mut u8, usize, usize),
) -> Result<(), Error> {
    let end = address.checked_add(bytes as u64).filter(|end| *end <= range.window().end).ok_or(Error::BadPointer)?;
    let mut at = address;
    while at < end {
        let length = (PAGE_BYTES as u64 - offset(at)).min(end - at);
        let place = locate(kernel, range, at, access)?;
        f(phys_to_virt(place), (at - address) as usize, length as usize);
        at += length;
    }
    Ok(())
}

/// Fills `into` from user memory. On failure part of it may be filled.
pub fn read(kernel: &mut Kernel, range: Ptr<Range>, address: u64, into: &mut [u8]) -> Result<(), Error> {
    pieces(kernel, range, address, into.len(), Access::Read, |from, position, length| {
        // SAFETY: `from` covers `length` bytes of RAM within one page; `into` is the kernel's own.
        unsafe { core::ptr::copy_nonoverlapping(from, into[position..position + length].as_mut_ptr(), length) }
    })
}

/// Copies `from` to user memory. On failure part of it may be written.
pub fn write(kernel: &mut Kernel, range: Ptr<Range>, address: u64, from: &[u8]) -> Result<(), Error> {
    pieces(kernel, range, address, from.len(), Access::Write, |to, position, length| {
        // SAFETY: `to` covers `length` bytes of RAM within one page that the user may write.
        unsafe { core::ptr::copy_nonoverlapping(from[position..position + length].as_ptr(), to, length) }
    })
}
