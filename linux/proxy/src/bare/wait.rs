//! Waiting inside a Linux call: for an answer, for readiness, for time; and being called back by a
//! signal.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};

use channel::{Call, CallError};
use contracts::descriptions::{DescriptionId, WatchFor};
use personality::Errno;
use personality::descriptors::server;
use personality::epoll::Object;
use personality::waiting::{Purpose, Ticket, Waits};
use runtime::Watch;
use serde::de::DeserializeOwned;

use super::errors::{AsErrno, Failure};
use super::proxy::proxy;
use super::threads;
use super::user::with_signals;

/// Calls that wait for changes of objects, and for signals.
#[derive(Default)]
pub struct WaitQueue {
    waits: RefCell<Waits>,
    /// Notified when signals came, and news of other processes.
    signals: Watch,
}

impl WaitQueue {
    /// Wakes the waits that end by a signal, or when the process may continue.
    pub fn signalled(&self) {
        self.signals.changed();
    }

    /// How many changes of objects there were.
    pub fn changes(&self) -> u64 {
        self.waits.borrow().changes()
    }

    /// Wakes the waits that a change of an object concerns.
    pub fn changed(&self, object: Object) {
        let woken = self.waits.borrow_mut().changed(object);
        woken.into_iter().for_each(Waker::wake);
    }

    /// The same for all objects of a server.
    pub fn all_changed(&self, server: u32) {
        let woken = self.waits.borrow_mut().all_changed(server);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Does anybody wait for that object?
    pub fn has(&self, object: Object) -> bool {
        self.waits.borrow().has(object)
    }

    /// Does anybody wait to take what comes to an object, with that mask?
    pub fn takes(&self, object: Object, mask: u32) -> bool {
        self.waits.borrow().takes(object, mask)
    }

    /// Waits until `look` is true, whatever signals come.
    pub async fn until(&self, mut look: impl FnMut() -> bool) {
        self.signals.until(|| look().then_some(())).await;
    }
}

/// A wait for changes of objects.
pub struct Waiting {
    ticket: Ticket,
    /// It has taken notice of a change that nobody else of its kind was told of.
    owes: Cell<bool>,
}

impl Waiting {
    /// To look at objects, which were looked at when there had been `seen` changes.
    pub fn to_look(objects: Vec<Object>, seen: u64) -> Waiting {
        Waiting::new(Purpose::Look, objects, Some(seen))
    }

    /// To take what comes to an object; of several who wait so with the same mask, one is told.
    pub fn to_take(object: Object, mask: u32) -> Waiting {
        Waiting::new(Purpose::Take(mask), vec![object], None)
    }

    fn new(purpose: Purpose, objects: Vec<Object>, seen: Option<u64>) -> Waiting {
        let ticket = proxy().wait_queue.waits.borrow_mut().begin(purpose, objects, seen);
        Waiting { ticket, owes: Cell::new(false) }
    }

    /// Waits until objects change, and gives them; none at `deadline_ns`, `Interrupted` by a
    /// signal.
    pub async fn changed(&self, deadline_ns: u64) -> Result<Vec<Object>, Failure> {
        let changed = until(deadline_ns, |waker| {
            let told = proxy().wait_queue.waits.borrow_mut().take(self.ticket, Some(waker));
            (!told.is_empty()).then_some(told)
        });
        let changed = changed.await?.unwrap_or_default();
        self.owes.set(self.owes.get() || !changed.is_empty());
        Ok(changed)
    }

