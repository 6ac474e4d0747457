//! Gangs: time that runs in windows of the clock, on one core and on two that see each other run.

use alloc::rc::Rc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::{Error, Handle, Rights};
use runtime::Companion;

use crate::table::Words;
use crate::{Failure, Outcome, Partner, Scene, refused, require, suite};

suite!("gang"; alone: a_member_waits_for_its_window, windows_are_kept_to_the_clock, wrong_windows_are_refused,
    windows_that_do_not_fit_are_refused;
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

extern "C" fn count(number: u64) -> ! {
    // SAFETY: the address of a number of the test, which outlives this context.
    let number = unsafe { &*(number as *const AtomicU64) };
    loop {
        number.fetch_add(1, Ordering::Relaxed);
    }
}

fn a_member_waits_for_its_window(scene: &Scene) -> Outcome {
    let (pcore, number) = (scene.pcore()?, AtomicU64::new(0));
    // SAFETY: it counts. Of a lower priority than ours, so it has not run when it becomes a member.
    let member = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let time = time(&member)?;
    let phase_us = (runtime::now_ns() / 1000 + FAR_US / 2) % FAR_US;
    let open_ns = runtime::now_ns() + FAR_US / 2 * 1000 - MS_NS;
    sys::schedule_gang(pcore, time, FAR_US, 100, phase_us)?;
    let before = number.load(Ordering::Relaxed);
    for _ in 0..10 {
        scene.wait_for(0, scene.soon_ns())?;
        let counted = number.load(Ordering::Relaxed) - before;
        // A host that held us up until the window came proves nothing.
        require!(counted == 0 || runtime::now_ns() >= open_ns, "it counted to {counted} before its window");
    }
    // One that is always open.
    sys::schedule_gang(pcore, time, SECOND_US, SECOND_US, 0)?;
    scene.until("a member runs in its window", || number.load(Ordering::Relaxed) > before)?;
    // And none.
    sys::schedule_gang(pcore, time, FAR_US, 100, phase_us)?;
    sys::schedule_gang(pcore, time, 0, 0, 0)?;
    let before = number.load(Ordering::Relaxed);
    scene.until("one that left its gang runs", || number.load(Ordering::Relaxed) > before)
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

fn windows_are_kept_to_the_clock(scene: &Scene) -> Outcome {
    const PERIOD_US: u64 = 6000;
    const SLICE_US: u64 = 2000;
    const PHASE_US: u64 = 1500;
    const ERROR_NS: u64 = SLICE_US * 1000 / 20;
    let number = AtomicU64::new(0);
    STRETCHES.found.store(0, Ordering::Release);
    // SAFETY: they compute. The second is of the same priority and wants all there is.
    let member = unsafe { Companion::start(note_stretches, 0, Some((PRIORITY, 1000))) }?;
    sys::schedule_gang(scene.pcore()?, time(&member)?, PERIOD_US, SLICE_US, PHASE_US)?;
    // SAFETY: as above.
    let rival = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let found = || STRETCHES.found.load(Ordering::Acquire) as usize;
    scene.until("a member had its windows", || found() > WINDOWS)?;
    drop((member, rival));
    // The first may have been cut by the call.
    for number in 1..WINDOWS {
        let begin_ns = STRETCHES.begins_ns[number].load(Ordering::Relaxed);
        let length_ns = STRETCHES.ends_ns[number].load(Ordering::Relaxed) - begin_ns;
        let late_ns = (begin_ns - PHASE_US * 1000) % (PERIOD_US * 1000);
        let is_fit = late_ns <= ERROR_NS && length_ns.abs_diff(SLICE_US * 1000) <= ERROR_NS;
        require!(is_fit || !scene.has_exact_time(), "window {number} is {late_ns} ns late and {length_ns} ns long");
    }
    Ok(())
}

fn wrong_windows_are_refused(scene: &Scene) -> Outcome {
    let (pcore, number) = (scene.pcore()?, AtomicU64::new(0));
    // SAFETY: it counts.
    let member = unsafe { Companion::start(count, &raw const number as u64, Some((PRIORITY, 1000))) }?;
    let time = time(&member)?;
    for [period_us, slice_us, phase_us] in
        [[1000, 99, 0], [1000, 1001, 0], [1000, 500, 1000], [0, 500, 0], [u64::MAX; 3]]
    {
        refused(sys::schedule_gang(pcore, time, period_us, slice_us, phase_us), Error::BadArgument)?;
    }
    refused(sys::schedule_gang(scene.ram(), time, 1000, 500, 0), Error::WrongType)?;
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

fn windows_that_do_not_fit_are_refused(scene: &Scene) -> Outcome {
    const PERIOD_US: u64 = 10_000;
    const SLICE_US: u64 = 2000;
    const PHASE_US: u64 = 3000;
    let (pcore, number) = (scene.pcore()?, AtomicU64::new(0));
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

/// One of two members on two cores.
struct Member<'s> {
    own: &'s AtomicU64,
    other: &'s AtomicU64,
    first_ns: AtomicU64,
    seen: AtomicU64,
}

impl<'s> Member<'s> {
    fn new(scene: &'s Scene, other: u64) -> Member<'s> {
        let (own, other) = (scene.shared(scene.core(), BEAT), scene.shared(other, BEAT));
        Member { own, other, first_ns: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }
}

/// Counts up, and how often the other was seen to do so meanwhile.
extern "C" fn beat(member: u64) -> ! {
    // SAFETY: the address of the `Member` of the test, which outlives this context; made for several contexts.
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

/// A member of this core, of the windows that both cores know. Nobody but the clock tells it when they open.
fn join(scene: &Scene, member: &Member, phase_us: u64) -> Result<Companion, Failure> {
    let [period_us, slice_us] = TOGETHER_US;
    // SAFETY: it reaches what `Member` has, and whoever calls this lets it end before that does.
    let companion = unsafe { Companion::start(beat, &raw const *member as u64, Some((PRIORITY, 1000))) }?;
    sys::schedule_gang(scene.pcore()?, time(&companion)?, period_us, slice_us, phase_us)?;
    let now_us = runtime::now_ns() / 1000;
    let place_us = (now_us + period_us - phase_us) % period_us;
    let opens_us = if place_us < slice_us { 0 } else { now_us + period_us - place_us };
    scene.until("the member of the other core ran beside ours", || member.seen.load(Ordering::Relaxed) >= SEEN_MIN)?;
    let first_us = member.first_ns.load(Ordering::Acquire) / 1000;
    require!(first_us >= opens_us, "it ran {} us before its window", opens_us - first_us);
    Ok(companion)
}

/// The windows are agreed upon before; from then on the two cores exchange nothing but what their members write.
async fn members_run_together(scene: Rc<Scene>, partner: Rc<Partner>) -> Outcome {
    let [period_us, slice_us] = TOGETHER_US;
    let phase_us = (runtime::now_ns() / 1000 + slice_us) % period_us;
    let seen = scene.shared(scene.core(), SEEN);
    seen.store(0, Ordering::Release);
    let answer = partner.act("gang/take_part", [scene.core(), phase_us, 0, 0]);
    // What was asked goes out when this component next waits.
    runtime::sleep(MS_NS).await;
    let member = Member::new(&scene, scene.next_core());
    let companion = join(&scene, &member, phase_us)?;
    seen.store(1, Ordering::Release);
    // It goes on until the next core's has seen it too.
    let answer = answer.await;
    drop(companion);
    answer.map(drop)
}

fn take_part(scene: &Scene, [other, phase_us, ..]: Words) -> Result<Words, Failure> {
    let member = Member::new(scene, other);
    let companion = join(scene, &member, phase_us)?;
    let seen = scene.shared(other, SEEN);
    scene.until("the member of the core before saw ours", || seen.load(Ordering::Acquire) != 0)?;
    drop(companion);
    Ok([0; 4])
}
