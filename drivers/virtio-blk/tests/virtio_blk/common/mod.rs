//! A device made here, which works out of order, fails, or lies; and memory that its driver writes
//! as long as it lives.
//!
//! The device reads and writes nothing but what the driver may lead it to: else the test ends.

pub mod world;

use packet::{Memory, OutOfBounds};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use virtio::Doorbell;
use virtio::pool_queue::{AVAILABLE_OFFSET, USED_OFFSET};
use virtio::testing::{Bell, FakeCard, put_used};
pub use virtio::testing::{Bytes, Life, number, random};
use virtio::transport::{QueueAddresses, Transport, status};
use virtio_blk::command::status::{IO_ERROR, OK, UNSUPPORTED};
use virtio_blk::geometry::feature;
use virtio_blk::record::{RING_BYTES, SLOTS_OFFSET};
use virtio_blk::{Driver, Found, Operation, Places, Request, StartError};

pub type BlockDriver = Driver<Machine, Mortal>;
pub const RINGS: u64 = 0x30_0000;
pub const DATA: u64 = 0x1000_0000;
pub const CLIENTS: u8 = 2;
pub const DATA_BYTES: usize = 2 * PART_BYTES;
pub const PART_BYTES: usize = 256 << 10;
pub const SECTORS: u64 = 4096;
pub const NAME: &[u8; 20] = b"a disk of the tests\0";

/// Memory that is written by a driver as long as it lives, at most eight bytes at a time.
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
        for (number, part) in bytes.chunks(8).enumerate() {
            // Wiping the queue is one store: nobody looks at it before the device runs.
            if (number == 0 || bytes.len() < 4096) && !self.life.store() {
                return Ok(());
            }
            self.bytes.write(offset + 8 * number, part)?;
        }
        Ok(())
    }
}

/// A command as the device has read it.
#[derive(Clone, Debug)]
pub struct Taken {
    pub head: u16,
    pub kind: u32,
    pub sector: u64,
    /// What it reads and what it writes behind the header, without the status.
    pub reads: Vec<(u64, u32)>,
    pub writes: Vec<(u64, u32)>,
    pub status: u64,
}

impl Taken {
    pub fn writable(&self) -> u32 {
        self.writes.iter().map(|(_, bytes)| bytes).sum::<u32>() + 1
    }
}

/// What device and test both see.
#[derive(Clone)]
pub struct Machine {
    pub card: FakeCard,
    pub rings: Bytes,
    pub data: Bytes,
    pub disk: Bytes,
    /// What would be left after the loss of power.
    pub durable: Bytes,
    pub configuration: Rc<RefCell<[u8; 64]>>,
    pub agreed: Rc<Cell<u64>>,
    pub queue: Rc<Cell<Option<QueueAddresses>>>,
    pub seen: Rc<Cell<u16>>,
    pub taken: Rc<RefCell<Vec<Taken>>>,
    /// It was notified and has not looked.
    pub is_notified: Rc<Cell<bool>>,
    pub notifications: Rc<Cell<u32>>,
    /// The driver was interrupted and has not looked.
    pub is_interrupted: Rc<Cell<bool>>,
    /// An interrupt says that its configuration changed.
    pub is_changed: Rc<Cell<bool>>,
    /// It has so many sectors once its driver has read how many it had.
    pub next_size: Rc<Cell<Option<u64>>>,
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
            self.seen.set(0);
            self.queue.set(None);
            self.taken.borrow_mut().clear();
            self.is_notified.set(false);
        }
    }
    fn features(&mut self) -> u64 {
        self.features.get()
    }
    fn set_features(&mut self, features: u64) {
        if self.life.store() {
            self.agreed.set(features);
        }
    }
    fn queue_entries(&mut self, _: u16) -> u16 {
        self.entries.get()
    }
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        assert_eq!((queue, entries), (0, 256));
        if self.life.store() {
            self.queue.set(Some(addresses));
        }
    }
    fn adopt_queue(&mut self, _: u16, _: u16, addresses: QueueAddresses) -> bool {
        self.queue.get() == Some(addresses)
    }
    fn set_message(&mut self, _: u16, _: u16) {}
    fn notify(&mut self, _: u16) {
        if self.life.store() {
            self.is_notified.set(true);
            self.notifications.set(self.notifications.get() + 1);
        }
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        let machine = self.clone();
        Box::new(Bell(move || machine.clone().notify(queue)))
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        if offset >= 8
            && let Some(sectors) = self.next_size.take()
        {
            self.resize(sectors);
            self.is_changed.set(true);
        }
        self.configuration.borrow()[offset as usize]
    }
    fn acknowledge(&mut self) -> bool {
        self.is_changed.take()
    }
}

