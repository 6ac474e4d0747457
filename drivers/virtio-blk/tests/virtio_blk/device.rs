//! The driver against a device made here, which works, fails, or lies.

use crate::common::{BlockDriver, DATA, Machine, NAME, PART_BYTES, RINGS, request};
use packet::Memory;
use virtio::pool_queue::{AVAILABLE_OFFSET, USED_OFFSET};
use virtio::takeover::Unfit;
use virtio::testing::FakeCard;
use virtio::transport::{NotRunning, ResetError, status};
use virtio_blk::driver::{DEPTH_MAX, StartError, Why};
use virtio_blk::geometry::{BadGeometry, feature};
use virtio_blk::record::{SLOTS_OFFSET, STATUS_OFFSET};
use virtio_blk::request::{CLIENTS_MAX, REQUESTS_EACH_MAX};
use virtio_blk::{Answer, Completion, Failure, Found, Operation, Refused, Request};

use Operation::{Discard, Flush, Identify, Read, Write, WriteZeroes};

/// Ends, as client, number and outcome.
fn ends(driver: &mut BlockDriver) -> Vec<(u8, u64, Result<Answer, Failure>)> {
    driver.look().unwrap_or_else(|_| panic!("the device is taken for broken"));
    driver.take_output().into_iter().map(|Completion { client, id, outcome }| (client, id, outcome)).collect()
}

fn submit(driver: &mut BlockDriver, requests: &[Request]) {
    requests.iter().for_each(|request| driver.submit(*request).unwrap_or_else(|why| panic!("{request:?}: {why:?}")));
    driver.flush();
}

#[test]
fn what_was_written_is_read_and_each_operation_is_done() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let done = Ok(Answer::Done);
    machine.data.write(4096, &[7; 1024]).unwrap();
    submit(&mut driver, &[request(0, 1, Write, 9, 2)]);
    machine.work();
    assert_eq!(ends(&mut driver), [(0, 1, done)]);
    assert_eq!(machine.disk.borrow()[9 * 512..11 * 512], [7; 1024]);
    assert_eq!(machine.durable.borrow()[9 * 512..11 * 512], [0; 1024]);
    submit(&mut driver, &[request(0, 2, Flush, 0, 0), request(1, 2, Identify, 0, 0), request(1, 3, Read, 10, 1)]);
    machine.work();
    let mut name = [0; 20];
    name.copy_from_slice(NAME);
    // It is the other client's turn.
    assert_eq!(ends(&mut driver), [(1, 2, Ok(Answer::Identity(name))), (0, 2, done), (1, 3, done)]);
    assert_eq!(machine.durable.borrow()[9 * 512..11 * 512], [7; 1024]);
    assert_eq!(machine.data.borrow()[PART_BYTES + 3 * 4096..][..513], [[7; 512].as_slice(), &[0]].concat());
    let zeroes = WriteZeroes { may_discard: false };
    submit(&mut driver, &[request(0, 4, zeroes, 9, 1), request(0, 5, Discard, 10, 1)]);
    machine.work();
    assert_eq!(ends(&mut driver), [(0, 4, done), (0, 5, done)]);
    assert_eq!(machine.disk.borrow()[9 * 512..11 * 512], [0; 1024]);
    assert_eq!((driver.pending(), driver.counters().requests, driver.counters().commands), (0, 6, 6));
}

