//! A hang is told from all that looks like one.

use super::World;
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::memory::PAGE_BYTES;
use crate::objects::context::{Options, State};
use crate::objects::group::{PROBE_NS, Turns};
use crate::objects::mapping::PageRun;
use crate::objects::notification::Notification;
use crate::objects::share::Capability;
use crate::objects::{Context, Ptr};
use abi::{Rights, layout};

const LIMIT_NS: u64 = 80_000_000;
/// More looks than a hang survives.
const LOOKS: u64 = 100;
const BADGE: u64 = 2;

/// What happens between two looks.
#[derive(Clone, Copy)]
struct Between {
    cpu_percent: u64,
    new_pages: u64,
    late_ns: u64,
}

/// How many looks it takes until the stall is reported; `None`: it is not.
fn probes_until_reported(between: Between) -> Option<u64> {
    let mut world = World::new(512);
    let (domain, teller) = (world.monitor(), world.monitor());
    let context_of = |slot: &Ptr<crate::objects::Domain>| -> Ptr<Context> {
        slot.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0
    };
    let (context, told) = (context_of(&domain), context_of(&teller));
    let kernel = &mut *world.kernel;
    set_clock(0);
    let doorbell = Capability { object: told.any(), badge: BADGE, rights: Rights::ALL };
    Notification::decode(doorbell).unwrap();
    kernel.keep(&context.watch_target, Some(doorbell), None);
    context.watch_limit_ns.set(LIMIT_NS);
    kernel.signal(context, 1);
    (1..=LOOKS).find(|_| {
        let step_ns = context.watch_ns.get() - hardware::now_ns();
        set_clock(context.watch_ns.get() + between.late_ns);
        domain.cpu_ns.set(domain.cpu_ns.get() + step_ns * between.cpu_percent / 100);
        domain.soft_faults.set(domain.soft_faults.get() + between.new_pages);
        kernel.on_timer();
        told.pending.get() == BADGE
    })
}

/// A limit so short that probes would take the core's time is refused.
#[test]
fn a_limit_has_a_minimum() {
    const MIN_NS: u64 = layout::context::WATCH_LIMIT_MIN_NS;
    set_clock(0);
    let mut world = World::new(512);
    world.monitor();
    world.kernel.decide();
    for limit_ns in [1, 8, 1_000_000, MIN_NS - 1] {
        let refused = super::time::refusal(abi::Error::BadArgument);
        assert_eq!(world.runner_calls(abi::Call::ContextWatch, [4, limit_ns, 4, 0, 0, 0]).0, refused, "{limit_ns}");
    }
    for limit_ns in [MIN_NS, u64::MAX, 0] {
        assert_eq!(world.runner_calls(abi::Call::ContextWatch, [4, limit_ns, 4, 0, 0, 0]).0, 0, "{limit_ns}");
    }
}

/// A watchdog's beat has bits pending at what goes on, or waits for something else, and leaves
/// alone what is at rest.
#[test]
fn who_is_at_rest_is_not_beaten() {
    const CONTEXT: u64 = 20;
    let mut world = World::new(512);
    let (beaten, beater) = (world.monitor(), world.outsider());
    let context = beaten.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0;
    world.give(beater, CONTEXT as usize, context.any());
    let alloc = [abi::Handle::ROOT_RAM.0, CONTEXT, BADGE, layout::portal::MAILBOX];
    let portal = world.make(beater, abi::Call::PortalAlloc, &alloc);
    for (state, pending) in [(State::Waiting, 0), (State::Accepting, BADGE), (State::Waiting, 0)] {
        world.kernel.block(context, state);
        world.make(beater, abi::Call::NotifyBusy, &[portal]);
        assert_eq!((context.pending.replace(0), context.state() == state), (pending, true));
        world.kernel.complete(context, Ok([0; 3]));
    }
    world.make(beater, abi::Call::NotifyBusy, &[portal]);
    assert_eq!(context.pending.get(), BADGE, "it can run");
    world.make(beater, abi::Call::NotifyBusy, &[CONTEXT]);
    assert_eq!(context.pending.get(), BADGE | 1, "by its own capability too");
}

