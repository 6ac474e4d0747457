//! Sockets: TCP and UDP at the `tcp` server, and those within the machine at `process`.

use contracts::descriptions::ready;
use contracts::sockets::{
    Address, ConnectionInfo, Family, Shutdown, SocketAddress, SocketKind, SocketOption, SocketOptionName, SocketsClient,
};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{Credentials, IoVector, MessageHeader, TcpInfo, TimeVal};
use zerocopy::IntoBytes;

use super::addresses::{self, tell};
use super::errors::{AsErrno, Failure, Outcome};
use super::input_output::{self, description, with_sigpipe};
use super::messages;
use super::poll;
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::{answer, answer_when_ready, answer_within};

/// S_IFSOCK.
const SOCKET: u32 = 0o140000;
const SOL_SOCKET: u64 = 1;
const IPPROTO_IP: u64 = 0;
const IPPROTO_TCP: u64 = 6;
const IPPROTO_UDP: u64 = 17;
const IPPROTO_IPV6: u64 = 41;

/// Turns at the bulk areas of the channels of sockets follow those of descriptions.
const TURNS_FROM: u32 = 16;

/// Which turn a server's sockets have.
pub fn turn_of(server: u32) -> u32 {
    TURNS_FROM + server
}

/// The server of a socket's kind.
pub fn sockets(server: u32) -> Result<&'static SocketsClient, Errno> {
    proxy().sockets(server).ok_or(Errno::EAFNOSUPPORT)
}

/// The same, once the server has closed what was closed before: its peer has heard of that, and its
/// port is free. Closes are told by another channel, which a request for sockets may overtake.
pub async fn after_closes(server: u32) -> Result<&'static SocketsClient, Errno> {
    let client = sockets(server)?;
    proxy().until_closed(server).await;
    Ok(client)
}

/// The socket that a descriptor names. `ENOTSOCK`.
pub fn socket_of(descriptor: u64) -> Result<Description, Errno> {
    description(descriptor).and_then(|found| if found.kind == SOCKET { Ok(found) } else { Err(Errno::ENOTSOCK) })
}

/// Is it a socket within the machine?
pub fn is_local(found: &Description) -> bool {
    found.server == server::PROCESS && found.kind == SOCKET
}

fn waits(found: &Description) -> bool {
    found.flags & O_NONBLOCK == 0
}

fn add(id: u64, server: u32, type_flags: u64) -> Result<u64, Errno> {
    let nonblocking = if type_flags & SOCK_NONBLOCK != 0 { O_NONBLOCK } else { 0 };
    let made = Description { id, server, flags: O_RDWR | nonblocking, kind: SOCKET, ..Description::default() };
    with_state(|state| state.descriptors.add(made, type_flags & SOCK_CLOEXEC != 0))
}

/// Which server has sockets of a family, and what family and type mean to it.
fn kind_of(family: u64, kind: u64, protocol: u64) -> Result<(u32, Family, SocketKind), Errno> {
    let (server, wanted) = match u16::try_from(family as u32).unwrap_or(AF_UNSPEC) {
        AF_INET => (server::TCP, Family::Internet),
        AF_INET6 => (server::TCP, Family::Internet6),
        AF_UNIX => (server::PROCESS, Family::Local),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    let is_local = wanted == Family::Local;
    let kind = match kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) {
        SOCK_STREAM => SocketKind::Stream,
        SOCK_DGRAM => SocketKind::Datagram,
        SOCK_SEQPACKET if is_local => SocketKind::Packets,
        // SOCK_RAW, SOCK_RDM and those after SOCK_SEQPACKET.
        3..=10 => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EINVAL),
    };
    const PROTOCOLS_END: u64 = 263;
    if !is_local && protocol as u32 as u64 >= PROTOCOLS_END {
        return Err(Errno::EINVAL);
    }
    let only = match kind {
        // Those within the machine have one protocol, which a program may name by its family.
        _ if is_local => family,
        SocketKind::Stream => IPPROTO_TCP,
        SocketKind::Datagram | SocketKind::Packets => IPPROTO_UDP,
    };
    if protocol == 0 || protocol == only { Ok((server, wanted, kind)) } else { Err(Errno::EPROTONOSUPPORT) }
}

