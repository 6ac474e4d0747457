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
