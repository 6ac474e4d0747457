//! Sending and receiving where more than bytes goes with it: addresses, control messages, and the
//! bounds of messages.

use alloc::vec;
use alloc::vec::Vec;

use contracts::BulkSpan;
use contracts::descriptions::ready;
use contracts::sockets::{Address, LocalAddress, Received, SendOptions, SocketKind, SocketOption, SocketOptionName};
use personality::Errno;
use personality::descriptors::Description;
use personality::flags::*;
use personality::layouts::{ControlHeader, Credentials, IoVector, MessageHeader};
use zerocopy::IntoBytes;

use super::addresses;
use super::errors::{Failure, Outcome};
use super::input_output::vectors;
use super::poll;
use super::proxy::proxy;
use super::rights;
use super::sockets::{
    after_closes, receive_message as receive_one, send_message as send_one, socket_of, sockets, turn_of, wait_of,
};
use super::time::deadline;
use super::user::{self, with_state};
use super::wait::{answer_when_ready, answer_within};

const SOL_SOCKET: u32 = 1;
/// Control messages begin at multiples of this.
const CONTROL_ALIGNMENT: u64 = 8;
/// A descriptor's number in them.
const DESCRIPTOR_BYTES: u64 = 4;
/// Control data of one message, at most.
const CONTROL_MAX: u64 = 4096;

/// What the program wants sent, but no more than `limit` bytes of it.
fn gather(from: &[IoVector], limit: usize) -> Result<Vec<u8>, Errno> {
    let mut all = Vec::new();
    for vector in from {
        let count = vector.bytes.min((limit - all.len()) as u64);
        user::with_bytes(vector.base, count, |bytes| all.extend_from_slice(bytes))?;
    }
    Ok(all)
}

/// Is there memory for what will be received?
fn check(into: &[IoVector]) -> Result<u64, Errno> {
    into.iter().try_for_each(|vector| user::check_writable(vector.base, vector.bytes))?;
    into.iter().try_fold(0u64, |total, vector| total.checked_add(vector.bytes)).ok_or(Errno::EINVAL)
}

/// Puts bytes that belong `skip` bytes into the vectors.
fn scatter(into: &[IoVector], mut skip: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    for vector in into {
        let before = skip.min(vector.bytes);
        skip -= before;
        let (part, rest) = bytes.split_at(bytes.len().min((vector.bytes - before) as usize));
        user::copy_out(vector.base + before, part)?;
        bytes = rest;
    }
    Ok(())
}

