//! The proxy's control state: its channels and what came in over them. Made afresh in every
//! process, never inherited.

use alloc::boxed::Box;
use core::cell::{OnceCell, UnsafeCell};

use contracts::descriptions::{DescriptionsClient, DescriptionsEvent};
use contracts::files::FilesClient;
use contracts::process::{ProcessClient, ProcessEvent};
use contracts::sockets::SocketsClient;
use personality::Errno;
use personality::descriptors::server;
use personality::signals::Cause;
use personality::state::PARENT_UNKNOWN;
use runtime::Start;

use super::user::with_state;
use super::wait::Happenings;

/// Channels and the like. A channel is opened at its first use: most processes need few of them.
pub struct Proxy {
    start: Start,
    /// Processes.
    pub process: ProcessClient,
    files: OnceCell<FilesClient>,
    sockets: OnceCell<Option<SocketsClient>>,
    descriptions: [OnceCell<Option<DescriptionsClient>>; SERVERS.len()],
    /// Badge bits by which signals arrive.
    pub signal_bits: u64,
    /// Signals and readiness.
    pub happenings: Happenings,
}

/// Servers of descriptions, in the order of their numbers, from 1
/// (`personality::descriptors::server`).
const SERVERS: [&str; 4] = ["fs", "process", "console", "tcp"];

struct Global(UnsafeCell<Option<&'static Proxy>>);
// SAFETY: one context runs proxy code.
unsafe impl Sync for Global {}
static PROXY: Global = Global(UnsafeCell::new(None));

/// The proxy, once bound.
pub fn proxy() -> &'static Proxy {
    // SAFETY: written once, before any Linux call or background task can ask.
    match unsafe { *PROXY.0.get() } {
        Some(proxy) => proxy,
        None => panic!("used before it was bound"),
    }
}

impl Proxy {
    /// The channel to a description's server.
    pub fn server(&'static self, number: u32) -> Result<&'static DescriptionsClient, Errno> {
        let index = (number as usize).wrapping_sub(1);
        let (cell, name) = self.descriptions.get(index).zip(SERVERS.get(index)).ok_or(Errno::EBADF)?;
        let open = || {
            let client: DescriptionsClient = self.start.client(name).ok()?;
            runtime::spawn(readiness(client.clone()));
            Some(client)
        };
        cell.get_or_init(open).as_ref().ok_or(Errno::EBADF)
    }

    /// Paths.
    pub fn files(&self) -> Result<&FilesClient, Errno> {
        if self.files.get().is_none() {
            let client = self.start.client("fs").map_err(|_| Errno::ENOSYS)?;
            let _ = self.files.set(client);
        }
        self.files.get().ok_or(Errno::ENOSYS)
    }

    /// Sockets, if the system has them.
    pub fn sockets(&self) -> Option<&SocketsClient> {
        self.sockets.get_or_init(|| self.start.client("tcp").ok()).as_ref()
    }

    /// Servers other than the terminal's, of whose descriptions this process holds some, which a
    /// child has to be given.
    pub fn heritable(&'static self) -> impl Iterator<Item = &'static DescriptionsClient> {
        let used = |number: &u32| with_state(|state| state.descriptors.uses(*number));
        let servers = [server::FS, server::PROCESS, server::TCP].into_iter().filter(used);
        servers.filter_map(|number| self.server(number).ok())
    }
}

fn badge(start: &Start, contract: &str) -> u64 {
    let is = |record: &&abi::start::StartRecord| {
        record.kind == abi::start::kind::CHANNEL && abi::start::text(&record.name) == contract
    };
    start.records().iter().find(is).map_or(0, |record| record.a)
}

/// Binds to the process server. Names it if it is missing.
pub fn bind(start: Start) -> Result<&'static Proxy, &'static str> {
    let process: ProcessClient = start.client("process").map_err(|_| "process")?;
    let signal_bits = badge(&start, contracts::process::NAME);
    let proxy: &'static Proxy = Box::leak(Box::new(Proxy {
        start,
        process,
        files: OnceCell::new(),
        sockets: OnceCell::new(),
        descriptions: Default::default(),
        signal_bits,
        happenings: Happenings::default(),
    }));
    // SAFETY: nobody reads it yet.
    unsafe { *PROXY.0.get() = Some(proxy) };
    Ok(proxy)
}

/// Listens for signals. The process state must be mapped by now.
pub fn listen() {
    runtime::spawn(signals());
}

async fn signals() {
    loop {
        match proxy().process.next_event().await {
            ProcessEvent::SignalSent { number, sender } => {
                with_state(|state| state.signals.post(number, Cause { code: 0, process: sender, address: 0 }));
            }
            ProcessEvent::Adopted { parent } => with_state(|state| state.parent = parent),
            ProcessEvent::Lost => {
                runtime::log!("signals were lost");
                with_state(|state| state.parent = PARENT_UNKNOWN);
            }
            ProcessEvent::PeerRestarted => with_state(|state| state.parent = PARENT_UNKNOWN),
            ProcessEvent::Closed => return,
        }
        proxy().happenings.happened();
    }
}

async fn readiness(client: DescriptionsClient) {
    while !matches!(client.next_event().await, DescriptionsEvent::Closed) {
        // Whoever polls asks again; what exactly came to hold the answer tells.
        proxy().happenings.happened();
    }
}
