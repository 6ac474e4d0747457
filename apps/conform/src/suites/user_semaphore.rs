//! User semaphores: no call unless somebody sleeps, ups of another core, and a count that somebody
//! damaged.

use alloc::rc::Rc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::counter;
use abi::{Error, Handle};
use runtime::{Companion, Semaphore};
use semaphore::KernelSemaphore;

use crate::table::Words;
use crate::{Failure, Fixture, Outcome, Partner, refused, require, suite};

suite!("user_semaphore"; alone: without_sleepers_there_is_no_call, two_contexts_pass_turns, a_deadline_passes, a_damaged_count_harms_its_users_only;
    paired: no_up_of_another_core_is_lost; far: come_up);

const TRIES: usize = 20;
const TURNS: u32 = 2000;
/// Ups of another core, in rounds.
const ROUNDS: u64 = 100;
const UPS: u64 = 200;
/// How long one down sleeps at most, so that many deadlines meet ups; and when others have their
/// turn.
const STEP_NS: u64 = 100_000;
/// The shared word that is the count.
const COUNT: u64 = 1;

fn without_sleepers_there_is_no_call(_: &Fixture) -> Outcome {
    let semaphore = runtime::semaphore(0)?;
    let mut fewest = u64::MAX;
    // Others of this core make calls too; in one of the tries none does.
    for _ in 0..TRIES {
        let before = sys::counter_read(counter::CALLS)?;
        for _ in 0..1000 {
            semaphore.up(1)?;
            semaphore.down(u64::MAX)?;
        }
        fewest = fewest.min(sys::counter_read(counter::CALLS)? - before);
    }
    require!(fewest == 1, "1000 downs and ups make {} calls", fewest - 1);
    Ok(())
}

struct Turns {
    there: Semaphore,
    back: Semaphore,
    passed: AtomicU64,
}

extern "C" fn pass_turns(turns: u64) -> ! {
    // SAFETY: the address of the `Turns` of the test, which outlives this context; made for several
    // contexts.
    let turns = unsafe { &*(turns as *const Turns) };
    loop {
        if turns.there.down(u64::MAX).is_ok() {
            turns.passed.fetch_add(1, Ordering::Relaxed);
            let _ = turns.back.up(1);
        }
    }
}

fn two_contexts_pass_turns(fixture: &Fixture) -> Outcome {
    let turns = Turns { there: runtime::semaphore(0)?, back: runtime::semaphore(0)?, passed: AtomicU64::new(0) };
    // SAFETY: it meets us at the semaphores and the number only; it ends before they do.
    let companion = unsafe { Companion::start(pass_turns, &raw const turns as u64, Some((0, 1000))) }?;
    for _ in 0..TURNS {
        turns.there.up(1)?;
        turns.back.down(fixture.deadline_ns())?;
    }
    // All at once too.
    turns.there.up(TURNS)?;
    for _ in 0..TURNS {
        turns.back.down(fixture.deadline_ns())?;
    }
    drop(companion);
    let passed = turns.passed.load(Ordering::Relaxed);
    require!(passed == 2 * u64::from(TURNS), "{passed} turns");
    require!(!turns.back.try_down() && !turns.there.try_down(), "something is left");
    Ok(())
}

fn a_deadline_passes(fixture: &Fixture) -> Outcome {
    let semaphore = runtime::semaphore(0)?;
    refused(semaphore.down(0), Error::Timeout)?;
    let deadline_ns = fixture.soon_ns();
    refused(semaphore.down(deadline_ns), Error::Timeout)?;
    require!(runtime::now_ns() >= deadline_ns, "the deadline had not passed");
    semaphore.up(1)?;
    semaphore.down(fixture.deadline_ns())?;
    Ok(())
}

/// A kernel semaphore, or what leads to one of another core, that somebody else drops.
struct Lent(Handle);

impl KernelSemaphore for Lent {
    fn up(&self, count: u64) -> Result<(), Error> {
        sys::semaphore_up(self.0, count)
    }
    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        sys::semaphore_down(self.0, deadline_ns)
    }
}

fn a_damaged_count_harms_its_users_only(fixture: &Fixture) -> Outcome {
    let bystander = runtime::semaphore(0)?;
    let count = AtomicU64::new(0);
    let gate = sys::semaphore_alloc(fixture.ram(), 0)?;
    let damaged = semaphore::Semaphore::new(&count, Lent(gate));
    for value in [i64::MIN, i64::MIN + 1, -1_000_000, -1, 0, 1, 1 << 40, i64::MAX] {
        count.store(value as u64, Ordering::Relaxed);
        // Whatever these say, they come back and nothing panics.
        let _ = damaged.up(1);
        let _ = damaged.down(fixture.soon_ns());
        count.store(value as u64, Ordering::Relaxed);
        let _ = damaged.down(fixture.soon_ns());
        let _ = damaged.up(u32::MAX);
        bystander.up(1)?;
        bystander.down(fixture.deadline_ns())?;
        refused(bystander.down(0), Error::Timeout)?;
    }
    sys::cap_drop(gate)?;
    Ok(())
}

/// We come down here, the next core comes up: by the count, and by its kernel's mailbox where we
/// sleep. Deadlines pass all the time.
async fn no_up_of_another_core_is_lost(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let gate = sys::semaphore_alloc(fixture.ram(), 0)?;
    let slot = sys::wake_slot_alloc(fixture.pcore()?, gate, 0)?;
    let count = fixture.shared(fixture.core(), COUNT);
    count.store(0, Ordering::Release);
    let semaphore = semaphore::Semaphore::new(count, Lent(gate));
    let mut sleeps = 0;
    for round in 0..ROUNDS {
        let answer = partner.act("user_semaphore/come_up", [fixture.core(), slot, UPS, round]);
        let deadline_ns = fixture.deadline_ns();
        let mut taken = 0;
        while taken < UPS {
            match semaphore.down(runtime::now_ns() + STEP_NS) {
                Ok(()) => taken += 1,
                Err(Error::Timeout) => {
                    sleeps += 1;
                    require!(runtime::now_ns() < deadline_ns, "{taken} of {UPS} ups in round {round}");
                    // The core before this one asks us too.
                    runtime::sleep(1).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let [done, ..] = answer.await?;
        require!(done == UPS, "the next core came up {done} times");
    }
    require!(sleeps > 0, "nobody slept");
    require!(!semaphore.try_down(), "more came than was sent");
    refused(sys::semaphore_down(gate, 0), Error::Timeout)?;
    sys::cap_drop(gate)?;
    Ok(())
}

fn come_up(fixture: &Fixture, [core, slot, ups, round]: Words) -> Result<Words, Failure> {
    let remote = sys::wake_slot_import(fixture.pcore()?, fixture.ram(), core, slot)?;
    let semaphore = semaphore::Semaphore::new(fixture.shared(core, COUNT), Lent(remote));
    let mut chance = round * 2 + 1;
    for _ in 0..ups {
        semaphore.up(1)?;
        // Now and then the other side has time to fall asleep.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..chance >> 58 {
            core::hint::spin_loop();
        }
    }
    sys::cap_drop(remote)?;
    Ok([ups, 0, 0, 0])
}
