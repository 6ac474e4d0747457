//! The driver against a device made here, which works, is slow to reset, or lies.

use packet::{BUFFER_BYTES, BufferSet, Memory, POOL_BYTES, Span};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use virtio_net::driver::{Driver, JOURNAL_OFFSET, RING_BYTES, Refused, Region, StartError};
use virtio_net::queue::{AVAILABLE_OFFSET, USED_OFFSET};
use virtio_net::transport::{QueueAddresses, Transport};

type Bytes = Rc<RefCell<Vec<u8>>>;
const RECEIVE_PHYSICAL: u64 = 0x10_0000;
const TRANSMIT_PHYSICAL: u64 = 0x20_0000;
const RINGS_PHYSICAL: u64 = 0x30_0000;

/// What device and test both see.
#[derive(Clone)]
struct Machine {
    rings: Bytes,
    receive: Bytes,
    transmit: Bytes,
    status: Rc<Cell<u8>>,
    reset_looks: Rc<Cell<u32>>,
    features: Rc<Cell<u64>>,
    entries: Rc<Cell<u16>>,
    queues: Rc<RefCell<[Option<QueueAddresses>; 3]>>,
    seen: Rc<Cell<[u16; 3]>>,
    link: Rc<Cell<u8>>,
    reaches_memory: Rc<Cell<bool>>,
}

impl Transport for Machine {
    fn status(&mut self) -> u8 {
        let left = self.reset_looks.get();
        self.reset_looks.set(left.saturating_sub(1));
        if left > 0 { 0xff } else { self.status.get() }
    }
    fn set_status(&mut self, status: u8) {
        self.status.set(status);
        if status == 0 {
            self.seen.set([0; 3]);
            *self.queues.borrow_mut() = [None; 3];
        }
    }
    fn features(&mut self) -> u64 {
        self.features.get()
    }
    fn set_features(&mut self, _: u64) {}
    fn queue_entries(&mut self, _: u16) -> u16 {
        self.entries.get()
    }
    fn set_queue(&mut self, queue: u16, _: u16, addresses: QueueAddresses) {
        self.queues.borrow_mut()[queue as usize] = Some(addresses);
    }
    fn notify(&mut self, _: u16) {}
    fn configuration(&mut self, offset: u64) -> u8 {
        if offset == 6 { self.link.get() } else { offset as u8 }
    }
    fn acknowledge(&mut self) -> bool {
        false
    }
}

