//! The monitor whole: what it does itself, what it passes on, and whom it tells.

use channel::Memory;
use contracts::monitor::MonitorEvent;

use super::played::{CORES, DEATH, Far, OF_FAR, World, denied, notified, on, plain, rest};
use super::*;
use crate::fake::{domain, wire};

const MS: u64 = 1_000_000;

/// The next event, which has come.
async fn heard(client: &MonitorClient) -> MonitorEvent {
    runtime::timeout(MS, client.next_event()).await.unwrap_or_else(|_| panic!("no event"))
}

async fn is_quiet(client: &MonitorClient) -> bool {
    runtime::timeout(MS, client.next_event()).await.is_err()
}

/// Asks for everything of a core; gives what was answered.
async fn ask_all(client: &MonitorClient, core: u32) -> Vec<String> {
    let plan = || DomainPlan { linux: true, ..plain("far") };
    let mut all = Vec::new();
    macro_rules! ask {
        ($($asked:expr),* $(,)?) => { $(all.push(format!("{:?}", $asked.await));)* };
    }
    ask!(
        client.open(core, wire(1, core, core), None),
        client.open(core, wire(2, 0, core), Some(Place { physical: 8, slot: 9 })),
        client.close(core, 3),
        client.announce(core, 4, 5),
        client.introduce(core, 6, 7, 8),
        client.refuse(core, 9, 10, BindError::NotAllowed),
        client.region(core, "a".into(), 11, RegionKind::Pool, Some(12)),
        client.common(core, 13, 14),
        client.lend(core, 15, 16, true),
        client.release(core, 17),
        client.create(core, plan()),
        client.start(core, 18),
        client.kill(core, 19, 20),
        client.begin_turns(core, 21),
        client.discard(core, 22),
        client.inject_fault(core, 23, FaultKind::Kill(24), 0),
        client.discard_core(core, 25),
        client.domain(core, 26),
        client.ledger(core, 27),
        client.work(core, 28),
        client.core_time(core),
        client.last_end(core, "b".into()),
        client.memory(core),
        client.objects(core),
        client.carve(core, 29),
        client.add(core, 30, 31),
    );
    all
}

#[test]
fn what_is_for_another_core_is_asked_of_its_monitor_and_its_answer_passed_on() {
    runtime::testing::run(async {
        let world = World::new();
        let (far, other) = (world.up(1), world.up(2));
        let answers = ask_all(&world.client, 1).await;
        // Directly, as if there were nothing between.
        let alone = Rc::new(Far::default());
        let (client, served) = loopback(Layout::default());
        runtime::spawn(contracts::monitor::serve_monitor(alone.clone(), served));
        assert_eq!(answers, ask_all(&MonitorClient::new(client), 1).await);
        assert_eq!(far.take(), alone.take());
        assert!(other.take().is_empty());
        far.refuses.set(Some(MonitorError::Busy));
        let refused = ask_all(&world.client, 1).await;
        assert!(refused.iter().all(|answer| answer == "Err(Server(Busy))"), "{refused:?}");
        assert!(world.machine(|machine| machine.held.is_empty()), "nothing was made here");
        for core in [3, CORES, u32::MAX] {
            let nowhere = ask_all(&world.client, core).await;
            assert!(nowhere.iter().all(|answer| answer == "Err(Server(NoCore))"), "{nowhere:?}");
        }
    });
}

/// The first core's monitor alone knows the others.
#[test]
fn another_cores_monitor_does_what_is_for_its_core_and_nothing_else() {
    runtime::testing::run(async {
        let world = World::of(on(1, CORES));
        for core in [0, 2] {
            let nowhere = ask_all(&world.client, core).await;
            assert!(nowhere.iter().all(|answer| answer == "Err(Server(NoCore))"), "{nowhere:?}");
        }
        assert_eq!(world.client.leave(2).await, denied(MonitorError::NoCore));
        assert_eq!(world.client.leave(1).await, Ok(()));
        world.client.open(1, wire(1, 1, 1), None).await.unwrap();
        assert_eq!(world.client.leave(1).await, denied(MonitorError::Busy));
        assert_eq!(world.client.core_use(1).await, denied(MonitorError::NoCore));
        for core in 0..CORES {
            assert_eq!(world.client.change_core(core, false).await, denied(MonitorError::NoCore));
        }
    });
}

