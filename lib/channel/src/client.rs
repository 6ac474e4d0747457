//! The calling side: what happens to calls (kept in [`Table`]) as messages, restarts and ends come.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

use executor::{Port, Rank};
use ring::{Broken, Header, Kind};
use serde::Serialize;

use crate::EVENTS_LOST;
use crate::beside::Beside;
use crate::body::{Body, encode};
use crate::bulk::Bulk;
use crate::call::{Call, Failure};
use crate::link::{Change, Link, SendError, Wiring};
use crate::memory::Side;
use crate::table::{ClientEvent, State, Table};

/// Messages taken in one turn, so that one busy peer does not keep the others waiting.
const MESSAGES_PER_TURN: usize = 64;
/// Operation of a `Cancelled` whose reply was too long to be sent.
pub(crate) const REPLY_TOO_LONG: u16 = 1;

/// What every stub of the calling side can do; lets the runtime find a channel for it.
pub trait Client: Sized {
    /// The contract's name.
    const NAME: &'static str;
    /// The stub over a channel.
    fn over(channel: Rc<ClientChannel>) -> Self;
    /// That channel.
    fn channel(&self) -> &Rc<ClientChannel>;
}

/// One client's side of a channel. Shared by all stubs over it.
pub struct ClientChannel {
    inner: Rc<Inner>,
    /// See [`notify_at_once`](ClientChannel::notify_at_once).
    notifies_at_once: Cell<bool>,
}

struct Inner {
    link: Link,
    table: RefCell<Table>,
}

impl ClientChannel {
    /// Over that region. Without a contract yet: a stub's `new` binds it.
    pub fn new(wiring: Wiring) -> Rc<ClientChannel> {
        let inner = Rc::new(Inner { link: Link::new(Side::Client, wiring), table: RefCell::default() });
        inner.link.registered(executor::register(inner.clone()));
        Rc::new(ClientChannel { inner, notifies_at_once: Cell::new(false) })
    }

    /// From now on calls ring the server when they are first polled, and not with all others at the
    /// end of the turn; an answer that it makes at once is there when that poll returns. For one
    /// that makes one call at a time, of servers on its own core.
    pub fn notify_at_once(&self) {
        self.notifies_at_once.set(!self.inner.link.remote);
    }

    /// Says which contract is spoken; its hash is compared with the server's at each message. For
    /// stubs.
    pub fn bind(&self, hash: u64) {
        self.inner.link.bind(hash);
    }

    /// The channel's bulk area.
    pub fn bulk(&self) -> Bulk {
        bulk(&self.inner.link)
    }

    /// What the ends have beside messages; see there.
    pub fn beside(&self) -> Option<Beside> {
        Beside::of(&self.inner.link, &self.bulk())
    }

    /// The server's component name.
    pub fn peer(&self) -> &str {
        &self.inner.link.peer
    }

    /// The generation that this side saw last: with another one the server has been restarted.
    pub fn generation(&self) -> u32 {
        self.inner.link.generation()
    }

    /// Has the server been restarted, though this side may not have heard of it yet?
    pub fn is_overtaken(&self) -> bool {
        self.inner.link.overtaken()
    }

    /// Is it over?
    pub fn is_closed(&self) -> bool {
        self.inner.link.is_closed()
    }

    /// Sends a request. For stubs.
    pub fn call<R, E>(self: &Rc<Self>, operation: u16, repeatable: bool, arguments: &impl Serialize) -> Call<R, E> {
        let notifies_at_once = self.notifies_at_once.get();
        Call::new(
            self.clone(),
            self.inner.request(operation, repeatable, !notifies_at_once, arguments),
            notifies_at_once,
        )
    }

    /// Sends a one-way message. For stubs.
    pub fn send(&self, operation: u16, arguments: &impl Serialize) -> Result<(), SendError> {
        let link = &self.inner.link;
        // It may not overtake calls that wait for room.
        if !self.inner.table.borrow().unsent.is_empty() {
            return Err(SendError::Full);
        }
        let mut scratch = link.scratch.borrow_mut();
        let body = encode(arguments, &mut scratch.0).ok_or(SendError::TooLong)?;
        link.send(Header { kind: Kind::OneWay, operation, correlation: 0 }, body)
    }

