//! What a component finds of what it was given.

use super::*;
use alloc::boxed::Box;
use channel::{Doorbell, Layout, loopback, loopback_memory};
use contracts::blocks::{BlocksClient, NAME};
use contracts::endpoint::{EndpointClient, EndpointEvent};

fn start_with(records: Vec<StartRecord>, monitor: Option<Peer>) -> Start {
    let waiting = Rc::default();
    let inner = Inner { records, clients: RefCell::default(), served: RefCell::default(), waiting, monitor };
    Start { inner: Rc::new(inner) }
}

fn start(records: impl IntoIterator<Item = StartRecord>) -> Start {
    start_with(records.into_iter().collect(), None)
}

fn record(kind: u64, name: &str, peer: &str, handle: u64) -> StartRecord {
    let [name, peer] = [name, peer].map(|text| start::field(text).unwrap());
    StartRecord { kind, name, peer, handle, address: 0, bytes: 0, a: 0, b: 0 }
}

/// A channel whose region is there for ever.
fn channel(name: &str, peer: &str, handle: u64, flags: u64) -> StartRecord {
    let [memory] = loopback_memory(Layout::default());
    let (address, bytes) = (memory.address(), memory.bytes());
    core::mem::forget(memory);
    StartRecord { address, bytes, a: 1 << 9, b: flags, ..record(kind::CHANNEL, name, peer, handle) }
}

fn calls_with(name: &str, peer: &str, handle: u64) -> StartRecord {
    let page: &'static Page = Box::leak(Box::new([const { AtomicU64::new(0) }; 512]));
    let address = core::ptr::from_ref(page).expose_provenance() as u64;
    let b = 77 << 32 | 3 << 8 | start::channel::CLIENT;
    StartRecord { address, bytes: PAGE_BYTES, a: handle + 1, b, ..record(kind::CALLS, name, peer, handle) }
}

#[test]
fn each_thing_is_found_by_its_kind_and_name() {
    static BYTES: &[u8] = b"console=serial";
    let file = StartRecord {
        address: BYTES.as_ptr().expose_provenance() as u64,
        bytes: BYTES.len() as u64,
        ..record(kind::FILE, "run", "", 0)
    };
    let region = StartRecord { address: 4096, bytes: 8192, a: 5 << 12, ..record(kind::REGION, "one", "", 11) };
    let device = StartRecord { a: 4, b: 2 << 32 | 0x1af4 << 16 | 0x1042, ..record(kind::DEVICE, "one", "", 12) };
    let line = StartRecord { kind: kind::COMMAND_LINE, ..file };
    let start = start([
        record(kind::REGION, "other", "", 10),
        region,
        device,
        record(kind::POOL, "one", "", 13),
        record(kind::CAPABILITY, "one", "", 14),
        file,
        record(kind::FILE, "empty", "", 0),
        line,
    ]);
    assert_eq!(start.records().len(), 8);
    let found = Region { handle: Handle(11), address: 4096, bytes: 8192, physical: 5 << 12 };
    assert_eq!((start.region("one"), start.region("none")), (Some(found), None));
    let found = Device { handle: Handle(12), index: 4, vendor: 0x1af4, device: 0x1042, handlers: 2 };
    assert_eq!((start.device("one"), start.device("other")), (Some(found), None));
    assert_eq!((start.pool("one"), start.pool("other")), (Some(Handle(13)), None));
    assert_eq!((start.capability("one"), start.capability("other")), (Some(Handle(14)), None));
    assert_eq!((start.file("run"), start.file("empty"), start.file("one")), (Some(BYTES), Some(&[][..]), None));
    assert_eq!(start.command_line().as_bytes(), BYTES);
    assert_eq!(self::start([file]).command_line(), "");
}

#[test]
fn a_dispatcher_finds_its_place_in_its_program() {
    let program = |cores: &[u32]| {
        let peer = start::CoreSet::of(cores.iter().copied()).0;
        start([record(kind::REGION, "crew", "", 1), StartRecord { peer, ..record(kind::PROGRAM, "crew", "", 0) }])
            .program()
    };
    let found = program(&[0, 3]).unwrap();
    assert_eq!((found.name.as_str(), &found.cores[..], found.number), ("crew", &[0, 3][..], 0));
    assert_eq!([0, 1, 2].map(|number| found.dispatcher(number)), ["crew-0", "crew-3", "crew-0"]);
    // This is core 0.
    assert_eq!((program(&[3]), start([]).program()), (None, None));
}