fn number<const N: usize>(bytes: &Bytes, at: usize) -> u64 {
    bytes.borrow()[at..at + N].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

impl Machine {
    fn new() -> Machine {
        let bytes = |length| Rc::new(RefCell::new(vec![0u8; length]));
        Machine {
            rings: bytes(RING_BYTES),
            receive: bytes(POOL_BYTES),
            transmit: bytes(POOL_BYTES),
            status: Rc::default(),
            reset_looks: Rc::default(),
            features: Rc::new(Cell::new(u64::MAX)),
            entries: Rc::new(Cell::new(256)),
            queues: Rc::default(),
            seen: Rc::default(),
            link: Rc::default(),
            reaches_memory: Rc::default(),
        }
    }

    fn driver(&self) -> Result<Driver<Machine, Bytes>, StartError> {
        let rings = Region { memory: self.rings.clone(), physical: RINGS_PHYSICAL };
        let transmit = Region { memory: self.transmit.clone(), physical: TRANSMIT_PHYSICAL };
        let mut patience = 10;
        let tired = || {
            patience -= 1;
            patience == 0
        };
        // As after another driver, which left it running.
        self.status.set(4);
        Driver::start(self.clone(), rings, RECEIVE_PHYSICAL, transmit, tired, || {
            assert_eq!(self.status.get(), 0, "it may still do what somebody else had it do");
            self.reaches_memory.set(true);
            Ok(())
        })
    }

    /// Where the device was told that a queue is.
    fn base(&self, queue: usize) -> Option<usize> {
        self.queues.borrow()[queue].map(|addresses| (addresses.descriptors - RINGS_PHYSICAL) as usize)
    }

    /// The next descriptor of a queue: number, physical address, bytes.
    fn next(&self, queue: usize) -> Option<(u16, u64, u32)> {
        let base = self.base(queue)?;
        let mut seen = self.seen.get();
        if number::<2>(&self.rings, base + AVAILABLE_OFFSET + 2) as u16 == seen[queue] {
            return None;
        }
        let slot = usize::from(seen[queue] % 256);
        let descriptor = number::<2>(&self.rings, base + AVAILABLE_OFFSET + 4 + slot * 2) as u16;
        let at = base + usize::from(descriptor) * 16;
        seen[queue] = seen[queue].wrapping_add(1);
        self.seen.set(seen);
        Some((descriptor, number::<8>(&self.rings, at), number::<4>(&self.rings, at + 8) as u32))
    }

    fn used(&self, queue: usize, descriptor: u32, written: u32) {
        let base = self.base(queue).unwrap() + USED_OFFSET;
        let index = number::<2>(&self.rings, base + 2) as u16;
        let at = base + 4 + usize::from(index % 256) * 8;
        self.rings.write(at, &descriptor.to_le_bytes()).unwrap();
        self.rings.write(at + 4, &written.to_le_bytes()).unwrap();
        self.rings.write(base + 2, &index.wrapping_add(1).to_le_bytes()).unwrap();
    }

    /// The next command: its bytes, and where its answer goes. Carried out when it is answered.
    fn command(&self) -> Option<([u8; 3], usize)> {
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

    fn answer(&self, at: usize, answer: u8) {
        let used = (self.queues.borrow()[2].unwrap().used - RINGS_PHYSICAL) as usize;
        self.rings.write(at, &[answer]).unwrap();
        self.rings.write(used + 2, &self.seen.get()[2].to_le_bytes()).unwrap();
    }

    fn frame_arrives(&self, frame: &[u8]) -> bool {
        let Some((descriptor, physical, bytes)) = self.next(0) else { return false };
        assert_eq!((physical, bytes), (RECEIVE_PHYSICAL + u64::from(descriptor) * 2048, 2048));
        self.receive.write(usize::from(descriptor) * BUFFER_BYTES + 12, frame).unwrap();
        self.used(0, descriptor.into(), frame.len() as u32 + 12);
        true
    }
}

#[test]
fn frames_come_and_go() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    assert_eq!(driver.address(), [0, 1, 2, 3, 4, 5]);
    driver.flush();
    assert!(!machine.frame_arrives(&[1; 60]), "no buffers before somebody attached");
    assert!(driver.attach(&BufferSet::range(0, 10)).is_empty());
    driver.flush();
    for _ in 0..246 {
        assert!(machine.frame_arrives(&[1; 60]));
    }
    assert!(!machine.frame_arrives(&[1; 60]), "ten are held");
    driver.look().unwrap();
    let received = driver.take_output().received;
    assert_eq!((received.len(), received[0].offset, received[0].length), (246, 12, 60));
    driver.give_back(&[received[0].buffer, 3, 3, 256]);
    driver.flush();
    assert!(machine.frame_arrives(&[2; 1514]) && machine.frame_arrives(&[2; 60]) && !machine.frame_arrives(&[2; 60]));
    assert_eq!(driver.counters().refused, 2);

    let frame = Span { buffer: 40, offset: 18, length: 100 };
    machine.transmit.write(40 * 2048 + 6, &[0xff; 12]).unwrap();
    driver.transmit(&[
        frame,
        frame,
        Span { offset: 11, ..frame },
        Span { buffer: 256, ..frame },
        Span { length: 2040, ..frame },
    ]);
    driver.flush();
    let (descriptor, physical, bytes) = machine.next(1).unwrap();
    assert_eq!((descriptor, physical, bytes), (40, TRANSMIT_PHYSICAL + 40 * 2048 + 6, 112));
    assert_eq!(machine.transmit.borrow()[40 * 2048 + 6..40 * 2048 + 18], [0; 12]);
    assert_eq!(machine.next(1), None);
    machine.used(1, 40, 0);
    driver.look().unwrap();
    assert_eq!(driver.take_output().transmitted, [40]);
    assert_eq!(driver.counters().refused, 6);
}

#[test]
fn a_new_driver_and_a_new_client_lose_no_buffer() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    driver.flush();
    machine.frame_arrives(&[1; 60]);
    machine.frame_arrives(&[1; 60]);
    driver.look().unwrap();
    let held = driver.take_output().received;
    drop(driver);

    // The driver died; its client holds two buffers and says so.
    machine.reset_looks.set(3);
    let mut driver = machine.driver().unwrap();
    let mut set = BufferSet::EMPTY;
    held.iter().for_each(|span| {
        set.insert(span.buffer);
    });
    assert!(driver.attach(&set).is_empty(), "nothing is with a device that was reset");
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    driver.flush();
    assert_eq!((0..300).filter(|_| machine.frame_arrives(&[1; 60])).count(), 254);

    // The client died: what it held and what it was told is told to the next, with what the device
    // still has.
    driver.look().unwrap();
    assert_eq!(driver.take_output().received.len(), 254);
    driver.detach();
    assert_eq!(driver.attach(&BufferSet::EMPTY), BufferSet::range(50, 51));
    let again = driver.take_output().received;
    assert_eq!((again.len(), &again[..2]), (256, &held[..]));
    driver.give_back(&again.iter().map(|span| span.buffer).collect::<Vec<_>>());
    driver.flush();
    assert_eq!((0..300).filter(|_| machine.frame_arrives(&[1; 60])).count(), 256);
}