#[test]
fn what_is_for_this_core_is_done_here() {
    runtime::testing::run(async {
        let world = World::new();
        let (client, far) = (&world.client, world.up(1));
        let place = client.open(0, wire(1, 0, 0), None).await.unwrap();
        assert_eq!(place, Place::default(), "nobody else reaches it");
        let between = client.open(0, wire(2, 1, 0), None).await.unwrap();
        assert!(between.physical != 0 && between.slot != 0);
        let region = client.region(0, "pool".into(), 4, RegionKind::Contiguous, None).await.unwrap();
        assert_eq!(client.region(0, "pool".into(), 4, RegionKind::Contiguous, None).await, Ok(region));
        assert_eq!(client.region(0, "pool".into(), 5, RegionKind::Contiguous, None).await, denied(MonitorError::Busy));
        let plan = DomainPlan { linux: true, ..plain("linux-1") };
        let made = client.create(0, plan).await.unwrap();
        let common = client.common(0, 1, 0).await.unwrap();
        let lent = client.lend(0, common, made.domain, true).await.unwrap();
        assert!(lent > 1);
        assert_eq!(client.common(0, 0, 0).await, denied(MonitorError::NoMemory));
        assert_eq!(client.release(0, common).await, Ok(()));
        assert_eq!(client.lend(0, common, made.domain, true).await, denied(MonitorError::NotFound));
        assert_eq!(client.start(0, made.domain).await, Ok(()));
        assert_eq!(world.machine(|machine| machine.started.len()), 1);
        assert_eq!(client.discard(0, made.domain).await, denied(MonitorError::Busy));
        assert_eq!(client.begin_turns(0, made.domain).await, Ok(()));
        assert_eq!(world.machine(|machine| machine.own_turns.len()), 1);
        assert_eq!(client.begin_turns(0, 99).await, denied(MonitorError::NotFound));
        let line = client.domain(0, 0).await.unwrap().unwrap();
        assert_eq!((line.domain, line.name.as_str()), (made.domain, "linux-1"));
        world.machine(|machine| machine.ledgers.insert(made.domain, (50, vec![(1, 2, 3)])));
        let line = client.ledger(0, made.domain).await.unwrap().unwrap();
        assert_eq!((line.domain, line.cpu_ns, line.paid.len()), (made.domain, 50, 1));
        assert_eq!(client.core_time(0).await.map(|time| time.domains_ns), Ok(50));
        assert_eq!(client.kill(0, made.domain, 9).await, Ok(()));
        assert_eq!(world.machine(|machine| machine.dead.len()), 1);
        client.close(0, 1).await.unwrap();
        client.close(0, 2).await.unwrap();
        assert_eq!(client.announce(0, 2, 0).await, denied(MonitorError::NotFound));
        assert!(world.machine(|machine| machine.slots.is_empty()));
        assert_eq!(client.start(0, 99).await, denied(MonitorError::NotFound));
        // These the kernel has to tell, and there is none.
        assert_eq!(client.memory(0).await, denied(MonitorError::Failed));
        assert_eq!(client.objects(0).await, denied(MonitorError::Failed));
        assert_eq!(client.carve(0, 1).await, denied(MonitorError::Failed));
        assert_eq!(client.add(0, 1, 1).await, denied(MonitorError::Failed));
        assert_eq!(client.core_use(1).await, denied(MonitorError::Failed));
        for core in [CORES, CORES + 1] {
            assert_eq!(client.core_use(core).await, denied(MonitorError::NoCore));
        }
        assert!(far.take().is_empty());
    });
}

