//! The file server: wires the store to the `files` and `descriptions` contracts.
//!
//! Single-threaded: a `RefCell` borrow never crosses an await. Everything is lost with the machine;
//! the archive stays as it was.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod descriptions;
mod paths;
mod processes;
mod server;
#[cfg(test)]
mod tests;

use abi::Handle;
use alloc::rc::Rc;

use contracts::process::ProcessClient;
use fs_core::store::Store;
use runtime::Start;

/// What bytes of files may take at least, if there is so much: 64 MiB.
const FILE_PAGES_MIN: u64 = 16 << 10;

runtime::main!(component);

/// Pages that bytes of files may take besides the archive: half of the account, as in a tmpfs of
/// Linux.
fn file_pages() -> u64 {
    let account_pages = sys::ram_stat(Handle::SELF_RAM).map_or(0, |(limit_pages, ..)| limit_pages);
    (account_pages / 2).max(FILE_PAGES_MIN)
}

async fn component(start: Start) {
    let mut store = Store::new(file_pages());
    match start.file("archive") {
        Some(archive) => match store.fill(archive, "root") {
            Ok(_) => {}
            Err(error) => runtime::log!("the boot archive is damaged ({error:?}): build it again"),
        },
        None => runtime::log!("no boot archive: the root directory is empty"),
    }
    let log = store.add_missing_directories().unwrap_or_else(|error| {
        runtime::log!("/dev and /proc cannot be made: {error:?}");
        None
    });
    let run = start.file(system::RUN_PATH).and_then(|run| system::decode::<system::Run>(run).ok());
    let mount = run.and_then(|run| run.mount).filter(|mount| {
        let mounted = store.mount(&mount.path);
        if let Err(error) = mounted {
            runtime::log!("the disk's volume cannot be at {} ({error:?}): nothing is there", mount.path);
        }
        mounted.is_ok()
    });
    let (processes, memory) = (start.client::<ProcessClient>("process").ok(), start.client("memory").ok());
    if let (Some(processes), Some(log)) = (&processes, log)
        && processes.log_at(log).is_err()
    {
        runtime::log!("the process server does not hear of /dev/log: what programs say there is refused");
    }
    let server = Rc::new(server::Server::new(store, processes, memory, start.cores(), mount));

    if let Some(processes) = &server.processes {
        open_files::settle_in_flight(&server, processes);
    }

    open_files::serve(server, &start).await;
}
