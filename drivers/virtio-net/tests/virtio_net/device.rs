//! The driver against a device made here, which works, is slow to reset, or lies.

use crate::common::{Layout, Machine, NetDriver, RECEIVE_PHYSICAL, TRANSMIT_PHYSICAL, number, random};
use packet::{BUFFER_BYTES, BufferSet, Memory, Span};
use virtio::pool_queue::{AVAILABLE_OFFSET, MARKS_OFFSET, QUEUE_BYTES, TAKEN_OFFSET, USED_OFFSET};
use virtio::takeover::Unfit;
use virtio_net::control::CONTROL_BYTES;
use virtio_net::driver::{Counters, JOURNAL_OFFSET, RING_BYTES, Refused, StartError, Why};
use virtio_net::journal::JOURNAL_BYTES;
use virtio_net::transport::{NotRunning, ResetError};
use virtio_net::{Found, Output};

#[test]
fn frames_come_and_go() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert_eq!((driver.address(), driver.rings()), ([0, 1, 2, 3, 4, 5], [256; 2]));
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
    driver.release_buffers(&[received[0].buffer, 3, 3, 256]);
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
        Span { buffer: 41, length: 13, ..frame },
    ]);
    driver.flush();
    let (descriptor, physical, bytes) = machine.next(1).unwrap();
    assert_eq!((descriptor, physical, bytes), (40, TRANSMIT_PHYSICAL + 40 * 2048 + 6, 112));
    assert_eq!(machine.transmit.borrow()[40 * 2048 + 6..40 * 2048 + 18], [0; 12]);
    assert_eq!(machine.next(1), None);
    machine.used(1, 40, 0);
    driver.look().unwrap();
    assert_eq!(driver.take_output().transmitted, [40]);
    assert_eq!(driver.counters().refused, 7);
}

#[test]
fn what_happened_is_counted() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let rings = |driver: &NetDriver| driver.ring_counts().map(|(times, _)| times);
    assert_eq!((*driver.counters(), rings(&driver)), (Counters::default(), [0; 2]));
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[40, 41].map(|buffer| Span { buffer, offset: 12, length: 14 }));
    driver.flush();
    // An Ethernet header is the shortest, a buffer the longest.
    for bytes in [14, 13, 2036, 2037, 0] {
        assert!(machine.frame_arrives(&vec![1; bytes]));
    }
    driver.look().unwrap();
    let lengths: Vec<u16> = driver.take_output().received.iter().map(|span| span.length).collect();
    assert_eq!((lengths, driver.posted(), driver.sending()), (vec![14, 2036], 254, 2));
    driver.transmit(&[Span { buffer: 42, offset: 18, length: 60 }, Span { buffer: 40, offset: 18, length: 60 }]);
    driver.release_buffers(&[255]);
    driver.flush();
    let expected = Counters { received: 2, transmitted: 3, dropped: 3, refused: 2, ..Counters::default() };
    assert_eq!((*driver.counters(), rings(&driver)), (expected, [2; 2]));
}

#[test]
fn a_driver_that_lost_its_device_says_so() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert!(!driver.is_lost());
    // It was reset by somebody, or says that it needs that.
    for lost in [0, 0x4f] {
        machine.status.set(lost);
        assert!(driver.is_lost(), "{lost:#x}");
    }
    driver.restart(&mut machine.card.clone()).unwrap();
    assert!(!driver.is_lost());
}

#[test]
fn an_interrupt_for_another_configuration_is_told_from_others() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert!(!driver.acknowledge());
    machine.is_changed.set(true);
    assert!(driver.acknowledge() && !driver.acknowledge(), "once");
}

#[test]
fn for_a_client_that_is_gone_nothing_is_sent_and_nothing_taken_from_the_device() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    driver.flush();
    assert!(machine.frame_arrives(&[1; 60]));
    driver.look().unwrap();
    driver.detach();
    assert!(machine.frame_arrives(&[2; 61]));
    driver.look().unwrap();
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    assert_eq!((driver.take_output(), driver.posted()), (Output::default(), 255));
    assert_eq!((driver.sending(), driver.counters().refused), (0, 1));
    // The next one hears of both.
    driver.attach(&BufferSet::EMPTY);
    driver.look().unwrap();
    assert_eq!(driver.take_output().received.iter().map(|span| span.length).collect::<Vec<_>>(), [60, 61]);
}

