//! Portal: calls with words, badges, deadlines, chains, and callees that die.

use abi::layout::portal::{MAILBOX, RENDEZVOUS};
use abi::{Call, Error, Handle, Rights};
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::{Companion, Serve, Vectors};
use sys::Rendezvous;
use worker::{Job, SHARED, ScriptedDomain};

use crate::{Fixture, Outcome, drop_all, refused, require, suite};

suite!("portal"; alone: call_and_reply, a_late_callee_is_not_waited_for, a_dead_callee_is_told, along_a_chain, helping_ends_another_call,
    callers_wait_and_are_served_in_order,
    mailbox_sets_its_badge, mailbox_can_be_led_elsewhere, a_portal_outlives_its_callees, workers_keep_their_vector_registers, rights_and_kinds);

fn call_and_reply(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    let portal = worker.portal(77)?;
    worker.start([0, 0])?;
    // A worker answers with what its registers held: badge, first and second word.
    let words = sys::portal_call(portal, [11, 12, 13, 14], fixture.deadline_ns())?;
    require!(words == [77, 11, 12], "the callee saw {words:?}");
    sys::cap_drop(portal)?;
    Ok(())
}

fn a_late_callee_is_not_waited_for(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Hold)?;
    worker.set_shared(0);
    worker.start([SHARED, 3])?;
    let (held, free) = (worker.portal(3)?, worker.portal(4)?);
    while worker.word(1) == 0 {
        refused(sys::portal_call(held, [0; 4], fixture.soon_ns()), Error::Timeout)?;
    }
    worker.set_shared(1);
    sys::portal_call(free, [0; 4], fixture.deadline_ns())?;
    drop_all(&[held, free])
}

fn a_dead_callee_is_told(fixture: &Fixture) -> Outcome {
    let scripted = fixture.scripted(0)?;
    // It ends inside the call.
    let result = scripted.call(Call::DomainExit.number(), [3, 0, 0, 0, 0, 0], fixture.deadline_ns());
    require!(result == Err(Error::PeerDead), "the caller of a server that ends is told {result:?}");
    let again = scripted.call(Call::Null.number(), [0; 6], fixture.deadline_ns());
    require!(again == Err(Error::PeerDead), "a call of a server that has ended gives {again:?}");
    Ok(())
}

fn along_a_chain(fixture: &Fixture) -> Outcome {
    let (first, second, third) =
        (fixture.worker(0, Job::Answer)?, fixture.worker(1, Job::Forward)?, fixture.worker(2, Job::Forward)?);
    first.start([0, 0])?;
    let to_first = first.portal(1)?;
    second.start([second.give(to_first)?, 0])?;
    let to_second = second.portal(2)?;
    third.start([third.give(to_second)?, 0])?;
    let to_third = third.portal(3)?;
    sys::portal_call(to_third, [0; 4], fixture.deadline_ns())?;
    drop_all(&[to_first, to_second, to_third])
}

fn helping_ends_another_call(fixture: &Fixture) -> Outcome {
    const OURS: u64 = 1;
    const THEIRS: u64 = 2;
    let (server, rival) = (fixture.worker(0, Job::Hold)?, fixture.worker(1, Job::Call)?);
    server.set_shared(0);
    server.start([SHARED, THEIRS])?;
    let (theirs, ours) = (server.portal(THEIRS)?, server.portal(OURS)?);
    rival.start([rival.give(theirs)?, 0])?;
    // The rival has the least time there is; it gets into its call while we sleep.
    fixture.until("a call is held", || server.word(1) != 0)?;
    server.set_shared(1);
    sys::portal_call(ours, [0; 4], fixture.deadline_ns())?;
    drop_all(&[theirs, ours])
}

/// What a server without time of its own is asked, and how many it may have answered.
struct Served {
    asked: AtomicU64,
    words: [AtomicU64; 5],
    may_answer: AtomicU64,
}

static SERVED: Served =
    Served { asked: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 5], may_answer: AtomicU64::new(0) };

