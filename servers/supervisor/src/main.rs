//! The supervisor: starts the components in order, watches them, starts them again.
//!
//! Restarted itself (by monitor 0), it reads from the monitors what runs. Single-threaded: a
//! `RefCell` borrow never crosses an await.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod service;
#[cfg(test)]
mod tests;
mod watch;

use alloc::rc::Rc;

use abi::Handle;
use abi::start::Entrance;
use contracts::monitor::MonitorClient;
use contracts::spawn::SpawnClient;
use contracts::supervisor::{NAME, serve_supervisor};
use runtime::{Incoming, Start};
use system::{SYSTEM_PATH, System};

use crate::service::Shared;
use crate::watch::Supervisor;

runtime::main!(component);

async fn component(start: Start) {
    let clients = (start.client::<MonitorClient>("monitor"), start.client::<SpawnClient>("spawn"));
    let (Ok(monitor), Ok(spawn)) = clients else { return runtime::log!("needs channels to monitor and spawn") };
    let Some(Ok(description)) = start.file(SYSTEM_PATH).map(system::decode::<System>) else {
        return runtime::log!("{SYSTEM_PATH} is missing or damaged: build the archive again");
    };
    let power = start.capability("power").unwrap_or(Handle::NONE);
    let supervisor = Rc::new(Supervisor::new(&description, start.cores(), monitor, spawn, power));
    runtime::spawn(supervisor.clone().listen());
    runtime::spawn(supervisor.clone().listen_to_spawn());
    runtime::spawn(serve(supervisor.clone(), start.incoming(NAME)));
    start.serving();
    supervisor.probe_all().await;
    supervisor.start_all(start.entrance() == Entrance::Fresh).await;
    core::future::pending().await
}

/// Takes channels as they come, as only so many may wait to be taken; answers when all is started.
async fn serve(supervisor: Rc<Supervisor>, mut channels: Incoming) {
    let shared = Rc::new(Shared(supervisor.clone()));
    loop {
        let (shared, supervisor, channel) = (shared.clone(), supervisor.clone(), channels.next().await);
        runtime::spawn(async move {
            supervisor.all_started().await;
            serve_supervisor(shared, channel).await;
        });
    }
}
