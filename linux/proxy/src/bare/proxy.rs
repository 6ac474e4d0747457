//! The proxy's control state: its channels and what came in over them. Made afresh in every process, never inherited.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use contracts::descriptions::{DescriptionsClient, DescriptionsEvent};
use contracts::files::FilesClient;
use contracts::process::{Birth, ProcessClient, ProcessEvent};
use contracts::sockets::SocketsClient;
use personality::Errno;
use personality::descriptors::server;
use personality::signals::Cause;
use runtime::Start;

use super::user::with_state;
use super::wait::Happenings;

/// Channels and the like.
pub struct Proxy {
    /// Who we are.
    pub birth: Birth,
    /// Processes.
    pub process: ProcessClient,
    /// Paths.
    pub files: FilesClient,
    /// Sockets, if the system has them.
    pub sockets: Option<SocketsClient>,
    descriptions: [Option<DescriptionsClient>; 4],
    /// Badge bits by which signals arrive.
    pub signal_bits: u64,
    /// Signals and readiness.
    pub happenings: Happenings,
}

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
    pub fn server(&self, number: u32) -> Result<&DescriptionsClient, Errno> {
        let index = (number as usize).wrapping_sub(1);
        self.descriptions.get(index).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// Servers other than the terminal's, whose descriptions a child has to be given.
    pub fn heritable(&self) -> impl Iterator<Item = (u32, &DescriptionsClient)> {
        [server::FS, server::PROCESS, server::TCP]
            .into_iter()
            .filter_map(|number| Some((number, self.server(number).ok()?)))
    }
}

fn badge(start: &Start, contract: &str) -> u64 {
    let is = |record: &&abi::start::StartRecord| {
        record.kind == abi::start::kind::CHANNEL && abi::start::text(&record.name) == contract
    };
    start.records().iter().find(is).map_or(0, |record| record.a)
}

/// Binds to the servers and says hello. Names what is missing.
pub async fn bind(start: &Start) -> Result<&'static Proxy, &'static str> {
    let process: ProcessClient = start.client("process").map_err(|_| "process")?;
    let files: FilesClient = start.client("fs").map_err(|_| "fs")?;
    let birth = process.hello().await.map_err(|_| "process (it does not know us)")?;
    let descriptions = ["fs", "process", "console", "tcp"].map(|peer| start.client::<DescriptionsClient>(peer).ok());
    let sockets = start.client("tcp").ok();
    let signal_bits = badge(start, contracts::process::NAME);
    let proxy: &'static Proxy = Box::leak(Box::new(Proxy {
        birth,
        process,
        files,
        sockets,
        descriptions,
        signal_bits,
        happenings: Happenings::default(),
    }));
    // SAFETY: nobody reads it yet.
    unsafe { *PROXY.0.get() = Some(proxy) };
    Ok(proxy)
}

/// Listens to the servers. The process state must be mapped by now.
pub fn listen() {
    runtime::spawn(signals());
    for client in proxy().descriptions.iter().flatten() {
        runtime::spawn(readiness(client));
    }
}

async fn signals() {
    loop {
        match proxy().process.next_event().await {
            ProcessEvent::SignalSent { number, sender } => {
                with_state(|state| state.signals.post(number, Cause { code: 0, process: sender, address: 0 }));
            }
            ProcessEvent::Lost => runtime::log!("signals were lost"),
            ProcessEvent::PeerRestarted => {}
            ProcessEvent::Closed => return,
        }
        proxy().happenings.happened();
    }
}

async fn readiness(client: &'static DescriptionsClient) {
    while !matches!(client.next_event().await, DescriptionsEvent::Closed) {
        // Whoever polls asks again; what exactly came to hold the answer tells.
        proxy().happenings.happened();
    }
}
