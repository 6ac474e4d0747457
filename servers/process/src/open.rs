//! The open descriptions of this server: pipe ends, event counters, timers, process handles and
//! sockets, and who holds them. How pipes are made, and what is different about named ones, is in
//! `open/pipes.rs`.
//!
//! Invariants: a description lives while somebody holds it; a pipe lives while one of its ends
//! does, and a socket that was not accepted while its listener does; ids are never used again.
//! Operations never wait: they say `WouldBlock`, and name in `changed` every description of which
//! something may hold now that did not before.
//!
//! What lies in a message is held by that, and what only such messages hold that nobody can receive
//! is closed. A ticket of another server is in `tickets` from when its message was sent until who
//! received it has said that it was claimed.

mod pipes;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use channel::{Holders, IN_FLIGHT};
use contracts::descriptions::{
    DescriptionError as Error, DescriptionId, Kind, Origin, RIGHTS_MAX, Right, may_have, ready,
};
use contracts::process::{Credentials, ProcessId, TimerStart, TimerState};
use contracts::sockets::{LocalAddress, Received, SocketKind};
use counter::{BYTES, Counter, Refused};

use crate::pipe::{self, Pipe, Room};
use crate::sockets::{ReceiveOptions, Sender, Sockets};
use crate::timer::{Now, Timers};
use pipes::{End, Named, of_reader, of_writer};

/// Pipes at once. With what they may hold this bounds the server's memory for them to 13.25 MiB of
/// its 16.
pub const PIPES_MAX: usize = 1024;
/// Pipes that hold 64 KiB, at once; those beyond hold 8 KiB.
pub const LARGE_PIPES_MAX: usize = 96;
const _: () =
    assert!(LARGE_PIPES_MAX * pipe::CAPACITY_BYTES + (PIPES_MAX - LARGE_PIPES_MAX) * pipe::SMALL_BYTES <= 14 << 20);
/// Event counters at once, some 100 bytes each.
pub const EVENTS_MAX: usize = 4096;
/// Timers at once: those of one client, which may have half, wake the server up to 2,000 times a
/// second, each time for all that are due.
pub const TIMERS_MAX: usize = 1024;
/// Process handles at once, some 100 bytes each.
pub const HANDLES_MAX: usize = 4096;
/// A write of so many bytes needs no memory on its way to a pipe.
const FEW_BYTES: usize = 64;
/// Tickets of other servers on their way at once.
pub const TICKETS_MAX: usize = 4096;

#[derive(Debug)]
enum Object {
    PipeEnd {
        pipe: DescriptionId,
        reads: bool,
    },
    /// Of a named pipe.
    NamedEnd(End),
    Event(Counter),
    /// What it counts lies in `timers`.
    Timer {
        is_of_day: bool,
    },
    /// As servers know the process, whose id may be another's one day.
    Process {
        id: ProcessId,
        client: u64,
        is_over: bool,
    },
    Socket,
}

#[derive(Debug)]
struct Open {
    object: Object,
    holders: Holders,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Descriptions {
    all: BTreeMap<DescriptionId, Open>,
    /// By the id of their reading end; the writing end's is the next. A named one has such ids too,
    /// which are no description's.
    pipes: BTreeMap<DescriptionId, Pipe>,
    named: BTreeMap<DescriptionId, Named>,
    large_pipes: usize,
    events: usize,
    timers: Timers<DescriptionId>,
    handles: usize,
    sockets: Sockets,
    /// The server whose ticket it is, and the client that received it and has not claimed it yet.
    tickets: BTreeMap<u64, (Origin, Option<u64>)>,
    settled: Vec<(Origin, u64)>,
    last_id: DescriptionId,
    changed: Vec<DescriptionId>,
}

impl Descriptions {
    /// Puts into `changed`, which is empty, who must look again since this was asked last.
    pub fn move_changed(&mut self, changed: &mut Vec<DescriptionId>) {
        if !self.sockets.changed.is_empty() {
            self.changed.append(&mut self.sockets.changed);
        }
        core::mem::swap(&mut self.changed, changed);
    }

