//! The side of a queue whose buffers the device reads: buffers in, buffers that were read out. As a
//! part of its driver, or as a handler that has a context of its own (NOVA, section 4).
//!
//! Invariants: it has its queue's memory and the doorbell of that queue: no other register, and
//! nothing of the other queues. [`Handler::turn`] neither allocates nor frees, and meets its driver
//! at the [`Desk`] only. A handler may be stopped for good at any store: the queue is then as that
//! of a driver that died there, and what it was asked the driver knows itself.
//!
//! Deliberately unknown here: what the buffers hold.

use alloc::boxed::Box;
use alloc::sync::Arc;
use packet::{BufferSet, Memory};

use crate::desk::Desk;
use crate::doorbell::{Doorbell, RingCount};
use crate::pool_queue::{Broken, Descriptor, Queue};

/// Buffers with the device from which on it shall say when it has read some; below, its driver
/// looks now and then. A quarter of the pool.
const INTERRUPT_FROM: usize = 64;

/// The queue, and what was given to it.
pub struct Sender<M> {
    queue: Queue<M>,
    pub(crate) doorbell: Box<dyn Doorbell>,
    ring_count: Arc<RingCount>,
    /// Something was given since the last `flush`.
    is_news: bool,
}

impl<M: Memory> Sender<M> {
    /// Over the queue that the device works with; `ring_count` counts how often it rings.
    pub fn new(queue: Queue<M>, doorbell: Box<dyn Doorbell>, ring_count: Arc<RingCount>) -> Sender<M> {
        Sender { queue, doorbell, ring_count, is_news: false }
    }

    /// Tells the device that there may be news: a predecessor may have died before it did.
    pub fn ring(&self) {
        self.ring_count.note();
        self.doorbell.ring();
    }

    /// Buffers that the device has.
    pub fn given(&self) -> BufferSet {
        self.queue.given()
    }

    /// Buffers given, ever; see [`Queue::count`].
    pub fn count(&self) -> u16 {
        self.queue.count()
    }

    /// How far the device has come with what it was given; `None`: with all.
    pub fn progress(&self) -> Option<u16> {
        self.queue.is_behind().then(|| self.queue.progress())
    }

    /// A buffer for the device; false if that has it already.
    pub fn give(&mut self, buffer: u16, descriptor: Descriptor) -> bool {
        let is_given = self.queue.give(buffer, descriptor);
        self.is_news |= is_given;
        is_given
    }

    /// Looks what the device has read, and tells each buffer. `Err`: it said something impossible.
    pub fn look(&mut self, mut told: impl FnMut(u16)) -> Result<(), Broken> {
        while let Some(used) = self.queue.next_used()? {
            self.queue.accept(used.buffer)?;
            told(used.buffer);
        }
        Ok(())
    }

    /// Shows the device what was given, and says whether to be interrupted for what it reads.
    pub fn flush(&mut self) {
        self.queue.want_interrupts(self.queue.given().len() >= INTERRUPT_FROM);
        if core::mem::take(&mut self.is_news) && self.queue.publish() {
            self.ring();
        }
    }
}

/// A sender with a desk: what a context of its own does.
pub struct Handler<M> {
    pub(crate) sender: Sender<M>,
    desk: Arc<Desk>,
}

impl<M: Memory> Handler<M> {
    /// What was asked at the desk is given to the device by this sender.
    pub fn new(sender: Sender<M>, desk: Arc<Desk>) -> Handler<M> {
        Handler { sender, desk }
    }

