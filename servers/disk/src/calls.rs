//! The handler's side of clients that call (`lib/block-calls`): what they ask goes to the driver,
//! and they hear when something has ended. Those of other cores call workers there, of the other
//! dispatchers of this program ([`crate::part`]).

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use abi::{Error, Handle, Rights};
use block_calls::desk::{Client, Shared};
use block_calls::limits::Limits;
use block_calls::{Desk, Ended, start_worker};
use channel::{Beside, Listen, ServerChannel};
use contracts::blocks::Disk;
use packet::Notify;
use runtime::{Calls, Worker};
use virtio_blk::{Completion, Request};

use crate::words;

/// A worker that has had so much processor time beyond its callers' deadlines hangs: what a monitor
/// gives a component (decision 10).
const STALL_NS: u64 = 100_000_000;

/// Badge bits of the handler.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// A worker has news.
    pub news: u64,
    /// A worker hangs.
    pub stall: u64,
}

/// How a client asks, but for the messages of its channel.
pub enum Way {
    /// Not at all.
    Messages,
    /// It calls a worker of this core.
    Calls(Calls),
    /// It calls a worker of another core's, with which we share this.
    Part(Beside, &'static Shared),
}

impl Way {
    /// That of a channel.
    pub fn of(channel: &ServerChannel, calls: Option<Calls>) -> Way {
        let part = || {
            let beside = channel.peer().beside()?;
            Some(Way::Part(beside, Shared::over(beside.words)?))
        };
        calls.map(Way::Calls).or_else(part).unwrap_or(Way::Messages)
    }

    /// The same as calls.
    fn calls(&self) -> Option<&Calls> {
        match self {
            Way::Calls(calls) => Some(calls),
            Way::Messages | Way::Part(..) => None,
        }
    }

    fn signal(&self) -> Option<Signal> {
        match *self {
            Way::Messages => None,
            Way::Calls(Calls { semaphore, .. }) => Some(Signal::Semaphore(semaphore)),
            Way::Part(Beside { peer, .. }, shared) => Some(Signal::Part(peer, shared)),
        }
    }
}

/// How a client hears that something has ended.
enum Signal {
    /// It waits at this.
    Semaphore(Handle),
    /// Its core's dispatcher tells it.
    Part(Handle, &'static Shared),
}

impl Signal {
    fn raise(&self) {
        match self {
            // Refused at a count that nobody takes from: it hears of none more.
            Signal::Semaphore(semaphore) => drop(sys::semaphore_up(*semaphore, 1)),
            Signal::Part(peer, shared) if shared.tell_end() => drop(sys::notify(*peer)),
            Signal::Part(..) => (),
        }
    }
}

/// Looks whether a worker of another core has asked for something.
struct Asked {
    shared: &'static Shared,
    wakeup: Rc<Notify>,
}

impl Listen for Asked {
    fn is_ready(&self) -> bool {
        self.shared.is_asked()
    }

