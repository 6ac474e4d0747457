//! A console device of several ports (virtio 1.2, section 5.3): its queues in one region, found
//! running or started anew.
//!
//! Who uses it keeps [`Positions`] where a successor finds them: what is to leave is written by
//! [`Ports::fill`], what came is looked at by [`Ports::peek`], both without an effect that the
//! device sees. Then the new positions are kept, and [`Ports::publish`] makes them true at the
//! device. So what is kept decides, and publishing again does nothing.
//!
//! A device that was not reset goes on with the queues it has: it may have read half a buffer, and
//! nobody but itself knows which half. What it tells of its ports is not asked for: they are fixed.

use packet::{Memory, OutOfBounds};

use crate::port::{Broken, ENTRIES, Position, Queue, RING_BYTES};
use crate::transport::{DeviceOwner, NotRunning, QueueAddresses, ResetError, Transport, adopt, reset, run};

/// Number of a console device (section 5).
pub const KIND: u32 = 3;

/// Where bytes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Words about the streams.
    Control,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
    /// The screen of a terminal.
    Screen,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum In {
    /// Words about the streams.
    Control,
    /// Standard input.
    Input,
    /// The keys of a terminal.
    Keys,
}

/// How many of each there are.
pub const OUTS: usize = 4;
/// See [`OUTS`].
pub const INS: usize = 3;

/// Numbers of the ports, as the host's machine has them.
const CONTROL_PORT: u16 = 1;
const INPUT_PORT: u16 = 2;
const OUTPUT_PORT: u16 = 3;
const ERROR_PORT: u16 = 4;
const TERMINAL_PORT: u16 = 5;
const PORTS: core::ops::RangeInclusive<u16> = CONTROL_PORT..=TERMINAL_PORT;

/// Port and bytes of a buffer.
const OUT: [(u16, usize); OUTS] = [(CONTROL_PORT, 64), (OUTPUT_PORT, 4096), (ERROR_PORT, 1024), (TERMINAL_PORT, 1024)];
/// The emulator hands on 4096 bytes at most at once.
const IN: [(u16, usize); INS] = [(CONTROL_PORT, 128), (INPUT_PORT, 4096), (TERMINAL_PORT, 256)];
/// The device's own: messages of ours about ports.
const MESSAGES: u16 = 3;
const MESSAGE_BYTES: usize = 8;
/// The device's messages to us. It gets no buffers, so it sends none.
const ANSWERS: u16 = 2;

/// VIRTIO_F_VERSION_1 and VIRTIO_CONSOLE_F_MULTIPORT.
const FEATURES: u64 = 1 << 32 | 1 << 1;
/// Most ports, in the device's configuration (section 5.3.4).
const PORTS_OFFSET: u64 = 4;
/// Messages of section 5.3.6.2.
const DEVICE_READY: u16 = 0;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;

const QUEUES: usize = OUTS + INS + 2;

/// First byte behind the queues and their buffers, on a page.
pub const END: usize = {
    let mut bytes = QUEUES * RING_BYTES + ENTRIES as usize * 2 * MESSAGE_BYTES;
    let mut index = 0;
    while index < OUTS {
        bytes += ENTRIES as usize * OUT[index].1;
        index += 1;
    }
    index = 0;
    while index < INS {
        bytes += ENTRIES as usize * IN[index].1;
        index += 1;
    }
    bytes.next_multiple_of(4096)
};

/// How far every stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Buffers given to the device, by [`Out`].
    pub given: [u16; OUTS],
    /// By [`In`].
    pub taken: [Position; INS],
}

/// Why the device did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// It does not come out of a reset as we need it.
    Reset(ResetError),
    /// It has too few ports or too short queues. Remedy: another device model.
    Ports,
    /// It does not take what we say about ports.
    Silent,
    /// The region is too small.
    Region,
}

impl From<ResetError> for StartError {
    fn from(error: ResetError) -> StartError {
        StartError::Reset(error)
    }
}

/// See the module's head.
pub struct Ports<T, M> {
    transport: T,
    out: [Queue<M>; OUTS],
    input: [Queue<M>; INS],
    messages: Queue<M>,
    answers: Queue<M>,
}