#[test]
fn a_component_that_comes_to_serve_and_dies_is_told_of_to_every_client() {
    runtime::testing::run(async {
        let world = World::new();
        let other = World::client(&world.service);
        let ended = Rc::new(RefCell::new(Vec::new()));
        let told = ended.clone();
        let guard = move |name: &str, generation: u64, served_ns: Option<u64>| {
            told.borrow_mut().push((name.to_owned(), generation, served_ns));
        };
        world.service.deaths.replace(Some(Rc::new(guard)));
        let (id, component, events) = world.component(plain("ip")).await;
        events.serving().unwrap();
        rest().await;
        for client in [&world.client, &other] {
            assert!(matches!(heard(client).await, MonitorEvent::Serving { domain } if domain == id));
        }
        assert!(world.client.domain(0, id).await.unwrap().unwrap().serving);
        runtime::sleep(50 * MS).await;
        assert_eq!(world.client.last_end(0, "ip".into()).await, Ok(None));
        world.client.kill(0, id, 9).await.unwrap();
        notified(DEATH_BADGES).await;
        for client in [&world.client, &other] {
            let MonitorEvent::Died { name, generation, linux, death } = heard(client).await else { panic!("no death") };
            assert_eq!((name.as_str(), generation, linux, death.domain), ("ip", 1, false, id));
        }
        let end = world.client.last_end(0, "ip".into()).await.unwrap();
        assert_eq!(end.map(|(generation, death)| (generation, death.domain)), Some((1, id)));
        assert_eq!(world.service.ends.borrow().get("ip").map(|(generation, _)| *generation), Some(1));
        // One that did not come to serve is told of so.
        let (never, ..) = world.component(DomainPlan { generation: 2, ..plain("ip") }).await;
        world.ends(never).await;
        let ended = ended.take();
        let [(first, 1, Some(served_ns)), (second, 2, None)] = &ended[..] else { panic!("{ended:?}") };
        assert!(first == "ip" && second == "ip" && (50 * MS..60 * MS).contains(served_ns));
        assert_eq!(world.client.work(0, id).await, denied(MonitorError::NotFound));
        assert!(component.told.borrow().is_empty());
    });
}

#[test]
fn deaths_of_programs_are_told_to_who_makes_them_alone() {
    runtime::testing::run(async {
        let world = World::new();
        let other = World::client(&world.service);
        let guard = |_: &str, _, _| panic!("not its business");
        world.service.deaths.replace(Some(Rc::new(guard)));
        let plan = DomainPlan { linux: true, ..plain("linux-1") };
        let id = world.client.create(0, plan).await.unwrap().domain;
        world.ends(id).await;
        let MonitorEvent::Died { name, linux, death, .. } = heard(&world.client).await else { panic!("no death") };
        assert_eq!((name.as_str(), linux, death.domain), ("linux-1", true, id));
        assert!(is_quiet(&other).await);
        assert!(world.service.ends.borrow().is_empty());
        assert_eq!(world.client.last_end(0, "linux-1".into()).await, Ok(None));
    });
}

#[test]
fn who_has_no_channel_any_more_is_told_nothing() {
    runtime::testing::run(async {
        let world = World::new();
        let listeners = || world.service.listeners.borrow().len();
        let views: [[Memory; 3]; 2] = [(); 2].map(|()| loopback_memory(Layout::default()));
        let mut kept = Vec::new();
        for [client, served, taken_apart] in views {
            runtime::spawn(world.service.clone().serve(ServerChannel::new(loopback_wiring(served, false))));
            kept.push((MonitorClient::new(ClientChannel::new(loopback_wiring(client, true))), taken_apart));
        }
        rest().await;
        assert_eq!(listeners(), 3);
        kept[0].1.end();
        runtime::sleep(2000 * MS).await;
        assert_eq!(listeners(), 2);
        world.service.tell(|listener| listener.core_lost(2));
        for client in [&world.client, &kept[1].0] {
            assert!(matches!(heard(client).await, MonitorEvent::CoreLost { core: 2 }));
        }
    });
}

#[test]
fn a_component_that_hangs_is_told_of_and_ended() {
    let (id, lines) = runtime::testing::logged(async {
        let world = World::new();
        let (id, ..) = world.component(plain("ip")).await;
        let (other, ..) = world.component(plain("driver")).await;
        let badge = world.machine(|machine| machine.watched[0].1.unwrap().badge);
        notified(badge).await;
        assert!(matches!(heard(&world.client).await, MonitorEvent::Stalled { domain } if domain == id));
        assert_eq!(world.machine(|machine| Vec::from_iter(machine.dead.clone())), [id]);
        notified(DEATH_BADGES).await;
        assert!(matches!(heard(&world.client).await, MonitorEvent::Died { death, .. } if death.domain == id));
        assert!(is_quiet(&world.client).await);
        assert!(world.client.domain(0, other).await.unwrap().is_some());
        id
    });
    assert_eq!(lines, ["ip hangs: ending it"], "{id}");
}

