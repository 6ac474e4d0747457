//! Wires the driver to its device, its regions and IP.
//!
//! One task serves IP, one waits for interrupts, one does a turn after either: so that whatever
//! arrived together leaves together.
//!
//! That is one handler for the card. Where the system's description says two, and the card has a
//! message for it, the transmit queue has a handler of its own (`virtio::device::Running`).

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;
use contracts::network::{
    self, FrameNumber, Link, NetworkError, NetworkEvents, NetworkServer, Settings, serve_network,
};
use core::cell::{Cell, RefCell};
use packet::{BufferSet, MTU, Notify, Outbox, Span};
use runtime::{Bulk, Peer, Start};
use virtio::device::{APART, Card, Claim, RESET_NS, Running, SERVED_NS};
use virtio_net::driver::{Region, TRANSMIT};
use virtio_net::{Driver, Found, Places, Stillness, Transport, device};

/// Until a full channel is tried again.
const RETRY_NS: u64 = 500_000;
/// The device has this long to do what it is told.
const SETTING_NS: u64 = 1_000_000_000;
/// While the device has frames we look so often which of them it has sent: it does not interrupt
/// for a few. TCP, which does not send again what has not left the machine, has to hear of it
/// before its shortest wait of 200 ms is over.
const LOOK_NS: u64 = 100_000_000;
/// A device that has frames to send and reads none for so long is reset.
const STILL_NS: u64 = 1_000_000_000;
/// A device that has to be reset twice within this time is of no use to this driver.
const RESETS_APART_NS: u64 = 1_000_000_000;
/// Badge bit of the queues' interrupt.
const INTERRUPT: u64 = 1 << 56;
/// Badge bit of the interrupt for a changed configuration.
const CHANGED: u64 = 1 << 57;
/// Badge bit of the handler of what is transmitted: it has news.
const SENT: u64 = 1 << 58;
/// The priority of the description, in classes.
const PRIORITY: u64 = 5;
/// A word of the kernel's command line: the driver tells who rings the doorbells.
const TELL_WORD: &str = "virtio-net.doorbells";

type NetDriver = Driver<alloc::boxed::Box<dyn Transport>, Bulk>;

struct Service {
    claim: Claim,
    driver: RefCell<NetDriver>,
    /// The handler of what is transmitted; `None`: the driver transmits itself.
    handler: RefCell<Option<Running>>,
    has_two_handlers: bool,
    /// When the device was reset last.
    reset_ns: Cell<Option<u64>>,
    /// Somebody looks what the device sends.
    is_watched: Cell<bool>,
    client: RefCell<Option<NetworkEvents>>,
    /// What was kept back is for a client that is no more.
    stale: Cell<bool>,
    wakeup: Notify,
    /// Notified after each turn.
    turned: Notify,
    /// Whether there is a link, and what the client was told of that.
    up: Cell<bool>,
    told: Cell<bool>,
}

impl Service {
    /// The configuration changed: there may be a link, or none any more; or the device gave up.
    fn look_at_change(&self) {
        if self.driver.borrow_mut().is_lost() {
            self.restart("it asks for that");
        }
        self.up.set(self.driver.borrow_mut().link_is_up());
        self.wakeup.notify();
    }

    /// Resets the device. A driver that has to do so again soon, or cannot, ends.
    fn restart(&self, why: &str) {
        runtime::log!("the device is reset: {why}");
        let now_ns = runtime::now_ns();
        if self.reset_ns.replace(Some(now_ns)).is_some_and(|last_ns| now_ns - last_ns < RESETS_APART_NS) {
            fail(format_args!("the device had to be reset twice within a second"));
        }
        // Wherever it is: its queue is the driver's again.
        self.handler.take();
        if let Err(error) = self.driver.borrow_mut().restart(&mut Card::new(self.claim, RESET_NS)) {
            fail(format_args!("the device does not come back: {error:?}"));
        }
        self.part();
        self.wakeup.notify();
    }

    /// Has what is transmitted handled on a context of its own, where that is to be.
    fn part(&self) {
        if !self.has_two_handlers {
            return;
        }
        let Some(handler) = self.driver.borrow_mut().part_transmit() else { return };
        match Running::start(handler, self.claim, SENT, PRIORITY) {
            Ok(running) => drop(self.handler.replace(Some(running))),
            Err(error) => fail(format_args!("no second handler can be started: {error:?}")),
        }
    }

    /// There may be something to do for the handler of what is transmitted.
    fn prod(&self) {
        if let Some(handler) = &*self.handler.borrow() {
            handler.notify();
        }
    }

    fn detach(&self) {
        self.client.take();
        self.stale.set(true);
        self.driver.borrow_mut().detach();
        self.wakeup.notify();
    }
}

