//! The table of outstanding calls, and the events that wait.
//!
//! A call lives in a slot of the table from the moment it is made until its answer was taken, or,
//! if nobody wants it any more, until the server has acknowledged that. Slots carry a count, so an
//! answer to an earlier tenant is not taken for the present one's.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::Waker;

use crate::body::Body;
use crate::call::Failure;
use crate::{CALLS_MAX, COMPONENT_EVENTS_MAX};

/// Where a call is.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Free` | it is made; the ring has room, or not | `Waiting`, or `Unsent` |
/// | `Unsent` | the ring has room | `Waiting` |
/// | `Waiting`, `Unsent` | the server was restarted, and the call may be repeated | `Unsent` |
/// | `Waiting`, `Unsent` | an answer, the channel's failure, a cancel if unsent | `Answered` |
/// | `Waiting` | its future is dropped | `Abandoned` |
/// | any other | its answer is taken, or nobody wants one (`release`) | `Free` |
///
/// `set_state` asserts that a change is one of these.
pub enum State {
    Free,
    /// Not sent yet: waits in `unsent`.
    Unsent,
    Waiting,
    /// Nobody waits for it any more, but the server has not acknowledged that: it may still write
    /// its bulk.
    Abandoned,
    Answered(Result<Body, Failure>),
}

pub struct Slot {
    pub count: u16,
    pub operation: u16,
    pub repeatable: bool,
    /// The server was, or will be, told to stop.
    pub cancelled: bool,
    /// Order in which calls were made, for repeating them in that order.
    pub sequence: u64,
    pub state: State,
    /// Kept while it may have to be sent (again).
    pub request: Option<Body>,
    pub waker: Option<Waker>,
}

impl Slot {
    /// Changes where the call is, except to `Free`.
    pub fn set_state(&mut self, state: State) {
        use State::*;
        let fits = match self.state {
            Free => matches!(state, Waiting | Unsent),
            Unsent => matches!(state, Waiting | Unsent | Answered(_)),
            Waiting => matches!(state, Unsent | Abandoned | Answered(_)),
            Abandoned | Answered(_) => false,
        };
        debug_assert!(fits, "a change of state that no call makes");
        self.state = state;
    }
}

/// An event of the server, or of the channel itself.
pub enum ClientEvent {
    /// Event number and body.
    Event(u16, Vec<u8>),
    /// Events came faster than they were taken, some are gone. Remedy: ask the server how things
    /// stand.
    Lost,
    /// The server was restarted: what it was told before, it may not know any more.
    PeerRestarted,
    /// The channel is over, until the server was restarted.
    Closed,
}

#[derive(Default)]
pub struct Table {
    pub slots: Vec<Slot>,
    pub free: Vec<u16>,
    pub unsent: VecDeque<u32>,
    pub cancels: VecDeque<u32>,
    pub abandoned: usize,
    pub sequence: u64,
    pub events: VecDeque<ClientEvent>,
    pub event_waker: Option<Waker>,
    /// The end was taken as an event.
    pub closed_told: bool,
    /// Who waits for room, with tickets, oldest first.
    pub room: VecDeque<(u64, Waker)>,
    pub last_ticket: u64,
    pub settled: Vec<Waker>,
}

impl Table {
    pub fn slot(&mut self, correlation: u32) -> Option<&mut Slot> {
        self.slots.get_mut(correlation as u16 as usize).filter(|slot| slot.count == (correlation >> 16) as u16)
    }

    /// A slot for a new call; `None` if too many are outstanding.
    pub fn claim(&mut self, operation: u16, repeatable: bool) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < CALLS_MAX => {
                self.slots.push(Slot {
                    count: 0,
                    operation,
                    repeatable,
                    cancelled: false,
                    sequence: 0,
                    state: State::Free,
                    request: None,
                    waker: None,
                });
                self.slots.len() as u16 - 1
            }
            None => return None,
        };
        self.sequence += 1;
        let slot = &mut self.slots[index as usize];
        (slot.operation, slot.repeatable, slot.cancelled, slot.sequence) =
            (operation, repeatable, false, self.sequence);
        Some((slot.count as u32) << 16 | index as u32)
    }

    /// Can one more call be made?
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < CALLS_MAX
    }

    /// Keeps the place in the queue that `ticket` names, or gives one at its end.
    pub fn wait_for_room(&mut self, ticket: Option<u64>, waker: &Waker) -> u64 {
        if let Some(entry) = self.room.iter_mut().find(|(other, _)| Some(*other) == ticket) {
            entry.1.clone_from(waker);
            return entry.0;
        }
        self.last_ticket += 1;
        self.room.push_back((self.last_ticket, waker.clone()));
        self.last_ticket
    }

    /// Leaves the queue for room; false if it was woken already.
    pub fn leave(&mut self, ticket: u64) -> bool {
        let place = self.room.iter().position(|(other, _)| *other == ticket);
        place.is_some_and(|place| self.room.remove(place).is_some())
    }

    /// Has the first of that queue look again.
    pub fn wake_next(&mut self) {
        self.room.pop_front().into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Has all of it look again.
    pub fn wake_all(&mut self) {
        self.room.drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// Frees a slot; gives what was in it.
    pub fn release(&mut self, correlation: u32) -> State {
        let Some(slot) = self.slot(correlation) else { return State::Free };
        slot.count = slot.count.wrapping_add(1);
        slot.request = None;
        slot.waker = None;
        let state = core::mem::replace(&mut slot.state, State::Free);
        self.free.push(correlation as u16);
        self.wake_next();
        if matches!(state, State::Abandoned) {
            self.abandoned -= 1;
            if self.abandoned == 0 {
                self.settled.drain(..).for_each(Waker::wake);
            }
        }
        state
    }

    pub fn answer(&mut self, correlation: u32, answer: Result<Body, Failure>) {
        let Some(slot) = self.slot(correlation) else { return };
        match slot.state {
            State::Abandoned => drop(self.release(correlation)),
            State::Waiting | State::Unsent => {
                slot.set_state(State::Answered(answer));
                slot.request = None;
                slot.waker.take().into_iter().for_each(Waker::wake);
            }
            State::Free | State::Answered(_) => {}
        }
    }

    pub fn event(&mut self, event: ClientEvent) {
        if self.events.len() >= COMPONENT_EVENTS_MAX {
            self.events.clear();
            self.events.push_back(ClientEvent::Lost);
        }
        self.events.push_back(event);
        self.event_waker.take().into_iter().for_each(Waker::wake);
    }

    /// Names of all slots in use, in the order the calls were made.
    pub fn in_order(&self) -> Vec<u32> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| !matches!(slot.state, State::Free));
        let mut all: Vec<(u64, u32)> =
            used.map(|(index, slot)| (slot.sequence, (slot.count as u32) << 16 | index as u32)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, correlation)| correlation).collect()
    }
}