#[test]
fn what_goes_in_circles_is_reported_and_nothing_else() {
    let hang = Between { cpu_percent: 100, new_pages: 0, late_ns: 0 };
    assert_eq!(probes_until_reported(hang), Some(8));
    assert_eq!(probes_until_reported(Between { cpu_percent: 30, ..hang }), Some(8));
    // It had no time.
    assert_eq!(probes_until_reported(Between { cpu_percent: 0, ..hang }), None);
    // It has a small budget, or a small share: what it has adds up.
    assert_eq!(probes_until_reported(Between { cpu_percent: 10, ..hang }), Some(24));
    assert_eq!(probes_until_reported(Between { cpu_percent: 10, new_pages: 1, ..hang }), None);
    assert_eq!(probes_until_reported(Between { cpu_percent: 10, late_ns: LIMIT_NS, ..hang }), None);
    // It gets on.
    assert_eq!(probes_until_reported(Between { new_pages: 1, ..hang }), None);
    // The core did not run; a probe that is late by half a step still tells.
    assert_eq!(probes_until_reported(Between { late_ns: LIMIT_NS, ..hang }), None);
    assert_eq!(probes_until_reported(Between { late_ns: LIMIT_NS / 16 + 1, ..hang }), None);
    assert_eq!(probes_until_reported(Between { late_ns: LIMIT_NS / 16, ..hang }), Some(8));
}

/// Only the first domain of a core ends for a hang that nobody is told of.
#[test]
fn a_hang_that_nobody_is_told_of_ends_no_other_domain() {
    set_clock(0);
    let mut world = World::new(512);
    let [first, other] = [world.monitor(), world.monitor()];
    world.kernel.first = Some(first);
    let context = super::time::context(other);
    context.watch_limit_ns.set(LIMIT_NS);
    world.kernel.signal(context, 1);
    while context.watch.is_linked() {
        other.cpu_ns.set(other.cpu_ns.get() + context.watch_ns.get() - hardware::now_ns());
        set_clock(context.watch_ns.get());
        world.kernel.on_timer();
    }
    assert_eq!(context.watch_left.get().0, 0);
    assert!(first.is_alive() && other.is_alive());
    world.kernel.first = None;
}

/// A component that waits in the kernel for something else than its bits, a semaphore that nobody
/// raises, does not come to see to them. It uses no time, so its core need only run.
#[test]
fn what_waits_for_something_else_for_ever_is_reported() {
    let mut world = World::new(512);
    let (domain, teller) = (world.monitor(), world.monitor());
    let context_of = |domain: &Ptr<crate::objects::Domain>| -> Ptr<Context> {
        domain.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0
    };
    let (context, told) = (context_of(&domain), context_of(&teller));
    let kernel = &mut *world.kernel;
    set_clock(0);
    kernel.keep(
        &context.watch_target,
        Some(Capability { object: told.any(), badge: BADGE, rights: Rights::ALL }),
        None,
    );
    context.watch_limit_ns.set(LIMIT_NS);
    kernel.block(context, State::Accepting);
    let look = |kernel: &mut crate::state::Kernel, late_ns: u64| {
        set_clock(context.watch_ns.get() + late_ns);
        kernel.on_timer();
    };
    kernel.on_timer();
    assert!(!context.watch.is_linked(), "nothing is pending for it");
    kernel.signal(context, 1);
    // While the core itself is held up nobody can tell.
    (0..LOOKS).for_each(|_| look(kernel, LIMIT_NS));
    assert_eq!(told.pending.get(), 0);
    (0..7).for_each(|_| look(kernel, 0));
    assert_eq!(told.pending.get(), 0);
    look(kernel, 0);
    assert_eq!(told.pending.get(), BADGE);
    kernel.unblock(context);
}

/// A component without time of its own that has taken its bits and goes in circles on what another
/// donates it: what hangs is found behind who donates, one look later.
#[test]
fn who_lends_to_what_hangs_has_it_found() {
    const DONOR_BIT: u64 = 8;
    let mut world = World::new(512);
    let (hung, donor, teller) = (world.monitor(), world.monitor(), world.monitor());
    let context_of = |domain: &Ptr<crate::objects::Domain>| -> Ptr<Context> {
        domain.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0
    };
    let (callee, caller, told) = (context_of(&hung), context_of(&donor), context_of(&teller));
    let kernel = &mut *world.kernel;
    set_clock(0);
    for (context, badge) in [(callee, BADGE), (caller, DONOR_BIT)] {
        kernel.keep(&context.watch_target, Some(Capability { object: told.any(), badge, rights: Rights::ALL }), None);
        context.watch_limit_ns.set(LIMIT_NS);
    }
    callee.schedule.set(None);
    kernel.call_mailbox(caller, callee, 1);
    assert!(caller.state() == State::Donation(callee));
    // It takes its bits, as `Wait` does, and does not come back.
    kernel.scheduler.cancel_watch(callee);
    assert_eq!(callee.pending.replace(0), 1);
    kernel.signal(caller, 1);
    let mut looks = 0;
    while told.pending.get() == 0 && looks < 2 * LOOKS {
        let next_ns = [caller, callee]
            .iter()
            .filter(|context| context.watch.is_linked())
            .map(|context| context.watch_ns.get())
            .min();
        let Some(next_ns) = next_ns else { break };
        hung.cpu_ns.set(hung.cpu_ns.get() + next_ns - hardware::now_ns());
        set_clock(next_ns);
        kernel.on_timer();
        looks += 1;
    }
    assert_eq!(told.pending.replace(0), BADGE, "after {looks} looks");
    assert_eq!(hardware::now_ns(), LIMIT_NS / 8 * 9);
    // The donation ends, and with it the looks at who has nothing pending.
    kernel.release_donors(callee);
    caller.pending.set(0);
    set_clock(4 * LIMIT_NS);
    kernel.on_timer();
    assert!(!callee.watch.is_linked() && !caller.watch.is_linked());
    assert_eq!(told.pending.get(), 0);
}