#[test]
fn neighbours_are_one_command_and_each_hears_of_its_own_failure() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let writes: Vec<Request> =
        [40, 32, 48, 64, 24].iter().zip(1..).map(|(at, id)| request(0, id, Write, *at, 8)).collect();
    submit(&mut driver, &writes);
    machine.take();
    let taken = machine.taken.borrow().clone();
    // 24 to 56 in the order of sectors, though they came otherwise; 64 has a gap before it.
    let shapes: Vec<_> = taken.iter().map(|one| (one.head, one.sector, one.reads.len())).collect();
    assert_eq!(shapes, [(0, 24, 4), (3, 64, 1)]);
    let places: Vec<u64> = taken[0].reads.iter().map(|(physical, _)| (physical - DATA) / 4096).collect();
    assert_eq!(places, [5, 2, 1, 3]);
    // It failed, and nobody knows whose fault that is: each goes alone.
    assert!(machine.complete(0, Some(1)));
    assert_eq!(ends(&mut driver), []);
    driver.flush();
    machine.take();
    let alone: Vec<u64> = machine.taken.borrow().iter().map(|one| one.sector).collect();
    assert_eq!(alone, [64, 40, 32, 48, 24]);
    assert!(machine.complete(2, Some(1)) && machine.complete(2, Some(2)));
    machine.work();
    let told = [(2, Err(Failure::Io)), (3, Err(Failure::Unsupported)), (4, Ok(Answer::Done))];
    let rest = [(1, Ok(Answer::Done)), (5, Ok(Answer::Done))];
    assert_eq!(ends(&mut driver), told.iter().chain(&rest).map(|(id, end)| (0, *id, *end)).collect::<Vec<_>>());
}

/// A device that has an older request, and two neighbours of it that failed together.
fn with_two_that_failed(machine: &Machine) -> BlockDriver {
    let mut driver = machine.driver();
    submit(&mut driver, &[request(0, 1, Read, 0, 8)]);
    submit(&mut driver, &[request(0, 2, Read, 8, 8), request(0, 3, Read, 16, 8)]);
    machine.take();
    assert_eq!(machine.taken.borrow().len(), 2);
    assert!(machine.complete(1, Some(1)));
    assert_eq!((ends(&mut driver), driver.pending()), (vec![], 3), "whose fault it was is found out");
    driver
}

#[test]
fn what_failed_together_is_tried_alone_after_a_reset_and_by_a_successor_too() {
    let machine = Machine::new();
    let mut driver = with_two_that_failed(&machine);
    driver.restart(&mut machine.card.clone()).unwrap();
    driver.flush();
    machine.take();
    // Where each begins, and its sectors.
    let taken = |machine: &Machine| -> Vec<_> {
        machine.taken.borrow().iter().map(|one| (one.sector, (one.writable() - 1) / 512)).collect()
    };
    assert_eq!(taken(&machine), [(0, 8), (8, 8), (16, 8)]);

    let machine = Machine::new();
    drop(with_two_that_failed(&machine));
    let (mut driver, found) = machine.start().unwrap();
    assert_eq!(found, Found::Running);
    // Others that are neighbours go together, but not with those.
    submit(&mut driver, &[request(0, 4, Read, 24, 8), request(0, 5, Read, 32, 8)]);
    machine.take();
    assert_eq!(taken(&machine), [(0, 8), (8, 8), (16, 8), (24, 16)]);
    assert!(machine.complete(1, Some(1)));
    machine.work();
    let done = Ok(Answer::Done);
    let told = [(2, Err(Failure::Io)), (1, done), (3, done), (4, done), (5, done)];
    assert_eq!(ends(&mut driver), told.map(|(id, end)| (0, id, end)));
}

#[test]
fn what_waited_together_is_given_together_by_a_successor() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    (1..=3).for_each(|id| driver.submit(request(0, id, Read, id * 8, 8)).unwrap());
    drop(driver);
    let mut driver = machine.driver();
    driver.flush();
    machine.take();
    assert_eq!((driver.pending(), machine.taken.borrow().len()), (3, 1));
}