/// Queues of a port: from the device, to the device.
fn receive_queue(port: u16) -> u16 {
    2 + 2 * port
}

fn transmit_queue(port: u16) -> u16 {
    3 + 2 * port
}

impl<T: Transport, M: Memory + Clone> Ports<T, M> {
    /// Goes on with the device as it is, if it and its queues are as a predecessor left them that
    /// kept those positions.
    pub fn adopt(&mut self, physical: u64, kept: &Positions, owner: &mut dyn DeviceOwner) -> Result<(), NotRunning> {
        let places = self.places(physical);
        adopt(&mut self.transport, owner, FEATURES, &places)?;
        // What positions say that each queue was given; the device's own are not kept.
        let given = kept.given.into_iter().chain(kept.taken.map(|at| at.taken.wrapping_add(ENTRIES)));
        let given = given.chain([self.messages.given(), 0]);
        for ((number, queue, device_writes), given) in self.queues().zip(given) {
            if !queue.is_ours(physical, device_writes) || !queue.is_in_step(given) {
                return Err(NotRunning::Queue(number));
            }
        }
        for ((queue, at), (port, _)) in self.input.iter().zip(kept.taken).zip(IN) {
            if !queue.is_position(at) {
                return Err(NotRunning::Queue(receive_queue(port)));
            }
        }
        // Interrupts went nowhere for a while, and a predecessor may have died before it notified.
        self.transport.acknowledge();
        self.transport.notify(MESSAGES);
        self.open(kept, owner).map_err(|_| NotRunning::Queue(MESSAGES))
    }

    /// Says that we are there, and shows what positions say.
    pub fn open(&mut self, positions: &Positions, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        self.announce(owner)?;
        self.publish(positions);
        // A writer at the host that waits for room looks again.
        IN.iter().for_each(|(port, _)| self.transport.notify(receive_queue(*port)));
        OUT.iter().for_each(|(port, _)| self.transport.notify(transmit_queue(*port)));
        Ok(())
    }

    /// Over a device and its region, to be adopted or started.
    pub fn new(transport: T, memory: M) -> Ports<T, M> {
        let (mut ring, mut buffers) = (0, QUEUES * RING_BYTES);
        let mut queue = |buffer_bytes: usize| {
            let queue = Queue::new(memory.clone(), ring, buffers, buffer_bytes);
            (ring, buffers) = (ring + RING_BYTES, buffers + usize::from(ENTRIES) * buffer_bytes);
            queue
        };
        let out = OUT.map(|(_, bytes)| queue(bytes));
        let input = IN.map(|(_, bytes)| queue(bytes));
        Ports { transport, out, input, messages: queue(MESSAGE_BYTES), answers: queue(MESSAGE_BYTES) }
    }

    fn queues(&self) -> impl Iterator<Item = (u16, &Queue<M>, bool)> {
        let out = OUT.iter().zip(&self.out).map(|((port, _), queue)| (transmit_queue(*port), queue, false));
        let input = IN.iter().zip(&self.input).map(|((port, _), queue)| (receive_queue(*port), queue, true));
        out.chain(input).chain([(MESSAGES, &self.messages, false), (ANSWERS, &self.answers, true)])
    }

    /// Number, entries and addresses of each queue.
    fn places(&self, physical: u64) -> [(u16, u16, QueueAddresses); QUEUES] {
        let mut places = [(0, ENTRIES, QueueAddresses { descriptors: 0, available: 0, used: 0 }); QUEUES];
        for ((number, _, addresses), (found, queue, _)) in places.iter_mut().zip(self.queues()) {
            (*number, *addresses) = (found, queue.addresses(physical));
        }
        places
    }

