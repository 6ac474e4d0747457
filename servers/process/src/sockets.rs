//! Sockets within the machine, as unix(7) has them: streams, packets and datagrams, pairs and
//! names.
//!
//! Invariants: of two connected sockets each names the other, until one is closed; what waits at a
//! socket is at most [`CAPACITY_BYTES`] or one message; a name leads to the socket that was bound
//! to it, and not to those that were accepted there. A connection that nobody has accepted yet is a
//! socket too, in its listener's queue. Operations never wait: they say `WouldBlock`, and name in
//! `changed` every socket of which something may hold now that did not before.
//!
//! Two sockets are the log's own: they take what is sent to them at once and hold nothing.
//!
//! Deliberately unknown here: who holds a socket, and paths; a file's number stands for it.

mod log;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use contracts::descriptions::{DescriptionError as Error, DescriptionId, Right, ready};
use contracts::process::Credentials;
use contracts::sockets::{Address, LOCAL_NAME_MAX, LocalAddress, Received, Shutdown, SocketKind};

use crate::syslog::Unended;
use log::Log;

/// Sockets at once, besides the log's; with what waits at each this bounds the server's memory for
/// them to 64 MiB.
pub const SOCKETS_MAX: usize = 512;
/// Bytes that wait at one, with [`MESSAGE_COST`] for each message.
pub const CAPACITY_BYTES: usize = 128 << 10;
/// Bytes of one message, which is what a channel's bulk carries.
pub const MESSAGE_MAX: usize = 64 << 10;
/// What a message costs besides its bytes.
const MESSAGE_COST: usize = 128;
/// A stream takes less than what it is offered only if that leaves this much room unused.
const PART_MIN: usize = CAPACITY_BYTES / 4;
/// Small pieces of a stream are joined up to this.
const JOINED_MAX: usize = 4096;
/// Connections that may wait to be accepted, whatever the listener says.
const BACKLOG_MAX: u32 = 256;

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    /// How many a stream's reader took.
    taken: usize,
    source: Option<LocalAddress>,
    sender: Credentials,
    /// Who receives its first byte receives these.
    rights: Vec<Right>,
}

#[derive(Debug)]
enum State {
    /// Neither listening nor connected.
    Free,
    Listening {
        backlog: usize,
        waiting: VecDeque<DescriptionId>,
    },
    Connected(DescriptionId),
    /// The other end was closed; so it was named.
    Ended(LocalAddress),
}

#[derive(Debug)]
struct Socket {
    kind: SocketKind,
    state: State,
    address: LocalAddress,
    incoming: VecDeque<Message>,
    /// What waits in `incoming` costs.
    held: usize,
    /// Nothing more comes in, or goes out.
    read_over: bool,
    write_over: bool,
    error: Option<Error>,
    /// Who made it, or listens.
    owner: Credentials,
    /// The owner of the other end, when they were connected.
    peer_owner: Credentials,
    tells_sender: bool,
    /// Where the last datagram to an address found no room.
    blocked_at: Option<DescriptionId>,
    /// Who waits for room here: to send, or to connect.
    blocked: BTreeSet<DescriptionId>,
    /// What it sent to the log of a line that has not ended.
    unended: Unended,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Sockets {
    all: BTreeMap<DescriptionId, Socket>,
    names: BTreeMap<Key, DescriptionId>,
    last_name: u32,
    /// Descriptions whose waiters must try again; the user of this takes them.
    pub changed: Vec<DescriptionId>,
    /// Rights that nobody will receive any more; the same.
    pub lost: Vec<Right>,
    log: Option<Log>,
    /// Lines for the log, and whose they are; the same.
    pub logged: Vec<(u32, String)>,
}

/// Who sends, with what besides bytes.
#[derive(Clone, Debug, Default)]
pub struct Sender<'a> {
    /// Its process, and who that is.
    pub who: Credentials,
    /// For whom, if the socket is not connected.
    pub to: Option<&'a LocalAddress>,
    /// Descriptions that go with the message.
    pub rights: &'a [Right],
}

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveOptions {
    /// At most so many bytes,
    pub room: usize,
    /// and so many rights.
    pub rights: usize,
    /// Nothing is taken.
    pub peek: bool,
}

/// What tells one address from another: a file is there once, an abstract name once for each kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(u64),
    Abstract(u8, Vec<u8>),
}

