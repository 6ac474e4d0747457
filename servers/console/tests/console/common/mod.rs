//! A console device of five ports made here, and memory that a console writes as long as it lives.
//!
//! The device is as careless as an emulator: it keeps its own counts, holds a buffer of which it
//! passed on half, sends only after it was notified, and interrupts again only when its last
//! interrupt was acknowledged. What it would do outside the buffers of a queue is a [`Fault`].

use packet::{Memory, OutOfBounds};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use virtio::port::{ENTRIES, RING_BYTES};
use virtio::ports::END;
use virtio::testing::Bell;
use virtio::transport::{DeviceOwner, QueueAddresses, status};
use virtio::{Doorbell, Transport};

pub type Bytes = Rc<RefCell<Vec<u8>>>;
pub const PHYSICAL: u64 = 0x40_0000;

/// Numbers of the ports.
pub const CONTROL: usize = 1;
pub const INPUT: usize = 2;
pub const OUTPUT: usize = 3;
pub const ERROR: usize = 4;
pub const TERMINAL: usize = 5;
const PORTS: usize = 6;

/// Queues in the order of their rings in the region: number, bytes of a buffer, the device writes.
pub const QUEUES: [(usize, usize, bool); 9] = [
    (to_host(CONTROL), 64, false),
    (to_host(OUTPUT), 4096, false),
    (to_host(ERROR), 1024, false),
    (to_host(TERMINAL), 1024, false),
    (from_host(CONTROL), 128, true),
    (from_host(INPUT), 4096, true),
    (from_host(TERMINAL), 256, true),
    (MESSAGES, 8, false),
    (2, 8, true),
];
pub const MESSAGES: usize = 3;
const NUMBERS: usize = 14;
pub const AVAILABLE: usize = 1024;
pub const USED: usize = 2048;
const NEEDS_RESET: u8 = 0x40;
const PORT_OPEN: u64 = 6;

pub const fn from_host(port: usize) -> usize {
    2 + 2 * port
}
pub const fn to_host(port: usize) -> usize {
    3 + 2 * port
}

/// How many stores a console has left before it dies; `None`: it lives. Of a copy that it dies in,
/// so many of 256 parts happen. What a dead one still does has no effect.
#[derive(Clone, Default)]
pub struct Life(Rc<(Cell<Option<u64>>, Cell<usize>)>);

impl Life {
    /// From now on, for so many stores, or for ever.
    pub fn lasts(&self, stores: Option<u64>, cut: usize) {
        self.0.0.set(stores);
        self.0.1.set(cut);
    }
    pub fn is_over(&self) -> bool {
        self.0.0.get() == Some(0)
    }
    /// A store that happens or does not; false if it does not.
    pub fn store(&self) -> bool {
        self.copied(1) == 1
    }
    fn copied(&self, bytes: usize) -> usize {
        match self.0.0.get() {
            None => bytes,
            Some(0) => bytes * self.0.1.take() / 256,
            Some(left) => {
                self.0.0.set(Some(left - 1));
                bytes
            }
        }
    }
}

/// Memory that is written by a console as long as it lives. Words are written at once.
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
        self.bytes.write(offset, &bytes[..self.life.copied(bytes.len())])
    }
    fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        assert!(offset.is_multiple_of(2));
        if self.life.store() { self.bytes.store_u16(offset, value) } else { Ok(()) }
    }
    fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        assert!(offset.is_multiple_of(4));
        if self.life.store() { self.bytes.store_u32(offset, value) } else { Ok(()) }
    }
}

/// What the device was led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A descriptor that is not a piece of a buffer of that queue, or of other flags.
    Descriptor(usize),
    /// An entry that names no descriptor, or a count that runs ahead.
    Available(usize),
}

/// A buffer that the device has taken from a queue.
#[derive(Clone, Copy)]
struct Held {
    slot: usize,
    at: usize,
    bytes: usize,
    done: usize,
}

/// What the device knows, and the host behind it.
#[derive(Clone, Default)]
pub struct Device {
    status: u8,
    reaches_memory: bool,
    queues: [Option<QueueAddresses>; NUMBERS],
    seen: [u16; NUMBERS],
    used: [u16; NUMBERS],
    held: [Option<Held>; NUMBERS],
    /// Notified since it last found nothing.
    has_news: [bool; NUMBERS],
    open: [bool; PORTS],
    unacknowledged: bool,
    /// It interrupted, and nobody has looked.
    pub interrupts: bool,
    pub resets: u32,
    pub faults: Vec<Fault>,
    /// What arrived at the host, and what waits there, by port.
    pub arrived: [Vec<u8>; PORTS],
    pub waits: [VecDeque<u8>; PORTS],
}

/// What device, console and test all see.
#[derive(Clone)]
pub struct Machine {
    pub life: Life,
    pub region: Bytes,
    pub device: Rc<RefCell<Device>>,
    /// Looks that a console has left at a device that takes its time.
    patience: Rc<Cell<u32>>,
}

