//! Drivers that die after any single store, and their successors after any of theirs: no frame is
//! lost, no buffer is anybody's twice, and the device is not reset for it.
//!
//! The device completes out of order. The client is as IP is: it holds some of what it was told,
//! repeats what the device did not read, and hears nothing of what a driver did with its last
//! breath. No frame is sent twice, save where the device had to be reset.
//!
//! With one handler and with two, of which each does its turns when chance has it. A death is that
//! of both; where the device is reset, the second alone is stopped, at any store too.

use crate::common::{Layout, Machine, NetDriver, NetHandler, RECEIVE_PHYSICAL, TRANSMIT_PHYSICAL, number, random};
use packet::{BUFFER_BYTES, BufferSet, Memory, Span};
use std::collections::{BTreeMap, BTreeSet};
use virtio_net::Found;

const FRAME_BYTES: usize = 60;
/// What a frame of the client begins with; of the network's, without this bit.
const OURS: u32 = 1 << 31;

fn frame(id: u32) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&id.to_le_bytes());
    frame
}

/// A network that has each frame it was given, and how often.
#[derive(Default)]
struct Network {
    /// Descriptors that the device has taken from each queue and not completed.
    taken: [Vec<(u16, u64)>; 2],
    resets: u32,
    arrived: u32,
    sent: BTreeMap<u32, u32>,
}

impl Network {
    /// Takes what there is, and completes the one in the middle, by a frame that arrives or one
    /// that is sent.
    fn step(&mut self, machine: &Machine, queue: usize) -> bool {
        if machine.resets.get() != self.resets {
            self.resets = machine.resets.get();
            self.taken = Default::default();
        }
        while self.taken[queue].len() < 4
            && let Some((buffer, physical, _)) = machine.next(queue)
        {
            self.taken[queue].push((buffer, physical));
        }
        if self.taken[queue].is_empty() {
            return false;
        }
        let (buffer, physical) = self.taken[queue].remove(self.taken[queue].len() / 2);
        if queue == 0 {
            assert_eq!(physical, RECEIVE_PHYSICAL + u64::from(buffer) * BUFFER_BYTES as u64);
            machine.receive.write(usize::from(buffer) * BUFFER_BYTES + 12, &frame(self.arrived)).unwrap();
            self.arrived += 1;
            machine.used(0, buffer.into(), FRAME_BYTES as u32 + 12);
        } else {
            let at = (physical - TRANSMIT_PHYSICAL) as usize;
            assert_eq!(at / BUFFER_BYTES, buffer.into());
            let id = number::<4>(&machine.transmit, at + 12) as u32;
            assert!(id & OURS != 0, "that is no frame of the client's");
            *self.sent.entry(id).or_default() += 1;
            machine.used(1, buffer.into(), 0);
        }
        true
    }
}

#[derive(Default)]
struct Client {
    held: BufferSet,
    seen: BTreeSet<u32>,
    /// With what it holds and its number.
    on_the_way: Vec<(Span, u32, (u32, u16))>,
    next: (u32, u16),
    made: u32,
    /// May be sent twice: read by a device that was reset before the client heard of it.
    maybe_twice: BTreeSet<u32>,
}

impl Client {
    fn attach(&mut self, driver: &mut NetDriver, network: &Network) {
        let busy = driver.attach(&self.held);
        let known = self.on_the_way.iter().fold(BufferSet::EMPTY, |mut set, (span, ..)| {
            set.insert(span.buffer);
            set
        });
        assert!(busy.without(&known).is_empty(), "the device has what the client does not know of");
        let (epoch, number) = driver.next_frame();
        let of_others = self.on_the_way.iter().filter(|(.., (of, _))| *of != epoch).map(|(_, id, _)| *id);
        self.maybe_twice.extend(of_others.filter(|id| network.sent.contains_key(id)));
        self.next = (epoch, number);
        self.on_the_way.retain_mut(|(span, _, own)| {
            if busy.contains(span.buffer) {
                return true;
            }
            let is_read = own.0 == epoch && number.wrapping_sub(own.1).cast_signed() > 0;
            if !is_read {
                *own = self.next;
                self.next.1 = self.next.1.wrapping_add(1);
                driver.transmit(&[*span]);
            }
            !is_read
        });
    }

