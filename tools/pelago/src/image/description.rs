//! `system/*.toml`: reads one, checks it and turns it into what the guest decodes.
//!
//! Refused, each with a line that says where: unknown keys, a name twice, a contract that is used
//! but not provided or provided twice, a cycle in the order of boot, a number out of range.
//!
//! A page may have components and regions for a part that not every machine has ([`Part`]). It is
//! checked with them, and they and the uses of them are left out where the machine lacks the part.
//! One may stand in front of another: who uses the other's contract then uses its own instead.

use crate::image::machine_type::MachineType;
use anyhow::{Context, Result, bail, ensure};
use petgraph::{algo::toposort, graph::DiGraph};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use system::{Budget, Component, Handlers, Linux, PERIOD_US_MAX, Placement, Region, Restart, System, Use, Workers};

/// abi's name fields hold 32 bytes with a zero at the end.
const NAME_BYTES_MAX: usize = 31;
const PRIORITY_MAX: u8 = 63;
/// What the kernel takes for a slice at least.
const SLICE_US_MIN: u32 = 100;
const PAGE_BYTES: u64 = 4096;
/// What follows a program's name in its dispatchers' names: at most `-255`.
const CORE_SUFFIX_BYTES: usize = 4;
/// The component that is on every core before all others.
pub const MONITOR: &str = "monitor";
/// The contract of a core's name cache, and that of the name server.
const LOOKUP: &str = "lookup";
const NAMES: &str = "names";
/// The contract that workers serve, and the only two servers of it of which one's calls may lead on
/// to the other.
const BLOCKS: &str = "blocks";
const NESTED: (&str, &str) = ("crypto", "disk");
/// The kind of device that two may handle.
const TWO_HANDLERS: &str = "virtio-net";
/// What a machine may be without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A disk (`--disk`).
    Disk,
    /// One that is encrypted (`--disk ...,key=`).
    Key,
}

