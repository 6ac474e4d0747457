//! Time: contexts with and without, bills, lengths of slices, a throttled core, many contexts.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::{counter, portal};
use abi::{Error, Handle, Rights};
use runtime::Companion;

use crate::{Failure, Fixture, Outcome, drop_all, refused, require, suite};

suite!("time"; alone: without_time_a_context_runs_for_its_callers_only, a_callers_bill_has_all_that_was_done_for_it, slices_are_as_long_as_set,
    a_throttled_core_idles, contexts_are_small, a_context_ends_alone);

/// What a server does for a call.
const WORK_NS: u64 = 300_000;
const CALLS: u64 = 20;
const PRIORITY: u64 = 1;

static SERVED: AtomicU64 = AtomicU64::new(0);

/// Computes for a while, then answers.
extern "C" fn serve(_: u64) -> ! {
    let mut limit_ns = u64::MAX;
    loop {
        if sys::portal_reply_wait([0; 3], limit_ns).is_ok() {
            let begin_ns = runtime::now_ns();
            while runtime::now_ns() < begin_ns + WORK_NS {}
            SERVED.fetch_add(1, Ordering::Relaxed);
        }
        limit_ns = u64::MAX;
    }
}

extern "C" fn call(portal: u64) -> ! {
    for _ in 0..CALLS {
        let _ = sys::portal_call(Handle(portal), [0; 4], u64::MAX);
    }
    DONE.store(1, Ordering::Release);
    loop {
        let _ = sys::wait(u64::MAX);
    }
}

static DONE: AtomicU64 = AtomicU64::new(0);

fn without_time_a_context_runs_for_its_callers_only(fixture: &Fixture) -> Outcome {
    SERVED.store(0, Ordering::Relaxed);
    // SAFETY: it computes and makes calls.
    let server = unsafe { Companion::start(serve, 0, None) }?;
    let entrance = sys::portal_alloc(fixture.ram(), server.context(), 0, portal::RENDEZVOUS)?;
    fixture.wait_for(0, fixture.soon_ns())?;
    require!(SERVED.load(Ordering::Relaxed) == 0, "it ran by itself");
    for turn in 1..=3 {
        sys::portal_call(entrance, [0; 4], fixture.deadline_ns())?;
        fixture.wait_for(0, fixture.soon_ns())?;
        let served = SERVED.load(Ordering::Relaxed);
        require!(served == turn, "served {served} of {turn} calls");
    }
    drop(server);
    refused(sys::portal_call(entrance, [0; 4], fixture.deadline_ns()), Error::PeerDead)?;
    sys::cap_drop(entrance)?;
    Ok(())
}

fn bill_ns(companion: &Companion) -> Result<u64, Failure> {
    let time = companion.time().ok_or_else(|| Failure::new("without time"))?;
    Ok(sys::schedule_stat(time)?.0)
}

fn a_callers_bill_has_all_that_was_done_for_it(fixture: &Fixture) -> Outcome {
    DONE.store(0, Ordering::Release);
    // Without time of its own: nobody else's could pay. SAFETY: they compute and make calls.
    let server = unsafe { Companion::start(serve, 0, None) }?;
    let entrance = sys::portal_alloc(fixture.ram(), server.context(), 0, portal::RENDEZVOUS)?;
    // SAFETY: as above.
    let client = unsafe { Companion::start(call, entrance.0, Some((PRIORITY, 1000))) }?;
    let deadline_ns = fixture.deadline_ns();
    while DONE.load(Ordering::Acquire) == 0 {
        require!(runtime::now_ns() < deadline_ns, "the client is not done");
        fixture.wait_for(0, fixture.soon_ns())?;
    }
    let clients_ns = bill_ns(&client)?;
    require!(clients_ns > CALLS * WORK_NS / 2, "the client's bill is {clients_ns} ns");
    // The domain that ran says the same of who paid.
    let (_, payer, _) = sys::cap_stat(client.time().ok_or_else(|| Failure::new("without time"))?)?;
    let mut rows = (0..).map_while(|number| sys::ledger_read(Handle::SELF_DOMAIN, number).ok());
    let paid_ns = rows.find(|(of, ..)| *of == payer).map_or(0, |(_, _, paid_ns)| paid_ns);
    require!(paid_ns == clients_ns, "the ledger says {paid_ns} ns of {clients_ns}");
    drop((client, server));
    sys::cap_drop(entrance)?;
    Ok(())
}

/// Turns looked at where time is exact; elsewhere their length is not judged, and some are enough
/// to see that they are taken.
const GAPS: usize = 31;
const SOME_GAPS: u64 = 3;

/// What the other had of the processor, in one stretch, at least; what interrupts is shorter.
const GAP_MIN_NS: u64 = 500_000;

/// Two who compute take turns; the first notes how long the other had the processor.
struct Turns {
    found: AtomicU64,
    gaps_ns: [AtomicU64; GAPS],
}

static TURNS: Turns = Turns { found: AtomicU64::new(0), gaps_ns: [const { AtomicU64::new(0) }; GAPS] };

extern "C" fn take_turns(notes: u64) -> ! {
    let mut last_ns = runtime::now_ns();
    loop {
        let now_ns = runtime::now_ns();
        if notes != 0 && now_ns - last_ns >= GAP_MIN_NS {
            let number = TURNS.found.load(Ordering::Relaxed);
            if let Some(gap) = TURNS.gaps_ns.get(number as usize) {
                gap.store(now_ns - last_ns, Ordering::Relaxed);
                TURNS.found.store(number + 1, Ordering::Release);
            }
        }
        last_ns = now_ns;
    }
}