#[test]
fn segments_and_rows_end_where_the_device_says() {
    let machine = Machine::new();
    machine.configure(8, 2048);
    machine.configure(12, 3);
    let mut driver = machine.driver();
    assert_eq!((driver.disk().sectors_max, driver.disk().segments_max), (12, 3));
    assert_eq!(driver.submit(request(0, 1, Read, 0, 13)), Err(Refused::Range));
    submit(&mut driver, &[request(0, 1, Read, 0, 8), request(0, 2, Read, 8, 4), request(0, 3, Read, 12, 1)]);
    machine.take();
    let shapes: Vec<Vec<u32>> =
        machine.taken.borrow().iter().map(|one| one.writes.iter().map(|part| part.1).collect()).collect();
    assert_eq!(shapes, [vec![2048, 2048, 2048], vec![512]]);
    machine.work();
    assert_eq!(ends(&mut driver).len(), 3);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    let read = request(0, 1, Read, 0, 8);
    for (wrong, why) in [
        (Request { sector: 4096, ..read }, Refused::Range),
        (Request { sectors: 0, ..read }, Refused::Range),
        (Request { sectors: u32::MAX, ..read }, Refused::Range),
        (Request { sector: u64::MAX, ..read }, Refused::Range),
        (Request { offset: PART_BYTES as u32, ..read }, Refused::Range),
        (Request { offset: PART_BYTES as u32 - 4095, ..read }, Refused::Range),
        (Request { offset: u32::MAX, ..read }, Refused::Range),
        (Request { client: 1, offset: PART_BYTES as u32 - 1, ..read }, Refused::Range),
        (Request { client: 1, ..read }, Refused::Range),
        (Request { client: 2, ..read }, Refused::Range),
        (Request { client: 255, operation: Flush, sectors: 0, ..read }, Refused::Range),
        (Request { operation: Flush, offset: 1, ..read }, Refused::Range),
        (Request { offset: 1, ..request(1, 1, Flush, 0, 0) }, Refused::Range),
        (request(0, 1, Discard, 0, 257), Refused::Range),
    ] {
        assert_eq!(driver.submit(wrong), Err(why), "{wrong:?}");
    }
    assert_eq!(driver.pending(), 0);
    driver.submit(read).unwrap();
    assert_eq!(driver.submit(Request { sector: 1, ..read }), Err(Refused::Number), "another of that number");
    assert_eq!(
        driver.submit(Request { client: 1, offset: PART_BYTES as u32, ..read }),
        Ok(()),
        "numbers are a client's"
    );
    for id in 2..=REQUESTS_EACH_MAX as u64 {
        driver.submit(request(0, id, Read, id * 16, 1)).unwrap();
    }
    assert_eq!(driver.submit(request(0, 999, Read, 0, 1)), Err(Refused::Full));
    assert_eq!(driver.submit(request(1, 999, Read, 0, 1)), Ok(()), "another client has room");
    machine.without(feature::DISCARD | feature::WRITE_ZEROES);
    machine.features.set(machine.features.get() | feature::READ_ONLY);
    let mut driver = machine_again(&machine);
    assert_eq!(driver.submit(request(1, 5, Write, 0, 1)), Err(Refused::ReadOnly));
    machine.without(feature::READ_ONLY);
    let mut driver = machine_again(&machine);
    assert_eq!(driver.submit(request(1, 5, Discard, 0, 1)), Err(Refused::Unsupported));
    assert_eq!(driver.submit(request(1, 5, WriteZeroes { may_discard: true }, 0, 1)), Err(Refused::Unsupported));
}

/// A driver that resets the device: somebody reset it meanwhile.
fn machine_again(machine: &Machine) -> BlockDriver {
    machine.status.set(0);
    let (driver, found) = machine.start().unwrap_or_else(|error| panic!("{error:?}"));
    assert!(matches!(found, Found::Reset(_)), "{found:?}");
    driver
}

#[test]
fn a_device_that_keeps_nothing_back_has_nothing_to_flush() {
    let machine = Machine::new();
    machine.without(feature::FLUSH);
    let mut driver = machine.driver();
    assert!(!driver.disk().keeps_back);
    submit(&mut driver, &[request(0, 8, Flush, 0, 0)]);
    assert_eq!(ends(&mut driver), [(0, 8, Ok(Answer::WritesThrough))]);
    assert_eq!((machine.notifications.get(), driver.pending()), (0, 0), "the device hears nothing of it");
}

