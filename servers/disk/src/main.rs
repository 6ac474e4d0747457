//! Wires the driver to its device, its regions and the clients of `blocks`.
//!
//! Each client's requests wait in tasks of their own; one task waits for interrupts, one does a
//! turn after either: what was asked together is given to the device together. Clients of this core
//! may call workers, whose news the same turn takes, as it takes those of workers on other cores:
//! this context alone reaches the device.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;
use block_calls::Ended;
use contracts::blocks::{self, BlocksError, BlocksEvents, BlocksServer, Disk, Extent, Flushed, serve_blocks};
use core::cell::{Cell, RefCell};
use disk_core::calls::{Bits, Callers, Way};
use disk_core::waiting::Waiting;
use disk_core::without::NoDevice;
use disk_core::{part, words};
use packet::Notify;
use runtime::{Bulk, Peer, Start};
use virtio::Transport;
use virtio::device::{self, Card, Claim, RESET_NS, SERVED_NS};
use virtio::stillness::Stillness;
use virtio_blk::request::CLIENTS_MAX;
use virtio_blk::{Answer, Driver, Found, Operation, Places};

/// While the device has requests, we look so often whether it does something.
const LOOK_NS: u64 = 500_000_000;
/// A device that has something to do and does nothing for so long is reset: a host's disk may take
/// seconds.
const STILL_NS: u64 = 10_000_000_000;
/// A device that has to be reset twice within this time is left to the next driver, which begins
/// from the record.
const RESETS_APART_NS: u64 = 1_000_000_000;
/// Badge bit of the queue's interrupt.
const INTERRUPT: u64 = 1 << 56;
/// Badge bit of the interrupt for a changed configuration.
const CHANGED: u64 = 1 << 57;
/// Badge bits of the workers: they have news, and one hangs.
const CALLS: Bits = Bits { news: 1 << 58, stall: 1 << 59 };
/// Status of a driver that cannot go on: the supervisor sees a failure, not an end in order.
const FAILED: u64 = 1;
/// No sectors.
const NOWHERE: Extent = Extent { sector: 0, sectors: 0 };

type BlockDriver = Driver<alloc::boxed::Box<dyn Transport>, Bulk>;

struct Service {
    claim: Claim,
    driver: RefCell<BlockDriver>,
    /// When the device was reset last.
    reset_ns: Cell<Option<u64>>,
    /// Somebody looks whether the device does something.
    is_watched: Cell<bool>,
    waiting: Waiting,
    callers: Callers,
    wakeup: Rc<Notify>,
    /// Notified after each turn.
    turned: Notify,
    clients: RefCell<Vec<Peer>>,
}

impl Service {
    /// Resets the device. A driver that has to do so again soon, or cannot, ends; but not before it
    /// has told what came to an end by that.
    fn restart(&self, why: &str) {
        runtime::log!("the device is reset: {why}");
        let now_ns = runtime::now_ns();
        let last_ns = self.reset_ns.replace(Some(now_ns));
        if let Err(error) = self.driver.borrow_mut().restart(&mut Card::new(self.claim, RESET_NS)) {
            fail(format_args!("the device does not come back: {error:?}"));
        }
        if !self.tell(now_ns) && last_ns.is_some_and(|last_ns| now_ns - last_ns < RESETS_APART_NS) {
            fail(format_args!("the device had to be reset twice within a second"));
        }
        self.wakeup.notify();
    }

    /// Tells who waits what ended, as was seen at `seen_ns`; whether anything did.
    fn tell(&self, seen_ns: u64) -> bool {
        let ends = self.driver.borrow_mut().take_output();
        let is_some = !ends.is_empty();
        for end in ends {
            if !self.callers.end(&end, seen_ns) {
                self.waiting.end(end);
            }
        }
        self.callers.signal();
        is_some
    }

    /// Takes what clients have called for.
    fn take_calls(&self) {
        let mut driver = self.driver.borrow_mut();
        self.callers.take(|request| driver.submit(request).map_err(|why| Ended::Failed(words::refused(why))));
    }

    /// The configuration changed: the disk has another size, or the device gave up.
    fn look_at_change(&self) {
        if self.driver.borrow_mut().is_lost() {
            return self.restart("it asks for that");
        }
        let looked = self.driver.borrow_mut().look_at_size();
        match looked {
            Err(error) => self.restart(&alloc::format!("it says of itself what cannot be: {error:?}")),
            Ok(true) => {
                let sectors = self.driver.borrow().disk().sectors;
                runtime::log!("the disk has {sectors} sectors now");
                self.callers.resize(sectors);
                for client in self.clients.borrow().iter() {
                    // One that cannot be told finds out: what is behind the end is refused.
                    let _ = BlocksEvents::new(client).resized(sectors);
                }
            }
            Ok(false) => {}
        }
    }

