//! Gangs: windows on one core, and on four cores whose interrupts come late.

use super::revoke::STEP_WORK_MAX;
use super::time::{context, refusal};
use super::{Random, World};
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::memory::PAGE_BYTES;
use crate::objects::Domain;
use crate::objects::context::{Options, State};
use crate::objects::domain::Death;
use crate::objects::mapping::PageRun;
use crate::objects::share::Capability;
use crate::objects::{Context, Ptr, Schedule};
use crate::scheduler::{GangWindow, MEMBERS_MAX};
use abi::{Call, DeathCause, Error, Handle, Rights, layout};

const US: u64 = 1000;
const PERIOD_US: u64 = 10_000;
const SLICE_US: u64 = 2000;
const PHASE_US: u64 = 3000;
const WINDOW: GangWindow = GangWindow { period_ns: PERIOD_US * US, slice_ns: SLICE_US * US, phase_ns: PHASE_US * US };
/// Where the first capability of a program's time is.
const TIMES: usize = 20;
const PAGES: u64 = 512;

/// A core whose first context, of priority 7, waits; further ones of the same domain are those of
/// the test.
struct Core {
    world: World,
    domain: Ptr<Domain>,
    first: Ptr<Context>,
    programs: Vec<Ptr<Context>>,
}

impl Core {
    fn new(mut world: World) -> Core {
        let domain = world.monitor();
        world.kernel.decide();
        Core { world, domain, first: context(domain), programs: Vec::new() }
    }

    fn alone() -> Core {
        set_clock(0);
        Core::new(World::new(PAGES))
    }

    /// A started context with time of that priority.
    fn program(&mut self, priority: usize) -> Ptr<Context> {
        let (kernel, ram) = (&mut *self.world.kernel, self.world.ram);
        let number = self.programs.len();
        let place = PageRun { start: layout::REGIONS + (number * PAGE_BYTES) as u64, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: priority };
        let context = Ptr::<Context>::create(kernel, ram, self.domain, place, options).unwrap();
        let schedule = kernel.create(ram, |header| Schedule::new(header, context, priority, 1_000_000)).unwrap();
        context.schedule.set(Some(schedule));
        kernel.retain(schedule);
        self.domain.ensure_slot(kernel, TIMES + number).unwrap();
        let capability = Capability { object: schedule.any(), badge: 0, rights: Rights::ALL };
        self.domain.insert(TIMES + number, capability);
        self.programs.push(context);
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        // The domain keeps it.
        kernel.release(context);
        kernel.decide();
        context
    }

    /// All ends, whatever window it stands in, and nothing is left.
    fn end(mut self) {
        let kernel = &mut *self.world.kernel;
        kernel.kill(self.domain, Death::by_call(DeathCause::Killed, 0));
        kernel.release(self.domain);
        self.world.assert_empty();
    }

    /// The first context makes `program` a member by the call, and waits again.
    fn join(&mut self, program: Ptr<Context>, times: [u64; 3]) -> u64 {
        let number = self.programs.iter().position(|made| *made == program).unwrap();
        self.wake(self.first);
        let [period, slice, phase] = times;
        let words = [Handle::PCORE.0, (TIMES + number) as u64, period, slice, phase, 0];
        let (status, _) = self.world.runner_calls(Call::ScheduleGang, words);
        self.sleep();
        status
    }