#[test]
fn clients_have_turns() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    for id in 0..REQUESTS_EACH_MAX as u64 {
        driver.submit(request(0, id, Read, id * 16, 1)).unwrap();
    }
    (0..4).for_each(|id| driver.submit(request(1, id, Read, id * 16, 1)).unwrap());
    driver.flush();
    machine.take();
    assert_eq!(machine.taken.borrow().len(), DEPTH_MAX, "it has no more at a time");
    let whose: Vec<bool> =
        machine.taken.borrow().iter().map(|one| one.writes[0].0 >= DATA + PART_BYTES as u64).collect();
    assert_eq!(whose[..8], [false, true, false, true, false, true, false, true]);
    for _ in 0..10 {
        machine.work();
        driver.look().unwrap();
        driver.flush();
    }
    assert_eq!((driver.take_output().len(), driver.pending()), (REQUESTS_EACH_MAX + 4, 0));
}

#[test]
fn no_interrupt_and_no_notification_is_missing() {
    for event_index in [true, false] {
        let machine = Machine::new();
        if !event_index {
            machine.without(feature::EVENT_INDEX);
        }
        let mut driver = machine.driver();
        for round in 0..70_000u64 {
            // Counts go round, and a successor comes in between.
            if round % 20_011 == 20_010 {
                driver = machine.driver();
            }
            submit(&mut driver, &[request(0, round, Read, 0, 1)]);
            machine.work();
            assert!(machine.is_interrupted.take(), "round {round}: it waits for ever");
            assert_eq!(ends(&mut driver).len(), 1, "round {round}");
        }
        // What comes before it can be told that an interrupt is wanted is seen.
        submit(&mut driver, &[request(0, 1, Read, 0, 1), request(0, 2, Read, 8, 1)]);
        machine.work();
        assert_eq!(ends(&mut driver).len(), 2);
    }
}

#[test]
fn a_device_that_does_not_fit_is_refused() {
    let failure = |change: &dyn Fn(&Machine)| {
        let machine = Machine::new();
        change(&machine);
        machine.start().err()
    };
    assert_eq!(failure(&|machine| machine.entries.set(128)), Some(StartError::Queue));
    let needed = [feature::VERSION_1, feature::INDIRECT];
    for missing in needed {
        assert_eq!(failure(&|machine| machine.without(missing)), Some(StartError::Reset(ResetError::Features)));
    }
    assert_eq!(failure(&|machine| machine.reset_looks.set(100)), Some(StartError::Reset(ResetError::NoReset)));
    assert_eq!(failure(&|machine| machine.configure(20, 100)), Some(StartError::Geometry(BadGeometry::Block)));
    assert_eq!(failure(&|machine| machine.configure(8, 0)), Some(StartError::Geometry(BadGeometry::Segments)));
    assert_eq!(failure(&|machine| machine.rings.borrow_mut().truncate(100_000)), Some(StartError::Region));
    assert_eq!(failure(&|_| ()), None);
}

#[test]
fn each_client_has_a_part_of_the_data_in_whole_pages() {
    let start = |clients, data_bytes| Machine::new().start_for(clients, data_bytes);
    for (clients, bytes) in [(0, 1 << 20), (CLIENTS_MAX + 1, 1 << 20), (2, 2 * 4096 - 1), (1, 0)] {
        assert_eq!(start(clients, bytes).err(), Some(StartError::Region), "{clients} clients, {bytes} bytes");
    }
    let (driver, _) = start(CLIENTS_MAX, 4 * 8192 + 4095).unwrap();
    let parts = [0, 1, 2, 3, 4].map(|client| driver.part(client));
    assert_eq!(parts, [Some((0, 8192)), Some((8192, 8192)), Some((16_384, 8192)), Some((24_576, 8192)), None]);
}

#[test]
fn a_driver_that_lost_its_device_says_so() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert!(!driver.is_lost());
    // It was reset by somebody, or says that it needs that.
    for lost in [0, status::RUNNING | 64] {
        machine.status.set(lost);
        assert!(driver.is_lost(), "{lost:#x}");
    }
    driver.restart(&mut machine.card.clone()).unwrap();
    assert!(!driver.is_lost());
}

