//! The table of descriptions.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use channel::{Holders, IN_FLIGHT, Peer};
use contracts::descriptions::{DescriptionError, DescriptionId, may_have};
use contracts::files::{Hold, Lock, LockKind, open};
use contracts::in_flight::Tickets;

use crate::FileId;
use crate::copies::{Copies, Lent, Words};
use crate::locks::{Locks, Owner, owner};

/// What a description reads and writes.
pub trait Target {
    /// The file, if it is one that can be locked.
    fn file(&self) -> Option<FileId>;
}

/// An open description.
pub struct Open<T> {
    /// What it is of.
    pub target: T,
    /// Where the next read or write begins, as far as the server knows.
    offset: u64,
    /// If its client moves it.
    lent: Option<Lent>,
    /// It was opened for reading,
    pub reads: bool,
    /// and for writing.
    pub writes: bool,
    /// Each write goes to the end.
    pub appends: bool,
    /// It is of a mapping: no lock goes with it but its own.
    is_mapping: bool,
    /// Directory and name by which it was opened, of a file.
    pub name: Option<(FileId, String)>,
    holders: Holders,
}

impl<T> Open<T> {
    /// May its holder take that lock? As fcntl(2) has it; flock(2) takes any description.
    pub fn permits(&self, lock: &Lock) -> bool {
        match lock.hold {
            _ if lock.kind == LockKind::Whole => true,
            Some(Hold::Shared) => self.reads,
            Some(Hold::Exclusive) => self.writes,
            None => true,
        }
    }

    /// Where the next read or write begins. Its client moves it no more.
    pub fn offset(&mut self) -> u64 {
        if let Some(lent) = self.lent.take() {
            self.offset += lent.take_back();
        }
        self.offset
    }

    /// The next read or write begins there. Its client moves it no more.
    pub fn move_to(&mut self, offset: u64) {
        self.offset();
        self.offset = offset;
    }

    /// Moves the offset by `moved` from `base`; gives the new one. `Invalid` for a negative one.
    pub fn seek(&mut self, base: u64, moved: i64) -> Result<u64, DescriptionError> {
        let place = base.checked_add_signed(moved).filter(|place| i64::try_from(*place).is_ok());
        self.move_to(place.ok_or(DescriptionError::Invalid)?);
        Ok(self.offset)
    }
}

/// What became of a description when a reference was released.
#[derive(Debug)]
pub struct Released<T> {
    /// The client had one.
    pub was_held: bool,
    /// Locks went: others may be free now.
    pub freed_locks: bool,
    /// It was the last, of this.
    pub last: Option<T>,
}

/// All descriptions of a server.
pub struct Table<T> {
    open: BTreeMap<DescriptionId, Open<T>>,
    /// Most at once.
    max: usize,
    /// Ids up to this one are of an earlier life of the server.
    before: DescriptionId,
    last_id: DescriptionId,
    /// Advisory locks, and claims of what is mapped.
    pub locks: Locks,
    copies: Copies,
    tickets: Tickets,
}

impl<T: Target> Table<T> {
    /// Nothing is open. There are `max` at once; ids begin behind `before`. For a server that may
    /// be started again that is a number which grows from life to life by more than it has
    /// descriptions: what a client held in an earlier life is then nothing that it holds now.
    pub fn new(max: usize, before: DescriptionId) -> Table<T> {
        let (locks, copies, tickets) = Default::default();
        Table { open: BTreeMap::new(), max, before, last_id: before, locks, copies, tickets }
    }

    /// Is there room for one more description of a client's? `TooMany`.
    pub fn room(&self, peer: &Peer) -> Result<(), DescriptionError> {
        let own = || self.open.values().filter(|one| one.holders.contains(peer.id())).count();
        if may_have(self.max, self.open.len(), own) { Ok(()) } else { Err(DescriptionError::TooMany) }
    }

