//! The start page as the component sees it: who it is and what it was given.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::AtomicU64;

use abi::start::{self, Entrance, StartHeader, StartRecord, kind, text};
use abi::{Handle, PAGE_BYTES};
use channel::{Bulk, Client, ClientChannel, Memory, Peer, ServerChannel, Wiring};
use contracts::endpoint::{BindError, EndpointEvents};

use crate::endpoint::{self, Incoming, Waiting, doorbell_of};
use crate::platform::header;

/// A channel that the system description does not give this component, or that is damaged. Remedy:
/// add it to `system/*.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// No such channel.
    NotWired,
    /// The region holds no channel.
    BadRegion,
}

/// A memory region that was given at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its segment.
    pub handle: Handle,
    /// Where it is mapped.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Physical address of a contiguous region for devices, else 0.
    pub physical: u64,
}

impl Region {
    /// Safe access by copying.
    pub fn memory(&self) -> Bulk {
        let start = NonNull::new(self.address as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: the loader mapped the region readable and writable for the component's life;
        // components use regions as shared memory.
        unsafe { Bulk::at(start, self.bytes as usize, None) }
    }
}

/// Words that two components share, each read and written at once.
pub type Page = [AtomicU64; PAGE_BYTES as usize / 8];

/// What goes with a channel by which calls are made too.
#[derive(Clone)]
pub struct Calls {
    /// The entrance to the server's worker.
    pub portal: Handle,
    /// The server raises it, the client waits at it.
    pub semaphore: Handle,
    /// What both see: the session page.
    pub page: &'static Page,
    /// The badge of the client's capability for the portal.
    pub badge: u64,
    /// Which of the server's workers is called.
    pub worker: u8,
}

/// A device that was given at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The claim.
    pub handle: Handle,
    /// Its number for `sys::device_list`.
    pub index: u64,
    /// PCI vendor and device.
    pub vendor: u16,
    /// See `vendor`.
    pub device: u16,
    /// How many contexts of the driver are to handle it, by the system's description.
    pub handlers: u8,
}

/// The program of several cores that this domain is a dispatcher of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its cores, ascending: it has a dispatcher on each.
    pub cores: Vec<u32>,
    /// Which of them this one is.
    pub number: usize,
}

impl Program {
    /// The name of one of its dispatchers, as channels have it; counts on from the last to the
    /// first.
    pub fn dispatcher(&self, number: usize) -> String {
        format!("{}-{}", self.name, self.cores[number % self.cores.len()])
    }
}

/// What the component was given. Cheap to clone.
#[derive(Clone)]
pub struct Start {
    inner: Rc<Inner>,
}

struct Inner {
    records: Vec<StartRecord>,
    /// Channels in use, by record: a region has one user on each side.
    clients: RefCell<BTreeMap<usize, Rc<ClientChannel>>>,
    served: RefCell<Vec<usize>>,
    waiting: Rc<Waiting>,
    /// The monitor, if it listens.
    monitor: Option<Peer>,
}

impl Start {
    /// Reads the start page and begins to serve the monitor's `endpoint` channel, if there is one.
    /// Once in a program.
    pub fn read() -> Start {
        let waiting = Rc::new(Waiting::default());
        let mut inner = Inner {
            records: records(),
            clients: RefCell::default(),
            served: RefCell::default(),
            waiting: waiting.clone(),
            monitor: None,
        };
        for channel in inner.servers(contracts::endpoint::NAME) {
            inner.monitor = Some(channel.peer().clone());
            executor::spawn(endpoint::serve(waiting.clone(), channel.of_component()));
        }
        Start { inner: Rc::new(inner) }
    }

    /// Tells the monitor that the component is ready to serve; the supervisor waits for that. Fine
    /// without a monitor that listens.
    pub fn serving(&self) {
        if let Some(monitor) = &self.inner.monitor {
            // It fails only if the monitor is gone, or 256 events wait for it.
            let _ = EndpointEvents::new(monitor).serving();
        }
    }