    fn take(&self) {
        self.wakeup.notify();
    }
}

/// Starts the workers of a desk, and has those clients' portals lead to them.
///
/// # Errors
/// Those of `ContextAlloc` and `PortalSet`: the account is full.
pub fn start_workers<'c>(
    desk: &'static Desk,
    all: impl Iterator<Item = &'c Calls>,
    stall: u64,
) -> Result<BTreeMap<u8, Worker>, Error> {
    let mut workers = BTreeMap::new();
    for calls in all {
        let worker = match workers.entry(calls.worker) {
            Entry::Occupied(started) => started.into_mut(),
            Entry::Vacant(place) => place.insert(start_worker(desk, STALL_NS, stall)?),
        };
        worker.lead(calls.portal)?;
    }
    Ok(workers)
}

/// The clients that call, by the order of the server's channels.
pub struct Callers {
    desk: &'static Desk,
    /// How each hears.
    signals: Vec<Option<Signal>>,
    /// Clients, a bit each, of which something has ended since they were told.
    ended: Cell<u64>,
    /// What was taken and is not with the device yet, by client and slot.
    taken: RefCell<Vec<(usize, usize)>>,
    /// They serve as long as this.
    workers: BTreeMap<u8, Worker>,
}

impl Callers {
    /// Starts the workers, and has the clients' portals lead to them. Each client is told: what it
    /// asked of a predecessor it is to ask again. `all` are the server's clients, each with what it
    /// is told of the disk; `core` is ours. What workers of other cores ask for is told by
    /// `wakeup`.
    ///
    /// # Errors
    /// Those of `CapMint`, `ContextAlloc` and `PortalSet`: the account is full.
    pub fn start(all: &[(Way, Disk)], bits: Bits, core: u32, wakeup: &Rc<Notify>) -> Result<Callers, Error> {
        let signals = all.iter().map(|(way, _)| way.signal()).collect();
        let handler = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bits.news)?;
        let client = |(way, disk): &(Way, Disk)| match way {
            Way::Messages => None,
            Way::Calls(calls) => Some(Client::new(calls.badge, calls.page, Limits::of(*disk), handler)),
            Way::Part(_, shared) => Some(Client::of_handler(shared)),
        };
        let desk = Desk::leak(all.iter().map(client).collect(), core);
        let workers = start_workers(desk, all.iter().filter_map(|(way, _)| way.calls()), bits.stall)?;
        for (way, _) in all {
            if let Way::Part(beside, shared) = way {
                beside.listen(Asked { shared, wakeup: wakeup.clone() });
            }
        }
        let callers = Callers { desk, signals, ended: Cell::new(u64::MAX), taken: RefCell::default(), workers };
        callers.signal();
        Ok(callers)
    }

    /// How many workers serve.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Gives `submit` what they have asked.
    pub fn take(&self, mut submit: impl FnMut(Request) -> Result<(), Ended>) {
        for client in 0..self.signals.len() {
            while let Some(asked) = self.desk.take(client) {
                match submit(words::called(client as u8, &asked.request)) {
                    Ok(()) => self.taken.borrow_mut().push((client, asked.slot)),
                    Err(ended) => {
                        let now_ns = runtime::now_ns();
                        self.end_one(client, asked.request.number, ended, [now_ns; 2]);
                    }
                }
            }
        }
    }

    /// What was taken was given to the device.
    pub fn programmed(&self) {
        let mut taken = self.taken.borrow_mut();
        if !taken.is_empty() {
            self.desk.programmed(&taken, runtime::now_ns());
            taken.clear();
        }
    }

    /// A request ended, as was seen at `seen_ns`. False: none that was called for.
    pub fn end(&self, end: &Completion, seen_ns: u64) -> bool {
        let Completion { client, id, outcome } = *end;
        self.end_one(client.into(), id, words::ended(outcome), [seen_ns, runtime::now_ns()])
    }

    fn end_one(&self, client: usize, number: u64, ended: Ended, [seen_ns, now_ns]: [u64; 2]) -> bool {
        let is_ours = self.desk.end(client, number, ended, seen_ns, now_ns);
        self.ended.set(self.ended.get() | u64::from(is_ours) << client);
        is_ours
    }

    /// Tells those of which something has ended. It never waits, whatever they do.
    pub fn signal(&self) {
        let ended = self.ended.take();
        let told = self.signals.iter().enumerate().filter(|(client, _)| ended & 1 << client != 0);
        told.filter_map(|(_, signal)| signal.as_ref()).for_each(Signal::raise);
    }

    /// A life of a client begins; see [`Desk::attached`].
    pub fn attached(&self, client: u8, first: u64) {
        self.desk.attached(client.into(), first);
    }

