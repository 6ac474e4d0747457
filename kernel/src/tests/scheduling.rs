//! Deadlines, yields, donations that end, and a core that is held: who runs next, and for when the
//! timer is armed.

use super::World;
use super::time::context;
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::objects::context::{Proxy, State};
use crate::objects::group::PROBE_NS;
use crate::objects::portal::PortalKind;
use crate::objects::share::Capability;
use crate::objects::{Context, Portal, Ptr};
use crate::scheduler::GangWindow;
use crate::steps::WAKES;
use abi::{Call, Handle, Rights};

const MS: u64 = 1_000_000;
const ENTRY: u64 = 0x20_000;
const PROGRAM: u64 = 0x4000;
/// Where the portal of a client is.
const PORTAL: u64 = 20;

fn wait(world: &mut World, deadline_ns: u64) {
    world.runner_calls(Call::Wait, [deadline_ns, 0, 0, 0, 0, 0]);
}

fn yields(world: &mut World) {
    world.runner_calls(Call::Yield, [0; 6]);
}

/// The timer fires if it was armed for that time or before.
fn at(world: &mut World, at_ns: u64) {
    while let Some(timer_ns) = hardware::deadline().filter(|timer_ns| *timer_ns <= at_ns) {
        set_clock(timer_ns.max(hardware::now_ns()));
        hardware::set_deadline(None);
        world.kernel.step(Event::Timer);
    }
    set_clock(at_ns);
}

#[test]
fn deadlines_pass_in_their_order_whoever_waited_first() {
    set_clock(0);
    let mut world = World::new(800);
    let parties = [3, 5, 1, 4, 2].map(|after: u64| {
        let party = world.party(1);
        wait(&mut world, after * MS);
        (party, after)
    });
    assert_eq!(hardware::deadline(), Some(MS), "for the first of them");
    for now in 1..=5 {
        at(&mut world, now * MS);
        for (party, after) in &parties {
            assert_eq!(party.context.state() == State::Runnable, *after <= now, "{after} ms at {now} ms");
        }
    }
    world.end(parties.map(|(party, _)| party));
}

/// A core that is left to another kernel, or to none, is interrupted by nobody's slice.
#[test]
fn a_timer_that_is_disarmed_is_armed_by_the_next_who_needs_it() {
    set_clock(0);
    let mut world = World::new(600);
    let parties = [world.party(1), world.party(1)];
    assert_eq!(hardware::deadline(), Some(MS), "they take turns");
    world.kernel.scheduler.disarm_timer();
    assert_eq!(hardware::deadline(), None);
    wait(&mut world, 5 * MS);
    assert_eq!(hardware::deadline(), Some(5 * MS));
    world.end(parties);
}

#[test]
fn who_yields_is_last_of_its_equals_and_comes_before_lower_ones() {
    set_clock(0);
    let mut world = World::new(800);
    let low = world.party(0);
    let equals = [world.party(3), world.party(3), world.party(3)];
    for turn in 0..7 {
        assert!(world.runs(&equals[turn % 3]), "turn {turn}");
        yields(&mut world);
    }
    let [one, two, three] = equals;
    for other in [&two, &three] {
        world.kernel.signal(other.context, 1);
    }
    // Alone it goes on.
    for _ in 0..2 {
        wait(&mut world, u64::MAX);
        wait(&mut world, u64::MAX);
    }
    world.end([low, one, two, three]);
}

/// A server that a client notified tells it, and finishes its batch on time of its own if that
/// is as good; a client of a better priority goes on at once.
#[test]
fn who_is_told_by_a_server_of_its_priority_or_a_better_one_waits_for_the_batch() {
    for (server_priority, client_priority, goes_on) in [(3, 3, true), (4, 3, true), (1, 5, false)] {
        set_clock(0);
        let mut world = World::new(800);
        let server = world.party(server_priority);
        wait(&mut world, u64::MAX);
        let client = world.party(client_priority);
        let portal = world.kernel.create(world.ram, |header| Portal::new(header, PortalKind::Mailbox)).unwrap();
        portal.set_callee(Some(server.context));
        client.domain.ensure_slot(&mut world.kernel, PORTAL as usize).unwrap();
        let capability = Capability { object: portal.any(), badge: 8, rights: Rights::ALL };
        client.domain.insert(PORTAL as usize, capability);
        set_clock(100);
        world.runner_calls(Call::PortalCall, [PORTAL, 0, 0, 0, 0, u64::MAX]);
        assert!(world.runs(&server) && client.context.state() == State::Donation(server.context));
        set_clock(300);
        world.kernel.signal(client.context, 1);
        assert!(client.context.state() == State::Runnable, "it was told");
        world.kernel.decide();
        assert_eq!(world.runs(&server), goes_on);
        if goes_on {
            set_clock(700);
            let own = world.used_ns([&server])[0];
            assert!(own >= 400, "on its own time: {own} ns");
            wait(&mut world, u64::MAX);
            assert!(world.runs(&client), "then it is its turn");
        }
        world.end([server, client]);
    }
}