    /// Whoever runs waits until it is woken.
    fn sleep(&mut self) {
        self.world.runner_calls(Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    }

    fn wake(&mut self, context: Ptr<Context>) {
        if context.state() != State::Runnable {
            self.world.kernel.signal(context, 1);
        }
        self.world.kernel.decide();
    }

    fn runs(&self) -> Option<Ptr<Context>> {
        self.world.kernel.scheduler.current()
    }

    /// Advances the clock to `at_us`; the timer fires if it was armed for then or before.
    fn at(&mut self, at_us: u64) -> Option<Ptr<Context>> {
        while let Some(timer_ns) = hardware::deadline().filter(|timer_ns| *timer_ns <= at_us * US) {
            set_clock(timer_ns.max(hardware::now_ns()));
            hardware::set_deadline(None);
            self.world.kernel.step(Event::Timer);
        }
        set_clock(at_us * US);
        self.runs()
    }
}

/// Windows are compared with all others of their core in one step.
#[test]
fn a_core_has_so_many_members_at_most() {
    let mut core = Core::new({
        set_clock(0);
        World::new(2 * PAGES)
    });
    let window = |number: usize| [PERIOD_US, 100, 100 * number as u64];
    for number in 0..=MEMBERS_MAX {
        let member = core.program(1);
        hardware::take_work();
        let status = core.join(member, window(number));
        assert!(hardware::take_work() <= STEP_WORK_MAX);
        let expected = if number < MEMBERS_MAX { 0 } else { refusal(Error::Busy) };
        assert_eq!(status, expected, "member {number}");
    }
    // Each may have other windows, and makes room by having none.
    let (one, late) = (core.programs[3], core.programs[MEMBERS_MAX]);
    assert_eq!(core.join(one, window(MEMBERS_MAX)), 0);
    assert_eq!(core.join(one, [0; 3]), 0);
    assert_eq!(core.join(late, window(3)), 0);
    core.end();
}

#[test]
fn windows_follow_from_the_clock_alone() {
    for (now_us, expected) in [
        (0, (false, 3000)),
        (2999, (false, 3000)),
        (3000, (true, 5000)),
        (4999, (true, 5000)),
        (5000, (false, 13_000)),
        (12_999, (false, 13_000)),
        (13_000, (true, 15_000)),
    ] {
        let (is_open, next_ns) = WINDOW.at(now_us * US);
        assert_eq!((is_open, next_ns / US), expected, "at {now_us} us");
    }
    let always = GangWindow { period_ns: 7, slice_ns: 7, phase_ns: 3 };
    for now_ns in 0..30 {
        let (is_open, next_ns) = always.at(now_ns);
        assert!(is_open && next_ns > now_ns && next_ns <= now_ns + 7);
    }
}

#[test]
fn a_member_runs_in_its_windows_and_nowhere_else() {
    let mut core = Core::alone();
    core.sleep();
    let (member, equal) = (core.program(3), core.program(3));
    assert_eq!(core.join(member, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    for round in 0..5 {
        let begin = round * PERIOD_US;
        for (at_us, is_member) in [(0, false), (2999, false), (3000, true), (4999, true), (5000, false), (9999, false)]
        {
            let expected = if is_member { member } else { equal };
            assert!(core.at(begin + at_us) == Some(expected), "at {at_us} us of round {round}");
        }
    }
    // Exactly its share, and the other the rest.
    let used = |context: Ptr<Context>| context.schedule.get().unwrap().used_ns();
    core.at(5 * PERIOD_US);
    core.world.kernel.update_accounting();
    assert_eq!(used(member), 5 * SLICE_US * US);
    // Free again, it takes turns with its equal.
    assert_eq!(core.join(member, [0; 3]), 0);
    let before = used(member);
    core.at(7 * PERIOD_US);
    core.world.kernel.update_accounting();
    let share = used(member) - before;
    assert!(share.abs_diff(PERIOD_US * US) <= 1_000_000, "{share} ns of two periods");
    core.end();
}

#[test]
fn higher_priorities_come_first_and_lower_ones_get_what_is_left() {
    let mut core = Core::alone();
    core.sleep();
    let (member, high, low) = (core.program(3), core.program(4), core.program(1));
    assert!(core.runs() == Some(high));
    core.sleep();
    assert_eq!(core.join(member, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    assert!(core.at(2999) == Some(low));
    assert!(core.at(3000) == Some(member));
    core.wake(high);
    assert!(core.at(3500) == Some(high), "a window is no better priority");
    core.sleep();
    assert!(core.at(4000) == Some(member));
    // It waits in its window: that is for others, and so is the next if it sleeps that long.
    core.sleep();
    assert!(core.at(4100) == Some(low));
    core.wake(member);
    assert!(core.at(4200) == Some(member), "there is something left of the window");
    core.sleep();
    assert!(core.at(14_000) == Some(low));
    core.wake(member);
    assert!(core.at(14_001) == Some(member), "it wakes in a later window");
    core.sleep();
    assert!(core.at(16_000) == Some(low));
    core.wake(member);
    assert!(core.at(16_001) == Some(low), "it wakes between two windows");
    assert!(core.at(23_000) == Some(member));
    core.end();
}

#[test]
fn a_gang_that_sleeps_arms_no_timer() {
    let mut core = Core::alone();
    core.sleep();
    let member = core.program(3);
    assert_eq!(core.join(member, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    assert!(core.at(3000) == Some(member));
    core.sleep();
    core.at(5 * PERIOD_US);
    assert!(core.runs().is_none());
    assert_eq!(hardware::deadline(), None);
    // And one that would run has one, while its core idles.
    core.wake(member);
    assert!(core.runs().is_none());
    assert_eq!(hardware::deadline(), Some((5 * PERIOD_US + PHASE_US) * US));
    core.end();
}

#[test]
fn others_lend_a_member_their_time_outside_its_windows() {
    let mut core = Core::alone();
    let portal =
        core.world.runner_calls(Call::PortalAlloc, [Handle::ROOT_RAM.0, 4, 0, layout::portal::RENDEZVOUS, 0, 0]);
    assert_eq!(portal.0, 0);
    // The first context serves, and is a member itself.
    let caller = core.program(3);
    let schedule = core.first.schedule.get().unwrap();
    core.world.kernel.scheduler.set_window(schedule, Some(WINDOW));
    core.world.kernel.decide();
    assert!(core.runs() == Some(caller), "its window is to come");
    core.at(3000);
    assert!(core.runs() == Some(core.first));
    core.world.runner_calls(Call::PortalReplyWait, [0, 0, 0, u64::MAX, 0, 0]);
    assert!(core.at(6000) == Some(caller));
    core.world.runner_calls(Call::PortalCall, [portal.1, 0, 0, 0, 0, u64::MAX]);
    assert!(core.runs() == Some(core.first), "on its caller's time");
    core.end();
}

#[test]
fn wrong_windows_are_refused() {
    let mut core = Core::alone();
    core.sleep();
    let member = core.program(3);
    let longest = 60_000_000;
    for wrong in [
        [1000, 99, 0],
        [1000, 1001, 0],
        [1000, 500, 1000],
        [longest + 1, 500, 0],
        [2_000_000, 1_000_001, 0],
        [0, 500, 0],
        [0, 0, 1],
        [u64::MAX, u64::MAX, 0],
    ] {
        assert_eq!(core.join(member, wrong), refusal(Error::BadArgument), "{wrong:?}");
    }
    assert_eq!(core.join(member, [longest, 1_000_000, longest - 1]), 0);
    assert_eq!(core.join(member, [100, 100, 99]), 0);
    // Time whose context ended; it stood in a window when that happened.
    core.world.kernel.retain(member);
    core.world.kernel.end_context(member);
    assert_eq!(core.join(member, [1000, 500, 0]), refusal(Error::PeerDead));
    core.world.kernel.release(member);
    core.end();
}

/// Two sets of windows fit exactly if they are never open at once, tried over all of the time until
/// they repeat.
#[test]
fn windows_fit_if_they_never_meet() {
    let mut fits = [0; 2];
    let all = || {
        (1..=6)
            .flat_map(|period| (1..=period).flat_map(move |slice| (0..period).map(move |phase| [period, slice, phase])))
    };
    let window = |[period, slice, phase]: [u64; 3]| {
        let [period_ns, slice_ns, phase_ns] = [period, slice, phase].map(|time| time * US);
        GangWindow { period_ns, slice_ns, phase_ns }
    };
    for (one, other) in all().flat_map(|one| all().map(move |other| (window(one), window(other)))) {
        let meet =
            (0..one.period_ns * other.period_ns / US).step_by(US as usize).any(|at| one.at(at).0 && other.at(at).0);
        assert_eq!(one.is_clear_of(other), !meet, "{one:?} and {other:?}");
        fits[usize::from(meet)] += 1;
    }
    assert!(fits.iter().all(|count| *count > 100), "{fits:?} pairs that fit and that do not");
}

#[test]
fn windows_that_do_not_fit_are_refused_and_nothing_changes() {
    let mut core = Core::alone();
    core.sleep();
    let (member, second, third) = (core.program(3), core.program(5), core.program(1));
    core.sleep();
    assert_eq!(core.join(member, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    let busy = refusal(Error::Busy);
    for wrong in [
        // The same time, one that begins in it, one that ends in it, one around it.
        [PERIOD_US, SLICE_US, PHASE_US],
        [PERIOD_US, 100, PHASE_US + SLICE_US - 1],
        [PERIOD_US, 1000, PHASE_US - 999],
        [PERIOD_US, 4000, PHASE_US - 1000],
        // More than is left of the period.
        [PERIOD_US, PERIOD_US - SLICE_US + 1, PHASE_US + SLICE_US],
        [1000, 100, 0],
        // They meet at some time, late.
        [PERIOD_US + 1, 100, 0],
        [7919, 100, 0],
    ] {
        assert_eq!(core.join(second, wrong), busy, "{wrong:?}");
    }
    // It runs as before: at any time; and the member where it did.
    core.wake(second);
    assert!(core.at(3000) == Some(second), "of a higher priority and no member");
    core.sleep();
    assert!(core.at(3100) == Some(member));
    // What is left of the period, whole, is to be had, by whatever priority; then there is nothing
    // more.
    assert_eq!(core.join(second, [PERIOD_US, PERIOD_US - SLICE_US, PHASE_US + SLICE_US]), 0);
    assert_eq!(core.join(third, [60_000_000, 100, 0]), busy);
    // A refused change leaves the windows that it has; one that only others' windows forbid is
    // judged without its own.
    assert_eq!(core.join(second, [PERIOD_US, PERIOD_US, 0]), busy);
    assert_eq!(core.join(second, [PERIOD_US, 1000, PHASE_US + SLICE_US + 500]), 0);
    assert_eq!(core.join(third, [PERIOD_US, 1000, 0]), 0);
    assert_eq!(core.join(third, [PERIOD_US, 1000, PHASE_US + SLICE_US + 1000]), busy);
    for (at_us, expected) in [(10_500, third), (13_500, member), (16_000, second), (20_500, third)] {
        core.wake(second);
        assert!(core.at(at_us) == Some(expected), "at {at_us} us");
    }
    // Room comes back from who sleeps only when it leaves, and from who ends.
    assert_eq!(core.join(member, [0; 3]), 0);
    assert_eq!(core.join(third, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    core.world.kernel.end_context(third);
    assert_eq!(core.join(member, [PERIOD_US, SLICE_US, PHASE_US]), 0);
    core.end();
}

/// One of several cores, with its timer.
struct Member {
    core: Core,
    context: Ptr<Context>,
    timer_ns: Option<u64>,
    /// When it began to run, per window.
    starts_ns: Vec<u64>,
}

impl Member {
    /// Has the kernel handle an event at that time, which may arm its timer anew.
    fn step(&mut self, at_ns: u64) {
        set_clock(at_ns);
        hardware::set_deadline(self.timer_ns);
        let ran = self.core.runs() == Some(self.context);
        self.core.world.kernel.step(Event::Timer);
        self.timer_ns = hardware::deadline();
        if !ran && self.core.runs() == Some(self.context) {
            self.starts_ns.push(at_ns);
        }
        // No time of its equals between its windows is its own.
        let (is_open, _) = WINDOW.at(at_ns);
        assert_eq!(self.core.runs() == Some(self.context), is_open, "at {at_ns} ns");
    }
}

/// Four kernels that know nothing of each other, with interrupts of devices at any time and timers
/// that come late by up to `LATE_NS`.
#[test]
fn a_gang_of_four_starts_together() {
    const CORES: usize = 4;
    const WINDOWS: usize = 200;
    const LATE_NS: u64 = 30_000;
    let mut memory = vec![0u128; (CORES * PAGES as usize + 2) * PAGE_BYTES / 16];
    let offset = memory.as_ptr().cast::<u8>().align_offset(PAGE_BYTES);
    crate::memory::set_test_ram(memory.as_mut_ptr().cast::<u8>().wrapping_add(offset));
    set_clock(0);
    let mut random = Random::new(39);
    let mut members: Vec<Member> = (0..CORES)
        .map(|number| {
            hardware::set_deadline(None);
            let mut core = Core::new(World::of_core(number, 1 + number as u64 * PAGES, PAGES));
            core.sleep();
            let context = core.program(3);
            core.program(3);
            let window = Some(WINDOW);
            core.world.kernel.scheduler.set_window(context.schedule.get().unwrap(), window);
            core.world.kernel.decide();
            Member { core, context, timer_ns: hardware::deadline(), starts_ns: Vec::new() }
        })
        .collect();
    let mut now_ns = 0;
    while members.iter().any(|member| member.starts_ns.len() < WINDOWS) {
        now_ns += random.below(LATE_NS);
        for member in &mut members {
            // Alarms since the last look come now; or something else interrupts.
            let is_due = member.timer_ns.is_some_and(|timer_ns| timer_ns <= now_ns);
            if is_due {
                member.timer_ns = None;
            }
            if is_due || random.below(8) == 0 {
                member.step(now_ns);
            }
        }
    }
    for window in 0..WINDOWS {
        let starts: Vec<u64> = members.iter().map(|member| member.starts_ns[window]).collect();
        let begin_ns = window as u64 * WINDOW.period_ns + WINDOW.phase_ns;
        let skew_ns = starts.iter().max().unwrap() - starts.iter().min().unwrap();
        assert!(starts.iter().all(|start_ns| (begin_ns..begin_ns + LATE_NS).contains(start_ns)), "{starts:?}");
        assert!(skew_ns < LATE_NS, "window {window}: skew of {skew_ns} ns");
    }
    members.into_iter().for_each(|member| member.core.end());
}