    /// Has something changed, or is there word, since this was asked last?
    pub fn has_news(&self) -> bool {
        !self.changed.is_empty() || !self.sockets.changed.is_empty() || self.has_word()
    }

    /// Are there settled tickets, or lines for the log?
    pub fn has_word(&self) -> bool {
        !self.settled.is_empty() || !self.sockets.logged.is_empty()
    }

    /// Tickets that are done with since this was asked last.
    pub fn take_settled(&mut self) -> Vec<(Origin, u64)> {
        core::mem::take(&mut self.settled)
    }

    /// Lines for the machine's log since this was asked last, and of which process.
    pub fn take_logged(&mut self) -> Vec<(ProcessId, String)> {
        core::mem::take(&mut self.sockets.logged)
    }

    /// What is sent to the socket of this file is for the log.
    pub fn open_log(&mut self, file: u64) {
        let ids = [self.last_id + 1, self.last_id + 2];
        self.last_id += 2;
        self.sockets.open_log(file, ids);
    }

    fn add(&mut self, client: u64, object: Object) -> DescriptionId {
        self.last_id += 1;
        self.all.insert(self.last_id, Open { object, holders: Holders::of(client) });
        self.last_id
    }

    /// A new event counter. `TooMany`.
    pub fn event(&mut self, client: u64, count: u64, is_semaphore: bool) -> Result<DescriptionId, Error> {
        let is_own = |open: &&Open| matches!(open.object, Object::Event(_)) && open.holders.contains(client);
        if !may_have(EVENTS_MAX, self.events, || self.all.values().filter(is_own).count()) {
            return Err(Error::TooMany);
        }
        self.events += 1;
        Ok(self.add(client, Object::Event(Counter::new(count, is_semaphore))))
    }

    /// A new timer. `TooMany`.
    pub fn timer(&mut self, client: u64, is_of_day: bool) -> Result<DescriptionId, Error> {
        let is_own = |open: &&Open| matches!(open.object, Object::Timer { .. }) && open.holders.contains(client);
        if !may_have(TIMERS_MAX, self.timers.count(), || self.all.values().filter(is_own).count()) {
            return Err(Error::TooMany);
        }
        let id = self.add(client, Object::Timer { is_of_day });
        self.timers.set(id, Now::default(), TimerStart::Never, 0);
        Ok(id)
    }

    /// Is it a timer, and one of the day? `BadId`, `Invalid` for what is none.
    pub fn is_of_day(&mut self, client: u64, id: DescriptionId) -> Result<bool, Error> {
        match self.held(client, id)? {
            Object::Timer { is_of_day } => Ok(*is_of_day),
            _ => Err(Error::Invalid),
        }
    }

    /// Sets a timer, which exists. What it counted is gone.
    pub fn set_timer(&mut self, id: DescriptionId, now: Now, start: TimerStart, interval_ns: u64) -> TimerState {
        let before = self.timers.set(id, now, start, interval_ns);
        self.expire(now.ns);
        before
    }

    /// How a timer stands.
    pub fn timer_state(&self, id: DescriptionId, now_ns: u64) -> TimerState {
        self.timers.state(id, now_ns)
    }

    /// When to call [`expire`](Self::expire) next.
    pub fn next_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// It is so late now.
    pub fn expire(&mut self, now_ns: u64) {
        let expired = self.timers.expire(now_ns);
        self.changed.extend(expired);
    }

    /// A handle of a process. `TooMany`.
    pub fn handle(&mut self, client: u64, id: ProcessId, of: u64, is_over: bool) -> Result<DescriptionId, Error> {
        let is_own = |open: &&Open| matches!(open.object, Object::Process { .. }) && open.holders.contains(client);
        if !may_have(HANDLES_MAX, self.handles, || self.all.values().filter(is_own).count()) {
            return Err(Error::TooMany);
        }
        self.handles += 1;
        Ok(self.add(client, Object::Process { id, client: of, is_over }))
    }

