//! Waiting inside a Linux call: for an answer, for readiness, for time; and being called back by a
//! signal.

use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use channel::{Call, CallError};
use contracts::descriptions::DescriptionId;
use personality::Errno;
use personality::descriptors::server;
use runtime::Watch;
use serde::de::DeserializeOwned;

use super::errors::{AsErrno, Failure};
use super::proxy::proxy;
use super::threads;
use super::user::with_signals;

/// Something happened that waiting calls may want to know.
#[derive(Default)]
pub struct Happenings {
    count: Cell<u64>,
    waiting: Watch,
}

impl Happenings {
    /// A `ready` event came, or the process may go on.
    pub fn happened(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        self.waiting.changed();
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Waits until `look` is true, whatever else happens.
    pub async fn until(&self, mut look: impl FnMut() -> bool) {
        self.waiting.until(|| look().then_some(())).await;
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
    if server == server::FS {
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
    if !wait || server == server::FS || threads::is_alone() {
        return ask(wait, limit_ns).await;
    }
    let deadline_ns = if limit_ns == 0 { u64::MAX } else { runtime::now_ns().saturating_add(limit_ns) };
    loop {
        let seen = proxy().happenings.count();
        let answer = ask(false, 0).await;
        if answer.as_ref().err() != Some(&Failure::Errno(Errno::EAGAIN)) || runtime::now_ns() >= deadline_ns {
            return answer;
        }
        let client = proxy().server(server)?;
        if answer_of(server, || client.poll(id, mask, contracts::descriptions::WatchFor::Level)).await? == 0 {
            happening(seen, deadline_ns).await?;
        }
    }
}

/// Waits for the next happening after `seen`, for a signal (`Interrupted`), or until `deadline_ns`
/// (then `false`). A process of one thread that is stopped meanwhile waits on when it is continued,
/// as Linux's own restart of these calls has it.
pub async fn happening(seen: u64, deadline_ns: u64) -> Result<bool, Failure> {
    loop {
        let found = until_signalled(deadline_ns, || (proxy().happenings.count() != seen).then_some(())).await;
        match found.is_err().then(take_stop).flatten() {
            Some(signal) => super::signals::stop(signal).await,
            None => return found.map(|happened| happened.is_some()),
        }
    }
}

fn take_stop() -> Option<u8> {
    if threads::is_alone() { with_signals(|signals, thread| signals.take_stop(thread)) } else { None }
}

/// Waits until `look` gives something; it is asked again after each happening. `None` at
/// `deadline_ns`, `Interrupted` by a signal.
pub async fn until_signalled<T>(deadline_ns: u64, mut look: impl FnMut() -> Option<T>) -> Result<Option<T>, Failure> {
    let waiting = proxy().happenings.waiting.until(|| {
        if signalled() {
            return Some(Err(Failure::Interrupted));
        }
        look().map(|found| Ok(Some(found)))
    });
    if deadline_ns == u64::MAX {
        return waiting.await;
    }
    let left_ns = deadline_ns.saturating_sub(runtime::now_ns());
    runtime::timeout(left_ns, waiting).await.unwrap_or(Ok(None))
}

/// Sleeps until a time; `Interrupted` by a signal.
pub async fn sleep_until(deadline_ns: u64) -> Result<(), Failure> {
    while happening(proxy().happenings.count(), deadline_ns).await? {}
    Ok(())
}
