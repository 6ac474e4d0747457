//! futex: sleeping until a word of the program's memory is said to have changed.
//!
//! Sleepers on memory that the process has to itself are its threads: the key is the address, and
//! the proxy runs between two instructions of the program, so looking at the word and going to
//! sleep are one step. Those on memory in common sleep at the process server, and look at the word
//! once it knows of them. It runs before any program does, so who changes the word later finds them
//! there.

use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};

use channel::CallError;
use personality::Errno;
use personality::futex::{OWNER, OWNER_DIED, WAITERS, change_and_compare};
use personality::layouts::TimeSpec;
use personality::sleepers::{Sleepers, Ticket};

use super::errors::{Failure, Outcome};
use super::global::Global;
use super::proxy::proxy;
use super::threads::{self, Line};
use super::time;
use super::user::{self, with_state, with_thread};
use super::wait::signalled;

enum Who {
    /// A thread by its place, with no task.
    Thread(usize),
    /// A call that is awaited, by who wakes it.
    Call(Option<Waker>),
}

impl Who {
    fn wake(self) {
        match self {
            Who::Thread(place) => threads::wake(place, 0),
            Who::Call(waker) => waker.into_iter().for_each(Waker::wake),
        }
    }
}

static GLOBAL: Global<RefCell<Sleepers<Who>>> = Global(RefCell::new(Sleepers::new()));

/// Works on the queues. `work` must not call anything that does.
fn with<T>(work: impl FnOnce(&mut Sleepers<Who>) -> T) -> T {
    work(&mut GLOBAL.0.borrow_mut())
}

/// A sleep under way; dropped, it is given up.
struct Sleep(Ticket);

impl Drop for Sleep {
    fn drop(&mut self) {
        leave(self.0);
    }
}

/// A sleep is given up.
pub fn leave(ticket: Ticket) {
    drop(with(|sleepers| sleepers.remove(ticket)));
}

/// Sleeps until woken; `ETIMEDOUT`, or `Interrupted` by a signal.
async fn sleep(address: u64, bits: u32, deadline_ns: u64) -> Result<(), Failure> {
    let sleep = Sleep(with(|sleepers| sleepers.add(address, bits, Who::Call(None))));
    let woken = poll_fn(|context| {
        with(|sleepers| match sleepers.get_mut(sleep.0) {
            None => Poll::Ready(Ok(())),
            Some(_) if signalled() => Poll::Ready(Err(Failure::Interrupted)),
            Some(who) => {
                *who = Who::Call(Some(context.waker().clone()));
                Poll::Pending
            }
        })
    });
    if deadline_ns == u64::MAX {
        return woken.await;
    }
    let left_ns = deadline_ns.saturating_sub(runtime::now_ns());
    runtime::timeout(left_ns, woken).await.unwrap_or(Err(Errno::ETIMEDOUT.into()))
}

/// Wakes up to `count` that share one of the bits; gives how many.
fn wake(address: u64, count: usize, bits: u32) -> u64 {
    with(|sleepers| sleepers.wake(address, count, bits, Who::wake)) as u64
}

/// A word that the program shares between its threads. `EINVAL`, `EFAULT`.
fn word(address: u64) -> Result<u32, Errno> {
    if address.is_multiple_of(4) { user::read(address) } else { Err(Errno::EINVAL) }
}