    /// The component's name.
    pub fn name(&self) -> &'static str {
        text(&header().name)
    }

    /// Counts starts of this component, from 1.
    pub fn generation(&self) -> u64 {
        header().generation
    }

    /// How it was started.
    pub fn entrance(&self) -> Entrance {
        Entrance::decode(header().entrance)
    }

    /// The core it runs on.
    pub fn core(&self) -> u32 {
        header().core
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u32 {
        header().cores
    }

    /// The program that it is a dispatcher of; `None` for a component of one domain.
    pub fn program(&self) -> Option<Program> {
        let record = self.inner.records.iter().find(|record| record.kind == kind::PROGRAM)?;
        let cores: Vec<u32> = start::CoreSet(record.peer).cores().collect();
        let number = cores.iter().position(|core| *core == self.core())?;
        Some(Program { name: text(&record.name).to_string(), cores, number })
    }

    /// Its own domain's id.
    pub fn domain_id(&self) -> u64 {
        header().domain_id
    }

    /// Everything given, in the order of the start page.
    pub fn records(&self) -> &[StartRecord] {
        &self.inner.records
    }

    /// The client of contract `C` to component `peer`. Asking again gives the same channel.
    pub fn client<C: Client>(&self, peer: &str) -> Result<C, WireError> {
        let found = self.inner.channels(C::NAME, true).find(|(_, record)| text(&record.peer) == peer);
        let (index, record) = found.ok_or(WireError::NotWired)?;
        self.client_at(index, record).map(C::over)
    }

    /// All clients of contract `C` with the names of their servers.
    pub fn clients<C: Client>(&self) -> Vec<(String, C)> {
        let all = self.inner.channels(C::NAME, true);
        all.filter_map(|(index, record)| {
            Some((text(&record.peer).to_string(), C::over(self.client_at(index, record).ok()?)))
        })
        .collect()
    }

    /// A client of contract `C` over a new channel to a server of it: the nearest to this core, or,
    /// by `index`, one of the next. It outlives the server's restarts. At most 64 in a component's
    /// life; the description's `binds` says for which contracts.
    ///
    /// # Errors
    /// [`BindError`] says cause and remedy.
    pub async fn bind<C: Client>(&self, index: u32) -> Result<C, BindError> {
        let monitor = self.inner.monitor.as_ref().ok_or(BindError::Failed)?;
        self.inner.waiting.bind(monitor, C::NAME, index).await.map(C::over)
    }

    fn client_at(&self, index: usize, record: &StartRecord) -> Result<Rc<ClientChannel>, WireError> {
        if let Some(channel) = self.inner.clients.borrow().get(&index) {
            return Ok(channel.clone());
        }
        let channel = ClientChannel::new(wiring(record)?);
        self.inner.clients.borrow_mut().insert(index, channel.clone());
        Ok(channel)
    }

    /// The channels on which this component was wired at start to serve contract `contract`; each
    /// is given out once.
    pub fn servers(&self, contract: &str) -> Vec<ServerChannel> {
        self.inner.servers(contract)
    }

    /// Channels to serve: those wired at start and those that the monitor brings later.
    pub fn incoming(&self, contract: &str) -> Incoming {
        Incoming::new(self.inner.waiting.clone(), contract, self.servers(contract))
    }

    fn record(&self, wanted: u64, name: &str) -> Option<&StartRecord> {
        self.inner.records.iter().find(|record| record.kind == wanted && text(&record.name) == name)
    }

    /// A memory region.
    pub fn region(&self, name: &str) -> Option<Region> {
        let record = self.record(kind::REGION, name)?;
        Some(Region { handle: Handle(record.handle), address: record.address, bytes: record.bytes, physical: record.a })
    }

    /// The first share of a pool.
    pub fn pool(&self, name: &str) -> Option<Handle> {
        self.record(kind::POOL, name).map(|record| Handle(record.handle))
    }

    /// The kernel's command line; empty where it was not given.
    pub fn command_line(&self) -> &'static str {
        let record = self.inner.records.iter().find(|record| record.kind == kind::COMMAND_LINE);
        record.and_then(|record| core::str::from_utf8(mapped(record)).ok()).unwrap_or("")
    }

    /// As [`clients`](Start::clients), each with the calls that go with its channel.
    pub fn clients_that_call<C: Client>(&self) -> Vec<(String, C, Option<Calls>)> {
        let all = self.inner.channels(C::NAME, true);
        all.filter_map(|(index, record)| {
            let client = C::over(self.client_at(index, record).ok()?);
            Some((text(&record.peer).to_string(), client, self.inner.calls_of(index)))
        })
        .collect()
    }

    /// As [`servers`](Start::servers), each with the calls that go with its channel.
    pub fn servers_that_are_called(&self, contract: &str) -> Vec<(ServerChannel, Option<Calls>)> {
        let all = self.inner.servers_at(contract);
        all.into_iter().map(|(index, channel)| (channel, self.inner.calls_of(index))).collect()
    }

    /// A device.
    pub fn device(&self, name: &str) -> Option<Device> {
        let record = self.record(kind::DEVICE, name)?;
        Some(Device {
            handle: Handle(record.handle),
            index: record.a,
            vendor: (record.b >> 16) as u16,
            device: record.b as u16,
            handlers: (record.b >> 32) as u8,
        })
    }

    /// A file of the boot archive.
    pub fn file(&self, name: &str) -> Option<&'static [u8]> {
        self.record(kind::FILE, name).map(mapped)
    }

    /// A bare capability.
    pub fn capability(&self, name: &str) -> Option<Handle> {
        self.record(kind::CAPABILITY, name).map(|record| Handle(record.handle))
    }
}