#[test]
fn a_frame_that_two_clients_died_of_is_told_to_no_third() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    driver.flush();
    assert!(machine.frame_arrives(&[1; 60]));
    driver.look().unwrap();
    assert_eq!(driver.take_output().received.len(), 1);
    for told in [1, 0] {
        driver.detach();
        // Nobody is there that could die of it.
        driver.detach();
        driver.attach(&BufferSet::EMPTY);
        assert_eq!((driver.take_output().received.len(), driver.posted()), (told, 256 - told));
    }
}

#[test]
fn what_a_device_had_done_when_it_was_reset_is_told_and_it_gets_all_else_again() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[50, 51].map(|buffer| Span { buffer, offset: 18, length: 60 }));
    driver.flush();
    assert!(machine.frame_arrives(&[0; 60]));
    driver.look().unwrap();
    assert_eq!(driver.take_output().received.len(), 1, "the client holds that");
    (61..64).for_each(|bytes| assert!(machine.frame_arrives(&vec![1; bytes])));
    driver.restart(&mut machine.card.clone()).unwrap();
    driver.flush();
    let Output { received, transmitted } = driver.take_output();
    assert_eq!(received.iter().map(|span| span.length).collect::<Vec<_>>(), [61, 62, 63]);
    assert_eq!((transmitted, driver.posted(), driver.sending()), (vec![50, 51], 252, 0));
    let mut free: Vec<u16> = (0..300).map_while(|_| machine.next(0)).map(|(buffer, ..)| buffer).collect();
    free.extend(received.iter().map(|span| span.buffer));
    free.sort_unstable();
    assert_eq!((free.len(), free.windows(2).all(|two| two[0] < two[1])), (255, true), "each once");
}

#[test]
fn the_halves_and_the_journal_share_no_byte() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let journal = JOURNAL_OFFSET..JOURNAL_OFFSET + JOURNAL_BYTES;
    let mut places: Vec<_> = std::iter::once(journal).collect();
    for _ in 0..2 {
        let bytes = [QUEUE_BYTES, QUEUE_BYTES, CONTROL_BYTES];
        places.extend([0, 1, 2].map(|queue| machine.base(queue).unwrap()..machine.base(queue).unwrap() + bytes[queue]));
        driver.restart(&mut machine.card.clone()).unwrap();
    }
    places.sort_by_key(|place| place.start);
    assert!(places.windows(2).all(|two| two[0].end <= two[1].start) && places[6].end <= RING_BYTES, "{places:?}");
}

#[test]
fn a_new_driver_and_a_new_client_lose_no_buffer() {
    [false, true].into_iter().for_each(lose_no_buffer);
}

fn lose_no_buffer(resets: bool) {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.flush();
    machine.notified.take();
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    driver.flush();
    machine.frame_arrives(&[1; 60]);
    machine.frame_arrives(&[1; 60]);
    driver.look().unwrap();
    let held = driver.take_output().received;
    drop(driver);
    machine.notified.take();

    // The driver died; its client holds two buffers and says so.
    let mut set = BufferSet::EMPTY;
    held.iter().for_each(|span| {
        set.insert(span.buffer);
    });
    let mut driver = if resets {
        machine.reset_looks.set(3);
        let mut driver = machine.driver_that_resets();
        assert!(driver.attach(&set).is_empty(), "nothing is with a device that was reset");
        assert!(driver.take_reset() && !driver.take_reset());
        driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
        driver
    } else {
        let (mut driver, found) = machine.start().unwrap();
        assert_eq!((found, machine.notified.get()), (Found::Running, [1; 3]));
        assert_eq!(machine.acknowledged.get(), 1, "a line may be held up since the death");
        assert_eq!(driver.attach(&set), BufferSet::range(50, 51), "the device goes on with that");
        assert!(!driver.take_reset());
        driver
    };
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
    driver.release_buffers(&again.iter().map(|span| span.buffer).collect::<Vec<_>>());
    driver.flush();
    assert_eq!((0..300).filter(|_| machine.frame_arrives(&[1; 60])).count(), 256);
}

#[test]
fn frames_of_the_gap_are_told_in_order_and_once() {
    [false, true].into_iter().for_each(tell_the_gap);
}