/// A word that sleepers are found by: of the process alone it is only named, and may be gone.
/// `EINVAL`, `EFAULT`.
fn named(address: u64, operation: u64) -> Result<(), Errno> {
    match operation & PRIVATE {
        0 => word(address).map(drop),
        _ if !address.is_multiple_of(4) => Err(Errno::EINVAL),
        _ if address < abi::layout::USER_END => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Numbers of things: negative ones mean none, as Linux has it.
fn count(value: u64) -> usize {
    (value as i32).max(0) as usize
}

/// The operations that sleep, by number.
const WAIT: u64 = 0;
const LOCK_PI: u64 = 6;
const WAIT_BITSET: u64 = 9;
const LOCK_PI2: u64 = 13;
/// FUTEX_CLOCK_REALTIME.
const BY_TIME_OF_DAY: u64 = 0x100;
const ANY: u32 = u32::MAX;

/// Those that wake.
const WAKE: u64 = 1;
const MOVE: u64 = 3;
const COMPARE_AND_MOVE: u64 = 4;
const WAKE_AND_CHANGE: u64 = 5;
const WAKE_BITSET: u64 = 10;
/// FUTEX_PRIVATE_FLAG.
const PRIVATE: u64 = 0x80;
/// Bytes of `struct robust_list_head`.
const ROBUST_HEAD_BYTES: u64 = 24;

fn wakes_in_common(kind: u64) -> bool {
    matches!(kind, WAKE | MOVE | COMPARE_AND_MOVE | WAKE_AND_CHANGE | WAKE_BITSET)
}

/// The word as others know it, if it may be theirs too.
fn in_common(at: u64, operation: u64) -> Option<(u64, u64)> {
    if operation & PRIVATE != 0 { None } else { with_state(|state| state.memory.in_common(at)) }
}

/// futex, where nobody sleeps. `None` for what may have to, or has to ask.
pub fn try_futex([at, operation, value, second, second_at, third]: [u64; 6]) -> Option<Outcome> {
    const UNLOCK_PI: u64 = 7;
    const TRY_LOCK_PI: u64 = 8;
    let answer = || {
        Ok(match operation & 0x7f {
            WAKE => {
                named(at, operation)?;
                wake(at, count(value), ANY)
            }
            WAKE_BITSET if third as u32 == 0 => return Err(Errno::EINVAL.into()),
            WAKE_BITSET => {
                named(at, operation)?;
                wake(at, count(value), third as u32)
            }
            kind @ (MOVE | COMPARE_AND_MOVE) => {
                named(at, operation)?;
                named(second_at, operation)?;
                if kind == COMPARE_AND_MOVE && word(at)? != third as u32 {
                    return Err(Errno::EAGAIN.into());
                }
                let woken = wake(at, count(value), ANY);
                woken + with(|sleepers| sleepers.move_to(at, second_at, count(second))) as u64
            }
            WAKE_AND_CHANGE => {
                let (new, wakes) = change_and_compare(third as u32, word(second_at)?).ok_or(Errno::ENOSYS)?;
                word(at)?;
                user::write(second_at, &new)?;
                wake(at, count(value), ANY) + if wakes { wake(second_at, count(second), ANY) } else { 0 }
            }
            TRY_LOCK_PI => {
                if take(at)? {
                    0
                } else {
                    return Err(Errno::EAGAIN.into());
                }
            }
            UNLOCK_PI => unlock_pi(at)?,
            _ => return Err(Errno::ENOSYS.into()),
        })
    };
    match operation & 0x7f {
        // Of all operations these alone may be given a time of day, as on Linux.
        kind if operation & BY_TIME_OF_DAY != 0 && !matches!(kind, WAIT_BITSET | LOCK_PI2) => {
            Some(Err(Errno::ENOSYS.into()))
        }
        WAIT | WAIT_BITSET if second == 0 => must_sleep(at, value, bits(operation, third)).err().map(Err),
        WAIT | LOCK_PI | WAIT_BITSET | LOCK_PI2 => None,
        kind if wakes_in_common(kind) && in_common(at, operation).is_some() => None,
        _ => Some(answer()),
    }
}

/// Wakes by a word in common. Who is to be moved to another word is woken and finds that he has to
/// sleep there: that costs him a call.
async fn wake_in_common(memory: (u64, u64), [at, operation, value, second, second_at, third]: [u64; 6]) -> Outcome {
    let process = &proxy().process;
    let wake_up = async |(memory, offset): (u64, u64), count: u64, bits: u32| {
        Ok::<u64, Failure>(process.wake(memory, offset, self::count(count) as u32, bits).await?.into())
    };
    word(at)?;
    match operation & 0x7f {
        WAKE_BITSET if third as u32 == 0 => Err(Errno::EINVAL.into()),
        WAKE_BITSET => wake_up(memory, value, third as u32).await,
        COMPARE_AND_MOVE if word(at)? != third as u32 => Err(Errno::EAGAIN.into()),
        MOVE | COMPARE_AND_MOVE => {
            let all = count(value).saturating_add(count(second)).min(i32::MAX as usize);
            wake_up(memory, all as u64, ANY).await
        }
        WAKE_AND_CHANGE => {
            let (new, wakes) = change_and_compare(third as u32, word(second_at)?).ok_or(Errno::ENOSYS)?;
            user::write(second_at, &new)?;
            let first = wake_up(memory, value, ANY).await?;
            Ok(first
                + match in_common(second_at, operation) {
                    Some(other) if wakes => wake_up(other, second, ANY).await?,
                    None if wakes => wake(second_at, count(second), ANY),
                    _ => 0,
                })
        }
        _ => wake_up(memory, value, ANY).await,
    }
}

/// Sleeps on a word in common while it is `value`.
async fn sleep_in_common(
    (memory, offset): (u64, u64),
    (at, value): (u64, u32),
    bits: u32,
    deadline_ns: u64,
) -> Outcome {
    let mut call = pin!(proxy().process.sleep_on(memory, offset, bits));
    let mut deadline = pin!(runtime::sleep_until(deadline_ns));
    let (mut is_known, mut why) = (false, None);
    let answer = poll_fn(|context| {
        if let Poll::Ready(answer) = call.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        if why.is_none() {
            why = if !core::mem::replace(&mut is_known, true) && word(at) != Ok(value) {
                Some(Failure::from(Errno::EAGAIN))
            } else if deadline.as_mut().poll(context).is_ready() {
                Some(Errno::ETIMEDOUT.into())
            } else {
                signalled().then_some(Failure::Interrupted)
            };
            if why.is_some() {
                // Who is woken all the same was woken.
                call.cancel();
            }
        }
        Poll::Pending
    })
    .await;
    match answer {
        Err(CallError::Cancelled) => Err(why.unwrap_or(Failure::Interrupted)),
        answer => Ok(answer.map(|()| 0)?),
    }
}

/// The bits by which who sleeps is woken.
fn bits(operation: u64, third: u64) -> u32 {
    if operation & 0x7f == WAIT_BITSET { third as u32 } else { ANY }
}

/// Has a thread to sleep while a word is `value`? `EAGAIN` if it is another; `EINVAL`, `EFAULT`.
fn must_sleep(at: u64, value: u64, bits: u32) -> Result<(), Failure> {
    match bits {
        0 => Err(Errno::EINVAL.into()),
        _ if word(at)? != value as u32 => Err(Errno::EAGAIN.into()),
        _ => Ok(()),
    }
}

/// futex, where the thread has to sleep as [`immediate`] said, and only other threads of the
/// process end that.
pub fn sleeps([at, operation, _, timeout_at, _, third]: [u64; 6]) -> Option<Line> {
    let by_threads = matches!(operation & 0x7f, WAIT | WAIT_BITSET) && timeout_at == 0;
    if !by_threads || in_common(at, operation).is_some() || signalled() {
        return None;
    }
    let ticket = with(|sleepers| sleepers.add(at, bits(operation, third), Who::Thread(threads::current())));
    Some(Line::Futex(ticket))
}

/// futex, where the thread may sleep.
pub async fn wait(arguments: [u64; 6]) -> Outcome {
    let [at, operation, value, timeout_at, _, third] = arguments;
    let kind = operation & 0x7f;
    let common = in_common(at, operation);
    if let Some(memory) = common.filter(|_| wakes_in_common(kind)) {
        return wake_in_common(memory, arguments).await;
    }
    let timeout: Option<TimeSpec> = user::read_if(timeout_at)?;
    // Priority inheritance counts by the time of day where it was first to have a time limit.
    let of_day = operation & BY_TIME_OF_DAY != 0 || kind == LOCK_PI;
    let until = match timeout {
        Some(absolute) if kind != WAIT => {
            time::moment(if of_day { 0 } else { 1 }, absolute.to_ns().ok_or(Errno::EINVAL)?)
        }
        relative => time::deadline(relative)?,
    };
    if matches!(kind, LOCK_PI | LOCK_PI2) {
        while !take(at)? {
            sleep(at, ANY, until).await?;
        }
        return Ok(0);
    }
    let bits = bits(operation, third);
    must_sleep(at, value, bits)?;
    if let Some(memory) = common {
        return sleep_in_common(memory, (at, value as u32), bits, until).await;
    }
    sleep(at, bits, until).await?;
    Ok(0)
}

/// Takes a lock with an owner, or marks it as wanted. All threads have one priority, so there is
/// none to inherit: the owner runs as soon as who waits does not.
fn take(at: u64) -> Result<bool, Errno> {
    let own = with_thread(|thread| thread.id as u32);
    let held = word(at)?;
    if held & OWNER == own {
        return Err(Errno::EDEADLK);
    }
    if held & OWNER != 0 && held & OWNER_DIED == 0 {
        if !threads::exists((held & OWNER).into()) {
            return Err(Errno::ESRCH);
        }
        user::write(at, &(held | WAITERS))?;
        return Ok(false);
    }
    let waiters = if with(|sleepers| sleepers.has_sleepers(at)) { WAITERS } else { 0 };
    user::write(at, &(own | waiters | held & OWNER_DIED))?;
    Ok(true)
}

/// Unlocks a priority-inheriting futex that the current thread owns, and wakes the next waiter.
fn unlock_pi(at: u64) -> Result<u64, Errno> {
    if word(at)? & OWNER != with_thread(|thread| thread.id as u32) {
        return Err(Errno::EPERM);
    }
    user::write(at, &0u32)?;
    wake(at, 1, ANY);
    Ok(0)
}

/// set_tid_address: what is cleared and woken when the current thread ends; gives its id.
pub fn set_id_address(at: u64) -> Outcome {
    Ok(with_thread(|thread| {
        thread.clear_id_at = at;
        thread.id
    }))
}

/// set_robust_list.
pub fn set_robust_list(at: u64, bytes: u64) -> Outcome {
    if bytes != ROBUST_HEAD_BYTES {
        return Err(Errno::EINVAL.into());
    }
    with_thread(|thread| thread.robust_at = at);
    Ok(0)
}

/// get_robust_list: of the current thread; others' are not told (`ESRCH`).
pub fn robust_list(id: u64, head_at: u64, bytes_at: u64) -> Outcome {
    let (own, at) = with_thread(|thread| (thread.id, thread.robust_at));
    if id != 0 && id != own {
        return Err(Errno::ESRCH.into());
    }
    user::write(head_at, &at)?;
    user::write(bytes_at, &ROBUST_HEAD_BYTES)?;
    Ok(0)
}

/// The current thread ends: who waits for it or for what it holds is told
/// (set_tid_address(2), set_robust_list(2)).
pub fn thread_ends() {
    let (clear_id_at, robust_at) = with_thread(|thread| (thread.clear_id_at, thread.robust_at));
    let _ = leave_robust(robust_at);
    if clear_id_at != 0 && user::write(clear_id_at, &0u32).is_ok() {
        wake(clear_id_at, 1, ANY);
    }
}

/// Walks the list of what the thread may hold: next, offset of the words, and the one it was about
/// to take or give back.
fn leave_robust(head: u64) -> Result<(), Errno> {
    /// As many as Linux walks (ROBUST_LIST_LIMIT).
    const LIMIT: usize = 2048;
    if head == 0 {
        return Ok(());
    }
    let [first, offset, underway]: [u64; 3] = user::read(head)?;
    // The lowest bit tells a lock with priority inheritance.
    let mut entry = first & !1;
    for _ in 0..LIMIT {
        if entry == head || entry == 0 {
            break;
        }
        let next: u64 = user::read(entry)?;
        if entry != underway & !1 {
            owner_died(entry.wrapping_add(offset))?;
        }
        entry = next & !1;
    }
    if underway & !1 != 0 {
        owner_died((underway & !1).wrapping_add(offset))?;
    }
    Ok(())
}

fn owner_died(at: u64) -> Result<(), Errno> {
    let held = word(at)?;
    if held & OWNER == with_thread(|thread| thread.id as u32) {
        user::write(at, &(held & WAITERS | OWNER_DIED))?;
        if held & WAITERS != 0 {
            wake(at, 1, ANY);
        }
    }
    Ok(())
}
