//! Sockets: IPv4 streams at the `tcp` server.

use contracts::BulkSpan;
use contracts::descriptions::DescriptionError;
use contracts::sockets::{Shutdown, SocketAddress, SocketKind, SocketOption, SocketOptionName, SocketsClient};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{InternetAddress, MessageHeader, TimeVal};
use zerocopy::IntoBytes;

use super::errors::{AsErrno, Failure, Outcome};
use super::input_output::{self, description, with_sigpipe};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::{answer, answer_within};

/// S_IFSOCK.
const SOCKET: u32 = 0o140000;
const SOL_SOCKET: u64 = 1;
const IPPROTO_TCP: u64 = 6;

fn sockets() -> Result<&'static SocketsClient, Errno> {
    proxy().sockets().ok_or(Errno::EAFNOSUPPORT)
}

fn socket_of(descriptor: u64) -> Result<Description, Errno> {
    description(descriptor).and_then(|found| if found.server == server::TCP { Ok(found) } else { Err(Errno::ENOTSOCK) })
}

fn waits(found: &Description) -> bool {
    found.flags & O_NONBLOCK == 0
}

fn add(id: u64, type_flags: u64) -> Result<u64, Errno> {
    let nonblocking = if type_flags & SOCK_NONBLOCK != 0 { O_NONBLOCK } else { 0 };
    let made =
        Description { id, server: server::TCP, flags: O_RDWR | nonblocking, kind: SOCKET, ..Description::default() };
    with_state(|state| state.descriptors.add(made, type_flags & SOCK_CLOEXEC != 0))
}

/// socket.
pub async fn socket(family: u64, kind: u64, _protocol: u64) -> Outcome {
    if family != u64::from(AF_INET) {
        return Err(Errno::EAFNOSUPPORT.into());
    }
    let wanted = match kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) {
        SOCK_STREAM => SocketKind::Stream,
        SOCK_DGRAM => SocketKind::Datagram,
        _ => return Err(Errno::EPROTONOSUPPORT.into()),
    };
    with_state(|state| state.descriptors.room(1))?;
    match answer(sockets()?.socket(wanted)).await {
        Ok(id) => Ok(add(id, kind)?),
        Err(channel::CallError::Server(DescriptionError::NotSupported)) => Err(Errno::EPROTONOSUPPORT.into()),
        Err(error) => Err(error.into()),
    }
}

fn address(at: u64, bytes: u64) -> Result<SocketAddress, Errno> {
    if bytes < size_of::<InternetAddress>() as u64 {
        return Err(Errno::EINVAL);
    }
    let given: InternetAddress = user::read(at)?;
    if given.family != AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    Ok(SocketAddress { address: given.address, port: u16::from_be_bytes(given.port) })
}

/// Writes an address, cut to the room the program gave, and its full length.
fn tell(address: SocketAddress, at: u64, length_at: u64) -> Result<(), Errno> {
    if at == 0 || length_at == 0 {
        return Ok(());
    }
    let full =
        InternetAddress { family: AF_INET, port: address.port.to_be_bytes(), address: address.address, zero: [0; 8] };
    let room = user::read::<u32>(length_at)? as usize;
    let bytes = full.as_bytes();
    user::write(at, &bytes[..room.min(bytes.len())])?;
    user::write(length_at, &(bytes.len() as u32))
}

/// bind.
pub async fn bind(descriptor: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    answer(sockets()?.bind(found.id, address(at, bytes)?)).await?;
    Ok(0)
}

/// listen.
pub async fn listen(descriptor: u64, backlog: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    answer(sockets()?.listen(found.id, (backlog as i32).max(0) as u32)).await?;
    Ok(0)
}

/// accept and accept4.
pub async fn accept(descriptor: u64, at: u64, length_at: u64, flags: u64) -> Outcome {
    if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let found = socket_of(descriptor)?;
    with_state(|state| state.descriptors.room(1))?;
    let client = sockets()?;
    let ask = || client.accept(found.id, waits(&found));
    let taken = answer_within(server::TCP, found.receive_limit_ns, ask).await?;
    let number = add(taken.id, flags)?;
    tell(taken.peer, at, length_at)?;
    Ok(number)
}

