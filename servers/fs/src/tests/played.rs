//! The servers of processes and of memory, as far as /proc asks them.

use std::rc::Rc;

use channel::{Layout, Peer, loopback};
use contracts::memory::{MemoryClient, MemoryError, MemoryServer, serve_memory};
use contracts::process::{ProcessClient, serve_process};
use contracts::testing::process::Played;

pub const CORES: u32 = 3;
/// The one that does not answer how much it has.
const SILENT: u32 = 1;

struct Memory;

/// Clients of both servers.
pub fn clients(played: &Rc<Played>) -> (ProcessClient, MemoryClient) {
    let (processes, served) = loopback(Layout::default());
    runtime::spawn(serve_process(played.clone(), served));
    let (memory, served) = loopback(Layout::default());
    runtime::spawn(serve_memory(Rc::new(Memory), served));
    (ProcessClient::new(processes), MemoryClient::new(memory))
}

impl MemoryServer for Memory {
    async fn prepare(&self, _: &Peer, _: u32, _: u64, _: u64) -> Result<u64, MemoryError> {
        unreachable!("the file server asks for it")
    }

    /// Each core has another thousand pages that are used, and another ten that are free.
    async fn usage(&self, _: &Peer, core: u32) -> Result<(u64, u64), MemoryError> {
        let place = u64::from(core) + 1;
        if core == SILENT { Err(MemoryError::NoCore) } else { Ok((1000 * place, 10 * place)) }
    }
}
