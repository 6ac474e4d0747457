//! Gangs: time that runs in windows of the clock, on one core, on two that see each other run, and
//! on all.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::{Error, Handle, Rights};
use runtime::Companion;

use crate::table::Words;
use crate::{Failure, Fixture, Outcome, Partner, refused, require, suite, turns};

suite!("gang"; alone: a_member_waits_for_its_window, windows_are_kept_to_the_clock, wrong_windows_are_refused,
    windows_that_do_not_fit_are_refused, members_of_all_cores_start_together;
    paired: members_run_together; far: take_part);

const PRIORITY: u64 = 1;
const SECOND_US: u64 = 1_000_000;
const MS_NS: u64 = 1_000_000;
/// From one window to the next for who is to wait; half of it from the call on.
const FAR_US: u64 = 10_000_000;
/// The shared word that a member counts up, and the one that says that the first saw the second.
const BEAT: u64 = 0;
const SEEN: u64 = 1;

fn time(companion: &Companion) -> Result<Handle, Failure> {
    companion.time().ok_or_else(|| Failure::new("without time"))
}

const COUNTED_AT_ONCE: u64 = 100;

extern "C" fn count(number: u64) -> ! {
    // SAFETY: the address of a number of the test, which outlives this context.
    let number = unsafe { &*(number as *const AtomicU64) };
    loop {
        for _ in 0..COUNTED_AT_ONCE {
            number.fetch_add(1, Ordering::Relaxed);
        }
        // The next core's turn, where one thread of an emulator runs all.
        core::hint::spin_loop();
    }
}

fn a_member_waits_for_its_window(fixture: &Fixture) -> Outcome {
    let (pcore, number) = (fixture.pcore()?, AtomicU64::new(0));
    // SAFETY: it counts. Of a lower priority than ours, so it has not run when it becomes a member.
    let member = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let time = time(&member)?;
    let phase_us = (runtime::now_ns() / 1000 + FAR_US / 2) % FAR_US;
    let open_ns = runtime::now_ns() + FAR_US / 2 * 1000 - MS_NS;
    sys::schedule_gang(pcore, time, FAR_US, 100, phase_us)?;
    let before = number.load(Ordering::Relaxed);
    for _ in 0..10 {
        fixture.wait_for(0, fixture.soon_ns())?;
        let counted = number.load(Ordering::Relaxed) - before;
        // A host that held us up until the window came proves nothing.
        require!(counted == 0 || runtime::now_ns() >= open_ns, "it counted to {counted} before its window");
    }
    // One that is always open.
    sys::schedule_gang(pcore, time, SECOND_US, SECOND_US, 0)?;
    fixture.until("a member runs in its window", || number.load(Ordering::Relaxed) > before)?;
    // And none.
    sys::schedule_gang(pcore, time, FAR_US, 100, phase_us)?;
    sys::schedule_gang(pcore, time, 0, 0, 0)?;
    let before = number.load(Ordering::Relaxed);
    fixture.until("one that left its gang runs", || number.load(Ordering::Relaxed) > before)
}

const WINDOWS: usize = 20;
/// Longer than what interrupts a stretch, shorter than what is between two windows.
const GAP_NS: u64 = 500_000;

/// When a member ran: where stretches began and ended.
struct Stretches {
    found: AtomicU64,
    begins_ns: [AtomicU64; WINDOWS + 1],
    ends_ns: [AtomicU64; WINDOWS + 1],
}

static STRETCHES: Stretches = Stretches {
    found: AtomicU64::new(0),
    begins_ns: [const { AtomicU64::new(0) }; WINDOWS + 1],
    ends_ns: [const { AtomicU64::new(0) }; WINDOWS + 1],
};

extern "C" fn note_stretches(_: u64) -> ! {
    let mut last_ns = 0;
    loop {
        let now_ns = runtime::now_ns();
        if now_ns - last_ns >= GAP_NS {
            let number = STRETCHES.found.load(Ordering::Relaxed) as usize;
            if let Some(end) = STRETCHES.ends_ns.get(number.wrapping_sub(1)) {
                end.store(last_ns, Ordering::Relaxed);
            }
            if let Some(begin) = STRETCHES.begins_ns.get(number) {
                begin.store(now_ns, Ordering::Relaxed);
                STRETCHES.found.store(number as u64 + 1, Ordering::Release);
            }
        }
        last_ns = now_ns;
    }
}

