//! What the parts of the crate do at their edges, case by case; their own modules test what they
//! are for.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use channel::{Layout, loopback};
use packet::{BATCH, BufferSet, Memory, Notify, OutOfBounds, Outbox, Span};

#[test]
fn a_span_is_cut_from_either_end_and_never_grows() {
    let span = Span { buffer: 7, offset: 100, length: 40 };
    let at = |offset, length| Span { buffer: 7, offset, length };
    assert_eq!([0, 30, 40, 41].map(|skip| span.skip(skip)), [at(100, 40), at(130, 10), at(140, 0), at(140, 0)]);
    assert_eq!([0, 30, 40, 41].map(|length| span.first(length)), [0, 30, 40, 40].map(|length| at(100, length)));
}

#[test]
fn sets_hand_out_their_lowest_buffer_whichever_word_it_is_in() {
    let mut set = BufferSet::EMPTY;
    let all = [0, 63, 64, 130, 255];
    assert!(all.into_iter().rev().all(|buffer| set.insert(buffer)));
    assert!(!set.is_empty() && set.len() == 5);
    assert_eq!(std::iter::from_fn(|| set.take()).collect::<Vec<_>>(), all);
    assert_eq!((set.is_empty(), set.len()), (true, 0));
}

#[test]
fn an_outbox_sends_nothing_of_what_was_dropped_and_full_messages_only_while_there_is_more() {
    let mut outbox = Outbox::default();
    outbox.extend(vec![1; BATCH]);
    outbox.clear();
    assert!(outbox.flush(|_: Vec<u8>| panic!("nothing is left")));
    outbox.extend(vec![2; 2 * BATCH + 1]);
    let mut sizes = Vec::new();
    let mut send = |batch: Vec<u8>| {
        sizes.push(batch.len());
        true
    };
    assert!(outbox.flush(&mut send) && outbox.flush(&mut send));
    assert_eq!(sizes, [BATCH, BATCH, 1]);
}

/// A word of a device's, and a byte beside it that nobody may touch.
fn check(memory: &impl Memory) {
    memory.write(0, &[0xee; 16]).unwrap();
    memory.store_u16(4, 0x0102).unwrap();
    memory.store_u32(8, 0x0304_0506).unwrap();
    let mut bytes = [0; 16];
    memory.read(0, &mut bytes).unwrap();
    let e = 0xee;
    assert_eq!(bytes, [e, e, e, e, 2, 1, e, e, 6, 5, 4, 3, e, e, e, e], "the least byte first");
    assert_eq!((memory.load_u16(4), memory.load_u32(8)), (Ok(0x0102), Ok(0x0304_0506)));
    let outside = 1 << 20;
    assert_eq!((memory.read(outside, &mut bytes), memory.write(outside, &bytes)), (Err(OutOfBounds), Err(OutOfBounds)));
    assert_eq!((memory.load_u16(outside), memory.store_u16(outside, 1)), (Err(OutOfBounds), Err(OutOfBounds)));
    assert_eq!((memory.load_u32(outside), memory.store_u32(outside, 1)), (Err(OutOfBounds), Err(OutOfBounds)));
}

/// Memory whose words are not made of its bytes.
#[derive(Default)]
struct Device {
    words: Cell<u32>,
}

impl Memory for Device {
    fn read(&self, _: usize, _: &mut [u8]) -> Result<(), OutOfBounds> {
        Err(OutOfBounds)
    }
    fn write(&self, _: usize, _: &[u8]) -> Result<(), OutOfBounds> {
        Err(OutOfBounds)
    }
    fn load_u16(&self, offset: usize) -> Result<u16, OutOfBounds> {
        Ok(self.words.get() as u16 + offset as u16)
    }
    fn store_u16(&self, offset: usize, value: u16) -> Result<(), OutOfBounds> {
        self.words.set(u32::from(value) + offset as u32);
        Ok(())
    }
    fn load_u32(&self, offset: usize) -> Result<u32, OutOfBounds> {
        Ok(self.words.get() + offset as u32)
    }
    fn store_u32(&self, offset: usize, value: u32) -> Result<(), OutOfBounds> {
        self.words.set(value + offset as u32);
        Ok(())
    }
}

#[test]
fn words_are_read_and_written_the_same_way_in_each_kind_of_memory() {
    check(&RefCell::new(vec![0; 4096]));
    check(&Rc::new(RefCell::new(vec![0; 4096])));
    let (client, _server) = loopback(Layout { ring_slots: 16, bulk_bytes: 4096 });
    check(&client.bulk());
    // A reference does what its memory does, and not what words are by default.
    let device = Rc::new(Device::default());
    device.store_u16(2, 3).unwrap();
    assert_eq!((device.words.get(), device.load_u16(7)), (5, Ok(12)));
    device.store_u32(2, 70_000).unwrap();
    assert_eq!((device.words.get(), device.load_u32(7)), (70_002, Ok(70_009)));
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll(future: Pin<&mut impl Future<Output = ()>>, wakes: &Arc<Wakes>) -> Poll<()> {
    future.poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
}

#[test]
fn a_notification_is_kept_until_one_task_takes_it() {
    let (notify, wakes) = (Notify::default(), Arc::<Wakes>::default());
    notify.notify();
    notify.notify();
    assert_eq!(poll(pin!(notify.notified()), &wakes), Poll::Ready(()));
    let (mut first, mut second) = (pin!(notify.notified()), pin!(notify.notified()));
    let others = Arc::<Wakes>::default();
    assert_eq!(poll(first.as_mut(), &wakes), Poll::Pending, "both were one");
    assert_eq!(poll(first.as_mut(), &wakes), Poll::Pending);
    assert_eq!(poll(second.as_mut(), &others), Poll::Pending);
    assert_eq!((wakes.count(), others.count()), (0, 0));
    notify.notify();
    assert_eq!((wakes.count(), others.count()), (1, 1), "each task once");
    assert_eq!(poll(first, &wakes), Poll::Ready(()));
    assert_eq!(poll(second, &others), Poll::Pending, "the other one took it");
}

#[test]
fn who_waits_until_something_holds_takes_no_notification() {
    let (notify, wakes) = (Notify::default(), Arc::<Wakes>::default());
    let holds = Cell::new(false);
    let mut waits = pin!(notify.until(|| holds.get()));
    assert_eq!(poll(waits.as_mut(), &wakes), Poll::Pending);
    notify.notify();
    assert_eq!(wakes.count(), 1);
    assert_eq!(poll(waits.as_mut(), &wakes), Poll::Pending, "it does not hold");
    holds.set(true);
    assert_eq!(poll(waits, &wakes), Poll::Ready(()));
    assert_eq!(poll(pin!(notify.notified()), &wakes), Poll::Ready(()), "it is there still");
}