#[test]
fn frames_of_the_gap_are_told_in_order_and_once() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    driver.attach(&BufferSet::EMPTY);
    driver.flush();
    let frame = |number: u8| [number; 60];
    assert!(machine.frame_arrives(&frame(0)) && machine.frame_arrives(&frame(1)));
    driver.look().unwrap();
    let seen = driver.take_output().received;
    assert_eq!(seen.len(), 2);
    driver.give_back(&[seen[0].buffer]);
    driver.flush();
    drop(driver);
    // Nobody takes these; the device does not know.
    assert!(machine.frame_arrives(&frame(2)) && machine.frame_arrives(&frame(3)));

    let mut driver = machine.driver().unwrap();
    let mut held = BufferSet::EMPTY;
    held.insert(seen[1].buffer);
    driver.attach(&held);
    let told = driver.take_output().received;
    let first =
        |span: &Span| machine.receive.borrow()[usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset)];
    assert_eq!(told.iter().map(first).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((driver.counters().again, driver.posted()), (2, 253));

    // While nobody is attached frames wait with the device.
    driver.flush();
    driver.detach();
    assert!(machine.frame_arrives(&frame(4)));
    driver.look().unwrap();
    driver.attach(&held);
    driver.look().unwrap();
    assert_eq!(driver.take_output().received.iter().map(first).collect::<Vec<_>>(), [2, 3, 4]);
}

