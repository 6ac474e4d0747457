//! read and write of what a server keeps, where the server answers while it is asked: without a
//! turn of the executor, and without what a wait needs.
//!
//! A process of one thread asks where the call is made. If the answer is there when the server has
//! given the time back, that was all. Else the question is *begun*, and what waits takes it over:
//! nobody asks twice. The rest is as in `input_output.rs`, where calls go that ask otherwise: of
//! several threads, for more than a message, with a time limit, of files and the terminal. The
//! rules are in `personality::fast_path`.

use channel::{Bulk, Call, CallError};
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionId};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::fast_path::{self, may_ask, rest};
use personality::flags::*;

use super::errors::{Failure, Outcome};
use super::input_output::{self, MESSAGE_MAX};
use super::poll;
use super::proxy::{Turn, proxy};
use super::user::{self, with_state};
use super::wait::answer;
use super::{counters, read_ahead, threads};

/// O_RDONLY: no bit.
const READ_ONLY: u32 = 0;

type Answer = Result<u32, CallError<DescriptionError>>;

type Question = fast_path::Question<Call<u32, DescriptionError>, Answer>;

/// A question whose call goes on with its other half; the bulk area is its own until then.
pub type Begun = fast_path::Begun<Call<u32, DescriptionError>, Answer, Turn>;

/// What may be asked so.
struct Object {
    server: u32,
    id: DescriptionId,
    waits: bool,
}

/// What a descriptor names.
enum Named {
    Object(Object),
    /// An event counter, here.
    Counter,
    /// What is read and written elsewhere, or nothing.
    Other,
}

/// What a descriptor names; `closed` is how an object must not be open.
fn named(descriptor: u64, closed: u32, limit_ns: impl Fn(&Description) -> u64) -> Named {
    with_state(|state| match state.descriptors.get(descriptor) {
        Ok(found) if found.server == server::COUNTER => Named::Counter,
        Ok(found) if may_ask(found, closed, limit_ns(found)) => {
            Named::Object(Object { server: found.server, id: found.id, waits: found.flags & O_NONBLOCK == 0 })
        }
        _ => Named::Other,
    })
}

/// The other half of the call will find it.
fn leave(question: Question, turn: Turn) -> Option<Outcome> {
    proxy().begun.leave(question, turn);
    None
}

/// Puts what was read where the program wants it.
fn put(bulk: &Bulk, count: u32, buffer: u64, room: u64) -> Outcome {
    let count = u64::from(count).min(room);
    user::with_bytes_mut(buffer, count, |place| bulk.read(0, place))?.map_err(|_| Errno::EIO)?;
    Ok(count)
}

/// read, where nobody has to be waited for.
pub fn try_read(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    let Object { server, id, waits } = match named(descriptor, O_WRONLY, |found| found.receive_limit_ns) {
        Named::Object(object) => object,
        Named::Counter => return counters::try_read(descriptor, buffer, count),
        Named::Other => return read_ahead::try_read(descriptor, buffer, count.min(input_output::COUNT_MAX)),
    };
    if count == 0 || !threads::is_alone() || user::check_writable(buffer, count.min(input_output::COUNT_MAX)).is_err() {
        return None;
    }
    let client = proxy().server(server).ok()?;
    let bulk = read_ahead::data_area(&client.bulk());
    let turn = proxy().try_turn(server)?;
    let room = count.min(bulk.len() as u64);
    match Question::ask(client.read(id, BulkSpan { offset: 0, length: room as u32 }, None, waits)) {
        Question::Answered(Ok(got)) => Some(put(&bulk, got, buffer, room)),
        question => leave(question, turn),
    }
}

/// read, after [`try_read`].
pub async fn read(descriptor: u64, buffer: u64, count: u64) -> Outcome {
    let Some((question, turn)) = proxy().begun.take() else {
        return input_output::read(descriptor, buffer, count, None, None).await;
    };
    let bulk = read_ahead::data_area(&proxy().server(turn.server())?.bulk());
    let got = question.answer(answer).await?;
    // The turn lasts until the bytes are taken out.
    put(&bulk, got, buffer, count.min(bulk.len() as u64))
}

/// write, where nobody has to be waited for.
pub fn try_write(descriptor: u64, buffer: u64, count: u64) -> Option<Outcome> {
    let Object { server, id, waits } = match named(descriptor, READ_ONLY, |found| found.send_limit_ns) {
        Named::Object(object) => object,
        Named::Counter => return counters::try_write(descriptor, buffer, count),
        Named::Other => return None,
    };
    if count == 0 || count > MESSAGE_MAX || !threads::is_alone() {
        return None;
    }
    let client = proxy().server(server).ok()?;
    let bulk = read_ahead::data_area(&client.bulk());
    let turn = proxy().try_turn(server)?;
    user::with_bytes(buffer, count, |bytes| bulk.write(0, bytes)).ok()?.ok()?;
    match Question::ask(client.write(id, BulkSpan { offset: 0, length: count as u32 }, None, waits)) {
        Question::Answered(Ok(put)) if u64::from(put) == count => Some(Ok(count)),
        question => leave(question, turn),
    }
}

/// write, after [`try_write`].
pub async fn write(descriptor: u64, buffer: u64, count: u64) -> Outcome {
    let Some((question, turn)) = proxy().begun.take() else {
        return input_output::write(descriptor, buffer, count, None, None).await;
    };
    let answered = question.answer(answer).await;
    drop(turn);
    match answered {
        Ok(put) => {
            let Some(rest) = rest(put, count) else { return Ok(u64::from(put).min(count)) };
            let put = count - rest;
            // It stops at what goes wrong now, and tells how far it came.
            Ok(put + input_output::write(descriptor, buffer + put, rest, None, None).await.unwrap_or(0))
        }
        Err(error) => {
            poll::again(&input_output::description(descriptor)?);
            Err(Failure::from(error))
        }
    }
}
