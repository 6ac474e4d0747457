//! A region of which a byte was damaged while no console lived: the successor goes on as if nothing
//! had been, or resets the device and says why. Never does the device read or write what is no
//! buffer.
//!
//! What the device itself writes, and how long a buffer is that it has not read yet, stands nowhere
//! twice: damage there, within bounds, is believed.

use crate::common::{
    AVAILABLE, CONTROL, ERROR, Fault, INPUT, MESSAGES, Machine, OUTPUT, PHYSICAL, QUEUES, TERMINAL, USED, bytes,
    from_host,
};
use console_core::streams::{Found, REGION_BYTES, Request, Streams, Why};
use packet::Memory;
use std::cell::RefCell;
use std::collections::BTreeMap;
use virtio::port::{ENTRIES, RING_BYTES};
use virtio::ports::{END, Out};
use virtio::transport::NotRunning;

const OUTS: [(Out, usize); 3] = [(Out::Output, OUTPUT), (Out::Error, ERROR), (Out::Screen, TERMINAL)];
const INPUT_BYTES: usize = 50 * 120 + 9_000;
/// Clients of the outputs are numbered as their ports.
const READER: u64 = 6;

fn start(machine: &Machine, recovers: bool) -> (Streams, Found) {
    let (transport, mut owner, memory) = machine.parts();
    Streams::start(transport, memory, PHYSICAL, recovers, &mut owner).unwrap_or_else(|error| panic!("{error:?}"))
}

fn take(streams: &Streams, wanted: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    streams.take_input(wanted, Some(Request { client: READER, number: 1 }), |bytes| {
        taken = bytes.to_vec();
        true
    });
    taken
}

/// A device in the middle of everything, whose console just died: bytes written to each output, and
/// bytes read.
fn interrupted_machine() -> (Machine, usize, usize) {
    let machine = Machine::new(REGION_BYTES);
    let (streams, _) = start(&machine, false);
    machine.settle();
    let (mut written, mut read) = (0, 0);
    machine.device.borrow_mut().waits[INPUT].extend(bytes(INPUT, 0..INPUT_BYTES));
    // Often enough that the rings come round.
    let mut write = |count: usize| {
        for (out, port) in OUTS {
            let request = Some(Request { client: port as u64, number: written as u64 });
            assert_eq!(streams.write(out, &bytes(port, written..written + count), request, |done| done), count);
        }
        written += count;
    };
    for _ in 0..50 {
        write(100);
        for (_, port) in OUTS {
            machine.send(port, 100);
        }
        machine.receive(INPUT, 120);
        read += take(&streams, 119).len();
    }
    write(5_000);
    for (_, port) in OUTS {
        machine.send(port, 1_000);
        machine.send(port, 100);
    }
    assert!((0..3).all(|_| machine.receive(INPUT, 3_000)));
    read += take(&streams, 1_000).len();
    machine.device.borrow_mut().waits[CONTROL].extend(b"signal-first 3\nsignal-fir");
    machine.receive(CONTROL, 10);
    machine.receive(CONTROL, 10);
    assert!(streams.take_word(|_| ()));
    // Last, what moves no count that the device sees.
    read += take(&streams, 500).len();
    (machine, written, read)
}

/// Whether the queues' memory at `at` is such that damage within bounds cannot be seen.
fn is_believed(at: usize) -> bool {
    let (ring, offset) = (at / RING_BYTES, at % RING_BYTES);
    let Some((_, _, device_writes)) = QUEUES.get(ring) else { return false };
    let is_length = offset < 16 * usize::from(ENTRIES) && (8..12).contains(&(offset % 16));
    offset >= USED || is_length && !device_writes
}

/// Where damage is done: all that means something of each ring and of the record, a part of what
/// clients were told.
fn places() -> Vec<usize> {
    let ring = (0..16 * 32).chain(AVAILABLE..AVAILABLE + 72).chain(USED..USED + 264);
    let rings = (0..QUEUES.len()).flat_map(|index| ring.clone().map(move |at| index * RING_BYTES + at));
    let record = END..END + 64 + 2 * 128;
    let told = END + 4096..END + 4096 + (READER as usize + 1) * 24;
    rings.chain(record).chain(told).chain((END + 4096..REGION_BYTES).step_by(101)).collect()
}

#[test]
fn a_damaged_byte_is_named_or_does_not_matter() {
    let (whole, written, read) = interrupted_machine();
    let (mut reasons, mut takeovers) = (BTreeMap::<String, usize>::new(), 0);
    for at in places() {
        for damage in [0x01, 0x10, 0x80, 0xff] {
            let machine = whole.copy();
            machine.region.borrow_mut()[at] ^= damage;
            let (streams, found) = start(&machine, true);
            let place = format!("byte {} of {at:#x} ^ {damage:#x}, {found:?}", at % RING_BYTES);
            match found {
                Found::Running => {
                    takeovers += 1;
                    check_takeover(&machine, &streams, written, read, is_believed(at), &place);
                }
                Found::Fresh => panic!("{place}: it had a console"),
                Found::Reset(why) => {
                    *reasons.entry(format!("{why:?}")).or_default() += 1;
                    check_reset(&machine, &streams, &place);
                }
            }
        }
    }
    println!("{takeovers} takeovers; resets: {reasons:?}");
    let (streams, found) = start(&whole, true);
    assert_eq!(found, Found::Running);
    check_takeover(&whole, &streams, written, read, false, "undamaged");
}