/// socket.
pub async fn socket(family: u64, kind: u64, protocol: u64) -> Outcome {
    let (server, family, wanted) = kind_of(family, kind, protocol)?;
    with_state(|state| state.descriptors.room(1))?;
    let id = answer(after_closes(server).await?.socket(family, wanted)).await?;
    Ok(add(id, server, kind)?)
}

/// socketpair.
pub async fn pair(family: u64, kind: u64, protocol: u64, at: u64) -> Outcome {
    let (server, _, wanted) = kind_of(family, kind, protocol)?;
    user::check_writable(at, 8)?;
    with_state(|state| state.descriptors.room(2))?;
    let (one, two) = answer(after_closes(server).await?.pair(wanted)).await?;
    let numbers = [add(one, server, kind)? as u32, add(two, server, kind)? as u32];
    user::write(at, &numbers)?;
    Ok(0)
}

/// bind.
pub async fn bind(descriptor: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let address = addresses::made(found.server, at, bytes).await?;
    let bound = answer(after_closes(found.server).await?.bind(found.id, address.clone())).await;
    if bound.is_err() {
        addresses::unmade(address).await;
    }
    bound?;
    Ok(0)
}

/// listen.
pub async fn listen(descriptor: u64, backlog: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    answer(after_closes(found.server).await?.listen(found.id, (backlog as i32).max(0) as u32)).await?;
    poll::again(&found);
    Ok(0)
}

/// accept and accept4.
pub async fn accept(descriptor: u64, at: u64, length_at: u64, flags: u64) -> Outcome {
    if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let found = socket_of(descriptor)?;
    with_state(|state| state.descriptors.room(1))?;
    let client = sockets(found.server)?;
    let ask = async |wait, limit_ns| answer_within(found.server, limit_ns, || client.accept(found.id, wait)).await;
    let place = (found.server, found.id);
    let taken = answer_when_ready(place, ready::READ, waits(&found), found.receive_limit_ns, ask).await?;
    let number = add(taken.id, found.server, flags)?;
    tell(&taken.peer, at, length_at)?;
    Ok(number)
}

