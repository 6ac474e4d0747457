//! Components: in which order they are made, with what, and who hears of their channels.

use channel::{ClientChannel, ServerChannel, loopback_memory, loopback_wiring};

use super::*;

/// A supervisor that needs a disk, which so runs before any other core does; and others.
fn system() -> System {
    let components = vec![
        on(0, "disk", &[]),
        on(0, "supervisor", &["disk"]),
        on(1, "fs", &[]),
        on(0, "near", &["disk"]),
        on(1, "app", &["disk", "fs"]),
        on(2, "far", &["fs"]),
    ];
    system_of(components, &["fs"])
}

/// Their channels.
const NEAR_TO_DISK: ChannelId = 2;
const APP_TO_DISK: ChannelId = 3;
const APP_TO_FS: ChannelId = 4;
const FAR_TO_FS: ChannelId = 5;
/// Pages that are to be free for each: first ones, and the reserve.
const FIRST_PAGES: u64 = 128 + 256;

/// What is asked for to make a component of one core.
fn made(core: u32, name: &str, generation: u64) -> [Call; 3] {
    let domain = of_core(core, MADE);
    let (component, contract) = (String::from(name), String::from(name));
    [
        Call::Create(core, name.into(), generation, FIRST_PAGES),
        Call::Start(core, domain),
        Call::Register(Named { component, contract, domain, core, generation }),
    ]
}

/// How a channel between two cores is opened once its server's core was asked.
fn rest_of_open(id: ChannelId, client: u32, server: u32) -> [Call; 2] {
    [Call::Open(client, id, Some(place(server, id))), Call::Open(server, id, Some(place(client, id)))]
}

/// Starts a component; gives everything that was asked for.
async fn calls_for(fake: &Fake, client: &SpawnClient, name: &str, generation: u64) -> Vec<Call> {
    let told = client.component(name.into(), generation, 0).await;
    // The name server is told without waiting.
    runtime::sleep(MAKING_NS).await;
    assert!(told.is_ok(), "{name}: {told:?}");
    fake.calls.take()
}

/// A server that was started before there were other cores does not know of channels from there.
#[test]
fn channels_are_opened_and_brought_to_servers_that_ran_before_other_cores() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_, client) = begin_with(&fake, system(), 3);
        let mut expected = vec![Call::Open(0, APP_TO_DISK, None), Call::Open(1, APP_TO_FS, None)];
        expected.extend(rest_of_open(APP_TO_DISK, 1, 0));
        expected.push(Call::Announce(0, APP_TO_DISK, 0));
        expected.extend(made(1, "app", 1));
        assert_eq!(calls_for(&fake, &client, "app", 1).await, expected);
        // What is open is neither opened nor brought again.
        for generation in [1, 2] {
            assert_eq!(calls_for(&fake, &client, "app", generation).await, made(1, "app", generation));
        }
    });
}

#[test]
fn a_channel_is_not_brought_to_who_is_started_with_it_nor_within_the_first_core() {
    runtime::testing::run(async {
        for generation in [1, 2] {
            let fake = Rc::new(Fake::default());
            let (_, client) = begin_with(&fake, system(), 3);
            let mut expected = vec![Call::Open(1, APP_TO_FS, None), Call::Open(1, FAR_TO_FS, None)];
            expected.extend(rest_of_open(FAR_TO_FS, 2, 1));
            expected.extend(made(1, "fs", generation));
            assert_eq!(calls_for(&fake, &client, "fs", generation).await, expected);
            let mut expected = [1, NEAR_TO_DISK, APP_TO_DISK].map(|id| Call::Open(0, id, None)).to_vec();
            expected.extend(rest_of_open(APP_TO_DISK, 1, 0));
            expected.extend(made(0, "disk", generation));
            assert_eq!(calls_for(&fake, &client, "disk", generation).await, expected);
        }
        let fake = Rc::new(Fake::default());
        let (_, client) = begin_with(&fake, system(), 3);
        let mut expected = vec![Call::Open(0, NEAR_TO_DISK, None)];
        expected.extend(made(0, "near", 1));
        assert_eq!(calls_for(&fake, &client, "near", 1).await, expected);
    });
}

