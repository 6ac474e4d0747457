//! Wires TCP to IP and to its clients.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod service;
#[cfg(test)]
mod tests;

use alloc::rc::Rc;
use contracts::packets::{HostAddress, PacketsClient, PacketsEvent};
use contracts::process::ProcessClient;
use contracts::{descriptions, sockets};
use packet::Outbox;
use runtime::Start;
use service::Service;
use tcp::listener::{DropCause, Notice};
use tcp::{Sockets, Tcp};

/// Until a full channel, or an IP that failed, is tried again.
const RETRY_NS: u64 = 500_000;

fn host(address: Option<HostAddress>) -> Option<(core::net::Ipv4Addr, u8)> {
    address.map(|host| (host.address.into(), host.prefix_bits))
}

/// Attaches to IP and feeds what comes until it has to be attached again.
async fn link(service: &Service, ip: &PacketsClient) {
    match ip.attach().await {
        Ok(attached) => {
            let mut sockets = service.sockets.borrow_mut();
            sockets.tcp.set_host(host(attached.address));
            let again = sockets.tcp.attached(&attached.busy, attached.kept, runtime::now_ns());
            if again > 0 {
                runtime::log!("{again} packets go to the new ip again");
            }
            service.stale.set(true);
            service.attached.set(true);
        }
        Err(error) => {
            runtime::log!("no link: {error:?}");
            return runtime::sleep(RETRY_NS).await;
        }
    }
    service.wakeup.notify();
    loop {
        match ip.next_event().await {
            PacketsEvent::Received { packets } => {
                service.sockets.borrow_mut().tcp.received(&packets, runtime::now_ns())
            }
            PacketsEvent::Sent { buffers } => service.sockets.borrow_mut().tcp.sent(&buffers, runtime::now_ns()),
            PacketsEvent::Address { address } => service.sockets.borrow_mut().tcp.set_host(host(address)),
            PacketsEvent::Resumed {} => service.sockets.borrow_mut().tcp.resume(runtime::now_ns()),
            PacketsEvent::Lost | PacketsEvent::PeerRestarted => return service.attached.set(false),
            PacketsEvent::Closed => {
                // One side broke the contract; what follows is IP's restart.
                runtime::log!("the channel to ip is closed until one of us is restarted");
                service.attached.set(false);
            }
        }
        service.wakeup.notify();
    }
}

/// Says what was refused or given up.
fn told(notice: &Notice) {
    match notice {
        Notice::NotTaken { port, cause: DropCause::Backlog, dropped, most } => runtime::log!(
            "port {port}: {dropped} connections not taken, {most} wait already: its program accepts too slowly"
        ),
        Notice::NotTaken { port, cause: DropCause::Connections, dropped, most } => {
            runtime::log!("port {port}: {dropped} connections not taken, all {most} are in use")
        }
        Notice::GivenUp { pair, count } => runtime::log!(
            "port {}: {count} connections ended whose peers acknowledged nothing for 15 minutes, {} the last",
            pair.local.port(),
            pair.remote
        ),
    }
}

/// Polls the protocol after each batch of packets or operations, and passes on what comes of it.
async fn turns(service: Rc<Service>, ip: PacketsClient) {
    let (mut send, mut released) = (Outbox::default(), Outbox::default());
    loop {
        let (output, next_ns) = {
            let mut sockets = service.sockets.borrow_mut();
            sockets.tcp.turn(runtime::now_ns());
            let events = sockets.settle();
            service.tell(&events);
            sockets.tcp.take_notices().iter().for_each(told);
            // What is made while IP is away is on its way all the same, and goes out when IP is
            // back.
            (sockets.tcp.take_output(), sockets.tcp.next_ns())
        };
        let mut all_out = true;
        if service.stale.take() {
            // Kept back for an IP that is no more; `attached` lists it again.
            send.clear();
            released.clear();
        }
        if service.attached.get() {
            send.extend(output.send);
            released.extend(output.released);
            all_out &= released.flush(|buffers| ip.release_buffers(buffers).is_ok());
            all_out &= send.flush(|packets| ip.send(packets).is_ok());
        }
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
    let regions = ["rx-packets", "tx-packets"].map(|name| start.region(name).map(|region| region.memory()));
    let [Some(receive), Some(transmit)] = regions else {
        runtime::log!("regions rx-packets or tx-packets are missing: correct system/*.toml");
        return;
    };
    let Ok(ip) = start.client::<PacketsClient>("ip") else {
        runtime::log!("no channel to ip: correct system/*.toml");
        return;
    };
    let mut secret = [0; 16];
    runtime::fill_random(&mut secret);
    let service = Rc::new(Service::new(Sockets::new(Tcp::new(receive, transmit, secret))));
    runtime::spawn(turns(service.clone(), ip.clone()));
    if let Ok(processes) = start.client::<ProcessClient>("process") {
        let (exporter, unsure, asked) = (service.clone(), service.clone(), processes.clone());
        runtime::spawn(async move { contracts::in_flight::listen(&*exporter, &processes).await });
        runtime::spawn(async move { unsure.settle_unsent(&asked).await });
    }
    let mut clients = start.incoming(sockets::NAME);
    let of_sockets = service.clone();
    runtime::spawn(async move {
        loop {
            let channel = clients.next().await;
            runtime::spawn(sockets::serve_sockets(of_sockets.clone(), channel));
        }
    });
    let mut clients = start.incoming(descriptions::NAME);
    let of_descriptions = service.clone();
    runtime::spawn(async move {
        loop {
            let channel = clients.next().await;
            of_descriptions.clients.add(&channel);
            runtime::spawn(descriptions::serve_descriptions(of_descriptions.clone(), channel));
        }
    });
    start.serving();
    loop {
        link(&service, &ip).await;
    }
}

runtime::main!(component);
