//! The doorbell of one queue (virtio 1.2, sections 4.1.4.4 and 4.2.2): all of the registers that
//! one needs who serves that queue, and only that.
//!
//! Invariant: a [`DoorbellRegister`] reaches one register, and writes the number of its queue.
//! Deliberately unknown here: what the queue is for, and who else rings.

use crate::registers::Registers;

/// Tells a device that one queue has news.
pub trait Doorbell {
    /// Tells it.
    fn ring(&self);
}

/// The register of a queue's doorbell.
#[derive(Clone, Copy, Debug)]
pub struct DoorbellRegister {
    register: Registers,
    queue: u16,
    is_wide: bool,
}

impl DoorbellRegister {
    /// The two bytes at `offset` of a PCI device's notification structure.
    pub(crate) fn narrow(structure: Registers, offset: u64, queue: u16) -> DoorbellRegister {
        DoorbellRegister { register: structure.part(offset, 2), queue, is_wide: false }
    }

    /// The four bytes at `offset` of a window.
    pub(crate) fn wide(window: Registers, offset: u64, queue: u16) -> DoorbellRegister {
        DoorbellRegister { register: window.part(offset, 4), queue, is_wide: true }
    }
}

impl Doorbell for DoorbellRegister {
    fn ring(&self) {
        if self.is_wide {
            self.register.write_u32(0, self.queue.into());
        } else {
            self.register.write_u16(0, self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::tests::memory;

    #[test]
    fn a_doorbell_reaches_its_own_register_only() {
        let registers = memory(4);
        [0, 4, 8, 12].into_iter().for_each(|at| registers.write_u32(at, u32::MAX));
        DoorbellRegister::narrow(registers, 6, 3).ring();
        DoorbellRegister::wide(registers, 8, 5).ring();
        // Out of the window nothing is reached.
        DoorbellRegister::wide(registers, 32, 7).ring();
        DoorbellRegister::narrow(registers, 31, 7).ring();
        assert_eq!([0, 4, 8, 12].map(|at| registers.read_u32(at)), [u32::MAX, 0x0003_ffff, 5, u32::MAX]);
    }
}
