//! From the system description to what monitors are asked for: which channels there are, on which
//! cores, and what each domain gets.
//!
//! Monitor 0 makes the first components with it and spawn all others; both number the channels
//! alike, because the numbers come from the description alone. Deliberately unknown here: what
//! exists already, who restarts whom.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use abi::start::{CoreSet, Entrance};
use contracts::blocks::DESK_BYTES;
use contracts::descriptions::copy_words;
use contracts::monitor::{ChannelId, ChannelPlan, DomainPlan, End, ProgramPlan};
use contracts::spawn::DomainId;
use system::{Component, Handlers, RUN_PATH, Restart, SYSTEM_PATH, System, Use, Workers};

/// The component that is there before all others, on every core.
pub const MONITOR: &str = "monitor";
/// The component that starts the others.
pub const SUPERVISOR: &str = "supervisor";
/// First channel number not taken by the description.
pub const RUN_TIME_CHANNELS: ChannelId = 1 << 32;
/// First channel number of those that components ask for.
pub const BOUND_CHANNELS: ChannelId = 1 << 48;
/// Priorities of the description in one class of the kernel's eight.
const PRIORITIES_IN_CLASS: u8 = 8;
/// A core's name cache, which its monitor serves, and what that asks.
const LOOKUP: &str = "lookup";
const NAMES: &str = "names";
/// Whoever serves the first fills its root from the whole archive, unless it uses the second: then
/// it has a disk.
const FILES: &str = "files";
const BLOCKS: &str = "blocks";

/// Slots of each ring and bulk bytes of a contract's channels.
pub fn layout(contract: &str) -> (u32, u32) {
    match contract {
        // Data of reads and writes, one of which is at most this long; behind it words of what the
        // client keeps of files (`contracts::descriptions::copy_words`).
        "descriptions" => (64, (64 << 10) + copy_words::AREA_BYTES),
        "sockets" => (64, 64 << 10),
        // Batches of packet references.
        "network" | "packets" => (128, 0),
        _ => (64, 0),
    }
}

/// Name and core of the domain that serves a client on `core`: of a program the dispatcher there,
/// or its first. `None`: it has none on this machine.
fn server_of(system: &System, used: &Use, core: u32, cores: u32) -> Option<(String, u32)> {
    if used.server == MONITOR {
        // They are spoken to at core 0, but for what each keeps of its own core.
        return Some((used.server.clone(), if used.contract == LOOKUP { core } else { 0 }));
    }
    let component = system.components.iter().find(|component| component.name == used.server)?;
    let mut domains = component.domains(cores);
    let place = domains.iter().position(|(_, own)| *own == core).unwrap_or(0);
    (!domains.is_empty()).then(|| domains.swap_remove(place))
}

/// All channels between components. What a program uses it has on each of its cores; with what it
/// provides itself each dispatcher reaches the next one, and the last the first. Of a server with
/// workers the others reach the first, which has the device, for each client of theirs. Where names
/// are looked up, that core's monitor reaches the name server.
pub fn channels(system: &System, cores: u32) -> Vec<ChannelPlan> {
    let mut all: Vec<ChannelPlan> = Vec::new();
    for component in system.components.iter().filter(|component| component.name != MONITOR) {
        let own = component.domains(cores);
        for (number, (client, core)) in own.iter().enumerate() {
            for used in &component.uses {
                let is_own = used.server == component.name;
                let is_part = is_own && component.workers != Workers::None;
                let next = if is_part { 0 } else { (number + 1) % own.len() };
                let other = || own.get(next).filter(|_| next != number).cloned();
                let server = if is_own { other() } else { server_of(system, used, *core, cores) };
                let Some((server, server_core)) = server else { continue };
                let sessions =
                    if is_part { served(system, used, client, cores) } else { sessions(system, component, used) };
                for _ in 0..sessions {
                    let id = all.len() as ChannelId + 1;
                    let plan = plan(id, &used.contract, (client, *core), (&server, server_core));
                    let bulk_bytes = if is_part { DESK_BYTES } else { plan.bulk_bytes };
                    let worker = worker(system, used, &plan, &all);
                    all.push(ChannelPlan { worker, bulk_bytes, ..plan });
                }
            }
        }
    }
    let names = system.components.iter().find(|component| component.provides.iter().any(|it| it == NAMES));
    if let Some(Component { name, .. }) = names {
        let used = Use { contract: NAMES.into(), server: name.clone() };
        let places: BTreeSet<u32> = all.iter().filter(|it| it.contract == LOOKUP).map(|it| it.client_core).collect();
        for core in places {
            let Some((server, server_core)) = server_of(system, &used, core, cores) else { continue };
            let id = all.len() as ChannelId + 1;
            all.push(plan(id, NAMES, (MONITOR, core), (&server, server_core)));
        }
    }
    all
}