/// Answers with what it was asked by whom, times ten.
extern "C" fn serve_when_told(_: u64) -> ! {
    let mut reply = [0; 3];
    loop {
        let Ok(Rendezvous { badge, words: [a, b, c, d] }) = sys::portal_reply_wait(reply, u64::MAX) else { continue };
        SERVED.words.iter().zip([badge, a, b, c, d]).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        let number = SERVED.asked.fetch_add(1, Ordering::Release);
        while SERVED.may_answer.load(Ordering::Acquire) <= number {
            core::hint::spin_loop();
        }
        reply = [10 * badge, 10 * a, 10 * b];
    }
}

/// Three callers of one server: each waits until it is answered, the first that came is served
/// first, on the callers' time, and each has its own answer.
fn callers_wait_and_are_served_in_order(fixture: &Fixture) -> Outcome {
    [&SERVED.asked, &SERVED.may_answer].iter().for_each(|count| count.store(0, Ordering::Release));
    // SAFETY: it makes calls and reaches atomics.
    let server = unsafe { Companion::start(serve_when_told, 0, None) }?;
    let scripted_domains = [fixture.scripted(0)?, fixture.scripted(1)?, fixture.scripted(2)?];
    for (badge, scripted) in (1..).zip(&scripted_domains) {
        let portal = sys::portal_alloc(fixture.ram(), server.context(), badge, RENDEZVOUS)?;
        let there = sys::domain_grant(scripted.worker.domain, portal, Rights::CALL)?;
        sys::cap_drop(portal)?;
        let words = [there.0, 10 + badge, 20 + badge, 30 + badge, 40 + badge, u64::MAX];
        scripted.begin(Call::PortalCall.number(), words, || fixture.soon_ns())?;
        // They have the least time there is: it is theirs while we sleep.
        fixture.wait_for(0, fixture.soon_ns())?;
    }
    for badge in 1..=scripted_domains.len() as u64 {
        fixture.until("a caller is served", || SERVED.asked.load(Ordering::Acquire) >= badge)?;
        let words = SERVED.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        require!(
            words == [badge, 10 + badge, 20 + badge, 30 + badge, 40 + badge],
            "served as number {badge}: {words:?}"
        );
        let back = scripted_domains.each_ref().map(ScriptedDomain::is_back);
        require!(back.iter().filter(|is_back| **is_back).count() < badge as usize, "back without an answer: {back:?}");
        SERVED.may_answer.store(badge, Ordering::Release);
        let caller = &scripted_domains[badge as usize - 1];
        fixture.until("a caller goes on", || caller.is_back())?;
        let reply = caller.result()?;
        require!(reply == [10 * badge, 10 * (10 + badge), 10 * (20 + badge)], "caller {badge} has {reply:?}");
    }
    Ok(())
}

fn mailbox_sets_its_badge(fixture: &Fixture) -> Outcome {
    let badge = 1 << (runtime::OWN_BITS.start + 3);
    let portal = sys::portal_alloc(fixture.ram(), Handle::SELF_CONTEXT, badge, MAILBOX)?;
    let scripted = fixture.scripted(0)?;
    let there = sys::domain_grant(scripted.worker.domain, portal, Rights::CALL)?;
    scripted.call(Call::PortalCall.number(), [there.0, 0, 0, 0, 0, 0], fixture.deadline_ns())??;
    let bits = fixture.wait_for(badge, fixture.deadline_ns())?;
    require!(bits == badge, "a mailbox portal set {bits:#x}");
    sys::cap_drop(portal)?;
    Ok(())
}