impl Machine {
    pub fn new() -> Machine {
        let bytes = |length| Rc::new(RefCell::new(vec![0u8; length]));
        let machine = Machine {
            card: FakeCard::new(!feature::READ_ONLY),
            rings: bytes(RING_BYTES),
            data: bytes(DATA_BYTES),
            disk: bytes(SECTORS as usize * 512),
            durable: bytes(SECTORS as usize * 512),
            configuration: Rc::new(RefCell::new([0; 64])),
            agreed: Rc::default(),
            queue: Rc::default(),
            seen: Rc::default(),
            taken: Rc::default(),
            is_notified: Rc::default(),
            notifications: Rc::default(),
            is_interrupted: Rc::default(),
            is_changed: Rc::default(),
            next_size: Rc::default(),
        };
        let words = [(8, 16_384), (12, 30), (20, 512), (36, 256), (40, 1), (48, 256), (52, 1)];
        words.into_iter().for_each(|(at, value)| machine.configure(at, value));
        machine.resize(SECTORS);
        machine
    }

    pub fn configure(&self, at: usize, value: u32) {
        self.configuration.borrow_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn resize(&self, sectors: u64) {
        self.configuration.borrow_mut()[..8].copy_from_slice(&sectors.to_le_bytes());
    }

    pub fn without(&self, features: u64) {
        self.features.set(self.features.get() & !features);
    }

    pub fn start(&self) -> Result<(BlockDriver, Found), StartError> {
        self.start_for(CLIENTS, DATA_BYTES as u32)
    }

    /// With so many clients, and so many bytes of data for all of them.
    pub fn start_for(&self, clients: u8, data_bytes: u32) -> Result<(BlockDriver, Found), StartError> {
        let places = Places {
            rings: Mortal { bytes: self.rings.clone(), life: self.life.clone() },
            rings_physical: RINGS,
            data_physical: DATA,
            data_bytes,
            clients,
        };
        self.begin();
        Driver::start(self.clone(), places, &mut self.card.clone())
    }

    pub fn driver(&self) -> BlockDriver {
        self.start().unwrap_or_else(|error| panic!("{error:?}")).0
    }

    fn has_event_index(&self) -> bool {
        self.agreed.get() & feature::EVENT_INDEX != 0
    }

    /// Takes what there is, if it was told to look.
    pub fn take(&self) {
        if !self.is_notified.take() || self.status.get() != status::RUNNING {
            return;
        }
        loop {
            while let Some(taken) = self.next() {
                self.taken.borrow_mut().push(taken);
            }
            if !self.has_event_index() {
                return;
            }
            // Tells from where on to be notified, and looks once more.
            self.rings.store_u16(USED_OFFSET + 4 + 8 * 256, self.seen.get()).unwrap();
            if number::<2>(&self.rings, AVAILABLE_OFFSET + 2) as u16 == self.seen.get() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Taken> {
        let QueueAddresses { descriptors, available, used } = self.queue.get()?;
        assert_eq!((descriptors, available, used), (RINGS, RINGS + 4096, RINGS + 8192));
        let seen = self.seen.get();
        if number::<2>(&self.rings, AVAILABLE_OFFSET + 2) as u16 == seen {
            return None;
        }
        self.seen.set(seen.wrapping_add(1));
        let head = number::<2>(&self.rings, AVAILABLE_OFFSET + 4 + usize::from(seen % 256) * 2) as u16;
        let (physical, bytes, flags, _) = self.descriptor(usize::from(head) * 16);
        assert_eq!(flags, 4, "a table of descriptors");
        let mut parts = Vec::new();
        for index in 0..bytes as usize / 16 {
            let (physical, bytes, flags, next) = self.descriptor((physical - RINGS) as usize + 16 * index);
            let is_last = index + 1 == bytes_of(&self.rings, usize::from(head) * 16) / 16;
            assert_eq!((flags & 1 == 0, usize::from(next)), (is_last, if is_last { 0 } else { index + 1 }));
            check_place(physical, bytes);
            parts.push((physical, bytes, flags & 2 != 0));
        }
        Some(taken(head, &parts, &self.rings))
    }

    fn descriptor(&self, at: usize) -> (u64, u32, u16, u16) {
        let word = |offset: usize| number::<2>(&self.rings, at + offset) as u16;
        (number::<8>(&self.rings, at), number::<4>(&self.rings, at + 8) as u32, word(12), word(14))
    }

    /// Carries out the command in that place of those that it has; fails it with this status.
    pub fn complete(&self, index: usize, failure: Option<u8>) -> bool {
        if index >= self.taken.borrow().len() {
            return false;
        }
        let command = self.taken.borrow_mut().remove(index);
        let answer = failure.unwrap_or_else(|| self.carry_out(&command));
        self.rings.write((command.status - RINGS) as usize, &[answer]).unwrap();
        self.used(command.head.into(), command.writable());
        true
    }

    fn carry_out(&self, command: &Taken) -> u8 {
        let (mut at, end) = (command.sector as usize * 512, self.size() as usize * 512);
        let all: u32 = command.reads.iter().chain(&command.writes).map(|(_, bytes)| bytes).sum();
        match command.kind {
            0 | 1 if at + all as usize > end => return IO_ERROR,
            0 => {
                for &(physical, bytes) in &command.writes {
                    let part = self.disk.borrow()[at..at + bytes as usize].to_vec();
                    self.data.write((physical - DATA) as usize, &part).unwrap();
                    at += part.len();
                }
            }
            1 => {
                for &(physical, bytes) in &command.reads {
                    let mut part = vec![0; bytes as usize];
                    self.data.read((physical - DATA) as usize, &mut part).unwrap();
                    self.disk.write(at, &part).unwrap();
                    at += part.len();
                }
            }
            4 => self.durable.borrow_mut().copy_from_slice(&self.disk.borrow()),
            8 => self.rings.write((command.writes[0].0 - RINGS) as usize, NAME).unwrap(),
            11 | 13 => {
                let place = (command.reads[0].0 - RINGS) as usize;
                let (sector, sectors) = (number::<8>(&self.rings, place), number::<4>(&self.rings, place + 8));
                if sector + sectors > self.size() {
                    return IO_ERROR;
                }
                let zeros = vec![0; sectors as usize * 512];
                self.disk.write(sector as usize * 512, &zeros).unwrap();
            }
            _ => return UNSUPPORTED,
        }
        OK
    }

    pub fn size(&self) -> u64 {
        let mut size = [0; 8];
        size.copy_from_slice(&self.configuration.borrow()[..8]);
        u64::from_le_bytes(size)
    }

    /// An entry in the used ring; interrupts if the driver wants it.
    pub fn used(&self, descriptor: u32, written: u32) {
        let index = put_used(&self.rings, 0, descriptor, written);
        let is_wanted = if self.has_event_index() {
            number::<2>(&self.rings, AVAILABLE_OFFSET + 4 + 2 * 256) as u16 == index
        } else {
            number::<2>(&self.rings, AVAILABLE_OFFSET) & 1 == 0
        };
        self.is_interrupted.set(self.is_interrupted.get() || is_wanted);
    }

    /// Takes all there is and carries it out, in the order given.
    pub fn work(&self) {
        self.take();
        while self.complete(0, None) {}
    }
}

fn bytes_of(rings: &Bytes, at: usize) -> usize {
    number::<4>(rings, at + 8) as usize
}

/// A device may reach data and the slots, and nothing else by a command.
fn check_place(physical: u64, bytes: u32) {
    let end = physical + u64::from(bytes);
    let is_data = physical >= DATA && end <= DATA + DATA_BYTES as u64;
    let is_slot = physical >= RINGS + SLOTS_OFFSET as u64 && end <= RINGS + RING_BYTES as u64;
    assert!(is_data || is_slot, "a foreign address: {physical:#x}, {bytes} bytes");
}

fn taken(head: u16, parts: &[(u64, u32, bool)], rings: &Bytes) -> Taken {
    let [(header, 16, false), middle @ .., (status, 1, true)] = parts else { panic!("no header or status: {parts:?}") };
    let at = (header - RINGS) as usize;
    let of = |writes: bool| {
        middle.iter().filter(|part| part.2 == writes).map(|(physical, bytes, _)| (*physical, *bytes)).collect()
    };
    let kind = number::<4>(rings, at) as u32;
    Taken { head, kind, sector: number::<8>(rings, at + 8), reads: of(false), writes: of(true), status: *status }
}

/// A request of client 0 or 1, with data in its part.
pub fn request(client: u8, id: u64, operation: Operation, sector: u64, sectors: u32) -> Request {
    let own = u32::from(client) * PART_BYTES as u32;
    let offset = if operation.has_data() { own + (id % 64) as u32 * 4096 } else { 0 };
    Request { client, id, operation, sector, sectors, offset }
}