fn windows_are_kept_to_the_clock(fixture: &Fixture) -> Outcome {
    const PERIOD_US: u64 = 6000;
    const SLICE_US: u64 = 2000;
    const PHASE_US: u64 = 1500;
    const ERROR_NS: u64 = SLICE_US * 1000 / 20;
    let number = AtomicU64::new(0);
    STRETCHES.found.store(0, Ordering::Release);
    // SAFETY: they compute. The second is of the same priority and wants all there is.
    let member = unsafe { Companion::start(note_stretches, 0, Some((PRIORITY, 1000))) }?;
    sys::schedule_gang(fixture.pcore()?, time(&member)?, PERIOD_US, SLICE_US, PHASE_US)?;
    // SAFETY: as above.
    let rival = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let found = || STRETCHES.found.load(Ordering::Acquire) as usize;
    fixture.until("a member had its windows", || found() > WINDOWS)?;
    drop((member, rival));
    // The first may have been cut by the call.
    for number in 1..WINDOWS {
        let begin_ns = STRETCHES.begins_ns[number].load(Ordering::Relaxed);
        let length_ns = STRETCHES.ends_ns[number].load(Ordering::Relaxed) - begin_ns;
        let late_ns = (begin_ns - PHASE_US * 1000) % (PERIOD_US * 1000);
        let is_fit = late_ns <= ERROR_NS && length_ns.abs_diff(SLICE_US * 1000) <= ERROR_NS;
        require!(is_fit || !fixture.has_exact_time(), "window {number} is {late_ns} ns late and {length_ns} ns long");
    }
    Ok(())
}

fn wrong_windows_are_refused(fixture: &Fixture) -> Outcome {
    let (pcore, number) = (fixture.pcore()?, AtomicU64::new(0));
    // SAFETY: it counts.
    let member = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let time = time(&member)?;
    for [period_us, slice_us, phase_us] in
        [[1000, 99, 0], [1000, 1001, 0], [1000, 500, 1000], [0, 500, 0], [u64::MAX; 3]]
    {
        refused(sys::schedule_gang(pcore, time, period_us, slice_us, phase_us), Error::BadArgument)?;
    }
    refused(sys::schedule_gang(fixture.ram(), time, 1000, 500, 0), Error::WrongType)?;
    refused(sys::schedule_gang(pcore, member.context(), 1000, 500, 0), Error::WrongType)?;
    let (weak_pcore, weak_time) = (sys::cap_copy(pcore, Rights::READ)?, sys::cap_copy(time, Rights::READ)?);
    refused(sys::schedule_gang(weak_pcore, time, 1000, 500, 0), Error::NoRights)?;
    refused(sys::schedule_gang(pcore, weak_time, 1000, 500, 0), Error::NoRights)?;
    [weak_pcore, weak_time].into_iter().try_for_each(sys::cap_drop)?;
    // Its windows end with it.
    sys::schedule_gang(pcore, time, 1000, 500, 0)?;
    sys::context_end(member.context())?;
    refused(sys::schedule_gang(pcore, time, 1000, 500, 0), Error::PeerDead)
}

fn windows_that_do_not_fit_are_refused(fixture: &Fixture) -> Outcome {
    const PERIOD_US: u64 = 10_000;
    const SLICE_US: u64 = 2000;
    const PHASE_US: u64 = 3000;
    let (pcore, number) = (fixture.pcore()?, AtomicU64::new(0));
    // SAFETY: they count.
    let start = |priority| unsafe { Companion::start(count, &raw const number as u64, Some((priority, 1000))) };
    // Of different priorities: room is the core's.
    let (first, second) = (start(PRIORITY)?, start(PRIORITY - 1)?);
    let join = |member: &Companion, [period_us, slice_us, phase_us]: [u64; 3]| {
        Ok::<_, Failure>(sys::schedule_gang(pcore, time(member)?, period_us, slice_us, phase_us))
    };
    join(&first, [PERIOD_US, SLICE_US, PHASE_US])??;
    for wrong in [
        [PERIOD_US, 100, PHASE_US + SLICE_US - 1],
        [PERIOD_US, 1000, PHASE_US - 999],
        [PERIOD_US, PERIOD_US - SLICE_US + 1, PHASE_US + SLICE_US],
        [PERIOD_US + 1, 100, 0],
        [SECOND_US, SECOND_US, 0],
    ] {
        refused(join(&second, wrong)?, Error::Busy)?;
    }
    // Then it has all the rest, and the other cannot have more than it has.
    join(&second, [PERIOD_US, PERIOD_US - SLICE_US, PHASE_US + SLICE_US])??;
    refused(join(&first, [PERIOD_US, SLICE_US + 1, PHASE_US])?, Error::Busy)?;
    join(&first, [PERIOD_US, SLICE_US - 1, PHASE_US + 1])??;
    // Who leaves makes room, and who ends.
    join(&first, [0; 3])??;
    join(&second, [SECOND_US, SECOND_US, 0])??;
    refused(join(&first, [PERIOD_US, SLICE_US, PHASE_US])?, Error::Busy)?;
    sys::context_end(second.context())?;
    join(&first, [PERIOD_US, SLICE_US, PHASE_US])??;
    drop((first, second));
    Ok(())
}