impl NetworkServer for Service {
    async fn attach(&self, peer: &Peer, held: BufferSet) -> Result<Link, NetworkError> {
        let mut driver = self.driver.borrow_mut();
        let before = driver.counters().redelivered;
        let busy = driver.attach(&held);
        let redelivered = driver.counters().redelivered - before;
        if redelivered > 0 {
            runtime::log!("{redelivered} frames wait for the new ip, or were left by an earlier driver");
        }
        self.client.replace(Some(NetworkEvents::new(peer)));
        self.stale.set(true);
        self.wakeup.notify();
        let up = driver.link_is_up();
        self.up.set(up);
        self.told.set(up);
        let kept = !driver.take_reset();
        let (epoch, number) = driver.next_frame();
        Ok(Link {
            address: driver.address(),
            mtu: MTU as u16,
            up,
            rings: driver.rings(),
            busy,
            kept,
            next: FrameNumber { epoch, number },
        })
    }

    async fn configure(&self, _: &Peer, settings: Settings) -> Result<(), NetworkError> {
        self.driver.borrow_mut().set_promiscuous(settings.promiscuous);
        self.wakeup.notify();
        let outcome = || self.driver.borrow().promiscuous();
        // What it did not do in time is told as what it refused.
        let _ = runtime::timeout(SETTING_NS, self.turned.until(|| outcome().is_some())).await;
        match outcome() {
            Some(Ok(_)) => Ok(()),
            Some(Err(_)) | None => Err(NetworkError::Refused),
        }
    }

    fn transmit(&self, _: &Peer, frames: Vec<Span>) {
        self.driver.borrow_mut().transmit(&frames);
        self.wakeup.notify();
    }

    fn release_buffers(&self, _: &Peer, buffers: Vec<u16>) {
        self.driver.borrow_mut().release_buffers(&buffers);
        self.wakeup.notify();
    }

    fn peer_restarted(&self, _: &Peer) {
        self.detach();
    }

    fn peer_closed(&self, _: &Peer) {
        self.detach();
    }
}

/// Status of a driver that cannot go on: the supervisor sees a failure, not an end in order.
const FAILED: u64 = 1;

/// Says why, and ends.
fn fail(reason: core::fmt::Arguments<'_>) -> ! {
    runtime::log!("{reason}");
    sys::domain_exit(FAILED)
}

/// What a full channel keeps back.
#[derive(Default)]
struct Outboxes {
    received: Outbox<Span>,
    transmitted: Outbox<u16>,
    is_reset: bool,
}

/// One turn: looks at the device, tells IP, shows the device what is new. True if everything is
/// out.
fn turn(service: &Service, boxes: &mut Outboxes) -> bool {
    let looked = service.driver.borrow_mut().look();
    if looked.is_err() {
        service.restart("it broke the protocol");
    }
    let mut driver = service.driver.borrow_mut();
    let output = driver.take_output();
    driver.flush();
    if driver.take_handler_asked() {
        service.prod();
    }
    if service.stale.take() {
        *boxes = Outboxes::default();
    }
    let client = service.client.borrow();
    let Some(client) = client.as_ref() else { return true };
    boxes.received.extend(output.received);
    boxes.transmitted.extend(output.transmitted);
    boxes.is_reset |= driver.take_reset();
    if boxes.is_reset && client.has_room() && client.reset().is_ok() {
        boxes.is_reset = false;
    }
    let received = boxes.received.flush(|frames| client.has_room() && client.received(frames).is_ok());
    let up = service.up.get();
    if service.told.get() != up && client.has_room() && client.link(up).is_ok() {
        service.told.set(up);
    }
    service.told.get() == up
        && !boxes.is_reset
        && boxes.transmitted.flush(|buffers| client.has_room() && client.transmitted(buffers).is_ok())
        && received
}

/// A turn after each batch of requests or interrupts.
async fn turns(service: Rc<Service>) {
    let mut boxes = Outboxes::default();
    loop {
        service.wakeup.notified().await;
        let is_out = turn(&service, &mut boxes);
        service.turned.notify();
        if service.driver.borrow().sending() > 0 && !service.is_watched.replace(true) {
            runtime::spawn(watch(service.clone()));
        }
        if !is_out {
            runtime::sleep(RETRY_NS).await;
            service.wakeup.notify();
        }
    }
}

/// Looks now and then what the device has sent, while it has frames; resets one that stands still.
async fn watch(service: Rc<Service>) {
    let mut stillness = Stillness::default();
    while service.driver.borrow().sending() > 0 {
        runtime::sleep(LOOK_NS).await;
        if stillness.lasts(service.driver.borrow().sending_progress(), runtime::now_ns()) >= STILL_NS {
            stillness = Stillness::default();
            service.restart("it sent nothing for a second");
        }
        service.prod();
        service.wakeup.notify();
    }
    service.is_watched.set(false);
}