/// connect.
pub async fn connect(descriptor: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let address = addresses::found(found.server, at, bytes).await?;
    let client = after_closes(found.server).await?;
    let ask = || client.connect(found.id, address.clone(), waits(&found));
    let answer = answer_within(found.server, found.send_limit_ns, ask).await;
    poll::again(&found);
    match answer {
        // A connection that takes longer is still under way.
        Err(Failure::Errno(Errno::EAGAIN)) if found.send_limit_ns != 0 && !is_local(&found) => {
            Err(Errno::EINPROGRESS.into())
        }
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
    answer(sockets(found.server)?.shutdown(found.id, how)).await?;
    poll::again(&found);
    Ok(0)
}

/// getsockname, and getpeername with `peer`.
pub async fn name(descriptor: u64, at: u64, length_at: u64, peer: bool) -> Outcome {
    let found = socket_of(descriptor)?;
    let (local, remote) = answer(after_closes(found.server).await?.names(found.id)).await?;
    tell(&if peer { remote.ok_or(Errno::ENOTCONN)? } else { local }, at, length_at)?;
    Ok(0)
}

/// setsockopt. Options that only tune what this system does otherwise are accepted.
pub async fn set_option(descriptor: u64, level: u64, name: u64, at: u64, bytes: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let number = if bytes >= 4 { user::read::<u32>(at)? } else { return Err(Errno::EINVAL.into()) };
    let option = match (level, name) {
        (SOL_SOCKET, 2) => SocketOption::ReuseAddress(number != 0),
        (SOL_SOCKET, 9) => SocketOption::KeepAlive(number != 0),
        // SO_SNDBUF, SO_RCVBUF, and as the administrator sets them.
        (SOL_SOCKET, 7 | 32) => SocketOption::SendBuffer(number),
        (SOL_SOCKET, 8 | 33) => SocketOption::ReceiveBuffer(number),
        (SOL_SOCKET, REUSE_PORT) => SocketOption::ReusePort(number != 0),
        (SOL_SOCKET, 13) if bytes >= 8 => SocketOption::Linger((number != 0).then_some(user::read(at + 4)?)),
        (IPPROTO_TCP, 1) => SocketOption::NoDelay(number != 0),
        (IPPROTO_TCP, CORK) => SocketOption::Cork(number != 0),
        (IPPROTO_IPV6, ONLY_6) => SocketOption::Only6(number != 0),
        (SOL_SOCKET, RECEIVE_LIMIT | RECEIVE_LIMIT_NEW) => return set_limit(descriptor, RECEIVE_LIMIT, at, bytes),
        (SOL_SOCKET, SEND_LIMIT | SEND_LIMIT_NEW) => return set_limit(descriptor, SEND_LIMIT, at, bytes),
        (SOL_SOCKET, PASS_CREDENTIALS) if is_local(&found) => SocketOption::TellsSender(number != 0),
        (level, _) if is_local(&found) && level != SOL_SOCKET => return Err(Errno::EOPNOTSUPP.into()),
        (SOL_SOCKET, DO_NOT_ROUTE | BROADCAST | OUT_OF_BAND_INLINE) => return keep(descriptor, name, number != 0),
        // SO_PRIORITY.
        (SOL_SOCKET, 12) => return Ok(0),
        // TCP_KEEPIDLE..KEEPCNT, TCP_DEFER_ACCEPT, TCP_USER_TIMEOUT, TCP_FASTOPEN.
        (IPPROTO_TCP, 4..=6 | 9 | 18 | 23) => return Ok(0),
        // IP_TOS, IP_TTL, IP_MTU_DISCOVER, IP_RECVERR, and the same of IPv6.
        (IPPROTO_IP, 1 | 2 | 10 | 11) | (IPPROTO_IPV6, 16 | 23 | 25 | 67) => return Ok(0),
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    answer(sockets(found.server)?.set_option(found.id, option)).await?;
    Ok(0)
}

/// SO_PASSCRED and SO_PEERCRED.
const PASS_CREDENTIALS: u64 = 16;
const PEER_CREDENTIALS: u64 = 17;
/// SO_DONTROUTE, SO_BROADCAST and SO_OOBINLINE, which have no effect and are told.
const DO_NOT_ROUTE: u64 = 5;
const BROADCAST: u64 = 6;
const OUT_OF_BAND_INLINE: u64 = 10;
/// TCP_CORK and TCP_INFO.
const CORK: u64 = 3;
const INFO: u64 = 11;
/// SO_REUSEPORT.
const REUSE_PORT: u64 = 15;
/// IPV6_V6ONLY.
const ONLY_6: u64 = 26;
/// SO_PROTOCOL and SO_DOMAIN.
const PROTOCOL: u64 = 38;
const DOMAIN: u64 = 39;
/// SO_RCVTIMEO and SO_SNDTIMEO, and the same where they had another form.
const RECEIVE_LIMIT: u64 = 20;
const SEND_LIMIT: u64 = 21;
const RECEIVE_LIMIT_NEW: u64 = 66;
const SEND_LIMIT_NEW: u64 = 67;

fn keep(descriptor: u64, name: u64, on: bool) -> Outcome {
    let put = |found: &mut Description| found.cookie = found.cookie & !(1 << name) | u64::from(on) << name;
    with_state(|state| state.descriptors.get_mut(descriptor).map(put))?;
    Ok(0)
}

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
        (SOL_SOCKET, RECEIVE_LIMIT | RECEIVE_LIMIT_NEW) => return tell_limit(found.receive_limit_ns, at, length_at),
        (SOL_SOCKET, SEND_LIMIT | SEND_LIMIT_NEW) => return tell_limit(found.send_limit_ns, at, length_at),
        (SOL_SOCKET, PASS_CREDENTIALS) if is_local(&found) => SocketOptionName::TellsSender,
        (SOL_SOCKET, PEER_CREDENTIALS) if is_local(&found) => SocketOptionName::Peer,
        (SOL_SOCKET, DOMAIN) => {
            return tell_option(u32::from(family_of(&found).await?).as_bytes(), at, length_at);
        }
        (SOL_SOCKET, PROTOCOL) => {
            let protocol = match messages::kind_of(&found).await? {
                _ if is_local(&found) => 0,
                SocketKind::Stream => IPPROTO_TCP,
                SocketKind::Datagram | SocketKind::Packets => IPPROTO_UDP,
            };
            return tell_option((protocol as u32).as_bytes(), at, length_at);
        }
        (SOL_SOCKET, REUSE_PORT) => SocketOptionName::ReusePort,
        (IPPROTO_IPV6, ONLY_6) => SocketOptionName::Only6,
        (SOL_SOCKET, DO_NOT_ROUTE | BROADCAST | OUT_OF_BAND_INLINE) => {
            return tell_option(((found.cookie >> name & 1) as u32).as_bytes(), at, length_at);
        }
        (SOL_SOCKET, 12) => return tell_option(0u32.as_bytes(), at, length_at),
        (level, _) if is_local(&found) && level != SOL_SOCKET => return Err(Errno::EOPNOTSUPP.into()),
        (SOL_SOCKET, 2) => SocketOptionName::ReuseAddress,
        (SOL_SOCKET, 3) => SocketOptionName::Kind,
        (SOL_SOCKET, 4) => SocketOptionName::Error,
        (SOL_SOCKET, 7) => SocketOptionName::SendBuffer,
        (SOL_SOCKET, 8) => SocketOptionName::ReceiveBuffer,
        (SOL_SOCKET, 9) => SocketOptionName::KeepAlive,
        (SOL_SOCKET, 13) => SocketOptionName::Linger,
        (SOL_SOCKET, 30) => SocketOptionName::Listening,
        (IPPROTO_TCP, 1) => SocketOptionName::NoDelay,
        (IPPROTO_TCP, CORK) => SocketOptionName::Cork,
        (IPPROTO_TCP, INFO) => SocketOptionName::Info,
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    let (first, second) = match answer(after_closes(found.server).await?.option(found.id, wanted)).await? {
        SocketOption::ReuseAddress(on)
        | SocketOption::KeepAlive(on)
        | SocketOption::NoDelay(on)
        | SocketOption::Cork(on)
        | SocketOption::TellsSender(on)
        | SocketOption::ReusePort(on)
        | SocketOption::Only6(on)
        | SocketOption::Listening(on) => (on.into(), None),
        SocketOption::Peer(contracts::process::Credentials { process, user, group }) => {
            let credentials = Credentials { process, user, group };
            return tell_option(credentials.as_bytes(), at, length_at);
        }
        SocketOption::Info(info) => return tell_option(tcp_info(&info).as_bytes(), at, length_at),
        SocketOption::Linger(seconds) => (seconds.is_some().into(), Some(seconds.unwrap_or(0))),
        SocketOption::SendBuffer(bytes) | SocketOption::ReceiveBuffer(bytes) => (bytes, None),
        SocketOption::Error(error) => (error.map_or(0, |error| error.errno().number() as u32), None),
        SocketOption::Family(family) => (number_of(family).into(), None),
        SocketOption::Kind(SocketKind::Stream) => (SOCK_STREAM as u32, None),
        SocketOption::Kind(SocketKind::Datagram) => (SOCK_DGRAM as u32, None),
        SocketOption::Kind(SocketKind::Packets) => (SOCK_SEQPACKET as u32, None),
    };
    let words = [first, second.unwrap_or(0)];
    tell_option(words[..if second.is_some() { 2 } else { 1 }].as_bytes(), at, length_at)
}

/// TCP_INFO; what is not known is 0.
fn tcp_info(info: &ConnectionInfo) -> TcpInfo {
    const TAKES_PIECES: u8 = 2;
    const HAS_SCALES: u8 = 4;
    const PATH_BYTES: u32 = 1500;
    /// No loss was met that would have lowered it (TCP_INFINITE_SSTHRESH).
    const NO_THRESHOLD: u32 = 0x7fff_ffff;
    let (theirs, own) = info.scales.unwrap_or_default();
    let pieces = if info.takes_pieces { TAKES_PIECES } else { 0 };
    TcpInfo {
        state: info.state,
        in_vain: info.in_vain.min(u8::MAX.into()) as u8,
        doubled: info.in_vain.min(u8::MAX.into()) as u8,
        options: pieces | if info.scales.is_some() { HAS_SCALES } else { 0 },
        scales: theirs & 0xf | own << 4,
        repeats_us: info.repeats_after_us,
        send_segment: info.segment_bytes,
        receive_segment: info.segment_bytes,
        on_the_way: info.segments_on_the_way,
        bytes_sent_ms: info.bytes_sent_before_ms,
        bytes_came_ms: info.bytes_came_before_ms,
        acknowledged_ms: info.acknowledged_before_ms,
        path_bytes: PATH_BYTES,
        round_trip_us: info.round_trip_us,
        variation_us: info.variation_us,
        send_threshold: NO_THRESHOLD,
        window_segments: info.most_segments,
        told_segment: info.segment_bytes,
        repeated: info.repeated_segments,
        bytes_acknowledged: info.bytes_acknowledged,
        bytes_received: info.bytes_received,
        segments_sent: info.segments[0],
        segments_received: info.segments[1],
        unsent_bytes: info.unsent_bytes,
        with_bytes_sent: info.segments_with_bytes[0],
        with_bytes_received: info.segments_with_bytes[1],
        send_window: info.send_window,
        ..TcpInfo::default()
    }
}

fn number_of(family: Family) -> u16 {
    match family {
        Family::Internet => AF_INET,
        Family::Internet6 => AF_INET6,
        Family::Local => AF_UNIX,
    }
}

async fn family_of(found: &Description) -> Result<u16, Failure> {
    match answer(sockets(found.server)?.option(found.id, SocketOptionName::Family)).await? {
        SocketOption::Family(family) => Ok(number_of(family)),
        _ => Err(Errno::EIO.into()),
    }
}

fn tell_limit(limit_ns: u64, at: u64, length_at: u64) -> Outcome {
    tell_option(TimeVal::from_ns(limit_ns).as_bytes(), at, length_at)
}

/// May a call with these flags wait?
pub fn wait_of(found: &Description, flags: u64) -> bool {
    waits(found) && flags & MSG_DONTWAIT == 0
}

/// sendto.
pub async fn send([descriptor, buffer, count, flags, to, to_bytes]: [u64; 6]) -> Outcome {
    let found = socket_of(descriptor)?;
    messages::may_send(flags)?;
    // A stream to which nothing is sent would wait for nothing; a datagram may be empty.
    let sent = if is_local(&found) || to != 0 || count == 0 || flags & MSG_MORE != 0 {
        let from = [IoVector { base: buffer, bytes: count }];
        messages::send(&found, &from, flags, (to, to_bytes), &[]).await
    } else {
        input_output::write(descriptor, buffer, count, None, Some(wait_of(&found, flags))).await
    };
    if flags & MSG_NOSIGNAL != 0 { sent } else { with_sigpipe(sent) }
}

/// recvfrom.
pub async fn receive([descriptor, buffer, count, flags, at, length_at]: [u64; 6]) -> Outcome {
    let found = socket_of(descriptor)?;
    let waits_for_all = flags & MSG_WAITALL != 0 && count > 0;
    let is_special = waits_for_all || flags & (MSG_PEEK | MSG_TRUNC | MSG_OOB | MSG_ERRQUEUE) != 0;
    if is_local(&found) || at != 0 || is_special {
        let (length, got) = messages::receive(&found, &[IoVector { base: buffer, bytes: count }], flags, 0).await?;
        match got.source {
            Some(source) => tell(&source, at, length_at)?,
            None if is_local(&found) && at != 0 => user::write_if(length_at, &0u32)?,
            None => tell_peer(&found, at, length_at).await?,
        }
        return Ok(length);
    }
    input_output::read(descriptor, buffer, count, None, Some(wait_of(&found, flags))).await
}

/// A stream's source is its peer.
async fn tell_peer(found: &Description, at: u64, length_at: u64) -> Result<(), Failure> {
    if at != 0 && length_at != 0 {
        let (_, peer) = answer(after_closes(found.server).await?.names(found.id)).await?;
        tell(&peer.unwrap_or(Address::Internet(SocketAddress::default())), at, length_at)?;
    }
    Ok(())
}

/// sendmsg.
pub async fn send_message(descriptor: u64, header_at: u64, flags: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let header: MessageHeader = user::read(header_at)?;
    let sent = messages::send_message(&found, &header, flags).await;
    if flags & MSG_NOSIGNAL != 0 { sent } else { with_sigpipe(sent) }
}

/// recvmsg.
pub async fn receive_message(descriptor: u64, header_at: u64, flags: u64) -> Outcome {
    let found = socket_of(descriptor)?;
    let header: MessageHeader = user::read(header_at)?;
    messages::receive_message(&found, &header, header_at, flags).await
}
