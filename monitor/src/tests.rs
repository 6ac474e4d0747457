//! The registry against a made-up machine, which counts every capability: what is made is dropped
//! again, whatever fails.

use alloc::string::String;
use alloc::vec::Vec;

use abi::{DeathCause, Handle, Rights};
use contracts::monitor::{COMMON_PAGES_MAX, ChannelPlan, DomainPlan, End, MonitorError, Paid, Place, RegionKind};

use crate::Registry;

use fake::{Fake, domain, registry, wire};

pub(crate) mod fake;
pub(crate) mod made;

/// A registry with a channel and both its ends running.
fn running() -> (Registry<Fake>, u64, u64) {
    let mut registry = registry(0);
    registry.open(wire(1, 0, 0), None).unwrap_or_else(|error| panic!("{error:?}"));
    registry.region("pool", 4, RegionKind::Contiguous, None).unwrap();
    let [driver, ip] = [domain("driver", 1, &[(1, End::Server)]), domain("ip", 1, &[(1, End::Client)])]
        .map(|plan| registry.create(plan).map_err(|_| ()).unwrap().0.domain);
    registry.start(driver).unwrap();
    registry.start(ip).unwrap();
    (registry, driver, ip)
}

#[test]
fn a_restarted_side_finds_the_same_channel_in_a_new_generation_and_its_peer_is_rung() {
    let (mut registry, driver, _) = running();
    let held = registry.machine.held.len();
    registry.kill(driver, 9).unwrap();
    let deaths = registry.deaths(crate::DEATH_BADGES);
    assert_eq!(deaths.len(), 1);
    assert_eq!((deaths[0].name.as_str(), deaths[0].death.cause), ("driver", DeathCause::Killed as u64));
    assert_eq!(registry.quiesce_unused(0), Some(crate::ALONE_NS));
    let nowhere = registry.machine.portals.values().filter(|context| **context == 0);
    assert_eq!(nowhere.count(), 1, "its entrance");
    assert!(registry.deaths(crate::DEATH_BADGES).is_empty());
    let (made, _) = registry.create(domain("driver", 2, &[(1, End::Server)])).map_err(|_| ()).unwrap();
    registry.machine.notified.clear();
    registry.start(made.domain).unwrap();
    assert_eq!(registry.machine.notified.len(), 1);
    assert_eq!(registry.machine.held.len(), held, "nothing leaks over a restart");
    let device = registry.assign_device("virtio-net", 2, &crate::domains::Parts::NONE).unwrap();
    assert_eq!(device.map(|record| record.b), Some(2 << 32 | 0x1af4_1041), "with how many handlers");
    let mut views = registry.machine.memory.remove(&101).unwrap();
    assert_eq!(views.pop().unwrap().generation(), 2);
}

#[test]
fn a_device_is_quieted_when_nobody_comes_to_serve_with_it() {
    const MS: u64 = 1_000_000;
    let (mut registry, driver, ip) = running();
    let end = |registry: &mut Registry<Fake>, id: u64, now_ns: u64| {
        registry.kill(id, 9).unwrap();
        registry.deaths(crate::DEATH_BADGES);
        registry.quiesce_unused(now_ns)
    };
    let again = |registry: &mut Registry<Fake>| {
        registry.create(domain("driver", 2, &[(1, End::Server)])).map_err(|_| ()).unwrap().0.domain
    };
    assert_eq!(registry.quiesce_unused(0), None);
    // In this registry both have the device.
    end(&mut registry, ip, 0);
    assert_eq!(end(&mut registry, driver, 0), Some(crate::ALONE_NS));
    let second = again(&mut registry);
    registry.set_serving(second);
    assert_eq!(registry.quiesce_unused(5000 * MS), None);
    // It serves, dies, and its successors die before they serve.
    assert_eq!(end(&mut registry, second, 6000 * MS), Some(crate::ALONE_NS));
    let third = again(&mut registry);
    assert_eq!(end(&mut registry, third, 7500 * MS), Some(500 * MS));
    let fourth = again(&mut registry);
    assert_eq!(registry.quiesce_unused(8000 * MS), None);
    assert!(registry.machine.quieted.is_empty(), "one that starts has reset it, or goes on with it");
    end(&mut registry, fourth, 8100 * MS);
    assert_eq!(registry.machine.quieted.len(), 1);
}

