//! What monitor 0 starts by itself, and starts again.

use abi::start::{StartHeader, text};
use contracts::monitor::MonitorError;
use system::{Component, Handlers, Placement, Restart, Use, Workers};
use zerocopy::FromBytes;

use super::*;
use crate::fake::Fake;
use crate::service::tests::played::{CORES, World, notified, on, rest};
use monitor_core::DEATH_BADGES;

const MS: u64 = 1_000_000;

fn made(name: &str, core: u32, uses: &[&str]) -> Component {
    Component {
        name: name.into(),
        program: "prog".into(),
        core: Placement::Preferred([core].into()),
        priority: 42,
        budget: None,
        memory_limit_pages: 100,
        provides: [name.into()].into(),
        binds: Vec::new(),
        uses: uses.iter().map(|name| Use { contract: (*name).into(), server: (*name).into() }).collect(),
        restart: Restart::Always,
        devices: Vec::new(),
        handlers: Handlers::One,
        has_vectors: false,
        regions: Vec::new(),
        workers: Workers::None,
    }
}

fn system() -> System {
    let components = [
        made("monitor", 0, &[]),
        made("names", 0, &[]),
        made("spawn", 0, &["monitor", "names"]),
        made("supervisor", 0, &["monitor", "spawn"]),
        made("console", 0, &["spawn"]),
        made("far", 1, &["spawn"]),
        made("third", 0, &["console"]),
    ];
    System { components: components.into(), ..System::default() }
}

/// A machine whose first components run.
fn begun() -> World {
    let world = World::of(on(0, CORES));
    start_components(&world.service, &system(), CORES).unwrap();
    world
}

/// The start page of the last domain of that name.
fn header(machine: &Fake, name: &str) -> StartHeader {
    let pages = machine.filled.values().rev().filter_map(|(_, bytes)| StartHeader::read_from_prefix(bytes).ok());
    let mut headers = pages.map(|(header, _)| header);
    headers.find(|header| header.magic == abi::start::MAGIC && text(&header.name) == name).unwrap()
}

fn named(world: &World, name: &str) -> Option<u64> {
    world.service.registry.borrow().named(name)
}

/// Ends the supervisor.
async fn ends(world: &World) {
    let id = named(world, wiring::SUPERVISOR).unwrap();
    world.service.registry.borrow_mut().kill(id, 9).unwrap();
    notified(DEATH_BADGES).await;
}

#[test]
fn the_supervisor_and_all_it_needs_run_with_their_channels() {
    runtime::testing::run(async {
        let world = begun();
        let running = ["names", "spawn", "supervisor", "console", "third"].map(|name| named(&world, name).is_some());
        assert_eq!(running, [true, true, true, false, false]);
        assert_eq!(world.machine(|machine| machine.started.len()), 3);
        let first = world.machine(|machine| header(machine, "supervisor"));
        assert_eq!((first.generation, first.entrance), (1, Entrance::Fresh as u64));
        let all = wiring::channels(&system(), CORES);
        let open = all.into_iter().filter(|plan| {
            let other = ChannelPlan { ring_slots: 16, ..plan.clone() };
            world.service.open_here(other, None) == Err(MonitorError::Busy)
        });
        let open: Vec<_> = open.map(|plan| format!("{} {}", plan.client, plan.server)).collect();
        let expected = ["spawn monitor", "spawn names", "supervisor monitor", "supervisor spawn", "console spawn"]
            .map(String::from);
        assert_eq!(open, expected, "those of later clients on this core too, and no others");
    });
}

#[test]
fn what_cannot_be_started_at_boot_is_said() {
    runtime::testing::run(async {
        let begin = |change: fn(&mut System), budget| {
            let world = World::of(on(0, CORES));
            let mut system = system();
            change(&mut system);
            world.machine(|machine| machine.budget = budget);
            start_components(&world.service, &system, CORES)
        };
        let error = begin(|system| system.components[3].core = Placement::Every, None).unwrap_err();
        assert!(error.starts_with("supervisor: what starts programs of several cores"), "{error}");
        let error = begin(|system| system.components[2].program = "none".into(), None).unwrap_err();
        assert_eq!(error, "spawn: BadProgram");
        let error = begin(|_| {}, Some(0)).unwrap_err();
        assert_eq!(error, "channel monitor of spawn: NoMemory");
    });
}

