//! Calls about objects of one's own core need nobody else: thousands of each kind on all cores at
//! once, and not one interrupt to another core.

use alloc::rc::Rc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::{copy, counter, portal, protection, segment};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use worker::Job;

use crate::table::Words;
use crate::{Failure, Fixture, Outcome, Partner, require, suite};

suite!("parallel"; alone: calls_disturb_nobody; paired: private_ranges_are_changed_at_once, interrupts_wait_for_the_end_of_a_call; far: change_ranges, ring);

const ROUNDS: u64 = 200;
/// Another component of this core may have had something to say meanwhile; calls that disturb
/// others would each time.
const ATTEMPTS: u64 = 5;

fn calls_disturb_nobody(fixture: &Fixture) -> Outcome {
    let worker = fixture.worker(0, Job::Answer)?;
    worker.start([0, 0])?;
    let entrance = worker.portal(1)?;
    let mut fewest = u64::MAX;
    for _ in 0..ATTEMPTS {
        let before = sys::counter_read(counter::WAKES_SENT)?;
        (0..ROUNDS).try_for_each(|_| round(fixture, entrance))?;
        fewest = fewest.min(sys::counter_read(counter::WAKES_SENT)? - before);
        if fewest == 0 {
            break;
        }
    }
    sys::cap_drop(entrance)?;
    require!(fewest == 0, "{ROUNDS} rounds of calls sent {fewest} interrupts to other cores");
    Ok(())
}

/// A call of each kind that names only what is this core's.
fn round(fixture: &Fixture, entrance: Handle) -> Result<(), Error> {
    sys::null()?;
    let ram = sys::ram_split(fixture.ram(), 100, Handle::NONE)?;
    let (memory, _) = sys::segment_alloc(ram, 2, 0)?;
    let address = fixture.map(0, memory, 2)?;
    fixture.store(address, 1);
    // SAFETY: the memory is reached through `fixture` only.
    unsafe { sys::range_protect(Handle::SELF_RANGE, address, 2, protection::READ) }?;
    let copy = sys::segment_copy(ram, memory, copy::ON_WRITE)?;
    fixture.unmap(0, 2)?;
    let semaphore = sys::semaphore_alloc(ram, 1)?;
    sys::semaphore_down(semaphore, fixture.deadline_ns())?;
    sys::semaphore_up(semaphore, 1)?;
    let again = sys::cap_copy(semaphore, Rights::READ)?;
    let mailbox = sys::portal_alloc(ram, Handle::NONE, 1, portal::MAILBOX)?;
    sys::notify(mailbox)?;
    sys::portal_call(entrance, [0; 4], fixture.deadline_ns())?;
    let (domain, _) = sys::domain_alloc(ram, 0)?;
    sys::domain_kill(domain, 0)?;
    [domain, mailbox, again, semaphore, copy, memory, ram].into_iter().try_for_each(sys::cap_drop)
}

/// Pages mapped and unmapped in a turn; turns of a batch; batches that are done while the next core
/// does its own.
const PAGES: u64 = 3;
const TURNS: u64 = 100;
const BATCHES: u64 = 5;
/// The shared word in which a core says that it has begun, 1, and how many batches it has done
/// since.
const PROGRESS: u64 = 0;
const LIMIT_NS: u64 = 60_000_000_000;

/// Mappings of this core and of the next come and go at the same time, and neither core sends or
/// takes an interrupt for it, although each forgets translations.
async fn private_ranges_are_changed_at_once(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let [own, next] = [fixture.core(), fixture.next_core()];
    [own, next].iter().for_each(|core| progress(&fixture, *core).store(0, Ordering::Release));
    let answer = partner.act("parallel/change_ranges", [own, 0, 0, 0]);
    // The question leaves while we are here.
    runtime::sleep(1).await;
    let fewest = change_beside(&fixture, next)?;
    let [fewest_there, ..] = answer.await?;
    require!(fewest == 0, "{fewest} interrupts from and to other cores in {TURNS} turns of mapping and unmapping");
    require!(fewest_there == 0, "{fewest_there} of them on the next core in as many turns");
    Ok(())
}

fn change_ranges(fixture: &Fixture, [other, ..]: Words) -> Result<Words, Failure> {
    Ok([change_beside(fixture, other)?, 0, 0, 0])
}

fn wakes() -> Result<u64, Error> {
    Ok(sys::counter_read(counter::WAKES_SENT)? + sys::counter_read(counter::WAKES_TAKEN)?)
}

fn progress(fixture: &Fixture, core: u64) -> &AtomicU64 {
    fixture.shared(core, PROGRESS)
}