fn key_of(kind: SocketKind, address: &LocalAddress) -> Key {
    address.file.map_or_else(|| Key::Abstract(kind as u8, address.name.clone()), Key::File)
}

impl Socket {
    fn new(kind: SocketKind, owner: Credentials) -> Socket {
        Socket {
            kind,
            state: State::Free,
            address: LocalAddress::default(),
            incoming: VecDeque::new(),
            held: 0,
            read_over: false,
            write_over: false,
            error: None,
            owner,
            peer_owner: Credentials::default(),
            tells_sender: false,
            blocked_at: None,
            blocked: BTreeSet::new(),
            unended: Unended::default(),
        }
    }

    fn is_stream(&self) -> bool {
        self.kind == SocketKind::Stream
    }

    fn peer(&self) -> Option<DescriptionId> {
        if let State::Connected(peer) = self.state { Some(peer) } else { None }
    }

    /// How many of `offered` bytes may come in now.
    fn room(&self, offered: usize) -> Result<usize, Error> {
        let left = CAPACITY_BYTES.saturating_sub(self.held + MESSAGE_COST);
        match offered {
            _ if !self.is_stream() => {
                let fits = self.incoming.is_empty() || offered <= left;
                if fits { Ok(offered) } else { Err(Error::WouldBlock) }
            }
            offered if left >= offered.min(PART_MIN) => Ok(offered.min(left)),
            _ => Err(Error::WouldBlock),
        }
    }

    /// Is a sender told that there is room? Then there is for whatever it sends.
    fn takes_more(&self) -> bool {
        self.held + MESSAGE_COST + MESSAGE_MAX <= CAPACITY_BYTES
    }

    fn put(&mut self, message: Message) {
        if let Some(last) = self.incoming.back_mut()
            && self.kind == SocketKind::Stream
            && last.sender == message.sender
            && last.rights.is_empty()
            && message.rights.is_empty()
            && last.bytes.len() + message.bytes.len() <= JOINED_MAX
        {
            self.held += message.bytes.len();
            return last.bytes.extend_from_slice(&message.bytes);
        }
        self.held += message.bytes.len() + MESSAGE_COST;
        self.incoming.push_back(message);
    }
}

impl Sockets {
    fn get(&mut self, id: DescriptionId) -> Result<&mut Socket, Error> {
        self.all.get_mut(&id).ok_or(Error::BadId)
    }

    /// Is there room for so many more? `TooMany`.
    pub fn room(&self, more: usize) -> Result<(), Error> {
        let own = if self.log.is_some() { 2 } else { 0 };
        if self.all.len() + more <= SOCKETS_MAX + own { Ok(()) } else { Err(Error::TooMany) }
    }

    /// Enters a new socket of that process.
    pub fn add(&mut self, id: DescriptionId, kind: SocketKind, owner: Credentials) {
        self.all.insert(id, Socket::new(kind, owner));
    }

    /// Connects two new ones.
    pub fn join(&mut self, ids: [DescriptionId; 2]) {
        let owners = ids.map(|id| self.all.get(&id).map_or_else(Credentials::default, |socket| socket.owner));
        for (own, peer) in [(0, 1), (1, 0)] {
            if let Some(socket) = self.all.get_mut(&ids[own]) {
                (socket.state, socket.peer_owner) = (State::Connected(ids[peer]), owners[peer]);
            }
        }
    }

    /// Binds to an address; to a free one if it has no name. `Invalid` if it is bound,
    /// `AddressInUse`, `NameTooLong`.
    pub fn bind(&mut self, id: DescriptionId, mut address: LocalAddress) -> Result<(), Error> {
        let socket = self.get(id)?;
        let kind = socket.kind;
        if !socket.address.name.is_empty() {
            return Err(Error::Invalid);
        }
        if address.name.len() > LOCAL_NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if address.name.is_empty() {
            // More names than sockets: some are free.
            while address.name.is_empty() || self.names.contains_key(&key_of(kind, &address)) {
                self.last_name = (self.last_name + 1) & 0xf_ffff;
                address = LocalAddress { file: None, name: format!("\0{:05x}", self.last_name).into_bytes() };
            }
        }
        let key = key_of(kind, &address);
        if self.names.contains_key(&key) {
            return Err(Error::AddressInUse);
        }
        self.names.insert(key, id);
        self.get(id)?.address = address;
        Ok(())
    }

