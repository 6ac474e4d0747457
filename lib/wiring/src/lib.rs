//! From the system description to what monitors are asked for: which channels there are, on which cores, and what each domain gets.
//!
//! Monitor 0 makes the first components with it and spawn all others; both number the channels alike, because the numbers come from the
//! description alone. Deliberately unknown here: what exists already, who restarts whom.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

use abi::start::Entrance;
use contracts::monitor::{ChannelId, ChannelPlan, DomainPlan, End};
use contracts::spawn::DomainId;
use system::{Component, RUN_PATH, SYSTEM_PATH, System};

/// The component that is there before all others, on every core.
pub const MONITOR: &str = "monitor";
/// The component that starts the others.
pub const SUPERVISOR: &str = "supervisor";
/// First channel number not taken by the description.
pub const RUN_TIME_CHANNELS: ChannelId = 1 << 32;
/// Priorities of the description in one class of the kernel's eight.
const PRIORITIES_IN_CLASS: u8 = 8;
/// Whoever serves this fills its root from the whole archive.
const FILES: &str = "files";

/// Slots of each ring and bulk bytes of a contract's channels.
pub fn layout(contract: &str) -> (u32, u32) {
    match contract {
        // Data of reads and writes; one read or write is at most this long.
        "descriptions" | "sockets" => (64, 64 << 10),
        // Batches of packet references.
        "network" | "packets" => (128, 0),
        _ => (64, 0),
    }
}

/// The core of a component; monitors are spoken to at core 0.
pub fn core_of(system: &System, name: &str, cores: u32) -> u32 {
    let component = system.components.iter().find(|component| component.name == name);
    component.and_then(|component| component.core.core_on(cores)).unwrap_or(0)
}

/// All channels between components.
pub fn channels(system: &System, cores: u32) -> Vec<ChannelPlan> {
    let wanted = system.components.iter().filter(|component| component.name != MONITOR);
    let pairs = wanted.flat_map(|component| component.uses.iter().map(move |used| (component, used)));
    (1..)
        .zip(pairs)
        .map(|(id, (client, used))| {
            let (client_core, server_core) =
                (core_of(system, &client.name, cores), core_of(system, &used.server, cores));
            plan(id, &used.contract, (&client.name, client_core), (&used.server, server_core))
        })
        .collect()
}

/// The channels of a Linux domain on `core`, numbered from `first` on.
pub fn linux_channels(system: &System, cores: u32, name: &str, core: u32, first: ChannelId) -> Vec<ChannelPlan> {
    let server_core = |server: &str| core_of(system, server, cores);
    let all = (first..).zip(&system.linux.uses);
    all.map(|(id, used)| plan(id, &used.contract, (name, core), (&used.server, server_core(&used.server)))).collect()
}

fn plan(id: ChannelId, contract: &str, client: (&str, u32), server: (&str, u32)) -> ChannelPlan {
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
    }
}

/// What a component's domain gets. `channels` are those of [`channels`].
pub fn component(component: &Component, channels: &[ChannelPlan], generation: u64, entrance: u64) -> DomainPlan {
    let name = &component.name;
    let mut ends: Vec<(ChannelId, End)> = Vec::new();
    for channel in channels {
        ends.extend((channel.client == *name).then_some((channel.id, End::Client)));
        ends.extend((channel.server == *name).then_some((channel.id, End::Server)));
    }
    let mut files: Vec<String> = [SYSTEM_PATH, RUN_PATH].map(String::from).into();
    if component.provides.iter().any(|contract| contract == FILES) {
        files.push("archive".into());
    }
    DomainPlan {
        name: name.clone(),
        program: component.program.clone(),
        generation,
        entrance,
        limit_pages: component.memory_limit_pages.into(),
        priority: component.priority / PRIORITIES_IN_CLASS,
        linux: false,
        first_pages: 0,
        parent: None,
        channels: ends,
        regions: component.regions.iter().map(|region| region.name.clone()).collect(),
        devices: component.devices.clone(),
        files,
    }
}

/// What a Linux domain gets; it holds the clients' ends of `channels`, and is its parent's to fill if there is one.
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
        generation: 1,
        entrance: entrance as u64,
        limit_pages: system.linux.memory_limit_pages.into(),
        priority: system.linux.priority / PRIORITIES_IN_CLASS,
        linux: true,
        first_pages,
        parent,
        channels: channels.iter().map(|channel| (channel.id, End::Client)).collect(),
        regions: Vec::new(),
        devices: Vec::new(),
        files: [String::from(RUN_PATH)].into(),
    }
}

/// The supervisor and all it needs, in boot order, without monitors: what monitor 0 starts by itself.
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
    use system::{Placement, Restart, Use};

    fn made(name: &str, cores: &[u32], uses: &[&str]) -> Component {
        Component {
            name: name.into(),
            program: name.into(),
            core: Placement::Preferred(cores.into()),
            priority: 42,
            memory_limit_pages: 100,
            provides: vec![name.into()],
            uses: uses.iter().map(|name| Use { contract: (*name).into(), server: (*name).into() }).collect(),
            restart: Restart::Always,
            devices: vec![],
            regions: vec![],
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
        let (net, ip) = (component(&system.components[4], &all, 1, 0), component(&system.components[5], &all, 1, 0));
        assert_eq!((net.channels, ip.channels), (vec![(4, End::Server)], vec![(4, End::Client)]));
        assert_eq!((all[3].client_core, all[3].server_core), (0, 1));
        assert_eq!(channels(&system, 1)[3].server_core, 0);
    }
}