#[test]
fn how_far_the_device_came_is_told_while_it_has_something_to_do() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert_eq!(driver.progress(), None);
    // It is not the device that waits before it is given something.
    (1..=3).for_each(|id| driver.submit(request(0, id, Read, id * 16, 8)).unwrap());
    assert_eq!(driver.progress(), None);
    driver.flush();
    machine.take();
    for done in 0..3 {
        assert_eq!((driver.progress(), driver.pending()), (Some(done), 3 - usize::from(done)));
        assert!(machine.complete(0, None));
        assert_eq!(ends(&mut driver).len(), 1);
    }
    assert_eq!(driver.progress(), None);
}

#[test]
fn an_interrupt_for_another_configuration_is_told_from_others() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    assert!(!driver.acknowledge());
    machine.is_changed.set(true);
    assert!(driver.acknowledge() && !driver.acknowledge(), "once");
    // One that nobody took is answered by the successor, which reads all anew.
    machine.is_changed.set(true);
    machine.resize(1000);
    let mut driver = machine.driver();
    assert_eq!((driver.acknowledge(), driver.disk().sectors), (false, 1000));
}

/// A device with two commands, one of two requests.
fn with_two(machine: &Machine) -> BlockDriver {
    let mut driver = machine.driver();
    submit(&mut driver, &[request(0, 1, Write, 0, 8), request(0, 2, Write, 8, 8), request(1, 3, Read, 64, 8)]);
    machine.take();
    assert_eq!(machine.taken.borrow().len(), 2);
    driver
}

#[test]
fn a_lie_makes_it_reset_the_device_and_all_is_done_once_more() {
    let status_of = |machine: &Machine, byte: u8| {
        let at = (machine.taken.borrow()[0].status - RINGS) as usize;
        assert_eq!(at, SLOTS_OFFSET + STATUS_OFFSET);
        machine.rings.write(at, &[byte]).unwrap();
    };
    type Lie<'a> = (&'a str, &'a dyn Fn(&Machine));
    let lies: [Lie; 8] = [
        ("a number that it does not have", &|machine| machine.used(5, 1)),
        ("the number of a request within a command", &|machine| machine.used(1, 1)),
        ("no number at all", &|machine| machine.used(u32::MAX, 1)),
        ("a status that was not written", &|machine| machine.used(0, 1)),
        ("a status that there is not", &|machine| {
            status_of(machine, 3);
            machine.used(0, 1);
        }),
        ("more bytes than it may write", &|machine| {
            status_of(machine, 0);
            machine.used(0, 2);
        }),
        ("one twice", &|machine| {
            status_of(machine, 0);
            machine.used(0, 1);
            machine.used(0, 1);
        }),
        ("more than it was given", &|machine| machine.rings.store_u16(USED_OFFSET + 2, 3).unwrap()),
    ];
    for (lie, tell) in lies {
        let machine = Machine::new();
        let mut driver = with_two(&machine);
        tell(&machine);
        assert!(driver.look().is_err(), "{lie}");
        let before = driver.take_output().len();
        driver.restart(&mut machine.card.clone()).unwrap();
        driver.flush();
        machine.work();
        assert_eq!(before + ends(&mut driver).len(), 3, "{lie}");
        assert_eq!((driver.pending(), driver.counters().restarts), (0, 1), "{lie}");
    }
}