/// A driver whose device cannot be set up says why and ends with a status, before it serves; and so
/// does each that is started after it.
#[test]
fn a_driver_whose_start_fails_is_told_of_and_may_be_started_again_and_again() {
    const MS: u64 = 1_000_000;
    const FAILED: u64 = 1;
    let (mut registry, mut driver, ip) = running();
    registry.set_serving(ip);
    registry.kill(ip, 9).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    registry.serve_with(&[String::from("virtio-net")]);
    let held = registry.machine.held.len();
    for generation in 1..=10 {
        assert!(registry.machine.quieted.is_empty(), "quiet before generation {generation} had its time");
        registry.machine.exits.insert(registry.domains[&driver].parts.domain.0, FAILED);
        let deaths = registry.deaths(crate::DEATH_BADGES);
        let [dead] = &deaths[..] else { panic!("{} deaths in generation {generation}", deaths.len()) };
        let told = (dead.name.as_str(), dead.generation, dead.death.cause, dead.death.status);
        assert_eq!(told, ("driver", generation, DeathCause::Exit as u64, FAILED));
        let (last, death) = registry.last_end("driver").unwrap();
        assert_eq!((last, death.status), (generation, FAILED), "a later caller hears it");
        assert!(registry.deaths(crate::DEATH_BADGES).is_empty(), "once");
        let entrances = registry.machine.portals.values();
        assert_eq!(entrances.filter(|context| **context == 0).count(), 2, "both sides' lead nowhere");
        let wait_ns = registry.quiesce_unused(generation * 100 * MS);
        assert_eq!(wait_ns, Some(crate::ALONE_NS - (generation - 1) * 100 * MS), "since the first one failed");
        let made = registry.create(domain("driver", generation + 1, &[(1, End::Server)]));
        driver = made.map_err(|_| ()).unwrap().0.domain;
        registry.start(driver).unwrap();
        assert_eq!(registry.machine.held.len(), held, "nothing leaks");
    }
    // The last one fails too, and then nobody comes.
    registry.machine.exits.insert(registry.domains[&driver].parts.domain.0, FAILED);
    registry.deaths(crate::DEATH_BADGES);
    assert_eq!(registry.quiesce_unused(100 * MS + crate::ALONE_NS), None);
    assert_eq!(registry.machine.quieted.len(), 1, "its device is made quiet");
}

#[test]
fn the_beat_is_for_components_that_serve() {
    let (mut registry, driver, ip) = running();
    registry.machine.notified.clear();
    assert!(!registry.beat(true), "one that starts has its own limit");
    registry.set_serving(ip);
    assert!(registry.beat(true) && registry.beat(false));
    let portal = registry.domains[&ip].endpoint_portal.0;
    assert_eq!(registry.machine.notified, [portal, !portal], "who is at rest is not each time");
    registry.set_serving(driver);
    let mut computes = domain("computes", 1, &[]);
    (computes.is_beaten, computes.regions, computes.devices) = (false, Vec::new(), Vec::new());
    let computes = registry.create(computes).map_err(|_| ()).unwrap().0.domain;
    registry.set_serving(computes);
    registry.kill(ip, 9).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    registry.machine.notified.clear();
    assert!(registry.beat(true));
    assert_eq!(registry.machine.notified, [registry.domains[&driver].endpoint_portal.0]);
}

#[test]
fn the_same_name_runs_once() {
    let (mut registry, ..) = running();
    assert!(matches!(registry.create(domain("ip", 2, &[])), Err(MonitorError::Busy)));
}

#[test]
fn everything_is_dropped_with_the_channel_and_its_domains() {
    let (mut registry, driver, ip) = running();
    // What stays: pieces of the program, the region, the device.
    let kept = {
        let mut other = self::registry(0);
        other.region("pool", 4, RegionKind::Contiguous, None).unwrap();
        other.load("prog").unwrap();
        other.machine.held.len() + 1
    };
    registry.kill(driver, 0).unwrap();
    registry.kill(ip, 0).unwrap();
    assert_eq!(registry.deaths(crate::DEATH_BADGES).len(), 2);
    registry.close(1);
    registry.close(1);
    assert_eq!(registry.machine.held.len(), kept);
}

