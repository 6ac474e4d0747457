//! The driver as a step machine: device and clients' wishes in, frames and free buffers out.

use alloc::vec::Vec;
use packet::{BUFFER_BYTES, BUFFERS, BufferSet, Memory, Pool, Span};

use crate::queue::{AVAILABLE_OFFSET, Broken, ENTRIES, QUEUE_BYTES, Queue, USED_OFFSET};
use crate::transport::{QueueAddresses, Transport, status};

/// Bytes of the header before each frame (section 5.1.6, with VIRTIO_F_VERSION_1).
pub const HEADER_BYTES: usize = 12;
/// Bytes the ring region must have.
pub const RING_BYTES: usize = 2 * QUEUE_BYTES;
/// VIRTIO_F_VERSION_1 and VIRTIO_NET_F_MAC: all that is asked for.
const FEATURES: u64 = 1 << 32 | 1 << 5;
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// Frames with the device from which on it shall say when it has sent some; below, we look when something else wakes us. A quarter of the pool.
const INTERRUPT_FROM: usize = 64;
/// Shortest frame that is handed on: an Ethernet header.
const FRAME_MIN: usize = 14;

/// Why the device did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Status did not read 0 in time after a reset. Remedy: none; its memory must not be used.
    NoReset,
    /// It lacks a feature that is needed (virtio 1). Remedy: another device model.
    Features,
    /// A queue has fewer entries than the pools have buffers.
    Queues,
    /// The ring region is too small.
    Region,
}

/// What to tell IP.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Frames that arrived.
    pub received: Vec<Span>,
    /// Transmit buffers that were read.
    pub transmitted: Vec<u16>,
}

/// Numbers for a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames to IP.
    pub received: u64,
    /// Frames from IP.
    pub transmitted: u64,
    /// Frames while nobody was attached, or of a length that cannot be.
    pub dropped: u64,
    /// Spans and buffers of IP's that broke the contract.
    pub refused: u64,
    /// Times the device was started again because it said something impossible.
    pub restarts: u64,
}

/// The driver of one device.
pub struct Driver<T, M> {
    transport: T,
    rings: M,
    rings_physical: u64,
    transmit_pool: Pool<M>,
    receive_physical: u64,
    transmit_physical: u64,
    receive: Queue<M>,
    transmit: Queue<M>,
    address: [u8; 6],
    attached: bool,
    /// Something was given since the last `flush`: per queue.
    news: [bool; 2],
    output: Output,
    counters: Counters,
}

/// A region and where devices see it.
#[derive(Clone, Copy, Debug)]
pub struct Region<M> {
    /// Its memory.
    pub memory: M,
    /// Its physical address.
    pub physical: u64,
}

impl<T: Transport, M: Memory + Clone> Driver<T, M> {
    /// Resets the device, waits until it is quiet (asking `tired` after each look whether to give up) and starts it with empty queues.
    pub fn start(
        mut transport: T,
        rings: Region<M>,
        receive: u64,
        transmit: Region<M>,
        tired: impl FnMut() -> bool,
    ) -> Result<Driver<T, M>, StartError> {
        let (receive_queue, transmit_queue) = bring_up(&mut transport, &rings, tired)?;
        let mut address = [0; 6];
        (0..).zip(&mut address).for_each(|(offset, byte)| *byte = transport.configuration(offset));
        Ok(Driver {
            transport,
            rings: rings.memory,
            rings_physical: rings.physical,
            transmit_pool: Pool::new(transmit.memory),
            receive_physical: receive,
            transmit_physical: transmit.physical,
            receive: receive_queue,
            transmit: transmit_queue,
            address,
            attached: false,
            news: [false; 2],
            output: Output::default(),
            counters: Counters::default(),
        })
    }

    /// Ethernet address of the device.
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// IP begins, or begins again, and holds the receive buffers of `held`: the device gets all others. Gives the transmit buffers that the device still has.
    pub fn attach(&mut self, held: &BufferSet) -> BufferSet {
        self.output = Output::default();
        self.attached = true;
        let ours = BufferSet::range(0, BUFFERS).without(held).without(&self.receive.given());
        ours.iter().for_each(|buffer| self.post(buffer));
        self.transmit.given()
    }

    /// IP is gone: frames that arrive are dropped until the next one attaches.
    pub fn detach(&mut self) {
        self.attached = false;
        for frame in core::mem::take(&mut self.output).received {
            self.post(frame.buffer);
        }
    }