/// A client as IP is one: it holds some of what it was told, gives the rest back, and both sides
/// die at any time.
#[test]
fn hundreds_of_deaths_lose_no_buffer_and_no_frame() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    let mut held = BufferSet::EMPTY;
    driver.attach(&held);
    let mut seed = 0x0dd0_5eed_1234_5671;
    let (mut arrived, mut seen) = (0u32, std::collections::BTreeSet::new());
    let mut deaths = 0;
    for _ in 0..20_000 {
        match random(&mut seed) % 16 {
            0 => {
                driver = machine.driver().unwrap();
                deaths += 1;
                driver.attach(&held);
            }
            // The client dies, and not again before its successor has seen what it left.
            1 => {
                driver.detach();
                held = BufferSet::EMPTY;
                deaths += 1;
                driver.attach(&held);
                look(&machine, &mut driver, &mut held, &mut seen);
            }
            2..8 => look(&machine, &mut driver, &mut held, &mut seen),
            8..12 => {
                let back: Vec<u16> = held.iter().take((random(&mut seed) % 200) as usize).collect();
                back.iter().for_each(|buffer| assert!(held.remove(*buffer)));
                driver.give_back(&back);
            }
            _ => {
                driver.flush();
                let frame = [&arrived.to_le_bytes()[..], &[0; 56]].concat();
                arrived += u32::from(machine.frame_arrives(&frame));
            }
        }
    }
    look(&machine, &mut driver, &mut held, &mut seen);
    assert_eq!(driver.posted() + held.len(), 256, "each buffer is with the device or with the client");
    assert!(deaths > 1000 && arrived > 2000);
    assert_eq!(seen.len() as u32, arrived, "each frame was seen, though perhaps twice");
    assert_eq!(driver.counters().refused, 0);
}

fn look(
    machine: &Machine,
    driver: &mut Driver<Machine, Bytes>,
    held: &mut BufferSet,
    seen: &mut std::collections::BTreeSet<u32>,
) {
    driver.look().unwrap();
    for span in driver.take_output().received {
        assert!(held.insert(span.buffer), "a buffer that the client holds already");
        seen.insert(
            number::<4>(&machine.receive, usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset)) as u32
        );
    }
}

#[test]
fn damaged_rings_and_journals_cannot_break_a_successor() {
    let mut seed = 0x5eed_5eed_0000_0003;
    for _ in 0..3_000 {
        let machine = Machine::new();
        let mut driver = machine.driver().unwrap();
        driver.attach(&BufferSet::EMPTY);
        driver.flush();
        for _ in 0..random(&mut seed) % 20 {
            machine.frame_arrives(&[1; 60]);
        }
        if random(&mut seed).is_multiple_of(2) {
            driver.look().unwrap();
        }
        drop(driver);
        for _ in 0..1 + random(&mut seed) % 64 {
            // Mostly where it matters: the used ring, the journal.
            let used = machine.base(0).unwrap() + USED_OFFSET;
            let parts = [used, used + 4 + 8 * 256, JOURNAL_OFFSET, RING_BYTES, 0, RING_BYTES];
            let part = 2 * (random(&mut seed) % 3) as usize;
            let at = parts[part] + random(&mut seed) as usize % (parts[part + 1] - parts[part]);
            machine.rings.write(at, &[random(&mut seed) as u8]).unwrap();
        }
        let held = BufferSet::range(0, (random(&mut seed) % 256) as u16);
        let mut driver = machine.driver().unwrap();
        driver.attach(&held);
        driver.look().unwrap();
        let told = driver.take_output().received;
        let mut theirs = held;
        for span in &told {
            assert!(theirs.insert(span.buffer), "each buffer once, and none that is held");
            assert!((14..=2036).contains(&span.length) && span.offset == 12);
        }
        assert_eq!(driver.posted() + theirs.len(), 256);
    }
}