    /// Opens `target` for a client, where there is room. `flags` are `files::open`'s.
    pub fn add(&mut self, peer: &Peer, target: T, flags: u32) -> DescriptionId {
        self.last_id += 1;
        let open = Open {
            target,
            offset: 0,
            lent: None,
            reads: flags & open::READ != 0,
            writes: flags & open::WRITE != 0,
            appends: flags & open::APPEND != 0,
            is_mapping: flags & open::MAPPING != 0,
            name: None,
            holders: Holders::of(peer.id()),
        };
        self.open.insert(self.last_id, open);
        self.last_id
    }

    /// A description that the client holds. `Failed` for one of an earlier life, else `BadId`.
    pub fn get(&mut self, peer: &Peer, id: DescriptionId) -> Result<&mut Open<T>, DescriptionError> {
        let is_earlier = (1..=self.before).contains(&id);
        let none = if is_earlier { DescriptionError::Failed } else { DescriptionError::BadId };
        self.open.get_mut(&id).filter(|open| open.holders.contains(peer.id())).ok_or(none)
    }

    /// May a client change those bytes of a file? `Denied` while they are memory of programs and it
    /// is none of these.
    pub fn may_change(&self, peer: &Peer, file: FileId, bytes: Range<u64>) -> Result<(), DescriptionError> {
        let claims: Vec<(u64, u64)> = self.locks.mapped(file, bytes).collect();
        let is_own = |id: &u64| self.open.get(id).is_some_and(|mapping| mapping.holders.contains(peer.id()));
        let has = |memory: u64| claims.iter().any(|(id, other)| *other == memory && is_own(id));
        if claims.iter().all(|(_, memory)| has(*memory)) { Ok(()) } else { Err(DescriptionError::Denied) }
    }

    /// A client keeps bytes that it is about to read, from the place at which it reads: that, or
    /// the description's offset, which it moves by `most` bytes at most. As for
    /// `Descriptions::read_and_keep`, and `Invalid` for words that it has not.
    pub fn keep(
        &mut self,
        peer: &Peer,
        id: DescriptionId,
        (at, most): (Option<u64>, u32),
        words: u32,
    ) -> Result<u64, DescriptionError> {
        let open = self.get(peer, id)?;
        let file = open.target.file().ok_or(DescriptionError::NotSupported)?;
        if !open.reads {
            return Err(DescriptionError::BadId);
        }
        let is_shared = at.is_none() && open.holders.among(0..=u64::MAX).any(|holder| holder != peer.id());
        if is_shared || self.locks.mapped(file, 0..u64::MAX).next().is_some() {
            return Err(DescriptionError::Busy);
        }
        let words = Words::new(&peer.bulk(), words).ok_or(DescriptionError::Invalid)?;
        if let Some(at) = at.filter(|_| self.copies.are_of(file, &words)) {
            // What the client has of the file is as good as before.
            return Ok(at);
        }
        let before = self.copies.end(&words);
        if let Some(open) = before.and_then(|before| self.open.get_mut(&before)) {
            open.offset();
        }
        // Its own is looked up before the words are for something new.
        let offset = if at.is_none() { self.get(peer, id)?.offset() } else { 0 };
        let lent = at.is_none().then_some((id, most));
        let lent = self.copies.add(file, words, lent).ok_or(DescriptionError::TooMany)?;
        if lent.is_some() {
            self.get(peer, id)?.lent = lent;
        }
        Ok(at.unwrap_or(offset))
    }

    /// Bytes or the size of a file are others now: who keeps some of it hears that.
    pub fn changed(&mut self, file: FileId) {
        self.copies.changed(file);
    }

    /// A client that has ended keeps nothing.
    pub fn end_copies_of(&mut self, gone: &Peer) {
        self.copies.remove_all_in(&gone.bulk());
    }

    /// The file that a description names, with its owner for that kind of lock. `BadId` if it was
    /// not opened for what the lock guards, `Invalid` for what is no file.
    pub fn to_lock(
        &mut self,
        peer: &Peer,
        id: DescriptionId,
        lock: &Lock,
    ) -> Result<(FileId, Owner), DescriptionError> {
        let open = self.get(peer, id)?;
        let file = open.target.file().ok_or(DescriptionError::Invalid)?;
        if open.permits(lock) { Ok((file, owner(lock.kind, peer.id(), id))) } else { Err(DescriptionError::BadId) }
    }