    /// Id of a handle's process, and what servers know it as. `BadId`, `Invalid` for what is none.
    pub fn process_of(&mut self, client: u64, id: DescriptionId) -> Result<(ProcessId, u64), Error> {
        match self.held(client, id)? {
            Object::Process { id, client, .. } => Ok((*id, *client)),
            _ => Err(Error::Invalid),
        }
    }

    /// A process ended.
    pub fn process_ended(&mut self, of: u64) {
        if self.handles == 0 {
            return;
        }
        for (id, open) in &mut self.all {
            if let Object::Process { client, is_over, .. } = &mut open.object
                && *client == of
            {
                *is_over = true;
                self.changed.push(*id);
            }
        }
    }

    /// A new socket of that process. `TooMany`.
    pub fn socket(&mut self, client: u64, kind: SocketKind, owner: Credentials) -> Result<DescriptionId, Error> {
        self.sockets.room(1)?;
        let id = self.add(client, Object::Socket);
        self.sockets.add(id, kind, owner);
        Ok(id)
    }

    /// Two that are connected. `TooMany`.
    pub fn pair(
        &mut self,
        client: u64,
        kind: SocketKind,
        owner: Credentials,
    ) -> Result<(DescriptionId, DescriptionId), Error> {
        self.sockets.room(2)?;
        let ids = [(); 2].map(|()| self.add(client, Object::Socket));
        ids.into_iter().for_each(|id| self.sockets.add(id, kind, owner));
        self.sockets.join(ids);
        Ok((ids[0], ids[1]))
    }

    /// Takes the oldest connection that waits at a listener.
    pub fn accept(&mut self, client: u64, id: DescriptionId) -> Result<DescriptionId, Error> {
        let taken = self.sockets(client, id)?.accept(id)?;
        self.all.insert(taken, Open { object: Object::Socket, holders: Holders::of(client) });
        Ok(taken)
    }

    /// Connects a socket.
    pub fn connect(
        &mut self,
        client: u64,
        id: DescriptionId,
        to: &LocalAddress,
        owner: Credentials,
    ) -> Result<(), Error> {
        let other_end = self.last_id + 1;
        self.sockets(client, id)?.connect(id, to, owner, other_end)?;
        self.last_id = other_end;
        Ok(())
    }

    /// Sends from a socket; rights at this server are to be the client's own.
    pub fn send(
        &mut self,
        client: u64,
        id: DescriptionId,
        sender: &Sender<'_>,
        offered: usize,
        get: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        self.sockets(client, id)?;
        if sender.rights.len() > RIGHTS_MAX || self.tickets.len() + sender.rights.len() > TICKETS_MAX {
            return Err(Error::TooMany);
        }
        for right in sender.rights {
            match right.origin {
                Origin::Process => self.check(client, right.token)?,
                Origin::Console => {}
                _ if self.tickets.contains_key(&right.token) => return Err(Error::Invalid),
                Origin::Files | Origin::Network | Origin::Volume => {}
            }
        }
        let sent = self.sockets.send(id, sender, offered, get)?;
        if sent > 0 || self.sockets.kind(id)? != SocketKind::Stream {
            sender.rights.iter().for_each(|right| self.put_in_flight(right));
            self.release_lost();
        } else {
            // No byte of a stream, which carries nothing.
            self.lose(sender.rights);
        }
        Ok(sent)
    }

    /// Counts a right as in flight.
    fn put_in_flight(&mut self, right: &Right) {
        match right.origin {
            Origin::Process => self.all.get_mut(&right.token).into_iter().for_each(|open| open.holders.add(IN_FLIGHT)),
            Origin::Console => {}
            _ => drop(self.tickets.insert(right.token, (right.origin, None))),
        }
    }