/// The channels of a Linux domain on `core`, numbered from `first` on.
pub fn linux_channels(system: &System, cores: u32, name: &str, core: u32, first: ChannelId) -> Vec<ChannelPlan> {
    let all = (first..).zip(&system.linux.uses);
    all.filter_map(|(id, used)| {
        let (server, server_core) = server_of(system, used, core, cores)?;
        Some(plan(id, &used.contract, (name, core), (&server, server_core)))
    })
    .collect()
}

/// Whether a channel has to be open before a component runs: it has an end of it, or its cores'
/// monitors do, for its sake.
pub fn concerns(plan: &ChannelPlan, component: &Component, domains: &[(u32, DomainPlan)]) -> bool {
    let looks_up = component.uses.iter().any(|used| used.contract == LOOKUP);
    let is_own = |(core, own): &(u32, DomainPlan)| {
        plan.client == own.name
            || plan.server == own.name
            || looks_up && plan.client == MONITOR && plan.client_core == *core
    };
    domains.iter().any(is_own)
}

/// A channel of a contract between a client and a server, each with its core.
pub fn plan(id: ChannelId, contract: &str, client: (&str, u32), server: (&str, u32)) -> ChannelPlan {
    let (ring_slots, bulk_bytes) = layout(contract);
    ChannelPlan {
        id,
        contract: contract.into(),
        client: client.0.into(),
        server: server.0.into(),
        client_core: client.1,
        server_core: server.1,
        ring_slots,
        bulk_bytes,
        worker: None,
    }
}

/// How many channels a use of a contract has. A server of blocks that uses another one's has one
/// for each client of its own, so that what they ask stays apart: numbers, places and slots.
fn sessions(system: &System, component: &Component, used: &Use) -> usize {
    let is_front = used.contract == BLOCKS && component.provides.iter().any(|contract| contract == BLOCKS);
    let uses = system.components.iter().flat_map(|other| &other.uses);
    let own = uses.filter(|other| other.contract == BLOCKS && other.server == component.name);
    if is_front { own.count().max(1) } else { 1 }
}

/// How many clients a dispatcher of a program has, but for its fellows.
fn served(system: &System, used: &Use, dispatcher: &str, cores: u32) -> usize {
    let is_its = |core: u32| server_of(system, used, core, cores).is_some_and(|(name, _)| name == dispatcher);
    let clients = system.components.iter().filter(|client| client.name != used.server && client.uses.contains(used));
    let of_client = |client: &Component| {
        let here = client.domains(cores).into_iter().filter(|(_, core)| is_its(*core));
        here.count() * sessions(system, client, used)
    };
    clients.map(of_client).sum()
}

/// Which worker of its server a channel's client calls; `others` are those before it. Only `blocks`
/// has calls, and only between components of one core.
fn worker(system: &System, used: &Use, plan: &ChannelPlan, others: &[ChannelPlan]) -> Option<u8> {
    if plan.contract != BLOCKS || plan.client_core != plan.server_core {
        return None;
    }
    let workers = system.components.iter().find(|component| component.name == used.server)?.workers;
    let before = others.iter().filter(|other| other.server == plan.server && other.worker.is_some()).count();
    workers.of_client(u8::try_from(before).ok()?)
}

