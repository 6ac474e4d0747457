//! What goes to a device and comes back, and what a successor finds.

use super::*;
use alloc::{rc::Rc, vec};
use core::cell::RefCell;

type Region = Rc<RefCell<Vec<u8>>>;

fn used(region: &Region, slot: usize, number: u32, written: u32, index: u16) {
    let at = USED_OFFSET + 4 + slot * 8;
    region.write(at, &number.to_le_bytes()).unwrap();
    region.write(at + 4, &written.to_le_bytes()).unwrap();
    region.store_u16(USED_OFFSET + 2, index).unwrap();
}

fn at(physical: u64) -> Descriptor {
    Descriptor { physical, bytes: 2048 }
}

fn adopted(region: &Region) -> Result<Queue<Region>, Unlike> {
    Queue::adopt(region.clone(), 0, Target::Written, |buffer, one| one == at(u64::from(buffer) << 12), |_| false)
}

/// Takes the next used buffer.
fn take(queue: &mut Queue<Region>) -> Result<Option<Used>, Broken> {
    let Some(used) = queue.next_used()? else { return Ok(None) };
    queue.accept(used.buffer).map(|()| Some(used))
}

#[test]
fn buffers_go_and_come_and_a_lie_breaks_the_queue() {
    let region: Region = Rc::new(RefCell::new(vec![0xaa; QUEUE_BYTES]));
    let mut queue = Queue::new(region.clone(), 0, Target::Written).unwrap();
    assert!(queue.give(7, at(0x1234_5000)) && !queue.give(7, at(0)) && queue.give(9, at(0x2000)));
    assert!(queue.publish());
    assert_eq!(region.borrow()[AVAILABLE_OFFSET + 2..AVAILABLE_OFFSET + 8], [2, 0, 7, 0, 9, 0]);
    assert_eq!(region.borrow()[7 * 16..7 * 16 + 8], 0x1234_5000u64.to_le_bytes());
    assert_eq!(take(&mut queue), Ok(None));
    used(&region, 0, 9, 60, 1);
    assert_eq!(take(&mut queue), Ok(Some(Used { buffer: 9, written: 60 })));
    used(&region, 1, 9, 60, 2);
    assert_eq!(take(&mut queue), Err(Broken), "it does not have that one");
    used(&region, 1, u32::MAX, 0, 2);
    assert_eq!(take(&mut queue), Err(Broken), "there is no such buffer");
    used(&region, 1, 7, 0, 60_000);
    assert_eq!(take(&mut queue), Err(Broken), "it has no so many");
    assert!(Queue::new(region, 1, Target::Written).is_err());
}

#[test]
fn a_successor_goes_on_where_the_buffers_are() {
    let region: Region = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
    let mut queue = Queue::new(region.clone(), 0, Target::Written).unwrap();
    let give = |queue: &mut Queue<Region>, buffer: u16| assert!(queue.give(buffer, at(u64::from(buffer) << 12)));
    let mut count = 0;
    // Far enough that all counts come round, in an order that is not that of giving: buffer 3
    // stays while thousands pass.
    give(&mut queue, 3);
    for round in 0..70_000u32 {
        let buffer = (4 + round % 200) as u16;
        give(&mut queue, buffer);
        queue.publish();
        used(&region, usize::from(count % ENTRIES), buffer.into(), 60, count.wrapping_add(1));
        count = count.wrapping_add(1);
        if round % 3_001 == 0 && round < 60_000 {
            queue = adopted(&region).unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            assert!(queue.given().contains(3) && queue.given().len() == 2);
        }
        assert_eq!(take(&mut queue).unwrap().map(|used| used.buffer), Some(buffer));
    }
    // Given and not shown: ours again.
    let mut queue = Queue::new(region.clone(), 0, Target::Written).unwrap();
    (10..20).for_each(|buffer| give(&mut queue, buffer));
    queue.publish();
    give(&mut queue, 30);
    assert_eq!(adopted(&region).unwrap().given(), BufferSet::range(10, 20));
    give(&mut queue, 31);
    assert_eq!(adopted(&region).unwrap().given(), BufferSet::range(10, 20));
    // The mark was cleared and the count had not moved.
    used(&region, 0, 12, 60, 1);
    queue.store_mark(12, 0);
    let mut queue = adopted(&region).unwrap();
    assert!(!queue.given().contains(12) && take(&mut queue) == Ok(None));
    // It was told, and the mark is still there.
    used(&region, 1, 13, 60, 2);
    let told = |told: u16| {
        let is_right = |_: u16, _: Descriptor| true;
        Queue::adopt(region.clone(), 0, Target::Written, is_right, move |buffer| buffer == told)
            .map(|queue| queue.given())
    };
    assert_eq!(told(14), Err(Unlike::Told));
    assert_eq!(told(13).map(|given| given.contains(13)), Ok(false));
}