    /// Settles the tickets of rights that were not sent.
    pub fn lose(&mut self, rights: &[Right]) {
        let strange = rights.iter().filter(|right| !self.tickets.contains_key(&right.token));
        let tickets = strange.filter(|right| matches!(right.origin, Origin::Files | Origin::Network | Origin::Volume));
        self.settled.extend(tickets.map(|right| (right.origin, right.token)));
    }

    /// Receives at a socket.
    pub fn receive(
        &mut self,
        client: u64,
        id: DescriptionId,
        options: ReceiveOptions,
        put: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<Received, Error> {
        let got = self.sockets(client, id)?.receive(id, options, put)?;
        for right in &got.rights {
            match right.origin {
                Origin::Process => {
                    if let Some(open) = self.all.get_mut(&right.token) {
                        open.holders.add(client);
                    }
                    if !options.peek {
                        self.take_from_flight(right.token);
                    }
                }
                Origin::Console => {}
                Origin::Files | Origin::Network | Origin::Volume if options.peek => {}
                Origin::Files | Origin::Network | Origin::Volume => {
                    self.tickets.insert(right.token, (right.origin, Some(client)));
                }
            }
        }
        self.release_lost();
        Ok(got)
    }

    /// Those of these tickets that may still be claimed.
    pub fn unsettled(&self, tickets: &[u64]) -> Vec<u64> {
        tickets.iter().copied().filter(|ticket| self.tickets.contains_key(ticket)).collect()
    }

    /// A client claimed what it wants of what it received.
    pub fn claimed(&mut self, client: u64, tickets: &[u64]) {
        for ticket in tickets {
            if let Some((origin, Some(receiver))) = self.tickets.get(ticket)
                && *receiver == client
            {
                self.settled.push((*origin, *ticket));
                self.tickets.remove(ticket);
            }
        }
    }

    fn take_from_flight(&mut self, id: DescriptionId) {
        if let Some(open) = self.all.get_mut(&id) {
            open.holders.remove(IN_FLIGHT);
        }
        self.release_unheld(id);
    }

    /// Releases rights in messages that are lost, and what they held with them.
    fn release_lost(&mut self) {
        while let Some(right) = self.sockets.lost.pop() {
            match right.origin {
                Origin::Process => self.take_from_flight(right.token),
                Origin::Console => {}
                Origin::Files | Origin::Network | Origin::Volume => {
                    self.tickets.remove(&right.token);
                    self.settled.push((right.origin, right.token));
                }
            }
        }
    }

    /// Collects sockets that only messages in flight hold: empties those that are reached from each
    /// other alone, which closes them. Linux has a collector for them too.
    fn collect(&mut self) {
        let is_in_flight_only = |open: &Open| !open.holders.has_client();
        let in_flight = self.all.iter().filter(|(_, open)| is_in_flight_only(open));
        let mut unreached: BTreeSet<_> = in_flight.map(|(id, _)| *id).collect();
        let mut reached: Vec<_> = self.all.keys().filter(|id| !unreached.contains(id)).copied().collect();
        while let Some(id) = reached.pop() {
            let held = self.sockets.rights_at(id).into_iter().filter(|right| right.origin == Origin::Process);
            reached.extend(held.map(|right| right.token).filter(|id| unreached.remove(id)));
        }
        unreached.into_iter().for_each(|id| self.sockets.empty(id));
    }

    /// The sockets, for a client that holds this one. `BadId`, `NotSupported` for what is none.
    pub fn sockets(&mut self, client: u64, id: DescriptionId) -> Result<&mut Sockets, Error> {
        match self.held(client, id)? {
            Object::Socket => Ok(&mut self.sockets),
            _ => Err(Error::NotSupported),
        }
    }

    /// Whether the client holds it. `BadId`.
    pub fn check(&self, client: u64, id: DescriptionId) -> Result<(), Error> {
        self.all.get(&id).filter(|open| open.holders.contains(client)).map(drop).ok_or(Error::BadId)
    }

    fn held(&mut self, client: u64, id: DescriptionId) -> Result<&mut Object, Error> {
        let open = self.all.get_mut(&id).filter(|open| open.holders.contains(client)).ok_or(Error::BadId)?;
        Ok(&mut open.object)
    }

    /// Reads at most `room` bytes, which `put` takes with where they belong; it says `false` if it
    /// cannot, and then nothing is read: `Invalid`. 0 is the end.
    pub fn read(
        &mut self,
        client: u64,
        id: DescriptionId,
        room: usize,
        now_ns: u64,
        mut put: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<usize, Error> {
        let pipe = match self.held(client, id)? {
            Object::PipeEnd { reads: false, .. } | Object::NamedEnd(End { reads: false, .. }) => {
                return Err(Error::BadId);
            }
            Object::Process { .. } => return Err(Error::Invalid),
            Object::Timer { .. } => {
                if room < BYTES || !put(0, &[0; BYTES]) {
                    return Err(Error::Invalid);
                }
                return match self.timers.take(id, now_ns) {
                    0 => Err(Error::WouldBlock),
                    times => {
                        put(0, &times.to_ne_bytes());
                        Ok(BYTES)
                    }
                };
            }
            Object::Socket => {
                let got = self.receive(client, id, ReceiveOptions { room, ..ReceiveOptions::default() }, put)?;
                return Ok(got.bytes as usize);
            }
            Object::PipeEnd { pipe, .. } | Object::NamedEnd(End { pipe, .. }) => *pipe,
            Object::Event(event) => {
                if room < BYTES || !put(0, &[0; BYTES]) {
                    return Err(Error::Invalid);
                }
                put(0, &event.take().ok_or(Error::WouldBlock)?.to_ne_bytes());
                self.changed.push(id);
                return Ok(BYTES);
            }
        };
        let content = self.pipes.get_mut(&pipe).ok_or(Error::Failed)?;
        let count = match content.readable(room) {
            Room::Bytes(count) => count,
            Room::Over => return Ok(0),
            Room::Wait => return Err(Error::WouldBlock),
        };
        let [first, second] = content.front(count);
        if !put(0, first) || !second.is_empty() && !put(first.len(), second) {
            return Err(Error::Invalid);
        }
        content.remove(count);
        self.tell_end(pipe, false);
        Ok(count)
    }

    /// Shows what lies in a pipe from its byte `from` on, as `read` does, and takes nothing.
    /// `NotSeekable` for what is no pipe's end.
    pub fn peek(
        &mut self,
        client: u64,
        id: DescriptionId,
        from: u64,
        room: usize,
        mut put: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<usize, Error> {
        let pipe = match self.held(client, id)? {
            Object::PipeEnd { reads: true, pipe } | Object::NamedEnd(End { reads: true, pipe, .. }) => *pipe,
            Object::PipeEnd { .. } | Object::NamedEnd(_) => return Err(Error::BadId),
            _ => return Err(Error::NotSeekable),
        };
        let pipe = self.pipes.get(&pipe).ok_or(Error::Failed)?;
        let skipped = usize::try_from(from).ok().filter(|from| *from < pipe.held() || *from == 0);
        let Some(skipped) = skipped else { return Err(Error::WouldBlock) };
        match pipe.readable(skipped.saturating_add(room)) {
            Room::Over => Ok(0),
            Room::Wait => Err(Error::WouldBlock),
            Room::Bytes(count) => {
                let mut place = 0;
                let mut left = skipped;
                for part in pipe.front(count) {
                    let shown = &part[left.min(part.len())..];
                    left -= left.min(part.len());
                    if !shown.is_empty() && !put(place, shown) {
                        return Err(Error::Invalid);
                    }
                    place += shown.len();
                }
                Ok(place)
            }
        }
    }

    /// Writes bytes of the `offered` ones, of `writer`, which `get` fetches; it says
    /// `false` if it cannot, and then nothing is written: `Invalid`.
    pub fn write(
        &mut self,
        client: u64,
        id: DescriptionId,
        writer: impl FnOnce() -> Credentials,
        offered: usize,
        get: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        let pipe = match self.held(client, id)? {
            Object::Socket => {
                return self.sockets.send(id, &Sender { who: writer(), ..Sender::default() }, offered, get);
            }
            Object::PipeEnd { reads: true, .. } | Object::NamedEnd(End { writes: false, .. }) => {
                return Err(Error::BadId);
            }
            Object::Timer { .. } | Object::Process { .. } => return Err(Error::Invalid),
            Object::PipeEnd { pipe, .. } | Object::NamedEnd(End { pipe, .. }) => *pipe,
            Object::Event(event) => {
                if offered < BYTES {
                    return Err(Error::Invalid);
                }
                let mut bytes = [0; BYTES];
                if !get(&mut bytes) {
                    return Err(Error::Invalid);
                }
                event.add(u64::from_ne_bytes(bytes)).map_err(|refused| match refused {
                    Refused::TooLarge => Error::Invalid,
                    Refused::Full => Error::WouldBlock,
                })?;
                self.changed.push(id);
                return Ok(BYTES);
            }
        };
        let content = self.pipes.get_mut(&pipe).ok_or(Error::Failed)?;
        let count = match content.writable(offered) {
            Room::Bytes(count) => count,
            Room::Over => return Err(Error::BrokenPipe),
            Room::Wait => return Err(Error::WouldBlock),
        };
        let (mut few, mut many) = ([0; FEW_BYTES], Vec::new());
        let bytes = if count <= FEW_BYTES {
            &mut few[..count]
        } else {
            many.resize(count, 0);
            &mut many[..]
        };
        if !get(bytes) {
            return Err(Error::Invalid);
        }
        content.put(bytes);
        self.tell_end(pipe, true);
        Ok(count)
    }

    /// Who has that end of a pipe must look again.
    fn tell_end(&mut self, pipe: DescriptionId, reads: bool) {
        match self.named.get(&pipe) {
            Some(named) => self.changed.extend(&named.ends),
            None => self.changed.push(if reads { pipe } else { pipe + 1 }),
        }
    }

    /// Bytes that can be read now. `NotTerminal` for what holds none.
    pub fn available(&mut self, client: u64, id: DescriptionId) -> Result<usize, Error> {
        match self.held(client, id)? {
            Object::PipeEnd { pipe, reads: true } | Object::NamedEnd(End { pipe, reads: true, .. }) => {
                let pipe = *pipe;
                Ok(self.pipes.get(&pipe).map_or(0, Pipe::held))
            }
            Object::Socket => self.sockets.available(id),
            _ => Err(Error::NotTerminal),
        }
    }

    /// What it is.
    pub fn kind(&mut self, client: u64, id: DescriptionId) -> Result<Kind, Error> {
        Ok(match self.held(client, id)? {
            Object::PipeEnd { .. } | Object::NamedEnd(_) => Kind::Pipe,
            Object::Event(_) | Object::Timer { .. } | Object::Process { .. } => Kind::Anonymous,
            Object::Socket => Kind::Socket,
        })
    }

    /// Which of `mask` holds now, and errors and hang-ups anyway.
    pub fn ready(&self, id: DescriptionId, mask: u32) -> u32 {
        let found = match self.all.get(&id).map(|open| &open.object) {
            Some(Object::Event(event)) => {
                let reads = if event.is_readable() { ready::READ } else { 0 };
                reads | if event.is_writable() { ready::WRITE } else { 0 }
            }
            Some(Object::Timer { .. }) if self.timers.has_expired(id) => ready::READ,
            Some(Object::Process { is_over: true, .. }) => ready::READ,
            Some(Object::Timer { .. } | Object::Process { .. }) => 0,
            Some(Object::Socket) => self.sockets.ready(id),
            Some(Object::PipeEnd { pipe, reads }) => {
                self.pipes.get(pipe).map_or(0, |pipe| if *reads { of_reader(pipe) } else { of_writer(pipe) })
            }
            Some(Object::NamedEnd(end)) => self.ready_named(end),
            None => 0,
        };
        found & (mask | ready::ERROR | ready::HANGUP)
    }

    /// A client gives a reference back. `BadId`.
    pub fn close(&mut self, client: u64, id: DescriptionId) -> Result<(), Error> {
        let open = self.all.get_mut(&id).ok_or(Error::BadId)?;
        if !open.holders.remove(client) {
            return Err(Error::BadId);
        }
        let is_in_flight_only = !open.holders.has_client() && !open.holders.is_empty();
        self.released(&[id], is_in_flight_only);
        Ok(())
    }

    /// Destroys those of these that nobody holds any more; `any_in_flight`: messages alone hold
    /// some.
    fn released(&mut self, ids: &[DescriptionId], any_in_flight: bool) {
        ids.iter().for_each(|id| self.release_unheld(*id));
        self.release_lost();
        if any_in_flight {
            self.collect();
            self.release_lost();
        }
    }

    fn release_unheld(&mut self, id: DescriptionId) {
        if self.all.get(&id).is_none_or(|open| !open.holders.is_empty()) {
            return;
        }
        self.changed.push(id);
        match self.all.remove(&id).map(|open| open.object) {
            Some(Object::Event(_)) => self.events -= 1,
            Some(Object::Timer { .. }) => self.timers.remove(id),
            Some(Object::Process { .. }) => self.handles -= 1,
            Some(Object::Socket) => self.sockets.close(id),
            Some(Object::PipeEnd { pipe, reads }) => self.close_end(pipe, reads),
            Some(Object::NamedEnd(end)) => self.close_named(id, &end),
            None => {}
        }
    }

    fn close_end(&mut self, pipe: DescriptionId, reads: bool) {
        let Some(content) = self.pipes.get_mut(&pipe) else { return };
        *(if reads { &mut content.readers_gone } else { &mut content.writers_gone }) = true;
        if content.readers_gone && content.writers_gone {
            self.large_pipes -= usize::from(!content.is_small());
            self.pipes.remove(&pipe);
        } else {
            self.changed.push(if reads { pipe + 1 } else { pipe });
        }
    }

    /// A child gets a reference to each description of its parent's.
    pub fn inherit(&mut self, parent: u64, child: u64) {
        self.all.values_mut().for_each(|open| open.holders.inherit(parent, child));
    }

    /// Removes clients that ended, with all that they held. They are among `ids`.
    pub fn remove_clients(&mut self, ids: RangeInclusive<u64>, is_gone: impl Fn(u64) -> bool) {
        let (mut unheld, mut any_in_flight) = (Vec::new(), false);
        for (id, open) in &mut self.all {
            let gone: Vec<_> = open.holders.among(ids.clone()).filter(|client| is_gone(*client)).collect();
            for client in &gone {
                open.holders.remove_all(*client);
            }
            if open.holders.is_empty() {
                unheld.push(*id);
            }
            any_in_flight |= !gone.is_empty() && !open.holders.has_client() && !open.holders.is_empty();
        }
        self.released(&unheld, any_in_flight);
        let is_theirs =
            |receiver: &Option<u64>| receiver.is_some_and(|client| ids.contains(&client) && is_gone(client));
        let theirs = self.tickets.extract_if(.., |_, (_, receiver)| is_theirs(receiver));
        self.settled.extend(theirs.map(|(ticket, (origin, _))| (origin, ticket)));
    }
}

#[cfg(test)]
mod tests;