#[test]
fn whatever_fails_on_the_way_is_undone() {
    for budget in 0.. {
        let mut registry = registry(0);
        registry.open(wire(1, 0, 0), None).map_err(|_| ()).unwrap();
        registry.region("pool", 4, RegionKind::Contiguous, None).unwrap();
        registry.load("prog").unwrap();
        let held = registry.machine.held.len();
        registry.machine.budget = Some(budget);
        match registry.create(domain("ip", 1, &[(1, End::Client)])) {
            Ok(_) => break,
            Err(error) => assert_eq!(error, MonitorError::NoMemory),
        }
        assert_eq!(registry.machine.refusals.take(), ["ip cannot be made: NoMemory"]);
        // The device, once claimed, is kept.
        assert!(registry.machine.held.len() <= held + 1, "with {budget} allocations");
        assert!(registry.domains.is_empty());
        assert!(budget < 100);
    }
}

/// Calls go with a channel as its memory does: both ends are given the same, restarts keep it, and
/// its end, or a failure on the way, gives it back.
#[test]
fn calls_live_as_long_as_their_channel() {
    let plan = ChannelPlan { worker: Some(3), ..wire(7, 0, 0) };
    for budget in 0.. {
        let mut registry = registry(0);
        registry.machine.budget = Some(budget);
        if registry.open(plan.clone(), None).is_ok() {
            assert_eq!(budget, 6, "memory, two doorbells, and three for the calls");
            break;
        }
        assert!(registry.machine.held.is_empty(), "with {budget} allocations");
    }
    let mut registry = registry(0);
    registry.open(plan.clone(), None).map_err(|_| ()).unwrap();
    let held = registry.machine.held.len();
    let mut calls = |end| {
        let mut address = 1 << 32;
        let made = registry.attach_calls(7, end, &crate::domains::Parts::NONE, &mut address).unwrap().unwrap();
        assert_eq!((made.address, address), (1 << 32, (1 << 32) + 8192));
        (made.kind, made.handle, made.a, made.b)
    };
    let (server, client) = (calls(End::Server), calls(End::Client));
    assert_eq!(server, (abi::start::kind::CALLS, client.1, client.2, 7 << 32 | 3 << 8));
    assert_eq!(client.3, server.3 | abi::start::channel::CLIENT);
    assert_eq!(calls(End::Server), server, "its successor finds the same");
    assert_eq!(registry.machine.held.len(), held);
    registry.close(7);
    assert!(registry.machine.held.is_empty());
    // Between cores there are none.
    let mut registry = self::registry(1);
    registry.open(ChannelPlan { worker: Some(3), ..wire(7, 0, 1) }, None).map_err(|_| ()).unwrap();
    let none = registry.attach_calls(7, End::Server, &crate::domains::Parts::NONE, &mut 0);
    assert!(none.unwrap().is_none());
}

#[test]
fn between_cores_each_learns_how_to_ring_the_other() {
    let (mut server, mut client) = (registry(1), registry(0));
    let plan = wire(1, 0, 1);
    assert!(matches!(client.open(plan.clone(), None), Err(MonitorError::NotFound)), "the memory is the server's");
    let place = server.open(plan.clone(), None).map_err(|_| ()).unwrap().place;
    assert!(place.physical != 0 && place.slot != 0);
    let back = client.open(plan.clone(), Some(place)).map_err(|_| ()).unwrap().place;
    server.open(plan.clone(), Some(Place { physical: 0, ..back })).map_err(|_| ()).unwrap();
    for (registry, name, end) in [(&mut server, "driver", End::Server), (&mut client, "ip", End::Client)] {
        registry.region("pool", 4, RegionKind::Contiguous, None).unwrap();
        let (made, _) = registry.create(domain(name, 1, &[(1, end)])).map_err(|_| ()).unwrap();
        registry.start(made.domain).unwrap();
        assert_eq!(registry.machine.notified.len(), 1);
        registry.close(1);
        assert!(registry.machine.slots.is_empty());
    }
}

