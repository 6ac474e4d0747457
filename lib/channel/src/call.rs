//! One outstanding call as a future.

use alloc::rc::Rc;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use serde::de::DeserializeOwned;

use crate::body::decode;
use crate::client::ClientChannel;

/// Why a call gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError<E> {
    /// The server refused; what that means stands in the contract.
    Server(E),
    /// The server was restarted; whether the operation took place is not known. Remedy: look, then
    /// repeat.
    PeerRestarted,
    /// The channel is over. Remedy: bind again.
    Closed,
    /// Too many calls are outstanding. Remedy: later again, or [`queued`].
    Full,
    /// The arguments are too long for a message. Remedy: send them as bulk.
    TooLong,
    /// Ended by [`Call::cancel`] before it took place.
    Cancelled,
    /// The answer made no sense, or was too long for a message; if it made no sense the channel is
    /// closed.
    Malformed,
}

impl CallError<core::convert::Infallible> {
    /// For a contract's own error type.
    pub(crate) fn widen<E>(self) -> CallError<E> {
        match self {
            CallError::Server(never) => match never {},
            CallError::PeerRestarted => CallError::PeerRestarted,
            CallError::Closed => CallError::Closed,
            CallError::Full => CallError::Full,
            CallError::TooLong => CallError::TooLong,
            CallError::Cancelled => CallError::Cancelled,
            CallError::Malformed => CallError::Malformed,
        }
    }
}

/// A failure of the channel, not of the server.
pub(crate) type Failure = CallError<core::convert::Infallible>;

/// A call under way: sent when made, resolved by `.await`. Dropping it tells the server to stop.
#[must_use = "a dropped call is cancelled"]
pub struct Call<R, E> {
    channel: Rc<ClientChannel>,
    /// Its number, or why it was not sent; `None` once resolved.
    state: Option<Result<u32, Failure>>,
    /// The first poll rings the server.
    rings: bool,
    answer: PhantomData<fn() -> Result<R, E>>,
}

impl<R, E> Call<R, E> {
    pub(crate) fn new(channel: Rc<ClientChannel>, sent: Result<u32, Failure>, rings: bool) -> Call<R, E> {
        Call { channel, state: Some(sent), rings, answer: PhantomData }
    }

    /// Asks the server to stop; the call then ends with `Cancelled`, unless the answer was made
    /// already: then with that.
    pub fn cancel(&self) {
        if let Some(Ok(correlation)) = self.state {
            self.channel.cancel(correlation);
        }
    }
}

/// Makes a call, and while too many are outstanding waits until it can be made. Only for servers
/// that never wait for the caller in turn: two that queue for each other would wait for ever.
pub async fn queued<R, E>(make: impl Fn() -> Call<R, E>) -> Result<R, CallError<E>>
where
    Call<R, E>: Future<Output = Result<R, CallError<E>>>,
{
    make().or_queued(make).await
}

impl<R, E> Call<R, E>
where
    Call<R, E>: Future<Output = Result<R, CallError<E>>>,
{
    /// Its answer; if too many were outstanding when it was made, that of one that `make` makes
    /// once it can be, as [`queued`] does. For those who make several calls before they wait for
    /// the first.
    pub async fn or_queued(self, make: impl Fn() -> Call<R, E>) -> Result<R, CallError<E>> {
        let mut call = self;
        loop {
            let channel = call.channel.clone();
            match call.await {
                Err(CallError::Full) => channel.room().await,
                answer => return answer,
            }
            call = make();
        }
    }
}

impl<R: DeserializeOwned, E: DeserializeOwned> Future for Call<R, E> {
    type Output = Result<R, CallError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if core::mem::take(&mut self.rings) {
            self.channel.notify_now();
        }
        let answer = match self.state {
            None => Err(Failure::Closed),
            Some(Err(failure)) => Err(failure),
            Some(Ok(correlation)) => match self.channel.take_answer(correlation, context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer,
            },
        };
        self.state = None;
        Poll::Ready(match answer {
            Err(failure) => Err(failure.widen()),
            Ok(body) => match decode::<Result<R, E>>(body.bytes()) {
                Ok(result) => result.map_err(CallError::Server),
                Err(_) => {
                    self.channel.refuse();
                    Err(CallError::Malformed)
                }
            },
        })
    }
}

impl<R, E> Drop for Call<R, E> {
    fn drop(&mut self) {
        if let Some(Ok(correlation)) = self.state {
            self.channel.abandon(correlation);
        }
    }
}