#[test]
fn what_a_predecessor_would_not_leave_is_named() {
    let made = || {
        let region: Region = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
        let mut queue = Queue::new(region.clone(), 0, Target::Written).unwrap();
        (10..20).for_each(|buffer| assert!(queue.give(buffer, at(u64::from(buffer) << 12))));
        queue.publish();
        region
    };
    let unlike = |damage: &dyn Fn(&Region)| {
        let region = made();
        damage(&region);
        adopted(&region).err()
    };
    let word = |at: usize, value: u16| move |region: &Region| region.store_u16(at, value).unwrap();
    assert_eq!(unlike(&|_| ()), None);
    assert_eq!(unlike(&word(TAKEN_OFFSET, 1)), Some(Unlike::Counts));
    assert_eq!(unlike(&word(AVAILABLE_OFFSET + INDEX_OFFSET, 12)), Some(Unlike::Counts));
    assert_eq!(unlike(&word(MARKS_OFFSET + 4 * 11, 5)), Some(Unlike::Entry));
    assert_eq!(unlike(&word(MARKS_OFFSET + 4 * 11 + 2, 3)), Some(Unlike::Counts));
    assert_eq!(unlike(&word(AVAILABLE_OFFSET + RING_OFFSET + 4, 200)), Some(Unlike::Entry));
    for at in 0..16 {
        assert_eq!(unlike(&|region| region.write(16 * 12 + at, &[0x7b]).unwrap()), Some(Unlike::Descriptor));
    }
    assert_eq!(unlike(&|region| used(region, 0, 10, 0, 11)), Some(Unlike::Used));
    assert_eq!(unlike(&|region| used(region, 0, 9, 0, 1)), Some(Unlike::Used));
    let twice = |region: &Region| {
        used(region, 0, 11, 0, 1);
        used(region, 1, 11, 0, 2);
    };
    assert_eq!(unlike(&twice), Some(Unlike::Used));
}

#[test]
fn event_indices_tell_when_to_be_told() {
    let region: Region = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
    let mut queue = Queue::new(region.clone(), 0, Target::Tables).unwrap();
    queue.use_event_index();
    let word = |at: usize| region.load_u16(at).unwrap();
    for round in 0..70_000u32 {
        // The device wants to hear of every third, and uses each at once.
        let event = (round - round % 3) as u16;
        region.store_u16(AVAILABLE_EVENT_OFFSET, event).unwrap();
        assert!(queue.give(5, at(5)));
        assert_eq!(queue.publish(), round % 3 == 0, "{round}");
        assert_eq!(word(USED_EVENT_OFFSET), round as u16, "the next one interrupts");
        assert_eq!(word(AVAILABLE_OFFSET), 0, "and flags are none");
        used(&region, (round % 256) as usize, 5, 1, (round as u16).wrapping_add(1));
        assert_eq!(take(&mut queue).map(|used| used.is_some()), Ok(true));
        queue.want_interrupts(false);
        assert_eq!(word(USED_EVENT_OFFSET), round as u16, "none before 65,535 more");
        queue.want_interrupts(true);
    }
    assert_eq!(region.borrow()[5 * 16 + 12], INDIRECT as u8);
    // A successor says the same of what is given after its own beginning.
    let mut queue = Queue::adopt(region.clone(), 0, Target::Tables, |_, _| true, |_| false).unwrap();
    queue.use_event_index();
    region.store_u16(AVAILABLE_EVENT_OFFSET, word(AVAILABLE_OFFSET + INDEX_OFFSET).wrapping_sub(1)).unwrap();
    assert!(queue.give(5, at(5)) && !queue.publish());
    region.store_u16(AVAILABLE_EVENT_OFFSET, word(AVAILABLE_OFFSET + INDEX_OFFSET)).unwrap();
    assert!(queue.give(6, at(6)) && queue.publish());
}

