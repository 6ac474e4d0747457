//! The driver as a step machine: device and clients' requests in, frames and free buffers out.
//!
//! It is made of two, `receive.rs` and `transmit.rs`, of which each reaches its own queue only.
//! What both queues have in common is here: start and reset, link, settings.

use alloc::vec::Vec;
use packet::{BufferSet, Memory, Span};
use virtio::handler::Handler;
use virtio::pool_queue::{
    self, Broken, Descriptor, ENTRIES, INDEX_OFFSET, QUEUE_BYTES, Queue, Target, USED_OFFSET, Unlike,
};
use virtio::takeover::{self, Unfit};
use virtio::transport::{DeviceOwner, QueueAddresses, ResetError, Transport, reset, run, status, stop};

use crate::control::{self, CONTROL_BYTES, Control, ENTRIES as CONTROL_ENTRIES, Told};
use crate::journal::{JOURNAL_BYTES, Journal, Left};
use crate::receive::{self, Receive};
use crate::transmit::{self, Frames, Transmit};

/// Bytes of the header before each frame (section 5.1.6, with VIRTIO_F_VERSION_1).
pub const HEADER_BYTES: usize = 12;
/// Bytes the ring region must have.
pub const RING_BYTES: usize = CONTROL_OFFSET + 2 * CONTROL_BYTES;
/// Both queues. There are two halves, used in turn: where the device has to be reset, new queues
/// are ready before the old ones are given up.
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
/// Number of the transmit queue.
pub const TRANSMIT: u16 = 1;
const CONTROL: u16 = 2;
/// Low byte of the status in the device's configuration, and its bit for the link (section 5.1.4).
const STATUS_OFFSET: u64 = 6;
const LINK_UP: u8 = 1;
/// Shortest frame that is handed on: an Ethernet header.
pub const FRAME_MIN: usize = 14;

/// Why the device did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// It does not come out of a reset as we need it.
    Reset(ResetError),
    /// A queue has fewer entries than the pools have buffers.
    Queues,
    /// The ring region is too small.
    Region,
}

impl From<ResetError> for StartError {
    fn from(error: ResetError) -> StartError {
        StartError::Reset(error)
    }
}

/// How the device was found.
pub type Found = takeover::Found<Why>;

/// Why a device was reset that had a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not as the driver left it.
    Left(Unfit),
    /// The receive queue is not.
    Receive(Unlike),
    /// The transmit queue is not.
    Transmit(Unlike),
    /// The control queue is not.
    Control,
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
    pub redelivered: u64,
    /// Spans and buffers of IP's that broke the contract.
    pub refused: u64,
    /// Times the device was started again because it said something impossible, or did nothing.
    pub restarts: u64,
}

