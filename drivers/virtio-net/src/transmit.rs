//! What is transmitted: frames in, buffers that were read out. The queue is the driver's own, or
//! that of a handler with a context of its own (decision 97).

use alloc::boxed::Box;
use alloc::sync::Arc;
use packet::{BUFFER_BYTES, BufferSet, Memory, Pool, Span};
use virtio::Doorbell;
use virtio::desk::Desk;
use virtio::doorbell::RingCount;
use virtio::handler::{Handler, Sender};
use virtio::pool_queue::{Broken, Descriptor, Queue};

use crate::driver::{FRAME_MIN, HEADER_BYTES, Region};

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

/// The transmit side of one device, as its driver has it.
pub(crate) struct Transmit<M> {
    side: Side<M>,
    ring_count: Arc<RingCount>,
}

enum Side<M> {
    /// The driver gives frames to the device itself.
    Here(Sender<M>),
    /// A handler does.
    Apart(Apart<M>),
}

/// What the driver knows of a queue that it does not have. None of it is the handler's word: so a
/// handler that is stopped at any store takes nothing with it.
struct Apart<M> {
    desk: Arc<Desk>,
    /// Buffers that were given to it and not told of.
    theirs: BufferSet,
    /// Frames given to the device in this epoch, or at the desk to be.
    count: u16,
    /// Where the device counts what it has read.
    rings: M,
    used_at: usize,
    /// The handler is to be notified.
    is_news: bool,
}

impl<M: Memory> Transmit<M> {
    /// Over the queue that the device works with.
    pub(crate) fn new(queue: Queue<M>, doorbell: Box<dyn Doorbell>) -> Transmit<M> {
        let ring_count = Arc::new(RingCount::default());
        Transmit { side: Side::Here(Sender::new(queue, doorbell, ring_count.clone())), ring_count }
    }

    /// The device was reset and works with this queue, which is empty. Gives the buffers that it
    /// had, or that its handler had. A handler must have ended.
    pub(crate) fn begin_again(&mut self, queue: Queue<M>, doorbell: Box<dyn Doorbell>) -> BufferSet {
        let unsent = self.given();
        self.side = Side::Here(Sender::new(queue, doorbell, self.ring_count.clone()));
        unsent
    }

    /// What a handler of its own needs to go on with the queue, whose device counts what it has
    /// read in that word of the rings. `None`: a handler has it.
    pub(crate) fn part(&mut self, rings: M, used_at: usize) -> Option<Handler<M>> {
        let Side::Here(sender) = &self.side else { return None };
        let desk = Arc::new(Desk::default());
        let (theirs, count) = (sender.given(), sender.count());
        let apart = Apart { desk: desk.clone(), theirs, count, rings, used_at, is_news: true };
        match core::mem::replace(&mut self.side, Side::Apart(apart)) {
            Side::Here(sender) => Some(Handler::new(sender, desk)),
            Side::Apart(_) => None,
        }
    }

    /// Tells the device that there may be news: a predecessor may have died before it did.
    pub(crate) fn ring(&self) {
        if let Side::Here(sender) = &self.side {
            sender.ring();
        }
    }

    /// How often its doorbell rang, and from where.
    pub(crate) fn ring_count(&self) -> (u64, u64) {
        self.ring_count.told()
    }

    /// Buffers that the device has, or that are on the way to it or back.
    pub(crate) fn given(&self) -> BufferSet {
        match &self.side {
            Side::Here(sender) => sender.given(),
            Side::Apart(apart) => apart.theirs,
        }
    }

    /// Frames that the device was given in this epoch, or is to be.
    pub(crate) fn count(&self) -> u16 {
        match &self.side {
            Side::Here(sender) => sender.count(),
            Side::Apart(apart) => apart.count,
        }
    }

    /// How far the device, and its handler, have come; `None`: they have nothing to do.
    pub(crate) fn progress(&self) -> Option<u16> {
        match &self.side {
            Side::Here(sender) => sender.progress(),
            Side::Apart(Apart { desk, theirs, rings, used_at, .. }) => (!theirs.is_empty()).then(|| {
                let read = rings.load_u16(*used_at).unwrap_or(0);
                read.wrapping_add(desk.taken() as u16)
            }),
        }
    }

    /// A frame for the device; false if that has the buffer already.
    pub(crate) fn give(&mut self, buffer: u16, descriptor: Descriptor) -> bool {
        match &mut self.side {
            Side::Here(sender) => sender.give(buffer, descriptor),
            Side::Apart(apart) => {
                let is_given = apart.theirs.insert(buffer);
                if is_given {
                    apart.count = apart.count.wrapping_add(1);
                    apart.is_news |= apart.desk.ask(buffer, descriptor);
                }
                is_given
            }
        }
    }

    /// Looks what the device has read, and tells each buffer.
    pub(crate) fn look(&mut self, mut told: impl FnMut(u16)) -> Result<(), Broken> {
        match &mut self.side {
            Side::Here(sender) => sender.look(told),
            Side::Apart(Apart { desk, theirs, .. }) => {
                while let Some(buffer) = desk.hear() {
                    if theirs.remove(buffer) {
                        told(buffer);
                    }
                }
                if desk.is_broken() { Err(Broken) } else { Ok(()) }
            }
        }
    }

    /// Shows the device what was given, or says that its handler is to be notified.
    pub(crate) fn flush(&mut self) -> bool {
        match &mut self.side {
            Side::Here(sender) => {
                sender.flush();
                false
            }
            Side::Apart(apart) => core::mem::take(&mut apart.is_news),
        }
    }
}