    fn hear(&mut self, machine: &Machine, driver: &mut NetDriver) {
        let output = driver.take_output();
        for span in output.received {
            assert!(self.held.insert(span.buffer), "a buffer that the client holds already");
            let at = usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset);
            self.seen.insert(number::<4>(&machine.receive, at) as u32);
        }
        self.on_the_way.retain(|(span, ..)| !output.transmitted.contains(&span.buffer));
    }

    fn send(&mut self, machine: &Machine, driver: &mut NetDriver) {
        let busy: Vec<u16> = self.on_the_way.iter().map(|(span, ..)| span.buffer).collect();
        let Some(buffer) = (32..256).find(|buffer| !busy.contains(buffer)) else { return };
        let span = Span { buffer, offset: 18, length: FRAME_BYTES as u16 };
        let id = OURS | self.made;
        self.made += 1;
        machine.transmit.write(usize::from(buffer) * BUFFER_BYTES + 18, &frame(id)).unwrap();
        self.on_the_way.push((span, id, self.next));
        self.next.1 = self.next.1.wrapping_add(1);
        driver.transmit(&[span]);
    }

    fn release_buffers(&mut self, driver: &mut NetDriver, count: usize) {
        let back: Vec<u16> = self.held.iter().take(count).collect();
        back.iter().for_each(|buffer| assert!(self.held.remove(*buffer)));
        driver.release_buffers(&back);
    }
}

/// What became of a life's work.
struct Outcome {
    deaths: usize,
    takeovers: usize,
    twice: usize,
}

/// The handler's turn, if there is one.
fn turn(handler: &mut Option<NetHandler>) {
    handler.iter_mut().for_each(|handler| _ = handler.turn());
}

/// A machine whose drivers die after so many stores, one after the other; the last one lives. All
/// that happens comes from `seed`.
fn live(layout: Layout, lives: &[u64], seed: u64) -> Outcome {
    let machine = Machine::new();
    let (mut network, mut client) = (Network::default(), Client::default());
    let (mut begun, mut takeovers) = (0, 0);
    let mut lives = lives.iter();
    let mut begin = |machine: &Machine, client: &mut Client, network: &Network| loop {
        machine.life.lasts(lives.next().copied());
        begun += 1;
        let started = machine.start();
        if !machine.life.is_over() {
            let (mut driver, found) = started.unwrap_or_else(|error| panic!("{error:?}"));
            takeovers += usize::from(found == Found::Running);
            let handler = layout.part(&mut driver);
            client.attach(&mut driver, network);
            return (driver, handler);
        }
    };
    let (mut driver, mut handler) = begin(&machine, &mut client, &network);
    let mut chance = seed;
    for step in 0..160 {
        // More often than anything else: it is notified whenever there is something.
        if layout == Layout::Two && random(&mut chance).is_multiple_of(2) {
            turn(&mut handler);
        }
        match random(&mut chance) % 9 {
            0 => drop(network.step(&machine, 0)),
            1 => drop(network.step(&machine, 1)),
            2 => driver.flush(),
            3..5 => client.send(&machine, &mut driver),
            5 => client.release_buffers(&mut driver, random(&mut chance) as usize % 3),
            6 => driver.served(),
            _ => {
                driver.look().unwrap_or_else(|_| panic!("step {step}: the device is taken for broken"));
                if !machine.life.is_over() {
                    client.hear(&machine, &mut driver);
                }
            }
        }
        if machine.life.is_over() {
            (driver, handler) = begin(&machine, &mut client, &network);
        }
    }
    machine.life.lasts(None);
    for _ in 0..600 {
        driver.flush();
        turn(&mut handler);
        network.step(&machine, 1);
        turn(&mut handler);
        driver.look().unwrap();
        client.hear(&machine, &mut driver);
    }
    assert_eq!(client.on_the_way, [], "the client hears of all that it sent");
    assert_eq!(driver.posted() + client.held.len(), 256, "each buffer is with the device or with the client");
    assert_eq!(client.seen.len() as u32, network.arrived, "each frame that arrived was seen");
    assert_eq!(network.sent.len() as u32, client.made, "each frame was sent");
    let twice: BTreeSet<u32> = network.sent.iter().filter(|(_, count)| **count > 1).map(|(id, _)| *id).collect();
    assert!(twice.is_subset(&client.maybe_twice), "sent twice without need: {twice:?}");
    assert_eq!(driver.counters().refused, 0);
    Outcome { deaths: begun - 1, takeovers, twice: twice.len() }
}