#[test]
fn a_device_that_always_lies_makes_its_requests_fail_and_no_others() {
    let machine = Machine::new();
    let mut driver = with_two(&machine);
    for attempt in 1..=3 {
        machine.used(9, 1);
        assert!(driver.look().is_err());
        driver.restart(&mut machine.card.clone()).unwrap();
        assert_eq!(driver.take_output(), [], "attempt {attempt}");
        // Nor does the count begin again with another driver.
        driver = machine.driver();
        driver.flush();
        machine.take();
    }
    driver.submit(request(1, 9, Read, 128, 8)).unwrap();
    machine.used(9, 1);
    assert!(driver.look().is_err());
    driver.restart(&mut machine.card.clone()).unwrap();
    let mut failed: Vec<_> = driver.take_output().into_iter().map(|end| (end.client, end.id, end.outcome)).collect();
    failed.sort_by_key(|end| end.1);
    assert_eq!(failed, [(0, 1, Err(Failure::Io)), (0, 2, Err(Failure::Io)), (1, 3, Err(Failure::Io))]);
    driver.flush();
    machine.work();
    assert_eq!(ends(&mut driver), [(1, 9, Ok(Answer::Done))]);
}

#[test]
fn what_a_reset_repeats_is_in_order() {
    let machine = Machine::new();
    machine.configure(12, 1);
    let mut driver = machine.driver();
    for id in 0..60 {
        submit(&mut driver, &[request(0, id, Read, (id * 37 % 61) * 16, 1)]);
    }
    machine.take();
    // Some are done, not in their order.
    [50, 3, 7, 20].into_iter().for_each(|index| assert!(machine.complete(index, None)));
    let done: Vec<u64> = ends(&mut driver).into_iter().map(|(_, id, _)| id).collect();
    for by_death in [true, false] {
        if by_death {
            drop(driver);
            machine.status.set(status::RUNNING | 64);
            let (next, found) = machine.start().unwrap();
            assert_eq!(found, Found::Reset(Why::Left(Unfit::Device(NotRunning::Status(status::RUNNING | 64)))));
            driver = next;
        } else {
            driver.restart(&mut machine.card.clone()).unwrap();
        }
        driver.flush();
        machine.take();
        let order: Vec<u64> = machine.taken.borrow().iter().map(|one| one.sector).collect();
        let rest = (0..60).filter(|id| !done.contains(id)).map(|id| (id * 37 % 61) * 16);
        assert_eq!(order, rest.collect::<Vec<_>>());
    }
}

#[test]
fn a_size_that_changes_is_the_size() {
    let machine = Machine::new();
    let mut driver = machine.driver();
    submit(&mut driver, &[request(0, 1, Read, 4000, 8), request(0, 2, Read, 8, 8)]);
    machine.resize(1000);
    assert_eq!((driver.look_at_size(), driver.look_at_size()), (Ok(true), Ok(false)));
    assert_eq!(driver.submit(request(0, 3, Read, 1000, 8)), Err(Refused::Range));
    machine.work();
    assert_eq!(ends(&mut driver), [(0, 1, Err(Failure::Io)), (0, 2, Ok(Answer::Done))]);
    machine.configure(20, 7);
    assert_eq!(driver.look_at_size(), Err(BadGeometry::Block));
}

#[test]
fn a_size_that_changes_while_a_driver_starts_is_the_size() {
    let machine = Machine::new();
    for (sectors, is_there) in [(1000, Found::Fresh), (3000, Found::Running)] {
        machine.next_size.set(Some(sectors));
        let (mut driver, found) = machine.start().unwrap();
        assert_eq!(found, is_there);
        assert!(driver.acknowledge(), "the interrupt is not taken for one of before");
        assert_eq!((driver.look_at_size(), driver.disk().sectors), (Ok(true), sectors));
    }
}

#[test]
fn nobody_hears_of_what_was_abandoned_and_the_device_keeps_it_as_long_as_it_has_it() {
    let machine = Machine::new();
    let mut driver = with_two(&machine);
    driver.submit(request(0, 4, Write, 80, 8)).unwrap();
    driver.submit(request(0, 10, Write, 96, 8)).unwrap();
    driver.abandon(0, 10);
    assert!(driver.holds(0, 10) && driver.holds(1, 10) && !driver.holds(0, 1));
    assert_eq!(driver.pending(), 4, "what waited is dropped, what is newer is not");
    assert_eq!(driver.submit(request(0, 1, Write, 0, 8)), Err(Refused::Number), "it is nobody's now");
    driver.flush();
    machine.work();
    assert_eq!(ends(&mut driver), [(1, 3, Ok(Answer::Done)), (0, 10, Ok(Answer::Done))]);
    assert!(!driver.holds(0, 11));
    // A reset does not have them done for nobody.
    let mut driver = with_two(&machine);
    driver.abandon(0, u64::MAX);
    driver.restart(&mut machine.card.clone()).unwrap();
    assert_eq!(driver.pending(), 1);
}

