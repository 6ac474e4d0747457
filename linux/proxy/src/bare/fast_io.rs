//! read and write of what a server keeps, where the server answers while it is asked: without a
//! turn of the executor, and without what a wait needs.
//!
//! A process of one thread asks where the call is made. If the answer is there when the server has
//! given the time back, that was all. Else the question is *begun*, and what waits takes it over:
//! nobody asks twice. The rest is as in `input_output.rs`, where calls go that ask otherwise: of
//! several threads, for more than a message, with a time limit, of files and the terminal.
//!
//! Invariant: a question is begun only between the two halves of one call.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use channel::{Bulk, Call, CallError};
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionId};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;

use super::errors::{Failure, Outcome};
use super::input_output::{self, MESSAGE_MAX};
use super::poll;
use super::proxy::{Turn, proxy};
use super::user::{self, with_state};
use super::wait::answer;
use super::{counters, threads};

/// O_RDONLY: no bit.
const READ_ONLY: u32 = 0;

type Answer = Result<u32, CallError<DescriptionError>>;

/// How far a question has come.
enum Question {
    Asked(Call<u32, DescriptionError>),
    /// With what is not all that was wanted.
    Answered(Answer),
}

/// A question whose call goes on with its other half; the bulk area is its own until then.
pub struct Begun {
    question: Question,
    turn: Turn,
}

/// What may be asked so.
struct Object {
    server: u32,
    id: DescriptionId,
    waits: bool,
}

/// What a descriptor names, if it may be asked so; `closed` is how it must not be open.
fn object(descriptor: u64, closed: u32, limit_ns: impl Fn(&Description) -> u64) -> Option<Object> {
    with_state(|state| {
        let found = state.descriptors.get(descriptor).ok()?;
        let is_open = found.flags & O_PATH == 0 && found.flags & O_ACCMODE != closed;
        let is_kept = matches!(found.server, server::PROCESS | server::TCP);
        let asks = is_open && is_kept && limit_ns(found) == 0;
        asks.then_some(Object { server: found.server, id: found.id, waits: found.flags & O_NONBLOCK == 0 })
    })
}

/// Polls a question once, which gives the server our time.
fn ask(mut call: Call<u32, DescriptionError>) -> Question {
    match pin!(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Question::Answered(answer),
        Poll::Pending => Question::Asked(call),
    }
}

/// The other half of the call will find it.
fn leave(question: Question, turn: Turn) -> Option<Outcome> {
    proxy().begun.set(Some(Begun { question, turn }));
    None
}

impl Question {
    async fn answer(self) -> Answer {
        match self {
            Question::Asked(call) => answer(call).await,
            Question::Answered(answer) => answer,
        }
    }
}

/// Puts what was read where the program wants it.
fn put(bulk: &Bulk, count: u32, buffer: u64, room: u64) -> Outcome {
    let count = u64::from(count).min(room);
    user::with_bytes_mut(buffer, count, |place| bulk.read(0, place))?.map_err(|_| Errno::EIO)?;
    Ok(count)
}

/// read, where nobody has to be waited for.
pub fn try_read(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    let Some(Object { server, id, waits }) = object(descriptor, O_WRONLY, |found| found.receive_limit_ns) else {
        return counters::try_read(descriptor, buffer, count);
    };
    if count == 0 || !threads::is_alone() || user::check_writable(buffer, count.min(input_output::COUNT_MAX)).is_err() {
        return None;
    }
    let client = proxy().server(server).ok()?;
    let bulk = client.bulk();
    let turn = proxy().try_turn(server)?;
    let room = count.min(bulk.len() as u64);
    match ask(client.read(id, BulkSpan { offset: 0, length: room as u32 }, None, waits)) {
        Question::Answered(Ok(got)) => Some(put(&bulk, got, buffer, room)),
        question => leave(question, turn),
    }
}

/// read, after [`try_read`].
pub async fn read(descriptor: u64, buffer: u64, count: u64) -> Outcome {
    let Some(Begun { question, turn }) = proxy().begun.take() else {
        return input_output::read(descriptor, buffer, count, None, None).await;
    };
    let bulk = proxy().server(turn.server())?.bulk();
    let got = question.answer().await?;
    // The turn lasts until the bytes are taken out.
    put(&bulk, got, buffer, count.min(bulk.len() as u64))
}

/// write, where nobody has to be waited for.
pub fn try_write(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    let Some(Object { server, id, waits }) = object(descriptor, READ_ONLY, |found| found.send_limit_ns) else {
        return counters::try_write(descriptor, buffer, count);
    };
    if count == 0 || count > MESSAGE_MAX || !threads::is_alone() {
        return None;
    }
    let client = proxy().server(server).ok()?;
    let bulk = client.bulk();
    let turn = proxy().try_turn(server)?;
    user::with_bytes(buffer, count, |bytes| bulk.write(0, bytes)).ok()?.ok()?;
    match ask(client.write(id, BulkSpan { offset: 0, length: count as u32 }, None, waits)) {
        Question::Answered(Ok(put)) if u64::from(put) == count => Some(Ok(count)),
        question => leave(question, turn),
    }
}

/// write, after [`try_write`].
pub async fn write(descriptor: u64, buffer: u64, count: u64) -> Outcome {
    let Some(Begun { question, turn }) = proxy().begun.take() else {
        return input_output::write(descriptor, buffer, count, None, None).await;
    };
    let answer = question.answer().await;
    drop(turn);
    match answer {
        Ok(put) => {
            let put = u64::from(put).min(count);
            if put == 0 || put == count {
                return Ok(put);
            }
            // It stops at what goes wrong now, and tells how far it came.
            let rest = input_output::write(descriptor, buffer + put, count - put, None, None).await;
            Ok(put + rest.unwrap_or(0))
        }
        Err(error) => {
            poll::again(&input_output::description(descriptor)?);
            Err(Failure::from(error))
        }
    }
}
