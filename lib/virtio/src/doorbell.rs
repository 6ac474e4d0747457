//! The doorbell of one queue (virtio 1.2, sections 4.1.4.4 and 4.2.2): all of the registers that
//! one needs who serves that queue, and only that.
//!
//! Invariant: a [`DoorbellRegister`] reaches one register, and writes the number of its queue.
//! Deliberately unknown here: what the queue is for, and who else rings.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::registers::Registers;

/// Tells a device that one queue has news.
pub trait Doorbell {
    /// Tells it.
    fn ring(&self);

    /// The register by which it does so, and nothing else; `None`: it does it in another way.
    fn register(&self) -> Option<DoorbellRegister> {
        None
    }
}

/// How often a doorbell rang, and from where.
#[derive(Default)]
pub struct RingCount {
    times: AtomicU64,
    stack: AtomicU64,
}

impl RingCount {
    /// It rings here.
    pub fn note(&self) {
        let here = 0u8;
        // Alone it writes.
        self.times.store(self.times.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.stack.store(core::ptr::from_ref(&here).addr() as u64, Ordering::Relaxed);
    }

    /// How often, and an address in the stack of the context that did it last.
    pub fn told(&self) -> (u64, u64) {
        (self.times.load(Ordering::Relaxed), self.stack.load(Ordering::Relaxed))
    }
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

    fn register(&self) -> Option<DoorbellRegister> {
        Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::tests::memory;

    #[test]
    fn who_rings_is_told_by_its_stack() {
        extern crate std;
        let ring_count = RingCount::default();
        assert_eq!(ring_count.told(), (0, 0));
        ring_count.note();
        let (times, own) = ring_count.told();
        std::thread::scope(|scope| scope.spawn(|| ring_count.note()).join().expect("it notes"));
        let (twice, other) = ring_count.told();
        assert!((times, twice) == (1, 2) && own.abs_diff(other) > 16 << 10, "{own:x} {other:x}");
    }

    #[test]
    fn a_doorbell_reaches_its_own_register_only() {
        let registers = memory(4);
        [0, 4, 8, 12].into_iter().for_each(|at| registers.write_u32(at, u32::MAX));
        DoorbellRegister::narrow(registers, 6, 3).ring();
        DoorbellRegister::wide(registers, 8, 5).ring();
        // Out of the window nothing is reached.
        DoorbellRegister::wide(registers, 32, 7).ring();
        DoorbellRegister::narrow(registers, 31, 7).ring();
        assert!(DoorbellRegister::wide(registers, 8, 5).register().is_some());
        assert_eq!([0, 4, 8, 12].map(|at| registers.read_u32(at)), [u32::MAX, 0x0003_ffff, 5, u32::MAX]);
    }
}