/// `EOPNOTSUPP` for what is to go out of band.
pub fn may_send(flags: u64) -> Result<(), Errno> {
    if flags & MSG_OOB != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// `EINVAL` for what came out of band, `EAGAIN` for errors that are queued: there never are any.
fn may_receive(flags: u64) -> Result<(), Errno> {
    match flags {
        _ if flags & MSG_OOB != 0 => Err(Errno::EINVAL),
        _ if flags & MSG_ERRQUEUE != 0 => Err(Errno::EAGAIN),
        _ => Ok(()),
    }
}

/// sendto: a message whole, a stream piece by piece.
pub async fn send(
    found: &Description,
    from: &[IoVector],
    flags: u64,
    (to, to_bytes): (u64, u64),
    descriptors: &[u32],
) -> Outcome {
    let to = if to == 0 || to_bytes == 0 { None } else { Some(addresses::found(found.server, to, to_bytes).await?) };
    let total = from.iter().try_fold(0u64, |total, vector| total.checked_add(vector.bytes)).ok_or(Errno::EINVAL)?;
    from.iter().try_for_each(|vector| user::check_readable(vector.base, vector.bytes))?;
    let client = after_closes(found.server).await?;
    let (server, bulk) = (found.server, client.bulk());
    let mut left = from.to_vec();
    let mut done = 0;
    loop {
        let ask = async |wait, limit_ns| {
            // They go with the first byte; what could not be sent is in flight no more.
            let exported = rights::export(if done == 0 { descriptors } else { &[] }).await?;
            let _turn = proxy().turn(turn_of(server)).await;
            let part = gather(&left, bulk.len())?;
            bulk.write(0, &part).map_err(|_| Errno::EIO)?;
            // One byte too many lets the server say that a message is too long.
            let is_all = part.len() as u64 == total - done;
            let span = BulkSpan { offset: 0, length: part.len() as u32 + u32::from(!is_all) };
            let options = SendOptions { wait, more: flags & MSG_MORE != 0 };
            let send = || client.send(found.id, span, to.clone(), exported.clone(), options);
            let sent = answer_within(server, limit_ns, send).await?;
            Ok(u64::from(sent).min(part.len() as u64))
        };
        let wait = wait_of(found, flags);
        match answer_when_ready((server, found.id), ready::WRITE, wait, found.send_limit_ns, ask).await {
            Ok(count) => {
                done += count;
                if done == total || count == 0 {
                    break;
                }
                advance(&mut left, count);
            }
            Err(failure) if done == 0 => {
                poll::again(found);
                return Err(failure);
            }
            Err(_) => break,
        }
    }
    if done < total {
        // Full: what comes next is room.
        poll::again(found);
    }
    Ok(done)
}

fn advance(vectors: &mut [IoVector], mut by: u64) {
    for vector in vectors {
        let part = by.min(vector.bytes);
        (vector.base, vector.bytes) = (vector.base + part, vector.bytes - part);
        by -= part;
    }
}

/// recvfrom: gives what the call returns, and what came with the bytes; so many rights at most.
pub async fn receive(
    found: &Description,
    into: &[IoVector],
    flags: u64,
    rights: u32,
) -> Result<(u64, Received), Failure> {
    may_receive(flags)?;
    let room = check(into)?;
    let client = after_closes(found.server).await?;
    let (server, bulk) = (found.server, client.bulk());
    let mut done = 0;
    let mut first: Option<Received> = None;
    loop {
        let span = BulkSpan { offset: 0, length: bulk.len().min((room - done) as usize) as u32 };
        let (peek, wait) = (flags & MSG_PEEK != 0, wait_of(found, flags));
        let rights = if done == 0 { rights } else { 0 };
        let ask = async |wait, limit_ns| {
            let _turn = proxy().turn(turn_of(server)).await;
            let got = answer_within(server, limit_ns, || client.receive(found.id, span, peek, rights, wait)).await?;
            let mut bytes = vec![0; got.bytes.min(span.length) as usize];
            bulk.read(0, &mut bytes).map_err(|_| Errno::EIO)?;
            Ok((got, bytes))
        };
        let answer = answer_when_ready((server, found.id), ready::READ, wait, found.receive_limit_ns, ask).await;
        let (got, bytes) = match (answer, first.is_some()) {
            (Ok(got), _) => got,
            (Err(failure), false) => return Err(failure),
            (Err(_), true) => break,
        };
        let count = bytes.len() as u32;
        scatter(into, done, &bytes)?;
        done += u64::from(count);
        // Only a stream gives less than a message that was asked for in full.
        let goes_on = flags & MSG_WAITALL != 0 && !peek && count > 0 && done < room && got.whole == got.bytes;
        first.get_or_insert(got);
        if !goes_on || kind_of(found).await? != SocketKind::Stream {
            break;
        }
    }
    let got = first.unwrap_or_default();
    Ok((if flags & MSG_TRUNC != 0 { done.max(got.whole.into()) } else { done }, got))
}

/// What a socket carries.
pub async fn kind_of(found: &Description) -> Result<SocketKind, Failure> {
    match sockets(found.server)?.option(found.id, SocketOptionName::Kind).await? {
        SocketOption::Kind(kind) => Ok(kind),
        _ => Err(Errno::EIO.into()),
    }
}

/// What is to go beside the bytes of a sendmsg: descriptors.
fn decode_control(header: &MessageHeader) -> Result<Vec<u32>, Failure> {
    let mut descriptors = Vec::new();
    if header.control_bytes > CONTROL_MAX {
        return Err(Errno::EINVAL.into());
    }
    let head_bytes = size_of::<ControlHeader>() as u64;
    let mut offset = 0;
    while offset + head_bytes <= header.control_bytes {
        let head: ControlHeader = user::read(header.control.wrapping_add(offset))?;
        if head.bytes < head_bytes || head.bytes > header.control_bytes - offset {
            return Err(Errno::EINVAL.into());
        }
        match (head.level, head.kind) {
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                let told: Credentials = user::read(header.control.wrapping_add(offset + head_bytes))?;
                // The server knows who sends; nobody speaks for others.
                if !is_own(&told) {
                    return Err(Errno::EPERM.into());
                }
            }
            (SOL_SOCKET, SCM_RIGHTS) => {
                for index in 0..(head.bytes - head_bytes) / DESCRIPTOR_BYTES {
                    let at = header.control.wrapping_add(offset + head_bytes + index * DESCRIPTOR_BYTES);
                    descriptors.push(user::read(at)?);
                }
            }
            // IP_TOS, IP_TTL, IP_PKTINFO: there is one way out.
            (0, 1 | 2 | 8) => {}
            _ => return Err(Errno::EINVAL.into()),
        }
        offset += head.bytes.next_multiple_of(CONTROL_ALIGNMENT);
    }
    Ok(descriptors)
}

fn is_own(told: &Credentials) -> bool {
    with_state(|state| told.process == state.process && state.identity.may_claim(told.user, told.group))
}

