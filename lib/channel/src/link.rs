//! What both sides have in common: rings, generation, doorbell, closing.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::cell::{Cell, RefCell};

use executor::PortId;
use ring::{Buffer, Header, Kind, Ordering, Reader, Refused, Writer, fence};

use crate::body::buffer;
use crate::doorbell::Doorbell;
use crate::memory::{Memory, Side};

/// Why a one-way message or event was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No room until the peer has read. Remedy: later again, or less.
    Full,
    /// The peer has left, or broke the contract. Remedy: bind again.
    Closed,
    /// Longer than a message may be. Remedy: send it as bulk.
    TooLong,
}

/// Everything needed to be one side of a channel.
pub struct Wiring {
    /// The region.
    pub memory: Memory,
    /// How to ring the peer.
    pub doorbell: Doorbell,
    /// Badge bits with which the peer's ringing arrives.
    pub badge: u64,
    /// The peer is on another core.
    pub remote: bool,
    /// The peer's component name.
    pub peer: String,
    /// The set of channels it belongs to, if one client after another uses that; else 0.
    pub peer_set: u32,
}

/// What changed since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// A new generation; rings are at their start again.
    Restarted,
    /// The peer left, or the channel was closed from here.
    Closed,
}

/// How servers name the client that has a set of channels in a generation: alike at all of them,
/// and never the same again. A client that spoils the generation in its memory becomes a client
/// that holds nothing.
pub const fn client_id(set: u32, generation: u32) -> u64 {
    if set == 0 { 0 } else { (set as u64) << 32 | generation as u64 }
}

pub(crate) struct Link {
    pub memory: Memory,
    side: Side,
    doorbell: Doorbell,
    pub badge: u64,
    pub remote: bool,
    pub peer: String,
    peer_set: u32,
    generation: Cell<u32>,
    writer: RefCell<Writer>,
    /// Writer's position at the last ring, or when none was needed.
    rung_at: Cell<u32>,
    reader: RefCell<Reader>,
    received: RefCell<Box<Buffer>>,
    /// For encoding what is sent.
    pub scratch: RefCell<Box<Buffer>>,
    closed: Cell<bool>,
    port: Cell<Option<PortId>>,
    hash: Cell<u64>,
}

impl Link {
    pub fn new(side: Side, wiring: Wiring) -> Link {
        let Wiring { memory, doorbell, badge, remote, peer, peer_set } = wiring;
        let generation = memory.generation();
        Link {
            writer: RefCell::new(Writer::new(generation)),
            reader: RefCell::new(Reader::new(generation, memory.index(side.other()))),
            received: RefCell::new(buffer()),
            scratch: RefCell::new(buffer()),
            generation: Cell::new(generation),
            rung_at: Cell::new(0),
            closed: Cell::new(false),
            port: Cell::new(None),
            hash: Cell::new(0),
            memory,
            side,
            doorbell,
            badge,
            remote,
            peer,
            peer_set,
        }
    }

