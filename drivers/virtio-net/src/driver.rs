//! The driver as a step machine: device and clients' wishes in, frames and free buffers out.

use alloc::vec::Vec;
use packet::{BUFFER_BYTES, BUFFERS, BufferSet, Memory, Pool, Span};

use crate::control::{CONTROL_BYTES, Control, ENTRIES as CONTROL_ENTRIES};
use crate::journal::{JOURNAL_BYTES, Journal, is_length};
use crate::queue::{AVAILABLE_OFFSET, Broken, ENTRIES, INDEX_OFFSET, QUEUE_BYTES, Queue, USED_OFFSET};
use crate::transport::{QueueAddresses, Transport, status};

/// Bytes of the header before each frame (section 5.1.6, with VIRTIO_F_VERSION_1).
pub const HEADER_BYTES: usize = 12;
/// Bytes the ring region must have.
pub const RING_BYTES: usize = CONTROL_OFFSET + 2 * CONTROL_BYTES;
/// Both queues. There are two halves, used in turn: a new driver's queues are ready before the old
/// one's are given up.
const HALF_BYTES: usize = 2 * QUEUE_BYTES;
/// The journal lies behind the halves.
pub const JOURNAL_OFFSET: usize = 2 * HALF_BYTES;
/// Behind the journal the control queues of the two halves.
const CONTROL_OFFSET: usize = (JOURNAL_OFFSET + JOURNAL_BYTES).next_multiple_of(CONTROL_BYTES);
/// VIRTIO_F_VERSION_1 and VIRTIO_NET_F_MAC: what is needed.
const FEATURES: u64 = 1 << 32 | 1 << 5;
/// VIRTIO_NET_F_STATUS: the device tells whether it has a link.
const TELLS_LINK: u64 = 1 << 16;
/// VIRTIO_NET_F_CTRL_VQ and VIRTIO_NET_F_CTRL_RX: it takes settings of what it receives.
const TAKES_SETTINGS: u64 = 1 << 17 | 1 << 18;
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const CONTROL: u16 = 2;
/// Low byte of the status in the device's configuration, and its bit for the link (section 5.1.4).
const STATUS_OFFSET: u64 = 6;
const LINK_UP: u8 = 1;
/// Frames with the device from which on it shall say when it has sent some; below, we look when
/// something else wakes us. A quarter of the pool.
const INTERRUPT_FROM: usize = 64;
/// Shortest frame that is handed on: an Ethernet header.
pub const FRAME_MIN: usize = 14;

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
    /// It may not be let at memory. Remedy: none; the kernel refused.
    NoMemoryAccess,
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
    /// Frames of a length that cannot be.
    pub dropped: u64,
    /// Frames told again, or left by a predecessor.
    pub again: u64,
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
    half: u8,
    transmit_pool: Pool<M>,
    receive_physical: u64,
    transmit_physical: u64,
    receive: Queue<M>,
    transmit: Queue<M>,
    /// `None`: the device takes no settings.
    control: Option<Control<M>>,
    tells_link: bool,
    journal: Journal<M>,
    address: [u8; 6],
    attached: bool,
    /// Whether all frames are wanted, and what the device was last told and did; `Err`: it refused.
    wants_all: bool,
    promiscuous: Option<Result<bool, Refused>>,
    /// Something was given since the last `flush`: per queue.
    news: [bool; 3],
    output: Output,
    counters: Counters,
}

/// The device cannot be set so, or did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A region and where devices see it.
#[derive(Clone, Copy, Debug)]
pub struct Region<M> {
    /// Its memory.
    pub memory: M,
    /// Its physical address.
    pub physical: u64,
}

impl<T: Transport, M: Memory + Clone> Driver<T, M> {
    /// Resets the device, waits until it is quiet (asking `tired` after each look whether to give
    /// up), has `quiet` let it at memory, starts it with empty queues and takes over what a
    /// predecessor left behind.
    pub fn start(
        mut transport: T,
        rings: Region<M>,
        receive: u64,
        transmit: Region<M>,
        tired: impl FnMut() -> bool,
        quiet: impl FnOnce() -> Result<(), StartError>,
    ) -> Result<Driver<T, M>, StartError> {
        let mut journal = Journal::recover(rings.memory.clone(), JOURNAL_OFFSET).map_err(|_| StartError::Region)?;
        let half = journal.other_half();
        let Queues { receive: receive_queue, transmit: transmit_queue, control, tells_link } =
            bring_up(&mut transport, &rings, half, tired, quiet)?;
        journal.take_over(|half| queue_offset(half, RECEIVE));
        journal.begin(half);
        let mut address = [0; 6];
        (0..).zip(&mut address).for_each(|(offset, byte)| *byte = transport.configuration(offset));
        let mut driver = Driver {
            transport,
            rings: rings.memory,
            rings_physical: rings.physical,
            half,
            transmit_pool: Pool::new(transmit.memory),
            receive_physical: receive,
            transmit_physical: transmit.physical,
            receive: receive_queue,
            transmit: transmit_queue,
            control,
            tells_link,
            journal,
            address,
            attached: false,
            wants_all: false,
            promiscuous: None,
            news: [false; 3],
            output: Output::default(),
            counters: Counters::default(),
        };
        driver.settle();
        Ok(driver)
    }