    /// Does all that there is to do; tells whether the driver is to be notified.
    pub fn turn(&mut self) -> bool {
        if self.desk.is_broken() {
            return false;
        }
        while let Some((buffer, descriptor)) = self.desk.take() {
            // The driver gives no buffer that is on the way.
            self.sender.give(buffer, descriptor);
        }
        self.sender.flush();
        // After it was said whether to be interrupted: what was read before that is seen now.
        let (desk, mut is_news) = (&self.desk, false);
        if self.sender.look(|buffer| is_news |= desk.tell(buffer)).is_err() {
            desk.give_up();
            is_news = true;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool_queue::{AVAILABLE_OFFSET, INDEX_OFFSET, QUEUE_BYTES, Target};
    use crate::testing::{Bell, Bytes, number, put_used};
    use alloc::rc::Rc;
    use alloc::vec;
    use core::cell::{Cell, RefCell};

    const ONE: Descriptor = Descriptor { physical: 0x1000, bytes: 60 };

    /// A sender, what the device sees of it, and how often it rang.
    fn sender() -> (Sender<Bytes>, Bytes, Rc<Cell<u64>>) {
        let region: Bytes = Rc::new(RefCell::new(vec![0; QUEUE_BYTES]));
        let queue = Queue::new(region.clone(), 0, Target::Read).unwrap();
        let rings = Rc::new(Cell::new(0));
        let times = rings.clone();
        let bell = Bell(move || times.set(times.get() + 1));
        (Sender::new(queue, Box::new(bell), Arc::default()), region, rings)
    }

    fn shown(region: &Bytes) -> u64 {
        number::<2>(region, AVAILABLE_OFFSET + INDEX_OFFSET)
    }

    fn wants_interrupts(region: &Bytes) -> bool {
        number::<2>(region, AVAILABLE_OFFSET) == 0
    }

    #[test]
    fn the_device_is_told_once_of_what_is_new() {
        let (mut sender, region, rings) = sender();
        sender.flush();
        assert_eq!((rings.get(), sender.count(), sender.progress()), (0, 0, None), "nothing is new");
        assert!(sender.give(3, ONE) && sender.give(4, ONE));
        assert_eq!((rings.get(), shown(&region)), (0, 0));
        // It is no news that one is there already, and takes none away.
        assert!(!sender.give(3, ONE));
        sender.flush();
        sender.flush();
        assert_eq!((rings.get(), shown(&region), sender.count()), (1, 2, 2));
        assert_eq!((sender.given(), sender.progress()), (BufferSet::range(3, 5), Some(0)));
        put_used(&region, 0, 4, 0);
        assert_eq!(sender.progress(), Some(1));
        let mut told = vec![];
        assert_eq!(sender.look(|buffer| told.push(buffer)), Ok(()));
        assert_eq!((told, sender.given()), (vec![4], BufferSet::range(3, 4)));
        put_used(&region, 0, 3, 0);
        assert_eq!((sender.progress(), sender.look(|_| ()), sender.given().len()), (None, Ok(()), 0));
        put_used(&region, 0, 9, 0);
        assert_eq!(sender.look(|_| panic!("it does not have that")), Err(Broken));
    }

    #[test]
    fn every_ring_is_counted() {
        let (sender, _, rings) = sender();
        sender.ring();
        sender.ring();
        assert_eq!((rings.get(), sender.ring_count.told().0), (2, 2));
    }

    #[test]
    fn a_device_that_does_not_want_to_hear_is_not_told() {
        let (mut sender, region, rings) = sender();
        const NO_NOTIFY: u16 = 1;
        region.store_u16(crate::pool_queue::USED_OFFSET, NO_NOTIFY).unwrap();
        assert!(sender.give(3, ONE));
        sender.flush();
        assert_eq!((rings.get(), shown(&region)), (0, 1));
    }

    #[test]
    fn it_interrupts_from_a_quarter_of_the_pool_on() {
        let (mut sender, region, _) = sender();
        for buffer in 1..INTERRUPT_FROM as u16 {
            assert!(sender.give(buffer, ONE));
            sender.flush();
            assert!(!wants_interrupts(&region), "{buffer}");
        }
        assert!(sender.give(0, ONE));
        sender.flush();
        assert!(wants_interrupts(&region));
        put_used(&region, 0, 0, 0);
        sender.look(|_| ()).unwrap();
        sender.flush();
        assert!(!wants_interrupts(&region));
    }

    #[test]
    fn a_turn_does_all_and_says_whether_that_is_news() {
        let (sender, region, rings) = sender();
        let desk = Arc::new(Desk::default());
        let mut handler = Handler::new(sender, desk.clone());
        assert!(!handler.turn());
        desk.ask(3, ONE);
        desk.ask(4, ONE);
        assert!(!handler.turn(), "the device has read none");
        assert_eq!((rings.get(), shown(&region), desk.taken()), (1, 2, 2));
        put_used(&region, 0, 3, 0);
        put_used(&region, 0, 4, 0);
        // The driver may have seen all before the first of them, and not before the second.
        assert!(handler.turn());
        assert_eq!([desk.hear(), desk.hear(), desk.hear()], [Some(3), Some(4), None]);
        assert!(!handler.turn());
        put_used(&region, 0, 3, 0);
        assert!(handler.turn() && desk.is_broken(), "it does not have that");
        desk.ask(5, ONE);
        assert!(!handler.turn() && desk.taken() == 2, "it has given up");
    }
}