#[test]
fn the_monitor_is_told_of_its_own_end_once() {
    let (mut near, mut far) = (registry(0), registry(1));
    let names = ChannelPlan { contract: "names".into(), client: "monitor".into(), ..wire(1, 1, 0) };
    let open = |registry: &mut Registry<Fake>, plan: &ChannelPlan, of| {
        registry.open(plan.clone(), of).map_err(|_| ()).unwrap()
    };
    let opened = open(&mut near, &names, None);
    assert!(opened.own.is_none(), "the client is elsewhere");
    let opened = open(&mut far, &names, Some(opened.place));
    let (end, wire_of_client) = opened.own.unwrap();
    assert_eq!((end, wire_of_client.peer.as_str(), wire_of_client.remote), (End::Client, "driver", true));
    assert!(wire_of_client.badge.is_power_of_two());
    assert!(open(&mut far, &names, Some(opened.place)).own.is_none());
    let lookup = ChannelPlan { contract: "lookup".into(), server: "monitor".into(), ..wire(2, 1, 1) };
    let (end, wire_of_server) = open(&mut far, &lookup, None).own.unwrap();
    assert_eq!((end, wire_of_server.peer.as_str(), wire_of_server.remote), (End::Server, "ip", false));
    [1, 2].into_iter().for_each(|id| far.close(id));
    near.close(1);
    assert!(near.is_empty() && far.is_empty() && far.machine.slots.is_empty());
}

#[test]
fn who_asked_for_a_channel_is_handed_its_end() {
    let (mut registry, driver, ip) = running();
    let id = wiring::BOUND_CHANNELS + 1;
    registry.open(wire(id, 0, 0), None).map_err(|_| ()).unwrap();
    let (server, end) = registry.announce(id, 0).unwrap();
    assert_eq!((server, end.client, end.request), (driver, false, 0));
    let wired = registry.introduce(id, ip, 7).unwrap();
    assert_eq!((wired.client, wired.request, wired.peer.as_str(), wired.remote), (true, 7, "driver", false));
    assert_eq!(registry.introduce(id, 99, 7), Err(MonitorError::NotFound));
    assert_eq!(registry.introduce(id + 1, ip, 7), Err(MonitorError::NotFound));
    // So many questions at once, and one more for each that is answered.
    let mut asked = |count: usize| (0..count).filter(|_| registry.asks(ip)).count();
    assert_eq!(asked(100), crate::domains::ASKED_MAX as usize);
    registry.answered(ip);
    assert!(registry.asks(ip) && !registry.asks(ip) && !registry.asks(99));
    // Its client dies, and the one that made it closes it.
    registry.kill(ip, 9).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    registry.close(id);
    assert!(registry.announce(id, 0).is_err());
}

#[test]
fn channels_of_programs_share_no_badge_with_those_of_the_description() {
    let (mut registry, _, _) = running();
    let badges = |registry: &mut Registry<Fake>, ids: core::ops::Range<u64>| {
        ids.map(|id| {
            registry.open(wire(id, 0, 0), None).map_err(|_| ()).unwrap();
            registry.announce(id, 0).unwrap().1.badge
        })
        .collect::<Vec<_>>()
    };
    let described = badges(&mut registry, 2..14);
    let of_programs = badges(&mut registry, wiring::RUN_TIME_CHANNELS..wiring::RUN_TIME_CHANNELS + 43);
    for of in [&described, &of_programs] {
        assert_eq!(of.iter().fold(0, |all, badge| all | badge).count_ones() as usize, of.len());
    }
    let all = described.iter().chain(&of_programs).fold(0, |all, badge| all | badge);
    assert_eq!(all.count_ones() as usize, described.len() + of_programs.len());
    assert_eq!(all & (1 | u64::MAX << runtime::OWN_BITS.start), 0);
}

#[test]
fn a_channel_made_at_run_time_is_announced_to_its_server() {
    let (mut registry, driver, _) = running();
    let plan = ChannelPlan { client: "linux-1".into(), ..wire(1 << 32, 0, 0) };
    registry.open(plan, None).map_err(|_| ()).unwrap();
    let memory = *registry.machine.memory.keys().next_back().unwrap();
    let (server, wired) = registry.announce(1 << 32, 77).unwrap();
    assert_eq!((server, wired.peer.as_str(), wired.peer_set, wired.client), (driver, "linux-1", 77, false));
    assert_eq!(registry.announce(5, 77), Err(MonitorError::NotFound));

    // Its successor is brought the same channel in a new generation, and the program is told.
    assert_eq!(registry.last_end("driver"), None);
    registry.kill(driver, 9).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    assert_eq!(registry.last_end("driver").map(|(generation, death)| (generation, death.domain)), Some((1, driver)));
    assert_eq!(registry.announce(1 << 32, 77), Err(MonitorError::NotFound), "nobody to bring it to");
    let again = registry.create(domain("driver", 2, &[(1, End::Server)])).map_err(|_| ()).unwrap().0.domain;
    registry.machine.notified.clear();
    assert_eq!(registry.announce(1 << 32, 77).unwrap().0, again);
    assert_eq!(registry.machine.notified.len(), 1);
    assert_eq!(registry.machine.memory[&memory].last().unwrap().generation(), 2);
}