/// A program has 2,000 contexts watched that never take what they were notified of: their probes
/// are bounded, each has its turn, and the hang of another program is found as if it were alone.
#[test]
fn many_watched_contexts_share_the_probes_of_one_program() {
    const COUNT: u64 = 2_000;
    const LIMIT_NS: u64 = layout::context::WATCH_LIMIT_MIN_NS;
    const FOR_NS: u64 = 4_000_000_000;
    set_clock(0);
    let mut world = World::new(16_000);
    let root = world.ram;
    let accounts = [Turns::Own, Turns::Own, Turns::Own].map(|turns| world.account(root, turns));
    let homes = accounts.map(|ram| world.home(ram));
    let [hung, told] = [1, 2].map(|home| world.busy(homes[home], 0, 1, 1_000_000));
    let kernel = &mut *world.kernel;
    kernel.block(told, State::Accepting);
    let watch = |kernel: &mut crate::state::Kernel, context: Ptr<Context>, badge: u64| {
        let target = Capability { object: told.any(), badge, rights: Rights::ALL };
        kernel.keep(&context.watch_target, Some(target), None);
        context.watch_limit_ns.set(LIMIT_NS);
        kernel.signal(context, 1);
    };
    let mut many = Vec::new();
    for number in 0..COUNT {
        let place = PageRun { start: layout::REGIONS + number * PAGE_BYTES as u64, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: 0 };
        let context = Ptr::<Context>::create(kernel, homes[0].ram(), homes[0], place, options).unwrap();
        watch(kernel, context, 1);
        many.push((context, context.watch_ns.get(), 0));
    }
    watch(kernel, hung, BADGE);
    let mut found_ns = 0;
    while hardware::now_ns() < FOR_NS {
        kernel.step(Event::Timer);
        for (context, at_ns, probes) in &mut many {
            *probes += u64::from(core::mem::replace(at_ns, context.watch_ns.get()) != context.watch_ns.get());
        }
        if found_ns == 0 && told.pending.get() == BADGE {
            found_ns = hardware::now_ns();
        }
        set_clock(hardware::deadline().unwrap().clamp(hardware::now_ns(), FOR_NS));
    }
    assert_eq!(found_ns, LIMIT_NS, "the other program's hang was found late or not at all");
    let probes: u64 = many.iter().map(|(.., probes)| probes).sum();
    assert!((FOR_NS / PROBE_NS..=FOR_NS / PROBE_NS + COUNT).contains(&probes), "{probes} probes");
    assert!(many.iter().all(|(.., probes)| (2..=3).contains(probes)), "some were probed more often than others");
    assert_eq!(told.pending.get(), BADGE, "a context that was not started does not hang");
    world.end_homes(&homes, &accounts);
}

/// Four domains, and the context of each: a watched server without time of its own that waits for a
/// caller, two callers, and whom its watchdog notifies.
fn watched_server(world: &mut World) -> ([Ptr<crate::objects::Domain>; 4], [Ptr<Context>; 4]) {
    let domains: [_; 4] = core::array::from_fn(|_| world.monitor());
    let contexts = domains.map(|domain| domain.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0);
    let [server, _, _, told] = contexts;
    set_clock(0);
    let doorbell = Capability { object: told.any(), badge: BADGE, rights: Rights::ALL };
    world.kernel.keep(&server.watch_target, Some(doorbell), None);
    server.watch_limit_ns.set(LIMIT_NS);
    server.schedule.set(None);
    world.kernel.block(server, State::Accepting);
    (domains, contexts)
}

