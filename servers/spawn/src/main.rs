//! The spawn server: reads the system description and has the monitors make what it says.
//!
//! Single-threaded: a `RefCell` borrow never crosses an await.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod binding;
mod components;
mod domains;
mod service;
#[cfg(test)]
mod tests;

use alloc::rc::Rc;

use contracts::memory::MemoryClient;
use contracts::monitor::{MonitorClient, MonitorEvent};
use contracts::names::NamesClient;
use contracts::spawn::{NAME, serve_spawn};
use runtime::Start;
use system::{SYSTEM_PATH, System};

use crate::service::{Service, Shared};

runtime::main!(component);

async fn component(start: Start) {
    let clients = (
        start.client::<MonitorClient>("monitor"),
        start.client::<MemoryClient>("memory"),
        start.client::<NamesClient>("names"),
    );
    let (Ok(monitor), Ok(memory), Ok(names)) = clients else {
        return runtime::log!("needs channels to monitor, memory and names");
    };
    let Some(Ok(description)) = start.file(SYSTEM_PATH).map(system::decode::<System>) else {
        return runtime::log!("{SYSTEM_PATH} is missing or damaged: build the archive again");
    };
    let service = Rc::new(Service::new(description, start.cores(), monitor.clone(), memory, names));
    let mut channels = start.incoming(NAME);
    let shared = Rc::new(Shared(service.clone()));
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            runtime::spawn(serve_spawn(shared.clone(), channel));
        }
    });
    start.serving();
    let other = service.clone();
    runtime::spawn(async move {
        // Only the first components run as yet, or this is not the first spawn.
        other.probe_all().await;
        other.watch_names().await;
    });
    loop {
        match monitor.next_event().await {
            MonitorEvent::Died { linux: true, death, .. } => {
                runtime::spawn(service.clone().domain_died(death));
            }
            MonitorEvent::Died { death, .. } => {
                runtime::spawn(service.clone().unbind(death.domain));
                runtime::spawn(service.clone().dispatcher_died(death));
            }
            MonitorEvent::CoreLost { core } => service.clone().core_lost(core),
            MonitorEvent::Wants { domain, request, contract, index } => {
                runtime::spawn(service.clone().bind(domain, request, contract, index));
            }
            MonitorEvent::Serving { .. } | MonitorEvent::Stalled { .. } => {}
            MonitorEvent::Lost => {
                runtime::log!("events of the monitor were lost: looking who is not there any more");
                runtime::spawn(service.clone().look_for_dead());
            }
            MonitorEvent::PeerRestarted => {}
            MonitorEvent::Closed => return runtime::log!("the monitor is gone"),
        }
    }
}