    /// Frames to send.
    pub fn transmit(&mut self, frames: &[Span]) {
        for &frame in frames {
            let room = usize::from(frame.offset) >= HEADER_BYTES && usize::from(frame.length) >= FRAME_MIN;
            let start = usize::from(frame.offset).wrapping_sub(HEADER_BYTES);
            // All zero: no offload asked for.
            if !self.attached
                || !room
                || self.transmit_pool.write(frame.buffer, start, &[0; HEADER_BYTES]).is_err()
                || Pool::<M>::check(frame).is_err()
            {
                self.counters.refused += 1;
                continue;
            }
            let physical = self.transmit_physical + (usize::from(frame.buffer) * BUFFER_BYTES + start) as u64;
            if self.transmit.give(frame.buffer, physical, u32::from(frame.length) + HEADER_BYTES as u32) {
                self.counters.transmitted += 1;
                self.news[usize::from(TRANSMIT)] = true;
            } else {
                self.counters.refused += 1;
            }
        }
    }

    /// Receive buffers that IP is done with.
    pub fn give_back(&mut self, buffers: &[u16]) {
        for &buffer in buffers {
            if buffer < BUFFERS && !self.receive.given().contains(buffer) {
                self.post(buffer);
            } else {
                self.counters.refused += 1;
            }
        }
    }

    /// Answers an interrupt at the device.
    pub fn acknowledge(&mut self) {
        self.transport.acknowledge();
    }

    /// Looks what the device has done. `Err`: it said something impossible and has to be started again.
    pub fn look(&mut self) -> Result<(), Broken> {
        while let Some(used) = self.receive.take()? {
            let length = (used.written as usize).min(BUFFER_BYTES).saturating_sub(HEADER_BYTES);
            if self.attached && length >= FRAME_MIN && used.written as usize <= BUFFER_BYTES {
                self.counters.received += 1;
                self.output.received.push(Span {
                    buffer: used.buffer,
                    offset: HEADER_BYTES as u16,
                    length: length as u16,
                });
            } else {
                self.counters.dropped += 1;
                self.post(used.buffer);
            }
        }
        while let Some(used) = self.transmit.take()? {
            self.output.transmitted.push(used.buffer);
        }
        Ok(())
    }

    /// End of a turn: shows the device what was given and says whether to be interrupted for sent frames.
    pub fn flush(&mut self) {
        let busy = self.transmit.given().len() >= INTERRUPT_FROM;
        self.transmit.want_interrupts(busy);
        for (index, queue) in [(RECEIVE, &self.receive), (TRANSMIT, &self.transmit)] {
            if core::mem::take(&mut self.news[usize::from(index)]) && queue.publish() {
                self.transport.notify(index);
            }
        }
    }

    /// What to tell IP.
    pub fn take_output(&mut self) -> Output {
        core::mem::take(&mut self.output)
    }

    /// Starts a device again that said something impossible. IP's frames with it are reported as sent (they may be lost), its receive buffers are given to it again.
    pub fn restart(&mut self, tired: impl FnMut() -> bool) -> Result<(), StartError> {
        self.counters.restarts += 1;
        let (posted, unsent) = (self.receive.given(), self.transmit.given());
        let rings = Region { memory: self.rings.clone(), physical: self.rings_physical };
        (self.receive, self.transmit) = bring_up(&mut self.transport, &rings, tired)?;
        self.output.transmitted.extend(unsent.iter());
        posted.iter().for_each(|buffer| self.post(buffer));
        Ok(())
    }

    fn post(&mut self, buffer: u16) {
        let physical = self.receive_physical + u64::from(buffer) * BUFFER_BYTES as u64;
        self.receive.give(buffer, physical, BUFFER_BYTES as u32);
        self.news[usize::from(RECEIVE)] = true;
    }
}

/// Section 3.1.1, in its order.
fn bring_up<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    rings: &Region<M>,
    mut tired: impl FnMut() -> bool,
) -> Result<(Queue<M>, Queue<M>), StartError> {
    transport.set_status(0);
    while transport.status() != 0 {
        if tired() {
            return Err(StartError::NoReset);
        }
    }
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER);
    let features = transport.features();
    if features & FEATURES != FEATURES {
        return Err(StartError::Features);
    }
    transport.set_features(FEATURES);
    let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    transport.set_status(agreed);
    if transport.status() & status::FEATURES_OK == 0 {
        return Err(StartError::Features);
    }
    let mut queue = |index: u16| {
        if transport.queue_entries(index) < ENTRIES {
            return Err(StartError::Queues);
        }
        let base = usize::from(index) * QUEUE_BYTES;
        let queue = Queue::new(rings.memory.clone(), base, index == RECEIVE).map_err(|_| StartError::Region)?;
        let start = rings.physical + base as u64;
        let (available, used) = (start + AVAILABLE_OFFSET as u64, start + USED_OFFSET as u64);
        transport.set_queue(index, ENTRIES, QueueAddresses { descriptors: start, available, used });
        Ok(queue)
    };
    let queues = (queue(RECEIVE)?, queue(TRANSMIT)?);
    transport.set_status(agreed | status::DRIVER_OK);
    Ok(queues)
}