/// What each domain of a component gets, with its core. `channels` are those of [`channels`].
pub fn domains(
    component: &Component,
    cores: u32,
    channels: &[ChannelPlan],
    generation: u64,
    entrance: u64,
) -> Vec<(u32, DomainPlan)> {
    let all = component.domains(cores);
    let set = CoreSet::of(all.iter().map(|(_, core)| *core));
    let program = ProgramPlan { name: component.name.clone(), cores: set.0 };
    let dispatcher_of = component.core.is_program().then_some(program);
    let one = |(name, core)| {
        let plan = domain(component, name, channels, generation, entrance);
        (core, DomainPlan { dispatcher_of: dispatcher_of.clone(), ..plan })
    };
    let mut plans: Vec<_> = all.into_iter().map(one).collect();
    if component.workers != Workers::None {
        // The device is one domain's, and so is what it reaches.
        for (_, part) in plans.iter_mut().skip(1) {
            (part.devices, part.regions) = (Vec::new(), Vec::new());
        }
    }
    plans
}

fn domain(component: &Component, name: String, channels: &[ChannelPlan], generation: u64, entrance: u64) -> DomainPlan {
    let mut ends: Vec<(ChannelId, End)> = Vec::new();
    for channel in channels {
        ends.extend((channel.client == name).then_some((channel.id, End::Client)));
        ends.extend((channel.server == name).then_some((channel.id, End::Server)));
    }
    let mut files: Vec<String> = [SYSTEM_PATH, RUN_PATH].map(String::from).into();
    let has_disk = component.uses.iter().any(|used| used.contract == BLOCKS);
    if !has_disk && component.provides.iter().any(|contract| contract == FILES) {
        files.push("archive".into());
    }
    DomainPlan {
        name,
        program: component.program.clone(),
        dispatcher_of: None,
        generation,
        entrance,
        limit_pages: component.memory_limit_pages.into(),
        priority: component.priority / PRIORITIES_IN_CLASS,
        budget: component.budget.map(|budget| (budget.slice_us, budget.period_us)),
        linux: false,
        first_pages: 0,
        parent: None,
        is_beaten: component.restart == Restart::Always,
        channels: ends,
        regions: component.regions.iter().map(|region| region.name.clone()).collect(),
        devices: component.devices.clone(),
        handlers: match component.handlers {
            Handlers::One => 1,
            Handlers::Two => 2,
        },
        files,
        has_vectors: component.has_vectors,
    }
}

/// What a Linux domain gets; it holds the clients' ends of `channels`, and is its parent's to fill
/// if there is one.
pub fn linux(
    system: &System,
    name: &str,
    channels: &[ChannelPlan],
    first_pages: u64,
    parent: Option<DomainId>,
) -> DomainPlan {
    let entrance = if parent.is_some() { Entrance::Adopt } else { Entrance::Fresh };
    DomainPlan {
        name: name.into(),
        program: system::PROXY.into(),
        dispatcher_of: None,
        generation: 1,
        entrance: entrance as u64,
        limit_pages: system.linux.memory_limit_pages.into(),
        priority: system.linux.priority / PRIORITIES_IN_CLASS,
        budget: None,
        linux: true,
        first_pages,
        parent,
        is_beaten: false,
        channels: channels.iter().map(|channel| (channel.id, End::Client)).collect(),
        regions: Vec::new(),
        devices: Vec::new(),
        handlers: 1,
        files: [String::from(RUN_PATH)].into(),
        has_vectors: true,
    }
}