#[test]
fn a_client_is_found_by_contract_and_server_and_made_once() {
    let start = start([
        channel(NAME, "served", 1, 0),
        channel("other", "disk", 2, start::channel::CLIENT),
        channel(NAME, "disk", 3, start::channel::CLIENT),
        channel(NAME, "volume", 4, start::channel::CLIENT),
        record(kind::REGION, NAME, "region", 5),
        StartRecord { b: start::channel::CLIENT, ..record(kind::CHANNEL, NAME, "damaged", 6) },
    ]);
    let disk = start.client::<BlocksClient>("disk").unwrap();
    assert!(Rc::ptr_eq(disk.channel(), start.client::<BlocksClient>("disk").unwrap().channel()));
    assert!(!Rc::ptr_eq(disk.channel(), start.client::<BlocksClient>("volume").unwrap().channel()));
    for peer in ["served", "region", "none"] {
        assert_eq!(start.client::<BlocksClient>(peer).err(), Some(WireError::NotWired), "{peer}");
    }
    assert_eq!(start.client::<BlocksClient>("damaged").err(), Some(WireError::BadRegion));
    let all = start.clients::<BlocksClient>().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(all, ["disk", "volume"]);
    let served = start.servers(NAME);
    assert_eq!((served.len(), served[0].peer().name()), (1, "served"));
    assert!(start.servers(NAME).is_empty(), "each is given out once");
}

#[test]
fn a_doorbell_donates_time_to_a_server_of_this_core_only() {
    let doorbell =
        |flags| wiring(&channel(NAME, "disk", 9, flags)).map(|wiring| (wiring.doorbell, wiring.remote)).unwrap();
    const CLIENT: u64 = start::channel::CLIENT;
    const REMOTE: u64 = start::channel::REMOTE;
    assert!(matches!(doorbell(CLIENT), (Doorbell::Portal(Handle(9)), false)));
    assert!(matches!(doorbell(CLIENT | REMOTE), (Doorbell::Notify(Handle(9)), true)));
    assert!(matches!(doorbell(0), (Doorbell::Notify(Handle(9)), false)));
    assert!(matches!(doorbell(REMOTE), (Doorbell::Notify(Handle(9)), true)));
}

#[test]
fn the_calls_of_a_channel_stand_behind_it() {
    let client = |peer, handle| channel(NAME, peer, handle, start::channel::CLIENT);
    let start = start([
        client("called", 1),
        calls_with(NAME, "called", 20),
        client("last", 2),
        calls_with(NAME, "anothers", 30),
        client("named", 3),
        calls_with("another", "named", 40),
        client("short", 4),
        StartRecord { bytes: PAGE_BYTES / 2, ..calls_with(NAME, "short", 50) },
        client("region", 5),
        StartRecord { kind: kind::REGION, ..calls_with(NAME, "region", 60) },
        channel(NAME, "server", 6, 0),
        calls_with(NAME, "server", 70),
        client("end", 7),
    ]);
    let all = start.clients_that_call::<BlocksClient>();
    let found: Vec<_> = all.iter().map(|(name, _, calls)| (name.as_str(), calls.is_some())).collect();
    let without = ["last", "named", "short", "region", "end"].map(|name| (name, false));
    assert_eq!(found, [("called", true)].into_iter().chain(without).collect::<Vec<_>>());
    let calls = all[0].2.as_ref().unwrap();
    assert_eq!((calls.portal, calls.semaphore, calls.badge, calls.worker), (Handle(20), Handle(21), 77, 3));
    calls.page[511].store(1, core::sync::atomic::Ordering::Relaxed);
    let served = start.servers_that_are_called(NAME);
    assert_eq!((served.len(), served[0].0.peer().name()), (1, "server"));
    assert!(served[0].1.as_ref().is_some_and(|calls| calls.portal == Handle(70)));
}

#[test]
fn the_monitor_hears_that_a_component_serves() {
    crate::block_on(async {
        start([]).serving();
        let (monitor, server) = loopback(Layout::default());
        let start = start_with(Vec::new(), Some(server.peer().clone()));
        executor::spawn(endpoint::serve(Rc::default(), server));
        let monitor = EndpointClient::new(monitor);
        start.serving();
        assert!(matches!(monitor.next_event().await, EndpointEvent::Serving {}));
    });
}

#[test]
fn a_component_on_a_host_is_alone_on_a_machine_of_one_core() {
    let start = start([]);
    assert_eq!((start.name(), start.generation(), start.domain_id()), ("", 1, 1));
    assert_eq!((start.core(), start.cores(), start.entrance()), (0, 1, Entrance::Fresh));
}
