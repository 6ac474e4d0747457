//! The process server: starts the first Linux program and keeps the family tree of all that follow.
//!
//! Wiring only; rules are in the library beside it. Single-threaded: a `RefCell` borrow never
//! crosses an await.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod descriptions;
mod first;
mod futex;
mod local;
mod log;
mod segments;
mod serve;
mod server;
#[cfg(test)]
mod tests;

use alloc::rc::Rc;

use contracts::descriptions::{NAME as DESCRIPTIONS, serve_descriptions};
use contracts::spawn::SpawnClient;
use contracts::{process, sockets};
use runtime::Start;

runtime::main!(component);

async fn component(start: Start) {
    let spawn = match start.client::<SpawnClient>("spawn") {
        Ok(spawn) => spawn,
        Err(error) => return runtime::log!("no channel to spawn ({error:?}): no Linux programs"),
    };
    let opened = Rc::new(descriptions::Service::new(Rc::default()));
    let server = Rc::new(server::Server::new(spawn, opened.clone(), start.capability("power")));

    let mut channels = start.incoming(process::NAME);
    let (serving, known) = (Rc::new(serve::Service(server.clone())), opened.clone());
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            known.meet(channel.peer());
            runtime::spawn(process::serve_process(serving.clone(), channel));
        }
    });
    let mut channels = start.incoming(sockets::NAME);
    let serving = opened.clone();
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            runtime::spawn(sockets::serve_sockets(serving.clone(), channel));
        }
    });
    let mut channels = start.incoming(DESCRIPTIONS);
    runtime::spawn(async move {
        loop {
            let channel = channels.next().await;
            opened.clients.add(&channel);
            runtime::spawn(serve_descriptions(opened.clone(), channel));
        }
    });
    start.serving();
    runtime::spawn(server.clone().end_unattended());
    runtime::spawn(server.clone().keep_time());
    runtime::spawn(server::start_first(server.clone(), start.file("etc/run")));

    server.listen().await;
}