    /// Starts the device anew: positions begin at their default. Nothing comes before
    /// [`Ports::open`].
    pub fn start(&mut self, physical: u64, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        reset(&mut self.transport, FEATURES, &[], owner)?;
        let transport = &mut self.transport;
        let most =
            u16::from_le_bytes([transport.configuration(PORTS_OFFSET), transport.configuration(PORTS_OFFSET + 1)]);
        if most <= *PORTS.end() {
            return Err(StartError::Ports);
        }
        for (_, queue, device_writes) in self.queues() {
            queue.clear(physical, device_writes).map_err(|OutOfBounds| StartError::Region)?;
        }
        for (number, entries, addresses) in self.places(physical) {
            if self.transport.queue_entries(number) < entries {
                return Err(StartError::Ports);
            }
            self.transport.set_queue(number, entries, addresses);
        }
        run(&mut self.transport);
        Ok(())
    }

    /// Tells the device that we are there and have all ports open. It hears that as often as it is
    /// said.
    fn announce(&mut self, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        self.tell(0, DEVICE_READY, owner)?;
        for port in PORTS {
            self.tell(port, PORT_READY, owner)?;
            self.tell(port, PORT_OPEN, owner)?;
        }
        Ok(())
    }

    fn tell(&mut self, port: u16, event: u16, owner: &mut dyn DeviceOwner) -> Result<(), StartError> {
        let mut message = [0; MESSAGE_BYTES];
        message[..2].copy_from_slice(&port.to_le_bytes());
        message[4..6].copy_from_slice(&event.to_le_bytes());
        message[6] = 1;
        let given = self.messages.given();
        loop {
            match self.messages.fill(given, &message) {
                Ok((count, MESSAGE_BYTES)) => {
                    self.messages.give(count);
                    self.transport.notify(MESSAGES);
                    return Ok(());
                }
                Ok(_) if !owner.has_timed_out() => {}
                Ok(_) | Err(Broken) => return Err(StartError::Silent),
            }
        }
    }

    /// Writes what is to leave, as much as there is room for; gives how much.
    pub fn fill(&self, positions: &mut Positions, out: Out, bytes: &[u8]) -> Result<usize, Broken> {
        let given = &mut positions.given[out as usize];
        let (count, done) = self.out[out as usize].fill(*given, bytes)?;
        *given = count;
        Ok(done)
    }

    /// Bytes that [`Ports::fill`] takes now.
    pub fn room(&self, positions: &Positions, out: Out) -> Result<usize, Broken> {
        self.out[out as usize].room(positions.given[out as usize])
    }

    /// Has the host all that left here?
    pub fn is_drained(&self, positions: &Positions, out: Out) -> Result<bool, Broken> {
        Ok(self.out[out as usize].outstanding(positions.given[out as usize])? == 0)
    }

    /// Copies what came; gives how much, and moves the position behind it.
    pub fn peek(&self, positions: &mut Positions, from: In, into: &mut [u8]) -> Result<usize, Broken> {
        let at = &mut positions.taken[from as usize];
        let (count, after) = self.input[from as usize].peek(*at, into)?;
        *at = after;
        Ok(count)
    }

    /// Writes over what [`Ports::peek`] gives from there on, so that nothing of it is left in the
    /// queue's buffers.
    pub fn overwrite(&self, positions: &Positions, from: In, bytes: &[u8]) -> Result<(), Broken> {
        self.input[from as usize].overwrite(positions.taken[from as usize], bytes)
    }

    /// Bytes that came.
    pub fn held(&self, positions: &Positions, from: In) -> Result<usize, Broken> {
        self.input[from as usize].held(positions.taken[from as usize])
    }

    /// Makes positions true at the device.
    pub fn publish(&mut self, positions: &Positions) {
        for ((queue, given), (port, _)) in self.out.iter().zip(positions.given).zip(OUT) {
            if queue.give(given) {
                self.transport.notify(transmit_queue(port));
            }
        }
        for ((queue, at), (port, _)) in self.input.iter().zip(positions.taken).zip(IN) {
            if queue.give(at.taken.wrapping_add(ENTRIES)) {
                self.transport.notify(receive_queue(port));
            }
        }
    }

    /// Answers an interrupt at the device.
    pub fn acknowledge(&mut self) {
        self.transport.acknowledge();
    }
}

#[cfg(test)]
mod tests;
