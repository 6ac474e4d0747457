//! The answering side.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::task::{Poll, Waker};

use executor::{Account, Port, Rank, TaskId};
use ring::{Broken, Header, Kind};
use serde::Serialize;

use crate::beside::Beside;
use crate::body::{Body, encode};
use crate::bulk::Bulk;
use crate::client::{REPLY_TOO_LONG, bulk};
use crate::link::{Change, Link, SendError, Wiring, client_id};
use crate::memory::Side;
use crate::{CALLS_MAX, COMPONENT_EVENTS_MAX, EVENTS_LOST, EVENTS_MAX};

/// Requests taken in one turn from one client.
const MESSAGES_PER_TURN: usize = 64;

/// A request being served.
pub type Task = executor::BoxedTask;

/// What a contract's stub does with what comes in.
pub trait Dispatch {
    /// Decodes a request into the task that serves it; the task ends with [`Peer::answer`].
    fn request(&self, peer: &Peer, operation: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken>;
    /// A one-way message.
    fn one_way(&self, peer: &Peer, operation: u16, body: &[u8]) -> Result<(), Broken>;
    /// The client left for good.
    fn closed(&self, peer: &Peer);
    /// The client was restarted: its calls were dropped.
    fn restarted(&self, peer: &Peer);
}

/// One server's side of a channel, before it is served.
pub struct ServerChannel {
    peer: Peer,
}

/// A client as its server knows it. Cheap to clone; two are equal if they are the same channel.
#[derive(Clone)]
pub struct Peer {
    inner: Rc<Inner>,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Peer) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Peer {}

struct Inner {
    link: Link,
    state: RefCell<State>,
    /// What is done for the client is on this account; `None`: it gets one when it is served.
    account: Cell<Option<Account>>,
}

#[derive(Default)]
struct State {
    dispatch: Option<Rc<dyn Dispatch>>,
    /// Requests under way: at most `CALLS_MAX`.
    serving: VecDeque<(u32, TaskId)>,
    /// What waits for room: answers (bounded by the client's calls), events up to their limit, and
    /// word of lost ones, never twice in a row.
    unsent: VecDeque<(Header, Body)>,
    unsent_events: usize,
    /// Who waits for room for an event.
    room: Vec<Waker>,
    finished: Option<Waker>,
    /// The client was heard in this generation.
    heard: bool,
    /// The end was told to `dispatch`.
    over: bool,
    /// No other generation follows.
    ended: bool,
}

impl State {
    /// Takes a request out of those under way; false if it is none of them.
    fn take_served(&mut self, correlation: u32) -> bool {
        // Mostly the first: answers come in the order of requests if nothing has to be waited for.
        if self.serving.front().is_some_and(|(first, _)| *first == correlation) {
            return self.serving.pop_front().is_some();
        }
        let place = self.serving.iter().position(|(serving, _)| *serving == correlation);
        place.is_some_and(|place| self.serving.remove(place).is_some())
    }
}

impl ServerChannel {
    /// Binds to the region.
    pub fn new(wiring: Wiring) -> ServerChannel {
        let (link, account) = (Link::new(Side::Server, wiring), Cell::new(None));
        ServerChannel { peer: Peer { inner: Rc::new(Inner { link, state: RefCell::default(), account }) } }
    }

    /// The client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What is done for this client is the component's own work, as it needs it to be there.
    pub fn of_component(self) -> ServerChannel {
        self.peer.inner.account.set(Some(Account::OWN));
        self
    }