    /// One turn: looks at the device, tells who waits, gives the device what is new.
    fn turn(&self) {
        let seen_ns = runtime::now_ns();
        self.take_calls();
        let looked = self.driver.borrow_mut().look();
        if looked.is_err() {
            self.restart("it broke the protocol");
        }
        self.driver.borrow_mut().flush();
        self.callers.programmed();
        self.tell(seen_ns);
    }
}

/// One client.
struct Session {
    service: Rc<Service>,
    client: u8,
}

impl Session {
    async fn ask(&self, number: u64, operation: Operation, extent: Extent, offset: u32) -> Result<Answer, BlocksError> {
        let Service { driver, waiting, wakeup, .. } = &*self.service;
        let wait = waiting.begin(self.client, number).ok_or(BlocksError::Number)?;
        let request = words::request(self.client, number, operation, extent, offset);
        driver.borrow_mut().submit(request).map_err(words::refused)?;
        wakeup.notify();
        wait.await.map_err(words::failed)
    }

    async fn carry_out(
        &self,
        number: u64,
        operation: Operation,
        extent: Extent,
        offset: u32,
    ) -> Result<(), BlocksError> {
        self.ask(number, operation, extent, offset).await.map(|_| ())
    }

    fn leave(&self) {
        self.service.driver.borrow_mut().abandon(self.client, u64::MAX);
        self.service.turned.notify();
    }
}

impl BlocksServer for Session {
    async fn attach(&self, _: &Peer, first: u64) -> Result<Disk, BlocksError> {
        let Service { driver, turned, callers, .. } = &*self.service;
        self.service.take_calls();
        callers.attached(self.client, first);
        driver.borrow_mut().abandon(self.client, first);
        turned.until(|| !driver.borrow().holds(self.client, first)).await;
        let driver = driver.borrow();
        let part = driver.part(self.client).ok_or(BlocksError::Range)?;
        Ok(words::disk(driver.disk(), part))
    }

    async fn read(&self, _: &Peer, number: u64, from: Extent, offset: u32) -> Result<(), BlocksError> {
        self.carry_out(number, Operation::Read, from, offset).await
    }

    async fn write(&self, _: &Peer, number: u64, to: Extent, offset: u32) -> Result<(), BlocksError> {
        self.carry_out(number, Operation::Write, to, offset).await
    }

    async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
        Ok(match self.ask(number, Operation::Flush, NOWHERE, 0).await? {
            Answer::WritesThrough => Flushed::WritesThrough,
            Answer::Done | Answer::Identity(_) => Flushed::Stored,
        })
    }

    async fn discard(&self, _: &Peer, number: u64, extent: Extent) -> Result<(), BlocksError> {
        self.carry_out(number, Operation::Discard, extent, 0).await
    }

    async fn write_zeroes(&self, _: &Peer, number: u64, extent: Extent, may_discard: bool) -> Result<(), BlocksError> {
        self.carry_out(number, Operation::WriteZeroes { may_discard }, extent, 0).await
    }

    async fn identify(&self, _: &Peer, number: u64) -> Result<[u8; blocks::NAME_BYTES], BlocksError> {
        match self.ask(number, Operation::Identify, NOWHERE, 0).await? {
            Answer::Identity(name) => Ok(name),
            Answer::Done | Answer::WritesThrough => Err(BlocksError::Unsupported),
        }
    }

    fn peer_restarted(&self, _: &Peer) {
        self.leave();
    }

    fn peer_closed(&self, _: &Peer) {
        self.leave();
    }
}

/// Says why, and ends.
fn fail(reason: core::fmt::Arguments<'_>) -> ! {
    runtime::log!("{reason}");
    sys::domain_exit(FAILED)
}

/// A turn after each batch of requests or interrupts.
async fn turns(service: Rc<Service>) {
    loop {
        service.wakeup.notified().await;
        service.turn();
        service.turned.notify();
        if service.driver.borrow().progress().is_some() && !service.is_watched.replace(true) {
            runtime::spawn(watch(service.clone()));
        }
    }
}

/// Resets a device that stands still with something to do.
async fn watch(service: Rc<Service>) {
    let mut stillness = Stillness::default();
    loop {
        let progress = service.driver.borrow().progress();
        if progress.is_none() {
            return service.is_watched.set(false);
        }
        if stillness.lasts(progress, runtime::now_ns()) >= STILL_NS {
            stillness = Stillness::default();
            service.restart("it did nothing for 10 seconds");
        }
        runtime::sleep(LOOK_NS).await;
    }
}

/// Once it has served for a while, a driver leaves its successor a device to go on with.
async fn settle_in(service: Rc<Service>) {
    runtime::sleep(SERVED_NS).await;
    service.driver.borrow_mut().served();
}

async fn changes(service: Rc<Service>) {
    loop {
        runtime::notified(CHANGED).await;
        service.look_at_change();
    }
}

/// A worker that hangs ends with all of this: its callers hear it, and ask the next.
async fn workers_hang() {
    runtime::notified(CALLS.stall).await;
    fail(format_args!("a worker hangs"));
}

