//! Waiting inside a Linux call: for an answer, for readiness, for time; and being called back by a
//! signal.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};

use channel::{Call, CallError};
use personality::Errno;
use personality::descriptors::server;
use serde::de::DeserializeOwned;

use super::errors::{AsErrno, Failure};
use super::proxy::proxy;
use super::user::with_state;

/// Something happened that a waiting call may want to know. The program has one thread, so one call
/// waits.
#[derive(Default)]
pub struct Happenings {
    count: Cell<u64>,
    waiting: RefCell<Option<Waker>>,
}

impl Happenings {
    /// A signal or a `ready` event came.
    pub fn happened(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Waits until `look` is true, whatever else happens.
    pub async fn until(&self, mut look: impl FnMut() -> bool) {
        poll_fn(|context| {
            if look() {
                return Poll::Ready(());
            }
            self.remember(context.waker());
            Poll::Pending
        })
        .await
    }

    fn remember(&self, waker: &Waker) {
        *self.waiting.borrow_mut() = Some(waker.clone());
    }
}

/// Must the program see a signal before it goes on?
pub fn signalled() -> bool {
    with_state(|state| state.signals.has_deliverable())
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
        proxy().happenings.remember(context.waker());
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
        proxy().happenings.remember(context.waker());
        Poll::Pending
    })
    .await
}

/// Waits for the next happening after `seen`, for a signal (`Interrupted`), or until `deadline_ns`
/// (then `false`). A process that is stopped meanwhile waits on when it is continued, as Linux's
/// own restart of these calls has it.
pub async fn happening(seen: u64, deadline_ns: u64) -> Result<bool, Failure> {
    loop {
        let found = next_happening(seen, deadline_ns).await;
        match found.is_err().then(|| with_state(|state| state.signals.take_stop())).flatten() {
            Some(signal) => super::signals::stop(signal).await,
            None => return found,
        }
    }
}

async fn next_happening(seen: u64, deadline_ns: u64) -> Result<bool, Failure> {
    let happenings = &proxy().happenings;
    let look = poll_fn(|context| {
        if signalled() {
            return Poll::Ready(Err(Failure::Interrupted));
        }
        if happenings.count() != seen {
            return Poll::Ready(Ok(true));
        }
        happenings.remember(context.waker());
        Poll::Pending
    });
    if deadline_ns == u64::MAX {
        return look.await;
    }
    let left_ns = deadline_ns.saturating_sub(runtime::now_ns());
    runtime::timeout(left_ns, look).await.unwrap_or(Ok(false))
}

/// Sleeps until a time; `Interrupted` by a signal.
pub async fn sleep_until(deadline_ns: u64) -> Result<(), Failure> {
    while happening(proxy().happenings.count(), deadline_ns).await? {}
    Ok(())
}
