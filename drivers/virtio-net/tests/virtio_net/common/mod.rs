//! A device made here, which works, is slow to reset, or lies; and memory that its driver writes as
//! long as it lives.

use packet::{BUFFER_BYTES, Memory, OutOfBounds, POOL_BYTES};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use virtio::Doorbell;
use virtio::handler::Handler;
use virtio::pool_queue::AVAILABLE_OFFSET;
use virtio::testing::{Bell, FakeCard, put_used};
pub use virtio::testing::{Bytes, Life, number, random};
use virtio_net::driver::{Driver, RING_BYTES, Region, StartError};
use virtio_net::transport::{QueueAddresses, Transport};
use virtio_net::{Found, Places};

pub type NetDriver = Driver<Machine, Mortal>;
pub type NetHandler = Handler<Mortal>;
pub const RECEIVE_PHYSICAL: u64 = 0x10_0000;
pub const TRANSMIT_PHYSICAL: u64 = 0x20_0000;
pub const RINGS_PHYSICAL: u64 = 0x30_0000;

/// Who handles the transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The driver.
    One,
    /// A handler of its own.
    Two,
}

impl Layout {
    pub const BOTH: [Layout; 2] = [Layout::One, Layout::Two];

    /// The second handler, if there is one.
    pub fn part(self, driver: &mut NetDriver) -> Option<NetHandler> {
        (self == Layout::Two).then(|| driver.part_transmit().expect("the driver has the queue"))
    }
}

/// Memory that is written by a driver as long as it lives.
#[derive(Clone)]
pub struct Mortal {
    bytes: Bytes,
    life: Life,
}

impl Memory for Mortal {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.bytes.read(offset, bytes)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        if self.life.store() { self.bytes.write(offset, bytes) } else { Ok(()) }
    }
}

/// What device and test both see.
#[derive(Clone)]
pub struct Machine {
    pub card: FakeCard,
    pub rings: Bytes,
    pub receive: Bytes,
    pub transmit: Bytes,
    pub queues: Rc<RefCell<[Option<QueueAddresses>; 3]>>,
    pub seen: Rc<Cell<[u16; 3]>>,
    pub link: Rc<Cell<u8>>,
    pub notified: Rc<Cell<[u32; 3]>>,
    pub acknowledged: Rc<Cell<u32>>,
    /// Entries that its control queue may have.
    pub control_entries: Rc<Cell<u16>>,
    /// An interrupt says that its configuration changed.
    pub is_changed: Rc<Cell<bool>>,
}

impl Deref for Machine {
    type Target = FakeCard;
    fn deref(&self) -> &FakeCard {
        &self.card
    }
}

impl Transport for Machine {
    fn status(&mut self) -> u8 {
        self.card.read_status()
    }
    fn set_status(&mut self, status: u8) {
        if self.card.write_status(status) {
            self.seen.set([0; 3]);
            *self.queues.borrow_mut() = [None; 3];
        }
    }
    fn features(&mut self) -> u64 {
        self.features.get()
    }
    fn set_features(&mut self, _: u64) {}
    fn queue_entries(&mut self, queue: u16) -> u16 {
        if queue == 2 { self.control_entries.get() } else { self.entries.get() }
    }
    fn set_queue(&mut self, queue: u16, _: u16, addresses: QueueAddresses) {
        if self.life.store() {
            self.queues.borrow_mut()[queue as usize] = Some(addresses);
        }
    }
    fn adopt_queue(&mut self, queue: u16, _: u16, addresses: QueueAddresses) -> bool {
        self.queues.borrow()[queue as usize] == Some(addresses)
    }
    fn set_message(&mut self, _: u16, _: u16) {}
    fn notify(&mut self, queue: u16) {
        if self.life.store() {
            let mut notified = self.notified.get();
            notified[usize::from(queue)] += 1;
            self.notified.set(notified);
        }
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        let machine = self.clone();
        Box::new(Bell(move || machine.clone().notify(queue)))
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        if offset == 6 { self.link.get() } else { offset as u8 }
    }
    fn acknowledge(&mut self) -> bool {
        self.acknowledged.set(self.acknowledged.get() + 1);
        self.is_changed.take()
    }
}

impl Machine {
    pub fn new() -> Machine {
        let bytes = |length| Rc::new(RefCell::new(vec![0u8; length]));
        Machine {
            card: FakeCard::new(u64::MAX),
            rings: bytes(RING_BYTES),
            receive: bytes(POOL_BYTES),
            transmit: bytes(POOL_BYTES),
            queues: Rc::default(),
            seen: Rc::default(),
            link: Rc::default(),
            notified: Rc::default(),
            acknowledged: Rc::default(),
            control_entries: Rc::new(Cell::new(64)),
            is_changed: Rc::default(),
        }
    }