async fn news(service: Rc<Service>) {
    loop {
        runtime::notified(CALLS.news).await;
        service.wakeup.notify();
    }
}

/// Tells of workers.
fn say(workers: usize) {
    match workers {
        0 => (),
        1 => runtime::log!("1 worker for calls"),
        workers => runtime::log!("{workers} workers for calls"),
    }
}

/// A dispatcher on another core than the device.
async fn part(start: Start) {
    match part::serve(&start, CALLS.stall).await {
        Ok(workers) => {
            say(workers.len());
            start.serving();
            // They serve as long as this.
            workers_hang().await;
        }
        Err(failure) => fail(format_args!("this core is not served: {failure:?}")),
    }
}

/// Starts the workers for those clients that may call.
fn callers(driver: &BlockDriver, ways: Vec<Way>, core: u32, wakeup: &Rc<Notify>) -> Callers {
    let client = |(client, way): (u8, Way)| (way, words::disk(driver.disk(), driver.part(client).unwrap_or_default()));
    let all: Vec<_> = (0..).zip(ways).map(client).collect();
    match Callers::start(&all, CALLS, core, wakeup) {
        Ok(callers) => {
            say(callers.workers());
            callers
        }
        Err(error) => fail(format_args!("no workers for calls: {error:?}")),
    }
}

/// Brings the device up.
fn open(start: &Start, clients: usize) -> Option<(BlockDriver, Claim, Found)> {
    let Some(found) = start.device("virtio-blk") else {
        runtime::log!("no device virtio-blk was given: start the machine with a virtio disk");
        return None;
    };
    let (transport, claim) = match device::begin(found.handle, virtio_blk::KIND, INTERRUPT, CHANGED) {
        Ok(opened) => opened,
        Err(reason) => fail(format_args!("{reason}")),
    };
    let [Some(rings), Some(data)] = ["disk-rings", "disk-data"].map(|name| start.region(name)) else {
        fail(format_args!("regions disk-rings or disk-data are missing: correct system/*.toml"));
    };
    if !(1..=usize::from(CLIENTS_MAX)).contains(&clients) {
        fail(format_args!("{clients} components use blocks, not 1 to {CLIENTS_MAX}: correct system/*.toml"));
    }
    let places = Places {
        rings: rings.memory(),
        rings_physical: rings.physical,
        data_physical: data.physical,
        data_bytes: u32::try_from(data.bytes).unwrap_or(u32::MAX),
        clients: clients as u8,
    };
    match Driver::start(transport, places, &mut Card::new(claim, RESET_NS)) {
        Ok((driver, found)) => Some((driver, claim, found)),
        Err(error) => fail(format_args!("the device does not start: {error:?}")),
    }
}

async fn component(start: Start) {
    if start.program().is_some_and(|program| program.number > 0) {
        return part(start).await;
    }
    let clients = start.servers_that_are_called(blocks::NAME);
    let Some((driver, claim, found)) = open(&start, clients.len()) else {
        for (channel, _) in clients {
            runtime::spawn(serve_blocks(Rc::new(NoDevice), channel));
        }
        start.serving();
        return core::future::pending().await;
    };
    if let Found::Reset(why) = found {
        runtime::log!("the device is reset, and does again what it had not done: {why:?}");
    }
    let pending = driver.pending();
    let sectors = driver.disk().sectors;
    runtime::log!("{sectors} sectors, start {}, {pending} requests under way", start.generation());
    let (clients, ways): (Vec<_>, _) = clients
        .into_iter()
        .map(|(channel, calls)| {
            let way = Way::of(&channel, calls);
            (channel, way)
        })
        .unzip();
    let wakeup = Rc::new(Notify::default());
    let callers = callers(&driver, ways, start.core(), &wakeup);
    let service = Rc::new(Service {
        callers,
        claim,
        driver: RefCell::new(driver),
        reset_ns: Cell::new(None),
        is_watched: Cell::new(false),
        waiting: Waiting::default(),
        wakeup,
        turned: Notify::default(),
        clients: RefCell::default(),
    });
    // What a predecessor left is given to a device that was reset, or waited for.
    service.wakeup.notify();
    runtime::spawn(turns(service.clone()));
    runtime::spawn(changes(service.clone()));
    runtime::spawn(settle_in(service.clone()));
    runtime::spawn(news(service.clone()));
    runtime::spawn(workers_hang());
    for (client, channel) in (0..).zip(clients) {
        service.clients.borrow_mut().push(channel.peer().clone());
        runtime::spawn(serve_blocks(Rc::new(Session { service: service.clone(), client }), channel));
    }
    start.serving();
    let acknowledge = || {
        if service.driver.borrow_mut().acknowledge() {
            service.look_at_change();
        }
    };
    device::serve_interrupts(claim, INTERRUPT, acknowledge, || service.wakeup.notify()).await;
}

runtime::main!(component);