/// Once it has served for a while, a driver leaves its successor a device to go on with.
async fn settle_in(service: Rc<Service>) {
    runtime::sleep(SERVED_NS).await;
    service.driver.borrow_mut().served();
}

/// A turn after what the handler of what is transmitted has to tell.
async fn sent(service: Rc<Service>) {
    loop {
        runtime::notified(SENT).await;
        service.wakeup.notify();
    }
}

/// Tells, once it has served for a while, who rang the doorbells, and how many contexts of its
/// own the kernel says have paid for that.
async fn tell(service: Rc<Service>, domain: u64) {
    runtime::sleep(SERVED_NS).await;
    let rows = (0..).map_while(|row| sys::ledger_read(abi::Handle::SELF_DOMAIN, row).ok());
    let payers = rows.filter(|(_, client, paid_ns)| *client == domain && *paid_ns > 0).count();
    let [(received, receiver), (transmitted, transmitter)] = service.driver.borrow().ring_counts();
    runtime::log!(
        "doorbells: receive {received} times, stack {receiver:x}; transmit {transmitted} times, stack \
         {transmitter:x}; {payers} contexts paid"
    );
}

async fn links(service: Rc<Service>) {
    loop {
        runtime::notified(CHANGED).await;
        service.look_at_change();
    }
}

/// Whether a second handler can have an interrupt of its own; says so where it cannot.
fn has_message(claim: Claim) -> bool {
    match device::interrupt_apart(claim, INTERRUPT) {
        Ok(()) => true,
        Err(error) => {
            runtime::log!("the card has no third message ({error:?}): one handler receives and transmits");
            false
        }
    }
}

async fn component(start: Start) {
    let Some(found) = start.device("virtio-net") else {
        return runtime::log!("no device virtio-net was given: start the machine with a virtio network card");
    };
    let (mut transport, claim) = match device::begin(found.handle, virtio_net::KIND, INTERRUPT, CHANGED) {
        Ok(opened) => opened,
        Err(reason) => fail(format_args!("{reason}")),
    };
    let has_two_handlers = found.handlers == 2 && has_message(claim);
    if has_two_handlers {
        transport.set_message(TRANSMIT, APART);
    }
    let regions = ["virtio-rings", "rx-packets", "tx-packets"].map(|name| start.region(name));
    let [Some(rings), Some(receive), Some(transmit)] = regions else {
        fail(format_args!("regions virtio-rings, rx-packets or tx-packets are missing: correct system/*.toml"));
    };
    let region = |region: runtime::Region| Region { memory: region.memory(), physical: region.physical };
    let places = Places { rings: region(rings), receive: receive.physical, transmit: region(transmit) };
    let (driver, found) = match Driver::start(transport, places, &mut Card::new(claim, RESET_NS)) {
        Ok(started) => started,
        Err(error) => fail(format_args!("the device does not start: {error:?}")),
    };
    if let Found::Reset(why) = found {
        runtime::log!("the device is reset, and frames may be lost: {why:?}");
    }
    let [a, b, c, d, e, f] = driver.address();
    runtime::log!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, start {}", start.generation());
    let service = Rc::new(Service {
        claim,
        driver: RefCell::new(driver),
        handler: RefCell::default(),
        has_two_handlers,
        reset_ns: Cell::new((found != Found::Running).then(runtime::now_ns)),
        is_watched: Cell::new(false),
        client: RefCell::new(None),
        stale: Cell::new(false),
        wakeup: Notify::default(),
        turned: Notify::default(),
        up: Cell::default(),
        told: Cell::default(),
    });
    service.part();
    // A device that was just started is told how it is to be set.
    service.wakeup.notify();
    runtime::spawn(turns(service.clone()));
    if has_two_handlers {
        runtime::spawn(sent(service.clone()));
    }
    runtime::spawn(links(service.clone()));
    runtime::spawn(settle_in(service.clone()));
    for channel in start.servers(network::NAME) {
        runtime::spawn(serve_network(service.clone(), channel));
    }
    start.serving();
    if start.command_line().split(' ').any(|word| word == TELL_WORD) {
        runtime::spawn(tell(service.clone(), start.domain_id()));
    }
    let acknowledge = || {
        if service.driver.borrow_mut().acknowledge() {
            service.look_at_change();
        }
    };
    device::serve_interrupts(claim, INTERRUPT, acknowledge, || service.wakeup.notify()).await;
}

runtime::main!(component);