/// What each dispatcher of a program can be given: a right, no device.
const SHARED_DEVICES: [&str; 2] = ["cores", "power"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    component: Vec<Entry>,
    linux: LinuxEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinuxEntry {
    core: Core,
    priority: u8,
    memory: String,
    uses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    program: Option<String>,
    core: Option<Core>,
    cores: Option<BTreeSet<u32>>,
    priority: u8,
    budget: Option<BudgetEntry>,
    memory: String,
    #[serde(default)]
    provides: Vec<String>,
    #[serde(default)]
    uses: Vec<String>,
    #[serde(default)]
    binds: Vec<String>,
    restart: RestartName,
    only_with: Option<Part>,
    in_front_of: Option<String>,
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    handlers: Handlers,
    #[serde(default)]
    regions: Vec<RegionEntry>,
    workers: Option<WorkersName>,
    #[serde(default)]
    vectors: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetEntry {
    slice_us: u32,
    period_us: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionEntry {
    name: String,
    size: String,
    #[serde(default)]
    contiguous: bool,
    #[serde(default)]
    pool: bool,
    only_with: Option<Part>,
    not_with: Option<Part>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Core {
    Word(String),
    List(Vec<u32>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RestartName {
    Always,
    Never,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkersName {
    /// A component of one domain has one core.
    One,
    Core,
    Client,
}

impl RestartName {
    fn restart(self) -> Restart {
        match self {
            RestartName::Always => Restart::Always,
            RestartName::Never => Restart::Never,
        }
    }
}

impl WorkersName {
    fn workers(self) -> Workers {
        match self {
            WorkersName::One | WorkersName::Core => Workers::Core,
            WorkersName::Client => Workers::Client,
        }
    }
}

/// Reads and checks the page at `path`: the system of a machine without any [`Part`].
pub fn load(path: &Path) -> Result<System> {
    load_with(path, &[])
}

/// The same of a machine with these parts.
pub fn load_with(path: &Path, parts: &[Part]) -> Result<System> {
    let text = String::from_utf8(crate::host::files::read(path)?)
        .with_context(|| format!("{} is not text", path.display()))?;
    parse(&text, parts).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str, parts: &[Part]) -> Result<System> {
    let page: Page = toml::from_str(text)?;
    let lacks = |part: Option<Part>| part.is_some_and(|part| !parts.contains(&part));
    let (without, with): (Vec<_>, Vec<_>) = page.component.iter().partition(|entry| lacks(entry.only_with));
    let left_out: Vec<String> = without.iter().map(|entry| entry.name.clone()).collect();
    let has = |part: Option<Part>| part.is_some_and(|part| parts.contains(&part));
    let is_out = |region: &&RegionEntry| lacks(region.only_with) || has(region.not_with);
    let regions =
        page.component.iter().flat_map(|entry| entry.regions.iter().filter(is_out).map(move |it| (entry, it)));
    let regions_left_out: Vec<_> = regions.map(|(entry, region)| (entry.name.clone(), region.name.clone())).collect();
    let front = |entry: &&Entry| Some(Front { behind: entry.in_front_of.clone()?, front: entry.name.clone() });
    let fronts: Vec<Front> = with.iter().filter_map(front).collect();
    let mut system = checked(page, &fronts)?;
    system.components.retain(|component| !left_out.contains(&component.name));
    for Component { name, regions, .. } in &mut system.components {
        regions.retain(|region| !regions_left_out.iter().any(|(of, left_out)| of == name && *left_out == region.name));
    }
    let uses = system.components.iter_mut().map(|component| &mut component.uses).chain([&mut system.linux.uses]);
    uses.for_each(|uses| uses.retain(|used| !left_out.contains(&used.server)));
    check_binds(&system)?;
    Ok(system)
}

/// A component that stands in front of another.
struct Front {
    behind: String,
    front: String,
}

/// The system with all components of the page.
fn checked(page: Page, fronts: &[Front]) -> Result<System> {
    let components = page.component.into_iter().map(component).collect::<Result<Vec<_>>>()?;
    let mut names = BTreeSet::new();
    for component in &components {
        let Component { name, handlers, devices, .. } = component;
        ensure!(names.insert(name), "component {name} is described twice");
        ensure!(
            *handlers == Handlers::One || devices.iter().any(|device| device == TWO_HANDLERS),
            "{name}: two handlers are for what receives and transmits apart, and it has no {TWO_HANDLERS}"
        );
    }
    for program in components.iter().filter(|component| component.core.is_program()) {
        let of_program = |name: &str| {
            let core = name.strip_prefix(&*program.name)?.strip_prefix('-')?;
            core.parse::<u8>().ok()
        };
        let clash = components.iter().find(|component| of_program(&component.name).is_some());
        ensure!(
            clash.is_none_or(|component| component.name == program.name),
            "component {} is named like a dispatcher of {}",
            clash.map_or("", |component| &component.name),
            program.name
        );
    }
    let mut regions = HashMap::new();
    for region in components.iter().flat_map(|component| &component.regions) {
        let first = regions.entry(&region.name).or_insert(region);
        ensure!(*first == region, "region {} is described in two ways", region.name);
    }
    let mut system = in_boot_order(components, fronts)?;
    system.linux = linux(page.linux, &system.components)?;
    check_lookups(&system)?;
    check_workers(&system)?;
    Ok(system)
}

/// Workers serve `blocks`; and as a call waits for those that it leads to, one server with workers
/// stands before another only where that is known to end: an encrypted disk's.
fn check_workers(system: &System) -> Result<()> {
    let has_workers = |name: &str| system.components.iter().any(|it| it.name == name && it.workers != Workers::None);
    for component in system.components.iter().filter(|component| component.workers != Workers::None) {
        let Component { name, provides, uses, core, .. } = component;
        ensure!(provides.iter().any(|it| it == BLOCKS), "{name}: workers serve {BLOCKS}, which it does not provide");
        let is_own = |used: &&Use| used.contract == BLOCKS && used.server == *name;
        ensure!(
            core.is_program() == uses.iter().any(|used| is_own(&used)),
            "{name}: a program of several cores with workers uses its own {BLOCKS}, by which they reach the device"
        );
        let others = uses.iter().filter(|used| !is_own(used));
        for used in others.filter(|used| used.contract == BLOCKS && has_workers(&used.server)) {
            ensure!(
                (name.as_str(), used.server.as_str()) == NESTED,
                "{name}: its calls would lead on to {}; only {} may stand before {}: take its workers away",
                used.server,
                NESTED.0,
                NESTED.1
            );
        }
    }
    Ok(())
}

/// A component may ask for what somebody provides and spawn can connect it to.
fn check_binds(system: &System) -> Result<()> {
    let servers = || system.components.iter().filter(|component| component.name != MONITOR);
    for component in &system.components {
        let missing = component.binds.iter().find(|bound| !servers().any(|server| server.provides.contains(bound)));
        ensure!(missing.is_none(), "{} binds {missing:?}, which no component provides", component.name);
    }
    Ok(())
}

/// Names are looked up in the monitor of one's core, which asks the name server; programs of Linux
/// have no use for it.
fn check_lookups(system: &System) -> Result<()> {
    let provider = |contract: &str| {
        let provides = |it: &&Component| it.provides.iter().any(|provided| provided == contract);
        system.components.iter().find(provides).map(|component| component.name.as_str())
    };
    let provides = provider(LOOKUP);
    ensure!(provides.is_none_or(|name| name == MONITOR), "{LOOKUP} is the monitor's, not {provides:?}'s, to provide");
    let mut uses = system.components.iter().flat_map(|component| &component.uses);
    let is_used = uses.any(|used| used.contract == LOOKUP);
    ensure!(!is_used || provider(NAMES).is_some(), "{LOOKUP} is used, and no component provides {NAMES}");
    ensure!(!system.linux.uses.iter().any(|used| used.contract == LOOKUP), "linux: {LOOKUP} is for components");
    Ok(())
}

fn linux(entry: LinuxEntry, components: &[Component]) -> Result<Linux> {
    ensure!(entry.priority <= PRIORITY_MAX, "linux: priority {} is above {PRIORITY_MAX}", entry.priority);
    let uses = entry.uses.iter().map(|text| resolve("linux", text, components)).collect::<Result<_>>()?;
    let (core, memory_limit_pages) = (placement("linux", entry.core)?, pages("linux", &entry.memory)?);
    ensure!(!core.is_program(), "linux: core is a list of numbers: every program has one");
    Ok(Linux { core, priority: entry.priority, memory_limit_pages, uses })
}

/// `CONTRACT`, or `COMPONENT/CONTRACT` where several components provide it.
fn resolve(user: &str, text: &str, components: &[Component]) -> Result<Use> {
    let (server, contract) = match text.split_once('/') {
        Some((server, contract)) => (Some(server), contract),
        None => (None, text),
    };
    let provides = |component: &&Component| {
        server.is_none_or(|server| server == component.name)
            && component.provides.iter().any(|provided| provided == contract)
    };
    let mut all = components.iter().filter(provides);
    let Some(provider) = all.next() else { bail!("{user} uses contract {text}, which no component provides") };
    if let Some(other) = all.next() {
        bail!(
            "{user} uses contract {contract}, which both {} and {} provide: write COMPONENT/{contract}",
            provider.name,
            other.name
        );
    }
    Ok(Use { contract: contract.into(), server: provider.name.clone() })
}

/// Has all that use a contract of the one behind, and that the one in front provides, too, use the
/// latter's.
fn put_in_front(Front { behind, front }: &Front, components: &mut [Component]) -> Result<()> {
    let found = components.iter().find(|component| component.name == *front);
    let provides = found.map(|component| component.provides.clone()).unwrap_or_default();
    let is_covered = |used: &Use| used.server == *behind && provides.contains(&used.contract);
    let covers = found.is_some_and(|component| component.uses.iter().any(is_covered));
    ensure!(covers, "{front} is in front of {behind}, of which it does not use a contract that it provides, too");
    for component in components.iter_mut().filter(|component| component.name != *front) {
        component.uses.iter_mut().filter(|used| is_covered(used)).for_each(|used| used.server.clone_from(front));
    }
    Ok(())
}

fn component(entry: Entry) -> Result<Component> {
    let Entry {
        name,
        program,
        core,
        cores,
        priority,
        budget,
        memory,
        provides,
        uses,
        binds,
        restart,
        devices,
        handlers,
        regions,
        workers,
        vectors,
        ..
    } = entry;
    let regions = regions.into_iter().map(region).collect::<Result<Vec<_>>>().with_context(|| name.clone())?;
    for name in [&name]
        .into_iter()
        .chain(&provides)
        .chain(&uses)
        .chain(&binds)
        .chain(&devices)
        .chain(regions.iter().map(|region| &region.name))
    {
        ensure!((1..=NAME_BYTES_MAX).contains(&name.len()), "the name `{name}` must have 1 to {NAME_BYTES_MAX} bytes");
    }
    ensure!(priority <= PRIORITY_MAX, "{name}: priority {priority} is above {PRIORITY_MAX}");
    let memory_limit_pages = pages(&name, &memory)?;
    let budget = budget.map(|entry| self::budget(&name, &entry)).transpose()?;
    let core = match (core, cores) {
        (Some(core), None) => placement(&name, core)?,
        (None, Some(cores)) if !cores.is_empty() => Placement::Each(cores),
        _ => bail!("{name}: give core, or cores with one at least, and not both"),
    };
    if core.is_program() && name != MONITOR {
        ensure!(
            name.len() <= NAME_BYTES_MAX - CORE_SUFFIX_BYTES,
            "{name}: the name of a program of several cores has at most {} bytes, as `-` and the core follow it",
            NAME_BYTES_MAX - CORE_SUFFIX_BYTES
        );
        let unshared = devices.iter().find(|device| !SHARED_DEVICES.contains(&device.as_str()));
        ensure!(
            unshared.is_none() || workers.is_some(),
            "{name}: a device is one domain's, so no program of several cores without workers has {unshared:?}"
        );
    }
    // Servers are found when all components are known.
    let uses = uses.into_iter().map(|contract| Use { contract, server: String::new() }).collect();
    let program = program.unwrap_or_else(|| name.clone());
    Ok(Component {
        program,
        name,
        core,
        priority,
        budget,
        memory_limit_pages,
        provides,
        uses,
        binds,
        restart: restart.restart(),
        devices,
        handlers,
        regions,
        workers: workers.map_or(Workers::None, WorkersName::workers),
        has_vectors: vectors,
    })
}

fn budget(name: &str, &BudgetEntry { slice_us, period_us }: &BudgetEntry) -> Result<Budget> {
    ensure!(name != MONITOR, "{name}: it is the kernel that starts it, so it has no budget");
    ensure!(
        (SLICE_US_MIN..=period_us).contains(&slice_us) && period_us <= PERIOD_US_MAX,
        "{name}: a budget has a slice_us of at least {SLICE_US_MIN}, and at most period_us, which is at most \
         {PERIOD_US_MAX}: between two periods it may answer nobody"
    );
    Ok(Budget { slice_us, period_us })
}

fn placement(name: &str, core: Core) -> Result<Placement> {
    Ok(match core {
        Core::Word(word) if word == "every" => Placement::Every,
        Core::Word(word) => bail!("{name}: core is a list of numbers or \"every\", not \"{word}\""),
        Core::List(list) => {
            ensure!(!list.is_empty(), "{name}: the list of cores is empty");
            Placement::Preferred(list)
        }
    })
}

fn pages(name: &str, memory: &str) -> Result<u32> {
    if memory == "all" {
        return Ok(system::ALL_MEMORY);
    }
    let bytes = crate::host::size::parse_size(memory).with_context(|| format!("{name}: memory, or \"all\""))?;
    u32::try_from(bytes / PAGE_BYTES).with_context(|| format!("{name}: memory is too large"))
}

fn region(entry: RegionEntry) -> Result<Region> {
    let bytes = crate::host::size::parse_size(&entry.size).with_context(|| format!("region {}", entry.name))?;
    ensure!(bytes > 0 && bytes % PAGE_BYTES == 0, "region {}: its size is not a multiple of {PAGE_BYTES}", entry.name);
    let bytes = u32::try_from(bytes).with_context(|| format!("region {} is too large", entry.name))?;
    ensure!(
        !(entry.pool && entry.contiguous),
        "region {}: a pool is not mapped, so it is not contiguous for anybody",
        entry.name
    );
    Ok(Region { name: entry.name, bytes, contiguous: entry.contiguous, pool: entry.pool })
}

/// Sorts so that the provider of a contract comes before its users; else in no particular order.
fn in_boot_order(mut components: Vec<Component>, fronts: &[Front]) -> Result<System> {
    for index in 0..components.len() {
        let name = components[index].name.clone();
        let uses: Result<Vec<_>> =
            components[index].uses.iter().map(|wanted| resolve(&name, &wanted.contract, &components)).collect();
        components[index].uses = uses?;
    }
    fronts.iter().try_for_each(|front| put_in_front(front, &mut components))?;
    let mut graph = DiGraph::<usize, ()>::new();
    let nodes: Vec<_> = (0..components.len()).map(|index| graph.add_node(index)).collect();
    for (index, component) in components.iter().enumerate() {
        for wanted in &component.uses {
            let server = components.iter().position(|other| other.name == wanted.server);
            // A program's own contract leads to its next dispatcher.
            let is_own = server == Some(index) && component.core.is_program();
            if let Some(server) = server.filter(|_| !is_own) {
                graph.add_edge(nodes[server], nodes[index], ());
            }
        }
    }
    let order = toposort(&graph, None).map_err(|cycle| {
        anyhow::anyhow!(
            "{} is in a cycle of boot order: it uses, through others, what needs it first",
            components[graph[cycle.node_id()]].name
        )
    })?;
    let mut slots: Vec<_> = components.into_iter().map(Some).collect();
    let components = order.into_iter().filter_map(|node| slots[graph[node]].take()).collect();
    Ok(System { components, ..System::default() })
}

/// Devices that are behind a line where the machine has lines.
const CARDS: [&str; 2] = ["virtio-net", "virtio-blk"];

/// The system as it is laid out on a kind of machine: who has the network card or the disk is on
/// core 0 where its interrupt is a line, since lines are that core's.
pub fn placed(mut system: System, machine: MachineType) -> System {
    let drivers = system.components.iter_mut();
    let drivers = drivers.filter(|component| component.devices.iter().any(|kind| CARDS.contains(&&**kind)));
    if machine.has_line() {
        drivers.for_each(|component| component.core = Placement::Preferred(vec![0]));
    }
    system
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: &str = "[linux]\ncore = [0]\npriority = 1\nmemory = '4M'\nuses = []\n";

    fn entry(name: &str, provides: &str, uses: &str) -> String {
        format!(
            "[[component]]\nname = '{name}'\ncore = [0, 1]\npriority = 1\nmemory = '4M'\nprovides = [{provides}]\nuses = [{uses}]\nrestart = 'always'\n"
        )
    }

    #[test]
    fn a_budget_is_time_that_comes_again_soon() {
        let told = |budget: &str| {
            let page = entry("a", "", "") + budget + LINUX;
            parse(&page, &[]).map(|system| system.components[0].budget)
        };
        assert_eq!(told("").unwrap(), None);
        let of =
            |slice_us, period_us| told(&format!("budget = {{ slice_us = {slice_us}, period_us = {period_us} }}\n"));
        assert_eq!(of(100, 50_000).unwrap(), Some(Budget { slice_us: 100, period_us: 50_000 }));
        assert_eq!(of(700, 700).unwrap(), Some(Budget { slice_us: 700, period_us: 700 }));
        for (slice_us, period_us) in [(99, 1000), (701, 700), (100, 50_001), (0, 0)] {
            let refused = format!("{:#}", of(slice_us, period_us).unwrap_err());
            assert!(refused.contains("a: a budget has"), "{refused}");
        }
        assert!(told("budget = { slice_us = 100 }\n").is_err());
        let monitor = entry(MONITOR, "", "") + "budget = { slice_us = 100, period_us = 1000 }\n" + LINUX;
        let refused = format!("{:#}", parse(&monitor, &[]).unwrap_err());
        assert!(refused.contains("no budget"), "{refused}");
    }

    #[test]
    fn what_a_machine_lacks_is_left_out() {
        let disk = entry("disk", "'blocks'", "") + "only_with = 'disk'\n";
        let linux = LINUX.replace("uses = []", "uses = ['disk/blocks', 'files']");
        let page = disk + &entry("fs", "'files'", "'blocks'") + &linux;
        let told = |parts: &[Part]| {
            let System { components, linux } = parse(&page, parts).unwrap();
            let uses = |uses: &[Use]| uses.iter().map(|used| used.contract.clone()).collect::<Vec<_>>().join(" ");
            let told = components.iter().map(|component| format!("{} {}", component.name, uses(&component.uses)));
            (told.collect::<Vec<_>>(), uses(&linux.uses))
        };
        assert_eq!(told(&[Part::Disk]), (vec!["disk ".into(), "fs blocks".into()], "blocks files".into()));
        assert_eq!(told(&[]), (vec!["fs ".into()], "files".into()));
        // It is looked at all the same.
        let wrong = page.replace("'blocks', 'files'", "'block', 'files'").replace("disk/blocks", "disk/block");
        assert!(parse(&wrong, &[]).is_err());
        let bound = page.replace("restart = 'always'\n[linux]", "restart = 'always'\nbinds = ['blocks']\n[linux]");
        assert!(parse(&bound, &[Part::Disk]).is_ok());
        assert!(format!("{:#}", parse(&bound, &[]).unwrap_err()).contains("fs binds"));
    }

    #[test]
    fn one_in_front_of_another_is_used_instead_where_the_machine_has_it() {
        let front = entry("front", "'a', 'c'", "'back/a'") + "in_front_of = 'back'\nonly_with = 'key'\n";
        let regions = "regions = [{ name = 'r', size = '4K', not_with = 'key' }, { name = 's', size = '4K', only_with = 'key' }]\n";
        let user = entry("user", "", "'back/a', 'b'") + regions;
        let back = entry("back", "'a', 'b'", "") + "regions = [{ name = 'r', size = '4K' }]\n";
        let page = user + &front + &back + LINUX;
        let told = |parts: &[Part]| {
            let System { components, .. } = parse(&page, parts).unwrap();
            let user = components.iter().find(|component| component.name == "user").unwrap();
            let uses: Vec<_> = user.uses.iter().map(|used| format!("{}/{}", used.server, used.contract)).collect();
            let regions: Vec<_> = user.regions.iter().map(|region| region.name.clone()).collect();
            // What one of them does without is another's all the same.
            let back = components.iter().find(|component| component.name == "back").unwrap();
            assert_eq!(back.regions.len(), 1);
            let names: Vec<_> = components.iter().map(|component| component.name.clone()).collect();
            (names.join(" "), uses.join(" "), regions.join(" "))
        };
        let words = |told: [&str; 3]| -> (String, String, String) { told.map(String::from).into() };
        assert_eq!(told(&[]), words(["back user", "back/a back/b", "r"]));
        assert_eq!(told(&[Part::Key]), words(["back front user", "front/a back/b", "s"]));
        let wrong = page.replace("'back/a']", "'b']");
        assert!(format!("{:#}", parse(&wrong, &[Part::Key]).unwrap_err()).contains("front is in front of back"));
    }

    #[test]
    fn servers_boot_before_their_clients() {
        let system = parse(&(entry("client", "", "'a'") + &entry("server", "'a'", "") + LINUX), &[]).unwrap();
        let names: Vec<_> = system.components.iter().map(|component| component.name.as_str()).collect();
        assert_eq!(names, ["server", "client"]);
        assert_eq!(system.components[0].memory_limit_pages, 1024);
        assert_eq!(pages("linux", "all").unwrap(), system::ALL_MEMORY);
    }

    /// Two servers of `blocks` with workers, of which the first uses the second.
    fn nested(first: &str, second: &str) -> String {
        let uses = format!("'{second}/blocks'");
        entry(second, "'blocks'", "") + "workers = 'core'\n" + &entry(first, "'blocks'", &uses) + "workers = 'client'\n"
    }

    #[test]
    fn calls_of_a_client_lead_to_an_encrypted_disk_and_on() {
        let page = nested("crypto", "disk") + &entry("x", "", "'crypto/blocks'") + LINUX;
        let workers: Vec<_> = parse(&page, &[]).unwrap().components.iter().map(|component| component.workers).collect();
        assert_eq!(workers, [Workers::Core, Workers::Client, Workers::None]);
    }

    #[test]
    fn a_disk_of_several_cores_has_a_device_and_workers_on_each() {
        let every = entry("disk", "'blocks'", "'blocks'").replace("[0, 1]", "'every'") + "devices = ['virtio-blk']\n";
        assert!(parse(&(every.clone() + "workers = 'core'\n" + LINUX), &[]).is_ok());
        let refused = format!("{:#}", parse(&(every + LINUX), &[]).unwrap_err());
        assert!(refused.contains("a device is one domain's"), "{refused}");
    }

    #[test]
    fn a_network_card_has_one_handler_or_two() {
        let page = entry("x", "", "") + "devices = ['virtio-net']\n";
        let told = |more: &str| parse(&(page.clone() + more + LINUX), &[]).unwrap().components[0].handlers;
        assert_eq!(
            ["", "handlers = 'one'\n", "handlers = 'two'\n"].map(told),
            [Handlers::One, Handlers::One, Handlers::Two]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let every = |name: &str| entry(name, "", "").replace("[0, 1]", "'every'");
        let cases = [
            (entry("x", "'a'", "'b'") + &entry("y", "'b'", "'a'"), "cycle"),
            (entry("x", "", "'b'"), "no component provides"),
            (entry("x", "'a'", "") + &entry("x", "", ""), "described twice"),
            (entry("x", "'a'", "") + &entry("y", "'a'", "") + &entry("z", "", "'a'"), "both x and y"),
            (entry("x", "", "") + "priorty = 1\n", "unknown field"),
            (entry("x", "", "").replace("4M", "4Q"), "memory"),
            (entry("x", "", "").replace("[0, 1]", "'some'"), "every"),
            (entry("x", "", "") + "cores = [1]\n", "not both"),
            (entry("x", "", "").replace("core = [0, 1]", "cores = []"), "one at least"),
            (entry("x", "", "").replace("core = [0, 1]\n", ""), "give core"),
            (entry("x", "'a'", "'a'"), "cycle"),
            (every("x") + "devices = ['cores', 'serial']\n", "\"serial\""),
            (every(&"x".repeat(28)), "at most 27 bytes"),
            (every("x") + &entry("x-2", "", ""), "x-2 is named like a dispatcher of x"),
            (entry("x", "", "") + "regions = [{ name = 'r', size = '4K' }, { name = 'r', size = '8K' }]\n", "two ways"),
            (entry("x", "", "") + "regions = [{ name = 'r', size = '5' }]\n", "multiple"),
            (
                entry("x", "", "") + "regions = [{ name = 'r', size = '64K', pool = true, contiguous = true }]\n",
                "not mapped",
            ),
            (entry("x", "'lookup'", ""), "monitor's"),
            (entry("monitor", "'a'", "") + &entry("x", "'b'", "") + "binds = ['b', 'a']\n", "x binds Some(\"a\")"),
            (entry("monitor", "'lookup'", "") + &entry("x", "", "'lookup'"), "no component provides names"),
            (entry("x", "'a'", "") + "workers = 'core'\n", "workers serve blocks"),
            (
                every("x").replace("provides = []", "provides = ['blocks']") + "workers = 'core'\n",
                "uses its own blocks",
            ),
            (entry("x", "'blocks'", "") + "workers = 'two'\n", "unknown variant"),
            (entry("x", "", "") + "handlers = 'two'\ndevices = ['virtio-blk']\n", "x: two handlers"),
            (entry("x", "", "") + "handlers = 'three'\n", "unknown variant"),
            (nested("far", "disk"), "far: its calls would lead on to disk"),
            (nested("crypto", "far"), "only crypto may stand before disk"),
        ];
        for (text, words) in cases {
            let message = format!("{:#}", parse(&(text + LINUX), &[]).unwrap_err());
            assert!(message.contains(words), "{message} lacks {words}");
        }
        let looks_up = LINUX.replace("uses = []", "uses = ['lookup']");
        let page = entry("monitor", "'lookup'", "") + &entry("x", "'names'", "") + &looks_up;
        assert!(format!("{:#}", parse(&page, &[]).unwrap_err()).contains("for components"));
        let everywhere = LINUX.replace("[0]", "'every'");
        assert!(
            format!("{:#}", parse(&(entry("x", "", "") + &everywhere), &[]).unwrap_err())
                .contains("every program has one")
        );
    }

    #[test]
    fn the_pages_in_the_tree_are_sound() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
        assert!(pages.len() > 1, "the folder is another one: {pages:?}");
        for page in &pages {
            [&[][..], &[Part::Disk], &[Part::Disk, Part::Key]]
                .iter()
                .for_each(|parts| drop(load_with(page, parts).unwrap()));
        }
    }

    #[test]
    fn a_program_of_several_cores_is_on_all_or_on_those_listed() {
        let every = entry("a", "'x'", "'x'").replace("[0, 1]", "'every'");
        let some = entry("b", "", "'x'").replace("core = [0, 1]", "cores = [3, 0]");
        let system = parse(&(every + &some + LINUX), &[]).unwrap();
        let names = |index: usize, cores| system.components[index].domains(cores).into_iter().map(|(name, _)| name);
        assert!(names(0, 2).eq(["a-0", "a-1"]) && names(1, 2).eq(["b-0"]) && names(1, 8).eq(["b-0", "b-3"]));
        // Its own contract leads to the next one of it, and orders nothing.
        assert_eq!(system.components[0].uses[0].server, "a");
    }

    #[test]
    fn a_card_with_a_line_is_driven_on_core_0() {
        for (file, name) in [("default.toml", "virtio-net"), ("disk.toml", "disk")] {
            let system = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system").join(file)).unwrap();
            let core = |machine| {
                let placed = placed(system.clone(), machine);
                placed.components.iter().find(|component| component.name == name).unwrap().core.core_on(4)
            };
            assert_eq!((core(MachineType::Microvm), core(MachineType::MicrovmMmio)), (Some(1), Some(0)));
        }
    }
}
