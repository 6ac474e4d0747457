//! What the device was told to receive, as the next driver finds it: a command that was answered,
//! one that is under way, and one that the device was not shown.

use crate::common::{Machine, NetDriver, RINGS_PHYSICAL, number};
use packet::Memory;
use virtio_net::Found;
use virtio_net::driver::{Refused, Why};

/// The device does all that it is told; gives what that was.
fn obey(machine: &Machine, driver: &mut NetDriver) -> Vec<bool> {
    let mut told = Vec::new();
    driver.flush();
    while let Some(([0, 0, on], at)) = machine.command() {
        told.push(on != 0);
        assert!(told.len() < 9, "it is told for ever: {told:?}");
        machine.answer(at, 0);
        driver.look().unwrap();
        driver.flush();
    }
    told
}

/// The driver gives that command, which the device reads; gives where the answer goes.
fn give(machine: &Machine, driver: &mut NetDriver, on: bool) -> usize {
    driver.set_promiscuous(on);
    driver.flush();
    let (command, at) = machine.command().expect("a command");
    assert_eq!(command, [0, 0, on.into()]);
    at
}

/// Machines whose driver has its queues in the one and in the other half of its region; no device
/// was told anything.
fn halves() -> [(Machine, NetDriver); 2] {
    [false, true].map(|is_second| {
        let machine = Machine::new();
        let mut driver = machine.driver();
        if is_second {
            driver.restart(&mut machine.card.clone()).unwrap();
        }
        (machine, driver)
    })
}

#[test]
fn a_successor_knows_what_the_device_was_told_last_and_how_it_answered() {
    for (answer, outcome) in [(0, Ok(false)), (1, Err(Refused)), (7, Err(Refused))] {
        for (machine, mut driver) in halves() {
            let at = give(&machine, &mut driver, false);
            machine.answer(at, answer);
            // It died before it looked, or behind that.
            for _ in 0..2 {
                let mut driver = machine.driver_that_goes_on();
                assert_eq!((driver.promiscuous(), obey(&machine, &mut driver)), (Some(outcome), vec![]));
            }
        }
    }
}

#[test]
fn a_successor_wants_what_every_driver_wants_at_first() {
    for is_answered in [true, false] {
        for (machine, mut driver) in halves() {
            assert_eq!(obey(&machine, &mut driver), [false]);
            let at = give(&machine, &mut driver, true);
            if is_answered {
                machine.answer(at, 0);
            }
            let mut driver = machine.driver_that_goes_on();
            assert_eq!(driver.promiscuous(), None, "it has all frames, or will have them");
            if !is_answered {
                assert_eq!(obey(&machine, &mut driver), [], "one command at a time");
                machine.answer(at, 0);
                driver.look().unwrap();
            }
            assert_eq!((obey(&machine, &mut driver), driver.promiscuous()), (vec![false], Some(Ok(false))));
        }
    }
}

#[test]
fn a_driver_may_die_after_any_store_of_a_command() {
    for stores in 0.. {
        let machine = Machine::new();
        let mut driver = machine.driver();
        assert_eq!(obey(&machine, &mut driver), [false]);
        machine.life.lasts(Some(stores));
        driver.set_promiscuous(true);
        driver.flush();
        let has_died = machine.life.is_over();
        machine.life.lasts(None);
        let mut driver = machine.driver_that_goes_on();
        // What the device was told before is not its answer to this.
        let known = if stores == 0 { Some(Ok(false)) } else { None };
        assert_eq!(driver.promiscuous(), known, "after {stores} stores");
        driver.set_promiscuous(true);
        let told = obey(&machine, &mut driver);
        assert_eq!((told.last(), driver.promiscuous()), (Some(&true), Some(Ok(true))), "after {stores} stores");
        if !has_died {
            return assert!(stores > 3, "{stores} stores in all");
        }
    }
}

#[test]
fn a_device_is_told_wherever_in_its_start_the_first_driver_died() {
    for stores in 1.. {
        let machine = Machine::new();
        machine.life.lasts(Some(stores));
        let started = machine.start();
        let has_died = machine.life.is_over();
        machine.life.lasts(None);
        drop(started);
        let mut driver = machine.driver();
        assert_eq!((obey(&machine, &mut driver), driver.promiscuous()), (vec![false], Some(Ok(false))), "{stores}");
        if !has_died {
            return assert!(stores > 20, "{stores} stores in all");
        }
    }
}

#[test]
fn a_control_queue_that_no_driver_leaves_so_has_the_device_reset() {
    let after = |is_answered: bool, change: &dyn Fn(&Machine, [usize; 3])| {
        let machine = Machine::new();
        let at = give(&machine, &mut machine.driver(), false);
        if is_answered {
            machine.answer(at, 0);
        }
        let queue = machine.queues.borrow()[2].unwrap();
        change(&machine, [queue.descriptors, queue.available, queue.used].map(|at| (at - RINGS_PHYSICAL) as usize));
        machine.start().unwrap().1
    };
    let count = |machine: &Machine, at: usize, more: u16| {
        let count = number::<2>(&machine.rings, at + 2) as u16;
        machine.rings.store_u16(at + 2, count.wrapping_add(more)).unwrap();
    };
    let reset = Found::Reset(Why::Control);
    for is_answered in [true, false] {
        assert_eq!(after(is_answered, &|_, _| ()), Found::Running);
        assert_eq!(after(is_answered, &|machine, [_, available, _]| count(machine, available, 2)), reset);
        assert_eq!(after(is_answered, &|machine, [_, _, used]| count(machine, used, 2)), reset, "{is_answered}");
        for byte in 0..32 {
            let change = |machine: &Machine, [at, ..]: [usize; 3]| machine.rings.borrow_mut()[at + byte] ^= 4;
            assert_eq!(after(is_answered, &change), reset, "byte {byte}");
        }
    }
}

#[test]
fn a_device_without_settings_has_no_queue_for_them_and_is_gone_on_with_so() {
    const LEAST: u64 = 1 << 32 | 1 << 5;
    // It offers none, or half of what they need, or no queue of two entries.
    for (features, entries) in [(LEAST, 2), (LEAST | 1 << 17, 2), (LEAST | 1 << 18, 2), (u64::MAX, 0), (u64::MAX, 1)] {
        let machine = Machine::new();
        machine.features.set(features);
        machine.control_entries.set(entries);
        for expected in [Found::Fresh, Found::Running, Found::Running] {
            let (mut driver, found) = machine.start().unwrap();
            assert_eq!(found, expected);
            assert_eq!(driver.promiscuous(), Some(Err(Refused)));
            driver.set_promiscuous(true);
            driver.flush();
            driver.look().unwrap();
            let shown = (driver.promiscuous(), machine.queues.borrow()[2], machine.notified.get()[2]);
            assert_eq!(shown, (Some(Err(Refused)), None, 0), "{features:#x}");
        }
    }
    let machine = Machine::new();
    machine.control_entries.set(2);
    assert_eq!(obey(&machine, &mut machine.driver()), [false], "two entries are enough");
}
