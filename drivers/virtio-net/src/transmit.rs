//! The transmit queue as a step machine: frames in, buffers that were read out.
//!
//! It has the queue's memory and the doorbell of that queue: no other register, and nothing of the
//! receive queue.

use alloc::boxed::Box;
use packet::{BUFFER_BYTES, BufferSet, Memory, Pool, Span};
use virtio::Doorbell;
use virtio::pool_queue::{Broken, Descriptor, Queue};

use crate::driver::{FRAME_MIN, HEADER_BYTES, Region};

/// Frames with the device from which on it shall say when it has sent some; below, we look when
/// something else wakes us, and each 100 ms. A quarter of the pool.
const INTERRUPT_FROM: usize = 64;

/// The pool that frames lie in.
pub(crate) struct Frames<M> {
    pool: Pool<M>,
    /// Where the device sees it.
    physical: u64,
}

impl<M: Memory + Clone> Frames<M> {
    pub(crate) fn new(region: &Region<M>) -> Frames<M> {
        Frames { pool: Pool::new(region.memory.clone()), physical: region.physical }
    }

    /// Writes the header of a frame; gives what stands for both. `None`: it cannot be a frame.
    pub(crate) fn describe(&self, frame: Span) -> Option<Descriptor> {
        let room = usize::from(frame.offset) >= HEADER_BYTES && usize::from(frame.length) >= FRAME_MIN;
        let start = usize::from(frame.offset).wrapping_sub(HEADER_BYTES);
        // All zero: no offload asked for.
        if !room
            || self.pool.write(frame.buffer, start, &[0; HEADER_BYTES]).is_err()
            || Pool::<M>::check(frame).is_err()
        {
            return None;
        }
        let physical = self.physical + (usize::from(frame.buffer) * BUFFER_BYTES + start) as u64;
        Some(Descriptor { physical, bytes: u32::from(frame.length) + HEADER_BYTES as u32 })
    }
}

/// Whether a frame of that buffer is at the descriptor, header included, in a pool that the device
/// sees there.
pub(crate) fn is_descriptor(pool: u64, buffer: u16, Descriptor { physical, bytes }: Descriptor) -> bool {
    let offset = physical.checked_sub(pool + u64::from(buffer) * BUFFER_BYTES as u64);
    let fits = |offset: u64| offset.checked_add(bytes.into()).is_some_and(|end| end <= BUFFER_BYTES as u64);
    offset.is_some_and(fits) && bytes as usize >= HEADER_BYTES + FRAME_MIN
}

/// The transmit side of one device.
pub struct Transmit<M> {
    queue: Queue<M>,
    doorbell: Box<dyn Doorbell>,
    /// Something was given since the last `flush`.
    is_news: bool,
}

impl<M: Memory> Transmit<M> {
    /// Over the queue that the device works with.
    pub(crate) fn new(queue: Queue<M>, doorbell: Box<dyn Doorbell>) -> Transmit<M> {
        Transmit { queue, doorbell, is_news: false }
    }

    /// Tells the device that there may be news: a predecessor may have died before it did.
    pub(crate) fn ring(&self) {
        self.doorbell.ring();
    }

    /// Buffers that the device has.
    pub(crate) fn given(&self) -> BufferSet {
        self.queue.given()
    }

    /// Frames that the device was given in this epoch.
    pub(crate) fn count(&self) -> u16 {
        self.queue.count()
    }

    /// How far the device has come with what it was given; `None`: with all.
    pub(crate) fn progress(&self) -> Option<u16> {
        self.queue.is_behind().then(|| self.queue.progress())
    }

    /// A frame for the device; false if that has the buffer already.
    pub(crate) fn give(&mut self, buffer: u16, descriptor: Descriptor) -> bool {
        let is_given = self.queue.give(buffer, descriptor);
        self.is_news |= is_given;
        is_given
    }

    /// Looks what the device has read, and tells each buffer.
    pub(crate) fn look(&mut self, mut told: impl FnMut(u16)) -> Result<(), Broken> {
        while let Some(used) = self.queue.next_used()? {
            self.queue.accept(used.buffer)?;
            told(used.buffer);
        }
        Ok(())
    }

    /// Shows the device what was given, and says whether to be interrupted for sent frames.
    pub(crate) fn flush(&mut self) {
        self.queue.want_interrupts(self.queue.given().len() >= INTERRUPT_FROM);
        if core::mem::take(&mut self.is_news) && self.queue.publish() {
            self.doorbell.ring();
        }
    }
}
