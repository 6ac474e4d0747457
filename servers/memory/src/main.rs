//! The memory server: asks the monitors how much there is and has them move pages. Keeps nothing,
//! so a restart loses nothing.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec::Vec;

use contracts::memory::{MemoryError, MemoryServer, NAME, serve_memory};
use contracts::monitor::{CoreMemory, MonitorClient};
use memory_core::{Step, step};
use runtime::{Peer, Start};

/// Most moves for one request: 1 GiB.
const MOVES_MAX: u32 = 256;

runtime::main!(component);

struct Service {
    monitor: MonitorClient,
    cores: u32,
}

impl Service {
    async fn figures(&self) -> Vec<(u32, CoreMemory)> {
        // All asked at once; a core that does not run has no memory.
        let asked: Vec<_> = (0..self.cores).map(|core| (core, self.monitor.memory(core))).collect();
        let mut figures = Vec::new();
        for (core, answer) in asked {
            figures.extend(answer.await.ok().map(|memory| (core, memory)));
        }
        figures
    }
}

impl MemoryServer for Service {
    async fn prepare(&self, _: &Peer, core: u32, wanted_pages: u64, limit_pages: u64) -> Result<u64, MemoryError> {
        let own = self.monitor.memory(core).await.map_err(|_| MemoryError::NoCore)?;
        if step(core, wanted_pages, &[(core, own)]) == Step::Enough {
            return Ok(limit_pages);
        }
        for _ in 0..MOVES_MAX {
            match step(core, wanted_pages, &self.figures().await) {
                Step::Enough => return Ok(limit_pages),
                Step::Nobody => return Err(MemoryError::NoMemory),
                Step::Take { from, pages } => {
                    self.monitor.move_pages(from, core, pages).await.map_err(|_| MemoryError::NoMemory)?;
                    runtime::log!("{pages} pages moved from core {from} to core {core}");
                }
            }
        }
        Err(MemoryError::NoMemory)
    }

    async fn usage(&self, _: &Peer, core: u32) -> Result<(u64, u64), MemoryError> {
        let memory = self.monitor.memory(core).await.map_err(|_| MemoryError::NoCore)?;
        Ok((memory.used_pages, memory.free_pages))
    }
}

async fn component(start: Start) {
    let monitor = match start.client::<MonitorClient>("monitor") {
        Ok(monitor) => monitor,
        Err(error) => return runtime::log!("no channel to the monitor: {error:?}"),
    };
    // Events are for others; unread ones are dropped by the channel's bound.
    let service = Rc::new(Service { monitor, cores: start.cores() });
    let mut channels = start.incoming(NAME);
    start.serving();
    loop {
        let channel = channels.next().await;
        runtime::spawn(serve_memory(service.clone(), channel));
    }
}
