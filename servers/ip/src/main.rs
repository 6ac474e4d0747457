//! Wires IP to the driver below and TCP above.
//!
//! The link task attaches to the driver, again after each restart of it, and feeds what comes;
//! TCP's operations feed what goes; after either the turn task passes everything on in batches. All
//! state is in [`Ip`].

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;
use contracts::network::{NetworkClient, NetworkEvent, Settings};
use contracts::packets::{self, Attached, HostAddress, PacketsError, PacketsEvents, PacketsServer, serve_packets};
use core::cell::{Cell, RefCell};
use ip::{Host, Ip, Link, Output};
use packet::{MTU, Notify, Number, Outbox, Span};
use runtime::{Bulk, Peer, Start};

/// Until a full channel, or a driver without a device, is tried again.
const RETRY_NS: u64 = 500_000;
const NO_DEVICE_NS: u64 = 200_000_000;

struct Service {
    ip: RefCell<Ip<Bulk>>,
    tcp: RefCell<Option<PacketsEvents>>,
    wakeup: Notify,
    /// What was kept back is for a driver, or for a TCP, that is no more.
    stale: Cell<(bool, bool)>,
    /// Notified when a driver is attached.
    link: Notify,
    /// Whether the link was up, as it was last said.
    up: Cell<Option<bool>>,
    /// How the device is to be set.
    settings: Settings,
}

/// Word of the command line: the card shall receive frames for others too.
const PROMISCUOUS: &str = "pelago.promiscuous";

fn wire_address(host: Option<Host>) -> Option<HostAddress> {
    host.map(|host| HostAddress { address: host.address.octets(), prefix_bits: host.prefix_bits })
}

impl Service {
    /// Says it if the link went up or down. Nothing else depends on it: what is sent without a link
    /// is lost as on any network.
    fn link_is(&self, up: bool) {
        if self.up.replace(Some(up)) != Some(up) {
            runtime::log!("link {}", if up { "up" } else { "down" });
        }
    }

    fn detach_tcp(&self) {
        self.tcp.take();
        self.stale.set((self.stale.get().0, true));
        self.ip.borrow_mut().detach_tcp();
        self.wakeup.notify();
    }
}

impl PacketsServer for Service {
    async fn attach(&self, peer: &Peer) -> Result<Attached, PacketsError> {
        self.link.until(|| self.ip.borrow().driver_attached()).await;
        let attached = self.ip.borrow_mut().attach_tcp();
        self.tcp.replace(Some(PacketsEvents::new(peer)));
        self.stale.set((self.stale.get().0, true));
        self.wakeup.notify();
        let address = wire_address(attached.host);
        Ok(Attached { address, mtu: MTU as u16, busy: attached.busy, kept: attached.kept })
    }

    fn send(&self, _: &Peer, packets: Vec<Span>) {
        self.ip.borrow_mut().send(&packets, runtime::now_ns());
        self.wakeup.notify();
    }

    fn release_buffers(&self, _: &Peer, buffers: Vec<u16>) {
        self.ip.borrow_mut().release_buffers(&buffers);
        self.wakeup.notify();
    }

    fn peer_restarted(&self, _: &Peer) {
        self.detach_tcp();
    }

    fn peer_closed(&self, _: &Peer) {
        self.detach_tcp();
    }
}

async fn configure(driver: NetworkClient, settings: Settings) {
    match driver.configure(settings).await {
        Ok(()) => runtime::log!("the card is set: {settings:?}"),
        Err(error) => runtime::log!("the card cannot be set so ({error:?}): {settings:?}"),
    }
}

/// Attaches and feeds until the driver has to be attached again.
async fn link(service: &Service, driver: &NetworkClient) {
    let held = service.ip.borrow_mut().detach_driver();
    service.stale.set((true, service.stale.get().1));
    match driver.attach(held).await {
        Ok(answer) => {
            let ethernet = smoltcp::wire::EthernetAddress(answer.address);
            let next = Number { epoch: answer.next.epoch, number: answer.next.number };
            let link = Link { ethernet, busy: answer.busy, kept: answer.kept, next };
            service.ip.borrow_mut().attach_driver(link, runtime::now_ns());
            let [receive, transmit] = answer.rings;
            if service.up.get().is_none() {
                runtime::log!("a card for {receive} frames in and {transmit} out, packets of {} bytes", answer.mtu);
            }
            service.link_is(answer.up);
            if service.settings != Settings::default() {
                runtime::spawn(configure(driver.clone(), service.settings));
            }
        }
        Err(error) => {
            runtime::log!("no link: {error:?}");
            return runtime::sleep(NO_DEVICE_NS).await;
        }
    }
    service.link.notify();
    service.wakeup.notify();
    loop {
        match driver.next_event().await {
            NetworkEvent::Received { frames } => service.ip.borrow_mut().received(&frames, runtime::now_ns()),
            NetworkEvent::Link { up } => service.link_is(up),
            NetworkEvent::Reset {} => service.ip.borrow_mut().lost(),
            NetworkEvent::Transmitted { buffers } => service.ip.borrow_mut().transmitted(&buffers),
            NetworkEvent::Lost | NetworkEvent::PeerRestarted => return,
            NetworkEvent::Closed => {
                // One side broke the contract; what follows is the driver's restart.
                runtime::log!("the driver's channel is closed until one of us is restarted");
                service.ip.borrow_mut().detach_driver();
                service.wakeup.notify();
                continue;
            }
        }
        service.wakeup.notify();
    }
}

