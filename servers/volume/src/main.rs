//! Serves the ext4 volume on the disk, by the contracts `files` and `descriptions`: the tree that
//! programs see where the volume is mounted (decision 87).
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod changing;
mod descriptions;
mod device;
mod mounting;
mod paths;
mod server;
#[cfg(test)]
mod tests;
mod writer;

use alloc::rc::Rc;

use contracts::process::ProcessClient;
use runtime::{Start, TaskId};

runtime::main!(component);

/// Does what a volume needs that is written.
fn keep_up(server: &Rc<server::Server>) -> [TaskId; 3] {
    [
        runtime::spawn(writer::write_all(server.clone())),
        runtime::spawn(writer::commit_in_time(server.clone())),
        runtime::spawn(changing::reclaim(server.clone())),
    ]
}

async fn component(start: Start) {
    let run = start.file(system::RUN_PATH).and_then(|run| system::decode::<system::Run>(run).ok());
    let Some(mount) = run.and_then(|run| run.mount) else {
        return runtime::log!("nobody said where the volume belongs: no disk is used");
    };
    let processes = start.client::<ProcessClient>("process").ok();
    let server = Rc::new(server::Server::new(mount.path, processes));
    if let Some(processes) = &server.processes {
        open_files::settle_in_flight(&server, processes);
    }
    runtime::spawn(mounting::open(server.clone(), start.clone(), mount.is_read_only));
    if !mount.is_read_only {
        keep_up(&server);
    }
    for channel in start.servers(contracts::storage::NAME) {
        runtime::spawn(contracts::storage::serve_storage(server.clone(), channel));
    }
    open_files::serve(server, &start).await;
}