/// Its monitor has forgotten all, the others what they had with it: servers that run are brought
/// the channels that are made anew.
#[test]
fn channels_of_a_lost_core_are_made_anew_and_the_others_stay() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, client) = begin_with(&fake, system(), 3);
        for name in ["disk", "fs", "near", "app"] {
            calls_for(&fake, &client, name, 1).await;
        }
        let bound = [(1, 0), (0, 1), (0, 2), (0, 0)].into_iter().zip(wiring::BOUND_CHANNELS + 1..);
        let bound = bound.map(|((from, to), id)| (MADE, wiring::plan(id, BOUND, ("near", from), ("driver", to))));
        let bound: Vec<_> = bound.collect();
        service.bound.borrow_mut().clone_from(&bound);
        let spare = |number: u32, server_core| {
            let channels = vec![wiring::plan(number.into(), "fs", ("linux", 0), ("fs", server_core))];
            ChannelSet { number, core: 0, channels, is_broken: false }
        };
        assert!([spare(71, 1), spare(72, 0)].into_iter().all(|set| service.linux.borrow_mut().keep(set).is_none()));
        service.clone().core_lost(1);
        assert_eq!(*service.bound.borrow(), bound[2..]);
        runtime::sleep(MAKING_NS).await;
        assert_eq!(fake.calls.take(), [Call::Close(0, 71), Call::Close(1, 71)]);
        assert_eq!(service.linux.borrow_mut().take_spare().iter().map(|set| set.number).collect::<Vec<_>>(), [72]);
        assert_eq!(calls_for(&fake, &client, "near", 2).await, made(0, "near", 2));
        let mut expected = vec![Call::Open(0, APP_TO_DISK, None), Call::Open(1, APP_TO_FS, None)];
        expected.extend(rest_of_open(APP_TO_DISK, 1, 0));
        expected.extend([Call::Announce(0, APP_TO_DISK, 0), Call::Announce(1, APP_TO_FS, 0)]);
        expected.extend(made(1, "app", 2));
        assert_eq!(calls_for(&fake, &client, "app", 2).await, expected);
    });
}

/// The numbers of the description come from it alone; what came at run time has a number once.
#[test]
fn only_channels_of_the_description_are_remembered_as_open() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, _client) = begin_with(&fake, system(), 3);
        let ids = [wiring::RUN_TIME_CHANNELS - 1, wiring::RUN_TIME_CHANNELS, wiring::RUN_TIME_CHANNELS + 1];
        let plans = ids.map(|id| wiring::plan(id, "fs", ("app", 1), ("fs", 1)));
        service.open(plans.iter()).await.unwrap();
        assert_eq!(fake.calls.take(), ids.map(|id| Call::Open(1, id, None)));
        service.open(plans.iter()).await.unwrap();
        assert_eq!(fake.calls.take(), [ids[1], ids[2]].map(|id| Call::Open(1, id, None)));
        fake.refuses.set(Some(MonitorError::NoMemory));
        assert_eq!(service.open(plans.iter()).await, Err(SpawnError::NoMemory));
    });
}

#[test]
fn pages_for_a_component_are_asked_for_but_not_by_the_memory_server() {
    runtime::testing::run(async {
        let small = Component { memory_limit_pages: 100, ..on(0, "small", &[]) };
        let system = system_of(vec![on(0, "memory", &[]), small, on(0, "other", &[])], &[]);
        let fake = Rc::new(Fake { is_full: Cell::new(true), ..Fake::default() });
        let (_, client) = begin_with(&fake, system, 1);
        let refused = Err(CallError::Server(SpawnError::NoMemory));
        for (name, wanted, limit) in [("small", 100, 100), ("other", 128, 1000)] {
            let create = Call::Create(0, name.into(), 1, wanted + 256);
            assert_eq!(client.component(name.into(), 1, 0).await, refused);
            assert_eq!(fake.calls.take(), [create.clone(), Call::Prepare(0, wanted, limit), create]);
        }
        // It would be asked for its own memory.
        assert_eq!(client.component("memory".into(), 1, 0).await, refused);
        assert_eq!(fake.calls.take(), [Call::Create(0, "memory".into(), 1, 0)]);
    });
}