#[test]
fn questions_for_channels_are_passed_on_while_few_are_open_and_answered() {
    runtime::testing::run(async {
        let world = World::new();
        let client = &world.client;
        let (driver, served, _) = world.component(plain("driver")).await;
        let (id, component, events) = world.component(plain("ip")).await;
        let told = |component: &super::played::Component| component.told.take();
        for request in 0..17 {
            events.wants(request, "network".into(), 3).unwrap();
            rest().await;
            if request < 16 {
                let asked = MonitorEvent::Wants { domain: id, request, contract: "network".into(), index: 3 };
                assert_eq!(format!("{:?}", heard(client).await), format!("{asked:?}"));
            }
        }
        assert!(is_quiet(client).await);
        rest().await;
        assert_eq!(told(&component), ["refused 16 Failed"]);
        // Each answer leaves room for one more.
        client.open(0, wire(1, 0, 0), None).await.unwrap();
        let (connected, _) = both(client.introduce(0, 1, id, 7), rest()).await;
        assert_eq!(connected, Ok(()));
        assert_eq!(client.refuse(0, id, 8, BindError::NotFound).await, Ok(()));
        rest().await;
        assert_eq!(told(&component), ["connect network driver 7", "refused 8 NotFound"]);
        for request in 17..20 {
            events.wants(request, "network".into(), 0).unwrap();
            rest().await;
        }
        assert!(matches!(heard(client).await, MonitorEvent::Wants { request: 17, .. }));
        assert!(matches!(heard(client).await, MonitorEvent::Wants { request: 18, .. }));
        assert!(is_quiet(client).await);
        assert_eq!(told(&component), ["refused 19 Failed"]);
        // One that does not take it has no answer yet.
        component.refuses.set(true);
        let (refused, _) = both(client.introduce(0, 1, id, 9), rest()).await;
        assert_eq!(refused, denied(MonitorError::Failed));
        events.wants(20, "network".into(), 0).unwrap();
        rest().await;
        assert_eq!(told(&component), ["connect network driver 9", "refused 20 Failed"]);
        // The server is brought its end.
        let (announced, _) = both(client.announce(0, 1, 5), rest()).await;
        assert_eq!((announced, told(&served)), (Ok(()), vec!["connect network ip 0".to_owned()]));
        assert_eq!(client.refuse(0, 99, 1, BindError::NotFound).await, denied(MonitorError::NotFound));
        assert_eq!(client.introduce(0, 1, 99, 1).await, denied(MonitorError::NotFound));
        world.ends(driver).await;
        assert_eq!(client.announce(0, 1, 5).await, denied(MonitorError::NotFound));
    });
}

