//! The `descriptions` contract over the library's table: waiting, bulk regions and events.
//!
//! An operation that may wait tries, waits for the description's next change, and tries again;
//! dropping it (the client cancelled) leaves nothing behind.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::ops::RangeInclusive;
use core::task::Poll;

use channel::{Clients, Peer};
use contracts::BulkSpan;
use contracts::descriptions::*;
use contracts::files::STORE_DEVICE;
use contracts::process::{Credentials, Identity, ProcessEvents, ProcessId, TimerStart, TimerState};
use process_core::identity;
use process_core::open::Descriptions;
use process_core::table::Table;
use process_core::timer::Now;
use process_core::waiters::Waiters;
use runtime::Watch;

use crate::log::Log;

type Outcome<T> = Result<T, DescriptionError>;

/// Bytes moved in one request, whatever the client's bulk region holds.
const MOVE_BYTES_MAX: usize = 64 << 10;

struct Watcher {
    events: DescriptionsEvents,
    watched: Watched,
}

/// Shared by all clients' channels.
pub struct Service {
    /// Who the clients are.
    pub processes: Rc<RefCell<Table>>,
    table: RefCell<Descriptions>,
    /// Empty: memory for what an operation changed.
    changed: Cell<Vec<DescriptionId>>,
    /// Requests that wait for a change of a description.
    waiting: RefCell<Waiters>,
    /// Who is told when a description becomes ready: by that and client.
    watchers: RefCell<BTreeMap<(DescriptionId, u64), Watcher>>,
    /// The servers that export descriptions, each told when its tickets are settled.
    exporters: RefCell<BTreeMap<Origin, ProcessEvents>>,
    /// The programs that may be given descriptions.
    pub clients: Clients,
    /// Rung when a timer was set.
    pub timers_changed: Watch,
    /// Where what programs say at `/dev/log` goes.
    pub log: Log,
}

/// A request waits, until this is dropped.
struct Waiting<'a> {
    service: &'a Service,
    id: DescriptionId,
    /// Of the wait, once it has begun.
    number: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.service.waiting.borrow_mut().remove(self.id, number);
        }
    }
}

/// A description that its client does not know of yet; it goes if that gives up.
struct Opening<'a> {
    service: &'a Service,
    client: u64,
    id: DescriptionId,
    is_done: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // A client that has ended holds it no more.
            let _ = self.service.act(|table| table.close(self.client, self.id));
        }
    }
}

fn all_of(id: DescriptionId) -> RangeInclusive<(DescriptionId, u64)> {
    (id, 0)..=(id, u64::MAX)
}

impl Service {
    /// Nothing is open yet.
    pub fn new(processes: Rc<RefCell<Table>>) -> Service {
        Service {
            processes,
            table: RefCell::default(),
            changed: Cell::default(),
            waiting: RefCell::default(),
            watchers: RefCell::default(),
            exporters: RefCell::default(),
            clients: Clients::default(),
            timers_changed: Watch::new(),
            log: Log::default(),
        }
    }

    /// Enters a client of the contract `process` that exports descriptions. The monitor vouches for
    /// its name.
    pub fn meet(&self, peer: &Peer) {
        let origin = match peer.name() {
            "fs" => Origin::Files,
            "tcp" => Origin::Network,
            "volume" => Origin::Volume,
            _ => return,
        };
        self.exporters.borrow_mut().insert(origin, ProcessEvents::new(peer));
    }

    fn identified(&self, client: u64, how: fn(ProcessId, &Identity) -> Credentials) -> Credentials {
        let processes = self.processes.borrow();
        let found = processes.by_client(client).and_then(|id| Some((id, processes.get(id)?)));
        found.map_or_else(Credentials::default, |(id, process)| how(id, &process.identity))
    }

    /// The process of a client, and as whom it acts; 0 if it is none.
    pub fn acting(&self, client: u64) -> Credentials {
        self.identified(client, identity::acting)
    }

    /// The process of a client, and who it really is; 0 if it is none.
    pub fn sender(&self, client: u64) -> Credentials {
        self.identified(client, identity::real)
    }

    /// Works on the table, and tells who waits for what that changed.
    pub fn act<T>(&self, operation: impl FnOnce(&mut Descriptions) -> T) -> T {
        let mut table = self.table.borrow_mut();
        let result = operation(&mut table);
        if !table.has_news() {
            return result;
        }
        let mut changed = self.changed.take();
        table.move_changed(&mut changed);
        let has_word = table.has_word();
        drop(table);
        if has_word {
            self.pass_word();
        }
        changed.drain(..).for_each(|id| self.notify(id));
        self.changed.set(changed);
        result
    }

