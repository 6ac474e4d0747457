//! Ports over a device as the specification has it: it knows of the queues what it was told, and
//! reads and writes where descriptors say.

use super::*;
use crate::doorbell::Doorbell;
use crate::testing::Bell;
use crate::transport::status;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::RefCell;
use core::ops::Range;

const PHYSICAL: u64 = 0x7000_0000;
const ALL_OUT: [Out; OUTS] = [Out::Control, Out::Output, Out::Error, Out::Screen];
const ALL_IN: [In; INS] = [In::Control, In::Input, In::Keys];
/// The queues of each, as section 5.3.2 numbers those of the ports that the host's machine has.
const OUT_QUEUES: [u16; OUTS] = [5, 9, 11, 13];
const IN_QUEUES: [u16; INS] = [4, 6, 12];
/// What it offers: VIRTIO_F_VERSION_1, and of a console's own that it has several ports.
const OFFERED: u64 = 0x1_0000_0002;
/// Bytes behind the region.
const BEHIND: usize = 100;

struct State {
    status: u8,
    queues: BTreeMap<u16, QueueAddresses>,
    /// Buffers used, by queue.
    used: BTreeMap<u16, u16>,
    notified: Vec<u16>,
    acknowledged: u32,
    messages: Vec<u8>,
    reaches_memory: bool,
    /// In its configuration.
    most_ports: u16,
    entries: u16,
    /// It takes no message.
    is_deaf: bool,
    /// Looks until the driver gives up, and whether the device takes messages at each.
    looks: u32,
    is_slow: bool,
}

type DevicePorts = Ports<Device, Rc<RefCell<Vec<u8>>>>;

#[derive(Clone)]
struct Device {
    region: Rc<RefCell<Vec<u8>>>,
    state: Rc<RefCell<State>>,
}

impl Device {
    fn new() -> Device {
        let state = State {
            status: status::DRIVER_OK,
            queues: BTreeMap::new(),
            used: BTreeMap::new(),
            notified: Vec::new(),
            acknowledged: 0,
            messages: Vec::new(),
            reaches_memory: false,
            most_ports: 6,
            entries: ENTRIES,
            is_deaf: false,
            looks: 5,
            is_slow: false,
        };
        Device { region: Rc::new(RefCell::new(vec![0xaa; END + BEHIND])), state: Rc::new(RefCell::new(state)) }
    }

    fn ports(&self) -> DevicePorts {
        Ports::new(self.clone(), self.region.clone())
    }

    /// One that was started, and what uses it.
    fn started() -> (Device, DevicePorts) {
        let device = Device::new();
        let mut ports = device.ports();
        assert_eq!(ports.start(PHYSICAL, &mut device.clone()), Ok(()));
        (device, ports)
    }

    /// One that was opened, too.
    fn opened() -> (Device, DevicePorts) {
        let (device, mut ports) = Device::started();
        assert_eq!(ports.open(&Positions::default(), &mut device.clone()), Ok(()));
        (device, ports)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.borrow_mut());
    }

    fn number(&self, physical: u64, bytes: usize) -> u64 {
        let at = (physical - PHYSICAL) as usize;
        self.region.borrow()[at..at + bytes].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    fn put(&self, physical: u64, bytes: &[u8]) {
        let at = (physical - PHYSICAL) as usize;
        self.region.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The next buffer of a queue: its number, where it is, its bytes and flags.
    fn next(&self, queue: u16) -> Option<(u64, u64, usize, u64)> {
        let state = self.state.borrow();
        let (QueueAddresses { descriptors, available, .. }, used) = (state.queues[&queue], state.used[&queue]);
        if self.number(available + 2, 2) == u64::from(used) {
            return None;
        }
        let entry = self.number(available + 4 + 2 * u64::from(used % ENTRIES), 2);
        let at = descriptors + 16 * entry;
        Some((entry, self.number(at, 8), self.number(at + 8, 4) as usize, self.number(at + 12, 4)))
    }

    fn complete(&self, queue: u16, entry: u64, written: usize) {
        let mut state = self.state.borrow_mut();
        let (addresses, used) = (state.queues[&queue], state.used[&queue]);
        let at = addresses.used + 4 + 8 * u64::from(used % ENTRIES);
        self.put(at, &(entry as u32).to_le_bytes());
        self.put(at + 4, &(written as u32).to_le_bytes());
        self.put(addresses.used + 2, &used.wrapping_add(1).to_le_bytes());
        state.used.insert(queue, used.wrapping_add(1));
    }

    /// What it was given to read.
    fn read(&self, queue: u16) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((entry, address, bytes, flags)) = self.next(queue) {
            assert_eq!(flags, 0, "it reads");
            let at = (address - PHYSICAL) as usize;
            all.extend_from_slice(&self.region.borrow()[at..at + bytes]);
            self.complete(queue, entry, 0);
        }
        all
    }

    /// Writes into the next buffer; false if it has none.
    fn write(&self, queue: u16, data: &[u8]) -> bool {
        let Some((entry, address, bytes, flags)) = self.next(queue) else { return false };
        assert!(flags == 2 && data.len() <= bytes, "it writes");
        self.put(address, data);
        self.complete(queue, entry, data.len());
        true
    }

    fn hear(&self) {
        if !self.state.borrow().is_deaf {
            let heard = self.read(MESSAGES);
            self.state.borrow_mut().messages.extend(heard);
        }
    }

    /// Queues that it was notified of since the last look.
    fn notified(&self) -> Vec<u16> {
        let mut notified = core::mem::take(&mut self.state.borrow_mut().notified);
        notified.sort();
        notified.dedup();
        notified
    }
}

