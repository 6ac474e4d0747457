//! The receive queue as a step machine: free buffers in, frames out.
//!
//! It has the queue's memory, the journal and the doorbell of that queue: no other register, and
//! nothing of the transmit queue.

use alloc::boxed::Box;
use alloc::vec::Vec;
use packet::{BUFFER_BYTES, BUFFERS, BufferSet, Memory, Span};
use virtio::Doorbell;
use virtio::doorbell::RingCount;
use virtio::pool_queue::{Broken, Descriptor, Queue};

use crate::driver::{Counters, HEADER_BYTES};
use crate::journal::{Journal, is_length};

/// The receive side of one device.
pub struct Receive<M> {
    queue: Queue<M>,
    journal: Journal<M>,
    doorbell: Box<dyn Doorbell>,
    /// Where the device sees the pool.
    physical: u64,
    ring_count: RingCount,
    /// Something was given since the last `flush`.
    is_news: bool,
}

impl<M: Memory> Receive<M> {
    /// Over the queue that the device works with.
    pub(crate) fn new(queue: Queue<M>, journal: Journal<M>, doorbell: Box<dyn Doorbell>, physical: u64) -> Receive<M> {
        Receive { queue, journal, doorbell, physical, ring_count: RingCount::default(), is_news: false }
    }

    /// What outlives it beside its queue.
    pub(crate) fn journal(&mut self) -> &mut Journal<M> {
        &mut self.journal
    }

    /// The device's epoch, which ends with a reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.journal.epoch()
    }

    /// Tells the device that there may be news: a predecessor may have died before it did.
    pub(crate) fn ring(&self) {
        self.ring_count.note();
        self.doorbell.ring();
    }

    /// How often its doorbell rang, and from where.
    pub(crate) fn ring_count(&self) -> (u64, u64) {
        self.ring_count.told()
    }

    /// Buffers that the device has.
    pub(crate) fn given(&self) -> BufferSet {
        self.queue.given()
    }

    /// IP begins and holds the buffers of `held`: gives the frames that were told to nobody who
    /// lives; the device gets all other buffers.
    pub(crate) fn attach(&mut self, held: &BufferSet) -> Vec<Span> {
        let mut theirs = *held;
        let received = self.journal.frames(held);
        for frame in &received {
            theirs.insert(frame.buffer);
        }
        let ours = BufferSet::range(0, BUFFERS).without(&theirs).without(&self.queue.given());
        ours.iter().for_each(|buffer| self.post(buffer));
        received
    }

    /// A buffer that IP is done with; false if there is no such, or the device has it.
    pub(crate) fn release(&mut self, buffer: u16) -> bool {
        let is_theirs = buffer < BUFFERS && !self.queue.given().contains(buffer);
        if is_theirs {
            self.post(buffer);
        }
        is_theirs
    }

    /// Looks what has arrived, and adds it to `frames`.
    pub(crate) fn look(&mut self, frames: &mut Vec<Span>, counters: &mut Counters) -> Result<(), Broken> {
        while let Some(used) = self.queue.next_used()? {
            let length = (used.written as usize).checked_sub(HEADER_BYTES).filter(|length| is_length(*length));
            let is_given = self.queue.given().contains(used.buffer);
            if let Some(length) = length.filter(|_| is_given).map(|length| length as u16) {
                self.journal.tell(used.buffer, length);
                self.queue.accept(used.buffer)?;
                counters.received += 1;
                frames.push(Span { buffer: used.buffer, offset: HEADER_BYTES as u16, length });
            } else {
                self.queue.accept(used.buffer)?;
                counters.dropped += 1;
                self.post(used.buffer);
            }
        }
        Ok(())
    }

    /// Shows the device what was given.
    pub(crate) fn flush(&mut self) {
        if core::mem::take(&mut self.is_news) && self.queue.publish() {
            self.ring();
        }
    }

    /// The device was reset and works with this queue, which is empty: it gets the buffers that it
    /// had. Gives the frames that it had completed of these.
    pub(crate) fn begin_again(&mut self, queue: Queue<M>, doorbell: Box<dyn Doorbell>) -> Vec<Span> {
        let posted = self.queue.given();
        (self.queue, self.doorbell) = (queue, doorbell);
        let told: Vec<u16> = posted.iter().filter(|buffer| self.journal.is_told(*buffer)).collect();
        let received = self.journal.spans(told.iter().copied());
        posted.iter().filter(|buffer| !told.contains(buffer)).for_each(|buffer| self.post(buffer));
        received
    }

    fn post(&mut self, buffer: u16) {
        self.journal.remove(buffer);
        self.queue.give(buffer, descriptor(self.physical, buffer));
        self.is_news = true;
    }
}

/// What stands for a buffer of a pool that the device sees there.
pub(crate) fn descriptor(pool: u64, buffer: u16) -> Descriptor {
    Descriptor { physical: pool + u64::from(buffer) * BUFFER_BYTES as u64, bytes: BUFFER_BYTES as u32 }
}