/// What was made is waited for to be gone: its name would be taken still.
#[test]
fn who_hears_that_a_component_does_not_start_may_ask_again_at_once() {
    const DYING_NS: u64 = SECOND_NS / 5;
    runtime::testing::run(async {
        let crew = Component { core: Placement::Every, ..on(0, "crew", &[]) };
        let (starts_nothing, dies_after_ns) = (Cell::new(true), Cell::new(DYING_NS));
        let fake = Rc::new(Fake { starts_nothing, dies_after_ns, ..Fake::default() });
        let (service, client) = begin_with(&fake, system_of(vec![crew], &[]), 2);
        for _ in 0..2 {
            let begun_ns = runtime::now_ns();
            assert_eq!(client.component("crew".into(), 1, 0).await, Err(CallError::Server(SpawnError::Failed)));
            assert!(!service.programs.borrow().is_there("crew"));
            let took_ns = runtime::now_ns() - begun_ns;
            assert!((DYING_NS..2 * DYING_NS).contains(&took_ns), "{took_ns} ns");
        }
    });
}

/// The plan of its second life does not name them; its first life has no others than its plan's.
#[test]
fn a_server_that_begins_again_is_brought_the_channels_that_were_asked_for() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, client) = begin_with(&fake, system(), 3);
        for (id, server) in (wiring::BOUND_CHANNELS + 1..).zip(["fs", "disk", "fs"]) {
            service.bound.borrow_mut().push((MADE, wiring::plan(id, server, ("near", 0), (server, 1))));
        }
        let announced = |calls: Vec<Call>| -> Vec<Call> {
            calls.into_iter().filter(|call| matches!(call, Call::Announce(..))).collect()
        };
        assert_eq!(announced(calls_for(&fake, &client, "fs", 1).await), []);
        let expected = [1, 3].map(|number| Call::Announce(1, wiring::BOUND_CHANNELS + number, 0));
        assert_eq!(announced(calls_for(&fake, &client, "fs", 2).await), expected);
    });
}

/// No program has a channel to it yet.
#[test]
fn the_first_life_of_a_server_does_not_wait_for_programs() {
    runtime::testing::run(async {
        for (life, waits) in [(1, false), (2, true)] {
            let fake = Rc::new(Fake::default());
            let (service, client) = begin(&fake);
            client.ready().unwrap();
            let program = client.linux(None, None, 0);
            assert_eq!(client.component(CONSOLE.into(), life, 0).await, Ok(MADE));
            assert_eq!(service.linux.borrow().is_making(), !waits, "life {life}");
            assert_eq!(program.await.map(|made| made.domain), Ok(MADE));
        }
    });
}

/// The monitors know what runs; the name server knows nothing after its start.
#[test]
fn a_name_server_that_starts_is_told_what_runs_and_then_that_it_is_all() {
    runtime::testing::run(async {
        let mut components = system().components;
        components.insert(0, on(0, wiring::MONITOR, &[]));
        components.push(Component { core: Placement::Every, ..on(0, "crew", &[]) });
        let fake = Rc::new(Fake::default());
        let [one, two, three, monitor] = loopback_memory(Layout::default());
        let serve = |memory| serve_names(fake.clone(), ServerChannel::new(loopback_wiring(memory, false)));
        let first = runtime::spawn(serve(two));
        let names = NamesClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let (service, _client) = begin_beside(&fake, system_of(components, &[]), 2, names);
        let running = [
            (of_core(0, 3), "monitor", 1),
            (of_core(0, 4), "disk", 5),
            (of_core(0, 6), "linux-1", 1),
            (of_core(0, 7), "near", 1),
            (of_core(1, 2), "fs", 2),
            (of_core(1, 8), "crew-1", 3),
        ];
        *fake.lines.borrow_mut() = running.map(|(domain, name, life)| line(domain, name, life)).into();
        let told = |(domain, component, contract, generation): (DomainId, &str, &str, u64)| {
            let core = spawn_core::home(domain);
            Call::Register(Named { component: component.into(), contract: contract.into(), domain, core, generation })
        };
        let mut expected: Vec<Call> = [
            (of_core(0, 4), "disk", "disk", 5),
            (of_core(0, 7), "near", "near", 1),
            (of_core(1, 2), "fs", "fs", 2),
            (of_core(1, 8), "crew-1", "crew", 3),
        ]
        .map(told)
        .into();
        expected.push(Call::ToldAll);
        service.probe_all().await;
        assert_eq!(fake.calls.take(), expected);
        // It ends, and another takes its place.
        runtime::spawn(service.watch_names());
        runtime::sleep(SECOND_NS).await;
        assert_eq!(fake.calls.take(), [], "nothing happened");
        runtime::abort(first);
        monitor.raise_generation();
        runtime::spawn(serve(three));
        runtime::sleep(SECOND_NS).await;
        assert_eq!(fake.calls.take(), expected);
    });
}