#[test]
fn a_set_of_channels_serves_one_linux_domain_after_another() {
    let (mut registry, _, parent) = running();
    let plan = ChannelPlan { client: "linux-1".into(), ..wire(wiring::RUN_TIME_CHANNELS, 0, 0) };
    registry.open(plan, None).map_err(|_| ()).unwrap();
    registry.announce(wiring::RUN_TIME_CHANNELS, 1).unwrap();
    let linux = || DomainPlan {
        linux: true,
        parent: Some(parent),
        first_pages: 10,
        regions: Vec::new(),
        devices: Vec::new(),
        ..domain("linux-1", 1, &[(wiring::RUN_TIME_CHANNELS, End::Client)])
    };
    assert!(matches!(registry.create(linux()), Err(MonitorError::NoMemory)), "too little is free");
    assert!(registry.machine.turns_of.iter().all(Option::is_none), "without a parent a domain has its own turns");
    registry.machine.free_pages = 10;
    let (first, endpoint) = registry.create(linux()).map_err(|_| ()).unwrap();
    assert!(endpoint.is_none() && first.generation == 1 && first.parent_handles != [0; 2]);
    let parents = registry.domains[&parent].parts.ram;
    assert_eq!(registry.machine.turns_of.pop(), Some(Some(parents)), "a fork shares turns");
    registry.begin_turns(first.domain).unwrap();
    let own = registry.domains[&first.domain].parts.ram;
    assert_eq!(registry.machine.own_turns, [own], "a fork that became another program has its own");
    assert_eq!(registry.begin_turns(first.domain + 999), Err(MonitorError::NotFound));
    let (second, _) = registry.create(linux()).map_err(|_| ()).unwrap();
    let parents = registry.domains[&parent].parts.domain;
    let log_of = registry.machine.log_of.split_off(registry.machine.log_of.len() - 2);
    assert_eq!(log_of, [Some(parents); 2], "a fork shares its parent's part of the log");
    registry.kill(second.domain, 0).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    let held = registry.machine.held.len();
    // Whatever the client writes into the memory, the next generation is not one it knew.
    registry.machine.notified.clear();
    registry.kill(first.domain, 0).unwrap();
    let deaths = registry.deaths(crate::DEATH_BADGES);
    assert!(deaths.len() == 1 && deaths[0].linux);
    assert_eq!(registry.machine.notified.len(), 1, "the server is to drop what the dead client held");
    let (second, _) = registry.create(linux()).map_err(|_| ()).unwrap();
    assert!(second.generation > 1000);
    assert_eq!(registry.machine.held.len(), held, "nothing is made again, nothing leaks");
}

#[test]
fn only_what_nobody_has_started_is_discarded() {
    let (mut registry, driver, _) = running();
    assert_eq!(registry.discard(driver), Err(MonitorError::Busy));
    assert!(registry.deaths(crate::DEATH_BADGES).is_empty());
    let (made, _) = registry.create(domain("other", 1, &[])).map_err(|_| ()).unwrap();
    registry.discard(made.domain).unwrap();
    let deaths = registry.deaths(crate::DEATH_BADGES);
    assert!(deaths.len() == 1 && deaths[0].name == "other");
    registry.discard(made.domain).unwrap();
}

#[test]
fn a_death_is_looked_for_behind_its_own_bit_only() {
    let (mut registry, driver, _) = running();
    registry.kill(driver, 0).unwrap();
    assert!(registry.deaths(crate::DEATH_BADGES & !crate::create::death_badge(driver)).is_empty());
    assert_eq!(registry.deaths(crate::create::death_badge(driver)).len(), 1);
}

