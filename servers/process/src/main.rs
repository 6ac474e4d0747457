//! The process server: starts the first Linux program and keeps the family tree of all that follow.
//!
//! Wiring only; rules are in the library beside it. Single-threaded: a `RefCell` borrow never
//! crosses an await.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod pipes;
mod serve;

use alloc::rc::Rc;

use contracts::spawn::{SpawnClient, SpawnEvent};
use contracts::{descriptions, process};
use runtime::Start;

runtime::main!(component);

async fn component(start: Start) {
    let spawn = match start.client::<SpawnClient>("spawn") {
        Ok(spawn) => spawn,
        Err(error) => return runtime::log!("no channel to spawn ({error:?}): no Linux programs"),
    };
    let pipes = Rc::new(pipes::Pipes::default());
    let server = Rc::new(serve::Server::new(spawn.clone(), pipes.clone(), start.capability("power")));

    let mut channels = start.incoming(process::NAME);
    let serving = Rc::new(serve::Service(server.clone()));
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            runtime::spawn(process::serve_process(serving.clone(), channel));
        }
    });
    let mut channels = start.incoming(descriptions::NAME);
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            pipes.clients.add(&channel);
            runtime::spawn(descriptions::serve_descriptions(pipes.clone(), channel));
        }
    });
    start.serving();
    runtime::spawn(server.clone().end_unattended());
    runtime::spawn(serve::start_first(server.clone(), start.file("etc/run")));

    loop {
        match spawn.next_event().await {
            SpawnEvent::Died { death } => server.domain_died(&death),
            SpawnEvent::Closed => return runtime::log!("spawn is gone"),
            SpawnEvent::Lost => {
                runtime::log!("events of spawn were lost: asking who is not there any more");
                runtime::spawn(server.clone().look_for_dead());
            }
            SpawnEvent::PeerRestarted | SpawnEvent::Ended { .. } => {}
        }
    }
}