#[test]
fn a_supervisor_that_dies_is_started_again_to_go_on_where_it_was() {
    let (_, lines) = runtime::testing::logged(async {
        let world = begun();
        // Who else dies is the supervisor's business.
        let spawn = named(&world, "spawn").unwrap();
        world.service.registry.borrow_mut().kill(spawn, 9).unwrap();
        notified(DEATH_BADGES).await;
        runtime::sleep(2000 * MS).await;
        assert_eq!(named(&world, "spawn"), None);
        let guard = world.service.deaths.borrow().clone().unwrap();
        for generation in 2..5 {
            let before = named(&world, wiring::SUPERVISOR);
            let id = before.unwrap();
            world.service.registry.borrow_mut().kill(id, 9).unwrap();
            // As if it had served for a second.
            world.service.registry.borrow_mut().deaths(DEATH_BADGES);
            guard(wiring::SUPERVISOR, generation - 1, Some(1000 * MS));
            rest().await;
            assert!(named(&world, wiring::SUPERVISOR).is_some_and(|id| Some(id) != before));
            let header = world.machine(|machine| header(machine, "supervisor"));
            assert_eq!((header.generation, header.entrance), (generation, Entrance::Recover as u64));
            runtime::sleep(2000 * MS).await;
        }
    });
    assert_eq!(lines, [2, 3, 4].map(|generation| format!("supervisor died, generation {generation}")));
}

#[test]
fn a_supervisor_that_does_not_come_to_serve_waits_longer_each_time() {
    let (_, lines) = runtime::testing::logged(async {
        let world = begun();
        for wait_ms in [10, 20, 40] {
            ends(&world).await;
            assert_eq!(named(&world, wiring::SUPERVISOR), None);
            runtime::sleep(wait_ms * MS - MS).await;
            assert_eq!(named(&world, wiring::SUPERVISOR), None);
            runtime::sleep(2 * MS).await;
            assert!(named(&world, wiring::SUPERVISOR).is_some());
            runtime::sleep(2000 * MS).await;
        }
    });
    let said = [(2, 10), (3, 20), (4, 40)]
        .map(|(generation, ms)| format!("supervisor died, generation {generation}; tried again in {ms} ms"));
    assert_eq!(lines, said);
}

#[test]
fn a_supervisor_that_cannot_be_made_is_tried_until_it_can() {
    let (_, lines) = runtime::testing::logged(async {
        let world = begun();
        world.machine(|machine| machine.budget = Some(0));
        ends(&world).await;
        runtime::sleep(3000 * MS).await;
        assert_eq!(named(&world, wiring::SUPERVISOR), None);
        world.machine(|machine| machine.budget = None);
        runtime::sleep(6000 * MS).await;
        assert!(named(&world, wiring::SUPERVISOR).is_some());
        // One that is made and does not start is ended, which leads to the next.
        world.machine(|machine| machine.refuses_to_start = true);
        ends(&world).await;
        runtime::sleep(6000 * MS).await;
        let made = named(&world, wiring::SUPERVISOR).unwrap();
        assert!(world.machine(|machine| machine.dead.contains(&made)));
        world.machine(|machine| machine.refuses_to_start = false);
        notified(DEATH_BADGES).await;
        runtime::sleep(6000 * MS).await;
        let last = named(&world, wiring::SUPERVISOR).unwrap();
        assert!(last != made && !world.machine(|machine| machine.dead.contains(&last)));
    });
    assert!(lines.iter().any(|line| line.starts_with("supervisor does not start again: NoMemory; tried again in ")));
    assert!(lines.iter().any(|line| line.starts_with("supervisor is made but does not start: ")), "{lines:?}");
}

/// There is none on a host.
#[test]
fn cores_that_do_not_start_are_told_and_not_waited_for() {
    let (_, lines) = runtime::testing::logged(async {
        start_cores(on(0, 3), 3).await;
    });
    assert_eq!(lines, ["core 1 does not start: BadCall", "core 2 does not start: BadCall"]);
}