impl Transport for Device {
    fn status(&mut self) -> u8 {
        self.state.borrow().status
    }
    fn set_status(&mut self, status: u8) {
        self.change(|state| state.status = status);
    }
    fn features(&mut self) -> u64 {
        OFFERED
    }
    fn set_features(&mut self, features: u64) {
        assert_eq!(features, OFFERED);
    }
    fn queue_entries(&mut self, _: u16) -> u16 {
        self.state.borrow().entries
    }
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        assert_eq!(entries, ENTRIES);
        self.change(|state| {
            state.queues.insert(queue, addresses);
            state.used.insert(queue, 0);
        });
    }
    fn adopt_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) -> bool {
        entries == ENTRIES && self.state.borrow().queues.get(&queue) == Some(&addresses)
    }
    fn notify(&mut self, queue: u16) {
        self.change(|state| state.notified.push(queue));
        if queue == MESSAGES && !self.state.borrow().is_slow {
            self.hear();
        }
    }
    fn set_message(&mut self, _: u16, _: u16) {
        unreachable!("its queues have one message");
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        let device = self.clone();
        Box::new(Bell(move || device.clone().notify(queue)))
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        // Columns and rows are before the number of ports, the word for emergencies behind it.
        let [low, high] = self.state.borrow().most_ports.to_le_bytes();
        [80, 0, 25, 0, low, high, 0, 0][offset as usize]
    }
    fn acknowledge(&mut self) -> bool {
        self.change(|state| state.acknowledged += 1);
        false
    }
}

impl DeviceOwner for Device {
    fn reaches_memory(&mut self) -> bool {
        self.state.borrow().reaches_memory
    }
    fn enable_bus_master(&mut self) -> bool {
        self.change(|state| state.reaches_memory = true);
        true
    }
    fn has_timed_out(&mut self) -> bool {
        self.hear();
        self.change(|state| state.looks = state.looks.checked_sub(1).expect("it was told that it is over"));
        self.state.borrow().looks == 0
    }
}

/// Those of streams.
fn stream_queues() -> impl Iterator<Item = u16> {
    OUT_QUEUES.into_iter().chain(IN_QUEUES)
}

/// And those of the device's own port, in order.
fn device_queues() -> Vec<u16> {
    let mut all: Vec<u16> = stream_queues().chain([ANSWERS, MESSAGES]).collect();
    all.sort();
    all
}

#[test]
fn a_device_is_told_of_queues_that_lie_apart_and_nothing_comes_before_it_is_open() {
    let (device, mut ports) = Device::started();
    assert_eq!(device.state.borrow().status, status::RUNNING);
    assert!(device.state.borrow().queues.keys().copied().eq(device_queues()));
    assert!(device.notified().is_empty() && device.state.borrow().messages.is_empty());
    assert!(IN_QUEUES.iter().all(|queue| !device.write(*queue, b"x")));
    assert_eq!(ports.open(&Positions::default(), &mut device.clone()), Ok(()));
    let mut parts: Vec<Range<u64>> = Vec::new();
    for QueueAddresses { descriptors, available, used } in device.state.borrow().queues.values() {
        assert!(descriptors % 16 == 0 && available % 2 == 0 && used % 4 == 0);
        for (at, bytes) in [(*descriptors, 512), (*available, 70), (*used, 262)] {
            parts.push(at..at + bytes);
        }
        for entry in 0..u64::from(ENTRIES) {
            let at = descriptors + 16 * entry;
            parts.push(device.number(at, 8)..device.number(at, 8) + device.number(at + 8, 4));
        }
    }
    parts.sort_by_key(|part| part.start);
    assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "they lie apart");
    assert!(parts[0].start >= PHYSICAL && parts.last().unwrap().end <= PHYSICAL + END as u64);
    assert_eq!(&device.region.borrow()[END..], [0xaa; BEHIND]);
}

