//! From one descriptor to another without the program's memory: sendfile, copy_file_range, splice,
//! tee. All go through a buffer of the proxy, piece by piece.
//!
//! Invariant: no byte is lost. What was read of a file and not written is read again; a pipe is
//! looked into, and of that only what was written is taken; and what is read to be put into a pipe
//! has room there.

use alloc::vec;

use contracts::BulkSpan;
use contracts::descriptions::{Kind, WatchFor, Whence, ready};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;

use super::errors::{Failure, Outcome};
use super::files::type_bits;
use super::input_output::{COUNT_MAX, REGULAR, read_description, readable, writable, write_description};
use super::proxy::proxy;
use super::read_ahead;
use super::user::{self, Source, Target};
use super::wait::{answer, answer_of, until_ready};

/// Bytes moved at a time.
const PIECE_BYTES: usize = 64 << 10;
/// A pipe that says it has room takes so many.
const PIPE_PIECE_BYTES: usize = 4096;
/// SPLICE_F_NONBLOCK, and all of them.
const DO_NOT_WAIT: u64 = 2;
const KNOWN: u64 = 15;

/// sendfile.
pub async fn send_file(out: u64, from: u64, offset_at: u64, count: u64) -> Outcome {
    let (source, target) = (readable(from)?, writable(out)?);
    if source.kind != REGULAR {
        return Err(Errno::EINVAL.into());
    }
    let mut at: Option<u64> = user::read_if(offset_at)?;
    if at.is_some_and(|at| at > i64::MAX as u64) {
        return Err(Errno::EINVAL.into());
    }
    let done = from_file(&source, &mut at, &target, &mut None, count).await?;
    if let Some(at) = at {
        user::write(offset_at, &at)?;
    }
    Ok(done)
}

/// copy_file_range.
pub async fn copy_range([from, from_at, to, to_at, count, flags]: [u64; 6]) -> Outcome {
    let (source, target) = (readable(from)?, writable(to)?);
    let directory = type_bits(Kind::Directory);
    if source.kind == directory || target.kind == directory {
        return Err(Errno::EISDIR.into());
    }
    if flags != 0 || source.kind != REGULAR || target.kind != REGULAR {
        return Err(Errno::EINVAL.into());
    }
    if target.flags & O_APPEND != 0 {
        return Err(Errno::EBADF.into());
    }
    let (mut at, mut place): (Option<u64>, Option<u64>) = (user::read_if(from_at)?, user::read_if(to_at)?);
    if at.into_iter().chain(place).any(|at| at > i64::MAX as u64) {
        return Err(Errno::EINVAL.into());
    }
    let done = from_file(&source, &mut at, &target, &mut place, count).await?;
    user::write_if(from_at, &at.unwrap_or(0))?;
    user::write_if(to_at, &place.unwrap_or(0))?;
    Ok(done)
}

/// Moves bytes of a file; places go on with them.
async fn from_file(
    source: &Description,
    at: &mut Option<u64>,
    target: &Description,
    place: &mut Option<u64>,
    count: u64,
) -> Outcome {
    let count = count.min(COUNT_MAX);
    let mut buffer = vec![0; PIECE_BYTES.min(count as usize)];
    let mut done = 0;
    while done < count {
        let part = buffer.len().min((count - done) as usize);
        let got = read_description(source, Target::Own(&mut buffer[..part]), *at, true).await?;
        if got == 0 {
            break;
        }
        let wait = target.flags & O_NONBLOCK == 0;
        let put = match write_description(target, Source::Own(&buffer[..got as usize]), *place, wait).await {
            Ok(put) => put,
            Err(failure) if done == 0 => {
                rewind(source, *at, got).await;
                return Err(failure);
            }
            Err(_) => 0,
        };
        done += put;
        *at = at.map(|at| at + put);
        *place = place.map(|place| place + put);
        if put < got {
            rewind(source, *at, got - put).await;
            break;
        }
    }
    Ok(done)
}

/// What was read but not sent goes back, when the description's own offset was used.
async fn rewind(source: &Description, at: Option<u64>, bytes: u64) {
    if at.is_none()
        && let Ok(client) = proxy().server(source.server)
    {
        let _ = client.seek(source.id, -(bytes as i64), Whence::Current).await;
    }
}

fn is_pipe(found: &Description) -> bool {
    found.server == server::PROCESS && found.kind == type_bits(Kind::Pipe)
}

fn may_wait(found: &Description, flags: u64) -> bool {
    flags & DO_NOT_WAIT == 0 && found.flags & O_NONBLOCK == 0
}

/// Where a file is read or written, if the program says so. `ESPIPE` for a pipe.
fn place_of(found: &Description, at: u64) -> Result<Option<u64>, Errno> {
    let place: Option<u64> = user::read_if(at)?;
    match place {
        Some(_) if is_pipe(found) => Err(Errno::ESPIPE),
        Some(place) if place > i64::MAX as u64 => Err(Errno::EINVAL),
        place => Ok(place),
    }
}