    /// Lets others connect, with so many that may wait. `Invalid` if it has no address or is
    /// connected, `NotSupported` for datagrams.
    pub fn listen(&mut self, id: DescriptionId, backlog: u32, owner: Credentials) -> Result<(), Error> {
        let socket = self.get(id)?;
        if socket.kind == SocketKind::Datagram {
            return Err(Error::NotSupported);
        }
        if socket.address.name.is_empty() {
            return Err(Error::Invalid);
        }
        let waiting = match &mut socket.state {
            State::Free => VecDeque::new(),
            State::Listening { waiting, .. } => core::mem::take(waiting),
            State::Connected(_) | State::Ended(_) => return Err(Error::Invalid),
        };
        socket.state = State::Listening { backlog: backlog.min(BACKLOG_MAX) as usize, waiting };
        socket.owner = owner;
        let blocked = core::mem::take(&mut socket.blocked);
        self.changed.extend(blocked);
        Ok(())
    }

    fn find(&mut self, kind: SocketKind, to: &LocalAddress) -> Result<DescriptionId, Error> {
        if let Some(log) = &self.log
            && to.file == Some(log.file)
        {
            return log.socket(kind);
        }
        let id = *self.names.get(&key_of(kind, to)).ok_or(Error::ConnectionRefused)?;
        if self.get(id)?.kind == kind { Ok(id) } else { Err(Error::WrongKind) }
    }

    /// Connects to an address. A connection's other end is the new socket `new`, which waits to be
    /// accepted. A datagram socket is disconnected by an address without a name.
    /// `ConnectionRefused`, `WrongKind`, `WouldBlock` while too many wait, `AlreadyConnected`,
    /// `Invalid` for a listener, `Denied` if a datagram socket there takes from another one only.
    pub fn connect(
        &mut self,
        id: DescriptionId,
        to: &LocalAddress,
        owner: Credentials,
        new: DescriptionId,
    ) -> Result<(), Error> {
        let kind = self.get(id)?.kind;
        if kind == SocketKind::Datagram {
            let state = match to.name.is_empty() {
                true => State::Free,
                false => State::Connected(self.receiver(id, to)?),
            };
            self.get(id)?.state = state;
            self.changed.push(id);
            return Ok(());
        }
        match self.get(id)?.state {
            State::Free => {}
            State::Listening { .. } => return Err(Error::Invalid),
            State::Connected(_) | State::Ended(_) => return Err(Error::AlreadyConnected),
        }
        let at = self.find(kind, to)?;
        if self.is_log(at) {
            self.get(id)?.state = State::Connected(at);
            self.changed.push(id);
            return Ok(());
        }
        self.room(1)?;
        let listener = self.get(at)?;
        let State::Listening { backlog, waiting } = &mut listener.state else { return Err(Error::ConnectionRefused) };
        if waiting.len() > *backlog {
            listener.blocked.insert(id);
            return Err(Error::WouldBlock);
        }
        waiting.push_back(new);
        let (listens, address) = (listener.owner, listener.address.clone());
        let accepted = Socket { state: State::Connected(id), address, peer_owner: owner, ..Socket::new(kind, listens) };
        self.all.insert(new, accepted);
        let socket = self.get(id)?;
        (socket.state, socket.peer_owner) = (State::Connected(new), listens);
        self.changed.extend([at, id]);
        Ok(())
    }

    /// The oldest connection that waits. `WouldBlock`, `Invalid` if it does not listen.
    pub fn accept(&mut self, id: DescriptionId) -> Result<DescriptionId, Error> {
        let socket = self.get(id)?;
        let State::Listening { waiting, .. } = &mut socket.state else { return Err(Error::Invalid) };
        let taken = waiting.pop_front().ok_or(Error::WouldBlock)?;
        let blocked = core::mem::take(&mut socket.blocked);
        self.changed.extend(blocked);
        Ok(taken)
    }

    /// Where a datagram for an address goes.
    fn receiver(&mut self, from: DescriptionId, to: &LocalAddress) -> Result<DescriptionId, Error> {
        let target = self.find(SocketKind::Datagram, to)?;
        match self.get(target)?.peer() {
            Some(peer) if peer != from => Err(Error::Denied),
            _ => Ok(target),
        }
    }