    /// Ethernet address of the device.
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// Whether there is a link; a device that does not tell has one.
    pub fn link_is_up(&mut self) -> bool {
        !self.tells_link || self.transport.configuration(STATUS_OFFSET) & LINK_UP != 0
    }

    /// Entries of the receive and of the transmit queue.
    pub fn rings(&self) -> [u16; 2] {
        [ENTRIES; 2]
    }

    /// Where in the ring region the device counts what it is done with: the words of the receive
    /// and of the transmit queue that somebody may poll instead of waiting for interrupts. A
    /// restart changes them.
    pub fn used_words(&self) -> [usize; 2] {
        [RECEIVE, TRANSMIT].map(|index| queue_offset(self.half, index) + USED_OFFSET + INDEX_OFFSET)
    }

    /// Has the device receive all frames, whoever they are for, or those for its address and for
    /// all; so it begins. [`promiscuous`](Self::promiscuous) tells what came of it.
    pub fn want_all_frames(&mut self, on: bool) {
        self.wants_all = on;
        if self.promiscuous == Some(Err(Refused)) {
            self.promiscuous = None;
        }
        self.settle();
    }

    /// Whether the device receives all frames; `None` until it has done what was wanted last.
    pub fn promiscuous(&self) -> Option<Result<bool, Refused>> {
        match &self.control {
            None => Some(Err(Refused)),
            Some(control) if control.is_busy() => None,
            Some(_) => self.promiscuous,
        }
    }

