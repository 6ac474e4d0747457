//! The spawn server: reads the system description and has the monitors make what it says.
//!
//! Single-threaded: a `RefCell` borrow never crosses an await.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod binding;
mod clients;
mod components;
mod domains;
mod service;
#[cfg(test)]
mod tests;

use alloc::rc::Rc;

use contracts::memory::MemoryClient;
use contracts::monitor::MonitorClient;
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
    let service = Rc::new(Service::new(description, start.cores(), monitor, memory, names));
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
    service.listen().await;
}