#[test]
fn a_device_is_told_once_more_that_all_ports_are_open_by_who_opens_it() {
    let (device, _) = Device::opened();
    let mut expected = vec![0, 0, 0, 0, 0, 0, 1, 0];
    for port in 1..=5 {
        for event in [3, 6] {
            expected.extend([port, 0, 0, 0, event, 0, 1, 0]);
        }
    }
    assert_eq!(device.state.borrow().messages, expected);
    let notified = device.notified();
    assert!(stream_queues().all(|queue| notified.contains(&queue)));
    assert!(!device.write(ANSWERS, b"x"), "it answers nothing");
}

#[test]
fn a_device_is_refused_that_has_too_little() {
    let started = |change: fn(&mut State)| {
        let device = Device::new();
        device.change(change);
        device.ports().start(PHYSICAL, &mut device.clone())
    };
    // The number of ports counts from 0, which is not ours.
    assert_eq!(started(|state| state.most_ports = 5), Err(StartError::Ports));
    assert_eq!(started(|state| state.most_ports = 256), Ok(()));
    assert_eq!(started(|state| state.entries = ENTRIES - 1), Err(StartError::Ports));
    assert_eq!(started(|state| state.entries = 64), Ok(()));
    let device = Device::new();
    device.region.borrow_mut().truncate(END - 4096);
    assert_eq!(device.ports().start(PHYSICAL, &mut device.clone()), Err(StartError::Region));
}

#[test]
fn a_device_that_takes_no_message_is_given_up_and_one_that_takes_its_time_is_not() {
    let opened_thrice = |change: fn(&mut State)| {
        let (device, mut ports) = Device::started();
        device.change(change);
        // Eleven messages each, and 32 entries.
        let open = |_| ports.open(&Positions::default(), &mut device.clone());
        ([(); 3].map(open), device.state.borrow().looks)
    };
    assert_eq!(opened_thrice(|_| ()), ([Ok(()); 3], 5));
    assert_eq!(opened_thrice(|state| state.is_slow = true), ([Ok(()); 3], 4));
    assert_eq!(opened_thrice(|state| state.is_deaf = true), ([Ok(()), Ok(()), Err(StartError::Silent)], 0));
}

#[test]
fn what_leaves_by_a_stream_arrives_at_its_port_when_it_is_published() {
    let (device, mut ports) = Device::opened();
    let mut positions = Positions::default();
    device.notified();
    for (round, (out, queue)) in ALL_OUT.into_iter().zip(OUT_QUEUES).enumerate() {
        let room = ports.room(&positions, out).unwrap();
        assert!(room >= 1024 && ports.is_drained(&positions, out) == Ok(true));
        let text = format!("of stream {round}").into_bytes();
        assert_eq!(ports.fill(&mut positions, out, &text), Ok(text.len()));
        assert_eq!(ports.is_drained(&positions, out), Ok(false));
        assert!(ports.room(&positions, out).unwrap() < room);
        assert_eq!(device.read(queue), b"", "it was not published");
        ports.publish(&positions);
        assert_eq!(device.notified(), [queue]);
        for other in OUT_QUEUES {
            assert_eq!(device.read(other), if other == queue { text.as_slice() } else { b"" });
        }
        assert_eq!((ports.room(&positions, out), ports.is_drained(&positions, out)), (Ok(room), Ok(true)));
        // No more than there is room for.
        assert_eq!(ports.fill(&mut positions, out, &vec![7; room + 1]), Ok(room));
        ports.publish(&positions);
        assert_eq!((ports.room(&positions, out), device.read(queue)), (Ok(0), vec![7; room]));
        device.notified();
        ports.publish(&positions);
        assert_eq!(device.notified(), [], "again does nothing");
    }
    let mut wrong = positions;
    wrong.given[0] -= 1;
    assert_eq!((ports.room(&wrong, Out::Control), ports.is_drained(&wrong, Out::Control)), (Err(Broken), Err(Broken)));
}

