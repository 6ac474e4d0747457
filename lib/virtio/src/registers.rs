//! Registers: the driver's only unsafe code.
#![allow(unsafe_code)]

use core::ptr::{read_volatile, write_volatile};

/// A mapped window of device registers. Out of its bounds reads give all ones, as an absent device
/// does, and writes are lost.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    address: u64,
    bytes: u64,
}

macro_rules! access {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads a register.
        pub fn $read(&self, offset: u64) -> $type {
            match self.at(offset, size_of::<$type>() as u64) {
                // SAFETY: inside the window, aligned; `new`'s caller promised that the window is
                // mapped.
                Some(address) => unsafe { read_volatile(address as *const $type) },
                None => <$type>::MAX,
            }
        }
        /// Writes a register.
        pub fn $write(&self, offset: u64, value: $type) {
            if let Some(address) = self.at(offset, size_of::<$type>() as u64) {
                // SAFETY: as above. What a register makes the device do is bounded by what the
                // device was given: see `Driver`.
                unsafe { write_volatile(address as *mut $type, value) }
            }
        }
    };
}

impl Registers {
    /// # Safety
    /// `address..address + bytes` is mapped as registers of a device that the caller has claimed,
    /// for as long as the value or a copy is used.
    pub unsafe fn new(address: u64, bytes: u64) -> Registers {
        Registers { address, bytes }
    }

    access!(read_u8, write_u8, u8);
    access!(read_u16, write_u16, u16);
    access!(read_u32, write_u32, u32);

    /// A part of it; empty if it lies outside.
    pub fn part(&self, offset: u64, bytes: u64) -> Registers {
        match offset.checked_add(bytes).filter(|end| *end <= self.bytes) {
            Some(_) => Registers { address: self.address + offset, bytes },
            None => Registers { address: self.address, bytes: 0 },
        }
    }

    fn at(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        let address = self.address + offset;
        (end <= self.bytes && address.is_multiple_of(bytes)).then_some(address)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    /// A window of so many words of memory, which keep what is written.
    pub(crate) fn memory(words: usize) -> Registers {
        let memory = vec![0u64; words].leak();
        // SAFETY: it is leaked, and nobody else has it.
        unsafe { Registers::new(memory.as_mut_ptr() as u64, 8 * words as u64) }
    }

    #[test]
    fn nothing_is_reached_out_of_the_window_or_askew() {
        let window = memory(2);
        window.write_u32(4, 0x0403_0201);
        window.write_u16(8, 0x0605);
        window.write_u8(15, 0x0f);
        assert_eq!((window.read_u32(4), window.read_u32(8), window.read_u32(12)), (0x0403_0201, 0x0605, 0x0f00_0000));
        assert_eq!((window.read_u16(6), window.read_u8(5), window.read_u16(14)), (0x0403, 2, 0x0f00));
        for offset in [2, 14, 16, u64::MAX - 3, u64::MAX] {
            window.write_u32(offset, 7);
            assert_eq!(window.read_u32(offset), u32::MAX, "{offset}");
        }
        for offset in [5, 15, 16] {
            window.write_u16(offset, 7);
            assert_eq!((window.read_u16(offset), window.read_u8(offset | 16)), (u16::MAX, u8::MAX), "{offset}");
        }
        assert_eq!([0, 4, 8, 12].map(|at| window.read_u32(at)), [0, 0x0403_0201, 0x0605, 0x0f00_0000]);
    }

    #[test]
    fn a_part_lies_within() {
        let window = memory(2);
        window.write_u32(8, 7);
        let part = window.part(8, 8);
        assert_eq!((part.read_u32(0), part.read_u32(4), part.read_u32(8)), (7, 0, u32::MAX));
        for outside in [window.part(8, 9), window.part(16, 1), window.part(u64::MAX, 2)] {
            assert_eq!(outside.read_u8(0), u8::MAX);
        }
    }
}