#[test]
fn a_device_is_set_as_was_wanted_last_and_says_whether_it_is() {
    const OFF: [u8; 3] = [0, 0, 0];
    const ON: [u8; 3] = [0, 0, 1];
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    let step = |driver: &mut Driver<Machine, Bytes>, wanted: [u8; 3], answer: u8| {
        driver.flush();
        let (command, at) = machine.command().expect("a command");
        assert_eq!(command, wanted);
        assert_eq!(driver.promiscuous(), None, "not answered yet");
        driver.look().unwrap();
        machine.answer(at, answer);
        driver.look().unwrap();
    };
    step(&mut driver, OFF, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(false)));
    driver.flush();
    assert_eq!(machine.command(), None, "nothing is said twice");
    driver.want_all_frames(true);
    // Changed while a command is under way, and back.
    driver.flush();
    driver.want_all_frames(false);
    step(&mut driver, ON, 0);
    step(&mut driver, OFF, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(false)));
    driver.want_all_frames(true);
    step(&mut driver, ON, 1);
    assert_eq!(driver.promiscuous(), Some(Err(Refused)));
    driver.want_all_frames(true);
    step(&mut driver, ON, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(true)));
    driver.restart(|| false).unwrap();
    step(&mut driver, ON, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(true)), "also by a device that was started again");

    machine.features.set(1 << 32 | 1 << 5);
    let mut driver = machine.driver().unwrap();
    driver.want_all_frames(true);
    driver.flush();
    assert_eq!((driver.promiscuous(), machine.command()), (Some(Err(Refused)), None));
}

#[test]
fn the_link_is_what_the_device_tells() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    for (status, up) in [(0, false), (1, true), (2, false), (3, true)] {
        machine.link.set(status);
        assert_eq!(driver.link_is_up(), up);
    }
    machine.link.set(0);
    machine.features.set(1 << 32 | 1 << 5);
    assert!(machine.driver().unwrap().link_is_up(), "it does not tell");
}

#[test]
fn the_words_to_poll_are_those_the_device_writes() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    driver.flush();
    for turn in 1..3 {
        let words = |driver: &Driver<Machine, Bytes>| driver.used_words().map(|at| number::<2>(&machine.rings, at));
        assert_eq!(words(&driver), [0, 0]);
        assert!(machine.frame_arrives(&[1; 60]) && machine.frame_arrives(&[1; 60]));
        machine.used(1, 50, 0);
        assert_eq!(words(&driver), [2, 1], "turn {turn}");
        driver.restart(|| false).unwrap();
        driver.flush();
    }
}

#[test]
fn a_device_that_does_not_fit_is_refused() {
    let machine = Machine::new();
    machine.reset_looks.set(1000);
    assert_eq!(machine.driver().err(), Some(StartError::NoReset));
    assert!(!machine.reaches_memory.get());
    machine.reset_looks.set(0);
    machine.features.set(1 << 5);
    assert_eq!(machine.driver().err(), Some(StartError::Features));
    machine.features.set(u64::MAX);
    machine.entries.set(128);
    assert_eq!(machine.driver().err(), Some(StartError::Queues));
}

/// xorshift64: the same lies in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_lying_device_cannot_break_it() {
    let machine = Machine::new();
    let mut driver = machine.driver().unwrap();
    driver.attach(&BufferSet::EMPTY);
    let mut seed = 0x1234_5678_9abc_def1;
    for _ in 0..100_000 {
        driver.flush();
        match random(&mut seed) % 4 {
            0 => machine.used((random(&mut seed) % 2) as usize, random(&mut seed) as u32, random(&mut seed) as u32),
            1 => machine.used(0, (random(&mut seed) % 256) as u32, (random(&mut seed) % 4096) as u32),
            2 => {
                let at = random(&mut seed) as usize % RING_BYTES;
                machine.rings.write(at, &[random(&mut seed) as u8]).unwrap();
            }
            _ => driver.transmit(&[Span { buffer: (random(&mut seed) % 300) as u16, offset: 18, length: 60 }]),
        }
        if driver.look().is_err() {
            driver.restart(|| false).unwrap();
        }
        let output = driver.take_output();
        for span in &output.received {
            assert!(span.buffer < 256 && usize::from(span.offset) + usize::from(span.length) <= BUFFER_BYTES);
        }
        driver.give_back(&output.received.iter().map(|span| span.buffer).collect::<Vec<_>>());
    }
    assert!(driver.counters().restarts > 0);
}