/// The driver of one device.
pub struct Driver<T, M> {
    transport: T,
    places: Places<M>,
    half: u8,
    receive: Receive<M>,
    frames: Frames<M>,
    transmit: Transmit<M>,
    /// `None`: the device takes no settings.
    control: Option<Control<M>>,
    tells_link: bool,
    address: [u8; 6],
    attached: bool,
    /// Whether all frames are wanted, and what the device was last told and did; `Err`: it refused.
    wants_all: bool,
    promiscuous: Option<Result<bool, Refused>>,
    /// A command was given since the last `flush`.
    is_command_new: bool,
    /// The handler of what is transmitted is to be notified.
    is_handler_asked: bool,
    output: Output,
    /// The device was reset, and no IP was told so.
    is_untold: bool,
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

/// The regions of a driver.
#[derive(Clone, Debug)]
pub struct Places<M> {
    /// Queues and journal.
    pub rings: Region<M>,
    /// Physical address of the receive pool.
    pub receive: u64,
    /// The transmit pool.
    pub transmit: Region<M>,
}

impl<T: Transport, M: Memory + Clone> Driver<T, M> {
    /// Goes on with the device that a predecessor left running, if all is as it would have left it;
    /// else resets it, starts it with empty queues and takes over what had arrived. Tells which,
    /// and why.
    pub fn start(
        mut transport: T,
        places: Places<M>,
        owner: &mut dyn DeviceOwner,
    ) -> Result<(Driver<T, M>, Found), StartError> {
        let recovered = Journal::recover(places.rings.memory.clone(), JOURNAL_OFFSET);
        let (mut journal, left) = recovered.map_err(|_| StartError::Region)?;
        let adopted = left.map(|left| go_on(&mut transport, &places, &mut journal, left, owner));
        let (half, queues, found) = match (adopted, left) {
            (Some(Ok(queues)), Some(left)) => (left.half, queues, Found::Running),
            (failed, _) => {
                if left.is_none() {
                    // Nobody knows which half it works with, if any.
                    stop(&mut transport, owner)?;
                }
                let old = left.map_or(1, |left| left.half);
                let queues = start_anew(&mut transport, &places.rings, &mut journal, old, owner)?;
                (1 - old, queues, failed.and_then(Result::err).map_or(Found::Fresh, Found::Reset))
            }
        };
        let mut address = [0; 6];
        (0..).zip(&mut address).for_each(|(offset, byte)| *byte = transport.configuration(offset));
        let Queues { receive, transmit, control, told, tells_link } = queues;
        let promiscuous = told.map(|Told { on, is_done }| if is_done { Ok(on) } else { Err(Refused) });
        let [receive_bell, transmit_bell] = [RECEIVE, TRANSMIT].map(|queue| transport.doorbell(queue));
        let mut driver = Driver {
            transport,
            half,
            receive: Receive::new(receive, journal, receive_bell, places.receive),
            frames: Frames::new(&places.transmit),
            transmit: Transmit::new(transmit, transmit_bell),
            control,
            tells_link,
            places,
            address,
            attached: false,
            wants_all: false,
            promiscuous,
            is_command_new: false,
            is_handler_asked: false,
            output: Output::default(),
            is_untold: found != Found::Running,
            counters: Counters::default(),
        };
        if found == Found::Running {
            // Interrupts went nowhere for a while, and a predecessor may have died before it
            // notified.
            driver.transport.acknowledge();
            driver.receive.ring();
            driver.transmit.ring();
            if driver.control.is_some() {
                driver.transport.notify(CONTROL);
            }
        }
        driver.settle();
        Ok((driver, found))
    }

    /// The driver has served for a while: its successor may go on with the device.
    pub fn served(&mut self) {
        self.receive.journal().keep_heirs(0);
    }

    /// Whether the device asks for a reset, or was reset by somebody else.
    pub fn is_lost(&mut self) -> bool {
        self.transport.status() != status::RUNNING
    }

    /// Whether the device has frames to send; and how far it has come with such, ever.
    pub fn sending_progress(&self) -> Option<u16> {
        self.transmit.progress()
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

    /// Has the device receive all frames, or those to its address and to all; so it begins.
    /// [`promiscuous`](Self::promiscuous) tells what came of it.
    pub fn set_promiscuous(&mut self, on: bool) {
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
            self.is_command_new = true;
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
        let received = self.receive.attach(held);
        self.counters.redelivered += received.len() as u64;
        self.output = Output { received, transmitted: Vec::new() };
        self.transmit.given()
    }

    /// IP is gone: frames that arrive stay with the device's queue until the next one attaches.
    pub fn detach(&mut self) {
        if core::mem::take(&mut self.attached) {
            self.receive.journal().discard_lost();
        }
        self.output = Output::default();
    }

    /// Whether the device was reset since this was asked last: frames may be lost.
    pub fn take_reset(&mut self) -> bool {
        core::mem::take(&mut self.is_untold)
    }

    /// The epoch, which ends with a reset of the device, and how many frames it was given in it.
    pub fn next_frame(&self) -> (u32, u16) {
        (self.receive.epoch(), self.transmit.count())
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
            let described = if self.attached { self.frames.describe(frame) } else { None };
            if described.is_some_and(|descriptor| self.transmit.give(frame.buffer, descriptor)) {
                self.counters.transmitted += 1;
            } else {
                self.counters.refused += 1;
            }
        }
    }

    /// Receive buffers that IP is done with.
    pub fn release_buffers(&mut self, buffers: &[u16]) {
        for &buffer in buffers {
            self.counters.refused += u64::from(!self.receive.release(buffer));
        }
    }