/// A server without time of its own that serves beyond its caller's deadline goes in circles on the
/// time of those who come after. One that comes for the next call, however late, is not reported.
#[test]
fn who_serves_beyond_its_callers_deadlines_is_reported() {
    for comes_back in [false, true] {
        let mut world = World::new(512);
        let (domains, [server, first, next, told]) = watched_server(&mut world);
        let kernel = &mut *world.kernel;
        const DEADLINE_NS: u64 = LIMIT_NS;
        kernel.call_rendezvous(first, server, 0, DEADLINE_NS);
        assert!(!server.watch.is_linked(), "nobody waits longer than it wants to");
        set_clock(DEADLINE_NS);
        kernel.on_timer();
        assert!(first.state() == State::Runnable && server.watch.is_linked());
        // One look is enough, as nobody waits for it.
        set_clock(server.watch_ns.get());
        kernel.on_timer();
        assert!(!server.watch.is_linked());
        kernel.call_rendezvous(next, server, 0, u64::MAX);
        let mut looks = 0;
        while server.watch.is_linked() && told.pending.get() == 0 && looks < LOOKS {
            if comes_back && looks == 5 {
                kernel.reply(server);
                assert!(!server.watch.is_linked() && kernel.accept_next(server));
                break;
            }
            domains[0].cpu_ns.set(domains[0].cpu_ns.get() + server.watch_ns.get() - crate::hardware::now_ns());
            set_clock(server.watch_ns.get());
            kernel.on_timer();
            looks += 1;
        }
        assert_eq!((told.pending.replace(0), looks), if comes_back { (0, 5) } else { (BADGE, 9) });
        let death = crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0);
        kernel.kill(domains[0], death);
    }
}

/// Callers who give up and come again, and of whom none is there at any probe, cannot hide a hang.
#[test]
fn a_hang_is_reported_though_nobody_waits_all_the_time() {
    const STEP_NS: u64 = LIMIT_NS / 8;
    for (waits_ns, apart_ns) in
        [(STEP_NS * 4 / 5, STEP_NS / 3), (STEP_NS * 4 / 5, STEP_NS / 12), (STEP_NS / 4, STEP_NS)]
    {
        let mut world = World::new(512);
        let (domains, [server, first, next, told]) = watched_server(&mut world);
        let kernel = &mut *world.kernel;
        kernel.call_rendezvous(first, server, 0, STEP_NS);
        let run = |kernel: &mut crate::state::Kernel, until_ns: u64| {
            while server.watch.is_linked() && server.watch_ns.get() < until_ns {
                set_clock(server.watch_ns.get());
                kernel.on_timer();
            }
            set_clock(until_ns);
            kernel.on_timer();
        };
        run(kernel, STEP_NS);
        assert!(first.state() == State::Runnable);
        let tries = (1..=LOOKS).find(|_| {
            let now_ns = hardware::now_ns() + apart_ns;
            run(kernel, now_ns);
            kernel.call_rendezvous(next, server, 0, now_ns + waits_ns);
            // What it is given while somebody waits.
            domains[0].cpu_ns.set(domains[0].cpu_ns.get() + waits_ns);
            run(kernel, now_ns + waits_ns);
            assert!(next.state() == State::Runnable);
            told.pending.get() == BADGE
        });
        assert!(tries.is_some_and(|tries| tries <= 40), "{waits_ns} of {apart_ns}: {tries:?}");
        let death = crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0);
        kernel.kill(domains[0], death);
    }
}

/// Those who stand in line already when a caller gives up wait for what serves beyond its deadline.
#[test]
fn who_stands_in_line_behind_a_late_server_has_it_watched() {
    let mut world = World::new(512);
    let domains: [_; 3] = core::array::from_fn(|_| world.monitor());
    let [server, first, next] =
        domains.map(|domain| domain.share().find::<Context>(abi::Handle(4), Rights(0)).unwrap().0);
    let kernel = &mut *world.kernel;
    set_clock(0);
    server.watch_limit_ns.set(LIMIT_NS);
    server.schedule.set(None);
    kernel.block(server, State::Accepting);
    kernel.call_rendezvous(first, server, 0, LIMIT_NS);
    kernel.call_rendezvous(next, server, 0, u64::MAX);
    assert!(!server.watch.is_linked(), "it is not late");
    set_clock(LIMIT_NS);
    kernel.on_timer();
    assert!(server.watch.is_linked());
    let death = crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0);
    kernel.kill(domains[0], death);
}