    /// Whether others are to be told at the end of what this one was: not if it has asked for the
    /// next change, or found that nothing is left.
    pub fn owes(&self, owes: bool) {
        self.owes.set(owes);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let next = proxy().wait_queue.waits.borrow_mut().end(self.ticket, self.owes.get());
        next.into_iter().for_each(Waker::wake);
    }
}

/// Must the thread see a signal before it goes on?
pub fn signalled() -> bool {
    with_signals(|signals, thread| signals.has_deliverable(thread))
}

/// Awaits an answer; a signal cancels the call, which then ends with `Cancelled` or with the answer
/// that was already made.
pub async fn answer<R: DeserializeOwned, E: DeserializeOwned>(call: Call<R, E>) -> Result<R, CallError<E>> {
    let mut call = pin!(call);
    let mut cancelled = false;
    poll_fn(|context| {
        if let Poll::Ready(answer) = call.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        if !cancelled && signalled() {
            call.cancel();
            cancelled = true;
        }
        Poll::Pending
    })
    .await
}

/// As [`answer`], with two differences. Files never keep a caller waiting, so no signal cuts their
/// reads and writes short (half an executable cannot be run). A restarted console is asked again,
/// since its descriptions are held by everybody; reads and writes are numbered for that.
pub async fn answer_of<R: DeserializeOwned, E: DeserializeOwned>(
    server: u32,
    ask: impl Fn() -> Call<R, E>,
) -> Result<R, CallError<E>> {
    if server::keeps_files(server) {
        return ask().await;
    }
    loop {
        match answer(ask()).await {
            Err(CallError::PeerRestarted) if server == server::CONSOLE => {}
            other => return other,
        }
    }
}

/// As [`answer_of`], but for `limit_ns` at most (0: for ever); then `EAGAIN`, unless the answer was
/// already made.
pub async fn answer_within<R: DeserializeOwned, E: DeserializeOwned + AsErrno>(
    server: u32,
    limit_ns: u64,
    ask: impl Fn() -> Call<R, E>,
) -> Result<R, Failure> {
    if limit_ns == 0 {
        return Ok(answer_of(server, ask).await?);
    }
    match answer_cancelled_by(ask(), runtime::now_ns().saturating_add(limit_ns)).await {
        (Err(CallError::Cancelled), true) => Err(Errno::EAGAIN.into()),
        (answer, _) => Ok(answer?),
    }
}

/// Awaits an answer; a signal or the deadline cancels the call. Also gives whether it was the
/// deadline.
async fn answer_cancelled_by<R: DeserializeOwned, E: DeserializeOwned>(
    call: Call<R, E>,
    deadline_ns: u64,
) -> (Result<R, CallError<E>>, bool) {
    let mut call = pin!(call);
    let mut deadline = pin!(runtime::sleep_until(deadline_ns));
    let (mut cancelled, mut late) = (false, false);
    poll_fn(|context| {
        if let Poll::Ready(answer) = call.as_mut().poll(context) {
            return Poll::Ready((answer, late));
        }
        if !cancelled {
            late = deadline.as_mut().poll(context).is_ready();
            if late || signalled() {
                call.cancel();
                cancelled = true;
            }
        }
        Poll::Pending
    })
    .await
}

/// Asks a server for what may have to be waited for: once `ready::*` bits of `mask` hold of the
/// description. `ask` is told whether the server is to wait. One thread alone lets the server wait;
/// several ask again when the server says that it is time, so that no call is under way for long.
/// `limit_ns` as for [`answer_within`].
pub async fn answer_when_ready<R>(
    found: (u32, DescriptionId),
    mask: u32,
    wait: bool,
    limit_ns: u64,
    ask: impl AsyncFn(bool, u64) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (server, id) = found;
    if !wait || server::keeps_files(server) || threads::is_alone() {
        return ask(wait, limit_ns).await;
    }
    let deadline_ns = if limit_ns == 0 { u64::MAX } else { runtime::now_ns().saturating_add(limit_ns) };
    let mut waiting: Option<Waiting> = None;
    loop {
        let answer = ask(false, 0).await;
        if answer.as_ref().err() != Some(&Failure::Errno(Errno::EAGAIN)) || runtime::now_ns() >= deadline_ns {
            return answer;
        }
        let waiting = waiting.get_or_insert_with(|| Waiting::to_take(found, mask));
        let client = proxy().server(server)?;
        if answer_of(server, || client.poll(id, mask, WatchFor::Level)).await? == 0 {
            waiting.owes(false);
            waiting.changed(deadline_ns).await?;
        }
    }
}

/// Waits until one of `mask` may hold of a description, which is not taken but looked at.
pub async fn until_ready((server, id): Object, mask: u32) -> Result<(), Failure> {
    let client = proxy().server(server)?;
    let waiting = Waiting::to_look(vec![(server, id)], proxy().wait_queue.changes());
    if answer_of(server, || client.poll(id, mask, WatchFor::Level)).await? == 0 {
        waiting.changed(u64::MAX).await?;
    }
    Ok(())
}

fn take_stop() -> Option<u8> {
    if threads::is_alone() { with_signals(|signals, thread| signals.take_stop(thread)) } else { None }
}

/// Waits until `look` gives something; it is asked again when the waker that it is given is woken.
/// `None` at `deadline_ns`, `Interrupted` by a signal. A process of one thread that is stopped
/// meanwhile waits on when it is continued, as Linux's own restart of these calls has it.
async fn until<T>(deadline_ns: u64, mut look: impl FnMut(&Waker) -> Option<T>) -> Result<Option<T>, Failure> {
    loop {
        let waiting = poll_fn(|context| {
            if signalled() {
                return Poll::Ready(Err(Failure::Interrupted));
            }
            look(context.waker()).map_or(Poll::Pending, |found| Poll::Ready(Ok(Some(found))))
        });
        let found = before(deadline_ns, waiting).await;
        match found.is_err().then(take_stop).flatten() {
            Some(signal) => super::signals::stop(signal).await,
            None => return found,
        }
    }
}

/// Awaits until a time; then `None`.
async fn before<T>(
    deadline_ns: u64,
    waiting: impl Future<Output = Result<Option<T>, Failure>>,
) -> Result<Option<T>, Failure> {
    if deadline_ns == u64::MAX {
        return waiting.await;
    }
    let left_ns = deadline_ns.saturating_sub(runtime::now_ns());
    runtime::timeout(left_ns, waiting).await.unwrap_or(Ok(None))
}

/// Waits until `look` gives something; it is asked again after each signal. `None` at
/// `deadline_ns`, `Interrupted` by a signal.
pub async fn until_signalled<T>(deadline_ns: u64, mut look: impl FnMut() -> Option<T>) -> Result<Option<T>, Failure> {
    let waiting = proxy().wait_queue.signals.until(|| {
        if signalled() {
            return Some(Err(Failure::Interrupted));
        }
        look().map(|found| Ok(Some(found)))
    });
    before(deadline_ns, waiting).await
}

/// Sleeps until a time; `Interrupted` by a signal.
pub async fn sleep_until(deadline_ns: u64) -> Result<(), Failure> {
    until(deadline_ns, |_| None::<()>).await.map(drop)
}