    /// Answers an interrupt at the device; tells whether the link may have changed.
    pub fn acknowledge(&mut self) -> bool {
        self.transport.acknowledge()
    }

    /// Looks what the device has done. `Err`: it said something impossible and has to be started
    /// again.
    pub fn look(&mut self) -> Result<(), Broken> {
        if self.attached {
            self.receive.look(&mut self.output.received, &mut self.counters)?;
        }
        self.transmit.look(|buffer| self.output.transmitted.push(buffer))?;
        if let Some(Told { on, is_done }) = self.control.as_mut().and_then(Control::take) {
            self.promiscuous = Some(if is_done { Ok(on) } else { Err(Refused) });
            self.settle();
        }
        Ok(())
    }

    /// End of a turn: shows the device what was given and says whether to be interrupted for sent
    /// frames.
    pub fn flush(&mut self) {
        self.receive.flush();
        self.is_handler_asked |= self.transmit.flush();
        if core::mem::take(&mut self.is_command_new) {
            self.transport.notify(CONTROL);
        }
    }

    /// What to tell IP.
    pub fn take_output(&mut self) -> Output {
        core::mem::take(&mut self.output)
    }

    /// What is transmitted goes to a handler with a context of its own from here on, until
    /// [`restart`](Self::restart); this is what it needs. `None`: it does already.
    pub fn part_transmit(&mut self) -> Option<Handler<M>> {
        let [_, used_at] = self.used_words();
        self.transmit.part(self.places.rings.memory.clone(), used_at)
    }

    /// Whether the handler of what is transmitted is to be notified.
    pub fn take_handler_asked(&mut self) -> bool {
        core::mem::take(&mut self.is_handler_asked)
    }

    /// How often the doorbells of the receive and of the transmit queue rang, and an address
    /// in the stack of the context that did it last.
    pub fn ring_counts(&self) -> [(u64, u64); 2] {
        [self.receive.ring_count(), self.transmit.ring_count()]
    }