/// Period, slice and phase of a gang of all cores, which nobody has to tell anybody, and windows in
/// which all are to run: where time is exact; and where cores share a busy host's processors, so
/// that each runs in most windows at all.
const EXACT_NS: ([u64; 3], u64) = ([10_000_000, 2_000_000, 3_000_000], 30);
const SHARED_NS: ([u64; 3], u64) = ([400_000_000, 200_000_000, 3_000_000], 3);
/// The shared word in which a core's member notes its last window: the window's number, and in the
/// lower bits by how much later than that it began.
const LAST: u64 = 1;
const LATE_BITS: u32 = 32;
/// The shared word that says how far a core is, and what it says.
const STATE: u64 = 0;
const JOINED: u64 = 1;
const ENOUGH: u64 = 2;
/// How far apart they may start, and how late. An emulator that runs all cores on one thread, by a
/// clock of instructions, lets them have their alarm one after the other, so it is what all kernels
/// together need from there to their member.
const SKEW_NS: u64 = 10_000;
const LATE_NS: u64 = 20_000;

/// A word of the shared region, and the windows of the member that writes it.
struct Noted<'s> {
    word: &'s AtomicU64,
    period_ns: u64,
    phase_ns: u64,
}

extern "C" fn note_windows(noted: u64) -> ! {
    // SAFETY: the address of the `Noted` of the test, which outlives this context; made for several
    // contexts.
    let Noted { word, period_ns, phase_ns } = unsafe { &*(noted as *const Noted) };
    let mut last = 0;
    loop {
        let since_ns = runtime::now_ns() - phase_ns;
        let (window, late_ns) = (since_ns / period_ns, since_ns % period_ns);
        if window != last {
            last = window;
            word.store(window << LATE_BITS | late_ns, Ordering::Release);
        }
        // As in `count`.
        core::hint::spin_loop();
    }
}

/// A member on each core, and beside it one of the same priority that never stops. Between two
/// windows it is looked whether all ran in the last one.
fn members_of_all_cores_start_together(fixture: &Fixture) -> Outcome {
    if fixture.cores() > turns::AT_ONCE {
        return Err(Failure::absent("not all cores test at a time"));
    }
    let (times_ns, wanted) = if fixture.has_exact_time() { EXACT_NS } else { SHARED_NS };
    let [period_ns, slice_ns, phase_ns] = times_ns;
    let noted = Noted { word: fixture.shared(fixture.core(), LAST), period_ns, phase_ns };
    let number = AtomicU64::new(0);
    let all_are = |state| (0..fixture.cores()).all(|core| fixture.shared(core, STATE).load(Ordering::Acquire) >= state);
    // SAFETY: one writes to a word of the shared region, the other counts.
    let (member, rival) = unsafe {
        let member = Companion::start(note_windows, &raw const noted as u64, Some((PRIORITY, 1000)))?;
        (member, Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000)))?)
    };
    let [period_us, slice_us, phase_us] = times_ns.map(|time_ns| time_ns / 1000);
    sys::schedule_gang(fixture.pcore()?, time(&member)?, period_us, slice_us, phase_us)?;
    fixture.shared(fixture.core(), STATE).store(JOINED, Ordering::Release);
    fixture.until("all cores have a member", || all_are(JOINED))?;
    let deadline_ns = fixture.deadline_ns();
    let (mut windows, mut skew_ns, mut latest_ns) = (0, 0, 0);
    while windows < wanted {
        require!(runtime::now_ns() < deadline_ns, "all ran together in {windows} windows only");
        let next = (runtime::now_ns() - phase_ns) / period_ns + 1;
        let look_ns = phase_ns + next * period_ns + (slice_ns + period_ns) / 2;
        while runtime::now_ns() < look_ns {
            fixture.wait_for(0, look_ns)?;
        }
        let lasts = (0..fixture.cores()).map(|core| fixture.shared(core, LAST).load(Ordering::Acquire));
        let lasts: Vec<_> = lasts.map(|last| (last >> LATE_BITS, last & ((1 << LATE_BITS) - 1))).collect();
        let ran = lasts.iter().all(|(window, _)| *window == next);
        require!(ran || !fixture.has_exact_time(), "in window {next} not all ran: {lasts:?}");
        if ran {
            let (first_ns, last_ns) =
                lasts.iter().fold((u64::MAX, 0), |(first, last), (_, late)| (first.min(*late), last.max(*late)));
            (skew_ns, latest_ns) = (last_ns.saturating_sub(first_ns).max(skew_ns), last_ns.max(latest_ns));
            windows += 1;
        }
    }
    fixture.shared(fixture.core(), STATE).store(ENOUGH, Ordering::Release);
    fixture.until("all cores saw it", || all_are(ENOUGH))?;
    drop((member, rival));
    runtime::log!("gang of {}: starts apart by {skew_ns} ns and late by {latest_ns} ns at most", fixture.cores());
    let is_fit = skew_ns <= SKEW_NS && latest_ns <= LATE_NS;
    require!(is_fit || !fixture.has_exact_time(), "starts were apart by {skew_ns} ns and late by {latest_ns} ns");
    Ok(())
}