    /// The socket that what is sent reaches.
    fn target(&mut self, id: DescriptionId, to: Option<&LocalAddress>) -> Result<DescriptionId, Error> {
        let socket = self.get(id)?;
        let (kind, write_over, is_ended) = (socket.kind, socket.write_over, matches!(socket.state, State::Ended(_)));
        let peer = socket.peer();
        let target = match (kind, to) {
            (SocketKind::Datagram, Some(to)) => self.receiver(id, to)?,
            (SocketKind::Stream, Some(_)) if peer.is_some() || is_ended => return Err(Error::AlreadyConnected),
            (SocketKind::Stream, Some(_)) => return Err(Error::NotSupported),
            _ if is_ended && kind != SocketKind::Datagram => return Err(Error::BrokenPipe),
            _ => peer.ok_or(Error::NotConnected)?,
        };
        let Some(other) = self.all.get(&target) else {
            // The datagram socket it was connected to was closed.
            self.get(id)?.state = State::Free;
            return Err(Error::ConnectionRefused);
        };
        if write_over || other.read_over { Err(Error::BrokenPipe) } else { Ok(target) }
    }

    /// Sends some of the `offered` bytes of a stream, all of a message; `get` fetches them, and
    /// says `false` if it cannot: `Invalid`.
    pub fn send(
        &mut self,
        id: DescriptionId,
        sender: &Sender<'_>,
        offered: usize,
        get: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        let target = self.target(id, sender.to)?;
        let source = Some(self.get(id)?.address.clone()).filter(|address| !address.name.is_empty());
        let receiver = self.get(target)?;
        if !receiver.is_stream() && offered > MESSAGE_MAX {
            return Err(Error::MessageTooLong);
        }
        let is_log = self.is_log(target);
        let receiver = self.get(target)?;
        let room = receiver.room(offered.min(MESSAGE_MAX));
        if room.is_err() {
            receiver.blocked.insert(id);
        }
        self.get(id)?.blocked_at = room.is_err().then_some(target);
        let count = room?;
        let receiver = self.get(target)?;
        if receiver.is_stream() && count == 0 {
            return Ok(0);
        }
        let mut bytes = alloc::vec![0; count];
        if !get(&mut bytes) {
            return Err(Error::Invalid);
        }
        if is_log {
            let is_message = !receiver.is_stream();
            let lines = self.get(id)?.unended.take(&bytes, is_message);
            self.logged.extend(lines.into_iter().map(|line| (sender.who.process, line)));
            self.lost.extend(sender.rights);
            return Ok(count);
        }
        receiver.put(Message { bytes, taken: 0, source, sender: sender.who, rights: sender.rights.into() });
        self.changed.push(target);
        Ok(count)
    }