/// Everything that is to be passed on, and what a full channel keeps back.
#[derive(Default)]
struct Outboxes {
    transmit: Outbox<Span>,
    released: Outbox<u16>,
    received: Outbox<Span>,
    sent: Outbox<u16>,
}

impl Outboxes {
    /// Drops what was kept back for a driver or a TCP that is no more.
    fn drop_stale(&mut self, (driver, tcp): (bool, bool)) {
        if driver {
            self.transmit.clear();
            self.released.clear();
        }
        if tcp {
            self.received.clear();
            self.sent.clear();
        }
    }

    /// Passes on; true if all is out.
    fn flush(&mut self, output: Output, driver: Option<&NetworkClient>, tcp: Option<&PacketsEvents>) -> bool {
        let mut all_out = true;
        if let Some(driver) = driver {
            self.transmit.extend(output.transmit);
            self.released.extend(output.released);
            all_out &= self.released.flush(|buffers| driver.release_buffers(buffers).is_ok());
            all_out &= self.transmit.flush(|frames| driver.transmit(frames).is_ok());
        }
        let Some(tcp) = tcp else { return all_out };
        self.received.extend(output.received);
        self.sent.extend(output.sent);
        if let Some(host) = output.address {
            all_out &= tcp.has_room() && tcp.address(wire_address(host)).is_ok();
        }
        all_out &= self.sent.flush(|buffers| tcp.has_room() && tcp.sent(buffers).is_ok());
        all_out &= self.received.flush(|packets| tcp.has_room() && tcp.received(packets).is_ok());
        if output.resumed {
            all_out &= tcp.has_room() && tcp.resumed().is_ok();
        }
        all_out
    }
}

async fn turns(service: Rc<Service>, driver: NetworkClient) {
    let mut outboxes = Outboxes::default();
    let mut known = None;
    loop {
        let (output, attached, next_ns) = {
            let mut ip = service.ip.borrow_mut();
            ip.poll(runtime::now_ns());
            (ip.take_output(), ip.driver_attached(), ip.next_ns())
        };
        if let Some(host) = service.ip.borrow().host().filter(|host| known.replace(*host) != Some(*host)) {
            runtime::log!("address {}/{}", host.address, host.prefix_bits);
        }
        let tcp = service.tcp.borrow().clone();
        outboxes.drop_stale(service.stale.take());
        let all_out = outboxes.flush(output, Some(&driver).filter(|_| attached), tcp.as_ref());
        let now_ns = runtime::now_ns();
        let retry = (!all_out).then_some(RETRY_NS);
        let next = next_ns.map(|next| next.saturating_sub(now_ns)).into_iter().chain(retry).min();
        match next {
            // Waking without a ring is what the limit is for.
            Some(wait_ns) => drop(runtime::timeout(wait_ns, service.wakeup.notified()).await),
            None => service.wakeup.notified().await,
        }
    }
}

async fn component(start: Start) {
    let regions = ["rx-packets", "tx-packets", "ip-state"].map(|name| start.region(name));
    let [Some(receive), Some(transmit), Some(state)] = regions.map(|region| region.map(|region| region.memory()))
    else {
        runtime::log!("regions rx-packets, tx-packets or ip-state are missing: correct system/*.toml");
        return;
    };
    let Ok(driver) = start.client::<NetworkClient>("virtio-net") else {
        runtime::log!("no channel to virtio-net: correct system/*.toml");
        return;
    };
    let fixed = Host::decode(start.command_line());
    let service = Rc::new(Service {
        ip: RefCell::new(Ip::new(receive, transmit, state, fixed)),
        tcp: RefCell::new(None),
        wakeup: Notify::default(),
        stale: Cell::default(),
        link: Notify::default(),
        up: Cell::default(),
        settings: Settings { promiscuous: start.command_line().split_whitespace().any(|word| word == PROMISCUOUS) },
    });
    runtime::spawn(turns(service.clone(), driver.clone()));
    for channel in start.servers(packets::NAME) {
        runtime::spawn(serve_packets(service.clone(), channel));
    }
    start.serving();
    loop {
        link(&service, &driver).await;
    }
}

runtime::main!(component);