    /// Serves one generation after another, also when the contract was broken in one, until the
    /// channel is taken apart; from now on, not only when first polled. For stubs; `hash` is the
    /// contract's.
    pub fn serve(self, hash: u64, dispatch: Rc<dyn Dispatch>) -> impl Future<Output = ()> {
        let inner = &self.peer.inner;
        if inner.account.get().is_none() {
            inner.account.set(Some(executor::open_account(&inner.link.peer)));
        }
        inner.link.bind(hash);
        inner.state.borrow_mut().dispatch = Some(dispatch);
        inner.link.registered(executor::register(Rc::new(ServerPort(self.peer.clone()))));
        poll_fn(move |context| {
            let mut state = self.peer.inner.state.borrow_mut();
            if state.ended {
                return Poll::Ready(());
            }
            state.finished = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for ServerChannel {
    fn drop(&mut self) {
        let inner = &self.peer.inner;
        inner.link.close();
        inner.link.flush();
        inner.link.unregister();
        inner.drop_work();
        inner.account.take().into_iter().for_each(executor::close_account);
        // The dispatch may hold peers, and so this channel.
        let dispatch = inner.state.borrow_mut().dispatch.take();
        drop(dispatch);
    }
}

impl Peer {
    /// The client as other servers know it too ([`crate::client_id`]); 0 for components.
    pub fn id(&self) -> u64 {
        self.inner.link.peer_id()
    }

    /// When this client was restarted or has left: is that the id of one whose channel this was?
    /// All it held is to be dropped.
    pub fn was(&self, id: u64) -> bool {
        self.inner.link.peer_was(id)
    }

    /// Ids among which [`was`](Self::was) says yes: for those who keep clients in order.
    pub fn ids(&self) -> core::ops::RangeInclusive<u64> {
        self.inner.link.peer_ids()
    }

    /// The client's component name.
    pub fn name(&self) -> &str {
        &self.inner.link.peer
    }

    /// The channel's bulk area.
    pub fn bulk(&self) -> Bulk {
        bulk(&self.inner.link)
    }

    /// What the ends have beside messages; see there.
    pub fn beside(&self) -> Option<Beside> {
        Beside::of(&self.inner.link, &self.bulk())
    }

    /// Has it left?
    pub fn is_closed(&self) -> bool {
        self.inner.link.is_closed()
    }

    /// Looks whether another generation has begun.
    fn look(&self, dispatch: &dyn Dispatch) -> Change {
        let inner = &self.inner;
        let change = inner.link.change();
        if change == Change::Restarted {
            inner.work_for_client();
            inner.drop_work();
            let mut state = inner.state.borrow_mut();
            (state.over, state.heard) = (false, false);
            drop(state);
            dispatch.restarted(self);
            inner.end_account();
        }
        change
    }

    /// Answers a request. For stubs.
    pub fn answer(&self, correlation: u32, result: &impl Serialize) {
        let inner = &self.inner;
        let mut state = inner.state.borrow_mut();
        if !state.take_served(correlation) {
            return; // Restarted or closed meanwhile: nobody asks any more.
        }
        let mut scratch = inner.link.scratch.borrow_mut();
        match encode(result, &mut scratch.0) {
            Some(body) => inner.send(&mut state, Header { kind: Kind::Reply, operation: 0, correlation }, body),
            None => {
                inner.send(&mut state, Header { kind: Kind::Cancelled, operation: REPLY_TOO_LONG, correlation }, &[])
            }
        }
    }

    /// Can one more event be sent? For those who keep back what there is no room for: an event that
    /// is refused as `Full` is lost, which the client is told.
    pub fn has_room(&self) -> bool {
        self.inner.state.borrow().unsent_events < self.inner.events_max()
    }

    /// Tells that events were lost, wherever that was.
    pub fn lost(&self) {
        self.inner.lost(&mut self.inner.state.borrow_mut());
    }

    /// Waits until one more event can be sent, or the client has left.
    pub async fn room(&self) {
        core::future::poll_fn(|context| {
            if self.has_room() || self.is_closed() {
                return Poll::Ready(());
            }
            let waiting = &mut self.inner.state.borrow_mut().room;
            waiting.retain(|waker| !waker.will_wake(context.waker()));
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sends an event. For stubs.
    pub fn event(&self, event: u16, arguments: &impl Serialize) -> Result<(), SendError> {
        let inner = &self.inner;
        let mut state = inner.state.borrow_mut();
        if inner.link.is_closed() {
            return Err(SendError::Closed);
        }
        if state.unsent_events >= inner.events_max() {
            inner.lost(&mut state);
            return Err(SendError::Full);
        }
        let mut scratch = inner.link.scratch.borrow_mut();
        let body = encode(arguments, &mut scratch.0).ok_or(SendError::TooLong)?;
        inner.send(&mut state, Header { kind: Kind::Event, operation: event, correlation: 0 }, body);
        Ok(())
    }
}

/// The programs that a server serves.
#[derive(Default)]
pub struct Clients {
    /// By set of channels.
    all: RefCell<BTreeMap<u32, Weak<Inner>>>,
}

impl Clients {
    /// Enters a channel that is going to be served.
    pub fn add(&self, channel: &ServerChannel) {
        let mut all = self.all.borrow_mut();
        all.retain(|_, inner| inner.strong_count() > 0);
        let inner = &channel.peer.inner;
        all.insert(inner.link.set(), Rc::downgrade(inner));
    }

    /// Is that id a program's that has a channel and was not heard yet? Only such a one may be
    /// given what its parent holds: only the parent was told the id of a program that has not run,
    /// and all it is given goes when its channel changes hands.
    pub fn is_newborn(&self, id: u64) -> bool {
        let inner = self.all.borrow().get(&((id >> 32) as u32)).and_then(Weak::upgrade);
        inner.is_some_and(|inner| {
            let is_new = inner.link.memory.generation() != inner.link.generation();
            let is_heard = inner.state.borrow().heard || inner.link.is_closed();
            id != 0 && client_id(inner.link.set(), inner.link.memory.generation()) == id && (is_new || !is_heard)
        })
    }

    /// Looks at once which programs have ended, instead of in the next turn; true if one has, so
    /// that what it held is free now. For who is about to refuse what such a one may have held.
    pub fn look(&self) -> bool {
        let all: Vec<_> = self.all.borrow().values().filter_map(Weak::upgrade).collect();
        let looked = all.into_iter().filter(|inner| inner.link.memory.generation() != inner.link.generation());
        looked.fold(false, |any, inner| {
            let dispatch = inner.state.borrow().dispatch.clone();
            let changed = dispatch.is_some_and(|dispatch| Peer { inner }.look(&*dispatch) == Change::Restarted);
            any | changed
        })
    }
}

/// Tells the client that events were lost.
const LOST: Header = Header { kind: Kind::Event, operation: EVENTS_LOST, correlation: 0 };

fn is_lost(header: Header) -> bool {
    header.kind == Kind::Event && header.operation == EVENTS_LOST
}

impl Inner {
    /// Events that may wait: a program's few, as it may have them wait on purpose.
    fn events_max(&self) -> usize {
        if self.link.is_a_programs() { EVENTS_MAX } else { COMPONENT_EVENTS_MAX }
    }

    fn lost(&self, state: &mut State) {
        if state.unsent.back().is_none_or(|(header, _)| !is_lost(*header)) {
            self.send(state, LOST, &[]);
        }
    }

    /// Sends, or keeps for when there is room; never overtakes.
    fn send(&self, state: &mut State, header: Header, body: &[u8]) {
        let sent = match header.kind {
            _ if !state.unsent.is_empty() => Err(SendError::Full),
            Kind::Reply => self.link.reply(header, body),
            _ => self.link.send(header, body),
        };
        if sent == Err(SendError::Full) {
            state.unsent_events += usize::from(header.kind == Kind::Event && !is_lost(header));
            state.unsent.push_back((header, Body::new(body)));
        }
    }

    fn send_waiting(&self) {
        let mut state = self.state.borrow_mut();
        if state.unsent.is_empty() && state.room.is_empty() {
            return;
        }
        while let Some((header, body)) = state.unsent.front() {
            let (kind, lost) = (header.kind, is_lost(*header));
            if self.link.send(*header, body.bytes()) == Err(SendError::Full) {
                return;
            }
            state.unsent_events -= usize::from(kind == Kind::Event && !lost);
            state.unsent.pop_front();
        }
        state.room.drain(..).for_each(Waker::wake);
    }

    /// What is done now is done for the client.
    #[inline(always)]
    fn work_for_client(&self) {
        executor::work_for(self.account.get().unwrap_or(Account::OWN));
    }

    /// The client ended: what was done for it is told apart from what is done for a successor.
    fn end_account(&self) {
        self.account.get().into_iter().for_each(executor::end_account);
    }

    /// Drops all work for the client.
    fn drop_work(&self) {
        let mut state = self.state.borrow_mut();
        state.unsent.clear();
        state.unsent_events = 0;
        state.room.drain(..).for_each(Waker::wake);
        let serving = core::mem::take(&mut state.serving);
        drop(state);
        serving.into_iter().for_each(|(_, task)| executor::abort(task));
    }

    fn cancel(&self, correlation: u32) {
        let mut state = self.state.borrow_mut();
        let Some(at) = state.serving.iter().position(|(serving, _)| *serving == correlation) else {
            return; // The reply is on its way.
        };
        let Some((_, task)) = state.serving.remove(at) else { return };
        drop(state);
        // First the end of the work, then the word that it has ended: the client may reuse its bulk
        // area.
        executor::abort(task);
        self.send(&mut self.state.borrow_mut(), Header { kind: Kind::Cancelled, operation: 0, correlation }, &[]);
    }
}

/// The port holds the peer, and the executor the port, as long as the channel is served.
struct ServerPort(Peer);

impl ServerPort {
    fn take(&self, dispatch: &dyn Dispatch, header: Header, body: &[u8]) -> Result<(), Broken> {
        let inner = &self.0.inner;
        inner.work_for_client();
        let mut state = inner.state.borrow_mut();
        state.heard = true;
        let is_full = state.serving.len() >= CALLS_MAX;
        drop(state);
        match header.kind {
            Kind::Request => {
                if is_full {
                    return Err(Broken);
                }
                let future = dispatch.request(&self.0, header.operation, header.correlation, body)?;
                let task = executor::reserve();
                inner.state.borrow_mut().serving.push_back((header.correlation, task));
                executor::begin(task, future);
                Ok(())
            }
            Kind::OneWay => dispatch.one_way(&self.0, header.operation, body),
            Kind::Cancel => {
                inner.cancel(header.correlation);
                Ok(())
            }
            Kind::Reply | Kind::Event | Kind::Cancelled => Err(Broken),
        }
    }

    /// Takes what has arrived, and all that is known of the client by now.
    fn take_in(&self) {
        let inner = &self.0.inner;
        let Some(dispatch) = inner.state.borrow().dispatch.clone() else { return };
        self.0.look(&*dispatch);
        inner.link.receive(MESSAGES_PER_TURN, |header, body| self.take(&*dispatch, header, body));
        if inner.link.is_closed() && !inner.state.borrow().over {
            inner.work_for_client();
            inner.drop_work();
            inner.state.borrow_mut().over = true;
            dispatch.closed(&self.0);
            inner.end_account();
        }
        let mut state = inner.state.borrow_mut();
        if state.over && !state.ended && inner.link.is_ended() {
            state.ended = true;
            state.finished.take().into_iter().for_each(Waker::wake);
        }
        drop(state);
        inner.send_waiting();
    }
}

impl Port for ServerPort {
    fn poll(&self) {
        if self.ready() {
            self.take_in();
        }
    }

    fn serve(&self) -> bool {
        self.0.inner.link.arm_to_look();
        self.take_in();
        // Who has no room is nudged before we sleep.
        self.ready() || !self.0.inner.state.borrow().unsent.is_empty()
    }

    fn ready(&self) -> bool {
        let inner = &self.0.inner;
        if inner.link.ready() {
            return true;
        }
        let state = inner.state.borrow();
        if inner.link.is_closed() {
            return !state.over || !state.ended && inner.link.is_ended();
        }
        !state.unsent.is_empty() && inner.link.room_came()
    }

    fn arm(&self) -> bool {
        self.0.inner.link.arm()
    }

    fn nudge(&self) {
        self.0.inner.link.nudge();
    }

    fn disarm(&self) {
        self.0.inner.link.disarm();
    }

    fn flush(&self) {
        self.0.inner.link.flush();
    }

    fn badge(&self) -> u64 {
        self.0.inner.link.badge
    }

    fn rank(&self) -> Rank {
        Rank::Request
    }

    fn remote(&self) -> bool {
        self.0.inner.link.remote
    }
}

#[cfg(test)]
mod tests;