#[test]
fn a_successor_goes_on_and_a_request_asked_again_is_done_once() {
    let machine = Machine::new();
    drop(with_two(&machine));
    let (mut driver, found) = machine.start().unwrap();
    assert_eq!((found, driver.pending()), (Found::Running, 3));
    submit(&mut driver, &[request(0, 1, Write, 0, 8), request(0, 2, Write, 8, 8), request(1, 3, Read, 64, 8)]);
    machine.work();
    assert_eq!(ends(&mut driver).len(), 3);
    assert_eq!((driver.counters().joined, driver.counters().commands, machine.resets.get()), (3, 0, 2));
    // Drivers that all die soon do not go on for ever.
    assert_eq!(machine.start().unwrap().1, Found::Running);
    assert_eq!(machine.start().unwrap().1, Found::Reset(Why::Left(Unfit::Heirs(2))));
    let (mut driver, found) = machine.start().unwrap();
    assert_eq!(found, Found::Running);
    driver.served();
    assert_eq!(machine.start().unwrap().1, Found::Running);
    assert_eq!(machine.start().unwrap().1, Found::Running);
    assert_eq!(machine.start().unwrap().1, Found::Reset(Why::Left(Unfit::Heirs(2))));
}

#[test]
fn a_device_that_was_not_told_is_told_by_the_successor() {
    for stores in 0.. {
        let machine = Machine::new();
        let mut driver = machine.driver();
        machine.life.lasts(Some(stores));
        submit(&mut driver, &[request(0, 1, Write, 0, 8)]);
        let has_died = machine.life.is_over();
        machine.life.lasts(None);
        let mut driver = machine.driver();
        driver.flush();
        machine.work();
        ends(&mut driver);
        assert_eq!(driver.pending(), 0, "after {stores} stores");
        if !has_died {
            return assert!(stores > 20, "{stores} stores in all");
        }
    }
}

#[test]
fn each_byte_of_a_command_is_compared() {
    let fresh = Machine::new();
    drop(with_two(&fresh));
    let kept = fresh.rings.borrow().clone();
    let places = [(0, 0..16), (AVAILABLE_OFFSET, 2..6), (SLOTS_OFFSET, 0..16), (SLOTS_OFFSET, 64..128 + 16 * 3)];
    let mut resets = 0;
    for at in places.into_iter().flat_map(|(from, range)| range.map(move |at| from + at)) {
        fresh.rings.borrow_mut().copy_from_slice(&kept);
        fresh.rings.borrow_mut()[at] ^= 0x11;
        let card = FakeCard { resets: Default::default(), ..fresh.card.clone() };
        let machine = Machine { card, ..fresh.clone() };
        let (status, queue, taken) = (machine.status.get(), machine.queue.get(), machine.taken.borrow().clone());
        let (mut driver, found) = machine.start().unwrap();
        // What has no meaning may change.
        let is_unused = [68..72, 120..128].iter().any(|unused| unused.contains(&at.wrapping_sub(SLOTS_OFFSET)));
        assert!(is_unused || matches!(found, Found::Reset(_)), "byte {at}");
        resets += machine.resets.get();
        driver.flush();
        machine.work();
        ends(&mut driver);
        assert_eq!(driver.pending(), 0, "byte {at}");
        machine.status.set(status);
        machine.queue.set(queue);
        *machine.taken.borrow_mut() = taken;
        machine.seen.set(2);
    }
    assert!(resets > 100, "{resets}");
}