    /// What rings the peer.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell
    }

    /// The peer as it is now.
    pub fn peer_id(&self) -> u64 {
        client_id(self.peer_set, self.generation.get())
    }

    /// The names of all who ever had the channel.
    pub fn peer_ids(&self) -> core::ops::RangeInclusive<u64> {
        client_id(self.peer_set, 0)..=client_id(self.peer_set, u32::MAX)
    }

    /// The set it belongs to; 0: none.
    pub fn set(&self) -> u32 {
        self.peer_set
    }

    /// The generation as it was seen last.
    pub fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// Is the peer one program after another?
    pub fn is_a_programs(&self) -> bool {
        self.peer_set != 0
    }

    /// See [`crate::Peer::was`].
    pub fn peer_was(&self, id: u64) -> bool {
        id == client_id(self.peer_set, id as u32) && (self.peer_set == 0 || self.closed.get() || id != self.peer_id())
    }

    pub fn registered(&self, port: PortId) {
        self.port.set(Some(port));
    }

    pub fn unregister(&self) {
        if let Some(port) = self.port.take() {
            executor::unregister(port);
        }
    }

    /// Announces which contract this side speaks.
    pub fn bind(&self, hash: u64) {
        self.hash.set(hash);
        self.memory.hash(self.side).store(hash, Ordering::Release);
    }

    /// Looks for a new generation or a peer that left.
    pub fn change(&self) -> Change {
        let generation = self.memory.generation();
        if generation != self.generation.get() {
            self.generation.set(generation);
            self.writer.replace(Writer::new(generation));
            self.reader.replace(Reader::new(generation, self.memory.index(self.side.other())));
            self.closed.set(false);
            self.bind(self.hash.get());
            return Change::Restarted;
        }
        if self.closed.get() {
            return Change::Nothing;
        }
        if self.memory.is_closed_in(self.side.other(), generation)
            && !self.reader.borrow().ready(self.memory.ring(self.side.other()))
        {
            self.closed.set(true);
            return Change::Closed;
        }
        Change::Nothing
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Did the monitor take the channel apart?
    pub fn is_ended(&self) -> bool {
        self.memory.is_ended()
    }

    /// Ends the channel from this side; the peer is told.
    pub fn close(&self) {
        self.closed.set(true);
        if self.generation.get() == self.memory.generation() {
            self.memory.close(self.side);
        }
        self.mark();
    }

    /// The peer wrote what no correct peer writes: said once, and the channel is over.
    pub fn broken(&self) {
        if !self.closed.get() {
            let _ = sys::log(&format!("channel: {} broke the contract, closed", self.peer));
            self.close();
        }
    }

    /// Sends; rings the peer at the end of the turn.
    pub fn send(&self, header: Header, body: &[u8]) -> Result<(), SendError> {
        self.write(header, body)?;
        self.mark();
        Ok(())
    }

    /// Answers. A client that is awake looks for the answer by itself.
    pub fn reply(&self, header: Header, body: &[u8]) -> Result<(), SendError> {
        self.write(header, body)?;
        // As in `flush`.
        fence(Ordering::SeqCst);
        if self.memory.asleep(self.side.other()).load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.port.get() {
            // One on this core mostly asks again when the server sleeps, and rings.
            Some(port) if !self.remote => executor::announce(port),
            _ => self.mark(),
        }
        Ok(())
    }

    /// Sends without ringing: the caller sees to that.
    pub fn write(&self, header: Header, body: &[u8]) -> Result<(), SendError> {
        if self.closed.get() {
            return Err(SendError::Closed);
        }
        let mut writer = self.writer.borrow_mut();
        let (slots, index) = (self.memory.ring(self.side), self.memory.index(self.side));
        let before = writer.position();
        let mut sent = writer.write(slots, index, header, body);
        if sent == Err(Refused::Full) {
            self.memory.wants_room(self.side).store(1, Ordering::Relaxed);
            // Either the reader sees the wish or we see the room.
            fence(Ordering::SeqCst);
            sent = writer.write(slots, index, header, body);
        }
        // A caller that waits for a reply on this core sleeps, or donates its time to us and runs
        // when we sleep.
        if header.kind == Kind::Reply && !self.remote && self.rung_at.get() == before {
            self.rung_at.set(writer.position());
        }
        drop(writer);
        match sent {
            Ok(()) => Ok(()),
            Err(Refused::Full) => Err(SendError::Full),
            Err(Refused::TooLong) => Err(SendError::TooLong),
            Err(Refused::Broken) => {
                self.broken();
                Err(SendError::Closed)
            }
        }
    }

    /// Takes messages until none is left, `limit` are taken or `take` finds one broken.
    pub fn receive(&self, limit: usize, mut take: impl FnMut(Header, &[u8]) -> Result<(), ring::Broken>) {
        let from = self.side.other();
        let (slots, index) = (self.memory.ring(from), self.memory.index(from));
        let mut received = self.received.borrow_mut();
        let mut any = false;
        for _ in 0..limit {
            if self.closed.get() {
                break;
            }
            let read = self.reader.borrow_mut().read(slots, index, &mut received);
            match read {
                Ok(None) => break,
                // A successor may have overwritten the slots during the copy.
                Ok(Some(_)) | Err(_) if self.overtaken() => break,
                Ok(Some((header, bytes))) => {
                    any = true;
                    if !self.same_contract() || take(header, &received.0[..bytes]).is_err() {
                        self.broken();
                    }
                }
                Err(_) => self.broken(),
            }
        }
        if any {
            self.room_made();
        }
    }

    /// Has a new generation begun? Decisive for whatever was read before.
    pub fn overtaken(&self) -> bool {
        fence(Ordering::Acquire);
        self.memory.generation() != self.generation.get()
    }

    fn same_contract(&self) -> bool {
        let theirs = self.memory.hash(self.side.other()).load(Ordering::Relaxed);
        theirs == self.hash.get()
    }

    /// Rings a writer that waits for room.
    fn room_made(&self) {
        fence(Ordering::SeqCst);
        let wish = self.memory.wants_room(self.side.other());
        if wish.load(Ordering::Relaxed) != 0 {
            wish.store(0, Ordering::Relaxed);
            self.mark();
        }
    }

    /// Rings the peer at the end of the turn, and polls the port until then.
    pub fn mark(&self) {
        if let Some(port) = self.port.get() {
            executor::mark(port);
        }
    }

    /// Is there anything to look at?
    pub fn ready(&self) -> bool {
        let (generation, from) = (self.memory.generation(), self.side.other());
        generation != self.generation.get()
            || !self.closed.get()
                && (self.reader.borrow().ready(self.memory.ring(from)) || self.memory.is_closed_in(from, generation))
    }

    /// Has the reader made room since a message was refused as `Full`?
    pub fn room_came(&self) -> bool {
        self.memory.wants_room(self.side).load(Ordering::Relaxed) == 0
    }

    /// Has the peer ring from now on; true if it is to be nudged.
    pub fn arm(&self) -> bool {
        self.memory.asleep(self.side).store(1, Ordering::Relaxed);
        // A side that sleeps while the peer, awake as it says, has not taken everything sets its
        // bits once: a peer that hangs then has something pending and the kernel's watch sees it;
        // for one that is only busy it is a needless notification. While a full ring is waited for
        // nothing new can be sent, and the bits of before may have been taken without a look at the
        // ring: then they are set each time.
        let writer = self.writer.borrow();
        let is_behind = (self.rung_at.get() != writer.position() || !self.room_came())
            && !self.closed.get()
            && writer.is_unread(self.memory.index(self.side));
        if is_behind {
            self.rung_at.set(writer.position());
        }
        is_behind
    }

    /// Has the peer ring from now on; what it sent before is to be looked for then.
    pub fn arm_to_look(&self) {
        if self.arm() {
            self.nudge();
        }
        // The peer either sees the announcement or we see what it sent.
        fence(Ordering::SeqCst);
    }

    /// Sets the peer's bits without donating time to it.
    pub fn nudge(&self) {
        self.doorbell.nudge();
    }

    /// Was the peer told to ring, and has not?
    pub fn is_armed(&self) -> bool {
        self.memory.asleep(self.side).load(Ordering::Relaxed) != 0
    }

    pub fn disarm(&self) {
        self.memory.asleep(self.side).store(0, Ordering::Relaxed);
    }

    /// Rings the peer if it sleeps.
    #[inline(always)]
    pub fn flush(&self) {
        // Either the peer sees what was sent when it looks again before sleeping, or we see that it
        // sleeps.
        fence(Ordering::SeqCst);
        if self.memory.asleep(self.side.other()).load(Ordering::Relaxed) != 0 {
            self.wake_peer();
        }
    }

    /// Mostly the peer is awake: apart, so that looking whether it sleeps stays short.
    #[inline(never)]
    fn wake_peer(&self) {
        self.memory.asleep(self.side.other()).store(0, Ordering::Relaxed);
        self.rung_at.set(self.writer.borrow().position());
        self.doorbell.ring();
    }
}

#[cfg(test)]
mod tests;