impl Machine {
    pub fn new(region_bytes: usize) -> Machine {
        let device = Device { status: status::DRIVER_OK, ..Device::default() };
        Machine {
            life: Life::default(),
            region: Rc::new(RefCell::new(vec![0; region_bytes])),
            device: Rc::new(RefCell::new(device)),
            patience: Rc::default(),
        }
    }

    /// For one more start: transport and keeper of the device, memory of the region.
    pub fn parts(&self) -> (Box<dyn Transport>, Machine, Rc<dyn Memory>) {
        self.patience.set(20);
        self.device.borrow_mut().interrupts = false;
        let memory = Mortal { bytes: self.region.clone(), life: self.life.clone() };
        (Box::new(self.clone()), self.clone(), Rc::new(memory))
    }

    /// The same device, for a console that dies on its own.
    pub fn with_life(&self, life: Life) -> Machine {
        Machine { life, ..self.clone() }
    }

    /// Another machine in the same state.
    pub fn copy(&self) -> Machine {
        Machine {
            life: Life::default(),
            region: Rc::new(RefCell::new(self.region.borrow().clone())),
            device: Rc::new(RefCell::new(self.device.borrow().clone())),
            patience: Rc::default(),
        }
    }

    /// Forgets all that its driver told it.
    pub fn reset(&self) {
        let mut device = self.device.borrow_mut();
        let Device { reaches_memory, resets, interrupts, .. } = *device;
        let Device { faults, arrived, waits, .. } = std::mem::take(&mut *device);
        *device = Device { reaches_memory, resets, interrupts, faults, arrived, waits, ..Device::default() };
        device.resets += 1;
    }