/// All goes on, and nothing is lost. What is `believed` may be wrong, but leads nowhere else.
fn check_takeover(machine: &Machine, streams: &Streams, written: usize, read: usize, believed: bool, place: &str) {
    for (out, _) in OUTS {
        streams.room(out);
    }
    streams.input_held();
    assert!(!streams.is_broken(), "{place}: what is broken at once should have been reset");
    let told: Vec<_> = OUTS
        .map(|(_, port)| streams.result(Some(Request { client: port as u64, number: (written - 5_000) as u64 })))
        .to_vec();
    let input = RefCell::new(Vec::new());
    for _ in 0..20 {
        machine.settle();
        while streams.take_word(|_| ()) {}
        let hand_over = |bytes: &[u8]| {
            input.borrow_mut().extend_from_slice(bytes);
            true
        };
        streams.take_input(2_000, None, hand_over);
    }
    // More than a ring has.
    for index in 0..40 {
        for (out, port) in OUTS {
            streams.write(out, &bytes(port, written + 10 * index..written + 10 * index + 10), None, |done| done);
        }
        if index % 8 == 7 {
            machine.settle();
        }
    }
    machine.settle();
    let device = machine.device.borrow();
    let outside = device.faults.iter().find(|fault| !believed || matches!(fault, Fault::Descriptor(_)));
    assert_eq!(outside, None, "{place}");
    if believed {
        return;
    }
    assert_eq!(told, [Some(5_000); 3], "{place}");
    assert!(*input.borrow() == bytes(INPUT, read..INPUT_BYTES), "{place}: {} bytes came", input.borrow().len());
    for (_, port) in OUTS {
        assert!(device.arrived[port] == bytes(port, 0..written + 400), "{place}: port {port}");
    }
    assert_eq!(streams.next_signal(), Some((3, true)), "{place}");
    assert!(!streams.is_broken() && device.interrupts, "{place}");
}

/// It works, and a successor goes on with it.
fn check_reset(machine: &Machine, streams: &Streams, place: &str) {
    machine.settle();
    streams.write(Out::Output, b"and on", None, |done| done);
    assert_eq!(start(machine, true).1, Found::Running, "{place}");
    machine.settle();
    let device = machine.device.borrow();
    assert_eq!(device.faults, [], "{place}");
    assert!(device.arrived[OUTPUT].ends_with(b"and on") && !streams.is_broken(), "{place}");
}

/// What would be put right unseen, or is seen too late: each is named.
#[test]
fn what_a_predecessor_would_not_leave_is_named() {
    let (whole, ..) = interrupted_machine();
    for (index, (number, ..)) in QUEUES.into_iter().enumerate() {
        let ring = index * RING_BYTES;
        let named = |damage: &dyn Fn(&Machine), acts: bool| {
            let machine = whole.copy();
            damage(&machine);
            if acts {
                machine.settle();
            }
            let found = start(&machine, true).1;
            matches!(found, Found::Reset(Why::Device(NotRunning::Queue(queue))) if usize::from(queue) == number)
        };
        let word = |at: usize, value: u16| move |machine: &Machine| machine.region.store_u16(ring + at, value).unwrap();
        let shown = whole.region.load_u16(ring + AVAILABLE + 2).unwrap();
        let used = whole.region.load_u16(ring + USED + 2).unwrap();
        assert!(named(&word(AVAILABLE, 1), false), "queue {number} without interrupts");
        assert!(named(&word(16 * 31 + 8, 0), false), "queue {number}: an empty buffer");
        // Of the messages it is not kept how many there were.
        if number != MESSAGES {
            assert!(named(&word(AVAILABLE + 2, shown.wrapping_add(1)), false), "queue {number}: shown too much");
            assert!(named(&word(AVAILABLE + 2, shown.wrapping_add(1)), true), "queue {number}: and read it");
            assert!(named(&word(USED + 2, shown.wrapping_add(1)), false), "queue {number}: used too much");
        }
        assert!(named(&word(USED + 2, used.wrapping_sub(40)), false), "queue {number}: used less than it did");
        if number == from_host(INPUT) {
            let entry = usize::from(used.wrapping_sub(3) % ENTRIES);
            assert!(named(&word(USED + 4 + 8 * entry + 4, 10), false), "it wrote less than was read");
        }
    }
}

/// Who dies over a reset leaves no counts of before it that its successor would make true again.
#[test]
fn a_successor_may_die_while_it_resets() {
    let whole = Machine::new(REGION_BYTES);
    let (streams, _) = start(&whole, false);
    whole.settle();
    // So little that the counts might be those of an empty ring.
    let request = Request { client: 1, number: 1 };
    assert_eq!(streams.write(Out::Output, &[b'x'; 5_000], Some(request), |done| done), 5_000);
    whole.send(OUTPUT, 1_000);
    // Somebody made the device quiet.
    whole.reset();
    let mut starting = 0;
    for stores in 0.. {
        let machine = whole.copy();
        let arrived = machine.device.borrow().arrived.clone();
        machine.life.lasts(Some(stores), (stores % 256) as usize);
        let (transport, mut owner, memory) = machine.parts();
        let _ = Streams::start(transport, memory, PHYSICAL, true, &mut owner);
        let is_over = machine.life.is_over();
        machine.life.lasts(None, 0);
        machine.settle();
        let (streams, found) = start(&machine, true);
        machine.settle();
        starting += usize::from(found == Found::Reset(Why::Starting));
        assert_eq!(machine.device.borrow().arrived, arrived, "died after {stores} stores, {found:?}: what was lost");
        assert_eq!(streams.result(Some(request)), Some(5_000));
        check_reset(&machine, &streams, &format!("died after {stores} stores"));
        if !is_over {
            assert!(stores > 600 && found == Found::Running, "{stores} stores in all, {found:?}");
            assert!(starting > 500, "{starting} of them were said to be over a reset");
            break;
        }
    }
}
