//! For tests of drivers: what every device that a test makes does alike, and how long a driver
//! lives.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use packet::Memory;

use crate::doorbell::Doorbell;
use crate::pool_queue::USED_OFFSET;
use crate::transport::{DeviceOwner, status};

/// Memory that device, driver and test see.
pub type Bytes = Rc<RefCell<Vec<u8>>>;

/// Looks that a driver has at a device that takes its time, in one start.
const LOOKS: u32 = 10;
const ENTRIES: u16 = 256;

/// How many stores a driver has left before it dies; `None`: it lives. What a dead one still does
/// has no effect.
#[derive(Clone, Default)]
pub struct Life(Rc<Cell<Option<u64>>>);

impl Life {
    /// From now on, for so many stores, or for ever.
    pub fn lasts(&self, stores: Option<u64>) {
        self.0.set(stores);
    }

    /// Whether it died.
    pub fn is_over(&self) -> bool {
        self.0.get() == Some(0)
    }

    /// A store; false if it does not happen any more.
    pub fn store(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.map(|left| left.saturating_sub(1)));
        left != Some(0)
    }
}

/// A doorbell that does this.
pub struct Bell<F>(pub F);

impl<F: Fn()> Doorbell for Bell<F> {
    fn ring(&self) {
        self.0();
    }
}

/// What a device has beside its queues: status, features, and a way to memory.
#[derive(Clone)]
pub struct FakeCard {
    /// The life of the driver that uses it.
    pub life: Life,
    /// Its status.
    pub status: Rc<Cell<u8>>,
    /// So many looks at its status, it is still being reset.
    pub reset_looks: Rc<Cell<u32>>,
    /// What it offers.
    pub features: Rc<Cell<u64>>,
    /// Entries that its queues may have.
    pub entries: Rc<Cell<u16>>,
    /// Whether it may reach memory.
    pub reaches_memory: Rc<Cell<bool>>,
    /// Times it was reset.
    pub resets: Rc<Cell<u32>>,
    /// Looks that a driver has left.
    pub looks: Rc<Cell<u32>>,
}

impl FakeCard {
    /// A device as firmware may leave it.
    pub fn new(features: u64) -> FakeCard {
        FakeCard {
            life: Life::default(),
            status: Rc::new(Cell::new(status::DRIVER_OK)),
            reset_looks: Rc::default(),
            features: Rc::new(Cell::new(features)),
            entries: Rc::new(Cell::new(ENTRIES)),
            reaches_memory: Rc::default(),
            resets: Rc::default(),
            looks: Rc::default(),
        }
    }

    /// A driver starts, and has all its looks.
    pub fn begin(&self) {
        self.looks.set(LOOKS);
    }

    /// What the driver reads as status.
    pub fn read_status(&self) -> u8 {
        let left = self.reset_looks.get();
        self.reset_looks.set(left.saturating_sub(1));
        if left > 0 { 0xff } else { self.status.get() }
    }

    /// The driver writes the status; whether that reset the device.
    pub fn write_status(&self, status: u8) -> bool {
        let is_reset = self.life.store() && {
            self.status.set(status);
            status == 0
        };
        self.resets.set(self.resets.get() + u32::from(is_reset));
        is_reset
    }
}

impl DeviceOwner for FakeCard {
    fn reaches_memory(&mut self) -> bool {
        self.reaches_memory.get()
    }
    fn enable_bus_master(&mut self) -> bool {
        if self.life.store() {
            assert_eq!(self.status.get(), 0, "it may still do what somebody else had it do");
            self.reaches_memory.set(true);
        }
        true
    }
    fn has_timed_out(&mut self) -> bool {
        self.looks.set(self.looks.get().saturating_sub(1));
        self.looks.get() == 0
    }
}

/// The number of `N` bytes that is there.
pub fn number<const N: usize>(bytes: &Bytes, at: usize) -> u64 {
    bytes.borrow()[at..at + N].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// The device puts an entry into the used ring of the queue at `base`; gives its index.
pub fn put_used(rings: &Bytes, base: usize, descriptor: u32, written: u32) -> u16 {
    let base = base + USED_OFFSET;
    let index = number::<2>(rings, base + 2) as u16;
    let at = base + 4 + usize::from(index % ENTRIES) * 8;
    let entry = [descriptor.to_le_bytes(), written.to_le_bytes()];
    rings.write(at, &entry.concat()).expect("a queue in the region");
    rings.store_u16(base + 2, index.wrapping_add(1)).expect("a queue in the region");
    index
}

/// xorshift64: the same chances in every run.
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