    /// Receives what there is of what is wished, which `put` takes with where they belong; it says
    /// `false` if it cannot, and then nothing is taken: `Invalid`. No byte of a stream is its end.
    pub fn receive(
        &mut self,
        id: DescriptionId,
        options: ReceiveOptions,
        mut put: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<Received, Error> {
        let socket = self.get(id)?;
        match (socket.kind, &socket.state) {
            (SocketKind::Stream, State::Free | State::Listening { .. }) => return Err(Error::Invalid),
            (SocketKind::Packets, State::Free | State::Listening { .. }) => return Err(Error::NotConnected),
            _ => {}
        }
        let Some(first) = socket.incoming.front() else {
            return match socket.error.take() {
                Some(error) => Err(error),
                None if socket.read_over => Ok(Received::default()),
                None => Err(Error::WouldBlock),
            };
        };
        let sender = socket.tells_sender.then_some(first.sender);
        let source = first.source.clone().map(Address::Local);
        // Of a stream as many pieces as fit; but not of two senders, if these are told, and only
        // the first may have rights.
        let is_of_sender = |message: &&Message| sender.is_none() || sender == Some(message.sender);
        let is_together = |message: &&Message| {
            socket.is_stream() && is_of_sender(message) && first.rights.is_empty() && message.rights.is_empty()
        };
        let others = socket.incoming.iter().skip(1).take_while(is_together);
        let mut done = 0;
        for message in core::iter::once(first).chain(others) {
            let left = &message.bytes[message.taken..];
            let part = &left[..left.len().min(options.room - done)];
            if !put(done, part) {
                return Err(Error::Invalid);
            }
            done += part.len();
            if done == options.room {
                break;
            }
        }
        let whole = if socket.is_stream() { done } else { first.bytes.len() };
        let mut rights = first.rights.clone();
        let unwanted = rights.split_off(rights.len().min(options.rights));
        let lost_rights = !unwanted.is_empty();
        if !options.peek {
            self.take(id, done)?;
            self.lost.extend(unwanted);
        }
        Ok(Received { bytes: done as u32, whole: whole as u32, source, sender, rights, lost_rights })
    }

    /// So many bytes of a stream, or one message, were received.
    fn take(&mut self, id: DescriptionId, mut count: usize) -> Result<(), Error> {
        let socket = self.get(id)?;
        let had_room = socket.takes_more();
        while let Some(first) = socket.incoming.front_mut() {
            // Whoever asked has them now.
            first.rights.clear();
            let part = if socket.kind == SocketKind::Stream { count.min(first.bytes.len() - first.taken) } else { 0 };
            if socket.kind == SocketKind::Stream && part + first.taken < first.bytes.len() {
                first.taken += part;
                socket.held -= part;
                break;
            }
            socket.held -= first.bytes.len() - first.taken + MESSAGE_COST;
            socket.incoming.pop_front();
            count -= part;
            if count == 0 || socket.kind != SocketKind::Stream {
                break;
            }
        }
        // Who waits for more room than there is stays; all others are told.
        let senders = socket.blocked.clone();
        if socket.takes_more() {
            socket.blocked.clear();
        }
        let now_has_room = !had_room && socket.takes_more();
        let kind = socket.kind;
        self.changed.extend(senders);
        if now_has_room {
            // Those who poll; a stream has one.
            let is_sender = |socket: &Socket| socket.kind == kind && socket.peer() == Some(id);
            let polled = self.all.iter().filter(|(_, socket)| is_sender(socket)).map(|(other, _)| *other);
            self.changed.extend(polled);
        }
        Ok(())
    }

    /// Ends one or both directions.
    pub fn shutdown(&mut self, id: DescriptionId, how: Shutdown) -> Result<(), Error> {
        let socket = self.get(id)?;
        let (reads, writes) = (how != Shutdown::Write, how != Shutdown::Read);
        socket.read_over |= reads;
        socket.write_over |= writes;
        let blocked = core::mem::take(&mut socket.blocked);
        let peer = socket.peer().filter(|_| socket.kind != SocketKind::Datagram);
        let peer = peer.filter(|peer| !self.is_log(*peer));
        self.changed.push(id);
        self.changed.extend(blocked);
        if let Some(peer) = peer {
            let other = self.get(peer)?;
            other.read_over |= writes;
            other.write_over |= reads;
            self.changed.push(peer);
        }
        Ok(())
    }

    /// Its own address and the other end's, if it is connected.
    pub fn names(&mut self, id: DescriptionId) -> Result<(LocalAddress, Option<LocalAddress>), Error> {
        let socket = self.get(id)?;
        let own = socket.address.clone();
        let peer = match &socket.state {
            State::Free | State::Listening { .. } => None,
            State::Ended(address) => Some(address.clone()),
            State::Connected(peer) => {
                let peer = *peer;
                Some(self.all.get(&peer).map(|other| other.address.clone()).unwrap_or_default())
            }
        };
        Ok((own, peer))
    }

    /// Whom what is received from it or sent to it belongs to: the process that was at the other
    /// end when they were connected. `NotConnected`.
    pub fn peer_owner(&mut self, id: DescriptionId) -> Result<Credentials, Error> {
        let socket = self.get(id)?;
        match socket.state {
            State::Listening { .. } => Ok(socket.owner),
            _ => Ok(socket.peer_owner),
        }
    }

    /// What it carries.
    pub fn kind(&mut self, id: DescriptionId) -> Result<SocketKind, Error> {
        Ok(self.get(id)?.kind)
    }

    /// Does it listen?
    pub fn is_listening(&mut self, id: DescriptionId) -> Result<bool, Error> {
        Ok(matches!(self.get(id)?.state, State::Listening { .. }))
    }

    /// Whether receivers are told who sent.
    pub fn tells_sender(&mut self, id: DescriptionId) -> Result<&mut bool, Error> {
        Ok(&mut self.get(id)?.tells_sender)
    }

    /// The error that waits, which is told once.
    pub fn take_error(&mut self, id: DescriptionId) -> Result<Option<Error>, Error> {
        Ok(self.get(id)?.error.take())
    }

    /// Bytes that can be received now; of messages the next one's.
    pub fn available(&mut self, id: DescriptionId) -> Result<usize, Error> {
        let socket = self.get(id)?;
        let left = |message: &Message| message.bytes.len() - message.taken;
        Ok(match socket.kind {
            SocketKind::Stream => socket.incoming.iter().map(left).sum(),
            _ => socket.incoming.front().map_or(0, left),
        })
    }

    /// Room, or nobody there to wait for.
    fn has_room(&self, id: DescriptionId) -> bool {
        self.all.get(&id).is_none_or(Socket::takes_more)
    }

    /// What holds of `ready`.
    pub fn ready(&self, id: DescriptionId) -> u32 {
        let Some(socket) = self.all.get(&id) else { return 0 };
        let is_datagram = socket.kind == SocketKind::Datagram;
        let (writes, hung_up) = match &socket.state {
            State::Listening { waiting, .. } => return if waiting.is_empty() { 0 } else { ready::READ },
            // Not as on Linux, where such a sender is told to try in vain.
            State::Free => (socket.blocked_at.is_none_or(|target| self.has_room(target)), !is_datagram),
            State::Ended(_) => (true, true),
            State::Connected(peer) => (self.has_room(*peer), false),
        };
        let bits = [
            (ready::READ, !socket.incoming.is_empty() || socket.read_over),
            (ready::WRITE, writes),
            (ready::ERROR, socket.error.is_some()),
            (ready::READ_HANGUP, socket.read_over),
            (ready::HANGUP, hung_up || socket.read_over && socket.write_over),
        ];
        bits.into_iter().filter(|(_, holds)| *holds).fold(0, |mask, (bit, _)| mask | bit)
    }

    /// Nobody holds it any more.
    pub fn close(&mut self, id: DescriptionId) {
        let Some(mut socket) = self.all.remove(&id) else { return };
        let key = key_of(socket.kind, &socket.address);
        if self.names.get(&key) == Some(&id) {
            self.names.remove(&key);
        }
        self.changed.extend(core::mem::take(&mut socket.blocked));
        self.logged.extend(socket.unended.end().map(|line| (socket.owner.process, line)));
        let was_unread = self.discard(core::mem::take(&mut socket.incoming));
        match socket.state {
            State::Connected(peer) if socket.kind != SocketKind::Datagram => {
                self.end(peer, socket.address, was_unread);
            }
            // Those who were not accepted are connected to nobody now.
            State::Listening { waiting, .. } => {
                for lost in waiting {
                    let Some(mut lost) = self.all.remove(&lost) else { continue };
                    self.discard(core::mem::take(&mut lost.incoming));
                    lost.peer().into_iter().for_each(|client| self.end(client, socket.address.clone(), true));
                }
            }
            _ => {}
        }
    }

    /// What nobody will receive goes; false if there was nothing.
    fn discard(&mut self, incoming: VecDeque<Message>) -> bool {
        let mut any = false;
        for message in incoming {
            any |= message.taken < message.bytes.len();
            self.lost.extend(message.rights);
        }
        any
    }

    /// A socket, and those that wait to be accepted there.
    fn with_waiting(&self, id: DescriptionId) -> impl Iterator<Item = DescriptionId> {
        let state = self.all.get(&id).map(|socket| &socket.state);
        let waiting = if let Some(State::Listening { waiting, .. }) = state { Some(waiting) } else { None };
        core::iter::once(id).chain(waiting.into_iter().flatten().copied())
    }

    /// What waits at a socket is lost: nobody can reach it.
    pub fn empty(&mut self, id: DescriptionId) {
        for id in self.with_waiting(id).collect::<Vec<_>>() {
            let Some(socket) = self.all.get_mut(&id) else { continue };
            socket.held = 0;
            let incoming = core::mem::take(&mut socket.incoming);
            self.discard(incoming);
        }
    }

    /// Rights that wait at a socket, and at those that wait to be accepted there.
    pub fn rights_at(&self, id: DescriptionId) -> Vec<Right> {
        let all = self.with_waiting(id).filter_map(|id| self.all.get(&id)).flat_map(|socket| &socket.incoming);
        all.flat_map(|message| message.rights.iter().copied()).collect()
    }

    /// The other end of a connection is gone, in the middle of something if `broken`.
    fn end(&mut self, id: DescriptionId, peer: LocalAddress, broken: bool) {
        if self.is_log(id) {
            return;
        }
        let Some(socket) = self.all.get_mut(&id) else { return };
        socket.state = State::Ended(peer);
        (socket.read_over, socket.write_over) = (true, true);
        if broken {
            socket.error = Some(Error::ConnectionReset);
        }
        self.changed.push(id);
    }
}

#[cfg(test)]
mod tests;