/// The shortest turn of the second context: nothing makes one shorter than its slice.
fn turn_ns(fixture: &Fixture) -> Result<u64, Failure> {
    TURNS.found.store(0, Ordering::Release);
    let deadline_ns = fixture.deadline_ns();
    let enough = if fixture.has_exact_time() { GAPS as u64 } else { SOME_GAPS };
    while TURNS.found.load(Ordering::Acquire) < enough {
        require!(runtime::now_ns() < deadline_ns, "they do not take turns");
        fixture.wait_for(0, fixture.soon_ns())?;
    }
    let gaps = TURNS.gaps_ns.iter().take(enough as usize).map(|gap| gap.load(Ordering::Relaxed));
    gaps.min().ok_or_else(|| Failure::new("no turns"))
}

fn slices_are_as_long_as_set(fixture: &Fixture) -> Outcome {
    const SLICES_US: [u64; 3] = [3000, 4000, 2000];
    // SAFETY: they compute.
    let one = unsafe { Companion::start(take_turns, 1, Some((PRIORITY, SLICES_US[0]))) }?;
    // SAFETY: as above.
    let two = unsafe { Companion::start(take_turns, 0, Some((PRIORITY, SLICES_US[0]))) }?;
    let time = two.time().ok_or_else(|| Failure::new("without time"))?;
    for slice_us in SLICES_US {
        sys::schedule_set(time, slice_us, 0)?;
        // What was under way when it was set does not count.
        turn_ns(fixture)?;
        let (turn_ns, slice_ns) = (turn_ns(fixture)?, slice_us * 1000);
        let is_fit = turn_ns.abs_diff(slice_ns) <= slice_ns / 20;
        require!(is_fit || !fixture.has_exact_time(), "slices of {slice_us} us are {turn_ns} ns long");
    }
    refused(sys::schedule_set(time, 99, 0), Error::BadArgument)?;
    refused(sys::schedule_set(time, 1000, 999), Error::BadArgument)?;
    let weak = sys::cap_copy(time, Rights::READ)?;
    refused(sys::schedule_set(weak, 1000, 0), Error::NoRights)?;
    require!(sys::schedule_stat(weak)?.1 == SLICES_US[2], "the slice is told otherwise");
    drop((one, two));
    sys::cap_drop(weak)?;
    Ok(())
}

fn a_throttled_core_idles(fixture: &Fixture) -> Outcome {
    /// One turn of the throttle, and how many of them are looked at: where time is not exact, the
    /// share is not judged.
    const TURN_NS: u64 = 8_000_000;
    let stretch_ns = if fixture.has_exact_time() { 10 * TURN_NS } else { 2 * TURN_NS };
    /// Of a hundred.
    const ERROR: u64 = 3;
    let pcore = fixture.pcore()?;
    for wrong in [0, 9] {
        refused(sys::pcore_throttle(pcore, wrong), Error::BadArgument)?;
    }
    for eighths in [4, 2, 8] {
        // What came for this component meanwhile is looked at.
        fixture.wait_for(0, fixture.soon_ns())?;
        sys::pcore_throttle(pcore, eighths)?;
        let (begin_ns, idle_ns) = (runtime::now_ns(), sys::counter_read(counter::IDLE_NS)?);
        while runtime::now_ns() < begin_ns + stretch_ns {}
        let idle_ns = sys::counter_read(counter::IDLE_NS)? - idle_ns;
        let percent = 100 * idle_ns / (runtime::now_ns() - begin_ns);
        sys::pcore_throttle(pcore, 8)?;
        let is_fit = percent.abs_diff(100 * (8 - eighths) / 8) <= ERROR;
        require!(is_fit || !fixture.has_exact_time(), "idle {percent} % with {eighths} eighths");
    }
    Ok(())
}

fn contexts_are_small(fixture: &Fixture) -> Outcome {
    const CONTEXTS: u64 = 500;
    let ram = sys::ram_split(fixture.ram(), 2000, Handle::NONE)?;
    let (domain, _) = sys::domain_alloc(ram, 0)?;
    let (_, before, _) = sys::ram_stat(ram)?;
    let mut contexts = alloc::vec::Vec::new();
    for number in 0..CONTEXTS {
        contexts.push(sys::context_alloc(ram, domain, abi::layout::REGIONS + number * abi::PAGE_BYTES, 0, 0)?);
    }
    let (_, after, _) = sys::ram_stat(ram)?;
    let pages = after - before;
    require!(pages <= 2 * CONTEXTS + CONTEXTS / 8, "{CONTEXTS} contexts take {pages} pages");
    contexts.into_iter().try_for_each(sys::cap_drop)?;
    sys::domain_kill(domain, 0)?;
    drop_all(&[domain, ram])
}

fn a_context_ends_alone(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    let context = sys::context_alloc(fixture.ram(), scripted.worker.domain, 0x6000_0000, 0, 0)?;
    let weak = sys::cap_copy(context, Rights::READ)?;
    refused(sys::context_end(weak), Error::NoRights)?;
    sys::context_end(context)?;
    refused(sys::context_end(context), Error::PeerDead)?;
    // Two layers: did the call come back, and was it refused.
    scripted.call(abi::Call::Null.number(), [0; 6], fixture.deadline_ns())??;
    drop_all(&[weak, context])
}