    /// Writes lines to the log, and tells exporters which tickets are settled.
    #[cold]
    fn pass_word(&self) {
        let mut table = self.table.borrow_mut();
        let (settled, logged) = (table.take_settled(), table.take_logged());
        drop(table);
        for (process, line) in logged {
            let processes = self.processes.borrow();
            self.log.tell(processes.get(process).map_or("a program", |process| process.name.as_str()), &line);
        }
        for (origin, ticket) in settled {
            if let Some(exporter) = self.exporters.borrow().get(&origin) {
                // One that loses an event asks which tickets there are.
                let _ = exporter.settled(ticket);
            }
        }
    }

    fn notify(&self, id: DescriptionId) {
        self.waiting.borrow_mut().wake(id);
        let mut watchers = self.watchers.borrow_mut();
        if watchers.is_empty() {
            return;
        }
        let told: Vec<_> = watchers
            .range_mut(all_of(id))
            .filter_map(|(key, watcher)| {
                let found = watcher.watched.at_change(self.table.borrow().ready(id, u32::MAX));
                // A client with a full event queue is told `Lost` by its own side and polls again.
                (found != 0).then(|| watcher.events.ready(id, found)).map(|_| *key)
            })
            .collect();
        told.iter().for_each(|key| drop(watchers.remove(key)));
    }

    /// Tries until there is an answer, or once if not to `wait`.
    pub async fn repeat<T>(
        &self,
        id: DescriptionId,
        wait: bool,
        mut operation: impl FnMut(&mut Descriptions) -> Outcome<T>,
    ) -> Outcome<T> {
        loop {
            match self.act(&mut operation) {
                Err(DescriptionError::WouldBlock) if wait => self.change_of(id).await,
                result => return result,
            }
        }
    }

    async fn change_of(&self, id: DescriptionId) {
        let mut waiting = Waiting { service: self, id, number: None };
        poll_fn(|context| {
            if waiting.number.is_some() {
                return Poll::Ready(());
            }
            waiting.number = Some(self.waiting.borrow_mut().add(id, context.waker()));
            Poll::Pending
        })
        .await;
    }

    /// Opens the named pipe of a file for a client. With `wait`, waits for the other side; who
    /// gives that up has opened nothing.
    pub async fn open_named(&self, client: u64, file: u64, sides: (bool, bool), wait: bool) -> Outcome<DescriptionId> {
        let id = self.act(|table| table.open_named(client, file, sides, wait))?;
        let mut opening = Opening { service: self, client, id, is_done: false };
        self.repeat(id, wait, |table| if wait { table.has_joined(client, id) } else { Ok(()) }).await?;
        opening.is_done = true;
        Ok(id)
    }

    /// Sets a timer that the client holds; gives how it stood.
    pub fn set_timer(
        &self,
        client: u64,
        id: DescriptionId,
        start: TimerStart,
        interval_ns: u64,
    ) -> Outcome<TimerState> {
        let is_of_day = self.table.borrow_mut().is_of_day(client, id)?;
        let before = self.act(|table| table.set_timer(id, now(is_of_day), start, interval_ns));
        self.timers_changed.changed();
        Ok(before)
    }

    /// How it stands.
    pub fn timer_state(&self, client: u64, id: DescriptionId) -> Outcome<TimerState> {
        let mut table = self.table.borrow_mut();
        table.is_of_day(client, id)?;
        Ok(table.timer_state(id, runtime::now_ns()))
    }

    /// When the next timer expires.
    pub fn next_ns(&self) -> Option<u64> {
        self.table.borrow().next_ns()
    }

    /// Removes clients that ended, with all that they held. They are among `ids`.
    pub fn remove_clients(&self, ids: RangeInclusive<u64>, is_gone: impl Fn(u64) -> bool) {
        self.watchers.borrow_mut().retain(|(_, client), _| !ids.contains(client) || !is_gone(*client));
        self.act(|table| table.remove_clients(ids, is_gone));
    }
}

/// The clock for a timer.
pub fn now(is_of_day: bool) -> Now {
    Now { ns: runtime::now_ns(), of_timer_ns: if is_of_day { runtime::realtime_ns() } else { runtime::now_ns() } }
}

fn not_positioned(at: Option<u64>) -> Outcome<()> {
    if at.is_some() { Err(DescriptionError::NotSeekable) } else { Ok(()) }
}

/// Bytes to move for a request.
pub fn length_of(span: BulkSpan) -> usize {
    (span.length as usize).min(MOVE_BYTES_MAX)
}