/// A throttled core's timer fires when programs may run again, and when they may not any more.
#[test]
fn a_throttled_core_wakes_for_the_ends_of_its_pauses_only() {
    for eighths in 1..8 {
        set_clock(0);
        let mut world = World::new(512);
        let first = context(world.monitor());
        world.kernel.decide();
        world.runner_calls(Call::PcoreThrottle, [Handle::PCORE.0, eighths, 0, 0, 0, 0]);
        for turn in 0..3 {
            for (from, until) in [(0, eighths), (eighths, 8)] {
                let [from_ns, until_ns] = [from, until].map(|step| (8 * turn + step) * MS);
                // Something interrupts now and then.
                for now_ns in [from_ns, from_ns + MS / 3, until_ns - 1] {
                    set_clock(now_ns);
                    hardware::set_deadline(None);
                    world.kernel.step(Event::Timer);
                    assert_eq!(hardware::deadline(), Some(until_ns), "{eighths} eighths at {now_ns}");
                    assert_eq!(world.kernel.scheduler.current(), (from == 0).then_some(first));
                }
            }
        }
    }
}

/// A decision in the middle of a slice, for whatever reason, changes nothing: not even where the
/// period of a budget ended while others ran.
#[test]
fn who_is_interrupted_goes_on_as_if_it_had_not_been() {
    let used_ns = |is_interrupted: bool| {
        set_clock(0);
        let mut world = World::new(800);
        let bounded = world.party(3);
        world.kernel.scheduler.set_slice(bounded.time, MS * 9 / 10, 10 * MS);
        world.kernel.decide();
        at(&mut world, MS / 2);
        let better = world.party(5);
        at(&mut world, MS * 99 / 10);
        assert!(world.runs(&better));
        wait(&mut world, u64::MAX);
        let mut used = Vec::new();
        for tenth in 100..=250 {
            at(&mut world, tenth * MS / 10);
            if is_interrupted && tenth < 103 {
                world.kernel.scheduler.reschedule();
                world.kernel.decide();
            }
            used.push(world.used_ns([&bounded])[0]);
        }
        world.end([bounded, better]);
        used
    };
    assert_eq!(used_ns(true), used_ns(false));
}

/// A pause of the core changes nothing of whose turn it is.
#[test]
fn who_yields_before_a_pause_has_yielded_after_it() {
    // There is much left of its slice when the core is held.
    set_clock(MS * 7 / 10);
    let mut world = World::new(600);
    let parties = [world.party(3), world.party(3)];
    assert!(world.runs(&parties[0]));
    world.kernel.scheduler.throttle(1);
    world.kernel.decide();
    set_clock(MS);
    yields(&mut world);
    assert!(world.kernel.scheduler.current().is_none(), "the core pauses");
    at(&mut world, 8 * MS);
    assert!(world.runs(&parties[1]));
    world.end(parties);
}

fn join(context: Ptr<Context>, world: &mut World, [period_ns, slice_ns, phase_ns]: [u64; 3]) {
    let window = Some(GangWindow { period_ns, slice_ns, phase_ns });
    world.kernel.scheduler.set_window(context.schedule.get().unwrap(), window);
}

#[test]
fn windows_open_in_their_order_whoever_joined_first() {
    set_clock(0);
    let mut world = World::new(800);
    let parties = [30, 10, 40, 20].map(|phase: u64| {
        let party = world.party(3);
        join(party.context, &mut world, [100 * MS, 5 * MS, phase * MS]);
        (party, phase)
    });
    world.kernel.decide();
    assert_eq!(hardware::deadline().map(|at_ns| at_ns.min(10 * MS)), hardware::deadline(), "not after the first");
    for (now, phase) in [(1, 0), (10, 10), (14, 10), (15, 0), (20, 20), (31, 30), (40, 40), (45, 0), (110, 10)] {
        at(&mut world, now * MS);
        let running = parties.iter().find(|(party, _)| world.runs(party)).map_or(0, |(_, phase)| *phase);
        assert_eq!(running, phase, "at {now} ms");
    }
    world.end(parties.map(|(party, _)| party));
}