/// One of two members on two cores.
struct Member<'s> {
    own: &'s AtomicU64,
    other: &'s AtomicU64,
    first_ns: AtomicU64,
    seen: AtomicU64,
}

impl<'s> Member<'s> {
    fn new(fixture: &'s Fixture, other: u64) -> Member<'s> {
        let (own, other) = (fixture.shared(fixture.core(), BEAT), fixture.shared(other, BEAT));
        Member { own, other, first_ns: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }
}

/// Counts up, and how often the other was seen to do so meanwhile.
extern "C" fn beat(member: u64) -> ! {
    // SAFETY: the address of the `Member` of the test, which outlives this context; made for
    // several contexts.
    let member = unsafe { &*(member as *const Member) };
    member.first_ns.store(runtime::now_ns(), Ordering::Release);
    let mut last = member.other.load(Ordering::Relaxed);
    loop {
        member.own.fetch_add(1, Ordering::Relaxed);
        let now = member.other.load(Ordering::Relaxed);
        if now != last {
            last = now;
            member.seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const TOGETHER_US: [u64; 2] = [400_000, 200_000];

/// How often one member has to see the other count.
const SEEN_MIN: u64 = 100;

/// A member of this core, of the windows that both cores know. Nobody but the clock tells it when
/// they open.
fn join(fixture: &Fixture, member: &Member, phase_us: u64) -> Result<Companion, Failure> {
    let [period_us, slice_us] = TOGETHER_US;
    // SAFETY: it reaches what `Member` has, and the caller lets it end before that does.
    let companion = unsafe { Companion::start(beat, &raw const *member as u64, Some((PRIORITY, 1000))) }?;
    sys::schedule_gang(fixture.pcore()?, time(&companion)?, period_us, slice_us, phase_us)?;
    let now_us = runtime::now_ns() / 1000;
    let place_us = (now_us + period_us - phase_us) % period_us;
    let opens_us = if place_us < slice_us { 0 } else { now_us + period_us - place_us };
    fixture
        .until("the member of the other core ran beside ours", || member.seen.load(Ordering::Relaxed) >= SEEN_MIN)?;
    let first_us = member.first_ns.load(Ordering::Acquire) / 1000;
    require!(first_us >= opens_us, "it ran {} us before its window", opens_us - first_us);
    Ok(companion)
}

/// The windows are agreed upon before; from then on the two cores exchange nothing but what their
/// members write.
async fn members_run_together(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let [period_us, slice_us] = TOGETHER_US;
    let phase_us = (runtime::now_ns() / 1000 + slice_us) % period_us;
    let seen = fixture.shared(fixture.core(), SEEN);
    seen.store(0, Ordering::Release);
    let answer = partner.act("gang/take_part", [fixture.core(), phase_us, 0, 0]);
    // What was asked goes out when this component next waits.
    runtime::sleep(MS_NS).await;
    let member = Member::new(&fixture, fixture.next_core());
    let companion = join(&fixture, &member, phase_us)?;
    seen.store(1, Ordering::Release);
    // It goes on until the next core's has seen it too.
    let answer = answer.await;
    drop(companion);
    answer.map(drop)
}

fn take_part(fixture: &Fixture, [other, phase_us, ..]: Words) -> Result<Words, Failure> {
    let member = Member::new(fixture, other);
    let companion = join(fixture, &member, phase_us)?;
    let seen = fixture.shared(other, SEEN);
    fixture.until("the member of the core before saw ours", || seen.load(Ordering::Acquire) != 0)?;
    drop(companion);
    Ok([0; 4])
}