/// Batches of changes; only those count that are begun while the `other` core is at its own, and it
/// stays until it saw us done. The fewest interrupts that were sent and taken in one of them:
/// another component may have had something to say meanwhile, but changes that are told would be
/// each time.
fn change_beside(fixture: &Fixture, other: u64) -> Result<u64, Failure> {
    let memory = [sys::segment_alloc(fixture.ram(), PAGES, 0)?.0, sys::segment_alloc(fixture.ram(), PAGES, 0)?.0];
    let seen = |core| progress(fixture, core).load(Ordering::Acquire);
    let end_ns = runtime::now_ns() + LIMIT_NS;
    let (mut fewest, mut done) = (u64::MAX, 0);
    progress(fixture, fixture.core()).store(1, Ordering::Release);
    while done < BATCHES || seen(other) <= BATCHES {
        require!(runtime::now_ns() < end_ns, "the other core does not change its ranges: {} batches", seen(other));
        fixture.look()?;
        let counts = done < BATCHES && seen(other) > 0;
        let before = wakes()?;
        (0..TURNS).try_for_each(|turn| change(fixture, memory[(turn % 2) as usize], turn))?;
        if counts {
            fewest = fewest.min(wakes()? - before);
            done += 1;
            progress(fixture, fixture.core()).store(1 + done, Ordering::Release);
        }
    }
    memory.into_iter().try_for_each(sys::cap_drop)?;
    Ok(fewest)
}

/// One of two segments at an address where the other was before: a translation that was kept would
/// show the wrong turn.
fn change(fixture: &Fixture, memory: Handle, turn: u64) -> Outcome {
    let address = fixture.map(0, memory, PAGES)?;
    for at in (0..PAGES).map(|page| address + page * PAGE_BYTES) {
        let seen = fixture.load(at);
        require!(turn < 2 || seen == turn - 2, "in turn {turn} of two segments one holds {seen}");
        fixture.store(at, turn);
    }
    fixture.unmap(0, PAGES)?;
    Ok(())
}

/// Pages that one call makes, long enough for many interrupts; calls.
const MADE: u64 = 200;
const CALLS: u64 = 40;
const RINGS: u64 = 100;
/// The shared word that says that we have seen enough.
const ENOUGH: u64 = 1;

/// The next core rings all the time while long calls are made here. A kernel that let interrupts in
/// before a call's end would find itself in use, and stop.
async fn interrupts_wait_for_the_end_of_a_call(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let (_, bits) = fixture.next_doorbell().ok_or_else(|| Failure::new("no channel to the next core"))?;
    let enough = fixture.shared(fixture.core(), ENOUGH);
    enough.store(0, Ordering::Release);
    let answer = partner.act("parallel/ring", [fixture.core(), 0, 0, 0]);
    runtime::sleep(1).await;
    let deadline_ns = fixture.deadline_ns();
    let (mut calls, mut during, mut signalled) = (0, 0, 0);
    while calls < CALLS || during < CALLS {
        require!(runtime::now_ns() < deadline_ns, "{during} interrupts came during {calls} long calls");
        let before = sys::counter_read(counter::WAKES_TAKEN)?;
        let (memory, _) = sys::segment_alloc(fixture.ram(), MADE, segment::EAGER)?;
        // Those that came in the call are taken at its end, before this one is entered.
        during += sys::counter_read(counter::WAKES_TAKEN)? - before;
        let present = sys::segment_stat(memory)?.1;
        require!(present == MADE, "{present} of {MADE} pages were made");
        sys::cap_drop(memory)?;
        calls += 1;
        signalled |= sys::wait(0)?;
    }
    enough.store(1, Ordering::Release);
    // Its doorbell is the channel's.
    executor::post(signalled);
    let [rings, ..] = answer.await?;
    require!(signalled & bits != 0, "{rings} rings of the next core, and none was heard");
    Ok(())
}

/// Rings the core before this one until it has enough.
fn ring(fixture: &Fixture, [core, ..]: Words) -> Result<Words, Failure> {
    let (doorbell, _) = fixture.previous_doorbell().ok_or_else(|| Failure::new("no channel from the core before"))?;
    let (end_ns, mut rings) = (runtime::now_ns() + LIMIT_NS, 0);
    while fixture.shared(core, ENOUGH).load(Ordering::Acquire) == 0 {
        require!(runtime::now_ns() < end_ns, "the core before does not get enough of {rings} rings");
        (0..RINGS).try_for_each(|_| sys::notify(doorbell))?;
        rings += RINGS;
        fixture.look()?;
    }
    Ok([rings, 0, 0, 0])
}