/// The window's end is an end of a slice to a member that runs, and nothing to one that runs on
/// another's time or waits.
#[test]
fn a_member_is_told_of_the_end_of_a_window_in_which_it_runs() {
    set_clock(0);
    let mut world = World::new(800);
    let member = world.party(3);
    let better = world.party(5);
    wait(&mut world, 120 * MS);
    // Slices so long that none ends.
    for party in [&member, &better] {
        world.kernel.scheduler.set_slice(party.time, 1000 * MS, 0);
        party.time.refill();
    }
    member.context.proxy.set(Some(Proxy { call_entry: None, upcall_entry: ENTRY, stack_top: 0x30_000 }));
    world.kernel.scheduler.set_preemption_upcalls(member.context, true);
    join(member.context, &mut world, [100 * MS, 10 * MS, 20 * MS]);
    world.kernel.decide();
    let told = || {
        let program = member.context.with_registers(|r| core::mem::replace(&mut r.rip, PROGRAM));
        let inside = member.context.in_proxy();
        member.context.set_in_proxy(0);
        assert_eq!(inside, program == ENTRY);
        inside
    };
    told();
    at(&mut world, 30 * MS - 1);
    assert!(world.runs(&member) && !told());
    at(&mut world, 30 * MS);
    assert!(world.kernel.scheduler.current().is_none() && told(), "it ran until its end");
    // Another of a better priority runs all through its window.
    at(&mut world, 131 * MS);
    assert!(world.runs(&better) && !told());
    // It serves a caller, on whose time it runs while its window closes.
    world.connect(&better, &member);
    wait(&mut world, 225 * MS);
    at(&mut world, 221 * MS);
    assert!(world.runs(&member));
    world.answer(&member, 0);
    at(&mut world, 225 * MS);
    world.ask(&better, 0);
    assert!(world.runs(&member) && world.kernel.scheduler.running_priority() == 5);
    told();
    at(&mut world, 235 * MS);
    assert!(world.runs(&member) && !told(), "it goes on");
    world.end([member, better]);
}

/// It takes no part in the next ones, and no timer fires for them, from the end of the window on in
/// which it fell asleep.
#[test]
fn a_member_that_sleeps_at_the_end_of_its_window_has_no_timer_from_then_on() {
    set_clock(0);
    let mut world = World::new(600);
    let member = world.party(3);
    join(member.context, &mut world, [100 * MS, 10 * MS, 20 * MS]);
    world.kernel.decide();
    at(&mut world, 25 * MS);
    assert!(world.runs(&member));
    wait(&mut world, u64::MAX);
    at(&mut world, 31 * MS);
    assert_eq!(hardware::deadline(), None);
    world.kernel.signal(member.context, 1);
    world.kernel.decide();
    assert_eq!(hardware::deadline(), Some(120 * MS), "for its next window");
    world.end([member]);
}

/// More budgets begin anew at once than one step may handle: nothing runs before all have.
#[test]
fn periods_that_end_together_are_begun_before_anything_runs() {
    const MANY: u64 = WAKES as u64 + 6;
    set_clock(0);
    let mut world = World::new(2000);
    let domain = world.monitor();
    world.kernel.block(context(domain), State::Waiting);
    let threads: Vec<_> = (0..MANY).map(|number| world.thread(domain, number, 3)).collect();
    for thread in &threads {
        world.kernel.scheduler.set_slice(thread.schedule.get().unwrap(), MS / 10, 20 * MS);
    }
    world.kernel.decide();
    at(&mut world, 19 * MS);
    assert!(world.kernel.scheduler.current().is_none(), "all have spent theirs");
    assert_eq!(hardware::deadline(), Some(20 * MS));
    set_clock(20 * MS);
    hardware::set_deadline(None);
    world.kernel.step(Event::Timer);
    let ready = || threads.iter().filter(|thread| thread.schedule.get().unwrap().is_queued()).count();
    assert_eq!(ready(), WAKES as usize, "as many as one step begins");
    assert!(world.kernel.scheduler.current().is_none(), "the rest may be better");
    assert_eq!(hardware::deadline(), Some(20 * MS), "it goes on at once");
    world.kernel.step(Event::Timer);
    assert!(world.kernel.scheduler.current().is_some());
    assert_eq!(ready() as u64, MANY - 1);
}

/// A watched server that serves beyond its callers' deadlines is probed a while after the next one
/// comes, not at once.
#[test]
fn a_caller_that_comes_again_has_its_server_probed_after_a_part_of_a_step() {
    const LIMIT_NS: u64 = 800 * MS;
    set_clock(0);
    let mut world = World::new(800);
    let server = world.party(1);
    world.answer(&server, 0);
    server.context.watch_limit_ns.set(LIMIT_NS);
    let client = world.party(3);
    world.connect(&client, &server);
    // Its first caller gives up.
    world.runner_calls(Call::PortalCall, [PORTAL, 1, 2, 3, 4, MS]);
    assert!(world.runs(&server));
    at(&mut world, MS);
    assert!(world.runs(&client));
    assert!(server.context.watch.is_linked(), "somebody waited for it");
    world.kernel.scheduler.cancel_watch(server.context);
    world.runner_calls(Call::PortalCall, [PORTAL, 1, 2, 3, 4, 500 * MS]);
    let step_ns = LIMIT_NS / 8;
    assert_eq!(server.context.watch_ns.get(), MS + step_ns / 8);
    assert!(step_ns / 8 > PROBE_NS);
    world.end([server, client]);
}