/// Gives a buffer and shows it, and lets the device use it and takes it, so many times: all but
/// `stays` come and go.
fn pass(region: &Region, queue: &mut Queue<Region>, times: u32, stays: u16) {
    for round in 0..times {
        let buffer = (stays + 1 + (round % 200) as u16) % BUFFERS;
        assert!(queue.give(buffer, at(u64::from(buffer) << 12)));
        queue.publish();
        let index = queue.progress();
        used(region, usize::from(index % ENTRIES), buffer.into(), 60, index.wrapping_add(1));
        assert_eq!(take(queue).unwrap().map(|used| used.buffer), Some(buffer));
    }
}

/// A queue of whose counts the first is that.
fn counting_from(count: u16) -> (Region, Queue<Region>) {
    let region: Region = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
    for offset in [AVAILABLE_OFFSET + INDEX_OFFSET, USED_OFFSET + INDEX_OFFSET, TAKEN_OFFSET] {
        region.store_u16(offset, count).unwrap();
    }
    let queue = adopted(&region).unwrap();
    assert_eq!((queue.count(), queue.progress(), queue.given().len()), (count, count, 0));
    (region, queue)
}

/// Buffer 9 is with the device and was given 256 before the next, whose entry is where its own was.
#[test]
fn a_death_in_the_midst_of_giving_takes_no_older_buffer_away() {
    for first in [5, 700, 65_100] {
        let old = BufferSet::range(9, 10);
        let next = usize::from(first % ENTRIES);
        let left = || {
            let (region, mut queue) = counting_from(first);
            assert!(queue.give(9, at(9 << 12)));
            pass(&region, &mut queue, 255, 9);
            (region, queue)
        };
        // It died when the entry was written and the mark was not.
        let (region, _) = left();
        region.store_u16(AVAILABLE_OFFSET + RING_OFFSET + 2 * next, 77).unwrap();
        assert_eq!(adopted(&region).map(|queue| queue.given()), Ok(old), "{first}");
        // Two are marked, and the device was shown neither.
        let (region, mut queue) = left();
        assert!(queue.give(77, at(77 << 12)) && queue.give(78, at(78 << 12)));
        let mut queue = adopted(&region).unwrap();
        assert_eq!((queue.given(), queue.count()), (old, first.wrapping_add(256)), "{first}");
        assert!(queue.give(77, at(77 << 12)), "it is ours again");
    }
}

#[test]
fn where_all_are_with_the_device_none_is_being_given() {
    let (region, mut queue) = counting_from(70);
    (0..BUFFERS).for_each(|buffer| assert!(queue.give(buffer, at(u64::from(buffer) << 12))));
    queue.publish();
    assert_eq!(adopted(&region).map(|queue| queue.given().len()), Ok(BUFFERS.into()));
    region.store_u16(AVAILABLE_OFFSET + RING_OFFSET + 2 * 70, 1).unwrap();
    assert_eq!(adopted(&region).err(), Some(Unlike::Entry));
}

/// As many as there can be before its count may be taken for one that is to come.
#[test]
fn a_buffer_stays_with_the_device_while_65_280_are_given() {
    let (region, mut queue) = counting_from(0);
    assert!(queue.give(9, at(9 << 12)));
    pass(&region, &mut queue, 65_279, 9);
    assert_eq!(queue.count(), 65_280);
    assert_eq!(adopted(&region).map(|queue| queue.given()), Ok(BufferSet::range(9, 10)));
}

#[test]
fn who_goes_on_is_interrupted_for_what_the_device_writes_only() {
    for (target, flags) in [(Target::Written, 0), (Target::Tables, 0), (Target::Read, NO_INTERRUPT)] {
        let region: Region = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
        let queue = Queue::new(region.clone(), 0, target).unwrap();
        assert_eq!(region.load_u16(AVAILABLE_OFFSET), Ok(flags));
        queue.want_interrupts(false);
        assert_eq!(region.load_u16(AVAILABLE_OFFSET), Ok(NO_INTERRUPT));
        assert!(Queue::adopt(region.clone(), 0, target, |_, _| true, |_| false).is_ok());
        assert_eq!(region.load_u16(AVAILABLE_OFFSET), Ok(flags), "{target:?}");
        queue.want_interrupts(true);
        assert_eq!(region.load_u16(AVAILABLE_OFFSET), Ok(0));
    }
}