impl DescriptionsServer for Service {
    async fn read(&self, peer: &Peer, id: DescriptionId, span: BulkSpan, at: Option<u64>, wait: bool) -> Outcome<u32> {
        let (bulk, client) = (peer.bulk(), peer.id());
        let put = |offset: usize, bytes: &[u8]| bulk.write(span.offset as usize + offset, bytes).is_ok();
        let read = |table: &mut Descriptions| match at {
            None => table.read(client, id, length_of(span), runtime::now_ns(), put),
            Some(from) => table.peek(client, id, from, length_of(span), put),
        };
        self.repeat(id, wait, read).await.map(|count| count as u32)
    }

    async fn write(&self, peer: &Peer, id: DescriptionId, span: BulkSpan, at: Option<u64>, wait: bool) -> Outcome<u32> {
        not_positioned(at)?;
        let (bulk, client) = (peer.bulk(), peer.id());
        let get = |into: &mut [u8]| bulk.read(span.offset as usize, into).is_ok();
        self.repeat(id, wait, |table| table.write(client, id, || self.sender(client), length_of(span), get))
            .await
            .map(|count| count as u32)
    }

    async fn seek(&self, peer: &Peer, id: DescriptionId, _offset: i64, _whence: Whence) -> Outcome<u64> {
        // As on Linux, what has no place is at 0 and stays there.
        let kind = self.table.borrow_mut().kind(peer.id(), id)?;
        if kind == Kind::Anonymous { Ok(0) } else { Err(DescriptionError::NotSeekable) }
    }

    async fn status(&self, peer: &Peer, id: DescriptionId) -> Outcome<Status> {
        let kind = self.table.borrow_mut().kind(peer.id(), id)?;
        let file = self.table.borrow().file_of(id);
        let device = if file.is_some() { STORE_DEVICE } else { 2 };
        Ok(Status::of_no_file(kind, 0o600, file.unwrap_or(id), device))
    }

    async fn resize(&self, peer: &Peer, id: DescriptionId, _size: u64) -> Outcome<()> {
        self.table.borrow().check(peer.id(), id)?;
        Err(DescriptionError::Invalid)
    }

    async fn entries(&self, peer: &Peer, id: DescriptionId, _from: u64) -> Outcome<(Vec<Entry>, u64)> {
        self.table.borrow().check(peer.id(), id)?;
        Err(DescriptionError::NotDirectory)
    }

    async fn control(&self, peer: &Peer, id: DescriptionId, request: Control) -> Outcome<ControlReply> {
        match request {
            Control::Available => {
                self.table.borrow_mut().available(peer.id(), id).map(|held| ControlReply::Number(held as u64))
            }
            Control::GetCapacity => {
                self.act(|table| table.capacity(peer.id(), id, None)).map(|bytes| ControlReply::Number(bytes as u64))
            }
            Control::SetCapacity { bytes } => self
                .act(|table| table.capacity(peer.id(), id, Some(bytes as usize)))
                .map(|bytes| ControlReply::Number(bytes as u64)),
            _ => {
                self.table.borrow().check(peer.id(), id)?;
                Err(DescriptionError::NotTerminal)
            }
        }
    }

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, watch: WatchFor) -> Outcome<u32> {
        self.table.borrow().check(peer.id(), id)?;
        let found = self.table.borrow().ready(id, mask);
        if let Some(watched) = Watched::new(watch, mask, found) {
            let mut watchers = self.watchers.borrow_mut();
            // Another thread of the client may watch for something else.
            let known = watchers.entry((id, peer.id()));
            known
                .and_modify(|known| known.watched = known.watched.join(watched))
                .or_insert_with(|| Watcher { events: DescriptionsEvents::new(peer), watched });
        }
        Ok(found)
    }

    async fn inherit(&self, peer: &Peer, child: u64) -> Outcome<()> {
        if !self.clients.is_newborn(child) {
            return Err(DescriptionError::Invalid);
        }
        self.act(|table| table.inherit(peer.id(), child));
        Ok(())
    }

    async fn export(&self, _: &Peer, _: DescriptionId) -> Outcome<u64> {
        Err(DescriptionError::NotSupported)
    }

    async fn claim(&self, _: &Peer, _: u64) -> Outcome<DescriptionId> {
        Err(DescriptionError::NotSupported)
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Outcome<()> {
        self.act(|table| table.close(peer.id(), id))?;
        if self.table.borrow().check(peer.id(), id).is_err() {
            self.watchers.borrow_mut().remove(&(id, peer.id()));
        }
        Ok(())
    }

    fn peer_closed(&self, peer: &Peer) {
        self.remove_clients(peer.ids(), |client| peer.was(client));
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.peer_closed(peer);
    }
}