fn tell_the_gap(resets: bool) {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    driver.flush();
    let frame = |number: u8| [number; 60];
    assert!(machine.frame_arrives(&frame(0)) && machine.frame_arrives(&frame(1)));
    driver.look().unwrap();
    let seen = driver.take_output().received;
    assert_eq!(seen.len(), 2);
    driver.release_buffers(&[seen[0].buffer]);
    driver.flush();
    drop(driver);
    // Nobody takes these; the device does not know.
    assert!(machine.frame_arrives(&frame(2)) && machine.frame_arrives(&frame(3)));

    let mut driver = if resets { machine.driver_that_resets() } else { machine.driver() };
    let mut held = BufferSet::EMPTY;
    held.insert(seen[1].buffer);
    driver.attach(&held);
    driver.look().unwrap();
    let told = driver.take_output().received;
    let first =
        |span: &Span| machine.receive.borrow()[usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset)];
    assert_eq!(told.iter().map(first).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((driver.counters().redelivered, driver.posted()), (if resets { 2 } else { 0 }, 253));

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
    let mut driver = machine.driver();
    let mut held = BufferSet::EMPTY;
    driver.attach(&held);
    let mut seed = 0x0dd0_5eed_1234_5671;
    let (mut arrived, mut seen) = (0u32, std::collections::BTreeSet::new());
    let mut deaths = 0;
    for _ in 0..20_000 {
        match random(&mut seed) % 16 {
            0 => {
                driver = if deaths % 3 == 0 { machine.driver_that_resets() } else { machine.driver() };
                driver.served();
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
                driver.release_buffers(&back);
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

fn look(machine: &Machine, driver: &mut NetDriver, held: &mut BufferSet, seen: &mut std::collections::BTreeSet<u32>) {
    driver.look().unwrap();
    for span in driver.take_output().received {
        assert!(held.insert(span.buffer), "a buffer that the client holds already");
        seen.insert(
            number::<4>(&machine.receive, usize::from(span.buffer) * BUFFER_BYTES + usize::from(span.offset)) as u32
        );
    }
}

/// Wherever a byte is damaged: the device is never sent to a foreign address, no buffer is lost or
/// somebody else's too.
#[test]
fn damaged_rings_and_journals_cannot_break_a_successor() {
    let mut seed = 0x5eed_5eed_0000_0003;
    let (mut resets, mut takeovers) = (0, 0);
    for _ in 0..6_000 {
        let machine = Machine::new();
        let mut driver = machine.driver();
        driver.attach(&BufferSet::EMPTY);
        driver.transmit(&[40, 50, 60].map(|buffer| Span { buffer, offset: 18, length: 60 }));
        driver.flush();
        for _ in 0..random(&mut seed) % 20 {
            machine.frame_arrives(&[1; 60]);
        }
        let mut held = BufferSet::EMPTY;
        if random(&mut seed).is_multiple_of(2) {
            driver.look().unwrap();
            let told = driver.take_output().received;
            told.iter().take(random(&mut seed) as usize % 20).for_each(|span| assert!(held.insert(span.buffer)));
        }
        drop(driver);
        let base = machine.base(random(&mut seed) as usize % 2).unwrap();
        let parts = [
            (base, 256 * 16),
            (base + AVAILABLE_OFFSET, 520),
            (base + MARKS_OFFSET, 4 * 256),
            (base + TAKEN_OFFSET, 2),
            (base + USED_OFFSET, 4 + 8 * 20),
            (JOURNAL_OFFSET, RING_BYTES - JOURNAL_OFFSET),
            (0, RING_BYTES),
        ];
        for _ in 0..1 + random(&mut seed) % 3 * (random(&mut seed) % 20) {
            let (start, bytes) = parts[random(&mut seed) as usize % parts.len()];
            let at = start + random(&mut seed) as usize % bytes;
            machine.rings.write(at, &[random(&mut seed) as u8]).unwrap();
        }
        let (mut driver, found) = machine.start().unwrap();
        match found {
            Found::Running => takeovers += 1,
            _ => resets += 1,
        }
        driver.attach(&held);
        driver.look().unwrap();
        driver.flush();
        let told = driver.take_output().received;
        let mut theirs = held;
        for span in &told {
            assert!((14..=2036).contains(&span.length) && span.offset == 12);
            assert!(theirs.insert(span.buffer), "each buffer once, and none that is held: {found:?}");
        }
        assert_eq!(driver.posted() + theirs.len(), 256, "{found:?}");
        while let Some((buffer, physical, bytes)) = machine.next(0) {
            let address = RECEIVE_PHYSICAL + u64::from(buffer) * BUFFER_BYTES as u64;
            assert_eq!((physical, bytes), (address, BUFFER_BYTES as u32), "{found:?}");
        }
        while let Some((buffer, physical, bytes)) = machine.next(1) {
            let offset = physical.checked_sub(TRANSMIT_PHYSICAL + u64::from(buffer) * BUFFER_BYTES as u64);
            assert!(offset.unwrap() + u64::from(bytes) <= BUFFER_BYTES as u64, "{found:?}");
        }
    }
    assert!(resets > 1000 && takeovers > 300, "{resets} resets, {takeovers} takeovers");
}

#[test]
fn a_device_is_set_as_was_wanted_last_and_says_whether_it_is() {
    const OFF: [u8; 3] = [0, 0, 0];
    const ON: [u8; 3] = [0, 0, 1];
    let machine = Machine::new();
    let mut driver = machine.driver();
    let step = |driver: &mut NetDriver, wanted: [u8; 3], answer: u8| {
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
    driver.set_promiscuous(true);
    // Changed while a command is under way, and back.
    driver.flush();
    driver.set_promiscuous(false);
    step(&mut driver, ON, 0);
    step(&mut driver, OFF, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(false)));
    driver.set_promiscuous(true);
    step(&mut driver, ON, 1);
    assert_eq!(driver.promiscuous(), Some(Err(Refused)));
    driver.set_promiscuous(true);
    step(&mut driver, ON, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(true)));
    driver.restart(&mut machine.card.clone()).unwrap();
    step(&mut driver, ON, 0);
    assert_eq!(driver.promiscuous(), Some(Ok(true)), "also by a device that was started again");

    machine.features.set(1 << 32 | 1 << 5);
    let mut driver = machine.driver();
    driver.set_promiscuous(true);
    driver.flush();
    assert_eq!((driver.promiscuous(), machine.command()), (Some(Err(Refused)), None));
}

#[test]
fn a_device_that_cannot_be_gone_on_with_is_reset_and_the_reason_told() {
    let after = |change: &dyn Fn(&Machine)| {
        let machine = Machine::new();
        assert_eq!(machine.start().unwrap().1, Found::Fresh);
        change(&machine);
        machine.start().unwrap().1
    };
    let device = |why| Found::Reset(Why::Left(Unfit::Device(why)));
    assert_eq!(after(&|_| ()), Found::Running);
    assert_eq!(after(&|machine| machine.reaches_memory.set(false)), device(NotRunning::Quiet));
    // DEVICE_NEEDS_RESET beside all the others.
    assert_eq!(after(&|machine| machine.status.set(0x4f)), device(NotRunning::Status(0x4f)));
    assert_eq!(after(&|machine| machine.features.set(1 << 32 | 1 << 5)), device(NotRunning::Features));
    let elsewhere = |machine: &Machine| machine.queues.borrow_mut()[1].as_mut().unwrap().used += 4096;
    assert_eq!(after(&elsewhere), device(NotRunning::Queue(1)));
    // The driver died between a reset and its end, with a device that looks as if it ran.
    let starting = |machine: &Machine| machine.rings.write(JOURNAL_OFFSET + 8, &[0x10]).unwrap();
    assert_eq!(after(&starting), Found::Reset(Why::Left(Unfit::Starting)));
}

#[test]
fn drivers_that_all_die_soon_do_not_go_on_for_ever() {
    let machine = Machine::new();
    let found = || machine.start().unwrap().1;
    let all: Vec<Found> = (0..5).map(|_| found()).collect();
    let reset = Found::Reset(Why::Left(Unfit::Heirs(2)));
    assert_eq!(all, [Found::Fresh, Found::Running, Found::Running, reset, Found::Running]);
    for _ in 0..5 {
        let (mut driver, found) = machine.start().unwrap();
        assert_eq!(found, Found::Running);
        driver.served();
    }
}

#[test]
fn the_link_is_what_the_device_tells() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    for (status, up) in [(0, false), (1, true), (2, false), (3, true)] {
        machine.link.set(status);
        assert_eq!(driver.link_is_up(), up);
        assert_eq!(machine.driver_that_goes_on().link_is_up(), up, "a successor knows that it tells");
    }
    machine.link.set(0);
    machine.features.set(1 << 32 | 1 << 5);
    assert!(machine.driver().link_is_up(), "it does not tell");
    assert!(machine.driver_that_goes_on().link_is_up(), "nor does it to a successor");
}

#[test]
fn the_words_to_poll_are_those_the_device_writes() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    driver.transmit(&[Span { buffer: 50, offset: 18, length: 60 }]);
    driver.flush();
    for turn in 1..3 {
        let words = |driver: &NetDriver| driver.used_words().map(|at| number::<2>(&machine.rings, at));
        assert_eq!(words(&driver), [0, 0]);
        assert!(machine.frame_arrives(&[1; 60]) && machine.frame_arrives(&[1; 60]));
        machine.used(1, 50, 0);
        assert_eq!(words(&driver), [2, 1], "turn {turn}");
        driver.restart(&mut machine.card.clone()).unwrap();
        driver.flush();
    }
}

/// What the client counts by outlives a driver and no reset, whatever the reason for that.
#[test]
fn frames_are_counted_until_the_device_is_reset() {
    let machine = Machine::new();
    let frame = |buffer| Span { buffer, offset: 18, length: 60 };
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    let (first, count) = driver.next_frame();
    driver.transmit(&[frame(50), frame(51)]);
    driver.flush();
    assert_eq!(driver.next_frame(), (first, count + 2));
    // The device was not shown this one.
    driver.transmit(&[frame(52)]);
    let mut driver = machine.driver();
    assert_eq!(driver.next_frame(), (first, count + 2));
    let mut epochs = vec![first];
    driver.restart(&mut machine.card.clone()).unwrap();
    epochs.push(driver.next_frame().0);
    assert_eq!(machine.driver().next_frame().0, epochs[1], "it was gone on with");
    epochs.push(machine.driver_that_resets().next_frame().0);
    machine.rings.write(JOURNAL_OFFSET, &[0]).unwrap();
    let (driver, found) = machine.start().unwrap();
    assert_eq!(found, Found::Fresh, "its journal is damaged");
    epochs.push(driver.next_frame().0);
    assert!((1..epochs.len()).all(|at| !epochs[..at].contains(&epochs[at])), "{epochs:?}");
}

#[test]
fn a_device_that_does_not_fit_is_refused() {
    let machine = Machine::new();
    machine.reset_looks.set(1000);
    assert_eq!(machine.start().err(), Some(StartError::Reset(ResetError::NoReset)));
    assert!(!machine.reaches_memory.get());
    machine.reset_looks.set(0);
    for lacks in [1 << 32, 1 << 5] {
        machine.features.set(!lacks);
        assert_eq!(machine.start().err(), Some(StartError::Reset(ResetError::Features)), "{lacks:#x}");
    }
    machine.features.set(u64::MAX);
    machine.entries.set(128);
    assert_eq!(machine.start().err(), Some(StartError::Queues));
}

/// With a handler of its own for what is transmitted, it is the driver that knows what is on the
/// way, and sees who stands still: the device, or the handler.
#[test]
fn a_handler_that_does_nothing_is_seen_as_a_device_that_stands_still() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    driver.attach(&BufferSet::EMPTY);
    let mut handler = driver.part_transmit().unwrap();
    let (epoch, first) = driver.next_frame();
    assert_eq!(driver.sending_progress(), None);
    let frame = Span { buffer: 50, offset: 18, length: 60 };
    driver.transmit(&[frame, frame]);
    assert_eq!((driver.counters().refused, driver.sending()), (1, 1), "it is on the way");
    assert_eq!(driver.next_frame(), (epoch, first + 1));
    let waits = driver.sending_progress();
    driver.flush();
    assert!(driver.take_handler_asked());
    assert!(waits.is_some() && driver.sending_progress() == waits, "the handler does nothing");
    assert_eq!(machine.next(1), None);
    handler.turn();
    let given = driver.sending_progress();
    assert!(given.is_some() && given != waits, "now it is with the device");
    assert_eq!(machine.next(1).unwrap().0, 50);
    machine.used(1, 50, 0);
    let used = driver.sending_progress();
    assert!(used.is_some() && used != given, "which has read it");
    assert!(handler.turn(), "there is something to tell");
    driver.look().unwrap();
    assert_eq!((driver.sending_progress(), driver.take_output().transmitted), (None, vec![50]));
    let [(received, _), (transmitted, _)] = driver.ring_counts();
    assert_eq!([received, transmitted], [1, 1]);
    for (frames, is_asked) in [(&[][..], false), (&[frame], true), (&[], false)] {
        driver.transmit(frames);
        driver.flush();
        assert_eq!(driver.take_handler_asked(), is_asked, "{frames:?}");
    }
    // A device that lies is told of once; the handler does nothing more.
    machine.used(1, 51, 0);
    assert!(handler.turn() && !handler.turn() && driver.look().is_err());
}

#[test]
fn a_lying_device_cannot_break_it() {
    Layout::BOTH.into_iter().for_each(lie);
}

fn lie(layout: Layout) {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let mut handler = layout.part(&mut driver);
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
        handler.iter_mut().for_each(|handler| _ = handler.turn());
        if driver.look().is_err() {
            driver.restart(&mut machine.card.clone()).unwrap();
            handler = layout.part(&mut driver);
        }
        let output = driver.take_output();
        for span in &output.received {
            assert!(span.buffer < 256 && usize::from(span.offset) + usize::from(span.length) <= BUFFER_BYTES);
        }
        driver.release_buffers(&output.received.iter().map(|span| span.buffer).collect::<Vec<_>>());
    }
    assert!(driver.counters().restarts > 0);
}