/// Of a queue behind another one, by what a device finds at the addresses that it is told.
#[test]
fn a_device_finds_a_queue_where_it_is_told() {
    const BASE: usize = QUEUE_BYTES;
    const PHYSICAL: u64 = 0x30_0000;
    let region: Region = Rc::new(RefCell::new(vec![0; 2 * QUEUE_BYTES]));
    let mut queue = Queue::new(region.clone(), BASE, Target::Written).unwrap();
    let QueueAddresses { descriptors, available, used } = addresses(BASE, PHYSICAL);
    assert!(descriptors.is_multiple_of(16) && available.is_multiple_of(2) && used.is_multiple_of(4));
    let number = |physical: u64| region.load_u16((physical - PHYSICAL) as usize).unwrap();
    let put = |physical: u64, number: u16| region.store_u16((physical - PHYSICAL) as usize, number).unwrap();
    assert!(!queue.is_behind());
    assert!(queue.give(3, at(0x5000)) && queue.give(200, at(0x6000)) && !queue.is_behind());
    queue.publish();
    assert_eq!([0, 2, 4, 6].map(|offset| number(available + offset)), [0, 2, 3, 200]);
    assert_eq!([0, 8, 12].map(|offset| number(descriptors + 16 * 200 + offset)), [0x6000, 2048, WRITE]);
    assert_eq!((queue.is_behind(), queue.progress()), (true, 0));
    put(used + 4, 200);
    put(used + 8, 70);
    put(used + 2, 1);
    assert_eq!((queue.is_behind(), queue.progress()), (true, 1));
    let last = Used { buffer: 3, written: 80 };
    let first = Used { buffer: 200, written: 70 };
    assert_eq!(queue.next_used(), Ok(Some(first)));
    put(used + 12, 3);
    put(used + 16, 80);
    put(used + 2, 2);
    assert!(!queue.is_behind());
    assert_eq!(unclaimed_completions(&region, BASE), [first, last]);
    queue.accept(200).unwrap();
    assert_eq!(unclaimed_completions(&region, BASE), [last]);
    queue.accept(3).unwrap();
    assert_eq!((unclaimed_completions(&region, BASE), queue.next_used()), (Vec::new(), Ok(None)));
    // Behind the entries of each ring: when to interrupt, and when to notify.
    queue.use_event_index();
    assert_eq!(number(available + 4 + 2 * 256), 2);
    for (event, is_notified) in [(2, true), (1, false), (4, true)] {
        put(used + 4 + 8 * 256, event);
        assert!(queue.give(event, at(0x5000)));
        assert_eq!(queue.publish(), is_notified, "{event}");
    }
    assert!(region.borrow()[..BASE].iter().all(|byte| *byte == 0), "the first one's memory");
}

#[test]
fn of_what_a_reset_device_says_only_what_can_be_is_taken() {
    let (region, mut queue) = counting_from(65_530);
    (0..BUFFERS).for_each(|buffer| assert!(queue.give(buffer, at(0))));
    queue.publish();
    for count in 0..ENTRIES {
        let index = 65_530u16.wrapping_add(count);
        used(&region, usize::from(index % ENTRIES), count.into(), 7, index.wrapping_add(1));
    }
    let all: Vec<Used> = (0..BUFFERS).map(|buffer| Used { buffer, written: 7 }).collect();
    assert_eq!(unclaimed_completions(&region, 0), all);
    region.store_u16(USED_OFFSET + INDEX_OFFSET, 65_530u16.wrapping_add(257)).unwrap();
    assert!(unclaimed_completions(&region, 0).is_empty());
    // There is no buffer behind the last.
    used(&region, 65_530 % 256, BUFFERS.into(), 7, 65_532);
    assert_eq!(unclaimed_completions(&region, 0), [all[1]]);
    assert_eq!(queue.next_used(), Err(Broken));
    let short: Region = Rc::new(RefCell::new(vec![0; USED_OFFSET]));
    assert!(unclaimed_completions(&short, 0).is_empty());
}