/// sendmsg.
pub async fn send_message(found: &Description, header: &MessageHeader, flags: u64) -> Outcome {
    may_send(flags)?;
    let from = vectors(header.vectors, header.count)?;
    let descriptors = decode_control(header)?;
    send(found, &from, flags, (header.name, header.name_bytes.into()), &descriptors).await
}

/// The control data of one received message, as far as there is room.
struct Control {
    at: u64,
    room: u64,
    used: u64,
    is_cut: bool,
}

impl Control {
    fn put(&mut self, kind: u32, data: &[u8]) -> Result<(), Errno> {
        let head_bytes = size_of::<ControlHeader>() as u64;
        let bytes = head_bytes + data.len() as u64;
        if self.room - self.used < bytes {
            self.is_cut = true;
            return Ok(());
        }
        let at = self.at.wrapping_add(self.used);
        user::write(at, &ControlHeader { bytes, level: SOL_SOCKET, kind })?;
        user::write(at.wrapping_add(head_bytes), data)?;
        self.used = (self.used + bytes.next_multiple_of(CONTROL_ALIGNMENT)).min(self.room);
        Ok(())
    }
}

/// recvmsg.
pub async fn receive_message(found: &Description, header: &MessageHeader, header_at: u64, flags: u64) -> Outcome {
    let into = vectors(header.vectors, header.count)?;
    let head_bytes = size_of::<ControlHeader>() as u64;
    let wanted = header.control_bytes.min(CONTROL_MAX).saturating_sub(head_bytes) / DESCRIPTOR_BYTES;
    let (length, got) = receive(found, &into, flags, wanted as u32).await?;
    let (descriptors, are_lost) = rights::take(&got.rights, flags & MSG_CMSG_CLOEXEC != 0).await;
    let mut control = Control {
        at: header.control,
        room: header.control_bytes.min(CONTROL_MAX),
        used: 0,
        is_cut: got.lost_rights || are_lost,
    };
    if let Some(contracts::process::Credentials { process, user, group }) = got.sender {
        control.put(SCM_CREDENTIALS, Credentials { process, user, group }.as_bytes())?;
    }
    if !descriptors.is_empty() {
        control.put(SCM_RIGHTS, descriptors.as_bytes())?;
    }
    let source = got.source.unwrap_or(Address::Local(LocalAddress::default()));
    let is_named = source != Address::Local(LocalAddress::default());
    let name_bytes = match header.name {
        at if at != 0 && is_named => addresses::put(&source, at, header.name_bytes)?,
        _ => 0,
    };
    let cut = if got.whole > got.bytes { MSG_TRUNC } else { 0 };
    let control_cut = if control.is_cut { MSG_CTRUNC } else { 0 };
    let told = MessageHeader { name_bytes, control_bytes: control.used, flags: (cut | control_cut) as u32, ..*header };
    user::write(header_at, &told)?;
    Ok(length)
}

/// Where the length of a message lies in `struct mmsghdr`, and its bytes.
const LENGTH_OFFSET: u64 = size_of::<MessageHeader>() as u64;
const MANY_BYTES: u64 = LENGTH_OFFSET + 8;
/// UIO_MAXIOV, which bounds the messages of one call too.
const MANY_MAX: u64 = 1024;

/// sendmmsg: as many of them as can be sent; an error counts only for the first.
pub async fn send_many(descriptor: u64, at: u64, count: u64, flags: u64) -> Outcome {
    socket_of(descriptor)?;
    let mut done = 0;
    while done < (count as u32 as u64).min(MANY_MAX) {
        let header_at = at.wrapping_add(done * MANY_BYTES);
        match send_one(descriptor, header_at, flags).await {
            Ok(length) => user::write(header_at.wrapping_add(LENGTH_OFFSET), &(length as u32))?,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
        done += 1;
    }
    Ok(done)
}

/// recvmmsg: as many as come until the time is over, which as on Linux is looked at after each.
pub async fn receive_many([descriptor, at, count, flags, timeout_at]: [u64; 5]) -> Outcome {
    socket_of(descriptor)?;
    let deadline_ns = deadline(user::read_if(timeout_at)?)?;
    let mut flags_now = flags & !MSG_WAITFORONE;
    let mut done = 0;
    while done < (count as u32 as u64).min(MANY_MAX) {
        let header_at = at.wrapping_add(done * MANY_BYTES);
        match receive_one(descriptor, header_at, flags_now).await {
            Ok(length) => user::write(header_at.wrapping_add(LENGTH_OFFSET), &(length as u32))?,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
        done += 1;
        if flags & MSG_WAITFORONE != 0 {
            flags_now |= MSG_DONTWAIT;
        }
        if runtime::now_ns() >= deadline_ns {
            break;
        }
    }
    Ok(done)
}