    /// A client gives one reference back, or all at its end.
    pub fn release(&mut self, client: u64, id: DescriptionId, at_end: bool) -> Released<T> {
        let Some(open) = self.open.get_mut(&id) else {
            return Released { was_held: false, freed_locks: false, last: None };
        };
        let was_held = if at_end { open.holders.remove_all(client) } else { open.holders.remove(client) };
        let is_last = open.holders.is_empty();
        let mut freed_locks = false;
        if let Some(file) = open.target.file() {
            let is_closed = was_held && !open.holders.contains(client);
            freed_locks |= is_closed && self.locks.release(file, Owner::Holder(client, id));
            freed_locks |= is_closed && !open.is_mapping && self.locks.release(file, Owner::Client(client));
            freed_locks |= is_last && self.locks.release(file, Owner::Description(id));
        }
        let last = if is_last { self.open.remove(&id).map(|open| open.target) } else { None };
        Released { was_held, freed_locks, last }
    }

    /// A child gets what the client holds.
    pub fn inherit(&mut self, client: u64, child: u64) {
        for open in self.open.values_mut().filter(|open| open.holders.contains(client)) {
            open.offset();
            open.holders.inherit(client, child);
        }
    }

    /// What clients that ended hold: client and description.
    pub fn held_by(&self, gone: &Peer) -> Vec<(u64, DescriptionId)> {
        let of_gone = |(id, open): (&DescriptionId, &Open<T>)| {
            let holders = open.holders.among(gone.ids()).filter(|holder| gone.was(*holder));
            holders.map(|holder| (holder, *id)).collect::<Vec<_>>()
        };
        self.open.iter().flat_map(of_gone).collect()
    }

    /// Exports what a client holds: a ticket, a number that nobody guesses, stands for one more
    /// reference. `BadId`, `TooMany`, `Failed`.
    pub fn export(&mut self, peer: &Peer, id: DescriptionId, ticket: u64) -> Result<(), DescriptionError> {
        self.get(peer, id)?;
        self.tickets.add(ticket, id, peer.id())?;
        let open = self.get(peer, id)?;
        open.offset();
        open.holders.add(IN_FLIGHT);
        Ok(())
    }

    /// Gives a client a reference to what a ticket stands for. `BadId`.
    pub fn claim(&mut self, peer: &Peer, ticket: u64) -> Result<DescriptionId, DescriptionError> {
        let id = self.tickets.get(ticket)?;
        self.open.get_mut(&id).ok_or(DescriptionError::BadId)?.holders.add(peer.id());
        Ok(id)
    }

    /// Takes a ticket out, and gives what a message holds no more.
    pub fn settle(&mut self, ticket: u64) -> Option<DescriptionId> {
        self.tickets.settle(ticket)
    }