fn mailbox_can_be_led_elsewhere(fixture: &Fixture) -> Outcome {
    let badge = 1 << (runtime::OWN_BITS.start + 4);
    let nowhere = sys::portal_alloc(fixture.ram(), Handle::NONE, badge, MAILBOX)?;
    sys::notify(nowhere)?;
    sys::portal_set(nowhere, Handle::SELF_CONTEXT)?;
    let stale = fixture.wait_for(badge, runtime::now_ns())?;
    require!(stale == 0, "what was notified nowhere came");
    sys::notify(nowhere)?;
    let bits = fixture.wait_for(badge, fixture.deadline_ns())?;
    require!(bits == badge, "a portal that was led here set {bits:#x}");
    sys::portal_set(nowhere, Handle::NONE)?;
    sys::notify(nowhere)?;
    require!(fixture.wait_for(badge, runtime::now_ns())? == 0, "a portal that leads nowhere reached us");
    sys::cap_drop(nowhere)?;
    Ok(())
}

/// A caller keeps its capability while the server ends and another takes its place.
fn a_portal_outlives_its_callees(fixture: &Fixture) -> Outcome {
    let portal = sys::portal_alloc(fixture.ram(), Handle::NONE, 5, RENDEZVOUS)?;
    let ours = sys::cap_copy(portal, Rights::CALL)?;
    refused(sys::portal_call(ours, [0; 4], fixture.deadline_ns()), Error::PeerDead)?;
    refused(sys::portal_set(ours, Handle::SELF_CONTEXT), Error::NoRights)?;
    for number in 0..2 {
        let worker = fixture.worker(number, Job::Answer)?;
        worker.start([0, 0])?;
        sys::portal_set(portal, worker.context)?;
        let words = sys::portal_call(ours, [number, 7, 0, 0], fixture.deadline_ns())?;
        require!(words == [5, number, 7], "callee {number} saw {words:?}");
        sys::domain_kill(worker.domain, 1)?;
        refused(sys::portal_call(ours, [0; 4], fixture.deadline_ns()), Error::PeerDead)?;
    }
    drop_all(&[ours, portal])
}

/// Puts a word into a vector register, and tells it in another call.
struct InVectors;

impl Serve for InVectors {
    #[cfg(target_arch = "x86_64")]
    fn serve(&self, _: u64, [is_told, word, ..]: [u64; 4]) -> [u64; 3] {
        let mut kept = 0_u64;
        // SAFETY: the program is built without vector registers, so nothing else uses it.
        unsafe {
            if is_told == 0 {
                core::arch::asm!("movq xmm7, {}", in(reg) word, options(nomem, nostack, preserves_flags));
            } else {
                core::arch::asm!("movq {}, xmm7", out(reg) kept, options(nomem, nostack, preserves_flags));
            }
        }
        [kept, 0, 0]
    }
}

/// Each of two workers that asked for vector registers has its own, from one call to the next.
fn workers_keep_their_vector_registers(fixture: &Fixture) -> Outcome {
    static SERVER: InVectors = InVectors;
    let hung = 1 << (runtime::OWN_BITS.start + 5);
    // SAFETY: it reaches registers only.
    let start = || unsafe { runtime::Worker::start(&SERVER, Vectors::Own, 1_000_000_000, hung) };
    let workers = [start()?, start()?];
    let mut portals = [Handle::NONE; 2];
    for (worker, portal) in workers.iter().zip(&mut portals) {
        *portal = sys::portal_alloc(fixture.ram(), Handle::NONE, 1, RENDEZVOUS)?;
        worker.lead(*portal)?;
    }
    for (word, portal) in (71..).zip(portals) {
        sys::portal_call(portal, [0, word, 0, 0], fixture.deadline_ns())?;
    }
    for (word, portal) in (71..).zip(portals) {
        let [kept, ..] = sys::portal_call(portal, [1, 0, 0, 0], fixture.deadline_ns())?;
        require!(kept == word, "a worker that kept {word} has {kept}");
    }
    drop_all(&portals)
}

fn rights_and_kinds(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    let portal = worker.portal(1)?;
    let weak = sys::cap_copy(portal, Rights::READ)?;
    refused(sys::portal_call(weak, [0; 4], fixture.deadline_ns()), Error::NoRights)?;
    refused(sys::portal_alloc(fixture.ram(), worker.context, 0, 9), Error::BadArgument)?;
    drop_all(&[weak, portal])
}
