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
