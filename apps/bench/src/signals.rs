//! Notifications, the kernel's semaphores, and user semaphores.

use abi::{Error, Handle, Rights};
use runtime::{Companion, Semaphore};

use crate::sample::repeat;
use worker::{Job, Worker};

/// A badge bit of our own.
const ANSWER: u64 = 1 << runtime::OWN_BITS.start;
const LIMIT_NS: u64 = 1_000_000_000;

/// All rows.
pub fn all() -> Result<(), Error> {
    notifications()?;
    semaphores()?;
    user_semaphores()
}

fn notifications() -> Result<(), Error> {
    let worker = Worker::new(0, Job::Notify)?;
    let back = sys::cap_mint(Handle::SELF_CONTEXT, Rights::ALL, ANSWER)?;
    worker.start([worker.give(back)?, 0])?;
    let there = sys::cap_mint(worker.context, Rights::ALL, 1)?;
    sys::notify(there)?;
    if sys::wait(runtime::now_ns() + LIMIT_NS)? & ANSWER == 0 {
        return Err(Error::Timeout);
    }
    // It waits for a time better than its own; telling it again changes nothing.
    repeat("notify", || {
        let _ = sys::notify(there);
    });
    sys::wait(runtime::now_ns() + LIMIT_NS)?;
    repeat("notify-and-be-notified", || {
        let _ = sys::notify(there).and_then(|()| sys::wait(u64::MAX));
    });
    sys::cap_drop(there)?;
    sys::cap_drop(back)
}

fn semaphores() -> Result<(), Error> {
    let (there, back) = (sys::semaphore_alloc(Handle::SELF_RAM, 0)?, sys::semaphore_alloc(Handle::SELF_RAM, 1)?);
    repeat("semaphore-down-and-up", || {
        let _ = sys::semaphore_down(back, u64::MAX).and_then(|()| sys::semaphore_up(back, 1));
    });
    sys::semaphore_down(back, u64::MAX)?;
    let worker = Worker::new(0, Job::Pass)?;
    worker.start([worker.give(there)?, worker.give(back)?])?;
    let turn = |limit_ns| sys::semaphore_up(there, 1).and_then(|()| sys::semaphore_down(back, limit_ns));
    turn(runtime::now_ns() + LIMIT_NS)?;
    repeat("semaphore-round-trip", || {
        let _ = turn(u64::MAX);
    });
    sys::cap_drop(there)?;
    sys::cap_drop(back)
}

const COMPANION_TIME: (u64, u64) = (0, 1000);

/// What two contexts of this program pass turns with.
struct Turns {
    there: Semaphore,
    back: Semaphore,
}

fn user_semaphores() -> Result<(), Error> {
    let turns = Turns { there: runtime::semaphore(0)?, back: runtime::semaphore(1)? };
    repeat("user-semaphore-down-and-up", || {
        let _ = turns.back.down(u64::MAX).and_then(|()| turns.back.up(1));
    });
    turns.back.down(u64::MAX)?;
    // SAFETY: it meets us at the semaphores only, which are made for that; it ends before they do.
    let companion = unsafe { Companion::start(pass_turns, &raw const turns as u64, Some(COMPANION_TIME)) }?;
    let turn = |deadline_ns| turns.there.up(1).and_then(|()| turns.back.down(deadline_ns));
    turn(runtime::now_ns() + LIMIT_NS)?;
    repeat("user-semaphore-round-trip", || {
        let _ = turn(u64::MAX);
    });
    drop(companion);
    Ok(())
}

extern "C" fn pass_turns(turns: u64) -> ! {
    // SAFETY: the address of the `Turns` above, which outlives this context; all its operations are
    // made for several contexts.
    let turns = unsafe { &*(turns as *const Turns) };
    loop {
        let _ = turns.there.down(u64::MAX).and_then(|()| turns.back.up(1));
    }
}