    /// Tickets of the exporters for which this holds.
    pub fn tickets_of(&self, is_exporter: impl Fn(u64) -> bool) -> Vec<u64> {
        self.tickets.of(is_exporter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::{Bulk, Layout, ServerChannel, loopback_memory, loopback_wiring};
    use contracts::descriptions::copy_words;

    const FILE: FileId = 77;
    const MOST: u32 = 100;

    struct File(FileId);

    impl Target for File {
        fn file(&self) -> Option<FileId> {
            Some(self.0)
        }
    }

    /// A client, by the number of its domain, and its bulk area.
    fn client(number: u32) -> (Peer, Bulk) {
        let layout = Layout { bulk_bytes: 256, ..Layout::default() };
        let [memory] = loopback_memory(layout);
        let wiring = channel::Wiring { peer_set: number, ..loopback_wiring(memory, false) };
        let peer = ServerChannel::new(wiring).peer().clone();
        let bulk = peer.bulk();
        (peer, bulk)
    }

    /// A table, a client, and its bulk area; the client has a file open.
    fn fixture() -> (Table<File>, Peer, Bulk, DescriptionId) {
        let (mut table, (peer, bulk)) = (Table::new(16, 0), client(4));
        let id = table.add(&peer, File(FILE), open::READ | open::WRITE);
        (table, peer, bulk, id)
    }

    #[test]
    fn locks_of_a_client_go_with_a_descriptor_and_not_with_a_mapping() {
        let (mut table, peer, _, id) = fixture();
        let lock = Lock { kind: LockKind::Client, hold: Some(Hold::Exclusive), from: 0, to: 9, process: 1 };
        table.locks.set(FILE, Owner::Client(peer.id()), &lock).unwrap();
        let others = table.add(&peer, File(FILE), open::READ | open::MAPPING);
        let released = table.release(peer.id(), others, false);
        assert!(released.was_held && !released.freed_locks && released.last.is_some());
        assert!(table.release(peer.id(), id, false).freed_locks);
    }

    fn is_over(bulk: &Bulk, words: u32) -> bool {
        bulk.load_u32(words as usize + copy_words::OVER).unwrap() != 0
    }

    /// The client has read so much of what it keeps.
    fn reads(bulk: &Bulk, words: u32, bytes: u32) {
        bulk.store_u32(words as usize + copy_words::READ, bytes).unwrap();
    }

    #[test]
    fn who_needs_an_offset_finds_it_where_its_client_moved_it() {
        type Needs = fn(&mut Table<File>, &Peer, DescriptionId) -> u64;
        let needs: [(Needs, u64); 6] = [
            (|table, peer, id| table.get(peer, id).unwrap().offset(), 33),
            (|table, peer, id| table.get(peer, id).unwrap().seek(5, 2).unwrap(), 7),
            (
                |table, peer, id| {
                    table.get(peer, id).unwrap().move_to(9);
                    table.get(peer, id).unwrap().offset()
                },
                9,
            ),
            (
                |table, peer, id| {
                    table.inherit(peer.id(), 9 << 32);
                    table.get(peer, id).unwrap().offset
                },
                33,
            ),
            (
                |table, peer, id| {
                    table.export(peer, id, 1).unwrap();
                    table.get(peer, id).unwrap().offset
                },
                33,
            ),
            // The same words for another description, and other words for the same.
            (
                |table, peer, id| {
                    let other = table.add(peer, File(FILE + 1), open::READ);
                    assert_eq!(table.keep(peer, other, (Some(50), MOST), 8), Ok(50));
                    table.get(peer, id).unwrap().offset
                },
                33,
            ),
        ];
        for (number, (need, wanted)) in needs.into_iter().enumerate() {
            let (mut table, peer, bulk, id) = fixture();
            table.get(&peer, id).unwrap().move_to(3);
            assert_eq!(table.keep(&peer, id, (None, MOST), 8), Ok(3));
            assert!(!is_over(&bulk, 8));
            reads(&bulk, 8, 30);
            assert_eq!(need(&mut table, &peer, id), wanted, "{number}");
            // The last one has the words for its own.
            assert_eq!(is_over(&bulk, 8), number != 5, "{number}");
        }
    }

    #[test]
    fn what_comes_next_is_kept_from_where_the_client_came() {
        let (mut table, peer, bulk, id) = fixture();
        for (round, words) in [(0, 0), (1, 8), (2, 8), (3, 0)] {
            assert_eq!(table.keep(&peer, id, (None, MOST), words), Ok(40 * round));
            reads(&bulk, words, 40);
        }
        // What is kept by a place has no offset.
        assert_eq!(table.keep(&peer, id, (Some(5), MOST), 8), Ok(5));
        reads(&bulk, 8, 99);
        assert_eq!(table.get(&peer, id).unwrap().offset(), 160);
        assert!(is_over(&bulk, 0) && !is_over(&bulk, 8));
    }

    /// A parent and its child hold one description of a mapping; each has turns of its own.
    #[test]
    fn a_turn_at_writing_back_goes_with_who_has_it() {
        let (mut table, parent, _, _) = fixture();
        let id = table.add(&parent, File(FILE), open::READ | open::WRITE | open::MAPPING);
        let child = parent.id() + 1;
        table.inherit(parent.id(), child);
        let turn = Lock { kind: LockKind::WriteBack, hold: Some(Hold::Exclusive), from: 0, to: 9, process: 1 };
        assert_eq!(table.to_lock(&parent, id, &turn), Ok((FILE, Owner::Holder(parent.id(), id))));
        let take = |table: &mut Table<File>, client| table.locks.set(FILE, Owner::Holder(client, id), &turn);
        assert_eq!(take(&mut table, child), Ok(false));
        assert_eq!(take(&mut table, parent.id()), Err(DescriptionError::WouldBlock));
        assert!(table.release(child, id, true).freed_locks);
        assert_eq!(take(&mut table, parent.id()), Ok(false));
        assert!(table.release(parent.id(), id, false).freed_locks);
    }

    #[test]
    fn nobody_keeps_what_changes_without_the_server() {
        let (mut table, peer, _, id) = fixture();
        let mapped =
            Lock { kind: LockKind::Mapped(5), hold: Some(Hold::Exclusive), from: 1 << 20, to: 2 << 20, process: 1 };
        table.locks.set(FILE, Owner::Description(id), &mapped).unwrap();
        assert_eq!(table.keep(&peer, id, (Some(0), MOST), 0), Err(DescriptionError::Busy));
        table.locks.release(FILE, Owner::Description(id));
        assert_eq!(table.keep(&peer, id, (Some(0), MOST), 0), Ok(0));
        // Of what a message or another client holds the bytes may be kept, and not the offset.
        type Share = fn(&mut Table<File>, &Peer, DescriptionId);
        let shares: [Share; 2] =
            [|table, peer, id| table.export(peer, id, 1).unwrap(), |table, peer, _| table.inherit(peer.id(), 9 << 32)];
        for share in shares {
            let (mut table, peer, _, id) = fixture();
            share(&mut table, &peer, id);
            assert_eq!(table.keep(&peer, id, (None, MOST), 0), Err(DescriptionError::Busy));
            assert_eq!(table.keep(&peer, id, (Some(0), MOST), 0), Ok(0));
        }
    }

    #[test]
    fn an_ended_client_hears_of_no_change_and_others_do() {
        let (mut table, gone, of_gone, id) = fixture();
        let (other, of_other) = client(5);
        let own = table.add(&other, File(FILE), open::READ);
        assert_eq!(table.keep(&gone, id, (Some(0), MOST), 0), Ok(0));
        assert_eq!(table.keep(&other, own, (Some(0), MOST), 0), Ok(0));
        table.end_copies_of(&gone);
        table.changed(FILE);
        assert!(!is_over(&of_gone, 0) && is_over(&of_other, 0));
    }

    #[test]
    fn only_who_may_read_a_file_keeps_it_by_words_of_its_own() {
        let (mut table, peer, _, id) = fixture();
        let (stranger, _) = client(5);
        let to_write = table.add(&peer, File(FILE), open::WRITE);
        assert_eq!(table.keep(&peer, to_write, (None, MOST), 0), Err(DescriptionError::BadId));
        assert_eq!(table.keep(&stranger, id, (None, MOST), 0), Err(DescriptionError::BadId));
        for words in [1, 252, 256, u32::MAX] {
            assert_eq!(table.keep(&peer, id, (None, MOST), words), Err(DescriptionError::Invalid));
        }
        for words in (0..16).map(|number| 8 * number) {
            assert_eq!(table.keep(&peer, id, (Some(0), MOST), words), Ok(0));
        }
        assert_eq!(table.keep(&peer, id, (Some(0), MOST), 128), Err(DescriptionError::TooMany));
    }
}