    /// The disk has another size.
    pub fn resize(&self, sectors: u64) {
        self.desk.resize(sectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::tests::DISK;
    use alloc::boxed::Box;
    use block_calls::{Operation, Request as Called, Session};
    use channel::Layout;
    use contracts::blocks::{BlocksError, Extent};
    use core::future::Future;
    use core::pin::pin;
    use core::sync::atomic::AtomicU64;
    use core::task::{Context, Waker};
    use virtio_blk::{Answer, Failure};

    const FIRST: u64 = 1000;
    const CORE: u32 = 7;

    /// What a client on this core is given.
    fn calls(badge: u64) -> Calls {
        let page = Box::leak(Box::new([const { AtomicU64::new(0) }; 512]));
        Calls { portal: Handle::NONE, semaphore: Handle::NONE, page, badge, worker: 0 }
    }

    /// A client by messages, one that calls here and one that calls on another core.
    struct World {
        callers: Callers,
        near: Session,
        far: Session,
        far_desk: &'static Desk,
        shared: &'static Shared,
    }

    const NEAR: usize = 1;
    const FAR: usize = 2;

    impl World {
        fn new() -> World {
            let [near, far] = [calls(11), calls(12)];
            let words: &'static [AtomicU64] = (0..4096).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            let shared = Shared::over(words).unwrap();
            let limits = || Limits::of(DISK);
            let clients = [
                None,
                Some(Client::new(near.badge, near.page, limits(), Handle::NONE)),
                Some(Client::of_handler(shared)),
            ];
            let far_client = Client::of_worker(far.badge, far.page, limits(), Handle::NONE, shared);
            let far_desk = Desk::leak([Some(far_client)].into(), 3);
            let callers = Callers {
                desk: Desk::leak(clients.into(), CORE),
                signals: [None, Some(Signal::Semaphore(Handle::NONE)), Some(Signal::Part(Handle::NONE, shared))].into(),
                ended: Cell::new(0),
                taken: RefCell::default(),
                workers: BTreeMap::new(),
            };
            [NEAR, FAR].into_iter().for_each(|client| callers.attached(client as u8, FIRST));
            far_desk.worker_attached(0, FIRST);
            World { callers, near: Session::new(near), far: Session::new(far), far_desk, shared }
        }

        /// A worker has a client's call; it gives the slots that have ended.
        fn call(&self, client: usize, ask: u64, pick_up: u64) -> u64 {
            let (desk, badge) = if client == NEAR { (self.callers.desk, 11) } else { (self.far_desk, 12) };
            desk.call(badge, [ask, pick_up, 0, 0], || 5).words[0]
        }

        /// A client reads into its slot of that number.
        fn ask(&self, client: usize, slot: usize) -> u64 {
            let session = if client == NEAR { &self.near } else { &self.far };
            session.fill(slot, &read(slot, 0));
            self.call(client, 1 << slot, 0)
        }

        fn take(&self) -> Vec<(u8, u64)> {
            let mut taken = Vec::new();
            self.callers.take(|request| {
                taken.push((request.client, request.id));
                Ok(())
            });
            taken
        }

        fn end(&self, client: usize, slot: u64) -> bool {
            let end = Completion { client: client as u8, id: FIRST + slot, outcome: Ok(Answer::Done) };
            self.callers.end(&end, 20)
        }
    }

    fn read(slot: usize, sector: u64) -> Called {
        let extent = Extent { sector, sectors: 8 };
        Called { operation: Operation::Read, number: FIRST + slot as u64, extent, offset: 8192 }
    }

    #[test]
    fn what_clients_call_for_is_taken_and_ended_once() {
        let world = World::new();
        assert_eq!((world.ask(NEAR, 3), world.ask(FAR, 4), world.ask(FAR, 5)), (0, 0, 0));
        assert_eq!(world.take(), [(1, FIRST + 3), (2, FIRST + 4), (2, FIRST + 5)]);
        assert_eq!(world.take(), []);
        world.callers.programmed();
        world.callers.programmed();
        assert!(!world.end(0, 3) && !world.end(NEAR, 4), "nobody called for it");
        assert!(world.end(NEAR, 3) && !world.end(NEAR, 3));
        assert_eq!((world.call(NEAR, 0, 1 << 3), world.near.ended(3)), (1 << 3, Ended::Done));
        let phases = world.near.phases(3);
        assert!(phases.program_ns > 5, "{phases:?}");
        assert_eq!((phases.submit_core, phases.program_core, world.callers.workers()), (CORE, CORE, 0));
        let failed = Completion { client: FAR as u8, id: FIRST + 4, outcome: Err(Failure::Io) };
        assert!(world.callers.end(&failed, 20));
        assert_eq!((world.call(FAR, 0, 1 << 4), world.far.ended(4)), (1 << 4, Ended::Failed(BlocksError::Io)));
        let phases = world.far.phases(4);
        assert_eq!((phases.submit_core, phases.program_core), (3, CORE));
    }

    #[test]
    fn what_the_driver_refuses_has_ended_at_once() {
        let world = World::new();
        world.ask(FAR, 0);
        world.callers.take(|_| Err(Ended::Failed(BlocksError::Full)));
        assert_eq!((world.call(FAR, 0, 1), world.far.ended(0)), (1, Ended::Failed(BlocksError::Full)));
        world.callers.signal();
        assert!(world.shared.has_end(), "its client is told too");
    }

    #[test]
    fn those_hear_of_whom_something_has_ended() {
        let world = World::new();
        [NEAR, FAR].into_iter().for_each(|client| (0..2).for_each(|slot| _ = world.ask(client, slot)));
        assert_eq!(world.take().len(), 4);
        assert!(world.end(NEAR, 0));
        world.callers.signal();
        assert!(!world.shared.has_end(), "that was another's");
        assert!(world.end(FAR, 0) && world.end(FAR, 1));
        assert!(!world.shared.has_end());
        world.callers.signal();
        assert!(world.shared.take_end());
        world.callers.signal();
        assert!(!world.shared.has_end(), "it was told of all");
    }

    #[test]
    fn what_is_asked_on_another_core_is_seen_here_and_wakes_the_driver() {
        let world = World::new();
        let asked = Asked { shared: world.shared, wakeup: Rc::default() };
        let wakeup = asked.wakeup.clone();
        let is_woken = || pin!(wakeup.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!asked.is_ready() && !is_woken());
        world.ask(FAR, 0);
        assert!(asked.is_ready());
        asked.take();
        assert!(is_woken());
        world.take();
        assert!(!asked.is_ready());
    }

    #[test]
    fn a_life_and_a_size_of_the_disk_count_from_when_they_are_told() {
        let world = World::new();
        let answer = |sector| {
            world.near.fill(1, &read(1, sector));
            (world.call(NEAR, 2, 0) == 2).then(|| world.near.ended(1))
        };
        assert_eq!(answer(80), Some(Ended::Failed(BlocksError::Range)));
        world.callers.resize(88);
        assert_eq!(answer(80), None);
        assert_eq!(world.take().len(), 1);
        assert!(world.end(NEAR, 1));
        assert_eq!(world.call(NEAR, 0, 2), 2);
        world.callers.attached(NEAR as u8, FIRST + 2);
        assert_eq!(answer(0), Some(Ended::Failed(BlocksError::Number)), "that was of the life before");
    }

    #[test]
    fn a_client_asks_as_its_channel_was_made() {
        let (_client, channel) = channel::loopback(Layout::default());
        let messages = Way::of(&channel, None);
        assert!(matches!(messages, Way::Messages) && messages.calls().is_none() && messages.signal().is_none());
        let calls = Way::of(&channel, Some(Calls { semaphore: Handle(77), ..calls(11) }));
        assert!(calls.calls().is_some_and(|calls| calls.badge == 11));
        assert!(matches!(calls.signal(), Some(Signal::Semaphore(Handle(77)))));
    }

    #[test]
    fn without_its_workers_nobody_serves() {
        let desk = Desk::leak(Vec::new(), 0);
        assert!(start_workers(desk, [calls(11)].iter(), 1).is_err(), "a host has no kernel");
    }
}