#[test]
fn who_used_memory_of_a_lost_core_ends_and_its_channels_go() {
    let mut registry = registry(0);
    registry.region("pool", 4, RegionKind::Contiguous, None).unwrap();
    let there = Place { physical: 0x40_0000, slot: 3 };
    registry.open(wire(1, 0, 1), Some(there)).map_err(|_| ()).unwrap();
    registry.open(wire(2, 1, 0), None).map_err(|_| ()).unwrap();
    registry.open(wire(2, 1, 0), Some(Place { physical: 0, slot: 4 })).map_err(|_| ()).unwrap();
    registry.open(wire(3, 0, 2), Some(there)).map_err(|_| ()).unwrap();
    for (name, ends) in [("ip", [(1, End::Client)]), ("driver", [(2, End::Server)]), ("tcp", [(3, End::Client)])] {
        registry.create(domain(name, 1, &ends)).map_err(|_| ()).unwrap();
    }
    registry.discard_core(1);
    // Its own memory the server keeps; it sees its client gone.
    let dead: Vec<_> = registry.deaths(crate::DEATH_BADGES).into_iter().map(|dead| dead.name).collect();
    assert_eq!(dead, ["ip"]);
    assert_eq!(registry.channels.keys().copied().collect::<Vec<_>>(), [3]);
    registry.discard_core(1);
    assert!(registry.deaths(crate::DEATH_BADGES).is_empty() && registry.named("driver").is_some());
}

#[test]
fn all_time_is_told_that_of_ended_domains_too() {
    let (mut registry, driver, ip) = running();
    let own = Handle::SELF_DOMAIN.0;
    registry.machine.ledgers.insert(own, (100, Vec::from([(own, own, 100)])));
    registry.machine.ledgers.insert(driver, (700, Vec::from([(9, ip, 400), (5, driver, 200), (11, ip, 90)])));
    registry.machine.ledgers.insert(ip, (50, Vec::new()));
    let whole = |registry: &mut Registry<Fake>| {
        let time = registry.core_time().unwrap();
        [time.clock_ns, time.idle_ns, time.kernel_ns, time.domains_ns, time.ended_ns]
    };
    assert_eq!(whole(&mut registry), [5000, 110, 160, 850, 0]);

    let lines: Vec<_> = core::iter::successors(registry.ledger(0), |line| registry.ledger(line.domain + 1)).collect();
    let told: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.cpu_ns, line.paid.len())).collect();
    assert_eq!(told, [("monitor-0", 100, 1), ("driver", 700, 3), ("ip", 50, 0)]);
    assert_eq!(lines[1].paid[0], Paid { payer: 9, client: ip, paid_ns: 400 });

    registry.kill(driver, 9).unwrap();
    assert_eq!(whole(&mut registry)[3..], [850, 0], "its death was not looked at yet");
    for _ in 0..2 {
        registry.deaths(crate::DEATH_BADGES);
        assert_eq!(whole(&mut registry)[3..], [150, 700], "once");
    }
    assert_eq!(registry.ledger(driver).unwrap().name, "ip");
}

#[test]
fn memory_in_common_stays_until_it_is_released_and_is_lent_to_programs_only() {
    let (mut registry, driver, _) = running();
    registry.machine.free_pages = 10;
    let linux = DomainPlan { linux: true, regions: Vec::new(), devices: Vec::new(), ..domain("linux-1", 1, &[]) };
    let program = registry.create(linux).map_err(|_| ()).unwrap().0.domain;
    let held = registry.machine.held.len();
    for (pages, spare) in [(0, 0), (COMMON_PAGES_MAX + 1, 0), (u64::MAX, 0), (1, u64::MAX)] {
        assert_eq!(registry.common(pages, spare), Err(MonitorError::NoMemory), "{pages}");
    }
    let [first, second] = [1, COMMON_PAGES_MAX].map(|pages| registry.common(pages, 0).unwrap());
    assert!(registry.lend(first, program, true).unwrap() != registry.lend(second, program, false).unwrap());
    let lent = registry.machine.lent.split_off(0);
    assert_eq!(lent, [Rights(1 | 2 | 4), Rights(1 | 4)].map(|rights| rights.union(Rights::INHERIT)));
    assert_eq!(registry.lend(first, driver, true), Err(MonitorError::NotFound), "a component is no program");
    assert_eq!(registry.lend(second + 1, program, true), Err(MonitorError::NotFound));
    registry.release(first).unwrap();
    registry.release(first).unwrap();
    assert_eq!(registry.lend(first, program, true), Err(MonitorError::NotFound));
    assert!(registry.common(1, 0).unwrap() > second, "no number comes again");
    registry.kill(program, 0).unwrap();
    registry.deaths(crate::DEATH_BADGES);
    registry.release(second).unwrap();
    registry.release(second + 1).unwrap();
    assert!(registry.machine.held.len() < held, "nothing leaks");
}