#[test]
fn what_comes_by_a_port_is_its_streams_until_it_is_taken() {
    let (device, mut ports) = Device::opened();
    let mut positions = Positions::default();
    device.notified();
    for (round, (from, queue)) in ALL_IN.into_iter().zip(IN_QUEUES).enumerate() {
        let text = format!("secret {round}").into_bytes();
        for _ in 0..ENTRIES {
            assert!(device.write(queue, &text));
        }
        assert!(!device.write(queue, &text), "it has no more buffers");
        let all = usize::from(ENTRIES) * text.len();
        assert_eq!(ALL_IN.map(|from| ports.held(&positions, from).unwrap()).iter().sum::<usize>(), all);
        let (mut ahead, mut bytes) = (positions, [0; 12]);
        assert_eq!(
            (ports.peek(&mut ahead, from, &mut bytes), &bytes[..8], &bytes[8..]),
            (Ok(12), &text[..], &text[..4])
        );
        assert_eq!(ports.held(&ahead, from), Ok(all - 12));
        // What was written over is not there any more.
        ports.overwrite(&positions, from, &[b'.'; 12]).unwrap();
        let mut again = positions;
        assert_eq!((ports.peek(&mut again, from, &mut bytes), bytes), (Ok(12), [b'.'; 12]));
        assert_eq!(again, ahead);
        positions = ahead;
        ports.publish(&positions);
        assert_eq!(device.notified(), [queue]);
        assert!(device.write(queue, b"") && !device.write(queue, b""), "one buffer was taken whole");
        let mut rest = vec![0; all];
        assert_eq!(ports.peek(&mut positions, from, &mut rest), Ok(all - 12));
        assert_eq!((&rest[..4], ports.held(&positions, from)), (&text[4..], Ok(0)));
        ports.publish(&positions);
        device.notified();
    }
    ports.acknowledge();
    assert_eq!(device.state.borrow().acknowledged, 1);
}

/// A device that a predecessor uses: some of what came is taken, and something waits to leave.
fn left() -> (Device, Positions) {
    let (device, mut ports) = Device::opened();
    let mut positions = Positions::default();
    ports.fill(&mut positions, Out::Output, b"leaves").unwrap();
    ports.publish(&positions);
    assert!(device.write(IN_QUEUES[1], b"has come"));
    ports.peek(&mut positions, In::Input, &mut [0; 4]).unwrap();
    device.notified();
    device.change(|state| {
        state.messages.clear();
        state.acknowledged = 0;
    });
    (device, positions)
}

#[test]
fn a_successor_goes_on_where_positions_say() {
    let (device, mut positions) = left();
    let queues = device.state.borrow().queues.clone();
    let mut ports = device.ports();
    assert_eq!(ports.adopt(PHYSICAL, &positions, &mut device.clone()), Ok(()));
    assert_eq!((device.state.borrow().acknowledged, device.state.borrow().messages.len()), (1, 11 * MESSAGE_BYTES));
    let notified = device.notified();
    assert!(stream_queues().chain([MESSAGES]).all(|queue| notified.contains(&queue)));
    assert!(device.state.borrow().status == status::RUNNING && device.state.borrow().queues == queues);
    assert_eq!(device.read(OUT_QUEUES[1]), b"leaves");
    let mut bytes = [0; 4];
    assert_eq!((ports.peek(&mut positions, In::Input, &mut bytes), &bytes), (Ok(4), b"come"));
}

#[test]
fn what_a_predecessor_would_not_leave_is_named() {
    let adopted = |change: &dyn Fn(&Device, &mut Positions)| {
        let (device, mut positions) = left();
        change(&device, &mut positions);
        device.ports().adopt(PHYSICAL, &positions, &mut device.clone())
    };
    let of = |queue: u16, change: &dyn Fn(&Device, QueueAddresses)| {
        adopted(&|device, _| {
            let addresses = device.state.borrow().queues[&queue];
            change(device, addresses);
        })
    };
    assert_eq!(adopted(&|_, _| ()), Ok(()));
    assert_eq!(adopted(&|device, _| device.change(|state| state.reaches_memory = false)), Err(NotRunning::Quiet));
    let failed = status::RUNNING | 0x40;
    assert_eq!(adopted(&|device, _| device.change(|state| state.status = failed)), Err(NotRunning::Status(failed)));
    for queue in device_queues() {
        let wrong = Err(NotRunning::Queue(queue));
        assert_eq!(adopted(&|device, _| device.change(|state| _ = state.queues.remove(&queue))), wrong);
        assert_eq!(of(queue, &|device, addresses| device.put(addresses.descriptors + 16 * 7, &[1])), wrong);
        assert_eq!(of(queue, &|device, addresses| device.put(addresses.used + 2, &[33, 0])), wrong);
    }
    // Given or taken is more than can be, of what was given or came.
    assert_eq!(adopted(&|_, positions| positions.given[1] = 33), Err(NotRunning::Queue(OUT_QUEUES[1])));
    assert_eq!(adopted(&|_, positions| positions.taken[1].taken = 2), Err(NotRunning::Queue(IN_QUEUES[1])));
    assert_eq!(adopted(&|_, positions| positions.taken[1].offset = 8), Err(NotRunning::Queue(IN_QUEUES[1])));
    // A predecessor's messages were not taken, nor are ours.
    let deaf = |device: &Device, positions: &mut Positions| {
        device.change(|state| state.is_deaf = true);
        let mut ports = device.ports();
        while ports.open(positions, &mut device.clone()).is_ok() {}
        device.change(|state| state.looks = 5);
    };
    assert_eq!(adopted(&deaf), Err(NotRunning::Queue(MESSAGES)));
}
