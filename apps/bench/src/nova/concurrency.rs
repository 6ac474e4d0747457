//! How many calls are inside a server at once (section 2): as many as cores times workers.
//!
//! On each core twice as many clients as workers call, each one of the workers. A call stays
//! inside, and lets others of its core run, until as many have been inside at once as there should
//! be, or for a while.

use abi::{Error, Handle};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::{Serve, Start, Waiter};

use super::number;
use super::room::{Room, STUDY};
use crate::parts::{self, Task, serve};

/// Word of the command line: workers of each core.
const WORKERS: &str = "nova.workers=";
const CLIENTS_OF_A_WORKER: u64 = 2;
const PRIORITY: u64 = 2;
const SLICE_US: u64 = 1_000;
/// Past what a busy host needs to run all cores.
const INSIDE_NS: u64 = 10_000_000_000;
/// Badge bit: all clients of this core are done.
const DONE: u64 = 1 << 57;
const AGAIN_NS: u64 = 1_000_000;
/// Lines of the region: how many are inside, the most that were, and cores that are done.
const INSIDE: u64 = STUDY;
const MOST: u64 = STUDY + 1;
const CORES_DONE: u64 = STUDY + 2;

/// The server.
struct Meets {
    room: Room,
    /// As many as should be inside.
    wanted: u64,
}

impl Serve for Meets {
    fn serve(&self, _: u64, _: [u64; 4]) -> [u64; 3] {
        let [inside, most] = [INSIDE, MOST].map(|line| self.room.line(line));
        most.fetch_max(inside.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        let deadline_ns = runtime::now_ns() + INSIDE_NS;
        while most.load(Ordering::Acquire) < self.wanted && runtime::now_ns() < deadline_ns {
            let _ = sys::yield_slice();
        }
        inside.fetch_sub(1, Ordering::AcqRel);
        [0; 3]
    }
}

struct Client {
    portal: Handle,
    left: &'static AtomicU64,
    done: Handle,
}

impl Task for Client {
    fn run(&self) {
        let _ = sys::portal_call(self.portal, [0; 4], u64::MAX);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = sys::semaphore_up(self.done, 1);
        }
    }
}

/// This core's clients; the first core tells.
pub(super) async fn run(start: &Start, room: Room) -> Result<(), Error> {
    let workers = number(start, WORKERS).unwrap_or(1).max(1);
    let wanted = room.cores * workers;
    let portals = (0..workers).map(|_| serve(Meets { room, wanted })).collect::<Result<Vec<_>, _>>()?;
    let done = sys::semaphore_alloc(Handle::SELF_RAM, 0)?;
    let _waiter = Waiter::start(done, DONE, PRIORITY)?;
    let left: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(workers * CLIENTS_OF_A_WORKER)));
    let mut companions = Vec::new();
    for number in 0..workers * CLIENTS_OF_A_WORKER {
        let portal = portals[(number % workers) as usize];
        let own: &'static Client = Box::leak(Box::new(Client { portal, left, done }));
        companions.push(parts::start(own, PRIORITY, SLICE_US)?);
    }
    runtime::notified(DONE).await;
    room.line(CORES_DONE).fetch_add(1, Ordering::AcqRel);
    while room.core == 0 && room.line(CORES_DONE).load(Ordering::Acquire) < room.cores {
        runtime::sleep(AGAIN_NS).await;
    }
    if room.core == 0 {
        let most = room.line(MOST).load(Ordering::Acquire);
        runtime::log!("inside at once: {most} calls at {} cores with {workers} workers each", room.cores);
    }
    Ok(())
}