    /// The next event. One task only may wait for events of a channel. After `Closed` comes nothing
    /// until the server was restarted. For stubs.
    pub async fn next_event(&self) -> ClientEvent {
        poll_fn(|context| {
            let mut table = self.inner.table.borrow_mut();
            match table.events.pop_front() {
                Some(event) => Poll::Ready(event),
                None if self.is_closed() && !table.closed_told => {
                    table.closed_told = true;
                    Poll::Ready(ClientEvent::Closed)
                }
                None => {
                    table.event_waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until one more call can be made; who waited longest is first.
    pub(crate) async fn room(&self) {
        let mut waiting = Waiting { inner: &self.inner, ticket: None };
        poll_fn(|context| waiting.poll(context.waker())).await
    }

    /// Waits until the server has acknowledged every call that was dropped: then nothing of theirs
    /// writes into the bulk area any more.
    pub async fn settled(&self) {
        poll_fn(|context| {
            let mut table = self.inner.table.borrow_mut();
            if table.abandoned == 0 {
                return Poll::Ready(());
            }
            table.settled.retain(|waker| !waker.will_wake(context.waker()));
            table.settled.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub(crate) fn take_answer(&self, correlation: u32, waker: &Waker) -> Poll<Result<Body, Failure>> {
        let mut table = self.inner.table.borrow_mut();
        let Some(slot) = table.slot(correlation) else { return Poll::Ready(Err(Failure::Closed)) };
        if !matches!(slot.state, State::Answered(_)) {
            if !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                slot.waker = Some(waker.clone());
            }
            return Poll::Pending;
        }
        match table.release(correlation) {
            State::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Ready(Err(Failure::Closed)),
        }
    }

    /// Rings the server now and takes in what it answers.
    pub(crate) fn notify_now(&self) {
        let inner = &self.inner;
        let was_armed = inner.link.is_armed();
        inner.link.disarm();
        inner.link.flush();
        if was_armed {
            // A peer that sent in between saw that it need not ring.
            inner.link.arm_to_look();
        }
        let is_answered = inner.ready();
        if is_answered {
            inner.take_in();
        }
        if !was_armed || is_answered && inner.ready() {
            inner.link.mark();
        }
    }

    pub(crate) fn cancel(&self, correlation: u32) {
        self.inner.cancel(correlation);
    }

    pub(crate) fn abandon(&self, correlation: u32) {
        self.inner.abandon(correlation);
    }

    /// Ends the channel from this side: calls under way end with
    /// [`Closed`](crate::CallError::Closed), as do waits for events. For a client that learns
    /// by another way that the server is gone and has no successor on this channel.
    pub fn close(&self) {
        self.inner.link.close();
        self.inner.fail_all(Failure::Closed);
    }

    /// The server sent what the contract does not know: ends the channel. For stubs.
    pub fn refuse(&self) {
        self.inner.link.broken();
        self.inner.fail_all(Failure::Closed);
    }
}

/// Waits for a free place in the table of calls.
struct Waiting<'c> {
    inner: &'c Inner,
    ticket: Option<u64>,
}

impl Waiting<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let mut table = self.inner.table.borrow_mut();
        if table.has_room() || self.inner.link.is_closed() {
            if let Some(ticket) = self.ticket.take() {
                table.leave(ticket);
            }
            return Poll::Ready(());
        }
        self.ticket = Some(table.wait_for_room(self.ticket, waker));
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut table = self.inner.table.borrow_mut();
        // One that was woken and looks no more: the place is the next one's.
        if !table.leave(ticket) && table.has_room() {
            table.wake_next();
        }
    }
}

impl Drop for ClientChannel {
    fn drop(&mut self) {
        self.inner.link.close();
        // Without a port there is no end of turn: ring now.
        self.inner.link.flush();
        self.inner.link.unregister();
    }
}

impl Inner {
    /// `marks`: rings the server at the end of the turn.
    fn request(
        &self,
        operation: u16,
        repeatable: bool,
        marks: bool,
        arguments: &impl Serialize,
    ) -> Result<u32, Failure> {
        if self.link.is_closed() {
            return Err(Failure::Closed);
        }
        let mut scratch = self.link.scratch.borrow_mut();
        let body = encode(arguments, &mut scratch.0).ok_or(Failure::TooLong)?;
        let mut table = self.table.borrow_mut();
        let correlation = table.claim(operation, repeatable).ok_or(Failure::Full)?;
        let header = Header { kind: Kind::Request, operation, correlation };
        // Calls do not overtake those that wait for room.
        let sent = match marks {
            _ if !table.unsent.is_empty() => Err(SendError::Full),
            true => self.link.send(header, body),
            false => self.link.write(header, body),
        };
        let slot = &mut table.slots[correlation as u16 as usize];
        let is_unsent = sent == Err(SendError::Full);
        slot.set_state(if is_unsent { State::Unsent } else { State::Waiting });
        if repeatable || is_unsent {
            slot.request = Some(Body::new(body));
        }
        match sent {
            Ok(()) => {}
            Err(SendError::Full) => table.unsent.push_back(correlation),
            Err(SendError::Closed | SendError::TooLong) => {
                table.release(correlation);
                return Err(Failure::Closed);
            }
        }
        Ok(correlation)
    }

    fn cancel(&self, correlation: u32) {
        let mut table = self.table.borrow_mut();
        let Some(slot) = table.slot(correlation) else { return };
        match slot.state {
            State::Unsent => {
                table.unsent.retain(|unsent| *unsent != correlation);
                table.answer(correlation, Err(Failure::Cancelled));
            }
            State::Waiting if !slot.cancelled => {
                slot.cancelled = true;
                table.cancels.push_back(correlation);
                drop(table);
                self.send_waiting();
            }
            _ => {}
        }
    }

    fn abandon(&self, correlation: u32) {
        self.cancel(correlation);
        let mut table = self.table.borrow_mut();
        let Some(slot) = table.slot(correlation) else { return };
        if matches!(slot.state, State::Waiting) {
            slot.set_state(State::Abandoned);
            slot.request = None;
            slot.waker = None;
            table.abandoned += 1;
        } else {
            table.release(correlation);
        }
    }

    /// Sends what waited for room.
    fn send_waiting(&self) {
        let mut table = self.table.borrow_mut();
        while let Some(&correlation) = table.cancels.front() {
            match self.link.send(Header { kind: Kind::Cancel, operation: 0, correlation }, &[]) {
                Err(SendError::Full) => return,
                _ => table.cancels.pop_front(),
            };
        }
        while let Some(&correlation) = table.unsent.front() {
            if let Some(slot) = table.slot(correlation)
                && let Some(request) = &slot.request
            {
                let header = Header { kind: Kind::Request, operation: slot.operation, correlation };
                if self.link.send(header, request.bytes()) == Err(SendError::Full) {
                    return;
                }
                slot.set_state(State::Waiting);
                if !slot.repeatable {
                    slot.request = None;
                }
            }
            table.unsent.pop_front();
        }
    }

    /// After a restart: repeatable calls are sent again in their order, the others end.
    fn restart(&self) {
        let mut table = self.table.borrow_mut();
        table.cancels.clear();
        table.unsent.clear();
        for correlation in table.in_order() {
            let Some(slot) = table.slot(correlation) else { continue };
            match slot.state {
                State::Waiting if slot.cancelled => table.answer(correlation, Err(Failure::Cancelled)),
                State::Waiting if slot.request.is_none() => table.answer(correlation, Err(Failure::PeerRestarted)),
                State::Waiting | State::Unsent => {
                    slot.set_state(State::Unsent);
                    table.unsent.push_back(correlation);
                }
                State::Abandoned => drop(table.release(correlation)),
                State::Free | State::Answered(_) => {}
            }
        }
        table.closed_told = false;
        table.event(ClientEvent::PeerRestarted);
    }

    fn fail_all(&self, failure: Failure) {
        let mut table = self.table.borrow_mut();
        table.cancels.clear();
        table.unsent.clear();
        for correlation in table.in_order() {
            table.answer(correlation, Err(failure));
        }
        table.event_waker.take().into_iter().for_each(Waker::wake);
        table.wake_all();
    }

    fn take(&self, header: Header, body: &[u8]) -> Result<(), Broken> {
        let mut table = self.table.borrow_mut();
        match header.kind {
            Kind::Reply => table.answer(header.correlation, Ok(Body::new(body))),
            Kind::Cancelled if header.operation == REPLY_TOO_LONG => {
                table.answer(header.correlation, Err(Failure::Malformed))
            }
            Kind::Cancelled => table.answer(header.correlation, Err(Failure::Cancelled)),
            Kind::Event if header.operation == EVENTS_LOST => table.event(ClientEvent::Lost),
            Kind::Event => table.event(ClientEvent::Event(header.operation, body.into())),
            Kind::Request | Kind::Cancel | Kind::OneWay => return Err(Broken),
        }
        Ok(())
    }

    fn waits_for_room(&self) -> bool {
        let table = self.table.borrow();
        !table.unsent.is_empty() || !table.cancels.is_empty()
    }

    /// Takes what has arrived, and all that is known of the server by now.
    fn take_in(&self) {
        let was_closed = self.link.is_closed();
        let change = self.link.change();
        if change == Change::Restarted {
            self.restart();
        }
        self.link.receive(MESSAGES_PER_TURN, |header, body| self.take(header, body));
        if self.link.is_closed() && !was_closed {
            self.fail_all(Failure::Closed);
        }
        self.send_waiting();
    }
}

impl Port for Inner {
    fn poll(&self) {
        if self.ready() {
            self.take_in();
        }
    }

    fn serve(&self) -> bool {
        self.link.arm_to_look();
        self.take_in();
        // Who has no room is nudged before we sleep.
        self.ready() || self.waits_for_room()
    }

    fn ready(&self) -> bool {
        if self.link.ready() {
            return true;
        }
        self.waits_for_room() && self.link.room_came()
    }

    fn arm(&self) -> bool {
        self.link.arm()
    }

    fn nudge(&self) {
        self.link.nudge();
    }

    fn disarm(&self) {
        self.link.disarm();
    }

    fn flush(&self) {
        self.link.flush();
    }

    fn badge(&self) -> u64 {
        self.link.badge
    }

    fn rank(&self) -> Rank {
        Rank::Response
    }

    fn remote(&self) -> bool {
        self.link.remote
    }
}

/// The bulk area of a link's region.
pub(crate) fn bulk(link: &Link) -> Bulk {
    let memory = &link.memory;
    // SAFETY: the layout was checked to lie in the region, which lives as long as its keeper.
    unsafe { Bulk::at(memory.bulk_start(), memory.layout().bulk_bytes as usize, memory.keeper()) }
}

#[cfg(test)]
mod tests;