    /// Tells the device what is wanted, if that is news.
    fn settle(&mut self) {
        let is_known = matches!(self.promiscuous, Some(Err(Refused))) || self.promiscuous == Some(Ok(self.wants_all));
        if let Some(control) = self.control.as_mut().filter(|control| !control.is_busy() && !is_known) {
            control.ask_promiscuous(self.wants_all);
            self.news[usize::from(CONTROL)] = true;
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// IP begins, or begins again, and holds the receive buffers of `held`: it is told what was
    /// told to nobody who lives, and the device gets all others. Gives the transmit buffers that
    /// the device still has.
    pub fn attach(&mut self, held: &BufferSet) -> BufferSet {
        self.attached = true;
        let mut theirs = *held;
        let received = self.journal.frames(held);
        for frame in &received {
            theirs.insert(frame.buffer);
        }
        self.counters.again += received.len() as u64;
        self.output = Output { received, transmitted: Vec::new() };
        let ours = BufferSet::range(0, BUFFERS).without(&theirs).without(&self.receive.given());
        ours.iter().for_each(|buffer| self.post(buffer));
        self.transmit.given()
    }

    /// IP is gone: frames that arrive stay with the device's queue until the next one attaches.
    pub fn detach(&mut self) {
        if core::mem::take(&mut self.attached) {
            self.journal.discard_lost();
        }
        self.output = Output::default();
    }

    /// Receive buffers that the device has.
    pub fn posted(&self) -> usize {
        self.receive.given().len()
    }

    /// Transmit buffers that the device has.
    pub fn sending(&self) -> usize {
        self.transmit.given().len()
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

    /// Answers an interrupt at the device; tells whether the link may have changed.
    pub fn acknowledge(&mut self) -> bool {
        self.transport.acknowledge()
    }

    /// Looks what the device has done. `Err`: it said something impossible and has to be started
    /// again.
    pub fn look(&mut self) -> Result<(), Broken> {
        while self.attached
            && let Some(used) = self.receive.take()?
        {
            let length = (used.written as usize).checked_sub(HEADER_BYTES).filter(|length| is_length(*length));
            if let Some(length) = length.map(|length| length as u16) {
                self.counters.received += 1;
                self.journal.tell(used.buffer, length);
                self.output.received.push(Span { buffer: used.buffer, offset: HEADER_BYTES as u16, length });
            } else {
                self.counters.dropped += 1;
                self.post(used.buffer);
            }
            self.journal.taken(self.receive.taken());
        }
        while let Some(used) = self.transmit.take()? {
            self.output.transmitted.push(used.buffer);
        }
        if let Some((on, is_done)) = self.control.as_mut().and_then(Control::take) {
            self.promiscuous = Some(if is_done { Ok(on) } else { Err(Refused) });
            self.settle();
        }
        Ok(())
    }

    /// End of a turn: shows the device what was given and says whether to be interrupted for sent
    /// frames.
    pub fn flush(&mut self) {
        let busy = self.transmit.given().len() >= INTERRUPT_FROM;
        self.transmit.want_interrupts(busy);
        for (index, queue) in [(RECEIVE, &self.receive), (TRANSMIT, &self.transmit)] {
            if core::mem::take(&mut self.news[usize::from(index)]) && queue.publish() {
                self.transport.notify(index);
            }
        }
        if core::mem::take(&mut self.news[usize::from(CONTROL)]) {
            self.transport.notify(CONTROL);
        }
    }

    /// What to tell IP.
    pub fn take_output(&mut self) -> Output {
        core::mem::take(&mut self.output)
    }

    /// Starts a device again that said something impossible. IP's frames with it are reported as
    /// sent (they may be lost), its receive buffers are given to it again.
    pub fn restart(&mut self, tired: impl FnMut() -> bool) -> Result<(), StartError> {
        self.counters.restarts += 1;
        let (posted, unsent) = (self.receive.given(), self.transmit.given());
        let rings = Region { memory: self.rings.clone(), physical: self.rings_physical };
        self.half = 1 - self.half;
        let queues = bring_up(&mut self.transport, &rings, self.half, tired, || Ok(()))?;
        (self.receive, self.transmit, self.control) = (queues.receive, queues.transmit, queues.control);
        self.promiscuous = None;
        self.settle();
        self.journal.begin(self.half);
        self.output.transmitted.extend(unsent.iter());
        posted.iter().for_each(|buffer| self.post(buffer));
        Ok(())
    }

    fn post(&mut self, buffer: u16) {
        self.journal.forget(buffer);
        let physical = self.receive_physical + u64::from(buffer) * BUFFER_BYTES as u64;
        self.receive.give(buffer, physical, BUFFER_BYTES as u32);
        self.news[usize::from(RECEIVE)] = true;
    }
}

/// Where a half of the ring region has a queue.
fn queue_offset(half: u8, index: u16) -> usize {
    usize::from(half) * HALF_BYTES + usize::from(index) * QUEUE_BYTES
}

/// What a device that was brought up works with.
struct Queues<M> {
    receive: Queue<M>,
    transmit: Queue<M>,
    control: Option<Control<M>>,
    tells_link: bool,
}

/// Section 3.1.1, in its order. Everything that takes time is done before the reset: what arrives
/// between reset and DRIVER_OK is lost (QEMU's net layer flushes its queue into a device that is
/// not yet marked ready; a real card does no better).
fn bring_up<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    rings: &Region<M>,
    half: u8,
    mut tired: impl FnMut() -> bool,
    quiet: impl FnOnce() -> Result<(), StartError>,
) -> Result<Queues<M>, StartError> {
    let queue = |index| {
        let queue = Queue::new(rings.memory.clone(), queue_offset(half, index), index == RECEIVE);
        queue.map_err(|_| StartError::Region)
    };
    let (receive, transmit) = (queue(RECEIVE)?, queue(TRANSMIT)?);
    let control_offset = CONTROL_OFFSET + usize::from(half) * CONTROL_BYTES;
    let control = Control::new(rings.memory.clone(), control_offset, rings.physical).map_err(|_| StartError::Region)?;
    transport.set_status(0);
    while transport.status() != 0 {
        if tired() {
            return Err(StartError::NoReset);
        }
    }
    quiet()?;
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER);
    let features = transport.features();
    if features & FEATURES != FEATURES {
        return Err(StartError::Features);
    }
    // The two of the settings only together.
    let wanted = [TELLS_LINK, TAKES_SETTINGS].into_iter().filter(|wanted| features & wanted == *wanted);
    let features = wanted.fold(FEATURES, |all, wanted| all | wanted);
    transport.set_features(features);
    let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    transport.set_status(agreed);
    if transport.status() & status::FEATURES_OK == 0 {
        return Err(StartError::Features);
    }
    for index in [RECEIVE, TRANSMIT] {
        if transport.queue_entries(index) < ENTRIES {
            return Err(StartError::Queues);
        }
        let start = rings.physical + queue_offset(half, index) as u64;
        let (available, used) = (start + AVAILABLE_OFFSET as u64, start + USED_OFFSET as u64);
        transport.set_queue(index, ENTRIES, QueueAddresses { descriptors: start, available, used });
    }
    let takes_settings = features & TAKES_SETTINGS != 0 && transport.queue_entries(CONTROL) >= CONTROL_ENTRIES;
    let control = takes_settings.then_some(control);
    if let Some(control) = &control {
        transport.set_queue(CONTROL, CONTROL_ENTRIES, control.addresses(rings.physical));
    }
    transport.set_status(agreed | status::DRIVER_OK);
    Ok(Queues { receive, transmit, control, tells_link: features & TELLS_LINK != 0 })
}