async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let (mut one, mut other) = (core::pin::pin!(one), core::pin::pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(done) = one.as_mut().poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = other.as_mut().poll(context)
        {
            second = Some(done);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first.zip(second).unwrap()
}

#[test]
fn faults_are_injected_now_or_later() {
    let (_, lines) = runtime::testing::logged(async {
        let world = World::new();
        let (client, far) = (&world.client, world.up(1));
        let (id, component, _) = world.component(plain("ip")).await;
        client.inject_fault(0, id, FaultKind::Inject(InjectedFault::Hang), 0).await.unwrap();
        rest().await;
        assert_eq!(component.told.take(), ["inject_fault Hang"]);
        client.inject_fault(0, id, FaultKind::Kill(3), 50 * MS).await.unwrap();
        assert!(world.machine(|machine| machine.dead.is_empty()));
        runtime::sleep(51 * MS).await;
        assert_eq!(world.machine(|machine| Vec::from_iter(machine.dead.clone())), [id]);
        let nobody = client.inject_fault(0, 99, FaultKind::Inject(InjectedFault::Hang), 0).await;
        assert_eq!(nobody, denied(MonitorError::NotFound));
        assert_eq!(client.inject_fault(0, 99, FaultKind::Inject(InjectedFault::Hang), MS).await, Ok(()));
        client.inject_fault(1, OF_FAR, FaultKind::Kill(4), 50 * MS).await.unwrap();
        client.inject_monitor_fault(1, InjectedFault::Block, 50 * MS).unwrap();
        assert!(far.take().is_empty());
        runtime::sleep(52 * MS).await;
        let mut told = far.take();
        told.sort();
        assert_eq!(told, [format!("inject_fault 1 {OF_FAR} Kill(4) 0"), "inject_monitor_fault 1 Block 0".to_owned()]);
    });
    assert_eq!(lines, ["no fault was injected into domain 0x63: NotFound"]);
}

#[test]
fn who_asks_for_a_core_that_starts_waits_for_it() {
    runtime::testing::run(async {
        let service = on(0, CORES);
        let client = World::client(&service);
        let world = World { service: service.clone(), client };
        let begun_ns = now_ns();
        let (answer, far) = both(world.client.core_time(1), async {
            runtime::sleep(300 * MS).await;
            world.up(1)
        })
        .await;
        assert_eq!((answer.map(|time| time.clock_ns), far.take()), (Ok(66), vec!["core_time 1".to_owned()]));
        assert!((300 * MS..320 * MS).contains(&(now_ns() - begun_ns)));
        // For one that the machine has not nobody waits.
        let begun_ns = now_ns();
        assert_eq!(world.client.core_time(CORES).await, denied(MonitorError::NoCore));
        assert_eq!(World::client(&on(1, CORES)).core_time(2).await, denied(MonitorError::NoCore));
        assert!(now_ns() - begun_ns < MS);
        // One that is not up when all are is given up.
        let begun_ns = now_ns();
        let (answer, ()) = both(world.client.core_time(2), async {
            runtime::sleep(300 * MS).await;
            service.cores_are_up();
        })
        .await;
        assert_eq!(answer, denied(MonitorError::NoCore));
        assert!((300 * MS..320 * MS).contains(&(now_ns() - begun_ns)));
    });
}

#[test]
fn a_core_that_takes_too_long_to_start_is_not_waited_for() {
    runtime::testing::run(async {
        let service = on(0, CORES);
        let client = World::client(&service);
        let begun_ns = now_ns();
        assert_eq!(client.core_time(1).await, denied(MonitorError::NoCore));
        assert!((CORE_LIMIT_NS..CORE_LIMIT_NS + 1000 * MS).contains(&(now_ns() - begun_ns)));
    });
}

#[test]
fn what_another_monitor_tells_is_told_on() {
    runtime::testing::run(async {
        let world = World::new();
        let (client, far) = (&world.client, world.up(1));
        let created = client.create(1, plain("far")).await.unwrap();
        assert_eq!(created.domain, OF_FAR);
        assert_eq!(world.service.elsewhere.borrow().len(), 1);
        let events = far.events();
        events.serving(OF_FAR).unwrap();
        events.wants(OF_FAR, 3, "files".into(), 4).unwrap();
        events.stalled(OF_FAR).unwrap();
        events.lost();
        rest().await;
        assert!(matches!(heard(client).await, MonitorEvent::Serving { domain: OF_FAR }));
        let wants = MonitorEvent::Wants { domain: OF_FAR, request: 3, contract: "files".into(), index: 4 };
        assert_eq!(format!("{:?}", heard(client).await), format!("{wants:?}"));
        assert!(matches!(heard(client).await, MonitorEvent::Stalled { domain: OF_FAR }));
        assert!(matches!(heard(client).await, MonitorEvent::Lost));
        events.died("far".into(), 1, false, DEATH).unwrap();
        let MonitorEvent::Died { name, generation, death, .. } = heard(client).await else { panic!("no death") };
        assert_eq!((name.as_str(), generation, death), ("far", 1, DEATH));
        assert!(world.service.elsewhere.borrow().is_empty());
        // Of programs only who makes them hears, and of that one nobody asked.
        events.died("linux-1".into(), 1, true, DEATH).unwrap();
        rest().await;
        assert!(is_quiet(client).await);
        client.create(1, DomainPlan { linux: true, ..plain("linux-2") }).await.unwrap();
        events.died("linux-2".into(), 1, true, DEATH).unwrap();
        rest().await;
        assert!(matches!(heard(client).await, MonitorEvent::Died { linux: true, .. }));
    });
}

#[test]
fn how_a_component_ended_elsewhere_is_known_from_both_sides() {
    runtime::testing::run(async {
        let world = World::new();
        let (client, far) = (&world.client, world.up(1));
        let end = async |name: &str| client.last_end(1, name.into()).await;
        // Its monitor says generation 2.
        assert_eq!(end("far").await, Ok(Some((2, DEATH))));
        let later = Death { status: 44, ..DEATH };
        let died = |generation, death| Dead { name: "far".into(), generation, linux: false, death };
        for (generation, known) in [(1, (2, DEATH)), (3, (3, later))] {
            world.service.tell_death(&died(generation, later));
            assert_eq!(end("far").await, Ok(Some(known)), "the last counts");
        }
        // It does not say, and the component is there no more as far as is known.
        far.refuses.set(Some(MonitorError::Away));
        assert_eq!(end("far").await, Ok(Some((3, later))));
        assert_eq!(end("other").await, denied(MonitorError::Away));
        far.refuses.set(None);
        client.create(1, plain("other")).await.unwrap();
        far.refuses.set(Some(MonitorError::Away));
        assert_eq!(end("far").await, Ok(Some((3, later))), "another is");
        let of = |domain| Dead::of_core(domain, "far".into(), 4, false);
        world.service.elsewhere.borrow_mut().insert(2 << 48 | 9, of(2 << 48 | 9));
        assert_eq!(end("far").await, Ok(Some((3, later))), "on another core it is");
        world.service.elsewhere.borrow_mut().insert(OF_FAR, of(OF_FAR));
        assert_eq!(end("far").await, denied(MonitorError::Away));
    });
}

#[test]
fn a_domain_made_on_a_core_that_was_lost_meanwhile_is_not_there() {
    runtime::testing::run(async {
        let world = World::new();
        let far = world.up(1);
        let service = world.service.clone();
        *far.loses.borrow_mut() = Some(Rc::new(move || _ = service.remote_monitors.borrow_mut().remove(&1)));
        let made = runtime::timeout(1000 * MS, world.client.create(1, plain("far"))).await;
        assert_eq!(made.ok(), Some(denied(MonitorError::NoCore)));
        assert!(world.service.elsewhere.borrow().is_empty());
    });
}

#[test]
fn what_a_component_worked_for_it_says_itself_and_in_time() {
    runtime::testing::run(async {
        let world = World::new();
        let (client, (id, component, _)) = (&world.client, world.component(plain("ip")).await);
        let ask = async || both(client.work(0, id), rest()).await.0.map(|work| work.ran_ns);
        assert_eq!(ask().await, Ok(77));
        component.refuses.set(true);
        assert_eq!(ask().await, denied(MonitorError::Failed));
        component.hangs.set(true);
        let begun_ns = now_ns();
        assert_eq!(ask().await, denied(MonitorError::Failed));
        assert!(now_ns() - begun_ns < 200 * MS);
        assert_eq!(client.work(0, 99).await, denied(MonitorError::NotFound));
    });
}

#[test]
fn pages_that_the_other_core_does_not_take_go_back() {
    runtime::testing::run(async {
        let world = World::new();
        let (client, giver, taker) = (&world.client, world.up(1), world.up(2));
        assert_eq!(client.move_pages(1, 2, 5).await, Ok(()));
        assert_eq!((giver.take(), taker.take()), (vec!["carve 1 5".to_owned()], vec!["add 2 28672 5".to_owned()]));
        assert!(world.service.moves.borrow().is_empty());
        for refusal in [MonitorError::NoMemory, MonitorError::Failed] {
            taker.refuses.set(Some(refusal));
            assert_eq!(client.move_pages(1, 2, 5).await, denied(MonitorError::NoMemory));
            assert_eq!(giver.take(), ["carve 1 5", "add 1 28672 5"]);
            assert_eq!(taker.take(), ["add 2 28672 5"]);
            assert!(world.service.moves.borrow().is_empty());
        }
        giver.refuses.set(Some(MonitorError::NoMemory));
        assert_eq!(client.move_pages(1, 2, 5).await, denied(MonitorError::NoMemory));
        assert_eq!((giver.take(), taker.take().len()), (vec!["carve 1 5".to_owned()], 0));
        assert_eq!(client.move_pages(3, 2, 5).await, denied(MonitorError::NoCore));
    });
}

/// It may have them: only it knows.
#[test]
fn pages_that_were_on_their_way_to_a_lost_core_are_seen_to_when_it_is_back() {
    for (answer, goes_back) in
        [(None, false), (Some(MonitorError::Failed), false), (Some(MonitorError::NoMemory), true)]
    {
        runtime::testing::run_and_end(async {
            let world = World::new();
            let (client, giver, taker) = (&world.client, world.up(1), world.up(2));
            taker.refuses.set(Some(MonitorError::NoCore));
            assert_eq!(client.move_pages(1, 2, 5).await, denied(MonitorError::NoMemory));
            assert_eq!((giver.take().len(), taker.take().len()), (1, 1));
            assert!(!world.service.moves.borrow().is_empty());
            taker.refuses.set(answer);
            world.service.offer_again(1).await;
            assert!(taker.take().is_empty() && giver.take().is_empty(), "not to that one");
            world.service.offer_again(2).await;
            assert_eq!(taker.take(), ["add 2 28672 5"]);
            assert_eq!(giver.take(), Vec::from_iter(goes_back.then(|| "add 1 28672 5".to_owned())));
            assert!(world.service.moves.borrow().is_empty());
        });
    }
}

#[test]
fn components_that_serve_are_beaten_and_those_at_rest_once_a_second() {
    runtime::testing::run(async {
        let world = World::new();
        runtime::spawn(world.service.clone().beat());
        let (.., events) = world.component(plain("ip")).await;
        runtime::sleep(500 * MS).await;
        world.machine(|machine| machine.notified.clear());
        events.serving().unwrap();
        rest().await;
        runtime::sleep(2000 * MS).await;
        let beats = world.machine(|machine| core::mem::take(&mut machine.notified));
        let all = beats.iter().filter(|beat| **beat < 1 << 63).count();
        assert!((49..=51).contains(&beats.len()) && (2..=3).contains(&all), "{} {all}", beats.len());
    });
}

#[test]
fn a_device_whose_driver_does_not_come_back_is_made_quiet() {
    runtime::testing::run(async {
        let world = World::new();
        let (id, ..) = world.component(DomainPlan { regions: Vec::new(), ..domain("driver", 1, &[]) }).await;
        world.ends(id).await;
        // Another death meanwhile changes nothing.
        let (other, ..) = world.component(plain("ip")).await;
        world.ends(other).await;
        assert!(world.machine(|machine| machine.quieted.is_empty()));
        runtime::sleep(3000 * MS).await;
        assert_eq!(world.machine(|machine| machine.quieted.len()), 1);
    });
}

#[test]
fn clients_are_told_what_to_do_about_a_refusal_of_the_kernel() {
    let told = |error| kernel::<()>(Err(error)).unwrap_err();
    let all = [abi::Error::NoMemory, abi::Error::Busy, abi::Error::BadCall, abi::Error::NotFound].map(told);
    let [later, failed] = [MonitorError::NoMemory, MonitorError::Failed];
    assert_eq!(all, [later, later, failed, failed]);
}

#[test]
fn names_are_told_of_who_lives_and_who_is_nobody() {
    runtime::testing::run(async {
        let world = World::new();
        let (id, ..) = world.component(plain("ip")).await;
        let name = |id| world.service.domain_name(id);
        assert_eq!([id, 0, 0x99].map(name), ["ip", "", "domain 0x99, which has ended"]);
    });
}

#[test]
fn channels_with_a_lost_core_are_closed_here() {
    runtime::testing::run(async {
        let world = World::new();
        world.client.open(0, wire(1, 1, 0), None).await.unwrap();
        world.client.open(0, wire(2, 0, 0), None).await.unwrap();
        let held = world.machine(|machine| machine.held.len());
        world.client.discard_core(0, 1).await.unwrap();
        assert!(world.machine(|machine| machine.held.len() < held && machine.slots.is_empty()));
        world.client.close(0, 2).await.unwrap();
        assert!(world.machine(|machine| machine.held.is_empty()));
        assert_eq!(world.client.leave(0).await, Ok(()));
    });
}