#[test]
fn a_driver_may_die_after_any_store() {
    for (layout, seed) in [(Layout::One, 0x5eed_0000_0000_0001), (Layout::One, 0x5eed_0000_0000_0102)]
        .into_iter()
        .chain([(Layout::Two, 0x5eed_0000_0000_0001), (Layout::Two, 0x5eed_0000_0000_0102)])
    {
        let mut works = false;
        for stores in 1.. {
            let Outcome { deaths, takeovers, .. } = live(layout, &[stores], seed);
            if deaths == 0 {
                assert!(works && stores > 300, "{stores} stores in all");
                break;
            }
            // Once the device works, it is never reset again.
            works |= takeovers > 0;
            assert!(!works || takeovers == 1, "reset after a death behind {stores} stores");
        }
    }
}

#[test]
fn a_successor_may_die_after_any_store_of_its_own() {
    Layout::BOTH.into_iter().for_each(die_thrice);
}

fn die_thrice(layout: Layout) {
    let mut seed = 0x5eed_0000_0000_0003;
    let (mut takeovers, mut twice) = (0, 0);
    for round in 0..4_000 {
        let first = 30 + random(&mut seed) % 500;
        let second = 1 + round % 60;
        let third = 1 + random(&mut seed) % 200;
        let outcome = live(layout, &[first, second, third], random(&mut seed));
        takeovers += outcome.takeovers;
        twice += outcome.twice;
    }
    assert!(takeovers > 2_000, "{takeovers}");
    println!("{layout:?}: {takeovers} takeovers, {twice} frames twice");
}

/// Where the device has to be reset the second handler is stopped wherever it is. The client is
/// told of each frame once, and the next handler begins with an empty queue.
#[test]
fn a_handler_may_be_stopped_after_any_store() {
    let frames = |buffers: std::ops::Range<u16>| -> Vec<Span> {
        buffers.map(|buffer| Span { buffer, offset: 18, length: FRAME_BYTES as u16 }).collect()
    };
    let read = |machine: &Machine, count: usize| {
        let all: Vec<u16> = (0..count).map_while(|_| machine.next(1)).map(|(buffer, ..)| buffer).collect();
        all.iter().for_each(|buffer| machine.used(1, (*buffer).into(), 0));
        all
    };
    for stores in 1.. {
        let machine = Machine::new();
        let mut driver = machine.driver();
        let mut handler = driver.part_transmit().expect("the driver has the queue");
        assert!(driver.part_transmit().is_none(), "once");
        driver.attach(&BufferSet::EMPTY);
        driver.transmit(&frames(40..60));
        driver.flush();
        assert!(driver.take_handler_asked() && !handler.turn(), "nothing was read yet");
        assert_eq!(read(&machine, 10).len(), 10);
        driver.transmit(&frames(60..80));
        driver.flush();
        machine.life.lasts(Some(stores));
        handler.turn();
        let was_stopped = machine.life.is_over();
        machine.life.lasts(None);
        drop(handler);
        driver.restart(&mut machine.card.clone()).unwrap();
        let mut told = driver.take_output().transmitted;
        told.sort_unstable();
        assert_eq!(told, Vec::from_iter(40..80), "after {stores} stores");
        let mut handler = driver.part_transmit().expect("the driver has the queue again");
        driver.transmit(&frames(40..80));
        driver.flush();
        handler.turn();
        assert_eq!(read(&machine, 99), Vec::from_iter(40..80));
        assert!(handler.turn());
        driver.look().unwrap();
        assert_eq!((driver.take_output().transmitted.len(), driver.sending(), driver.counters().refused), (40, 0, 0));
        if !was_stopped {
            assert!(stores > 80, "{stores} stores in all");
            break;
        }
    }
}