    pub fn start(&self) -> Result<(NetDriver, Found), StartError> {
        let mortal = |bytes: &Bytes| Mortal { bytes: bytes.clone(), life: self.life.clone() };
        let places = Places {
            rings: Region { memory: mortal(&self.rings), physical: RINGS_PHYSICAL },
            receive: RECEIVE_PHYSICAL,
            transmit: Region { memory: mortal(&self.transmit), physical: TRANSMIT_PHYSICAL },
        };
        self.begin();
        Driver::start(self.clone(), places, &mut self.card.clone())
    }

    pub fn driver(&self) -> NetDriver {
        self.start().unwrap_or_else(|error| panic!("{error:?}")).0
    }

    /// A driver that resets the device: somebody reset it meanwhile.
    pub fn driver_that_resets(&self) -> NetDriver {
        self.status.set(0);
        let (driver, found) = self.start().unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(found, Found::Reset(_)), "{found:?}");
        driver
    }

    /// A driver that goes on with the device, and has served for a while.
    pub fn driver_that_goes_on(&self) -> NetDriver {
        let (mut driver, found) = self.start().unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(found, Found::Running);
        driver.served();
        driver
    }

    /// Where the device was told that a queue is.
    pub fn base(&self, queue: usize) -> Option<usize> {
        self.queues.borrow()[queue].map(|addresses| (addresses.descriptors - RINGS_PHYSICAL) as usize)
    }

    /// The next descriptor of a queue: number, physical address, bytes.
    pub fn next(&self, queue: usize) -> Option<(u16, u64, u32)> {
        let base = self.base(queue)?;
        let mut seen = self.seen.get();
        if number::<2>(&self.rings, base + AVAILABLE_OFFSET + 2) as u16 == seen[queue] {
            return None;
        }
        let slot = usize::from(seen[queue] % 256);
        let descriptor = number::<2>(&self.rings, base + AVAILABLE_OFFSET + 4 + slot * 2) as u16;
        let at = base + usize::from(descriptor) * 16;
        assert_eq!(number::<2>(&self.rings, at + 12), [2, 0][queue], "it writes the ones and reads the others");
        seen[queue] = seen[queue].wrapping_add(1);
        self.seen.set(seen);
        Some((descriptor, number::<8>(&self.rings, at), number::<4>(&self.rings, at + 8) as u32))
    }

    pub fn used(&self, queue: usize, descriptor: u32, written: u32) {
        put_used(&self.rings, self.base(queue).unwrap(), descriptor, written);
    }

    /// The next command: its bytes, and where its answer goes. Carried out when it is answered.
    pub fn command(&self) -> Option<([u8; 3], usize)> {
        let QueueAddresses { descriptors, available, .. } = self.queues.borrow()[2]?;
        let [descriptors, available] = [descriptors, available].map(|at| (at - RINGS_PHYSICAL) as usize);
        let mut seen = self.seen.get();
        if number::<2>(&self.rings, available + 2) as u16 == seen[2] {
            return None;
        }
        seen[2] = seen[2].wrapping_add(1);
        self.seen.set(seen);
        let at = [descriptors, descriptors + 16];
        let place = |at| (number::<8>(&self.rings, at) - RINGS_PHYSICAL) as usize;
        // The command goes on with the answer.
        assert_eq!(at.map(|at| number::<4>(&self.rings, at + 8)), [3, 1], "their bytes");
        assert_eq!(at.map(|at| number::<2>(&self.rings, at + 12)), [1, 2], "their flags");
        assert_eq!(number::<2>(&self.rings, at[0] + 14), 1);
        let mut bytes = [0; 3];
        bytes.copy_from_slice(&self.rings.borrow()[place(at[0])..][..3]);
        Some((bytes, place(at[1])))
    }

    pub fn answer(&self, at: usize, answer: u8) {
        let used = (self.queues.borrow()[2].unwrap().used - RINGS_PHYSICAL) as usize;
        self.rings.write(at, &[answer]).unwrap();
        self.rings.write(used + 2, &self.seen.get()[2].to_le_bytes()).unwrap();
    }

    pub fn frame_arrives(&self, frame: &[u8]) -> bool {
        let Some((descriptor, physical, bytes)) = self.next(0) else { return false };
        assert_eq!((physical, bytes), (RECEIVE_PHYSICAL + u64::from(descriptor) * 2048, 2048));
        self.receive.write(usize::from(descriptor) * BUFFER_BYTES + 12, frame).unwrap();
        self.used(0, descriptor.into(), frame.len() as u32 + 12);
        true
    }
}