/// The supervisor and all it needs, in boot order, without monitors: what monitor 0 starts by
/// itself.
pub fn first_components(system: &System) -> Vec<&Component> {
    let mut needed: Vec<&str> = Vec::from([SUPERVISOR]);
    // The description is in boot order, so servers of what is needed come before it.
    for component in system.components.iter().rev() {
        if needed.contains(&component.name.as_str()) {
            needed.extend(component.uses.iter().map(|used| used.server.as_str()));
        }
    }
    let first = |component: &&Component| component.name != MONITOR && needed.contains(&component.name.as_str());
    system.components.iter().filter(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use system::{Placement, Workers};

    fn made(name: &str, cores: &[u32], uses: &[&str]) -> Component {
        Component {
            name: name.into(),
            program: name.into(),
            core: Placement::Preferred(cores.into()),
            priority: 42,
            budget: None,
            memory_limit_pages: 100,
            provides: vec![name.into()],
            binds: vec![],
            uses: uses.iter().map(|name| Use { contract: (*name).into(), server: (*name).into() }).collect(),
            restart: Restart::Always,
            devices: vec![],
            handlers: Handlers::One,
            has_vectors: false,
            regions: vec![],
            workers: Workers::None,
        }
    }

    fn system() -> System {
        let components = vec![
            made("monitor", &[0], &[]),
            made("fs", &[0], &[]),
            made("spawn", &[0], &["monitor"]),
            made("supervisor", &[0], &["monitor", "spawn"]),
            made("net", &[0, 1], &[]),
            made("ip", &[0, 0], &["net"]),
        ];
        System { components, ..System::default() }
    }

    #[test]
    fn the_first_components_are_what_the_supervisor_needs() {
        let system = system();
        let names: Vec<_> = first_components(&system).iter().map(|component| component.name.as_str()).collect();
        assert_eq!(names, ["spawn", "supervisor"]);
    }

    #[test]
    fn both_ends_of_a_channel_have_one_number() {
        let system = system();
        let all = channels(&system, 2);
        let plan = |index: usize| domains(&system.components[index], 2, &all, 1, 0).remove(0);
        let ((core, net), (_, ip)) = (plan(4), plan(5));
        assert_eq!((core, net.dispatcher_of), (1, None));
        assert_eq!((net.channels, ip.channels), (vec![(4, End::Server)], vec![(4, End::Client)]));
        assert_eq!((all[3].client_core, all[3].server_core), (0, 1));
        assert_eq!(channels(&system, 1)[3].server_core, 0);
    }

    /// `crew` is on every core and speaks to its own next dispatcher, to `echo` on cores 1 and 2,
    /// and to `names`.
    fn with_programs() -> System {
        let echo = Component { core: Placement::Each([1, 2].into()), ..made("echo", &[], &[]) };
        let crew = Component { core: Placement::Every, ..made("crew", &[], &["crew", "echo", "names"]) };
        let user = made("user", &[2], &["crew"]);
        System { components: vec![made("names", &[0], &[]), echo, crew, user], ..System::default() }
    }

    #[test]
    fn a_program_has_its_channels_on_each_core() {
        let all = channels(&with_programs(), 4);
        let shown: Vec<_> = all.iter().map(|it| (it.client.as_str(), it.server.as_str(), it.server_core)).collect();
        let expected = [
            ("crew-0", "crew-1", 1),
            ("crew-0", "echo-1", 1),
            ("crew-0", "names", 0),
            ("crew-1", "crew-2", 2),
            ("crew-1", "echo-1", 1),
            ("crew-1", "names", 0),
            ("crew-2", "crew-3", 3),
            ("crew-2", "echo-2", 2),
            ("crew-2", "names", 0),
            ("crew-3", "crew-0", 0),
            ("crew-3", "echo-1", 1),
            ("crew-3", "names", 0),
            ("user", "crew-2", 2),
        ];
        assert_eq!(shown, expected);
        assert!(all.iter().zip(1..).all(|(plan, id)| plan.id == id));
        // Alone it speaks to nobody of its own, and there is no `echo`.
        let alone: Vec<_> = channels(&with_programs(), 1).into_iter().map(|it| it.server).collect();
        assert_eq!(alone, ["names", "crew-0"]);
    }

    /// `crew` is on cores 1 and 2 and looks names up, `user` on 2 too.
    #[test]
    fn who_looks_names_up_asks_its_own_core_and_that_asks_the_name_server() {
        let use_of = |server: &str, contract: &str| Use { contract: contract.into(), server: server.into() };
        let looks_up = |component: Component| Component { uses: vec![use_of(MONITOR, LOOKUP)], ..component };
        let crew = looks_up(Component { core: Placement::Each([1, 2].into()), ..made("crew", &[], &[]) });
        let user = looks_up(made("user", &[2], &[]));
        let other = made("other", &[1], &["names"]);
        let components = vec![made("names", &[0], &[]), crew, user, other];
        let all = channels(&System { components: components.clone(), ..System::default() }, 4);
        let shown: Vec<_> =
            all.iter().map(|it| (it.client.as_str(), it.client_core, it.server.as_str(), it.server_core)).collect();
        let expected = [
            ("crew-1", 1, MONITOR, 1),
            ("crew-2", 2, MONITOR, 2),
            ("user", 2, MONITOR, 2),
            ("other", 1, "names", 0),
            (MONITOR, 1, "names", 0),
            (MONITOR, 2, "names", 0),
        ];
        assert_eq!(shown, expected);
        let concerned = |component: &Component| {
            let plans = domains(component, 4, &all, 1, 0);
            all.iter().filter(|plan| concerns(plan, component, &plans)).map(|plan| plan.id).collect::<Vec<_>>()
        };
        assert_eq!(
            components.iter().map(concerned).collect::<Vec<_>>(),
            [vec![4, 5, 6], vec![1, 2, 5, 6], vec![3, 6], vec![4]]
        );
    }

    #[test]
    fn clients_of_the_servers_core_call_its_workers() {
        let disk = |workers| Component { provides: vec![BLOCKS.into()], workers, ..made("disk", &[0], &[]) };
        let client = |name: &str, core| Component {
            uses: vec![Use { contract: BLOCKS.into(), server: "disk".into() }],
            ..made(name, &[core], &[])
        };
        let called = |workers| {
            let components = vec![
                disk(workers),
                client("near", 0),
                client("far", 1),
                client("next", 0),
                made("other", &[0], &["disk"]),
            ];
            let all = channels(&System { components, ..System::default() }, 2);
            all.into_iter().map(|plan| plan.worker).collect::<Vec<_>>()
        };
        assert_eq!(called(Workers::None), [None; 4]);
        assert_eq!(called(Workers::Core), [Some(0), None, Some(0), None]);
        assert_eq!(called(Workers::Client), [Some(0), None, Some(1), None]);
    }

    #[test]
    fn clients_of_every_core_call_workers_there_which_share_words_with_the_first() {
        let uses = || vec![Use { contract: BLOCKS.into(), server: "disk".into() }];
        let region = system::Region { name: "disk-data".into(), bytes: 4096, contiguous: true, pool: false };
        let disk = Component {
            core: Placement::Every,
            provides: vec![BLOCKS.into()],
            uses: uses(),
            workers: Workers::Core,
            devices: vec!["virtio-blk".into()],
            regions: vec![region],
            ..made("disk", &[], &[])
        };
        let near = Component { uses: uses(), ..made("near", &[0], &[]) };
        let each = Component { core: Placement::Each([1, 2].into()), uses: uses(), ..made("each", &[], &[]) };
        let components = vec![disk, near, Component { uses: uses(), ..made("far", &[2], &[]) }, each];
        let system = System { components, ..System::default() };
        let all = channels(&system, 3);
        let shown: Vec<_> =
            all.iter().map(|it| (it.client.as_str(), it.server.as_str(), it.bulk_bytes, it.worker)).collect();
        let expected = [
            ("disk-1", "disk-0", DESK_BYTES, None),
            ("disk-2", "disk-0", DESK_BYTES, None),
            ("disk-2", "disk-0", DESK_BYTES, None),
            ("near", "disk-0", 0, Some(0)),
            ("far", "disk-2", 0, Some(0)),
            ("each-1", "disk-1", 0, Some(0)),
            ("each-2", "disk-2", 0, Some(0)),
        ];
        assert_eq!(shown, expected);
        let parts = domains(&system.components[0], 3, &all, 1, 0);
        let has: Vec<_> = parts.iter().map(|(_, part)| (part.devices.len(), part.regions.len())).collect();
        assert_eq!(has, [(1, 1), (0, 0), (0, 0)], "the first alone reaches the device");
        let alone = channels(&system, 1);
        assert!(alone.iter().all(|it| (it.server.as_str(), it.worker, it.bulk_bytes) == ("disk-0", Some(0), 0)));
    }

    #[test]
    fn who_stands_before_a_disk_has_a_channel_to_it_for_each_client() {
        let uses = |server: &str| vec![Use { contract: BLOCKS.into(), server: server.into() }];
        let server = |name: &str, uses| Component {
            provides: vec![BLOCKS.into()],
            workers: Workers::Client,
            uses,
            ..made(name, &[0], &[])
        };
        let client = |name: &str| Component { uses: uses("front"), ..made(name, &[0], &[]) };
        let front = [uses("disk"), vec![Use { contract: MONITOR.into(), server: MONITOR.into() }]].concat();
        let components = vec![server("disk", vec![]), server("front", front), client("a"), client("b")];
        let all = channels(&System { components, ..System::default() }, 1);
        let shown: Vec<_> = all.iter().map(|it| (it.client.as_str(), it.server.as_str(), it.worker)).collect();
        let expected = [
            ("front", "disk", Some(0)),
            ("front", "disk", Some(1)),
            ("front", MONITOR, None),
            ("a", "front", Some(0)),
            ("b", "front", Some(1)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_part_reaches_the_first_for_each_client_of_who_stands_before_it() {
        let uses = |server: &str| vec![Use { contract: BLOCKS.into(), server: server.into() }];
        let server = |name: &str, cores: &[u32]| Component {
            provides: vec![BLOCKS.into()],
            uses: uses("disk"),
            ..made(name, cores, &[])
        };
        let disk = Component { core: Placement::Every, workers: Workers::Core, ..server("disk", &[]) };
        let client = |name: &str| Component { uses: uses("front"), ..made(name, &[1], &[]) };
        let components = vec![disk, server("front", &[1]), client("a"), client("b")];
        let all = channels(&System { components, ..System::default() }, 2);
        let shown: Vec<_> = all.iter().map(|it| (it.client.as_str(), it.server.as_str())).collect();
        let (part, before) = (("disk-1", "disk-0"), ("front", "disk-1"));
        assert_eq!(shown, [part, part, before, before, ("a", "front"), ("b", "front")]);
    }

    #[test]
    fn a_dispatcher_is_told_its_program_and_holds_its_own_ends() {
        let system = with_programs();
        let all = channels(&system, 3);
        let plans = domains(&system.components[1], 3, &all, 7, 1);
        let shown: Vec<_> = plans.iter().map(|(core, plan)| (*core, plan.name.as_str(), plan.channels.len())).collect();
        // `crew-0` and `crew-1` are served by the first, `crew-2` by its own core's.
        assert_eq!(shown, [(1, "echo-1", 2), (2, "echo-2", 1)]);
        for (_, plan) in plans {
            let program = plan.dispatcher_of.unwrap();
            assert_eq!((program.name.as_str(), plan.generation), ("echo", 7));
            assert!(CoreSet(program.cores).cores().eq([1, 2]));
        }
    }

    #[test]
    fn numbers_of_channels_are_of_three_kinds() {
        assert_eq!((RUN_TIME_CHANNELS, BOUND_CHANNELS), (0x1_0000_0000, 0x1_0000_0000_0000));
    }

    #[test]
    fn a_channel_has_the_room_that_its_contract_needs() {
        let of = |contract| {
            let ChannelPlan { ring_slots, bulk_bytes, .. } = plan(1, contract, ("a", 0), ("b", 0));
            (ring_slots, bulk_bytes)
        };
        assert_eq!(["descriptions", "sockets"].map(of), [(64, 69_632), (64, 65_536)]);
        assert_eq!(["network", "packets"].map(of), [(128, 0); 2]);
        assert_eq!(of("names"), (64, 0));
    }

    #[test]
    fn monitors_are_spoken_to_at_core_0_but_for_what_each_keeps_of_its_own() {
        let of = |contract: &str| {
            let used = Use { contract: contract.into(), server: MONITOR.into() };
            server_of(&System::default(), &used, 3, 4)
        };
        assert_eq!([of("monitor"), of(LOOKUP)], [0, 3].map(|core| Some((String::from(MONITOR), core))));
    }

    #[test]
    fn a_domain_gets_what_the_description_says() {
        let of = |component: &Component| domains(component, 1, &[], 3, 1).remove(0).1;
        let plain = of(&made("net", &[0], &[]));
        let expected = DomainPlan {
            name: "net".into(),
            program: "net".into(),
            dispatcher_of: None,
            generation: 3,
            entrance: 1,
            limit_pages: 100,
            priority: 5,
            budget: None,
            linux: false,
            first_pages: 0,
            parent: None,
            is_beaten: true,
            channels: vec![],
            regions: vec![],
            devices: vec![],
            handlers: 1,
            files: vec!["etc/system".into(), "etc/run".into()],
            has_vectors: false,
        };
        assert_eq!(plain, expected);
        let never = of(&Component { restart: Restart::Never, ..made("net", &[0], &[]) });
        assert_eq!(never, DomainPlan { is_beaten: false, ..expected.clone() });
        let apart = of(&Component { handlers: Handlers::Two, ..made("net", &[0], &[]) });
        assert_eq!(apart, DomainPlan { handlers: 2, ..expected });
        // Who serves files fills its root from the archive, unless it has a disk.
        let reads_archive = |component: &Component| of(component).files.contains(&String::from("archive"));
        assert!(reads_archive(&made(FILES, &[0], &[])) && reads_archive(&made(FILES, &[0], &["net"])));
        assert!(!reads_archive(&made(FILES, &[0], &[BLOCKS])) && !reads_archive(&made("net", &[0], &[BLOCKS])));
    }

    #[test]
    fn a_linux_domain_holds_the_clients_ends_of_what_its_proxy_calls() {
        let uses = ["fs", "nobody", "net"].map(|name| Use { contract: name.into(), server: name.into() });
        let linux_row = system::Linux { priority: 42, memory_limit_pages: 9, uses: uses.into(), ..Default::default() };
        let system = System { linux: linux_row, ..system() };
        let channels = linux_channels(&system, 2, "linux-7", 1, 40);
        let shown: Vec<_> =
            channels.iter().map(|it| (it.id, it.client_core, it.server.as_str(), it.server_core)).collect();
        assert_eq!(shown, [(40, 1, "fs", 0), (42, 1, "net", 1)], "whom nobody serves is left out");
        let expected = DomainPlan {
            name: "linux-7".into(),
            program: "proxy".into(),
            dispatcher_of: None,
            generation: 1,
            entrance: Entrance::Fresh as u64,
            limit_pages: 9,
            priority: 5,
            budget: None,
            linux: true,
            first_pages: 6,
            parent: None,
            is_beaten: false,
            channels: vec![(40, End::Client), (42, End::Client)],
            regions: vec![],
            devices: vec![],
            handlers: 1,
            files: vec!["etc/run".into()],
            has_vectors: true,
        };
        assert_eq!(linux(&system, "linux-7", &channels, 6, None), expected);
        let child = linux(&system, "linux-7", &channels, 6, Some(5));
        assert_eq!(child, DomainPlan { parent: Some(5), entrance: Entrance::Adopt as u64, ..expected });
    }
}