/// connect.
pub async fn connect(descriptor: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let (client, address) = (sockets()?, address(at, bytes)?);
    let ask = || client.connect(found.id, address, waits(&found));
    match answer_within(server::TCP, found.send_limit_ns, ask).await {
        // A connection that takes longer is still under way.
        Err(Failure::Errno(Errno::EAGAIN)) if found.send_limit_ns != 0 => Err(Errno::EINPROGRESS.into()),
        other => other.map(|_| 0),
    }
}

/// shutdown.
pub async fn shutdown(descriptor: u64, how: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let how = match how {
        0 => Shutdown::Read,
        1 => Shutdown::Write,
        2 => Shutdown::Both,
        _ => return Err(Errno::EINVAL.into()),
    };
    answer(sockets()?.shutdown(found.id, how)).await?;
    Ok(0)
}

/// getsockname, and getpeername with `peer`.
pub async fn name(descriptor: u64, at: u64, length_at: u64, peer: bool) -> Outcome {
    let found = socket_of(descriptor)?;
    let (local, remote) = answer(sockets()?.names(found.id)).await?;
    tell(if peer { remote.ok_or(Errno::ENOTCONN)? } else { local }, at, length_at)?;
    Ok(0)
}

/// setsockopt. Options that only tune what this system does otherwise are accepted.
pub async fn set_option(descriptor: u64, level: u64, name: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let number = if bytes >= 4 { user::read::<u32>(at)? } else { return Err(Errno::EINVAL.into()) };
    let option = match (level, name) {
        (SOL_SOCKET, 2) => SocketOption::ReuseAddress(number != 0),
        (SOL_SOCKET, 9) => SocketOption::KeepAlive(number != 0),
        (SOL_SOCKET, 7) => SocketOption::SendBuffer(number),
        (SOL_SOCKET, 8) => SocketOption::ReceiveBuffer(number),
        (SOL_SOCKET, 13) if bytes >= 8 => SocketOption::Linger((number != 0).then_some(user::read(at + 4)?)),
        (IPPROTO_TCP, 1) => SocketOption::NoDelay(number != 0),
        (SOL_SOCKET, RECEIVE_LIMIT | SEND_LIMIT) => return set_limit(descriptor, name, at, bytes),
        // TCP_CORK, TCP_KEEPIDLE..KEEPCNT, TCP_DEFER_ACCEPT, TCP_FASTOPEN, IP_TOS. Not
        // SO_REUSEPORT: a port has one listener here, and who asks for more must know.
        (IPPROTO_TCP, 3..=6 | 9 | 23) | (0, 1) => return Ok(0),
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    answer(sockets()?.set_option(found.id, option)).await?;
    Ok(0)
}

/// SO_RCVTIMEO and SO_SNDTIMEO.
const RECEIVE_LIMIT: u64 = 20;
const SEND_LIMIT: u64 = 21;

fn set_limit(descriptor: u64, name: u64, at: u64, bytes: u64) -> Outcome {
    if bytes < size_of::<TimeVal>() as u64 {
        return Err(Errno::EINVAL.into());
    }
    let limit: TimeVal = user::read(at)?;
    if !(0..1_000_000).contains(&limit.microseconds) {
        return Err(Errno::EDOM.into());
    }
    // As on Linux, a negative time is the shortest.
    let limit_ns = if limit.seconds < 0 { 1 } else { limit.to_ns().unwrap_or(0) };
    with_state(|state| {
        let found = state.descriptors.get_mut(descriptor)?;
        *(if name == RECEIVE_LIMIT { &mut found.receive_limit_ns } else { &mut found.send_limit_ns }) = limit_ns;
        Ok::<_, Errno>(())
    })?;
    Ok(0)
}

/// Writes an option's value, cut to the room the program gave, and its length.
fn tell_option(value: &[u8], at: u64, length_at: u64) -> Outcome {
    let count = value.len().min(user::read::<u32>(length_at)? as usize);
    user::write(at, &value[..count])?;
    user::write(length_at, &(count as u32))?;
    Ok(0)
}

/// getsockopt.
pub async fn option(descriptor: u64, level: u64, name: u64, at: u64, length_at: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let wanted = match (level, name) {
        (SOL_SOCKET, RECEIVE_LIMIT) => return tell_limit(found.receive_limit_ns, at, length_at),
        (SOL_SOCKET, SEND_LIMIT) => return tell_limit(found.send_limit_ns, at, length_at),
        (SOL_SOCKET, 2) => SocketOptionName::ReuseAddress,
        (SOL_SOCKET, 3) => SocketOptionName::Kind,
        (SOL_SOCKET, 4) => SocketOptionName::Error,
        (SOL_SOCKET, 7) => SocketOptionName::SendBuffer,
        (SOL_SOCKET, 8) => SocketOptionName::ReceiveBuffer,
        (SOL_SOCKET, 9) => SocketOptionName::KeepAlive,
        (SOL_SOCKET, 13) => SocketOptionName::Linger,
        (SOL_SOCKET, 30) => SocketOptionName::Listening,
        (IPPROTO_TCP, 1) => SocketOptionName::NoDelay,
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    let (first, second) = match answer(sockets()?.option(found.id, wanted)).await? {
        SocketOption::ReuseAddress(on)
        | SocketOption::KeepAlive(on)
        | SocketOption::NoDelay(on)
        | SocketOption::Listening(on) => (on.into(), None),
        SocketOption::Linger(seconds) => (seconds.is_some().into(), Some(seconds.unwrap_or(0))),
        SocketOption::SendBuffer(bytes) | SocketOption::ReceiveBuffer(bytes) => (bytes, None),
        SocketOption::Error(error) => (error.map_or(0, |error| error.errno().number() as u32), None),
        SocketOption::Kind(SocketKind::Stream) => (SOCK_STREAM as u32, None),
        SocketOption::Kind(SocketKind::Datagram) => (SOCK_DGRAM as u32, None),
    };
    let words = [first, second.unwrap_or(0)];
    tell_option(words[..if second.is_some() { 2 } else { 1 }].as_bytes(), at, length_at)
}

fn tell_limit(limit_ns: u64, at: u64, length_at: u64) -> Outcome {
    tell_option(TimeVal::from_ns(limit_ns).as_bytes(), at, length_at)
}

fn wait_of(found: &Description, flags: u64) -> Option<bool> {
    Some(waits(found) && flags & MSG_DONTWAIT == 0)
}

/// sendto on a connected socket.
pub async fn send(descriptor: u64, buffer: u64, count: u64, flags: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let sent = input_output::write(descriptor, buffer, count, None, wait_of(&found, flags)).await;
    if flags & MSG_NOSIGNAL != 0 { sent } else { with_sigpipe(sent) }
}

/// recvfrom.
pub async fn receive([descriptor, buffer, count, flags, at, length_at]: [u64; 6]) -> Outcome {
    let found = socket_of(descriptor)?;
    let wait = wait_of(&found, flags);
    if at != 0 && length_at != 0 {
        // A stream's source is its peer.
        let names = answer(sockets()?.names(found.id)).await?;
        tell(names.1.unwrap_or_default(), at, length_at)?;
    }
    if flags & MSG_PEEK != 0 {
        return peek(&found, buffer, count, wait.unwrap_or(true)).await;
    }
    input_output::read(descriptor, buffer, count, None, wait).await
}

async fn peek(found: &Description, buffer: u64, count: u64, wait: bool) -> Result<u64, Failure> {
    let client = sockets()?;
    let bulk = client.bulk();
    let length = count.min(bulk.len() as u64);
    let into = user::bytes_mut(buffer, length)?;
    let span = BulkSpan { offset: 0, length: length as u32 };
    let got = answer_within(server::TCP, found.receive_limit_ns, || client.peek(found.id, span, wait)).await?;
    let got = (got as usize).min(into.len());
    bulk.read(0, &mut into[..got]).map_err(|_| Errno::EIO)?;
    Ok(got as u64)
}

/// sendmsg: data only.
pub async fn send_message(descriptor: u64, header_at: u64, flags: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let header: MessageHeader = user::read(header_at)?;
    if header.control_bytes != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let sent =
        input_output::write_vectors(descriptor, header.vectors, header.count, None, wait_of(&found, flags)).await;
    if flags & MSG_NOSIGNAL != 0 { sent } else { with_sigpipe(sent) }
}

/// recvmsg: data only.
pub async fn receive_message(descriptor: u64, header_at: u64, flags: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let header: MessageHeader = user::read(header_at)?;
    let got =
        input_output::read_vectors(descriptor, header.vectors, header.count, None, wait_of(&found, flags)).await?;
    user::write(header_at, &MessageHeader { name_bytes: 0, control_bytes: 0, flags: 0, ..header })?;
    Ok(got)
}