/// splice.
pub async fn splice([from, from_at, to, to_at, count, flags]: [u64; 6]) -> Outcome {
    let (source, target) = (readable(from)?, writable(to)?);
    let (mut at, mut place) = (place_of(&source, from_at)?, place_of(&target, to_at)?);
    let is_same = source.server == target.server && source.id == target.id;
    if flags & !KNOWN != 0 || !is_pipe(&source) && !is_pipe(&target) || is_same || target.flags & O_APPEND != 0 {
        return Err(Errno::EINVAL.into());
    }
    let count = count.min(COUNT_MAX);
    let done = if is_pipe(&source) {
        from_pipe(&source, &target, &mut place, count, flags).await?
    } else {
        into_pipe(&source, &mut at, &target, count, flags).await?
    };
    user::write_if(from_at, &at.unwrap_or(0))?;
    user::write_if(to_at, &place.unwrap_or(0))?;
    Ok(done)
}

/// What lies in a pipe from a place on; nothing is taken.
async fn peek(source: &Description, into: &mut [u8], from: u64, wait: bool) -> Result<usize, Failure> {
    loop {
        let client = proxy().server(source.server)?;
        let bulk = read_ahead::data_area(&client.bulk());
        let span = BulkSpan { offset: 0, length: into.len().min(bulk.len()) as u32 };
        let turn = proxy().turn(source.server).await;
        match answer(client.read(source.id, span, Some(from), false)).await.map_err(Failure::from) {
            Ok(count) => {
                let count = (count as usize).min(into.len());
                bulk.read(0, &mut into[..count]).map_err(|_| Errno::EIO)?;
                return Ok(count);
            }
            Err(Failure::Errno(Errno::EAGAIN)) if wait => {}
            Err(failure) => return Err(failure),
        }
        drop(turn);
        until_ready((source.server, source.id), ready::READ).await?;
    }
}

async fn from_pipe(
    source: &Description,
    target: &Description,
    place: &mut Option<u64>,
    count: u64,
    flags: u64,
) -> Outcome {
    let mut buffer = vec![0; PIECE_BYTES.min(count as usize)];
    let mut done = 0;
    while done < count {
        let part = buffer.len().min((count - done) as usize);
        let got = match peek(source, &mut buffer[..part], 0, done == 0 && may_wait(source, flags)).await {
            Ok(0) => break,
            Ok(got) => got,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        };
        let wait = may_wait(target, if is_pipe(target) { flags } else { 0 });
        let put = match write_description(target, Source::Own(&buffer[..got]), *place, wait).await {
            Ok(put) => put,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        };
        read_description(source, Target::Own(&mut buffer[..put as usize]), None, false).await?;
        done += put;
        *place = place.map(|place| place + put);
        if put < got as u64 {
            break;
        }
    }
    Ok(done)
}

/// Waits until a pipe takes a piece; `false` if it does not now and may not be waited for.
async fn has_room(target: &Description, wait: bool) -> Result<bool, Failure> {
    let client = proxy().server(target.server)?;
    loop {
        let found = answer_of(target.server, || client.poll(target.id, ready::WRITE, WatchFor::Nothing)).await?;
        if found != 0 || !wait {
            return Ok(found != 0);
        }
        until_ready((target.server, target.id), ready::WRITE).await?;
    }
}

async fn into_pipe(
    source: &Description,
    at: &mut Option<u64>,
    target: &Description,
    count: u64,
    flags: u64,
) -> Outcome {
    let mut buffer = vec![0; PIPE_PIECE_BYTES.min(count as usize)];
    let mut done = 0;
    while done < count {
        if !has_room(target, done == 0 && may_wait(target, flags)).await? {
            break;
        }
        let part = buffer.len().min((count - done) as usize);
        // Beyond the first piece only what is there.
        let wait = done == 0 && source.flags & O_NONBLOCK == 0;
        let got = match read_description(source, Target::Own(&mut buffer[..part]), *at, wait).await {
            Ok(0) => return Ok(done),
            Ok(got) => got,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => return Ok(done),
        };
        let put = write_description(target, Source::Own(&buffer[..got as usize]), None, true).await?;
        done += put;
        *at = at.map(|at| at + put);
    }
    if done == 0 && count > 0 { Err(Errno::EAGAIN.into()) } else { Ok(done) }
}

/// tee: what lies in a pipe goes into another one too.
pub async fn tee(from: u64, to: u64, count: u64, flags: u64) -> Outcome {
    let (source, target) = (readable(from)?, writable(to)?);
    if flags & !KNOWN != 0 || !is_pipe(&source) || !is_pipe(&target) || source.id + 1 == target.id {
        return Err(Errno::EINVAL.into());
    }
    let count = count.min(PIECE_BYTES as u64);
    let mut buffer = vec![0; count as usize];
    if count == 0 {
        return Ok(0);
    }
    let got = peek(&source, &mut buffer, 0, may_wait(&source, flags)).await?;
    if got == 0 {
        return Ok(0);
    }
    if !has_room(&target, may_wait(&target, flags)).await? {
        return Err(Errno::EAGAIN.into());
    }
    write_description(&target, Source::Own(&buffer[..got]), None, false).await
}