/// The bytes of a FILE or COMMAND_LINE record.
fn mapped(record: &StartRecord) -> &'static [u8] {
    if record.bytes == 0 {
        return &[];
    }
    // SAFETY: kernel or loader mapped the bytes read-only for the component's life, and nobody
    // writes them.
    unsafe { slice::from_raw_parts(record.address as *const u8, record.bytes as usize) }
}

impl Inner {
    fn servers(&self, contract: &str) -> Vec<ServerChannel> {
        self.servers_at(contract).into_iter().map(|(_, channel)| channel).collect()
    }

    /// The same, each with the place of its record.
    fn servers_at(&self, contract: &str) -> Vec<(usize, ServerChannel)> {
        let mut served = self.served.borrow_mut();
        let mut all = Vec::new();
        for (index, record) in self.channels(contract, false) {
            if served.contains(&index) {
                continue;
            }
            served.push(index);
            match wiring(record) {
                Ok(wiring) => all.push((index, ServerChannel::new(wiring))),
                Err(error) => crate::log!("channel {contract} to {}: {error:?}", text(&record.peer)),
            }
        }
        all
    }

    /// The calls that go with the channel of a record: theirs follows it.
    fn calls_of(&self, index: usize) -> Option<Calls> {
        let (channel, next) = (self.records.get(index)?, self.records.get(index + 1)?);
        let is_its = next.name == channel.name && next.peer == channel.peer && next.bytes == PAGE_BYTES;
        (next.kind == kind::CALLS && is_its).then(|| calls(next))
    }

    fn channels(&self, contract: &str, client: bool) -> impl Iterator<Item = (usize, &StartRecord)> {
        let flag = if client { start::channel::CLIENT } else { 0 };
        let all = self.records.iter().enumerate();
        all.filter(move |(_, record)| {
            record.kind == kind::CHANNEL && text(&record.name) == contract && record.b & start::channel::CLIENT == flag
        })
    }
}

/// Copies the records that follow the header.
fn records() -> Vec<StartRecord> {
    let header: &'static StartHeader = header();
    if header.record_count == 0 {
        return Vec::new();
    }
    let first = (header as *const StartHeader).wrapping_add(1).cast::<StartRecord>();
    // SAFETY: the start page holds that many records after its header (kernel or loader made it),
    // mapped for the component's life.
    unsafe { slice::from_raw_parts(first, header.record_count as usize) }.to_vec()
}

fn calls(record: &StartRecord) -> Calls {
    // SAFETY: the loader mapped the page readable and writable for the component's life; it is
    // reached as atomic words only.
    let page = unsafe { &*core::ptr::with_exposed_provenance::<Page>(record.address as usize) };
    Calls {
        portal: Handle(record.handle),
        semaphore: Handle(record.a),
        page,
        badge: record.b >> 32,
        worker: (record.b >> 8) as u8,
    }
}

/// How a record's channel is reached.
fn wiring(record: &StartRecord) -> Result<Wiring, WireError> {
    let (client, remote) = (record.b & start::channel::CLIENT != 0, record.b & start::channel::REMOTE != 0);
    let handle = Handle(record.handle);
    // SAFETY: the loader mapped the region for the component's life; it is reached through channels
    // only.
    let memory = unsafe { Memory::attach(record.address, record.bytes, None) }.map_err(|_| WireError::BadRegion)?;
    Ok(Wiring {
        memory,
        doorbell: doorbell_of(handle, client, remote),
        badge: record.a,
        remote,
        peer: text(&record.peer).to_string(),
        peer_set: 0,
    })
}

#[cfg(all(test, not(target_os = "none")))]
mod tests;