    fn number<const N: usize>(&self, at: usize) -> u64 {
        self.region.borrow()[at..at + N].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn part(address: u64) -> usize {
        (address - PHYSICAL) as usize
    }

    /// The buffer that the device works on: the one it has, or the next.
    fn buffer(&self, queue: usize) -> Option<Held> {
        let mut device = self.device.borrow_mut();
        if device.status != status::RUNNING || !device.reaches_memory {
            return None;
        }
        if let Some(held) = device.held[queue] {
            return Some(held);
        }
        let QueueAddresses { descriptors, available, .. } = device.queues[queue]?;
        let (descriptors, available) = (Machine::part(descriptors), Machine::part(available));
        let ahead = (self.number::<2>(available + 2) as u16).wrapping_sub(device.seen[queue]);
        let entry = usize::from(device.seen[queue] % ENTRIES);
        let slot = self.number::<2>(available + 4 + 2 * entry) as usize;
        if ahead == 0 {
            return None;
        }
        if ahead > ENTRIES || slot >= usize::from(ENTRIES) {
            device.faults.push(Fault::Available(queue));
            device.status |= NEEDS_RESET;
            return None;
        }
        let index = QUEUES.iter().position(|(number, ..)| *number == queue)?;
        let before: usize = QUEUES[..index].iter().map(|(_, bytes, _)| usize::from(ENTRIES) * bytes).sum();
        let own = QUEUES.len() * RING_BYTES + before;
        let (_, buffer_bytes, device_writes) = QUEUES[index];
        let at = descriptors + 16 * slot;
        let (address, bytes) = (self.number::<8>(at), self.number::<4>(at + 8) as usize);
        let flags_and_next = self.number::<4>(at + 12);
        let start = PHYSICAL + (own + slot * buffer_bytes) as u64;
        if address != start || bytes > buffer_bytes || flags_and_next != if device_writes { 2 } else { 0 } {
            device.faults.push(Fault::Descriptor(queue));
            device.status |= NEEDS_RESET;
            return None;
        }
        assert!(Machine::part(address) + bytes <= END);
        device.seen[queue] = device.seen[queue].wrapping_add(1);
        let held = Held { slot, at: Machine::part(address), bytes, done: 0 };
        device.held[queue] = Some(held);
        Some(held)
    }

    fn complete(&self, queue: usize, Held { slot, .. }: Held, written: usize) {
        let mut device = self.device.borrow_mut();
        device.held[queue] = None;
        let QueueAddresses { available, used, .. } = device.queues[queue].expect("it has a buffer of it");
        let (available, used) = (Machine::part(available), Machine::part(used));
        let count = device.used[queue];
        let at = used + 4 + 8 * usize::from(count % ENTRIES);
        self.region.write(at, &(slot as u32).to_le_bytes()).unwrap();
        self.region.write(at + 4, &(written as u32).to_le_bytes()).unwrap();
        device.used[queue] = count.wrapping_add(1);
        self.region.store_u16(used + 2, count.wrapping_add(1)).unwrap();
        // The line goes up once, until it was answered.
        if self.number::<2>(available) & 1 == 0 && !device.unacknowledged {
            (device.unacknowledged, device.interrupts) = (true, true);
        }
    }

    /// Passes on at most `most` bytes of a port to the host. False if there is nothing.
    pub fn send(&self, port: usize, most: usize) -> bool {
        self.drain(to_host(port), |bytes, device| device.arrived[port].extend_from_slice(bytes), most)
    }

    fn drain(&self, queue: usize, take: impl FnOnce(&[u8], &mut Device), most: usize) -> bool {
        if !self.device.borrow().has_news[queue] {
            return false;
        }
        let Some(mut held) = self.buffer(queue) else {
            self.device.borrow_mut().has_news[queue] = false;
            return false;
        };
        let count = most.min(held.bytes - held.done);
        let start = held.at + held.done;
        take(&self.region.borrow()[start..start + count], &mut self.device.borrow_mut());
        held.done += count;
        if held.done == held.bytes {
            self.complete(queue, held, 0);
        } else {
            self.device.borrow_mut().held[queue] = Some(held);
        }
        true
    }

    /// Writes at most `most` bytes that wait at the host into a buffer of a port. False if there
    /// are none, or no buffer, or nobody has the port open.
    pub fn receive(&self, port: usize, most: usize) -> bool {
        let queue = from_host(port);
        let (is_open, count, has_news) = {
            let device = self.device.borrow();
            (device.open[port], device.waits[port].len().min(most), device.has_news[queue])
        };
        if !is_open || count == 0 || !has_news {
            return false;
        }
        let Some(held) = self.buffer(queue) else {
            self.device.borrow_mut().has_news[queue] = false;
            return false;
        };
        let count = count.min(held.bytes);
        let bytes: Vec<u8> = self.device.borrow_mut().waits[port].drain(..count).collect();
        self.region.write(held.at, &bytes).unwrap();
        self.complete(queue, held, count);
        true
    }

    /// Takes the next message about a port.
    pub fn hear(&self) -> bool {
        let heard = |message: &[u8], device: &mut Device| {
            if message.len() < 8 {
                return;
            }
            let word = |at: usize| u64::from(message[at]) | u64::from(message[at + 1]) << 8;
            let is_open = word(4) == PORT_OPEN && word(6) == 1;
            if let Some(open) = device.open.get_mut(word(0) as usize).filter(|_| is_open) {
                *open = true;
            }
        };
        self.drain(MESSAGES, heard, 8)
    }

    /// One thing or another.
    pub fn step(&self, chance: &mut u64) {
        let most = 1 + random(chance) as usize % 5000;
        match random(chance) % 10 {
            0 => drop(self.hear()),
            1..5 => drop(self.send([CONTROL, OUTPUT, ERROR, TERMINAL][random(chance) as usize % 4], most)),
            5..7 => drop(self.receive(INPUT, most)),
            7 => drop(self.receive(CONTROL, 1 + most % 20)),
            _ => drop(self.receive(TERMINAL, most)),
        }
    }

    /// All that can happen without a console.
    pub fn settle(&self) -> bool {
        let mut has_moved = false;
        while self.hear() {}
        for port in CONTROL..PORTS {
            while self.send(port, usize::MAX) || self.receive(port, usize::MAX) {
                has_moved = true;
            }
        }
        has_moved
    }
}

impl DeviceOwner for Machine {
    fn reaches_memory(&mut self) -> bool {
        self.device.borrow().reaches_memory
    }
    fn enable_bus_master(&mut self) -> bool {
        if self.life.store() {
            let mut device = self.device.borrow_mut();
            assert_eq!(device.status, 0, "it may still do what somebody else had it do");
            device.reaches_memory = true;
        }
        true
    }
    fn has_timed_out(&mut self) -> bool {
        // While the console waits, the device works.
        self.hear();
        self.patience.set(self.patience.get().saturating_sub(1));
        self.patience.get() == 0
    }
}

impl Transport for Machine {
    fn status(&mut self) -> u8 {
        self.device.borrow().status
    }
    fn set_status(&mut self, status: u8) {
        if !self.life.store() {
            return;
        }
        if status == 0 {
            self.reset();
        }
        self.device.borrow_mut().status = status;
    }
    fn features(&mut self) -> u64 {
        u64::MAX
    }
    fn set_features(&mut self, _: u64) {}
    fn queue_entries(&mut self, _: u16) -> u16 {
        ENTRIES
    }
    fn set_queue(&mut self, queue: u16, _: u16, addresses: QueueAddresses) {
        if self.life.store() {
            self.device.borrow_mut().queues[usize::from(queue)] = Some(addresses);
        }
    }
    fn adopt_queue(&mut self, queue: u16, _: u16, addresses: QueueAddresses) -> bool {
        self.device.borrow().queues[usize::from(queue)] == Some(addresses)
    }
    fn set_message(&mut self, _: u16, _: u16) {}
    fn notify(&mut self, queue: u16) {
        if self.life.store() {
            self.device.borrow_mut().has_news[usize::from(queue)] = true;
        }
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        let machine = self.clone();
        Box::new(Bell(move || machine.clone().notify(queue)))
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        if offset == 4 { 32 } else { 0 }
    }
    fn acknowledge(&mut self) -> bool {
        if self.life.store() {
            self.device.borrow_mut().unacknowledged = false;
        }
        false
    }
}

/// xorshift64: the same chances in every run.
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// What a stream consists of: no two places look alike for long.
pub fn byte(stream: usize, at: usize) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (stream as u64) << 40;
    (mixed >> 32) as u8
}

pub fn bytes(stream: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| byte(stream, at)).collect()
}