    /// Starts a device again that said something impossible or does nothing. IP's frames with it
    /// are reported as sent (they may be lost), its receive buffers are given to it again. A
    /// handler of what is transmitted must have ended, wherever it was: the driver has that queue
    /// again.
    pub fn restart(&mut self, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        self.counters.restarts += 1;
        self.is_untold = true;
        let (transport, journal) = (&mut self.transport, self.receive.journal());
        let queues = start_anew(transport, &self.places.rings, journal, self.half, owner)?;
        let [receive_bell, transmit_bell] = [RECEIVE, TRANSMIT].map(|queue| transport.doorbell(queue));
        self.half = 1 - self.half;
        let unsent = self.transmit.begin_again(queues.transmit, transmit_bell);
        (self.control, self.tells_link, self.promiscuous) = (queues.control, queues.tells_link, None);
        self.settle();
        self.output.transmitted.extend(unsent.iter());
        self.output.received.extend(self.receive.begin_again(queues.receive, receive_bell));
        Ok(())
    }
}

fn target(index: u16) -> Target {
    if index == RECEIVE { Target::Written } else { Target::Read }
}

/// Where a half of the ring region has a queue.
fn queue_offset(half: u8, index: u16) -> usize {
    usize::from(half) * HALF_BYTES + usize::from(index) * QUEUE_BYTES
}

fn control_offset(half: u8) -> usize {
    CONTROL_OFFSET + usize::from(half) * CONTROL_BYTES
}

/// What a device that was brought up works with.
struct Queues<M> {
    receive: Queue<M>,
    transmit: Queue<M>,
    /// `None`: the device takes no settings.
    control: Option<Control<M>>,
    /// Whether it was told to receive all frames, and did so; of a device that was gone on with.
    told: Option<Told>,
    tells_link: bool,
}

/// Number, entries and addresses of the queues in a half.
fn queue_places(physical: u64, half: u8) -> [(u16, u16, QueueAddresses); 3] {
    let frames = |index| (index, ENTRIES, pool_queue::addresses(queue_offset(half, index), physical));
    let control = control::addresses(control_offset(half), physical);
    [frames(RECEIVE), frames(TRANSMIT), (CONTROL, CONTROL_ENTRIES, control)]
}

/// Those that a device has which agreed on these features.
fn used_places(places: &[(u16, u16, QueueAddresses); 3], features: u64) -> &[(u16, u16, QueueAddresses)] {
    if features & TAKES_SETTINGS == 0 { &places[..2] } else { places }
}

/// Goes on with the device that a predecessor left. Believes nothing that does not fit: that a dead
/// driver's descriptors act until then is why each of them is looked at (decision 25).
fn go_on<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    places: &Places<M>,
    journal: &mut Journal<M>,
    left: Left,
    owner: &mut dyn DeviceOwner,
) -> Result<Queues<M>, Why> {
    let Places { rings, receive, transmit } = places;
    let Left { half, device } = left;
    let all = queue_places(rings.physical, half);
    let used = used_places(&all, device.features.unwrap_or(0));
    let adopted = device.adopt(transport, owner, FEATURES, used, |heirs| journal.keep_heirs(heirs));
    let features = adopted.map_err(Why::Left)?;
    let queue = |index, is_right: &dyn Fn(u16, Descriptor) -> bool, is_told: &dyn Fn(u16) -> bool| {
        let base = queue_offset(half, index);
        Queue::adopt(rings.memory.clone(), base, target(index), is_right, is_told)
    };
    let is_receive = |buffer, found| found == receive::descriptor(*receive, buffer);
    let is_transmit = |buffer, found| transmit::is_descriptor(transmit.physical, buffer, found);
    let receive = queue(RECEIVE, &is_receive, &|buffer| journal.is_told(buffer)).map_err(Why::Receive)?;
    let transmit = queue(TRANSMIT, &is_transmit, &|_| false).map_err(Why::Transmit)?;
    let (control, told) = if features & TAKES_SETTINGS == 0 {
        (None, None)
    } else {
        let adopted = Control::adopt(rings.memory.clone(), control_offset(half), rings.physical);
        let (control, told) = adopted.ok_or(Why::Control)?;
        (Some(control), told)
    };
    Ok(Queues { receive, transmit, control, told, tells_link: features & TELLS_LINK != 0 })
}

/// Resets the device, which had its queues in half `old`, starts it with empty ones in the other,
/// and takes over what had arrived. All that takes time is done before the reset: what arrives
/// between reset and DRIVER_OK is lost (QEMU's net layer flushes its queue into a device that is
/// not yet marked ready; a real card does no better).
fn start_anew<T: Transport, M: Memory + Clone>(
    transport: &mut T,
    rings: &Region<M>,
    journal: &mut Journal<M>,
    old: u8,
    owner: &mut dyn DeviceOwner,
) -> Result<Queues<M>, StartError> {
    let half = 1 - old;
    let queue = |index| {
        let queue = Queue::new(rings.memory.clone(), queue_offset(half, index), target(index));
        queue.map_err(|_| StartError::Region)
    };
    let (receive, transmit) = (queue(RECEIVE)?, queue(TRANSMIT)?);
    let control = Control::new(rings.memory.clone(), control_offset(half), rings.physical);
    let control = control.map_err(|_| StartError::Region)?;
    journal.starts(old);
    let mut features = reset(transport, FEATURES, &[TELLS_LINK, TAKES_SETTINGS], owner)?;
    if transport.queue_entries(CONTROL) < CONTROL_ENTRIES {
        // It says that it takes settings, and has no queue for them.
        features &= !TAKES_SETTINGS;
    }
    for &(index, entries, addresses) in used_places(&queue_places(rings.physical, half), features) {
        if transport.queue_entries(index) < entries {
            return Err(StartError::Queues);
        }
        transport.set_queue(index, entries, addresses);
    }
    run(transport);
    journal.take_over(queue_offset(old, RECEIVE));
    journal.runs(half, features);
    let control = (features & TAKES_SETTINGS != 0).then_some(control);
    Ok(Queues { receive, transmit, control, told: None, tells_link: features & TELLS_LINK != 0 })
}
