//! What a domain is shown and given when it is made.

use alloc::vec;
use alloc::vec::Vec;

use abi::layout::{CLOCK_PAGE, REGIONS, STACK_TOP, START_INFO, protection};
use abi::start::{StartHeader, StartRecord, channel as flags, kind, text};
use abi::{Handle, PAGE_BYTES, Rights};
use channel::Layout;
use contracts::monitor::{DomainPlan, End, MonitorError, ProgramPlan, RegionKind};
use contracts::spawn::DomainId;
use zerocopy::FromBytes;

use super::fake::{Fake, Mapped, code, domain, member, program, registry, registry_of, wire};
use crate::{Facts, Registry, archive};

const READ: u64 = protection::READ;
const BOTH: u64 = 3;

/// What a domain finds.
pub(crate) struct Found {
    header: StartHeader,
    pub(crate) records: Vec<StartRecord>,
    mapped: Vec<Mapped>,
    start_page: Vec<u8>,
}

impl Found {
    pub(crate) fn record(&self, kind: u64, name: &str) -> StartRecord {
        let is_it = |record: &&StartRecord| record.kind == kind && text(&record.name) == name;
        *self.records.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub(crate) fn at(&self, address: u64) -> Mapped {
        let covers = |it: &&Mapped| (it.address..it.address + it.pages * PAGE_BYTES).contains(&address);
        *self.mapped.iter().find(covers).unwrap_or_else(|| panic!("nothing at {address:#x}"))
    }
}

pub(crate) fn found(registry: &Registry<Fake>, id: DomainId) -> Found {
    let range = registry.domains[&id].parts.range;
    let mapped: Vec<Mapped> = registry.machine.mapped.iter().filter(|it| it.range == range).copied().collect();
    let start = mapped.iter().find(|it| it.address == START_INFO).unwrap();
    let (from, start_page) = registry.machine.filled[&start.segment.0].clone();
    let pages = registry.machine.segments[&start.segment.0];
    assert_eq!((from, start.protection, start.pages, pages * PAGE_BYTES), (0, READ, pages, start_page.len() as u64));
    let (header, mut rest) = StartHeader::read_from_prefix(&start_page).unwrap();
    let mut records = Vec::new();
    for _ in 0..header.record_count {
        let (record, more) = StartRecord::read_from_prefix(rest).unwrap();
        records.push(record);
        rest = more;
    }
    Found { header, records, mapped: mapped.clone(), start_page: start_page.clone() }
}

pub(crate) fn made(registry: &mut Registry<Fake>, plan: DomainPlan) -> DomainId {
    registry.create(plan).map_err(|_| ()).unwrap().0.domain
}

pub(crate) fn plain(name: &str, channels: &[(u64, End)]) -> DomainPlan {
    DomainPlan { regions: Vec::new(), devices: Vec::new(), ..domain(name, 1, channels) }
}

#[test]
fn what_a_component_is_shown_lies_apart_by_one_page_and_is_as_large_as_it_is_told() {
    let mut registry = registry(0);
    registry.open(wire(1, 0, 0), None).map_err(|_| ()).unwrap();
    let place = registry.region("pool", 3, RegionKind::Contiguous, None).unwrap();
    registry.region("more", 5, RegionKind::Scattered, None).unwrap();
    let shared = registry.region("shared", 9, RegionKind::Pool, None).unwrap();
    let regions = ["pool", "more", "shared"].map(Into::into).into();
    let id = made(&mut registry, DomainPlan { regions, devices: Vec::new(), ..domain("ip", 1, &[(1, End::Client)]) });
    let found = found(&registry, id);
    let mut shown: Vec<Mapped> = found.mapped.iter().filter(|it| it.address >= REGIONS).copied().collect();
    shown.sort_by_key(|it| it.address);
    let channel_pages = Layout::default().bytes() / PAGE_BYTES;
    let pages: Vec<u64> = shown.iter().map(|it| it.pages).collect();
    assert_eq!((shown[0].address, pages), (REGIONS, vec![channel_pages, channel_pages, 3, 5]));
    for pair in shown.windows(2) {
        assert_eq!(pair[1].address, pair[0].address + (pair[0].pages + 1) * PAGE_BYTES);
    }
    assert!(shown.iter().all(|it| it.protection == BOTH && it.first_page == 0));
    let told =
        [(kind::CHANNEL, "endpoint"), (kind::CHANNEL, "network"), (kind::REGION, "pool"), (kind::REGION, "more")];
    for ((kind, name), shown) in told.into_iter().zip(shown) {
        let record = found.record(kind, name);
        assert_eq!((record.address, record.bytes), (shown.address, shown.pages * PAGE_BYTES), "{name}");
        assert_eq!(registry.machine.segments[&shown.segment.0], shown.pages, "{name}");
    }
    let (pool, more) = (found.record(kind::REGION, "pool"), found.record(kind::REGION, "more"));
    assert_eq!((pool.a, more.a, place != 0), (place, 0, true));
    // Of a pool it is given a share; nothing is shown.
    let share = found.record(kind::POOL, "shared");
    assert_eq!((share.handle, share.address), (shared, 0));
    let rights = |handle: u64| {
        let all = &registry.machine.granted;
        all.iter().find(|(_, source, _)| source.0 == handle).map(|(_, _, rights)| *rights)
    };
    let both = Rights::READ.union(Rights::WRITE);
    assert_eq!(rights(pool.handle), Some(both.union(Rights::DMA)));
    assert_eq!(rights(shared), Some(both.union(Rights::GRANT)));
}

#[test]
fn the_start_page_tells_who_one_is_and_what_the_machine_was_told() {
    let archive = || [member("sbin/prog", &code(1)), Vec::from(&b"070701"[..])].concat();
    let clock_page = Some(Handle(77));
    let facts = Facts { core: 1, cores: 2, tsc: [5, 6, 7], clock_page, clock_place: 0x9000, archive_offset: 0 };
    let line = b"time=5 quiet";
    let mut registry = registry_of(archive(), facts, line);
    let told = registry.facts();
    assert_eq!((told.core, told.tsc, told.clock_place), (1, [5, 6, 7], 0x9000));
    let cores = [3; 32];
    let dispatcher_of = Some(ProgramPlan { name: "program".into(), cores });
    let plan = DomainPlan { entrance: 2, dispatcher_of, ..plain("ip", &[]) };
    let id = made(&mut registry, DomainPlan { generation: 8, ..plan });
    let found = found(&registry, id);
    let header = &found.header;
    assert_eq!((text(&header.name), header.generation, header.entrance, header.domain_id), ("ip", 8, 2, id));
    assert_eq!((header.core, header.cores, header.tsc_hz, header.clock_page), (1, 2, 5, CLOCK_PAGE));
    let clock = found.at(CLOCK_PAGE);
    assert_eq!((clock.segment, clock.pages, clock.protection), (Handle(77), 1, READ));
    assert_eq!(found.record(kind::PROGRAM, "program").peer, cores);
    let told = found.record(kind::COMMAND_LINE, "");
    let from = (told.address - START_INFO) as usize;
    assert_eq!(found.start_page[from..from + told.bytes as usize], line[..]);
    assert!(from >= size_of::<StartHeader>() + found.records.len() * size_of::<StartRecord>());

    let mut registry = registry_of(archive(), Facts::default(), b"");
    let id = made(&mut registry, plain("ip", &[]));
    let found = self::found(&registry, id);
    assert!(found.records.iter().all(|record| record.kind != kind::COMMAND_LINE));
    assert_eq!(found.header.clock_page, 0);
}

#[test]
fn files_are_shown_where_they_lie_in_the_archive() {
    let long: Vec<u8> = (0..5000_u32).map(|at| (at % 251) as u8).collect();
    let bytes = [member("sbin/prog", &code(1)), member("etc/long", &long), member("etc/none", b""), member("z", b"z")];
    let bytes = bytes.concat();
    // The empty file begins a page.
    let (none_at, _) = archive::find(&bytes, "etc/none").unwrap();
    let archive_offset = (none_at as u64).next_multiple_of(PAGE_BYTES) - none_at as u64;
    let mut registry = registry_of(bytes.clone(), Facts { archive_offset, ..Facts::default() }, b"");
    let files = ["etc/long", "nowhere", "etc/none", "archive"].map(Into::into).into();
    let id = made(&mut registry, DomainPlan { files, ..plain("ip", &[]) });
    let found = found(&registry, id);
    let is_file = |record: &&StartRecord| record.kind == kind::FILE;
    let names: Vec<&str> = found.records.iter().filter(is_file).map(|record| text(&record.name)).collect();
    assert_eq!(names, ["etc/long", "etc/none", "archive"]);
    for (name, content) in [("etc/long", &long), ("archive", &bytes)] {
        let record = found.record(kind::FILE, name);
        let shown = found.at(record.address);
        assert_eq!((shown.segment, shown.protection), (Handle::ARCHIVE, READ));
        let from = shown.first_page * PAGE_BYTES + record.address - shown.address - archive_offset;
        assert_eq!(bytes[from as usize..(from + record.bytes) as usize], content[..], "{name}");
        let end = record.address + record.bytes;
        assert_eq!(end.div_ceil(PAGE_BYTES) * PAGE_BYTES, shown.address + shown.pages * PAGE_BYTES, "{name}");
    }
    // Nothing is shown of an empty one, and what follows leaves a page between.
    let long = found.at(found.record(kind::FILE, "etc/long").address);
    let none = found.record(kind::FILE, "etc/none");
    assert_eq!((none.bytes, none.address), (0, long.address + (long.pages + 1) * PAGE_BYTES));
    assert!(found.mapped.iter().all(|it| it.pages > 0));
    assert_eq!(found.at(found.record(kind::FILE, "archive").address).address, none.address + PAGE_BYTES);
}

/// Code, constants that are longer in memory than in the file, and data: where each lies.
const CODE: u64 = 0x40_0000;
const BLANK: u64 = 0x50_0000;
const SKEWED: u64 = 0x60_0000;
const DATA: u64 = 0x70_0000;

fn of_four_pieces(archive_offset: u64) -> (Registry<Fake>, u64) {
    let headers = [
        (5, CODE + 0x20, 0x1100, 0x1020, 0x1100),
        (4, BLANK, 0x1100, 0x1000, 0x20),
        (4, SKEWED + 0x10, 0x30, 0x1020, 0x30),
        (6, DATA + 0x40, 0x80, 0x1040, 0x40),
    ];
    let bytes = [member("sbin/prog", &program(&headers, 0x3000)), member("z", b"z")].concat();
    let (at, _) = archive::find(&bytes, "sbin/prog").unwrap();
    let offset = PAGE_BYTES - at as u64 + archive_offset;
    (registry_of(bytes, Facts { archive_offset: offset, ..Facts::default() }, b""), at as u64)
}

#[test]
fn code_is_shown_where_it_lies_and_data_is_a_copy_of_each_ones_own() {
    let (mut registry, _) = of_four_pieces(0);
    let [one, other] = ["one", "other"].map(|name| made(&mut registry, plain(name, &[])));
    let [one_found, other_found] = [one, other].map(|id| found(&registry, id));
    let is_shown = |it: Mapped, first_page, pages, protection| {
        assert_eq!((it.first_page, it.pages, it.protection), (first_page, pages, protection));
        it.segment
    };
    for found in [&one_found, &other_found] {
        // The file begins with the archive's second page, and the code with the file's second.
        assert_eq!(is_shown(found.at(CODE), 2, 2, protection::READ | protection::EXECUTE), Handle::ARCHIVE);
        let blank = is_shown(found.at(BLANK), 0, 2, READ);
        assert_eq!(registry.machine.filled[&blank.0].1.len(), 0x20);
        let skewed = is_shown(found.at(SKEWED), 0, 1, READ);
        assert_eq!((registry.machine.filled[&skewed.0].0, registry.machine.segments[&skewed.0]), (0x10, 1));
        let stack = found.at(STACK_TOP - 1);
        assert_eq!(stack.address + stack.pages * PAGE_BYTES, STACK_TOP);
        is_shown(stack, 0, registry.machine.segments[&stack.segment.0], BOTH);
        assert_eq!(stack.pages, 64);
        is_shown(found.at(DATA), 0, 1, BOTH);
    }
    let shared = |address| one_found.at(address).segment == other_found.at(address).segment;
    assert_eq!([CODE, BLANK, SKEWED, DATA, STACK_TOP - 1].map(shared), [true, true, true, false, false]);
    let payers: Vec<Handle> = registry.machine.copied.iter().map(|(ram, _)| *ram).collect();
    assert_eq!(payers, [one, other].map(|id| registry.domains[&id].parts.ram));
    let original = registry.machine.copied[0].1;
    assert_eq!(registry.machine.copied[1].1, original);
    assert_eq!((registry.machine.filled[&original.0].0, registry.machine.filled[&original.0].1.len()), (0x40, 0x40));
    registry.start(one).unwrap();
    assert_eq!(registry.machine.entries, [CODE + 0x20]);
}

#[test]
fn a_program_that_lies_askew_in_the_archive_is_copied_once_for_all() {
    let (mut registry, _) = of_four_pieces(8);
    let [one, other] = ["one", "other"].map(|name| made(&mut registry, plain(name, &[])));
    let shown = [one, other].map(|id| found(&registry, id).at(CODE));
    assert_eq!(shown[0].segment, shown[1].segment);
    assert!(shown[0].segment != Handle::ARCHIVE && shown[0].first_page == 0);
    assert_eq!(registry.machine.filled[&shown[0].segment.0].0, 0x20);
}

#[test]
fn a_program_that_cannot_be_loaded_leaves_nothing() {
    for budget in 0..3 {
        let (mut registry, _) = of_four_pieces(0);
        registry.machine.budget = Some(budget);
        assert_eq!(registry.load("prog"), Err(MonitorError::NoMemory));
        assert!(registry.machine.held.is_empty());
    }
    let (mut registry, _) = of_four_pieces(0);
    registry.machine.refuses_to_fill = true;
    assert_eq!(registry.load("prog"), Err(MonitorError::NoMemory));
    assert!(registry.machine.held.is_empty());
    assert_eq!(registry.load("nothing"), Err(MonitorError::BadProgram));
    registry.machine.refuses_to_fill = false;
    assert_eq!(registry.load("prog"), Ok(CODE + 0x20));
    assert_eq!(registry.load("prog"), Ok(CODE + 0x20));
}

#[test]
fn a_parent_is_given_what_fills_and_starts_its_child() {
    let mut registry = registry(0);
    let parent = made(&mut registry, DomainPlan { linux: true, ..plain("linux-1", &[]) });
    let plan = DomainPlan { linux: true, parent: Some(parent), ..plain("linux-1", &[]) };
    let (created, wire) = registry.create(plan).map_err(|_| ()).unwrap();
    assert!(wire.is_none(), "nobody answers there");
    let [of_parent, child] = [parent, created.domain].map(|id| registry.domains[&id].parts);
    let both = Rights::READ.union(Rights::WRITE);
    let given = [(of_parent.domain, child.domain, both), (of_parent.domain, child.context, Rights::CONTROL)];
    assert_eq!(registry.machine.granted, given);
    assert_eq!(created.parent_handles, [child.domain.0, child.context.0]);
}

#[test]
fn hanging_is_told_of_components_by_bits_that_are_shared_only_when_there_are_no_more() {
    let mut registry = registry(0);
    made(&mut registry, DomainPlan { linux: true, ..plain("linux-1", &[]) });
    let plan = |number: u32| DomainPlan { is_beaten: number > 0, ..plain(&alloc::format!("c{number}"), &[]) };
    let ids: Vec<DomainId> = (0..18).map(|number| made(&mut registry, plan(number))).collect();
    let watched = core::mem::take(&mut registry.machine.watched);
    assert!(watched[0].1.is_none(), "programs may compute");
    let stalls: Vec<_> = watched[1..].iter().map(|(_, stall)| stall.unwrap()).collect();
    assert!(stalls[0].limit_ns > 10 * stalls[1].limit_ns, "its end is the machine's");
    let badges: Vec<u64> = stalls.iter().map(|stall| stall.badge).collect();
    assert!(badges.iter().all(|badge| badge.is_power_of_two() && badge & crate::STALL_BADGES != 0));
    assert_eq!(badges[..16].iter().fold(0, |all, badge| all | badge), crate::STALL_BADGES);
    assert!(badges[16] != badges[17]);
    for (id, badge) in ids.iter().zip(&badges) {
        let meant: Vec<DomainId> =
            ids.iter().zip(&badges).filter(|(_, other)| *other == badge).map(|(id, _)| *id).collect();
        assert!(meant.contains(id) && meant.len() <= 2);
        assert_eq!(registry.stalled(*badge), meant);
    }
    assert_eq!((registry.stalled(crate::STALL_BADGES).len(), registry.stalled(0).len()), (18, 0));
    // Deaths have bits of their own, and so have what components tell: turn by turn.
    assert!(watched.iter().all(|(badge, _)| badge.is_power_of_two() && badge & crate::DEATH_BADGES != 0));
    let rings = &registry.machine.own_badges;
    assert!(rings.iter().all(|badge| badge.is_power_of_two() && *badge < 1 << 16));
    assert_eq!(rings[..16].iter().fold(0, |all, badge| all | badge), 0xffff);
    // One that ends leaves its bit to the next.
    registry.kill(ids[3], 9).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    made(&mut registry, plan(20));
    assert_eq!(registry.machine.watched.last().unwrap().1.unwrap().badge, badges[3]);
}

#[test]
fn a_program_begins_only_where_as_much_is_free_as_it_needs_first() {
    let mut registry = registry(0);
    registry.machine.free_pages = 5;
    let plan = |first_pages| DomainPlan { linux: true, first_pages, ..plain("linux-1", &[]) };
    assert!(matches!(registry.create(plan(6)), Err(MonitorError::NoMemory)));
    made(&mut registry, plan(5));
}

#[test]
fn rights_on_the_machine_are_given_without_a_device() {
    let mut registry = registry(0);
    let devices = ["power", "cores", "virtio-blk"].map(Into::into).into();
    let id = made(&mut registry, DomainPlan { devices, ..plain("supervisor", &[]) });
    let found = found(&registry, id);
    let names = ["power", "cores"].map(|name| found.record(kind::CAPABILITY, name).handle);
    assert_eq!(names, [Handle::PCORE.0; 2]);
    let rights: Vec<Rights> = registry.machine.granted.iter().map(|(_, _, rights)| *rights).collect();
    assert_eq!(rights[rights.len() - 2..], [Rights::POWER, Rights::ALL]);
    assert!(found.records.iter().all(|record| record.kind != kind::DEVICE), "there is no such disk");
}

#[test]
fn a_region_is_made_once_and_memory_of_another_core_is_borrowed() {
    let mut registry = registry(0);
    let place = registry.region("a", 4, RegionKind::Contiguous, None).unwrap();
    let pool = registry.region("b", 4, RegionKind::Pool, None).unwrap();
    let held = registry.machine.held.len();
    assert_eq!(registry.region("a", 4, RegionKind::Contiguous, None), Ok(place));
    assert_eq!(registry.region("b", 4, RegionKind::Pool, None), Ok(pool));
    assert_eq!(registry.region("a", 5, RegionKind::Contiguous, None), Err(MonitorError::Busy));
    assert_eq!(registry.machine.held.len(), held);
    assert!(place != 0 && pool != 0);
    assert_eq!(registry.region("c", 4, RegionKind::Scattered, None), Ok(0), "nobody else can reach it");
    assert_eq!(registry.region("d", 4, RegionKind::Contiguous, Some(0x5000)), Ok(0x5000));
    assert_eq!(registry.region("e", 4, RegionKind::Pool, Some(99)), Ok(99));
    assert_eq!(registry.machine.imported, [(0x5000, 4)]);
    assert_eq!(registry.machine.imported_pools, [99]);
}

/// Only then may a core be halted.
#[test]
fn a_core_is_empty_when_nothing_that_was_made_is_there() {
    assert!(registry(0).is_empty());
    let mut with_channel = registry(0);
    with_channel.open(wire(1, 0, 0), None).map_err(|_| ()).unwrap();
    let mut with_region = registry(0);
    with_region.region("a", 4, RegionKind::Scattered, None).unwrap();
    let mut with_common = registry(0);
    let common = with_common.common(1, 0).unwrap();
    let mut with_domain = registry(0);
    let id = made(&mut with_domain, plain("ip", &[]));
    let mut with_device = registry(0);
    let driver = made(&mut with_device, DomainPlan { regions: Vec::new(), ..domain("driver", 1, &[]) });
    with_device.kill(driver, 9).unwrap();
    with_device.deaths(crate::DEATH_BADGES);
    for registry in [&with_channel, &with_region, &with_common, &with_domain, &with_device] {
        assert!(!registry.is_empty());
    }
    with_channel.close(1);
    with_common.release(common).unwrap();
    with_domain.kill(id, 9).unwrap();
    with_domain.deaths(crate::DEATH_BADGES);
    assert!(with_channel.is_empty() && with_common.is_empty() && with_domain.is_empty());
}

#[test]
fn domains_are_told_by_number_and_name() {
    let mut registry = self::registry_of(
        [member("sbin/prog", &code(1)), Vec::from(&b"070701"[..])].concat(),
        Facts { core: 3, ..Facts::default() },
        b"",
    );
    let one = made(&mut registry, plain("one", &[]));
    let other = made(&mut registry, DomainPlan { generation: 4, ..plain("other", &[]) });
    registry.set_serving(other);
    registry.machine.ledgers.insert(other, (70, Vec::new()));
    let line = registry.line(one + 1).unwrap();
    assert_eq!((line.domain, line.name.as_str(), line.core, line.generation), (other, "other", 3, 4));
    assert_eq!((line.serving, line.cpu_ns), (true, 70));
    assert_eq!(registry.line(0).map(|line| (line.domain, line.serving)), Some((one, false)));
    assert_eq!(registry.line(other + 1), None);
    assert_eq!(registry.name_of(one).as_deref(), Some("one"));
    assert_eq!(
        (registry.name_of(other + 1), registry.named("other"), registry.named("third")),
        (None, Some(other), None)
    );
    let common = registry.common(1, 0).unwrap();
    assert_eq!(common, 3 << 48 | 1, "numbers of different cores differ");
}

#[test]
fn an_end_is_told_which_side_it_is_and_whether_its_peer_is_on_another_core() {
    let (mut near, mut far) = (registry(0), registry(1));
    let open = |registry: &mut Registry<Fake>, of| registry.open(wire(1, 0, 1), of).map_err(|_| ()).unwrap().place;
    let place = open(&mut far, None);
    let back = open(&mut near, Some(place));
    open(&mut far, Some(back));
    near.open(wire(2, 0, 0), None).map_err(|_| ()).unwrap();
    let client = made(&mut near, plain("ip", &[(1, End::Client)]));
    let served = made(&mut far, plain("driver", &[(1, End::Server)]));
    let local_client = made(&mut near, plain("client", &[(2, End::Client)]));
    let local_server = made(&mut near, plain("driver", &[(2, End::Server)]));
    let ends = [(&near, client), (&far, served), (&near, local_client), (&near, local_server)].map(|(registry, id)| {
        let record = found(registry, id).record(kind::CHANNEL, "network");
        let domain = registry.domains[&id].parts.domain;
        let is_it = |(into, source, _): &&(Handle, Handle, Rights)| *into == domain && source.0 == record.handle;
        (record.b, registry.machine.granted.iter().find(is_it).unwrap().2)
    });
    let (rings, calls) = (Rights::NOTIFY, Rights::NOTIFY.union(Rights::CALL));
    let told = [(flags::CLIENT | flags::REMOTE, rings), (flags::REMOTE, rings), (flags::CLIENT, calls), (0, rings)];
    assert_eq!(ends, told);
}
